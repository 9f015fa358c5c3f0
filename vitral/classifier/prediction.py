"""What a classifier says of one image."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vitral import notebook
from vitral.errors import ImageError
from vitral.images.decode import Pixels
from vitral.images.drawing import encode, thumbnail

SHOWN = 5  # classes in a line


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
        pixels: reads the image again, for a notebook; None where nothing can, or many were predicted at once.
    """

    source: str
    label: str
    probability: float
    top: tuple[tuple[str, float], ...]
    sure: bool | None = None
    novelty: float | None = None
    pixels: Callable[[], Pixels] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process holds: all but its image, which may be in this one's memory."""
        return {**vars(self), "pixels": None}

    def __repr__(self) -> str:
        """Return the most probable classes in one line."""
        ranked = ", ".join(f"{label} {probability:.1%}" for label, probability in self.top[:SHOWN])
        return f"Prediction: {self.source}: {ranked}{''.join(f'; {doubt}' for doubt in self._doubts())}"

    def summary(self) -> str:
        """Return the classes of `top` for a line, after what is doubtful of them."""
        ranked = "  ".join(f"{label} {probability:.1%}" for label, probability in self.top)
        doubt = "not sure  " if self.sure is False else ""
        return f"none of these classes?  {doubt}{ranked}" if self.known is False else f"{doubt}{ranked}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the image, and a bar for each class."""
        return notebook.card(self.source, self.top, image=self._thumbnail(), notes=self._doubts())

    def _doubts(self) -> list[str]:
        return [
            *(["not sure"] if self.sure is False else []),
            *(["none of the classes?"] if self.known is False else []),
        ]

    def _thumbnail(self) -> str:
        """Return the image, small; nothing where it can no longer be read."""
        if self.pixels is None:
            return ""
        try:
            return notebook.image(encode(thumbnail(self.pixels()), "JPEG"), self.source)
        except ImageError:
            return ""

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
