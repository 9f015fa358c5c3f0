"""Whether a remedy for unequal classes pays: balanced accuracy against accuracy, on images that the remedy did not see."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64
from torch import Tensor

PROOF = 2  # images that a remedy puts right
UNSEEN = 0.5  # changes for the better, and for the worse, that are added to each class's: few images are no proof


@dataclass(frozen=True)
class Rebalanced:
    """What a remedy for unequal classes changes, without and with it; accuracies are 0 to 1.

    Attributes:
        balanced_accuracy: The mean of the recalls of the classes that have images.
        deviation: The standard error of the difference of the balanced accuracies, of the same images.
        better: The number of those that only the remedy gets right.
    """

    accuracy: tuple[float, float]
    balanced_accuracy: tuple[float, float]
    deviation: float
    images: int
    better: int

    @property
    def pays(self) -> bool:
        """Whether balanced accuracy rises by more than its standard error, and accuracy falls by no more than its own.

        One image that is right now does not show it, however rare its class.
        """
        before, after = self.balanced_accuracy
        return after - before > self.deviation and self.better >= PROOF and not self.refuted

    @property
    def refuted(self) -> bool:
        """Whether balanced accuracy falls, or accuracy falls by more than its standard error."""
        noise = math.sqrt(self.accuracy[0] * (1 - self.accuracy[0]) / self.images)
        lost = self.accuracy[0] - self.accuracy[1]
        return self.balanced_accuracy[1] < self.balanced_accuracy[0] or lost > noise

    def sentence(self, of: str) -> str:
        """Return the figures, and what they are of, as part of a sentence."""
        pairs = (self.balanced_accuracy, self.accuracy)
        balanced, plain = (f"{after:.1%} instead of {before:.1%}" for before, after in pairs)
        return f"balanced accuracy {balanced}, accuracy {plain}, of {self.images:,} {of}"

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        (plain, plain_after), (balanced, balanced_after) = self.accuracy, self.balanced_accuracy
        return {
            "images": self.images,
            "accuracy": [plain, plain_after],
            "balanced_accuracy": [balanced, balanced_after],
        }


def rebalanced(
    before: Bool[Tensor, " images"], after: Bool[Tensor, " images"], labels: Int64[Tensor, " images"]
) -> Rebalanced:
    """Compare which images are right without a remedy and with it.

    The standard error is that of a mean of the classes' mean paired differences. A class's shares of images that change for the
    better and for the worse are taken as if half an image more had changed each way, since a class of one image that did not
    change does not prove that none would.
    """
    right, now, truth = before.numpy(), after.numpy(), labels.numpy()
    classes, counts = np.unique(truth, return_counts=True)
    recalls, spread = [], 0.0
    for number, count in zip(classes, counts, strict=True):
        mine = truth == number
        recalls.append((right[mine].mean(), now[mine].mean()))
        better, worse = (
            (change[mine].sum() + UNSEEN) / (count + 2 * UNSEEN) for change in (now & ~right, right & ~now)
        )
        spread += (better + worse - (better - worse) ** 2) / count
    was, is_now = np.mean(recalls, axis=0).tolist()
    deviation = math.sqrt(spread) / len(classes)
    accuracy = float(right.mean()), float(now.mean())
    return Rebalanced(accuracy, (was, is_now), deviation, len(truth), int((now & ~right).sum()))
