"""Images that a table names from elsewhere: by addresses, from a project, beside tables of other things; and pointers."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.cases import every_case
from tests.data.test_foreign_tables import COUNT, NAMES, by_name, sizes, table, write
from tests.data.test_labels import counted, notes
from tests.data.written import encode
from vitral.data.open import open_data
from vitral.errors import DataError, VitralError

Form = Callable[[int, str], str]


@every_case(
    "form",
    [
        lambda n, c: f"https://photos.example/set/{c}/{n}.png,{c}",
        lambda n, c: f"https://photos.example/set/{c}/{n}.png?size=2&x=a/b,{c}",
        lambda n, c: f"s3://bucket/old/{c}/{n}.png,{c}",
        lambda n, c: f"gs://bucket/{c}/{n}.png,{c}",
    ],
)
def test_images_at_addresses_are_found_where_they_are_here(tmp_path: Path, form: Form) -> None:
    write(tmp_path, [f"{NAMES[n % 2]}/{n}.png" for n in range(COUNT)])
    found = by_name(open_data(table(tmp_path, form)))
    assert found == {str(tmp_path / NAMES[n % 2] / f"{n}.png"): (NAMES[n % 2],) for n in range(COUNT)}


def test_images_that_were_uploaded_are_found_by_their_own_names(tmp_path: Path) -> None:
    write(tmp_path, [f"images/{n}.png" for n in range(COUNT)])
    found = by_name(open_data(table(tmp_path, lambda n, c: f"/data/upload/1/{n:08x}-{n}.png,{c}")))
    assert found == {str(tmp_path / "images" / f"{n}.png"): (NAMES[n % 2],) for n in range(COUNT)}
    with pytest.raises(DataError, match="None of the"):  # two of one name
        open_data(table(tmp_path, lambda n, c: f"/data/upload/1/{n:08x}-{n // 2}.png,{c}"))


def test_images_at_addresses_that_are_not_here_are_to_be_downloaded(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"are at addresses, such as 'https://photos\.example/a0\.png'.* download them"):
        open_data(table(tmp_path, lambda n, c: f"https://photos.example/a{n}.png,{c}"))


def test_paths_in_parquet_are_of_its_folder_or_of_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [f"photos/{n}.png" for n in range(COUNT)])
    cells = [{"bytes": None, "path": f"photos/{n}.png"} for n in range(COUNT)]
    (tmp_path / "lists").mkdir()
    for place in (tmp_path, tmp_path / "lists"):
        pq.write_table(pa.table({"image": cells, "label": [NAMES[n % 2] for n in range(COUNT)]}), place / "all.parquet")
        monkeypatch.chdir(tmp_path)
        data = open_data(place / "all.parquet")
        assert sum(map(len, data.splits.values())) == COUNT
        assert not data.bad_images


@every_case("where", ["data/lists", "data/lists/v1"])
def test_paths_from_the_folder_of_a_project_are_found(tmp_path: Path, where: str) -> None:
    write(tmp_path, [f"data/raw/{n}.png" for n in range(COUNT)])
    (tmp_path / where).mkdir(parents=True)
    data = open_data(table(tmp_path / where, lambda n, c: f"data/raw/{n}.png,{c}"))
    assert set(by_name(data)) == {str(tmp_path / "data" / "raw" / f"{n}.png") for n in range(COUNT)}
    assert f"lie in {tmp_path.resolve()}" in notes(data)


def test_paths_from_the_current_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [f"project/raw/{n}.png" for n in range(COUNT)])
    (tmp_path / "lists/a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    assert sum(sizes(open_data(table(tmp_path / "lists/a", lambda n, c: f"raw/{n}.png,{c}"))).values()) == COUNT


@every_case(
    "other",
    [
        "class_id,class_name\n0,cat\n1,dog",
        "id,name\n0,cat\n1,dog",
        "day,rain\n1,2",
        "name,label\ncat,pet\ndog,pet\ncow,pet",
    ],
)
def test_a_table_of_other_things_beside_the_one_of_images_is_not_read(tmp_path: Path, other: str) -> None:
    write(tmp_path, [f"images/{n}.png" for n in range(COUNT)])
    table(tmp_path, lambda n, c: f"{n}.png,{c}")
    (tmp_path / "other.csv").write_text(other)
    data = open_data(tmp_path)
    assert data.class_names == NAMES
    assert f"Not read, as no images with classes are in them: {tmp_path / 'other.csv'}." in notes(data)


def test_tables_of_which_none_is_of_images_are_refused_as_before(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("day,rain\n1,2")
    with pytest.raises(DataError, match=r"a\.csv' has no column of images"):
        open_data(tmp_path)


@every_case("header", ["image|label\n", ""])
@every_case("name", ["all.csv", "all.tsv"])
def test_bars_separate_cells_where_nothing_else_does(tmp_path: Path, header: str, name: str) -> None:
    write(tmp_path, [f"{n}.png" for n in range(COUNT)])
    mark = "|" if name == "all.csv" else "\t"
    rows = "\n".join(f"{n}.png{mark}{NAMES[n % 2]}" for n in range(COUNT))
    (tmp_path / name).write_text(header.replace("|", mark) + rows)
    assert open_data(tmp_path / name).class_names == NAMES


def test_bars_between_labels_are_not_between_cells(tmp_path: Path) -> None:
    write(tmp_path, [f"{n}.png" for n in range(COUNT)])
    data = open_data(table(tmp_path, lambda n, c: f"{n}.png,{c}|{'ab'[n % 2]}|{'pq'[n // 2 % 2]}", "image,labels"))
    assert set(data.class_names) == {*NAMES, "a", "b", "p", "q"}


def exported(n: int, choice: str) -> str:
    quoted = choice.replace('"', '""')
    return f'{n},1,"{quoted}",2024-01-01T00:00:00Z,{n},/data/upload/1/{n:08x}-IMG.png,{n}.5'


EXPORTED = "annotation_id,annotator,choice,created_at,id,image,lead_time"


def test_choices_of_label_studio_are_classes(tmp_path: Path) -> None:
    write(tmp_path, [f"media/upload/1/{n:08x}-IMG.png" for n in range(COUNT)])
    assert open_data(table(tmp_path, exported, EXPORTED)).class_names == NAMES


def test_several_choices_of_label_studio_are_several_labels(tmp_path: Path) -> None:
    write(tmp_path, [f"media/upload/1/{n:08x}-IMG.png" for n in range(COUNT)])
    both = json.dumps({"choices": list(NAMES)})
    data = open_data(table(tmp_path, lambda n, c: exported(n, both if n < 6 else c), EXPORTED))
    assert counted(data) == {NAMES: 6, ("cat",): 7, ("dog",): 7}


def test_a_message_names_the_first_of_many_columns(tmp_path: Path) -> None:
    header = ",".join(["label", *(f"pixel{number}" for number in range(60))])
    (tmp_path / "train.csv").write_text(f"{header}\n{','.join(['1'] * 61)}\n")
    with pytest.raises(DataError, match=r"pixel18, … \(61 in all\)") as refused:
        open_data(tmp_path)
    assert len(str(refused.value)) < 500 + len(str(tmp_path))


def pixels(number: int) -> list[list[list[int]]]:
    found: list[list[list[int]]] = np.asarray(Image.open(io.BytesIO(encode(0, number)))).tolist()
    return found


def test_pixels_in_lists_are_refused_in_a_table_and_read_where_datasets_reads_them(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"image": [pixels(n) for n in range(8)], "label": [n % 2 for n in range(8)]})
    rows.to_parquet(tmp_path / "all.parquet")
    rows.save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match=r"has lists in its column 'image'.* encoded") as refused:
        open_data(tmp_path / "all.parquet")
    assert len(str(refused.value)) < 300 + len(str(tmp_path))
    assert sum(sizes(open_data(tmp_path / "saved")).values()) == 8


def test_several_images_a_row_are_refused(tmp_path: Path) -> None:
    features = datasets.Features({"images": datasets.Sequence(datasets.Image()), "label": datasets.Value("string")})
    images = [[{"bytes": encode(0, n), "path": None}] for n in range(8)]
    rows = datasets.Dataset.from_dict({"images": images, "label": list("abababab")}, features=features)
    rows.to_parquet(tmp_path / "all.parquet")
    rows.save_to_disk(tmp_path / "saved")
    for name in ("all.parquet", "saved"):
        with pytest.raises(DataError, match=r"has lists in its column 'images'"):
            open_data(tmp_path / name)


def test_images_as_text_are_not_repeated_in_a_message(tmp_path: Path) -> None:
    columns = {"image": ["iVBOR" * 400 + str(n) for n in range(8)], "label": list("abababab")}
    pq.write_table(pa.table(columns), tmp_path / "all.parquet")
    with pytest.raises(DataError, match=r"None of the 8 images") as refused:
        open_data(tmp_path / "all.parquet")
    assert len(str(refused.value)) < 500 + len(str(tmp_path))


def test_paths_in_a_saved_dataset_are_found_beside_it(tmp_path: Path) -> None:
    write(tmp_path, [f"images/{n}.png" for n in range(8)])
    columns = {"image": [f"images/{n}.png" for n in range(8)], "label": list("abababab")}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    assert sum(sizes(open_data(tmp_path / "saved")).values()) == 8


def test_datasets_saved_for_each_split_are_its_splits(tmp_path: Path) -> None:
    for place, split in enumerate(("train", "test")):
        images = [{"bytes": encode(place, n), "path": None} for n in range(8)]
        rows = datasets.Dataset.from_dict({"image": images, "label": list("abababab")})
        rows.cast_column("image", datasets.Image()).save_to_disk(tmp_path / split)
    assert sizes(open_data(tmp_path))["test"] == 8
    assert sum(sizes(open_data(tmp_path / "train")).values()) == 8


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@every_case("name", ["a/1.png", "all.parquet", "all.csv", "all.zip", "all.tar", "all.tar.gz", "packed.zip"])
def test_what_git_lfs_has_not_fetched_is_said(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(POINTER)
    if name == "packed.zip":
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(8):
                archive.writestr(f"{'ab'[number % 2]}/{number}.png", POINTER)
    with pytest.raises(VitralError, match="is a pointer of Git LFS.* 'git lfs pull'"):
        open_data(tmp_path if "/" in name else path)
