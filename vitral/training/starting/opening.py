"""Where a run goes, and what it reads there: its folder and its data, together for as long as it lasts."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load
from vitral.data.open import open_data, path_in
from vitral.data.scorable import scorable
from vitral.data.source import DataSet
from vitral.errors import DataError, TrainingError, UsageError
from vitral.events import Listener, Message, ignore
from vitral.outputs import check_location
from vitral.paths import RUNS
from vitral.tasks.registry import task_named
from vitral.training.choose.draft import Draft, draft_of
from vitral.training.clock import CHECKING_SHARE, Clock
from vitral.training.facts import look
from vitral.training.methods.method import method_of
from vitral.training.records.data_record import drawn_before, drawn_beside
from vitral.training.records.run_folder import begin, holds_run, make_free_folder, note_start, occupied
from vitral.training.request import Request
from vitral.training.resume import Continued, continued, stored_plan
from vitral.training.session import Session
from vitral.training.settings.recipe import Recipe
from vitral.training.starting.prepare import load_start, random_start
from vitral.training.starting.published_start import find_start


def _continues(request: Request) -> bool:
    """Tell whether a command continues a run: it says so, or torchrun started the job again after it lost a process.

    Raises:
        TrainingError: torchrun may start the job again, and could not know which run is meant; no folder was named; or
            a new run's data are said to have changed.
    """
    out = request.out
    if out is None and torchrun.may_restart():
        raise TrainingError(f"Name the run's folder with {argument('out')}, so that a restart by torchrun finds it.")
    if out is not None and not str(out).strip():
        raise TrainingError(f"{argument('out')} is empty; name a folder, or leave it out for one below runs/.")
    if request.data_changed and not request.resume:
        changed, resume = argument("data_changed", True), argument("resume", True)
        raise UsageError(f"{changed} belongs to {resume}: a run that begins takes the data as they are.")
    if request.resume and out is None:
        raise UsageError(f"Which run should continue? Name its folder with {argument('out')}.")
    return request.resume or torchrun.is_restart()


@dataclass(frozen=True)
class _Checked:
    """A command of which all is checked that can be before its folder is touched and its data are read."""

    known: Continued
    recipe: Recipe
    draft: Draft | None
    loaded: Classifier | None
    clock: Clock
    listener: Listener

    @property
    def request(self) -> Request:
        """What is requested, with what an earlier command of the run settled."""
        return self.known.request

    def read(self, *, verify: bool) -> DataSet:
        """Return the data, their labels as the recipe's task understands them.

        Of the command's time a share may go into decoding images beforehand.

        Raises:
            DataError: They cannot be read, their labels are not of the task's form, or there are none that the method needs.
        """
        request, recipe, seconds = self.request, self.recipe, self.clock.seconds
        data = open_data(
            request.required_data(),
            classes=request.classes,
            group=request.group,
            drawn_as=self._drawn_as(),
            skip_bad_images=request.skip_bad_images,
            verify=verify,
            checking_seconds=None if seconds is None else CHECKING_SHARE * seconds,
            listener=self.listener,
        )
        data = method_of(recipe).labelled(recipe, data, self.listener)
        if recipe.method.uses_labels and not data.task.scored:
            raise DataError(
                f"The images of {data.name} {data.task.labelled}, which '{recipe.method.name}' needs; name data with "
                "labels, or a method that does without, such as lejepa."
            )
        data = data if recipe.task is None else data.for_task(task_named(recipe.task))
        return scorable(data) if data.task.dense else data

    def _drawn_as(self) -> tuple[str, ...]:
        """Return the fingerprints by which the data are split as before: for this run, others of its study, and its start."""
        run, start = self.request.out, self.loaded
        before = [] if run is None or not self.request.resume else [drawn_before(run)]
        beside = [] if run is None else drawn_beside(run)
        return tuple(filter(None, (*before, *beside, "" if start is None else start.provenance.data_fingerprint)))

    def session(self, folder: Path, data: DataSet, *, fetching: bool) -> Session:
        """Return the session, with a start where the request leaves that open."""
        request = self.request
        session = Session(
            command=request,
            request=request,
            folder=folder,
            data=data,
            clock=self.clock,
            listener=self.listener,
            plan=self.known.plan,
            draft=self.draft,
            loaded=None if request.sweep else self.loaded,
            more_time=self.known.more_time,
            retry=self.known.retry,
        )
        if self.draft is None or not self.draft.begins_freely:
            return session
        facts = look(data, sized=True, timed=True)
        chosen, loaded = find_start(self.draft, data, facts, self.clock, self.listener, fetching=fetching)
        if fetching and torchrun.is_main():
            note_start(folder, chosen)
        return replace(session, draft=draft_of(request, chosen), facts=facts, loaded=loaded)


def _check(request: Request, started: float | None, listener: Listener) -> _Checked:
    started = monotonic() if started is None else started
    distributed.join()
    listener = listener if torchrun.is_main() else ignore
    known = continued(request) if _continues(request) else Continued(request, None, request.budget_seconds)
    known = replace(known, request=replace(known.request, data=known.request.required_data()))
    clock, plan = Clock(known.seconds, started), known.plan
    if plan is not None:
        loaded = load(plan.start, tuned=False, listener=listener) if plan.origin == "weights" else None
        return _Checked(known, plan.recipe, None, loaded, clock, listener)
    draft = draft_of(known.request, known.chosen)
    if not known.request.resume and (line := random_start(draft)):
        listener(Message(line))
    return _Checked(known, draft.in_full, draft, load_start(draft, listener), clock, listener)


@contextlib.contextmanager
def opened(
    request: Request, *, started: float | None = None, verify: bool = True, listener: Listener
) -> Iterator[Session]:
    """Have a run's folder and its data as long as the block lasts, once all that can be refused before them is refused.

    The folder comes first, so that two commands cannot both read for an hour and then meet there; but an older run in it is
    not deleted before the data that shall take its place are known to be good.

    Args:
        request: What the command was given.
        started: `time.monotonic()` when the command began; None for now.
        verify: Whether images are decoded beforehand; who began many runs on the same data did that once.
        listener: Receives messages and progress.

    Raises:
        VitralError: Bad input, by kind; one line that names the thing.
    """
    checked = _check(request, started, listener)
    completed = checked.known.request
    # A job that torchrun restarted continues what its first start began anew.
    overwrite = request.overwrite and (request.resume or not completed.resume)
    folder, data = completed.out, None
    if folder is None:
        check_location(RUNS / "run")  # whatever it will be called, which only the data say
    if folder is None or overwrite:
        data = checked.read(verify=verify)
        folder = folder or distributed.by_main(lambda: make_free_folder(data.name))
    named = None if completed.data is None else path_in(completed.data)
    inputs = [path for path in (named, completed.source) if path is not None]
    with occupied(folder, inputs, resume=completed.resume, overwrite=overwrite):
        if torchrun.is_main() and not (completed.resume and holds_run(folder)):
            begin(folder, completed)
        try:
            yield checked.session(folder, data or checked.read(verify=verify), fetching=True)
        except KeyboardInterrupt:  # before training, which saves itself and says so
            going_on = f"{argument('resume', True)} {argument('out', str(folder))}"
            checked.listener(Message(f"What is done so far is in '{folder}'; continue with {going_on}."))
            raise


def looked_at(request: Request, *, started: float | None = None, verify: bool = True, listener: Listener) -> Session:
    """Return what `opened` gives, without having a folder: nothing is written, and no published weights are fetched."""
    checked = _check(request, started, listener)
    data = checked.read(verify=verify)
    return checked.session(request.out or RUNS / data.name, data, fetching=False)


def part_of(session: Session, request: Request, folder: Path, data: DataSet) -> Session:
    """Return the session of a run that is part of a command, in a folder of its own; it continues a run that is there."""
    plan = stored_plan(folder, request)
    return replace(
        session,
        request=replace(request, out=folder, resume=plan is not None),
        folder=folder,
        data=data,
        clock=Clock(request.budget_seconds, monotonic()),
        plan=plan,
        draft=draft_of(request) if plan is None else None,
        facts=None,
        loaded=None,
    )
