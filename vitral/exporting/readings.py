"""From what a network of regions answers to what an exported file gives, in operations that every runtime has.

Each reading gives what the task's own `find` gives, for photos that the view shows whole; what is enlarged is a blend of two
neighbours along each axis.
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from vitral.models.dense.answers import PointAnswers, QueryAnswers
from vitral.objectives.box_overlap import corners
from vitral.tasks.box_answers import MOST_FOUND, NEIGHBOURHOOD, SAME
from vitral.tasks.query_answers import MOST_OBJECTS
from vitral.tasks.regions import FoundRegions, Regions

CHAIN = 32  # boxes each of which suppresses the next: NMS is exact up to such a chain
Maps = Float[Tensor, "batch channels rows columns"]
Outputs = tuple[Tensor, ...]
# The numbers of two neighbours of each place, and how much of the second it is.
Blend = tuple[Int64[Tensor, " places"], Int64[Tensor, " places"], Float[Tensor, " places"]]
BOX_ROWS = (
    "float32 | batch, regions, 4: left, top, right, bottom, pixels of the photo; the likeliest first",
    "float32 | batch, regions: how sure each is, 0 to 1; 0 of a row that an image of the batch has not",
    "int64 | batch, regions: the number of each region's class",
)
BOXES_USED = (
    'for box, score, number in zip(outputs["boxes"][0], outputs["scores"][0], outputs["classes"][0]):\n'
    "    if score >= threshold:\n        print(names[number], score, box)"
)
MASKS_USED = """\
for row, (score, number) in enumerate(zip(outputs["scores"][0], outputs["classes"][0])):
    if score >= threshold:
        mask = {mask}
        flat = mask.T.reshape(-1)  # COCO's run lengths go down the columns, the first of pixels that are outside
        counts = np.diff(np.flatnonzero(np.diff(flat, prepend=False)), prepend=0, append=flat.size)
        print(names[number], score, {{"size": list(mask.shape), "counts": counts.tolist()}})"""


class AnswerReading(nn.Module):
    """From a network's answers to a batch to what the file gives.

    Attributes:
        names: The names of the outputs, in order.
        told: A row of Markdown on each: type, axes and meaning.
        used: Lines of Python that use the outputs.
    """

    names: tuple[str, ...]
    told: tuple[str, ...]
    used: str

    def found(self, outputs: Mapping[str, np.ndarray], size: tuple[int, int]) -> FoundRegions:
        """Return the regions of the first image of a batch."""
        raise NotImplementedError


class MapReading(AnswerReading):
    """The class of each pixel: of logits of each class at each place, or of queries, by the sum of class times mask."""

    names = ("class_map", "confidence")
    told = (
        "uint8 | batch, height, width: the number of each pixel's class",
        "float32 | batch, height, width: its probability",
    )
    used = 'for number in np.unique(outputs["class_map"]):\n    print(names[number], (outputs["class_map"] == number).mean())'

    def __init__(self, view: tuple[int, int]) -> None:
        super().__init__()
        self.view = view

    def forward(self, answers: Maps | QueryAnswers, rows: int, columns: int) -> Outputs:
        """Return the maps at the photo's size."""
        if isinstance(answers, QueryAnswers):
            assert answers.masks is not None, "the answers of a detector"
            masks = enlarged(answers.masks, *self.view).sigmoid()
            kinds = answers.classes.softmax(dim=-1)[..., :-1]
            whole = enlarged(torch.einsum("bqc,bqhw->bchw", kinds, masks), rows, columns)
            shares = whole / whole.sum(dim=1, keepdim=True).clamp(min=1e-6)
        else:
            shares = enlarged(enlarged(answers, *self.view), rows, columns).softmax(dim=1)
        surest, classes = shares.max(dim=1)
        return classes.to(torch.uint8), surest

    def found(self, outputs: Mapping[str, np.ndarray], size: tuple[int, int]) -> FoundRegions:
        """Return a region for each class; see `AnswerReading`."""
        labels = outputs["class_map"][0].astype(np.int64)
        regions = Regions.of_map(labels)
        scores = [outputs["confidence"][0][labels == number].mean() for number in regions.classes.tolist()]
        return FoundRegions(regions, np.array(scores, dtype=np.float64), labels)


class FoundBoxes(AnswerReading):
    """Boxes, the likeliest first: of queries (DETR's post-processing), or of the middles that places answer."""

    names = ("boxes", "scores", "classes")
    told = BOX_ROWS
    used = BOXES_USED

    def forward(self, answers: QueryAnswers | PointAnswers, rows: int, columns: int) -> Outputs:
        """Return boxes, scores and classes."""
        scores, classes, boxes = _of_points(answers) if isinstance(answers, PointAnswers) else _of_queries(answers)
        limits = torch.stack([torch.scalar_tensor(side) for side in (columns, rows, columns, rows)])
        return boxes.clamp(0, 1) * limits, scores, classes

    def found(self, outputs: Mapping[str, np.ndarray], size: tuple[int, int]) -> FoundRegions:
        """Return the boxes that have an area and a score; see `AnswerReading`."""
        boxes, scores = (outputs[name][0].astype(np.float64) for name in ("boxes", "scores"))
        wide = (boxes[:, 2:] > boxes[:, :2]).all(axis=1) & (scores > 0)
        return FoundRegions(Regions.of_boxes(size, outputs["classes"][0].tolist(), boxes).chosen(wide), scores[wide])


