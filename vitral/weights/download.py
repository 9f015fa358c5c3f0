"""Downloads that survive: a broken one goes on where it stopped, also in another process, and its hash is checked.

The bytes go to a file next to the target, which is renamed once it is whole. A server is asked for the rest of a file by
`Range`, bound by `If-Range` to the version that the beginning is of (RFC 9110, sections 13.1.5 and 14.2); one that answers
with the whole file is taken at its word. Requests go through the Hub client's session, so that proxies and certificates
are those of all other requests; it drops a token where it is sent on to another host.
"""

import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from huggingface_hub import constants

# HTTPError is from the client's HTTP library, whichever it is: a failed connection, not an answer.
from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled  # type: ignore[attr-defined]
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

from vitral.errors import StorageError, TrainingError, WeightsError, one_line
from vitral.events import Listener, Message, Progress
from vitral.files import OUR_PREFIX, sha256, storage_errors, sync_folder
from vitral.outputs import locked
from vitral.transfers import MOST, bound_requests
from vitral.weights.containers import open_container
from vitral.weights.named.table import switched_off

TRIES = 5  # in a row without a new byte
MOST_TRIES = 100  # of a server that breaks off again and again
ALLOWED = 1.1  # times the size that a row says, which is rounded, and a megabyte
PAUSE_SECONDS = 1.0  # before the second try, then twice as long each time
REPORT_SECONDS = 1.0  # between two reports at most: whoever listens may find a download too slow
WAITING_SECONDS = 0.5  # between two looks at whether another process has finished
MEGABYTE = 10**6  # bytes
PARTIAL = f"{OUR_PREFIX}download-"
ABOUT = ".json"
BUSY = (408, 425, 429, 500, 502, 503, 504)  # answers that another try may change
HASH_SHOWN = 12  # digits


@dataclass(frozen=True)
class Order:
    """What to download.

    Attributes:
        name: The name in messages.
        address: The file's address.
        target: The path where the file goes.
        workplace: The folder in which it is put together, on the same disk.
        megabytes: The approximate size, 10^6 bytes, for a server that does not say it.
        headers: The headers of the request, such as a token.
        sha256: its hash or the beginning of it, in hexadecimal digits; empty if none is published.
        fixed: whether what is at the address never changes.
    """

    name: str
    address: str
    target: Path
    workplace: Path
    megabytes: int
    headers: Mapping[str, str]
    sha256: str = ""
    fixed: bool = False

    @property
    def most(self) -> int:
        """The bytes that the file has at most."""
        return int(ALLOWED * (self.megabytes + 1) * MEGABYTE)

    @property
    def partial(self) -> Path:
        """Where the bytes go until the file is whole."""
        return self.workplace / f"{PARTIAL}{self.target.name}"

    @property
    def about(self) -> Path:
        """Where the version is kept that the partial file is of."""
        return self.workplace / f"{PARTIAL}{self.target.name}{ABOUT}"


