"""Durations as people write them: 90s, 10m, 1h30m."""

import re

from vitral.errors import RecipeError

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
PATTERN = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


def seconds(text: str) -> float:
    """Return the seconds of a duration such as "10m" or "1h30m".

    Raises:
        RecipeError: the text is no duration, or no time at all.
    """
    match = PATTERN.fullmatch(text.strip().lower().replace(" ", ""))
    total = (
        sum(float(part) * unit for part, unit in zip(match.groups(), UNITS.values(), strict=True) if part)
        if match
        else 0
    )
    if total <= 0:
        raise RecipeError(f"'{text}' is no duration; write it like 90s, 10m or 1h30m.")
    return total


def readable(duration: float) -> str:
    """Return seconds as people write them, to the precision that matters."""
    if duration < 100:
        return f"{duration:.0f} s" if duration >= 1 else f"{duration:.1f} s"
    if duration < 6000:
        return f"{duration / 60:.0f} min"
    return f"{duration / 3600:.1f} h"
