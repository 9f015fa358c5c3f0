"""Which of several starts is worth taking, and how many images there is time for."""

import time

import numpy as np
import pytest
import torch
from jaxtyping import Bool
from torch import Tensor

from tests.cases import every_case
from vitral.classifier.classifier import Classifier
from vitral.data.generated import open_digits
from vitral.data.subset import Subset
from vitral.evaluation.start_probes import (
    Images,
    ProbeCost,
    Probed,
    affordable,
    decide,
    measure_cost,
    probe_start,
    surely_better,
)
from vitral.events import ignore
from vitral.images.preprocessing import Preprocessing
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig


def right(pattern: str) -> Bool[Tensor, " images"]:
    return torch.tensor([sign == "+" for sign in pattern], dtype=torch.bool)


def probed(pattern: str, an_image: float = 1.0, *, left_out: str = "") -> Probed:
    return Probed(right(pattern), right(left_out), an_image, seconds=9.0)


@every_case(
    ("mine", "theirs", "surely"),
    [(5, 0, False), (6, 0, True), (8, 1, True), (7, 1, False), (10, 2, True), (9, 2, False), (2, 10, False)],
)
def test_two_starts_are_told_apart_by_the_images_that_one_alone_gets_right(
    mine: int, theirs: int, surely: bool
) -> None:
    """As tables of the sign test have it at 5 %, two-sided: 6 of 6, 8 of 9, 10 of 12."""
    one, other = "+" * mine + "-" * theirs, "-" * mine + "+" * theirs
    assert surely_better(probed("+" * 500 + one), probed("+" * 500 + other)) == surely
    half = (mine + theirs) // 2
    begun, rest = (probed(text[:half], left_out=text[half:]) for text in (one, other))
    assert surely_better(begun, rest) == surely, "images that were left out of a fit count like those that judge"


def test_training_images_that_one_of_two_starts_knows_do_not_tell_them_apart() -> None:
    """A start that has learned from them has none that count."""
    known, unknown = probed("+" * 10), probed("+" * 10, left_out="-" * 100)
    assert not surely_better(known, unknown)
    assert surely_better(probed("+" * 10, left_out="+" * 100), unknown)


def test_of_starts_that_cannot_be_told_apart_the_fastest_is_taken() -> None:
    starts = {"slow": probed("+" * 90 + "-" * 10, 3.0), "fast": probed("+" * 88 + "-" * 12, 1.0)}
    starts |= {"nearly as fast": probed("+" * 89 + "-" * 11, 1.2), "bad": probed("-" * 100, 0.1)}
    assert decide(starts) == ("nearly as fast", ("slow", "nearly as fast", "fast"))
    assert decide({}) == ("", ())


def test_a_better_start_is_taken_however_slow() -> None:
    starts = {"fast": probed("+" * 80 + "-" * 20, 0.1), "slow": probed("+" * 100, 9.0)}
    assert decide(starts) == ("slow", ("slow",))


def test_as_many_images_as_there_is_time_for_and_the_dearest_starts_left_out() -> None:
    costs = {"a": ProbeCost(1.0, 0.1, 0.2, 8), "b": ProbeCost(1.0, 0.1, 0.2, 8), "dear": ProbeCost(1.0, 9.0, 9.0, 8)}
    free = affordable(costs, 1000, 500, 10, seconds=1e6, unit=0.0)
    assert free == ((1000, 500), [])
    (train, judging), left_out = affordable(costs, 1000, 500, 10, seconds=700.0, unit=0.0)
    assert left_out == []
    total = sum(cost.seconds(train, judging, 10, 0.0) for cost in costs.values())
    assert 500 < total <= 700
    assert affordable(costs, 1000, 500, 10, seconds=300.0, unit=0.0)[1] == ["dear"]
    assert affordable(costs, 1000, 500, 10, seconds=1.0, unit=0.0)[1] == ["dear", "b", "a"]
    assert affordable(costs, 1000, 500, 10, seconds=300.0, unit=1.0)[1] == ["dear", "b", "a"]  # the fits take longer


def test_there_are_never_fewer_images_than_classes() -> None:
    counts, left_out = affordable({"a": ProbeCost(0.0, 1.0, 1.0, 8)}, 5000, 0, 700, seconds=750.0, unit=0.0)
    assert (counts, left_out) == ((700, 0), [])
    assert affordable({"a": ProbeCost(0.0, 1.0, 1.0, 8)}, 5000, 0, 700, seconds=690.0, unit=0.0)[1] == ["a"]
    assert affordable({"a": ProbeCost(0.0, 1.0, 1.0, 8)}, 12, 0, 3, seconds=12.0, unit=0.0) == ((12, 0), [])


def test_what_is_set_up_once_is_not_taken_for_the_time_of_an_image(
    tiny_config: ViTConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ViT(tiny_config)
    classifier = Classifier(model, Preprocessing(image_size=(16, 16)))
    train = open_digits().splits["train"]
    features, seen = classifier.predictor.features, list[int]()

    def with_set_up(images: Tensor) -> Tensor:
        if len(images) not in seen:
            time.sleep(1.0)
        seen.append(len(images))
        return features(images)

    monkeypatch.setattr(classifier.predictor, "features", with_set_up)
    monkeypatch.setattr("vitral.evaluation.baselines.LONG", 1e9)  # however slow the machine
    monkeypatch.setattr("vitral.evaluation.feature_engine.PACKED_PAY", 1e9)  # likewise
    began = time.perf_counter()
    cost = measure_cost(classifier, Images(train, None, 10), 0.0)
    whole = time.perf_counter() - began
    assert whole > 1.0
    assert cost.train_image * seen[0] < whole - 1.0


def test_a_probe_says_of_each_image_whether_it_is_right(tiny_config: ViTConfig) -> None:
    model = ViT(tiny_config)
    model.init_weights(0)
    classifier = Classifier(model, Preprocessing(image_size=(16, 16)))
    splits = open_digits().splits
    train, few = Subset(splits["train"], range(200)), Subset(splits["validation"], range(50))
    judged = probe_start(classifier, Images(train, few, 10), ignore)
    assert len(judged.right) == 50
    assert 0.3 < judged.accuracy < 1.0
    assert 0 < judged.image_seconds * 200 < judged.seconds
    left_out = probe_start(classifier, Images(train, None, 10), ignore)
    assert torch.equal(left_out.right, judged.left_out)
    assert (len(left_out.right), len(left_out.left_out)) == (200, 0)
    assert 0.3 < left_out.accuracy < 1.0
    seen = probe_start(classifier, Images(train, train, 10), ignore)
    assert seen.accuracy > left_out.accuracy, "an image that was fitted on is easier"
    low, high = left_out.interval
    assert low < left_out.accuracy < high
    pixels = probe_start(classifier, Images(train, few, 10), ignore, network=False)
    assert pixels.accuracy > judged.accuracy
    cost = measure_cost(classifier, Images(train, few, 10), 3.0)
    assert (cost.loading, cost.features) == (3.0, 16)
    assert min(cost.train_image, cost.judging_image) > 0
    assert measure_cost(classifier, Images(train, None, 10), 3.0, network=False).features == 3 * 16**2
    thinned = Images(train, few, 10).thinned(30, 20)
    assert (len(thinned.train), thinned.judged) == (30, 20)
    assert np.array_equal(thinned.train.labels()[:1], train.labels()[:1])
