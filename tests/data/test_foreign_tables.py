"""Tables from elsewhere: paths of other machines, texts and columns of other tools."""

import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases import every_case
from tests.data.test_labels import counted, notes
from tests.data.written import encode
from vitral.data import find_images
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.data.tables import column_of
from vitral.errors import DataError, ImageError

NAMES = ("cat", "dog")
COUNT = 20


def write(root: Path, paths: Iterable[str]) -> None:
    """Write images with pixels of their own."""
    for number, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(encode(0, number))


def by_name(data: DataSet) -> dict[str, tuple[str, ...]]:
    """Return the classes of each image by its path."""
    return {
        source.describe(index): tuple(data.class_names[one] for one in _classes(source.label(index)))
        for source in data.splits.values()
        for index in range(len(source))
    }


def _classes(label: Any) -> tuple[int, ...]:  # noqa: ANN401  # any label
    return label if isinstance(label, tuple) else (label,)


def sizes(data: DataSet) -> dict[str, int]:
    return {split: len(source) for split, source in data.splits.items()}


def table(root: Path, form: Callable[[int, str], str], header: str = "image,label") -> Path:
    (root / "all.csv").write_text("\n".join([header, *(form(n, NAMES[n % 2]) for n in range(COUNT))]) + "\n")
    return root / "all.csv"


PATHS: dict[str, tuple[Callable[[int, str], str], Callable[[int, str], str]]] = {
    "backslashes": (lambda n, c: f"images/{c}/{n}.png", lambda n, c: f"images\\{c}\\{n}.png"),
    "backslashes from a folder": (lambda n, c: f"images/{c}/{n}.png", lambda n, c: f"{c}\\{n}.png"),
    "a drive": (lambda n, c: f"images/{c}/{n}.png", lambda n, c: f"C:\\Users\\me\\data\\images\\{c}\\{n}.png"),
    "a drive, flat": (lambda n, c: f"{n}.png", lambda n, c: f"D:\\data\\{n}.png"),
    "a drive, one folder": (lambda n, c: f"images/{n}.png", lambda n, c: f"D:/data/old/{n}.png"),
    "a server": (lambda n, c: f"{c}/{n}.png", lambda n, c: f"\\\\server\\share\\{c}\\{n}.png"),
    "another home": (lambda n, c: f"photos/{c}/{n}.png", lambda n, c: f"/home/other/set/photos/{c}/{n}.png"),
    "a drive and a renamed folder": (lambda n, c: f"renamed/{c}/{n}.png", lambda n, c: f"C:\\set\\{c}\\{n}.png"),
    "a point": (lambda n, c: f"images/{n}.png", lambda n, c: f"./{n}.png"),
    "a folder of any name": (lambda n, c: f"my photos/{n}.png", lambda n, c: f"{n}.png"),
    "ids in a folder of any name": (lambda n, c: f"photographs/{n:04d}.png", lambda n, c: f"{n:04d}"),
    "ids of several endings": (lambda n, c: f"all/{n}{'.png' if n % 3 else '.jpg'}", lambda n, c: f"{n}"),
    "several folders": (lambda n, c: f"part_{n % 3}/{n}.png", lambda n, c: f"{n}.png"),
    "ids in several folders": (lambda n, c: f"HAM_part_{n % 2}/deep/{n}.png", lambda n, c: f"{n}"),
    "images and more": (lambda n, c: f"{'images' if n % 2 else 'more'}/{n}.png", lambda n, c: f"{n}.png"),
    "capitals": (lambda n, c: f"images/{c}/{n}.png", lambda n, c: f"Images\\{c.upper()}\\{n}.PNG"),
    "letters and accents apart": (
        lambda n, c: f"images/\u00e9t\u00e9/{c} \u00fc{n}.png",
        lambda n, c: unicodedata.normalize("NFD", f"images/\u00e9t\u00e9/{c} \u00fc{n}.png"),
    ),
    "letters and accents composed": (
        lambda n, c: unicodedata.normalize("NFD", f"images/\u00e9t\u00e9/{c} \u00fc{n}.png"),
        lambda n, c: f"images/\u00e9t\u00e9/{c} \u00fc{n}.png",
    ),
}


