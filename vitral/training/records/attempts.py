"""What a run folder says of the ways to learn that its run tries: which they are, and how far each of them is."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

from vitral import distributed
from vitral.described import fits
from vitral.files import write_file
from vitral.layout import CHECKPOINTS
from vitral.training.planning.attempts import COST, Attempt
from vitral.training.records.asked import ATTEMPTS_SAID, read_run
from vitral.training.records.checkpoints import State, newest_state
from vitral.training.records.recipe_file import RECIPE_FILE
from vitral.training.records.run_folder import ATTEMPTS, RUN_FILE


def attempt_folder(folder: Path, attempt: Attempt) -> Path:
    """Return where an attempt of the run in a folder keeps what a run keeps: recipe, log, checkpoints, classifier."""
    return folder / ATTEMPTS / attempt.folder


def note_attempts(folder: Path, attempts: Sequence[Attempt]) -> None:
    """Write into a run's folder what it tries, where there are several ways."""
    if attempts and distributed.is_main():
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
    hints = get_type_hints(Attempt) | {"changes": dict[str, str | float | int]}
    if not isinstance(said, dict) or said.keys() != hints.keys():
        return False
    whole = all(fits(hints[name], value) for name, value in said.items())
    return whole and said["name"] in COST and 0 < said["share"] <= 1


def states(folder: Path) -> list[State]:
    """Return where each training of the run in a folder stands that saved itself: the run's one, or its attempts."""
    folders = [folder, *(attempt_folder(folder, attempt) for attempt in kept_attempts(folder))]
    found = (newest_state(one / CHECKPOINTS) for one in folders)
    return [state for state in found if state is not None]


def trained_seconds(folder: Path) -> float:
    """Return the seconds that the run in a folder has trained, all attempts together."""
    return sum(state.seconds for state in states(folder))


def kept_recipe(folder: Path) -> Path | None:
    """Return the resolved recipe of the run in a folder; None where there is none yet, or each attempt has its own."""
    path = folder / RECIPE_FILE
    return path if path.is_file() and not kept_attempts(folder) else None
