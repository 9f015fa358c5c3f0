"""Every function that takes a classifier, given one of regions: it works, or says in one line why not, before it starts."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitral
from tests.cases import every_case
from tests.exporting.test_regions import classifier
from vitral.classifier.bulk.sort_into import sort_into
from vitral.classifier.exported import described
from vitral.classifier.folder import save
from vitral.cli.info import GIVES
from vitral.cli.main import main
from vitral.deployment.bench import bench
from vitral.errors import VitralError
from vitral.evaluation.slices import slices
from vitral.events import ignore
from vitral.explanation.network import analyze
from vitral.exporting.export_regions import write_regions_file
from vitral.serving.sources import NamedClassifier
from vitral.tasks.registry import task_named

Call = Callable[[str, str, Path], object]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of regions, and photos of two classes in three splits beside it."""
    path = tmp_path_factory.mktemp("regions")
    save(classifier(), path / "classifier")
    random = np.random.default_rng(0)
    for number in range(12):
        file = path / "photos" / ("train", "val", "test")[number % 3] / ("cell", "dust")[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(file)
    return path


REFUSED: dict[str, Call] = {
    "predict_to_file": lambda own, photos, out: vitral.predict_to_file(own, photos, out / "a.csv", listener=ignore),
    "BatchPredictor": lambda own, photos, out: vitral.BatchPredictor(own)({"image": [f"{photos}/train/cell/0.png"]}),
    "sort_into": lambda own, photos, out: sort_into(own, photos, out / "sorted", listener=ignore),
    "explain": lambda own, photos, out: vitral.explain(own, f"{photos}/train/cell/0.png"),
    "analyze": lambda own, photos, out: analyze(own, photos, listener=ignore),
    "calibrate": lambda own, photos, out: vitral.calibrate(own, photos, listener=ignore),
    "tune": lambda own, photos, out: vitral.tune(own, photos, latency="9ms", listener=ignore),
    "quantize": lambda own, photos, out: vitral.quantize(own, photos, listener=ignore),
    "distill": lambda own, photos, out: vitral.distill(own, photos, out=out / "run", listener=ignore),
    "add_classes": lambda own, photos, out: vitral.add_classes(photos, own, out=out / "new", listener=ignore),
    "select_images": lambda own, photos, out: vitral.select_images(photos, own, listener=ignore),
    "compare": lambda own, photos, out: vitral.compare(own, own, photos, listener=ignore),
    "aspects": lambda own, photos, out: vitral.aspects(own, photos, listener=ignore),
    "robustness": lambda own, photos, out: vitral.robustness(own, photos, listener=ignore),
    "slices": lambda own, photos, out: slices(own, photos, by="folder", listener=ignore),
    "evaluate on photos of one class": lambda own, photos, out: vitral.evaluate(own, photos, listener=ignore),
    "load for an engine": lambda own, photos, out: vitral.load(own, engine="onnxruntime", listener=ignore),
    "load in bf16": lambda own, photos, out: vitral.load(own, precision="bf16", listener=ignore),
    "convert": lambda own, photos, out: vitral.convert(own, out / "other", format="transformers", listener=ignore),
    "export to OpenVINO": lambda own, photos, out: vitral.export(own, out / "x", format="openvino", listener=ignore),
    "export in int8": lambda own, photos, out: vitral.export(own, out / "x", precision="int8", listener=ignore),
}
WORKING: dict[str, Call] = {
    "load": lambda own, photos, out: vitral.load(own, listener=ignore),
    "load for the fastest engine": lambda own, photos, out: vitral.load(own, engine="auto", listener=ignore),
    "serve": lambda own, photos, out: NamedClassifier(own).load(ignore),
    "check": lambda own, photos, out: vitral.check(photos, classifier=own, listener=ignore),
    "score_frozen": lambda own, photos, out: vitral.score_frozen(own, photos, ways=("knn",), listener=ignore),
}


@every_case("name", REFUSED)
def test_it_is_refused_in_one_line_and_nothing_is_written(folder: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(VitralError) as raised:
        REFUSED[name](str(folder / "classifier"), str(folder / "photos"), tmp_path)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@every_case("name", WORKING)
def test_it_works_as_for_any_network(folder: Path, tmp_path: Path, name: str) -> None:
    WORKING[name](str(folder / "classifier"), str(folder / "photos"), tmp_path)


# What a file of it refuses, too: it has no network in torch, and no features.
OF_FILES: dict[str, Call] = {
    **{name: call for name, call in REFUSED.items() if name != "load for an engine"},
    "save": lambda own, photos, out: save(vitral.load(own, listener=ignore), out / "saved"),
    "export": lambda own, photos, out: vitral.export(own, out / "x", listener=ignore),
    "score_frozen": WORKING["score_frozen"],
    "bench": lambda own, photos, out: bench(vitral.load(own, listener=ignore), listener=ignore),
}


@pytest.fixture(scope="module")
def file(folder: Path) -> str:
    """The same classifier as it is exported."""
    own, path = classifier(), folder / "exported" / "model.onnx"
    path.parent.mkdir()
    write_regions_file(own, described(own), path)
    return str(path)


@every_case("name", OF_FILES)
def test_a_file_of_it_is_refused_in_one_line_and_nothing_is_written(
    folder: Path, file: str, tmp_path: Path, name: str
) -> None:
    with pytest.raises(VitralError) as raised:
        OF_FILES[name](file, str(folder / "photos"), tmp_path)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@every_case("name", ["load", "load for the fastest engine", "serve"])
def test_a_file_of_it_works(folder: Path, file: str, tmp_path: Path, name: str) -> None:
    WORKING[name](file, str(folder / "photos"), tmp_path)


def test_info_of_a_file_says_what_it_finds(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (file, str(Path(file).parent)):
        assert main(["info", path, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["what"], told["task"], told["classes"]) == (
            "exported file",
            "semantic",
            ["ground", "cell", "dust"],
        )
        assert told["preprocessing"]["image_size"] == [32, 32]
        assert "class_map" in told["outputs"]
    assert main(["info", file]) == 0
    shown = capsys.readouterr().out
    for fact in ("3 (ground, cell, dust)", GIVES["semantic"], "32 x 32 pixels"):
        assert fact in shown


def test_info_says_what_tasks_give_by_their_names() -> None:
    assert [task_named(name).name for name in GIVES] == [*GIVES]
