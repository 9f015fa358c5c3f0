"""`vitral runs`: what was trained here, and how it stands."""

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path

from vitral.cli.console import print_json, print_lines, print_table
from vitral.errors import TrainingError
from vitral.paths import RUNS, nearest_path
from vitral.training.records.overview import RunScore, RunState, list_runs

WIDTH = 100  # characters of the table
MOMENT = len("2026-01-31T12:00")


@dataclass(frozen=True)
class ListedRun(RunState):
    """A run as a program reads it: how it stands, and the command that one would want next."""

    next: str


def listed(run: RunState) -> ListedRun:
    """Return a run with the command that one would want next."""
    return ListedRun(**vars(run), next=next_command(run))


def next_command(run: RunState) -> str:
    """Return the command that one would want next."""
    folder = shlex.quote(run.folder)
    if run.state == "running":
        return f"vitral status {folder}"
    command = "pretrain" if run.kind == "pre-train" else "finetune"
    if run.state == "stopped":
        return f"vitral {command} --resume --out {folder}"
    if run.kind == "pre-train":
        return f"vitral finetune LABELLED --from {folder}"
    return f"vitral evaluate {folder} {shlex.quote(run.data)}"


def runs(folder: Path = RUNS, /, *, json: bool = False) -> None:
    """List the runs: data, scores, when, and whether each is done, running or stopped.

    Args:
        folder: The folder that the runs lie in.
        json: Print JSON for programs.
    """
    found = list_runs(folder)
    if not found and not json:
        near = "" if folder.exists() else nearest_path(folder)
        raise TrainingError(f"There is no run in '{folder}'; 'vitral finetune photos/' begins one.{near}")
    if json:
        print_json([dataclasses.asdict(listed(run)) for run in found])
        return
    rows = [
        [run.folder, run.data, *(score_text(score) for score in (run.validation, run.test)), moment(run), state_of(run)]
        for run in found
    ]
    columns = ["run", "data", "validation", "test", "when (UTC)", "state"]
    print_table(columns, rows, texts=columns, least_width=WIDTH)
    print_lines("'vitral status RUN' says how far a run is, and how to continue it.")


def score_text(score: RunScore | None) -> str:
    """Return a score for people; nothing where there is none."""
    return "" if score is None else score.text()


def moment(run: RunState) -> str:
    """Return when something was last written of a run, to the minute."""
    return run.changed[:MOMENT].replace("T", " ")


def state_of(run: RunState) -> str:
    """Return the state, with how far a run is that is not done."""
    known = run.progress is not None and run.state != "done"
    return f"{run.state}, {run.progress:.0%}" if known else run.state
