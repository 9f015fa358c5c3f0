"""Images that are stored as arrays of pixels, given as PNG files, which lose nothing."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from jaxtyping import UInt8

from vitral.data.stored import Handles, open_binary
from vitral.data.vtab.tfds import encoded
from vitral.errors import DataError, ImageError, one_line


class _NumberedImages:
    """Images without names in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def name(self, index: int) -> str:
        """Return the file with the image's index in it."""
        return f"{self._path}[{index}]"


class ArrayImages(_NumberedImages):
    """Images in memory, which were read from a file."""

    def __init__(self, path: Path, pixels: UInt8[np.ndarray, "images height width 3"]) -> None:
        super().__init__(path)
        self._pixels = pixels

    def read(self, index: int) -> bytes:
        """Return an image as a PNG file."""
        return encoded(self._pixels[index])


class MatrixImages(_NumberedImages):
    """Grey images of a height and width in a file, the first at an offset and each a step after the one before, in bytes."""

    def __init__(self, path: Path, *, offset: int, step: int, shape: tuple[int, int]) -> None:
        super().__init__(path)
        self._offset, self._step, self._shape = offset, step, shape
        self._handles = Handles(open_binary)

    def read(self, index: int) -> bytes:
        """Return an image as a PNG file. See `Store`."""
        size = self._shape[0] * self._shape[1]
        data = self._handles.bytes_at(self._path, self._offset + index * self._step, size)
        if data is None:
            raise ImageError(f"'{self.name(index)}' is cut short; fetch the file again.")
        return encoded(np.frombuffer(data, dtype=np.uint8).reshape(self._shape))


class Hdf5Images(_NumberedImages):
    """Images in an HDF5 file, whose variable is an array of images x height x width, with or without three colours."""

    def __init__(self, path: Path, variable: str) -> None:
        super().__init__(path)
        self._variable = variable
        self._handles = Handles(open_hdf5)

    def read(self, index: int) -> bytes:
        """Return an image as a PNG file. See `Store`."""
        try:
            return encoded(np.asarray(self._handles.get(str(self._path))[self._variable][index], dtype=np.uint8))
        except (OSError, DataError, KeyError, ValueError) as error:
            raise ImageError(f"'{self.name(index)}' cannot be read ({one_line(error)}); fetch it again.") from error


def open_hdf5(path: str) -> Any:  # noqa: ANN401  # the library is not typed
    """Open an HDF5 file, or raise DataError if it cannot be read."""
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"'{path}' cannot be read as an HDF5 file ({one_line(error)}); fetch it again.") from error
