"""Average precision: pycocotools' numbers, cases worked by hand, resampling, and what is shown of objects."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cases import every_case
from tests.tasks.scenes import Scene, object_photos
from vitral.errors import DataError
from vitral.tasks.average_precision import ObjectsTally
from vitral.tasks.region_evaluation import RegionEvaluation
from vitral.tasks.region_matches import overlaps
from vitral.tasks.regions import FoundRegions, Regions
from vitral.tasks.resampling import mean_known, paired_difference
from vitral.tasks.shown import ConfusionMatrix

FIGURES = Path(__file__).with_suffix(".json")  # of pycocotools, by tests/peers/write_average_precision.py
BOUNDARY_FIGURES = Path(__file__).with_name("boundary_precision.json")  # by tests/peers/write_boundary_precision.py
SEEDS = (0, 1, 4, 5, 6, 7)  # the first has a photo with more than 100 answers of a class
NAMES = ("0", "1", "2")
BOX = (10.0, 10.0, 30.0, 30.0)
BY_SIZE = ("small", "medium", "large")
ORDER = (
    "ap",
    "ap50",
    "ap75",
    *(f"ap_{size}" for size in BY_SIZE),
    "ar_1",
    "ar_10",
    "ar_100",
    *(f"ar_{size}" for size in BY_SIZE),
)


class Quick(ObjectsTally):
    """A tally with few resamples, where the interval does not matter."""

    @property
    def resamples(self) -> int:
        return 20


def tally(
    photos: Scene,
    *,
    masks: bool,
    names: tuple[str, ...] = NAMES,
    kind: type[ObjectsTally] = Quick,
    boundaries: bool = True,
) -> ObjectsTally:
    adding = kind(names, masks=masks, boundaries=boundaries)
    for index, (truth, found) in enumerate(photos):
        adding.add([found], [truth], [f"{index}.png"])
    return adding


def twelve(adding: ObjectsTally) -> list[float]:
    """Return COCO's twelve numbers in its order, -1 for those that are of nothing."""
    scores = adding.result().scores()
    return [scores.get(name, -1.0) for name in ORDER]


def boxes(*rows: tuple[float, ...], classes: list[int] | None = None, crowd: list[bool] | None = None) -> Regions:
    return Regions.of_boxes((100, 100), classes or [0] * len(rows), np.array(rows).reshape(-1, 4), crowd=crowd)


def answers(regions: Regions, *scores: float) -> FoundRegions:
    return FoundRegions(regions, np.array(scores, dtype=np.float64))


@every_case("seed", SEEDS)
@every_case("kind", ["masks", "boxes"])
def test_the_twelve_numbers_are_pycocotools(kind: str, seed: int) -> None:
    theirs = json.loads(FIGURES.read_text())[kind][str(seed)]
    masks = kind == "masks"
    np.testing.assert_allclose(twelve(tally(object_photos(seed, masks=masks), masks=masks)), theirs, atol=1e-12)


@every_case("seed", SEEDS)
def test_the_ap_of_boundaries_is_its_authors(seed: int) -> None:
    theirs = json.loads(BOUNDARY_FIGURES.read_text())[str(seed)]
    result = tally(object_photos(seed, masks=True), masks=True).result()
    assert result.boundary_ap == pytest.approx(theirs, abs=1e-12)
    assert result.boundary_ap is not None
    assert result.boundary_ap <= result.ap
    assert result.scores()["boundary_ap"] == result.boundary_ap


def test_a_validation_has_the_same_figures_and_draws_no_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    photos = object_photos(4, masks=True)
    weights = np.random.RandomState(0).randint(0, 3, (4, len(photos))).astype(np.float64)
    whole = tally(photos, masks=True)
    monkeypatch.delattr("vitral.tasks.region_matches._rim")
    quick = tally(photos, masks=True, boundaries=False)
    assert quick.figures() == whole.figures()
    with pytest.raises(AssertionError, match="not compared"):
        quick.result()
    np.testing.assert_array_equal(quick.by_class(weights), whole.by_class(weights))


