"""What labels mean, the same from every source: several in a cell, two spellings of one name, splits without labels."""

import csv
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases import every_case
from tests.data.written import encode
from vitral.data.image_stream import list_unlabelled
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import DataError, ImageError
from vitral.tasks.task import classes_of

Cells = Sequence[str]
DISEASES = ("healthy", "scab", "rust", "scab spot", "rust complex", "scab spot complex")
NFC, NFD = (unicodedata.normalize(form, "bl\u00e9") for form in ("NFC", "NFD"))


def write_images(folder: Path, numbers: Iterable[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / f"{number}.png").write_bytes(encode(0, number))


def write_csv(root: Path, column: str, cells: Cells) -> Path:
    write_images(root, range(len(cells)))
    with open(root / "all.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", column), *((f"{number}.png", cell) for number, cell in enumerate(cells))])
    return root / "all.csv"


def write_parquet(root: Path, column: str, cells: Cells) -> Path:
    rows = {"image": [encode(0, number) for number in range(len(cells))], column: list(cells)}
    pq.write_table(pa.table(rows), root / "all.parquet")
    return root / "all.parquet"


def write_paths(root: Path, column: str, cells: Cells) -> Path:
    write_images(root, range(len(cells)))
    rows = {"image": [f"{number}.png" for number in range(len(cells))], column: list(cells)}
    pq.write_table(pa.table(rows), root / "paths.parquet")
    return root / "paths.parquet"


def write_saved(root: Path, column: str, cells: Cells) -> Path:
    rows = {"image": [{"bytes": encode(0, number)} for number in range(len(cells))], column: list(cells)}
    features = datasets.Features({"image": datasets.Image(), column: datasets.Value("string")})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(root / "saved")
    return root / "saved"


Write = Callable[[Path, str, Cells], Path]
WRITERS: list[Write] = [write_csv, write_parquet, write_paths, write_saved]


def counted(data: DataSet) -> dict[tuple[str, ...], int]:
    """Return how many images have which classes."""
    found: dict[tuple[str, ...], int] = {}
    for source in data.splits.values():
        for index in range(len(source)):
            label = source.label(index)
            names = tuple(data.class_names[one] for one in classes_of(label))
            found[tuple(sorted(names))] = found.get(tuple(sorted(names)), 0) + 1
    return found


def notes(data: DataSet) -> str:
    return "\n".join(data.notes)


@every_case("mark", [" ", ",", ", ", ";", "|"])
@every_case("write", WRITERS, ids=lambda write: write.__name__)
def test_several_labels_in_a_cell(tmp_path: Path, write: Write, mark: str) -> None:
    data = open_data(write(tmp_path, "labels", [cell.replace(" ", mark) for cell in DISEASES] * 4))
    assert data.multi_label
    assert counted(data) == {tuple(sorted(cell.split())): 4 for cell in DISEASES}
    assert data.class_names == ("complex", "healthy", "rust", "scab", "spot")
    assert "'labels'" in notes(data)


@every_case("write", WRITERS, ids=lambda write: write.__name__)
def test_a_cell_without_labels_among_several(tmp_path: Path, write: Write) -> None:
    data = open_data(write(tmp_path, "Tags", ["a|b", "", "a", "b"] * 6))
    assert data.multi_label
    assert counted(data) == {("a", "b"): 6, (): 6, ("a",): 6, ("b",): 6}


@every_case("column", ["labels", "label"])
@every_case("write", WRITERS, ids=lambda write: write.__name__)
def test_lists_written_as_text_are_lists(tmp_path: Path, write: Write, column: str) -> None:
    data = open_data(write(tmp_path, column, ["['red', 'round']", '["red"]', "[]", "[flat, red wine]"] * 6))
    assert data.multi_label
    assert counted(data) == {("red", "round"): 6, ("red",): 6, (): 6, ("flat", "red wine"): 6}


@every_case(
    ("column", "cells"),
    [
        ("labels", ("red", "red fox", "arctic fox", "wolf")),  # arctic occurs nowhere else
        ("labels", ("red car", "blue car", "red truck", "blue truck")),  # all of two words
        ("labels", ("Pepper, bell - spot", "Pepper, bell - healthy", "Tomato")),
        ("tags", ("tench, Tinca tinca", "goldfish, Carassius auratus", "hen")),
        ("label", ("cat", "dog", "cat and dog")),
        ("label", ("Pepper, bell", "Tomato, cherry")),
    ],
)
@every_case("write", WRITERS, ids=lambda write: write.__name__)
def test_a_name_of_several_words_stays_one_class(tmp_path: Path, write: Write, column: str, cells: Cells) -> None:
    data = open_data(write(tmp_path, column, list(cells) * 5))
    assert not data.multi_label
    assert data.class_names == tuple(sorted(cells))
    assert "made of" not in notes(data)


