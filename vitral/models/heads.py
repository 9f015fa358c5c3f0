"""Heads: what makes one vector an image of a backbone's tokens, and what lies between that and the logits."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.models.attention import Heads, attend, attention_scores
from vitral.models.blocks import LAYER_NORM_EPS, Mlp
from vitral.models.initialization import init_linear, init_norms
from vitral.models.kernels import Gelu
from vitral.models.tokens import Tokens


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
