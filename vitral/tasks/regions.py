"""`Regions`: what is marked in an image, whatever the format that says it: classes, boxes, masks, crowds.

Coordinates are continuous pixels of the image the right way up: the pixel in column 0 spans x from 0 to 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from vitral.images.geometry import Boxes, Geometry
from vitral.images.moved_masks import draw_masks, move_masks, paint_masks
from vitral.images.run_lengths import Bitmap, RunLengths, decode_mask, encode_mask, mask_area, runs_box

VOID = 255  # in a map of classes: the pixel counts for nothing
Bitmaps = Bool[np.ndarray, "regions height width"]


@dataclass(frozen=True, eq=False)
class Regions:
    """What is marked in an image.

    Attributes:
        size: The image's height and width, pixels.
        classes: The number of each region's class.
        boxes: Left, top, right, bottom of each region, pixels; of a region with a mask the mask's tight box.
        masks: The mask of each region; None where only boxes are known.
        crowd: Which regions are crowds of objects, which are never learned, and match any number of answers.
        areas: The pixels of each region as its annotation has them, by which it is small, medium or large.
        ignored: The pixels that count for nothing; None for none.
    """

    size: tuple[int, int]
    classes: Int64[np.ndarray, " regions"]
    boxes: Boxes
    masks: tuple[RunLengths, ...] | None
    crowd: Bool[np.ndarray, " regions"]
    areas: Float64[np.ndarray, " regions"]
    ignored: RunLengths | None = None

    def __len__(self) -> int:
        return len(self.classes)

    @classmethod
    def of_boxes(
        cls,
        size: tuple[int, int],
        classes: Sequence[int],
        boxes: Boxes | Sequence[Sequence[float]],
        *,
        crowd: Sequence[bool] | None = None,
        areas: Sequence[float] | None = None,
    ) -> Self:
        """Return regions of which only boxes are known; areas are the boxes' where none are given."""
        given = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
        sides = (given[:, 2:] - given[:, :2]).clip(0)
        return cls(
            size,
            np.asarray(classes, dtype=np.int64),
            given,
            None,
            np.zeros(len(given), dtype=bool) if crowd is None else np.asarray(crowd, dtype=bool),
            sides.prod(axis=1) if areas is None else np.asarray(areas, dtype=np.float64),
        )

    @classmethod
    def of_masks(
        cls,
        size: tuple[int, int],
        classes: Sequence[int],
        masks: Sequence[Bitmap],
        *,
        crowd: Sequence[bool] | None = None,
        areas: Sequence[float] | None = None,
        ignored: Bitmap | None = None,
    ) -> Self:
        """Return regions by their masks; areas are the masks' where none are given."""
        runs = [encode_mask(mask) for mask in masks]
        left_out = None if ignored is None or not ignored.any() else encode_mask(ignored)
        return cls.of_runs(size, classes, runs, crowd=crowd, areas=areas, ignored=left_out)

    @classmethod
    def of_runs(
        cls,
        size: tuple[int, int],
        classes: Sequence[int],
        masks: Sequence[RunLengths],
        *,
        crowd: Sequence[bool] | None = None,
        areas: Sequence[float] | None = None,
        ignored: RunLengths | None = None,
    ) -> Self:
        """Return regions by the run lengths of their masks; areas are the masks' where none are given."""
        return cls(
            size,
            np.asarray(classes, dtype=np.int64),
            np.array([runs_box(runs, size[0]) for runs in masks], dtype=np.float64).reshape(-1, 4),
            tuple(masks),
            np.zeros(len(masks), dtype=bool) if crowd is None else np.asarray(crowd, dtype=bool),
            np.array([mask_area(runs) for runs in masks] if areas is None else areas, dtype=np.float64),
            ignored,
        )

    @classmethod
    def of_map(cls, labels: Int64[np.ndarray, "height width"]) -> Self:
        """Return a map of classes as a region for each class that it has; `VOID` is ignored."""
        numbers = [int(number) for number in np.unique(labels) if number != VOID]
        height, width = labels.shape
        masks = [labels == number for number in numbers]
        return cls.of_masks((height, width), numbers, masks, ignored=labels == VOID)

    def bitmaps(self) -> Bitmaps:
        """Return the masks, one a region; regions must have some."""
        assert self.masks is not None, "only boxes are known"
        return draw_masks(self.masks, self.size)

    def ignored_bitmap(self) -> Bitmap:
        """Return which pixels count for nothing."""
        return np.zeros(self.size, dtype=bool) if self.ignored is None else decode_mask(self.ignored, self.size)

    def class_map(self) -> Int64[np.ndarray, "height width"]:
        """Return the class of each pixel; of overlapping regions the last; `VOID` where there is none or it is ignored."""
        assert self.masks is not None, "only boxes are known"
        return self.painted(self.masks, self.classes, ground=VOID, ignored=VOID)

    def painted(
        self, masks: Sequence[RunLengths], values: Int64[np.ndarray, " regions"], *, ground: int, ignored: int
    ) -> Int64[np.ndarray, "height width"]:
        """Return a map of the image with a value for each region's mask; of regions that overlap the last has the pixels."""
        above = () if self.ignored is None else (self.ignored,)
        return paint_masks((*masks, *above), np.append(values, ignored), self.size, ground=ground)

    def chosen(self, keep: Bool[np.ndarray, " regions"] | Sequence[int]) -> "Regions":
        """Return some of the regions, in order."""
        rows = np.flatnonzero(keep) if np.asarray(keep).dtype == bool else np.asarray(keep, dtype=np.int64)
        masks = None if self.masks is None else tuple(self.masks[row] for row in rows.tolist())
        return Regions(
            self.size,
            self.classes[rows],
            self.boxes[rows],
            masks,
            self.crowd[rows],
            self.areas[rows],
            self.ignored,
        )

    def follow(self, geometry: Geometry) -> "Regions":
        """Return the regions as a view of the image shows them; those that it does not show are left out."""
        number = 0 if self.masks is None else len(self)  # of the ignored pixels among the masks
        moved = move_masks((*(self.masks or ()), *([] if self.ignored is None else [self.ignored])), geometry)
        ignored = moved.masks[-1] if len(moved.numbers) and moved.numbers[-1] == number else None
        if self.masks is None:
            boxes = geometry.boxes(self.boxes)
            sides = (boxes[:, 2:] - boxes[:, :2]).clip(0)
            whole = self.boxes[:, 2:] - self.boxes[:, :2]
            scale = sides.prod(axis=1) / np.maximum(whole.prod(axis=1), 1e-9)
            seen = (sides > 0).all(axis=1)
            view = Regions(geometry.size, self.classes, boxes, None, self.crowd, self.areas * scale, ignored)
            return view.chosen(seen)
        count = len(moved.numbers) - (ignored is not None)
        rows = moved.numbers[:count]
        classes, crowd, areas = self.classes[rows], self.crowd[rows], moved.areas[:count].astype(np.float64)
        return Regions(geometry.size, classes, moved.boxes[:count], moved.masks[:count], crowd, areas, ignored)


