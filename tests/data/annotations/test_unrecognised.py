"""Photos beside annotations that no reader recognises: the refusal says so before it speaks of class folders."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.annotations.find import READ
from vitral.data.open import open_data
from vitral.errors import DataError

SCENES = dict(list(drawn.SCENES.items())[:6])
NAMES = [*SCENES]
FORMS: dict[str, Mapping[str, str]] = {
    "Supervisely": {f"ds0/ann/{name}.png.json": json.dumps({"objects": [], "size": {}}) for name in NAMES},
    "VIA": {"via_region_data.json": json.dumps({name: {"filename": f"{name}.png", "regions": []} for name in NAMES})},
    "CreateML": {"_annotations.createml.json": json.dumps([{"image": f"{name}.png"} for name in NAMES])},
    "KITTI": {f"label_2/{name}.txt": "Car 0.00 0 -1.57 1 2 9 9 1 1 1 1 1 1 0\n" for name in NAMES},
    "YOLO with confidence": {f"labels/{name}.txt": "0 0.5 0.5 0.1 0.1 0.9\n" for name in NAMES},
    "DeepPCB": {f"marks/{number:05d}.txt": "1 2 9 9 1\n" for number in range(6)},
    "Labelbox": {"export.ndjson": json.dumps({"data_row": {"external_id": f"{NAMES[0]}.png"}})},
    "rotated boxes": {f"{name}.xml": "<annotation><object><robndbox/></object></annotation>" for name in NAMES},
}


def written(root: Path, files: Mapping[str, str], folder: str = "images") -> Path:
    drawn.photos(root / folder, SCENES)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def refused(spec: str | Path) -> str:
    with pytest.raises(DataError) as caught:
        open_data(spec)
    return str(caught.value)


@every_case("form", list(FORMS))
@every_case("folder", ["images", ".", "train"])
@every_case("packed", [False, True])
def test_annotations_that_are_not_recognised_are_said(form: str, folder: str, packed: bool, tmp_path: Path) -> None:
    root: str | Path = written(tmp_path / "set", FORMS[form], folder)
    if packed:
        root = shutil.make_archive(str(tmp_path / "packed"), "tar", root)
    said = refused(root)
    assert said.startswith(f"'{root}' has no annotations that are recognised ({min(FORMS[form])}")
    assert READ in said
    assert READ in refused(f"boxes:{root}")
    assert said.index(READ) < said.index("into a folder of its own")
    assert "\n" not in said


@every_case("packed", [False, True])
def test_annotations_of_none_of_the_photos_are_said_first(packed: bool, tmp_path: Path) -> None:
    listed = drawn.coco({f"other_{name}": boxes for name, boxes in SCENES.items()})
    root: str | Path = written(tmp_path / "set", {"annotations.json": json.dumps(listed)})
    if packed:
        root = shutil.make_archive(str(tmp_path / "packed"), "zip", root)
    said = refused(root)
    assert said.startswith(f"COCO JSON in '{root}' is of none of its images.")
    assert "only one class ('images')" in said


@every_case(
    "files", [{}, {"README.txt": "Photos."}, {"train.txt": "a", "val.txt": "b", "test.txt": "c"}, {"a.txt": "a"}]
)
def test_photos_of_one_class_without_annotations_need_class_folders(files: Mapping[str, str], tmp_path: Path) -> None:
    assert refused(written(tmp_path, files)).startswith(f"'{tmp_path}' has only one class ('images'); put the photos")


def test_who_leaves_annotations_unread_hears_of_class_folders(tmp_path: Path) -> None:
    root = written(tmp_path, FORMS["Supervisely"])
    assert refused(f"classes:{root}").startswith(f"'{root}' has only one class ('images'); put the photos")
