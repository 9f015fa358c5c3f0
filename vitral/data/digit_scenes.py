"""Scenes of scikit-learn's handwritten digits on a rough ground, with exact masks and boxes, to learn regions of: built in.

A scene is a pure function of its index: two to five digits, enlarged three to five times, on grey noise; those in front hide
those behind. The digits of a split are that split's of "digits", so that nothing that is scored was learned from.
"""

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from jaxtyping import Int64

from vitral.data.generated import open_digits
from vitral.data.source import DataSet, PixelSource, Source
from vitral.images.augment import Augmentation
from vitral.images.decode import Pixels, Shrink
from vitral.images.run_lengths import Bitmap
from vitral.seeds import generator
from vitral.tasks.boxes import BOXES
from vitral.tasks.instances import INSTANCES
from vitral.tasks.panoptic import PANOPTIC, Panoptic
from vitral.tasks.regions import Regions
from vitral.tasks.semantic import SEMANTIC
from vitral.tasks.task import Task

SIDE = 96  # pixels of a scene
DIGITS = (2, 5)  # in a scene
ENLARGED = (3.0, 5.0)  # times a digit's 8 pixels
INK = 96  # of 255, from which a pixel belongs to a digit
GROUND = "background"
COUNTS = {"train": 400, "validation": 60, "test": 100}  # scenes
AUGMENTATION = Augmentation(crop="none", shift=0.1, rotate=8.0, scale=0.1)
# The names of the built-in data sets, each with its task.
SCENES: Mapping[str, Task] = {
    "digit-scenes": INSTANCES,
    "digit-scenes-semantic": SEMANTIC,
    "digit-scenes-boxes": BOXES,
    "digit-scenes-panoptic": PANOPTIC,
}


class DigitScenes(PixelSource):
    """A split of the scenes."""

    def __init__(self, split: str, digits: Source, task: Task) -> None:
        self._split, self._digits, self._task = split, digits, task

    def __len__(self) -> int:
        return COUNTS[self._split]

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return a scene as three equal channels."""
        return self._scene(index)[0]

    def label(self, index: int) -> Regions:
        """Return what is in a scene, as the task has it: of each pixel its class, or each digit by itself."""
        _, numbers, masks = self._scene(index)
        grounded = self._task in (SEMANTIC, PANOPTIC)
        if grounded:
            numbers, masks = [0, *(1 + number for number in numbers)], [~np.any(masks, axis=0), *masks]
        if self._task is SEMANTIC:
            whole = Regions.of_masks((SIDE, SIDE), numbers, masks)
            return Regions.of_map(whole.class_map())
        regions = Regions.of_masks((SIDE, SIDE), numbers, masks)
        return Regions.of_boxes(regions.size, numbers, regions.boxes) if self._task is BOXES else regions

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return -1 for each scene, which is of no single class."""
        return np.full(len(self), -1)

    def describe(self, index: int) -> str:
        """Return the scene's split and index, such as "digit-scenes[test 17]"."""
        return f"digit-scenes[{self._split} {index}]"

    def _scene(self, index: int) -> tuple[Pixels, list[int], list[Bitmap]]:
        """Return the pixels of a scene, and the class and the visible mask of each digit that can be seen."""
        rng = generator(0, f"digit scene of {self._split}", index)
        grey = rng.normal(60, 12, (SIDE, SIDE)).astype(np.float32)
        numbers: list[int] = []
        masks: list[Bitmap] = []
        for _ in range(int(rng.integers(DIGITS[0], DIGITS[1] + 1))):
            chosen = int(rng.integers(len(self._digits)))
            side = round(8 * rng.uniform(*ENLARGED))
            ink = cv2.resize(self._digits.image(chosen)[:, :, 0], (side, side), interpolation=cv2.INTER_CUBIC)
            top, left = (int(rng.integers(SIDE - side + 1)) for _ in range(2))
            mask = np.zeros((SIDE, SIDE), dtype=bool)
            mask[top : top + side, left : left + side] = ink >= INK
            grey[mask] = rng.uniform(140, 240) + rng.normal(0, 8, int(mask.sum()))
            masks = [earlier & ~mask for earlier in masks]
            numbers.append(int(self._digits.labels()[chosen]))
            masks.append(mask)
        seen = [(number, mask) for number, mask in zip(numbers, masks, strict=True) if mask.any()]
        pixels = np.repeat(grey.clip(0, 255).astype(np.uint8)[:, :, None], 3, axis=2)
        return pixels, [number for number, _ in seen], [mask for _, mask in seen]


def open_digit_scenes(name: str) -> DataSet:
    """Return the scenes: 400 to train on, 60 to validate and 100 to test; `name` is one of `SCENES`."""
    digits, task = open_digits(), SCENES[name]
    names: Sequence[str] = digits.class_names
    if task in (SEMANTIC, PANOPTIC):
        names = (GROUND, *names)
    return DataSet(
        name=name,
        class_names=tuple(names),
        splits={split: DigitScenes(split, digits.splits[split], task) for split in COUNTS},
        augmentation=AUGMENTATION,
        fingerprint=f"{digits.fingerprint} {name}",
        task=Panoptic(things=tuple(range(1, len(names)))) if task is PANOPTIC else task,
    )
