"""None of the classes: how far an image is from the training images, by the features of the classifier's own network.

Two distances, in a space where the features have the same variance in every direction within the classes: to the nearest class
(Mahalanobis, arXiv 1807.03888) and the angle to the nearest image (arXiv 2204.06507). Where one class is known the first tells
more, of several the second: docs/unknown_classes.csv. A classifier takes that which tells its own classes best when they are
left out.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral.described import Kept
from vitral.errors import VitralError
from vitral.models.model import Features

Distance = Literal["mahalanobis", "cosine"]
Novelties = Float[Tensor, " images"]

LEAST_SPREAD = 1e-6  # of the mean variance, that every direction of the features has besides its own
DISTANCES: tuple[Distance, ...] = get_args(Distance)


@dataclass(frozen=True)
class Novelty(Kept):
    """When an image counts as of none of the classes, and how often that is wrong; kept in the classifier's folder.

    Attributes:
        distance: How far an image lies: to the nearest class, or 1 less the cosine to the nearest training image.
        threshold: How far an image of the classes lies at most.
        refused: The share of new images of the classes that are expected to lie beyond it, 0 to 1.
        accepted: The share of images of a class that lie within it if that class's training images are left out, 0 to 1.
        worst: The largest such share of one class.
        worst_class: That class.
        area: The area under the curve of both shares (AUROC), 0 to 1; 0.5 tells nothing.
        images: The number of images that the threshold was set on.
        learned: Whether the network has learned the classes that were left out, so that it accepts more of others.
    """

    called = "Its limit for images of none of its classes"

    distance: Distance
    threshold: float
    refused: float
    accepted: float
    worst: float
    worst_class: str
    area: float
    images: int
    learned: bool

    def __post_init__(self) -> None:
        shares = (self.refused, self.accepted, self.worst, self.area)
        if not (self.threshold > 0 and all(0 <= share <= 1 for share in shares)):
            raise VitralError("A limit for images of none of the classes is above 0, and shares are up to 1.")

    def sentence(self) -> str:
        """Return what it says, in one sentence."""
        learned = (
            "; the network was trained on these classes, and takes more of others for them" if self.learned else ""
        )
        return (
            f"Photos of none of the classes are recognised as such; so are, by mistake, about {self.refused:.0%} of new photos "
            f"of the classes (set on {self.images:,} photos), and {self.accepted:.0%} of the photos of a class that is left "
            f"out are not ({self.worst:.0%} of '{self.worst_class}'; AUROC {self.area:.2f}){learned}."
        )


@dataclass(frozen=True, eq=False)
class KnownImages:
    """Images of a classifier's data as its network sees them; it has not learned from those that are held out."""

    features: Features
    labels: Int64[Tensor, " images"]
    held_out: Bool[Tensor, " images"]

    def tensors(self) -> dict[str, Tensor]:
        """Return what a file keeps of them, as weights files hold it: floating-point numbers, of features half their digits."""
        return {"features": self.features.half(), "labels": self.labels.float(), "held_out": self.held_out.float()}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], *, width: int, classes: int) -> "KnownImages":
        """Return what `tensors` gave, of a file that is not trusted.

        Raises:
            VitralError: They are others.
        """
        if tensors.keys() != {"features", "labels", "held_out"}:
            raise VitralError("its kept features have other tensors than features, labels and held_out.")
        features, labels, held_out = (tensors[name] for name in ("features", "labels", "held_out"))
        count, shapes = features.shape[:1].numel(), [tuple(tensor.shape) for tensor in (features, labels, held_out)]
        if not count or shapes != [(count, width), (count,), (count,)] or not torch.isfinite(features).all():
            raise VitralError(f"its kept features are of shape {list(features.shape)}, or no finite numbers.")
        if held_out.bool().all() or not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise VitralError("its kept features are of classes that it does not have, or of no training images.")
        return cls(features.float(), labels.long(), held_out.bool())

    def where(self, chosen: Bool[Tensor, " images"]) -> "KnownImages":
        """Return some of them."""
        return KnownImages(self.features[chosen], self.labels[chosen], self.held_out[chosen])

    @cached_property
    def space(self) -> "Space":
        """The images to whose features those of others are compared: those that the network has learned from."""
        return Space(self.where(~self.held_out))


class Space:
    """Features whitened by their covariance within the classes."""

    def __init__(self, known: KnownImages) -> None:
        features, labels = known.features.double(), known.labels
        self.mean = features.mean(dim=0)
        self.whitening = whitening(features, known.labels)
        places = self.place(features)
        self.directions = functional.normalize(places, dim=1)
        self.means = torch.stack([places[labels == label].mean(dim=0) for label in present(labels)])

    def place(self, features: Features) -> Float[Tensor, "images features"]:
        """Return where images lie."""
        return ((features.double() - self.mean) @ self.whitening).float()

    def novelty(self, features: Features, distance: Distance) -> Novelties:
        """Return how far images lie from those that are known."""
        places = self.place(features)
        if distance == "mahalanobis":
            return torch.cdist(places, self.means).amin(dim=1)
        return 1 - (functional.normalize(places, dim=1) @ self.directions.T).amax(dim=1)


def present(labels: Int64[Tensor, " images"]) -> Int64[Tensor, " classes"]:
    """Return the classes that have images, ascending."""
    return labels.bincount().nonzero().squeeze(1)


def whitening(
    features: Float[Tensor, "images features"], labels: Int64[Tensor, " images"]
) -> Float[Tensor, "features features"]:
    """Return the matrix that makes the covariance within the classes the identity.

    The covariance is shrunk towards a multiple of the identity as Ledoit and Wolf do (Journal of Multivariate Analysis 88,
    2004), so that images may be fewer than features.
    """
    classes = int(labels.max()) + 1
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    means = sums / labels.bincount(minlength=classes).clamp_min(1)[:, None]
    within = features - means[labels]
    count, width = within.shape
    covariance = within.T @ within / count
    variance = covariance.trace() / width
    lengths = within.square().sum(dim=1)
    noise = (lengths.square().mean() - covariance.square().sum()) / count
    spread = covariance.square().sum() - width * variance**2
    share = (noise / spread.clamp_min(torch.finfo(spread.dtype).tiny)).clamp(0, 1)
    shrunk = (1 - share) * covariance
    shrunk.diagonal().add_((share + LEAST_SPREAD) * variance if variance > 0 else 1.0)  # of images that are all alike
    root = torch.linalg.cholesky(shrunk)
    return torch.linalg.solve_triangular(root, torch.eye(width, dtype=root.dtype), upper=False).T
