"""A classifier is a folder: what goes in comes out, to the bit."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.inputs import ImageInput
from vitral.classifier.provenance import Provenance
from vitral.errors import ImageError, ModelError, WeightsError
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import build
from vitral.models.vit_config import ViTConfig

NAMES = ("10", "2", "<b>fox|hen</b>")


@pytest.fixture
def classifier(tiny_config: ViTConfig) -> Classifier:
    model = build(tiny_config, seed=0)
    with torch.no_grad():
        model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    provenance = Provenance("nothing", training={"steps": 3}, scores={"test/top1": 0.5})
    return Classifier(model, PHOTOS.with_size(16), NAMES, provenance=provenance)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    return tmp_path / "image.png"


def test_the_round_trip_is_exact(classifier: Classifier, tmp_path: Path) -> None:
    again = vitral.load(save(classifier, tmp_path / "fox"))
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(again(images), classifier(images))
    assert again.class_names == NAMES
    assert again.preprocessing == classifier.preprocessing
    assert again.provenance == classifier.provenance


def test_an_interrupted_save_leaves_the_older_folder(classifier: Classifier, tmp_path: Path) -> None:
    folder = save(classifier, tmp_path / "fox")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    classifier.provenance = Provenance(training={"x": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        save(classifier, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["fox"]


def test_every_kind_of_image_gives_one_answer(classifier: Classifier, image: Path) -> None:
    pixels = np.array(Image.open(image))
    buffer = io.BytesIO(image.read_bytes())
    inputs: list[ImageInput] = [image, str(image), buffer.getvalue(), Image.fromarray(pixels), pixels]
    predictions = classifier.predict(inputs, top=2)
    assert len({(prediction.label, prediction.probability) for prediction in predictions}) == 1
    assert predictions[0].top[0] == (predictions[0].label, predictions[0].probability)
    assert classifier.predict(pixels)[0].label in NAMES
    assert sum(probability for _, probability in classifier.predict(image, top=3)[0].top) == pytest.approx(1)


def test_folders_are_read_whole_and_bad_images_named(classifier: Classifier, image: Path) -> None:
    (image.parent / "bad.jpg").write_bytes(b"no")
    with pytest.raises(ImageError, match="bad.jpg"):
        classifier.predict(image.parent)
    good = classifier.predict(image.parent, skip_bad_images=True)
    assert [prediction.source for prediction in good] == [str(image)]


def test_the_card_says_what_it_is(classifier: Classifier, tmp_path: Path) -> None:
    card = (save(classifier, tmp_path / "fox") / "README.md").read_text()
    assert "library_name: vitral" in card
    assert "<b>" not in card
    assert "| test/top1 | 0.5000 |" in card


def test_names_must_fit(classifier: Classifier) -> None:
    with pytest.raises(ModelError, match="3 classes, but 2 names"):
        Classifier(classifier.model, classifier.preprocessing, ["a", "b"])
    with pytest.raises(ModelError, match="the same name"):
        Classifier(classifier.model, classifier.preprocessing, ["a", "a", "b"])


def test_names_and_runs_are_loaded(classifier: Classifier, tmp_path: Path) -> None:
    save(classifier, tmp_path / "runs" / "one" / "classifier")
    assert vitral.load(tmp_path / "runs" / "one").class_names == NAMES
    assert vitral.load("vit-mu16", image_size=(32, 64)).model.image_size == (32, 64)
    with pytest.raises(WeightsError, match="Did you mean 'vit-b16'"):
        vitral.load("vit-b61")
    with pytest.raises(WeightsError, match="no classifier folder"):
        vitral.load(tmp_path)
