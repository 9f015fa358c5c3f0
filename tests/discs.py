"""Drawn photos whose regions are known: discs on noise."""

import cv2
import numpy as np

from vitral.data.source import DataSet, PixelSource
from vitral.images.augment import Augmentation
from vitral.images.decode import Pixels, Shrink
from vitral.tasks.dense import DenseTask
from vitral.tasks.regions import Regions


class Discs(PixelSource):
    """Photos of discs: dark and bright ones alike stand out from grey, in red or blue.

    Args:
        count: The number of photos.
        objects: Whether each disc is a region; otherwise ground, red and blue are classes of every pixel.
        bright: Whether discs are brighter than the ground in every photo, instead of in every second one.
        colours: The classes of discs: 1 or 2.
        first: The seed of the first photo.
    """

    def __init__(self, count: int, *, objects: bool, bright: bool = False, colours: int = 2, first: int = 0) -> None:
        self.count, self.objects, self.bright, self.colours, self.first = count, objects, bright, colours, first

    def __len__(self) -> int:
        return self.count

    def _drawn(self, index: int) -> tuple[Pixels, list[int], list[np.ndarray]]:
        rng = np.random.default_rng(self.first + index)
        ground, height, width = int(rng.integers(60, 180)), 72, 96
        step = 60 if self.bright or index % 2 else -50
        photo, classes, masks = np.full((height, width, 3), ground), [], []
        for row in range(3):
            for column in range(4):
                place = 12 + 24 * column + int(rng.integers(-2, 3)), 12 + 24 * row + int(rng.integers(-2, 3))
                mask = (
                    cv2.circle(np.zeros((height, width), np.uint8), place, int(rng.integers(5, 9)), 1, cv2.FILLED) > 0
                )
                classes.append(int(rng.integers(self.colours)))
                masks.append(mask)
                photo[mask] += np.array([step, step, step])
                photo[mask, 2 * classes[-1]] += 15
        photo = photo + rng.normal(0, 8, photo.shape)
        return photo.clip(0, 255).astype(np.uint8), classes, masks

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return a photo."""
        return self._drawn(index)[0]

    def label(self, index: int) -> Regions:
        """Return its regions."""
        photo, classes, masks = self._drawn(index)
        size = photo.shape[:2]
        if self.objects:
            return Regions.of_masks(size, classes, masks)
        labels = np.zeros(size, dtype=np.int64)
        for number, mask in zip(classes, masks, strict=True):
            labels[mask] = 1 + number
        return Regions.of_map(labels)

    def labels(self) -> np.ndarray:
        """Return no classes: a photo has no single one."""
        return np.full(self.count, -1)

    def describe(self, index: int) -> str:
        """Return a photo's name."""
        return f"disc photo {self.first + index}"


def discs(task: DenseTask, *, photos: int = 8, **how: bool | int) -> DataSet:
    """Return drawn photos to train on, and others to score on, for a task."""
    objects = task.name != "semantic"
    splits = {
        "train": Discs(photos, objects=objects, **how),  # type: ignore[arg-type]
        "validation": Discs(4, objects=objects, first=1000, **how),  # type: ignore[arg-type]
    }
    colours = ("red", "blue")[: int(how.get("colours", 2))]
    names = colours if objects else ("ground", *colours)
    return DataSet("discs", names, splits, Augmentation(), task=task)
