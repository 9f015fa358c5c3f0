"""Segments and objects in an exported file, each pixel of at most one, in operations that every runtime has.

Panoptic segmentation gives maps of classes and of segments by the rule of `tasks.query_answers.segments_by_sureness`. The
queries that count are looked at one after another, so that a photo's size alone decides the memory. Objects by their insides
and rims are what `tasks.components.find_objects` finds.
"""

from collections.abc import Collection, Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from vitral.exporting.growth import Numbers, grown, highest, repeated
from vitral.exporting.readings import (
    BOX_ROWS,
    BOXES_USED,
    MASKS_USED,
    AnswerReading,
    Maps,
    Outputs,
    blend,
    blended,
    enlarged,
    rows_of,
)
from vitral.models.dense.answers import QueryAnswers
from vitral.tasks.query_answers import OWN_SHARE
from vitral.tasks.regions import VOID, FoundRegions, Regions

Rows = Int64[Tensor, "batch queries"]
Places = Int64[Tensor, "batch height width"]
UPMOST = 2.0  # more than any score: what is in no object comes before all objects


class FoundSegments(AnswerReading):
    """The class and the segment of each pixel, and the class and the score of each segment.

    Args:
        view: Height and width of the network's input, pixels.
        things: The numbers of the classes whose objects are told apart.
        sure: The probability of its class above which a query counts, 0 to 1.
    """

    names = ("class_map", "segments", "scores", "classes")
    told = (
        f"uint8 | batch, height, width: the number of each pixel's class; {VOID} where none is sure",
        "int32 | batch, height, width: the number of each pixel's segment, from 1; 0 for none",
        "float32 | batch, regions: how sure segment 1, 2, ... is, 0 to 1; 0 of one that an image of the batch has not",
        "int64 | batch, regions: the number of the class of segment 1, 2, ...",
    )
    used = MASKS_USED.format(mask='outputs["segments"][0] == row + 1')

    def __init__(self, view: tuple[int, int], things: Collection[int], sure: float) -> None:
        super().__init__()
        self.view, self.things, self.sure = view, tuple(things), sure

    def forward(self, answers: QueryAnswers, rows: int, columns: int) -> Outputs:
        """Return the maps at the photo's size, and what the segments are."""
        assert answers.masks is not None, "the answers of a detector"
        scores, labels = answers.classes.softmax(dim=-1).max(dim=-1)
        kept = (labels != answers.classes.shape[2] - 1) & (scores > self.sure)
        queries = scores.shape[1]
        order = (kept.long() * queries - torch.arange(queries)).topk(queries, dim=1).indices  # that count come first
        scores, labels, kept = (each.gather(1, order) for each in (scores, labels, kept))
        owners, inside, whole = self._owners(rows_of(answers.masks, order), scores, kept, rows, columns)
        own, final = (_counted(owners, weight, queries) for weight in (torch.ones_like(owners), inside.long()))
        valid = kept & (whole > 0) & (own > 0) & (final > 0) & (own / whole > OWN_SHARE)
        numbers, first = self._numbers(labels, valid)
        segments = numbers.gather(1, owners.flatten(1)).reshape(owners.shape) * inside
        classes = labels.gather(1, owners.flatten(1)).reshape(owners.shape)
        class_map = torch.where(segments > 0, classes, VOID).to(torch.uint8)
        listed = [_listed(numbers, first, each) for each in (scores, labels)]
        return class_map, segments.to(torch.int32), *listed

    def _owners(
        self,
        masks: Maps,
        scores: Float[Tensor, "batch queries"],
        kept: Bool[Tensor, "batch queries"],
        rows: int,
        columns: int,
    ) -> tuple[Places, Bool[Tensor, "batch height width"], Rows]:
        """Return which query owns each pixel, whether the pixel is in its mask, and the pixels of each query's mask."""
        height, width = self.view
        steps = [(2, blend(masks.shape[2], height)), (3, blend(masks.shape[3], width))]
        steps += [(2, blend(height, rows)), (3, blend(width, columns))]
        most, numbers = kept.sum(dim=1).max().reshape(1), torch.arange(scores.shape[1])

        def more(number: Tensor, *_: Tensor) -> Tensor:
            return (number < most).all()

        def compare(number: Tensor, best: Tensor, owners: Tensor, inside: Tensor, whole: Tensor) -> tuple[Tensor, ...]:
            mask = masks.index_select(1, number)
            for dimension, parts in steps:
                mask = blended(mask, dimension, parts)
            share = mask.sigmoid().squeeze(1)
            score, counts = (each.index_select(1, number).unsqueeze(2) for each in (scores, kept))
            value = torch.where(counts, score * share, -1.0)
            better, within = value > best, share >= 0.5
            pixels = within.flatten(1).sum(dim=1, keepdim=True) * (numbers == number)
            return (
                number + 1,
                torch.where(better, value, best),
                torch.where(better, number, owners),
                (better & within) | (~better & inside),
                whole + pixels,
            )

        nowhere = torch.zeros(masks.shape[0], rows, columns, dtype=torch.int64)
        start = (
            torch.zeros(1, dtype=torch.int64),
            nowhere - 1.0,
            nowhere,
            nowhere > 0,
            torch.zeros_like(kept, dtype=torch.int64),
        )
        _, _, owners, inside, whole = repeated(more, compare, start)
        return owners, inside, whole

    def _numbers(
        self, labels: Rows, valid: Bool[Tensor, "batch queries"]
    ) -> tuple[Rows, Bool[Tensor, "batch queries"]]:
        """Return the segment of each query, from 1, 0 for none, and which is its segment's first; stuff of a class is one."""
        counted = torch.zeros_like(valid)
        for thing in self.things:
            counted = counted | (labels == thing)
        itself = torch.eye(labels.shape[1], dtype=torch.bool)
        same = (labels.unsqueeze(1) == labels.unsqueeze(2)) & ~counted.unsqueeze(2) & valid.unsqueeze(1)
        leader = (same | itself).long().argmax(dim=2)
        first = valid & (leader == torch.arange(labels.shape[1]))
        return first.long().cumsum(dim=1).gather(1, leader) * valid, first

    def found(self, outputs: Mapping[str, np.ndarray], size: tuple[int, int]) -> FoundRegions:
        """Return the segments; see `AnswerReading`."""
        segments, scores = outputs["segments"][0], outputs["scores"][0].astype(np.float64)
        there = np.flatnonzero(scores > 0)
        masks = [segments == number + 1 for number in there]
        regions = Regions.of_masks(size, outputs["classes"][0][there].tolist(), masks)
        return FoundRegions(regions, scores[there], outputs["class_map"][0].astype(np.int64))


