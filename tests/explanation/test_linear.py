"""A linear model on pixels is explained exactly: by what each cell of the shrunk image adds to the class's logit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.cli.main import main
from vitral.errors import ModelError
from vitral.explanation.explain import explain
from vitral.explanation.methods import compute
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import build
from vitral.models.model import Model
from vitral.models.pixels import PixelsConfig

SIDE, CLASSES = 4, 3


@pytest.fixture
def linear() -> Model:
    """A model whose weights and bias are not small."""
    model = build(PixelsConfig(image_size=(24, 32), num_classes=CLASSES, side=SIDE))
    random = torch.Generator().manual_seed(4)
    with torch.no_grad():
        model.head.weight.copy_(torch.randn(model.head.weight.shape, generator=random))
        model.head.bias.copy_(torch.randn(CLASSES, generator=random))
    return model


@pytest.fixture
def classifier(linear: Model) -> Classifier:
    """The model with its preprocessing."""
    return Classifier(linear, Preprocessing(image_size=(24, 32)), ["cat", "dog", "horse"])


def photo() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)


def test_the_cells_and_the_bias_sum_to_the_logit(classifier: Classifier, linear: Model) -> None:
    explanation = explain(classifier, photo())
    assert explanation.method == "weight times input"
    assert explanation.contributions is not None
    assert explanation.contributions.shape == (SIDE, SIDE)
    logits = classifier(classifier.preprocessing(photo())[None])[0]
    answer = int(logits.argmax())
    assert explanation.label == classifier.class_names[answer]
    total = explanation.contributions.sum() + float(linear.head.bias[answer].detach())
    assert total == pytest.approx(float(logits[answer].detach()), rel=1e-5)
    assert explanation.contributions.min() < 0
    np.testing.assert_array_equal(explanation.relevance, np.maximum(explanation.contributions, 0))


def test_a_cell_in_the_colour_of_zero_takes_away_just_what_it_added(classifier: Classifier) -> None:
    images = classifier.preprocessing(photo())[None]
    explanation = explain(classifier, photo())
    assert explanation.contributions is not None
    answer = classifier.class_names.index(explanation.label)
    before = float(classifier(images)[0, answer].detach())
    for row in range(SIDE):
        for column in range(SIDE):
            without = images.clone()
            without[:, :, 6 * row : 6 * (row + 1), 8 * column : 8 * (column + 1)] = 0.0
            taken = before - float(classifier(without)[0, answer].detach())
            assert taken == pytest.approx(explanation.contributions[row, column], abs=1e-4)
    # Grad-CAM weighs a channel alike in every cell, and gives another map.
    assert not np.allclose(explanation.relevance, compute(classifier.predictor, images, "Grad-CAM").values[0], rtol=0.1)


def test_the_command_names_it_and_gives_the_signed_figures(
    classifier: Classifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(classifier, tmp_path / "linear")
    Image.fromarray(photo()).save(tmp_path / "photo.png")
    command = ["explain", str(tmp_path / "photo.png"), "--classifier", str(tmp_path / "linear")]
    assert main([*command, "--out", str(tmp_path / "drawing.png"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["method"] == "weight times input"
    assert np.array(told["contributions"]).shape == (SIDE, SIDE)
    assert np.array(told["relevance"]).min() == 0
    assert (tmp_path / "drawing.png").exists()


@pytest.mark.parametrize("method", ["rollout", "attention", "relevance"])
def test_asked_for_attention_it_names_the_method_that_explains_it(classifier: Classifier, method: Any) -> None:  # noqa: ANN401
    with pytest.raises(ModelError, match="it has no attention; weight times input explains it .`method='auto'`."):
        explain(classifier, photo(), method=method)
