"""What is annotated at another size than the photo has is scaled to it, turned with it, or refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.annotations.annotation import of_stored, same_shape
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import VitralError
from vitral.tasks.regions import Regions

SCENES = {name: boxes for name, boxes in drawn.SCENES.items() if boxes}
FIRST = "photo_0"


def scaled(boxes: list[drawn.Box], times: float) -> list[tuple[str, float, float, float, float]]:
    return [(kind, times * a, times * b, times * c, times * d) for kind, a, b, c, d in boxes]


def write_coco(folder: Path, times: float, size: tuple[int, int]) -> None:
    """Write COCO's JSON that has the first photo at another size."""
    drawn.photos(folder / "images", SCENES)
    values = drawn.coco(SCENES, masks=True)
    values["images"][0] |= {"height": size[0], "width": size[1]}
    for item in values["annotations"]:
        if item["image_id"] == values["images"][0]["id"]:
            item["bbox"] = [times * side for side in item["bbox"]]
            item["segmentation"] = [[times * side for side in outline] for outline in item["segmentation"]]
            item["area"] *= times**2
    (folder / "a.json").write_text(json.dumps(values))


def write_voc(folder: Path, times: float, size: tuple[int, int]) -> None:
    drawn.photos(folder / "images", SCENES)
    for name, boxes in SCENES.items():
        here = times if name == FIRST else 1
        high, wide = size if name == FIRST else (drawn.HEIGHT, drawn.WIDTH)
        objects = "".join(
            f"<object><name>{kind}</name><bndbox><xmin>{a + 1}</xmin><ymin>{b + 1}</ymin><xmax>{c}</xmax><ymax>{d}</ymax>"
            "</bndbox></object>"
            for kind, a, b, c, d in scaled(boxes, here)
        )
        stated = f"<size><width>{wide}</width><height>{high}</height></size>"
        (folder / f"{name}.xml").write_text(f"<annotation>{stated}{objects}</annotation>")


def write_cvat(folder: Path, times: float, size: tuple[int, int]) -> None:
    drawn.photos(folder / "images", SCENES)
    images = ""
    for name, boxes in SCENES.items():
        high, wide = size if name == FIRST else (drawn.HEIGHT, drawn.WIDTH)
        shapes = "".join(
            f'<box label="{kind}" xtl="{a}" ytl="{b}" xbr="{c}" ybr="{d}"/>'
            for kind, a, b, c, d in scaled(boxes, times if name == FIRST else 1)
        )
        images += f'<image name="{name}.png" width="{wide}" height="{high}">{shapes}</image>'
    (folder / "annotations.xml").write_text(f"<annotations>{images}</annotations>")


def write_masks(folder: Path, times: float, size: tuple[int, int]) -> None:
    drawn.photos(folder / "images", SCENES)
    (folder / "masks").mkdir()
    for name, boxes in SCENES.items():
        image = Image.fromarray(drawn.class_map(boxes))
        if name == FIRST:
            image = image.resize(size[::-1], Image.Resampling.NEAREST)
        image.save(folder / "masks" / f"{name}.png")


def write_label_studio(folder: Path, times: float, size: tuple[int, int]) -> None:
    drawn.photos(folder / "images", SCENES)
    tasks = []
    for name, boxes in SCENES.items():
        high, wide = size if name == FIRST else (drawn.HEIGHT, drawn.WIDTH)
        stated = {"original_width": wide, "original_height": high, "rotation": 0}
        found = [
            {"x": a / 0.8, "y": b / 0.6, "width": (c - a) / 0.8, "height": (d - b) / 0.6, **stated, "labels": [kind]}
            for kind, a, b, c, d in boxes
        ]
        tasks.append({"image": f"{name}.png", "label": found})
    (folder / "export.json").write_text(json.dumps(tasks))


Write = Callable[[Path, float, tuple[int, int]], None]
FORMS: dict[str, Write] = {
    "COCO": write_coco,
    "VOC": write_voc,
    "CVAT": write_cvat,
    "Label Studio": write_label_studio,
    "masks": write_masks,
}


def labels(data: DataSet) -> dict[str, Regions]:
    every = [(source, index) for source in data.splits.values() for index in range(len(source))]
    return {Path(source.describe(index)).stem: source.label(index) for source, index in every}  # type: ignore[misc]


@every_case("form", list(FORMS))
def test_what_is_of_another_size_is_scaled_to_the_photo(tmp_path: Path, form: str) -> None:
    for times in (0.5, 2, 3):
        folder = tmp_path / str(times)
        FORMS[form](folder, times, (int(60 * times), int(80 * times)))
        data = open_data(folder)
        found = labels(data)[FIRST]
        assert found.size == (drawn.HEIGHT, drawn.WIDTH)
        if form == "masks":
            whole = times == int(times)
            assert (found.class_map() != drawn.class_map(SCENES[FIRST])).mean() <= (0 if whole else 0.05)
        else:
            slack = {"VOC": 1 / times}.get(form, 1e-9)  # of which the first pixel of a box is the smaller one's
            slack = 1 if found.masks is not None else slack
            expected = [box for _, *box in SCENES[FIRST]]
            np.testing.assert_allclose(found.boxes, expected, atol=slack)
        if form == "COCO":
            assert found.areas.tolist() == [(c - a) * (d - b) for _, a, b, c, d in SCENES[FIRST]]
        assert not data.bad_images
        (note,) = [note for note in data.notes if "of another size than their" in note]
        assert f"1 in 1 file, such as 'images/{FIRST}.png'" in note


