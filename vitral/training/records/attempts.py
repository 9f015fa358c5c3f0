"""What a run folder says of the ways to learn that its run tries: which they are, and how far each of them is."""

import contextlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from vitral import distributed, torchrun
from vitral.classifier.folder import is_classifier
from vitral.described import LATER, fits, read_kept, read_object
from vitral.files import write_file
from vitral.layout import CHECKPOINTS, CLASSIFIER, RUN_FILE
from vitral.training.planning.attempts import COST, Attempt
from vitral.training.records.asked import ATTEMPTS_SAID, read_run
from vitral.training.records.checkpoints import State, checkpoints, newest_state
from vitral.training.records.recipe_file import RECIPE_FILE
from vitral.training.records.run_folder import ATTEMPT_FILE, ATTEMPTS, OUTCOME_FILE
from vitral.training.settings.recipe import load_recipe

GIVEN_UP, NO_TIME = "given up", "no time"  # what became of an attempt that is not trained to its end


@dataclass(frozen=True)
class Record:
    """What is known of the classifier that an attempt made, the best one where it was trained again for longer.

    Attributes:
        name: the attempt's.
        figure: the task's headline figure on the validation images.
        images: that the figure is of.
        steps: updates that made the classifier.
        reached: updates that the attempt made in all: more than `steps` where a longer training was no better.
        recipe: the text of the recipe that made the classifier.
        best_step: this and what follows it to `skipped`: see `TrainingResult`.
        data: the fingerprint of the data that the figure is of; empty where an earlier version wrote the record.
    """

    name: str
    figure: float
    images: int
    steps: int
    reached: int
    recipe: str
    best_step: int | None
    best_accuracy: float | None
    seconds: float
    images_per_second: float
    skipped: tuple[int, ...] = ()
    data: str = field(default="", metadata=LATER)


def read_record(folder: Path) -> Record | None:
    """Return what is known of the classifier in an attempt's folder; None where there is none, or a damaged record."""
    return read_kept(Record, folder / ATTEMPT_FILE) if is_classifier(folder / CLASSIFIER) else None


def write_record(folder: Path, record: Record) -> None:
    """Write what is known of the classifier in an attempt's folder."""
    write_file(folder / ATTEMPT_FILE, json.dumps(asdict(record)))


def read_outcome(folder: Path) -> str:
    """Return why an attempt is not to be trained to its end: given up, or no time; empty where nothing stands against it."""
    said = read_object(folder / OUTCOME_FILE).get("outcome")
    return said if said in (GIVEN_UP, NO_TIME) else ""


def note_outcome(folder: Path, outcome: str) -> None:
    """Write into an attempt's folder why it is not to be trained to its end, in the main process."""
    if torchrun.is_main():
        write_file(folder / OUTCOME_FILE, json.dumps({"outcome": outcome}))


def forget_outcomes(folder: Path) -> None:
    """Let all attempts of the run in a folder be tried again: it gets more time, or another length."""
    for attempt in kept_attempts(folder):
        (attempt_folder(folder, attempt) / OUTCOME_FILE).unlink(missing_ok=True)


def is_over(folder: Path) -> bool:
    """Tell whether nothing is left to be done of the attempt in a folder, unless it gets more time or another length.

    Its record may be older than its newest checkpoint: where it was given more time and was killed on the way.
    """
    if read_outcome(folder):
        return True
    record, state = read_record(folder), newest_state(folder / CHECKPOINTS)
    if record is None or state is None:  # checkpoints may be deleted once they have served
        return record is not None
    return record.reached == state.step >= state.total_steps and not _is_lengthened(folder, state)


def _is_lengthened(folder: Path, state: State) -> bool:
    """Tell whether an attempt was given another length after its newest checkpoint."""
    path = folder / RECIPE_FILE
    if state.recipe_steps is None or not path.is_file():
        return False
    return (load_recipe(path).steps or 0) > state.recipe_steps


def attempt_folder(folder: Path, attempt: Attempt) -> Path:
    """Return where an attempt of the run in a folder keeps what a run keeps: recipe, log, checkpoints, classifier."""
    return folder / ATTEMPTS / attempt.folder


def note_attempts(folder: Path, attempts: Sequence[Attempt]) -> None:
    """Write into a run's folder what it tries, where there are several ways."""
    if attempts and torchrun.is_main():
        write_file(
            folder / RUN_FILE,
            json.dumps(read_run(folder) | {ATTEMPTS_SAID: [asdict(one) for one in attempts]}, indent=2),
        )
    distributed.barrier()


def kept_attempts(folder: Path) -> tuple[Attempt, ...]:
    """Return what the run in a folder tries; nothing where it has one way, or where that is lost or damaged."""
    said = read_run(folder).get(ATTEMPTS_SAID)
    if not isinstance(said, list) or not all(_whole(one) for one in said):
        return ()
    return tuple(Attempt(**one) for one in said)


def _whole(said: Any) -> bool:  # noqa: ANN401  # a JSON value
    hints = get_type_hints(Attempt) | {"changes": dict[str, str | float | int | list[float]]}
    if not isinstance(said, dict) or said.keys() != hints.keys():
        return False
    whole = all(fits(hints[name], value) for name, value in said.items())
    return whole and said["name"] in COST and 0 < said["share"] <= 1


def free_checkpoints(folder: Path, *, newest: bool) -> None:
    """Delete the checkpoints in the folder of an attempt that is finished.

    Args:
        folder: the attempt's.
        newest: whether the newest one stays, from which it goes on if it gets more time.
    """
    parent = folder / CHECKPOINTS
    for path in checkpoints(parent)[: -1 if newest else None]:  # the newest last: it says how far the attempt is
        shutil.rmtree(path, ignore_errors=True)
    for link in (parent / "last", parent / "best"):
        if link.is_symlink() and not link.exists():
            link.unlink()
    with contextlib.suppress(OSError):  # it is not empty, or not there
        parent.rmdir()


def states(folder: Path) -> list[State]:
    """Return where each training of the run in a folder stands that saved itself: the run's one, or its attempts."""
    attempts = (_state(attempt_folder(folder, attempt)) for attempt in kept_attempts(folder))
    return [state for state in (newest_state(folder / CHECKPOINTS), *attempts) if state is not None]


def _state(folder: Path) -> State | None:
    """Return where an attempt stands by its newest checkpoint, or by its record where it has none any more."""
    state, record = newest_state(folder / CHECKPOINTS), read_record(folder)
    if state is not None or record is None:
        return state
    path = folder / RECIPE_FILE
    steps = load_recipe(path).steps if path.is_file() else None
    return State(record.reached, total_steps=record.reached, seconds=record.seconds, recipe_steps=steps)


def trained_seconds(folder: Path) -> float:
    """Return the seconds that the run in a folder has trained, all attempts together."""
    return sum(state.seconds for state in states(folder))


def kept_recipe(folder: Path) -> Path | None:
    """Return the resolved recipe of the run in a folder; None where there is none yet, or each attempt has its own."""
    path = folder / RECIPE_FILE
    return path if path.is_file() and not kept_attempts(folder) else None
