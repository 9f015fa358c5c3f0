"""Squash, crop, pad and native aspect side by side: what each shows the network, and how it is compared."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral.classifier.classifier import Classifier
from vitral.data.generated import open_digits
from vitral.data.source import Source
from vitral.data.subset import Redrawn, Subset
from vitral.errors import DataError
from vitral.evaluation.aspects import SHAPES, Padding, aspects
from vitral.events import ignore
from vitral.images.decode import Pixels, Shrink
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig

NAMES = ("red", "green", "blue")


class Wide(Subset):
    """Images of one plain colour, of 10 to 30 pixels."""

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        return np.full((10, 30, 3), (200, 100, 50), dtype=np.uint8)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Write wide and tall images whose edges, which a crop cuts off, show their class."""
    for split in ("train", "val"):
        for channel, name in enumerate(NAMES):
            (tmp_path / "photos" / split / name).mkdir(parents=True)
            for index in range(4):
                height, width = ((16, 32), (32, 16), (16, 16), (24, 32))[index]
                pixels = np.full((height, width, 3), 60, dtype=np.uint8)
                pixels[: height // 8, :, channel] = pixels[:, : width // 8, channel] = 255
                pixels[-(height // 8) :, :, channel] = pixels[:, -(width // 8) :, channel] = 255
                Image.fromarray(pixels).save(tmp_path / "photos" / split / name / f"{index}.png")
    return tmp_path / "photos"


def test_padding_shows_the_whole_image_in_the_middle() -> None:
    source: Source = Wide(open_digits().splits["test"], [0])
    padded = Redrawn(source, Padding(1.0, (1, 2, 3))).image(0)
    assert padded.shape == (30, 30, 3)
    assert (padded[10:20] == (200, 100, 50)).all()
    assert (padded[:10] == (1, 2, 3)).all()
    assert (padded[20:] == (1, 2, 3)).all()
    assert Redrawn(source, Padding(1 / 3, (1, 2, 3))).image(0).shape == (10, 30, 3)
    assert Redrawn(source, Padding(1 / 6, (1, 2, 3))).image(0).shape == (10, 60, 3)


def test_the_four_ways_are_compared_on_validation_images(photos: Path, tiny_config: ViTConfig) -> None:
    model = build(tiny_config, seed=0)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    for resize in ("squash", "crop"):
        classifier = Classifier(model, Preprocessing(image_size=(16, 16), resize=resize), NAMES)
        found = aspects(classifier, photos, listener=ignore)
        assert [way.name for way in found.ways] == ["squash", "crop", "pad", "native aspect"]
        assert [way.name for way in found.ways if way.own] == [resize]
        own = next(way for way in found.ways if way.own)
        scored = vitral.evaluate(classifier, photos, split="validation", listener=ignore)
        assert own.accuracy == scored.headline()
        assert own.p_value == 1.0
        assert found.images == 12
        assert not found.skipped
        assert classifier.model.image_size == (16, 16), "the classifier stays as it was"
        assert resize in found.lines()[0]


@pytest.mark.parametrize("packed", [True, False])
def test_each_image_meets_a_network_of_about_its_shape(
    photos: Path, tiny_config: ViTConfig, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    sizes: list[tuple[int, int]] = []
    config = tiny_config if packed else dataclasses.replace(tiny_config, position_at="layers")
    classifier = Classifier(build(config, seed=0), Preprocessing(image_size=(16, 16)), NAMES)
    whole = type(classifier.model).resize

    def resize(self: object, size: tuple[int, int]) -> None:
        sizes.append(size)
        whole(self, size)  # type: ignore[arg-type]

    monkeypatch.setattr(type(classifier.model), "resize", resize)
    aspects(classifier, photos, listener=ignore)
    assert sorted(sizes) == [(12, 20), (12, 24), (16, 16), (24, 12)]  # of patches of 4 pixels
    assert min(SHAPES) == 1 / max(SHAPES)


def test_a_network_of_one_size_goes_without_its_native_aspect(photos: Path, tiny_config: ViTConfig) -> None:
    config = dataclasses.replace(tiny_config, position="relative")
    found = aspects(
        Classifier(build(config, seed=0), Preprocessing(image_size=(16, 16)), NAMES), photos, listener=ignore
    )
    assert [way.name for way in found.ways] == ["squash", "crop", "pad"]
    assert found.skipped[0].startswith("Without native aspect: ")
    assert found.skipped[0] in found.lines()


def test_without_validation_images_nothing_is_compared(photos: Path, tiny_config: ViTConfig) -> None:
    classifier = Classifier(build(tiny_config, seed=0), Preprocessing(image_size=(16, 16)), NAMES)
    with pytest.raises(DataError, match="no split 'validation'"):
        aspects(classifier, photos / "val", listener=ignore)
