"""LabelMe's files, a JSON a photo: shapes of every kind are the regions that its program shows."""

import base64
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import VitralError
from vitral.tasks.regions import Regions

SCENES = dict(list(drawn.SCENES.items())[:6])
Shape = dict[str, Any]


def polygon(box: drawn.Box) -> Shape:
    kind, left, top, right, bottom = box
    return {
        "label": kind,
        "points": [[left, top], [right, top], [right, bottom], [left, bottom]],
        "shape_type": "polygon",
    }


def rectangle(box: drawn.Box) -> Shape:
    kind, left, top, right, bottom = box
    return {"label": kind, "points": [[right, bottom], [left, top]], "shape_type": "rectangle"}


def mask(box: drawn.Box) -> Shape:
    kind, left, top, right, bottom = box
    buffer = io.BytesIO()
    Image.new("L", (right - left, bottom - top), 1).save(buffer, "PNG")
    points = [[left, top], [right - 1, bottom - 1]]
    return {"label": kind, "points": points, "shape_type": "mask", "mask": base64.b64encode(buffer.getvalue()).decode()}


def save(
    path: Path, shapes: Sequence[Shape], called: str, *, size: tuple[int, int] = (drawn.HEIGHT, drawn.WIDTH)
) -> None:
    values = {"version": "5.5.0", "shapes": shapes, "imagePath": called, "imageData": None}
    path.write_text(json.dumps(values | {"imageHeight": size[0], "imageWidth": size[1]}))


def labels(data: DataSet) -> dict[str, Regions]:
    every = [(source, index) for source in data.splits.values() for index in range(len(source))]
    return {Path(source.describe(index)).stem: source.label(index) for source, index in every}  # type: ignore[misc]


@every_case(
    ("shape", "task", "called"),
    [
        (polygon, "instances", "..\\photos\\{}.png"),
        (rectangle, "boxes", "{}.png"),
        (mask, "instances", "before it was renamed.png"),
    ],
)
def test_shapes_are_the_regions_that_were_drawn(
    tmp_path: Path, shape: Callable[[drawn.Box], Shape], task: str, called: str
) -> None:
    drawn.photos(tmp_path, SCENES)
    for name, boxes in SCENES.items():
        save(tmp_path / f"{name}.json", [shape(box) for box in boxes], called.format(name))
    data = open_data(tmp_path, near=False)
    assert (data.task.name, data.class_names) == (task, drawn.NAMES)
    for name, found in labels(data).items():
        assert [drawn.NAMES[number] for number in found.classes] == [kind for kind, *_ in SCENES[name]]
        expected = np.reshape([box for _, *box in SCENES[name]], (-1, 4))
        np.testing.assert_allclose(found.boxes, expected, atol=1 if shape is polygon else 0)


def test_groups_circles_points_and_damaged_shapes(tmp_path: Path) -> None:
    drawn.photos(tmp_path, SCENES)
    first, second = (polygon(box) | {"group_id": 1} for box in SCENES["photo_0"][:2])
    circle = {"label": "cell", "points": [[40, 30], [40, 20]], "shape_type": "circle", "group_id": None}
    point = {"label": "cell", "points": [[4, 3]], "shape_type": "point"}
    save(tmp_path / "photo_0.json", [first, second | {"label": first["label"]}, circle, point], "photo_0.png")
    damaged = mask(SCENES["photo_1"][0]) | {"points": [[0, 0], [900, 900]]}
    save(tmp_path / "photo_1.json", [damaged], "photo_1.png")
    save(tmp_path / "photo_2.json", [mask(SCENES["photo_2"][0])], "photo_2.png")
    data = open_data(tmp_path, near=False)
    found = labels(data)["photo_0"]
    assert len(found) == 2
    both = [box for _, *box in SCENES["photo_0"][:2]]
    around = [min(b[0] for b in both), min(b[1] for b in both), max(b[2] for b in both), max(b[3] for b in both)]
    assert np.abs(found.boxes[0] - around).max() <= 1
    assert found.areas[1] == pytest.approx(np.pi * 100, rel=0.03)
    assert any("points, lines" in note for note in data.notes)
    assert "photo_1.json' has a shape that is not LabelMe's (a mask beyond the photo" in data.bad_images[0].reason


def test_regions_are_of_the_photo_as_exif_turns_it(tmp_path: Path) -> None:
    boxes = [("cell", 5, 50, 25, 78), ("platelet", 30, 10, 50, 30)]
    for name in ("photo_a", "photo_b"):
        drawn.draw(tmp_path / f"{name}.jpg", [], exif=6)
        save(tmp_path / f"{name}.json", [rectangle(box) for box in boxes], f"{name}.jpg", size=(80, 60))
    for found in labels(open_data(tmp_path, near=False)).values():
        assert found.boxes.tolist() == [box for _, *box in boxes]


def test_other_forms_and_files_say_what_to_do(tmp_path: Path) -> None:
    drawn.photos(tmp_path / "photos", SCENES)
    (tmp_path / "all.json").write_text(json.dumps([{"name": "photo_0.png", "labels": []}]))
    with pytest.raises(VitralError, match="no annotations that are recognised.* COCO, .* LabelMe are"):
        open_data(f"boxes:{tmp_path}")
    marked = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}
    coco = {"images": [{"id": 1, "file_name": "photo_0.png"}], "categories": [{"id": 1, "name": "cell"}]}
    (tmp_path / "all.json").write_text(json.dumps({**coco, "annotations": [marked]}))
    with pytest.raises(VitralError, match=r"all.json' is in no form .* name the folder that holds it with its photos"):
        open_data(tmp_path / "all.json")
