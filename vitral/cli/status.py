"""`vitral status`: how far is a run?"""

import dataclasses
from pathlib import Path

from vitral.cli.console import print_json, print_lines
from vitral.cli.runs import listed, moment, state_of
from vitral.errors import TrainingError
from vitral.paths import RUN_FILE, RUNS, nearest_path
from vitral.training.records.overview import RunState, list_runs, read_state
from vitral.training.settings.durations import rounded


def status(run: Path | None = None, /, *, json: bool = False) -> None:
    """Say how far a run is, how long it still takes, its best score so far and how to continue it.

    Args:
        run: The run's folder; the newest run in runs/ if left out.
        json: Print JSON for programs.
    """
    found = _newest() if run is None else _named(run)
    if json:
        print_json(dataclasses.asdict(listed(found)))
        return
    print_lines(f"{found.folder}: {state_of(found)}; last written {moment(found)} UTC", *_facts(found))
    print_lines("Next:", f"  {listed(found).next}")


def _newest() -> RunState:
    found = list_runs()
    if not found:
        raise TrainingError(f"There is no run in '{RUNS}'; 'vitral finetune photos/' begins one, or name its folder.")
    return found[0]


def _named(folder: Path) -> RunState:
    if not (folder / RUN_FILE).is_file():
        raise TrainingError(f"'{folder}' is no run folder; 'vitral runs' lists those in {RUNS}/.{nearest_path(folder)}")
    return read_state(folder)


def _facts(run: RunState) -> list[str]:
    """Return what is known of a run, a line each."""
    lines = [f"Data        {run.data}"] if run.data else []
    if run.planned_steps and run.state != "done":
        lines.append(f"Training    {run.steps:,} of {run.planned_steps:,} updates")
    if run.seconds_left:
        lines.append(f"Time left   about {rounded(run.seconds_left)} by the plan")
    if run.best is not None and run.state != "done":
        lines.append(f"Best so far {run.best.text()}, of {run.best.split} images")
    if run.validation is not None:
        lines.append(f"Validation  {run.validation.text()}")
    if run.test is not None:
        lines.append(f"Test        {run.test.text()}")
    return lines if run.classifier is None else [*lines, f"Classifier  {run.classifier}"]
