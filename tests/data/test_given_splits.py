"""Splits that users made, wherever they wrote them: in names of folders, tables and shards, within classes, in a column."""

import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases import every_case
from tests.data.test_foreign_tables import sizes, write
from tests.data.test_labels import notes, zipped
from tests.data.written import encode
from vitral.data.names import splits_of_files
from vitral.data.open import open_data
from vitral.errors import DataError

NAMES = ("bird", "cat", "dog")
PLACES = {"train": range(15), "test": range(15, 21)}


def path_of(split: str, number: int) -> str:
    return f"{split}/{NAMES[number % 3]}/{number}.png"


@every_case(
    ("train", "test", "read"),
    [
        ("trainset", "testset", "test"),
        ("TrainData", "TestData", "test"),
        ("train1", "test1", "test"),
        ("train2017", "val2017", "validation"),
        ("my trainSet", "my testSet", "test"),
    ],
)
def test_folders_that_speak_of_splits_are_no_classes(tmp_path: Path, train: str, test: str, read: str) -> None:
    called = {"train": train, "test": test}
    write(tmp_path, [path_of(called[split], number) for split, numbers in PLACES.items() for number in numbers])
    data = open_data(tmp_path)
    assert data.class_names == NAMES
    assert sizes(data)[read] == 6


def test_splits_in_another_language_are_said_to_be_read_as_classes(tmp_path: Path) -> None:
    write(tmp_path, [path_of(name, number) for name in ("Trainingsdaten", "Testdaten") for number in range(9)])
    assert "'Testdaten' is read as a class, though a split is called so" in notes(open_data(tmp_path))


@every_case("packed", [False, True])
def test_folders_of_splits_within_each_class_are_splits(tmp_path: Path, packed: bool) -> None:
    root = tmp_path / "photos"
    paths = [f"{NAMES[number % 3]}/{split}/{number}.png" for split, numbers in PLACES.items() for number in numbers]
    write(root, paths)
    data = open_data(zipped(root) if packed else root)
    assert data.class_names == NAMES
    assert {split: size for split, size in sizes(data).items() if split == "test"} == {"test": 6}
    assert all("/test/" in data.splits["test"].describe(index) for index in range(6))
    assert "The folders test, train in those of the classes are the splits." in notes(data)


def test_folders_in_classes_that_are_not_all_splits_are_parts_of_them(tmp_path: Path) -> None:
    write(tmp_path, [f"{name}/{part}/{n}.png" for name in NAMES for part in ("train", "boat") for n in range(4)])
    assert open_data(tmp_path).class_names == NAMES
    assert set(sizes(open_data(tmp_path)).values()) == {18, 3}


def write_table(root: Path, name: str, numbers: Sequence[int]) -> None:
    rows = [f"images/{number}.png,{NAMES[number % 3]}" for number in numbers]
    (root / f"{name}.csv").write_text("\n".join(["image,label", *rows]))


def write_parquet(root: Path, name: str, numbers: Sequence[int]) -> None:
    columns = {"image": [encode(0, number) for number in numbers], "label": [NAMES[number % 3] for number in numbers]}
    pq.write_table(pa.table(columns), root / f"{name}.parquet")


def write_shard(root: Path, name: str, numbers: Sequence[int]) -> None:
    with tarfile.open(root / f"{name}-0000.tar", "w") as shard:
        for number in numbers:
            for file, content in (("png", encode(0, number)), ("cls", str(number % 3).encode())):
                info = tarfile.TarInfo(f"{number:04d}.{file}")
                info.size = len(content)
                shard.addfile(info, io.BytesIO(content))


@every_case("write_file", [write_table, write_parquet, write_shard], ids=lambda write_file: write_file.__name__)
@every_case("name", ["animals-{}", "labels_{}", "imagenet1k.{}"])
def test_files_that_speak_of_splits_are_splits(
    tmp_path: Path, write_file: Callable[[Path, str, Sequence[int]], None], name: str
) -> None:
    write(tmp_path, [f"images/{number}.png" for number in range(21)] if write_file is write_table else [])
    for split, numbers in PLACES.items():
        write_file(tmp_path, name.format(split), numbers)
    data = open_data(tmp_path)
    assert sizes(data)["test"] == 6
    assert data.shared_out == ("train", "validation")


@every_case(
    ("names", "splits"),
    [
        (("train_labels.csv", "my_test.csv"), ["train", "all"]),  # one that begins with its split is enough to go by
        (("blood_test.csv",), ["all"]),  # of a split that nothing is trained beside
        (("a_train.csv", "a_test.csv", "names.csv"), ["train", "test", "all"]),
        (("train/0.tar", "test/0.tar"), ["train", "test"]),
    ],
)
def test_words_of_names_are_splits_beside_a_training_file_alone(names: Sequence[str], splits: Sequence[str]) -> None:
    assert splits_of_files(names) == splits


