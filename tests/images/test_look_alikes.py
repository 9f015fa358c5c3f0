"""Near duplicates: ordinary changes of a photo are found, and different things of one outline are told apart."""

import io
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter
from sklearn.datasets import load_sample_images

from tests.cases import every_case
from vitral.images.decode import read_image
from vitral.images.look_alikes import Links, Look, look_alikes, look_at_image, near_pairs, small


def photos() -> list[Image.Image]:
    """Twelve different photos: parts of two."""
    return [
        Image.fromarray(whole[top : top + 180, left : left + 190])
        for whole in load_sample_images().images
        for top, left in itertools.product((0, 240), (0, 220, 440))
    ]


def look(image: Image.Image, format: str = "PNG", **options: Any) -> Look | None:  # noqa: ANN401
    """Look at an image as it is stored."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return look_at_image(read_image(file.getvalue(), shrink=small))


def scaled(image: Image.Image, factor: float) -> Image.Image:
    return image.resize((round(image.width * factor), round(image.height * factor)), Image.Resampling.BICUBIC)


CHANGES: dict[str, Callable[[Image.Image], Look | None]] = {
    "smaller": lambda image: look(scaled(image, 0.4)),
    "larger": lambda image: look(scaled(image, 4.0), format="JPEG"),  # decoded smaller again
    "recompressed": lambda image: look(image, format="JPEG", quality=35),
    "brighter": lambda image: look(ImageEnhance.Brightness(image).enhance(1.15)),
    "darker": lambda image: look(ImageEnhance.Brightness(image).enhance(0.7)),
    "less contrast": lambda image: look(ImageEnhance.Contrast(image).enhance(0.8)),
    "slightly cropped": lambda image: look(image.crop((2, 2, image.width - 2, image.height - 1))),
    "cropped": lambda image: look(image.crop((6, 5, image.width - 5, image.height - 5))),
    "out of focus": lambda image: look(image.filter(ImageFilter.GaussianBlur(1))),
    "WebP": lambda image: look(image, format="WEBP", quality=60),
}


def test_changed_copies_look_alike_and_different_photos_do_not() -> None:
    originals = [look(image) for image in photos()]
    assert len(set(look_alikes(originals))) == len(originals)
    for change in CHANGES.values():
        numbers = look_alikes([*originals, *(change(image) for image in photos())])
        found = sum(one == other for one, other in zip(numbers, numbers[len(originals) :], strict=False))
        assert found >= len(originals) - 1
        assert len(set(numbers)) >= len(originals)


def test_copies_that_exif_turns_look_alike() -> None:
    image = photos()[0]
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    turned = look(image.transpose(Image.Transpose.ROTATE_90), format="JPEG", exif=exif, quality=90)
    assert len(set(look_alikes([look(image), turned]))) == 1


def coin(seed: int, face: tuple[int, int, int] = (140, 84, 44)) -> Image.Image:
    """A coin beside another on an unevenly lit table: the same outline, another faint face."""
    light = np.add.outer(np.arange(160) ** 2 // 500, np.arange(160) // 3)[..., None]
    image = Image.fromarray((np.array([120, 108, 90]) + light).astype(np.uint8))
    ImageDraw.Draw(image).ellipse((118, -40, 210, 52), fill=(230, 225, 200))
    ImageDraw.Draw(image).ellipse((20, 26, 130, 136), fill=face, outline=(60, 30, 10), width=4)
    within = Image.new("L", (160, 160))
    ImageDraw.Draw(within).ellipse((26, 32, 124, 130), fill=255)
    relief = scaled(Image.fromarray(np.random.default_rng(seed).integers(0, 60, (20, 20), dtype=np.uint8)), 8)
    shaded = np.asarray(image).astype(int) + np.asarray(relief).astype(int)[..., None] - 30
    return Image.composite(Image.fromarray(np.clip(shaded, 0, 255).astype(np.uint8)), image, within)


def test_different_things_of_one_outline_are_told_apart() -> None:
    coins = [look(coin(seed)) for seed in range(30)]
    codes = np.array([each.code for each in coins if each is not None], dtype=np.uint64)
    assert sum(map(len, near_pairs(codes, 4))) > 20  # by the hash alone they are the same
    assert len(set(look_alikes(coins))) == len(coins)
    again = look(ImageEnhance.Brightness(coin(3)).enhance(0.85), format="JPEG", quality=70)
    assert look_alikes([*coins, again])[-1] == 3


def test_one_thing_in_two_colours_is_two_things() -> None:
    red, green = coin(1, (190, 50, 40)), coin(1, (40, 122, 60))  # equally bright
    one, other = look(red), look(green)
    assert one is not None
    assert other is not None
    assert bin(one.code ^ other.code).count("1") <= 4
    assert look_alikes([one, other]) == [0, 1]


def test_plain_images_look_like_no_other() -> None:
    plain = [look(Image.new("RGB", (64, 64), (grey, grey, grey))) for grey in (9, 9, 200)]
    assert plain == [None] * 3
    assert look_alikes(plain) == [0, 1, 2]
    assert look_alikes([]) == []


@every_case("distance", [0, 4, 8])
def test_near_pairs_are_all_pairs_within_the_distance_once(distance: int) -> None:
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 1 << 63, 60, dtype=np.uint64)
    for place in range(1, 60, 3):
        flips = rng.choice(64, size=int(rng.integers(0, 12)), replace=False)
        hashes[place] = hashes[place - 1] ^ np.bitwise_xor.reduce(
            np.uint64(1) << flips.astype(np.uint64), initial=np.uint64(0)
        )
    expected = sorted(
        (one, other)
        for one, other in itertools.combinations(range(60), 2)
        if bin(int(hashes[one] ^ hashes[other])).count("1") <= distance
    )
    assert sorted(tuple(pair) for pairs in near_pairs(hashes, distance) for pair in pairs.tolist()) == expected
    assert len(expected) > distance / 2


def test_links_are_found_however_indirect() -> None:
    links = Links(6)
    links.join(4, 2)
    links.join_equal([(5, "a"), (4, "a"), (1, "b")])
    assert links.roots() == [0, 1, 2, 3, 2, 2]
