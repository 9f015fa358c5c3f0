"""TIFF as microscopes, satellites, scanners and editors write it: read right in every part, or refused in one line."""

import io
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from tests.cases import every_case
from vitral.checks.check_data import check_data
from vitral.classifier.inputs import list_images
from vitral.data.open import open_data
from vitral.errors import ImageError
from vitral.events import ignore
from vitral.images.decode import read_image, to_rgb
from vitral.images.header import is_deep, stored_size

ORIENTATION = 0x0112
GREY = np.linspace(0, 255, 24 * 40).reshape(24, 40).astype(np.uint8)
COLOUR = np.stack([GREY, GREY[::-1], GREY // 2], axis=2)
DNG_VERSION = 50706
PURPOSE = 254
SHORT = 3


def tiff(image: Image.Image, tags: Mapping[int, int | bytes] | None = None, **options: object) -> bytes:
    described = TiffImagePlugin.ImageFileDirectory_v2()
    for tag, value in (tags or {}).items():
        described[tag] = value
    buffer = io.BytesIO()
    image.save(buffer, "TIFF", tiffinfo=described, **options)
    return buffer.getvalue()


def deep_colours(values: np.ndarray, orientation: int, order: str) -> bytes:
    """A TIFF of 16 bits a value, tag by tag, since no library here writes one that is turned."""
    height, width, bands = values.shape
    pixels = values.astype(f"{order}u2").tobytes()
    tags = {
        256: width, 257: height, 258: None, 259: 1, 262: 2, 273: None, ORIENTATION: orientation, 277: bands, 278: height,
        279: len(pixels), **({338: 2} if bands == 4 else {}),
    }  # fmt: skip
    bits = 8 + 2 + 12 * len(tags) + 4
    written = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, len(tags))
    for tag, value in tags.items():
        kind, count = (4, 1) if tag in (273, 279) else (SHORT, bands if tag == 258 else 1)
        written += struct.pack(f"{order}HHI", tag, kind, count)
        value = {258: bits, 273: bits + 2 * bands}.get(tag, value)
        long = kind != SHORT or tag == 258
        written += struct.pack(f"{order}I", value) if long else struct.pack(f"{order}HH", value, 0)
    return written + struct.pack(f"{order}I{bands}H", 0, *[16] * bands) + pixels


@every_case("compression", [None, "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@every_case("mode", ["RGB", "L", "P", "CMYK", "RGBA"])
def test_usual_kinds_are_read_as_pillow_reads_them(mode: str, compression: str | None, tmp_path: Path) -> None:
    image = Image.fromarray(COLOUR).convert(mode)
    path = tmp_path / "photo.TIF"
    path.write_bytes(tiff(image, compression=compression))
    assert np.array_equal(read_image(path), np.asarray(image.convert("RGB")))
    assert not is_deep(path.read_bytes())


@every_case("orientation", range(1, 9))
def test_its_orientation_is_applied_once(orientation: int, tmp_path: Path) -> None:
    turns = {2: COLOUR[:, ::-1], 3: COLOUR[::-1, ::-1], 4: COLOUR[::-1], 5: COLOUR.transpose(1, 0, 2)}
    turns |= {6: np.rot90(COLOUR, -1), 7: np.rot90(COLOUR, 2).transpose(1, 0, 2), 8: np.rot90(COLOUR)}
    right = turns.get(orientation, COLOUR)
    data = tiff(Image.fromarray(COLOUR), {ORIENTATION: orientation})
    assert np.array_equal(read_image(data), right)
    assert stored_size(data) == ((24, 40), orientation)
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(to_rgb(image), right)
    for order in "<>":
        deep = deep_colours(COLOUR.astype(np.uint16) * 16, orientation, order)
        assert np.abs(read_image(deep).astype(int) - right).max() <= 1


def test_deep_values_are_white_where_their_depth_ends() -> None:
    twelve = GREY.astype(np.uint16) * 16 + 15
    grey, colours = tiff(Image.fromarray(twelve)), deep_colours(np.stack([twelve, twelve, twelve], axis=2), 1, "<")
    for data in (grey, colours):
        assert is_deep(data)
        assert np.abs(read_image(data)[..., 0].astype(int) - GREY).max() <= 1
        assert read_image(data, bits=16).max() == 15
    clear = np.dstack([twelve, twelve, twelve, np.where(np.arange(40) < 20, 0, 65535) + 0 * twelve])
    shown = read_image(deep_colours(clear, 1, "<"))
    assert (shown[:, :20] == 255).all()
    assert np.abs(shown[:, 20:, 0].astype(int) - GREY[:, 20:]).max() <= 1
    for values in (twelve.astype(np.int32), twelve.astype(np.float32)):
        assert np.array_equal(read_image(tiff(Image.fromarray(values))), read_image(grey))


@every_case(
    ("values", "said"),
    [
        (GREY.astype(np.float32) / 255, "from 0 to 1"),
        (GREY.astype(np.float32) * 1000, "from 0 to 255000"),
        (GREY.astype(np.int32) - 1024, "from -1024 to -769"),
        (np.where(GREY > 9, GREY, np.nan).astype(np.float32), "nan"),
    ],
    ids=["shares", "large", "negative", "nan"],
)
def test_numbers_that_are_no_levels_are_refused(values: np.ndarray, said: str, tmp_path: Path) -> None:
    path = tmp_path / "map.tif"
    path.write_bytes(tiff(Image.fromarray(values)))
    with pytest.raises(ImageError, match=rf"map\.tif.*{said}.*8 bits"):
        read_image(path)
    with pytest.raises(ImageError, match=f"The image.*{said}"):
        to_rgb(Image.fromarray(values))


def test_raw_files_and_other_kinds_are_named(tmp_path: Path) -> None:
    small = Image.fromarray(COLOUR)
    for name, tags in (("a.dng", {DNG_VERSION: b"\1\4\0\0"}), ("a.nef", {PURPOSE: 1})):
        (tmp_path / name).write_bytes(tiff(small, tags))
        with pytest.raises(ImageError, match=rf"{name}.*raw file"):
            read_image(tmp_path / name)
    negative = tiff(Image.fromarray(GREY.astype(np.uint16) * 16))
    meaning = struct.pack("<HHIH", 262, SHORT, 1, 1)
    assert negative.count(meaning) == 1
    (tmp_path / "film.tif").write_bytes(negative.replace(meaning, struct.pack("<HHIH", 262, SHORT, 1, 0)))
    with pytest.raises(ImageError, match=r"film\.tif.*0 is white"):
        read_image(tmp_path / "film.tif")
    (tmp_path / "bands.tif").write_bytes(deep_colours(np.zeros((4, 4, 13), np.uint16), 1, "<"))
    with pytest.raises(ImageError, match=r"bands\.tif.*a TIFF of a kind that is not read"):
        read_image(tmp_path / "bands.tif")
    (tmp_path / "cut.tif").write_bytes(tiff(small)[:-500])
    with pytest.raises(ImageError, match=r"cut\.tif"):
        read_image(tmp_path / "cut.tif")


def test_what_is_no_image_says_what_it_is(tmp_path: Path) -> None:
    for name, content, said in (
        ("pointer.jpg", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
        ("page.jpg", b"\n<!DOCTYPE html><html>", "is not a readable image: .*web page"),
    ):
        (tmp_path / name).write_bytes(content)
        for source in (tmp_path / name, content):
            with pytest.raises(ImageError, match=said):
                read_image(source)


def test_a_folder_of_them_is_data(tmp_path: Path) -> None:
    for number in range(12):
        path = tmp_path / "scans" / "ab"[number % 2] / f"{number}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        values = np.random.default_rng(number).integers(0, 4096, (36, 40)).astype(np.uint16)
        more = [Image.fromarray(values[::-1].copy())] if number == 3 else []
        path.write_bytes(tiff(Image.fromarray(values), save_all=True, append_images=more))
    data = open_data(tmp_path / "scans", listener=ignore)
    assert (data.class_names, data.bits) == (("a", "b"), 12)
    assert len(list_images(tmp_path / "scans", ignore)) == 12
    found = check_data(tmp_path / "scans", listener=ignore)
    assert [(Path(each.name).name, each.reason) for each in found.suspicious] == [
        ("3.tif", "several pages: only the first is used")
    ]
