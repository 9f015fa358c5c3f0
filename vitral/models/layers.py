"""What the networks are built from: tokens with their grid, initial weights, stochastic depth, fast layers for CPUs.

Weights are drawn from distributions named as the sources call them. Stochastic depth leaves residual branches out for whole
examples while training (arXiv 1603.09382). Each fast layer stands next to the plain formula that it must equal.
"""

import contextlib
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self, cast

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.position import Rotation

Tokens = Float[Tensor, "batch tokens dim"]
Maps = Float[Tensor, "batch channels rows columns"]
Losses = dict[str, Tensor]  # auxiliary losses by name, scalars
# A normal distribution cut at two standard deviations has this much of the standard deviation left.
TRUNCATED_STD = 0.87962566103423978
Gelu = Literal["tanh", "exact", "quick"]
Added = Float[Tensor, "heads tokens tokens"]
Projected = Float[Tensor, "batch tokens three_dim"]
Mixed = Float[Tensor, "batch tokens dim"]

HAS_FUSED_LINEAR = hasattr(torch.ops.mkldnn, "_linear_pointwise")
# In bfloat16 oneDNN multiplies only where the CPU has AVX512 or the like; torch's own product runs on every one.
HAS_FUSED_BF16 = HAS_FUSED_LINEAR and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@dataclass(frozen=True)
class TokenGrid:
    """Tokens, and which of them are patches of what grid.

    Attributes:
        tokens: All tokens, (batch, prefix + patches + suffix, dim).
        grid: Rows and columns of the patches, in raster order; None where some were dropped or merged.
        prefix: Tokens before the patches: class token, distillation token, registers.
        suffix: Tokens after them, which others have appended, such as queries.
        losses: Auxiliary losses of the blocks that these tokens went through.
        rotation: How far the patches' queries and keys are turned in every block; None where they are not.
    """

    tokens: Tokens
    grid: tuple[int, int] | None
    prefix: int = 0
    suffix: int = 0
    losses: Mapping[str, Tensor] = field(default_factory=dict)
    rotation: Rotation | None = None

    @property
    def patches(self) -> Tokens:
        """The patches' tokens."""
        return self.tokens[:, self.prefix : self.tokens.shape[1] - self.suffix]

    @property
    def appended(self) -> Tokens:
        """The tokens after the patches."""
        return self.tokens[:, self.tokens.shape[1] - self.suffix :]

    @property
    def maps(self) -> Maps:
        """The patches' tokens as feature maps, or raise ModelError if they lie on no grid any more."""
        if self.grid is None:
            raise ModelError("Tokens that were dropped or merged make no feature map.")
        return self.patches.transpose(1, 2).reshape(self.tokens.shape[0], -1, *self.grid)

    def append(self, tokens: Tokens) -> "TokenGrid":
        """Return these tokens with others after them, (batch, tokens, dim)."""
        both = torch.cat([self.tokens, tokens.to(self.tokens.dtype)], dim=1)
        return TokenGrid(both, self.grid, self.prefix, self.suffix + tokens.shape[1], self.losses, self.rotation)

    def keep(self, indices: Int64[Tensor, "batch kept"]) -> "TokenGrid":
        """Return these tokens with some of the patches only, those of `indices` in that order; they lie on no grid."""
        patches = self.patches
        chosen = patches.gather(1, indices[:, :, None].expand(-1, -1, patches.shape[2]))
        tokens = torch.cat([self.tokens[:, : self.prefix], chosen, self.appended], dim=1)
        return TokenGrid(tokens, None, self.prefix, self.suffix, self.losses)

    def with_tokens(self, tokens: Tokens) -> "TokenGrid":
        """Return the same grid with other values: as many tokens in the same order."""
        return TokenGrid(tokens, self.grid, self.prefix, self.suffix, self.losses, self.rotation)


@dataclass(frozen=True)
class FeatureMaps:
    """What a convolutional backbone gives.

    Attributes:
        maps: The last feature maps, (batch, channels, rows, columns).
        finer: The last maps at each larger size, the largest first.
    """

    maps: Maps
    finer: tuple[Maps, ...] = ()

    @classmethod
    def through(cls, blocks: Iterable[nn.Module], maps: Maps, part: "BatchPart | None") -> Self:
        """Return what blocks make of maps one after another."""
        finer: list[Maps] = []
        for block in blocks:
            before, maps = maps, block(maps, part)
            if maps.shape[-1] < before.shape[-1]:
                finer.append(before)
        return cls(maps, tuple(finer))


class BatchPart(NamedTuple):
    """Which examples of a batch a forward pass is given: those from `first` on, of `total`.

    Stochastic depth draws for the whole batch and takes its part, so that a batch loses the same branches however many
    processes or micro-batches share it.
    """

    first: int
    total: int


class StochasticDepth(nn.Module):
    """Leaves a residual branch out for whole examples while training."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch: Float[Tensor, "batch ..."], part: BatchPart | None = None) -> Float[Tensor, "batch ..."]:
        """Return the branch, zero for a share `rate` of the examples and scaled up for the others.

        Args:
            branch: What the residual block adds.
            part: Which examples these are; None where they are the whole batch.
        """
        if not self.training or self.rate == 0.0:
            return branch
        first, total = part or (0, len(branch))
        keep = torch.full((total, *[1] * (branch.ndim - 1)), 1.0 - self.rate, device=branch.device)
        mask = torch.bernoulli(keep)[first : first + len(branch)]
        return branch * (mask / (1.0 - self.rate)).to(branch.dtype)


def depth_rate(rate: float, index: int, count: int) -> float:
    """Return block `index`'s share of a stochastic depth that grows linearly from 0 to `rate` over `count` blocks."""
    return rate * index / max(count - 1, 1)


