from collections.abc import Iterator

import cv2
import numpy as np
import pytest
import torch
from scipy import ndimage

from tests.cases import every_case
from vitral.images.geometry import Geometry, Resize
from vitral.images.run_lengths import decode_mask, encode_mask, tight_box
from vitral.images.to_photo import bands_in_photo
from vitral.tasks.components import RIM, find_objects, found_objects, grow, loss_of_rims, split_at_waists
from vitral.tasks.regions import Regions, RegionTargets


def _view(height: int, width: int) -> Geometry:
    return Geometry((height, width))


def test_numbered_objects_become_the_run_lengths_and_boxes_of_their_masks() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        objects = rng.integers(0, 4, (7, 9)).astype(np.int64)
        objects[0, :3] = (1, 2, 3)
        scores = rng.random(3)
        found = found_objects(objects, np.array([0, 1, 0]), scores)
        order = np.argsort(-scores)
        assert found.scores.tolist() == scores[order].tolist()
        assert found.regions.classes.tolist() == np.array([0, 1, 0])[order].tolist()
        for row, number in enumerate(order + 1):
            mask = objects == number
            assert found.regions.masks is not None
            assert found.regions.masks[row].tolist() == encode_mask(mask).tolist()
            assert found.regions.boxes[row].tolist() == list(tight_box(mask))
            assert found.regions.areas[row] == mask.sum()


