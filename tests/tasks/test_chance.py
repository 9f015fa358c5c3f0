"""What a share of right answers says compared with chance."""

import math

import pytest

from tests.cases import every_case
from vitral.tasks.chance import Standing, significantly_below
from vitral.tasks.metrics import wilson_interval


def of(right: int, images: int, chance: float) -> Standing:
    """How so many right of so many images compare with chance."""
    return Standing(right / images, wilson_interval(right, images)[0], chance)


@every_case(
    ("standing", "at_chance", "untold"),
    [
        (Standing(0.9, 0.8, 0.5), False, False),  # above chance, and surely so
        (Standing(0.5, 0.45, 0.5), True, False),  # not above chance: no number of images would help
        (Standing(0.55, 0.49, 0.5), True, False),  # above it by little, on enough images to see more
        (Standing(0.6, 0.5, 0.5), True, False),  # the interval begins at chance and not above it
        (Standing(0.6, 0.501, 0.5), False, False),
        (of(9, 15, 0.5), False, True),  # 36 % to 80 %: at chance and three quarters right look the same
        (of(9, 17, 0.5), True, False),  # 31 % to 74 %: a good one would be above that
        (of(2, 5, 0.5), False, True),  # below chance, and yet 12 % to 77 %
        (of(2, 6, 0.5), True, False),
        (of(0, 2, 0.5), True, False),  # none right: a good one has some
        (of(1, 1, 1.0), False, True),
        (of(0, 8, 1.0), False, True),
        (Standing(1.0, 0.3424, 0.5), False, True),  # 2 of 2: a perfect one would look the same
        (Standing(1.0, 0.8, 1.0), False, True),  # all images are of one class
    ],
)
def test_what_a_share_says_of_chance(standing: Standing, at_chance: bool, untold: bool) -> None:
    assert (standing.at_chance, standing.untold) == (at_chance, untold)
    assert bool(standing.sentence("test")) == (at_chance or untold)
    assert "  " not in standing.sentence("")  # a split without a name leaves no gap


@every_case(("right", "images"), [(1, 1), (1, 2), (3, 4), (26, 200), (200, 200), (5000, 10_007)])
def test_both_ends_of_the_interval_are_known_from_share_and_low_end(right: int, images: int) -> None:
    assert (of(right, images, 0.5).low, of(right, images, 0.5).high) == pytest.approx(wilson_interval(right, images))


def test_no_better_than_chance_is_said_with_the_images_where_they_are_known() -> None:
    for right, split, facts in (
        (80, "test", ("80 of 200 test", " 100)")),
        (80, "train", ("80 of 200 training", " 100)")),
        (0, "test", ("none", "test", " 50.0%")),  # of how many is not known then
    ):
        said = of(right, 200, 0.5).sentence(split)
        assert all(fact in said for fact in facts), said
    many = of(5000, 10_007, 0.5).sentence("test")
    assert all(fact in many for fact in ("49.97% of 10,007", " 50.0%")), many


def test_too_few_images_are_called_so_and_no_number_would_do_below_chance_and_of_those_it_learned_from() -> None:
    for standing, split, share in (
        (of(2, 5, 0.5), "test", "2 of 5 test "),
        (of(1, 2, 0.5), "", "1 of 2 "),
        (of(2, 2, 0.5), "train", "2 of 2 training "),
    ):
        said = standing.sentence(split)
        assert share in said, said
        assert ";" not in said, "no number of images would do"


def test_how_many_images_would_do_is_so_many() -> None:
    # 3 of 4 right against a chance of one half: Wilson's interval begins above it from 13 images at that share.
    said = of(3, 4, 0.5).sentence("test")
    assert "3 of 4 test" in said
    needed = int(said.split("; ")[1].split()[0])
    enough, short = (_low(0.75, count) for count in (needed, needed - 1))
    assert enough > 0.5 >= short


def test_shares_are_compared_for_the_images_that_they_are_of() -> None:
    assert significantly_below(0.5, 1000, 0.6, 1000)
    assert not significantly_below(0.5, 20, 0.6, 20)
    assert not significantly_below(0.6, 1000, 0.5, 1000)
    assert not significantly_below(1.0, 4, 1.0, 4)


def _low(share: float, images: int) -> float:
    """Return where Wilson's interval begins, as `wilson_interval` has it for whole numbers."""
    z = 1.959963984540054
    centre = share + z**2 / (2 * images)
    spread = z * math.sqrt(share * (1 - share) / images + z**2 / (4 * images**2))
    return (centre - spread) / (1 + z**2 / images)