Cells = Mapping[str, Sequence[object]]


def csv_of(root: Path, column: Cells) -> Path:
    (name, cells), *_ = column.items()
    write(root, [f"{number}.png" for number in range(21)])
    rows = [f"{number}.png,{NAMES[number % 3]},{cell}" for number, cell in enumerate(cells)]
    (root / "all.csv").write_text("\n".join([f"image,label,{name}", *rows]))
    return root / "all.csv"


def rows_of(column: Cells) -> datasets.Dataset:
    images = [{"bytes": encode(0, number), "path": None} for number in range(21)]
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(NAMES))}
    made = datasets.Dataset.from_dict(
        {"image": images, "label": [number % 3 for number in range(21)]}, features=datasets.Features(features)
    )
    for name, cells in column.items():
        made = made.add_column(name, list(cells))
    return made


def parquet_of(root: Path, column: Cells) -> Path:
    rows_of(column).to_parquet(root / "all.parquet")
    return root / "all.parquet"


def saved_of(root: Path, column: Cells) -> Path:
    rows_of(column).save_to_disk(root / "saved")
    return root / "saved"


SAID = [*["train"] * 15, *["test"] * 6]
DOORS = [csv_of, parquet_of, saved_of]


@every_case("door", DOORS, ids=lambda door: door.__name__)
@every_case("name", ["split", "set", "Data Set"])
def test_a_column_of_splits_is_one_under_other_names(tmp_path: Path, door: Callable[..., Path], name: str) -> None:
    data = open_data(door(tmp_path, {name: SAID}))
    assert sizes(data)["test"] == 6
    assert data.shared_out == ("train", "validation")


@every_case("door", DOORS, ids=lambda door: door.__name__)
def test_a_column_may_say_whether_a_row_is_of_a_split(tmp_path: Path, door: Callable[..., Path]) -> None:
    data = open_data(door(tmp_path, {"is_valid": [split == "test" for split in SAID]}))
    assert sizes(data) == {"train": 15, "validation": 6}


def test_whether_a_row_is_of_a_split_is_no_label(tmp_path: Path) -> None:
    write(tmp_path, [f"{number}.png" for number in range(21)])
    rows = [
        f"{n}.png,{','.join(str(int(n % 3 == k)) for k in range(3))},{split == 'test'}" for n, split in enumerate(SAID)
    ]
    (tmp_path / "all.csv").write_text("\n".join(["image,bird,cat,dog,is_valid", *rows]))
    data = open_data(tmp_path / "all.csv")
    assert data.class_names == NAMES
    assert sizes(data) == {"train": 15, "validation": 6}


@every_case("cells", [[str(n % 5) for n in range(21)], ["train"] * 21, ["train", "toy", "test"] * 7])
def test_a_column_of_such_a_name_may_hold_anything_else(tmp_path: Path, cells: list[str]) -> None:
    assert "test" in open_data(csv_of(tmp_path, {"set": cells})).shared_out


def test_a_saved_row_of_no_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 0, has the split 'first'"):
        open_data(saved_of(tmp_path, {"split": ["first", *SAID[1:]]}))


def test_splits_in_the_only_folder_beside_one_of_test_photos(tmp_path: Path) -> None:
    photos = [path_of(f"photos/photos/{split}", number) for split in ("train", "valid") for number in range(9)]
    write(tmp_path, [*photos, *(f"test/test/{number}.png" for number in range(4))])
    data = open_data(tmp_path)
    assert data.class_names == NAMES
    assert sizes(data) == {"train": 9, "validation": 9}
    assert "4 images" in notes(data)


def test_the_only_split_of_a_saved_dataset_may_have_a_column_of_them(tmp_path: Path) -> None:
    for name, cells in (("of splits", SAID), ("of other words", ["first", *SAID[1:]])):
        datasets.DatasetDict({"train": rows_of({"split": cells})}).save_to_disk(tmp_path / name)
    assert sizes(open_data(tmp_path / "of splits"))["test"] == 6
    assert "test" not in sizes(open_data(tmp_path / "of other words"))


def test_tables_of_one_name_in_several_folders_are_said(tmp_path: Path) -> None:
    for size in ("small", "large"):
        (tmp_path / size).mkdir()
        write_parquet(tmp_path / size, "train-00000-of-00001", range(15))
    assert "read together (train-00000-of-00001.parquet)" in notes(open_data(tmp_path))
