"""An exported file answers image files without torch, as it does with it; what it cannot answer is left to `load`."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

import vitral
from tests.cases import every_case
from tests.models.test_contract import make
from vitral.classifier import folder
from vitral.classifier.classifier import Classifier
from vitral.classifier.exported import described
from vitral.classifier.metadata import Calibration
from vitral.classifier.prediction import Prediction
from vitral.classifier.without_torch import all_plain, exported_file
from vitral.cli.main import main
from vitral.errors import ImageError, ModelError, PluginError, WeightsError
from vitral.events import Event, Message, ignore
from vitral.exporting.preparation import ClassifierPrograms
from vitral.images.preprocessing import PHOTOS
from vitral.inference.exported.onnx_format import write_onnx
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL

NAMES = ("tulip", "rose & <b>thorn</b>", "日本")
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # an import of it fails
from vitral.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photos")
    for name, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        Image.fromarray(pixels).save(path / f"{name}.jpg")
    return path


@pytest.fixture(scope="module", params=[SINGLE_LABEL, MULTI_LABEL], ids=lambda task: task.name)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, target = make("deit"), tmp_path_factory.mktemp("exported")
    classifier = Classifier(model, PHOTOS.with_size(model.image_size), NAMES, task=request.param)
    classifier.calibration = Calibration(1.7, 0.45, 0.9, "photos", 50)
    write_onnx(ClassifierPrograms(classifier), described(classifier), target / "model.onnx")
    return target


def with_metadata(exported: Path, target: Path, **changes: str) -> Path:
    """Return a copy of a file that says something else of itself."""
    model = onnx.load(exported / "model.onnx")
    for entry in model.metadata_props:
        entry.value = changes.pop(entry.key, entry.value)
    for key, value in changes.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, target / "model.onnx")
    return target / "model.onnx"


def alone(file: Path, images: Path) -> list[Prediction]:
    found, listed = exported_file(str(file)), (all_plain([str(images)]) or {}).get(str(images))
    assert found is not None
    assert listed is not None
    return found.predict(listed, top=3, skip_bad_images=False, listener=ignore)


def test_it_answers_as_with_torch(exported: Path, photos: Path) -> None:
    usual = vitral.load(exported).predict(photos, top=3, listener=ignore)
    for found, expected in zip(alone(exported, photos), usual, strict=True):
        assert (found.source, found.label, found.sure) == (expected.source, expected.label, expected.sure)
        assert [name for name, _ in found.top] == [name for name, _ in expected.top]
        np.testing.assert_allclose([p for _, p in found.top], [p for _, p in expected.top], rtol=0, atol=1e-6)


@every_case(("bits", "white"), ((12, 4095), (None, 1023), ("left out", 65535)))
def test_a_16_bit_image_is_as_bright_as_the_file_has_it(
    exported: Path, tmp_path: Path, bits: int | str | None, white: int
) -> None:
    values = np.random.default_rng(0).integers(0, 1024, (40, 40)).astype(np.uint16)
    values[0, 0] = 1023  # ten bits, as far as this image tells
    Image.fromarray(values).save(tmp_path / "deep.png")
    grey = (values.astype(np.uint32) * 255 // white).astype(np.uint8)
    Image.fromarray(np.stack([grey] * 3, axis=2)).save(tmp_path / "plain.png")
    stated = PHOTOS.with_size(make("deit").image_size).to_json() | {"bits": bits}
    if bits == "left out":  # as of an earlier version
        del stated["bits"]
    file = with_metadata(exported, tmp_path, preprocessing=json.dumps(stated))
    deep, plain = (alone(file, tmp_path / name)[0].top for name in ("deep.png", "plain.png"))
    assert deep == plain
    usual = vitral.load(file).predict([tmp_path / "deep.png"], top=3, listener=ignore)[0].top
    np.testing.assert_allclose([p for _, p in usual], [p for _, p in plain], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["", "model.onnx"], ids=["folder", "file"])
def test_the_command_runs_where_torch_cannot_be_imported(exported: Path, photos: Path, name: str) -> None:
    command = [
        *(sys.executable, "-c", WITHOUT_TORCH, "predict", str(photos), "--classifier", str(exported / name)),
        *("--top", "2", "--json"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    expected = vitral.load(exported).predict(photos, top=2, listener=ignore)
    assert [one["label"] for one in found] == [one.label for one in expected]
    assert [len(one["top"]) for one in found] == [2, 2]
    assert [one["sure"] for one in found] == [one.sure for one in expected]


def test_what_else_an_image_may_be_is_read_as_ever(
    exported: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.write(photos / "china.jpg", "china.jpg")
    assert main(["predict", str(tmp_path / "photos.zip"), "--classifier", str(exported), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[0]["label"] == alone(exported, photos / "china.jpg")[0].label
    assert all_plain([str(photos), str(tmp_path / "photos.zip")]) is None
    assert all_plain([str(tmp_path)]) is None  # without images
    assert all_plain([str(photos), str(photos / "china.jpg")]) is not None


def test_other_classifiers_are_left_to_load(exported: Path, tmp_path: Path) -> None:
    assert exported_file("vit-ti16") is None
    assert exported_file(str(tmp_path / "gone.onnx")) is None
    model = make("deit")
    saved = folder.save(Classifier(model, PHOTOS.with_size(model.image_size), NAMES), tmp_path / "saved")
    (saved / "model.onnx").write_bytes((exported / "model.onnx").read_bytes())
    assert exported_file(str(saved)) is None  # the folder's own classifier answers
    foreign = onnx.load(exported / "model.onnx")
    del foreign.metadata_props[:]
    onnx.save(foreign, tmp_path / "foreign.onnx")
    assert exported_file(str(tmp_path / "foreign.onnx")) is None


def test_an_image_that_cannot_be_read(exported: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no image")
    (tmp_path / "b.jpg").write_bytes((photos / "china.jpg").read_bytes())
    with pytest.raises(ImageError, match=r"a\.jpg.*not a readable image"):
        alone(exported, tmp_path)
    file, listed, events = (
        exported_file(str(exported)),
        (all_plain([str(tmp_path)]) or {}).get(str(tmp_path)),
        list[Event](),
    )
    assert file is not None
    assert listed is not None
    found = file.predict(listed, top=1, skip_bad_images=True, listener=events.append)
    assert [Path(one.source).name for one in found] == ["b.jpg"]
    assert "a.jpg" in next(event.text for event in events if isinstance(event, Message))


def test_notes_and_doubts_are_said(
    exported: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"test/images": 200, "test/images_of_baselines": 200}
    scores = {"test/top1": 0.4, "test/baseline_pixel_linear": 0.9, **counts}
    told = {"source": "here", "training": {"steps": 3}, "scores": scores, "notes": ["Trained on tulips only."]}
    file = with_metadata(exported, tmp_path, provenance=json.dumps(told))
    assert main(["predict", str(photos), "--classifier", str(file)]) == 0
    said = capsys.readouterr().err
    assert "Trained on tulips only." in said
    assert "90.0%" in said


@every_case(
    ("entry", "value", "message"),
    [
        ("class_names", '["a"]', r"float32 \[1, 3\] where float32 \[1, 1\]"),
        ("class_names", "{", "damaged metadata"),
        ("class_names", "[1, 2, 3]", "cannot be used"),
        ("provenance", "[]", "cannot be used"),
        ("calibration", '{"temperature": 1e9}', "cannot be used"),
        ("plugins", "[", "damaged metadata"),
    ],
)
def test_damaged_metadata_are_refused(
    exported: Path, photos: Path, tmp_path: Path, entry: str, value: str, message: str
) -> None:
    with pytest.raises(WeightsError, match=message):
        alone(with_metadata(exported, tmp_path, **{entry: value}), photos)


def test_a_plugin_that_it_needs_is_named(exported: Path, photos: Path, tmp_path: Path) -> None:
    needed = [{"file": "mine.py", "sha256": "0", "kind": "task", "name": "mine"}]
    file = with_metadata(exported, tmp_path, plugins=json.dumps(needed))
    with pytest.raises(PluginError, match=r"needs the plugin 'mine\.py'"):
        alone(file, photos)
    with pytest.raises(PluginError, match=r"needs the plugin 'mine\.py'"):
        vitral.load(file)


def test_a_network_that_gives_no_number(exported: Path, photos: Path, tmp_path: Path) -> None:
    model = onnx.load(exported / "model.onnx")
    largest = max(model.graph.initializer, key=lambda value: len(value.raw_data))
    largest.raw_data = np.full(len(largest.raw_data) // 4, np.nan, np.float32).tobytes()
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="no number"):
        alone(tmp_path / "model.onnx", photos)
