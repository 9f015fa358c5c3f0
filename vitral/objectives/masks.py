"""The loss of queries with masks, as Mask2Former and EoMT have it: class, cross-entropy and Dice at uncertain points.

Held against `EomtLoss` of transformers (models/eomt/modeling_eomt.py) and mask_classification_loss.py of tue-mps/eomt. Points
are drawn by PointRend (arXiv 1912.08193, section 3.1): three quarters are the least certain of three times as many.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitral.models.dense.answers import QueryAnswers
from vitral.models.layers import full_precision
from vitral.objectives.matching import MaskCosts, Pairs, Points, match, sample

OVERSAMPLED = 3.0
UNCERTAIN = 0.75


@dataclass(frozen=True)
class MaskLoss:
    """The loss of queries' answers.

    Attributes:
        costs: The weights of its parts, in matching, too.
        points: At how many points masks are compared; 12,544 (112 x 112) in Mask2Former.
        no_object: The weight of queries that have nothing to find.
    """

    costs: MaskCosts = MaskCosts()
    points: int = 12_544
    no_object: float = 0.1

    def __call__(
        self, answers: QueryAnswers, classes: Sequence[Tensor], masks: Sequence[Tensor], *, num_masks: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss summed over all layers' answers, and the last ones' parts, not weighted, by name.

        Masks are of one size in all images; their losses are divided by `num_masks`, at least 1.
        """
        total = answers.classes.new_zeros((), dtype=torch.float32)
        with full_precision(total.device):
            for each in (*answers.earlier, answers):
                parts = self.parts(each, classes, masks, num_masks)
                weights = {"class": self.costs.classes, "mask": self.costs.masks, "dice": self.costs.dice}
                total = total + sum(weights[name] * part for name, part in parts.items())
        return total, parts

    def parts(
        self, answers: QueryAnswers, classes: Sequence[Tensor], masks: Sequence[Tensor], num_masks: Tensor
    ) -> dict[str, Tensor]:
        """Return the losses of one layer's answers by name, not weighted."""
        assert answers.masks is not None, "a detector's answers have no masks"
        pairs = match(answers, classes, masks, points=self.points, costs=self.costs)
        found = torch.cat([image[queries] for image, (queries, _) in zip(answers.masks, pairs, strict=True)]).float()
        wanted = torch.cat([image[regions] for image, (_, regions) in zip(masks, pairs, strict=True)])
        logits, labels = self._at_points(found, wanted)
        crossed = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return {
            "class": self.class_loss(answers.classes.float(), classes, pairs),
            "mask": crossed.mean(dim=1).sum() / num_masks,
            "dice": dice_loss(logits, labels).sum() / num_masks,
        }

    def class_loss(
        self, logits: Float[Tensor, "batch queries classes"], classes: Sequence[Tensor], pairs: Sequence[Pairs]
    ) -> Tensor:
        """Return the cross-entropy of the queries' classes; whatever learns no region learns the last class."""
        targets = torch.full(logits.shape[:2], logits.shape[2] - 1, dtype=torch.int64, device=logits.device)
        for row, of_image, (queries, regions) in zip(targets, classes, pairs, strict=True):
            row[queries] = of_image[regions]
        weights = torch.ones(logits.shape[2], device=logits.device)
        weights[-1] = self.no_object
        return functional.cross_entropy(logits.transpose(1, 2), targets, weights)

    def _at_points(self, found: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        if not len(found):
            return found.flatten(1), wanted.flatten(1).to(found.dtype)
        with torch.no_grad():
            points = uncertain_points(found, self.points)
            labels = sample(wanted, points)
        return sample(found, points), labels


def uncertain_points(logits: Float[Tensor, "masks rows columns"], count: int) -> Points:
    """Return points at which masks are compared: the least certain of many, and some at random."""
    masks, many, chosen = len(logits), int(count * OVERSAMPLED), int(count * UNCERTAIN)
    points = torch.rand(masks, many, 2, device=logits.device)
    certainty = sample(logits, points).abs()
    least = torch.topk(-certainty, chosen, dim=1, sorted=False).indices
    points = points.gather(1, least[:, :, None].expand(-1, -1, 2))
    return torch.cat([points, torch.rand(masks, count - chosen, 2, device=logits.device)], dim=1)


def dice_loss(logits: Float[Tensor, "masks points"], labels: Float[Tensor, "masks points"]) -> Float[Tensor, " masks"]:
    """Return the Dice loss of each mask, with 1 added above and below."""
    shares = logits.sigmoid()
    return 1 - (2 * (shares * labels).sum(1) + 1) / (shares.sum(1) + labels.sum(1) + 1)
