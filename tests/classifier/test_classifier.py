"""What a classifier answers, shows and refuses."""

import copy
import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.classifier.classifier import Classifier
from vitral.classifier.inputs import ImageInput
from vitral.classifier.metadata import Provenance
from vitral.errors import ImageError, ModelError
from vitral.events import Event, Progress, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.inference.torch_predictor import TorchPredictor
from vitral.models.families import build
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


def photos(count: int) -> list[ImageInput]:
    """Make images that differ."""
    return list(np.random.default_rng(1).integers(0, 256, (count, 20, 30, 3), dtype=np.uint8))


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


@pytest.mark.parametrize("batch_size", [1, 2, 5, 100])
def test_each_image_has_its_own_answer_whatever_the_batch(classifier: Classifier, batch_size: int) -> None:
    given = photos(5)
    events: list[Event] = []
    together = classifier.predict(given, top=3, batch_size=batch_size, listener=events.append)
    alone = [classifier.predict(photo, top=3)[0] for photo in given]
    assert [prediction.source for prediction in together] == [f"image {index}" for index in range(5)]
    assert len({prediction.probability for prediction in alone}) == 5
    for one, other in zip(together, alone, strict=True):
        assert [label for label, _ in one.top] == [label for label, _ in other.top]
        assert [value for _, value in one.top] == pytest.approx([value for _, value in other.top], abs=1e-6)
    assert events == [Progress("predict", min(end, 5), 5) for end in range(batch_size, 5 + batch_size, batch_size)]


def test_a_prediction_is_the_softmax_of_the_networks_logits_by_name(classifier: Classifier) -> None:
    (photo,) = photos(1)
    (prediction,) = classifier.predict(photo, top=3)
    logits = classifier.model(classifier.preprocessing(np.asarray(photo))[None])[0].double()
    expected = (logits.exp() / logits.exp().sum()).tolist()
    assert dict(prediction.top) == pytest.approx(dict(zip(NAMES, expected, strict=True)), abs=1e-6)
    assert [value for _, value in prediction.top] == pytest.approx(sorted(expected, reverse=True), abs=1e-6)


