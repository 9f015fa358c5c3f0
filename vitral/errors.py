"""What can go wrong by the user's hand, each error one clear line.

    VitralError
    ├── ModelError      an unknown variant, or a size that the network cannot take
    ├── RecipeError     an unknown or impossible setting
    ├── ImageError      an image that cannot be read as an image
    ├── DataError       a folder or split that is no data set, or class names that do not match
    ├── WeightsError    a weights file or classifier folder that cannot be loaded
    ├── TrainingError   a run that cannot start, go on or be resumed
    │   └── TrainingInterrupted   a run that was stopped from outside and saved itself
    └── StorageError    a file that could not be written: the disk is full or the folder read-only

A message names the thing, says what is wrong and what to do. The command line prints it alone, without
a traceback, and exits with status 1. Faults of our own are plain assertions.
"""

import difflib
from collections.abc import Iterable


class VitralError(Exception):
    """The root of all errors that a user can mend."""


class ModelError(VitralError):
    """An unknown variant, or a size or setting that the network cannot take."""


class RecipeError(VitralError):
    """A recipe with an unknown key or an impossible value."""


class ImageError(VitralError):
    """An image that cannot be read; the message names the file."""


class DataError(VitralError):
    """A folder or split that is no data set, or class names that do not match."""


class WeightsError(VitralError):
    """A weights file or classifier folder that cannot be loaded; the message names file and tensor."""


class TrainingError(VitralError):
    """A run that cannot start, go on or be resumed."""


class TrainingInterrupted(TrainingError):
    """A run that was stopped by a signal and saved itself.

    Attributes:
        exit_code: 128 and the signal's number, as shells have it: 130 for Ctrl-C, 143 for a termination.
    """

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StorageError(VitralError):
    """A file that could not be written."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the known name nearest to `name`, or an empty string."""
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{nearest[0]}'?" if nearest else ""


def said(error: BaseException) -> str:
    """Return what another library's error says, in one line and no more than a line; its kind if it says nothing."""
    return " ".join(str(error).split())[:200] or type(error).__name__
