"""Every pixel has a class, and objects are told apart: panoptic segmentation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from jaxtyping import Float
from torch import Tensor

from vitral.errors import ModelError
from vitral.images.geometry import Geometry
from vitral.models.dense.answers import QueryAnswers
from vitral.models.dense.mask_decoder import MaskDecoderConfig
from vitral.models.dense.queries import QueryHeadConfig
from vitral.tasks.dense import THRESHOLD, DenseTask
from vitral.tasks.panoptic_quality import PanopticEvaluation, PanopticTally
from vitral.tasks.query_answers import SURE, segments_by_sureness
from vitral.tasks.regions import VOID, FoundRegions, RegionTargets
from vitral.tasks.task import Figure, Result


@dataclass(frozen=True)
class Panoptic(DenseTask):
    """Every pixel has a class, and the objects of some classes are told apart.

    Attributes:
        things: The numbers of the classes whose objects are told apart; the others are matter, such as sky.
        sure: The probability of its class above which a query has pixels, 0 to 1.
    """

    name: ClassVar[str] = "panoptic"
    labelled: ClassVar[str] = "have a class for every pixel and their objects outlined"
    headline: ClassVar[Figure] = PanopticEvaluation.figure
    result: ClassVar[type[Result]] = PanopticEvaluation
    heads: ClassVar[tuple[str, ...]] = (QueryHeadConfig.kind, MaskDecoderConfig.kind)
    closed_form: ClassVar[bool] = False
    most_classes: ClassVar[int | None] = VOID  # whose number is none of a class
    things: tuple[int, ...] = ()
    sure: float = field(default=SURE, compare=False)  # of a network, not of what its photos are

    def tally_regions(
        self, class_names: Sequence[str], threshold: float = THRESHOLD, *, boundaries: bool = False
    ) -> PanopticTally:
        """Return what matches segments."""
        return PanopticTally(class_names, self.things)

    def find(self, answers: Any, views: Sequence[Geometry]) -> list[FoundRegions]:  # noqa: ANN401  # of whatever head
        """Return the segments; see `DenseTask.find`."""
        return [found for (found,) in self.find_by_sureness(answers, views, (self.sure,))]

    def find_by_sureness(
        self, answers: QueryAnswers, views: Sequence[Geometry], sures: Sequence[float]
    ) -> list[list[FoundRegions]]:
        """Return of each photo what `find` gives for each of several values of `sure`; see `segments_by_sureness`."""
        stuff = set(range(answers.classes.shape[-1] - 1)) - set(self.things)
        return segments_by_sureness(answers, views, stuff=stuff, sures=sures)

    def loss(self, logits: Any, targets: RegionTargets, *, label_smoothing: float = 0.0) -> Float[Tensor, ""]:  # type: ignore[override]  # noqa: ANN401
        """Refuse, by a ModelError: queries have a method of their own."""
        raise ModelError("Panoptic segmentation is learned by the method 'mask-queries'; set method.name to it.")

    def described(self) -> dict[str, Any]:
        """Return the things, and how sure a query must be, for a classifier's description."""
        return {"things": list(self.things), "sure": self.sure}

    def as_described(self, description: Mapping[str, Any]) -> Self:
        """Return the task with what a description says of it.

        Raises:
            ModelError: the things are no list of numbers, or how sure a query must be is no share.
        """
        things = description.get("things", [])
        if not isinstance(things, list) or not all(type(number) is int for number in things):
            raise ModelError("its things are no list of numbers.")
        sure = description.get("sure", SURE)
        if not isinstance(sure, int | float) or not 0 <= sure <= 1:
            raise ModelError("how sure it must be of a region is no number from 0 to 1.")
        return replace(self, things=tuple(things), sure=float(sure))


PANOPTIC = Panoptic()
