"""VTAB-1k from the community's folders with lists, and from WebDataset shards."""

import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.vtab.written import png
from vitral.data.open import open_data
from vitral.errors import DataError


def write_lists(folder: Path, *, train: int = 800, validation: int = 200, test: int = 5) -> None:
    (folder / "images").mkdir(parents=True)
    for name, count in (("train800", train), ("val200", validation), ("test", test)):
        lines = []
        for number in range(count):
            image = f"images/{name}-{number}.png"
            (folder / image).write_bytes(png(number % 256))
            lines.append(f"{image} {number % 6}\n")
        (folder / f"{name}.txt").write_text("".join(lines))


def write_shards(folder: Path, split: str, count: int, *, a_shard: int = 600) -> None:
    (folder / split).mkdir(parents=True)
    for first in range(0, count, a_shard):
        with tarfile.open(folder / split / f"{first // a_shard}.tar", "w") as tar:
            for number in range(first, min(first + a_shard, count)):
                for suffix, content in (("png", png(number % 256)), ("cls", str(number % 6).encode())):
                    member = tarfile.TarInfo(f"s{number:07}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, BytesIO(content))


def test_the_lists_say_which_images_a_task_has(tmp_path: Path) -> None:
    write_lists(tmp_path / "dmlab")
    data = open_data(f"vtab:{tmp_path}:dmlab")
    assert data.counts() == {"train": "800", "validation": "200", "test": "5"}
    assert data.splits["train"].labels().tolist() == [number % 6 for number in range(800)]
    assert data.splits["test"].image(3)[0, 0, 0] == 3
    assert all(fact in data.notes[0] for fact in ("dmlab", "lists of vtab-1k", "TFDS")), data.notes


@every_case(
    ("broken", "said"),
    [
        ("short", r"train800\.txt' lists 799 images; VTAB-1k has 800"),
        ("lost", r"'images/test-2\.png', an image of '.*test\.txt', is no file below '.*dmlab'; unpack vtab-1k again"),
        ("away", r"'/etc/hostname', an image of '.*val200\.txt', is no file below"),
        ("above", r"'\.\./dmlab/images', an image of '.*val200\.txt', is no file below"),
        ("folder", r"'images', an image of '.*val200\.txt', is no file below"),
        ("empty", r"There are no images to score VTAB's dmlab on; it has 22,735"),
        ("class", r"val200\.txt', line 1: 'images/val200-0\.png 6' is not an image and a class below 6"),
        ("list", r"val200\.txt' cannot be read"),
    ],
)
def test_a_damaged_folder_of_lists_is_told(tmp_path: Path, broken: str, said: str) -> None:
    folder = tmp_path / "dmlab"
    write_lists(folder, train=799 if broken == "short" else 800)
    if broken == "lost":
        (folder / "images" / "test-2.png").unlink()
    rows = (folder / "val200.txt").read_text().splitlines(keepends=True)
    if wrong := {"away": "/etc/hostname", "above": "../dmlab/images", "folder": "images"}.get(broken):
        (folder / "val200.txt").write_text("".join([f"{wrong} 1\n", *rows[1:]]))
    if broken == "empty":
        (folder / "test.txt").write_text("")
    if broken == "class":
        (folder / "val200.txt").write_text("images/val200-0.png 6\n")
    if broken == "list":
        (folder / "val200.txt").unlink()
    with pytest.raises(DataError, match=said):
        open_data(f"vtab:{tmp_path}:dmlab")


def test_of_shards_a_thousand_images_are_drawn_and_never_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "wds_vtab-dmlab"
    write_shards(folder, "train", 1_300)
    write_shards(folder, "test", 7)
    (folder / "classnames.txt").write_text("a\nb\nc\nd\ne\nf\n")
    data = open_data(f"vtab:{tmp_path}:dmlab")
    assert data.counts() == {"train": "800", "validation": "200", "test": "7"}
    assert data.class_names == ("a", "b", "c", "d", "e", "f")
    sources = [data.splits[split] for split in ("train", "validation")]
    numbers = [int(one.describe(index)[-7:]) for one in sources for index in range(len(one))]
    assert len(set(numbers)) == 1_000
    assert max(numbers) > 1_200
    assert sum(number < 800 for number in numbers[:800]) < 600
    labels = [label for one in sources for label in one.labels().tolist()]
    assert labels == [number % 6 for number in numbers]
    assert data.splits["test"].labels().tolist() == [0, 1, 2, 3, 4, 5, 0]
    assert "drawn by a hash of their names" in data.notes[0]
    again = open_data(f"vtab:{tmp_path}:dmlab")
    assert again.fingerprint == data.fingerprint


def test_shards_with_too_few_images_or_without_a_split_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "wds_vtab-dmlab"
    write_shards(folder, "train", 999)
    (folder / "test").mkdir()
    with pytest.raises(DataError, match=r"test' has no \.tar shards"):
        open_data(f"vtab:{tmp_path}:dmlab")
    (folder / "test").rmdir()
    write_shards(folder, "test", 3)
    with pytest.raises(DataError, match="has 999 images to train on; VTAB-1k takes 1000"):
        open_data(f"vtab:{tmp_path}:dmlab")
