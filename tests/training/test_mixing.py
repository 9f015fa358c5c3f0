"""MixUp, CutMix and random erasing of a batch."""

import hashlib
import math

import numpy as np
import pytest
import torch

from tests.cases import every_case
from vitral.training.methods.views import Mixer, erase
from vitral.training.settings.sections import MixingSettings, mixes


def test_mixing_mixes_each_image_with_the_one_before_it() -> None:
    images = torch.arange(5.0).view(5, 1, 1, 1).expand(5, 3, 4, 4).contiguous()
    labels = torch.arange(5)
    mixer = Mixer(MixingSettings(mixup=1.0), num_classes=5, seed=7)
    mixed, shares = mixer(images, labels, step=3)
    share = float(shares[0, 1])
    assert mixed.shape == (4, 3, 4, 4)
    torch.testing.assert_close(mixed[:, 0, 0, 0], torch.arange(1.0, 5) - (1 - share))
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(4))
    again, _ = mixer(images, labels, step=3)
    assert torch.equal(mixed, again)
    assert not torch.equal(mixed, mixer(images, labels, step=4)[0])


def test_cutmix_shares_are_the_areas() -> None:
    images = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 3, 16, 16).contiguous()
    mixer = Mixer(MixingSettings(cutmix=1.0), num_classes=3, seed=0)
    for step in range(10):
        mixed, shares = mixer(images, torch.arange(3), step=step)
        kept = float((mixed[0, 0] == 1.0).float().mean())
        assert float(shares[0, 1]) == pytest.approx(kept, abs=1e-6)


def test_both_kinds_are_drawn() -> None:
    images = torch.arange(2.0).view(2, 1, 1, 1).expand(2, 3, 8, 8).contiguous()
    mixer = Mixer(MixingSettings(mixup=1.0, cutmix=1.0), num_classes=2, seed=0)
    whole = [len(torch.unique(mixer(images, torch.arange(2), step=step)[0])) == 1 for step in range(30)]
    assert 5 < sum(whole) < 25


def test_erasing_is_a_function_of_the_place_in_the_batch() -> None:
    images = torch.zeros(8, 3, 32, 32)
    erased = erase(images.clone(), 0.5, seed=1, step=2, first=0, batch_size=8)
    part = erase(images[4:].clone(), 0.5, seed=1, step=2, first=4, batch_size=8)
    assert torch.equal(erased[4:], part)
    touched = (erased != 0).flatten(1).any(dim=1)
    assert 0 < touched.sum() < 8
    box = (erased[touched][0, 0] != 0).float()
    assert 0.02 < float(box.mean()) < 0.4


def test_erased_boxes_have_the_areas_and_shapes_of_their_source() -> None:
    state = torch.get_rng_state()
    erased = erase(torch.zeros(3000, 3, 48, 64), 0.25, seed=1, step=0, first=0, batch_size=3000)
    assert torch.equal(torch.get_rng_state(), state)
    boxes = []
    for image in erased:
        rows, columns = torch.nonzero(image[0], as_tuple=True)
        if len(rows):
            boxes.append([int(places.max() - places.min()) + 1 for places in (rows, columns)])
            assert len(rows) == boxes[-1][0] * boxes[-1][1]
    assert abs(len(boxes) - 750) < 120
    heights, widths = torch.tensor(boxes, dtype=torch.float64).T
    areas, aspects = heights * widths / (48 * 64), (heights / widths).log() / math.log(1 / 0.3)
    assert 0.015 < areas.min() < 0.03
    assert 0.31 < areas.max() < 0.345
    assert abs(float((areas < (0.02 + 1 / 3) / 2).double().mean()) - 0.5) < 0.1  # a few tall ones do not fit
    assert -1.1 < aspects.min() < -0.9
    assert 0.85 < aspects.max() < 1.1
    noise = erased[erased != 0]
    assert abs(float(noise.mean())) < 0.01
    assert abs(float(noise.std()) - 1) < 0.01


@every_case("size", [(1, 1), (1, 9), (2, 3)])
def test_erasing_leaves_an_image_that_no_box_fits_in(size: tuple[int, int]) -> None:
    erased = erase(torch.zeros(40, 3, *size), 1.0, seed=0, step=0, first=0, batch_size=40)
    assert not (erased != 0).flatten(1).all(dim=1).any()


def stream(text: str) -> int:
    """Return the seed that a text of seed, purpose and counters stands for, on any machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


@every_case("share", [0.3, 1.0])
def test_each_image_is_erased_from_a_stream_of_its_own(share: float) -> None:
    images = torch.zeros(12, 3, 20, 24)
    erased = erase(images.clone(), share, seed=7, step=5, first=-1, batch_size=11)
    for row in range(12):
        rng = np.random.Generator(np.random.Philox(stream(f"7/erasing/5/{(row - 1) % 11}")))
        expected = np.zeros((3, 20, 24), dtype=np.float32)
        if rng.random() < share:
            for _ in range(10):  # timm's RandomErasing: ten attempts, a box strictly smaller than the image
                area = 480 * rng.uniform(0.02, 1 / 3)
                aspect = math.exp(rng.uniform(math.log(0.3), math.log(1 / 0.3)))
                height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
                if height < 20 and width < 24:
                    top, left = int(rng.integers(21 - height)), int(rng.integers(25 - width))
                    noise = rng.standard_normal((3, height, width), dtype=np.float32)
                    expected[:, top : top + height, left : left + width] = noise
                    break
        np.testing.assert_array_equal(erased[row].numpy(), expected)


@every_case("size", [(2, 2), (3, 3), (2, 9), (9, 2)])
def test_no_box_is_as_high_or_as_wide_as_the_image(size: tuple[int, int]) -> None:
    erased = erase(torch.zeros(300, 3, *size), 1.0, seed=0, step=0, first=0, batch_size=300)[:, 0] != 0
    assert erased.any()
    assert not erased.all(dim=1).any()
    assert not erased.all(dim=2).any()


def test_a_batch_is_mixed_from_the_stream_of_its_step() -> None:
    images, labels = torch.randn(5, 3, 4, 4), torch.arange(5)
    mixed, _ = Mixer(MixingSettings(mixup=0.8), num_classes=5, seed=7)(images, labels, step=3)
    state = torch.get_rng_state()
    torch.manual_seed(stream("7/mixing/3"))
    torch.randint(1, ())
    share = float(torch.distributions.Beta(0.8, 0.8).sample())
    torch.set_rng_state(state)
    expected = [images[1:] * one + images[:-1] * (1 - one) for one in (share, 1 - share)]
    assert any(torch.allclose(mixed, each, atol=1e-5) for each in expected)


def test_mixing_leaves_torchs_own_generator_alone() -> None:
    images = torch.randn(5, 3, 4, 4)
    before = torch.get_rng_state()
    Mixer(MixingSettings(mixup=0.8), num_classes=5, seed=7)(images, torch.arange(5), step=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_images_are_mixed_where_either_kind_is_asked_for() -> None:
    assert [mixes(MixingSettings(**told)) for told in ({}, {"mixup": 0.1}, {"cutmix": 0.1})] == [False, True, True]
