"""Where a classifier came from, what it scored, and whether its own scores cast doubt on it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from vitral.described import fits
from vitral.errors import VitralError
from vitral.tasks.chance import Standing, significantly_below

RANDOM = "random weights"  # prefix of an untrained network's source
BASELINE = "/baseline_"  # between a split and a simple classifier's name, in the name of its accuracy among the scores
# After a split, the names of how many images its accuracy and those of the simple classifiers are of: whole numbers.
IMAGES = "/images"
BASELINE_IMAGES = "/images_of_baselines"
BASELINES = {
    "knn": "nearest-neighbour vote",
    "pixel_neighbour": "nearest neighbour on bare pixels",
    "pixel_linear": "linear model on bare pixels",
}


@dataclass(frozen=True)
class Provenance:
    """Where a classifier came from and what it scored; plain JSON values throughout.

    Attributes:
        source: the weights that it started from.
        training: recipe, steps, data and versions, as they were; empty for weights as published.
        scores: figures by name, such as "test/top1".
        notes: what a user should know of it, one line each.
    """

    source: str = RANDOM
    training: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def is_random(self) -> bool:
        """Whether the weights are random: nothing was trained, and they came from nowhere."""
        return self.source.startswith(RANDOM) and not self.training

    def doubt(self) -> str:
        """Return in one sentence why the scores make the predictions doubtful; empty if they do not."""
        if self.is_random:
            return "The weights are random: its predictions mean nothing until it is trained."
        for split in (name.removesuffix("/top1_low") for name in self.scores if name.endswith("/top1_low")):
            known = [self.scores.get(f"{split}/{name}", math.nan) for name in ("top1", "top1_low", "chance")]
            if all(0 <= value <= 1 for value in known) and (said := Standing(*known).sentence(split)):
                return said
        return ""

    def shortfall(self) -> str:
        """Return in one sentence which simple classifier did best, if it beat the network; empty if none is known to.

        It did if the network is significantly below it, for the images that each was scored on. Folders of earlier versions do
        not tell their numbers: such a folder gets no sentence, because any difference may be one of few images.
        """
        rivals = [name for name in self.scores if BASELINE in name and self._is_below(name)]
        if not rivals:
            return ""
        best = max(rivals, key=lambda name: self.scores[name])
        split, _, baseline = best.partition(BASELINE)
        own = self.scores[f"{split}/top1"]
        plain = BASELINES.get(baseline, baseline.replace("_", " "))
        return f"Doubtful: {own:.1%} of its {split} images right, where a simple {plain} got {self.scores[best]:.1%}."

    def _is_below(self, rival: str) -> bool:
        """Tell whether the network is significantly below a simple classifier; False where figures are missing or damaged."""
        split, theirs = rival.partition(BASELINE)[0], self.scores[rival]
        own, images, others = (self.scores.get(split + name, math.nan) for name in ("/top1", IMAGES, BASELINE_IMAGES))
        if not (isinstance(images, int) and isinstance(others, int) and min(images, others) > 0):
            return False
        return 0 <= own <= 1 and 0 <= theirs <= 1 and significantly_below(own, images, theirs, others)


def read_provenance(described: Any) -> Provenance:  # noqa: ANN401  # a JSON value
    """Return a provenance from its entries.

    Raises:
        VitralError: they are others.
    """
    hints = get_type_hints(Provenance)
    if not isinstance(described, dict) or not described.keys() <= hints.keys():
        raise VitralError(f"its provenance has other entries than {', '.join(hints)}.")
    if wrong := [name for name, value in described.items() if not fits(hints[name], value)]:
        raise VitralError(f"its provenance has an entry of the wrong type, '{wrong[0]}'.")
    return Provenance(**{**described, "notes": tuple(described.get("notes", ()))})
