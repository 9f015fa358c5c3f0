"""The encoder block that the transformer families share, with dropout where the original has it, and the heads above it.

A head makes one vector an image of a backbone's tokens; between that and the logits lie the layers given here.
"""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.models.attention import Attention, Heads, Mask, attend, attention_scores
from vitral.models.layers import (
    BatchPart,
    Gelu,
    Linear,
    Losses,
    StochasticDepth,
    Tokens,
    gelu_layer,
    init_linear,
    init_norms,
)
from vitral.models.position import Rotation

MlpKind = Literal["plain", "swiglu", "swiglu-norm"]
LAYER_NORM_EPS = 1e-6  # flax's default, on which the published weights were trained; torch's own is 1e-5


class Mlp(nn.Module):
    """Two linear layers with a GELU between (paper section 3.1), dropout after each.

    Args:
        dim: Width in and out.
        hidden_dim: Width between.
        gelu: "tanh", the original's approximation, "exact" or "quick".
    """

    def __init__(self, dim: int, hidden_dim: int, *, gelu: Gelu) -> None:
        super().__init__()
        self.fc1 = Linear(dim, hidden_dim)
        self.gelu = gelu_layer(gelu)
        self.fc2 = Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(0.0)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the transformed tokens."""
        return self.dropout(self.fc2(self.dropout(self.gelu(self.fc1(tokens)))))

    def init_weights(self, generator: torch.Generator) -> None:
        """Xavier-uniform weights; biases normal with standard deviation 1e-6."""
        init_linear(self.fc1, generator, bias_std=1e-6)
        init_linear(self.fc2, generator, bias_std=1e-6)


class SwiGlu(nn.Module):
    """A gated MLP: SiLU of one projection times another (arXiv 2002.05202), in the MLP's place in DINOv2's largest network.

    Args:
        dim: Width in and out.
        hidden_dim: Width of each of the two projections.
        norm_eps: Epsilon of a norm before the last layer (EVA-02); None for no norm.
    """

    def __init__(self, dim: int, hidden_dim: int, *, norm_eps: float | None = None) -> None:
        super().__init__()
        self.fc1 = Linear(dim, 2 * hidden_dim)  # the gate first
        self.norm = nn.Identity() if norm_eps is None else nn.LayerNorm(hidden_dim, eps=norm_eps)
        self.fc2 = Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(0.0)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the transformed tokens."""
        gate, value = self.fc1(tokens).chunk(2, dim=-1)
        return self.dropout(self.fc2(self.dropout(self.norm(nn.functional.silu(gate) * value))))

    def init_weights(self, generator: torch.Generator) -> None:
        """As of the plain MLP; the norm to scale 1 and bias 0."""
        init_linear(self.fc1, generator, bias_std=1e-6)
        init_linear(self.fc2, generator, bias_std=1e-6)
        init_norms(self)


class LayerScale(nn.Module):
    """A learned factor a channel on a residual branch (CaiT, arXiv 2103.17239)."""

    def __init__(self, dim: int, initial: float) -> None:
        super().__init__()
        self.initial = initial
        self.scale = nn.Parameter(torch.empty(dim))

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the scaled tokens."""
        return tokens * self.scale


class Block(nn.Module):
    """A pre-norm encoder block (paper equations 2 and 3); its rates are 0 until `set_rates`.

    Args:
        dim: Width of a token.
        num_heads: Attention heads.
        mlp_dim: Width inside the MLP.
        mlp: "plain", "swiglu" or "swiglu-norm", with a norm before its last layer.
        gelu: The activation of the plain MLP: "tanh", "exact" or "quick".
        norm_eps: Epsilon of the norms.
        qkv_bias: Whether the query, key and value projections have biases.
        layer_scale: Initial factor on the residual branches; None for none.
        experts: A mixture of experts in the MLP's place, which gives tokens and auxiliary losses; None for the plain MLP.
        relative: Number of tokens that have relative positions; None for none.
        grid: Rows and columns of the patches that have relative positions in both directions; None for none.
        prefix: How many tokens come before these patches.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_dim: int,
        *,
        mlp: MlpKind = "plain",
        gelu: Gelu = "tanh",
        norm_eps: float = LAYER_NORM_EPS,
        qkv_bias: bool = True,
        layer_scale: float | None = None,
        experts: nn.Module | None = None,
        relative: int | None = None,
        grid: tuple[int, int] | None = None,
        prefix: int = 0,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attention = Attention(dim, num_heads, qkv_bias=qkv_bias, relative=relative, grid=grid, prefix=prefix)
        self.scale1 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.has_experts = experts is not None
        self.mlp: Any = experts
        if experts is None and mlp == "plain":
            self.mlp = Mlp(dim, mlp_dim, gelu=gelu)
        elif experts is None:
            self.mlp = SwiGlu(dim, mlp_dim, norm_eps=norm_eps if mlp == "swiglu-norm" else None)
        self.scale2 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.stochastic_depth = StochasticDepth()

    def forward(
        self,
        tokens: Tokens,
        *,
        num_queries: int | None = None,
        mask: Mask | None = None,
        rotation: Rotation | None = None,
        part: BatchPart | None = None,
    ) -> tuple[Float[Tensor, "batch queries dim"], Losses]:
        """Return the tokens after the block, and the experts' auxiliary losses, where there are experts.

        The arguments are those of `Attention`, and which examples of a batch these are; all if None.
        """
        tokens = self.attended(tokens, num_queries=num_queries, mask=mask, rotation=rotation, part=part)
        return self.transformed(tokens, part)

    def attended(
        self,
        tokens: Tokens,
        *,
        num_queries: int | None = None,
        mask: Mask | None = None,
        rotation: Rotation | None = None,
        part: BatchPart | None = None,
    ) -> Float[Tensor, "batch queries dim"]:
        """Return the tokens after the first branch (equation 2); the arguments are those of `forward`."""
        mixed = self.attention(self.norm1(tokens), num_queries=num_queries, mask=mask, rotation=rotation)
        return tokens[:, :num_queries] + self.stochastic_depth(self.scale1(mixed), part)

    def transformed(self, tokens: Tokens, part: BatchPart | None = None) -> tuple[Tokens, Losses]:
        """Return the tokens after the second branch (equation 3), and the experts' losses."""
        hidden = self.mlp(self.norm2(tokens))
        hidden, losses = hidden if self.has_experts else (hidden, {})
        return tokens + self.stochastic_depth(self.scale2(hidden), part), losses

    def set_rates(self, *, dropout: float, attention_dropout: float, stochastic_depth: float) -> None:
        """Change the regularisation in place.

        Args:
            dropout: Rate after every dense layer but the query, key and value projections.
            attention_dropout: Rate on the attention probabilities.
            stochastic_depth: Rate at which a residual branch is left out.
        """
        attention = self.attention
        attention.attention_dropout = attention_dropout
        for layer in (attention.dropout, self.mlp.dropout):
            layer.p = dropout
        self.stochastic_depth.rate = stochastic_depth

    def init_weights(self, generator: torch.Generator) -> None:
        """Norms to scale 1 and bias 0, LayerScale to its initial value, the rest as its own layer says."""
        init_norms(self)
        self.attention.init_weights(generator)
        self.mlp.init_weights(generator)
        for scale in (self.scale1, self.scale2):
            if isinstance(scale, LayerScale):
                nn.init.constant_(scale.scale, scale.initial)


