"""`Task`: what a label is, in one object; `Result`: what a score of it says. A new task is a file with one of each."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin, get_type_hints

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from vitral.errors import DataError, ModelError
from vitral.images.geometry import Geometry
from vitral.tasks.chance import Standing
from vitral.tasks.regions import Regions, RegionTargets
from vitral.tasks.shown import AnswerCounts, Drawing, Table, Tile, photos_of, right_of

Array = Shaped[np.ndarray, "*axes"]
Label = int | tuple[int, ...] | Regions | Array | None  # a class; several or none; regions; a mask; or unknown
# A tensor, or what stands for one where images differ in how much is marked in them.
if TYPE_CHECKING:
    Targets = Tensor
else:
    Targets = Shaped[Tensor, "batch *label"] | RegionTargets
Logits = Float[Tensor, "batch outputs"]
Probabilities = Float[Tensor, "batch classes"]
Describe = Callable[[int], str]  # a name for people of an image, from its position
MAX_MISTAKES = 50  # of a result
OWN_LOSS = "task"  # the recipe's name of a task's own loss


@dataclass(frozen=True)
class Figure:
    """The figure by which networks of a task are compared.

    Attributes:
        name: The figure's name in logs and among a classifier's scores: "top1".
        title: The figure's name for people: "accuracy".
        more_is_better: Whether the larger of two values is the better.
        is_share: Whether the value lies between 0 and 1 and is written as a percentage.
    """

    name: str
    title: str
    more_is_better: bool = True
    is_share: bool = True

    @property
    def counts(self) -> bool:
        """Whether the value is the share of the images that are right."""
        return self.title == "accuracy"

    def text(self, value: float) -> str:
        """Return a value as it is written for people."""
        return f"{value:.1%}" if self.is_share else f"{value:.4g}"

    def reached(self, value: float, images: int, split: str) -> str:
        """Return a value and of what it is: "24 of 27 validation photos right", or the figure by its name."""
        if self.counts:
            return right_of(value, images, split)
        return f"{self.title} {self.text(value)} on {photos_of(split, images)}"

    def improves(self, value: float, than: float | None) -> bool:
        """Tell whether a value is better than another, or than none."""
        return than is None or (value > than if self.more_is_better else value < than)


@dataclass(frozen=True)
class Mistake:
    """An image that a classifier gets wrong.

    Attributes:
        index: The image's position in the split.
        description: The image's file, or its name in a built-in set.
        truth: The name of the image's class.
        predicted: The name of the most probable class.
        probability: The probability of that class, 0 to 1.
    """

    index: int
    description: str
    truth: str
    predicted: str
    probability: float


class Result(ABC):
    """The scores of a classifier on one split; a frozen dataclass of plain values, one class a task.

    Attributes:
        num_examples: The number of images, each counted once.
        class_names: The classifier's classes, in order.
        mistakes: The most confident mistakes first; empty where a task knows none.
    """

    num_examples: int
    class_names: tuple[str, ...]
    mistakes: tuple[Mistake, ...] = ()

    def trained_on(self, class_images: Sequence[int]) -> "Result":
        """Return the scores with the number of training images of each class, where they say something by it."""
        return self

    def headline(self) -> float:
        """Return the value of the task's headline figure: the first of `scores`."""
        return next(iter(self.scores().values()))

    @abstractmethod
    def scores(self) -> dict[str, float]:
        """Return the figures that a classifier keeps of itself, by name."""

    @abstractmethod
    def sentence(self, split: str) -> str:
        """Return the result in one sentence."""

    def rare_sentence(self, split: str) -> str:
        """Return which classes are rare, and how well they and the others do, in one sentence; empty where none is."""
        return ""

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the tables."""
        return (self.sentence("scored"),)

    def tables(self) -> tuple[Table, ...]:
        """Return the tables that terminal and report show, such as one of every class."""
        return ()

    def announcement(self, split: str) -> str:
        """Return what a training command says of its result, one line."""
        return self.sentence(split)

    def answer_counts(self) -> AnswerCounts | None:
        """Return how many images came out how; None for a task whose images are not right or wrong as a whole."""
        return None

    def tiles(self, split: str) -> tuple[Tile, ...]:
        """Return the figures that stand largest on the report's page, the headline first."""
        return tuple(Tile(f"{value:.3g}", (name,)) for name, value in self.scores().items())

    def lead(self, split: str) -> str:
        """Return what the report says above the scores, in one sentence."""
        return f"{photos_of(split, self.num_examples)}, each counted once."

    def drawings(self) -> tuple[Drawing, ...]:
        """Return what the report draws of the result."""
        return ()

    @property
    def standing(self) -> Standing | None:
        """How the share of right answers compares with chance; None for a task that has no such share."""
        return None

    @property
    def at_chance(self) -> bool:
        """Whether the scores do not show that the classifier beats always naming the commonest class.

        False where they are of too few images to tell, and for a task without such a level.
        """
        return self.standing is not None and self.standing.at_chance

    def to_json(self) -> dict[str, Any]:
        """Return the scores as JSON values."""
        assert dataclasses.is_dataclass(self)
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the scores that `to_json` gave, also after a way through a file."""
        return _typed(cls, values)


def _typed(kind: Any, value: Any) -> Any:  # noqa: ANN401  # whatever a field is
    """Return a JSON value as a field's type has it: lists as tuples, objects as dataclasses."""
    if value is not None and get_origin(kind) is UnionType:  # a tuple or a dataclass, or None
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        kinds = get_type_hints(kind)
        # A field that an earlier version did not write has a default.
        known = [
            each.name for each in dataclasses.fields(kind) if each.name in value or each.default is dataclasses.MISSING
        ]
        return kind(**{name: _typed(kinds[name], value[name]) for name in known})
    if get_origin(kind) is not tuple:
        return value
    first, *others = get_args(kind)
    return tuple(map(_typed, repeat(first) if others == [...] else (first, *others), value))


