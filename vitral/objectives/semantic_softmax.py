"""Semantic softmax: a softmax of its own on each level of a tree of labels (ImageNet-21K-P, arXiv 2104.10972).

After src_files/semantic/ of its code. A class has one logit, which takes part in the softmax of its own level alone. The
target of a level is the class itself, or the label above it there; levels below the class have none. The released code does not
say the weight of the distillation beside the labels; its function is called nowhere there.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.models.layers import BatchPart, init_linear, seeded
from vitral.models.model import Images, Logits, Model

SURE_PART = 20  # the number of parts of a level's labels, the surest of which says how sure a teacher is


class SemanticHead(nn.Module):
    """A network, and a layer for the labels of the tree that are no classes of its own.

    Args:
        network: The network that learns.
        others: Labels besides its classes.
        seed: The seed of the layer.
    """

    def __init__(self, network: Model, others: int, *, seed: int) -> None:
        super().__init__()
        self.network = network
        self.others = nn.Linear(network.num_features, others) if others else None
        self.to(next(network.parameters()).device)
        if self.others is not None:
            with torch.no_grad():
                init_linear(self.others, seeded(network, seed))

    def forward(self, images: Images, part: BatchPart | None = None) -> Float[Tensor, "batch labels"]:
        """Return the logits of the classes, then of the other labels."""
        features = self.network.features(images, part)
        logits = self.network.head(features)
        return logits if self.others is None else torch.cat([logits, self.others(features)], dim=1)


class Level(nn.Module):
    """One level of a tree.

    Args:
        labels: The column of each of its labels among all logits.
        told: The place in the level of each class; None below the class.
        weight: The weight of its loss.
    """

    def __init__(self, labels: Sequence[int], places: Sequence[int | None], weight: float) -> None:
        super().__init__()
        self.weight = weight
        matrix = torch.zeros(len(places), len(labels))
        for row, place in enumerate(places):
            if place is not None:
                matrix[row, place] = 1.0
        self.labels: Tensor
        self.matrix: Tensor
        self.register_buffer("labels", torch.tensor(labels), persistent=False)
        self.register_buffer("matrix", matrix, persistent=False)

    def logits(self, logits: Float[Tensor, "batch labels"]) -> Float[Tensor, "batch own"]:
        """Return the logits of the level's own labels."""
        return logits[:, self.labels].float()

    def loss(
        self, logits: Float[Tensor, "batch labels"], shares: Float[Tensor, "batch classes"], smoothing: float
    ) -> Float[Tensor, ""]:
        """Return the mean cross-entropy over the whole batch, images to which the level says nothing counted as 0."""
        targets = shares @ self.matrix
        target = (1 - smoothing) * targets + smoothing / targets.shape[1] * targets.sum(dim=1, keepdim=True)
        return -(target * self.logits(logits).log_softmax(dim=1)).sum(dim=1).mean()

    def right(
        self, logits: Float[Tensor, "batch labels"], shares: Float[Tensor, "batch classes"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return for how many images the level's most probable label is right, and to how many it says something."""
        targets = shares @ self.matrix
        found = self.logits(logits).argmax(dim=1)
        valid = targets.sum(dim=1) > 0
        right = targets.gather(1, found[:, None])[:, 0] >= targets.amax(dim=1)
        return (right & valid).sum().float(), valid.sum().float()


def level_weights(counts: Sequence[int], heaviest: float) -> list[float]:
    """Return each level's weight: the labels of all levels over those of its own and deeper ones, at the most `heaviest`."""
    return [min(heaviest, sum(counts) / sum(counts[level:])) for level in range(len(counts))]


def class_shares(targets: Tensor, classes: int) -> Float[Tensor, "batch classes"]:
    """Return targets as shares of the classes, where they are class numbers."""
    return nn.functional.one_hot(targets, classes).float() if targets.ndim == 1 else targets.float()


def semantic_distillation(level: Level, student: Logits, teacher: Logits) -> Float[Tensor, ""]:
    """Return a level's squared difference of the probabilities, weighted by how sure the teacher is, the mean over the batch.

    How sure it is says the joint probability of its most probable twentieth of the level's labels, their number rounded up
    (estimate_teacher_confidence of semantics.py).
    """
    ours, theirs = level.logits(student).softmax(dim=1), level.logits(teacher).softmax(dim=1)
    count = math.ceil(theirs.shape[1] / SURE_PART)
    sure = theirs.topk(count, dim=1).values.sum(dim=1)
    return (sure * (ours - theirs).square().sum(dim=1)).mean()
