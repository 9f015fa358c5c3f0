"""Archives whose names are in the encoding of the computer that made them."""

import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.written import encode
from vitral.data.archive_names import decode_names
from vitral.data.image_stream import list_unlabelled
from vitral.data.open import open_data
from vitral.errors import DataError

EACH = 6
CAT_DOG = ("\u732b", "\u72ac")  # in Japanese
ANIMALS = ("\uace0\uc591\uc774", "\uac15\uc544\uc9c0", "\ud1a0\ub07c", "\ud584\uc2a4\ud130")  # in Korean
HEALTH = ("\u5065\u5eb7", "\u9ed1\u6591\u75c5", "\u9508\u75c5")  # in Chinese
PETS = ("\u043a\u043e\u0448\u043a\u0430", "\u0441\u043e\u0431\u0430\u043a\u0430")  # in Russian
SIZES = ("Gr\u00f6\u00dfe", "\u00c4pfel")  # in German


def zipped(root: Path, names: Sequence[bytes], extra: Callable[[bytes], bytes] = lambda name: b"") -> Path:
    """Write a zip file with names as they are, without the flag of UTF-8."""
    stand_in = {name: f"{'@' * (len(name) - 1)}{place}" for place, name in enumerate(names)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for label, name in enumerate(names):
            for number in range(EACH):
                info = zipfile.ZipInfo(f"{stand_in[name]}/{number}.png")
                info.extra = extra(name + f"/{number}.png".encode())
                archive.writestr(info, encode(label, number))
    content = buffer.getvalue()
    for name in names:
        content = content.replace(f"{stand_in[name]}/".encode(), name + b"/")
    (root / "photos.zip").write_bytes(content)
    return root / "photos.zip"


def tarred(root: Path, names: Sequence[bytes]) -> Path:
    with tarfile.open(root / "photos.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        for label, name in enumerate(names):
            for number in range(EACH):
                info = tarfile.TarInfo(f"{name.decode('latin-1')}/{number}.png")
                content = encode(label, number)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return root / "photos.tar"


PACKED = [zipped, tarred]
KNOWN = [
    (CAT_DOG, "shift_jis"),
    (("\u306d\u3053", "\u3044\u306c"), "cp932"),
    (("\u30c8\u30de\u30c8_1", "\u8868\u9762"), "cp932"),  # the second has a byte that is a backslash
    (ANIMALS, "cp949"),
    (HEALTH, "gbk"),
    (("\u5065\u5eb7", "\u8449\u6591\u75c5"), "big5"),
    (PETS, "cp866"),
    (PETS, "cp1251"),
    (SIZES, "cp437"),
    (SIZES, "cp850"),
    (SIZES, "cp1252"),
    (("p\u00e3o", "ma\u00e7\u00e3"), "cp850"),
]


@every_case(("names", "encoding"), KNOWN, ids=ascii)
@every_case("pack", PACKED, ids=lambda pack: pack.__name__)
def test_folders_in_another_encoding_are_named_as_on_their_computer(
    tmp_path: Path, pack: Callable[..., Path], names: Sequence[str], encoding: str
) -> None:
    path = pack(tmp_path, [name.encode(encoding) for name in names])
    data = open_data(path)
    assert set(data.class_names) == set(names)
    said = "\n".join(data.notes)
    assert all(name in said for name in names)
    for source in data.splits.values():
        for index in range(len(source)):
            label = source.label(index)
            assert isinstance(label, int)
            name = data.class_names[label]
            assert source.encoded(index) == encode(names.index(name), int(Path(source.describe(index)).stem))
    assert len(list_unlabelled(str(path))) == EACH * len(names)


@every_case("pack", PACKED, ids=lambda pack: pack.__name__)
def test_utf_8_without_a_flag_needs_no_note(tmp_path: Path, pack: Callable[..., Path]) -> None:
    data = open_data(pack(tmp_path, [name.encode() for name in (*CAT_DOG, SIZES[0])]))
    assert set(data.class_names) == {*CAT_DOG, SIZES[0]}
    assert "encoded" not in "\n".join(data.notes)


@every_case(("names", "encoding"), [(("\u732b", "\u72d7"), "gbk"), (ANIMALS[:1], "cp949")], ids=ascii)
def test_names_that_fit_several_encodings_are_refused_with_what_fits(
    tmp_path: Path, names: Sequence[str], encoding: str
) -> None:
    path = zipped(tmp_path, [*(name.encode(encoding) for name in names), b"ascii"])
    with pytest.raises(DataError, match=r"--metadata-encoding ENCODING -e photos.zip FOLDER") as error:
        open_data(path)
    assert all(name in str(error.value) for name in (*names, encoding))
    with zipfile.ZipFile(path, metadata_encoding=encoding) as archive:  # what the advice does
        archive.extractall(tmp_path / "unpacked")
    assert set(open_data(tmp_path / "unpacked").class_names) == {*names, "ascii"}
    assert len(list_unlabelled(str(path))) == EACH * (len(names) + 1)


def test_the_field_of_unicode_paths_names_the_folders(tmp_path: Path) -> None:
    real = dict(zip((b"1?", b"2?"), CAT_DOG, strict=True))

    def field(name: bytes) -> bytes:
        folder, _, rest = name.partition(b"/")
        path = f"{real[folder]}/{rest.decode()}".encode()
        stand_in = b"\x94L/" + rest if folder == b"1?" else b"\x8c\xa2/" + rest
        return struct.pack("<HHBL", 0x7075, len(path) + 5, 1, zlib.crc32(stand_in)) + path

    path = zipped(tmp_path, list(real), extra=field)
    path.write_bytes(path.read_bytes().replace(b"1?/", b"\x94L/").replace(b"2?/", b"\x8c\xa2/"))
    data = open_data(path)
    assert set(data.class_names) == set(CAT_DOG)
    assert "encoded" not in "\n".join(data.notes)


def test_names_of_files_alone_change_nothing(tmp_path: Path) -> None:
    path = zipped(tmp_path, [b"cat", b"dog"])
    path.write_bytes(path.read_bytes().replace(b"cat/0.png", b"cat/\x81.png"))
    data = open_data(path)
    assert data.class_names == ("cat", "dog")
    assert sum(map(len, data.splits.values())) == 2 * EACH


def test_bytes_of_no_encoding_have_no_reading() -> None:
    names = decode_names([b"\xff\xff\x81"])
    assert names.encoding is None
    assert not names.readings
