"""How a run continues: its folder's request and plan are read, and extended by more time, another length or changed data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral import plugins
from vitral.advice import argument, function
from vitral.data.open import seen_from_here
from vitral.data.source import DataSet
from vitral.errors import PluginError, TrainingError
from vitral.events import Listener, Message
from vitral.paths import ATTEMPTS, FIRST_FILE, PLAN_FILE, RECIPE_FILE
from vitral.training.plan import ChosenStart, Plan, read_plan
from vitral.training.records.attempts import (
    forget_outcomes,
    is_over,
    read_outcome,
    states,
    trained_seconds,
)
from vitral.training.records.data_record import Further, check_data, record_change, redrawn
from vitral.training.records.run_folder import (
    BASELINES_FILE,
    REQUEST,
    TRAINED,
    environment,
    read_run,
    stored_request,
    stored_start,
    trained_before,
    update_run,
)
from vitral.training.request import FUNCTIONS, Request, settings_of
from vitral.training.settings.recipe import first_difference, load_recipe, may_change

# What a run that continues keeps.
SAME = ("source", "sweep", "classes", "group", "model", "recipe", "image_size", "seed")
RESUMED = "resumed_with"  # in run.json: other means than those it began with
BITS = ("threads", "torch", "processor", "accelerator")  # of the environment: what changes the last bits


@dataclass(frozen=True)
class Continued:
    """What a command that continues with a run is to do.

    Attributes:
        request: What the run was given when it began, with what later commands changed.
        plan: The run's plan, extended by what this command changes; None where it is to be made.
        seconds: What the command may take; None for as long as it needs.
        more_time: Whether a run that is finished continues, because it was given more time.
        retry: Whether attempts that were given up are tried again, because of more time or another length.
        chosen: The start that was chosen for the run before, where its plan is to be made anew.
    """

    request: Request
    plan: Plan | None
    seconds: float | None
    more_time: bool = False
    retry: bool = False
    chosen: ChosenStart | None = None


def continued(request: Request) -> Continued:
    """Return what a command that continues with the run in its folder is to do.

    Until training began, a command that changes anything is planned anew.

    Raises:
        TrainingError: The command would make it another run, or an earlier version began it.
        PluginError: It needs a plugin that was not loaded.
    """
    folder = Path(request.out or "")
    stored = stored_request(folder)
    if stored is not None:
        _check_plugins(folder, stored)  # without which its plan cannot be read
    plan = read_plan(folder)
    if plan is None and (stored is None or not stored.sweep):
        _check_version(folder)
    new_length = any(_key(change) == "steps" for change in request.overrides)
    if stored is None:
        if plan is not None:
            _check_settings(folder, plan, request.overrides)
            plan = with_settings(plan, request.overrides)
        more_time = request.time is not None
        request = replace(request, resume=True)
        return Continued(request, plan, request.budget_seconds, more_time, retry=more_time or new_length)
    _check_kind(folder, plan, stored, request)
    new = tuple(change for change in request.overrides if change not in stored.overrides)
    _check_same(folder, plan, stored, request, new)
    seconds = time_left(folder, plan, stored, request)
    more_time = request.resume and (request.time is not None or has_unused_time(folder, plan))
    changed = request.time is not None or request.data_changed or new
    chosen = stored_start(folder) if plan is None else plan.chosen
    if stored.sweep:
        plan = None  # of the run with the best rate; the sweep reads each run's
    elif plan is not None and not _trains(folder, plan) and (changed or not plan.attempts):
        plan = None
    stored = _seen_from_here(stored)
    if plan is not None:
        plan = _of_source(with_settings(plan, new), stored.source)
    merged = replace(
        stored,
        data=stored.data if request.data is None else request.data,
        overrides=tuple({_key(change): change for change in (*stored.overrides, *request.overrides)}.values()),
        time=stored.time if request.time is None else request.time,
        skip_bad_images=stored.skip_bad_images if request.skip_bad_images is None else request.skip_bad_images,
        baselines=request.baselines and stored.baselines,
        quick=request.quick,
        where=request.where,
        out=request.out,
        resume=True,
        data_changed=request.data_changed,
        offline=request.offline,
    )
    return Continued(merged, plan, seconds, more_time, more_time or new_length, chosen)


def stored_plan(folder: Path, request: Request) -> Plan | None:
    """Return the plan of the run in a folder as a request that belongs to it changes it; None where there is none yet."""
    plan = read_plan(folder)
    return None if plan is None else _of_source(with_settings(plan, request.overrides), request.source)


def _of_source(plan: Plan, source: str | None) -> Plan:
    """Return a plan whose weights are named as they are found from here."""
    return plan if source is None or plan.origin != "weights" else replace(plan, start=source)


def _trains(folder: Path, plan: Plan) -> bool:
    """Tell whether the training of a run began, even if it was stopped before its first checkpoint."""
    return bool(states(folder, plan)) or any((place / RECIPE_FILE).is_file() for place in plan.folders(folder).values())


def with_settings(plan: Plan, changes: Sequence[str]) -> Plan:
    """Return a plan of another length, or with other settings that may change without another network being learned.

    Of the changes, KEY=VALUE, those of other settings are left out.
    """
    changes = [f"{key}={value}" for key, value in settings_of(changes).items() if key in may_change()]
    if not changes:
        return plan
    attempts = tuple(replace(attempt, recipe=attempt.recipe.changed(changes)) for attempt in plan.attempts)
    return replace(plan, recipe=plan.recipe.changed(changes), attempts=attempts)


def time_left(folder: Path, plan: Plan | None, stored: Request, request: Request) -> float | None:
    """Return the seconds that a run which continues may take: those given now, or what is left of those given last.

    Once a budget has shortened the run, that length holds, and no budget is needed any more; several attempts share what is
    left until all are finished.
    """
    if request.budget_seconds is not None or stored.budget_seconds is None:
        return request.budget_seconds
    standing = states(folder, plan)
    if not standing or plan is None or has_unused_time(folder, plan):
        return stored.budget_seconds
    if plan.several:
        if all(map(is_over, plan.folders(folder).values())):
            return None
    elif standing[0].bend_step or standing[0].step >= standing[0].total_steps:
        return None
    return stored.budget_seconds - (trained_seconds(folder, plan) - trained_before(folder))


def has_unused_time(folder: Path, plan: Plan | None) -> bool:
    """Tell whether a run that has steps to make was given more time, and was killed before it saved itself again."""
    if plan is None or any(map(read_outcome, plan.folders(folder).values())):
        return False  # the outcome was noted after the time was given
    if not any(state.step < max(state.total_steps, state.recipe_steps or 0) for state in states(folder, plan)):
        return False
    return trained_before(folder) >= trained_seconds(folder, plan)


def check_data_and_machine(
    folder: Path, plan: Plan, data: DataSet, further: Further, *, changed: bool, listener: Listener
) -> None:
    """Refuse to continue on other data, or note those if the user allows that they changed; warn of other means.

    It is for the main process alone.

    Raises:
        TrainingError: The data changed and the user did not allow it.
    """
    if differences := check_data(folder, data, further, changed=changed):
        (folder / BASELINES_FILE).unlink(missing_ok=True)  # they are of the data as they were
        step = sum(state.step for state in states(folder, plan))
        record_change(folder, data, further, differences, step=step)
        line = f"The data changed since the run began, and it continues: {'; '.join(differences)}."
        for text in (line, *redrawn(folder)):
            listener(Message(text, warning=True))
    _compare_machines(folder, listener)


def note_request(folder: Path, plan: Plan, command: Request, *, more_time: bool, retry: bool) -> None:
    """Write into a run's folder what the command that continues with it changed, in the main process.

    `command` is merged with what the folder kept; with `retry` attempts that were given up are tried again.
    """
    if retry:
        forget_outcomes(folder, plan)
    entries: dict[str, object] = {REQUEST: command.stored()}
    if more_time:
        entries[TRAINED] = trained_seconds(folder, plan)
    update_run(folder, entries)


def _check_version(folder: Path) -> None:
    if any((folder / name).exists() for name in (RECIPE_FILE, FIRST_FILE, ATTEMPTS)):
        raise TrainingError(
            f"The run in '{folder}' has no {PLAN_FILE}: an earlier version of Vitral began it, or the file was lost. Continue "
            f"it by that version, or begin a new run with {argument('source', str(folder))}."
        )


def _check_plugins(folder: Path, stored: Request) -> None:
    names = [plugin.path.name for plugin in plugins.loaded()]
    for path in stored.plugins:
        if Path(path).name not in names:
            raise PluginError(f"The run in '{folder}' began with the plugin '{path}', and needs it to continue.")


def _check_kind(folder: Path, plan: Plan | None, stored: Request, request: Request) -> None:
    if stored.kind != request.kind:
        raise TrainingError(
            f"The run in '{folder}' is of {function(FUNCTIONS[stored.kind])}; continue it by that command."
        )
    if not request.baselines and plan is not None and plan.several:
        raise TrainingError(
            f"The run in '{folder}' compares its attempts with a first classifier; continue it without "
            f"{argument('baselines', False)}."
        )


def _check_same(folder: Path, plan: Plan | None, stored: Request, request: Request, new: Sequence[str]) -> None:
    """Refuse what would make it another run; a setting may be named again, also as the plan chose it."""
    for name in SAME:
        was, now = getattr(stored, name), getattr(request, name)
        if now in (None, False) or now == was or _same_path(now, was, stored.where) or _is_planned(plan, name, now):
            continue
        began = argument(name, was) if was not in (None, False) else f"no {argument(name)}"
        raise TrainingError(f"The run in '{folder}' began with {began}; it cannot continue with {argument(name, now)}.")
    _check_settings(folder, plan, new)


def _check_settings(folder: Path, plan: Plan | None, changes: Sequence[str]) -> None:
    """Refuse settings, KEY=VALUE, by which another network would be learned."""
    for change in changes:
        if _key(change) in may_change():
            continue
        if plan is not None and first_difference(plan.recipe.changed([change]), plan.recipe) is None:
            continue
        raise TrainingError(
            f"The run in '{folder}' did not begin with {argument('overrides', [change])}; it cannot continue with it."
        )


def _same_path(now: object, was: object, where: str) -> bool:
    return isinstance(now, str) and isinstance(was, str) and Path(now).resolve() == Path(where, was).resolve()


def _is_planned(plan: Plan | None, name: str, value: object) -> bool:
    """Tell whether a plan is what a value of a request means, that the run did not begin with."""
    if plan is None or name in ("sweep", "classes", "group"):
        return False
    if name == "recipe":
        recipe = load_recipe(str(value))
        return any(first_difference(recipe, attempt.recipe) is None for attempt in plan.attempts)
    return bool(plan.start == value if name in ("source", "model") else getattr(plan.recipe, name) == value)


def _compare_machines(folder: Path, listener: Listener) -> None:
    """Warn of, and note, means that change the last bits of a run that continues."""
    description = read_run(folder)
    before, now = description.get("environment"), environment()
    if not isinstance(before, dict):
        return
    if differences := [
        f"{key} {before.get(key)}, now {now.get(key)}" for key in BITS if before.get(key) != now.get(key)
    ]:
        listener(
            Message(
                f"The run began with other means ({'; '.join(differences)}): it continues, but its last bits will be others "
                "than those of a run that was not interrupted.",
                warning=True,
            )
        )
        update_run(
            folder, {RESUMED: [*(description.get(RESUMED) or []), {key: now.get(key) for key in BITS if key in now}]}
        )


def _key(change: str) -> str:
    return change.partition("=")[0].strip()


def _seen_from_here(stored: Request) -> Request:
    """Return a request with its paths as they are from here: they are relative to where the command was given."""
    where = stored.where
    paths: dict[str, Any] = {}
    if not where or Path(where) == Path.cwd():
        return stored
    for name in ("source", "recipe"):
        path = getattr(stored, name)
        if path is not None and Path(where, path).exists():
            paths[name] = str(Path(where, path))
    return replace(stored, data=None if stored.data is None else seen_from_here(stored.data, where), **paths)
