"""What an attempt has of its own where several are tried: its recipe, and a network from scratch with its batches.

Such a network is given up while it trains, once it is expected to end behind the best so far, and has the rest of the time once
it is ahead.
"""

from collections.abc import Callable
from dataclasses import replace

from vitral import distributed
from vitral.data.loader import TrainingBatches
from vitral.errors import VitralError
from vitral.events import Listener, Message
from vitral.models.model import Model
from vitral.tasks.task import Figure
from vitral.training.candidates.result import Choice
from vitral.training.choose.attempts import is_ahead, is_behind
from vitral.training.clock import Pacer
from vitral.training.loop import Validate
from vitral.training.methods.method import augmentations, training_batches
from vitral.training.plan import Attempt
from vitral.training.session import Run
from vitral.training.starting.prepare import begin_network


class AttemptBehind(VitralError):
    """One of several attempts is given up, because another is expected to end better."""


def run_of(run: Run, attempt: Attempt) -> Run:
    """Return a run as one of its attempts has it: with the attempt's recipe, and its network in the starting state."""
    if not attempt.network:
        return run.with_recipe(attempt.recipe)
    plan = run.plan.of_network(attempt)
    return replace(run, plan=plan, classifier=begin_network(run, plan, None))


def batches_of(run: Run, attempt: Attempt, batches: TrainingBatches, image_size: tuple[int, int]) -> TrainingBatches:
    """Return the training images by step as an attempt sees them.

    Args:
        run: The run as the attempt has it.
        attempt: The attempt.
        batches: The training images by step as the attempts with the run's own network share them.
        image_size: The height and width, pixels.
    """
    recipe, preprocessing = attempt.recipe, run.classifier.preprocessing
    augmentation = recipe.augmentation or run.plan.augmentation
    if not attempt.network:
        return batches.at(image_size, augmentations(recipe, augmentation))
    return training_batches(
        run.splits["train"],
        recipe,
        image_size=image_size,
        augmentation=augmentation,
        task=run.task,
        num_classes=len(run.data.class_names),
        fill=preprocessing.mean_colour,
        listener=run.listener,
    )


def compared(
    validate: Validate, headline: Figure, pacer: Pacer, whole: Pacer, choose: Callable[[], Choice | None]
) -> Validate:
    """Return a validation that also compares the attempt with what was chosen so far.

    It raises `AttemptBehind` once the attempt is behind, and gives it the rest of the time once it is ahead. Without a time
    budget there is nothing to be won by that, and it is the validation itself.

    Args:
        validate: The validation.
        headline: What its first figure is.
        pacer: Paces the attempt.
        whole: Paces the run, to its end.
        choose: Returns what is the best so far.
    """
    if pacer.seconds is None:
        return validate
    given = pacer.clock.left()

    def validated(model: Model, listener: Listener, stop: Callable[[], bool]) -> dict[str, float] | None:
        figures, choice = validate(model, listener, stop), choose()
        gone = distributed.broadcast(1 - pacer.clock.left() / given)
        if figures is None or choice is None or pacer.clock == whole.clock:
            return figures
        figure, best = next(iter(figures.values())), choice.kept
        reached = f"{headline.text(figure)} on the validation photos, the {best.title} {headline.text(best.figure)}"
        if is_behind(figure, gone, best.figure, best.images):
            raise AttemptBehind(f"After {gone:.0%} of its time it reaches {reached}.")
        if is_ahead(figure, gone, best.figure, best.images):
            listener(Message(f"After {gone:.0%} of its time it reaches {reached}: it has the rest of the time, too."))
            pacer.extend(whole)
        return figures

    return validated
