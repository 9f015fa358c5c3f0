"""What two classifiers are worth beside each other: the verdict, the figures that a user can act on, and their tables.

Only images that one of the two alone gets right tell them apart. By chance each of these would fall to either side alike, which
is McNemar's test (Psychometrika 12, 1947) in its exact form, the binomial distribution; the interval of the difference is the
inversion of that test.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vitral.advice import counted
from vitral.notebook import table
from vitral.tasks.chance import Z_95
from vitral.tasks.shown import (
    MOST_ROWS,
    NO_VALUE,
    Presentable,
    Table,
    how_many,
    number_text,
    photos_of,
    range_text,
    right_of,
)

LEVEL = 0.05  # how seldom chance alone may tell two classifiers apart
Z_POWER = 0.8416212335729143  # the normal distribution's 80 % point
Outcome = Literal["better", "worse", "not decided"]
SHOWN_IMAGES = 3  # of each kind, that one classifier alone gets right
SMALLEST_SHOWN = 0.001  # of probabilities of chance


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Return how probable such a difference in the images that one alone gets right is by chance, two-sided, 0 to 1."""
    from scipy.special import bdtr  # half a second of start-up for all who compare nothing

    images = only_first + only_second
    return 1.0 if images == 0 else min(1.0, 2 * float(bdtr(min(only_first, only_second), images, 0.5)))


def difference_interval(only_first: int, only_second: int, images: int) -> tuple[float, float]:
    """Return the 95 % interval of the first's share of right answers less the second's, -1 to 1, given where they disagree.

    It is the exact interval of the first's share of the images that only one of the two gets right (Clopper and Pearson,
    Biometrika 26, 1934), scaled by how many of all images these are. It excludes 0 exactly where `mcnemar_exact` is below 5 %.
    """
    from scipy.special import betaincinv  # as above

    apart = only_first + only_second
    if apart == 0:
        return 0.0, 0.0
    low = float(betaincinv(only_first, only_second + 1, LEVEL / 2)) if only_first else 0.0
    high = float(betaincinv(only_first + 1, only_second, 1 - LEVEL / 2)) if only_second else 1.0
    return (2 * low - 1) * apart / images, (2 * high - 1) * apart / images