def _counted(owners: Places, weight: Places, queries: int) -> Rows:
    """Return the sum of the pixels' weights for each query."""
    nothing = torch.zeros(owners.shape[0], queries, dtype=torch.int64)
    return nothing.scatter_add(1, owners.flatten(1), weight.flatten(1))


def _listed(numbers: Rows, first: Bool[Tensor, "batch queries"], values: Tensor) -> Tensor:
    """Return what the first query of each segment has, in order; 0 where an image of the batch has fewer segments."""
    most = highest(numbers)
    torch._check(most <= values.shape[1])
    by_number = torch.zeros(values.shape[0], values.shape[1] + 1, dtype=values.dtype)
    by_number = by_number.scatter_add(1, numbers * first, values * first)
    return by_number.narrow(1, 1, most)


class FoundParts(AnswerReading):
    """Objects that do not overlap, the surest first: boxes, scores, classes, and, if outlined, which of them a pixel is of."""

    def __init__(self, view: tuple[int, int], *, outlined: bool) -> None:
        super().__init__()
        self.view, self.outlined = view, outlined
        self.names = (*(("objects",) if outlined else ()), "boxes", "scores", "classes")
        row = "int32 | batch, height, width: the number of each pixel's object: 1 for the first of the rows below; 0 for none"
        self.told = (*((row,) if outlined else ()), *BOX_ROWS)
        self.used = MASKS_USED.format(mask='outputs["objects"][0] == row + 1') if outlined else BOXES_USED

    def forward(self, logits: Maps, rows: int, columns: int) -> Outputs:
        """Return which object each pixel is of, if that is given, then boxes, scores and classes."""
        shares = enlarged(enlarged(logits, *self.view), rows, columns).softmax(dim=1)
        surest, classes = shares.argmax(dim=1), shares.shape[1] - 2
        numbers = grown(surest < classes, surest <= classes)
        most = highest(numbers)
        places = numbers.flatten(1)
        sums = _summed(shares[:, :-1].flatten(2).double(), places, most)
        areas = _summed(torch.ones_like(places).unsqueeze(1), places, most).squeeze(1)
        inside, rims = sums.narrow(1, 0, classes), sums.select(1, classes)
        scores = (inside.amax(dim=1) + rims) / areas.clamp(min=1)
        scores = torch.where(torch.arange(most + 1) > 0, scores, UPMOST)
        scores, order = scores.topk(most + 1, dim=1)
        boxes = _boxes(numbers, most).gather(1, order.unsqueeze(2).expand(-1, -1, 4))
        labels = inside.argmax(dim=1).gather(1, order)
        listed = [each.narrow(1, 1, most) for each in (boxes, scores.float(), labels)]
        if not self.outlined:
            return tuple(listed)
        ranks = torch.zeros_like(order).scatter(1, order, torch.arange(most + 1).expand(order.shape))
        return ranks.gather(1, places).reshape(numbers.shape).to(torch.int32), *listed

    def found(self, outputs: Mapping[str, np.ndarray], size: tuple[int, int]) -> FoundRegions:
        """Return the objects; see `AnswerReading`."""
        scores = outputs["scores"][0].astype(np.float64)
        there, classes = np.flatnonzero(scores > 0), outputs["classes"][0]
        if self.outlined:
            masks = [outputs["objects"][0] == number + 1 for number in there]
            regions = Regions.of_masks(size, classes[there].tolist(), masks)
        else:
            regions = Regions.of_boxes(size, classes[there].tolist(), outputs["boxes"][0][there])
        return FoundRegions(regions, scores[there])


def _summed(values: Tensor, places: Int64[Tensor, "batch pixels"], most: int) -> Tensor:
    """Return the sums of pixels' values (batch, kinds, pixels) over each object, of which 0 is none."""
    nothing = torch.zeros(values.shape[0], values.shape[1], most + 1, dtype=values.dtype)
    return nothing.scatter_add(2, places.unsqueeze(1).expand(values.shape), values)


def _boxes(numbers: Numbers, most: int) -> Float[Tensor, "batch objects 4"]:
    """Return left, top, right and bottom of each object, of which 0 is none."""
    batch, height, width = numbers.shape
    at = [torch.arange(width).expand(numbers.shape), torch.arange(height).unsqueeze(1).expand(numbers.shape)]
    places, sides = numbers.flatten(1), []
    for start, reduce in ((max(height, width), "amin"), (0, "amax")):
        for line in at:
            first = torch.full((batch, most + 1), start, dtype=torch.int64)
            sides.append(first.scatter_reduce(1, places, line.flatten(1) + (reduce == "amax"), reduce))
    return torch.stack(sides, dim=2).float()
