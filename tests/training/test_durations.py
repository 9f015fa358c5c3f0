"""Durations as people write them."""

import pytest

from tests.cases import every_case
from vitral.errors import RecipeError
from vitral.training.settings.durations import seconds


@every_case(
    ("text", "value"),
    [
        *(("90", 90), ("90s", 90), ("90 sec", 90), ("10m", 600), ("3min", 180), ("3 mins", 180), ("2 minutes", 120)),
        *(("1h30m", 5400), ("1h 30min", 5400), ("1.5h", 5400), ("2 hours", 7200), ("1h30m15s", 5415), (".5m", 30)),
        *((90, 90), (0.5, 0.5), ("10M", 600)),
    ],
)
def test_the_usual_spellings(text: str | float, value: float) -> None:
    assert seconds(text) == value


@every_case(
    "text",
    ["", "m", "0", "0s", "-5m", "1d", "1h30", "soon", "nan", "inf", "1e9", "٣m", "9" * 400, "9" * 400 + "h", -1, 0],
)
def test_what_is_no_duration(text: str | float) -> None:
    with pytest.raises(RecipeError, match="no duration") as refused:
        seconds(text)
    assert len(str(refused.value)) < 150
