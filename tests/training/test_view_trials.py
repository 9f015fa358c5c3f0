"""How images vary is doubted by short trainings, decided by more than noise, and left to the user who sets it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.cases import every_case
from tests.training.choose.situations import FACTS, changed, planned
from vitral.data.source import DataSet, PixelSource
from vitral.images.augment import Augmentation
from vitral.images.decode import Pixels, Shrink
from vitral.training.choose.network import CROPS, MILD_AREA, MIN_AREA, MIRRORING, SURE, doubts
from vitral.training.facts import Compared
from vitral.training.starting import view_trials
from vitral.training.starting.view_trials import try_views

PHOTO = Augmentation(min_area=0.25)
PHOTOS_OF_A_KIND = changed(FACTS, augmentation=PHOTO)
CLEAR = Compared(kept=200, left_out=300, different=140, answers=400)
NOISE = Compared(kept=300, left_out=300 + math.ceil(0.9 * SURE * 10), different=100, answers=400)


class Sided(PixelSource):
    """Grey noise with a bright half: the left one of the first class, the right one of the second."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        pixels = np.random.default_rng(index).integers(0, 120, (24, 24, 3), dtype=np.uint8)
        half = slice(0, 12) if index % 2 == 0 else slice(12, 24)
        pixels[:, half] += 100
        return pixels

    def label(self, index: int) -> int:
        return index % 2


def sided(count: int) -> DataSet:
    return DataSet("sides", ("left", "right"), {"train": Sided(count)}, PHOTO)  # type: ignore[dict-item]


def test_mirroring_is_left_out_where_left_and_right_tell_classes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_trials, "SIDE", 20)
    tried = try_views(sided(100), PHOTO, {MIRRORING: {"flip": False}}, 60.0)
    assert tried[MIRRORING].answers == 40
    assert tried[MIRRORING].left_out > 36
    assert tried[MIRRORING].kept < 30
    augmentation = planned(replace(PHOTOS_OF_A_KIND, views=tried)).augmentation
    assert (augmentation.flip, augmentation.min_area) == (False, MIN_AREA)


@every_case(("count", "seconds"), [(99, 60.0), (100, 1e-3)], ids=["few images", "no time"])
def test_nothing_is_tried_where_it_would_tell_nothing(count: int, seconds: float) -> None:
    assert try_views(sided(count), PHOTO, {MIRRORING: {"flip": False}}, seconds) == {}


@every_case(
    ("crops", "mirroring", "area", "flip"),
    [
        (CLEAR, CLEAR, MILD_AREA, False),
        (CLEAR, NOISE, MILD_AREA, "alternating"),
        (NOISE, CLEAR, MIN_AREA, False),
        (NOISE, NOISE, MIN_AREA, "alternating"),
    ],
)
def test_only_more_than_noise_decides_and_is_said(
    crops: Compared, mirroring: Compared, area: float, flip: bool | str
) -> None:
    plan = planned(replace(PHOTOS_OF_A_KIND, views={CROPS: crops, MIRRORING: mirroring}))
    assert (plan.augmentation.min_area, plan.augmentation.flip) == (area, flip)
    said = [line for line in plan.reasons if "75%" in line and "50%" in line]
    assert len(said) == [crops, mirroring].count(CLEAR)
    assert plan.recipe.augmentation == plan.augmentation, "which a run that continues reads"


def test_what_the_user_sets_is_neither_doubted_nor_changed() -> None:
    overrides = ("augmentation.min_area=0.2", "augmentation.flip=true")
    plan = planned(replace(PHOTOS_OF_A_KIND, views={CROPS: CLEAR, MIRRORING: CLEAR}), overrides=overrides)
    assert (plan.augmentation.min_area, plan.augmentation.flip) == (0.2, True)
    assert doubts(PHOTO, {"augmentation.min_area", "augmentation.flip"}) == {}
    assert set(doubts(PHOTO, {"augmentation.flip"})) == {CROPS}
    assert set(doubts(replace(PHOTO, crop="padded"), ())) == {MIRRORING}
    assert doubts(replace(PHOTO, crop="none", flip=False), ()) == {}
