"""Which of several classifiers is kept: the best on the validation split, the cheapest among equals."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vitral.tasks.metrics import wilson_reach
from vitral.tasks.task import Figure
from vitral.training.plan import ALL, ANEW, FINER, LAST, LORA

# The candidates in closed form:
PROBE = "linear probe"
PIXELS = "linear model on pixels"
# How a sentence names the one that is delivered, where "the" and its name would not do.
SUBJECTS = {
    LORA: "LoRA is",
    LAST: "The network whose last blocks learned is",
    ALL: "The network all of which learned is",
    ANEW: "The network that learned as from scratch is",
    FINER: "The network of larger images is",
}


@dataclass(frozen=True)
class Candidate:
    """A classifier that a run could deliver, and how good it is.

    Attributes:
        name: what it is called: "linear probe", "trained network".
        figure: the task's headline figure.
        images: that the figure is of.
        split: which images those are: "validation", or "training" where each was left out of the fit that judged it.
    """

    name: str
    figure: float
    images: int
    split: str = "validation"

    def text(self, headline: Figure) -> str:
        """Return the figure with its uncertainty, for people: half the width of a share's 95 % interval."""
        if not headline.is_share:
            return headline.text(self.figure)
        return f"{headline.text(self.figure)} ± {100 * wilson_reach(self.figure, self.images):.1f}"

    def reached(self, headline: Figure) -> str:
        """Return the figure and what it is of."""
        return f"{self.text(headline)} of {self.of()}"

    def of(self) -> str:
        """Return what the figure is of."""
        return f"{self.images:,} {self.split} images" + (
            ", each left out of its fit" if self.split == "training" else ""
        )


@dataclass(frozen=True)
class Choice:
    """What was tried and what of it is kept.

    Attributes:
        candidates: what was tried, the cheapest first.
        best: The name of the one that is delivered.
        headline: What their figures are.
    """

    candidates: tuple[Candidate, ...]
    best: str
    headline: Figure

    @property
    def trained(self) -> bool:
        """Whether the one that is delivered was trained, and is not in closed form."""
        return self.best not in (PROBE, PIXELS)

    def sentence(self) -> str:
        """Return the figures and the choice in one sentence."""
        figures = ", ".join(f"{candidate.name} {candidate.text(self.headline)}" for candidate in self.candidates)
        judged = self.candidates[0].of()
        if len(self.candidates) == 1:
            return f"Nothing but a {figures} of {judged}."
        return f"By {judged}: {figures}. {SUBJECTS.get(self.best, f'The {self.best} is')} kept."

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        candidates = [asdict(candidate) for candidate in self.candidates]
        return {"kept": self.best, "candidates": candidates, "sentence": self.sentence()}


def choose(candidates: Sequence[Candidate], headline: Figure) -> Choice:
    """Return the choice among candidates, the cheapest first: one that costs more is kept only where it is better."""
    best = candidates[0]
    for candidate in candidates[1:]:
        if headline.improves(candidate.figure, best.figure):
            best = candidate
    return Choice(tuple(candidates), best.name, headline)
