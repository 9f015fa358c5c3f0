"""What makes a classifier's probabilities mean what they say, and from which of them on its answers are given as sure."""

import math
from dataclasses import dataclass, field
from typing import Any

from vitral.described import LATER, Kept
from vitral.errors import VitralError

LEAST = 0.05  # temperatures: beyond these two, the images are too few to find one
MOST = 20.0


@dataclass(frozen=True)
class Calibration(Kept):
    """Fitted on validation images; kept in the classifier's folder.

    Attributes:
        temperature: The divisor of logits before the softmax (arXiv 1706.04599); 1 changes nothing.
        threshold: probability of the answer, 0 to 1, below which it is given as not sure; None for none.
        wanted: The accuracy of the sure answers that the threshold was fitted for, 0 to 1.
        data: The dataset whose validation images it was fitted on.
        images: The number of these images.
        image_size: Height and width of the network's images as it was fitted, pixels; None for the network's own.
    """

    called = "Its calibration"

    temperature: float
    threshold: float | None
    wanted: float | None
    data: str
    images: int
    image_size: tuple[int, int] | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and LEAST <= self.temperature <= MOST):
            raise VitralError(f"A temperature is between {LEAST:g} and {MOST:g}, not {self.temperature}.")
        for share in (self.threshold, self.wanted):
            if share is not None and not 0 <= share <= 1:
                raise VitralError(f"A threshold and a wanted accuracy are between 0 and 1, not {share}.")

    def sentence(self) -> str:
        """Return what it says, in one sentence."""
        sure = ""
        if self.threshold is not None:
            aim = "" if self.wanted is None else f", for {self.wanted:.1%} right among the sure answers"
            sure = f"; answers below {self.threshold:.1%} are not sure{aim}"
        return f"Temperature {self.temperature:.3f}, fitted on {self.images:,} validation images of {self.data}{sure}."

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; without a size where that is the network's own, as earlier versions read it."""
        values = super().to_json()
        if self.image_size is None:
            del values["image_size"]
        return values