@every_case("rows", [3, 1000])
def test_objects_are_as_sure_as_their_pixels_in_one_band_and_in_several(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def bands(maps: torch.Tensor, view: Geometry) -> Iterator[torch.Tensor]:
        calls.append(view)
        return bands_in_photo(maps, view, most_values=len(maps) * view.original[1] * rows)

    monkeypatch.setattr("vitral.tasks.components.bands_in_photo", bands)
    generator, total = torch.Generator().manual_seed(0), 0
    for number in range(12):
        classes, view = 1 + number % 3, Geometry((31, 44), (Resize(16, 22),))
        logits = 4 * torch.randn(1, classes + 2, 8, 11, generator=generator)
        parts = bands_in_photo(logits[0], view, most_values=(classes + 2) * 44 * rows)
        shares = torch.cat([band.softmax(dim=0) for band in parts], dim=1)
        surest = shares.argmax(dim=0).numpy()
        objects, sums = grow(surest < classes, surest <= classes), shares.double().numpy()
        by_object = np.zeros((objects.max() + 1, classes + 1))
        for row, column in np.argwhere(objects > 0):  # in the order of the pixels, to the last bit
            by_object[objects[row, column]] += sums[:-1, row, column]
        scores = [
            (of[:-1].max() + of[-1]) / (objects == number).sum() for number, of in enumerate(by_object) if number > 0
        ]
        (found,) = find_objects(logits, [view])
        assert found.scores.tolist() == sorted(scores, reverse=True)
        assert found.regions.masks is not None
        for runs, index in zip(found.regions.masks, np.argsort(-np.array(scores), kind="stable"), strict=True):
            assert (decode_mask(runs, view.original) == (objects == index + 1)).all()
        total += len(scores)
    assert total > 30
    assert len(calls) == (12 if rows > 31 else 24)  # a photo in one band is computed once


def test_nothing_is_found_in_an_image_of_ground() -> None:
    logits = torch.zeros(1, 4, 6, 8)
    logits[:, 3] = 5
    (found,) = find_objects(logits, [_view(12, 16)])
    assert len(found.regions) == 0
    assert found.regions.masks == ()
    assert found.regions.boxes.shape == (0, 4)


def test_objects_that_touch_at_their_rims_are_two_of_their_own_classes() -> None:
    logits = torch.full((1, 4, 20, 40), -3.0)  # inside of two classes, rim, none
    logits[0, 3] = 0
    logits[0, 2, 4:16, 4:36] = 4
    logits[0, 0, 6:14, 6:18], logits[0, 1, 6:14, 22:34] = 8, 8
    (found,) = find_objects(logits, [_view(40, 80)])
    assert sorted(found.regions.classes.tolist()) == [0, 1]
    lefts = {
        number: box.tolist() for number, box in zip(found.regions.classes.tolist(), found.regions.boxes, strict=True)
    }
    assert np.abs(np.array(lefts[0]) - [8, 8, 40, 32]).max() <= 2
    assert np.abs(np.array(lefts[1]) - [40, 8, 72, 32]).max() <= 2
    assert (found.scores > 0.8).all()


def test_a_part_without_an_inside_is_an_object_of_its_own() -> None:
    whole = np.zeros((10, 20), dtype=bool)
    whole[2:8, 2:8] = whole[4:6, 12:14] = True
    seeds = np.zeros_like(whole)
    seeds[4:6, 4:6] = True
    objects = grow(seeds, whole)
    assert set(np.unique(objects)) == {0, 1, 2}
    assert ((objects > 0) == whole).all()
    assert len(np.unique(objects[2:8, 2:8])) == 1


def test_every_pixel_is_its_nearest_seeds() -> None:
    seeds = np.zeros((30, 40), dtype=bool)
    seeds[5:8, 5:8] = seeds[20:23, 30:33] = True
    objects = grow(seeds, np.ones_like(seeds))
    numbers = ndimage.label(seeds)[0]
    distances, nearest = ndimage.distance_transform_edt(~seeds, return_indices=True)
    expected = numbers[tuple(nearest)]
    far = [ndimage.distance_transform_edt(numbers != number) for number in (1, 2)]
    clear = np.abs(far[0] - far[1]) > 1  # cv2's distances are rounded
    assert (objects == expected)[clear].all() or (3 - objects == expected)[clear].all()
    assert distances.max() > 0


def test_discs_that_overlap_a_little_are_told_apart() -> None:
    canvas = np.zeros((40, 80), np.uint8)
    for middle in (20, 42, 64):
        cv2.circle(canvas, (middle, 20), 12, 1, cv2.FILLED)
    objects = split_at_waists(canvas > 0, 0.7)
    assert objects.max() == 3
    assert ((objects > 0) == (canvas > 0)).all()


def test_no_pixels_are_no_objects() -> None:
    nothing = np.zeros((5, 6), dtype=bool)
    assert not grow(nothing, nothing).any()
    assert not split_at_waists(nothing, 0.7).any()


def test_a_mask_comes_back_from_what_was_found() -> None:
    objects = np.ones((3, 4), dtype=np.int64)
    found = found_objects(objects, np.array([0]), np.array([1.0]))
    assert found.regions.masks is not None
    assert decode_mask(found.regions.masks[0], (3, 4)).all()


@every_case("classes", [2, 253, 254, 255, 256, 400])
def test_all_places_are_learned_however_many_classes_there_are(classes: int) -> None:
    masks, ignored = np.zeros((2, 8, 12), dtype=bool), np.zeros((8, 12), dtype=bool)
    masks[0, 1:7, 1:5] = masks[1, 1:7, 6:10] = ignored[:, 11] = True
    truth = Regions.of_masks((8, 12), [0, classes - 1], list(masks), ignored=ignored)
    logits = torch.randn(1, classes + 2, 8, 12, generator=torch.Generator().manual_seed(0))
    shares, weights = logits.double().log_softmax(dim=1)[0], torch.ones(8, 12)
    wanted = torch.full((8, 12), classes + 1)
    for number, left in ((0, 1), (classes - 1, 6)):
        wanted[1:7, left : left + 4], weights[1:7, left : left + 4] = classes, RIM
        wanted[2:6, left + 1 : left + 3], weights[2:6, left + 1 : left + 3] = number, 1
    weights[:, 11] = 0
    theirs = -(weights * shares.gather(0, wanted[None])[0]).sum() / weights.sum()
    torch.testing.assert_close(loss_of_rims(logits, RegionTargets((truth,))).double(), theirs, rtol=1e-5, atol=1e-5)


def test_a_rim_weighs_more_in_the_loss_and_what_is_ignored_nothing() -> None:
    objects = np.zeros((6, 8), dtype=bool)
    objects[1:5, 1:5] = True
    ignored = np.zeros_like(objects)
    ignored[:, 7] = True
    truth = Regions.of_masks((6, 8), [0], [objects], ignored=ignored)
    logits = torch.randn(1, 3, 6, 8, generator=torch.Generator().manual_seed(0))
    wanted = torch.full((1, 6, 8), 2)
    wanted[0, 1:5, 1:5], wanted[0, 2:4, 2:4], wanted[0, :, 7] = 1, 0, 255
    weights = torch.tensor([1.0, RIM, 1.0])
    theirs = torch.nn.functional.cross_entropy(logits, wanted, weights, ignore_index=255)
    torch.testing.assert_close(loss_of_rims(logits, RegionTargets((truth,))), theirs)
