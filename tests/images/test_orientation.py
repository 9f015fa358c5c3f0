"""However a file states its orientation, it is read the way up that Pillow's exif_transpose gives, whatever decodes it."""

import io
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from tests.cases import every_case
from vitral.classifier.inputs import list_images
from vitral.data.open import open_data
from vitral.events import ignore
from vitral.images.decode import read_image

LOSSY = 12
ORIENTATION = 0x0112
# The left half is red, the right one blue, and the upper left corner green, so that every orientation is another image.
PIXELS = np.zeros((32, 64, 3), np.uint8)
PIXELS[:, :32, 0] = PIXELS[:, 32:, 2] = 255
PIXELS[:16, :16] = (0, 255, 0)
HALVES = Image.fromarray(PIXELS)
# EXIF that states the orientation as the text "6", which no reader takes for a number.
TEXT = b"Exif\0\0" + b"II*\0" + struct.pack("<IHHHI4sI", 8, 1, ORIENTATION, 2, 2, b"6\0\0\0", 0)


def xmp(stated: str) -> bytes:
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        f'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/"{stated}</rdf:RDF></x:xmpmeta>'
    ).encode()


def as_attribute(orientation: int) -> bytes:
    return xmp(f' tiff:Orientation="{orientation}"/>')


def as_element(orientation: int) -> bytes:
    return xmp(f"><tiff:Orientation>{orientation}</tiff:Orientation></rdf:Description>")


def exif(value: object, tag: int = ORIENTATION) -> bytes:
    stating = Image.Exif()
    stating[tag] = value
    return stating.tobytes()


EXACT: dict[str, dict[str, object]] = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True}}


def saved(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **EXACT.get(kind, {}), **options)
    return buffer.getvalue()


def segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content


def before(data: bytes, *segments: bytes) -> bytes:
    """A JPEG with further segments at its beginning."""
    return data[:2] + b"".join(segments) + data[2:]


def stated() -> Iterator[tuple[str, bytes]]:
    for orientation in range(1, 9):
        yield f"XMP attribute {orientation}", saved(HALVES, xmp=as_attribute(orientation))
        yield f"XMP element {orientation}", saved(HALVES, xmp=as_element(orientation))
    profile = segment(0xE2, b"ICC_PROFILE\0\1\2" + bytes(65_000))
    jpeg, six = saved(HALVES), segment(0xE1, exif(6))
    yield "EXIF behind 64 KB", before(jpeg, profile, six)
    yield "EXIF behind 1 MB", before(jpeg, *[profile] * 16, six)
    yield "XMP behind 64 KB", before(jpeg, profile, segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + as_attribute(8)))
    yield "EXIF and XMP differ", saved(HALVES, exif=exif(6), xmp=as_attribute(3))
    yield "EXIF without, XMP with", saved(HALVES, exif=exif("a camera", 0x010F), xmp=as_attribute(5))
    yield "EXIF that is damaged, XMP", saved(HALVES, exif=b"Exif\0\0MM\0", xmp=as_attribute(6))
    yield "EXIF in two segments", before(jpeg, segment(0xE1, exif(6)[:20]), segment(0xE1, b"Exif\0\0" + exif(6)[20:]))
    yield (
        "two XMP, the last holds",
        before(jpeg, *(segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + as_attribute(turn)) for turn in (6, 3))),
    )
    yield "EXIF of text", saved(HALVES, exif=TEXT)
    yield "EXIF of none", saved(HALVES, exif=exif(0), xmp=as_attribute(6))
    yield "XMP of nine", saved(HALVES, xmp=as_attribute(9))
    yield "XMP for the pixels only", saved(HALVES, xmp=xmp(' exif:Orientation="6"/>'))
    yield "a comment with EXIF's name", before(jpeg, segment(0xFE, b"Exif\0\0" + exif(6)))
    for mode in ("L", "CMYK"):
        yield f"{mode} JPEG", saved(HALVES.convert(mode), xmp=as_attribute(6))
    yield "progressive", saved(HALVES, xmp=as_attribute(6), progressive=True)
    yield "WebP", saved(HALVES, "WEBP", xmp=as_attribute(6))
    described = PngInfo()
    described.add_itxt("XML:com.adobe.xmp", as_attribute(6).decode())
    yield "PNG", saved(HALVES, "PNG", pnginfo=described)


STATED = list(stated())


@every_case(("name", "data"), STATED, ids=[name for name, _ in STATED])
def test_every_way_to_state_an_orientation_is_read_as_pillow_reads_it(name: str, data: bytes) -> None:
    with Image.open(io.BytesIO(data)) as image:
        right = np.asarray(ImageOps.exif_transpose(image).convert("RGB"), np.int16)
    pixels = read_image(data)
    assert pixels.shape == right.shape, name
    assert np.abs(pixels - right).max() <= LOSSY, name


def test_the_table_turns_images() -> None:
    shapes = [read_image(data).shape[:2] for _, data in STATED]
    assert shapes.count((64, 32)) > 15


@pytest.fixture
def doors(tmp_path: Path) -> dict[str, str]:
    """The same two images, turned by XMP alone, as class folders, an archive, a table with the bytes, and shards."""
    data = {f"{name}/{number}.jpg": saved(HALVES, xmp=as_attribute(6)) for name in ("a", "b") for number in range(2)}
    for name, content in data.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for name, content in data.items():
            archive.writestr(name, content)
    rows = {
        "image": [{"bytes": content, "path": name} for name, content in data.items()],
        "label": [name[0] for name in data],
    }
    pq.write_table(pa.table(rows), tmp_path / "photos.parquet")
    (tmp_path / "shards").mkdir()
    with tarfile.open(tmp_path / "shards" / "train-000.tar", "w") as shard:
        for number, (name, content) in enumerate(data.items()):
            for suffix, text in (("jpg", content), ("txt", name[0].encode())):
                member = tarfile.TarInfo(f"{number:03}.{suffix}")
                member.size = len(text)
                shard.addfile(member, io.BytesIO(text))
    names = ("folder", "photos.zip", "photos.parquet", "shards")
    return {name: str(tmp_path / name) for name in names}


def test_every_door_turns_an_image_by_its_xmp(doors: dict[str, str]) -> None:
    for name, spec in doors.items():
        split = open_data(spec, listener=ignore).splits["train"]
        assert split.image(0).shape == (64, 32, 3), name
        assert split.image(0, lambda height, width: 2 if (height, width) == (64, 32) else 1).shape == (32, 16, 3), name
        assert {image.read().shape for image in list_images(spec, ignore)} == {(64, 32, 3)}, name
        assert {image.fetch()().shape for image in list_images(spec, ignore) if image.fetch} == {(64, 32, 3)}, name
