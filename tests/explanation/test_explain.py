"""Explanations of tiny networks of every head type, and their drawings on disk."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import UInt8
from PIL import Image

from vitral.classifier.classifier import Classifier
from vitral.errors import ImageError
from vitral.explanation.attention import attend
from vitral.explanation.explain import explain
from vitral.explanation.rollout import attention_rollout
from vitral.images.preprocessing import Preprocessing
from vitral.models.stem import StemConfig
from vitral.models.vit import ViT, ViTConfig


def photo(height: int = 40, width: int = 60) -> UInt8[np.ndarray, "height width 3"]:
    """Make a picture without symmetry."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def classifier_of(config: ViTConfig, **changes: Any) -> Classifier:  # noqa: ANN401  # fields of the config
    """Build an untrained network whose head is not zero."""
    config = dataclasses.replace(config, **changes)
    model = ViT(config)
    model.init_weights(0)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    return Classifier(model, Preprocessing(image_size=config.image_size))


@pytest.mark.parametrize("pooling", ["token", "gap", "map"])
@pytest.mark.parametrize("registers", [0, 2])
def test_every_head_type_on_a_grid_that_is_not_square(tiny_config: ViTConfig, pooling: str, registers: int) -> None:
    classifier = classifier_of(tiny_config, pooling=pooling, registers=registers, image_size=(12, 20))
    explanation = explain(classifier, photo())
    assert explanation.relevance.shape == (3, 5)
    assert explanation.relevance.min() >= 0.0
    prefix_share = 1.0 - float(explanation.relevance.sum())
    assert -1e-5 <= prefix_share < 1.0
    assert (prefix_share > 1e-3) == (pooling == "token" or registers > 0)


def test_both_tokens_of_a_distilled_network_are_asked(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config, distilled=True)
    attended = attend(classifier.model, classifier.preprocessing(photo())[None])
    assert attended.pooling[0, :3].tolist() == [0.5, 0.5, 0.0]
    rows = attention_rollout(attended.attentions)[0, :2, 2:].mean(dim=0)
    np.testing.assert_allclose(explain(classifier, photo()).relevance, rows.view(4, 4).numpy(), rtol=1e-5)


def test_a_hybrid_is_explained_on_its_feature_map(tiny_config: ViTConfig) -> None:
    stem = StemConfig(stages=())
    classifier = classifier_of(tiny_config, stem=stem, patch_size=(2, 2), image_size=(32, 48))
    assert explain(classifier, photo()).relevance.shape == (4, 6)


def test_class_token_relevance_is_its_row_of_the_rollout(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config, registers=1)
    attended = attend(classifier.model, classifier.preprocessing(photo())[None])
    row = attention_rollout(attended.attentions)[0, 0, 2:]
    np.testing.assert_allclose(explain(classifier, photo()).relevance, row.view(4, 4).numpy())


def test_the_pooling_head_weighs_the_rows(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config, pooling="map", depth=1)
    model = classifier.model
    assert isinstance(model, ViT)
    with torch.no_grad():  # a probe that is drawn to one direction: the shares are no longer equal
        model.map_head.attention.query.bias.fill_(8.0)
    attended = attend(model, classifier.preprocessing(photo())[None])
    assert float(attended.pooling.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(attended.pooling.max()) > 1.5 / 16
    expected = attended.pooling @ attention_rollout(attended.attentions)[0]
    np.testing.assert_allclose(explain(classifier, photo()).relevance.flatten(), expected[0].numpy(), rtol=1e-5)


def test_prediction_is_the_classifiers_own(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config, num_classes=7)
    classifier.train()
    explanation = explain(classifier, photo())
    assert classifier.model.training
    classifier.eval()
    prediction = classifier.predict(photo())[0]
    assert explanation.label == prediction.label
    assert [name for name, _ in explanation.top] == [name for name, _ in prediction.top]
    assert explanation.probability == pytest.approx(prediction.probability, abs=1e-5)
    assert len(explanation.top) == 5


def test_squash_is_undone_and_a_crop_is_shown(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config)
    assert explain(classifier, photo(300, 450)).overlay().shape == (300, 450, 3)
    classifier.preprocessing = Preprocessing(image_size=(16, 16), resize="crop", crop_fraction=0.5)
    explanation = explain(classifier, photo(300, 450))
    np.testing.assert_array_equal(explanation.image, photo(300, 450)[75:225, 150:300])


def test_a_file_is_read_and_the_drawing_written(tiny_config: ViTConfig, tmp_path: Path) -> None:
    Image.fromarray(photo(300, 450)).save(tmp_path / "photo.png")
    explanation = explain(classifier_of(tiny_config), tmp_path / "photo.png")
    explanation.save(tmp_path / "out" / "attention.png")
    with Image.open(tmp_path / "out" / "attention.png") as drawn:
        assert drawn.size == (450, 300)
        np.testing.assert_array_equal(np.asarray(drawn), explanation.overlay())
    values = json.loads(json.dumps(explanation.to_json()))
    assert values["label"] == explanation.label
    assert np.shape(values["relevance"]) == (4, 4)


def test_a_missing_file_is_named(tiny_config: ViTConfig, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="nothing.png"):
        explain(classifier_of(tiny_config), tmp_path / "nothing.png")
