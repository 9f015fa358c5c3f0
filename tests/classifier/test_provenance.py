"""What a classifier's own scores say against it."""

import math

import pytest

from vitral.classifier.provenance import BASELINE, Provenance

TRAINED = {"steps": 3}


def scores(split: str, top1: float, low: float, chance: float) -> dict[str, float]:
    """Name the figures of a split as a run does."""
    return {f"{split}/top1": top1, f"{split}/top1_low": low, f"{split}/chance": chance}


@pytest.mark.parametrize("source", ["random weights", "random weights (vit-b16)"])
def test_random_weights_mean_nothing_until_they_are_trained(source: str) -> None:
    assert Provenance(source).doubt().startswith("The weights are random")
    assert Provenance(source, training=TRAINED).doubt() == ""
    assert Provenance("ViT-B_16.npz").doubt() == ""
    assert Provenance().doubt() == Provenance(source).doubt()


def test_scores_that_chance_reaches_too_are_doubted() -> None:
    at_chance = scores("test", 0.4, 0.31, 0.33)
    assert Provenance("x", training=TRAINED, scores=at_chance).doubt() == (
        "No better than chance: 40.0% of its test images right, where always naming one class gets 33.0%."
    )
    assert Provenance("x", training=TRAINED, scores=scores("test", 0.4, 0.331, 0.33)).doubt() == ""


def test_every_split_is_looked_at_and_the_first_doubt_said() -> None:
    both = scores("test", 0.9, 0.8, 0.5) | scores("validation", 0.4, 0.3, 0.5)
    assert "its validation images" in Provenance("x", training=TRAINED, scores=both).doubt()


@pytest.mark.parametrize("name", ["top1", "top1_low", "chance"])
@pytest.mark.parametrize("value", [math.nan, -0.1, 1.1])
def test_figures_that_are_no_shares_say_nothing(name: str, value: float) -> None:
    damaged = scores("test", 0.4, 0.3, 0.5) | {f"test/{name}": value}
    assert Provenance("x", training=TRAINED, scores=damaged).doubt() == ""
    missing = {key: figure for key, figure in damaged.items() if key != f"test/{name}"}
    assert Provenance("x", training=TRAINED, scores=missing).doubt() == ""


def test_the_best_of_the_simple_classifiers_that_beat_it_is_named() -> None:
    rivals = {f"test{BASELINE}knn": 0.62, f"test{BASELINE}linear_probe": 0.75, f"test{BASELINE}pixel_linear": 0.6}
    said = Provenance(scores={"test/top1": 0.61, **rivals}).shortfall()
    assert said == "Doubtful: 61.0% of its test images right, where a simple linear probe got 75.0%."
    rivals[f"test{BASELINE}pixel_neighbour"] = 0.8
    assert (
        "simple nearest neighbour on bare pixels got 80.0%"
        in Provenance(scores={"test/top1": 0.61, **rivals}).shortfall()
    )


def test_nothing_is_said_where_it_is_as_good_or_nothing_is_known() -> None:
    assert Provenance(scores={"test/top1": 0.75, f"test{BASELINE}knn": 0.75}).shortfall() == ""
    assert Provenance(scores={"test/top1": 0.75}).shortfall() == ""
    assert Provenance(scores={"validation/top1": 0.5, f"test{BASELINE}knn": 0.75}).shortfall() == ""
    assert Provenance(scores={"test/map": 0.5, f"test{BASELINE}knn": 0.75}).shortfall() == ""
