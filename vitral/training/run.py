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
"""

from vitral import distributed
from vitral.advice import argument
from vitral.errors import TrainingError
from vitral.events import Listener, Message
from vitral.layout import CHECKPOINTS
from vitral.training.candidates.deliver import finish, try_first
from vitral.training.candidates.first import images_judged
from vitral.training.loop import train
from vitral.training.methods.batches import open_further, training_batches
from vitral.training.planning.plan import Run, Session
from vitral.training.planning.prepare import prepare
from vitral.training.planning.rehearsal import Rehearsed, within_time
from vitral.training.records.checkpoints import newest_state
from vitral.training.records.description import remarks_on, write_description
from vitral.training.records.resume import check_resumed, note_what_is_new
from vitral.training.records.training_images import write_training_images
from vitral.training.result import RunResult
from vitral.training.scoring.baselines import run_baselines
from vitral.training.scoring.validation import run_validation

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
    further = open_further(run.recipe, listener)
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
    check_resumed(run, further, listener)
    if distributed.is_main():
        write_description(whole, further)
        if run.session.resume:
            note_what_is_new(run.session)
        write_training_images(run.folder, run.data, batches, keep=run.session.resume)
    first, why_alone = try_first(rehearsed, listener)
    if why_alone:
        listener(Message(why_alone))
        return finish(rehearsed, None, None, first, listener)
    baselines = run_baselines(run, listener, None if first is None else first.fitted)
    training = train(
        run.classifier.model,
        batches,
        recipe=run.recipe,
        normalize=run.classifier.preprocessing.normalize,
        folder=run.folder,
        validate=run_validation(run, rehearsed.validating),
        resume=run.session.resume,
        further=run.session.further,
        remarks=remarks_on(run),
        budget=rehearsed.budget,
        listener=listener,
    )
    return finish(rehearsed, training, baselines, first, listener)


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
        if run.session.resume and distributed.broadcast(newest_state(run.folder / CHECKPOINTS)) is not None:
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
