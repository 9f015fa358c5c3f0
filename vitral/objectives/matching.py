"""Which query is to learn which region: the cheapest pairing, as in DETR and Mask2Former (arXiv 2112.01527, section 3.2.2).

The cost of a pair is held against Mask2Former's matcher as transformers has it (models/mask2former, models/eomt).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral.models.dense.answers import QueryAnswers

AT_ONCE = 64  # masks that become floats together: hundreds of whole ones would fill the memory
Points = Float[Tensor, "#masks points 2"]  # x and y in shares of the width and the height
Masks = Float[Tensor, "masks rows columns"] | Bool[Tensor, "masks rows columns"]
Pairs = tuple[
    Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]
]  # the numbers of queries, and of the regions that they learn


@dataclass(frozen=True)
class MaskCosts:
    """What the parts of a pair's cost weigh, in matching and in the loss; EoMT's."""

    classes: float = 2.0
    masks: float = 5.0
    dice: float = 5.0


def sample(masks: Masks, points: Points) -> Float[Tensor, "masks points"]:
    """Return the values of masks at points, each its own or all the same: bilinear between pixels, 0 outside."""
    places = (2 * points - 1).expand(len(masks), -1, -1)[:, :, None]
    parts = zip(torch.split(masks, AT_ONCE), torch.split(places, AT_ONCE), strict=True)
    read = [functional.grid_sample(part[:, None].to(points.dtype), at, align_corners=False) for part, at in parts]
    return torch.cat(read)[:, 0, :, 0]


def match(
    answers: QueryAnswers, classes: Sequence[Tensor], masks: Sequence[Tensor], *, points: int, costs: MaskCosts
) -> list[Pairs]:
    """Return the cheapest pairs of each image; where there are more regions than queries, the dearest regions have none.

    Masks are compared at so many random points, the same for all pairs of an image.
    """
    assert answers.masks is not None, "a detector's answers have no masks"
    pairs = zip(answers.classes, answers.masks, classes, masks, strict=True)
    return [_match(*image, points=points, costs=costs) for image in pairs]


@torch.no_grad()
def _match(logits: Tensor, found: Tensor, classes: Tensor, masks: Tensor, *, points: int, costs: MaskCosts) -> Pairs:
    places = torch.rand(1, points, 2, device=found.device)
    if not len(classes):
        return classes, classes
    answered, wanted = sample(found.float(), places), sample(masks, places)
    cost = costs.masks * pairwise_cross_entropy(answered, wanted) + costs.dice * pairwise_dice(answered, wanted)
    cost = cost - costs.classes * logits.float().softmax(dim=-1)[:, classes]
    return cheapest(cost)


def cheapest(cost: Float[Tensor, "queries regions"]) -> Pairs:
    """Return the pairs of the least total cost, each query and region in at most one; costs that are no numbers come last."""
    from scipy.optimize import linear_sum_assignment  # half a second of start-up for all who match nothing

    largest = torch.finfo(cost.dtype).max
    finite = torch.nan_to_num(cost, nan=largest, posinf=largest, neginf=largest)
    queries, regions = linear_sum_assignment(finite.cpu().numpy())
    return torch.from_numpy(queries).to(cost.device), torch.from_numpy(regions).to(cost.device)


def pairwise_cross_entropy(
    logits: Float[Tensor, "queries points"], labels: Float[Tensor, "regions points"]
) -> Float[Tensor, "queries regions"]:
    """Return the mean binary cross-entropy of each query's points for each region's.

    As softplus(-x) is softplus(x) - x, one of the two logarithms, and one of two products, is enough for it.
    """
    return (functional.softplus(logits).sum(1)[:, None] - logits @ labels.T) / logits.shape[1]


def pairwise_dice(
    logits: Float[Tensor, "queries points"], labels: Float[Tensor, "regions points"]
) -> Float[Tensor, "queries regions"]:
    """Return the Dice loss of each query's points for each region's, with 1 added above and below."""
    shares = logits.sigmoid()
    return 1 - (2 * shares @ labels.T + 1) / (shares.sum(1)[:, None] + labels.sum(1)[None] + 1)
