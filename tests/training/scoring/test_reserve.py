"""What comes after the last update has its share of the time set aside."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cases import every_case
from vitral.evaluation.region_scores import FITTED_ON
from vitral.events import ignore
from vitral.training.clock import LEAST_SCORED, Clock
from vitral.training.request import Request
from vitral.training.scoring.validation import to_score, with_time_left, within_time
from vitral.training.starting.opening import opened
from vitral.training.starting.prepare import begin


@every_case(("data", "again"), [("digit-scenes-panoptic", FITTED_ON), ("digit-scenes-semantic", 0)])
def test_photos_by_which_sureness_is_fitted_count_as_scored_once_more(data: str, again: int, tmp_path: Path) -> None:
    request = Request(
        "fine-tune", data, source="vit-nano4", out=tmp_path / data, time="10m", overrides=("image_size=32",)
    )
    with opened(request, listener=ignore) as session:
        run, scoring = within_time(begin(session))
    assert scoring.validating is not None
    scored = scoring.pacer.reserve.scoring * len(scoring.validating)
    assert scored == pytest.approx(len(run.splits["test"]) + again)


def test_what_training_leaves_of_the_time_scores_further_photos(tmp_path: Path) -> None:
    request = Request("fine-tune", "digits", source="vit-nano4", out=tmp_path / "run", time="10m")
    with opened(request, listener=ignore) as session:
        begun = begin(session)
    times = [0.0]
    clock = Clock(600.0, started=0.0, now=lambda: times[0])
    whole = len(begun.splits["test"])
    run, scoring = within_time(replace(begun, clock=clock, plan=replace(begun.plan, image_seconds=1.0)))
    assert len(run.splits["test"]) == scoring.scored == LEAST_SCORED < whole
    counts = []
    for times[0] in (0.0, 100.0, 590.0):
        scored = to_score(run, with_time_left(run, scoring)).splits["test"]
        assert len({scored.describe(index) for index in range(len(scored))}) == len(scored)
        counts.append(len(scored))
    assert whole >= counts[0] > counts[1] > counts[2] == LEAST_SCORED
    assert counts[0] <= 600  # none more than there is time for
    times[0] = 0.0
    quick = replace(run, plan=replace(run.plan, image_seconds=0.001))
    assert len(to_score(quick, with_time_left(quick, scoring)).splits["test"]) == whole
