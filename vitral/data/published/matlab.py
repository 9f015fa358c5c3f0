"""Reading the .mat files in which some authors give out labels."""

from io import BytesIO
from typing import Any

from vitral.errors import DataError, one_line


def read_matlab(content: BytesIO, where: str) -> dict[str, Any]:
    """Return the variables of a .mat file; nothing in it is run.

    Args:
        content: its bytes.
        where: what messages call it.

    Raises:
        DataError: it is not such a file, or damaged.
    """
    from scipy.io import loadmat  # half a second of start-up for all who read no such file

    try:
        return dict(loadmat(content, squeeze_me=True))
    except Exception as error:  # damaged files raise many types
        raise DataError(f"{where} cannot be read as a MATLAB file ({one_line(error)}); fetch it again.") from error
