"""Which published weights are on this machine, and where."""

import hashlib
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote

from huggingface_hub import try_to_load_from_cache

from vitral.paths import cache
from vitral.weights.named.table import PublishedWeights

SHA256_DIGITS = 64


def kept(row: PublishedWeights) -> Path | None:
    """Return a row's file if it is on this machine; the network is not asked.

    A file of the Hub that the client keeps under another hash than the table's is another one. That of a package is
    compared where it is fetched.
    """
    if (file := packaged(row)) is not None:
        return file
    if row.address:
        target = target_of(row)
        return target if target.is_file() else None
    path = try_to_load_from_cache(row.repository, row.file, revision=row.revision)
    if not isinstance(path, str):
        return None
    blob = Path(path).readlink().name if Path(path).is_symlink() else ""
    return Path(path) if len(blob) != SHA256_DIGITS or blob.lower().startswith(row.sha256.lower()) else None


def packaged(row: PublishedWeights) -> Path | None:
    """Return the file in a row's package, if that is installed; none of its code is run."""
    installed = distribution_of(row)
    if row.package is None or installed is None:
        return None
    path = Path(str(installed.locate_file(row.package.file)))
    return path if path.is_file() else None


def distribution_of(row: PublishedWeights) -> Distribution | None:
    """Return a row's package, if that is installed."""
    with suppress(PackageNotFoundError):
        return distribution(row.package.name) if row.package else None
    return None


def target_of(row: PublishedWeights) -> Path:
    """Return where a file from an address is kept: under its own name, which tells some readers what it is."""
    folder = hashlib.sha256(row.link.encode()).hexdigest()[:16]
    return cache("weights") / folder / unquote(row.file).rpartition("/")[2]
