"""Durations as people write them: 90, 90s, 10m, 3 min, 1h30m, 1.5 hours."""

import re

from vitral.errors import RecipeError

MINUTE = 60  # seconds
HOUR = 3600
DAY = 86_400
YEAR = 365 * DAY
UNITS = (float(HOUR), float(MINUTE), 1.0)
NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
WORDS = re.compile(
    rf"(?:{NUMBER}(?:h|hrs?|hours?))?(?:{NUMBER}(?:m|mins?|minutes?))?(?:{NUMBER}(?:s|secs?|seconds?))?", re.ASCII
)
ALONE = re.compile(NUMBER, re.ASCII)
LONGEST = 1e9  # seconds, some 30 years: more is a slip of the hand
MOST_LETTERS = 40  # likewise


def seconds(duration: str | float) -> float:
    """Return the seconds of a duration such as "90", "10m", "3 min" or "1h30m"; a number alone is of seconds.

    Raises:
        RecipeError: it is not a duration, or no time at all.
    """
    plain = str(duration).strip().lower().replace(" ", "")
    total = 0.0
    if len(plain) <= MOST_LETTERS and ALONE.fullmatch(plain):
        total = float(plain)
    elif len(plain) <= MOST_LETTERS and (match := WORDS.fullmatch(plain)):
        total = sum(float(part) * unit for part, unit in zip(match.groups(), UNITS, strict=True) if part)
    if not 0 < total <= LONGEST:
        raise RecipeError(
            f"'{str(duration):.40}' is no duration; write it like 90s, 10m or 1h30m; a number alone is seconds."
        )
    return total


def rounded(seconds: float) -> str:
    """Return a number of seconds, for people, in the unit that fits it, from seconds to years."""
    units = ((100, 1, "s"), (100 * MINUTE, MINUTE, "min"), (2 * DAY, HOUR, "h"), (2 * YEAR, DAY, "days"))
    size, unit = next(((size, unit) for limit, size, unit in units if seconds < limit), (YEAR, "years"))
    return f"{seconds / size:,.0f} {unit}"


def roughly(seconds: float) -> str:
    """Return a number of seconds that is known from a short measurement alone: to ten seconds, a minute, five or an hour."""
    unit = next(
        (unit for limit, unit in ((100, 10), (10 * MINUTE, MINUTE), (100 * MINUTE, 5 * MINUTE)) if seconds < limit),
        HOUR,
    )
    return rounded(max(unit * round(seconds / unit), 5))


def written(seconds: float) -> str:
    """Return a number of seconds as one would ask for it: whole minutes as minutes, all else as seconds, exactly."""
    minutes, rest = divmod(seconds, MINUTE)
    return f"{minutes:.0f}m" if minutes and not rest else f"{seconds:.12g}s"


def proposed(seconds: float) -> float:
    """Return a number of seconds as a round budget to propose: from two minutes on in whole minutes."""
    return float(MINUTE * round(seconds / MINUTE)) if seconds >= 2 * MINUTE else float(round(seconds))