def spread_stochastic_depth(blocks: Iterable[Any], rate: float) -> None:
    """Give each block its share of a stochastic depth that grows linearly from 0 to `rate`."""
    blocks = list(blocks)
    for index, block in enumerate(blocks):
        block.stochastic_depth.rate = depth_rate(rate, index, len(blocks))


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
def init_torch_default(
    layer: nn.Linear | nn.Conv2d | nn.ConvTranspose2d, generator: torch.Generator, *, bias: float = 0.0
) -> None:
    """Weights, and biases around `bias`, uniform within 1/sqrt(fan_in): what torch does unless a network says otherwise."""
    limit = layer.weight[0].numel() ** -0.5
    layer.weight.uniform_(-limit, limit, generator=generator)
    if layer.bias is not None:
        layer.bias.uniform_(-limit, limit, generator=generator).add_(bias)


def init_norms(network: nn.Module) -> None:
    """Set the scale of every norm in a network to 1, its bias to 0, and statistics to those of standardised maps."""
    for module in network.modules():
        if isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.reset_running_stats()


def seeded(model: nn.Module, seed: int) -> torch.Generator:
    """Return the generator of a network's weights, on the network's device."""
    tensors = itertools.chain(model.parameters(), model.buffers())  # a backbone may have nothing to learn
    return torch.Generator(device=next(tensors).device).manual_seed(seed)


def trains_in_bf16_on_cpu(values: Tensor) -> bool:
    """Tell whether this is a training step where torch's own kernels are slow, and those of this file are faster.

    torch.compile makes kernels of its own.
    """
    if torch.compiler.is_compiling():
        return False
    return values.dtype == torch.bfloat16 and values.device.type == "cpu" and values.requires_grad


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which autocast rounds nothing, because a decision is taken in float32."""
    # The meta device, on which networks are counted, knows no autocast.
    return contextlib.nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def gelu_layer(kind: Gelu) -> nn.Module:
    """Return one of the three GELUs; they differ by up to 5e-4 (tanh) and 2e-2 (quick) from the exact one."""
    return {"quick": QuickGelu, "tanh": TanhGelu, "exact": nn.GELU}[kind]()


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


class Linear(nn.Linear):
    """A linear layer, by the kernel that is fastest where it runs; the plain formula is `nn.Linear`'s own."""

    def forward(self, values: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch out"]:
        """Return the transformed values."""
        trains = trains_in_bf16_on_cpu(values) and torch.is_autocast_enabled("cpu")
        if not (HAS_FUSED_BF16 and trains):
            return functional.linear(values, self.weight, self.bias)
        bias = None if self.bias is None else self.bias.to(values.dtype)
        return fused_linear(values.contiguous(), self.weight.to(values.dtype), bias)

    def part(
        self, values: Float[Tensor, "*batch features"], start: int, stop: int | None = None
    ) -> Float[Tensor, "*batch part"]:
        """Return the transformed values from one output to another; only their products are computed."""
        bias = None if self.bias is None else self.bias[start:stop]
        return functional.linear(values, self.weight[start:stop], bias)


def fused_linear(
    values: Float[Tensor, "*batch features"], weight: Float[Tensor, "out features"], bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "*batch out"]:
    """Return `torch.nn.functional.linear`, by oneDNN's fused kernel; all in one precision, `values` contiguous."""
    return cast(Tensor, _FusedLinear.apply(values, weight, bias))


class _FusedLinear(torch.autograd.Function):
    """The bias is added where the product is still in registers; torch's own layer copies it out beforehand."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(values, weight)
        return torch.ops.mkldnn._linear_pointwise(values, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # noqa: ANN401
        values, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        need_values, need_weight, need_bias = ctx.needs_input_grad
        grad_values = (rows @ weight).view(values.shape) if need_values else None
        grad_weight = rows.t() @ values.reshape(-1, values.shape[-1]) if need_weight else None
        return grad_values, grad_weight, rows.sum(0) if need_bias else None


def packed_attention(projected: Projected, num_heads: int, added: Added | None = None) -> Mixed:
    """Return attention by the paper's appendix A, equations 5 to 7, with a backward pass of its own that copies less.

    Args:
        projected: Query, key and value of all heads side by side: (batch, tokens, 3 * dim).
        num_heads: Heads, each of dim / num_heads channels.
        added: What is added to the scores of every image, such as relative positions; nothing if None.
    """
    return cast(Tensor, _PackedAttention.apply(projected, num_heads, added))


class _PackedAttention(torch.autograd.Function):
    """One copy sorts the heads, one sorts them back.

    Left to themselves, query, key and value would each be copied, with the gradient of each.
    """

    @staticmethod
    def forward(ctx: Any, projected: Tensor, num_heads: int, added: Tensor | None) -> Tensor:  # noqa: ANN401
        batch, tokens, width = projected.shape
        sorted_heads = projected.view(batch, tokens, 3, num_heads, -1).permute(2, 0, 3, 1, 4).contiguous()
        query, key, value = sorted_heads.flatten(1, 2)
        scale = query.shape[-1] ** -0.5
        scores = torch.bmm(query * scale, key.transpose(1, 2))
        if added is not None:
            scores.view(batch, num_heads, tokens, tokens).add_(added)
        probabilities = scores.softmax(dim=-1)
        mixed = torch.bmm(probabilities, value).view(batch, num_heads, tokens, -1)
        ctx.save_for_backward(sorted_heads, probabilities)
        return mixed.transpose(1, 2).reshape(batch, tokens, width // 3)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None]:  # noqa: ANN401
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
        grad_added = grad_scores.view(batch, num_heads, tokens, tokens).sum(0) if ctx.needs_input_grad[2] else None
        return grad_heads.permute(1, 3, 0, 2, 4).reshape(batch, tokens, -1), None, grad_added
