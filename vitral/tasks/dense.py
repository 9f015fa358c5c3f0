"""What all tasks about regions of an image share: labels that are `Regions`, and a tally of what networks find."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from vitral.errors import DataError, ModelError
from vitral.images.geometry import Geometry, Resize
from vitral.tasks.regions import FoundRegions, Regions, RegionTargets
from vitral.tasks.resampling import PhotoTally
from vitral.tasks.task import Label, Probabilities, Result, Task

THRESHOLD = 0.5  # how sure an answer must be to count as one, where nothing else is known
FITTED = "threshold"  # the figure of a validation that says how sure instead, where answers are ranked


class DenseTask(Task):
    """What is marked in an image is learned: where it is, and of which class.

    Attributes:
        counted: Whether regions are things that can be counted; otherwise an image has one for each class.
        heads: The kinds of heads that learn it, the best first where nothing is requested; see
            `vitral.models.dense.dense_model.HEADS`.
    """

    counted: ClassVar[bool] = True
    heads: ClassVar[tuple[str, ...]]

    noun: ClassVar[str] = "classes"
    pipeline: ClassVar[str] = "image-segmentation"
    folder_version: ClassVar[int] = 3
    fewest_classes: ClassVar[int] = 1
    dense: ClassVar[bool] = True
    closed_form: ClassVar[bool] = True

    def label(self, classes: Sequence[int]) -> Label:
        """Refuse a label that says only which classes an image has, by a DataError."""
        raise DataError(f"Images that {self.labelled} need annotations, not names of classes.")

    def takes(self, label: Label) -> bool:
        """Tell whether a label says where in the image something is."""
        return isinstance(label, Regions)

    def follow(self, label: Label, geometry: Geometry) -> Label:
        """Return the regions as a view of their image shows them."""
        assert isinstance(label, Regions), "the label of another task"
        if label.size != geometry.original:  # an image of very many pixels was decoded smaller
            geometry = Geometry(label.size, (Resize(*geometry.original), *geometry.steps))
        return label.follow(geometry)

    def encode(self, labels: Sequence[Label], num_classes: int) -> Any:  # noqa: ANN401  # RegionTargets stand for a tensor
        """Return labels as the targets of the loss.

        Raises:
            DataError: a label is not of the task's form.
        """
        known = tuple(label for label in labels if isinstance(label, Regions))
        if len(known) < len(labels):
            raise DataError(f"An image has no annotation, where all {self.labelled}; leave it out.")
        return RegionTargets(known)

    @abstractmethod
    def tally_regions(
        self, class_names: Sequence[str], threshold: float = THRESHOLD, *, boundaries: bool = False
    ) -> PhotoTally:
        """Return what adds up the scores of a split.

        Args:
            class_names: The names of the classes, in order.
            threshold: How sure an answer must be to count as found.
            boundaries: Whether the boundaries of masks are compared, too, which takes longer; the tally's `result` needs it.
        """

    @abstractmethod
    def find(self, answers: Any, views: Sequence[Geometry]) -> list[FoundRegions]:  # noqa: ANN401  # of whatever head
        """Return what a network's answers to views of a batch of images mean, in each image's own pixels."""

    def figures(self, answers: Any, targets: Any) -> dict[str, Tensor]:  # noqa: ANN401  # of whatever head
        """Return nothing: no image is right or wrong as a whole."""
        return {}

    def right(self, logits: Any, targets: Any) -> Bool[Tensor, " batch"]:  # noqa: ANN401  # of whatever head
        """Refuse to call an image right or wrong as a whole."""
        raise NotImplementedError(f"{self.name} has no right answer for an image as a whole")

    def validate(self, probabilities: Probabilities, targets: Any) -> dict[str, float]:  # noqa: ANN401  # RegionTargets
        """Refuse rows of probabilities: `tally_regions` validates."""
        raise NotImplementedError(f"{self.name} is validated by its tally")

    def score(self, probabilities: Float[Tensor, "examples classes"], targets: Any, **_: Any) -> Result:  # noqa: ANN401
        """Refuse rows of probabilities: `tally_regions` scores."""
        raise NotImplementedError(f"{self.name} is scored by its tally")


def dense_task(task: Task) -> DenseTask:
    """Return a task that is about regions, or raise ModelError if it is not."""
    if not isinstance(task, DenseTask):
        raise ModelError(f"Images of this classifier {task.labelled}, so it finds no regions in them.")
    return task