def test_boxes_have_no_ap_of_boundaries() -> None:
    result = tally(object_photos(0, masks=False), masks=False).result()
    assert result.boundary_ap is None
    assert "boundary_ap" not in result.scores()
    assert not any("boundary" in remark for remark in result.remarks())


def test_the_overlap_of_masks_is_that_of_their_pixels() -> None:
    for truth, found in object_photos(7, masks=True):
        there, ours = truth.bitmaps(), found.regions.bitmaps()
        common = np.einsum("fhw,thw->ft", ours.astype(float), there.astype(float))
        mine, others = ours.sum(axis=(1, 2))[:, None], there.sum(axis=(1, 2))
        whole = np.where(truth.crowd, mine, mine + others - common)
        assert (overlaps(found.regions, truth, masks=True)[0] == common / np.maximum(whole, 1)).all()


def test_objects_are_found_taken_for_another_missed_and_invented() -> None:
    there = boxes(
        BOX, (50, 50, 70, 70), (80, 0, 99, 9), (0, 60, 40, 99), classes=[0, 0, 1, 2], crowd=[False, False, False, True]
    )
    rows = (BOX, (11, 11, 30, 30), (50, 50, 70, 71), (30, 0, 40, 9), (0, 70, 20, 90), (0, 0, 9, 9))
    given = answers(boxes(*rows, classes=[0, 0, 1, 1, 1, 2]), 0.9, 0.8, 0.7, 0.6, 0.6, 0.2)
    result = tally([(there, given)], masks=False).result()
    assert result.confusion == ((0, 0, 1), (0, 1, 1), (1, 3, 1), (3, 0, 1), (3, 1, 1)), (
        "what lies in a crowd is not invented"
    )
    assert result.objects() == (1, 1, 1, 2)
    assert result.objects((0,)) == (1, 1, 0, 1)
    assert [(each.size, each.objects, each.found) for each in result.sizes] == [
        ("small", 3, 1),
        ("medium", 0, 0),
        ("large", 0, 0),
    ]
    assert (
        "Of 3 objects in 1 test photo: 1 found (IoU 0.5 or more), 1 taken for another class, 1 missed; 2 invented"
        in (result.sentence("test"))
    )
    assert result.worst[0].note == "1 of 3 found, 2 invented"
    assert result.worst[0].figure == pytest.approx(2 / 7)


@every_case(("last", "ap50"), [("right", 1.0), ("left", 51 / 101)])
def test_of_objects_that_are_overlapped_alike_the_last_is_taken(last: str, ap50: float) -> None:
    left, middle, right = (0.0, 0.0, 10.0, 10.0), (2.0, 0.0, 12.0, 10.0), (4.0, 0.0, 14.0, 10.0)
    there = boxes(left, right) if last == "right" else boxes(right, left)
    result = tally([(there, answers(boxes(middle, left), 0.9, 0.8))], masks=False).result()
    assert result.ap50 == pytest.approx(ap50), "else the answer on the left finds its object taken"


def test_the_best_threshold_is_that_of_the_best_f1() -> None:
    there = boxes(BOX, (50, 50, 70, 70))
    given = answers(boxes(BOX, (50, 50, 70, 70), (80, 80, 90, 90), (0, 80, 9, 90)), 0.4, 0.3, 0.2, 0.9)
    result = tally([(there, given)], masks=False).result()
    assert (result.threshold, result.best_threshold) == (0.5, 0.3)
    assert result.objects() == (0, 0, 2, 1)
    assert ObjectsTally(NAMES, masks=False, threshold=0.3).threshold == 0.3


def test_photos_without_objects_and_without_answers() -> None:
    nothing, object_ = boxes(), boxes(BOX)
    photos = [
        (nothing, answers(nothing)),
        (nothing, answers(object_, 0.9)),
        (object_, answers(nothing)),
        (object_, answers(object_, 1.0)),
    ]
    result = tally(photos, masks=False, names=("cell",)).result()
    assert result.objects() == (1, 0, 1, 1)
    assert result.ap == pytest.approx(51 / 101)  # one of two, found first
    assert len(result.worst) + len(result.best) == 3, "the photo with nothing in it has no figure"
    empty = tally([(nothing, answers(object_, 0.9))], masks=False)
    with pytest.raises(DataError, match="Nothing is marked in 1 photo"):
        empty.figures()
    with pytest.raises(DataError, match="no images"):
        ObjectsTally(NAMES, masks=True, boundaries=True).result()


