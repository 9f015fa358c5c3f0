"""16-bit images: the bits that a dataset's values use decide what is white, and a classifier keeps them."""

import io
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from vitral.checks.check_data import check_data
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.inputs import to_pixels
from vitral.classifier.load import load
from vitral.data.open import open_data
from vitral.errors import VitralError
from vitral.events import ignore
from vitral.images.decode import read_image
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig

ORIENTATION = 0x0112
FLOORED = 1.5  # levels: values are rounded to whole numbers, then down to 8 bits
RAMP = np.linspace(0, 1, 24 * 40).reshape(24, 40)


def grey(bits: int, share: float = 1.0) -> np.ndarray:
    """A ramp from black to a share of the greatest value of so many bits."""
    return np.rint(RAMP * share * ((1 << bits) - 1)).astype(np.uint16)


def png(values: np.ndarray, **options: object) -> bytes:
    """A 16-bit PNG as OpenCV writes it; of colours the values are red, green, blue and, if there is one, alpha."""
    order = values if values.ndim == 2 else values[..., [2, 1, 0, *range(3, values.shape[2])]]
    encoded = cv2.imencode(".png", order)[1].tobytes()
    if not options:
        return encoded
    buffer = io.BytesIO()
    Image.open(io.BytesIO(encoded)).save(buffer, "PNG", **options)
    return buffer.getvalue()


def grey_and_alpha(values: np.ndarray, alpha: np.ndarray) -> bytes:
    """A 16-bit PNG of grey and alpha, chunk by chunk, since no library here writes one."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    rows = np.stack([values, alpha], axis=2).astype(">u2")
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, 4, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def off(pixels: np.ndarray, shares: np.ndarray) -> float:
    """By how many levels pixels differ from shares of white, at most."""
    right = 255 * (shares if shares.ndim == 3 else np.repeat(shares[..., None], 3, axis=2))
    assert pixels.shape == right.shape
    return float(np.abs(np.asarray(pixels) - right).max())


@every_case("bits", (8, 10, 12, 14, 16))
def test_an_image_alone_is_white_where_its_own_depth_ends(bits: int) -> None:
    values = grey(bits)
    colours = np.stack([values, values[::-1], values // 2], axis=2)
    opaque = np.full_like(values, 65535)
    for data, shares in (
        (png(values), RAMP),
        (png(colours), colours / ((1 << bits) - 1)),
        (png(np.dstack([colours, opaque])), colours / ((1 << bits) - 1)),
        (grey_and_alpha(values, opaque), RAMP),
    ):
        assert off(read_image(data), shares) <= FLOORED
        with Image.open(io.BytesIO(data)) as image:
            if image.mode.startswith("I"):
                assert np.array_equal(to_pixels(image), read_image(data))


def test_values_of_all_16_bits_are_read_as_before() -> None:
    values = grey(16)
    assert np.array_equal(read_image(png(values))[..., 0], values // 257)
    colours = np.stack([values, values[::-1], values // 2], axis=2)
    with Image.open(io.BytesIO(png(colours))) as image:
        assert np.array_equal(read_image(png(colours)), np.asarray(image))  # Pillow cuts the lower 8 bits off
    dark = grey(12)
    assert np.array_equal(read_image(png(dark), bits=16)[..., 0], dark // 257)


def test_transparency_and_orientation_hold_for_deep_colours() -> None:
    values, alpha = grey(12), np.full((24, 40), 65535, np.uint16)
    alpha[:, 20:] = 0
    turned = Image.Exif()
    turned[ORIENTATION] = 6
    shares = np.where(alpha == 0, 1.0, RAMP)
    assert off(read_image(grey_and_alpha(values, alpha)), shares) <= FLOORED
    upright = np.rot90(values, -1)
    rgb = np.stack([values] * 3, axis=2)
    # An EXIF chunk before the pixels of OpenCV's file, which Pillow could not write in 16 bits.
    exif = turned.tobytes()[6:]
    chunk = struct.pack(">I", len(exif)) + b"eXIf" + exif + struct.pack(">I", zlib.crc32(b"eXIf" + exif))
    for data in (png(rgb), png(values)):
        assert off(read_image(data[:33] + chunk + data[33:]), upright / 4095) <= FLOORED


@pytest.fixture
def xrays(tmp_path: Path) -> Path:
    """Two classes of 12-bit X-rays; single images of the darker one use 10 bits, or 11."""
    for number, name in enumerate(("normal", "opaque")):
        (tmp_path / "xray" / name).mkdir(parents=True)
        for index in range(12):
            level = 400 + 1600 * number + 30 * index
            values = np.random.default_rng(100 * number + index).normal(level, 100, (32, 32))
            (tmp_path / "xray" / name / f"{index}.png").write_bytes(png(np.clip(values, 0, 4095).astype(np.uint16)))
    return tmp_path / "xray"


def test_one_depth_holds_for_all_images_of_a_dataset(xrays: Path) -> None:
    data = open_data(xrays, listener=ignore)
    assert data.bits == 12
    assert any("12 bits" in note and "4,095" in note for note in data.notes)
    for source in data.splits.values():
        for index in range(len(source)):
            path = Path(source.describe(index))
            stored = np.asarray(Image.open(path), np.float64)
            assert off(source.image(index), stored / 4095) <= FLOORED, path
    found = check_data(xrays, listener=ignore)
    assert found.suspicious == ()
    assert 0.25 < found.mean[0] < 0.5


def test_a_classifier_keeps_the_depth_and_applies_it_to_every_image(tmp_path: Path, tiny_config: ViTConfig) -> None:
    twelve, as_read = Preprocessing(image_size=(16, 16), bits=12), Preprocessing(image_size=(16, 16))
    save(Classifier(build(tiny_config), twelve, ("a", "b", "c")), tmp_path / "classifier")
    loaded = load(tmp_path / "classifier", listener=ignore)
    assert loaded.preprocessing == twelve
    dark = grey(10)
    right = np.repeat((dark.astype(np.uint32) * 255 // 4095).astype(np.uint8)[..., None], 3, axis=2)
    (tmp_path / "dark.png").write_bytes(png(dark))
    found = loaded.predict(
        [tmp_path / "dark.png", Image.open(tmp_path / "dark.png"), png(dark), right], listener=ignore
    )
    assert len({prediction.top for prediction in found}) == 1
    assert np.array_equal(twelve(read_image(png(dark), bits=10)), as_read(right))
    beyond = Preprocessing(image_size=(16, 16), bits=10)(read_image(png(grey(12)), bits=12))
    assert beyond.max() == 1.0  # what is brighter than its white is white


def test_earlier_classifiers_read_all_16_bits() -> None:
    described = Preprocessing().to_json()
    assert Preprocessing.from_json(described).bits is None
    del described["bits"]
    assert Preprocessing.from_json(described).bits == 16
    for wrong in (11, 0, 12.5, "12", True):
        with pytest.raises(VitralError):
            Preprocessing.from_json({**described, "bits": wrong})
