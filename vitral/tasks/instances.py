"""Objects with their outlines: instance segmentation."""

from collections.abc import Sequence
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from vitral.images.geometry import Geometry
from vitral.models.dense.answers import QueryAnswers
from vitral.models.dense.mask_decoder import MaskDecoderConfig
from vitral.models.dense.queries import QueryHeadConfig
from vitral.models.dense.rims import RimHeadConfig
from vitral.tasks.average_precision import ObjectsTally
from vitral.tasks.components import find_objects, loss_of_rims
from vitral.tasks.dense import THRESHOLD, DenseTask
from vitral.tasks.query_answers import find_objects_of_queries
from vitral.tasks.region_evaluation import RegionEvaluation
from vitral.tasks.regions import FoundRegions, RegionTargets
from vitral.tasks.resampling import PhotoTally
from vitral.tasks.task import Figure, Result


class Instances(DenseTask):
    """Each object is told apart, with its outline."""

    name: ClassVar[str] = "instances"
    labelled: ClassVar[str] = "have their objects outlined"
    headline: ClassVar[Figure] = RegionEvaluation.figure
    result: ClassVar[type[Result]] = RegionEvaluation
    heads: ClassVar[tuple[str, ...]] = (RimHeadConfig.kind, QueryHeadConfig.kind, MaskDecoderConfig.kind)

    def tally_regions(
        self, class_names: Sequence[str], threshold: float = THRESHOLD, *, boundaries: bool = False
    ) -> PhotoTally:
        """Return what matches masks."""
        return ObjectsTally(class_names, masks=True, threshold=threshold, boundaries=boundaries)

    def find(self, answers: Any, views: Sequence[Geometry]) -> list[FoundRegions]:  # noqa: ANN401  # of whatever head
        """Return the objects, the likeliest first; see `DenseTask.find`."""
        return (
            find_objects_of_queries(answers, views)
            if isinstance(answers, QueryAnswers)
            else find_objects(answers, views)
        )

    def loss(self, logits: Any, targets: RegionTargets, *, label_smoothing: float = 0.0) -> Float[Tensor, ""]:  # type: ignore[override]  # noqa: ANN401
        """Return the mean cross-entropy of insides and rims."""
        return loss_of_rims(logits, targets)


INSTANCES = Instances()
