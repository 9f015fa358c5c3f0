"""A network with linear layers that a CPU computes from weights in the order of its own products.

oneDNN sorts a weight for each product unless it is sorted once beforehand; and it adds a bias or a branch's
tokens, and applies a GELU, while the product is still in registers. The formula stays the layer's own.
"""

from typing import TypedDict, Unpack, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.models.attention import Attention, Mask
from vitral.models.blocks import Block, Mlp
from vitral.models.experts import MixtureOfExperts
from vitral.models.layers import HAS_FUSED_LINEAR, BatchPart, Linear, Losses, TanhGelu, Tokens
from vitral.models.model import Model
from vitral.models.position import Rotation

mkldnn = torch.ops.mkldnn
HAS_PACKING = HAS_FUSED_LINEAR and hasattr(mkldnn, "_reorder_linear_weight")
# What follows the product, as oneDNN's kernel names it.
PLAIN = ("none", "")
TANH = ("gelu", "tanh")
EXACT = ("gelu", "none")
GELUS: dict[type[nn.Module], tuple[str, str]] = {TanhGelu: TANH, nn.GELU: EXACT}


class Reads(TypedDict, total=False):
    """Which tokens a block reads, and how: the arguments of `Block.forward`."""

    num_queries: int | None
    mask: Mask | None
    rotation: Rotation | None
    part: BatchPart | None


class PackedLinear(nn.Linear):
    """A linear layer for inference, from a weight that was sorted once; it has no plain `weight` any more.

    Args:
        layer: The layer that it equals.
        after: What follows the product: `PLAIN`, `TANH` or `EXACT`.
    """

    def __init__(self, layer: nn.Linear, after: tuple[str, str] = PLAIN) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        del self.weight
        self.bias = layer.bias
        self.after, self.algorithm = after
        self.packed: Tensor = mkldnn._reorder_linear_weight(layer.weight.detach(), None)

    def forward(self, values: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch out"]:
        """Return the transformed values."""
        return mkldnn._linear_pointwise(values.contiguous(), self.packed, self.bias, self.after, [], self.algorithm)

    def plus(
        self, values: Float[Tensor, "*batch features"], other: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "*batch out"]:
        """Return the transformed values and `other` in one sum."""
        return mkldnn._linear_pointwise.binary(values.contiguous(), other.contiguous(), self.packed, self.bias, "add")


class PackedBlock(nn.Module):
    """A block, without experts and factors on its branches, which adds to the tokens what packed layers give last."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, tokens: Tokens, **how: Unpack[Reads]) -> tuple[Float[Tensor, "batch queries dim"], Losses]:
        """Return the tokens after the block, and no auxiliary losses."""
        return self.transformed(self.attended(tokens, **how))

    def attended(self, tokens: Tokens, **how: Unpack[Reads]) -> Float[Tensor, "batch queries dim"]:
        """Return the tokens after the first branch."""
        attention, num_queries = self.block.attention, how.get("num_queries")
        mixed = attention.mix(self.block.norm1(tokens), num_queries, how.get("mask"), how.get("rotation"))
        return cast(PackedLinear, attention.out).plus(mixed, tokens[:, :num_queries])

    def transformed(self, tokens: Tokens, part: BatchPart | None = None) -> tuple[Tokens, Losses]:
        """Return the tokens after the second branch, and no auxiliary losses."""
        mlp = self.block.mlp
        return mlp.fc2.plus(mlp.gelu(mlp.fc1(self.block.norm2(tokens))), tokens), {}


def pack(network: Model) -> Model:
    """Replace the linear layers of a network in place by packed ones, GELUs by part of the layer before; return the network.

    Left as they are: experts' routers, and what a last block projects of some tokens only, which reads part of a weight.
    """
    last = network.blocks()[-1] if network.blocks() else nn.Identity()
    partial = {id(module.qkv) for module in last.modules() if isinstance(module, Attention)}
    for module in network.modules():
        if isinstance(module, Mlp):
            _pack_mlp(module)
        if not isinstance(module, MixtureOfExperts):
            for name, layer in list(module.named_children()):
                if type(layer) in (Linear, nn.Linear) and id(layer) not in partial:
                    setattr(module, name, PackedLinear(cast(nn.Linear, layer)))
    for name, block in list(network.named_modules()):
        if isinstance(block, Block) and _adds_products(block):
            network.set_submodule(name, PackedBlock(block))
    return network


def _adds_products(block: Block) -> bool:
    """Tell whether nothing comes between the last product of each branch and its sum with the tokens."""
    plain = isinstance(block.scale1, nn.Identity) and isinstance(block.scale2, nn.Identity)
    if not plain or not isinstance(block.mlp, Mlp):
        return False
    return all(hasattr(layer, "plus") for layer in (block.attention.out, block.mlp.fc2))  # packed ones, or of integers


def _pack_mlp(mlp: Mlp) -> None:
    """Let the first layer apply the GELU, where oneDNN knows it."""
    after = GELUS.get(type(mlp.gelu))
    if after is not None and type(mlp.fc1) is Linear:
        mlp.fc1 = PackedLinear(mlp.fc1, after)  # type: ignore[assignment]
        mlp.gelu = nn.Identity()
