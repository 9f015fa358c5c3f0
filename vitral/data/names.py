"""Names in data: which are splits, and in what order people count."""

import re
import unicodedata
from collections.abc import Collection

NAMED = 5  # names that a message shows of many
ALL = "all"  # the split of images that are in none
SPLITS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sorting key that puts 2 before 10, however many digits a number has."""
    parts = re.split(r"(\d+)", name)
    return tuple(_number(part) if part.isdecimal() else (1, 0, part) for part in parts if part)


def _number(digits: str) -> tuple[int, int, str]:
    plain = digits if digits.isascii() else "".join(str(unicodedata.decimal(digit)) for digit in digits)
    shortest = plain.lstrip("0")
    return 0, len(shortest), shortest


def split_named(name: str) -> str | None:
    """Return the split that a folder, file or column value of that name is, or None."""
    return next((split for split, names in SPLITS.items() if name.lower() in names), None)


def some(names: Collection[str]) -> str:
    """Return the first names in natural order, and of how many they are the first."""
    first = sorted(names, key=natural_key)[:NAMED]
    return ", ".join(first) + (f", … ({len(names)} in all)" if len(names) > len(first) else "")
