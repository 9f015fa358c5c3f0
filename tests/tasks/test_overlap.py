"""Mean IoU, Dice and accuracy by mmsegmentation's formula, boundary IoU by its authors', intervals, and what is shown."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from jaxtyping import Float64, Int64, UInt8

from tests.cases import every_case
from tests.tasks.scenes import class_map, found_map
from vitral.errors import DataError
from vitral.tasks.overlap import OverlapTally, SemanticEvaluation, near_edge
from vitral.tasks.regions import VOID, FoundRegions, Regions
from vitral.tasks.resampling import intervals, paired_difference

Map = Int64[np.ndarray, "height width"]
NAMES = ("ground", "cell", "vessel", "dust", "nothing has it")


def scene(seed: int, photos: int = 12) -> list[tuple[Map, Map]]:
    """Return maps of photos and what is found in them: the truth, shifted, with other blobs."""
    random = np.random.RandomState(seed)
    pairs = []
    for index in range(photos):
        size = (int(random.randint(20, 70)), int(random.randint(20, 70)))
        truth = class_map(random, size, 4, void=index % 3 == 0)
        found = np.roll(np.where(truth == VOID, 0, truth), random.randint(0, 4, 2), axis=(0, 1))
        other = class_map(random, size, 4, void=False)
        pairs.append((truth, np.where(random.random() * (other > 0) > 0.5, other, found)))
    return pairs


def tally(pairs: list[tuple[Map, Map]], *, boundaries: bool = True) -> OverlapTally:
    adding = OverlapTally(NAMES, boundaries=boundaries)
    for index, (truth, found) in enumerate(pairs):
        adding.add([found_map(found)], [Regions.of_map(truth)], [f"{index}.png"])
    return adding


def mmseg(pairs: list[tuple[Map, Map]]) -> dict[str, Float64[np.ndarray, "*classes"]]:
    """Return the figures as mmseg/evaluation/metrics/iou_metric.py computes them (`intersect_and_union`, then the metrics)."""
    totals = torch.zeros(4, len(NAMES), dtype=torch.float64)
    for truth, found in pairs:
        prediction, label = torch.from_numpy(found), torch.from_numpy(truth)
        mask = label != 255
        prediction, label = prediction[mask], label[mask]
        intersect = prediction[prediction == label]
        area_intersect, area_pred_label, area_label = (
            torch.histc(each.float(), bins=len(NAMES), min=0, max=len(NAMES) - 1)
            for each in (intersect, prediction, label)
        )
        totals += torch.stack(
            [area_intersect, area_pred_label + area_label - area_intersect, area_pred_label, area_label]
        )
    intersect, union, predicted, label = totals
    return {
        "aAcc": (intersect.sum() / label.sum()).numpy(),
        "IoU": (intersect / union).numpy(),
        "Acc": (intersect / label).numpy(),
        "Dice": (2 * intersect / (predicted + label)).numpy(),
    }


def mask_to_boundary(mask: UInt8[np.ndarray, "height width"]) -> UInt8[np.ndarray, "height width"]:
    """Return the band along a mask's edge as boundary_iou/utils/boundary_utils.py of bowenc0221/boundary-iou-api does."""
    h, w = mask.shape
    dilation = max(1, int(round(0.02 * np.sqrt(h**2 + w**2))))
    new_mask = cv2.copyMakeBorder(mask, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    new_mask_erode = cv2.erode(new_mask, np.ones((3, 3), dtype=np.uint8), iterations=dilation)
    return mask - new_mask_erode[1 : h + 1, 1 : w + 1]


@every_case("seed", range(8))
def test_the_figures_are_mmsegmentations(seed: int) -> None:
    pairs = scene(seed)
    result, theirs = tally(pairs).result(), mmseg(pairs)
    assert result.pixel_accuracy == pytest.approx(float(theirs["aAcc"]), abs=1e-12)
    for ours, name in ((result.iou, "IoU"), (result.recall, "Acc"), (result.dice, "Dice")):
        np.testing.assert_allclose(np.array(ours, dtype=float), theirs[name], atol=1e-12)
    means = result.miou, result.mean_accuracy, result.mean_dice
    np.testing.assert_allclose(means, [np.nanmean(theirs[name]) for name in ("IoU", "Acc", "Dice")], atol=1e-12)
    assert result.iou[-1] is None
    assert result.headline() == result.miou


@every_case("size", [(30, 41), (7, 5), (120, 200), (333, 250)])
def test_the_bands_along_edges_are_their_authors(size: tuple[int, int]) -> None:
    random = np.random.RandomState(size[0])
    labels = np.repeat(np.repeat(class_map(random, (size[0] // 4 + 1, size[1] // 4 + 1), 4, void=True), 4, 0), 4, 1)
    near = near_edge(labels)
    for number in np.unique(labels).tolist():
        theirs = mask_to_boundary((labels == number).astype(np.uint8)) == 1
        assert ((near & (labels == number)) == theirs).all()


def test_boundary_iou_adds_the_bands_up_over_all_photos() -> None:
    pairs = [(np.where(truth == VOID, 0, truth), found) for truth, found in scene(3)]
    bands = [
        [(mask_to_boundary((labels == number).astype(np.uint8)) == 1) for labels in pair]
        for number in range(4)
        for pair in pairs
    ]
    both = np.array([(there & found).sum() for there, found in bands]).reshape(4, -1).sum(axis=1)
    either = np.array([(there | found).sum() for there, found in bands]).reshape(4, -1).sum(axis=1)
    result = tally(pairs).result()
    assert result.boundary == (*(both / either).tolist(), None)
    assert result.boundary_iou == pytest.approx((both / either).mean())


def test_a_validation_has_the_same_figures_and_looks_for_no_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, weights = scene(4), np.random.RandomState(0).randint(0, 3, (4, 12)).astype(np.float64)
    whole = tally(pairs)
    monkeypatch.delattr("vitral.tasks.overlap.near_edge")
    quick = tally(pairs, boundaries=False)
    assert quick.figures() == whole.figures()
    np.testing.assert_array_equal(quick.by_class(weights), whole.by_class(weights))
    with pytest.raises(AssertionError, match="not compared"):
        quick.result()


def test_resampled_photos_are_scored_as_if_they_were_there_so_often() -> None:
    pairs = scene(5)
    weights = np.random.RandomState(0).randint(0, 3, (4, len(pairs))).astype(np.float64)
    drawn = tally(pairs).by_class(weights)
    for row, counts in zip(drawn, weights.astype(int), strict=True):
        repeated = [pair for pair, count in zip(pairs, counts, strict=True) for _ in range(count)]
        np.testing.assert_allclose(row, mmseg(repeated)["IoU"], atol=1e-12)


def test_two_networks_are_compared_on_the_same_resamples() -> None:
    pairs = scene(6, photos=40)
    better = [
        (truth, np.where(np.arange(truth.shape[1]) % 3 == 0, np.where(truth == VOID, 0, truth), found))
        for truth, found in pairs
    ]
    first, second = tally(better), tally(pairs)
    difference = paired_difference(first, second)
    assert difference.difference == pytest.approx(first.result().miou - second.result().miou)
    assert difference.interval is not None
    low, high = difference.interval
    assert 0 < low < difference.difference < high
    assert difference.p_value < 0.01
    wide = intervals(first).headline, intervals(second).headline
    assert all(ends and high - low < ends[1] - ends[0] for ends in wide), "the same photos for both, so less chance"
    same = paired_difference(first, first)
    assert (same.difference, same.interval, same.p_value) == (0.0, (0.0, 0.0), 1.0)
    assert intervals(first) == intervals(first)


@pytest.mark.long
def test_the_interval_is_as_wide_as_chance() -> None:
    """The spread of the resamples is that of splits drawn anew."""
    first = tally(scene(7, photos=60))
    again = [tally(scene(100 + seed, photos=60)).figures()["miou"] for seed in range(30)]
    ends = intervals(first).headline
    assert ends is not None
    assert 0.5 < (ends[1] - ends[0]) / (2 * 1.96 * np.std(again)) < 2


def test_a_photo_alone_has_no_interval_and_nothing_marked_is_refused() -> None:
    alone = tally(scene(1, photos=1)).result()
    assert alone.interval is None
    assert set(alone.class_intervals) == {None}
    empty = tally([(np.full((9, 9), VOID), np.zeros((9, 9), dtype=np.int64))])
    for refused in (empty, OverlapTally(NAMES, boundaries=True)):
        with pytest.raises(DataError, match=r"Nothing is marked in 1 photo|no images"):
            refused.result()


def test_a_pixel_without_an_answer_is_missed_and_found_nowhere() -> None:
    truth, found = np.zeros((4, 4), dtype=np.int64), np.zeros((4, 4), dtype=np.int64)
    found[:2] = VOID
    adding = OverlapTally(("ground",), boundaries=True)
    adding.add([FoundRegions(Regions.of_map(found), np.ones(1))], [Regions.of_map(truth)], ["a"])
    assert adding.result().iou == (0.5,)


def test_what_is_shown(tmp_path: Path) -> None:
    result = tally(scene(2)).result()
    assert SemanticEvaluation.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert "of the pixels of 12 test photos have the right class. Mean IoU" in result.sentence("test")
    assert "95% interval" in result.sentence("test")
    assert (len(result.worst), len(result.best), len(result.doubtful)) == (6, 6, 12)
    assert result.worst[0].figure < result.worst[-1].figure < result.best[-1].figure < result.best[0].figure
    pairs, classes, worst, doubtful, best = result.tables()
    assert pairs.examples[0] == result.confused[0].examples
    assert classes.rows[-1][:2] == ("nothing has it", "–")
    assert [row[0] for row in worst.rows] == [photo.description for photo in result.worst]
    assert list(result.scores())[0] == "miou"
    beside = result.beside({"Otsu's threshold": result.miou + 0.1, "the commonest class": 0.1})
    assert beside.sentence("test").startswith("Otsu's threshold is better than the network")
    assert beside.lines()[0] == beside.warning()
    assert beside.tables()[0].rows[0][0] == "Otsu's threshold"
    assert result.beside({"the commonest class": 0.1}).sentence("test") == result.sentence("test")
