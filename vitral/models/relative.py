"""Relative positions in rows and columns: a learned term of each head's scores for the way from query to key.

The form is CoAtNet's (arXiv 2106.04803, equation 3) and Swin's; the beginning is ConViT's (arXiv 2103.10697, section 3): each
head looks at one neighbour of its query, as a convolution does, and is free to learn otherwise.
"""

import itertools

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

LOCALITY = 1.0  # how fast a head's score falls with the squared distance from its neighbour, in tokens; ConViT's

Table = Float[Tensor, "heads ways_down ways_right"]


class RelativeGrid(nn.Module):
    """What is added to the scores between the patches of a grid; nothing to or from the tokens before them.

    Args:
        num_heads: heads, each with a table of its own.
        grid: rows and columns of patches.
        prefix: how many tokens (class, distillation, registers) come before the patches.
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
        return functional.pad(table.flatten(1)[:, index], (self.prefix, 0, self.prefix, 0))

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
    return functional.interpolate(table[None], size=shape, mode="bilinear", align_corners=False)[0]
