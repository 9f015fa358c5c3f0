"""A class for every pixel: semantic segmentation, by logits of the classes at each place of a view, or by queries."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitral.images.geometry import Geometry
from vitral.images.to_photo import bands_in_photo
from vitral.models.dense.answers import QueryAnswers
from vitral.models.dense.detail import DetailHeadConfig
from vitral.models.dense.linear import LinearHeadConfig
from vitral.models.dense.mask_decoder import MaskDecoderConfig
from vitral.models.dense.queries import QueryHeadConfig
from vitral.tasks.dense import THRESHOLD, DenseTask
from vitral.tasks.overlap import OverlapTally, SemanticEvaluation
from vitral.tasks.query_answers import find_classes_of_queries
from vitral.tasks.regions import VOID, FoundRegions, RegionTargets
from vitral.tasks.resampling import PhotoTally
from vitral.tasks.task import Figure, Result

PlaceLogits = Float[Tensor, "batch classes rows columns"]


class Semantic(DenseTask):
    """Every pixel has a class."""

    name: ClassVar[str] = "semantic"
    labelled: ClassVar[str] = "have a class for every pixel"
    headline: ClassVar[Figure] = SemanticEvaluation.figure
    result: ClassVar[type[Result]] = SemanticEvaluation
    counted: ClassVar[bool] = False
    most_classes: ClassVar[int | None] = VOID  # whose number is none of a class
    heads: ClassVar[tuple[str, ...]] = (
        DetailHeadConfig.kind,
        QueryHeadConfig.kind,
        MaskDecoderConfig.kind,
        LinearHeadConfig.kind,
    )

    def tally_regions(
        self, class_names: Sequence[str], threshold: float = THRESHOLD, *, boundaries: bool = False
    ) -> PhotoTally:
        """Return what adds up the overlap of the classes."""
        return OverlapTally(class_names, boundaries=boundaries)

    def find(self, answers: Any, views: Sequence[Geometry]) -> list[FoundRegions]:  # noqa: ANN401  # of whatever head
        """Return the class of each pixel; see `DenseTask.find`."""
        return (
            find_classes_of_queries(answers, views)
            if isinstance(answers, QueryAnswers)
            else find_classes(answers, views)
        )

    def at_targets(self, answers: Any, targets: RegionTargets) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Return the logits at the size of the targets, once for the loss and the figures."""
        return enlarged(answers, targets)

    def loss(self, logits: Any, targets: RegionTargets, *, label_smoothing: float = 0.0) -> Float[Tensor, ""]:  # type: ignore[override]  # noqa: ANN401
        """Return the mean cross-entropy of the pixels that count."""
        return loss_of_classes(logits, targets, label_smoothing=label_smoothing)

    def figures(self, answers: Any, targets: RegionTargets) -> dict[str, Tensor]:  # type: ignore[override]  # noqa: ANN401
        """Return the share of a training batch's pixels that are right."""
        return {"accuracy": right_pixels(answers, targets)}


def find_classes(logits: PlaceLogits, views: Sequence[Geometry]) -> list[FoundRegions]:
    """Return the class of each pixel of some photos, by the logits of the classes at each place of their views."""
    return [_found(row, view) for row, view in zip(logits.float().cpu(), views, strict=True)]


def _found(logits: Float[Tensor, "classes rows columns"], view: Geometry) -> FoundRegions:
    """Return the likeliest class of each pixel; how sure a class is is the mean of its pixels' probabilities."""
    bands = [band.softmax(dim=0).max(dim=0) for band in bands_in_photo(logits, view)]
    labels = torch.cat([band.indices for band in bands]).numpy()
    sure = torch.cat([band.values for band in bands]).double().numpy()
    return FoundRegions.of_map(labels, sure)


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


SEMANTIC = Semantic()