@pytest.mark.parametrize(("top", "named"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_as_many_classes_are_named_as_asked_for(classifier: Classifier, top: int, named: int) -> None:
    (prediction,) = classifier.predict(photos(1), top=top)
    assert len(prediction.top) == named
    values = [value for _, value in prediction.top]
    assert values == sorted(values, reverse=True)
    assert prediction.to_json() == {
        "source": "image 0",
        "label": prediction.label,
        "probability": prediction.probability,
        "top": [{"label": label, "probability": value} for label, value in prediction.top],
    }


def test_asking_for_no_class_or_no_batch_is_refused_in_a_line(classifier: Classifier) -> None:
    with pytest.raises(ModelError, match="set top to 1"):
        classifier.predict(photos(1), top=0)
    with pytest.raises(ModelError, match="set batch_size to 1"):
        classifier.predict(photos(1), batch_size=0)
    assert classifier.predict([]) == []


def test_damaged_weights_are_refused_and_the_image_named(classifier: Classifier, image: Path) -> None:
    torch.nn.init.constant_(classifier.model.head.bias, float("nan"))
    with pytest.raises(ModelError, match=r"'.*image\.png'.*damaged"):
        classifier.predict(image)


def test_predicting_while_it_trains_changes_neither_answer_nor_mode(tiny_config: ViTConfig) -> None:
    model = build(tiny_config, seed=0)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    model.set_rates(dropout=0.5, attention_dropout=0.0, stochastic_depth=0.5)
    classifier = Classifier(model, PHOTOS.with_size(16))
    expected = classifier.predict(photos(3))
    classifier.train()
    assert classifier.predict(photos(3)) == expected
    assert classifier.training
    assert all(part.training for part in model.modules())


def test_it_is_a_module_that_can_be_trained(classifier: Classifier) -> None:
    images = torch.randn(2, 3, 16, 16)
    assert not classifier.training
    assert dict(classifier.named_parameters()).keys() == {f"model.{name}" for name in classifier.model.state_dict()}
    assert torch.equal(classifier(images), classifier.model(images))
    assert torch.equal(classifier.features(images), classifier.model.features(images))
    classifier(images).sum().backward()
    assert classifier.model.head.weight.grad is not None
    assert classifier.features(images).requires_grad
    assert not classifier.probabilities(images).requires_grad


def test_what_is_learned_or_put_in_the_networks_stead_answers_at_once(
    classifier: Classifier, tiny_config: ViTConfig
) -> None:
    images = torch.randn(2, 3, 16, 16)
    before = classifier.probabilities(images)
    with torch.no_grad():
        classifier.model.head.weight.neg_()
    learned = classifier.probabilities(images)
    assert not torch.equal(learned, before)
    classifier.model = build(tiny_config, seed=5)
    assert torch.equal(classifier.probabilities(images), torch.full((2, 3), 1 / 3))  # its head is zero
    assert len(list(classifier.children())) == 1


def test_a_copy_is_a_classifier_of_its_own(classifier: Classifier) -> None:
    images = torch.randn(2, 3, 16, 16)
    before = classifier.probabilities(images)
    other = copy.deepcopy(classifier)
    torch.nn.init.zeros_(other.model.head.weight)
    assert torch.equal(classifier.probabilities(images), before)
    assert not torch.equal(other.probabilities(images), before)


def test_a_predictor_of_torch_is_taken_as_its_network(classifier: Classifier) -> None:
    other = Classifier(TorchPredictor(classifier.model), classifier.preprocessing, NAMES)
    assert other.model is classifier.model
    assert other.predict(photos(2), listener=ignore) == classifier.predict(photos(2), listener=ignore)


def test_several_labels_have_probabilities_of_their_own(classifier: Classifier) -> None:
    several = Classifier(classifier.model, classifier.preprocessing, NAMES, multi_label=True)
    images = torch.randn(4, 3, 16, 16)
    torch.testing.assert_close(several.probabilities(images), torch.sigmoid(classifier.model(images)).detach())
    assert "3 labels" in repr(several)
    assert "3 classes" in repr(classifier)


def test_one_output_gives_no_probabilities_of_single_classes_and_those_of_several(
    tiny_config: ViTConfig, image: Path
) -> None:
    model = build(dataclasses.replace(tiny_config, num_classes=1), seed=0)
    with pytest.raises(ModelError, match="one output"):
        Classifier(model, PHOTOS.with_size(16)).predict(image)
    assert 0 < Classifier(model, PHOTOS.with_size(16), multi_label=True).predict(image)[0].probability < 1


def test_names_and_size_must_fit(classifier: Classifier) -> None:
    with pytest.raises(ModelError, match="3 classes, but 2 names"):
        Classifier(classifier.model, classifier.preprocessing, ["a", "b"])
    with pytest.raises(ModelError, match="the same name"):
        Classifier(classifier.model, classifier.preprocessing, ["a", "a", "b"])
    with pytest.raises(ModelError, match=r"takes \(16, 16\) pixels, its preprocessing \(32, 32\)"):
        Classifier(classifier.model, PHOTOS.with_size(32))
    assert Classifier(classifier.model, PHOTOS.with_size(16)).class_names == ("class 0", "class 1", "class 2")


def test_it_is_shown_in_two_lines(classifier: Classifier) -> None:
    assert repr(classifier) == (
        "Classifier: ViT with patch_size 4x4, depth 2, width 16, mlp_width 32 and heads 2, "
        "images of 16x16 pixels, 3 classes (10, 2, <b>fox|hen</b>)\n"
        "from nothing, accuracy 50.0% on its test photos"
    )
    classifier.class_names = ("a" * 30, "b", "c", "d", "e")
    assert f"5 classes ({'a' * 24}…, b, c, d, …)" in repr(classifier)
