"""How good is a single-label classifier: accuracy with its interval, classes, confusion, calibration, surest mistakes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from vitral.advice import counted
from vitral.notebook import table
from vitral.tasks.chance import Z_95, Standing
from vitral.tasks.class_sizes import ClassSizes
from vitral.tasks.reliability import expected_calibration_error, reliability
from vitral.tasks.shown import (
    COUNTED,
    AnswerCounts,
    ConfusionMatrix,
    Drawing,
    ReliabilityBin,
    ReliabilityDiagram,
    Table,
    Tile,
    class_table,
    fitting_digits,
    images_of,
    numbers,
    percent,
    photos_of,
    right_of,
    shares,
)
from vitral.tasks.task import Mistake, Result, check_probabilities, surest_mistakes

MAX_CONFUSED = 24  # pairs of classes
MAX_EXAMPLES = 3  # of a pair of classes
CONFUSED_SHOWN = 12  # pairs of classes on a page
WORST_SHOWN = 5  # classes and pairs of classes in a notebook
FEWEST_FOR_TOP5 = 20  # classes: of six, five guesses are nearly always right
SURE_FROM = 0.5  # of the probability
SMALLEST_PROBABILITY = 1e-12  # a softmax in float32 reaches 0, and its logarithm would be infinite


@dataclass(frozen=True)
class Confusion:
    """Images of one class that are taken for another.

    Attributes:
        truth: The name of the images' class.
        predicted: The name of the most probable class.
        count: The number of such images.
        share: Their share of the images of their class, 0 to 1.
        examples: The positions in the split of at most three of them, the most confident first.
    """

    truth: str
    predicted: str
    count: int
    share: float
    examples: tuple[int, ...]


@dataclass(frozen=True)
class Evaluation(Result):
    """The scores of a single-label classifier on one split.

    Attributes:
        num_examples: The number of images, each counted once.
        top1: The share of images whose most probable class is right, 0 to 1.
        top1_interval: Wilson's 95 % interval of `top1`.
        top5: The share of images whose class is among the five most probable; None with fewer than 20 classes, of which it
            tells nothing.
        precision: The precision of each class; None for a class that is never predicted.
        recall: The recall of each class; None for a class without images.
        support: The number of images of each class.
        confusion: The cells of the confusion matrix that are not empty, by true class, then by predicted class: the indices
            of the two in `class_names`, and the count. The whole matrix of 4,000 classes would take gigabytes.
        confused: At most 24 pairs of classes, the most often confused first.
        ece: The expected calibration error over 15 bins, 0 to 1.
        reliability: The bins of that error.
        nll: The mean negative log-likelihood of the true class in nats, probabilities clipped at 1e-12.
        mistakes: At most 50 mistakes, the most confident first.
        class_images: The number of training images of each class; empty where it is not known.
        unsure: The number of images whose most probable class has less than half of the probability: of the right ones, and
            of the wrong ones.
    """

    num_examples: int
    top1: float
    top1_interval: tuple[float, float]
    top5: float | None
    class_names: tuple[str, ...]
    precision: tuple[float | None, ...]
    recall: tuple[float | None, ...]
    support: tuple[int, ...]
    confusion: tuple[tuple[int, int, int], ...]
    confused: tuple[Confusion, ...]
    ece: float
    reliability: tuple[ReliabilityBin, ...]
    nll: float
    mistakes: tuple[Mistake, ...]
    class_images: tuple[int, ...] = ()
    unsure: tuple[int, int] = (0, 0)

    def __repr__(self) -> str:
        """Return the figures that matter most in one line; `to_json` gives them all."""
        low, high = self.top1_interval
        return (
            f"Evaluation: {self.top1:.1%} of {counted(self.num_examples, 'photo')} right (95% interval {low:.1%} to "
            f"{high:.1%}; guessing gets {self.chance:.1%}), {len(self.class_names)} classes, calibration error {self.ece:.3f}"
        )

    def scores(self) -> dict[str, float]:
        """Return the figures that a classifier keeps of itself."""
        low, chance = self.top1_interval[0], self.chance
        balanced = {"balanced_accuracy": self.balanced_accuracy} if self.sizes.unequal else {}
        return {"top1": self.top1, "top1_low": low, "chance": chance, **balanced, "ece": self.ece, "nll": self.nll}

    def to_json(self) -> dict[str, Any]:
        """Return the scores as JSON values, with what follows from them for unequal classes."""
        rare = [self.class_names[index] for index in self.sizes.rare]
        return {**super().to_json(), "balanced_accuracy": self.balanced_accuracy, "rare_classes": rare}

    def trained_on(self, class_images: Sequence[int]) -> "Evaluation":
        """Return the scores with the number of training images of each class, by which classes are called rare."""
        return replace(self, class_images=tuple(class_images)) if len(class_images) == len(self.class_names) else self

    @property
    def sizes(self) -> ClassSizes:
        """The training images of each class; where they are not known, those that were scored."""
        return ClassSizes(self.class_images or self.support)

    @property
    def balanced_accuracy(self) -> float:
        """The mean of the classes' recalls, those without images aside, 0 to 1."""
        return sum(recall for recall in self.recall if recall is not None) / sum(map(bool, self.support))

    def rare_sentence(self, split: str) -> str:
        """Return which classes are rare, and how well they and the others do, in one sentence; empty where none is."""
        sizes, rare = self.sizes, set(self.sizes.rare)
        if not rare:
            return ""
        others = [index for index in range(len(self.class_names)) if index not in rare]
        listed = f"{counted(len(rare), 'rare class', 'rare classes')}, {sizes.listed(self.class_names)}"
        of = images_of("train" if self.class_images else split)
        known, reached = self._recognised(rare)
        found = f"{reached} of {known:,} {images_of(split, known)} right" if known else f"no {images_of(split)}"
        return f"{listed} by {of}: {found}; all others {self._recognised(others)[1]}."

    def _recognised(self, classes: Iterable[int]) -> tuple[int, str]:
        """Return how many images some classes have, and the share of them that is right, for people."""
        listed = [(self.support[index], self.recall[index] or 0.0) for index in classes]
        images = sum(count for count, _ in listed)
        return images, percent(sum(count * recall for count, recall in listed) / images if images else None, 0)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return table("Evaluation", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        low, high = self.top1_interval
        pairs = zip(self.recall, self.class_names, strict=True)
        worst = sorted(((recall, name) for recall, name in pairs if recall is not None), key=lambda pair: pair[0])
        confused = [f"{pair.truth} as {pair.predicted} ({pair.count})" for pair in self.confused[:WORST_SHOWN]]
        return [
            ("Accuracy", f"{self.top1:.1%} of {counted(self.num_examples, 'photo')}"),
            ("95% interval", f"{low:.1%} to {high:.1%}" + _beside_chance(self.standing)),
            ("Top 5", "" if self.top5 is None else f"{self.top5:.1%}"),
            ("Classes", f"{len(self.class_names):,} classes"),
            ("Calibration error", f"{self.ece:.3f}"),
            ("Worst classes", ", ".join(f"{name} {recall:.0%}" for recall, name in worst[:WORST_SHOWN])),
            ("Most confused", ", ".join(confused)),
        ]

    @property
    def chance(self) -> float:
        """The accuracy of always naming the commonest class, 0 to 1."""
        return max(self.support) / self.num_examples

    @property
    def standing(self) -> Standing:
        """How the accuracy compares with chance."""
        return Standing(self.top1, self.top1_interval[0], self.chance)

    def sentence(self, split: str) -> str:
        """Return the result in one sentence."""
        return f"{right_of(self.top1, self.num_examples, split)}."

    def announcement(self, split: str) -> str:
        """Return the accuracy and, but for images that were learned from, its interval, one line."""
        right = right_of(self.top1, self.num_examples, split)
        share = f"{self.top1:.{self._digits}%}, " if self.num_examples < COUNTED else ""
        if split == "train":
            return f"{right} ({share}which tells nothing of new ones)"
        low, high = (f"{bound:.{self._digits}%}" for bound in self.top1_interval)
        balanced = f"; balanced accuracy {self.balanced_accuracy:.{self._digits}%}" if self.sizes.unequal else ""
        return f"{right} ({share}95% interval {low} to {high}{balanced})"

    @property
    def _digits(self) -> int:
        return fitting_digits(self.num_examples)

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the tables."""
        low, high = self.top1_interval
        rare, ratio = self.rare_sentence("scored"), f"classes are unequal, 1 : {self.sizes.ratio:.3g}"
        return (
            f"{right_of(self.top1, self.num_examples, '')}, {len(self.class_names):,} classes",
            f"accuracy  {self.top1:.2%}  (95% interval {low:.2%} to {high:.2%})",
            *([f"balanced accuracy  {self.balanced_accuracy:.2%}  ({ratio})"] if self.sizes.unequal else []),
            *([rare] if rare else []),
            *([] if self.top5 is None else [f"top-5 accuracy  {self.top5:.2%}"]),
            f"calibration error  {self.ece:.4f}   negative log-likelihood  {self.nll:.4f}",
        )

    def answer_counts(self) -> AnswerCounts:
        """Return how many images are right and wrong, and how many of each unsure."""
        right = round(self.top1 * self.num_examples)
        return AnswerCounts(right, self.num_examples - right, *self.unsure)

    def tiles(self, split: str) -> tuple[Tile, ...]:
        """Return accuracy, top-5 accuracy, calibration error and negative log-likelihood."""
        digits = fitting_digits(self.num_examples)
        low, high = (percent(bound, digits) for bound in self.top1_interval)
        images = f"accuracy on {photos_of(split, self.num_examples)}"
        top5 = () if self.top5 is None else (percent(self.top5, digits),)
        return (
            Tile(percent(self.top1, digits), (images, f"95% interval {low} to {high}")),
            *self._balanced_tiles(digits),
            *(Tile(share, ("the true class is among the five most probable",)) for share in top5),
            Tile(f"{self.ece:.3f}", ("expected calibration error", "0 is best")),
            Tile(f"{self.nll:.3f}", ("negative log-likelihood, nats", "0 is best")),
        )

    def _balanced_tiles(self, digits: int) -> tuple[Tile, ...]:
        if not self.sizes.unequal:
            return ()
        caption = f"balanced accuracy: the mean of the classes, which are unequal, 1 : {self.sizes.ratio:.3g}"
        return (Tile(percent(self.balanced_accuracy, digits), (caption,)),)

    def lead(self, split: str) -> str:
        """Return of what the scores are, and how rare classes do, in one sentence each."""
        photos = f"{photos_of(split, self.num_examples)} of {len(self.class_names):,} classes"
        return f"{photos}, each counted once. {self.rare_sentence(split)}".rstrip()

    def drawings(self) -> tuple[Drawing, ...]:
        """Return the confusion matrix and the reliability diagram."""
        return (
            ConfusionMatrix(self.class_names, self.confusion, self.support, self.recall),
            ReliabilityDiagram(self.reliability),
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the pairs of classes that are confused most, where there are any, and every class, the worst first."""
        return (*([self._confused_table()] if self.confused else []), self._class_table())

    def _confused_table(self) -> Table:
        pairs = self.confused[:CONFUSED_SHOWN]
        return Table(
            "Most often confused",
            ("True class", "taken for", "Photos", "of the class"),
            tuple((pair.truth, pair.predicted, f"{pair.count:,}", percent(pair.share)) for pair in pairs),
            names=2,
            examples=tuple(pair.examples for pair in pairs),
            examples_title="The surest of them",
        )

    def _class_table(self) -> Table:
        rare = self.sizes.rare
        scores = [("Recall", shares(self.recall)), ("Precision", shares(self.precision))]
        trained = [("Training photos", numbers(self.class_images))] if self.class_images else []
        return class_table(
            ("Class", self.class_names),
            self.recall,
            self.support,
            [*scores, ("Photos", numbers(self.support)), *trained],
            title="Every class, the rare ones first, then the worst" if rare else "",
            before=rare,
        )


def _beside_chance(standing: Standing) -> str:
    if standing.untold:
        return ", too few photos to tell it from guessing"
    return ", not clearly better than guessing" if standing.at_chance else ""


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, which stays between 0 and 1 and holds for few trials too."""
    share, z2, reach = successes / trials, Z_95**2, wilson_reach(successes / trials, trials)
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    # At the ends the exact value is 0 or 1, which rounding would miss by a little.
    low = 0.0 if successes == 0 else centre - reach
    high = 1.0 if successes == trials else centre + reach
    return low, high


def wilson_reach(share: float, trials: int) -> float:
    """Return half the width of Wilson's 95 % interval, of any share of so many trials, 0 to 1."""
    z2 = Z_95**2
    return Z_95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))


