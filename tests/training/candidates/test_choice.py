"""Which of several classifiers is kept."""

from dataclasses import replace

import pytest

from tests.cases import every_case
from vitral.tasks.chance import Z_95
from vitral.tasks.metrics import wilson_reach
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Figure
from vitral.training.candidates.result import PIXELS, PROBE, Candidate, choose
from vitral.training.plan import ALL, ANEW, FRESH, LAST, SEVERAL, TRAINED

ACCURACY = SINGLE_LABEL.headline


def candidates(probe: float, trained: float) -> tuple[Candidate, Candidate]:
    return Candidate("linear probe", probe, 340), Candidate(TRAINED, trained, 340)


def test_the_better_one_is_kept_and_both_figures_are_said() -> None:
    choice = choose(candidates(0.912, 0.901), ACCURACY)
    said = choice.sentence()
    assert all(fact in said for fact in ("last layer alone", "310 of 340 validation ", "trained network 306")), said
    assert choose(candidates(0.912, 0.92), ACCURACY).best == TRAINED


def test_one_alone_is_said_to_be_alone() -> None:
    choice = choose([Candidate("linear probe", 0.75, 40, split="training")], ACCURACY)
    assert choice.best == "linear probe"
    assert all(fact in choice.sentence() for fact in ("last layer alone", "30 of 40 training ", "left out"))


def test_of_many_photos_the_share_is_said() -> None:
    many = [Candidate("linear probe", 0.9123, 2000), Candidate(TRAINED, 0.9, 2000)]
    assert all(fact in choose(many, ACCURACY).sentence() for fact in ("91.23% of 2,000 ", "90.0%"))


def test_of_equals_what_was_trained_further_is_kept_where_photos_are_counted() -> None:
    assert choose(candidates(0.9, 0.9), ACCURACY).best == TRAINED
    assert choose(candidates(0.9, 0.9), Figure("ap", "AP")).best == "linear probe"


@every_case(
    ("right", "images", "best"),
    [
        ((22, 23), 24, PROBE),
        ((22, 24), 24, FRESH),
        ((900, 901), 1000, PROBE),
        ((1, 1), 1, PROBE),
        ((94, 96), 100, FRESH),
    ],
)
def test_a_single_photo_more_of_a_network_from_scratch_is_chance(
    right: tuple[int, int], images: int, best: str
) -> None:
    both = [Candidate(name, count / images, images) for name, count in zip((PROBE, FRESH), right, strict=True)]
    choice = choose(both, ACCURACY)
    assert choice.best == best
    beside = [replace(both[0], name=PIXELS), replace(both[1], name=TRAINED)]
    assert (choose(beside, ACCURACY).best == PIXELS) == (best == PROBE)
    assert ("chance" in choice.sentence()) == (best == PROBE and right[1] > right[0])


@every_case(("safe", "right", "best"), [(0.89, 53, FRESH), (0.92, 53, PROBE), (0.8, 52, PROBE), (None, 53, PROBE)])
def test_a_single_photo_more_is_enough_where_training_photos_say_so_too(
    safe: float | None, right: int, best: str
) -> None:
    probe = Candidate(PROBE, 52 / 56, 56, safe_figure=safe)
    assert choose([probe, Candidate(FRESH, right / 56, 56)], ACCURACY).best == best


@every_case(("safe", "right", "best"), [(0.957, 97, ALL), (0.957, 96, PROBE), (0.97, 97, PROBE), (None, 97, PROBE)])
def test_a_single_photo_fewer_is_chance_where_training_photos_say_so(safe: float | None, right: int, best: str) -> None:
    probe = Candidate(PROBE, 0.98, 100, safe_figure=safe)
    assert choose([probe, Candidate(ALL, right / 100, 100)], ACCURACY).best == best


@every_case(
    ("right", "best"),
    [
        ((98, 98, 97, 98), ALL),
        ((98, 97, 98, 97), PROBE),
        ((98, 98, 99, 97), LAST),
        ((98, 98, 100, 99), FRESH),
        ((98, 98, 100, 100), FRESH),
        ((98, 98, 100, 101), ALL),
    ],
)
def test_attempts_of_the_start_are_kept_where_no_photo_fewer_is_right(right: tuple[int, ...], best: str) -> None:
    names = (PROBE, LAST, FRESH, ALL)
    tried = [Candidate(name, count / 100, 100) for name, count in zip(names, right, strict=True)]
    assert choose(tried, ACCURACY).best == best


def test_figures_that_count_no_photos_are_compared_as_they_are() -> None:
    both = [Candidate(PROBE, 0.40, 24), Candidate(TRAINED, 0.41, 24)]
    assert choose(both, Figure("ap", "AP")).best == TRAINED


def test_of_an_error_the_smaller_is_the_better() -> None:
    error = Figure("mae", "error", more_is_better=False, is_share=False)
    assert choose(candidates(0.5, 0.4), error).best == TRAINED
    assert choose(candidates(0.4, 0.5), error).best == "linear probe"


@every_case(("right", "images"), [(0, 5), (5, 5), (31, 34), (170, 340)])
def test_the_uncertainty_is_half_of_wilsons_interval(right: int, images: int) -> None:
    # Its ends solve |p - share| = z sqrt(p (1 - p) / n).
    share, width = right / images, wilson_reach(right / images, images)
    centre = (share + Z_95**2 / (2 * images)) / (1 + Z_95**2 / images)
    for end in (centre - width, centre + width):
        assert abs(end - share) == pytest.approx(Z_95 * max(end * (1 - end) / images, 0) ** 0.5, abs=1e-9)


@every_case(
    "figures",
    [(0.9,) * 7, (0.8, *(0.9,) * 6), (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3), (0.5, 0.6, 0.6, 0.7, 0.8, 0.9, 0.9)],
)
def test_what_is_kept_is_never_worse_and_of_equals_the_last(figures: tuple[float, ...]) -> None:
    names = [name for name in (PROBE, *SEVERAL) if name not in (ANEW, FRESH)]
    figures = figures[: len(names)]
    tried = [Candidate(name, figure, 400) for name, figure in zip(names, figures, strict=True)]
    assert choose(tried, ACCURACY).best == names[len(names) - 1 - figures[::-1].index(max(figures))]


@every_case("kept", (PROBE, *SEVERAL))
def test_the_sentence_names_all_of_them_the_selected_one_first(kept: str) -> None:
    tried = [Candidate(name, 0.9 + 0.01 * (name == kept), 412) for name in (PROBE, *SEVERAL)]
    sentence = choose(tried, ACCURACY).sentence()
    assert all(each.title in sentence for each in tried)
    assert min(tried, key=lambda each: sentence.index(f"{each.title}")).name == kept
