"""The blocks that the transformer families share, with the initialisation and the dropout places of the original."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

Tokens = Float[Tensor, "batch tokens dim"]
Heads = Float[Tensor, "batch heads tokens head_dim"]
Gelu = Literal["tanh", "exact", "quick"]

LAYER_NORM_EPS = 1e-6  # flax's default, on which the published weights were trained; torch's own is 1e-5
# A normal distribution cut at two standard deviations has this much of the standard deviation left.
TRUNCATED_STD = 0.87962566103423978


@torch.no_grad()
def lecun_normal_(weight: Tensor, generator: torch.Generator) -> None:
    """Fill `weight` from a normal distribution of variance 1/fan_in, truncated at two standard deviations."""
    std = math.sqrt(1.0 / weight[0].numel()) / TRUNCATED_STD
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std, generator=generator)


@torch.no_grad()
def init_linear(layer: nn.Linear, generator: torch.Generator, *, bias_std: float = 0.0) -> None:
    """Xavier-uniform weights; biases normal with `bias_std`, or zero."""
    limit = math.sqrt(6.0 / (layer.in_features + layer.out_features))
    layer.weight.uniform_(-limit, limit, generator=generator)
    layer.bias.normal_(std=bias_std, generator=generator) if bias_std else layer.bias.zero_()


@torch.no_grad()
def init_linear_deit(layer: nn.Linear | nn.Conv2d, generator: torch.Generator) -> None:
    """Weights normal with standard deviation 0.02, truncated at +-2; bias zero: what DeiT, T2T-ViT and CvT do."""
    nn.init.trunc_normal_(layer.weight, std=0.02, a=-2.0, b=2.0, generator=generator)
    if layer.bias is not None:
        layer.bias.zero_()


@torch.no_grad()
def init_torch_default(layer: nn.Linear | nn.Conv2d, generator: torch.Generator) -> None:
    """Weights and biases uniform within 1/sqrt(fan_in): what torch does where a network does not say otherwise."""
    limit = layer.weight[0].numel() ** -0.5
    layer.weight.uniform_(-limit, limit, generator=generator)
    if layer.bias is not None:
        layer.bias.uniform_(-limit, limit, generator=generator)


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which autocast rounds nothing, for what decides in float32."""
    # The meta device, on which networks are counted, knows no autocast.
    return contextlib.nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def attend(query: Heads, key: Heads, value: Heads, dropout: float, scale: float | None = None) -> Heads:
    """Scaled dot-product attention (paper appendix A), by the kernel that is fastest where it runs.

    The fused CPU kernel's backward pass is several times slower than the plain products in bfloat16, so training there
    takes the plain ones; everything else takes the fused kernel. `scale` is 1/sqrt(head_dim) if None.
    """
    if trains_in_bf16_on_cpu(query):
        scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.transpose(-2, -1)
        probabilities = functional.dropout(scores.softmax(dim=-1), dropout, training=dropout > 0)
        return probabilities @ value
    return functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scale)


