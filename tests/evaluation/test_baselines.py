"""Baselines on frozen features."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import Int64

from vitral.classifier.classifier import Classifier
from vitral.data.generated import open_digits
from vitral.data.source import Source
from vitral.evaluation.baselines import TIMED, Describer, Fitted, Labels, extract_features, fit_units, score_baselines
from vitral.evaluation.probes import Features, LinearProbe, fit_probe
from vitral.events import Event, Progress
from vitral.images.decode import Pixels, Shrink
from vitral.images.preprocessing import Preprocessing
from vitral.models.model import Images
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig
from vitral.tasks.task import Label


@pytest.fixture
def digit_classifier(tiny_config: ViTConfig) -> Classifier:
    """An untrained network for the digits."""
    model = ViT(tiny_config)
    model.init_weights(0)
    model.replace_head(10)
    return Classifier(model, Preprocessing(image_size=(16, 16)), [str(digit) for digit in range(10)])


def test_baselines_of_random_features_beat_chance(
    digit_classifier: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitral.evaluation.baselines.MOST_TRAINING", 400)
    monkeypatch.setattr("vitral.evaluation.baselines.MOST_TEST", 150)
    events: list[Event] = []
    baselines = score_baselines(digit_classifier, open_digits(), listener=events.append)
    assert baselines is not None
    assert (baselines.split, baselines.num_train, baselines.num_test) == ("test", 400, 150)
    assert baselines.knn is not None
    assert baselines.knn > 0.3
    assert baselines.linear_probe is not None
    assert baselines.linear_probe > 0.4
    assert events[-1] == Progress("read photos", 150, 150)
    assert baselines.pixel_neighbour is not None
    assert baselines.pixel_linear is not None
    assert min(baselines.pixel_neighbour, baselines.pixel_linear) > 0.8


def test_of_random_weights_the_linear_model_on_pixels_is_scored_alone(
    digit_classifier: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(images: Images) -> Features:
        raise AssertionError("an image went through the network")

    monkeypatch.setattr(digit_classifier.predictor, "features", computed)
    monkeypatch.setattr("vitral.evaluation.feature_engine.PACKED_PAY", math.inf)
    train = open_digits().splits["train"]
    fitted = Fitted.of(Describer.of(digit_classifier, network=False).describe(train), 10)
    for seconds in (math.inf, 100.0):
        known = score_baselines(digit_classifier, open_digits(), network=False, fitted=fitted, seconds=seconds)
        assert known is not None
        assert (known.on_features, known.pixel_neighbour, known.num_train) == (None, None, len(train))
        assert known.on_pixels == known.pixel_linear
        assert known.pixel_linear is not None
        assert known.pixel_linear > 0.8
        sentence = known.sentence()
        assert f"of {known.num_test} test photos" in sentence
        assert f"on bare pixels: linear model {known.pixel_linear:.1%}." in sentence
    with pytest.raises(AssertionError, match="went through"):  # what is known of pixels alone does not do for features
        score_baselines(digit_classifier, open_digits(), fitted=fitted)


def test_features_come_in_order_and_leave_the_mode_alone(digit_classifier: Classifier) -> None:
    source = open_digits().splits["validation"]
    digit_classifier.model.train()
    features, labels = extract_features(digit_classifier, source, batch_size=50)
    assert digit_classifier.model.training
    assert features.shape == (len(source), 16)
    assert labels.tolist() == source.labels().tolist()
    digit_classifier.model.eval()
    alone = digit_classifier.features(digit_classifier.preprocessing(source.image(60))[None])
    torch.testing.assert_close(features[60], alone[0].detach())


class Clock:
    """A clock that goes on by what the test says that something takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Slow(Source):
    """A source whose images take a while by a clock."""

    def __init__(self, source: Source, seconds: float, clock: Clock) -> None:
        self.source, self.seconds, self.clock = source, seconds, clock
        self.endless, self.shards = source.endless, source.shards

    def __len__(self) -> int:
        return len(self.source)

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        self.clock.now += self.seconds
        return self.source.image(index, shrink)

    def encoded(self, index: int) -> bytes | Path | None:
        return self.source.encoded(index)

    def label(self, index: int) -> Label:
        return self.source.label(index)

    def labels(self) -> Int64[np.ndarray, " examples"]:
        return self.source.labels()

    def describe(self, index: int) -> str:
        return self.source.describe(index)


@pytest.mark.parametrize(("each", "seconds"), [(0.002, 2.5), (0.02, 3.0), (0.2, 1.0)])
@pytest.mark.parametrize("unit", [0.0, 5e-8])  # seconds of the fits' unit: nothing, or as much as the images
def test_baselines_keep_to_their_time_or_are_left_out(
    digit_classifier: Classifier, monkeypatch: pytest.MonkeyPatch, each: float, seconds: float, unit: float
) -> None:
    data, clock = open_digits(), Clock()
    slow = replace(data, splits={name: Slow(source, each, clock) for name, source in data.splits.items()})

    def fit(one: object, features: Features, labels: Labels, *, classes: int, weigh: str) -> LinearProbe:
        assert weigh == "none"
        clock.now += unit * fit_units(len(labels), features.shape[1], classes)
        return fit_probe(features, labels, classes=classes)

    monkeypatch.setattr("vitral.evaluation.baselines.time", clock)
    monkeypatch.setattr("vitral.evaluation.baselines.unit_seconds", lambda: unit)
    monkeypatch.setattr("vitral.evaluation.baselines.fit_rebalanced", fit)
    baselines = score_baselines(digit_classifier, slow, seconds=seconds)
    assert (baselines is None) == (each == 0.2)
    if baselines is None:
        assert clock.now == pytest.approx((1 + TIMED) * each)  # what the timing itself takes
        return
    assert baselines.num_train < len(data.splits["train"])
    assert baselines.num_test >= 30
    assert seconds / 3 < clock.now <= seconds
