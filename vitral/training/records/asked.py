"""What was asked of a run: the first thing in its folder, so that a run killed at any moment continues as the same run."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from vitral import plugins
from vitral.advice import argument, function
from vitral.data.open import seen_from_here
from vitral.described import fits, read_described, read_object
from vitral.errors import PluginError, TrainingError, VitralError
from vitral.files import write_file
from vitral.layout import RUN_FILE
from vitral.training.planning.request import FUNCTIONS, Asked
from vitral.training.planning.starts import ChosenStart
from vitral.training.records.recipe_file import RECIPE_FILE
from vitral.training.settings.recipe import may_change

FIRST, LAST = (
    "request",
    "request_last",
)  # in run.json: what was asked when the run began, and as later commands changed it
ATTEMPTS_SAID = "attempts"  # in run.json: the ways to learn that the run tries
START = "start"  # in run.json: what was chosen to begin with, where no start was named
TRAINED = "request_last_trained"  # in run.json: seconds trained when a time was last said


def begin(folder: Path, asked: Asked) -> None:
    """Write what was asked into a run folder."""
    # The fingerprint tells readers of data that the folder is a run, and is known only when the data are read.
    write_file(folder / RUN_FILE, json.dumps({"kind": asked.kind, FIRST: asdict(asked), "data_fingerprint": ""}))


def read_run(folder: Path) -> dict[str, Any]:
    """Return what a run folder says of its run; nothing where that is lost or damaged."""
    return read_object(folder / RUN_FILE)


def kept(folder: Path, part: str = FIRST) -> Asked | None:
    """Return what was asked of the run in a folder; None where it is not said, as by versions up to 0.2."""
    said = read_run(folder).get(part)
    if not isinstance(said, dict):
        return None
    hints = get_type_hints(Asked)
    values = {field.name: said[field.name] for field in fields(Asked) if field.name in said}
    if "kind" not in values or not all(fits(hints[name], _text(value)) for name, value in values.items()):
        return None
    for name in ("overrides", "plugins"):
        values[name] = tuple(values.get(name, ()))
    return Asked(**values)


def last_asked(folder: Path) -> Asked | None:
    """Return what was asked of the run in a folder with what later commands changed of it; None where it is not said."""
    return kept(folder, LAST) or kept(folder)


def ask_again(folder: Path, *, budget_seconds: float | None, overrides: Sequence[str], trained: float) -> None:
    """Write what a command that continues with a run said anew: a time, or None, and settings.

    Args:
        folder: the run folder.
        budget_seconds: the time; None where none was said.
        overrides: the settings.
        trained: seconds that the run had trained by then, which a time that is said now does not count.
    """
    before = last_asked(folder)
    if before is None:
        return
    time = before.budget_seconds if budget_seconds is None else budget_seconds
    now = replace(before, budget_seconds=time, overrides=_last_of_each((*before.overrides, *overrides)))
    told = {LAST: asdict(now)} | ({} if budget_seconds is None else {TRAINED: trained})
    if now != before or budget_seconds is not None:
        write_file(folder / RUN_FILE, json.dumps(read_run(folder) | told, indent=2))


def _last_of_each(changes: Sequence[str]) -> tuple[str, ...]:
    return tuple({_key(change): change for change in changes}.values())


def _key(change: str) -> str:
    return change.partition("=")[0].strip()


def note_start(folder: Path, chosen: ChosenStart) -> None:
    """Write into a run's folder what was chosen to begin with, so that no later command chooses anew."""
    write_file(folder / RUN_FILE, json.dumps(read_run(folder) | {START: asdict(chosen)}, indent=2))


def kept_choice(folder: Path) -> ChosenStart | None:
    """Return what was chosen to begin the run in a folder with; None where a start was named, or nothing says it."""
    try:
        return read_described(ChosenStart, read_run(folder).get(START), RUN_FILE)
    except VitralError:
        return None


def trained_before(folder: Path) -> float:
    """Return the seconds that a run had trained when its time was last said: 0 where that was at its beginning."""
    seconds = read_run(folder).get(TRAINED, 0.0)
    return float(seconds) if fits(float, seconds) else 0.0


