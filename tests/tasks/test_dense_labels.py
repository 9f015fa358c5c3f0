"""A label that is a mask reaches the batch as the view shows its image: the joint that a dense task will stand on."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
import pytest
import torch
from jaxtyping import Int64

from tests.cases import every_case
from vitral.data.loader import TrainingBatches, load_training
from vitral.data.source import DataSet
from vitral.errors import DataError
from vitral.images.augment import Augmentation
from vitral.images.decode import Pixels, Shrink
from vitral.images.geometry import Geometry, Mask
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL, SingleLabel
from vitral.tasks.task import Label, Targets

OUTSIDE = 255
HOW = Augmentation(crop="resized", min_area=0.3, rotate=20.0, shift=0.1, policy="timm-randaugment", magnitude_std=0.5)


@dataclass(frozen=True)
class Masks(SingleLabel):
    """One class a pixel."""

    name: ClassVar[str] = "masks"

    def takes(self, label: Label) -> bool:
        return isinstance(label, np.ndarray)

    def follow(self, label: Label, geometry: Geometry) -> Label:
        assert isinstance(label, np.ndarray)
        return geometry.mask(label, fill=OUTSIDE)

    def encode(self, labels: list[Label], num_classes: int) -> Targets:  # type: ignore[override]
        return torch.from_numpy(np.stack([np.asarray(label) for label in labels])).long()


class Blobs:
    """Images of a white blob each, and masks that mark it."""

    endless = False
    shards: tuple[int, ...] = ()

    def __len__(self) -> int:
        return 12

    def _mask(self, index: int) -> Mask:
        mask = np.zeros((90, 110), dtype=np.uint8)
        mask[20 : 50 + index, 15:70] = 1
        mask[40:80, 15 : 30 + index] = 1
        return mask

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        return np.repeat(self._mask(index)[:, :, None] * np.uint8(255), 3, axis=2)

    def encoded(self, index: int) -> bytes | Path | None:
        return None

    def label(self, index: int) -> Label:
        return self._mask(index)

    def labels(self) -> Int64[np.ndarray, " examples"]:
        return np.full(len(self), -1)

    def describe(self, index: int) -> str:
        return f"blob[{index}]"


@every_case("workers", [0, 1])
def test_masks_come_in_the_batch_as_their_views_show_them(workers: int) -> None:
    batches = TrainingBatches(
        Blobs(), batch_size=12, image_size=(40, 48), augmentation=HOW, seed=1, task=Masks(), num_classes=2
    )
    for batch in load_training(batches, first_step=0, last_step=3, workers=workers):
        assert batch.labels.shape == (12, 40, 48)
        assert set(batch.labels.flatten().tolist()) <= {0, 1, OUTSIDE}
        for pixels, mask in zip(batch.images.numpy(), batch.labels.numpy(), strict=True):
            inside = cv2.erode((mask == 1).astype(np.uint8), np.ones((7, 7), np.uint8), borderValue=0) > 0
            assert inside.sum() < 20 or pixels[:, inside].std(axis=1).max() < 12


def test_a_label_of_another_form_is_refused_in_one_line() -> None:
    blobs = DataSet("blobs", ("sky", "blob"), {"train": Blobs()}, Augmentation(), task=Masks())
    assert blobs.for_task(Masks()) == blobs
    for task in (SINGLE_LABEL, MULTI_LABEL):
        with pytest.raises(DataError, match=f"blobs have one class each, which is not what the task '{task.name}'"):
            blobs.for_task(task)
        with pytest.raises(DataError, match="what the network learns"):
            task.encode([Blobs().label(0)], 2)
        with pytest.raises(DataError, match="what the network learns"):
            task.encode([None], 2)
