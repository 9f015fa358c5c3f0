"""Which of two simple classifiers is the better, and whether trained weights help, by what the images can tell."""

from typing import cast

import torch

from tests.cases import every_case
from vitral.models.model import Model
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.candidates.linear_model import LinearModel, poor_start
from vitral.training.candidates.result import PIXELS, PROBE, Candidate


def judged(name: str, share: float, left_out: float | None = None, images: int = 296) -> LinearModel:
    """Return a simple classifier that is right on the first of some images, and of four times as many that were left out."""
    others = torch.arange(0 if left_out is None else 4 * images)
    right = torch.arange(images) < round(share * images)
    figure = float(right.double().mean())
    return LinearModel(
        Candidate(name, figure, images), cast(Model, torch.nn.Identity()), right, others < (left_out or 0) * len(others)
    )


@every_case(
    ("pixels", "probe", "poor"),
    [(0.068, 0.118, True), (0.068, 0.112, True), (0.068, 0.912, False), (0.95, 0.939, True), (0.5, 0.62, False)],
)
def test_weights_whose_features_say_no_more_than_pixels_are_called_no_help(
    pixels: float, probe: float, *, poor: bool
) -> None:
    for left_out in (
        (None, pixels),
        (None, None),
        (probe, pixels),
    ):  # of a start that learned these images, and of others
        ours, others = judged(PROBE, probe, left_out[0]), judged(PIXELS, pixels, left_out[1])
        line = poor_start(others, ours, SINGLE_LABEL.headline)
        assert (line is not None) == poor
        if line is not None:
            figures = [each.candidate.text(SINGLE_LABEL.headline) for each in (ours, others)]
            assert all(fact in line for fact in (*figures, "`source`"))


@every_case(("probe", "pixels"), [(0.9, 0.5), (0.5, 0.9), (0.6, 0.6)])
def test_of_few_images_no_start_is_called_no_help(probe: float, pixels: float) -> None:
    ours, others = (judged(name, share, images=10) for name, share in ((PROBE, probe), (PIXELS, pixels)))
    assert poor_start(others, ours, SINGLE_LABEL.headline) is None


def test_where_few_images_tell_no_difference_those_that_were_left_out_do() -> None:
    headline = SINGLE_LABEL.headline
    probe, pixels = judged(PROBE, 0.6, 0.7, images=10), judged(PIXELS, 0.6, 0.4, images=10)
    assert probe.better_than(pixels, headline)
    assert not pixels.better_than(probe, headline)
    assert probe.better_than(judged(PIXELS, 0.7, 0.1, images=10), headline), (
        "one of ten is chance where others tell more"
    )
    assert not probe.better_than(judged(PIXELS, 0.6, 0.8, images=10), headline)
    assert not judged(PROBE, 0.6, None, images=10).better_than(judged(PIXELS, 0.7, 0.1, images=10), headline)
    assert probe.better_than(judged(PIXELS, 0.6, 0.7, images=10), headline), "of equals what trained weights see"
