"""A classifier's share of right answers compared with that of always naming the commonest class."""

import math
import sys
from dataclasses import dataclass

from vitral.tasks.shown import COUNTED, images_of, right_of

Z_95 = 1.959963984540054  # the normal distribution's 97.5 % point


@dataclass(frozen=True)
class Standing:
    """A classifier's share of right answers compared with that of always naming the commonest class.

    Attributes:
        share: The share of images that are classified right, 0 to 1.
        low: The lower end of Wilson's 95 % interval of that share.
        chance: The share of always naming the commonest class, 0 to 1.
    """

    share: float
    low: float
    chance: float

    @property
    def untold(self) -> bool:
        """Whether so few images were scored that a good classifier and one at chance could both have this share.

        A good classifier is halfway between chance and no mistake; both are possible where Wilson's interval holds both.
        Images that are all of one class tell nothing, however many they are.
        """
        return self.chance == 1 or (self.low <= self.chance and self.high >= (1 + self.chance) / 2)

    @property
    def at_chance(self) -> bool:
        """Whether the scores do not show that it beats chance, although they are of enough images to do so."""
        return self.low <= self.chance and not self.untold

    @property
    def images(self) -> int:
        """The number of images, computed from where Wilson's interval begins.

        0 where none is right, because the interval then begins at 0 for any number of images.
        """
        spread = (self.share - self.low) ** 2
        return round(Z_95**2 * self.low * (1 - self.low) / spread) if spread else 0

    @property
    def high(self) -> float:
        """The upper end of the interval; 0 where none is right and the number of images is not known."""
        if not self.images:
            return 0.0
        widening = Z_95**2 / self.images
        return (2 * self.share + widening) / (1 + widening) - self.low  # both ends are roots of one quadratic equation

    def sentence(self, split: str) -> str:
        """Return the comparison on a split, which may be empty, in one sentence; empty if it is better than chance."""
        if self.at_chance:
            return f"Not clearly better than guessing: {self._right(split)}."
        if not self.untold:
            return ""
        if self.chance == 1:
            return f"Too few photos to tell it from guessing: all of its {images_of(split)} are of one class."
        better = (
            self.share > self.chance and split != "train"
        )  # which tells nothing of new ones, however many there are
        enough = f"; {_needed(self.share, self.chance)} would be enough" if better else ""
        return f"Too few photos to tell it from guessing: {self._right(split)}{enough}."

    def _right(self, split: str) -> str:
        """Return how many photos are right, and how many guessing gets; shares where the number is large or not known."""
        images = self.images
        guessing = f"{round(self.chance * images)}" if 0 < images < COUNTED else f"{self.chance:.1%}"
        right = right_of(self.share, images, split) if images else f"none of its {images_of(split)} right"
        return f"{right} (guessing gets {guessing})"


def _needed(share: float, chance: float) -> int:
    """Return of how many images a share must be for Wilson's interval of it to begin above chance."""
    return math.floor(Z_95**2 * chance * (1 - chance) / max((share - chance) ** 2, sys.float_info.min)) + 1


def significantly_below(share: float, trials: int, other: float, other_trials: int) -> bool:
    """Tell whether one share of successes is below another by more than chance explains, at 97.5 %."""
    pooled = (share * trials + other * other_trials) / (trials + other_trials)
    deviation = math.sqrt(pooled * (1 - pooled) * (1 / trials + 1 / other_trials))
    return other - share > Z_95 * deviation
