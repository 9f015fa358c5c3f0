"""The photos of a report with what is marked in them and what was found."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tests.tasks.test_drawn_regions import square
from vitral.data.source import Source
from vitral.images.decode import Shrink
from vitral.images.photo import Photo
from vitral.report.page import render_report
from vitral.report.results import RunReport
from vitral.studies.run_report import region_photos
from vitral.tasks.dense_result import DenseResult, ScoredPhoto
from vitral.tasks.regions import FoundRegions, Regions
from vitral.tasks.shown import Table
from vitral.tasks.task import Figure

SIZE = (80, 120)
NAMES = ("background", "cell", "dust & <b>")


@dataclass(frozen=True, kw_only=True, repr=False)
class Overlaps(DenseResult):
    """A result of regions as every task's is."""

    figure: ClassVar[Figure] = Figure("miou", "mean IoU")

    def scores(self) -> dict[str, float]:
        return {"miou": 0.5}

    def counts(self, split: str) -> str:
        return "Half is found."

    def class_tables(self) -> tuple[Table, ...]:
        return ()


class Squares(Source):
    """Photos with a square that is marked."""

    def __len__(self) -> int:
        return 6

    def image(self, index: int, shrink: Shrink | None = None) -> np.ndarray:
        return np.full((*SIZE, 3), 40 * index, dtype=np.uint8)

    def label(self, index: int) -> Regions:
        return Regions.of_masks(SIZE, [1], [square(10 + 5 * index, 20, 30)])

    def describe(self, index: int) -> str:
        return f"photos/{index}.png"


def found(photo: Photo) -> FoundRegions:
    return FoundRegions(Regions.of_masks(SIZE, [2], [square(30, 30, 40)]), np.ones(1))


def result() -> Overlaps:
    photos = tuple(ScoredPhoto(index, f"photos/{index}.png", index / 10, "1 of 1 missed") for index in range(6))
    return Overlaps(
        num_examples=6,
        class_names=NAMES,
        interval=(0.4, 0.6),
        class_intervals=(None, None, None),
        resamples=100,
        worst=photos[:5],
        doubtful=photos[2:4],
        best=photos[::-1][:1],
    )


def test_the_worst_doubtful_and_best_are_shown_marked_and_found() -> None:
    shown = region_photos(found, Squares(), result(), lambda: 60.0)  # type: ignore[abstract]
    assert shown is not None
    assert [(title, len(photos)) for title, photos in shown.groups] == [
        ("The worst photos", 4),
        ("The most doubtful photos", 2),
        ("The best photos", 1),
    ]
    assert [name for name, _ in shown.classes] == ["cell", "dust & <b>"]
    worst = shown.groups[0][1][0]
    assert worst.figure == "mean IoU 0.0%"
    assert worst.truth.shape == worst.found.shape
    assert (worst.truth != worst.found).any()


def test_the_page_has_them_with_the_classes_colours() -> None:
    regions = region_photos(found, Squares(), result(), lambda: 60.0)  # type: ignore[abstract]
    page = render_report(RunReport(title="Cells", facts=(("Data", "cells"),), evaluation=result(), regions=regions))
    assert page.count("what is found in photos/0.png") == 1
    assert "dust &amp; &lt;b&gt;" in page
    assert "mean IoU 10.0%" in page
    assert "background: rgb(" in page


def test_nothing_is_drawn_without_time() -> None:
    assert region_photos(found, Squares(), result(), lambda: 0.0) is None  # type: ignore[abstract]
