"""The joint's proof: a format that no room knows is written, checked, opened and refused by one class and one row."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import vitral
from tests.models.test_contract import make
from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError, WeightsError
from vitral.events import ignore
from vitral.exporting import parity
from vitral.images.preprocessing import PHOTOS
from vitral.inference.engines import Precision
from vitral.inference.exported.format import (
    IMAGES,
    LOGITS,
    PREPARED,
    PROBABILITIES,
    ExportFormat,
    Graph,
    Layers,
    Port,
    Programs,
    Sample,
)
from vitral.inference.exported.open import FORMATS


class ZipGraph(Graph):
    """The two graphs of a zip file."""

    engine: ClassVar[str] = "zipped"

    def __init__(self, path: Path, precision: Precision) -> None:
        super().__init__(path, precision)
        try:
            with zipfile.ZipFile(path) as file:
                self.metadata = json.loads(file.read("metadata.json"))
        except zipfile.BadZipFile as error:
            raise WeightsError(f"'{path}' is no zip file.") from error
        self.inputs = (Port(IMAGES, "uint8", (None, None, None, 3)),)
        self.outputs = (Port(PROBABILITIES, "float32", (None, None)), Port(LOGITS, "float32", (None, None)))

    def _compute(self, name: str, images: np.ndarray) -> Any:  # noqa: ANN401
        def make() -> Any:  # noqa: ANN401
            with zipfile.ZipFile(self.path) as file:
                return torch.export.load(io.BytesIO(file.read(name))).module()

        with torch.no_grad():
            return self._made(name, make)(torch.from_numpy(images))

    def prepare(self, images: np.ndarray) -> np.ndarray:
        """Return prepared images."""
        return np.asarray(self._compute(PREPARED, images))

    def answer(self, images: np.ndarray) -> np.ndarray:
        """Return the logits."""
        return np.asarray(self._compute(LOGITS, images)[1])

    def whole(self, images: np.ndarray) -> np.ndarray:
        """Return the probabilities."""
        return np.asarray(self._compute(LOGITS, self.prepare(images))[0])

    def inner(self, images: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return nothing: no layer has a name."""
        return {}


class ZipFormat(ExportFormat):
    """A zip file of torch's own graphs."""

    title: ClassVar[str] = "a zip of graphs"
    files: ClassVar[tuple[str, ...]] = ("model.graphs",)
    engine: ClassVar[str] = "zipped"
    packages: ClassVar[tuple[str, ...]] = ("zipfile",)
    writes_int8: ClassVar[bool] = False
    samples: ClassVar[tuple[Sample, ...]] = (Sample("Shell", "sh", "unzip model.graphs"),)

    def write(self, programs: Programs, metadata: Mapping[str, str], path: Path) -> Layers:
        """Write both graphs."""
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("metadata.json", json.dumps(dict(metadata)))
            for name, program in ((PREPARED, programs.preparing()), (LOGITS, programs.answering())):
                torch.export.save(program, buffer := io.BytesIO())
                file.writestr(name, buffer.getvalue())
        return {}

    def open(self, path: Path, precision: Precision) -> Graph:
        """Return the graphs."""
        return ZipGraph(path, precision)


@pytest.fixture
def classifier(monkeypatch: pytest.MonkeyPatch) -> Classifier:
    monkeypatch.setitem(FORMATS, "zip", ZipFormat())
    monkeypatch.setattr(parity, "IMAGES", 8)
    model = make("pixels")
    return Classifier(model, PHOTOS.with_size(model.image_size), ("a", "b", "c"))


def exported(classifier: Classifier, target: Path, **given: Any) -> Any:  # noqa: ANN401
    return vitral.export(classifier, target, format="zip", listener=ignore, **given)  # type: ignore[arg-type]


def test_it_is_written_checked_and_opened_by_name_and_in_its_folder(classifier: Classifier, tmp_path: Path) -> None:
    written = exported(classifier, tmp_path / "out")
    assert written.holds
    assert [check.computed_by for check in written.checks] == ["zipped in fp32"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["README.md", "model.graphs"]
    text = (tmp_path / "out" / "README.md").read_text()
    assert all(fact in text for fact in ("# model.graphs", "a zip of graphs", "```sh\nunzip model.graphs\n```"))
    photo = np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8)
    own = classifier.predict(photo, top=3)[0].top
    for path in (tmp_path / "out", tmp_path / "out" / "model.graphs"):
        loaded = vitral.load(path)
        assert loaded.class_names == ("a", "b", "c")
        found = loaded.predict(photo, top=3)[0].top
        assert [label for label, _ in found] == [label for label, _ in own]
        assert [value for _, value in found] == pytest.approx([value for _, value in own], abs=1e-5)


def test_a_file_with_other_answers_is_found(
    classifier: Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ZipGraph, "whole", lambda self, images: np.full((len(images), 3), 1 / 3, np.float32))
    assert not exported(classifier, tmp_path / "out").holds


@pytest.mark.long
def test_another_export_takes_its_place_and_it_takes_that_of_another(classifier: Classifier, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.onnx").write_bytes(b"an earlier one")
    exported(classifier, tmp_path / "out", overwrite=True)
    assert not (tmp_path / "out" / "model.onnx").exists()
    exported(classifier, tmp_path / "out", overwrite=True)


def test_what_it_cannot_is_refused_in_a_line(
    classifier: Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out" / "model.graphs"
    exported(classifier, file.parent)
    with pytest.raises(ModelError, match=r"is computed by zipped, and by no other engine"):
        vitral.load(file, engine="openvino")
    with pytest.raises(ModelError, match=r"computed in fp32, not in bf16"):
        vitral.load(file, precision="bf16")
    with pytest.raises(WeightsError, match=r"There are: onnx, openvino, torch, zip"):
        vitral.export(classifier, tmp_path / "other", format="zap", listener=ignore)  # type: ignore[arg-type]
    file.write_bytes(b"no zip")
    with pytest.raises(WeightsError, match="is no zip file"):
        vitral.load(file)
    monkeypatch.setattr(ZipFormat, "packages", ("no_such_package",))
    with pytest.raises(ModelError, match=r"pip install 'vitral\[zipped\]'"):
        vitral.load(file)
    with pytest.raises(ModelError, match=r"pip install 'vitral\[zipped\]'"):
        exported(classifier, tmp_path / "third")
