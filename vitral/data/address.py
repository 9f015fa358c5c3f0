"""Files at an address, such as s3://bucket/train.parquet or https://host/train.tar, through fsspec."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec

from vitral.errors import DataError, one_line
from vitral.paths import refuse_endless

# What fsspec needs for the usual protocols; all of it is in the extra.
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp", "https": "aiohttp"}
EXTRA = "vitral[remote]"
BLOCK = 4 << 20  # bytes fetched at once over a network


def is_address(spec: str) -> bool:
    """Tell whether a name is an address, not a path."""
    return "://" in spec


@contextmanager
def address_errors(address: str) -> Iterator[None]:
    """Turn whatever a file system raises into one line that names the address.

    Raises:
        DataError: it cannot be reached, or a package for it is missing; the message names it.
    """
    try:
        yield
    except DataError:
        raise
    except ImportError as error:
        protocol = address.partition("://")[0]
        package = PACKAGES.get(protocol)
        what = f"{package}: pip install '{EXTRA}'" if package else one_line(error)
        raise DataError(f"'{address}' needs a package for {protocol}:// that is not installed, {what}.") from error
    except Exception as error:
        raise DataError(f"'{address}' cannot be reached ({one_line(error)}).") from error


def find(root: str, pattern: str) -> tuple[list[str], str]:
    """Return the sorted addresses below a root that match a pattern such as "**/*.tar", and the root as their prefix.

    Raises:
        DataError: the root cannot be reached.
    """
    with address_errors(root):
        filesystem, path = fsspec.url_to_fs(root)
        path = path.rstrip("/")
        files = sorted(filesystem.glob(f"{path}/{pattern}"))
        return [filesystem.unstrip_protocol(file) for file in files], filesystem.unstrip_protocol(path)


def open_address(address: str) -> Any:  # noqa: ANN401  # fsspec's own file
    """Return the file at an address, open for reading."""
    return fsspec.open(address, "rb", block_size=BLOCK).open()


def open_anywhere(path: str) -> Any:  # noqa: ANN401  # fsspec's own file
    """Return the file at a path or an address, open for reading.

    Raises:
        DataError: the address cannot be reached, or the path is of a pipe or a device.
    """
    if is_address(path):
        with address_errors(path):
            return open_address(path)
    refuse_endless(path, DataError)
    return open(path, "rb")
