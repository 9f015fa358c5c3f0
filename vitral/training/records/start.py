"""Where a run goes, and what it reads there: its folder and its data, together for as long as it lasts."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.data.open import open_data, path_in
from vitral.data.source import DataSet
from vitral.errors import DataError, TrainingError
from vitral.events import Listener, Message, ignore
from vitral.layout import RUNS
from vitral.outputs import check_location
from vitral.tasks.registry import task_named
from vitral.training.methods.method import method_of
from vitral.training.planning.plan import Session
from vitral.training.planning.prepare import load_start, random_start
from vitral.training.planning.published_start import with_start
from vitral.training.planning.request import Asked, Request, read_request
from vitral.training.records.asked import begin, go_on, kept, kept_choice, note_start
from vitral.training.records.attempts import kept_attempts, kept_recipe
from vitral.training.records.resume import budget_left, has_unused_time, kept_start
from vitral.training.records.run_folder import holds_run, make_free_folder, occupied

PRETRAINING_DATA = "visualatom"
CHECKING_SHARE = 0.15  # of a run's time, that decoding its images beforehand may take


def goes_on(out: str | Path | None, *, resume: bool, data_changed: bool) -> bool:
    """Tell whether a command goes on with a run: it says so, or torchrun started the job again after it lost a process.

    Raises:
        TrainingError: torchrun may start the job again, and could not know which run is meant; no folder was named; or
            it says of a new run that its data changed.
    """
    if out is None and torchrun.may_restart():
        raise TrainingError(f"Name the run's folder with {argument('out')}, so that a restart by torchrun finds it.")
    if out is not None and not str(out).strip():
        raise TrainingError(f"{argument('out')} is empty; name a folder, or leave it out for one below runs/.")
    if data_changed and not resume:
        changed, going_on = argument("data_changed", True), argument("resume", True)
        raise TrainingError(f"{changed} belongs to {going_on}: a run that begins takes the data as they are.")
    if resume and out is None:
        raise TrainingError(f"Which run should go on? Name its folder with {argument('out')}.")
    return resume or torchrun.is_restart()


@contextlib.contextmanager
def run_folder(out: Path | None, name: str, asked: Asked, *, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Have a run's folder as long as the block lasts, what was asked the first thing in it; in every process the same.

    Args:
        out: the folder; None to make a free one below runs/.
        name: what that is called after.
        asked: what was asked.
        resume: whether the run in it goes on.
        overwrite: whether it may begin where something is.

    Raises:
        TrainingError: there is a run, and nothing was said of it; or another process works there.
        StorageError: there is something else, or nothing can be written there.
    """
    if out is None:
        out = distributed.broadcast(make_free_folder(name) if torchrun.is_main() else Path())
    data = None if asked.data is None else path_in(asked.data)
    inputs = [path for path in (data, asked.source) if path is not None]
    with occupied(out, inputs, resume=resume, overwrite=overwrite):
        if torchrun.is_main() and not (resume and holds_run(out)):
            begin(out, asked)
        yield out


def completed(asked: Asked, out: str | Path | None, *, resume: bool) -> tuple[Asked, Request]:
    """Return what is asked with what the run that goes on was asked first, and that with its recipe read.

    Raises:
        TrainingError: what is said anew would make it another run.
        RecipeError: no such recipe, an unknown key or an impossible value.
    """
    folder = Path(out) if resume and out is not None else None
    if folder is not None:
        asked = replace(go_on(folder, asked), budget_seconds=budget_left(folder, asked))
    if asked.kind == "pre-train":
        asked = replace(asked, data=asked.data or PRETRAINING_DATA)
    asked.required_data()
    if folder is None:
        return asked, read_request(asked)
    return asked, read_request(
        asked,
        kept=kept_recipe(folder),
        kept_start=kept_start(folder),
        begun=kept_attempts(folder),
        start=kept_choice(folder),
    )


@dataclass(frozen=True)
class _Checked:
    """A command of which all was checked that can be before its folder is touched and its data are read.

    Attributes:
        asked: what was asked, completed by what the run that goes on was asked first.
        request: that with its recipe.
        loaded: the trained weights, where it starts from some.
        listener: of the main process; the others are silent.
        started: `time.monotonic()` when the command began.
        resume: whether a run goes on.
    """

    asked: Asked
    request: Request
    loaded: Classifier | None
    listener: Listener
    started: float
    resume: bool


def _check(
    asked: Asked,
    out: str | Path | None,
    *,
    resume: bool,
    data_changed: bool,
    started: float | None,
    listener: Listener,
) -> _Checked:
    started = monotonic() if started is None else started
    distributed.join()
    listener = listener if torchrun.is_main() else ignore
    resume = goes_on(out, resume=resume, data_changed=data_changed)
    asked, request = completed(asked, out, resume=resume)
    if not resume and (said := random_start(request)):
        listener(Message(said))
    return _Checked(asked, request, load_start(request, listener), listener, started, resume)


