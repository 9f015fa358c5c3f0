"""The digits, opened once for all tests of a process."""

import functools

from vitral.data.open import open_data
from vitral.data.source import DataSet


@functools.cache
def digits() -> DataSet:
    """Return the built-in digits."""
    return open_data("digits")
