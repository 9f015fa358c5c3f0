"""The contact sheet in a run folder: what the network saw first."""

from pathlib import Path

from vitral.data.loader import TrainingBatches
from vitral.data.source import DataSet
from vitral.files import write_file
from vitral.images.drawing import contact_sheet
from vitral.tasks.task import classes_of

SHOWN = 32


def write_training_images(folder: Path, data: DataSet, batches: TrainingBatches, *, keep: bool) -> None:
    """Draw images of the first batch, as augmented, with their class names.

    Args:
        folder: the run folder.
        data: where they are from.
        batches: what the network learns from.
        keep: whether a sheet that is there stays.
    """
    path = folder / "images" / "training.png"
    if keep and path.is_file():
        return
    batch = batches.batch(0)
    images = list(batch.images[:SHOWN].permute(0, 2, 3, 1).numpy())
    write_file(path, contact_sheet(images, [_named(data, index) for index in batch.indices[:SHOWN].tolist()]))


def _named(data: DataSet, index: int) -> str:
    return ", ".join(data.class_names[number] for number in classes_of(data.splits["train"].label(index)))