def _text(value: object) -> object:
    """Return a value with its text such as UTF-8 can hold: a path need not be."""
    if isinstance(value, list):
        return [_text(one) for one in value]
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def go_on(folder: Path, asked: Asked) -> Asked:
    """Return what is to be done by a command that continues with the run in a folder: what was asked, unless said anew.

    That is what was asked first, with the settings that later commands changed; a recipe that is settled has them already.

    Raises:
        TrainingError: what is said anew would make it another run.
        PluginError: it needs a plugin that was not loaded.
    """
    first = kept(folder)
    if first is None:
        return asked
    _check_plugins(folder, first)
    if first.kind != asked.kind:
        raise TrainingError(
            f"The run in '{folder}' is of {function(FUNCTIONS[first.kind])}; go on with it by that command."
        )
    if not asked.baselines and _tries_several(folder):
        raise TrainingError(
            f"The run in '{folder}' compares its ways to learn with a first classifier; go on with it without "
            f"{argument('baselines', False)}."
        )
    settled = _is_settled(folder, first)
    same = (
        ("source", "sweep", "classes")
        if settled
        else ("source", "sweep", "classes", "model", "recipe", "image_size", "seed")
    )
    for name in same:
        _check_same(folder, name, first, asked)
    if not settled:
        _check_overrides(folder, first, asked)
    data = asked.data if asked.data is not None else _data_from(first.where, first.data)
    source = _from(first.where, first.source)
    together = replace(
        asked,
        data=data,
        source=source,
        sweep=first.sweep,
        classes=first.classes,
        skip_bad_images=asked.skip_bad_images or first.skip_bad_images,
        baselines=asked.baselines and first.baselines,
    )
    if settled:
        return together
    return replace(
        together,
        model=first.model,
        recipe=_from(first.where, first.recipe),
        overrides=(*_so_far(folder, first), *asked.overrides),
        image_size=first.image_size,
        seed=first.seed,
    )


def said_anew(folder: Path, asked: Asked) -> frozenset[str]:
    """Return the keys of the settings that a command which continues with the run in a folder says itself.

    Args:
        folder: the run folder, as it was before the command.
        asked: what `go_on` made of the command.
    """
    first = kept(folder)
    before = () if first is None or _is_settled(folder, first) else _so_far(folder, first)
    return frozenset(map(_key, asked.overrides[len(before) :]))


def _tries_several(folder: Path) -> bool:
    return ATTEMPTS_SAID in read_run(folder)


def _is_settled(folder: Path, first: Asked) -> bool:
    """Tell whether the run in a folder has one recipe that says all; each of several ways to learn has one of its own."""
    return (folder / RECIPE_FILE).is_file() and not first.sweep and not _tries_several(folder)


def _so_far(folder: Path, first: Asked) -> tuple[str, ...]:
    """Return the settings of the run in a folder: those that it began with, as later commands changed what may change."""
    last = last_asked(folder) or first
    later = [change for change in last.overrides if _key(change) in may_change()]
    return _last_of_each((*first.overrides, *later))


def _check_plugins(folder: Path, first: Asked) -> None:
    names = [plugin.path.name for plugin in plugins.loaded()]
    for path in first.plugins:
        if Path(path).name not in names:
            raise PluginError(f"The run in '{folder}' began with the plugin '{path}', and needs it to go on.")


def _check_same(folder: Path, name: str, first: Asked, asked: Asked) -> None:
    was, now = getattr(first, name), getattr(asked, name)
    if now in (None, False) or now == was:
        return
    if isinstance(now, str) and isinstance(was, str) and Path(now).resolve() == Path(first.where, was).resolve():
        return
    began = argument(name, was) if was not in (None, False) else f"no {argument(name)}"
    raise TrainingError(f"The run in '{folder}' began with {began}; it cannot go on with {argument(name, now)}.")


def _check_overrides(folder: Path, first: Asked, asked: Asked) -> None:
    for change in asked.overrides:
        if change not in first.overrides and _key(change) not in may_change():
            raise TrainingError(
                f"The run in '{folder}' did not begin with {argument('overrides', [change])}; it cannot go on with it."
            )


def _data_from(where: str, name: str | None) -> str | None:
    """Return a name of data as it is said from here; it may hold a path, or be none."""
    return name if name is None or not where or Path(where) == Path.cwd() else seen_from_here(name, where)


def _from(where: str, name: str | None) -> str | None:
    """Return a name as it is said from here: a path is relative to where the command was given."""
    if name is None or not where or Path(where) == Path.cwd():
        return name
    there = Path(where, name)
    return str(there) if there.exists() else name
