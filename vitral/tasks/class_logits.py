"""What logits of classes at each place of a view mean: the class of each of the photo's own pixels, and the loss."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitral.images.geometry import Geometry
from vitral.images.to_photo import bands_in_photo
from vitral.tasks.regions import VOID, FoundRegions, Regions, RegionTargets

PlaceLogits = Float[Tensor, "batch classes rows columns"]


def find_classes(logits: PlaceLogits, views: Sequence[Geometry]) -> list[FoundRegions]:
    """Return the class of each pixel of some photos.

    Args:
        logits: Of each class at each place of a view.
        views: The steps from each photo to its view.
    """
    return [_found(row, view) for row, view in zip(logits.float().cpu(), views, strict=True)]


def _found(logits: Float[Tensor, "classes rows columns"], view: Geometry) -> FoundRegions:
    """Return the likeliest class of each pixel; how sure a class is is the mean of its pixels' probabilities."""
    bands = [band.softmax(dim=0).max(dim=0) for band in bands_in_photo(logits, view)]
    labels = torch.cat([band.indices for band in bands]).numpy()
    sure = torch.cat([band.values for band in bands]).double().numpy()
    regions = Regions.of_map(labels)
    totals = np.bincount(labels.reshape(-1), weights=sure.reshape(-1))
    return FoundRegions(regions, totals[regions.classes] / regions.areas, labels)


def loss_of_classes(logits: PlaceLogits, targets: RegionTargets, *, label_smoothing: float = 0.0) -> Float[Tensor, ""]:
    """Return the mean cross-entropy over all pixels that count, the logits enlarged to the targets' size; 0 for none."""
    labels = targets.class_maps
    losses = functional.cross_entropy(
        enlarged(logits, targets), labels, ignore_index=VOID, label_smoothing=label_smoothing, reduction="sum"
    )
    return losses / (labels != VOID).sum().clamp_min(1)


def right_pixels(logits: PlaceLogits, targets: RegionTargets) -> Float[Tensor, ""]:
    """Return the share of the pixels that count whose class is right."""
    labels = targets.class_maps
    counted = labels != VOID
    likeliest = enlarged(logits.detach(), targets).max(dim=1).indices  # several times as fast as argmax
    return ((likeliest == labels) & counted).sum() / counted.sum().clamp_min(1)


def enlarged(logits: PlaceLogits, targets: RegionTargets) -> PlaceLogits:
    """Return logits at the size of the targets, float32; those that have it as they are."""
    size = targets.class_maps.shape[-2:]
    if logits.shape[-2:] == size:
        return logits.float()
    return functional.interpolate(logits.float(), size=size, mode="bilinear", align_corners=False)
