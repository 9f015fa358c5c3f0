"""Discs and rings, drawn as they are asked for: --plugin data.py --data shapes:48 (pixels)."""

import numpy as np

import vitral
from vitral.data.source import DataSet
from vitral.images.augment import Augmentation


class Shapes:
    """A split: image `index` is a function of its number alone."""

    endless, shards = False, ()

    def __init__(self, first: int, count: int, side: int) -> None:
        self.first, self.count, self.side = first, count, side

    def __len__(self) -> int:
        return self.count

    def image(self, index: int, shrink=None) -> np.ndarray:
        rng = np.random.default_rng(self.first + index)
        rows, columns = np.indices((self.side, self.side)) - rng.integers(self.side // 3, self.side * 2 // 3, (2, 1, 1))
        reach = np.hypot(rows, columns) / self.side
        drawn = (reach < 0.25) & ((reach > 0.15) | (self.label(index) == 0))
        return np.repeat(np.uint8(255 * drawn)[:, :, None], 3, axis=2)

    def label(self, index: int) -> int:
        return index % 2

    def labels(self) -> np.ndarray:
        return np.arange(self.count) % 2

    def describe(self, index: int) -> str:
        return f"shapes[{self.first + index}]"


def shapes(text: str) -> DataSet:
    """Return the dataset of "shapes:48"; the text is what follows the colon."""
    side = int(text or 32)
    splits = {"train": Shapes(0, 200, side), "validation": Shapes(1000, 40, side), "test": Shapes(2000, 40, side)}
    return DataSet("shapes", ("disc", "ring"), splits, Augmentation(crop="none"), fingerprint=f"shapes {side}")


vitral.register("data", "shapes", shapes)
