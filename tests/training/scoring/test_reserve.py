"""What comes after the last update has its share of the time set aside."""

from pathlib import Path

import pytest

from tests.cases import every_case
from vitral.evaluation.region_scores import FITTED_ON
from vitral.events import ignore
from vitral.training.request import Request
from vitral.training.scoring.validation import within_time
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
