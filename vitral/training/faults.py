"""What is said of a batch that gives no finite numbers, and of a run that cannot continue."""

from collections.abc import Sequence
from pathlib import Path

from vitral.data.loader import TrainingBatches
from vitral.errors import TrainingDiverged
from vitral.events import Message
from vitral.training.records.checkpoints import checkpoints

NAMED = 4  # images that a message names


def images_of(batches: TrainingBatches, step: int) -> list[str]:
    """Return the names of the first images of a batch."""
    return [batches.source.describe(index) for index in batches.indices(step)[:NAMED].tolist()]


def skipped(loss: float, step: int, count: int, most: int, images: Sequence[str]) -> Message:
    """Return the warning of a batch that was left out."""
    return Message(
        f"The loss is {loss} at step {step} or its gradient no finite number; the batch ({', '.join(images)}, …) was "
        f"skipped, {count} of at most {most}.",
        warning=True,
    )


def too_many_skipped(loss: float, step: int, most: int, images: Sequence[str], folder: Path) -> TrainingDiverged:
    """Return why a run ends that has skipped as many batches as it may; `folder` holds its checkpoints."""
    whole = checkpoints(folder)
    last = f"the last good checkpoint is '{whole[-1]}'" if whole else "there is no checkpoint yet"
    return TrainingDiverged(
        f"The loss is {loss} at step {step} or its gradient no finite number, after {most} skipped batches; nothing "
        f"was changed by this step, and {last}. Lower optimizer.lr. The batch began with {', '.join(images)}."
    )


def damaged(step: int) -> TrainingDiverged:
    """Return why a run ends whose weights are no numbers and which has no checkpoint."""
    return TrainingDiverged(
        f"The weights are no finite numbers at step {step}, and there is no checkpoint to go back to; "
        "lower optimizer.lr, or let checkpoint.every_steps be smaller."
    )


def diverged(step: int, rate: float, folder: Path) -> TrainingDiverged:
    """Return why a run ends whose network gives no numbers any more: its weights are finite, and nothing fixes them."""
    whole = checkpoints(folder)
    last = f"the last good checkpoint is '{whole[-1]}'" if whole else "there is no checkpoint from before"
    return TrainingDiverged(
        f"The training diverged: after step {step} the network gives no number (NaN) for validation images; "
        f"{last}. Lower optimizer.lr, which is {rate:g}."
    )
