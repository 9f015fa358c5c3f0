"""Boxes in the rows of a Hugging Face dataset: their form is decided by all of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from vitral.data.annotations.hub_objects import BY_CENTRE, BY_CORNERS, BY_SIDES, box_form
from vitral.data.open import open_data
from vitral.errors import DataError
from vitral.tasks.regions import Regions


def _saved(folder: Path, boxes: list[list[list[float]]], form: str = "saved") -> Path:
    """Write a dataset with a column of objects, or with columns of boxes and of classes, as the library or a Parquet file."""
    datasets = pytest.importorskip("datasets")
    rng = np.random.default_rng(0)
    photos = [Image.fromarray(rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)) for _ in boxes]
    rows: dict[str, list[Any]] = {
        "image": photos,
        "objects": [{"bbox": own, "category": [number % 2 for number in range(len(own))]} for own in boxes],
    }
    objects = {"bbox": [[datasets.Value("float32")]], "category": [datasets.ClassLabel(names=["mask", "glove"])]}
    features = {"image": datasets.Image(), "objects": objects}
    if form != "saved":
        listed = rows.pop("objects")
        rows |= {name: [own[name] for own in listed] for name in objects}
        features = {"image": datasets.Image(), **objects}
    made = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    if form == "parquet":
        folder.mkdir()
        made.to_parquet(folder / "train.parquet")
    else:
        made.save_to_disk(folder)
    return folder


@every_case(
    ("boxes", "expected", "form"),
    [
        ([[[30, 20, 20, 15]], [[1, 2, 30, 30], [4, 4, 5, 5]]], [30, 20, 50, 35], "saved"),
        ([[[30, 20, 50, 35]], [[1, 2, 30, 30], [4, 4, 5, 5]]], [30, 20, 50, 35], "saved"),
        ([[[30, 20, 20, 15]], [[1, 2, 30, 30], [4, 4, 5, 5]]], [30, 20, 50, 35], "columns"),
        ([[[30, 20, 20, 15]], [[1, 2, 30, 30], [4, 4, 5, 5]]], [30, 20, 50, 35], "parquet"),
        ([[[50, 30, 18, 19]], [[16, 16, 30, 30], [4, 4, 5, 5]]], [41, 20.5, 59, 39.5], "saved"),
        ([[[50, 30, 18, 19]], [[16, 16, 30, 30], [4, 4, 5, 5]]], [41, 20.5, 59, 39.5], "parquet"),
    ],
)
def test_boxes_are_read_in_the_form_that_all_of_them_tell(
    boxes: list[list[list[float]]], expected: list[float], form: str, tmp_path: Path
) -> None:
    data = open_data(_saved(tmp_path / "saved", [*boxes, *[[]] * 8], form), verify=False)
    assert data.task.name == "boxes"
    assert data.class_names == ("mask", "glove")
    labels = [source.label(index) for source in data.splits.values() for index in range(len(source))]
    regions = [label for label in labels if isinstance(label, Regions)]
    assert len(regions) == 10
    assert expected in [box for label in regions for box in label.boxes.tolist()]
    assert sum(len(label) for label in regions) == 3
    assert any("are taken as [" in note for note in data.notes)


@every_case(
    ("boxes", "form"),
    [
        ([[50, 30, 5, 5]], BY_SIDES),
        ([[10, 10, 55, 35]], BY_CORNERS),
        ([[1, 1, 5, 5]], BY_SIDES),
        ([[10, 10, 55, 35], [20, 20, 10, 10], [30, 30, 9, 9]], BY_SIDES),
        ([[50, 30, 18, 18], [20, 20, 10, 10]], BY_CENTRE),
        ([[50, 30, 18, 18], [20, 20, 10, 10], [2, 2, 10, 10]], BY_SIDES),
        ([[50, 30, 18, 18], *[[20, 20, 10, 10]] * 200], BY_SIDES),
    ],
)
def test_the_form_is_that_which_fits_more_boxes(boxes: list[list[float]], form: str) -> None:
    assert box_form("set", [np.array(boxes, dtype=np.float64)], [(40, 60)])[0] == form


@every_case("form", ["saved", "parquet"])
def test_the_boxes_of_all_splits_decide_together(form: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    parts: dict[str, list[list[list[float]]]] = {"train": [[[10, 10, 55, 35]]] * 6, "test": [[[5, 5, 20, 10]]] * 4}
    loaded = {
        split: datasets.load_from_disk(_saved(tmp_path / split, boxes, "saved")) for split, boxes in parts.items()
    }
    if form == "saved":
        datasets.DatasetDict(loaded).save_to_disk(tmp_path / "all")
    else:
        (tmp_path / "all").mkdir()
        for split, rows in loaded.items():
            rows.to_parquet(tmp_path / "all" / f"{split}.parquet")
    data = open_data(tmp_path / "all", verify=False)
    assert sum("are taken as" in note for note in data.notes) == 1
    label = data.splits["test"].label(0)
    assert isinstance(label, Regions)
    assert label.boxes.tolist() == [[5, 5, 20, 10]]


def test_shares_of_a_photo_are_refused() -> None:
    with pytest.raises(DataError, match="shares"):
        box_form("set", [np.array([[0.1, 0.2, 0.5, 0.5]])], [(40, 60)])
