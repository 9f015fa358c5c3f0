"""What a backbone gives: tokens with the grid that they lie on, or feature maps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vitral.errors import ModelError

Tokens = Float[Tensor, "batch tokens dim"]
Maps = Float[Tensor, "batch channels rows columns"]
Losses = dict[str, Tensor]  # auxiliary losses by name, scalars


@dataclass(frozen=True)
class TokenGrid:
    """Tokens, and which of them are patches of what grid.

    Attributes:
        tokens: All tokens, (batch, prefix + patches + suffix, dim).
        grid: Rows and columns of the patches, in raster order; None where some were dropped or merged.
        prefix: Tokens before the patches: class token, distillation token, registers.
        suffix: Tokens after them, which others have appended, such as queries.
        losses: Auxiliary losses of the blocks that these tokens went through.
    """

    tokens: Tokens
    grid: tuple[int, int] | None
    prefix: int = 0
    suffix: int = 0
    losses: Mapping[str, Tensor] = field(default_factory=dict)

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
        """The patches' tokens as feature maps.

        Raises:
            ModelError: They lie on no grid any more.
        """
        if self.grid is None:
            raise ModelError("Tokens that were dropped or merged make no feature map.")
        return self.patches.transpose(1, 2).reshape(self.tokens.shape[0], -1, *self.grid)

    def append(self, tokens: Tokens) -> "TokenGrid":
        """Return these tokens with others after them, (batch, tokens, dim)."""
        both = torch.cat([self.tokens, tokens.to(self.tokens.dtype)], dim=1)
        return TokenGrid(both, self.grid, self.prefix, self.suffix + tokens.shape[1], self.losses)

    def keep(self, indices: Int64[Tensor, "batch kept"]) -> "TokenGrid":
        """Return these tokens with some of the patches only, those of `indices` in that order; they lie on no grid."""
        patches = self.patches
        chosen = patches.gather(1, indices[:, :, None].expand(-1, -1, patches.shape[2]))
        tokens = torch.cat([self.tokens[:, : self.prefix], chosen, self.appended], dim=1)
        return TokenGrid(tokens, None, self.prefix, self.suffix, self.losses)

    def with_tokens(self, tokens: Tokens) -> "TokenGrid":
        """Return the same grid with other values: as many tokens in the same order."""
        return TokenGrid(tokens, self.grid, self.prefix, self.suffix, self.losses)


@dataclass(frozen=True)
class FeatureMaps:
    """What a convolutional backbone gives.

    Attributes:
        maps: The last feature maps, (batch, channels, rows, columns).
    """

    maps: Maps