@contextlib.contextmanager
def opened(
    asked: Asked,
    out: str | Path | None,
    *,
    resume: bool,
    overwrite: bool,
    data_changed: bool,
    started: float | None,
    verify: bool = True,
    listener: Listener,
) -> Iterator[Session]:
    """Have a run's folder and its data as long as the block lasts, once all that can be refused before them is refused.

    Args:
        asked: what the command was given.
        out: the run folder; runs/NAME if None.
        resume: whether the run in it goes on.
        overwrite: whether it may begin where something is.
        data_changed: whether the data may have changed since.
        started: `time.monotonic()` when the command began; None for now.
        verify: whether images are decoded beforehand; who began many runs on the same data did that once.
        listener: hears messages and progress.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    said_time = asked.budget_seconds is not None
    known = _check(asked, out, resume=resume, data_changed=data_changed, started=started, listener=listener)
    overwrite = overwrite and (
        resume or not known.resume
    )  # a restarted job goes on with what its first start began anew
    exactly = _exactly(known.asked, out, resume=known.resume)
    run = None if out is None else Path(out)
    with folder_and_data(
        known.request, run, resume=known.resume, overwrite=overwrite, verify=verify, listener=known.listener
    ) as (folder, data):
        session = Session(
            command=known.asked,
            request=known.request,
            folder=folder,
            data=data,
            listener=known.listener,
            started=known.started,
            loaded=None if known.asked.sweep else known.loaded,
            resume=known.resume,
            further=resume and (said_time or has_unused_time(folder)),
            data_changed=data_changed,
            exactly=exactly,
        )
        yield _begun(session)


def _begun(session: Session) -> Session:
    """Return a session with its start, which is in the run's folder if it was chosen here."""
    begun = with_start(session)
    chosen = begun.request.start
    if chosen is not None and chosen != session.request.start and torchrun.is_main():
        note_start(session.folder, chosen)
    return begun


def _exactly(asked: Asked, out: str | Path | None, *, resume: bool) -> bool:
    """Tell whether what a named recipe trains is meant: it was named now, or when the run that goes on began."""
    folder = Path(out) if resume and out is not None else None
    if folder is None or not holds_run(folder):
        return asked.recipe is not None or asked.sweep
    first = kept(folder)
    return first is None or first.recipe is not None or first.sweep


def looked_at(
    asked: Asked,
    out: str | Path | None,
    *,
    resume: bool,
    started: float | None,
    verify: bool = True,
    listener: Listener,
) -> Session:
    """Return what `opened` gives, without having a folder: nothing is written.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    known = _check(asked, out, resume=resume, data_changed=False, started=started, listener=listener)
    data = read_data(known.request, known.listener, verify=verify)
    session = Session(
        command=known.asked,
        request=known.request,
        folder=RUNS / data.name if out is None else Path(out),
        data=data,
        listener=known.listener,
        started=known.started,
        loaded=known.loaded,
        resume=known.resume,
        exactly=_exactly(known.asked, out, resume=known.resume),
    )
    return with_start(session, fetching=False)


def read_data(request: Request, listener: Listener, *, verify: bool) -> DataSet:
    """Return the data that were asked for, their labels as the recipe's task understands them.

    Of a run's time a part may go into decoding images beforehand.

    Raises:
        DataError: they cannot be read, their labels are not of the task's form, or they have none and the method needs some.
    """
    asked = request.asked
    data = open_data(
        asked.required_data(),
        classes=asked.classes,
        skip_bad_images=asked.skip_bad_images,
        verify=verify,
        checking_seconds=None if asked.budget_seconds is None else CHECKING_SHARE * asked.budget_seconds,
        listener=listener,
    )
    recipe = request.in_full
    data = method_of(recipe).labelled(recipe, data, listener)
    if recipe.method.uses_labels and not data.task.scored:
        raise DataError(
            f"The images of {data.name} {data.task.labelled}, which '{recipe.method.name}' learns from; name data with labels, "
            "or a method that does without, such as lejepa."
        )
    return data if recipe.task is None else data.for_task(task_named(recipe.task))


@contextlib.contextmanager
def folder_and_data(
    request: Request, out: Path | None, *, resume: bool, overwrite: bool, verify: bool, listener: Listener
) -> Iterator[tuple[Path, DataSet]]:
    """Have a run's folder as long as the block lasts, and the data that it learns from.

    The folder comes first, so that two commands cannot both read for an hour and then meet there; but an older run in it is
    not deleted before the data that shall take its place are known to be good.

    Args:
        request: what was asked, its data among it.
        out: the folder; None to make a free one below runs/, called after the data.
        resume: whether the run in it goes on.
        overwrite: whether it may begin where something is.
        verify: whether images are decoded beforehand.
        listener: hears of the reading.

    Raises:
        DataError: the data cannot be read.
        TrainingError: there is a run, and nothing was said of it; or another process works there.
        StorageError: there is something else, or nothing can be written there.
    """
    asked, read = request.asked, partial(read_data, request, listener, verify=verify)
    if out is None:
        check_location(RUNS / "run")  # whatever it will be called, which only the data say
        data = read()
        with run_folder(None, data.name, asked, resume=False, overwrite=False) as folder:
            yield folder, data
        return
    good = read() if overwrite else None
    with run_folder(out, "", asked, resume=resume, overwrite=overwrite) as folder:
        yield folder, good or read()