class Task(ABC):
    """What a label is, and everything that follows from it.

    Attributes:
        name: The task's name in classifier folders and recipes: "single-label".
        labelled: A verb phrase about its images: they "have one class each".
        noun: The word for its classes, in the plural.
        pipeline: What the Hugging Face Hub calls the task.
        meaning: The relation of an image's probabilities to one another.
        headline: The figure by which networks are compared.
        result: The class of its scores.
        objectives: The names of the losses that it can learn by, the default first; "task" for `loss`.
        exclusive: Whether each image has exactly one of the classes, so that features can be scored by their neighbours, and
            a sure answer that differs from the label makes the label doubtful.
        closed_form: Whether a first classifier of frozen features is fitted in closed form before the network is trained.
        mixable: Whether images may be mixed in pairs (MixUp, CutMix), their labels becoming shares of the classes.
        calibrated: Whether probabilities are the softmax of the logits and a temperature can be fitted to them.
        comparable: Whether each answer is right or wrong and scored as an `Evaluation`, so that two classifiers, or parts of
            the data, can be compared image by image.
        folder_version: The first version of the classifier folder that holds such a classifier.
        fewest_classes: The fewest classes that a network can learn to tell apart.
        most_classes: The most; None for any number.
        scored: Whether there are labels, by which a network can be scored.
        dense: Whether a label says where in the image something is; see `DenseTask`.
    """

    name: ClassVar[str]
    labelled: ClassVar[str]
    noun: ClassVar[str] = "classes"
    pipeline: ClassVar[str] = "image-classification"
    meaning: ClassVar[str] = "they add up to 1"
    headline: ClassVar[Figure]
    result: ClassVar[type[Result]]
    objectives: ClassVar[tuple[str, ...]] = (OWN_LOSS,)
    exclusive: ClassVar[bool] = False
    closed_form: ClassVar[bool] = False
    mixable: ClassVar[bool] = False
    calibrated: ClassVar[bool] = False
    comparable: ClassVar[bool] = False
    folder_version: ClassVar[int] = 2
    fewest_classes: ClassVar[int] = 2
    most_classes: ClassVar[int | None] = None
    scored: ClassVar[bool] = True
    dense: ClassVar[bool] = False

    @abstractmethod
    def label(self, classes: Sequence[int]) -> Label:
        """Return the label of an image that the data say to be of these classes."""

    @abstractmethod
    def takes(self, label: Label) -> bool:
        """Tell whether a label is of the task's form."""

    @abstractmethod
    def encode(self, labels: Sequence[Label], num_classes: int) -> Targets:
        """Return labels as the targets of the loss.

        Raises:
            DataError: a label is not of the task's form.
        """

    def probabilities(self, logits: Logits) -> Probabilities:
        """Return what a network's answer means: a probability for each class, float32; by default the softmax."""
        return logits.float().softmax(dim=-1)

    def at_targets(self, answers: Any, targets: Targets) -> Any:  # noqa: ANN401  # of whatever head
        """Return a network's answers as loss and figures compare them with the targets; by default as they are."""
        return answers

    @abstractmethod
    def loss(self, logits: Logits, targets: Targets, *, label_smoothing: float = 0.0) -> Float[Tensor, ""]:
        """Return the mean loss that fits the task.

        Args:
            logits: The network's answers.
            targets: The targets that `encode` gave, or shares of the classes where images were mixed.
            label_smoothing: The share of each label that is spread over all classes.
        """

    @abstractmethod
    def right(self, logits: Logits, targets: Targets) -> Bool[Tensor, " batch"]:
        """Tell which images of a training batch the network gets right; what it does not is a mistake."""

    def figures(self, answers: Any, targets: Targets) -> dict[str, Tensor]:  # noqa: ANN401  # of whatever head
        """Return what a training batch tells, scalars by name: the share of the images that are right."""
        return {"accuracy": self.right(answers, targets).float().mean()}

    @abstractmethod
    def validate(self, probabilities: Probabilities, targets: Targets) -> dict[str, float]:
        """Return the figures of a validation, by name: the headline figure's first."""

    @abstractmethod
    def score(
        self, probabilities: Probabilities, targets: Targets, *, class_names: Sequence[str], describe: Describe
    ) -> Result:
        """Score predicted probabilities.

        Args:
            probabilities: The probabilities, one row an image.
            targets: The targets that `encode` gave.
            class_names: The names of the classes, one a column.
            describe: Names an image.

        Raises:
            DataError: there are no images.
            ModelError: a probability is not finite, as damaged weights give it.
        """

    def described(self) -> dict[str, Any]:
        """Return what a classifier's description says of the task beside its name, as JSON values."""
        return {}

    def as_described(self, description: Mapping[str, Any]) -> Self:
        """Return the task with what a description says of it beside its name."""
        return self

    def read(self, values: Mapping[str, Any]) -> Result:
        """Return the result that its `to_json` gave, also after a way through a file."""
        return self.result.from_json(values)

    def scoring(self, learned: "Task") -> "Task":
        """Return the task by which a classifier that learned another task is scored on data of this one: the classifier's."""
        return learned

    def follow(self, label: Label, geometry: Geometry) -> Label:
        """Return the label of a view of an image: one that says where in the image something is follows the pixels."""
        return label

    def outputs(self, num_classes: int) -> int:
        """Return the size of the network's head."""
        return num_classes

    def objective(self, named: str) -> str:
        """Return the loss to learn by, where a recipe names one: that, if it fits."""
        return named if named in (*self.objectives, OWN_LOSS) else self.objectives[0]


