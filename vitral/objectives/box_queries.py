"""The loss of networks that answer with boxes of queries, as RF-DETR and LW-DETR have it (arXiv 2406.03459).

Regions are matched to queries by focal class costs, L1 and generalised IoU; the loss of the classes is a cross-entropy whose
targets are a mean of probability and IoU (IA-BCE, arXiv 2303.14404), beside L1 and generalised IoU of matched pairs. Each
group of queries is matched on its own (group DETR, arXiv 2207.13085), and the answers of every layer have the same loss.
Held against transformers' loss_lw_detr.py and rf-detr's models/matcher.py.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitral.models.dense.answers import QueryAnswers
from vitral.objectives.box_overlap import corners, middles, overlaps
from vitral.objectives.matching import Pairs, cheapest
from vitral.objectives.points import MarkedRegions

ALPHA = 0.25  # of the focal cost, and the exponent of the probability in the target of IA-BCE
GAMMA = 2  # of both
CLASS_COST = 2.0
DISTANCE_WEIGHT = 5.0  # of L1, in cost and loss
OVERLAP_WEIGHT = 2.0  # of generalised IoU, in cost and loss
LEAST_TARGET = 0.01  # of a matched query's class
TINY = 1e-8  # keeps a logarithm finite


def query_loss(answers: QueryAnswers, regions: Sequence[MarkedRegions]) -> Float[Tensor, ""]:
    """Return the sum of the losses of all layers, each over the number of regions and groups in the batch."""
    count = max(sum(len(marked.classes) for marked in regions) * answers.groups, 1)
    layers = [*answers.earlier, answers]
    return torch.stack([_layer_loss(layer, regions, answers.groups) for layer in layers]).sum() / count


def _layer_loss(answers: QueryAnswers, regions: Sequence[MarkedRegions], groups: int) -> Float[Tensor, ""]:
    assert answers.boxes is not None, "the answers of a network of masks"
    total = answers.classes.new_zeros((), dtype=torch.float32)
    for logits, boxes, marked in zip(answers.classes.float(), answers.boxes.float(), regions, strict=True):
        queries, targets = _matched(logits, boxes, marked, groups)
        truths = marked.boxes[targets]
        shared, generalised = overlaps(corners(boxes[queries]), truths)
        distance = functional.l1_loss(boxes[queries], middles(truths), reduction="sum")
        total = total + DISTANCE_WEIGHT * distance + OVERLAP_WEIGHT * (1 - generalised).sum()
        total = total + _class_loss(logits, queries, marked.classes[targets], shared.detach())
    return total


def _matched(
    logits: Float[Tensor, "queries classes"], boxes: Float[Tensor, "queries 4"], marked: MarkedRegions, groups: int
) -> Pairs:
    """Return the pairs of all groups, one after the other."""
    size = len(logits) // groups
    costs = torch.split(matching_costs(logits.detach(), boxes.detach(), marked), size)
    pairs = [cheapest(group) for group in costs]
    queries = torch.cat([first + size * group for group, (first, _) in enumerate(pairs)])
    return queries, torch.cat([second for _, second in pairs])


def matching_costs(
    logits: Float[Tensor, "queries classes"], boxes: Float[Tensor, "queries 4"], marked: MarkedRegions
) -> Float[Tensor, "queries regions"]:
    """Return what each query would cost for each region: 2 of the focal class cost, 5 of L1, -2 of generalised IoU."""
    probability = logits.sigmoid()
    absent = (1 - ALPHA) * probability**GAMMA * -(1 - probability + TINY).log()
    present = ALPHA * (1 - probability) ** GAMMA * -(probability + TINY).log()
    of_class = (present - absent)[:, marked.classes]
    distance = (boxes[:, None] - middles(marked.boxes)).abs().sum(dim=-1)
    _, generalised = overlaps(corners(boxes)[:, None], marked.boxes)
    return CLASS_COST * of_class + DISTANCE_WEIGHT * distance - OVERLAP_WEIGHT * generalised


def _class_loss(logits: Tensor, queries: Tensor, classes: Tensor, shared: Tensor) -> Float[Tensor, ""]:
    """Return IA-BCE, summed: towards probability^0.25 IoU^0.75 for matched classes, focal for all others."""
    probability = logits.sigmoid()
    quality = probability[queries, classes].detach() ** ALPHA * shared ** (1 - ALPHA)
    present = torch.zeros_like(logits).index_put((queries, classes), quality.clamp(min=LEAST_TARGET))
    matched = torch.zeros_like(logits, dtype=torch.bool).index_put(
        (queries, classes), torch.tensor(True).to(queries.device)
    )
    absent = torch.where(matched, 1 - present, probability**GAMMA)
    return -(present * functional.logsigmoid(logits) + absent * functional.logsigmoid(-logits)).sum()
