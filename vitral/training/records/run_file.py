"""run.json: what a run's command was given, the first thing in its folder, so that a run killed at any moment continues."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

from vitral.described import fits, read_described, read_object
from vitral.errors import VitralError
from vitral.files import write_file
from vitral.layout import RUN_FILE
from vitral.training.plan import ChosenStart
from vitral.training.request import Request

REQUEST = "request"  # in run.json: what the command was given, with what later commands changed of it
START = "start"  # in run.json: the start that was chosen, before there is a plan
TRAINED = "trained_before"  # in run.json: seconds trained when a time was last given
EARLIER = {"budget_seconds": "time"}  # fields of a request as earlier versions wrote them


def begin(folder: Path, request: Request) -> None:
    """Write a request into a run folder."""
    # The fingerprint tells readers of data that the folder is a run, and is known only when the data are read.
    first = {"kind": request.kind, REQUEST: request.stored(), "data_fingerprint": ""}
    write_file(folder / RUN_FILE, json.dumps(first))


def read_run(folder: Path) -> dict[str, Any]:
    """Return what a run folder says of its run; empty where that is lost or damaged."""
    return read_object(folder / RUN_FILE)


def update_run(folder: Path, entries: dict[str, Any]) -> None:
    """Write entries into run.json, in place of those of the same names."""
    write_file(folder / RUN_FILE, json.dumps(read_run(folder) | entries, indent=2, default=str))


def stored_request(folder: Path) -> Request | None:
    """Return the request of the run in a folder; None where it is lost or damaged, or of a version up to 0.2."""
    stored = read_run(folder).get(REQUEST)
    if not isinstance(stored, dict):
        return None
    stored = {EARLIER.get(name, name): value for name, value in stored.items()}
    hints = get_type_hints(Request)
    names = [field.name for field in fields(Request) if field.name in stored and not field.metadata.get("execution")]
    values = {name: stored[name] for name in names}
    if "kind" not in values or not all(fits(hints[name], _text(value)) for name, value in values.items()):
        return None
    for name in ("overrides", "plugins"):
        values[name] = tuple(values.get(name, ()))
    try:
        return Request(**values)
    except VitralError:
        return None


def _text(value: object) -> object:
    """Return a value with its text such as UTF-8 can hold: a path need not be."""
    if isinstance(value, list):
        return [_text(each) for each in value]
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def note_start(folder: Path, chosen: ChosenStart) -> None:
    """Write into run.json which start was chosen, so that no later command chooses another."""
    update_run(folder, {START: asdict(chosen)})


def stored_start(folder: Path) -> ChosenStart | None:
    """Return the start that was chosen for the run in a folder; None where one was named, or run.json is damaged."""
    try:
        return read_described(ChosenStart, read_run(folder).get(START), RUN_FILE)
    except VitralError:
        return None


def trained_before(folder: Path) -> float:
    """Return the seconds that a run had trained when its time was last given: 0 where that was at its beginning."""
    seconds = read_run(folder).get(TRAINED, 0.0)
    return float(seconds) if fits(float, seconds) else 0.0