class _PackedAttention(torch.autograd.Function):
    """Self-attention over the projections of all heads in one tensor (batch, tokens, 3 * dim), as in paper equations 5-7.

    One copy sorts the heads, one sorts them back; left to themselves, query, key and value would each be copied, with the
    gradient of each.
    """

    @staticmethod
    def forward(ctx: Any, projected: Tensor, num_heads: int) -> Tensor:  # noqa: ANN401
        batch, tokens, width = projected.shape
        sorted_heads = projected.view(batch, tokens, 3, num_heads, -1).permute(2, 0, 3, 1, 4).contiguous()
        query, key, value = sorted_heads.flatten(1, 2)
        scale = query.shape[-1] ** -0.5
        probabilities = torch.bmm(query * scale, key.transpose(1, 2)).softmax(dim=-1)
        mixed = torch.bmm(probabilities, value).view(batch, num_heads, tokens, -1)
        ctx.save_for_backward(sorted_heads, probabilities)
        return mixed.transpose(1, 2).reshape(batch, tokens, width // 3)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        sorted_heads, probabilities = ctx.saved_tensors
        _, batch, num_heads, tokens, head_dim = sorted_heads.shape
        query, key, value = sorted_heads.flatten(1, 2)
        scale = head_dim**-0.5
        grad_heads = torch.empty_like(sorted_heads)
        grad_query, grad_key, grad_value = grad_heads.flatten(1, 2)
        grad_mixed = gradient.view(batch, tokens, num_heads, head_dim).transpose(1, 2).reshape(-1, tokens, head_dim)
        torch.bmm(probabilities.transpose(1, 2), grad_mixed, out=grad_value)
        grad_scores = torch.bmm(grad_mixed, value.transpose(1, 2))
        grad_scores = torch._softmax_backward_data(grad_scores, probabilities, -1, grad_scores.dtype)
        torch.bmm(grad_scores, key, out=grad_query)
        torch.bmm(grad_scores.transpose(1, 2), query, out=grad_key)
        grad_heads[:2].mul_(scale)
        return grad_heads.permute(1, 3, 0, 2, 4).reshape(batch, tokens, -1), None


class Attention(nn.Module):
    """Multi-head self-attention (paper appendix A, equations 5-8).

    Args:
        dim: width of a token.
        num_heads: heads; each has `dim / num_heads` channels.
        qkv_bias: whether the query, key and value projections have biases, as in the paper; T2T-ViT's have none.
        dropout: rate after the output projection.
        attention_dropout: rate on the attention probabilities.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        qkv_bias: bool = True,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.qkv = Linear(dim, 3 * dim, bias=qkv_bias)
        self.out = Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tokens, num_queries: int | None = None) -> Float[Tensor, "batch queries dim"]:
        """Return the mixed tokens; only the first `num_queries` of them where that is given."""
        rate = self.attention_dropout if self.training else 0.0
        if num_queries is None and rate == 0.0:
            projected = self.qkv(tokens)
            if trains_in_bf16_on_cpu(projected):
                mixed = cast(Tensor, _PackedAttention.apply(projected, self.num_heads))
                return self.dropout(self.out(mixed))
            query, key, value = self._split(projected, 3)
        else:
            query, key, value = self._project(tokens, num_queries)
        mixed = attend(query, key, value, rate).transpose(1, 2).flatten(2)
        return self.dropout(self.out(mixed))

    def probabilities(self, tokens: Tokens) -> Float[Tensor, "batch heads tokens tokens"]:
        """Return the attention probabilities, rows summing to one: fused kernels never give them."""
        query, key, _ = self._project(tokens, None)
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
        return scores.float().softmax(dim=-1)

    def _project(self, tokens: Tokens, num_queries: int | None) -> tuple[Heads, Heads, Heads]:
        if num_queries is None:
            query, key, value = self._split(self.qkv(tokens), 3)
            return query, key, value
        dim = tokens.shape[-1]
        weight = self.qkv.weight
        query_bias, other_bias = (None, None) if self.qkv.bias is None else (self.qkv.bias[:dim], self.qkv.bias[dim:])
        (query,) = self._split(functional.linear(tokens[:, :num_queries], weight[:dim], query_bias), 1)
        key, value = self._split(functional.linear(tokens, weight[dim:], other_bias), 2)
        return query, key, value

    def _split(self, projected: Tensor, parts: int) -> tuple[Tensor, ...]:
        batch, tokens, _ = projected.shape
        return projected.view(batch, tokens, parts, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def init_weights(self, generator: torch.Generator) -> None:
        """Xavier-uniform over each of query, key, value and output on its own: limit sqrt(3 / dim); biases zero."""
        limit = math.sqrt(3.0 / self.out.in_features)
        with torch.no_grad():
            for layer in (self.qkv, self.out):
                layer.weight.uniform_(-limit, limit, generator=generator)
                if layer.bias is not None:
                    layer.bias.zero_()


class QuickGelu(nn.Module):
    """x * sigmoid(1.702 x), an approximation of GELU that CvT's weights were trained with."""

    def forward(self, values: Tensor) -> Tensor:
        """Return the activations, of the shape of `values`."""
        return values * torch.sigmoid(1.702 * values)


class TanhGelu(nn.Module):
    """GELU by its tanh approximation, the original's form (jax.nn.gelu).

    The CPU's kernel for it takes six times as long in bfloat16 as the one for the exact form, from which it differs by at most
    4.7e-4: less than bfloat16 rounds any value above 0.12. So that is what a network learns with there; everywhere else, and
    in evaluation, it is the tanh form.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Return the activations, of the shape of `values`."""
        exact = trains_in_bf16_on_cpu(values)
        return functional.gelu(values, approximate="none" if exact else "tanh")


def gelu_layer(kind: Gelu) -> nn.Module:
    """Return one of the three GELUs; they differ by up to 5e-4 (tanh) and 2e-2 (quick) from the exact one."""
    return {"quick": QuickGelu, "tanh": TanhGelu, "exact": nn.GELU}[kind]()


def trains_in_bf16_on_cpu(values: Tensor) -> bool:
    """Tell whether this is a training step where torch's own kernels are slow, and others here take their place.

    torch.compile makes kernels of its own.
    """
    if torch.compiler.is_compiling():
        return False
    return values.dtype == torch.bfloat16 and values.device.type == "cpu" and values.requires_grad


class _FusedLinear(torch.autograd.Function):
    """A linear layer whose bias is added where the product is still in registers; torch's own copies it out beforehand."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(values, weight)
        ctx.has_bias = bias is not None
        return torch.ops.mkldnn._linear_pointwise(values, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # noqa: ANN401
        values, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        need_values, need_weight, need_bias = ctx.needs_input_grad
        grad_values = (rows @ weight).view(values.shape) if need_values else None
        grad_weight = rows.t() @ values.reshape(-1, values.shape[-1]) if need_weight else None
        return grad_values, grad_weight, rows.sum(0) if need_bias else None


class Linear(nn.Linear):
    """A linear layer, by the kernel that is fastest where it runs."""

    def forward(self, values: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch out"]:
        """Return the transformed values."""
        if not (HAS_FUSED_LINEAR and trains_in_bf16_on_cpu(values) and torch.is_autocast_enabled("cpu")):
            return super().forward(values)
        weight, bias = self.weight.to(values.dtype), None if self.bias is None else self.bias.to(values.dtype)
        return cast(Tensor, _FusedLinear.apply(values.contiguous(), weight, bias))


HAS_FUSED_LINEAR = hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Mlp(nn.Module):
    """Two linear layers with a GELU between (paper section 3.1), dropout after each.

    Args:
        dim: width in and out.
        hidden_dim: width between.
        gelu: "tanh", the original's approximation, "exact" or "quick".
        dropout: rate after the GELU and after the second layer.
    """

    def __init__(self, dim: int, hidden_dim: int, *, gelu: Gelu, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = Linear(dim, hidden_dim)
        self.gelu = gelu_layer(gelu)
        self.fc2 = Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the transformed tokens."""
        return self.dropout(self.fc2(self.dropout(self.gelu(self.fc1(tokens)))))

    def init_weights(self, generator: torch.Generator) -> None:
        """Xavier-uniform weights; biases normal with standard deviation 1e-6."""
        init_linear(self.fc1, generator, bias_std=1e-6)
        init_linear(self.fc2, generator, bias_std=1e-6)


class LayerScale(nn.Module):
    """A learned factor a channel on a residual branch (CaiT, arXiv 2103.17239)."""

    def __init__(self, dim: int, initial: float) -> None:
        super().__init__()
        self.initial = initial
        self.scale = nn.Parameter(torch.empty(dim))

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the scaled tokens."""
        return tokens * self.scale


_part: tuple[int, int] | None = None


@contextlib.contextmanager
def part_of_batch(first: int, total: int) -> Iterator[None]:
    """Say which examples of a batch of `total` the network is given: those from place `first` on.

    Stochastic depth then draws for the whole batch and takes its part, so that a batch loses the same branches however many
    processes or micro-batches share it.
    """
    global _part  # a forward pass has no other way to its layers
    before, _part = _part, (first, total)
    try:
        yield
    finally:
        _part = before


class StochasticDepth(nn.Module):
    """Leaves a residual branch out for whole examples while training (arXiv 1603.09382)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """Return the branch, zero for a share `rate` of the examples and scaled up for the others."""
        if not self.training or self.rate == 0.0:
            return branch
        first, total = _part or (0, len(branch))
        keep = torch.full((total, *[1] * (branch.ndim - 1)), 1.0 - self.rate, device=branch.device)
        kept = torch.bernoulli(keep)[first : first + len(branch)]
        return branch * (kept / (1.0 - self.rate)).to(branch.dtype)


class Block(nn.Module):
    """A pre-norm encoder block (paper equations 2 and 3).

    Args:
        dim: width of a token.
        num_heads: attention heads.
        mlp_dim: width inside the MLP.
        gelu: "tanh", "exact" or "quick".
        norm_eps: epsilon of the norms.
        qkv_bias: whether the query, key and value projections have biases.
        dropout: rate after every dense layer but the query, key and value projections.
        attention_dropout: rate on the attention probabilities.
        stochastic_depth: rate at which a residual branch is left out.
        layer_scale: initial factor on the residual branches; None for none.
        mlp: stands in the MLP's place, such as a mixture of experts; None for the plain MLP.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_dim: int,
        *,
        gelu: Gelu = "tanh",
        norm_eps: float = LAYER_NORM_EPS,
        qkv_bias: bool = True,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        layer_scale: float | None = None,
        mlp: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attention = Attention(
            dim, num_heads, qkv_bias=qkv_bias, dropout=dropout, attention_dropout=attention_dropout
        )
        self.scale1 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp: Any = Mlp(dim, mlp_dim, gelu=gelu, dropout=dropout) if mlp is None else mlp
        self.scale2 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.stochastic_depth = StochasticDepth(stochastic_depth)

    def forward(self, tokens: Tokens, num_queries: int | None = None) -> Float[Tensor, "batch queries dim"]:
        """Return the tokens after the block; only the first `num_queries` of them where that is given."""
        mixed = self.attention(self.norm1(tokens), num_queries)
        tokens = tokens[:, :num_queries] + self.stochastic_depth(self.scale1(mixed))
        return tokens + self.stochastic_depth(self.scale2(self.mlp(self.norm2(tokens))))

    def set_rates(self, *, dropout: float, attention_dropout: float, stochastic_depth: float) -> None:
        """Change the regularisation in place."""
        self.attention.attention_dropout = attention_dropout
        self.attention.dropout.p = dropout
        self.mlp.dropout.p = dropout
        self.stochastic_depth.rate = stochastic_depth

    def init_weights(self, generator: torch.Generator) -> None:
        """Norms to scale 1 and bias 0, LayerScale to its initial value, the rest as its own layer says."""
        init_norm(self.norm1)
        init_norm(self.norm2)
        self.attention.init_weights(generator)
        self.mlp.init_weights(generator)
        for scale in (self.scale1, self.scale2):
            if isinstance(scale, LayerScale):
                nn.init.constant_(scale.scale, scale.initial)


def init_norm(norm: nn.LayerNorm | nn.GroupNorm | nn.BatchNorm2d) -> None:
    """Set a norm's scale to 1 and its bias to 0."""
    nn.init.ones_(norm.weight)
    nn.init.zeros_(norm.bias)


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
        return self.out(attend(query, key, value, 0.0).transpose(1, 2).flatten(2))

    def probabilities(
        self, probe: Float[Tensor, "batch 1 dim"], tokens: Tokens
    ) -> Float[Tensor, "batch heads 1 tokens"]:
        """Return how much the probe attends to each token, summing to one."""
        query, key = self._heads(self.query(probe)), self._heads(self.key(tokens))
        return ((query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)).float().softmax(dim=-1)

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
        """Return one vector an example."""
        pooled = self.attention(self.probe.expand(tokens.shape[0], -1, -1), tokens)
        return (pooled + self.mlp(self.norm(pooled)))[:, 0]

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Probe and projections Xavier-uniform, biases of the attention zero."""
        limit = math.sqrt(6.0 / (1 + self.probe.shape[-1]))
        self.probe.uniform_(-limit, limit, generator=generator)
        for layer in (self.attention.query, self.attention.key, self.attention.value, self.attention.out):
            init_linear(layer, generator)
        init_norm(self.norm)
        self.mlp.init_weights(generator)