def test_a_thousand_objects_of_which_ap_takes_a_hundred_answers() -> None:
    spots = [(4.0 * (i % 25), 4.0 * (i // 25), 4.0 * (i % 25) + 3, 4.0 * (i // 25) + 3) for i in range(1000)]
    regions = Regions.of_boxes((200, 100), [0] * 1000, spots)
    result = tally([(regions, answers(regions, *np.linspace(1, 0.6, 1000)))], masks=False, names=("cell",)).result()
    assert result.objects() == (1000, 0, 0, 0)
    assert (result.recall_of_most[-1], result.crowded) == (0.1, 1)
    assert any("1 photo with over 100 objects of a class" in line for line in result.lines())


def test_resampled_photos_are_scored_as_if_they_were_there_so_often() -> None:
    photos = [photo for seed in range(1, 6) for photo in object_photos(seed, masks=False, ties=False)]
    ones = tally(photos, masks=False)
    assert mean_known(ones.by_class(np.ones((1, len(photos)))))[0] == pytest.approx(ones.figures()["ap"], abs=1e-12)
    weights = np.random.RandomState(0).randint(0, 3, (3, len(photos))).astype(np.float64)
    for row, counts in zip(ones.by_class(weights), weights.astype(int), strict=True):
        repeated = [photo for photo, count in zip(photos, counts, strict=True) for _ in range(count)]
        theirs = tally(repeated, masks=False).result().class_ap
        np.testing.assert_allclose(row, np.array(theirs, dtype=float), atol=1e-12)


def test_two_networks_are_compared_on_the_same_photos() -> None:
    photos = [photo for seed in range(100, 112) for photo in object_photos(seed, masks=False)]
    worse = [
        (truth, FoundRegions(found.regions.chosen(range(0, len(found.scores), 2)), found.scores[::2]))
        for truth, found in photos
    ]
    first, second = (tally(each, masks=False, kind=ObjectsTally) for each in (photos, worse))
    difference = paired_difference(first, second)
    assert difference.difference == pytest.approx(first.figures()["ap"] - second.figures()["ap"])
    assert difference.interval is not None
    assert 0 < difference.interval[0] < difference.difference < difference.interval[1]
    assert difference.p_value < 0.05
    assert (difference.verdict, paired_difference(second, first).verdict) == ("better", "worse")
    assert paired_difference(first, first).verdict == "not decided"


def test_what_is_shown() -> None:
    result = tally([photo for seed in range(4) for photo in object_photos(seed, masks=True)], masks=True).result()
    assert RegionEvaluation.from_json(json.loads(json.dumps(result.to_json()))) == result
    found, taken, missed, invented = result.objects()
    assert f"Of {found + taken + missed} objects in {result.num_examples} test photos: {found} found" in result.lead(
        "test"
    )
    assert result.lines()[1].startswith(f"AP {result.ap:.1%} (95% interval ")
    sizes, classes, *photos = result.tables()
    assert [row[0].split(",")[0] for row in sizes.rows] == [each.size for each in result.sizes if each.objects]
    assert sum(int(row[1]) for row in sizes.rows) == found + taken + missed
    assert {row[0] for row in classes.rows} == set(NAMES)
    assert [table.title.split()[1] for table in photos] == ["worst", "most", "best"]
    (matrix,) = result.drawings()
    assert isinstance(matrix, ConfusionMatrix)
    assert matrix.class_names == (*NAMES, "nothing")
    assert sum(matrix.support) == found + taken + missed + invented == sum(cell[2] for cell in matrix.cells)
    assert result.tiles("test")[0].value == f"{result.ap:.1%}"
    assert result.beside({"the mean box": 1.0}).sentence("test").startswith("The mean box is better than the network")
