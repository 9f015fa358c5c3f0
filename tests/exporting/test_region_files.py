"""Files of classifiers of regions, by task and head: on built-in scenes they find in ONNX Runtime what the classifier finds."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from torch import nn

import vitral
from vitral.classifier.classifier import Classifier
from vitral.classifier.exported import described
from vitral.classifier.folder import save
from vitral.classifier.metadata import Calibration
from vitral.cli.main import main
from vitral.data.open import open_data
from vitral.data.source import DataSet, PixelSource
from vitral.errors import ModelError
from vitral.events import ignore
from vitral.exporting.export_regions import (
    PhotoGraph,
    compare_regions,
    likeness,
    regions_readme,
    write_regions_file,
)
from vitral.images.augment import Augmentation
from vitral.images.decode import Shrink
from vitral.images.preprocessing import Preprocessing
from vitral.images.run_lengths import decode_mask
from vitral.inference.engines import OPSET, onnxruntime_session
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import HEADS, DenseConfig
from vitral.models.families import build
from vitral.serving.served import find_together, prepare_photo
from vitral.tasks.panoptic import Panoptic
from vitral.tasks.regions import FoundRegions, Regions
from vitral.tasks.registry import task_named

SIDE = 32
NAMES = ("ground", "digit", "stain")
SCENES = open_data("digit-scenes").splits["test"]
long = pytest.mark.long
FILES = [
    pytest.param("semantic", "detail", {}, marks=long),
    pytest.param("semantic", "queries", {}, marks=long),
    pytest.param("semantic", "ridge", {"directions": 4}, marks=long),
    pytest.param("instances", "rims", {}, marks=long),
    pytest.param("instances", "ridge", {"objects": True, "directions": 4}, marks=long),
    pytest.param("instances", "queries", {"queries": 20}, marks=long),
    pytest.param("boxes", "points", {}),
    pytest.param("boxes", "ridge", {"objects": True}, marks=long),
    pytest.param("panoptic", "queries", {"queries": 20}, marks=long),
    pytest.param("semantic", "mask-decoder", {"queries": 20}, marks=long),
]


def classifier(task: str, kind: str, settings: dict[str, object]) -> Classifier:
    """Return a classifier of random weights that finds something in most scenes."""
    head = HEADS[kind][0](**settings)
    model = build(DenseConfig(backbone=variant("vit-nano4"), head=head, num_classes=3, image_size=(SIDE, SIDE)), seed=1)
    last = model.get_submodule("head.classifier")
    assert isinstance(last, nn.Conv2d | nn.Linear)
    with torch.no_grad():
        last.weight.normal_(std=2.0, generator=torch.Generator().manual_seed(6 if kind == "queries" else 2))
        if kind in ("queries", "mask-decoder"):
            masking = model.get_buffer("head.masking")
            masking.copy_(torch.linspace(1, 0, len(masking)))  # training did not come to its end
        if task == "panoptic":
            assert last.bias is not None
            last.bias[-1] = 20  # most queries are sure of none, so that others keep their masks
    calibration = Calibration(1.0, 0.25, None, "scenes", 10)
    learned = Panoptic(things=(1,), sure=0.7) if task == "panoptic" else task_named(task)
    return Classifier(
        model.eval(), Preprocessing(image_size=(SIDE, SIDE)), NAMES, task=learned, calibration=calibration
    )


@pytest.mark.parametrize(("task", "kind", "settings"), FILES)
def test_a_file_finds_what_the_classifier_finds(
    task: str, kind: str, settings: dict[str, object], tmp_path: Path
) -> None:
    own, file = classifier(task, kind, settings), tmp_path / "model.onnx"
    reading = write_regions_file(own, described(own), file)
    scenes = [(str(number), SCENES.image(number)) for number in range(10)]
    parts = [("wide", scenes[0][1][:37]), ("line", scenes[1][1][48:49]), ("pixel", scenes[2][1][50:51, 50:51])]
    parity = compare_regions(own, reading, file, [*scenes, *parts], listener=ignore)
    assert not parity.error
    assert parity.images == 13
    assert parity.alike > 0.999
    assert parity.least[1] > 0.99
    assert (
        sum(len(each.found.regions) for each in own.find_regions([pixels for _, pixels in scenes], listener=ignore)) > 3
    )
    session = onnxruntime_session(file, 1)
    free = {axis for port in session.get_outputs() for axis in port.shape if isinstance(axis, str)}
    assert free <= {"batch", "height", "width", "regions"}
    several = session.run(None, {"images": np.stack([pixels for _, pixels in scenes[:3]])})
    alone = session.run(None, {"images": scenes[1][1][None]})
    for ours, theirs in zip(several, alone, strict=True):
        assert np.allclose(ours[1][: len(theirs[0])], theirs[0], atol=1e-4, rtol=1e-4) or ours.ndim > 2
    nodes = {node.op_type for node in onnx.load(file).graph.node}
    assert "GridSample" not in nodes
    check_program(own, regions_readme(own, reading, described(own)), file, scenes[0][1])
    check_opened(own, file, [pixels for _, pixels in scenes[:3]], tmp_path)


class Marked(PixelSource):
    """Photos in which is marked what a classifier finds."""

    def __init__(self, own: Classifier, photos: list[np.ndarray]) -> None:
        self.photos, self.found = photos, own.find_regions(photos, listener=ignore)

    def __len__(self) -> int:
        return len(self.photos)

    def image(self, index: int, shrink: Shrink | None = None) -> np.ndarray:
        return self.photos[index]

    def label(self, index: int) -> Regions:
        return self.found[index].found.regions

    def labels(self) -> np.ndarray:
        return np.full(len(self), -1)

    def describe(self, index: int) -> str:
        return str(index)


def check_opened(own: Classifier, file: Path, photos: list[np.ndarray], folder: Path) -> None:
    """Hold what the file gives where Vitral opens it against the classifier: in Python, as files and in figures."""
    opened = vitral.load(file)
    assert (opened.task, opened.class_names, opened.calibration) == (own.task, own.class_names, own.calibration)
    with pytest.raises(ModelError, match="as a whole"):
        opened(torch.zeros(1, 3, SIDE, SIDE))
    long = np.tile(photos[0], (1, 3, 1))  # which is seen through windows
    for index, pixels in enumerate([*photos, long]):
        Image.fromarray(pixels).save(folder / f"{index}.png")
        [mine], [theirs] = (each.find_regions(pixels, listener=ignore) for each in (own, opened))
        assert len(mine) == len(theirs)
        assert likeness(mine.found, theirs.found, counted=own.task.name != "semantic") > 0.9999
        assert np.allclose(mine.confidence, theirs.confidence, atol=1e-5)
    served = [
        find_together(each, [prepare_photo(each, pixels) for pixels in (*photos, long)]) for each in (own, opened)
    ]
    for both in zip(*served, strict=True):
        mine_scored, theirs_scored = (found.scores for found in both if isinstance(found, FoundRegions))
        assert np.allclose(mine_scored, theirs_scored, atol=1e-5)
    written = {}
    for name, classifier in (("own", save(own, folder / "classifier")), ("opened", file)):
        photo, out = str(folder / "3.png"), folder / name
        assert main(["predict", photo, "--classifier", str(classifier), "--out", str(out)]) == 0
        written[name] = {path.relative_to(out): path.read_bytes() for path in out.rglob("*.*")}
    assert len(written["own"]) > 2
    assert written["own"].keys() == written["opened"].keys()
    for path in (path for path in written["own"] if path.suffix == ".png"):
        maps = [np.asarray(Image.open(io.BytesIO(each[path]))) for each in written.values()]
        assert maps[0].shape == long.shape[:2]
        assert (maps[0] == maps[1]).mean() > 0.9999
    marked = DataSet("scenes", NAMES, {"test": Marked(own, photos)}, Augmentation(), task=own.task)
    figures = [vitral.evaluate(each, marked, listener=ignore).headline() for each in (own, file)]
    assert figures == pytest.approx([1, 1], abs=1e-3)


def check_program(own: Classifier, text: str, file: Path, pixels: np.ndarray) -> None:
    """Run the program of the text beside the file, and hold what it prints against the classifier."""
    assert f"opset {OPSET}" in text
    assert f"{SIDE} x {SIDE} pixels" in text
    assert "make a large one smaller first" in text
    Image.fromarray(pixels).save(file.with_name("photo.png"))
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    script = program.replace("photo.jpg", "photo.png") + "\nimport sys; assert 'vitral' not in sys.modules"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    [found] = own.find_regions(pixels, listener=ignore)
    lines = ran.stdout.splitlines()
    assert len(lines) == len(found.found.regions)
    masks = [line for line in lines if "counts" in line]
    assert bool(masks) == (own.task.name in ("instances", "panoptic"))
    for line in masks:
        told = json.loads(line[line.index("{") :].replace("'", '"'))
        mask = decode_mask(np.array(told["counts"], dtype=np.uint32), tuple(told["size"]))
        overlaps = [(mask & other).sum() / (mask | other).sum() for other in found.found.regions.bitmaps()]
        assert max(overlaps) > 0.99


def test_networks_that_see_photos_in_part_are_refused() -> None:
    own = classifier("instances", "rims", {})
    own.preprocessing = Preprocessing(image_size=(SIDE, SIDE), resize="pad")
    with pytest.raises(ModelError, match="squash"):
        PhotoGraph(own)
