"""How often the test split of a run's data was looked at: each time is written into its run.json, and said.

A test split is worth what it is because nothing was chosen by it. Whoever looks ten times and keeps the best has fitted to it.
"""

import json
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vitral import torchrun
from vitral.classifier.classifier import Classifier
from vitral.data.fingerprint import whole
from vitral.data.source import DataSet
from vitral.described import read_object
from vitral.errors import StorageError
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.layout import CLASSIFIER, RUN_FILE

LOOKS = "test_opened"  # in run.json: a list
TEST = "test"


def note_look(folder: Path, data: DataSet, by: str) -> int:
    """Write into a run's folder that the test split of some data is opened, and return how often that of its own data was.

    Args:
        folder: The run's folder.
        data: The dataset of the test split.
        by: The function that opens it.

    Raises:
        StorageError: It cannot be written.
    """
    run = read_object(folder / RUN_FILE)
    look = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "by": by,
        "command": _command(),
        "split": TEST,
        "data": data.name,
        "data_fingerprint": data.fingerprint,
        "images": len(data.splits[TEST]),
    }
    write_file(folder / RUN_FILE, json.dumps({**run, LOOKS: [*_looks(run), look]}, indent=2))
    return times_opened(folder)


def times_opened(folder: Path) -> int:
    """Return how often the test split of a run's own data was opened, by its training and by others, as far as is known."""
    run = read_object(folder / RUN_FILE)
    return sum(_data(look) == _data(run) for look in _looks(run))


def open_test(classifier: Classifier, data: DataSet, split: str, by: str, listener: Listener) -> None:
    """Log that a classifier is scored on a test split, in the run that it comes from, and say how often that was done.

    Nothing is done for another split, or a classifier of no run. Where the run's folder cannot be written, that is said.
    """
    folder = _run_of(classifier)
    if split != TEST or folder is None or not torchrun.is_main():
        return
    try:
        times = note_look(folder, data, by)
    except StorageError as error:
        listener(Message(f"That the test split was opened could not be logged: {error}", warning=True))
        return
    if whole(data.fingerprint) == _data(read_object(folder / RUN_FILE)):
        listener(Message(sentence(times)))


def opened(classifier: Classifier) -> tuple[tuple[str, str], ...]:
    """Return how often the test split of a classifier's run was opened, as name and value; nothing where it is not known."""
    folder = _run_of(classifier)
    times = 0 if folder is None else times_opened(folder)
    return (("Test split opened", f"{times:,} \u00d7"),) if times else ()


def sentence(times: int) -> str:
    """Return how often a test split was opened, in one sentence."""
    often = {1: "once", 2: "twice"}.get(times, f"{times} times")
    advice = "" if times <= 2 else " What is chosen by it looks better than it is; choose by the validation split."
    return f"The test split of this run has been opened {often}.{advice}"


def _run_of(classifier: Classifier) -> Path | None:
    folder = classifier.folder
    if folder is None or folder.name != CLASSIFIER or not (folder.parent / RUN_FILE).is_file():
        return None
    return folder.parent


def _looks(run: dict[str, Any]) -> list[dict[str, Any]]:
    looks = run.get(LOOKS)
    return [look for look in looks if isinstance(look, dict)] if isinstance(looks, list) else []


def _data(record: dict[str, Any]) -> str | None:
    """Return which data a run or a look is of: with all their training images or a share of them, the test split is one."""
    fingerprint = record.get("data_fingerprint")
    return whole(fingerprint) if isinstance(fingerprint, str) else None


def _command() -> str:
    """Return the command line of this process."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # as of python -m vitral
    return shlex.join([name, *sys.argv[1:]])
