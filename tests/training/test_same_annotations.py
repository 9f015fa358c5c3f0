"""The same boxes as COCO, VOC and YOLO, in a folder or an archive, train a network to the same bits."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.data.annotations import drawn
from vitral.cli.main import main
from vitral.data.open import open_data
from vitral.files import sha256
from vitral.tasks.regions import Regions

TINY = ("--from", "vit-nano4", "--set", "image_size=32", "--set", "batch_size=4", "--set", "steps=4", "--no-baselines")


def _coco(folder: Path) -> None:
    (folder / "boxes.json").write_text(json.dumps(drawn.coco()))


def _voc(folder: Path) -> None:
    for name, boxes in drawn.SCENES.items():
        (folder / f"{name}.xml").write_text(drawn.voc_xml(name, boxes))


def _yolo(folder: Path) -> None:
    (folder / "labels").mkdir()
    for name, boxes in drawn.SCENES.items():
        (folder / "labels" / f"{name}.txt").write_text(drawn.yolo_text(boxes))
    (folder / "data.yaml").write_text("names: [cell, platelet]\n")


@pytest.mark.long
def test_the_form_of_annotations_changes_no_bit_of_the_weights(tmp_path: Path) -> None:
    weights, boxes = {}, {}
    for name, write in (("coco", _coco), ("yolo", _yolo), ("voc", _voc)):
        data = tmp_path / name
        drawn.photos(data / "images")
        write(data)
        if name == "voc":
            data = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", data))
        run = tmp_path / f"run of {name}"
        assert main(["finetune", "--data", str(data), "--out", str(run), *TINY]) == 0
        weights[name] = sha256(run / "classifier" / "weights.safetensors")
        opened = open_data(data)
        labels = [source.label(index) for source in opened.splits.values() for index in range(len(source))]
        boxes[name] = np.concatenate([each.boxes for each in labels if isinstance(each, Regions)])
    assert np.array_equal(boxes["coco"], boxes["voc"])
    assert np.array_equal(boxes["coco"], boxes["yolo"])  # whose shares of the photo's sides are rounded
    assert len({*weights.values()}) == 1, weights
