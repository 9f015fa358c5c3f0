"""Messages about a batch without finite numbers, and about a run that cannot continue."""

from collections.abc import Sequence
from pathlib import Path

from vitral.data.loader import TrainingBatches
from vitral.errors import TrainingDiverged
from vitral.events import Message
from vitral.training.records.checkpoints import checkpoints

NAMED = 4  # images in a message


def images_of(batches: TrainingBatches, step: int) -> list[str]:
    """Return the names of the first images of a batch."""
    return [batches.source.describe(index) for index in batches.indices(step)[:NAMED].tolist()]


def skipped(loss: float, step: int, count: int, most: int, images: Sequence[str]) -> Message:
    """Return the warning about a batch that was skipped."""
    return Message(
        f"The loss at step {step} is {loss}, or its gradient is not finite. The batch ({', '.join(images)}, …) was "
        f"skipped, {count} of at most {most}.",
        warning=True,
    )


def too_many_skipped(loss: float, step: int, most: int, images: Sequence[str], folder: Path) -> TrainingDiverged:
    """Return the error of a run that has skipped as many batches as it may; `folder` holds its checkpoints."""
    whole = checkpoints(folder)
    last = f"the last good checkpoint is '{whole[-1]}'" if whole else "there is no checkpoint yet"
    return TrainingDiverged(
        f"The loss at step {step} is {loss}, or its gradient is not finite, after {most} skipped batches. This step changed "
        f"nothing, and {last}. Lower optimizer.lr. The batch began with {', '.join(images)}."
    )


def damaged(step: int) -> TrainingDiverged:
    """Return the error of a run that has damaged weights and no checkpoint."""
    return TrainingDiverged(
        f"The weights at step {step} are not finite, and there is no checkpoint to go back to. "
        "Lower optimizer.lr or checkpoint.every_steps."
    )


def diverged(step: int, rate: float, folder: Path) -> TrainingDiverged:
    """Return the error of a run with finite weights and a network that gives NaN, which no checkpoint can mend."""
    whole = checkpoints(folder)
    last = f"The last good checkpoint is '{whole[-1]}'" if whole else "There is no earlier checkpoint"
    return TrainingDiverged(
        f"Training diverged: after step {step} the network gives NaN for validation images. "
        f"{last}. Lower optimizer.lr, which is {rate:g}."
    )
