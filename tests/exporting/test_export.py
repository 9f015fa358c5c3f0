"""The whole command: the folder that is written, what it says of itself, its use like any classifier, and what fails."""

import json
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
import openvino
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

import vitral
from tests.models.test_contract import make
from vitral.classifier import folder
from vitral.classifier.classifier import Classifier
from vitral.classifier.exported import InFile, described
from vitral.classifier.metadata import Calibration
from vitral.cli.main import main
from vitral.data.image_files import LazyImage
from vitral.errors import ModelError, StorageError, WeightsError
from vitral.events import ignore
from vitral.exporting.parity import check_images
from vitral.exporting.preparation import ClassifierPrograms
from vitral.images.decode import read_image
from vitral.images.preprocessing import PHOTOS
from vitral.inference import engines
from vitral.inference.exported.onnx_format import OnnxFormat, OnnxGraph, write_onnx
from vitral.inference.exported.open import FORMATS, exported_in, open_graph

NAMES = ("tulip", "rose & <b>thorn</b>", "日本")
MAIN = """
{includes}
#include <cstdio>
#include <cstdlib>
#include <vector>
int main(int, char** given) {{
  size_t rows = atoi(given[2]), columns = atoi(given[3]);
  std::vector<uint8_t> bytes(rows * columns * 3);
  FILE* file = fopen(given[1], "rb");
  if (fread(bytes.data(), 1, bytes.size(), file) != bytes.size()) return 1;
  uint8_t* pixels = bytes.data();
  {body}
  for (int index = 0; index < {classes}; index++) printf("%.6f ", probabilities[index]);
}}
"""
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier folder with names that need care, a temperature and a threshold."""
    model = make("deit")
    calibration = Calibration(1.7, 0.6, 0.9, "photos", 50)
    classifier = Classifier(model, PHOTOS.with_size(model.image_size), NAMES, calibration=calibration)
    return folder.save(classifier, tmp_path_factory.mktemp("saved") / "flowers")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two photographs, one of which lies on its side and says so."""
    path = tmp_path_factory.mktemp("photos")
    china, flower = load_sample_images().images
    Image.fromarray(china).save(path / "china.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(flower).save(path / "flower.jpg", exif=exif)
    return path


@pytest.fixture(scope="module", params=["onnx", "openvino"])
def exported(request: pytest.FixtureRequest, saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("exported") / "out"
    result = vitral.export(saved, target, format=request.param, layers=True, listener=ignore)
    assert result.holds
    assert {"patch_embedding", "encoder.0.attention", "encoder.1.mlp", "norm", "head"} <= result.cosines.keys()
    assert min(result.cosines.values()) > 0.99999
    assert result.checks[0].images >= 200
    assert result.checks[0].largest <= 1e-4  # type: ignore[union-attr]
    assert result.checks[0].same_top == 1  # type: ignore[union-attr]
    return target


@pytest.fixture(scope="module")
def plain(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX file."""
    classifier, file = vitral.load(saved), tmp_path_factory.mktemp("plain") / "model.onnx"
    write_onnx(ClassifierPrograms(classifier), described(classifier), file)
    return file


def answers(classifier: Classifier, photos: Path) -> np.ndarray:
    found = classifier.predict([photos / "china.jpg", photos / "flower.jpg"], top=3, listener=ignore)
    return np.array([[dict(one.top)[name] for name in NAMES] for one in found])


def test_a_file_answers_as_the_folder_does(exported: Path, saved: Path, photos: Path) -> None:
    own, theirs = vitral.load(saved), vitral.load(exported)
    assert isinstance(theirs.preprocessing, InFile)
    assert theirs.class_names == NAMES
    assert theirs.calibration == own.calibration
    np.testing.assert_allclose(answers(theirs, photos), answers(own, photos), rtol=0, atol=1e-5)
    assert [one.sure for one in own.predict(photos, listener=ignore)] == [
        one.sure for one in theirs.predict(photos, listener=ignore)
    ]


def test_info_says_what_a_file_and_its_folder_are(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (exported, exported_in(exported)):
        assert main(["info", str(path), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["what"], told["task"], told["classes"]) == ("exported file", "single-label", [*NAMES])
        assert told["outputs"][:2] == ["probabilities", "logits"]
        assert told["parameters"] > 0


def test_it_goes_to_other_processes(exported: Path, photos: Path) -> None:
    theirs = vitral.load(exported)
    before = answers(theirs, photos)
    np.testing.assert_array_equal(answers(pickle.loads(pickle.dumps(theirs)), photos), before)


def test_the_text_beside_it_shows_a_program_that_runs_without_vitral(exported: Path, saved: Path, photos: Path) -> None:
    text = (exported / "README.md").read_text()
    program = CODE.findall(text)
    assert len(program) == 1
    assert program[0].strip() in [row.samples[0].code for row in FORMATS.values()]
    script = (
        program[0].replace('"photo.jpg"', repr(str(photos / "flower.jpg")))
        + "\nimport sys; print('vitral' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=exported,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    said, imported = ran.stdout.splitlines()
    top = vitral.load(saved).predict(photos / "flower.jpg", listener=ignore)[0].top[0]
    assert said.startswith(f"{top[0]} ")
    assert float(said.rpartition(" ")[2]) == pytest.approx(top[1], abs=1e-4)
    assert imported == "False"
    for code in (sample.code for row in FORMATS.values() for sample in row.samples):
        assert sum(1 for line in code.splitlines() if line and not line.startswith(("#", "//"))) <= 10


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_cpp_beside_it_compiles_and_answers(exported: Path, saved: Path, photos: Path, tmp_path: Path) -> None:
    if not (exported / "model.xml").exists():
        pytest.skip("ONNX Runtime's package has no headers")
    (program,) = re.findall(r"```cpp\n(.*?)```", (exported / "README.md").read_text(), re.DOTALL)
    includes = "\n".join(line for line in program.splitlines() if line.startswith("#include"))
    body = program.replace(includes, "")
    (tmp_path / "main.cpp").write_text(MAIN.format(includes=includes, body=body, classes=len(NAMES)))
    package = Path(openvino.__file__).parent
    library = next((package / "libs").glob("libopenvino.so*"))
    build = [
        "g++",
        "-std=c++17",
        "-Werror=narrowing",
        f"-I{package / 'include'}",
        str(tmp_path / "main.cpp"),
        str(library),
    ]
    subprocess.run([*build, f"-Wl,-rpath,{library.parent}", "-o", str(tmp_path / "main")], check=True)
    pixels = read_image(photos / "china.jpg")
    (tmp_path / "pixels").write_bytes(pixels.tobytes())
    command = [str(tmp_path / "main"), str(tmp_path / "pixels"), *map(str, pixels.shape[:2])]
    ran = subprocess.run(command, cwd=exported, capture_output=True, text=True, check=True)
    top = dict(vitral.load(saved).predict(photos / "china.jpg", listener=ignore)[0].top)
    assert [float(value) for value in ran.stdout.split()] == pytest.approx([top[name] for name in NAMES], abs=1e-4)


def test_metadata_are_plain_texts(exported: Path, saved: Path) -> None:
    classifier = vitral.load(saved)
    told = dict(open_graph(next(path for path in exported.iterdir() if path.suffix in (".onnx", ".xml"))).metadata)
    assert json.loads(told["class_names"]) == list(NAMES)
    assert json.loads(told["preprocessing"]) == classifier.preprocessing.to_json() | {
        "image_size": list(classifier.preprocessing.image_size),
        "mean": list(classifier.preprocessing.mean),
        "std": list(classifier.preprocessing.std),
    }
    assert told["task"] == "single-label"
    assert float(told["threshold"]) == 0.6
    assert float(told["temperature"]) == 1.7
    assert len(told["fingerprint"]) == 64
    assert told["license"]


def test_commands_take_the_file(
    exported: Path, saved: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(photos), "--classifier", str(exported), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["predict", str(photos), "--classifier", str(saved), "--json"]) == 0
    own = json.loads(capsys.readouterr().out)
    assert [one["label"] for one in found] == [one["label"] for one in own]
    assert main(["predict", str(photos), "--classifier", str(exported), "--out", str(tmp_path / "rows.csv")]) == 0
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 3
    file = next(path for path in exported.iterdir() if path.suffix in (".onnx", ".xml"))
    capsys.readouterr()
    assert main(["bench", str(file), "--rounds", "1", "--batch-sizes", "1", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert len(measured["speeds"]) == 1
    assert measured["gmacs"] > 0


def test_evaluate_scores_the_file_as_the_folder(
    exported: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for name in ("tulip", "日本"):
        (tmp_path / "test" / name).mkdir(parents=True)
        (tmp_path / "train" / name).mkdir(parents=True)
        for number in range(6):
            split = "train" if number == 0 else "test"
            Image.fromarray(rng.integers(0, 256, (70 + number, 64, 3), dtype=np.uint8)).save(
                tmp_path / split / name / f"{number}.png"
            )
    scores = []
    for one in (exported, saved):
        assert main(["evaluate", "--data", str(tmp_path), "--classifier", str(one), "--json"]) == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert scores[0]["nll"] == pytest.approx(scores[1]["nll"], abs=1e-5)


def test_what_a_file_cannot_do_is_said_in_a_line(
    exported: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, says in (
        (["explain", str(photos / "china.jpg"), "--classifier", str(exported)], "explained"),
        (["convert", str(exported), str(exported.parent / "other"), "--format", "vitral"], "does not run in torch"),
        (["export", str(exported), "--out", str(exported.parent / "again")], "does not run in torch"),
        (["predict", str(photos), "--classifier", str(exported), "--engine", "packed"], "by no other engine"),
        (["bench", str(exported), "--image-size", "64"], "fixed as it was written"),
    ):
        assert main(arguments) == 1
        said = capsys.readouterr().err.strip()
        assert says in said, said
        assert "\n" not in said.split("vitral: ")[-1]


@pytest.mark.long
def test_a_file_with_other_answers_is_said_and_kept(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write_damaged(
        self: OnnxFormat, programs: ClassifierPrograms, metadata: dict[str, str], path: Path
    ) -> dict[str, str]:
        weight = programs.classifier.model.get_parameter("encoder.1.mlp.fc2.weight")
        before = weight.detach().clone()
        with torch.no_grad():
            weight.mul_(3)
        try:
            return write_onnx(programs, metadata, path)
        finally:
            with torch.no_grad():
                weight.copy_(before)

    monkeypatch.setattr(OnnxFormat, "write", write_damaged)
    assert main(["export", str(saved), "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr()
    assert "at most 0.0001 is allowed" in told.out
    assert "the first layer with other values is 'encoder.1.mlp.fc2'" in told.err
    assert (tmp_path / "out" / "model.onnx").is_file()


class TestTargets:
    def test_what_stands_there_is_kept(self, saved: Path, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "notes.txt").write_text("mine")
        with pytest.raises(StorageError, match="holds something else"):
            vitral.export(saved, tmp_path / "mine", overwrite=True, listener=ignore)
        with pytest.raises(StorageError, match="is an input"):
            vitral.export(saved, saved, overwrite=True, listener=ignore)
        assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"
        assert (saved / "weights.safetensors").is_file()

    @pytest.mark.long
    def test_another_format_replaces_the_first_one(self, saved: Path, plain: Path, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "model.onnx").write_bytes(plain.read_bytes())
        with pytest.raises(StorageError, match="already exists"):
            vitral.export(saved, tmp_path / "out", listener=ignore)
        vitral.export(saved, tmp_path / "out", format="openvino", overwrite=True, listener=ignore)
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["README.md", "model.bin", "model.xml"]

    @pytest.mark.long
    def test_a_folder_is_named_after_the_run(
        self, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["export", str(saved)]) == 0
        assert (tmp_path / "flowers-onnx" / "model.onnx").is_file()

    @pytest.mark.long
    def test_a_full_disk_is_said_of_openvino_too(
        self, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(model: object, path: object, compress_to_fp16: bool) -> None:
            raise RuntimeError("basic_ios::clear: iostream error")

        monkeypatch.setattr("openvino.save_model", full)
        with pytest.raises(StorageError, match="the disk is full"):
            vitral.export(saved, tmp_path / "out", format="openvino", listener=ignore)
        assert not list(tmp_path.iterdir())

    def test_a_full_disk_leaves_nothing_half_written(
        self, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(self: OnnxFormat, programs: ClassifierPrograms, metadata: dict[str, str], path: Path) -> None:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(OnnxFormat, "write", full)
        with pytest.raises(StorageError, match="the disk is full"):
            vitral.export(saved, tmp_path / "out", listener=ignore)
        assert not list(tmp_path.iterdir())


class TestBadFiles:
    def test_a_runtime_that_is_not_installed(self, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engines, "_missing", list)
        with pytest.raises(ModelError, match=r"pip install 'vitral\[(onnxruntime|openvino)\]'"):
            vitral.load(exported)

    @pytest.mark.parametrize("keep", [0, 100, 5000])
    def test_a_file_that_is_cut_short(self, exported: Path, tmp_path: Path, keep: int) -> None:
        file = next(path for path in exported.iterdir() if path.suffix in (".onnx", ".xml"))
        (tmp_path / file.name).write_bytes(file.read_bytes()[:keep])
        with pytest.raises(WeightsError, match=re.escape(file.name)):
            vitral.load(tmp_path / file.name)

    @pytest.mark.parametrize(
        ("entry", "value"),
        [
            ("class_names", "{"),
            ("class_names", '["a", 5]'),
            ("preprocessing", '{"image_size": -1}'),
            ("parameters", "many"),
        ],
    )
    def test_metadata_that_are_damaged(self, plain: Path, tmp_path: Path, entry: str, value: str) -> None:
        model = onnx.load(plain)
        for told in model.metadata_props:
            if told.key == entry:
                told.value = value
        onnx.save(model, tmp_path / "other.onnx")
        with pytest.raises(WeightsError, match=r"other\.onnx"):
            vitral.load(tmp_path / "other.onnx")

    def test_machine_code_is_never_run(self, tmp_path: Path) -> None:
        (tmp_path / "model.pt2").write_bytes(b"x")
        with pytest.raises(WeightsError, match="machine code, which is never run here"):
            vitral.load(tmp_path / "model.pt2")

    @pytest.mark.parametrize("change", ["logits", "prepared", "input"])
    def test_a_graph_that_is_not_what_its_metadata_say(
        self, plain: Path, photos: Path, tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        model = onnx.load(plain)
        if change == "logits":  # one value for each image instead of one for each class
            next(node for node in model.graph.node if "logits" in node.output).output[0] = "before"
            for node in model.graph.node:
                node.input[:] = ["before" if name == "logits" else name for name in node.input]
            axis = onnx.helper.make_tensor("axis", onnx.TensorProto.INT64, [1], [1])
            model.graph.initializer.append(axis)
            model.graph.node.append(onnx.helper.make_node("ReduceMax", ["before", "axis"], ["logits"], keepdims=1))
            model.graph.output[1].type.tensor_type.shape.dim[1].dim_value = 1
        else:
            old = {"prepared": "prepared", "input": "images"}[change]
            for node in model.graph.node:
                node.input[:] = ["renamed" if name == old else name for name in node.input]
                node.output[:] = ["renamed" if name == old else name for name in node.output]
            model.graph.input[0].name = "renamed" if change == "input" else "images"
        onnx.save(model, tmp_path / "other.onnx")
        command = ["predict", str(photos), "--classifier", str(tmp_path / "other.onnx")]
        # One by one on the screen the file answers as a whole, whatever is within; cut in two for many images it cannot.
        assert main(command) == (1 if change == "input" else 0)
        assert main([*command, "--out", str(tmp_path / "out.csv")]) == 1
        said = capsys.readouterr().err.strip().splitlines()
        assert said[-1].startswith("vitral: ")
        assert "other.onnx" in said[-1]

    @pytest.mark.parametrize("value", ["[" * 100_000, "9" * 400, "-5"])
    def test_metadata_that_are_hostile(self, plain: Path, tmp_path: Path, value: str) -> None:
        model = onnx.load(plain)
        for told in model.metadata_props:
            if told.key in ("provenance", "macs"):
                told.value = value
        onnx.save(model, tmp_path / "other.onnx")
        with pytest.raises(WeightsError, match=r"other\.onnx"):
            vitral.load(tmp_path / "other.onnx")

    def test_xml_of_another_kind(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "boxes.xml").write_text("<annotation><object/></annotation>")
        with pytest.raises(WeightsError, match="has no element 'net'"):
            vitral.load(tmp_path / "boxes.xml")
        assert not any(capfd.readouterr())


class TestFolders:
    def test_a_classifier_or_weights_come_before_a_file_beside_them(
        self, saved: Path, plain: Path, tmp_path: Path
    ) -> None:
        beside = folder.save(vitral.load(saved), tmp_path / "beside")
        (beside / "model.onnx").write_bytes(plain.read_bytes())
        assert vitral.load(beside).model.num_classes == 3
        (beside / "classifier.json").unlink()
        with pytest.raises(WeightsError, match=r"weights\.safetensors"):  # read as weights, which do not say enough
            vitral.load(beside)

    def test_machine_code_in_a_folder_is_not_run(self, tmp_path: Path) -> None:
        (tmp_path / "model.pt2").write_bytes(b"x")
        with pytest.raises(WeightsError, match="machine code, which is never run here"):
            vitral.load(tmp_path)


@pytest.mark.long
def test_weights_in_a_file_of_their_own(
    saved: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitral.inference.exported.onnx_format.MOST_BYTES", 1000)
    result = vitral.export(saved, tmp_path / "out", layers=True, listener=ignore)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["README.md", "model.onnx", "model.onnx.data"]
    assert result.holds
    assert min(result.cosines.values()) > 0.99999
    classifier = vitral.load(tmp_path / "out")
    np.testing.assert_allclose(answers(classifier, photos), answers(vitral.load(saved), photos), rtol=0, atol=1e-5)


@pytest.mark.long
def test_a_runtime_that_fails_is_a_line(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: OnnxGraph, images: np.ndarray) -> np.ndarray:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(OnnxGraph, "whole", fail)
    result = vitral.export(saved, tmp_path / "out", listener=ignore)
    assert not result.holds
    assert "out of memory" in "".join(result.lines())
    json.dumps(result.to_json(), allow_nan=False)


def test_thin_images_are_checked_in_bounded_memory() -> None:
    thin = LazyImage("thin.png", lambda *, shrink=None: np.zeros((2, 40_000, 3), np.uint8))
    sizes = {pixels.shape[:2] for _, pixels in islice(check_images([thin], (64, 64)), 4)}
    assert max(max(size) for size in sizes) <= 4 * 8 * 64


def test_images_to_check_regions_on_have_at_most_so_many_pixels() -> None:
    free, bounded = (list(islice(check_images(None, (64, 64), largest), 8)) for largest in (math.inf, 50_000))
    for (_, pixels), (_, smaller) in zip(free, bounded, strict=True):
        height, width = smaller.shape[:2]
        assert height * width == pytest.approx(min(pixels.shape[0] * pixels.shape[1], 50_000), rel=0.02)
        assert height / width == pytest.approx(pixels.shape[0] / pixels.shape[1], rel=0.03)


class TestFilesOfOthers:
    def test_prepared_images_are_taken(self, tmp_path: Path, photos: Path) -> None:
        model = make("resnet-basic").eval()
        torch.onnx.export(
            model, (torch.zeros(2, 3, *model.image_size),), tmp_path / "theirs.onnx", dynamo=True, verbose=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False,
        )  # fmt: skip
        heard: list[str] = []
        classifier = vitral.load(tmp_path / "theirs.onnx", listener=lambda event: heard.append(str(event)))
        assert "was not written by Vitral" in heard[0]
        own = Classifier(model, PHOTOS.with_size(model.image_size))
        found = classifier.predict(photos, listener=ignore)
        assert [one.label for one in found] == [one.label for one in own.predict(photos, listener=ignore)]

    def test_a_fixed_batch_is_filled(self, tmp_path: Path, photos: Path) -> None:
        model = make("resnet-basic").eval()
        example = torch.zeros(1, 3, *model.image_size)
        torch.onnx.export(model, (example,), tmp_path / "one.onnx", dynamo=True, verbose=False, external_data=False)
        own = Classifier(model, PHOTOS.with_size(model.image_size)).predict(photos, listener=ignore)
        found = vitral.load(tmp_path / "one.onnx", listener=ignore).predict(photos, listener=ignore)
        assert [one.label for one in found] == [one.label for one in own]

    def test_other_inputs_are_named(self, tmp_path: Path) -> None:
        value = onnx.helper.make_tensor_value_info
        text = value("text", onnx.TensorProto.INT64, ["batch", 16])
        out = value("out", onnx.TensorProto.INT64, ["batch", 16])
        graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["text"], ["out"])], "g", [text], [out])
        onnx.save(
            onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10),
            tmp_path / "text.onnx",
        )
        with pytest.raises(WeightsError, match=r"takes something else than images \(text: int64"):
            vitral.load(tmp_path / "text.onnx")


@pytest.mark.long
def test_a_network_that_is_no_graph_is_named(tmp_path: Path) -> None:
    model = make("deit")
    model.forward = lambda images: model.head(images.flatten(1)[: int(images.sum())])  # type: ignore[method-assign]
    classifier = Classifier(model, PHOTOS.with_size(model.image_size))
    with pytest.raises(ModelError, match=r"^ViT with .* cannot be written as a graph"):
        vitral.export(classifier, tmp_path / "out", listener=ignore)
    assert not list(tmp_path.iterdir())


def test_an_unknown_format_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no format 'onx'. Did you mean 'onnx'"):
        vitral.export(saved, tmp_path / "out", format="onx", listener=ignore)  # type: ignore[arg-type]


@pytest.mark.slow
def test_torchs_package_gives_the_same_answers(saved: Path, tmp_path: Path) -> None:
    result = vitral.export(saved, tmp_path / "out", format="torch", listener=ignore)
    assert result.holds
    assert result.checks[0].same_top == 1  # type: ignore[union-attr]
    assert "machine code" in (tmp_path / "out" / "README.md").read_text()
