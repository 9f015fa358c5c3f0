"""Reading the .mat files in which some authors give out labels."""

from io import BytesIO
from typing import Any

import numpy as np
from jaxtyping import Int64

from vitral.errors import DataError, one_line

MOST = 1 << 31  # larger than any number of an image or a class


def read_matlab(content: BytesIO, where: str) -> dict[str, Any]:
    """Return the variables of a .mat file, or raise DataError if it is none, or damaged; nothing in it is run."""
    from scipy.io import loadmat  # half a second of start-up, for these files alone

    try:
        return dict(loadmat(content, squeeze_me=True))
    except Exception as error:  # damaged files raise many types
        raise DataError(f"{where} cannot be read as a MATLAB file ({one_line(error)}); fetch it again.") from error


def whole_numbers(values: object) -> Int64[np.ndarray, " numbers"] | None:
    """Return a variable's numbers of images or classes; None where they are not all whole, positive and below 2^31."""
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iuf" or not numbers.size:
        return None
    # NaN compares as neither larger nor smaller, and would silently become some integer.
    if not ((numbers >= 1) & (numbers < MOST) & (numbers == np.floor(numbers))).all():
        return None
    return numbers.ravel().astype(np.int64)