def evaluate_probabilities(
    probabilities: Float[Tensor, "examples classes"],
    labels: Int64[Tensor, " examples"],
    *,
    class_names: Sequence[str],
    descriptions: Sequence[str],
) -> Evaluation:
    """Score predicted probabilities against the true classes.

    Args:
        probabilities: The probabilities, one row an image, summing to 1.
        labels: The true classes, as columns of `probabilities`.
        class_names: The names of the classes, one a column.
        descriptions: A line for each image, such as its path.

    Raises:
        VitralError: see `check_probabilities`.
    """
    values, truth = probabilities.numpy(), labels.numpy()
    assert values.shape[1] == len(class_names), "one column a class"
    check_probabilities(values)
    rows = np.arange(len(truth))
    predicted = values.argmax(axis=1)  # equal probabilities: the first class wins
    correct = predicted == truth
    confidences = values[rows, predicted].astype(np.float64)
    unsure = confidences < SURE_FROM
    bins = reliability(confidences, correct)
    precision, recall, support = _by_class(truth, predicted, len(class_names))
    likelihood = np.maximum(values[rows, truth].astype(np.float64), SMALLEST_PROBABILITY)
    return Evaluation(
        num_examples=len(truth),
        top1=float(correct.mean()),
        top1_interval=wilson_interval(int(correct.sum()), len(truth)),
        top5=float((_ranks(values, truth) < 5).mean()) if len(class_names) >= FEWEST_FOR_TOP5 else None,
        class_names=tuple(class_names),
        precision=precision,
        recall=recall,
        support=support,
        confusion=_confusion(truth, predicted, len(class_names)),
        confused=_confused(truth, predicted, confidences, class_names),
        ece=expected_calibration_error(bins),
        reliability=bins,
        nll=float(-np.log(likelihood).mean()),
        mistakes=surest_mistakes(
            ~correct,
            predicted,
            confidences,
            lambda index: class_names[truth[index]],
            class_names=class_names,
            describe=lambda index: descriptions[index],
        ),
        unsure=(int((unsure & correct).sum()), int((unsure & ~correct).sum())),
    )


