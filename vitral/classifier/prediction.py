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
        sure: whether the probability reaches the classifier's threshold; None for one that has none.
        novelty: how far the image is from those of the classes, in units of the classifier's limit; None where nothing tells.
    """

    source: str
    label: str
    probability: float
    top: tuple[tuple[str, float], ...]
    sure: bool | None = None
    novelty: float | None = None

    @property
    def known(self) -> bool | None:
        """Whether the image is like those of the classes; if not, it may be of none of them. None where nothing tells."""
        return None if self.novelty is None else self.novelty <= 1

    @classmethod
    def ranked(
        cls,
        source: str,
        top: tuple[tuple[str, float], ...],
        threshold: float | None,
        novelty: float | None = None,
    ) -> "Prediction":
        """Return what the most probable classes of an image say; sure from the threshold on, if there is one."""
        (label, probability), *_ = top
        return cls(source, label, probability, top, None if threshold is None else probability >= threshold, novelty)

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values."""
        top = [{"label": label, "probability": probability} for label, probability in self.top]
        sure = {} if self.sure is None else {"sure": self.sure}
        known = {} if self.novelty is None else {"known": self.known, "novelty": self.novelty}
        return {
            "source": self.source,
            "label": self.label,
            "probability": self.probability,
            "top": top,
            **sure,
            **known,
        }
