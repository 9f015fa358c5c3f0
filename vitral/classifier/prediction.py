"""What a classifier says of one image."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prediction:
    """What a classifier says of one image.

    Attributes:
        source: the path, or "image 3" for one given in memory.
        label: the most probable class.
        probability: its probability, 0 to 1.
        top: the most probable classes with their probabilities, highest first.
    """

    source: str
    label: str
    probability: float
    top: tuple[tuple[str, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values."""
        top = [{"label": label, "probability": probability} for label, probability in self.top]
        return {"source": self.source, "label": self.label, "probability": self.probability, "top": top}
