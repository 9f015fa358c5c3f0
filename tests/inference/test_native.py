"""Images at their native aspect ratio in one sequence: the logits of the network at each image's size, one by one."""

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from tests.cases import every_case
from tests.models.test_contract import CONFIGS, VIT, make
from vitral.classifier import folder
from vitral.classifier.classifier import Classifier
from vitral.cli.main import main
from vitral.errors import ModelError
from vitral.events import ignore
from vitral.images.preprocessing import PHOTOS, Preprocessing
from vitral.inference import native
from vitral.inference.native import NativeAspect
from vitral.models.families import build
from vitral.models.model import Model
from vitral.models.vit import ViT

KNOW_PLACES = ("rotary", "pooled-norm", "positions-in-layers")


def sized(*sizes: tuple[int, int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, *size, generator=generator) for size in sizes]


def one_by_one(model: Model, images: list[torch.Tensor]) -> torch.Tensor:
    """Return each image's logits, of the network resized to it."""
    rows = []
    for image in images:
        own = copy.deepcopy(model).eval()
        own.resize((image.shape[1], image.shape[2]))
        with torch.no_grad():
            rows.append(own(image[None]))
    return torch.cat(rows)


def able() -> list[str]:
    found = []
    for name in CONFIGS:
        try:
            NativeAspect(make(name))
        except ModelError:
            continue
        found.append(name)
    return found


@every_case("name", able())
def test_logits_are_those_of_one_by_one(name: str) -> None:
    model = make(name)
    step = model.config.size_step
    images = sized(
        *((step * rows, step * columns) for rows, columns in [(4, 4), (2, 6), (5, 3), (1, 9), (4, 4), (3, 5)])
    )
    torch.testing.assert_close(NativeAspect(model).logits(images), one_by_one(model, images), rtol=1e-4, atol=1e-5)


def test_every_kind_of_vision_transformer_is_among_them() -> None:
    found = set(able())
    assert {
        "hybrid",
        "distilled",
        "deit3",
        "dinov2-registers",
        "dinov2-classifier",
        "clip",
        "whitened-steps",
        "neighbours",
    } <= found
    assert not found & {*KNOW_PLACES, "experts", "t2t", "cvt", "resnet-basic"}


@every_case("pooling", ["token", "gap", "map", "token-gap"])
@every_case("position", ["learned", "learned-2d", "sincos-2d", "relative-2d", "none"])
def test_whatever_the_pooling_and_the_positions(pooling: str, position: str) -> None:
    changes: dict[str, Any] = {"pooling": pooling, "position": position}
    config = dataclasses.replace(VIT, num_classes=5, **changes)
    model = build(config, seed=0)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    images = sized((32, 32), (16, 64), (24, 40))
    torch.testing.assert_close(NativeAspect(model).logits(images), one_by_one(model, images), rtol=1e-4, atol=1e-5)


def test_an_image_does_not_see_its_neighbours() -> None:
    model = NativeAspect(make("hybrid"))
    step = model.model.config.size_step
    images = sized((step, 3 * step), (2 * step, 2 * step), (4 * step, step))
    before = model.logits(images)
    images[1] = images[1] * 5 + 1
    after = model.logits(images)
    torch.testing.assert_close(before[[0, 2]], after[[0, 2]])
    assert float((before[1] - after[1]).abs().max()) > 1e-4