@every_case("kind", PATHS)
@every_case("parquet", [False, True])
def test_paths_from_elsewhere_are_found(tmp_path: Path, kind: str, parquet: bool) -> None:
    there, written = PATHS[kind]
    paths = [there(number, NAMES[number % 2]) for number in range(COUNT)]
    write(tmp_path, paths)
    path = table(tmp_path, lambda n, c: f"{written(n, c)},{c},camera {n}", "image,label,camera")
    if parquet:
        rows = [(written(n, NAMES[n % 2]), NAMES[n % 2], f"camera {n}") for n in range(COUNT)]
        path.unlink()
        path = tmp_path / "all.parquet"
        pq.write_table(pa.table(dict(zip(("image", "label", "camera"), zip(*rows, strict=True), strict=True))), path)
    expected = {str(tmp_path / name): (NAMES[number % 2],) for number, name in enumerate(paths)}
    assert by_name(open_data(path)) == expected
    assert dict(column_of(str(path), "camera")) == {name: f"camera {number}" for number, name in enumerate(expected)}


def test_the_folders_where_images_were_found_are_said(tmp_path: Path) -> None:
    write(tmp_path, (f"part_{number % 2}/{number}.png" for number in range(COUNT)))
    said = notes(open_data(table(tmp_path, lambda n, c: f"{n}.png,{c}")))
    assert "part_0" in said
    assert "part_1" in said


def test_a_table_in_a_folder_of_its_own_beside_the_images(tmp_path: Path) -> None:
    write(tmp_path, (f"photos/{number}.png" for number in range(COUNT)))
    (tmp_path / "annotations").mkdir()
    path = table(tmp_path / "annotations", lambda n, c: f"{n}.png,{c}")
    data = open_data(path)
    assert len(by_name(data)) == COUNT
    assert "photos" in notes(data)
    write(tmp_path, (f"masks/{number}.png" for number in range(COUNT)))
    with pytest.raises(DataError, match=r"'0.png' .* may be in any of .*masks.*photos"):
        open_data(path)


def test_an_image_is_never_taken_for_another(tmp_path: Path) -> None:
    """Only what all paths begin with may be left out, and a name that fits two images is refused."""
    write(tmp_path, (f"images/{NAMES[number % 2]}/{number}.png" for number in range(COUNT)))
    path = table(tmp_path, lambda n, c: f"C:\\data\\images\\{NAMES[(n // 19 + n) % 2]}\\{n}.png,{c}")
    with pytest.raises(ImageError, match=r"1 of 20 .*line 21"):  # dog/19.png is there, cat/19.png is not
        open_data(path, skip_bad_images=False)
    with pytest.raises(DataError, match="None of the 20 images"):
        open_data(table(tmp_path, lambda n, c: f"elsewhere/{c}/{n}.png,{c}"))
    write(tmp_path, (f"masks/{NAMES[number % 2]}/{number}.png" for number in range(COUNT)))
    (tmp_path / "images").rename(tmp_path / "photos")
    with pytest.raises(DataError, match=r"masks/cat/0.png, photos/cat/0.png"):
        open_data(table(tmp_path, lambda n, c: f"{c}/{n}.png,{c}"))


def test_the_same_ids_in_the_folders_of_two_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write(tmp_path, (f"{split}_images/{number}.png" for number in range(COUNT)))
        table(tmp_path, lambda n, c: f"{n},{c}", "id,label").rename(tmp_path / f"{split}.csv")
    data = open_data(tmp_path)
    for split, source in data.splits.items():
        folder = "test_images" if split == "test" else "train_images"
        assert {Path(source.describe(index)).parent.name for index in range(len(source))} == {folder}
    assert sizes(data) == {"train": 18, "validation": 2, "test": 20}


@every_case(
    "header",
    ["id,label", "ID,label", "Image Index,Finding Labels", "photo_file,label", "#filename,class", "id_code,tags"],
)
def test_other_names_of_the_columns(tmp_path: Path, header: str) -> None:
    write(tmp_path, (f"images/{number}.png" for number in range(COUNT)))
    assert counted(open_data(table(tmp_path, lambda n, c: f"{n}.png,{c}", header))) == {("cat",): 10, ("dog",): 10}


