"""Labels in whole files of JSON, in the forms that programs write them, alone and in a folder with the photos."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from tests.data.test_foreign_tables import by_name, sizes, write
from tests.data.test_labels import counted, notes
from vitral.data.image_stream import list_unlabelled
from vitral.data.open import open_data
from vitral.errors import DataError, ImageError

COUNT = 18
NAMES = ("bird", "cat", "dog")
LABELS = [NAMES[number % 3] for number in range(COUNT)]
FILES = [f"{number}.png" for number in range(COUNT)]


def coco(numbers: Sequence[int], **more: object) -> dict[str, Any]:
    return {
        "images": [{"id": 100 + n, "file_name": FILES[n], "width": 16, "height": 12} for n in numbers],
        "annotations": [{"id": n, "image_id": 100 + n, "category_id": 7 + n % 3, **more} for n in numbers],
        "categories": [{"id": 7 + place, "name": name} for place, name in enumerate(NAMES)],
    }


def task(number: int, *chosen: str) -> dict[str, Any]:
    results = [{"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": list(chosen)}}]
    old = {"id": 1, "was_cancelled": True, "result": []}
    return {
        "id": number,
        "data": {"image": f"/data/upload/3/{FILES[number]}"},
        "annotations": [old, {"result": results}],
    }


FORMS: dict[str, Any] = {
    "records": [{"file_name": file, "label": label} for file, label in zip(FILES, LABELS, strict=True)],
    "pandas": {name: dict(enumerate(cells)) for name, cells in (("image", FILES), ("label", LABELS))},
    "columns": {"image": FILES, "label": LABELS},
    "a label for each": dict(zip(FILES, LABELS, strict=True)),
    "fields for each": {file: {"label": label, "seen": 1} for file, label in zip(FILES, LABELS, strict=True)},
    "StyleGAN": {"labels": [list(pair) for pair in zip(FILES, LABELS, strict=True)]},
    "COCO without boxes": coco(range(COUNT)),
    "COCO with empty boxes": coco(range(COUNT), bbox=[], segmentation=[], area=0),
    "Label Studio": [task(number, label) for number, label in enumerate(LABELS)],
    "Label Studio, short": [
        {"id": n, "image": f"/data/upload/3/{FILES[n]}", "choice": LABELS[n]} for n in range(COUNT)
    ],
}


@every_case(("form", "alone"), [*((form, False) for form in FORMS), ("records", True)])
def test_labels_are_read_in_every_form(tmp_path: Path, form: str, alone: bool) -> None:
    write(tmp_path, [f"images/{file}" for file in FILES])
    path = tmp_path / "project-1.json"
    path.write_text(json.dumps(FORMS[form]))
    found = by_name(open_data(path if alone else tmp_path))
    assert found == {str(tmp_path / "images" / file): (label,) for file, label in zip(FILES, LABELS, strict=True)}


SEVERAL: dict[str, Any] = {
    "a list for each": {file: ["cat", "dog"] if n < 6 else [LABELS[n]] for n, file in enumerate(FILES)},
    "Label Studio": [task(n, *(["cat", "dog"] if n < 6 else [LABELS[n]])) for n in range(COUNT)],
    "Label Studio, short": [
        {"image": FILES[n], "choice": {"choices": ["cat", "dog"]} if n < 6 else LABELS[n]} for n in range(COUNT)
    ],
}


@every_case("form", SEVERAL)
def test_several_labels_of_an_image(tmp_path: Path, form: str) -> None:
    write(tmp_path, FILES)
    (tmp_path / "labels.json").write_text(json.dumps(SEVERAL[form]))
    assert counted(open_data(tmp_path)) == {("cat", "dog"): 6, ("bird",): 4, ("cat",): 4, ("dog",): 4}


def test_files_of_splits(tmp_path: Path) -> None:
    write(tmp_path, [f"images/{file}" for file in FILES])
    for split, numbers in (("train", range(12)), ("val", range(12, COUNT))):
        (tmp_path / f"{split}2019.json").write_text(json.dumps(coco(numbers)))
    data = open_data(tmp_path)
    assert data.class_names == NAMES
    assert sizes(data) == {"train": 12, "validation": 6}


def test_lines_of_json_in_a_folder_are_read(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    lines = [json.dumps(record) for record in FORMS["records"]]
    (tmp_path / "labels.jsonl").write_text("\n".join(lines))
    assert open_data(tmp_path).class_names == NAMES


def test_numbered_folders_of_stylegan_are_no_classes(tmp_path: Path) -> None:
    paths = [f"{number // 9:05d}/img{number:08d}.png" for number in range(COUNT)]
    write(tmp_path, paths)
    (tmp_path / "dataset.json").write_text(json.dumps({"labels": [[path, n % 3] for n, path in enumerate(paths)]}))
    assert open_data(tmp_path).class_names == ("0", "1", "2")


def test_folders_of_classes_come_before_json(tmp_path: Path) -> None:
    write(tmp_path, [f"{label}/{file}" for file, label in zip(FILES, LABELS, strict=True)])
    for name in ("labels.json", "dataset.json"):
        (tmp_path / name).write_text(json.dumps({"name": "photos", "version": 1}))
    (tmp_path / "others.json").write_text(json.dumps({f"{LABELS[0]}/{FILES[0]}": "cow"}))
    assert open_data(tmp_path).class_names == NAMES


@every_case(
    ("text", "why"),
    [
        ('{"a": 1, "b": {"c": 2}}', "in no form of JSON"),
        ("[1, 2]", "in no form of JSON"),
        ("[]", "in no form of JSON"),
        ('{"labels": [["1.png"]]}', "in no form of JSON"),
        ('{"image": ["1.png"], "label": ["a", "b"]}', "in no form of JSON"),
        ('{"images": 1, "annotations": [], "categories": []}', "in no form of JSON"),
        ("[{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"name": "photos"}', "None of the 1 images"),
    ],
)
def test_what_is_no_labels_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=why) as refused:
        open_data(tmp_path / "x.json")
    assert "\n" not in str(refused.value)


@every_case("folders", [True, False])
def test_tags_of_whole_photos_of_cvat_are_named(tmp_path: Path, folders: bool) -> None:
    files = [f"{label}/{file}" if folders else file for file, label in zip(FILES, LABELS, strict=True)]
    write(tmp_path, files)
    tags = [f'<image name="{file}"><tag label="{label}"/></image>' for file, label in zip(files, LABELS, strict=True)]
    (tmp_path / "annotations.xml").write_text(f"<annotations><version>1.1</version>{''.join(tags)}</annotations>")
    if folders:
        assert "'ImageNet 1.0'" in notes(open_data(tmp_path))
    else:
        with pytest.raises(DataError, match="CVAT XML.* has tags of whole photos .*'ImageNet 1.0'"):
            open_data(tmp_path)


@every_case(
    ("name", "text"),
    [
        ("photos.jsonl", "\n".join(json.dumps({"file_name": file}) for file in FILES)),
        ("photos.json", json.dumps([{"file_name": file} for file in FILES])),
        ("photos.txt", "\n".join(FILES)),
    ],
)
def test_photos_to_predict_may_be_listed(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, FILES)
    (tmp_path / name).write_text(text)
    assert [image.name for image in list_unlabelled(str(tmp_path / name))] == [str(tmp_path / file) for file in FILES]


def test_a_text_that_lists_no_photos_is_no_photo(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("what was seen\nand when\n")
    with pytest.raises(ImageError, match="is not a readable image"):
        list_unlabelled(str(tmp_path / "notes.txt"))[0].read()
