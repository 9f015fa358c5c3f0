"""Files of annotation tools, held against what the tools' own readers make of them (tools.json, by write_tools.py)."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from vitral.data.annotations.ade20k import read_ade20k, read_scene_parsing
from vitral.data.annotations.cityscapes import TRAINED, meaning, read_cityscapes
from vitral.data.annotations.cvat import read_cvat
from vitral.data.annotations.find import list_annotated
from vitral.data.annotations.label_studio import decode_brush, read_label_studio
from vitral.data.annotations.marked import MarkedPhotos
from vitral.data.annotations.tree import FileTree
from vitral.data.listing import Opening
from vitral.errors import DataError
from vitral.images.run_lengths import decode_mask
from vitral.paths import walk
from vitral.tasks.regions import Regions

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "tools.json").read_text())
Read = Callable[[FileTree], MarkedPhotos | None]


def _read(read: Read, folder: Path) -> MarkedPhotos:
    found = read(FileTree.of_folder(folder, walk(folder)))
    assert found is not None
    return found


def _unpack(name: str, folder: Path) -> Path:
    for path, content in GOLDEN["sets"][name]["files"].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(base64.b64decode(content))
    return folder


def _regions(marked: MarkedPhotos, photo: str) -> tuple[Regions, list[str]]:
    annotation = marked.annotations[photo]
    assert annotation.stated is not None
    regions = annotation.regions({name: number for number, name in enumerate(marked.class_names)}, annotation.stated)
    return regions, [marked.class_names[number] for number in regions.classes]


def _photo(marked: MarkedPhotos, item: str) -> str:
    return next(path for path in marked.annotations if item in path)


@every_case("name", ["cvat images", "cvat video"])
def test_cvat_boxes_are_datumaros(name: str, tmp_path: Path) -> None:
    marked = _read(read_cvat, _unpack(name, tmp_path))
    for item, expected in GOLDEN["sets"][name]["regions"].items():
        boxes = [region for region in expected if region["type"] == "bbox"]
        if "frame_000016" in item:  # no photo of it is there
            continue
        regions, names = _regions(marked, _photo(marked, item))
        assert regions.boxes.tolist() == [box["box"] for box in boxes]
        assert names == [box["name"] for box in boxes]
    kinds = " ".join(trap.kind for trap in marked.traps)
    assert "points, lines" in kinds


def test_cvat_shapes_are_datumaros(tmp_path: Path) -> None:
    marked = _read(read_cvat, _unpack("cvat plant", tmp_path))
    mask, polygon, box = sorted(GOLDEN["sets"]["cvat plant"]["regions"]["plant"], key=lambda region: region["level"])
    regions, names = _regions(marked, "images/plant.jpg")
    assert names == ["leaf", "leaf", "stem"]
    assert np.array_equal(regions.bitmaps()[0], np.array(mask["mask"], dtype=bool))
    assert np.array_equal(regions.bitmaps()[1], np.array(polygon["mask"], dtype=bool))
    corners = np.array(box["corners"])
    (stem,) = [mark for mark in marked.annotations["images/plant.jpg"].marks() if mark.name == "stem"]  # type: ignore[attr-defined]
    assert np.allclose(stem.box, [*corners.min(axis=0), *corners.max(axis=0)])


@every_case("name", ["ade20k2017", "ade20k2020"])
def test_objects_of_ade20k_are_datumaros(name: str, tmp_path: Path) -> None:
    marked = _read(read_ade20k, _unpack(name, tmp_path))
    for item, expected in GOLDEN["sets"][name]["regions"].items():
        regions, names = _regions(marked, next(path for path in marked.annotations if path.endswith(f"{item}.jpg")))
        ours = {(short.split(",")[0], mask.tobytes()) for short, mask in zip(names, regions.bitmaps(), strict=True)}
        theirs = {
            (region["name"], np.array(region["mask"], dtype=bool).tobytes())
            for region in expected
            if region["level"] == 0 and region["type"] == "mask"
        }
        assert ours == theirs
    assert sum(trap.count for trap in marked.traps) == 3
    assert set(marked.splits.values()) == {"train", "validation"}


@every_case("forms", [("labelTrainIds",), ("instanceIds", "labelTrainIds")])
def test_classes_of_cityscapes_are_datumaros(forms: tuple[str, ...], tmp_path: Path) -> None:
    folder = _unpack("cityscapes", tmp_path)
    for path in folder.rglob("*_gtFine_*"):
        if not any(form in path.name for form in forms):
            path.unlink()
    marked = _read(read_cityscapes, folder)
    assert marked.task.name == ("panoptic" if "instanceIds" in forms else "semantic")
    for item, expected in GOLDEN["sets"]["cityscapes"]["regions"].items():
        regions, _ = _regions(marked, _photo(marked, item))
        labels = np.full(regions.size, 255)
        for region in expected:
            if region["name"] != "background":
                number = [name.replace(" ", "") for name in TRAINED].index(region["name"])
                labels[np.array(region["mask"], dtype=bool)] = number
        assert np.array_equal(regions.class_map(), labels)
    assert sorted(set(marked.splits.values())) == ["test", "train", "validation"]


def test_cityscapes_table_is_its_authors() -> None:
    table = {int(number): tuple(row) for number, row in GOLDEN["cityscapes"].items()}
    assert tuple(name for _, name, _ in sorted(table.values())) == TRAINED
    for value in range(256):
        found = meaning("labelIds", value)
        assert (found and found.name) == (table[value][1] if value in table else None)
    assert meaning("instanceIds", 26_003) == ("car", False)
    assert meaning("instanceIds", 26) == ("car", True)
    assert meaning("instanceIds", 7) == ("road", False)
    assert meaning("labelTrainIds", 255) is None


def test_scene_parsing_counts_from_one(tmp_path: Path) -> None:
    (tmp_path / "images" / "training").mkdir(parents=True)
    (tmp_path / "annotations" / "training").mkdir(parents=True)
    (tmp_path / "images" / "training" / "ADE_train_00000001.jpg").touch()
    codes = np.array([[0, 1, 1], [2, 2, 0]], dtype=np.uint8)
    Image.fromarray(codes).save(tmp_path / "annotations" / "training" / "ADE_train_00000001.png")
    (tmp_path / "objectInfo150.txt").write_text(
        "Idx\tRatio\tTrain\tVal\tName\n1\t0.1\t1\t1\twall\n2\t0.1\t1\t1\tbuilding, edifice\n"
    )
    marked = _read(read_scene_parsing, tmp_path)
    regions, _ = _regions(marked, "images/training/ADE_train_00000001.jpg")
    assert marked.class_names == ("wall", "building, edifice")
    assert regions.class_map().tolist() == [[255, 0, 0], [1, 1, 255]]
    assert marked.splits == {"images/training/ADE_train_00000001.jpg": "train"}


@every_case(
    ("name", "form"),
    [
        ("cvat images", "CVAT XML"),
        ("cvat video", "CVAT XML"),
        ("ade20k2017", "ADE20K"),
        ("ade20k2020", "ADE20K"),
        ("cityscapes", "Cityscapes"),
    ],
)
def test_each_is_recognised_by_itself(name: str, form: str, tmp_path: Path) -> None:
    folder = _unpack(name, tmp_path)
    photos = {photo for photo, content in GOLDEN["sets"][name]["files"].items() if not content}
    for photo in photos:
        size = {"cvat video": (25, 20), "cityscapes": (5, 1)}.get(name, (8, 8))
        Image.new("RGB", size).save(folder / photo)
    listing = list_annotated(FileTree.of_folder(folder, walk(folder)), Opening())
    assert listing is not None
    assert listing.notes[0].startswith(f"Annotations: {form}")
    assert sum(map(len, listing.entries.values())) == len(photos)
    assert not any("without annotation" in note for note in listing.notes)


def _task(results: list[dict[str, Any]], image: str = "/data/upload/1/0a1b2c3d-plant.jpg") -> list[dict[str, Any]]:
    other = {"result": [{"type": "choices", "value": {"choices": ["yes"]}}], "was_cancelled": True}
    return [{"id": 7, "data": {"image": image}, "annotations": [{"result": results, "was_cancelled": False}, other]}]


def _result(number: int, value: dict[str, Any]) -> dict[str, Any]:
    size = {"original_width": GOLDEN["label studio"]["original_width"], "original_height": 40}
    return {"id": str(number), "type": "x", "image_rotation": 90, **size, "value": value}


def _label_studio(tmp_path: Path, tasks: object) -> MarkedPhotos:
    (tmp_path / "photos").mkdir(exist_ok=True)
    (tmp_path / "photos" / "plant.jpg").touch()
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    return _read(read_label_studio, tmp_path)


def test_label_studios_boxes_are_its_converters(tmp_path: Path) -> None:
    golden = GOLDEN["label studio"]
    results = [_result(number, {**box, "rectanglelabels": ["leaf"]}) for number, box in enumerate(golden["boxes"])]
    point = _result(90, {"x": 1, "y": 1, "width": 0.5, "keypointlabels": ["leaf"]})
    nameless = _result(91, golden["boxes"][0])
    twice = _result(0, golden["boxes"][0])  # the same region, without its class
    marked = _label_studio(tmp_path, _task([*results, point, nameless, twice]))
    regions, _ = _regions(marked, "photos/plant.jpg")
    corners = np.array(golden["corners"])
    tight = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1).clip(0, [60, 40, 60, 40])
    assert np.allclose(regions.boxes, tight)
    assert [(trap.kind.split(",")[0], trap.count) for trap in marked.traps] == [
        ("regions without a class", 1),
        ("points", 1),
    ]


def test_label_studios_brush_is_its_converters(tmp_path: Path) -> None:
    golden = GOLDEN["label studio"]
    mask = np.array(golden["mask"], dtype=bool)
    assert np.array_equal(decode_mask(decode_brush(golden["brush"], mask.shape), mask.shape), mask)
    triangle = {"points": [[10, 10], [50, 10], [50, 90]], "closed": True, "polygonlabels": ["stem"]}
    stroke = {"format": "rle", "rle": golden["brush"], "brushlabels": ["leaf"]}
    oval = {"x": 50, "y": 50, "radiusX": 20, "radiusY": 20, "rotation": 0, "ellipselabels": ["leaf"]}
    marked = _label_studio(tmp_path, _task([_result(0, triangle), _result(1, stroke), _result(2, oval)]))
    regions, names = _regions(marked, "photos/plant.jpg")
    assert names == ["stem", "leaf", "leaf"]
    assert np.array_equal(regions.bitmaps()[1], mask)
    assert np.abs(regions.boxes[0] - [6, 4, 30, 36]).max() <= 1  # the thin corner covers no pixel's middle
    assert regions.areas[2] == pytest.approx(np.pi * 12 * 8, rel=0.02)


@every_case("times", [1, 2])
def test_a_brush_among_boxes_is_the_box_around_it(tmp_path: Path, times: int) -> None:
    golden = GOLDEN["label studio"]
    columns = np.flatnonzero(np.array(golden["mask"], dtype=bool).any(axis=0))
    rows = np.flatnonzero(np.array(golden["mask"], dtype=bool).any(axis=1))
    box = {"x": 50, "y": 25, "width": 50, "height": 75, "rotation": 0, "rectanglelabels": ["leaf"]}
    stroke = {"format": "rle", "rle": golden["brush"], "brushlabels": ["leaf"]}
    marked = _label_studio(tmp_path, _task([_result(0, box), _result(1, box), _result(2, stroke)]))
    regions = marked.annotations["photos/plant.jpg"].regions({"leaf": 0}, (40 * times, 60 * times))
    assert regions.masks is None
    around = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    assert regions.boxes.tolist() == [[30 * times, 10 * times, 60 * times, 40 * times]] * 2 + [
        [times * side for side in around]
    ]


def _packed(runs: list[tuple[bool, list[int]]], width: int, lengths: list[int]) -> list[int]:
    """Pack runs of values as rle-pack does: each repeats one value, or lists them, with one of four bits of lengths."""
    count = sum(len(values) for _, values in runs)
    bits = f"{count:032b}{width - 1:05b}" + "".join(f"{length - 1:04b}" for length in lengths)
    for repeats, values in runs:
        which = next(place for place, length in enumerate(lengths) if len(values) <= 1 << length)
        bits += f"{int(repeats)}{which:02b}{len(values) - 1:0{lengths[which]}b}"
        bits += "".join(f"{value:0{width}b}" for value in (values[:1] if repeats else values))
    bits += "0" * (-len(bits) % 8)
    return [int(bits[first : first + 8], 2) for first in range(0, len(bits), 8)]


@every_case("width", [8, 7, 3, 1])
def test_a_brush_of_values_that_differ_is_read_as_it_was_packed(width: int) -> None:
    rng, runs, left = np.random.default_rng(width), [], 4 * 30 * 50
    while left:
        count = min(left, int(rng.integers(1, 300)))
        repeats = bool(rng.integers(2))
        values = rng.integers(0, 1 << width, 1 if repeats else count).tolist()
        runs.append((repeats, values * (count if repeats else 1)))
        left -= count
    values = np.array([value for _, each in runs for value in each]).reshape(30, 50, 4)
    packed = _packed(runs, width, [3, 4, 8, 16])
    assert np.array_equal(decode_mask(decode_brush(packed, (30, 50)), (30, 50)), values[..., 3] > 0)
    with pytest.raises(ValueError, match="cut short"):
        decode_brush(packed[:-1], (30, 50))


def test_label_studios_photos_of_one_name_are_told_by_their_folders(tmp_path: Path) -> None:
    box = {"x": 50, "y": 25, "width": 50, "height": 75, "rotation": 0, "rectanglelabels": ["leaf"]}
    paths = ("a/1.jpg", "b/1.jpg")
    for number, path in enumerate(paths):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).touch()
        (tmp_path / f"{number}.json").write_text(
            json.dumps(_task([_result(0, box)], f"/data/local-files/?d=set%2F{path}"))
        )
    assert sorted(_read(read_label_studio, tmp_path).annotations) == [*paths]


@every_case("form", ["a task", "an annotation"])
def test_label_studios_storage_has_a_file_for_each(tmp_path: Path, form: str) -> None:
    box = {"x": 50, "y": 25, "width": 50, "height": 75, "rotation": 0, "rectanglelabels": ["leaf"]}
    (task,) = _task([_result(0, box)], "s3://bucket/plant.jpg")
    annotation = {"id": 3, "result": task["annotations"][0]["result"], "task": {"id": 7, "data": task["data"]}}
    marked = _label_studio(tmp_path, task if form == "a task" else annotation)
    assert _regions(marked, "photos/plant.jpg")[0].boxes.tolist() == [[30, 10, 60, 40]]


def test_what_was_skipped_or_not_marked_in_label_studio_is_not_empty(tmp_path: Path) -> None:
    box = {"x": 50, "y": 25, "width": 50, "height": 75, "rotation": 0, "rectanglelabels": ["leaf"]}
    tasks = _task([_result(0, box)])
    given = {
        "skipped": [{"result": [], "was_cancelled": True}],
        "new": [],
        "empty": [{"result": [], "was_cancelled": False}],
    }
    (tmp_path / "photos").mkdir()
    for name, annotations in given.items():
        (tmp_path / "photos" / f"{name}.jpg").touch()
        tasks.append({"id": 9, "data": {"image": f"/data/upload/1/{name}.jpg"}, "annotations": annotations})
    marked = _label_studio(tmp_path, tasks)
    assert sorted(marked.annotations) == ["photos/empty.jpg", "photos/plant.jpg"]
    assert [(trap.kind.split(",")[0], trap.count) for trap in marked.traps] == [("photos that were skipped", 1)] * 2


def test_label_studios_short_form_and_paths(tmp_path: Path) -> None:
    box = {"x": 50, "y": 25, "width": 50, "height": 75, "rotation": 0, "rectanglelabels": ["leaf"]}
    size = {"original_width": 60, "original_height": 40}
    tasks = [{"image": "/data/local-files/?d=set%2Fplant.jpg", "id": 1, "label": [{**box, **size}]}]
    marked = _label_studio(tmp_path, tasks)
    assert _regions(marked, "photos/plant.jpg")[0].boxes.tolist() == [[30, 10, 60, 40]]


@every_case(
    "value",
    [
        {"x": "left", "y": 1, "width": 1, "height": 1, "rectanglelabels": ["leaf"]},
        {"rle": [0, 0, 1, 0, 57, 27], "brushlabels": ["leaf"]},
        {"rle": [300], "brushlabels": ["leaf"]},
        {"points": [[1, 2, 3]], "polygonlabels": ["leaf"]},
    ],
)
def test_a_region_that_is_none_is_one_line(value: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'export\.json' .*task 7"):
        _label_studio(tmp_path, _task([_result(0, value)]))


@every_case(
    "shape",
    [
        '<box label="leaf" xtl="a" ytl="1" xbr="2" ybr="2"/>',
        '<box label="leaf" xtl="1"/>',
        '<polygon label="leaf" points="1,2;3"/>',
        '<mask label="leaf" rle="1,2" left="0" top="0" width="9" height="9"/>',
        '<mask label="leaf" rle="4" left="9" top="9" width="2" height="2"/>',
    ],
)
def test_a_shape_that_is_none_is_one_line(shape: str, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    image = f'<image name="a.jpg" width="10" height="10">{shape}</image>'
    labels = "<meta><task><labels><label><name>leaf</name></label></labels></task></meta>"
    (tmp_path / "annotations.xml").write_text(f"<annotations>{labels}{image}</annotations>")
    with pytest.raises(DataError, match=r"'annotations\.xml' .*'a\.jpg'"):
        _read(read_cvat, tmp_path)


def test_clicks_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    shapes = (
        '<box label="leaf" xtl="1" ytl="1" xbr="1" ybr="5"/><polygon label="leaf" points="1,2;3,4"/>'
        '<box xtl="1" ytl="1" xbr="4" ybr="5"/><box label="leaf" xtl="2" ytl="3" xbr="4" ybr="5"/>'
    )
    (tmp_path / "annotations.xml").write_text(
        f'<annotations><image name="a.jpg" width="10" height="10">{shapes}</image><image name="b.jpg"/></annotations>'
    )
    marked = _read(read_cvat, tmp_path)
    assert _regions(marked, "a.jpg")[0].boxes.tolist() == [[2, 3, 4, 5]]
    assert len(marked.traps) == 4
    assert marked.class_names == ("leaf",)