def test_an_id_beside_the_path_is_not_the_image(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    data = open_data(table(tmp_path, lambda n, c: f"{COUNT - 1 - n},{n}.png,{c}", "id,photo_file,label"))
    assert all(classes == (NAMES[int(Path(name).stem) % 2],) for name, classes in by_name(data).items())


def lines(form: str, separator: str = "\n") -> str:
    return separator.join(form.format(n=n, c=NAMES[n % 2]) for n in range(COUNT)) + separator


TEXTS: dict[str, tuple[str, bytes]] = {
    "sep=;": ("all.csv", b"sep=;\r\nimage;label\r\n" + lines("{n}.png;{c}", "\r\n").encode()),
    "sep=;, BOM": ("all.csv", b"\xef\xbb\xbfsep=;\nimage;label\n" + lines("{n}.png;{c}").encode()),
    "sep=; in quotes": ("all.csv", b'"sep=;"\nimage;label\n' + lines("{n}.png;{c}").encode()),
    "sep=;, no names": ("all.csv", b"sep=;\n" + lines("{n}.png;{c}").encode()),
    "sep=|": ("all.csv", b"sep=|\nimage|label\n" + lines("{n}.png|{c}").encode()),
    "UTF-16": ("all.csv", ("image,label\n" + lines("{n}.png,{c}")).encode("utf-16")),
    "UTF-16 without a mark": ("all.csv", ("image,label\n" + lines("{n}.png,{c}")).encode("utf-16-le")),
    "UTF-16, the other way": ("all.csv", ("image,label\n" + lines("{n}.png,{c}")).encode("utf-16-be")),
    "UTF-16, tabs": ("all.tsv", ("image\tlabel\n" + lines("{n}.png\t{c}")).encode("utf-16")),
    "tabs in a .csv": ("all.csv", ("image\tlabel\n" + lines("{n}.png\t{c}")).encode()),
    "semicolons, commas within": ("all.csv", ("image;label;size\n" + lines("{n}.png;{c};1,5,7")).encode()),
    "ids without names": ("all.csv", lines("{n},{c}").encode()),
    "ids without names, class first": ("all.csv", lines("{c},{n}").encode()),
    "aligned": ("all.csv", lines("{n}.png    {c}").encode()),
    "aligned list": ("all.txt", lines("{n}.png    {c}").encode()),
    "aligned, with names": ("all.csv", ("image      label\n" + lines("{n}.png    {c}")).encode()),
    "aligned list, with names": ("all.txt", ("image      label\n" + lines("{n}.png    {c}")).encode()),
    "aligned, a split": ("all.csv", lines("{n}.png  {c}  train").encode()),
    "aligned list, a split": ("all.txt", lines("{n}.png  {c}  train").encode()),
    "aligned list, class first": ("all.txt", lines("{c}   {n}.png").encode()),
    "aligned list, number and name": ("all.txt", lines("{n}.png   7   {c}").encode()),
    "aligned list of ids": ("all.txt", lines("{n}    {c}").encode()),
    "list with names": ("all.txt", ("image,label\n" + lines("{n}.png,{c}")).encode()),
    "list with semicolons": ("all.txt", lines("{n}.png;{c}").encode()),
}


@every_case("kind", TEXTS)
def test_texts_of_other_programs_are_read(tmp_path: Path, kind: str) -> None:
    name, content = TEXTS[kind]
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    (tmp_path / name).write_bytes(content)
    found = by_name(open_data(tmp_path / name))
    assert found == {str(tmp_path / f"{number}.png"): (NAMES[number % 2],) for number in range(COUNT)}


@every_case("name", ["all.csv", "all.txt"])
@every_case("images", ["{n}.png", "{n}"])
def test_classes_of_several_words_in_a_list(tmp_path: Path, name: str, images: str) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    makers = ("McDonnell Douglas", "Boeing")
    (tmp_path / name).write_text("".join(f"{images.format(n=n)} {makers[n % 2]}\n" for n in range(COUNT)))
    assert counted(open_data(tmp_path / name)) == {(makers[0],): 10, (makers[1],): 10}


def test_an_aligned_list_in_a_folder_is_read(tmp_path: Path) -> None:
    write(tmp_path, (f"pool/{number}.png" for number in range(COUNT)))
    (tmp_path / "train.txt").write_text(lines("pool/{n}.png   {c}   7"))
    assert counted(open_data(tmp_path)) == {("cat",): 10, ("dog",): 10}


def test_commas_of_a_class_without_quotes_stay_in_it(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    data = open_data(table(tmp_path, lambda n, c: f"{n}.png,{'Pepper, bell' if n % 2 else 'Tomato'}"))
    assert counted(data) == {("Pepper, bell",): 10, ("Tomato",): 10}
    with pytest.raises(ImageError, match="line 3, has 4 cells for 3 columns"):
        open_data(
            table(tmp_path, lambda n, c: f"{n}.png,{'Pepper, bell' if n % 2 else 'Tomato'},7", "image,label,size")
        )


@every_case("row", ["{n}.png,3,4", "{n}.png,{c},grey", "{n}.png,3,4,5,6", "{n}.png 3 4 5", "{n} 1 0 1"])
def test_columns_without_names_of_which_any_may_be_the_class_are_refused(tmp_path: Path, row: str) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    for name in ("all.csv", *(["all.txt"] if " " in row else [])):
        (tmp_path / name).write_text(lines(row))
        with pytest.raises(DataError, match="columns without names"):
            open_data(tmp_path / name)


@every_case("row", ["{n} {c}/{n}.png", "{n},{c}/{n}.png", "{n} {c}/{n}.png {c}", "{c}/{n}.png {n} {c}"])
@every_case("name", ["all.csv", "all.txt"])
def test_the_numbers_of_rows_are_no_classes(tmp_path: Path, name: str, row: str) -> None:
    write(tmp_path, (f"images/{NAMES[number % 2]}/{number}.png" for number in range(COUNT)))
    (tmp_path / name).write_text(lines(row))
    assert counted(open_data(tmp_path / name)) == {("cat",): 10, ("dog",): 10}


def test_regions_of_an_annotator_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    header = "#filename,file_size,file_attributes,region_count,region_id,region_shape_attributes,region_attributes"
    with pytest.raises(DataError, match="VGG Image Annotator"):
        open_data(table(tmp_path, lambda n, c: f'{n}.png,1,{{}},1,0,{{}},"{{""a"": ""{c}""}}"', header))


@every_case("header", ["ImageId,ClassId,EncodedPixels", "ImageId,Kind,EncodedPixels", "image,label,rle"])
def test_masks_in_a_table_are_refused_unless_its_name_chooses_classes(tmp_path: Path, header: str) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    path = table(tmp_path, lambda n, c: f"{n}.png,{c},1 3 10 5", header)
    column, masks = header.split(",")[1:]
    advice = "" if column == "Kind" else f".* columns:label={column}: before the data's name"
    with pytest.raises(DataError, match=f"run lengths in its column '{masks}', .* COCO JSON.{advice}") as refused:
        open_data(path)
    assert "\n" not in str(refused.value)
    with path.open("a") as file:
        file.write("0.png,dog,30 5\n")
    data = open_data(f"columns:label={column}:{path}")
    assert (data.task.name, data.class_names) == ("multi-label", NAMES)
    assert any("its masks are not read" in note for note in data.notes)
    assert len(open_data(f"unlabelled:{path}").splits["train"])


@every_case("name", ["all.csv", "all.txt"])
def test_classes_that_are_a_number_of_each_image(tmp_path: Path, name: str) -> None:
    write(tmp_path, (f"{number}.png" for number in range(4)))
    (tmp_path / name).write_text("".join(f"{number}.png,{3 - number}\n" for number in range(4)))
    assert {Path(path).name: names for path, names in by_name(open_data(tmp_path / name)).items()} == {
        f"{number}.png": (str(3 - number),) for number in range(4)
    }


def test_tables_of_paths_beside_tables_of_images_are_refused(tmp_path: Path) -> None:
    write(tmp_path, ["0.png"])
    cells = {"image": [(tmp_path / "0.png").read_bytes()], "label": ["cat"]}
    pq.write_table(pa.table(cells), tmp_path / "test.parquet")
    (tmp_path / "train.csv").write_text("image,label\n0.png,cat\n")
    with pytest.raises(DataError, match="train.csv.*test.parquet'; name the one to read"):
        open_data(tmp_path)


@every_case("name", ["all.csv", "all.parquet"])
def test_columns_of_one_name_are_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, ["0.png"])
    cells = {"image": "0.png", "label": "cat", " label": "dog"}
    (tmp_path / "all.csv").write_text("image,label,label\n0.png,cat,dog\n")
    arrays = [pa.array([cell]) for cell in cells.values()]
    pq.write_table(pa.Table.from_arrays(arrays, names=[key.strip() for key in cells]), tmp_path / "all.parquet")
    with pytest.raises(DataError, match="several columns of the name 'label'"):
        open_data(tmp_path / name)


def test_a_list_in_a_folder_that_is_not_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, (f"pool/{NAMES[number % 2]}/{number}.png" for number in range(COUNT)))
    (tmp_path / "pool" / "train.txt").write_text(lines("elsewhere/{n}.png {c}"))
    (tmp_path / "pool" / "test.txt").write_text("tested on a Tuesday\n")
    said = notes(open_data(tmp_path / "pool"))
    assert "with a class: train.txt." in said  # and not test.txt, which is none