@every_case("form", list(FORMS))
def test_what_is_of_another_shape_is_refused_by_name(tmp_path: Path, form: str) -> None:
    for size, words in (((80, 60), "turned by 90 degrees"), ((100, 100), "as of 100x100 pixels")):
        folder = tmp_path / str(size[0])
        FORMS[form](folder, 0.7, size)
        data = open_data(folder)
        (bad,) = data.bad_images
        assert f"{FIRST}.png' is annotated as of {size[1]}x{size[0]} pixels" in bad.reason
        assert words in bad.reason
        assert FIRST not in labels(data)


def test_a_size_that_its_own_regions_exceed_is_wrong(tmp_path: Path) -> None:
    for number, write in enumerate((write_coco, write_voc, write_cvat)):
        folder = tmp_path / str(number)
        write(folder, 1, (3, 4))
        data = open_data(folder)
        expected = [box for _, *box in SCENES[FIRST]]
        np.testing.assert_allclose(labels(data)[FIRST].boxes, expected, atol=1 if not number else 1e-9)
        assert any("state and mark beyond; the coordinates are taken as they are: 1" in note for note in data.notes)


def test_where_all_are_refused_it_is_said_in_one_line(tmp_path: Path) -> None:
    drawn.photos(tmp_path / "images", SCENES)
    values = drawn.coco(SCENES)
    for image in values["images"]:
        image |= {"height": 999, "width": 100}
    (tmp_path / "a.json").write_text(json.dumps(values))
    with pytest.raises(VitralError, match="is annotated as of 100x999 pixels, and has 80x60") as caught:
        open_data(tmp_path)
    assert "\n" not in str(caught.value)


@every_case("turn", [6, 8])
def test_what_is_of_another_size_turns_with_its_photo(tmp_path: Path, turn: int) -> None:
    """A reduced copy that was annotated unturned, and one that was annotated as EXIF turns it."""
    boxes = {"photo_a": SCENES[FIRST], "photo_b": SCENES[FIRST]}
    for name in boxes:
        drawn.draw(tmp_path / "images" / f"{name}.jpg", boxes[name], exif=turn)
    values: dict[str, Any] = drawn.coco(boxes, suffix=".jpg")
    unturned, turned = values["images"]
    unturned |= {"height": 120, "width": 160}
    turned |= {"height": 160, "width": 120}
    expected = {}
    for item in values["annotations"]:
        x, y, width, height = item["bbox"]
        across = [60 - y - height, x, height, width] if turn == 6 else [y, 80 - x - width, height, width]
        expected[item["image_id"], item["id"]] = [across[0], across[1], across[0] + across[2], across[1] + across[3]]
        item["bbox"] = [2 * side for side in (across if item["image_id"] == turned["id"] else item["bbox"])]
    (tmp_path / "a.json").write_text(json.dumps(values))
    found = labels(open_data(tmp_path))
    for image, name in ((unturned, "photo_a"), (turned, "photo_b")):
        assert found[name].size == (80, 60)
        assert found[name].boxes.tolist() == [box for (photo, _), box in expected.items() if photo == image["id"]]


@every_case(("turn", "masks"), [(6, False), (6, True), (8, False)])
def test_regions_beyond_a_size_as_stored_are_of_the_turned_photo(tmp_path: Path, turn: int, masks: bool) -> None:
    """As Label Studio writes COCO's form: the size without EXIF, coordinates of what it shows; not all photos tell it."""
    boxes = {
        "photo_a": [("cell", 5, 50, 25, 78)],  # below the 60 rows of the photo as stored
        "photo_b": [("cell", 5, 10, 30, 40), ("platelet", 40, 10, 55, 40)],
        "photo_c": [("platelet", 2, 20, 50, 75)],
    }
    for name in boxes:
        drawn.draw(tmp_path / "images" / f"{name}.jpg", [], exif=turn)
    (tmp_path / "a.json").write_text(json.dumps(drawn.coco(boxes, masks=masks, suffix=".jpg")))
    data = open_data(tmp_path, near=False)
    assert any("state the size as stored and mark the turned photo: 3 in 3 files" in note for note in data.notes)
    for name, found in labels(data).items():
        assert found.size == (80, 60)
        assert np.abs(found.boxes - [box for _, *box in boxes[name]]).max() <= (1 if masks else 0)


def test_regions_of_a_photo_as_stored_stay_so(tmp_path: Path) -> None:
    boxes = {
        "photo_a": [("cell", 50, 5, 78, 25)],
        "photo_b": [("platelet", 5, 10, 30, 40)],
        "photo_c": [("cell", 1, 2, 9, 9)],
    }
    for name in boxes:
        drawn.draw(tmp_path / "images" / f"{name}.jpg", [], exif=6)
    (tmp_path / "a.json").write_text(json.dumps(drawn.coco(boxes, suffix=".jpg")))
    found = labels(open_data(tmp_path, near=False))
    assert found["photo_a"].boxes.tolist() == [[35, 50, 55, 78]]
    assert found["photo_b"].boxes.tolist() == [[20, 5, 50, 30]]


def test_shapes() -> None:
    assert same_shape((480, 640), (960, 1280))
    assert same_shape((67, 100), (1000, 1500))  # rounded
    assert same_shape((333, 500), (1000, 1500))
    assert not same_shape((480, 640), (640, 480))
    assert not same_shape((480, 640), (480, 720))
    assert not same_shape((500, 500), (480, 500))
    assert of_stored((60, 80), (60, 80), 6)
    assert of_stored((30, 40), (60, 80), 6)
    assert not of_stored((80, 60), (60, 80), 6)
    assert not of_stored((60, 80), (60, 80), 3)
    assert not of_stored(None, (60, 80), 6)
