import cv2
import numpy as np
import pytest

from tests.discs import Discs, discs
from vitral.evaluation.region_baselines import (
    COMMONEST,
    MEAN_MASK,
    OTSU,
    SAME_BOX,
    MeanMask,
    Otsu,
    SameBox,
    brighter,
    score_region_baselines,
)
from vitral.tasks.instances import INSTANCES
from vitral.tasks.regions import Regions
from vitral.tasks.semantic import SEMANTIC

PIXELS = (64, 80)


def _photo(seed: int) -> tuple[np.ndarray, Regions]:
    labels = np.zeros(PIXELS, dtype=np.int64)
    labels[: 20 + seed] = 1
    return np.full((*PIXELS, 3), 90, dtype=np.uint8), Regions.of_map(labels)


def test_the_threshold_is_opencvs() -> None:
    photo = Discs(1, objects=True).image(0)
    grey = cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY)
    threshold = cv2.threshold(grey, 0, 255, cv2.THRESH_OTSU)[0]
    assert (brighter(photo) == (grey > threshold)).all()


def test_the_side_is_chosen_on_training_photos() -> None:
    bright, mixed = (Discs(6, objects=False, colours=1, bright=always) for always in (True, False))
    for source, sides in ((bright, {"bright", "smaller"}), (mixed, {"smaller"})):
        photos = [(source.image(index), source.label(index)) for index in range(len(source))]
        assert Otsu.chosen(photos, pixels=True).side in sides


def test_a_threshold_finds_discs_and_their_pixels() -> None:
    pixels = score_region_baselines(SEMANTIC, discs(SEMANTIC, colours=1), pixels=True, seconds=60)
    objects = score_region_baselines(INSTANCES, discs(INSTANCES, colours=1), pixels=False, seconds=60)
    assert pixels[OTSU] > 0.95
    assert objects[OTSU] > 0.7
    assert objects.keys() == {OTSU, SAME_BOX}
    assert objects[SAME_BOX] < 0.1


def test_of_three_classes_there_is_no_threshold() -> None:
    scores = score_region_baselines(SEMANTIC, discs(SEMANTIC), pixels=True, seconds=60)
    assert scores.keys() == {COMMONEST, MEAN_MASK}
    assert scores[COMMONEST] < 0.4


def test_a_mean_mask_is_the_commonest_class_at_each_place() -> None:
    photos = [_photo(seed) for seed in (0, 10, 20)]
    found = MeanMask.of(photos, 2, 64).find(photos[0][0])
    assert found.class_map is not None
    expected = np.zeros(PIXELS, dtype=np.int64)
    expected[:30] = 1
    assert (found.class_map == expected).all()
    everywhere = MeanMask.of(photos, 2, 1).find(photos[0][0])
    assert everywhere.class_map is not None
    assert not everywhere.class_map.any()


def test_without_time_there_are_no_figures() -> None:
    assert not score_region_baselines(SEMANTIC, discs(SEMANTIC), pixels=True, seconds=0.0)


def test_where_time_ends_it_says_of_how_many_photos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitral.evaluation.region_baselines.MOST_TEST", 3)
    scores = score_region_baselines(SEMANTIC, discs(SEMANTIC), pixels=True, seconds=60)
    assert scores.keys() == {f"{name}, on 3 of these photos" for name in (COMMONEST, MEAN_MASK)}


def test_the_same_box_is_the_median_of_the_largest_objects() -> None:
    large = [
        np.array([[10.0, 20, 60, 50], [0, 0, 3, 3]]),
        np.array([[20.0, 24, 70, 60]]),
        np.array([[30.0, 28, 80, 64]]),
    ]
    photos = [(np.zeros((80, 100, 3), np.uint8), Regions.of_boxes((80, 100), [2] * len(each), each)) for each in large]
    same = SameBox.of(photos)
    assert same is not None
    found = same.find(np.zeros((160, 100, 3), np.uint8)).regions
    assert found.classes.tolist() == [2]
    assert np.allclose(found.boxes, [[20, 48, 70, 120]])
    outlined = SameBox(same.sides, 2, masks=True).find(np.zeros((160, 100, 3), np.uint8)).regions
    assert np.allclose(outlined.boxes, [[20, 48, 70, 120]])
    assert outlined.areas.tolist() == [50 * 72]
    assert SameBox.of([(photos[0][0], Regions.of_boxes((80, 100), [], np.zeros((0, 4))))]) is None