def test_so_many_files_that_a_name_may_be_of_any_are_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, (f"photos/{number}.png" for number in range(COUNT)))
    path = table(tmp_path, lambda n, c: f"{n}.png,{c}")
    monkeypatch.setattr(find_images, "MOST_FILES", COUNT)
    with pytest.raises(DataError, match="None of the 20 images"):
        open_data(path)
    monkeypatch.setattr(find_images, "MOST_FILES", COUNT + 1)  # the table is one, too
    assert counted(open_data(path)) == {("cat",): 10, ("dog",): 10}


BAD_LINES = {
    "a file that is not there": "nothing.png,dog",
    "no class": "0.png,",
    "no image": ",dog",
    "too few cells": "0.png",
    "no split": "0.png,dog,never",
    "too many cells": "0.png,dog,train,,surplus",
}


@every_case("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_left_out_named_and_counted(tmp_path: Path, line: str) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    path = table(tmp_path, lambda n, c: line if n == 0 else f"{n}.png,{c},train", "image,label,split")
    data = open_data(path)
    assert counted(data) == {("cat",): COUNT // 2 - 1, ("dog",): COUNT // 2}
    assert len(data.bad_images) == 1
    assert "line 2" in data.bad_images[0].reason
    assert data.bad_images[0].reason in notes(data)
    with pytest.raises(ImageError, match=f"1 of {COUNT} images.*line 2"):
        open_data(path, skip_bad_images=False)


def test_many_bad_lines_are_refused_unless_any_number_may_be_left_out(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    path = table(tmp_path, lambda n, c: f"{n}.png,{'' if n < 4 else c}")
    with pytest.raises(ImageError, match=f"4 of {COUNT} images.*line 2"):
        open_data(path)
    assert len(open_data(path, skip_bad_images=True).bad_images) == 4


def test_a_bad_row_of_images_themselves_is_left_out(tmp_path: Path) -> None:
    cells = {"image": [encode(0, n) for n in range(COUNT)], "label": [*(NAMES[n % 2] for n in range(COUNT - 1)), None]}
    pq.write_table(pa.table(cells), tmp_path / "all.parquet", row_group_size=8)
    data = open_data(tmp_path / "all.parquet")
    assert counted(data) == {("cat",): 10, ("dog",): 9}
    assert [f"parquet:{COUNT - 1}" in image.reason for image in data.bad_images] == [True]


def test_a_row_without_names_that_is_too_long_or_short_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    rows = [f"{number}.png,{NAMES[number % 2]}" for number in range(COUNT)]
    (tmp_path / "all.csv").write_text("\n".join(["0.png,cat,dog", *rows, "1.png"]))
    data = open_data(tmp_path / "all.csv")
    assert counted(data) == {("cat",): 10, ("dog",): 10}
    assert sorted(line for image in data.bad_images for line in ("line 1,", "line 22,") if line in image.reason) == [
        "line 1,",
        "line 22,",
    ]


WORDS = {
    "cp1252": ("café", "fran\u00e7ais"),
    "cp1252 with a typographer's quote": ("l\u2019\u00e9t\u00e9", "\u00e0 20 \u00b0C \u2013 froid"),
    "utf-16": ("café", "na\u00efve"),
    "utf-16-le": ("cat", "café"),
    "utf-8-sig": ("café", "\u732b"),
    "cp1251": ("\u043a\u043e\u0448\u043a\u0430", "\u0441\u043e\u0431\u0430\u043a\u0430"),
    "cp932": ("\u306d\u3053", "\u3044\u306c\u306e\u304d\u3082\u3061"),
}


@every_case(("encoding", "words"), WORDS.items())
@every_case("name", ["all.csv", "all.txt"])
def test_texts_of_spreadsheets_in_any_encoding_have_their_words(
    tmp_path: Path, encoding: str, words: tuple[str, str], name: str
) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    mark, header = (";", ["image;label"]) if name.endswith(".csv") else ("\t", [])
    lines = [*header, *(f"{n}.png{mark}{words[n % 2]}" for n in range(COUNT))]
    encoding = encoding.partition(" ")[0]
    (tmp_path / name).write_bytes("\r\n".join(lines).encode(encoding))
    data = open_data(tmp_path / name)
    assert set(data.class_names) == set(words)
    assert (f"read in {encoding}" in notes(data)) == encoding.startswith("cp")


def test_a_text_of_no_known_encoding_is_refused(tmp_path: Path) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    path = table(tmp_path, lambda n, c: f"{n}.png,{c}")
    path.write_bytes(path.read_text().replace("cat", "café").encode("mac_roman"))
    with pytest.raises(DataError, match=r"all.csv.*UTF-8"):
        open_data(path)


def test_a_table_beside_the_one_folder_of_its_images_is_read_by_the_folder(tmp_path: Path) -> None:
    """As Head CT Hemorrhage is published: numbers of files that have zeros before them, and one further column."""
    write(tmp_path, (f"head_ct/{number:03}.png" for number in range(COUNT)))
    path = table(tmp_path, lambda n, c: f"{n},{n % 2}", "id, hemorrhage")
    for name in (tmp_path, path):
        data = open_data(name)
        assert counted(data) == {("0",): 10, ("1",): 10}
        assert all(classes == (str(int(Path(file).stem) % 2),) for file, classes in by_name(data).items())
        assert "'hemorrhage'" in notes(data)


@every_case("cell", ["0.{n}", "text of {n}", "{n}", "same"])
def test_a_column_that_cannot_be_classes_is_not_taken_for_them(tmp_path: Path, cell: str) -> None:
    write(tmp_path, (f"{number}.png" for number in range(COUNT)))
    with pytest.raises(DataError, match=r"no column of classes.*image, said.*columns:label=NAME"):
        open_data(table(tmp_path, lambda n, c: f"{n}.png,{cell.format(n=n)}", "image,said"))


def test_an_export_of_roboflow_is_read_by_its_own_tables(tmp_path: Path) -> None:
    for split, first in (("train", 0), ("valid", 100), ("test", 200)):
        names = [f"{number}_jpg.rf.0a{number}.png" for number in range(first, first + 8)]
        write(tmp_path / split, names)
        rows = [f"{name}, {n % 2}, {1 - n % 2}" for n, name in enumerate(names)]
        (tmp_path / split / "_classes.csv").write_text("\n".join(["filename, cat, dog", *rows]))
        (tmp_path / split / "level.csv").write_text("\n".join(["filename,level", *(f"{name},0.2" for name in names)]))
    data = open_data(tmp_path)
    assert not data.multi_label
    assert sizes(data) == {"train": 8, "validation": 8, "test": 8}
    assert counted(data) == {("cat",): 12, ("dog",): 12}


def test_tables_of_several_folds_are_refused_and_a_few_shared_images_said(tmp_path: Path) -> None:
    """As DeepWeeds is published: train_subset0.csv, test_subset0.csv, train_subset1.csv and so on."""
    write(tmp_path / "images", (f"{number}.png" for number in range(COUNT)))
    rows = [f"{number}.png,{NAMES[number % 2]}" for number in range(COUNT)]
    (tmp_path / "labels").mkdir()
    for fold, (train, test) in enumerate(((rows[:10], rows[10:]), (rows[10:], rows[:10]))):
        (tmp_path / "labels" / f"train_subset{fold}.csv").write_text("\n".join(["Filename,Label", *train]))
        (tmp_path / "labels" / f"test_subset{fold}.csv").write_text("\n".join(["Filename,Label", *test]))
    with pytest.raises(DataError, match=f"{COUNT} images.*folds"):
        open_data(tmp_path)
    for split in ("train", "test"):
        (tmp_path / "labels" / f"{split}_subset1.csv").unlink()
    assert sizes(open_data(tmp_path))["test"] == 10
    (tmp_path / "labels" / "test_subset0.csv").write_text("\n".join(["Filename,Label", *rows[9:]]))
    assert "1 image in train and in another split" in notes(open_data(tmp_path))


@every_case("parts", [("HAM_images_part_1", "HAM_images_part_2"), ("images_001", "images_002")])
def test_folders_that_are_parts_of_one_set_are_no_classes_beside_a_table(
    tmp_path: Path, parts: tuple[str, ...]
) -> None:
    write(tmp_path, (f"{parts[number % 3 // 2]}/{number}.png" for number in range(COUNT)))
    assert "parts of one set" in notes(open_data(tmp_path))
    table(tmp_path, lambda n, c: f"p{n // 4},{n},{c}", "lesion_id,image_id,label")
    data = open_data(tmp_path)
    assert counted(data) == {("cat",): 10, ("dog",): 10}
    assert len(set(open_data(tmp_path, group="lesion_id").splits)) == 3


def test_a_competitions_form_for_answers_holds_no_labels(tmp_path: Path) -> None:
    write(tmp_path, (f"train/{number}.png" for number in range(COUNT)))
    write(tmp_path, (f"test/t{number}.png" for number in range(6)))
    table(tmp_path, lambda n, c: f"{n},{c}", "id,breed")
    (tmp_path / "sample_submission.csv").write_text("id,breed\n" + "".join(f"t{n},cat\n" for n in range(6)))
    data = open_data(tmp_path)
    assert counted(data) == {("cat",): 10, ("dog",): 10}
    assert "sample_submission.csv" in notes(data)


def test_numbers_of_classes_are_classes_where_no_names_are(tmp_path: Path) -> None:
    """As the German traffic signs are handed on: Train.csv and Test.csv with ClassId and Path."""
    write(tmp_path, (f"Train/{number % 2}/{number}.png" for number in range(COUNT)))
    write(tmp_path, (f"Test/{number:05}.png" for number in range(6)))
    write(tmp_path, (f"Meta/{number}.png" for number in range(2)))
    rows = {"Train": [f"27,{n % 2},Train/{n % 2}/{n}.png" for n in range(COUNT)]}
    rows["Test"] = [f"53,{n % 2},Test/{n:05}.png" for n in range(6)]
    rows["Meta"] = [f"0,{n},Meta/{n}.png" for n in range(2)]
    for name, lines in rows.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["Width,ClassId,Path", *lines]))
    data = open_data(tmp_path)
    assert sizes(data) == {"train": 18, "validation": 2, "test": 6}
    assert all(classes == (str(int(Path(file).stem) % 2),) for file, classes in by_name(data).items())
    table(tmp_path, lambda n, c: f"Train/{n % 2}/{n}.png,{n % 2},{c}", "image,class_id,class_name")
    assert open_data(tmp_path / "all.csv").class_names == NAMES


def test_of_two_numbers_that_differ_in_zeros_the_one_that_is_written_is_meant(tmp_path: Path) -> None:
    write(tmp_path, ["scans/left/7.png", "scans/right/007.png", "scans/left/08.png"])
    found = find_images.ImageFinder(tmp_path / "all.csv").find(["7", "007", "8"])
    assert [Path(file.path).name for file in found] == ["7.png", "007.png", "08.png"]
