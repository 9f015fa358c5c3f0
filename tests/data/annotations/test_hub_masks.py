"""Masks in a second column of images of a Hugging Face dataset, saved by the library or in Parquet files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.open import open_data
from vitral.errors import DataError
from vitral.tasks.regions import Regions

SCENES = dict(list(drawn.SCENES.items())[:6])


def write(folder: Path, form: str, columns: tuple[str, ...], *, classes: bool = False) -> Path:
    """Write photos with masks as a dataset with a split to train on and one to test."""
    datasets = pytest.importorskip("datasets")
    drawn.photos(folder / "photos", SCENES)
    photos = [Image.open(path).convert("RGB") for path in sorted((folder / "photos").iterdir())]
    rows: dict[str, list[object]] = {columns[0]: [*photos]}
    features = {columns[0]: datasets.Image()}
    for name in columns[1:]:
        rows[name] = [Image.fromarray(drawn.class_map(SCENES[scene]).astype(np.uint8)) for scene in sorted(SCENES)]
        features[name] = datasets.Image()
    if classes:
        rows["class"] = [index % 2 for index in range(len(photos))]
        features["class"] = datasets.ClassLabel(names=["cat", "dog"])
    made = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    parts = datasets.DatasetDict(train=made.select(range(4)), test=made.select(range(4, 6)))
    if form == "saved":
        parts.save_to_disk(folder / "data")
    else:
        (folder / "data").mkdir()
        for split, part in parts.items():
            part.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet", batch_size=3)
    return folder / "data"


@every_case(
    ("form", "columns"),
    [
        ("saved", ("image", "label")),
        ("parquet", ("image", "label")),
        ("saved", ("pixel_values", "segmentation_mask")),
        ("parquet", ("photo", "annotation")),
    ],
)
def test_each_pixel_has_the_class_of_its_mask(form: str, columns: tuple[str, ...], tmp_path: Path) -> None:
    data = open_data(write(tmp_path, form, columns), hold_out=False, near=False)
    assert (data.task.name, data.class_names) == ("semantic", ("0", "1", "2"))
    assert {split: len(source) for split, source in data.splits.items()} == {"train": 4, "test": 2}
    for split, scenes in (("train", sorted(SCENES)[:4]), ("test", sorted(SCENES)[4:])):
        for index, scene in enumerate(scenes):
            label = data.splits[split].label(index)
            assert data.splits[split].describe(index).endswith((f":{index}", f"[{index}]"))
            assert isinstance(label, Regions)
            assert np.array_equal(label.class_map(), drawn.class_map(SCENES[scene]))
            assert data.splits[split].image(index).shape[:2] == label.size


@every_case("form", ["saved", "parquet"])
def test_who_has_classes_learns_those(form: str, tmp_path: Path) -> None:
    data = open_data(write(tmp_path, form, ("image", "mask"), classes=True), hold_out=False)
    assert (data.task.name, data.class_names) == ("single-label", ("cat", "dog"))


@every_case("form", ["saved", "parquet"])
def test_of_two_images_that_are_no_masks_nobody_guesses(form: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="columns:image=before"):
        open_data(write(tmp_path, form, ("before", "after")))
