"""What a share of right answers says compared with chance."""

import math

import pytest

from vitral.tasks.chance import Standing
from vitral.tasks.metrics import wilson_interval


@pytest.mark.parametrize(
    ("standing", "at_chance", "untold"),
    [
        (Standing(0.9, 0.8, 0.5), False, False),  # above chance, and surely so
        (Standing(0.5, 0.45, 0.5), True, False),  # not above chance: no number of images would help
        (Standing(0.55, 0.49, 0.5), True, False),  # above it by little, on enough images to see more
        (Standing(0.6, 0.5, 0.5), True, False),  # the interval begins at chance and not above it
        (Standing(0.6, 0.501, 0.5), False, False),
        (Standing(9 / 15, wilson_interval(9, 15)[0], 0.5), False, True),  # three quarters right would take 16 images
        (Standing(10 / 16, wilson_interval(10, 16)[0], 0.5), True, False),
        (Standing(1.0, 0.3424, 0.5), False, True),  # 2 of 2: a perfect one would look the same
        (Standing(1.0, 0.8, 1.0), False, True),  # all images are of one class
    ],
)
def test_what_a_share_says_of_chance(standing: Standing, at_chance: bool, untold: bool) -> None:
    assert (standing.at_chance, standing.untold) == (at_chance, untold)
    assert bool(standing.sentence("test")) == (at_chance or untold)
    assert "  " not in standing.sentence("")  # a split without a name leaves no gap


def test_how_many_images_would_do_is_so_many() -> None:
    # 3 of 4 right against a chance of one half: Wilson's interval begins above it from 13 images at that share.
    said = Standing(0.75, wilson_interval(3, 4)[0], 0.5).sentence("test")
    assert "75.0% of 4 test images right" in said
    needed = int(said.split("; ")[1].split()[0])
    enough, short = (_low(0.75, count) for count in (needed, needed - 1))
    assert enough > 0.5 >= short


def _low(share: float, images: int) -> float:
    """Return where Wilson's interval begins, as `wilson_interval` has it for whole numbers."""
    z = 1.959963984540054
    centre = share + z**2 / (2 * images)
    spread = z * math.sqrt(share * (1 - share) / images + z**2 / (4 * images**2))
    return (centre - spread) / (1 + z**2 / images)
