"""From a row of the table to its file on this machine: from the cache, the Hub, or the authors' own address."""

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from huggingface_hub import (
    constants,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)

# HTTPError is from the client's HTTP library, whichever it is: a failed connection, not an answer.
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # isort: skip
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from vitral.errors import WeightsError, one_line
from vitral.events import Listener, Message
from vitral.layout import cache
from vitral.weights.download import Order, Refused, download
from vitral.weights.named.row import Row
from vitral.weights.recognize import CONFIG, PREPROCESSOR

COMMIT = re.compile(r"[0-9a-f]{40}")
HASH = re.compile(r"[0-9a-f]{64}")  # of a large file, its ETag on the Hub is its SHA-256
UNFINISHED = ".vitral"  # folder in a repository's cache for what is not whole yet
# Where a layout keeps preprocessing and class names, next to the weights.
COMPANIONS = {"timm": (CONFIG,), "transformers": (CONFIG, PREPROCESSOR)}
REFUSALS = {
    401: "it wants a token",
    403: "it does not allow it",
    404: "there is no such file any more",
    410: "it is gone",
}


def fetch(row: Row, listener: Listener) -> Path:
    """Return a row's file on this machine, after fetching it if it is not there yet.

    What a licence does not allow is said first, also of a file that is there already.

    Args:
        row: of the table.
        listener: receives what is fetched, with size and licence, and the progress.

    Raises:
        WeightsError: it cannot be fetched; the message says why and what to do.
        StorageError: it cannot be written.
    """
    if caution := row.caution():
        listener(Message(caution, warning=True))
    try:
        return _from_address(row, listener) if row.address else _from_hub(row, listener)
    except Refused as refused:
        reason = REFUSALS.get(refused.status, "it cannot be had there")
        raise WeightsError(
            f"{row.name} cannot be fetched from {row.link}: the server answers {refused.status}, {reason}."
        ) from refused


def kept(row: Row) -> Path | None:
    """Return a row's file if it is on this machine; the network is not asked."""
    if row.address:
        target = _target(row)
        return target if target.is_file() else None
    path = try_to_load_from_cache(row.repository, row.file, revision=row.revision)
    return Path(path) if isinstance(path, str) else None


def _from_address(row: Row, listener: Listener) -> Path:
    target = _target(row)
    if not target.is_file():
        _announce(row, str(urlsplit(row.address).hostname), listener)
        download(Order(row.name, row.link, target, target.parent, row.megabytes, {}, row.sha256), listener)
    return target


def _target(row: Row) -> Path:
    """Return where a file from an address is kept: under its own name, which tells some readers what it is."""
    folder = hashlib.sha256(row.link.encode()).hexdigest()[:16]
    return cache("weights") / folder / unquote(row.file).rpartition("/")[2]


def _from_hub(row: Row, listener: Listener) -> Path:
    if (path := kept(row)) is None:
        _announce(row, str(urlsplit(constants.ENDPOINT).hostname), listener)
        try:
            path = _fetch_from_hub(row, listener)
        except (HTTPError, OSError, ValueError) as error:
            raise WeightsError(_hub_refusal(row, error)) from error
    commit = path.parent.name if COMMIT.fullmatch(path.parent.name) else row.revision
    for companion in COMPANIONS.get(row.layout, ()):
        # Without it the reader assumes its library's own preprocessing, and says so.
        with suppress(HTTPError, OSError, ValueError):
            hf_hub_download(row.repository, companion, revision=commit)
    return path


def _fetch_from_hub(row: Row, listener: Listener) -> Path:
    """Put the file's bytes where the client keeps them, then let it do the rest: it finds them there.

    The client itself begins a broken download anew and checks no hash (huggingface_hub 2.4, file_download.py).

    Raises:
        WeightsError: the file is not the table's.
        HTTPError, OSError, ValueError: the client's own.
    """
    address = hf_hub_url(row.repository, row.file, revision=row.revision)
    metadata = get_hf_file_metadata(address, token=None)
    if metadata.etag is None:
        raise ValueError("the server does not say which version of the file it has")
    published = metadata.etag if HASH.fullmatch(metadata.etag) else ""
    if published and not published.startswith(row.sha256.lower()):
        raise WeightsError(
            f"{row.name} is not at '{row.repository}' any more: the SHA-256 of its {row.file} begins with "
            f"{published[:12]} instead of {row.sha256[:12]}. What is there now can be had as hf:{row.repository}."
        )
    folder = Path(constants.HF_HUB_CACHE) / f"models--{row.repository.replace('/', '--')}"
    order = Order(
        row.name,
        address,
        folder / "blobs" / metadata.etag,
        folder / UNFINISHED,
        row.megabytes,
        build_hf_headers(),
        row.sha256 or published,
        fixed=True,  # another version has another ETag
    )
    download(order, listener)
    return Path(hf_hub_download(row.repository, row.file, revision=row.revision))


def _announce(row: Row, host: str, listener: Listener) -> None:
    if not constants.HF_HUB_OFFLINE:
        listener(Message(f"Fetching {row.name} from {host}: {row.megabytes:,} MB, licence {row.licence}."))


def _hub_refusal(row: Row, error: Exception) -> str:
    """Return in one sentence why the Hub does not give a file, and what to do."""
    page = f"{constants.ENDPOINT}/{row.repository}"
    status = error.response.status_code if isinstance(error, HfHubHTTPError) and error.response is not None else None
    if isinstance(error, GatedRepoError):
        return (
            f"{row.name} is gated: accept its licence at {page}, then run 'hf auth login' once, or set HF_TOKEN to a "
            "token of the same account."
        )
    if status in (401, 403) and not isinstance(error, RepositoryNotFoundError):
        return f"{row.name} cannot be fetched from {page}: the token (HF_TOKEN, or of 'hf auth login') is refused."
    if isinstance(error, RepositoryNotFoundError):
        return f"{row.name} cannot be fetched: {page} is not there, or is closed to this user; HF_TOKEN may open it."
    if isinstance(error, EntryNotFoundError):
        return f"{row.name} cannot be fetched: {page} has no {row.file} (at {row.revision})."
    if constants.HF_HUB_OFFLINE:
        return f"{row.name} is not on this machine, and HF_HUB_OFFLINE forbids fetching it."
    return f"{row.name} cannot be fetched from {page} ({one_line(error)})."
