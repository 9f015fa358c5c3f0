"""Whether a share of right answers tells a classifier from one who always names the commonest class, and what to say."""

import math
import sys
from dataclasses import dataclass

Z_95 = 1.959963984540054  # the normal distribution's 97.5 % point


@dataclass(frozen=True)
class Standing:
    """A classifier's share of right answers compared with that of always naming the commonest class.

    Attributes:
        share: of images that are classified right, 0 to 1.
        low: the lower end of Wilson's 95 % interval of that share.
        chance: the share of always naming the commonest class, 0 to 1.
    """

    share: float
    low: float
    chance: float

    @property
    def untold(self) -> bool:
        """Whether it is above chance on so few images that not even a good classifier could be told from chance.

        Good is one that is halfway between chance and no mistake.
        """
        if self.low > self.chance or (self.share < 1 and self.share <= self.chance):
            return False
        return self.chance == 1 or self.images < _needed((1 + self.chance) / 2, self.chance)

    @property
    def at_chance(self) -> bool:
        """Whether the scores do not show that it beats chance, though they are of enough images, or it is not above chance."""
        return self.low <= self.chance and not self.untold

    @property
    def images(self) -> int:
        """How many images the share is of: so many that Wilson's interval begins where this one does."""
        spread = (self.share - self.low) ** 2
        return round(Z_95**2 * self.low * (1 - self.low) / spread) if spread else 0

    def sentence(self, split: str) -> str:
        """Return what is to be said of it, in one sentence; empty if it is better than chance.

        Args:
            split: what the images are called: "test"; may be empty.
        """
        images = f"{split} images" if split else "images"
        always = f"where always naming one class gets {self.chance:.1%}"
        if self.at_chance:
            return f"No better than chance: {self.share:.1%} of its {images} right, {always}."
        if not self.untold:
            return ""
        if self.chance == 1:
            return f"Too few images to tell it from chance: all of its {images} are of one class."
        return (
            f"Too few images to tell it from chance: {self.share:.1%} of {self.images} {images} right, {always}; "
            f"{_needed(self.share, self.chance)} would do at this share."
        )


def _needed(share: float, chance: float) -> int:
    """Return of how many images a share must be for Wilson's interval of it to begin above chance."""
    return math.floor(Z_95**2 * chance * (1 - chance) / max((share - chance) ** 2, sys.float_info.min)) + 1
