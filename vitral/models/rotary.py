"""Rotary positions: queries and keys are turned by angles that tell where their patches lie (arXiv 2104.09864, in two axes)."""

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

RotaryKind = Literal["none", "dinov3", "eva02"]

DINOV3_BASE = 100.0
EVA02_BASE = 10_000.0
EVA02_GRID = 16  # rows and columns that EVA-02's positions are stretched to (asuka/eva_vit, pt_hw_seq_len)


@dataclass(frozen=True)
class Rotation:
    """How far the channels of each token's queries and keys are turned.

    Attributes:
        cosine: Cosines of the angles, (tokens, head_dim).
        sine: Sines of the angles, (tokens, head_dim).
        interleaved: Whether neighbouring channels turn together (EVA-02), or those of a head's two halves (DINOv3).
    """

    cosine: Float[Tensor, "tokens head_dim"]
    sine: Float[Tensor, "tokens head_dim"]
    interleaved: bool


def rotate(
    heads: Float[Tensor, "batch heads some head_dim"], rotation: Rotation
) -> Float[Tensor, "batch heads some head_dim"]:
    """Turn each channel together with its fellow by their token's angle; in float32.

    Args:
        heads: Queries or keys, of the first tokens if not of all.
        rotation: The rotation of all tokens.
    """
    count = heads.shape[2]
    values = heads.float()
    if rotation.interleaved:
        turned = torch.stack([-values[..., 1::2], values[..., ::2]], dim=-1).flatten(-2)
    else:
        first, second = values.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
    return (values * rotation.cosine[:count] + turned * rotation.sine[:count]).to(heads.dtype)


def rotation_table(kind: RotaryKind, grid: tuple[int, int], head_dim: int) -> Float[Tensor, "2 patches head_dim"]:
    """Return the cosines and sines for the patches of a grid, in row-major order.

    A quarter of the angles tells the row, the next the column; DINOv3 then repeats all of them, EVA-02 each on the spot.
    DINOv3 (dinov3/layers/rope_position_encoding.py) measures rows and columns from -1 to 1, at the patches' centres, and has
    periods from 1 to 100. EVA-02 counts them, stretched to a grid of 16, over frequencies from 1 down to 1/10000.

    Args:
        kind: "dinov3" or "eva02".
        grid: Rows and columns of patches.
        head_dim: Channels of a head, a multiple of 4.
    """
    count = head_dim // 4
    if kind == "dinov3":
        sides = [2 * (np.arange(side, dtype=np.float64) + 0.5) / side - 1 for side in grid]
        frequency = 2 * math.pi / DINOV3_BASE ** (np.arange(count) / count)
    else:
        sides = [np.arange(side, dtype=np.float64) * (EVA02_GRID / side) for side in grid]
        frequency = 1 / EVA02_BASE ** (np.arange(count) / count)
    rows, columns = (position[:, None] * frequency for position in sides)
    angles = np.concatenate([np.repeat(rows, grid[1], axis=0), np.tile(columns, (grid[0], 1))], axis=1)
    angles = np.tile(angles, (1, 2)) if kind == "dinov3" else np.repeat(angles, 2, axis=1)
    return torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32))


class RotaryPosition(nn.Module):
    """The angles of every token: patches by where they lie, others not turned at all.

    Args:
        kind: "dinov3" or "eva02".
        grid: Rows and columns of patches.
        head_dim: Channels of an attention head.
    """

    table: Tensor

    def __init__(self, kind: RotaryKind, grid: tuple[int, int], head_dim: int) -> None:
        super().__init__()
        self.kind = kind
        self.grid = grid
        self.head_dim = head_dim
        self.register_buffer("table", rotation_table(kind, grid, head_dim), persistent=False)

    def forward(self, prefix: int, suffix: int) -> Rotation:
        """Return the rotation of all tokens, so many of them before the patches and after them."""
        cosine, sine = self.table
        padding = (0, 0, prefix, suffix)
        return Rotation(functional.pad(cosine, padding, value=1.0), functional.pad(sine, padding), self.kind == "eva02")

    def _apply(self, *arguments: Any, **named: Any) -> Self:  # noqa: ANN401  # torch's own
        """Move with the network, but stay in float32: in bfloat16 neighbouring patches would share an angle."""
        super()._apply(*arguments, **named)  # type: ignore[no-untyped-call]
        self.resize(self.grid)
        return self

    def resize(self, grid: tuple[int, int]) -> None:
        """Compute the angles for a grid of (rows, columns), also for the same one again."""
        self.grid = grid
        self.table = rotation_table(self.kind, grid, self.head_dim).to(self.table.device)
