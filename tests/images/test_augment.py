"""Training views: crops by their rules, policies on their scale, and a scaled decoder that shows the same image."""

import functools
import io
from collections import Counter
from dataclasses import replace

import numpy as np
import torch
from PIL import Image
from torchvision import transforms

from tests.cases import every_case
from tests.images.sources import augment
from vitral.images.augment import Augmentation, _padded, resized_box, training_view
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


@every_case("orientation", range(1, 9))
@every_case("mode", ["RGB", "L", "CMYK"])
def test_the_direct_decoder_gives_pillows_pixels(orientation: int, mode: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = jpeg(photo(90, 120).convert(mode), exif=exif)
    with Image.open(io.BytesIO(content)) as image:
        from vitral.images.decode import to_rgb

        expected = to_rgb(image)
    assert np.array_equal(read_image(content), expected)


@every_case("orientation", [1, 6, 8])
@every_case("crop", ["inception", "resized"])
def test_a_scaled_decoder_shows_the_same_view(orientation: int, crop: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = jpeg(photo(), exif=exif)
    full = Augmentation(crop=crop, min_area=0.3)  # type: ignore[arg-type]
    for seed in range(10):
        views = [
            training_view(reader(content), how, size=(64, 64), rng=np.random.default_rng(seed)).pixels.float()
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
    assert abs(np.log(aspects).mean()) < 0.06  # the image is wider than high
    assert np.histogram(areas, bins=4, range=(0.08, 0.9))[0].min() > 400
    assert resized_box((10, 1000), 0.9, rng)[2:] == (10, 13)


@every_case("crop", ["inception", "resized", "square", "padded", "none"])
@every_case("interpolation", ["bilinear", "bicubic", "random"])
@every_case("size", [(24, 24), (33, 20)])
def test_every_crop_gives_the_size(crop: str, interpolation: str, size: tuple[int, int]) -> None:
    how = Augmentation(crop=crop, interpolation=interpolation)  # type: ignore[arg-type]
    for shape in ((50, 70), (24, 24), (5, 90)):
        image = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
        views = [augment(image, how, size=size, rng=np.random.default_rng(seed)).pixels for seed in (3, 3, 4)]
        assert views[0].shape == (3, *size)
        assert torch.equal(views[0], views[1])


def windows(image: Image.Image, size: tuple[int, int]) -> Pixels:
    """Return every part of an image that has a size: (top, left, height, width, 3)."""
    return np.lib.stride_tricks.sliding_window_view(np.asarray(image), (*size, 3))[:, :, 0]


def places(how: Augmentation, image: Pixels, whole: list[Image.Image], draws: int) -> Counter[tuple[int, ...]]:
    """Return how often each part of what a source cuts its crops from was drawn; every view must be one of them."""
    counts: Counter[tuple[int, ...]] = Counter()
    parts = np.stack([windows(each, (32, 32)) for each in whole]).astype(int)
    for seed in range(draws):
        view = augment(image, how, size=(32, 32), rng=np.random.default_rng(seed)).pixels.permute(1, 2, 0).numpy()
        gaps = np.abs(parts[..., ::8, ::8, :] - view[::8, ::8]).max((-1, -2, -3))
        place = np.unravel_index(gaps.argmin(), gaps.shape)
        assert np.abs(parts[place] - view).max() <= 2
        counts[tuple(int(part) for part in place)] += 1
    return counts


@every_case("shape", [(41, 61), (64, 43), (20, 24)])
@every_case("border", ["reflect", "black"])
def test_the_padded_crop_is_torchvisions_simple_random_crop(shape: tuple[int, int], border: str) -> None:
    pixels = photo(*shape)
    how = Augmentation(crop="padded", padding=0.125, border=border, interpolation="bicubic", flip=False)  # type: ignore[arg-type]
    resized = transforms.Resize(32, transforms.InterpolationMode.BICUBIC)(pixels)
    mode = "reflect" if border == "reflect" else "constant"
    whole = transforms.Pad(4, padding_mode=mode)(resized)
    counts = places(how, np.asarray(pixels), [whole], 600)
    assert {place[1] for place in counts} == set(range(whole.height - 31))
    assert {place[2] for place in counts} == set(range(whole.width - 31))


def test_the_square_crop_is_bits() -> None:
    pixels = photo(50, 90)
    how = Augmentation(crop="square", margin=1.125, flip=False)
    resized = transforms.Resize((36, 36))(pixels)
    counts = places(how, np.asarray(pixels), [resized], 500)
    assert len(counts) == 25
    assert max(counts.values()) < 45


def test_a_random_interpolation_is_either_of_pillows_as_often() -> None:
    pixels = photo(50, 90)
    how = Augmentation(crop="square", margin=1.0, interpolation="random", flip=False)
    kinds = (transforms.InterpolationMode.BILINEAR, transforms.InterpolationMode.BICUBIC)
    counts = places(how, np.asarray(pixels), [transforms.Resize((32, 32), kind)(pixels) for kind in kinds], 200)
    assert len(counts) == 2
    assert min(counts.values()) > 70


@every_case("interpolation", ["bilinear", "bicubic"])
def test_the_resized_crop_is_pillows(interpolation: str) -> None:
    pixels = photo(150, 210)
    how = Augmentation(crop="resized", min_area=0.08, interpolation=interpolation, flip=False)  # type: ignore[arg-type]
    for seed in range(30):
        top, left, height, width = resized_box((150, 210), 0.08, np.random.default_rng(seed))
        theirs = pixels.crop((left, top, left + width, top + height)).resize(
            (32, 40), Image.Resampling[interpolation.upper()]
        )
        ours = augment(np.asarray(pixels), how, size=(40, 32), rng=np.random.default_rng(seed))
        assert np.abs(ours.pixels.permute(1, 2, 0).numpy().astype(int) - np.asarray(theirs)).max() <= 2


def test_a_padded_crop_of_a_single_row_stays_small() -> None:
    strip = np.zeros((1, 60_000, 3), dtype=np.uint8)
    how = Augmentation(crop="padded")
    assert augment(strip, how, size=(64, 64), rng=np.random.default_rng(0)).pixels.shape == (3, 64, 64)
    whole = _padded(strip, how, (64, 64), np.random.default_rng(0))[0].base
    assert whole is not None
    assert whole.nbytes < 1_000_000


def test_flips_and_jitter_are_as_often_as_said() -> None:
    image = np.zeros((8, 8, 3), dtype=np.uint8)
    image[:, :4] = 255
    views = [
        augment(image, Augmentation(crop="none"), size=(8, 8), rng=np.random.default_rng(seed)).pixels
        for seed in range(400)
    ]
    flipped = sum(int(view[0, 0, 0]) == 0 for view in views)
    assert 160 < flipped < 240


@every_case("crop", ["inception", "none"])
@every_case("mirrored", [True, False])
def test_where_flips_alternate_nothing_is_drawn(crop: str, mirrored: bool) -> None:
    image = np.zeros((8, 8, 3), dtype=np.uint8)
    image[:, :4] = 255
    how = Augmentation(crop=crop, min_area=1.0, flip="alternating")  # type: ignore[arg-type]
    for seed in range(8):
        rngs = [np.random.default_rng(seed) for _ in range(2)]
        views = [
            augment(image, how, size=(8, 8), rng=rngs[0], mirrored=mirrored),
            training_view(lambda _: image, how, size=(8, 8), rng=rngs[1], mirrored=mirrored),
        ]
        assert [int(view.pixels[0, 0, 0]) == 0 for view in views] == [mirrored] * 2


def test_a_decoded_view_is_mirrored_as_told_too() -> None:
    pixels = np.zeros((64, 128, 3), dtype=np.uint8)
    pixels[:, :64] = 255
    how = Augmentation(crop="inception", min_area=0.9, decode="scaled", flip="alternating")
    read = reader(jpeg(Image.fromarray(pixels)))
    for mirrored in (True, False):
        for seed in range(4):
            view = training_view(read, how, size=(8, 16), rng=np.random.default_rng(seed), mirrored=mirrored).pixels
            assert (int(view[0, 4, 1]) < int(view[0, 4, 14])) == mirrored