@every_case("mark", [" ", ",", "|"])
def test_classes_made_of_others_names_are_said(tmp_path: Path, mark: str) -> None:
    cells = [cell.replace(" ", mark) for cell in DISEASES]
    data = open_data(write_csv(tmp_path, "label", cells * 4))
    assert not data.multi_label
    assert data.class_names == tuple(sorted(cells))
    assert f"'{cells[3]}'" in notes(data)
    assert "'labels'" in notes(data)


def test_a_few_cells_are_read_by_the_labels_that_a_classifier_knows(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "labels", ["scab spot", "healthy", "spot rust"])
    data = open_data(path, class_names=("healthy", "rust", "scab", "spot"), trained_on="")
    assert counted(data) == {("scab", "spot"): 1, ("healthy",): 1, ("rust", "spot"): 1}
    combined = open_data(path, class_names=("healthy", "scab spot", "spot rust"), trained_on="")
    assert counted(combined) == {("scab spot",): 1, ("healthy",): 1, ("spot rust",): 1}


@every_case("write", WRITERS, ids=lambda write: write.__name__)
def test_two_unicode_forms_of_a_name_in_a_column_are_one_class(tmp_path: Path, write: Write) -> None:
    data = open_data(write(tmp_path, "label", [NFC, "tea", NFD, "tea", NFC, "tea"] * 4))
    assert data.class_names == (NFC, "tea")
    assert counted(data) == {(NFC,): 12, ("tea",): 12}


def write_folders(root: Path, names: dict[str, Sequence[str]]) -> Path:
    for place, (split, classes) in enumerate(names.items()):
        for label, name in enumerate(classes):
            write_images(root / "photos" / split / name, range(100 * place + 10 * label, 100 * place + 10 * label + 8))
    return root / "photos"


def zipped(folder: Path) -> Path:
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w") as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.write(path, path.relative_to(folder))
    return folder.with_suffix(".zip")


@every_case(("train", "val"), [(NFC, NFD), (NFD, NFC), (NFD, NFD)], ids=ascii)
@every_case("pack", [lambda folder: folder, zipped], ids=lambda pack: pack.__name__)
def test_folders_of_two_unicode_forms_are_one_class(
    tmp_path: Path, pack: Callable[[Path], Path], train: str, val: str
) -> None:
    folder = write_folders(tmp_path, {"train": (train, "tea"), "val": (val, "tea"), "test": (val, "tea")})
    data = open_data(pack(folder))
    assert [unicodedata.normalize("NFC", name) for name in data.class_names] == [NFC, "tea"]
    assert {split: len(source) for split, source in data.splits.items()} == dict.fromkeys(
        ("train", "validation", "test"), 16
    )
    if train == val:
        assert data.class_names == (NFD, "tea")  # as the user spells it
    for known in (NFC, NFD):
        assert open_data(folder, class_names=(known, "tea"), trained_on="").class_names == (known, "tea")


def test_training_set_and_test_set_of_two_unicode_forms_are_splits(tmp_path: Path) -> None:
    data = open_data(write_folders(tmp_path, {"training_set": (NFC, "tea"), "test_set": (NFD, "tea")}))
    assert data.class_names == (NFC, "tea")
    assert len(data.splits["test"]) == 16


def write_competition(root: Path, test: str) -> Path:
    write_images(root / "train", range(24))
    write_images(root / "test", range(100, 106))
    rows = "\n".join(f"{number}.png,{'abc'[number % 3]}" for number in range(24))
    (root / "train.csv").write_text(f"image,label\n{rows}\n")
    (root / "test.csv").write_text(test)
    (root / "sample_submission.csv").write_text("image,label\n" + "".join(f"{n}.png,a\n" for n in range(100, 106)))
    return root


@every_case(
    "row",
    ["{}.png", "{}.png,", "{}.png,?", "{}.png,-1", "{}.png,unknown", "{}.png,nan"],
)
def test_a_test_table_without_labels_is_to_predict(tmp_path: Path, row: str) -> None:
    header = "image,label" if "," in row else "image"
    lines = [row.format(number) for number in range(100, 106)]
    root = write_competition(tmp_path, "\n".join([header, *lines]))
    data = open_data(root)
    assert data.class_names == ("a", "b", "c")
    assert {split: len(source) for split, source in data.splits.items()} == {"train": 21, "validation": 3}
    assert "6 images of the test split" in notes(data)
    assert [Path(image.name).name for image in list_unlabelled(str(root / "test.csv"))] == [
        f"{number}.png" for number in range(100, 106)
    ]


def test_rows_of_a_test_split_without_labels_are_to_predict(tmp_path: Path) -> None:
    write_images(tmp_path, range(30))
    lines = [f"{n}.png,{'ab'[n % 2] if n < 24 else ''},{'train' if n < 24 else 'test'}" for n in range(30)]
    (tmp_path / "all.csv").write_text("\n".join(["image,label,split", *lines]))
    data = open_data(tmp_path / "all.csv")
    assert set(data.splits) == {"train", "validation"}
    assert "6 images of the test split" in notes(data)


