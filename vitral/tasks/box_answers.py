"""Boxes from what networks answer, in each image's own pixels, and the loss of such answers, by the kind of network."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral.images.geometry import Geometry
from vitral.models.dense.answers import PointAnswers, QueryAnswers
from vitral.objectives.box_overlap import corners
from vitral.objectives.box_queries import query_loss
from vitral.objectives.points import MarkedRegions, point_loss
from vitral.tasks.regions import FoundRegions, Regions, RegionTargets

MOST_FOUND = 300  # regions in an image
SAME = 0.6  # IoU from which two answers of one class at different places are one region
NEIGHBOURHOOD = 3  # places: a middle is where none of its neighbours is likelier
Chosen = tuple[Float[Tensor, " found"], Int64[Tensor, " found"], Float[Tensor, "found 4"]]  # scores, classes, boxes


@torch.no_grad()
def find_boxes(answers: PointAnswers | QueryAnswers, views: Sequence[Geometry]) -> list[FoundRegions]:
    """Return the boxes that a network finds in each image by its view, in the image's own pixels, the likeliest first."""
    chosen = _of_points(answers) if isinstance(answers, PointAnswers) else _of_queries(answers)
    return [_found(*image, view) for image, view in zip(chosen, views, strict=True)]


def _found(scores: Tensor, classes: Tensor, boxes: Tensor, view: Geometry) -> FoundRegions:
    height, width = view.size
    pixels = view.back().boxes(boxes.double().cpu().numpy() * np.array([width, height, width, height]))
    wide = np.flatnonzero((pixels[:, 2:] > pixels[:, :2]).all(axis=1))
    regions = Regions.of_boxes(view.original, classes.tolist(), pixels).chosen(wide)
    return FoundRegions(regions, scores.double().cpu().numpy()[wide])


def _of_points(answers: PointAnswers) -> Iterator[Chosen]:
    """Give for each image the likeliest middles; of boxes of one class that are nearly the same, the likeliest."""
    from torchvision.ops import batched_nms  # a second of start-up for all who find no boxes

    probabilities = answers.classes.float().sigmoid()
    highest = functional.max_pool2d(probabilities, NEIGHBOURHOOD, stride=1, padding=NEIGHBOURHOOD // 2)
    peaks = (probabilities * (probabilities == highest)).flatten(1)
    places = answers.classes[0, 0].numel()
    scores, at = peaks.topk(min(MOST_FOUND, peaks.shape[1]), dim=1)
    boxes = answers.boxes.float().flatten(2).transpose(1, 2)
    for image, (image_scores, image_at) in enumerate(zip(scores, at, strict=True)):
        classes, found = image_at // places, boxes[image][image_at % places]
        kept = batched_nms(found, image_scores, classes, SAME)
        kept = kept[image_scores[kept] > 0]
        yield image_scores[kept], classes[kept], found[kept]


def _of_queries(answers: QueryAnswers) -> Iterator[Chosen]:
    """Give for each image the likeliest pairs of a query and a class, as many as there are queries (DETR; no NMS)."""
    assert answers.boxes is not None, "the answers of a network of masks"
    queries, classes = answers.classes.shape[1:]
    scores, at = answers.classes.float().sigmoid().flatten(1).topk(queries, dim=1)
    found = corners(answers.boxes.float()).gather(1, (at // classes)[:, :, None].expand(-1, -1, 4))
    yield from zip(scores, at % classes, found, strict=True)


def box_loss(answers: PointAnswers | QueryAnswers, targets: RegionTargets) -> Float[Tensor, ""]:
    """Return the loss of a network's answers to views, by the kind of network."""
    regions = [_marked(regions, targets.device) for regions in targets]
    return point_loss(answers, regions) if isinstance(answers, PointAnswers) else query_loss(answers, regions)


def _marked(regions: Regions, device: torch.device) -> MarkedRegions:
    height, width = regions.size
    boxes = _tensor(regions.boxes / np.array([width, height, width, height]), device).float()
    crowd = _tensor(regions.crowd, device)
    return MarkedRegions(_tensor(regions.classes, device)[~crowd], boxes[~crowd], boxes[crowd])


def _tensor(values: Any, device: torch.device) -> Tensor:  # noqa: ANN401  # an array of any type
    return torch.from_numpy(values).to(device)
