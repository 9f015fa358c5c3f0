"""Annotations as tools, people and other machines leave them: read as they are meant, or what is lost is said in one line."""

import json
import time
import tracemalloc
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.annotations import tree
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import VitralError
from vitral.paths import walk
from vitral.tasks.regions import Regions

SCENES = dict(list(drawn.SCENES.items())[:10])
REGIONS = sum(map(len, SCENES.values()))
Values = dict[str, Any]


def regions(data: DataSet) -> int:
    labels = [source.label(index) for source in data.splits.values() for index in range(len(source))]
    return sum(len(label) for label in labels if isinstance(label, Regions))


def opened(folder: Path, change: Callable[[Path, Values], object], encoding: str = "utf-8") -> DataSet:
    drawn.photos(folder / "images", SCENES)
    values = drawn.coco(SCENES)
    change(folder, values)
    (folder / "a.json").write_text(json.dumps(values), encoding=encoding)
    return open_data(folder)


def _called(name: str) -> Callable[[Path, Values], None]:
    def change(_: Path, values: Values) -> None:
        for image in values["images"]:
            image["file_name"] = name.format(image["file_name"])

    return change


def _renamed(name: str, called: str) -> Callable[[Path, Values], None]:
    def change(folder: Path, values: Values) -> None:
        (folder / "images" / "photo_0.png").rename(folder / "images" / name)
        values["images"][0]["file_name"] = called

    return change


def _upper(folder: Path, _: Values) -> None:
    for path in list((folder / "images").iterdir()):
        path.rename(path.with_suffix(".PNG"))


def _ids_as_text(_: Path, values: Values) -> None:
    for item in (*values["images"], *values["categories"]):
        item["id"] = str(item["id"])


MEANT: dict[str, Callable[[Path, Values], object]] = {
    "another machine": _called("/home/pi/data/{}"),
    "Windows": _called("C:\\Users\\me\\{}"),
    "Label Studio's upload": _called("images/0a1b2c3d-{}"),
    "upper case": _upper,
    "ids as text": _ids_as_text,
    "encoded": _renamed("my photo.png", "images/my%20photo.png"),
    "encoded upload": _renamed("my photo.png", "../../label-studio/data/media/upload/1/0a1b2c3d-my%20photo.png"),
    "a hash that is a part of the name": _renamed("0a1b2c3d-a.png", "0a1b2c3d-a.png"),
    "composed": _renamed(unicodedata.normalize("NFD", "été.png"), unicodedata.normalize("NFC", "été.png")),
    "decomposed": _renamed(unicodedata.normalize("NFC", "été.png"), unicodedata.normalize("NFD", "été.png")),
}


@every_case("odd", list(MEANT))
def test_photos_are_found_as_they_are_meant(tmp_path: Path, odd: str) -> None:
    data = opened(tmp_path, MEANT[odd])
    assert regions(data) == REGIONS
    assert not any("that are not in the folder" in note for note in data.notes)


@every_case("encoding", ["utf-8-sig", "utf-16"])
def test_marks_of_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    assert regions(opened(tmp_path, lambda *_: None, encoding)) == REGIONS


def test_text_files_of_windows_are_read(tmp_path: Path) -> None:
    drawn.write_yolo(tmp_path / "yolo")
    drawn.write_voc(tmp_path / "voc")
    expected = sum(map(len, drawn.SCENES.values()))
    for path in [*(tmp_path / "yolo" / "labels").iterdir(), *(tmp_path / "voc" / "Annotations").iterdir()]:
        content = path.read_bytes().replace(b"\n", b"\r\n").replace(b"><", b">\r\n<")
        path.write_bytes(b"\xef\xbb\xbf" + content)
    assert regions(open_data(tmp_path / "yolo")) == regions(open_data(tmp_path / "voc")) == expected


@every_case("encoding", ["gb2312", "gbk", "shift_jis", "euc-kr", "latin-1", "utf-16"])
def test_xml_is_read_in_the_encoding_that_it_declares(tmp_path: Path, encoding: str) -> None:
    name = {"shift_jis": "細胞", "euc-kr": "세포", "latin-1": "été"}.get(encoding, "细胞")
    drawn.write_voc(tmp_path)
    for path in (tmp_path / "Annotations").iterdir():
        text = f'<?xml version="1.0" encoding="{encoding}"?>\n{path.read_text().replace("platelet", name)}'
        path.write_bytes(text.encode(encoding))
    data = open_data(tmp_path, near=False)
    assert data.class_names == ("cell", name)
    assert regions(data) == sum(map(len, drawn.SCENES.values()))


