"""unlabelled:SOURCE: images of whatever source and arrangement, and no label of any of them."""

import io
import shutil
import tarfile
import zipfile
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.cases import every_case
from tests.data.written import WRITERS, encode
from vitral.data.image_stream import list_unlabelled
from vitral.data.open import is_data_name, open_data, path_in, seen_from_here
from vitral.data.source import Source
from vitral.data.unlabelled import MOST_HELD_OUT
from vitral.errors import DataError, ImageError
from vitral.tasks.unlabelled import UNLABELLED


def pixels(source: Source) -> set[bytes]:
    return {source.image(index).tobytes() for index in range(len(source))}


def scattered(folder: Path, count: int = 20) -> Path:
    """Images in no order: beside each other, in folders, two levels down."""
    for number in range(count):
        below = (folder, folder / "holiday", folder / "2019" / "june")[number % 3]
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number}.png").write_bytes(encode(7, number))
    (folder / "notes.txt").write_text("no image")
    return folder


def test_what_is_no_photo_is_said_without_guessing(tmp_path: Path) -> None:
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    for spec, said in (
        (str(tmp_path / "gone.jpg"), "a link that leads nowhere"),
        ("data:image/jpeg;base64," + 5000 * "/9j/", r"'data:image/jpeg;base64,[^ ]{17}…' .* 20,023 characters.*bytes"),
        ("", "empty name"),
    ):
        (image,) = list_unlabelled(spec)
        with pytest.raises(ImageError, match=said):
            image.read()


def test_the_address_of_a_local_file_is_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a photo.png"
    path.write_bytes(encode(7, 0))
    assert [image.name for image in list_unlabelled(path.as_uri())] == [str(path)]
    assert [image.name for image in list_unlabelled(tmp_path.as_uri())] == [str(path)]


def described(spec: str, split: str = "train") -> set[str]:
    source = open_data(spec).splits[split]
    return {source.describe(index) for index in range(len(source))}


def test_a_folder_gives_all_its_images_wherever_they_are(tmp_path: Path) -> None:
    data = open_data(f"unlabelled:{scattered(tmp_path / 'album')}")
    assert (data.task, data.class_names, data.name) == (UNLABELLED, ("unlabelled",), "album")
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 18, "validation": 2}
    everything = {
        *described(f"unlabelled:{tmp_path / 'album'}"),
        *described(f"unlabelled:{tmp_path / 'album'}", "validation"),
    }
    assert everything == {str(path) for path in (tmp_path / "album").rglob("*.png")}
    assert all(data.splits["train"].label(index) is None for index in range(18))
    assert data.splits["train"].image(0).shape == (12, 16, 3)
    assert any("1 file " in note and "not named like images" in note for note in data.notes)
    assert any("10% of the images are held out" in note for note in data.notes)
    assert not any("test/" in note or "each class" in note for note in data.notes)


