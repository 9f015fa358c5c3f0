"""How good is a classifier that finds objects: COCO's average precision, and in counts what is found, missed and invented."""

from dataclasses import dataclass
from typing import ClassVar

from vitral.advice import counted
from vitral.tasks.dense_result import DenseResult
from vitral.tasks.shown import (
    ConfusionMatrix,
    Drawing,
    Table,
    Tile,
    class_table,
    numbers,
    percent,
    photos_of,
    shares,
)
from vitral.tasks.task import Figure

NOTHING = "nothing"
SIZE_NAMES = {
    "small": "small, up to 32 x 32 pixels",
    "medium": "medium, up to 96 x 96 pixels",
    "large": "large",
}


@dataclass(frozen=True)
class SizeScores:
    """How objects of one size come out, by the area that their annotation states.

    Attributes:
        size: "small" (up to 32 x 32 pixels), "medium" (up to 96 x 96) or "large".
        objects: The number of objects of the size.
        found: The number of those that are found.
        ap: The average precision, 0 to 1; None where there are no objects.
        recall: The average recall, likewise.
    """

    size: str
    objects: int
    found: int
    ap: float | None
    recall: float | None


@dataclass(frozen=True, kw_only=True, repr=False)
class RegionEvaluation(DenseResult):
    """The scores of a classifier that finds objects, of one split; every share lies between 0 and 1.

    An object is found if an answer of its class, as sure as `threshold`, overlaps it with an IoU of 0.5 or more.

    Attributes:
        ap: COCO's average precision: the mean over the classes, and over IoU from 0.5 to 0.95.
        ap50: The average precision at an IoU of 0.5.
        ap75: The average precision at an IoU of 0.75.
        recall_of_most: The average recall of the 1, 10 and 100 surest answers of a class in a photo.
        sizes: How small, medium and large objects come out.
        class_ap: The average precision of each class; None of one that is in no photo.
        class_ap50: That at an IoU of 0.5.
        support: The number of photos that have each class.
        confusion: True class, found class and count of objects, none left out; the number after the last class is "nothing":
            objects found as nothing are missed, those that are nothing are invented.
        threshold: How sure an answer must be to be counted.
        best_threshold: How sure it would have to be for the best F1 score on these photos.
        crowded: The number of photos with more than 100 objects of a class, of which AP takes 100 answers.
        boundary_ap: The average precision by the smaller of the IoU of masks and that of their boundaries; None of boxes.
    """

    figure: ClassVar[Figure] = Figure("ap", "AP")
    ap: float
    ap50: float
    ap75: float
    recall_of_most: tuple[float, ...]
    sizes: tuple[SizeScores, ...]
    class_ap: tuple[float | None, ...]
    class_ap50: tuple[float | None, ...]
    support: tuple[int, ...]
    confusion: tuple[tuple[int, int, int], ...]
    threshold: float
    best_threshold: float
    crowded: int = 0
    boundary_ap: float | None = None

    def objects(self, classes: tuple[int, ...] | None = None) -> tuple[int, int, int, int]:
        """Return how many objects are found, taken for another class, missed and invented: of some classes, or of all."""
        nothing = len(self.class_names)
        sums = [0, 0, 0, 0]
        for truth, found, count in self.confusion:
            if classes is None or (found if truth == nothing else truth) in classes:
                sums[0 if truth == found else 2 if found == nothing else 3 if truth == nothing else 1] += count
        found, taken, missed, invented = sums
        return found, taken, missed, invented

    def scores(self) -> dict[str, float]:
        """Return the figures that a classifier keeps of itself: COCO's twelve numbers, those without objects left out."""
        low = {"ap_low": self.interval[0]} if self.interval else {}
        recalls = zip(("ar_1", "ar_10", "ar_100"), self.recall_of_most, strict=True)
        by_size = {f"ap_{each.size}": each.ap for each in self.sizes} | {
            f"ar_{each.size}": each.recall for each in self.sizes
        }
        known = {name: value for name, value in by_size.items() if value is not None}
        boundary = {} if self.boundary_ap is None else {"boundary_ap": self.boundary_ap}
        return {"ap": self.ap, **low, "ap50": self.ap50, "ap75": self.ap75, **boundary, **dict(recalls), **known}

    def counts(self, split: str) -> str:
        """Return how many objects are found, missed and invented."""
        found, taken, missed, invented = self.objects()
        objects = counted(found + taken + missed, "object")
        confused = f"{taken:,} taken for another class, " if taken else ""
        return (
            f"Of {objects} in {photos_of(split, self.num_examples)}: {found:,} found (IoU 0.5 or more), {confused}"
            f"{missed:,} missed; {invented:,} invented."
        )

    def remarks(self) -> tuple[str, ...]:
        """Return AP at single overlaps, what is missed by size, and whether AP cannot be reached."""
        sizes = ", ".join(
            f"{each.objects - each.found:,} of {each.objects:,} {each.size}" for each in self.sizes if each.objects
        )
        crowded = f"{counted(self.crowded, 'photo')} with over 100 objects of a class, of which AP takes the 100 surest at most"
        boundary = "" if self.boundary_ap is None else f", boundary AP {percent(self.boundary_ap)}"
        return (
            f"AP50 {percent(self.ap50)}, AP75 {percent(self.ap75)}{boundary}, recall of 100 "
            f"{percent(self.recall_of_most[-1])}",
            f"not found by size: {sizes}",
            f"objects count as found from a score of {percent(self.threshold, 0)} on; "
            f"{percent(self.best_threshold, 0)} would be best on these photos (F1)",
            *([crowded] if self.crowded else []),
        )

    def tiles(self, split: str) -> tuple[Tile, ...]:
        """Return AP, AP50, and how many objects are found and invented."""
        found, taken, missed, invented = self.objects()
        return (
            *super().tiles(split),
            Tile(percent(self.ap50), ("AP50: an IoU of 0.5 is enough",)),
            Tile(f"{found:,}", (f"of {counted(found + taken + missed, 'object')} found",)),
            Tile(f"{invented:,}", ("invented", "where no object is")),
        )

    def drawings(self) -> tuple[Drawing, ...]:
        """Return which classes are found as which, with what is missed and invented."""
        objects = [self.objects((index,)) for index in range(len(self.class_names))]
        there = [sum(each[:3]) for each in objects]
        recall = tuple(each[0] / number if number else None for each, number in zip(objects, there, strict=True))
        support = (*there, self.objects()[3])
        return (ConfusionMatrix((*self.class_names, NOTHING), self.confusion, support, (*recall, None)),)

    def class_tables(self) -> tuple[Table, ...]:
        """Return the sizes, and every class, the worst first."""
        sizes = Table(
            "By size",
            ("", "Objects", "Found", "Not found", "AP", "Recall"),
            tuple(_size_row(each) for each in self.sizes if each.objects),
        )
        objects = zip(*(self.objects((index,)) for index in range(len(self.class_names))), strict=True)
        columns = [
            ("AP", shares(self.class_ap)),
            ("95% interval", self._interval_of),
            ("AP50", shares(self.class_ap50)),
            *zip(("Found", "Taken for another", "Missed", "Invented"), map(numbers, objects), strict=True),
            ("Photos", numbers(self.support)),
        ]
        return sizes, class_table(("Class", self.class_names), self.class_ap, self.support, columns)


def _size_row(each: SizeScores) -> tuple[str, ...]:
    numbers = each.objects, each.found, each.objects - each.found
    return SIZE_NAMES[each.size], *(f"{number:,}" for number in numbers), percent(each.ap), percent(each.recall)