def _ranks(
    probabilities: Float[np.ndarray, "examples classes"], truth: Int64[np.ndarray, " examples"]
) -> Int64[np.ndarray, " examples"]:
    """Return how many classes stand before the true one: the more probable, and the equally probable of a lower index.

    Sorting the classes of every image would take several times the memory of the probabilities.
    """
    own = np.take_along_axis(probabilities, truth[:, None], axis=1)
    before = np.arange(probabilities.shape[1]) < truth[:, None]
    return (probabilities > own).sum(axis=1) + ((probabilities == own) & before).sum(axis=1)


def _by_class(
    truth: Int64[np.ndarray, " examples"], predicted: Int64[np.ndarray, " examples"], num_classes: int
) -> tuple[tuple[float | None, ...], tuple[float | None, ...], tuple[int, ...]]:
    def counted(classes: Int64[np.ndarray, " some"]) -> Int64[np.ndarray, " classes"]:
        return np.bincount(classes, minlength=num_classes)

    right, support = counted(truth[truth == predicted]), counted(truth)
    with np.errstate(invalid="ignore"):  # 0 / 0 is unknown
        precision, recall = right / counted(predicted), right / support
    return _known(precision), _known(recall), tuple(support.tolist())


def _known(shares: Float[np.ndarray, " classes"]) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(share) else share for share in shares.tolist())


