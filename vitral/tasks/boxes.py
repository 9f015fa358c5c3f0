"""Boxes around objects: detection."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from vitral.images.geometry import Geometry
from vitral.models.dense.points import PointsHeadConfig
from vitral.tasks.average_precision import ObjectsTally
from vitral.tasks.box_answers import box_loss, find_boxes
from vitral.tasks.components import find_objects
from vitral.tasks.dense import THRESHOLD, DenseTask
from vitral.tasks.region_evaluation import RegionEvaluation
from vitral.tasks.regions import FoundRegions, RegionTargets
from vitral.tasks.resampling import PhotoTally
from vitral.tasks.task import Figure, Result


class Boxes(DenseTask):
    """Each object is told apart, with a box around it."""

    name: ClassVar[str] = "boxes"
    labelled: ClassVar[str] = "have boxes around their objects"
    pipeline: ClassVar[str] = "object-detection"
    headline: ClassVar[Figure] = RegionEvaluation.figure
    result: ClassVar[type[Result]] = RegionEvaluation
    heads: ClassVar[tuple[str, ...]] = (PointsHeadConfig.kind,)

    def tally_regions(
        self, class_names: Sequence[str], threshold: float = THRESHOLD, *, boundaries: bool = False
    ) -> PhotoTally:
        """Return what matches boxes."""
        return ObjectsTally(class_names, masks=False, threshold=threshold)

    def find(self, answers: Any, views: Sequence[Geometry]) -> list[FoundRegions]:  # noqa: ANN401  # of whatever head
        """Return the boxes, the likeliest first; see `DenseTask.find`."""
        if not isinstance(answers, Tensor):
            return find_boxes(answers, views)
        # Insides and rims, as in closed form: of each object the box.
        return [replace(found, regions=replace(found.regions, masks=None)) for found in find_objects(answers, views)]

    def loss(self, logits: Any, targets: RegionTargets, *, label_smoothing: float = 0.0) -> Float[Tensor, ""]:  # type: ignore[override]  # noqa: ANN401
        """Return the loss of middles, or that of queries, by the kind of the network."""
        return box_loss(logits, targets)


BOXES = Boxes()