def images_needed(only_first: int, only_second: int, images: int) -> int | None:
    """Return how many images would tell the two apart four times in five, if they differ as on these.

    None without a difference. By Connor's formula for McNemar's test (Biometrics 43, 1987).
    """
    if only_first == only_second:
        return None
    apart, difference = (only_first + only_second) / images, abs(only_first - only_second) / images
    root = Z_95 * math.sqrt(apart) + Z_POWER * math.sqrt(max(apart - difference**2, 0.0))
    return math.ceil((root / difference) ** 2)


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return probabilities of chance corrected for how many there are, so that all below a level hold together (Holm, 1979)."""
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    corrected, largest = [1.0] * len(order), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * probabilities[index]))
        corrected[index] = largest
    return corrected


def outcome(only_first: int, only_second: int, p_value: float) -> Outcome:
    """Return what the first classifier is beside the second, by the probability that their difference is chance."""
    if p_value >= LEVEL:
        return "not decided"
    return "better" if only_first > only_second else "worse"


@dataclass(frozen=True)
class ComparedClassifier:
    """One of the two classifiers.

    Attributes:
        top1: The share of images that it gets right, 0 to 1.
        top1_interval: Wilson's 95 % interval of that.
        alone: The number of images that it gets right and the other does not.
        ece: Expected calibration error, 0 to 1.
        nll: Mean negative log-likelihood of the true class in nats.
        parameters: The number of its network's parameters; None if it does not run in torch.
    """

    name: str
    top1: float
    top1_interval: tuple[float, float]
    alone: int
    ece: float
    nll: float
    parameters: int | None


@dataclass(frozen=True)
class ClassDifference:
    """The two classifiers on the images of one class.

    Attributes:
        first: The share of them that the first gets right, 0 to 1.
        only_first: The number of images that the first alone gets right.
        p_value: The probability of such a difference by chance, by McNemar's exact test, corrected by Holm's method for all
            classes on which the two differ.
        verdict: "better", "worse" or "not decided": the first beside the second.
    """

    name: str
    images: int
    first: float
    second: float
    only_first: int
    only_second: int
    p_value: float
    verdict: Outcome


@dataclass(frozen=True)
class OneRight:
    """An image that only one of the two gets right.

    Attributes:
        index: The image's position in the split.
        description: The image's file, or its name in a built-in set.
        answer: The class that the other names.
        probability: The probability that the other gives its answer, 0 to 1.
    """

    index: int
    description: str
    truth: str
    answer: str
    probability: float


@dataclass(frozen=True, repr=False)
class Comparison(Presentable):
    """Two classifiers on the same images.

    Attributes:
        verdict: The first beside the second: "better", "worse" or "not decided".
        images: The number of images, each counted once.
        difference: The first's accuracy less the second's, -1 to 1.
        difference_interval: The 95 % interval of that, exact given on how many images one alone is right; without 0 where the
            test decides.
        p_value: The probability of such a difference by chance, by McNemar's exact test, two-sided.
        same_answer: The share of images to which both give the same answer, right or wrong.
        images_needed: The number of images that would tell them apart four times in five if they differ as on these; None where
            they are told apart, or do not differ.
        classes: Every class that has images, the surest difference first.
        only_first: Images that the first alone gets right, those first on which the second is surest; at most 50.
        unshared: The classes that only one of the classifiers knows: the name for the first and for the second, one empty.
        remarks: What a reader must know of the figures, one line each.
    """

    verdict: Outcome
    data: str
    split: str
    images: int
    first: ComparedClassifier
    second: ComparedClassifier
    difference: float
    difference_interval: tuple[float, float]
    p_value: float
    both_right: int
    both_wrong: int
    same_answer: float
    images_needed: int | None
    classes: tuple[ClassDifference, ...]
    only_first: tuple[OneRight, ...]
    only_second: tuple[OneRight, ...]
    unshared: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the verdict with its figures, one line each."""
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        figures = self._figures()
        rows = [(name, f"{first}, {second}") for name, first, second, *_ in figures.rows]
        names = ("", f"{self.first.name}, {self.second.name}")
        return table("Comparison", [("Verdict", self.sentence()), names, *rows])

    def sentence(self) -> str:
        """Return the verdict and why, in one sentence."""
        first, second = self.first, self.second
        right = how_many(first.top1, self.images)
        shares = f"{right} against {right_of(second.top1, self.images, self.split)}"
        if first.alone == second.alone == 0:
            of = photos_of(self.split, self.images)
            return f"Not decided: {first.name} and {second.name} are right on the same photos, {right} of {of}."
        chance = f"p < {SMALLEST_SHOWN}" if self.p_value < SMALLEST_SHOWN else f"p = {self.p_value:.3f}"
        reason = f"{shares}, {self._apart()}; {chance} by McNemar's exact test"
        if self.verdict == "not decided":
            return f"Not decided between {first.name} and {second.name}: {reason}."
        return f"{first.name} is {self.verdict} than {second.name}: {reason}."

    def _apart(self) -> str:
        low, high = self.difference_interval
        return f"{100 * self.difference:+.2f} points (95% interval {100 * low:+.2f} to {100 * high:+.2f})"

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the tables, the verdict first."""
        needed = f"About {self.images_needed or 0:,} photos would tell them apart, if they differ as on these."
        return (
            self.sentence(),
            *([needed] if self.images_needed is not None else []),
            f"Both right {self.both_right:,}, both wrong {self.both_wrong:,}, only {self.first.name} {self.first.alone:,}, "
            f"only {self.second.name} {self.second.alone:,}; the same answer to {self.same_answer:.1%} of the photos.",
            *self.remarks,
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the two side by side, the classes on which they differ, and classes that only one of them knows."""
        unshared = Table(
            "Classes that only one of them knows",
            (self.first.name, self.second.name),
            tuple((first or NO_VALUE, second or NO_VALUE) for first, second in self.unshared[:MOST_ROWS]),
            names=2,
        )
        return (
            self._figures(),
            *([self._by_class()] if any(each.only_first or each.only_second for each in self.classes) else []),
            *([unshared] if self.unshared else []),
        )

    def _figures(self) -> Table:
        first, second = self.first, self.second
        intervals = map(range_text, (first.top1_interval, second.top1_interval))
        return Table(
            "Side by side",
            ("", first.name, second.name, "Difference"),
            (
                ("Accuracy", f"{first.top1:.2%}", f"{second.top1:.2%}", f"{100 * self.difference:+.2f}"),
                ("95% interval", *intervals, ""),
                ("Only one right", f"{first.alone:,}", f"{second.alone:,}", f"{first.alone - second.alone:+,}"),
                ("Calibration error", f"{first.ece:.4f}", f"{second.ece:.4f}", f"{first.ece - second.ece:+.4f}"),
                ("Negative log-likelihood", f"{first.nll:.4f}", f"{second.nll:.4f}", f"{first.nll - second.nll:+.4f}"),
                ("Parameters", number_text(first.parameters), number_text(second.parameters), ""),
            ),
        )

    def _by_class(self) -> Table:
        apart = [each for each in self.classes if each.only_first or each.only_second]
        alike, rest = len(self.classes) - len(apart), len(apart) - MOST_ROWS
        notes = (
            f"{counted(alike, 'class', 'classes')} on which both are right on the same photos." if alike else "",
            f"{counted(rest, 'further class', 'further classes')} in the JSON output." if rest > 0 else "",
        )
        differing = f"the {counted(len(apart), 'class', 'classes')} on which they differ"
        return Table(
            f"By class, the surest difference first (p by Holm's method for {differing})",
            ("Class", self.first.name, self.second.name, "Only one right", "p", "Photos", "Verdict"),
            tuple(map(_class_row, apart[:MOST_ROWS])),
            note=" ".join(filter(None, notes)),
            foldable=True,
        )

    def examples(self, most: int = SHOWN_IMAGES) -> tuple[str, ...]:
        """Return some images that only one of the two gets right, one line each."""
        return (
            *_examples(self.first.name, self.second.name, self.only_first[:most]),
            *_examples(self.second.name, self.first.name, self.only_second[:most]),
        )


def _class_row(each: ClassDifference) -> tuple[str, ...]:
    shares = f"{each.first:.1%}", f"{each.second:.1%}"
    alone = f"{each.only_first} : {each.only_second}"
    return each.name, *shares, alone, f"{each.p_value:.3f}", f"{each.images:,}", each.verdict


def _examples(right: str, wrong: str, images: Sequence[OneRight]) -> list[str]:
    return [
        f"{image.description}: {image.truth}, as {right} says; {wrong} says {image.answer} {image.probability:.1%}"
        for image in images
    ]
