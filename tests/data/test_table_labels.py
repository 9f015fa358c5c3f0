"""Labels in tables from elsewhere: a column for each, a line for each box, lists, verdicts and empty cells."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases import every_case
from tests.data.test_foreign_tables import COUNT, NAMES, sizes, table, write
from tests.data.test_labels import counted, notes
from tests.data.written import encode
from vitral.data.open import open_data
from vitral.errors import DataError

HOT = ("rust", "healthy", "scab", "spots")  # in the order of a table's columns
MARKS = [(1, 0, 0, 0), (0, 1, 0, 0), (1, 0, 1, 1), (0, 0, 0, 0)]


VALUES: dict[str, tuple[Any, Any]] = {
    "numbers": (1, 0),
    "truths": (True, False),
    "floats": (1.0, 0.0),
    "signs": (1, -1),
    "texts": ("yes", "no"),
    "blanks": ("1", ""),
}


def hot_rows(values: tuple[Any, Any], marks: Sequence[tuple[int, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(values[0] if one else values[1] for one in marks[n % len(marks)]) for n in range(COUNT)]


def hot_csv(root: Path, values: tuple[Any, Any], marks: Sequence[tuple[int, ...]]) -> Path:
    write(root, (f"{number}.png" for number in range(COUNT)))
    rows = [",".join(map(str, (f"{n}.png", *row))) for n, row in enumerate(hot_rows(values, marks))]
    (root / "all.csv").write_text("\n".join([f"image_id, {', '.join(HOT)}", *rows]))
    return root / "all.csv"


def hot_parquet(root: Path, values: tuple[Any, Any], marks: Sequence[tuple[int, ...]]) -> Path:
    columns = zip(HOT, zip(*hot_rows(values, marks), strict=True), strict=True)
    pq.write_table(pa.table({"image": [encode(0, n) for n in range(COUNT)], **dict(columns)}), root / "all.parquet")
    return root / "all.parquet"


def hot_paths(root: Path, values: tuple[Any, Any], marks: Sequence[tuple[int, ...]]) -> Path:
    write(root, (f"{number}.png" for number in range(COUNT)))
    columns = zip(HOT, zip(*hot_rows(values, marks), strict=True), strict=True)
    pq.write_table(pa.table({"id": [str(n) for n in range(COUNT)], **dict(columns)}), root / "paths.parquet")
    return root / "paths.parquet"


def hot_saved(root: Path, values: tuple[Any, Any], marks: Sequence[tuple[int, ...]]) -> Path:
    rows = dict(zip(HOT, zip(*hot_rows(values, marks), strict=True), strict=True))
    images = [{"bytes": encode(0, n)} for n in range(COUNT)]
    cast = datasets.Dataset.from_dict({"image": images, **rows}).cast_column("image", datasets.Image())
    cast.save_to_disk(root / "saved")
    return root / "saved"


HOT_FORMS = [hot_csv, hot_parquet, hot_paths, hot_saved]


@every_case("kind", VALUES)
@every_case("form", HOT_FORMS, ids=lambda form: form.__name__)
def test_a_column_for_each_label(tmp_path: Path, form: Callable[..., Path], kind: str) -> None:
    marks = [MARKS[0], MARKS[1], MARKS[2]] if kind == "blanks" else MARKS  # of blanks alone no labels are known
    data = open_data(form(tmp_path, VALUES[kind], marks))
    assert data.multi_label
    assert data.class_names == HOT
    expected = {
        tuple(sorted(name for name, one in zip(HOT, mark, strict=True) if one)): sum(
            n % len(marks) == place for n in range(COUNT)
        )
        for place, mark in enumerate(marks)
    }
    assert counted(data) == expected
    assert all(name in notes(data) for name in HOT)


@every_case("form", HOT_FORMS, ids=lambda form: form.__name__)
def test_a_column_for_each_label_with_one_in_each_row_is_a_class(tmp_path: Path, form: Callable[..., Path]) -> None:
    marks = [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    data = open_data(form(tmp_path, (1, 0), marks))
    assert not data.multi_label
    assert data.class_names == HOT
    assert counted(data) == {(name,): 5 for name in HOT}


def test_a_column_for_each_label_by_split_with_other_numbers_beside(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    rows = [f"{n}.png,{n + 20},{n % 2},{n // 2 % 2},{'train' if n < 16 else 'test'}" for n in range(COUNT)]
    (tmp_path / "all.csv").write_text("\n".join(["filename,age,ill,old,split", *rows]))
    data = open_data(tmp_path / "all.csv")
    assert data.class_names == ("ill", "old")
    assert sizes(data)["test"] == 4
    assert "age" in notes(data)


def test_columns_of_yes_and_no_beside_a_text_that_may_be_the_class_are_refused(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    path = table(tmp_path, lambda n, c: f"{n}.png,{c},{n % 2},{n // 2 % 2}", "image,breed,ill,old")
    with pytest.raises(DataError, match=r"\(ill, old\) .*\(breed\)"):
        open_data(path)
    path.write_text(path.read_text().replace("breed", "label"))
    assert open_data(path).class_names == NAMES


def test_one_column_of_yes_and_no_is_one_of_two_classes_and_said(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    data = open_data(table(tmp_path, lambda n, c: f"{n}.png,{n % 2}", "id,has_cactus"))
    assert counted(data) == {("0",): 10, ("1",): 10}
    assert "'has_cactus'" in notes(data)


def test_labels_of_a_tool_in_the_folder_of_each_split(tmp_path: Path) -> None:
    for split, first in (("train", 0), ("valid", 20), ("test", 30)):
        numbers = range(first, first + 10)
        write(tmp_path, (f"{split}/{number}.png" for number in numbers))
        rows = [f"{n}.png, {n % 2}, {n // 2 % 2}, {n // 4 % 2}" for n in numbers]
        (tmp_path / split / "_classes.csv").write_text("\n".join(["filename, cat, dog, none of them", *rows]))
    data = open_data(tmp_path)
    assert data.class_names == ("cat", "dog", "none of them")
    assert sizes(data) == {"train": 10, "validation": 10, "test": 10}
    assert data.splits["test"].label(0) == (1, 2)  # 30 is even, 15 is odd, 7 is odd


ROBOFLOW = "filename,width,height,class,xmin,ymin,xmax,ymax"
OPEN_IMAGES = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded"


@every_case(
    ("header", "row"),
    [
        (ROBOFLOW, "{n}.png,64,64,{c},3,3,30,30"),
        (OPEN_IMAGES, "{n},xclick,{c},1,0.1,0.2,0.3,0.4,0"),
        ("image,label,bbox", '{n}.png,{c},"[1, 2, 3, 4]"'),
        ("", "{n}.png,1,2,3,4,{c}"),
    ],
)
def test_a_line_for_each_box_is_an_image_of_several_labels(tmp_path: Path, header: str, row: str) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    boxes = [row.format(n=n, c=c) for n in range(COUNT) for c in ("cat", "dog", "dog", "person")[: 1 + n % 4]]
    (tmp_path / "all.csv").write_text("\n".join([*([header] if header else []), *boxes]))
    if not header:
        with pytest.raises(DataError, match="different classes on several lines"):
            open_data(tmp_path / "all.csv")
        return
    data = open_data(tmp_path / "all.csv")
    assert data.multi_label
    assert counted(data) == {("cat",): 5, ("cat", "dog"): 10, ("cat", "dog", "person"): 5}
    assert "50 lines for 20 images" in notes(data)


def test_boxes_of_one_class_in_each_image_are_images_of_a_class(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    boxes = [f"{n}.png,64,64,{NAMES[n % 2]},3,3,30,30" for n in range(COUNT) for _ in range(3)]
    (tmp_path / "all.csv").write_text("\n".join([ROBOFLOW, *boxes]))
    data = open_data(tmp_path / "all.csv")
    assert not data.multi_label
    assert counted(data) == {("cat",): 10, ("dog",): 10}
    assert "60 lines for 20 images" in notes(data)


@every_case(("form", "found"), [("{}.25", True), ("photo {} of a cat", True), ("class {}", False)])
def test_measurements_and_captions_are_told_from_classes(tmp_path: Path, form: str, found: bool) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    data = open_data(table(tmp_path, lambda n, c: f"{n}.png,{form.format(n if found else n % 4)}"))
    assert ("hardly two have the same" in notes(data)) == found


def test_an_image_of_two_classes_without_boxes_is_refused(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    path = table(tmp_path, lambda n, c: f"{n}.png,{c}")
    path.write_text(path.read_text() + "7.png,cat\n")
    with pytest.raises(DataError, match=r"'7.png' \(cat, dog\).*'labels'"):
        open_data(path)
    path.write_text(path.read_text().replace("label", "labels"))
    assert counted(open_data(path)) == {("cat",): 10, ("dog",): 9, ("cat", "dog"): 1}


def test_a_class_of_confidence_0_is_not_in_the_image(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    rows = [f"{n},human,{c},{int((n % 2 == 0) == (c == 'cat'))}" for n in range(COUNT) for c in NAMES]
    path = tmp_path / "all.csv"
    path.write_text("\n".join(["ImageID,Source,Labels,Confidence", *rows]))
    assert counted(open_data(path)) == {("cat",): 10, ("dog",): 10}
    path.write_text(path.read_text().replace("Labels", "LabelName"))
    with pytest.raises(DataError, match="different classes on several lines"):
        open_data(path)


def test_how_confident_somebody_was_is_no_verdict(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    data = open_data(table(tmp_path, lambda n, c: f"{n}.png,{c},{n / 20}", "image,label,confidence"))
    assert not data.multi_label
    assert counted(data) == {("cat",): 10, ("dog",): 10}


@every_case("column", ["label", "labels"])
def test_an_empty_cell_is_said_where_it_makes_labels_of_classes(tmp_path: Path, column: str) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    path = table(tmp_path, lambda n, c: f"{n}.png,{'' if n == 3 else c}", f"image,{column}")
    data = open_data(path)
    if column == "label":
        assert not data.multi_label
        assert [image.reason for image in data.bad_images] == [f"'{path}', line 5, gives '3.png' no class"]
        return
    assert data.multi_label
    assert "'labels' is empty for 1 of 20 images" in notes(data)


@every_case("paths", [True, False])
def test_lists_of_a_single_label_are_several_labels(tmp_path: Path, paths: bool) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    files = [tmp_path / f"{number}.png" for number in range(COUNT)]
    cells = [file.name if paths else file.read_bytes() for file in files]
    pq.write_table(
        pa.table({"image": cells, "label": [[NAMES[n % 2]] for n in range(COUNT)]}), tmp_path / "all.parquet"
    )
    assert open_data(tmp_path / "all.parquet").multi_label


def test_attributes_with_their_number_on_top_are_labels(tmp_path: Path) -> None:
    """The form of CelebA's list_attr_celeba.txt: no name above the images, and 1 and -1."""
    write(tmp_path, (f"img_align/{number:06d}.png" for number in range(COUNT)))
    rows = [f"{n:06d}.png {1 if n % 2 else -1:2d} {1 if n % 4 else -1:2d}" for n in range(COUNT)]
    (tmp_path / "list_attr.txt").write_text("\n".join([str(COUNT), "Bald Young ", *rows]) + "\n")
    data = open_data(tmp_path / "list_attr.txt")
    assert data.class_names == ("Bald", "Young")
    assert counted(data) == {("Bald", "Young"): 10, ("Young",): 5, (): 5}


@every_case("form", ["csv", "jsonl"])
@every_case(("names", "read"), [(("bird", "cat", "dog"), True), (("bird", "cat"), False)])
def test_numbers_stand_for_the_names_beside_a_table(
    tmp_path: Path, form: str, names: tuple[str, ...], read: bool
) -> None:
    write(tmp_path, [f"{number}.png" for number in range(12)])
    rows = ["image,label", *(f"{number}.png,{number % 3}" for number in range(12))]
    lines = [json.dumps({"image": f"{number}.png", "label": number % 3}) for number in range(12)]
    (tmp_path / f"all.{form}").write_text("\n".join(rows if form == "csv" else lines))
    (tmp_path / "classes.txt").write_text("\n".join(names))
    data = open_data(tmp_path / f"all.{form}")
    assert data.class_names == (names if read else ("0", "1", "2"))
    assert ("counted from 0" in "\n".join(data.notes)) == read