@every_case("encoding", ["utf-7", "gb2312", "no such"])
def test_xml_of_a_false_encoding_is_one_line(tmp_path: Path, encoding: str) -> None:
    drawn.write_voc(tmp_path)
    path = tmp_path / "Annotations" / "photo_0.xml"
    text = "<!DOCTYPE a [<!ENTITY x 'secret'>]>" + path.read_text().replace("platelet", "été")
    content = text.encode("utf-7") if encoding == "utf-7" else text.encode("latin-1").replace(b"<!ENTITY", b"<!ELEMENT")
    path.write_bytes(f'<?xml version="1.0" encoding="{encoding}"?>'.encode() + content)
    (bad,) = open_data(tmp_path, near=False).bad_images
    assert "photo_0.xml' cannot be read as XML" in bad.reason
    assert "\n" not in bad.reason


def _bbox(*box: object) -> Callable[[Path, Values], None]:
    return lambda _, values: values["annotations"][0].update(bbox=list(box))


def _runs(height: int, width: int) -> Callable[[Path, Values], None]:
    runs = {"size": [height, width], "counts": [height * width // 2, height * width // 2]}
    return lambda _, values: values["annotations"][0].update(segmentation=runs)


LOST: dict[str, tuple[Callable[[Path, Values], object], str]] = {
    "not a number": (_bbox(float("nan"), 1, 5, 5), "boxes that are not four numbers, left out: 1"),
    "infinite": (_bbox(1, 1, float("inf"), 5), "boxes that are not four numbers, left out: 1"),
    "text": (_bbox("1", "1", "5", "5"), "boxes that are not four numbers, left out: 1"),
    "negative": (_bbox(9, 9, -5, -5), "boxes without width or height, left out: 1"),
    "a mask of another photo": (_runs(10, 10), "are not of the photo, instead of which boxes are taken: 1"),
    "a giant mask": (_runs(10**6, 10**6), "are not of the photo, instead of which boxes are taken: 1"),
    "a photo that is not there": (_renamed("other.png", "photo_0.png"), "that are not in the folder"),
    "a photo that is not annotated": (
        lambda _, values: values["images"].pop(),
        "1 image without annotation is left out: images/photo_9.png",
    ),
    "an id of two photos": (
        lambda _, values: values["images"][1].update(id=values["images"][0]["id"]),
        "photos whose id is that of others, too, left out: 2",
    ),
}


@every_case("odd", list(LOST))
def test_what_is_lost_is_said(tmp_path: Path, odd: str) -> None:
    change, words = LOST[odd]
    data = opened(tmp_path, change)
    assert any(words in note for note in data.notes), data.notes


REFUSED: dict[str, tuple[Callable[[Path, Values], object], str]] = {
    "nothing marked": (lambda _, values: values["annotations"].clear(), "needs something marked"),
    "a number of two classes": (
        lambda _, values: values["categories"].append({"id": 3, "name": "dust"}),
        "number 3 to the classes 'cell' and 'dust'",
    ),
    "photos of another folder": (_called("x{}"), "COCO JSON in .* is of none of its images.*: 10 in 1 file"),
    "other lists": (lambda _, values: values.update(images=1, annotations={}), "only one class"),
}


@every_case("odd", list(REFUSED))
def test_what_cannot_be_meant_is_one_line(tmp_path: Path, odd: str) -> None:
    change, words = REFUSED[odd]
    with pytest.raises(VitralError, match=words) as caught:
        opened(tmp_path, change)
    assert "\n" not in str(caught.value)


@every_case("share", [0.05, 0.4, 0.9])
def test_a_file_that_is_cut_off_is_one_line(tmp_path: Path, share: float) -> None:
    for split in ("train", "valid"):
        drawn.photos(tmp_path / split, SCENES)
        (tmp_path / split / "_annotations.coco.json").write_text(json.dumps(drawn.coco(SCENES)))
    path = tmp_path / "valid" / "_annotations.coco.json"
    text = path.read_text()
    path.write_text(text[: int(share * len(text))].rstrip("}"))
    with pytest.raises(VitralError, match="valid/_annotations.coco.json") as raised:
        open_data(tmp_path)
    assert "\n" not in str(raised.value)
    (tmp_path / "valid" / "_annotations.coco.json").write_text('{"images": 1}\n{"images": 2}\n')  # of another form
    assert regions(open_data(tmp_path)) == REGIONS


def test_two_files_of_a_split_do_not_count_twice(tmp_path: Path) -> None:
    data = opened(tmp_path, lambda folder, values: (folder / "b.json").write_text(json.dumps(values)))
    assert regions(data) == REGIONS
    assert any("annotations of photos that other annotations are of, too, left out: 10" in note for note in data.notes)


def test_texts_without_photos_are_said(tmp_path: Path) -> None:
    drawn.write_yolo(tmp_path)
    (tmp_path / "labels" / "gone.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    assert any("not in the folder" in note and "labels/gone.txt" in note for note in open_data(tmp_path).notes)


@every_case(
    ("names", "read"),
    [
        ("[7, 3]", ("7", "3")),
        ("[null, no]", ("null", "no")),
        ("{0: 1.50, 1: ~}", ("1.50", "~")),
        ("{1: yes, 0: 007}", ("007", "yes")),
    ],
)
def test_names_that_are_no_words_stay_names(tmp_path: Path, names: str, read: tuple[str, ...]) -> None:
    drawn.write_yolo(tmp_path)
    (tmp_path / "data.yaml").write_text(f"train: images\nnames: {names}\n")
    (tmp_path / "labels" / "classes.txt").write_text("of LabelImg\n")
    data = open_data(tmp_path)
    assert data.class_names == read
    boxes = next(boxes for boxes in drawn.SCENES.values() if boxes)
    label = open_data(tmp_path).splits["train"].label(0)
    assert isinstance(label, Regions)
    assert label.classes.tolist() == [drawn.NAMES.index(kind) for kind, *_ in boxes]
    assert not any("not in the folder" in note for note in data.notes)


@every_case("names", ["[a, [b]]", "{0: a, 1: {b: c}}"])
def test_names_that_are_lists_are_one_line(tmp_path: Path, names: str) -> None:
    drawn.write_yolo(tmp_path)
    (tmp_path / "data.yaml").write_text(f"names: {names}\n")
    with pytest.raises(VitralError, match="'names' is to be a list") as raised:
        open_data(tmp_path)
    assert "\n" not in str(raised.value)


def test_more_classes_than_a_map_has_numbers_for_are_one_line(tmp_path: Path) -> None:
    most, scenes = 255, {f"photo_{number}": drawn.boxes_of(0) for number in range(4)}
    drawn.photos(tmp_path, scenes)
    values = drawn.coco(scenes, masks=True)
    for classes in (most, most + 1):
        names = range(classes - 1)  # beside the background
        values["categories"] = [{"id": number, "name": f"class {number}"} for number in names]
        for number, item in enumerate(values["annotations"]):
            item["category_id"] = number % 3
        (tmp_path / "a.json").write_text(json.dumps(values))
        if classes == most:
            assert len(open_data(f"semantic:{tmp_path}").class_names) == most
            continue
        with pytest.raises(VitralError, match=rf"has {classes} classes, .* up to {most}") as raised:
            open_data(f"semantic:{tmp_path}")
        assert "\n" not in str(raised.value)
    assert len(open_data(f"boxes:{tmp_path}").class_names) == len(open_data(tmp_path).class_names) == most


def _one_file_a_photo(folder: Path, count: int) -> Path:
    for number in range(count):
        scenes = {f"photo_{number}": drawn.boxes_of(0)}
        drawn.photos(folder, scenes)
        (folder / f"photo_{number}.json").write_text(json.dumps(drawn.coco(scenes)))
    return folder


def test_hundreds_of_small_files_are_read_and_of_large_ones_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _one_file_a_photo(tmp_path, 205)
    assert regions(open_data(folder)) == 205 * len(drawn.boxes_of(0))
    monkeypatch.setattr(tree, "JSON_BYTES", 1000)
    data = open_data(folder)
    assert regions(data) == 200 * len(drawn.boxes_of(0))
    assert any(note.startswith("5 JSON files in") for note in data.notes)


def test_a_file_takes_the_memory_of_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    file = tree.FileTree.of_folder(tmp_path, walk(tmp_path)).file("a.json")
    tracemalloc.start()
    try:
        assert file.content() == b"{}"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_photos_of_one_name_are_found_by_their_folders_in_no_time() -> None:
    paths = [f"set/scene_{number:05}/rgb.png" for number in range(10_000)]
    photos, began = tree.Photos(paths), time.process_time()
    assert [photos.find(path.removeprefix("set/"), "a.json") for path in paths] == paths
    assert time.process_time() - began < 10
    assert photos.find("rgb.png", "a.json") is None
    assert photos.find("scene_00007/rgb.png", "a.json", other_than=paths[7]) is None


def test_photos_of_voc_without_objects_are_of_that_form(tmp_path: Path) -> None:
    drawn.photos(tmp_path, SCENES)
    for name in SCENES:
        (tmp_path / f"{name}.xml").write_text(drawn.voc_xml(name, []))
    with pytest.raises(VitralError, match="needs something marked in its photos"):
        open_data(tmp_path)
