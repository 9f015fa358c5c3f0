"""Every kind of valid image is read correctly (R15), and every bad one gives one line that names it (R14)."""

import io
import os
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from tests.conftest import Record
from vitral.errors import ImageError
from vitral.images.decode import Shrink, count_scans, read_image

FORMATS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "PPM": "ppm"}
GREY = np.linspace(0, 255, 48 * 32).reshape(48, 32).astype(np.uint8)
COLOUR = np.stack([GREY, GREY[::-1], np.full_like(GREY, 90)], axis=2)
LOSSY = 12  # levels that a chroma-subsampled JPEG of a smooth image may be off


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def composite(colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    share = alpha[..., None].astype(np.float64) / 255
    return np.rint(colour * share + 255 * (1 - share)).astype(np.uint8)


def valid() -> Iterator[tuple[str, bytes, np.ndarray, int]]:
    """Name, bytes, the expected RGB pixels, and by how many levels a value may differ."""
    rgb, grey = Image.fromarray(COLOUR), Image.fromarray(GREY)
    grey3 = np.repeat(GREY[:, :, None], 3, axis=2)
    for kind in ("PNG", "BMP", "PPM", "TIFF"):
        yield f"{kind} RGB", encode(rgb, kind), COLOUR, 0
        yield f"{kind} grey", encode(grey, kind), grey3, 0
    yield "WebP lossless", encode(rgb, "WEBP", lossless=True), COLOUR, 0
    for quality in (95, 100):
        for subsampling in (0, 1, 2):
            for progressive in (False, True):
                data = encode(rgb, "JPEG", quality=quality, subsampling=subsampling, progressive=progressive)
                yield f"JPEG {quality} {subsampling} {progressive}", data, COLOUR, LOSSY
        yield f"JPEG grey {quality}", encode(grey, "JPEG", quality=quality), grey3, LOSSY
        yield f"WebP {quality}", encode(rgb, "WEBP", quality=quality), COLOUR, 2 * LOSSY
    alpha = GREY[:, ::-1]
    rgba = Image.fromarray(np.dstack([COLOUR, alpha]))
    for kind, options in (("PNG", {}), ("WEBP", {"lossless": True, "exact": True})):
        yield f"{kind} RGBA", encode(rgba, kind, **options), composite(COLOUR, alpha), 1
    yield "PNG LA", encode(Image.fromarray(np.dstack([GREY, alpha])), "PNG"), composite(grey3, alpha), 1
    palette = rgb.quantize(16)
    flat = np.array(palette.convert("RGB"))
    for kind in ("PNG", "GIF", "BMP", "TIFF"):
        yield f"{kind} palette", encode(palette, kind), flat, 0
    transparent = flat.copy()
    transparent[np.array(palette) == 3] = 255
    for kind in ("PNG", "GIF"):
        yield f"{kind} palette transparent", encode(palette, kind, transparency=3), transparent, 0
    clear = grey3.copy()
    clear[GREY == 7] = 255
    yield "PNG grey transparent", encode(grey, "PNG", transparency=7), clear, 0
    one = Image.fromarray(GREY > 127)
    for kind in ("PNG", "BMP", "PPM", "TIFF"):
        yield f"{kind} 1 bit", encode(one, kind), np.where(grey3 > 127, 255, 0).astype(np.uint8), 0
    deep = Image.fromarray(GREY.astype(np.uint16) * 257)
    for kind in ("PNG", "PPM"):
        yield f"{kind} 16 bit", encode(deep, kind), grey3, 0
    yield "PPM 10 bit", b"P6 32 48 1023 " + (COLOUR.astype(int) * 1023 // 255).astype(">u2").tobytes(), COLOUR, 1
    yield "PPM plain", b"P3 32 48 # a note\n255 " + " ".join(map(str, COLOUR.ravel())).encode(), COLOUR, 0
    cmyk = rgb.convert("CMYK")
    yield "JPEG CMYK", encode(cmyk, "JPEG", quality=100, subsampling=0), np.array(cmyk.convert("RGB")), LOSSY
    other = Image.fromarray(255 - COLOUR)
    for kind, options in (("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {})):
        data = encode(rgb, kind, save_all=True, append_images=[other], duration=50, **options)
        with Image.open(io.BytesIO(data)) as first:
            expected = np.array(first.convert("RGB"))
        yield f"{kind} animated", data, expected, 0
    for side in ((1, 1), (1, 200), (200, 1)):
        yield f"PNG {side}", encode(rgb.resize(side), "PNG"), np.array(rgb.resize(side)), 0
    yield "PNG with profile", encode(rgb, "PNG", icc_profile=b"not a profile"), COLOUR, 0
    yield "JPEG with broken EXIF", encode(rgb, "JPEG", quality=100, exif=b"Exif\x00\x00MM\x00"), COLOUR, LOSSY
    turned = {
        1: COLOUR,
        2: COLOUR[:, ::-1],
        3: COLOUR[::-1, ::-1],
        4: COLOUR[::-1],
        5: COLOUR.transpose(1, 0, 2),
        6: COLOUR.transpose(1, 0, 2)[:, ::-1],
        7: COLOUR.transpose(1, 0, 2)[::-1, ::-1],
        8: COLOUR.transpose(1, 0, 2)[::-1],
    }
    for orientation, upright in turned.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        jpeg = encode(rgb, "JPEG", exif=exif, quality=100, subsampling=0)
        yield f"JPEG turned {orientation}", jpeg, upright, LOSSY
        yield f"PNG turned {orientation}", encode(rgb, "PNG", exif=exif), upright, 0
        yield f"WebP turned {orientation}", encode(rgb, "WEBP", exif=exif, lossless=True), upright, 0


VALID = list(valid())


@pytest.mark.requirement(id="R15")
def test_there_are_sixty_kinds(record_counts: Record) -> None:
    assert len(VALID) >= 60
    record_counts("R15", {"kinds of valid images": len(VALID)})


@pytest.mark.requirement(id="R15")
@every_case(("name", "data", "expected", "off"), VALID, ids=[case[0] for case in VALID])
def test_a_valid_image_is_read_right(name: str, data: bytes, expected: np.ndarray, off: int, tmp_path: Path) -> None:
    path = tmp_path / "image.txt"  # the extension says nothing
    path.write_bytes(data)
    pixels = read_image(path)
    assert pixels.shape == expected.shape
    assert pixels.dtype == np.uint8
    assert int(np.abs(pixels.astype(int) - expected).max()) <= off
    assert np.array_equal(read_image(data), pixels)
    with open(path, "rb") as file:
        assert np.array_equal(read_image(file), pixels)


def png_header(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = b""
    for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")):
        chunks += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return b"\x89PNG\r\n\x1a\n" + chunks


def other_formats() -> Iterator[tuple[str, bytes]]:
    rgb = Image.fromarray(COLOUR)
    yield "empty", b""
    yield "html", b"<!doctype html><title>not found</title>"
    yield "svg", b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"
    yield "eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    yield "psd", b"8BPS\x00\x01" + b"\0" * 60
    for kind in ("PCX", "TGA", "ICO", "PDF"):
        yield kind, encode(rgb.resize((16, 16)), kind)
    for side in (65_535, 30_000, 8_000):
        yield f"bomb {side}", png_header(side, side)
    yield "zero sides", png_header(0, 0)
    text = zlib.compress(b"a" * (80 << 20))
    body = b"key\0\0" + text
    chunk = struct.pack(">I", len(body)) + b"zTXt" + body + struct.pack(">I", zlib.crc32(b"zTXt" + body))
    yield "text bomb", encode(rgb, "PNG")[:33] + chunk + encode(rgb, "PNG")[33:]


def malformed(count: int) -> Iterator[tuple[str, bytes]]:
    yield from other_formats()
    rng = np.random.default_rng(7)
    whole = {kind: encode(Image.fromarray(COLOUR), kind) for kind in FORMATS}
    for number in range(count):
        kind = list(FORMATS)[number // 2 % len(FORMATS)]
        data = bytearray(whole[kind])
        if number % 2:
            del data[int(rng.integers(1, len(data) - 2)) :]
        else:
            for place in rng.integers(0, len(data), 8):
                data[place] = int(rng.integers(0, 256))
        yield f"{kind} {number}", bytes(data)


def check_malformed(folder: Path, count: int) -> dict[str, int]:
    refused = read = 0
    for name, data in malformed(count):
        path = folder / f"{name}.jpg"
        path.write_bytes(data)
        began = time.process_time()
        try:
            assert read_image(path).ndim == 3
            read += 1
        except ImageError as error:
            refused += 1
            assert str(path) in str(error), name  # noqa: PT017  # some damage leaves a whole image
            assert "\n" not in str(error)  # noqa: PT017
        assert time.process_time() - began < 2, name  # whatever else the machine does
    return {"malformed": refused + read, "refused": refused, "read all the same": read}


@pytest.mark.requirement(id="R14")
def test_300_malformed_images(tmp_path: Path) -> None:
    counts = check_malformed(tmp_path, 300)
    assert counts["refused"] > 150


@pytest.mark.requirement(id="R14")
@pytest.mark.slow
def test_1000_malformed_images(tmp_path: Path, record_counts: Record) -> None:
    record_counts("R14", check_malformed(tmp_path, 1000))


@every_case("name", [name for name, _ in other_formats()])
def test_what_is_not_an_image_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(dict(other_formats())[name])
    with pytest.raises(ImageError, match="x.jpg"):
        read_image(path)


@every_case("kind", FORMATS)
def test_a_cut_image_is_refused(kind: str, tmp_path: Path) -> None:
    data = encode(Image.fromarray(COLOUR), kind)
    for share in (0.2, 0.5, 0.8):
        path = tmp_path / "cut.jpg"
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ImageError, match="cut.jpg"):
            read_image(path)


@every_case("shrink", (None, lambda height, width: 2))
def test_a_jpeg_that_lacks_its_last_marker_alone_is_whole(shrink: Shrink | None) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 40, 3), np.uint8))
    data = encode(image, "JPEG", quality=95)
    assert np.array_equal(read_image(data[:-2], shrink=shrink), read_image(data, shrink=shrink))
    for cut in (data[:-3], data[:-4], encode(image, "JPEG", progressive=True)[:-2]):
        with pytest.raises(ImageError, match="cut short"):
            read_image(cut, shrink=shrink)


def test_folders_pipes_and_missing_files_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    for name, why in (
        ("pipe.jpg", "not a regular file"),
        ("folder.jpg", "a folder"),
        ("missing.jpg", "No such file"),
        ("a\0b", "null"),
    ):
        with pytest.raises(ImageError, match=why):
            read_image(tmp_path / name)


def test_the_pixel_limit_is_the_callers(tmp_path: Path) -> None:
    data = encode(Image.fromarray(COLOUR), "PNG")
    with pytest.raises(ImageError, match=r"32x48 pixels, more than the limit of 1,000.*max_pixels=1536"):
        read_image(data, max_pixels=1000)
    assert read_image(data, max_pixels=1536).shape == (48, 32, 3)


PHOTO = np.asarray(Image.fromarray(COLOUR).resize((301, 201), Image.Resampling.BICUBIC))


@every_case("mode", ("RGB", "L", "CMYK"))
@every_case("progressive", (False, True))
@every_case("orientation", (1, 6))
def test_a_jpeg_beyond_the_limit_is_read_at_half_its_sides(mode: str, progressive: bool, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(PHOTO).convert(mode)
    data = encode(image, "JPEG", quality=95, progressive=progressive, exif=exif)
    upright = np.rot90(PHOTO, -1) if orientation == 6 else PHOTO
    half = image.resize((151, 101), Image.Resampling.BOX).convert("RGB")
    sides: list[tuple[int, int]] = []

    def shrink(height: int, width: int) -> int:
        sides.append((height, width))
        return 1

    pixels = read_image(data, max_pixels=55_000 if progressive else 301 * 201 // 4 + 1, shrink=shrink)
    right = np.rot90(np.asarray(half), -1) if orientation == 6 else np.asarray(half)
    assert pixels.shape == right.shape
    assert np.abs(pixels.astype(int) - right).mean() <= 3
    assert sides == [upright.shape[:2]]
    assert read_image(data, max_pixels=301 * 201).shape == upright.shape
    with pytest.raises(ImageError, match=r"301x201 pixels, more than the limit of 15,000"):
        read_image(data, max_pixels=15_000)


def test_a_photo_of_61_megapixels_is_read(tmp_path: Path) -> None:
    path = tmp_path / "61.jpg"
    Image.new("RGB", (9504, 6336), (90, 120, 150)).save(path, quality=50)
    assert read_image(path).shape == (3168, 4752, 3)
    assert read_image(path, shrink=lambda height, width: 8).shape == (792, 1188, 3)


def test_the_environment_sets_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(Image.fromarray(COLOUR), "PNG")
    monkeypatch.setenv("VITRAL_MAX_PIXELS", "1000")
    with pytest.raises(ImageError, match="more than the limit of 1,000"):
        read_image(data)
    monkeypatch.setenv("VITRAL_MAX_PIXELS", "1536")
    assert read_image(data).shape == (48, 32, 3)
    for wrong in ("0", "-5", "1e6", "many", "५"):
        monkeypatch.setenv("VITRAL_MAX_PIXELS", wrong)
        with pytest.raises(ImageError, match="VITRAL_MAX_PIXELS"):
            read_image(data)


def scan_bomb(side: int, copies: int) -> bytes:
    """A progressive JPEG whose last scan is repeated: a few bytes each, and work for every pixel."""
    whole = encode(Image.new("RGB", (side, side), (90, 120, 150)), "JPEG", progressive=True)
    last = whole[whole.rfind(b"\xff\xda") : -2]
    return whole[:-2] + copies * last + whole[-2:]


@pytest.mark.requirement(id="R14")
@pytest.mark.parametrize("as_bytes", [True, False])
def test_a_bomb_of_scans_is_refused_at_once(tmp_path: Path, as_bytes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(*given: object, **more: object) -> NoReturn:
        pytest.fail("it was decoded, which takes 20 s")

    path = tmp_path / "bomb.jpg"
    path.write_bytes(scan_bomb(2000, 5000))
    for decode in ("PIL.ImageFile.ImageFile.load", "simplejpeg.decode_jpeg"):
        monkeypatch.setattr(decode, decoded)
    with pytest.raises(ImageError, match=r"has 5,010 scans"):
        read_image(path.read_bytes() if as_bytes else path)


def test_scans_are_counted_and_usual_ones_read() -> None:
    assert count_scans(encode(Image.fromarray(COLOUR), "JPEG")) == 1
    progressive = encode(Image.fromarray(COLOUR), "JPEG", progressive=True)
    assert count_scans(progressive) == 10
    assert read_image(scan_bomb(100, 200)).shape == (100, 100, 3)
    # A thumbnail's scan within a segment is not the image's.
    segment = b"\xff\xe1" + (2 + len(progressive)).to_bytes(2, "big") + progressive
    assert count_scans(progressive[:2] + segment + progressive[2:]) == 10
