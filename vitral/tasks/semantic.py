"""A class for every pixel: semantic segmentation."""

from collections.abc import Sequence
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from vitral.images.geometry import Geometry
from vitral.models.dense.answers import QueryAnswers
from vitral.models.dense.detail import DetailHeadConfig
from vitral.models.dense.linear import LinearHeadConfig
from vitral.models.dense.mask_decoder import MaskDecoderConfig
from vitral.models.dense.queries import QueryHeadConfig
from vitral.tasks.class_logits import enlarged, find_classes, loss_of_classes, right_pixels
from vitral.tasks.dense import THRESHOLD, DenseTask, RegionTally
from vitral.tasks.overlap import OverlapTally, SemanticEvaluation
from vitral.tasks.query_answers import find_classes_of_queries
from vitral.tasks.regions import VOID, FoundRegions, RegionTargets
from vitral.tasks.task import Figure, Result


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
    ) -> RegionTally:
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


SEMANTIC = Semantic()
