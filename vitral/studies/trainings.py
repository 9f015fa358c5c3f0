"""Training runs as the work of a study's arms."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral.events import Event, Listener, Message, Progress, ignore
from vitral.layout import CLASSIFIER
from vitral.studies.design import Cell
from vitral.training.candidates.result import RunResult
from vitral.training.records.run_folder import holds_run
from vitral.training.request import Request
from vitral.training.run import run_request
from vitral.training.session import Session
from vitral.training.starting.opening import looked_at
from vitral.training.starting.prepare import prepare

NOWHERE = Path("estimate")  # a run folder that is named and never made


@dataclass(frozen=True)
class Training:
    """A pre-training or a fine-tuning, without its seed and its folder.

    Attributes:
        request: The request. If its arm follows another, `source` is the name of the network that the other trains, so that
            the time of the run can be estimated before they exist.
    """

    request: Request

    def question(self) -> Mapping[str, Any]:
        """Return the request, without the folder in which it was made."""
        return {name: value for name, value in self.request.stored().items() if name != "where"}

    def seconds(self) -> float:
        """Return the expected seconds of the training steps, measured on one of them."""
        return prepare(looked(self.request)).cost.seconds

    def run(self, cell: Cell, listener: Listener) -> Mapping[str, float]:
        """Train and return the scores; the frozen features, which no seed changes, are scored by the arm's first run."""
        return carry_out(self.request_of(cell), cell.folder, named(listener, cell.name)).evaluation.scores()

    def request_of(self, cell: Cell) -> Request:
        """Return the request of one run."""
        return replace(
            self.request,
            seed=self.request.seed if cell.seed is None else cell.seed,
            source=self.request.source if cell.source is None else str(cell.source / CLASSIFIER),
            baselines=self.request.baselines and cell.first,
            where=str(Path.cwd()),
        )


def looked(request: Request, *, verify: bool = True, listener: Listener = ignore) -> Session:
    """Return a request with its data, for a plan: nothing is written.

    Args:
        request: The request.
        verify: Whether to decode all images beforehand.
        listener: Receives messages and progress.

    Raises:
        VitralError: The request is wrong.
    """
    return looked_at(replace(request, exact=True, out=NOWHERE, resume=False), verify=verify, listener=listener)


def carry_out(request: Request, folder: Path, listener: Listener, *, verify: bool = True) -> RunResult:
    """Carry out a run in a folder, or continue it there; return the result of a finished one.

    Args:
        request: The request.
        folder: The run folder.
        listener: Receives messages and progress.
        verify: Whether to decode all images beforehand; several runs on the same data need that once.

    Raises:
        VitralError: The run failed.
    """
    request = replace(request, exact=True, out=folder, resume=holds_run(folder))
    return run_request(request, verify=verify, listener=listener)


def named(listener: Listener, task: str) -> Listener:
    """Return a listener that renames a run's progress and drops its messages, which would be the same for many runs."""

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "train":
            listener(replace(event, task=task))
        elif isinstance(event, Message) and event.warning:
            listener(replace(event, verdict=False))  # no summary at the end repeats it

    return listen
