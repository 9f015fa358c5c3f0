"""COCO's JSON as tools write it that take liberties: read as it is meant, as pycocotools reads what they mean."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.tasks.regions import Regions

SCENES = dict(list(drawn.SCENES.items())[:6])
Values = dict[str, Any]


def _floats(values: Values) -> None:
    """Write every number as pandas does."""
    for item in (*values["images"], *values["annotations"], *values["categories"]):
        item |= {key: float(value) for key, value in item.items() if isinstance(value, int)}


def _texts_as_ids(values: Values) -> None:
    for item in values["categories"]:
        item["id"] = f"class-{item['id']}"
    for item in values["annotations"]:
        item["category_id"] = f"class-{item['category_id']}"


def _crowds_as_text(values: Values) -> None:
    for item in values["annotations"]:
        item["iscrowd"] = "0"


def _addresses(values: Values) -> None:
    for image in values["images"]:
        image["file_name"] = f"https://bucket.example/a/{image['file_name']}?signature=a/b&expires=1"


def _addresses_alone(values: Values) -> None:
    for image in values["images"]:
        image["coco_url"] = f"http://images.example/images/{image.pop('file_name')}"


def _shares(values: Values) -> None:
    scale = np.array([drawn.WIDTH, drawn.HEIGHT] * 2)
    for item in values["annotations"]:
        item |= {"bbox": (np.array(item["bbox"]) / scale).tolist(), "area": item["area"] / scale[:2].prod()}


MEANT: dict[str, Callable[[Values], None]] = {
    "floats": _floats,
    "texts as ids": _texts_as_ids,
    "crowds as text": _crowds_as_text,
    "addresses": _addresses,
    "addresses alone": _addresses_alone,
    "shares": _shares,
}


def opened(folder: Path, change: Callable[[Values], None], *, exif: int | None = None) -> DataSet:
    for name, boxes in SCENES.items():
        drawn.draw(folder / "images" / f"{name}.png", boxes, exif=exif)
    values = drawn.coco(SCENES)
    change(values)
    (folder / "a.json").write_text(json.dumps(values))
    return open_data(folder, near=False)


def labels(data: DataSet) -> dict[str, Regions]:
    every = [(source, index) for source in data.splits.values() for index in range(len(source))]
    return {Path(source.describe(index)).stem: source.label(index) for source, index in every}  # type: ignore[misc]


@every_case("kind", list(MEANT))
def test_liberties_are_read_as_they_are_meant(tmp_path: Path, kind: str) -> None:
    data = opened(tmp_path, MEANT[kind])
    assert (data.task.name, data.class_names) == ("boxes", drawn.NAMES)
    found = labels(data)
    assert found.keys() == SCENES.keys()
    for name, boxes in SCENES.items():
        assert [drawn.NAMES[number] for number in found[name].classes] == [kind for kind, *_ in boxes]
        np.testing.assert_allclose(found[name].boxes, np.reshape([box for _, *box in boxes], (-1, 4)), atol=1e-5)
        assert found[name].areas.tolist() == pytest.approx([(c - a) * (d - b) for _, a, b, c, d in boxes])
        assert not found[name].crowd.any()
    assert any("taken as shares of the photo" in note for note in data.notes) == (kind == "shares")


@every_case("kind", [float, str])
def test_a_size_that_is_no_whole_number_tells_which_side_is_up(tmp_path: Path, kind: type) -> None:
    def change(values: Values) -> None:
        for image in values["images"]:
            image |= {side: kind(image[side]) for side in ("height", "width")}

    found = labels(opened(tmp_path, change, exif=6))
    for name, boxes in SCENES.items():
        turned = [[drawn.HEIGHT - low, left, drawn.HEIGHT - top, right] for _, left, top, right, low in boxes]
        assert found[name].boxes.tolist() == turned


def test_a_class_that_is_its_own_parent_stays_a_class(tmp_path: Path) -> None:
    def change(values: Values) -> None:
        values["categories"].append({"id": 900, "name": "person", "supercategory": "person"})
        values["categories"].append({"id": 901, "name": "things", "supercategory": "none"})
        values["categories"][0]["supercategory"] = "things"

    data = opened(tmp_path, change)
    assert data.class_names == (*drawn.NAMES, "person")
    assert any("parents of the others and mark nothing ('things')" in note for note in data.notes)
