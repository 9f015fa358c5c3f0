"""Errors that a user can cause, each a single clear line.

A message names the thing, says what is wrong and what to do. The command line prints only that, without
a traceback, and exits with status 1, or with `TRY_AGAIN` where the machine failed and not what it was given. Our own bugs are
plain assertions.
"""

import difflib
import errno
import importlib
import re
from collections.abc import Iterable
from typing import Any

# What the libraries below us say where memory is short: allocators of torch, NumPy, ONNX Runtime and C++, loaders, threads,
# and oneDNN, which says no more than that of any lack.
SHORTAGE = re.compile(
    r"alloc\w* (\w+ ){0,2}memory|out of memory|bad[_ ]alloc|insufficient memory|failed to allocate|"
    r"can't start new thread|failed to map segment|could not (create|execute) a (primitive|memory)",
    re.IGNORECASE,
)
# What CUDA and ROCm say of a device that fails (CUDA's cudaGetErrorString), whatever it computed.
FAILED_DEVICE = re.compile(
    r"uncorrectable (ECC|NVLink) error|hardware (stack )?error|busy or unavailable|unspecified launch failure|"
    r"launch timed out|no (CUDA|ROCm|HIP)-capable device|fallen off the bus",
    re.IGNORECASE,
)
TRY_AGAIN = 75  # the exit status that means so: EX_TEMPFAIL of sysexits.h
LESS_MEMORY = (
    "close other programs, or take smaller batches or images, a smaller network, or a machine with more memory"
)
FEWEST_LETTERS = 4  # of a name that was not written to its end
NEAR = 0.6  # the least similarity of two names, 0 to 1, at which a name may be a misspelling of the other


class VitralError(Exception):
    """The base class of all errors that a user can fix."""


class UsageError(VitralError):
    """A command or a call that cannot begin as it is written: something is missing, or two things cannot go together.

    The command line exits with status 2, as for a flag that it does not know.
    """


class ModelError(VitralError):
    """An unknown variant, or a size or setting that the model cannot take."""


class RecipeError(VitralError):
    """A recipe with an unknown key or an impossible value."""


class ImageError(VitralError):
    """An image that cannot be read; the message names the file."""


class UnknownFormat(ImageError):
    """What is no image, or one in a format that is not read."""


class ImageTooLarge(ImageError):
    """An image with more pixels than the limit."""


class UnreadableImagesError(ImageError):
    """Images of a dataset that cannot be read and must not be left out.

    Attributes:
        found: The number of such images and the reasons of the first ones, without advice, which depends on the command.
    """

    def __init__(self, found: str, *, advice: str) -> None:
        super().__init__(f"{found}. {advice}")
        self.found = found


class DataError(VitralError):
    """A folder or split that is not a dataset, or class names that do not match."""


class WeightsError(VitralError):
    """A weights file or classifier folder that cannot be loaded; the message names file and tensor."""


class PackageError(VitralError):
    """A package that only some uses need, and that is not installed; the message says what installs it."""


class PluginError(VitralError):
    """A plugin that cannot be loaded, or one that is needed and was not named."""


class TrainingError(VitralError):
    """A run that cannot start, continue or be resumed."""


class ProcessLost(TrainingError):
    """A job of which another process is lost."""


class TrainingDiverged(TrainingError):
    """A training with weights or validation figures that are not finite, or with too many skipped batches."""


class Stopped(Exception):
    """A computation stopped before its end because its caller requested it; the caller catches this."""


class TrainingInterrupted(TrainingError):
    """A run that was stopped by a signal and saved itself.

    Attributes:
        done: The description of the stop, without advice, which differs for a run that is part of a study.
        advice: How to continue.
        exit_code: 128 plus the signal's number, as in shells: 130 for Ctrl-C, 143 for a termination.
    """

    def __init__(self, done: str, *, advice: str, exit_code: int) -> None:
        super().__init__(f"{done}; {advice}.")
        self.done, self.advice = done, advice
        self.exit_code = exit_code


class StudyError(VitralError):
    """A study that cannot begin or continue, or in which all runs failed."""


class StorageError(VitralError):
    """A file that could not be written, because the disk is full or the folder read-only."""


class OutOfMemory(VitralError):
    """A computation for which there is not enough memory, whatever it worked on may be sound."""


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error, or one that it came of, is a lack of memory."""
    link: BaseException | None = error
    while link is not None:
        said = not isinstance(link, VitralError) and SHORTAGE.search(str(link)) is not None
        if said or isinstance(link, MemoryError) or getattr(link, "errno", None) == errno.ENOMEM:
            return True
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return False


def is_failed_device(error: BaseException) -> bool:
    """Tell whether an error says that a GPU has failed or is not to be had."""
    return isinstance(error, RuntimeError) and FAILED_DEVICE.search(str(error)) is not None


def refuse_shortage(error: BaseException, task: str) -> None:
    """Raise `OutOfMemory` where an error is a lack of memory; `task` says what for, such as "to read 'x.npz'"."""
    if is_out_of_memory(error):
        raise OutOfMemory(f"There is not enough memory {task}; {LESS_MEMORY}.") from error


def extra_module(name: str, extra: str, purpose: str) -> Any:  # noqa: ANN401  # a module
    """Return a module of a package that an extra installs.

    Args:
        name: The module, such as "pyarrow.parquet".
        extra: The name of the extra.
        purpose: What needs it, to begin the message.

    Raises:
        PackageError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise PackageError(f"{purpose} needs {package}: pip install 'vitral[{extra}]'.") from error


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the known name nearest to `name`, or an empty string."""
    nearest = nearest_name(name, known)
    return f" Did you mean '{nearest}'?" if nearest else ""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the known name nearest to `name`: the only one that it begins, else by letters; empty where none is near."""
    names = list(known)
    longer = [other for other in names if len(name) >= FEWEST_LETTERS and other.startswith(name)]
    return longer[0] if len(longer) == 1 else next(iter(difflib.get_close_matches(name, names, n=1, cutoff=NEAR)), "")


def one_line(error: BaseException) -> str:
    """Return another library's error message on a single line, or the error's type if it has no message."""
    return " ".join(str(error).split())[:200] or type(error).__name__
