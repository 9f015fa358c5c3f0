"""How far each attempt of a run is, by what its folder holds."""

import contextlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from vitral import torchrun
from vitral.classifier.folder import is_classifier
from vitral.described import read_kept, read_object
from vitral.files import write_file
from vitral.paths import ATTEMPT_FILE, CHECKPOINTS, CLASSIFIER, OUTCOME_FILE, RECIPE_FILE
from vitral.training.plan import Plan
from vitral.training.records.checkpoints import State, checkpoints, newest_state
from vitral.training.settings.recipe import load_recipe

# What became of an attempt that is not trained to its end:
GIVEN_UP = "given up"
NO_TIME = "no time"


@dataclass(frozen=True)
class Record:
    """What is known of the classifier that an attempt made, the best one where it was trained again for longer.

    Attributes:
        name: The attempt's name.
        figure: The task's headline figure on the validation images; None where nothing is compared.
        images: The number of images that the figure is of.
        steps: Updates that made the classifier.
        reached: Updates that the attempt made in all: more than `steps` where a longer training was no better.
        recipe: The text of the recipe that made the classifier.
        best_step: This and what follows it to `skipped`: see `TrainingResult`.
        data: The fingerprint of the data that the figure is of.
    """

    name: str
    figure: float | None
    images: int
    steps: int
    reached: int
    recipe: str
    best_step: int | None
    best_accuracy: float | None
    seconds: float
    images_per_second: float
    skipped: tuple[int, ...]
    data: str


def read_record(folder: Path) -> Record | None:
    """Return what is known of the classifier in an attempt's folder; None where there is none, or a damaged record."""
    return read_kept(Record, folder / ATTEMPT_FILE) if is_classifier(folder / CLASSIFIER) else None


def write_record(folder: Path, record: Record) -> None:
    """Write what is known of the classifier in an attempt's folder, in the main process."""
    if torchrun.is_main():
        write_file(folder / ATTEMPT_FILE, json.dumps(asdict(record)))


def read_outcome(folder: Path) -> str:
    """Return why an attempt is not to be trained to its end: given up, or no time; empty where nothing stands against it."""
    outcome = read_object(folder / OUTCOME_FILE).get("outcome")
    return outcome if outcome in (GIVEN_UP, NO_TIME) else ""


def note_outcome(folder: Path, outcome: str) -> None:
    """Write into an attempt's folder why it is not to be trained to its end, in the main process."""
    if torchrun.is_main():
        write_file(folder / OUTCOME_FILE, json.dumps({"outcome": outcome}))


def forget_outcomes(folder: Path, plan: Plan) -> None:
    """Let all attempts of a run be tried again, because it gets more time, or another length."""
    for place in plan.folders(folder).values():
        (place / OUTCOME_FILE).unlink(missing_ok=True)


def is_over(folder: Path) -> bool:
    """Tell whether nothing is left to be done of the attempt in a folder, unless it gets more time or another length.

    Its record may be older than its newest checkpoint: where it was given more time and was killed on the way.
    """
    if read_outcome(folder):
        return True
    record, state = read_record(folder), newest_state(folder / CHECKPOINTS)
    if record is None or state is None:  # checkpoints may be deleted once they have served
        return record is not None
    if not record.reached == state.step >= state.total_steps:
        return False
    return state.recipe_steps is None or (recipe_steps(folder) or 0) <= state.recipe_steps


def recipe_steps(folder: Path) -> int | None:
    """Return the length of the attempt in a folder by its recipe; None where it has none yet."""
    path = folder / RECIPE_FILE
    return load_recipe(path).steps if path.is_file() else None


def free_checkpoints(folder: Path, *, newest: bool) -> None:
    """Delete the checkpoints in the folder of an attempt that is finished.

    Args:
        folder: The attempt's folder.
        newest: Whether the newest one stays, from which it continues if it gets more time.
    """
    parent = folder / CHECKPOINTS
    for path in checkpoints(parent)[: -1 if newest else None]:  # the newest last: it says how far the attempt is
        shutil.rmtree(path, ignore_errors=True)
    for link in (parent / "last", parent / "best"):
        if link.is_symlink() and not link.exists():
            link.unlink()
    with contextlib.suppress(OSError):  # it is not empty, or not there
        parent.rmdir()


def states(folder: Path, plan: Plan | None) -> list[State]:
    """Return where each attempt of the run in a folder stands that saved itself."""
    if plan is None:
        return []
    return [state for place in plan.folders(folder).values() if (state := _state(place)) is not None]


def _state(folder: Path) -> State | None:
    """Return where an attempt stands by its newest checkpoint, or by its record where it has none any more."""
    state, record = newest_state(folder / CHECKPOINTS), read_record(folder)
    if state is not None or record is None:
        return state
    steps = record.reached
    return State(steps, total_steps=steps, seconds=record.seconds, recipe_steps=recipe_steps(folder))


def trained_seconds(folder: Path, plan: Plan | None) -> float:
    """Return the seconds that the run in a folder has trained, all attempts together."""
    return sum(state.seconds for state in states(folder, plan))
