"""Training views: crops by their rules, policies on their scale, and a scaled decoder that shows the same picture."""

import functools
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.images.augment import Augmentation, augment, resized_box, training_view
from vitral.images.decode import Pixels, Shrink, read_image


def photo(height: int = 900, width: int = 1200) -> Image.Image:
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )


def jpeg(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=92, **options)
    return buffer.getvalue()


def reader(content: bytes) -> functools.partial[Pixels]:
    def read(content: bytes, shrink: Shrink | None) -> Pixels:
        return read_image(content, shrink=shrink)

    return functools.partial(read, content)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_the_direct_decoder_gives_pillows_pixels(orientation: int, mode: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = jpeg(photo(90, 120).convert(mode), exif=exif)
    with Image.open(io.BytesIO(content)) as image:
        from vitral.images.decode import to_rgb

        expected = to_rgb(image)
    assert np.array_equal(read_image(content), expected)


@pytest.mark.parametrize("orientation", [1, 6, 8])
@pytest.mark.parametrize("crop", ["inception", "resized"])
def test_a_scaled_decoder_shows_the_same_view(orientation: int, crop: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = jpeg(photo(), exif=exif)
    full = Augmentation(crop=crop, min_area=0.3)  # type: ignore[arg-type]
    for seed in range(10):
        views = [
            training_view(reader(content), how, size=(64, 64), rng=np.random.default_rng(seed)).float()
            for how in (full, replace(full, decode="scaled"))
        ]
        assert float((views[0] - views[1]).abs().mean()) < 12.0


def test_a_scaled_decoder_decodes_less() -> None:
    seen: list[tuple[int, ...]] = []

    def read(shrink: Shrink | None) -> Pixels:
        pixels = read_image(jpeg(photo()), shrink=shrink)
        seen.append(pixels.shape)
        return pixels

    training_view(read, Augmentation(min_area=0.9, decode="scaled"), size=(64, 64), rng=np.random.default_rng(0))
    assert seen[0][0] <= 900 / 8 + 1


def test_resized_boxes_have_even_areas_and_shapes() -> None:
    rng = np.random.default_rng(0)
    boxes = np.array([resized_box((300, 400), 0.08, rng) for _ in range(4000)])
    areas, aspects = boxes[:, 2] * boxes[:, 3] / 120_000, boxes[:, 3] / boxes[:, 2]
    assert (boxes[:, 0] + boxes[:, 2] <= 300).all()
    assert (boxes[:, 1] + boxes[:, 3] <= 400).all()
    assert 0.74 < aspects.min() < aspects.max() < 1.36
    assert abs(np.log(aspects).mean()) < 0.06  # the picture is wider than high
    assert np.histogram(areas, bins=4, range=(0.08, 0.9))[0].min() > 400
    assert resized_box((10, 1000), 0.9, rng)[2:] == (10, 13)


@pytest.mark.parametrize("crop", ["inception", "resized", "square", "padded", "none"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "random"])
@pytest.mark.parametrize("size", [(24, 24), (33, 20)])
def test_every_crop_gives_the_size(crop: str, interpolation: str, size: tuple[int, int]) -> None:
    how = Augmentation(crop=crop, interpolation=interpolation)  # type: ignore[arg-type]
    for shape in ((50, 70), (24, 24), (5, 90)):
        image = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
        views = [augment(image, how, size=size, rng=np.random.default_rng(seed)) for seed in (3, 3, 4)]
        assert views[0].shape == (3, *size)
        assert torch.equal(views[0], views[1])


def test_flips_and_jitter_are_as_often_as_said() -> None:
    image = np.zeros((8, 8, 3), dtype=np.uint8)
    image[:, :4] = 255
    views = [
        augment(image, Augmentation(crop="none"), size=(8, 8), rng=np.random.default_rng(seed)) for seed in range(400)
    ]
    flipped = sum(int(view[0, 0, 0]) == 0 for view in views)
    assert 160 < flipped < 240
