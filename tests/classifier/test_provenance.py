"""What a classifier's own scores say against it."""

import math

from tests.cases import every_case
from vitral.classifier.metadata import BASELINE, Provenance

TRAINED = {"steps": 3}


def scores(split: str, top1: float, low: float, chance: float) -> dict[str, float]:
    """Name the figures of a split as a run does."""
    return {f"{split}/top1": top1, f"{split}/top1_low": low, f"{split}/chance": chance}


@every_case("source", ["random weights", "random weights (vit-b16)"])
def test_random_weights_mean_nothing_until_they_are_trained(source: str) -> None:
    assert Provenance(source).doubt().startswith("The weights are random")
    assert Provenance(source, training=TRAINED).doubt() == ""
    assert Provenance("ViT-B_16.npz").doubt() == ""
    assert Provenance().doubt() == Provenance(source).doubt()


def test_scores_that_chance_reaches_too_are_doubted() -> None:
    at_chance = scores("test", 0.4, 0.31, 0.33)
    doubt = Provenance("x", training=TRAINED, scores=at_chance).doubt()
    assert all(fact in doubt for fact in ("40 of 101 test ", " 33)")), doubt
    assert Provenance("x", training=TRAINED, scores=scores("test", 0.4, 0.331, 0.33)).doubt() == ""


def test_every_split_is_looked_at_and_the_first_doubt_said() -> None:
    both = scores("test", 0.9, 0.8, 0.5) | scores("validation", 0.4, 0.3, 0.5)
    assert "of 81 validation " in Provenance("x", training=TRAINED, scores=both).doubt()


@every_case("name", ["top1", "top1_low", "chance"])
@every_case("value", [math.nan, -0.1, 1.1])
def test_figures_that_are_no_shares_say_nothing(name: str, value: float) -> None:
    damaged = scores("test", 0.4, 0.3, 0.5) | {f"test/{name}": value}
    assert Provenance("x", training=TRAINED, scores=damaged).doubt() == ""
    missing = {key: figure for key, figure in damaged.items() if key != f"test/{name}"}
    assert Provenance("x", training=TRAINED, scores=missing).doubt() == ""


def beside(top1: float, images: int, rivals: dict[str, float], others: int) -> Provenance:
    """Return what a run keeps of so many right of so many images, and of simple classifiers on others of them."""
    figures = {f"test{BASELINE}{name}": share for name, share in rivals.items()}
    return Provenance(scores={"test/top1": top1, "test/images": images, "test/images_of_baselines": others, **figures})


def test_the_best_of_the_simple_classifiers_that_beat_it_is_named() -> None:
    rivals = {"knn": 0.62, "linear_probe": 0.75, "pixel_linear": 0.6}
    said = beside(0.61, 1000, rivals, 1000).shortfall()
    assert all(fact in said for fact in ("61.0% of its test ", "linear probe", "75.0%")), said
    with_neighbour = beside(0.61, 1000, {**rivals, "pixel_neighbour": 0.8}, 1000)
    assert all(fact in with_neighbour.shortfall() for fact in ("nearest neighbour on bare pixels", "80.0%"))


def test_a_difference_of_few_images_makes_nothing_doubtful() -> None:
    assert beside(0.75, 4, {"pixel_linear": 1.0}, 4).shortfall() == ""  # one image
    assert beside(0.61, 2000, {"pixel_linear": 0.75}, 30).shortfall() == ""
    assert beside(0.61, 2000, {"pixel_linear": 0.75}, 2000).shortfall() != ""


def test_nothing_is_said_where_it_is_as_good_or_nothing_is_known() -> None:
    assert beside(0.75, 1000, {"knn": 0.75}, 1000).shortfall() == ""
    assert beside(0.75, 1000, {}, 1000).shortfall() == ""
    known = dict(beside(0.5, 1000, {"knn": 0.75}, 1000).scores)
    for name in known:
        assert Provenance(scores={key: value for key, value in known.items() if key != name}).shortfall() == ""


@every_case("name", ["top1", "images", "images_of_baselines", "baseline_knn"])
@every_case("value", [math.nan, -1, 0.5e-9, 1e308])
def test_damaged_figures_beside_a_simple_classifier_say_nothing(name: str, value: float) -> None:
    damaged = {**beside(0.1, 1000, {"knn": 0.2}, 1000).scores, f"test/{name}": value}
    said = Provenance(scores=damaged).shortfall()
    assert bool(said) == (name == "top1" and value == 0.5e-9)  # which is a share
