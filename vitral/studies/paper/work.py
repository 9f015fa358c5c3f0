"""A trial of an experiment as the work of a study's arm: a training, and what its frozen features are worth elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral import distributed, torchrun
from vitral.evaluation.frozen import FEW_SHOT, score_frozen
from vitral.events import Listener
from vitral.paths import CLASSIFIER
from vitral.studies.design import Cell
from vitral.studies.trainings import Training, carry_out, named
from vitral.tasks.task import Figure

SHOTS = 5  # images a class, as in the paper's Figures 4, 8 and 9 and its Table 8
TRANSFER = Figure("few_shot_5", "5-shot accuracy")
VALIDATION = "validation"  # the figure that chooses a rate, if the test images are others


@dataclass(frozen=True)
class TrialWork(Training):
    """A trial's training, with the expected seconds of a run; it is scored unless others only start from it.

    On the data `transfer`, if there are any, frozen features are scored by ridge regression on five images a class. The study
    has decoded the images once; its runs do so again only to leave out the same images, if some cannot be read.
    """

    expected: float
    transfer: str | None
    scored: bool
    verify: bool

    def question(self) -> Mapping[str, Any]:
        """Return the request, and the data on which the features are scored."""
        return {**super().question(), "transfer": self.transfer}

    def seconds(self) -> float:
        """Return the expected seconds of a run."""
        return self.expected

    def run(self, cell: Cell, listener: Listener) -> Mapping[str, float]:
        """Train, and return the scores on the data's own test images and by five images a class of the other data."""
        listener = named(listener, cell.name)
        request = self.request_of(cell)
        result = carry_out(request, cell.folder, listener, verify=self.verify)
        if not self.scored:
            return {}
        data, evaluation, judged = result.run.data, result.evaluation, result.training.best_accuracy
        headline = data.task.headline
        figures = {**evaluation.scores(), headline.name: evaluation.headline()}
        if "test" in data.splits and judged is not None:
            figures[VALIDATION] = judged
        if self.transfer is not None:
            figures[TRANSFER.name] = distributed.broadcast(_few_shot(cell.folder / CLASSIFIER, self.transfer, listener))
        return figures


def _few_shot(folder: Path, data: str, listener: Listener) -> float:
    if not torchrun.is_main():
        return 0.0  # the main process computes it
    scores = score_frozen(str(folder), data, ways=(FEW_SHOT,), shots=(SHOTS,), listener=listener)
    return scores.few_shot[0].mean