def test_a_few_rows_without_labels_are_left_out_and_named(tmp_path: Path) -> None:
    root = write_competition(tmp_path, "image,label\n100.png,a\n101.png,\n102.png,b\n")
    data = open_data(root)
    assert len(data.splits["test"]) == 2
    assert ["101.png" in image.reason and "class" in image.reason for image in data.bad_images] == [True]
    with pytest.raises(ImageError, match="101.png"):
        open_data(root, skip_bad_images=False)
    (root / "train.csv").write_text("image\n" + "".join(f"{number}.png\n" for number in range(24)))
    with pytest.raises(DataError, match=r"train.csv' has no column of classes"):
        open_data(root)


@every_case("unknown", [-1, None])
def test_a_split_of_the_hub_without_labels_is_to_predict(tmp_path: Path, unknown: int | None) -> None:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})

    def rows(first: int, labels: list[int | None]) -> datasets.Dataset:
        images = [{"bytes": encode(0, first + number)} for number in range(len(labels))]
        return datasets.Dataset.from_dict({"image": images, "label": labels}, features=features)

    splits = {"train": rows(0, [0, 1] * 10), "test": rows(50, [unknown] * 5)}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    (tmp_path / "tables").mkdir()
    for split, part in splits.items():
        part.to_parquet(tmp_path / "tables" / f"{split}.parquet")
    for name in ("saved", "tables"):
        data = open_data(tmp_path / name)
        assert data.class_names == ("a", "b")
        assert {split: len(source) for split, source in data.splits.items()} == {"train": 18, "validation": 2}
        assert "5 images of the test split" in notes(data)
    partly = datasets.DatasetDict({"train": rows(0, [0, 1] * 10), "test": rows(50, [0, unknown, 1])})
    partly.save_to_disk(tmp_path / "partly")
    data = open_data(tmp_path / "partly")
    assert (len(data.splits["test"]), len(data.bad_images)) == (2, 1)


@every_case("name", ["test", "unknown"])
def test_a_test_folder_of_one_folder_without_a_class_is_to_predict(tmp_path: Path, name: str) -> None:
    data = open_data(write_folders(tmp_path, {"train": ("cat", "dog"), "test": (name,)}))
    assert data.class_names == ("cat", "dog")
    assert "8 images of the test split" in notes(data)


@every_case("write", [write_csv, write_parquet, write_paths, write_saved], ids=lambda write: write.__name__)
def test_spaces_around_a_name_are_no_part_of_it(tmp_path: Path, write: Write) -> None:
    cells = [name + " " * (number % 2) for number, name in enumerate(("cat", "dog", "bird") * 12)]
    assert set(counted(open_data(write(tmp_path, "label", cells)))) == {("cat",), ("dog",), ("bird",)}


@every_case("write", [write_csv, write_parquet, write_paths, write_saved], ids=lambda write: write.__name__)
@every_case("nothing", ["NaN", "#N/A", "<NA>"])
def test_what_programs_write_for_nothing_is_no_class(tmp_path: Path, write: Write, nothing: str) -> None:
    cells = [nothing if number == 5 else name for number, name in enumerate(("cat", "dog", "bird") * 12)]
    assert set(counted(open_data(write(tmp_path, "label", cells)))) == {("cat",), ("dog",), ("bird",)}


@every_case(
    ("cells", "names"),
    [
        (("0", "1.0", "2.0"), ("0", "1", "2")),  # of tables of which one has gaps
        (("1.0", "1.5", "2.0"), ("1.0", "1.5", "2.0")),
        (("v1.0", "1.0", "2.0"), ("1.0", "2.0", "v1.0")),
    ],
)
@every_case("write", [write_csv, write_parquet, write_saved], ids=lambda write: write.__name__)
def test_whole_numbers_are_classes_without_a_point(
    tmp_path: Path, write: Write, cells: Sequence[str], names: tuple[str, ...]
) -> None:
    assert open_data(write(tmp_path, "label", list(cells) * 12)).class_names == names


def test_numbers_are_matched_to_a_classifiers_with_and_without_a_point(tmp_path: Path) -> None:
    floats = write_csv(tmp_path, "label", ["0.0", "1.0"] * 12)
    for names in (("0", "1"), ("0.0", "1.0")):
        assert open_data(floats, class_names=names, trained_on="").class_names == names


def test_a_column_of_decimals_with_gaps_is_one_of_classes(tmp_path: Path) -> None:
    values = [None if number == 3 else float(number % 3) for number in range(24)]
    columns = {"image": pa.array([encode(0, number) for number in range(24)]), "label": pa.array(values)}
    pq.write_table(pa.table(columns), tmp_path / "all.parquet")
    assert open_data(tmp_path / "all.parquet").class_names == ("0", "1", "2")
