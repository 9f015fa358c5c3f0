"""A classifier's share of right answers compared with that of always naming the commonest class."""

import math
import sys
from dataclasses import dataclass

from vitral.tasks.shown import images_of

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
        """Return the comparison in one sentence; empty if it is better than chance.

        Args:
            split: The split that was scored: "test"; may be empty.
        """
        images = images_of(split)
        always = f"where always naming one class gets {self.chance:.1%}"
        if self.at_chance:
            count = f"{self.images} " if self.images else ""
            return f"No better than chance: {self.share:.1%} of its {count}{images} right, {always}."
        if not self.untold:
            return ""
        if self.chance == 1:
            return f"Too few images to tell it from chance: all of its {images} are of one class."
        enough = f"; {_needed(self.share, self.chance)} would do at this share" if self.share > self.chance else ""
        return f"Too few images to tell it from chance: {self.share:.1%} of {self.images} {images} right, {always}{enough}."


def _needed(share: float, chance: float) -> int:
    """Return of how many images a share must be for Wilson's interval of it to begin above chance."""
    return math.floor(Z_95**2 * chance * (1 - chance) / max((share - chance) ** 2, sys.float_info.min)) + 1


def significantly_below(share: float, trials: int, other: float, other_trials: int) -> bool:
    """Tell whether one share of successes is below another by more than chance explains, at 97.5 %."""
    pooled = (share * trials + other * other_trials) / (trials + other_trials)
    deviation = math.sqrt(pooled * (1 - pooled) * (1 / trials + 1 / other_trials))
    return other - share > Z_95 * deviation
