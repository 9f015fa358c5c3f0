"""One run, whatever its kind: images, baselines, training, classifier, scores, all in one folder.

runs/photos/
  run.json           what the command was given, data, machine, versions
  plan.json          what was decided before the first step; a run that continues reads it
  recipe.toml        the settings as resolved; running it again gives the same weights
  images/            what the network saw
  first/             a classifier in closed form, made before training; first.json says what it is and how good
  baselines.json     what simple classifiers reach on pixels, and on the frozen features of trained weights
  metrics.jsonl      loss, accuracy and learning rate by step
  tensorboard/       the same for TensorBoard
  checkpoints/       what a resumed run continues from
  attempt.json       how good the trained network is
  classifier/        the result: until training is over the first classifier, then the better of the two
  evaluation.json    its scores on the test split

Each of several attempts has a folder of its own, which is like that of a run; classifier/ is always the best that is finished,
and at the end the run gets the recipe and the log of the best attempt:

  attempts/lora/     recipe.toml, metrics.jsonl, tensorboard/, checkpoints/, classifier/; attempt.json says how good it is,
                     outcome.json why it was not trained to its end, where it was not
"""

from dataclasses import replace

import numpy as np

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.data.source import Source
from vitral.errors import TrainingError
from vitral.events import Listener, Message, ignore
from vitral.training.candidates.deliver import finish, first_outcome
from vitral.training.candidates.first import FirstClassifier, first_before, first_classifier, time_alone
from vitral.training.candidates.result import Candidate, RunResult, write_description, write_training_images
from vitral.training.candidates.trained import try_attempts
from vitral.training.choose.attempts import first_to_pay
from vitral.training.choose.draft import ADAPTED, SCRATCH
from vitral.training.clock import SIMPLE_SECONDS, first_seconds
from vitral.training.methods.method import open_further
from vitral.training.plan import write_plan
from vitral.training.records.attempts import states
from vitral.training.records.data_record import Further
from vitral.training.request import Request
from vitral.training.resume import check_data_and_machine, note_request
from vitral.training.scoring.validation import (
    Scoring,
    is_too_short,
    refuse,
    run_baselines,
    within_time,
    worthwhile_seconds,
)
from vitral.training.session import Run, Session
from vitral.training.settings.durations import written
from vitral.training.starting.opening import opened
from vitral.training.starting.prepare import begin, complete

JUDGING = "evaluation"  # as further data are named in a run's record, beside those of its method
UNSCORED = (
    "There are no photos to validate or score on, so the scores will be of the training photos themselves: give each class at "
    "least three photos, or put some into a val/ folder."
)


def run_request(
    request: Request, *, started: float | None = None, verify: bool = True, listener: Listener
) -> RunResult:
    """Carry out a request as one run, from its folder and data to what it delivers.

    Args:
        request: What the command was given.
        started: `time.monotonic()` when the command began; None for now.
        verify: Whether all images are decoded beforehand, as they need not be again for every run on the same data.
        listener: Receives messages and progress.

    Raises:
        VitralError: Bad input, by kind, or the run failed.
    """
    with opened(request, started=started, verify=verify, listener=listener) as session:
        if session.request.sweep:
            raise TrainingError(
                f"The run in '{session.folder}' is a sweep, which is many runs; begin and continue it as one."
            )
        return carry_out(session)


def carry_out(session: Session) -> RunResult:
    """Plan a session as one run, or read its plan; make the first classifier and each attempt; score and diagnose the best.

    The first classifier of a run that begins is made before anything is tried or timed for the training, which takes longer.
    """
    begun = begin(session)
    skip, listener = begun.request.skip_bad_images, begun.listener
    further = open_further(begun.recipe, begun.data.class_names, skip_bad_images=skip, listener=listener)
    first, whole = _begin_with_first(begun, further)
    before = first_before(whole) if first is None else first.candidate
    run, scoring = within_time(whole, before.images if before is not None and before.split == "validation" else None)
    continues = run.request.resume and bool(distributed.broadcast(states(run.folder, run.plan)))
    _check_possible(run, scoring, continues=continues)
    batches = run.batches(further)
    _write_down(whole, further)
    if torchrun.is_main():
        write_training_images(run.folder, run.data, batches, keep=run.request.resume)
    first, why_alone = _try_first(run, scoring, first, before, continues=continues)
    if first is not None and why_alone:
        listener(Message(why_alone))
        return finish(first_outcome(run, first), scoring, None)
    baselines = run_baselines(run, None if first is None else first.fitted)
    if run.plan.several and first is None and not continues:
        run = _with_one_attempt(run)
    return finish(try_attempts(run, scoring, batches, first), scoring, baselines)


def _begin_with_first(begun: Run, further: Further) -> tuple[FirstClassifier | None, Run]:
    """Return the first classifier of a run, where it can be made before the plan is complete, and the run with that plan."""
    listener = begun.listener
    soon = not (begun.request.quick or begun.request.resume or begun.why_no_first)
    whole = begun if soon else complete(begun)
    for line in (*whole.summary(), f"Folder  {whole.folder}", *whole.notes()):
        listener(Message(line))
    first = None
    if soon:
        first = _first_soon(begun, further)
        whole = (
            complete(begun) if first is None else complete(begun, first=first.seconds, closed_forms=first.closed_forms)
        )
        if begun.clock.seconds is None:
            listener(Message(whole.summary()[-1]))  # which was not known before
    for line in whole.details():
        listener(Message(line, detail=True))
    if whole.data.scored_split() == "train":
        listener(Message(UNSCORED, warning=True))
    return first, whole


