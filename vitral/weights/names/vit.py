"""The Vision Transformer's tensors in the original's files and in big_vision's (vit_jax/checkpoint.py; models/vit.py).

Kernels are stored with their inputs first, convolutions as (height, width, in, out), attention as (dim, heads, head_dim).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.models.vit import ViTConfig

Read = Callable[[list[Tensor]], Tensor]


@dataclass(frozen=True)
class Rule:
    """How one of our tensors is made of theirs.

    Attributes:
        ours: its name.
        theirs: the names that it is made of.
        read: makes it of them, in that order.
    """

    ours: str
    theirs: tuple[str, ...]
    read: Read


@dataclass(frozen=True)
class Generation:
    """What an encoder block's parts are called: flax numbered them through at first, and by kind later."""

    norm1: str
    attention: str
    norm2: str
    mlp: str


ORIGINAL = Generation("LayerNorm_0", "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
LINEN = Generation("LayerNorm_0", "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")

POSITION_NAMES = ("Transformer/posembed_input/pos_embedding", "Transformer/pos_embedding", "pos_embedding")


def rules(
    config: ViTConfig, generation: Generation, position: str | None, *, class_row: bool, head: bool
) -> list[Rule]:
    """Return the table for one architecture.

    Args:
        config: of the network.
        generation: how the file calls the parts of a block.
        position: the position embedding's name; None for a fixed one.
        class_row: whether it has a row for the class token; big_vision's has none, which equals a row of zeros.
        head: whether the file has a head.
    """
    table = [
        Rule("patch_embedding.weight", ("embedding/kernel",), _convolution),
        Rule("patch_embedding.bias", ("embedding/bias",), _same),
        *_norm("norm", "Transformer/encoder_norm"),
    ]
    for index in range(config.depth):
        table += _block(f"encoder.{index}", f"Transformer/encoderblock_{index}", generation)
    if config.pooling == "token":
        table.append(Rule("class_token", ("cls",), _same))
    if position is not None:
        padded = config.pooling == "token" and not class_row
        table.append(Rule("position.embedding", (position,), _with_class_row if padded else _same))
    if config.pooling == "map":
        table += _map_head()
    if config.representation_size:
        table += _linear("pre_logits", "pre_logits")
    return table + (_linear("head", "head") if head else [])


def _block(ours: str, theirs: str, generation: Generation) -> list[Rule]:
    attention = f"{theirs}/{generation.attention}"
    parts = [f"{attention}/{part}" for part in ("query", "key", "value")]
    return [
        *_norm(f"{ours}.norm1", f"{theirs}/{generation.norm1}"),
        Rule(f"{ours}.attention.qkv.weight", tuple(f"{part}/kernel" for part in parts), _projections),
        Rule(f"{ours}.attention.qkv.bias", tuple(f"{part}/bias" for part in parts), _projection_biases),
        Rule(f"{ours}.attention.out.weight", (f"{attention}/out/kernel",), _output),
        Rule(f"{ours}.attention.out.bias", (f"{attention}/out/bias",), _same),
        *_norm(f"{ours}.norm2", f"{theirs}/{generation.norm2}"),
        *_linear(f"{ours}.mlp.fc1", f"{theirs}/{generation.mlp}/Dense_0"),
        *_linear(f"{ours}.mlp.fc2", f"{theirs}/{generation.mlp}/Dense_1"),
    ]


def _map_head() -> list[Rule]:
    theirs = "MAPHead_0"
    attention = f"{theirs}/{LINEN.attention}"
    table = [Rule("map_head.probe", (f"{theirs}/probe",), _same)]
    for part in ("query", "key", "value"):
        table.append(Rule(f"map_head.attention.{part}.weight", (f"{attention}/{part}/kernel",), _projections))
        table.append(Rule(f"map_head.attention.{part}.bias", (f"{attention}/{part}/bias",), _projection_biases))
    return [
        *table,
        Rule("map_head.attention.out.weight", (f"{attention}/out/kernel",), _output),
        Rule("map_head.attention.out.bias", (f"{attention}/out/bias",), _same),
        *_norm("map_head.norm", f"{theirs}/LayerNorm_0"),
        *_linear("map_head.mlp.fc1", f"{theirs}/{LINEN.mlp}/Dense_0"),
        *_linear("map_head.mlp.fc2", f"{theirs}/{LINEN.mlp}/Dense_1"),
    ]


def _norm(ours: str, theirs: str) -> list[Rule]:
    return [Rule(f"{ours}.weight", (f"{theirs}/scale",), _same), Rule(f"{ours}.bias", (f"{theirs}/bias",), _same)]


def _linear(ours: str, theirs: str) -> list[Rule]:
    return [
        Rule(f"{ours}.weight", (f"{theirs}/kernel",), _transposed),
        Rule(f"{ours}.bias", (f"{theirs}/bias",), _same),
    ]


def _same(tensors: list[Tensor]) -> Tensor:
    return tensors[0]


def _transposed(tensors: list[Tensor]) -> Tensor:
    return tensors[0].transpose(0, 1).contiguous()


def _convolution(tensors: list[Tensor]) -> Tensor:
    return tensors[0].permute(3, 2, 0, 1).contiguous()


def _projections(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten(1).transpose(0, 1) for tensor in tensors])


def _projection_biases(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _output(tensors: list[Tensor]) -> Tensor:
    return tensors[0].flatten(0, 1).transpose(0, 1).contiguous()


def _with_class_row(tensors: list[Tensor]) -> Tensor:
    return torch.nn.functional.pad(tensors[0], (0, 0, 1, 0))