class TanhLayer(nn.Linear):
    """The hidden layer of the pre-training head: linear, then tanh (paper section 3.1)."""

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch out"]:
        """Return the representation."""
        return torch.tanh(super().forward(features))


class ProbeAttention(nn.Module):
    """Multi-head attention of one learned probe to all tokens, as in the MAP head of big_vision."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, probe: Float[Tensor, "batch 1 dim"], tokens: Tokens) -> Float[Tensor, "batch 1 dim"]:
        """Return the probe's mix of the tokens."""
        query, key, value = (
            self._heads(self.query(probe)),
            self._heads(self.key(tokens)),
            self._heads(self.value(tokens)),
        )
        return self.out(attend(query, key, value).transpose(1, 2).flatten(2))

    def probabilities(
        self, probe: Float[Tensor, "batch 1 dim"], tokens: Tokens
    ) -> Float[Tensor, "batch heads 1 tokens"]:
        """Return how much the probe attends to each token, summing to one."""
        query, key = self._heads(self.query(probe)), self._heads(self.key(tokens))
        return attention_scores(query, key).float().softmax(dim=-1)

    def _heads(self, projected: Tokens) -> Heads:
        batch, tokens, _ = projected.shape
        return projected.view(batch, tokens, self.num_heads, -1).transpose(1, 2)


class MapHead(nn.Module):
    """Multi-head attention pooling (Scaling Vision Transformers, arXiv 2106.04560; big_vision, models/vit.py)."""

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, *, gelu: Gelu) -> None:
        super().__init__()
        self.probe = nn.Parameter(torch.empty(1, 1, dim))
        self.attention = ProbeAttention(dim, num_heads)
        self.norm = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.mlp = Mlp(dim, mlp_dim, gelu=gelu)

    def forward(self, tokens: Tokens) -> Float[Tensor, "batch dim"]:
        """Return one vector an image."""
        pooled = self.attention(self.probe.expand(tokens.shape[0], -1, -1), tokens)
        return (pooled + self.mlp(self.norm(pooled)))[:, 0]

    def shares(self, tokens: Tokens) -> Float[Tensor, "batch tokens"]:
        """Return how much of each token's value the pooled vector holds, summing to one: the mean over the heads."""
        return self.attention.probabilities(self.probe.expand(len(tokens), -1, -1), tokens).mean(dim=1)[:, 0]

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Probe and projections Xavier-uniform, biases of the attention zero."""
        limit = math.sqrt(6.0 / (1 + self.probe.shape[-1]))
        self.probe.uniform_(-limit, limit, generator=generator)
        attention = self.attention
        for layer in (attention.query, attention.key, attention.value, attention.out):
            init_linear(layer, generator)
        init_norms(self)
        self.mlp.init_weights(generator)


def new_head(features: int, num_classes: int, like: Tensor) -> nn.Linear:
    """Return a linear layer with values still to be drawn, on the device and in the precision of `like`."""
    return nn.Linear(features, num_classes, device="meta", dtype=like.dtype).to_empty(device=like.device)
