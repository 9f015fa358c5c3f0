"""Training runs as the work of a study's arms."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vitral.events import Event, Listener, Message, Progress, ignore
from vitral.layout import CLASSIFIER
from vitral.studies.design import Cell
from vitral.training.planning.prepare import prepare
from vitral.training.planning.request import Asked
from vitral.training.records.run_folder import holds_run
from vitral.training.records.start import looked_at, opened
from vitral.training.result import RunResult
from vitral.training.run import run_once

NOWHERE = "estimate"  # a run folder that is named and never made


@dataclass(frozen=True)
class Training:
    """A pre-training or a fine-tuning, but for its seed and its folder.

    Attributes:
        asked: what is asked of the run. Where its arm follows another, `source` is the name of the network that the other's
            weights are of: what the run takes can be said before they are there.
    """

    asked: Asked

    def question(self) -> Mapping[str, Any]:
        """Return what is asked, but for the folder from which it is."""
        return {name: value for name, value in asdict(self.asked).items() if name != "where"}

    def seconds(self) -> float:
        """Return what the training steps are expected to take, measured on one of them."""
        session = looked_at(self.asked, NOWHERE, resume=False, started=None, listener=ignore)
        return prepare(replace(session, exactly=True)).cost.seconds

    def run(self, cell: Cell, listener: Listener) -> Mapping[str, float]:
        """Train and return the scores; the frozen features, which no seed changes, are scored by the arm's first run."""
        return carry_out(self.asked_of(cell), cell.folder, named(listener, cell.name)).evaluation.scores()

    def asked_of(self, cell: Cell) -> Asked:
        """Return what is asked of one run."""
        return replace(
            self.asked,
            seed=self.asked.seed if cell.seed is None else cell.seed,
            source=self.asked.source if cell.source is None else str(cell.source / CLASSIFIER),
            baselines=self.asked.baselines and cell.first,
            where=str(Path.cwd()),
        )


def carry_out(asked: Asked, folder: Path, listener: Listener, *, verify: bool = True) -> RunResult:
    """Carry out a run in a folder, or continue with it there; of one that is finished, return its result.

    Args:
        asked: what is asked of it.
        folder: the run's.
        listener: hears messages and progress.
        verify: whether all images are decoded beforehand, as they need not be again for every run on the same data.

    Raises:
        VitralError: the run failed.
    """
    resume = holds_run(folder)
    with opened(
        asked,
        folder,
        resume=resume,
        overwrite=False,
        data_changed=False,
        started=None,
        verify=verify,
        listener=listener,
    ) as session:
        return run_once(replace(session, exactly=True))


def named(listener: Listener, task: str) -> Listener:
    """Pass a run's progress on under a name of its own, and leave its messages out: many runs would say the same."""

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "train":
            listener(replace(event, task=task))
        elif isinstance(event, Message) and event.warning:
            listener(replace(event, verdict=False))  # of many results, which nobody says at the end

    return listen