class Refused(Exception):
    """An answer of the server that another try does not change."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server answers {status}")
        self.status = status


class _Broken(Exception):
    """The transfer ended before the file did; another try may go on."""


def download(order: Order, listener: Listener) -> None:
    """Download a file; of several processes that want the same one, the others wait.

    Raises:
        WeightsError: it cannot be reached, or its hash is not the published one.
        StorageError: it cannot be written.
        Refused: the server says no.
    """
    folder = order.target.parent
    for needed in (folder, order.workplace):
        with storage_errors(needed):
            needed.mkdir(parents=True, exist_ok=True)
    with _alone(order, listener):
        if order.target.exists():
            return
        _transfer(order, listener)
        _check(order)
        with storage_errors(order.target):
            os.replace(order.partial, order.target)
            sync_folder(folder)
        order.about.unlink(missing_ok=True)


@contextmanager
def _alone(order: Order, listener: Listener) -> Iterator[None]:
    """Hold the workplace, after waiting for whoever does."""
    with ExitStack() as stack:
        waiting = False
        while True:
            try:
                stack.enter_context(locked(order.workplace))
                break
            except TrainingError:
                if not waiting:
                    listener(Message(f"Another process is fetching {order.name}; waiting for it."))
                waiting = True
                _tell(order, _size(order.partial), order.megabytes * MEGABYTE, listener)
                time.sleep(WAITING_SECONDS)
        yield


def _transfer(order: Order, listener: Listener) -> None:
    """Make the partial file whole, in as many tries as bring it forward; a server that never answers is asked once."""
    bound_requests()
    failures, answered = 0, False
    for tries in itertools.count(1):
        before = _size(order.partial)
        try:
            _fetch(order, listener)
            return
        except (HTTPError, _Broken) as error:
            answered = answered or isinstance(error, _Broken) or _size(order.partial) > before
            failures = 1 if _size(order.partial) > before else failures + 1
            if failures >= TRIES or tries >= MOST_TRIES or not answered:
                raise WeightsError(_gave_up(order, error)) from error
            time.sleep(PAUSE_SECONDS * 2 ** (failures - 1))
        except OfflineModeIsEnabled as error:
            raise WeightsError(f"{order.name} is not on this machine, and {switched_off()}.") from error


def _gave_up(order: Order, error: Exception) -> str:
    held = _size(order.partial)
    partial = f"; the {held / MEGABYTE:.0f} MB that came are kept for the next try" if held else ""
    return f"{order.name} cannot be fetched from {order.address} ({one_line(error)}){partial}."


def _fetch(order: Order, listener: Listener) -> None:
    """Ask once for what is missing, and write what comes."""
    offset, version = _begun(order)
    headers = {**order.headers, "Accept-Encoding": "identity"}  # of a compressed file the size would not be known
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if version:
            headers["If-Range"] = version
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream(
        "GET",
        order.address,
        headers=headers,
        timeout=timeout,
        follow_redirects=True,
        extensions={MOST: order.most - offset},
    ) as response:
        status = response.status_code
        if status == 416:  # the file is not longer than what is here: that is all of it, or of another version
            if response.headers.get("Content-Range", "").endswith(f"*/{offset}"):
                return
            _forget(order)
            raise _Broken("what was here is not a part of the file")
        if status in BUSY:
            raise _Broken(f"the server answers {status}")
        if status not in (200, 206):
            raise Refused(status)
        start = offset if status == 206 and _first(response) == offset else 0
        if status == 206 and start != offset:
            _forget(order)
            raise _Broken("the server sends another part than it was asked for")
        total = _total(response, start)
        if total is not None and total > order.most:
            raise WeightsError(
                f"{order.name} is not what {order.address} has: that is of {total / MEGABYTE:,.0f} MB instead of some "
                f"{order.megabytes:,} MB. Nothing was fetched."
            )
        _write(order, response, start, total, listener)
    if total is not None and _size(order.partial) != total:
        raise _Broken(f"{_size(order.partial):,} of {total:,} bytes came")


def _write(order: Order, response: Any, start: int, total: int | None, listener: Listener) -> None:  # noqa: ANN401  # the client's HTTP library
    """Write an answer's bytes from a position on, and report them."""
    _check_space(order, start, total)
    size = total if total is not None else order.megabytes * MEGABYTE
    if start:
        listener(Message(f"Going on with {order.name} after the {start / MEGABYTE:.0f} MB that are here."))
    with _opened(order, response, start) as file:
        done, reported, reported_at = start, -1, 0.0
        for chunk in response.iter_bytes():
            with storage_errors(order.target):
                file.write(chunk)
            done += len(chunk)
            now = time.monotonic()
            if done // MEGABYTE != reported or now - reported_at >= REPORT_SECONDS:
                reported, reported_at = done // MEGABYTE, now
                _tell(order, done, size, listener)
        with storage_errors(order.target):
            file.flush()
            os.fsync(file.fileno())
    if total is None or done == total:
        whole = max(done // MEGABYTE, 1)
        listener(Progress(_task(order), whole, whole))


@contextmanager
def _opened(order: Order, response: Any, start: int) -> Iterator[BinaryIO]:  # noqa: ANN401  # the client's HTTP library
    """Open the partial file at a position, after which nothing of it is kept; to close it is to write, too."""
    with storage_errors(order.target):
        if not start:
            order.partial.unlink(missing_ok=True)  # first: old bytes must never be taken for this version's
            order.about.write_text(json.dumps({"address": order.address, "version": _version(response)}))
        file = open(order.partial, "r+b" if start else "wb")  # noqa: SIM115  # closed below
    try:
        with storage_errors(order.target):
            file.seek(start)
            file.truncate()
        yield file
    finally:
        with storage_errors(order.target):
            file.close()


def _tell(order: Order, done: int, size: int, listener: Listener) -> None:
    """Report bytes that came, of a file that is not whole yet."""
    whole = max(size // MEGABYTE, 1)
    if done < size:
        listener(Progress(_task(order), min(done // MEGABYTE, whole - 1), whole))


def _task(order: Order) -> str:
    return f"fetch {order.name}, MB"


def _begun(order: Order) -> tuple[int, str]:
    """Return how many bytes are here, and of which version; 0 if the rest could not be known to be of the same."""
    try:
        about = json.loads(order.about.read_text())
        offset, version = order.partial.stat().st_size, str(about["version"])
        known = about["address"] == order.address and bool(version or order.fixed or order.sha256)
    except (OSError, ValueError, LookupError, TypeError):
        return 0, ""
    return (offset, version if not order.fixed else "") if known else (0, "")


def _version(response: Any) -> str:  # noqa: ANN401  # the client's HTTP library
    """Return what binds a later request to this version: a strong ETag, else the time of the last change."""
    etag = str(response.headers.get("ETag", ""))
    return etag if etag.startswith('"') else str(response.headers.get("Last-Modified", ""))


def _first(response: Any) -> int | None:  # noqa: ANN401  # the client's HTTP library
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _total(response: Any, start: int) -> int | None:  # noqa: ANN401  # the client's HTTP library
    """Return the whole file's bytes, as far as the answer tells."""
    if match := re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range", "")):
        return int(match[1])
    length = response.headers.get("Content-Length", "")
    return start + int(length) if length.isdecimal() else None


def _check_space(order: Order, start: int, total: int | None) -> None:
    """Refuse to begin what the disk has no room for, by a StorageError."""
    needed = (total or 0) - start
    with suppress(OSError):
        free = shutil.disk_usage(order.target.parent).free
        if free < needed:
            raise StorageError(
                f"No room for {order.name}: it needs {needed / MEGABYTE:.0f} MB more in '{order.target.parent}', "
                f"{free / MEGABYTE:.0f} MB are free; free some space, or name another cache by HF_HOME or XDG_CACHE_HOME."
            )


def _check(order: Order) -> None:
    """Compare the hash with the published one, and forget a file that has another, or that is no weights file.

    Raises:
        WeightsError: it is not what it should be.
    """
    if not order.sha256:
        try:
            with open_container(order.partial):
                return
        except WeightsError as error:  # the page of a proxy, perhaps
            _forget(order)
            raise WeightsError(f"What came from {order.address} is not a weights file, and was deleted.") from error
    found = sha256(order.partial)
    if not found.startswith(order.sha256.lower()):
        _forget(order)
        raise WeightsError(
            f"{order.name} was not what its publisher has: the SHA-256 of the file from {order.address} begins with "
            f"{found[:HASH_SHOWN]} instead of {order.sha256[:HASH_SHOWN]}. It was deleted; fetch it again, and from the "
            "source itself if this was a mirror."
        )


def _forget(order: Order) -> None:
    with storage_errors(order.target):
        order.partial.unlink(missing_ok=True)
        order.about.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