class FoundMasks(AnswerReading):
    """The likeliest pairs of a query and a class with their masks, tight boxes and scores."""

    names = ("masks", "boxes", "scores", "classes")
    told = ("uint8 | batch, regions, height, width: 1 for each pixel of a region", *BOX_ROWS)
    used = MASKS_USED.format(mask='outputs["masks"][0, row] > 0')

    def __init__(self, view: tuple[int, int]) -> None:
        super().__init__()
        self.view = view

    def forward(self, answers: QueryAnswers, rows: int, columns: int) -> Outputs:
        """Return masks, boxes, scores and classes."""
        assert answers.masks is not None, "the answers of a detector"
        shares = answers.classes.softmax(dim=-1)[..., :-1]
        kinds = shares.shape[2]
        scores, pairs = shares.flatten(1).topk(min(MOST_OBJECTS, kinds * shares.shape[1]), dim=1)
        logits = rows_of(answers.masks, pairs // kinds)
        logits = enlarged(enlarged(logits, *self.view), rows, columns)
        inside = (logits > 0).float()
        sure = (logits.sigmoid() * inside).sum(dim=(2, 3)) / (inside.sum(dim=(2, 3)) + 1e-6)
        final, order = (scores * sure).topk(scores.shape[1], dim=1)
        masks = rows_of(inside, order)
        return masks.to(torch.uint8), _tight(masks), final, (pairs % kinds).gather(1, order)

    def found(self, outputs: Mapping[str, np.ndarray], size: tuple[int, int]) -> FoundRegions:
        """Return the regions that have a pixel; see `AnswerReading`."""
        regions = Regions.of_masks(size, outputs["classes"][0].tolist(), list(outputs["masks"][0].astype(bool)))
        seen = regions.areas > 0
        return FoundRegions(regions.chosen(seen), outputs["scores"][0].astype(np.float64)[seen])


def rows_of(maps: Maps, chosen: Int64[Tensor, "batch rows"]) -> Maps:
    """Return some of the maps of each image of a batch."""
    height, width = maps.shape[2:]
    return maps.gather(1, chosen[:, :, None, None].expand(-1, -1, height, width))


def _tight(masks: Maps) -> Float[Tensor, "batch masks 4"]:
    """Return the smallest box around each mask of 0 and 1; of an empty one it has no area."""
    sides = []
    for dimension in (2, 3):  # over rows, which leaves columns, then over columns
        line = masks.amax(dim=dimension)
        places = torch.arange(line.shape[2]).float()
        sides.append((line.shape[2] - (line * (line.shape[2] - places)).amax(dim=2), (line * (places + 1)).amax(dim=2)))
    (left, right), (top, bottom) = sides
    return torch.stack([left, top, right, bottom], dim=-1)


def _of_queries(answers: QueryAnswers) -> tuple[Tensor, Tensor, Tensor]:
    assert answers.boxes is not None, "the answers of a network of masks"
    queries, classes = answers.classes.shape[1:]
    scores, at = answers.classes.sigmoid().flatten(1).topk(queries, dim=1)
    return scores, at % classes, corners(answers.boxes).gather(1, (at // classes)[:, :, None].expand(-1, -1, 4))


def _of_points(answers: PointAnswers) -> tuple[Tensor, Tensor, Tensor]:
    """Return the likeliest middles; those that a likelier box of their class suppresses have a score of 0."""
    probabilities = answers.classes.sigmoid()
    highest = functional.max_pool2d(probabilities, NEIGHBOURHOOD, stride=1, padding=NEIGHBOURHOOD // 2)
    peaks = (probabilities * (probabilities == highest)).flatten(1)
    places = answers.boxes.shape[2] * answers.boxes.shape[3]
    scores, at = peaks.topk(min(MOST_FOUND, peaks.shape[1]), dim=1)
    classes = at // places
    boxes = answers.boxes.flatten(2).transpose(1, 2).gather(1, (at % places)[:, :, None].expand(-1, -1, 4))
    return scores * _kept(boxes, classes), classes, boxes


def _kept(boxes: Float[Tensor, "batch boxes 4"], classes: Int64[Tensor, "batch boxes"]) -> Float[Tensor, "batch boxes"]:
    """Return 1 for each box that greedy NMS keeps, of boxes in order of score.

    A box goes where a likelier one that stays overlaps it; after as many rounds as a chain has boxes nothing changes.
    """
    sides = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0)
    areas = sides[..., 0] * sides[..., 1]
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low).clamp(min=0)
    inside = shared[..., 0] * shared[..., 1]
    same: Bool[Tensor, "batch boxes boxes"] = classes[:, :, None] == classes[:, None]
    overlaps = (inside > SAME * (areas[:, :, None] + areas[:, None] - inside)) & same
    count = boxes.shape[1]
    above = torch.ones(count, count).tril(-1) * overlaps.float()  # a row is suppressed by its columns
    kept = torch.ones(boxes.shape[:2])
    for _ in range(min(CHAIN, count)):
        kept = 1 - ((above @ kept[:, :, None])[..., 0] > 0).float()
    return kept


def enlarged(maps: Maps, rows: int, columns: int) -> Maps:
    """Return maps at another height and width, bilinear between the middles of places, as torch does it."""
    return blended(blended(maps, 2, blend(maps.shape[2], rows)), 3, blend(maps.shape[3], columns))


def blend(length: int, size: int) -> Blend:
    """Return what each of `size` places along an axis of `length` places is made of."""
    step = length / torch.scalar_tensor(size)  # in float32, as torch has it
    places = ((torch.arange(size) + 0.5) * step - 0.5).clamp(min=0)
    low = places.long().clamp(max=length - 1)
    return low, (low + 1).clamp(max=length - 1), places - low


def blended(maps: Maps, dimension: int, parts: Blend) -> Maps:
    """Return maps whose places along an axis are blends of two."""
    low, high, share = parts
    share = share.reshape([-1 if axis == dimension else 1 for axis in range(4)])
    return maps.index_select(dimension, low) * (1 - share) + maps.index_select(dimension, high) * share