def test_sequences_hold_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("distilled")
    lengths: list[int] = []
    transform = ViT.transform

    def noted(self: ViT, z: object, **given: object) -> object:
        lengths.append(z.tokens.shape[1])  # type: ignore[attr-defined]
        return transform(self, z, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(ViT, "transform", noted)
    monkeypatch.setattr(native, "LONGEST", 2)
    packing = NativeAspect(model)
    images = sized(*[(32, 32)] * 5)
    packing.logits(images)
    one = 16 + 2
    assert lengths == [2 * one, 2 * one, one]
    lengths.clear()
    packing.logits(sized((32, 128)))  # one that is too long for a sequence has one of its own
    assert lengths == [64 + 2]


def test_a_change_of_the_weights_is_seen() -> None:
    model = make("distilled")
    packing = NativeAspect(model)
    images = sized((16, 64), (64, 16))
    before = packing.logits(images)
    with torch.no_grad():
        positions = model.get_parameter("position.embedding")
        positions.add_(torch.randn(positions.shape))
    after = packing.logits(images)
    assert float((before - after).abs().max()) > 1e-4
    torch.testing.assert_close(after, one_by_one(model, images), rtol=1e-4, atol=1e-5)


@every_case(("height", "width"), [(100, 100), (50, 200), (300, 100), (7, 7), (1, 1000), (1000, 1), (640, 480)])
def test_images_keep_their_shape_and_about_the_networks_pixels(height: int, width: int) -> None:
    packing = NativeAspect(build(dataclasses.replace(VIT, image_size=(128, 128)), seed=0))
    preprocessing = Preprocessing(image_size=(128, 128), resize="crop", crop_fraction=0.9)
    prepared = packing.prepare(np.zeros((height, width, 3), np.uint8), preprocessing)
    _, rows, columns = prepared.shape
    assert rows % 8 == columns % 8 == 0
    assert rows * columns == pytest.approx(128 * 128, rel=0.3)
    shape = min(16.0, max(1 / 16, height / width))
    assert rows / columns == pytest.approx(shape, rel=0.3)


def test_a_whole_image_is_seen_undistorted() -> None:
    packing = NativeAspect(build(dataclasses.replace(VIT, image_size=(64, 64)), seed=0))
    pixels = np.zeros((64, 256, 3), np.uint8)
    pixels[:, :16] = pixels[:, -16:] = 255  # what a crop of the middle would leave out
    prepared = packing.prepare(pixels, PHOTOS.with_size(64))
    assert tuple(prepared.shape) == (3, 32, 128)
    assert float(prepared[:, :, :6].min()) > 0.9
    assert float(prepared[:, :, -6:].min()) > 0.9
    assert float(prepared[:, :, 20:-20].max()) < -0.9


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for index, (height, width) in enumerate([(40, 40), (20, 80), (90, 30), (40, 64), (33, 47)]):
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{index}.png")
    return tmp_path / "photos"


def test_predict_takes_images_of_all_shapes_at_once(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make("distilled")
    classifier = Classifier(model, PHOTOS.with_size(model.image_size), ("a", "b", "c"))
    packing = NativeAspect(model)
    found = classifier.predict(photos, native_aspect=True, batch_size=3, listener=ignore)
    for one in found:
        pixels = np.array(Image.open(one.source).convert("RGB"))
        alone = one_by_one(model, [packing.prepare(pixels, classifier.preprocessing)]).softmax(dim=1)[0]
        assert one.probability == pytest.approx(float(alone.max()), abs=1e-5)
    plain = classifier.predict(photos, listener=ignore)
    assert [one.probability for one in plain] != pytest.approx([one.probability for one in found], abs=1e-5)
    path = folder.save(classifier, tmp_path / "saved")
    assert main(["predict", str(photos), "--classifier", str(path), "--native-aspect"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(found)


def test_what_cannot_is_refused(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resnet = make("resnet-basic")
    path = folder.save(Classifier(resnet, PHOTOS.with_size(resnet.image_size)), tmp_path / "saved")
    asked = ["predict", str(photos), "--classifier", str(path), "--native-aspect"]
    assert main(asked) == 1
    assert "takes images of one shape only: it is no Vision Transformer" in capsys.readouterr().err
    assert main([*asked, "--precision", "bf16"]) == 2
    assert "--native-aspect" in capsys.readouterr().err
    for name in KNOW_PLACES:
        with pytest.raises(ModelError, match="where each token lies"):
            NativeAspect(make(name))
    with pytest.raises(ModelError, match="one shape only"):
        vitral.load(path, listener=ignore).predict(photos, native_aspect=True, listener=ignore)
