"""How far answers in another precision are from those in float32 is measured on the user's images, and said."""

import pytest
import torch

import vitral
from tests.inference.test_engines import in_bf16
from vitral.data.generated import open_digits
from vitral.evaluation import exactness
from vitral.evaluation.exactness import difference_from_exact
from vitral.events import Event, Message
from vitral.images.preprocessing import PHOTOS
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.engines import Engine


@pytest.fixture
def classifier() -> vitral.Classifier:
    """A small network of random weights, with a head that tells classes apart."""
    model = vitral.create_model("vit-mu4", num_classes=10)
    torch.nn.init.normal_(model.head.weight, std=0.5, generator=torch.Generator().manual_seed(0))
    digits = open_digits()
    return vitral.Classifier(model, PHOTOS.with_size(model.image_size), digits.class_names)


def test_the_network_in_fp32_is_compared_with_nothing(classifier: vitral.Classifier) -> None:
    said: list[Event] = []
    vitral.evaluate(classifier, "digits", listener=said.append)
    assert difference_from_exact(classifier, open_digits().splits["test"]) is None
    assert not any("fp32" in event.text for event in said if isinstance(event, Message))


@in_bf16
def test_the_difference_is_that_of_the_probabilities(
    engine: Engine, classifier: vitral.Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_digits().splits["test"]
    batch = torch.stack([classifier.preprocessing(source.image(index)) for index in range(len(source))])
    exact = classifier.probabilities(batch)
    classifier.predictor = EnginePredictor(classifier.model, engine, "bf16")
    fast = classifier.probabilities(batch)
    monkeypatch.setattr(exactness, "MOST_IMAGES", len(source))
    found = difference_from_exact(classifier, source)
    assert found is not None
    assert found.images == len(source)
    assert found.largest == pytest.approx(float((fast - exact).abs().max()), abs=2e-3)
    assert found.largest > 1e-4
    assert found.same_top == pytest.approx(float((fast.argmax(1) == exact.argmax(1)).double().mean()), abs=0.01)


@in_bf16
def test_evaluate_says_it_in_one_line(engine: Engine, classifier: vitral.Classifier) -> None:
    classifier.predictor = EnginePredictor(classifier.model, engine, "bf16")
    said: list[Event] = []
    vitral.evaluate(classifier, "digits", listener=said.append)
    (line,) = [event.text for event in said if isinstance(event, Message) and "fp32" in event.text]
    assert line.startswith(f"Computed by {engine} in bf16; on 256 photos, against torch in fp32, probabilities differ")