def _first_soon(begun: Run, further: Further) -> FirstClassifier | None:
    """Return the first classifier of a run of which nothing was measured yet; None where there are no images to judge it by."""
    run, scoring = within_time(replace(begun, listener=ignore))
    if scoring.validating is None:
        return None
    _write_down(begun, further)
    run = replace(run, listener=begun.listener)
    first = first_classifier(run, scoring.validating, None, seconds=first_seconds(run.clock.left()), after=0)
    if first is not None:
        begun.listener(Message(first.sentence(run)))
    return first


def _write_down(run: Run, further: Further) -> None:
    """Write plan and description, once the data are known to be the run's.

    `run` has all of its images, also those for which its time has no room; `further` is what its method learns from besides.
    """
    folder = run.folder
    beside = further if run.judging is None else {**further, JUDGING: run.judging}
    if run.request.resume:
        changed, listener = run.request.data_changed, run.listener
        distributed.by_main(
            lambda: check_data_and_machine(folder, run.plan, run.data, beside, changed=changed, listener=listener)
        )
    distributed.barrier()  # nobody reads the plan any more, which the main process is about to write
    if torchrun.is_main():
        write_plan(folder, run.plan)
        write_description(run, beside)
        if run.request.resume:
            note_request(folder, run.plan, run.request, more_time=run.more_time, retry=run.retry)


def _try_first(
    run: Run, scoring: Scoring, first: FirstClassifier | None, before: Candidate | None, *, continues: bool
) -> tuple[FirstClassifier | None, str]:
    """Return the first classifier, and why nothing is trained after it; empty where the run goes on with training.

    One that was made at once is made anew only where it alone has the time, had too little, and can be fitted on more now.
    Where the time is over before there is anything, a small one is made all the same: late is better than nothing.
    """
    if run.why_no_first:
        return None, ""
    why = "" if continues else _why_alone(run, scoring, first)
    validating, listener = scoring.validating, run.listener
    if first is not None and (not why or first.whole):
        return first, why
    seconds, after = time_alone(run, scoring) if why else (first_seconds(run.clock.left()), 0)
    made = first_classifier(
        run, validating, before if first is None else None, seconds=seconds, after=after, former=first
    )
    if made is None and first is None and (why or is_too_short(run, scoring)):
        given = argument("time", written(run.clock.seconds or 0.0))
        late = "a linear model is fitted all the same, on what a few seconds allow"
        listener(Message(f"{given} leaves no time for anything; {late}.", warning=True))
        made = first_classifier(run, validating, before, seconds=SIMPLE_SECONDS, after=0, late=True)
    if made is None and first is None:
        listener(Message(f"No first classifier: it would take longer than {seconds:.1f} s.", detail=True))
        return None, ""
    if made is not None and not continues:
        listener(Message(made.sentence(run)))
    first = made or first
    return first, "" if continues else _why_alone(run, scoring, first)  # by the time that is left now


def _why_alone(run: Run, scoring: Scoring, first: FirstClassifier | None) -> str:
    """Return why nothing is trained after the first classifier of a run that has trained nothing; empty if something is."""
    if run.request.quick:
        more = "would train nothing without validation photos" if _unjudged(run, scoring) else "continues with training"
        return f"That is all with {argument('quick', True)}; {argument('resume', True)} {more}."
    if _unjudged(run, scoring):
        recipe = ADAPTED if run.plan.origin == "weights" else SCRATCH
        return (
            "Nothing is trained, because there are no validation photos to tell whether that would be better; "
            f"{argument('recipe', recipe)} trains all the same."
        )
    if not (run.plan.why_none or is_too_short(run, scoring)):
        return ""
    if first is not None and first.candidate.is_perfect(run.headline) and _of_several_classes(scoring.validating):
        return "Nothing is trained: the photos that would judge it are all right already."
    if run.plan.why_none:
        return f"Nothing is trained; give it more {argument('time')}."
    enough = argument("time", written(worthwhile_seconds(run, scoring)))
    return f"Nothing is trained: no time is left for it; {enough} would be enough for some training."


def _of_several_classes(images: Source | None) -> bool:
    return images is not None and (images.endless or len(np.unique(images.labels(), axis=0)) > 1)


def _unjudged(run: Run, scoring: Scoring) -> bool:
    """Tell whether nothing is trained as nothing could judge it; a network of regions mostly begins as the first classifier."""
    return scoring.validating is None and not run.task.dense


def _with_one_attempt(run: Run) -> Run:
    """Return a run with the attempt that pays first, where several are planned and no first classifier can be had."""
    attempt = first_to_pay(run.plan.attempts)
    run.listener(
        Message(
            f"Without a first classifier to compare with, one training is tried: {attempt.name} ({attempt.reason})."
        )
    )
    run = replace(run, plan=run.plan.only(attempt))
    if torchrun.is_main():
        write_plan(run.folder, run.plan)
    distributed.barrier()
    return run


def _check_possible(run: Run, scoring: Scoring, *, continues: bool) -> None:
    """Refuse a run that could not deliver what is requested, before anything of it is written.

    Raises:
        TrainingError: The budget is too short for training, and nothing else was to be tried; or the other way round.
    """
    if run.request.quick and continues:
        quick = argument("quick", True)
        raise TrainingError(f"The run in '{run.folder}' is past its first classifier; continue it without {quick}.")
    if run.why_no_first and is_too_short(run, scoring):
        refuse(run, scoring)