def _confusion(
    truth: Int64[np.ndarray, " examples"], predicted: Int64[np.ndarray, " examples"], num_classes: int
) -> tuple[tuple[int, int, int], ...]:
    cells, counts = np.unique(truth * num_classes + predicted, return_counts=True)
    rows, columns = np.divmod(cells, num_classes)
    return tuple(zip(rows.tolist(), columns.tolist(), counts.tolist(), strict=True))


def _confused(
    truth: Int64[np.ndarray, " examples"],
    predicted: Int64[np.ndarray, " examples"],
    confidences: Float64[np.ndarray, " examples"],
    class_names: Sequence[str],
) -> tuple[Confusion, ...]:
    wrong = np.flatnonzero(truth != predicted)
    surest = wrong[np.argsort(-confidences[wrong], kind="stable")]
    cells = truth * len(class_names) + predicted
    pairs, counts = np.unique(cells[surest], return_counts=True)
    most = np.argsort(-counts, kind="stable")[:MAX_CONFUSED]
    confused = []
    for pair, count in zip(pairs[most].tolist(), counts[most].tolist(), strict=True):
        row, column = divmod(pair, len(class_names))
        examples = tuple(surest[cells[surest] == pair][:MAX_EXAMPLES].tolist())
        share = count / int((truth == row).sum())
        confused.append(Confusion(class_names[row], class_names[column], count, share, examples))
    return tuple(confused)
