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
from vitral.classifier.metadata import Provenance
from vitral.errors import ImageError, ModelError
from vitral.explanation.explain import explain
from vitral.explanation.methods import attention_rollout
from vitral.images.preprocessing import Preprocessing
from vitral.models.resnet import StemConfig
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig
from vitral.tasks.multi_label import MULTI_LABEL


def photo(height: int = 40, width: int = 60) -> UInt8[np.ndarray, "height width 3"]:
    """Make an image without symmetry."""
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
    explanation = explain(classifier, photo(), method="rollout")
    assert explanation.relevance.shape == (3, 5)
    assert explanation.relevance.min() >= 0.0
    prefix_share = 1.0 - float(explanation.relevance.sum())
    assert -1e-5 <= prefix_share < 1.0
    assert (prefix_share > 1e-3) == (pooling == "token" or registers > 0)


def test_both_tokens_of_a_distilled_network_are_asked(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config, distilled=True)
    attended = classifier.predictor.attention(classifier.preprocessing(photo())[None])
    assert attended.pooling[0, :3].tolist() == [0.5, 0.5, 0.0]
    rows = attention_rollout(attended.attentions)[0, :2, 2:].mean(dim=0)
    np.testing.assert_allclose(
        explain(classifier, photo(), method="rollout").relevance, rows.view(4, 4).numpy(), rtol=1e-5
    )


def test_a_hybrid_is_explained_on_its_feature_map(tiny_config: ViTConfig) -> None:
    stem = StemConfig(stages=())
    classifier = classifier_of(tiny_config, stem=stem, patch_size=(2, 2), image_size=(32, 48))
    assert explain(classifier, photo()).relevance.shape == (4, 6)


def test_class_token_relevance_is_its_row_of_the_rollout(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config, registers=1)
    attended = classifier.predictor.attention(classifier.preprocessing(photo())[None])
    row = attention_rollout(attended.attentions)[0, 0, 2:]
    np.testing.assert_allclose(explain(classifier, photo(), method="rollout").relevance, row.view(4, 4).numpy())


def test_the_pooling_head_weighs_the_rows(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config, pooling="map", depth=1)
    model = classifier.model
    assert isinstance(model, ViT)
    with torch.no_grad():  # a probe that is drawn to one direction: the shares are no longer equal
        model.map_head.attention.query.bias.fill_(8.0)
    attended = classifier.predictor.attention(classifier.preprocessing(photo())[None])
    assert float(attended.pooling.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(attended.pooling.max()) > 1.5 / 16
    expected = attended.pooling @ attention_rollout(attended.attentions)[0]
    np.testing.assert_allclose(
        explain(classifier, photo(), method="rollout").relevance.flatten(), expected[0].numpy(), rtol=1e-5
    )


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


def test_probabilities_of_a_multi_label_network_are_its_own(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config)
    classifier.task = MULTI_LABEL
    explanation, prediction = explain(classifier, photo()), classifier.predict(photo())[0]
    assert [name for name, _ in explanation.top] == [name for name, _ in prediction.top]
    np.testing.assert_allclose(
        [value for _, value in explanation.top], [value for _, value in prediction.top], atol=1e-5
    )
    assert abs(sum(value for _, value in explanation.top) - 1) > 0.05


def test_a_network_at_chance_is_called_so(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config)
    assert "weights are random" in explain(classifier, photo()).warning
    for low, at_chance in ((0.31, True), (0.35, False)):
        scores = {"test/top1": 0.4, "test/top1_low": low, "test/chance": 0.33}
        classifier.provenance = Provenance(training={"steps": 3}, scores=scores)
        said = "Not clearly better than guessing: 40 of 101 test"
        assert explain(classifier, photo()).warning.startswith(said) == at_chance


def test_a_network_scored_on_too_few_images_is_not_called_at_chance(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config)
    scores = {"test/top1": 1.0, "test/top1_low": 2 / (2 + 1.96**2), "test/chance": 0.5}
    classifier.provenance = Provenance(training={"steps": 3}, scores=scores)
    assert "2 of 2 test " in explain(classifier, photo()).warning
    classifier.provenance = Provenance(training={"steps": 3}, scores={"test/top1_low": 0.3, "test/chance": 7.0})
    assert classifier.doubt() == ""  # a damaged file's


def test_damaged_weights_are_one_line(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config)
    torch.nn.init.constant_(classifier.model.head.weight, float("nan"))
    with pytest.raises(ModelError, match="damaged"):
        explain(classifier, photo())


def test_squash_is_undone_and_a_crop_is_shown(tiny_config: ViTConfig) -> None:
    classifier = classifier_of(tiny_config)
    assert explain(classifier, photo(300, 450)).overlay().shape == (300, 450, 3)
    classifier.preprocessing = Preprocessing(image_size=(16, 16), resize="crop", crop_fraction=0.5)
    explanation = explain(classifier, photo(300, 450))
    np.testing.assert_array_equal(explanation.image, photo(300, 450)[75:225, 150:300])
    np.testing.assert_array_equal(explanation.photo, photo(300, 450))


def test_a_file_is_read_and_the_drawing_written(tiny_config: ViTConfig, tmp_path: Path) -> None:
    Image.fromarray(photo(300, 450)).save(tmp_path / "photo.png")
    explanation = explain(classifier_of(tiny_config), tmp_path / "photo.png")
    explanation.save(tmp_path / "out" / "explained.png", style="overlay")
    with Image.open(tmp_path / "out" / "explained.png") as drawn:
        np.testing.assert_array_equal(np.asarray(drawn), explanation.draw(style="overlay"))
    values = json.loads(json.dumps(explanation.to_json()))
    assert values["label"] == explanation.label
    assert values["method"] == "class-specific relevance"
    assert np.shape(values["relevance"]) == (4, 4)


def test_a_missing_file_is_named(tiny_config: ViTConfig, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="nothing.png"):
        explain(classifier_of(tiny_config), tmp_path / "nothing.png")
