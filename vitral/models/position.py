"""Position embeddings: learned 1-D, learned 2-D, fixed 2-D sin-cos, relative, rotary, or none (paper sections 3.1 and D.4).

Rotary ones turn queries and keys by angles that tell where their patches lie (arXiv 2104.09864, in two axes).
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

RotaryKind = Literal["none", "dinov3", "eva02"]

DINOV3_BASE = 100.0
EVA02_BASE = 10_000.0
EVA02_GRID = 16  # rows and columns that EVA-02's positions are stretched to (asuka/eva_vit, pt_hw_seq_len)
PositionKind = Literal["learned", "learned-2d", "sincos-2d", "relative", "relative-2d", "none"]
PositionAt = Literal["input", "layers", "layers-shared"]
PositionResize = Literal["bilinear", "bicubic", "bicubic-antialias", "bicubic-dinov2"]
Table = Float[Tensor, "heads ways_down ways_right"]

TEMPERATURE = 10_000.0
LOCALITY = 1.0  # how fast a head's score falls with the squared distance from its neighbour, in tokens; ConViT's
DINOV2_OFFSET = 0.1  # of a grid's side (dinov2/models/vision_transformer.py, interpolate_pos_encoding)


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

    def among(self, prefix: int, suffix: int) -> "Rotation":
        """Return the rotation of the patches with so many tokens before and after them, which are not turned."""
        padding = (0, 0, prefix, suffix)
        cosine = functional.pad(self.cosine, padding, value=1.0)
        return Rotation(cosine, functional.pad(self.sine, padding), self.interleaved)


def rotate(
    heads: Float[Tensor, "batch heads some head_dim"], rotation: Rotation
) -> Float[Tensor, "batch heads some head_dim"]:
    """Turn queries or keys of the first tokens or of all, each channel with its fellow by the token's angle; in float32."""
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
    """The angles of the patches, by where they lie.

    In training those of DINOv3 may lie elsewhere, all patches of a batch alike, so that a network bears images of other sizes
    (dinov3/layers/rope_position_encoding.py). What is drawn comes from torch's own generator, as dropout's does.

    Args:
        kind: "dinov3" or "eva02".
        grid: Rows and columns of patches.
        head_dim: Channels of an attention head.
        shift: The most by which rows and columns are moved, each on its own, where the image reaches from -1 to 1; None for 0.
        jitter: The most by which rows and columns are stretched or shrunk, each on its own; None for 1.
        rescale: The most by which both are stretched or shrunk alike; None for 1.
    """

    table: Tensor

    def __init__(
        self,
        kind: RotaryKind,
        grid: tuple[int, int],
        head_dim: int,
        *,
        shift: float | None = None,
        jitter: float | None = None,
        rescale: float | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.grid = grid
        self.head_dim = head_dim
        self.shift, self.jitter, self.rescale = shift, jitter, rescale
        self.register_buffer("table", rotation_table(kind, grid, head_dim), persistent=False)

    def forward(self) -> Rotation:
        """Return the rotation of the patches, in row-major order; in training a newly drawn one, where any is drawn."""
        moves = (self.shift, self.jitter, self.rescale) != (None, None, None)
        cosine, sine = self._drawn() if self.training and moves else self.table
        return Rotation(cosine, sine, self.kind == "eva02")

    def _drawn(self) -> Float[Tensor, "2 patches head_dim"]:
        """Return the cosines and sines of moved patches, with draws and rounding as in the original."""
        device, count = self.table.device, self.head_dim // 4
        sides = [torch.arange(0.5, side, device=device) / side for side in self.grid]
        places = 2 * torch.cartesian_prod(*sides) - 1
        if self.shift is not None:
            places = places + torch.empty(2, device=device).uniform_(-self.shift, self.shift)
        for factor, draws in ((self.jitter, 2), (self.rescale, 1)):
            if factor is not None:
                most = math.log(factor)
                places = places * torch.empty(draws, device=device).uniform_(-most, most).exp()
        frequency = 1 / DINOV3_BASE ** (torch.arange(count, device=device) / count)
        angles = (2 * math.pi * places[:, :, None] * frequency).flatten(1).tile(2)
        return torch.stack([angles.cos(), angles.sin()])

    def _apply(self, *arguments: Any, **named: Any) -> Self:  # noqa: ANN401  # torch's own
        """Move with the network, but stay in float32: in bfloat16 neighbouring patches would share an angle."""
        super()._apply(*arguments, **named)  # type: ignore[no-untyped-call]
        self.resize(self.grid)
        return self

    def resize(self, grid: tuple[int, int]) -> None:
        """Compute the angles for a grid of (rows, columns), also for the same one again."""
        self.grid = grid
        self.table = rotation_table(self.kind, grid, self.head_dim).to(self.table.device)


def resize_position_embedding(
    grid: Float[Tensor, "1 old_tokens dim"],
    old: tuple[int, int],
    new: tuple[int, int],
    *,
    method: PositionResize = "bilinear",
) -> Float[Tensor, "1 new_tokens dim"]:
    """Interpolate position embeddings to a grid of another size, by where they lie in the image.

    Bilinear with the corner positions kept in place and no antialiasing, computed in float64: what the original
    does with `scipy.ndimage.zoom` of order 1 (vit_jax/checkpoint.py), here for rectangular grids too. Bicubic with
    half-pixel centres and no antialiasing: what DeiT and T2T-ViT do (DeiT section 5.3); with antialiasing, timm and DINOv2
    with registers. DINOv2 without them scales as if the new grid were a tenth of a row larger, also without antialiasing.
    The extra tokens' rows are not part of `grid`. An equal size returns the very same tensor.

    Args:
        grid: The embeddings in row-major order.
        old: Rows and columns of `grid`.
        new: Rows and columns wanted.
        method: "bilinear", "bicubic", "bicubic-antialias" or "bicubic-dinov2".
    """
    if old == new:
        return grid
    square = grid.detach().reshape(1, *old, -1).permute(0, 3, 1, 2).cpu().double()  # a Mac's GPU has no float64
    if method == "bilinear":
        resized = nn.functional.interpolate(square, size=new, mode="bilinear", align_corners=True)
    elif method == "bicubic-dinov2":
        factors = tuple((side + DINOV2_OFFSET) / native for side, native in zip(new, old, strict=True))
        resized = nn.functional.interpolate(square, scale_factor=factors, mode="bicubic")
    else:
        resized = nn.functional.interpolate(square, size=new, mode="bicubic", antialias=method == "bicubic-antialias")
    return resized.permute(0, 2, 3, 1).reshape(1, new[0] * new[1], -1).to(grid)


def sincos_table(grid: tuple[int, int], dim: int) -> Float[Tensor, "1 tokens dim"]:
    """Return the fixed 2-D sin-cos embedding of big_vision (models/vit.py, posemb_sincos_2d).

    Each quarter of the channels holds, in this order: sine and cosine of the column, sine and cosine of the row, over
    geometrically spaced frequencies from 1 down to 1/10000.
    """
    rows, columns = np.mgrid[: grid[0], : grid[1]]
    exponent = np.arange(dim // 4) / max(dim // 4 - 1, 1)
    frequency = 1.0 / TEMPERATURE**exponent
    x = columns.reshape(-1, 1) * frequency
    y = rows.reshape(-1, 1) * frequency
    table = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)
    return torch.from_numpy(table.astype(np.float32))[None]


class PositionEmbedding(nn.Module):
    """Adds to every token what says where it lies.

    `learned` is the paper's default: one vector a token, in raster order after the class token's, if that has one. `learned-2d`
    has a table for rows and one for columns, each of half the width, concatenated (appendix D.4); it and `sincos-2d`
    leave the class token as it is. Nothing is added of `relative` and `relative-2d` ones, which stand in the attention.

    Args:
        kind: The kind of embedding.
        grid: Rows and columns of patches.
        dim: Width of a token.
        prefix: How many tokens (class, distillation) come before the patches.
        prefix_rows: Whether a learned embedding has rows for them.
        method: How it is interpolated to another grid.
    """

    table: Tensor

    def __init__(
        self,
        kind: PositionKind,
        grid: tuple[int, int],
        dim: int,
        *,
        prefix: int,
        prefix_rows: bool = True,
        method: PositionResize = "bilinear",
    ) -> None:
        super().__init__()
        self.kind = kind
        self.grid = grid
        self.dim = dim
        self.prefix = prefix
        self.rows_before = prefix if prefix_rows else 0
        self.method = method
        if kind == "learned":
            self.embedding = nn.Parameter(torch.empty(1, self.rows_before + grid[0] * grid[1], dim))
        elif kind == "learned-2d":
            self.rows = nn.Parameter(torch.empty(1, grid[0], 1, dim // 2))
            self.columns = nn.Parameter(torch.empty(1, 1, grid[1], dim // 2))
        elif kind == "sincos-2d":
            self.register_buffer("table", sincos_table(grid, dim), persistent=False)

    def patch_embedding(self) -> Float[Tensor, "1 patches dim"] | None:
        """Return what is added to the patches, in row-major order; None where nothing is."""
        if self.kind == "learned":
            return self.embedding[:, self.rows_before :]
        if self.kind == "learned-2d":
            rows, columns = self.grid
            halves = [self.rows.expand(1, rows, columns, -1), self.columns.expand(1, rows, columns, -1)]
            return torch.cat(halves, dim=-1).flatten(1, 2)
        return self.table if self.kind == "sincos-2d" else None

    def forward(self, tokens: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens dim"]:
        """Return the tokens, class token first where there is one, with their positions added."""
        if self.kind == "learned" and self.rows_before == self.prefix:
            return tokens + self.embedding
        patches = self.patch_embedding()
        if patches is None:
            return tokens
        if self.prefix:
            return torch.cat([tokens[:, : self.prefix], tokens[:, self.prefix :] + patches], dim=1)
        return tokens + patches

    @torch.no_grad()
    def resize(self, grid: tuple[int, int]) -> None:
        """Interpolate to another grid of (rows, columns); an equal grid changes nothing."""
        old, self.grid = self.grid, grid
        if old == grid:
            return
        if self.kind == "learned":
            patches = self._resized(self.embedding[:, self.rows_before :], old, grid)
            self.embedding = nn.Parameter(torch.cat([self.embedding[:, : self.rows_before], patches], dim=1))
        elif self.kind == "learned-2d":
            rows = self._resized(self.rows.flatten(1, 2), (old[0], 1), (grid[0], 1))
            columns = self._resized(self.columns.flatten(1, 2), (1, old[1]), (1, grid[1]))
            self.rows = nn.Parameter(rows[:, :, None])
            self.columns = nn.Parameter(columns[:, None])
        elif self.kind == "sincos-2d":
            self.table = sincos_table(grid, self.dim).to(self.table)

    def _resized(self, table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
        return resize_position_embedding(table, old, new, method=self.method)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator, *, std: float) -> None:
        """Draw the learned embeddings from a normal distribution; build the fixed one."""
        for parameter in self.parameters():
            parameter.normal_(std=std, generator=generator)
        if self.kind == "sincos-2d":
            self.table = sincos_table(self.grid, self.dim).to(self.table.device)


class RelativeGrid(nn.Module):
    """What is added to the scores between the patches of a grid; nothing to or from the tokens before them.

    The form is CoAtNet's (arXiv 2106.04803, equation 3) and Swin's: a learned term of each head for the way from query to key.
    The beginning is ConViT's (arXiv 2103.10697, section 3): each head looks at one neighbour of its query, as a convolution
    does, and is free to learn otherwise.
    """

    index: Tensor

    def __init__(self, num_heads: int, grid: tuple[int, int], *, prefix: int) -> None:
        super().__init__()
        self.grid, self.prefix = grid, prefix
        self.table = nn.Parameter(torch.empty(num_heads, 2 * grid[0] - 1, 2 * grid[1] - 1))
        self.register_buffer("index", relative_index(grid), persistent=False)

    @property
    def tokens(self) -> int:
        """How many tokens there are, those before the patches among them."""
        return self.prefix + self.grid[0] * self.grid[1]

    def forward(self, grid: tuple[int, int] | None = None) -> Float[Tensor, "heads tokens tokens"]:
        """Return what is added to the score of each key, for each query; on another grid, what `resize` to it would give."""
        if grid is None or grid == self.grid:
            table: Tensor = self.table
            index = self.index
        else:
            table, index = resize_table(self.table, grid), relative_index(grid).to(self.index.device)
        return nn.functional.pad(table.flatten(1)[:, index], (self.prefix, 0, self.prefix, 0))

    @torch.no_grad()
    def resize(self, grid: tuple[int, int]) -> None:
        """Take another grid: the tables are interpolated; an equal grid changes nothing."""
        if grid != self.grid:
            self.grid, self.table = grid, nn.Parameter(resize_table(self.table, grid))
            self.index = relative_index(grid).to(self.index.device)

    @torch.no_grad()
    def init_weights(self) -> None:
        """Let each head look at a neighbour of its own, the nearest ones: -LOCALITY times the squared distance from it."""
        self.index.copy_(relative_index(self.grid))
        rows, columns = self.grid
        down, right = torch.arange(1 - rows, rows), torch.arange(1 - columns, columns)
        for table, (row, column) in zip(self.table, neighbours(len(self.table)), strict=True):
            # A table holds the way from key to query; the neighbour lies the other way.
            table.copy_(-LOCALITY * ((down[:, None] + row).square() + (right[None] + column).square()))


def neighbours(count: int) -> list[tuple[int, int]]:
    """Return the nearest places around a token, as rows and columns from it; of equally near ones the upper left.

    The token itself is left out: the residual branch hands it on.
    """
    reach = range(-count, count + 1)
    places = [place for place in itertools.product(reach, reach) if place != (0, 0)]
    return sorted(places, key=lambda place: (place[0] ** 2 + place[1] ** 2, place))[:count]


def relative_index(grid: tuple[int, int]) -> Int64[Tensor, "tokens tokens"]:
    """Return where in a flattened table the way from each query to each key stands."""
    rows, columns = (side.flatten() for side in np.mgrid[: grid[0], : grid[1]])
    down = rows[:, None] - rows[None] + grid[0] - 1
    right = columns[:, None] - columns[None] + grid[1] - 1
    return torch.from_numpy(down * (2 * grid[1] - 1) + right)


def resize_table(table: Table, grid: tuple[int, int]) -> Table:
    """Return tables for another grid, interpolated bilinearly, as CoAtNet's are (its appendix A.1)."""
    shape = (2 * grid[0] - 1, 2 * grid[1] - 1)
    if table.shape[1:] == shape:
        return table
    return nn.functional.interpolate(table[None], size=shape, mode="bilinear", align_corners=False)[0]
