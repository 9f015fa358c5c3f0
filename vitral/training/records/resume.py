"""How a run continues: with what its folder says of it, and not on other data or by another recipe without a word."""

from pathlib import Path

from vitral import distributed, torchrun
from vitral.errors import TrainingError
from vitral.events import Listener, Message
from vitral.models.catalog import list_models
from vitral.training.planning.plan import Run, Session
from vitral.training.planning.request import Asked
from vitral.training.records.asked import ask_again, kept, last_asked, read_run, said_anew, trained_before
from vitral.training.records.attempts import (
    attempt_folder,
    forget_outcomes,
    is_over,
    kept_attempts,
    kept_recipe,
    read_outcome,
    states,
    trained_seconds,
)
from vitral.training.records.data_record import Further, check_data, record_change, redrawn
from vitral.training.records.description import compare_machines
from vitral.training.records.recipe_file import recipe_begun
from vitral.training.records.run_folder import BASELINES_FILE


def budget_left(folder: Path, asked: Asked) -> float | None:
    """Return the seconds that a run which continues may take: those said now, or what is left of those said last.

    Once a budget has shortened the run, that plan holds, and no budget is needed any more; the attempts of a run that makes
    several share what is left until all are finished.
    """
    last = last_asked(folder)
    if asked.budget_seconds is not None or last is None or last.budget_seconds is None:
        return asked.budget_seconds
    standing = states(folder)
    if not standing or has_unused_time(folder):
        return last.budget_seconds
    if attempts := kept_attempts(folder):
        if all(is_over(attempt_folder(folder, attempt)) for attempt in attempts):
            return None
    elif standing[0].bend_step or standing[0].step >= standing[0].total_steps:
        return None
    return last.budget_seconds - (trained_seconds(folder) - trained_before(folder))


def has_unused_time(folder: Path) -> bool:
    """Tell whether a run that has steps to make was given more time, and was killed before it saved itself again."""
    if any(read_outcome(attempt_folder(folder, attempt)) for attempt in kept_attempts(folder)):
        return False  # what was said since the time was given
    if not any(state.step < max(state.total_steps, state.recipe_steps or 0) for state in states(folder)):
        return False
    return trained_before(folder) >= trained_seconds(folder)


def kept_start(folder: Path) -> str | None:
    """Return what the run in a folder started from, if there is one that says it.

    A network that was chosen and has not made an update yet is none: it is chosen again, with its size, length and views.
    """
    start, first = read_run(folder).get("from"), kept(folder)
    chosen = first is not None and first.source is None and start in list_models()
    if not isinstance(start, str) or (chosen and kept_recipe(folder) is None):
        return None
    return start


def check_resumed(run: Run, further: Further, listener: Listener) -> None:
    """Refuse to continue with another recipe or other data, or note those if the user allows them; warn of other means.

    Args:
        run: what continues.
        further: what the method learns from besides the run's data.
        listener: receives the warnings.

    Raises:
        TrainingError: the recipe is not that of the run, or the data changed and the user said nothing of it.
    """
    if not run.session.resume:
        return
    refusal: TrainingError | None = None
    if torchrun.is_main():
        try:
            if not run.plan.attempts:  # each of which has a recipe of its own
                recipe_begun(run.folder, run.recipe)  # before anything of this resumption is written down
            changed = check_data(run.folder, run.data, further, changed=run.session.data_changed)
            if changed:
                (run.folder / BASELINES_FILE).unlink(missing_ok=True)  # they are of the data as they were
                step = sum(state.step for state in states(run.folder))
                record_change(run.folder, run.data, further, changed, step=step)
                said = f"The data changed since the run began, and it goes on: {'; '.join(changed)}."
                for line in (said, *redrawn(run.folder)):
                    listener(Message(line, warning=True))
            compare_machines(run, listener)
        except TrainingError as error:
            refusal = error
    if refusal := distributed.broadcast(refusal):
        raise refusal


def note_what_is_new(session: Session) -> None:
    """Write into a run's folder what the command that continues with it said anew."""
    if session.further or "steps" in said_anew(session.folder, session.command):
        forget_outcomes(session.folder)
    ask_again(
        session.folder,
        budget_seconds=session.command.budget_seconds if session.further else None,
        overrides=session.command.overrides,
        trained=trained_seconds(session.folder),
    )
