"""One run, whatever its kind: images, baselines, training, classifier, scores, all in one folder.

runs/photos/
  recipe.toml        the settings as resolved; running it again gives the same weights
  run.json           command, data, machine, versions
  images/            what the network saw
  first/             a classifier in closed form, made before training; first.json says what it is and how good
  baselines.json     what simple classifiers reach on pixels, and on the frozen features of trained weights
  metrics.jsonl      loss, accuracy and learning rate by step
  tensorboard/       the same for TensorBoard
  checkpoints/       what a resumed run continues from
  classifier/        the result: until training is over the first classifier, then the better of the two
  evaluation.json    its scores on the test split

Where several ways to learn are tried, each has a folder of its own, which is like that of a run; classifier/ is always the best
that is finished, and at the end the run gets the recipe and the log of the best one that was trained:

  attempts/lora/     recipe.toml, metrics.jsonl, tensorboard/, checkpoints/, classifier/; attempt.json says how good it is,
                     outcome.json why it was not trained to its end, where it was not
"""

from dataclasses import replace

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.errors import TrainingError
from vitral.events import Listener, Message
from vitral.training.candidates.attempts import attempt
from vitral.training.candidates.deliver import finish, first_outcome, one_outcome, try_first
from vitral.training.candidates.first import HEAD, images_judged
from vitral.training.loop import train
from vitral.training.methods.batches import augmentations, open_further, training_batches
from vitral.training.planning.attempts import first_to_pay
from vitral.training.planning.plan import Run, Session
from vitral.training.planning.prepare import prepare, set_rates
from vitral.training.planning.rehearsal import Rehearsed, within_time
from vitral.training.records.attempts import states
from vitral.training.records.description import remarks_on, write_description
from vitral.training.records.recipe_file import kept_remarks
from vitral.training.records.resume import check_resumed, note_what_is_new
from vitral.training.records.training_images import write_training_images
from vitral.training.result import RunResult
from vitral.training.scoring.baselines import run_baselines
from vitral.training.scoring.validation import run_validation

JUDGING = "evaluation"  # as further data are named in a run's record, beside those of its method
UNSCORED = (
    "There are no images to validate or score on, so the scores will be of the training images themselves: give a class at "
    "least three images, or put some into a val/ folder."
)


def run_once(session: Session) -> RunResult:
    """Plan a session as one run and carry it out."""
    return execute(prepare(session))


def execute(whole: Run) -> RunResult:
    """Carry out a plan."""
    listener = whole.session.listener
    _announce(whole, listener)
    rehearsed = within_time(whole, listener, judging=images_judged(whole))
    run = rehearsed.run
    _check_possible(rehearsed)
    skip = run.session.request.asked.skip_bad_images
    further = open_further(run.recipe, run.data.class_names, skip_bad_images=skip, listener=listener)
    batches = training_batches(
        run.data.splits["train"],
        run.recipe,
        image_size=run.classifier.model.image_size,
        augmentation=run.plan.augmentation,
        task=run.data.task,
        num_classes=len(run.data.class_names),
        fill=run.classifier.preprocessing.mean_colour,
        further=further,
        listener=listener,
    )
    beside = further if run.judging is None else {**further, JUDGING: run.judging}
    check_resumed(run, beside, listener)
    if torchrun.is_main():
        write_description(whole, beside)
        if run.session.resume:
            note_what_is_new(run.session)
        write_training_images(run.folder, run.data, batches, keep=run.session.resume)
    first, why_alone = try_first(rehearsed, listener)
    if first is not None and why_alone:
        listener(Message(why_alone))
        return finish(first_outcome(run, first), None, listener)
    baselines = run_baselines(run, listener, None if first is None else first.fitted)
    if run.plan.attempts and (first is not None or run.session.request.begun):
        return finish(attempt(rehearsed, batches, first, listener), baselines, listener)
    if run.plan.attempts:
        rehearsed = _one_way(rehearsed, listener)
        run = rehearsed.run
        set_rates(run.classifier.model, run.recipe)
        batches = batches.at(batches.image_size, augmentations(run.recipe, run.plan.augmentation))
    from_probe = run.plan.from_probe or HEAD in kept_remarks(run.folder)
    remarks = first.begin_with_head(run.classifier.model) if first is not None and from_probe else ()
    training = train(
        run.classifier.model,
        batches,
        recipe=run.recipe,
        normalize=run.classifier.preprocessing.normalize,
        class_names=run.data.class_names,
        folder=run.folder,
        validate=run_validation(run, rehearsed.validating, rehearsed.live),
        resume=run.session.resume,
        further=run.session.further,
        remarks=(*remarks_on(run), *remarks),
        budget=rehearsed.budget,
        listener=listener,
    )
    return finish(one_outcome(rehearsed, training, first, listener), baselines, listener)


def _one_way(rehearsed: Rehearsed, listener: Listener) -> Rehearsed:
    """Return a run that trains one network: of several ways to learn that were planned, the one that pays first."""
    run = rehearsed.run
    one = first_to_pay(run.plan.attempts)
    listener(
        Message(f"Without a first classifier to compare with one way to learn is tried: {one.name} ({one.reason}).")
    )
    return replace(rehearsed, run=replace(run, plan=run.plan.of(one)))


def _check_possible(rehearsed: Rehearsed) -> None:
    """Refuse a run that could not deliver what is asked of it, before anything of it is written.

    Raises:
        TrainingError: the budget is too short for training, and nothing else was to be tried; or the other way round.
    """
    run, quick = rehearsed.run, argument("quick", True)
    why = run.why_no_first
    if run.session.request.asked.quick:
        if why:
            raise TrainingError(f"{quick} stops after the first classifier, and this run has none: {why}.")
        if run.session.resume and distributed.broadcast(states(run.folder)):
            raise TrainingError(
                f"The run in '{run.folder}' is past its first classifier; go on with it without {quick}."
            )
    if why and rehearsed.too_short():
        rehearsed.refuse()


def _announce(run: Run, listener: Listener) -> None:
    for line in (*run.lines(), f"Run folder: {run.folder}"):
        listener(Message(line))
    if run.data.scored_split() == "train":
        listener(Message(UNSCORED, warning=True))
    for bad in run.data.bad_images:
        listener(Message(f"Left out: {bad.path} ({bad.reason})", warning=True))
