"""Images that are black, without end and without labels: for what learns from no image at all."""

import numpy as np
from jaxtyping import Int64

from vitral.data.source import DataSet
from vitral.images.augment import Augmentation
from vitral.images.decode import Pixels, Shrink
from vitral.tasks.unlabelled import CLASS, UNLABELLED

BLANK = "blank"
SIDE = 8  # pixels
EPOCH = 100_000  # images that count as an epoch, in which a recipe may give its length
PLAIN = Augmentation(crop="none", flip=False)


class BlankImages:
    """A split of black images."""

    endless = True
    shards: tuple[int, ...] = ()

    def __len__(self) -> int:
        return EPOCH

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return a black image."""
        return np.zeros((SIDE, SIDE, 3), dtype=np.uint8)

    def encoded(self, index: int) -> None:
        """Return nothing: the images are pixels from the start."""
        return

    def label(self, index: int) -> None:
        """Return that there is none."""
        return

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return -1 for each."""
        return np.full(EPOCH, -1)

    def describe(self, index: int) -> str:
        """Return its name."""
        return f"{BLANK}[{index}]"


def open_blank() -> DataSet:
    """Return the dataset, of one endless split."""
    return DataSet(
        name=BLANK,
        class_names=(CLASS,),
        splits={"train": BlankImages()},
        augmentation=PLAIN,
        fingerprint=BLANK,
        task=UNLABELLED,
        endless_epoch=EPOCH,
    )