def test_a_test_folder_beside_a_training_folder_is_left_out(tmp_path: Path) -> None:
    for name in ("train/cat/1.png", "train/dog/2.png", "test/cat/3.png", "val/dog/4.png", "5.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(encode(1, len(name)))
    data = open_data(f"unlabelled:{tmp_path}")
    assert sum(map(len, data.splits.values())) == 4
    assert any("1 image in the test folder" in note for note in data.notes)
    shutil.rmtree(tmp_path / "train")
    assert sum(map(len, open_data(f"unlabelled:{tmp_path}").splits.values())) == 3  # then it is a folder like any other


FILES = ("zip", "tar", "tar.gz", "tar.bz2", "tar.xz")  # all their images count, however they are arranged


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("kind", sorted(WRITERS))
def test_any_source_without_its_labels(kind: str, tmp_path: Path) -> None:
    spec = str(WRITERS[kind](tmp_path))
    data, known = open_data(f"unlabelled:{spec}"), open_data(spec)
    assert data.task == UNLABELLED
    assert not {label for split in data.splits.values() for label in split.labels()} - {-1}
    seen = ("train", "validation", *(("test",) if kind in FILES else ()))
    inside = set().union(*map(pixels, data.splits.values()))
    assert inside == set().union(*(pixels(known.splits[name]) for name in seen))


def test_an_archive_of_scattered_images(tmp_path: Path) -> None:
    folder = scattered(tmp_path / "album")
    with zipfile.ZipFile(tmp_path / "album.zip", "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(tmp_path))
    data = open_data(f"unlabelled:{tmp_path / 'album.zip'}")
    assert sum(map(len, data.splits.values())) == 20
    assert data.name == "album"


def test_no_more_are_held_out_than_training_is_followed_by(tmp_path: Path) -> None:
    one = encode(1, 1)
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for number in range(21 * MOST_HELD_OUT // 2):
            archive.writestr(f"{number}.png", one if number % 2 else tiny(number))
    data = open_data(f"unlabelled:{tmp_path / 'many.zip'}", verify=False)
    assert len(data.splits["validation"]) <= MOST_HELD_OUT


def tiny(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((1, 1, 3), (number % 256, number // 256 % 256, number // 65536), np.uint8)).save(
        buffer, "BMP"
    )
    return buffer.getvalue()


def test_equal_images_stay_on_one_side(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.png").write_bytes(encode(1, number % 20))
    data = open_data(f"unlabelled:{tmp_path}")
    assert not pixels(data.splits["train"]) & pixels(data.splits["validation"])


def test_damaged_images_are_named_or_left_out(tmp_path: Path) -> None:
    scattered(tmp_path)
    (tmp_path / "holiday" / "broken.jpg").write_bytes(b"\xff\xd8\xff not a photo")
    with pytest.raises(ImageError, match=r"1 of 21 images cannot be read.*broken\.jpg"):
        open_data(f"unlabelled:{tmp_path}", skip_bad_images=False)
    data = open_data(f"unlabelled:{tmp_path}", skip_bad_images=True)
    assert [Path(bad.path).name for bad in data.bad_images] == ["broken.jpg"]
    assert sum(map(len, data.splits.values())) == 20


def test_a_share_of_them(tmp_path: Path) -> None:
    scattered(tmp_path, 200)
    half = open_data(f"part:50%:unlabelled:{tmp_path}")
    assert 60 < len(half.splits["train"]) < 120
    assert half.task == UNLABELLED


@every_case(
    ("spec", "said"),
    [
        ("unlabelled:", "does not say which images; write unlabelled:FOLDER"),
        ("unlabelled:nowhere", "no folder 'nowhere'"),
        ("unlabelled:digits", "'digits' is opened as it is; name it without 'unlabelled:'"),
        ("unlabelled:visualatom", "is opened as it is"),
        ("unlabelled:unlabelled:album", "is opened as it is"),
    ],
)
def test_what_is_refused(spec: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        open_data(spec)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DataError, match="no images|no classes"):
        open_data(f"unlabelled:{tmp_path}")


def test_nothing_can_be_scored_on_them(tmp_path: Path) -> None:
    scattered(tmp_path)
    with pytest.raises(DataError, match="has no labels, so nothing can be scored on it"):
        open_data(f"unlabelled:{tmp_path}", class_names=("cat", "dog"))


def test_the_name_holds_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scattered(tmp_path / "here" / "album")
    assert is_data_name("unlabelled:album")
    assert path_in("unlabelled:album") == "album"
    monkeypatch.chdir(tmp_path)
    assert seen_from_here("unlabelled:album", "here") == "unlabelled:here/album"
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    assert path_in("unlabelled:~/album") == str(tmp_path / "here" / "album")
    assert open_data("unlabelled:~/album").name == "album"


def without_a_column(folder: Path, kind: str) -> str:
    """Write twenty images, of which nothing says a class; return their name as data."""
    images = {f"{number}.png": encode(7, number) for number in range(20)}
    if kind in ("csv", "csv without names", "txt"):
        for name, content in images.items():
            (folder / name).write_bytes(content)
        table = folder / ("list.txt" if kind == "txt" else "photos.csv")
        table.write_text("\n".join([*(["path"] if kind == "csv" else []), *images]))
        return str(table)
    if kind.startswith("parquet"):
        for number, part in enumerate((list(images.values())[:9], list(images.values())[9:])):
            pq.write_table(pa.table({"image": part}), folder / f"part-{number}.parquet")
        return str(folder)
    if kind == "saved":
        rows = datasets.Dataset.from_dict({"image": list(images.values())})
        rows.cast_column("image", datasets.Image()).save_to_disk(str(folder / "saved"))
        return str(folder / "saved")
    for number in range(2):
        with tarfile.open(folder / f"train-{number:03d}.tar", "w") as shard:
            for name, content in list(images.items())[number::2]:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                shard.addfile(info, io.BytesIO(content))
    return str(folder) if kind == "folder of shards" else f"{folder}/train-{{000..001}}.tar"


WITHOUT_A_COLUMN = ["csv", "csv without names", "txt", "parquet", "saved", "folder of shards", "range of shards"]


@every_case("kind", WITHOUT_A_COLUMN)
def test_nothing_need_say_a_class(kind: str, tmp_path: Path) -> None:
    spec = without_a_column(tmp_path, kind)
    data = open_data(f"unlabelled:{spec}")
    assert (data.task, data.class_names) == (UNLABELLED, ("unlabelled",))
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 18, "validation": 2}
    expected = {np.asarray(Image.open(io.BytesIO(encode(7, number)))).tobytes() for number in range(20)}
    assert pixels(data.splits["train"]) | pixels(data.splits["validation"]) == expected
    with pytest.raises(DataError):
        open_data(spec)


@every_case("kind", [kind for kind in WITHOUT_A_COLUMN if kind != "txt"])
def test_images_to_predict_need_no_labels(kind: str, tmp_path: Path) -> None:
    listed = list_unlabelled(without_a_column(tmp_path, kind))
    assert {image.read().tobytes() for image in listed} == {
        np.asarray(Image.open(io.BytesIO(encode(7, number)))).tobytes() for number in range(20)
    }


def test_a_label_that_is_not_filled_in_is_not_missed_where_images_are_predicted(tmp_path: Path) -> None:
    contents = [encode(7, number) for number in range(2)]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.png").write_bytes(content)
    (tmp_path / "new.csv").write_text("image,label\n0.png,\n1.png,cat\n")
    pq.write_table(pa.table({"image": contents, "label": [None, "cat"]}), tmp_path / "new.parquet")
    for name in ("new.csv", "new.parquet"):
        assert [image.read().shape for image in list_unlabelled(str(tmp_path / name))] == [(12, 16, 3)] * 2