@dataclass(frozen=True, eq=False)
class RegionTargets:
    """The regions of each image of a batch: targets whose number differs from image to image.

    It stands wherever a tensor of targets does: it has a length, can be cut, and moves to a device.
    """

    images: tuple[Regions, ...]
    device: torch.device = torch.device("cpu")

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[Regions]:
        return iter(self.images)

    def __getitem__(self, part: slice) -> "RegionTargets":
        return RegionTargets(self.images[part], self.device)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "RegionTargets":
        """Return the targets for a device, where their tensors will be made."""
        return RegionTargets(self.images, torch.device(device))

    def pin_memory(self) -> "RegionTargets":
        """Return the targets as they are: their tensors are made on the device."""
        return self

    @cached_property
    def class_maps(self) -> torch.Tensor:
        """Return the class of each pixel, (batch, height, width), int64; `VOID` where it counts for nothing."""
        return torch.from_numpy(np.stack([regions.class_map() for regions in self.images])).to(self.device)

    def classes(self) -> list[torch.Tensor]:
        """Return the classes of each image's regions, crowds left out, int64."""
        return [torch.from_numpy(regions.classes[~regions.crowd]).to(self.device) for regions in self.images]

    def bitmaps(self) -> list[torch.Tensor]:
        """Return the masks of each image's regions, crowds left out, each (regions, height, width), bool."""
        kept = [regions.chosen(~regions.crowd) for regions in self.images]
        return [torch.from_numpy(regions.bitmaps()).to(self.device) for regions in kept]

    def boxes(self) -> list[torch.Tensor]:
        """Return the boxes of each image's regions, crowds left out: left, top, right, bottom, pixels of the view, float32."""
        return [torch.from_numpy(regions.boxes[~regions.crowd]).float().to(self.device) for regions in self.images]


@dataclass(frozen=True, eq=False)
class FoundRegions:
    """What a network finds in an image, in the image's own pixels.

    Attributes:
        regions: The regions: of a map of classes those classes, of instances and boxes the likeliest first.
        scores: How sure each is, 0 to 1.
        class_map: The class of each pixel; None where none is told.
    """

    regions: Regions
    scores: Float64[np.ndarray, " regions"]
    class_map: Int64[np.ndarray, "height width"] | None = None

    @classmethod
    def of_map(cls, labels: Int64[np.ndarray, "height width"], sure: Float64[np.ndarray, "height width"]) -> Self:
        """Return a map of classes: each is as sure as its pixels are, in the mean."""
        regions = Regions.of_map(labels)
        totals = np.bincount(labels.reshape(-1), weights=sure.reshape(-1))
        return cls(regions, totals[regions.classes] / regions.areas, labels)
