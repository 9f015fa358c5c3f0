from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.filters import EDGES, NUM_FILTERS, REACHES, filtered
from vitral.models.dense.ridge import RidgeHeadConfig
from vitral.models.families import build, config_from_json, config_to_json
from vitral.models.pixels import PixelsConfig
from vitral.models.resnet import ResNetConfig

GROUPS = 10  # the channel of grey beside the threshold, in units of the distance between dark and bright


def _config(**changes: int | bool) -> DenseConfig:
    return DenseConfig(
        backbone=PixelsConfig(image_size=(48, 64)),
        head=RidgeHeadConfig(**changes),  # type: ignore[arg-type]
        num_classes=3,
        image_size=(48, 64),
    )


def test_the_threshold_in_the_bank_is_otsus() -> None:
    rng = np.random.default_rng(0)
    grey = np.where(rng.random((64, 64)) < 0.3, rng.normal(170, 12, (64, 64)), rng.normal(80, 12, (64, 64)))
    photo = grey.clip(0, 255).astype(np.uint8)
    bright = cv2.threshold(photo, 0, 1, cv2.THRESH_BINARY | cv2.THRESH_OTSU)[1]
    image = torch.from_numpy(photo).float().div(255).expand(1, 3, 64, 64)
    ours = filtered(image, 1)[0, 7].numpy() > 0
    assert (ours == bright).mean() > 0.999


def test_filters_know_how_many_they_are_at_every_size_and_stride() -> None:
    for stride, rows, columns in ((1, 8, 9), (2, 33, 64), (4, 252, 16)):
        maps = filtered(torch.randn(2, 3, rows, columns), stride)
        assert maps.shape == (2, NUM_FILTERS, rows // stride, columns // stride)
        assert maps.isfinite().all()


def test_grey_filters_do_not_see_how_bright_or_contrasty_an_image_is() -> None:
    image = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 3
    even = slice(6, 7)
    torch.testing.assert_close(filtered(image, 1)[:, even], filtered(4 * image + 7, 1)[:, even], atol=0.05, rtol=0.05)


def test_an_even_image_has_finite_filters() -> None:
    assert filtered(torch.full((1, 3, 32, 32), 0.5), 2).isfinite().all()


def test_it_answers_at_its_stride_with_rims_and_ground_besides_where_it_tells_objects_apart() -> None:
    images = torch.randn(2, 3, 48, 64)
    assert build(_config())(images).shape == (2, 3, 24, 32)
    assert build(_config(stride=4, objects=True))(images).shape == (2, 5, 12, 16)


def test_an_answer_of_one_image_does_not_depend_on_the_others() -> None:
    model, images = build(_config()), torch.randn(3, 3, 48, 64)
    torch.nn.init.normal_(model.head.classifier.weight)  # type: ignore[arg-type, union-attr]
    torch.testing.assert_close(model(images)[1:2], model(images[1:2]))


def test_its_config_comes_back_from_json() -> None:
    config = _config(directions=4, width=8, objects=True)
    assert config_from_json(config_to_json(config)) == config


def test_it_sees_a_backbones_maps() -> None:
    backbone = ResNetConfig(stages=(1, 1), bottleneck=False, image_size=(48, 64))
    config = DenseConfig(backbone=backbone, head=RidgeHeadConfig(directions=4), num_classes=2, image_size=(48, 64))
    model, image = build(config), torch.randn(1, 3, 48, 64)
    known = model.head.known(model.backbone, image)  # type: ignore[operator]
    assert known.shape == (1, NUM_FILTERS + 4, 24, 32)
    with torch.no_grad():
        model.head.project.weight.zero_()  # type: ignore[operator, union-attr]
        model.head.project.bias.fill_(2.0)  # type: ignore[operator, union-attr]
    assert (model.head.known(model.backbone, image)[:, NUM_FILTERS:] == 2.0).all()  # type: ignore[operator]


def test_impossible_numbers_are_refused() -> None:
    for wrong in ({"directions": -1}, {"width": -1}, {"stride": 0}):
        with pytest.raises(ModelError, match="closed form"):
            RidgeHeadConfig(**wrong)  # type: ignore[arg-type]


@every_case(("stride", "squares"), [(1, 14), (2, 11), (4, 8)])
def test_every_reach_has_its_maps_and_no_square_is_summed_twice(
    stride: int, squares: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums, pool = [], functional.avg_pool2d

    def counting(values: torch.Tensor, side: Any, **named: Any) -> torch.Tensor:  # noqa: ANN401
        sums.append(side)
        return pool(values, side, **named)

    image = torch.randn(1, 3, 96, 120, generator=torch.Generator().manual_seed(3))
    monkeypatch.setattr(functional, "avg_pool2d", counting)
    maps = filtered(image, stride)[0].numpy()
    assert len(sums) == 2 * squares + (stride > 1)  # down and across each, and the colours
    even, maps = maps[6], maps[17:]

    def mean(values: np.ndarray, side: int) -> np.ndarray:
        return cv2.blur(values, (side, side), borderType=cv2.BORDER_REPLICATE)

    for place, reach in enumerate(REACHES):
        side = max(3, reach // stride | 1)
        own = mean(even, side)
        spread = np.sqrt((mean(even * even, side) - own * own).clip(0))
        for ours, theirs in zip(maps[3 * place : 3 * place + 3], (own, spread, even - own), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-3)
    for place, reach in enumerate(EDGES):
        smooth = mean(even, max(3, reach // stride | 1)) if reach > 1 else even
        padded = np.pad(smooth, 1, mode="edge")
        across, down = padded[1:-1, 2:] - padded[1:-1, :-2], padded[2:, 1:-1] - padded[:-2, 1:-1]
        ours = maps[3 * len(REACHES) + 2 * place :][:2]
        np.testing.assert_allclose(ours[0], np.sqrt(across**2 + down**2 + 1e-6), atol=2e-3)
        np.testing.assert_allclose(ours[1], mean(smooth, 3) - smooth, atol=2e-3)
