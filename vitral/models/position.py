"""Position embeddings: learned 1-D, learned 2-D, fixed 2-D sin-cos, relative ones, or none (paper sections 3.1 and D.4)."""

import itertools
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

PositionKind = Literal["learned", "learned-2d", "sincos-2d", "relative", "relative-2d", "none"]
PositionAt = Literal["input", "layers", "layers-shared"]
PositionResize = Literal["bilinear", "bicubic", "bicubic-antialias", "bicubic-dinov2"]
Table = Float[Tensor, "heads ways_down ways_right"]

TEMPERATURE = 10_000.0
LOCALITY = 1.0  # how fast a head's score falls with the squared distance from its neighbour, in tokens; ConViT's
DINOV2_OFFSET = 0.1  # of a grid's side (dinov2/models/vision_transformer.py, interpolate_pos_encoding)


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
    square = grid.detach().reshape(1, *old, -1).permute(0, 3, 1, 2).double()
    if method == "bilinear":
        resized = nn.functional.interpolate(square, size=new, mode="bilinear", align_corners=True)
    elif method == "bicubic-dinov2":
        factors = tuple((side + DINOV2_OFFSET) / native for side, native in zip(new, old, strict=True))
        resized = nn.functional.interpolate(square, scale_factor=factors, mode="bicubic")
    else:
        resized = nn.functional.interpolate(square, size=new, mode="bicubic", antialias=method == "bicubic-antialias")
    return resized.permute(0, 2, 3, 1).reshape(1, new[0] * new[1], -1).to(grid.dtype)


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

    Args:
        num_heads: Heads, each with a table of its own.
        grid: Rows and columns of patches.
        prefix: How many tokens (class, distillation, registers) come before the patches.
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
