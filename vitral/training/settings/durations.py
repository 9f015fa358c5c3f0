"""Durations as people write them: 90, 90s, 10m, 3 min, 1h30m, 1.5 hours."""

import re

from vitral.errors import RecipeError

HOUR = 3600  # seconds
DAY = 86_400
YEAR = 365 * DAY
UNITS = {"s": 1, "min": 60, "h": HOUR, "days": DAY, "years": YEAR}
MOST = {"s": 100, "min": 100, "h": 48, "days": 2 * 365}  # of a unit, from which on the next one is easier to read
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
        parts = zip(match.groups(), ("h", "min", "s"), strict=True)
        total = sum(float(part) * UNITS[unit] for part, unit in parts if part)
    if not 0 < total <= LONGEST:
        raise RecipeError(
            f"'{str(duration):.40}' is no duration; write it like 90s, 10m or 1h30m; a number alone is seconds."
        )
    return total


def rounded(seconds: float) -> str:
    """Return a number of seconds, for people, in the unit that fits it, from seconds to years."""
    unit = next((unit for unit, most in MOST.items() if seconds < most * UNITS[unit]), "years")
    return f"{seconds / UNITS[unit]:,.0f} {unit}"


def roughly(seconds: float) -> str:
    """Return a number of seconds that is known from a short measurement alone: to ten seconds, a minute, five or an hour."""
    minute = UNITS["min"]
    steps = ((100, 10), (10 * minute, minute), (100 * minute, 5 * minute))
    unit = next((step for limit, step in steps if seconds < limit), HOUR)
    return rounded(max(unit * round(seconds / unit), 5))


def written(seconds: float) -> str:
    """Return a number of seconds as one would ask for it: whole minutes as minutes, all else as seconds, exactly."""
    minutes, rest = divmod(seconds, UNITS["min"])
    return f"{minutes:.0f}m" if minutes and not rest else f"{seconds:.12g}s"


def proposed(seconds: float) -> float:
    """Return a number of seconds as a round budget to propose: from two minutes on in whole minutes."""
    minute = UNITS["min"]
    return float(minute * round(seconds / minute)) if seconds >= 2 * minute else float(round(seconds))