def classes_of(label: Label) -> tuple[int, ...]:
    """Return the classes that a label names: one, several or none."""
    if isinstance(label, int):
        return (label,)
    if isinstance(label, Regions):
        return several_classes(label.classes.tolist())
    return label if isinstance(label, tuple) else ()


def several_classes(classes: Sequence[int]) -> tuple[int, ...]:
    """Return the label of an image of several classes: ascending, each once."""
    return tuple(sorted(set(classes)))


def marked(labels: Sequence[tuple[int, ...]], num_classes: int) -> Float[Tensor, "batch classes"]:
    """Return labels of several classes as 0 or 1 for each class."""
    ones = torch.zeros(len(labels), num_classes)
    for row, label in enumerate(labels):
        ones[row, list(label)] = 1.0
    return ones


def check_probabilities(probabilities: Float[np.ndarray, "examples classes"]) -> None:
    """Refuse what cannot be scored.

    Raises:
        DataError: there are no images.
        ModelError: a probability is not finite, as damaged weights give it.
    """
    if not len(probabilities):
        raise DataError("There are no images to evaluate; name a split that has some.")
    broken = int((~np.isfinite(probabilities)).any(axis=1).sum())
    if broken:
        raise ModelError(
            f"The network gives no number (NaN) for {broken} of {len(probabilities)} images: its weights are "
            "damaged; load an earlier checkpoint."
        )


def surest_mistakes(
    wrong: Bool[np.ndarray, " examples"],
    predicted: Int64[np.ndarray, " examples"],
    confidences: Float[np.ndarray, " examples"],
    truth: Callable[[int], str],
    *,
    class_names: Sequence[str],
    describe: Describe,
) -> tuple[Mistake, ...]:
    """Return at most 50 mistakes, the most confident first; `truth` gives what is right for an image, by its position."""
    surest = np.argsort(-confidences, kind="stable")
    return tuple(
        Mistake(
            index=index,
            description=describe(index),
            truth=truth(index),
            predicted=class_names[predicted[index]],
            probability=float(confidences[index]),
        )
        for index in surest[wrong[surest]][:MAX_MISTAKES].tolist()
    )
