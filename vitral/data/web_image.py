"""One photo at an http or https address, fetched when it is read, within bounds of size, time and redirects."""

import functools
import http.client
import time
import urllib.error
import urllib.request
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from vitral.data.image_files import LazyImage
from vitral.errors import ImageError, one_line
from vitral.images.decode import Pixels, Shrink, read_image

SCHEMES = ("http", "https")
DATA_SUFFIXES = (".tar", ".parquet")  # of files that hold many images
MOST_BYTES = 100 << 20
SECONDS = 60.0  # for the whole photo
CHUNK = 1 << 16  # bytes
REDIRECTS = 5
AGENT = "vitral"


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows few redirects; to another scheme than http and https the opener has no handler."""

    max_redirections = REDIRECTS


def is_web_image(spec: str) -> bool:
    """Tell whether a name is the http or https address of a single file that is not a data set."""
    scheme, sign, _ = spec.partition("://")
    if not sign or scheme.lower() not in SCHEMES or "{" in spec:
        return False
    try:
        path = urlsplit(spec).path
    except ValueError:
        return False
    return not path.endswith("/") and PurePosixPath(path).suffix.lower() not in DATA_SUFFIXES


def web_image(address: str) -> LazyImage:
    """Return the photo at an address; it is fetched when it is read, once."""

    @functools.cache
    def fetched() -> bytes:
        return fetch(address)

    def read(*, shrink: Shrink | None = None) -> Pixels:
        try:
            return read_image(fetched(), shrink=shrink)
        except ImageError as error:
            raise ImageError(str(error).replace("The image", f"'{address}'", 1)) from error

    return LazyImage(address, read)


def fetch(address: str, *, most: int = MOST_BYTES, seconds: float = SECONDS) -> bytes:
    """Return what an http or https address gives: at most so many bytes, within so many seconds.

    Raises:
        ImageError: There is no answer, it is not the file, it is too large, or it takes too long.
    """
    until = time.monotonic() + seconds
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        _Redirects(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    try:
        request = urllib.request.Request(address, headers={"User-Agent": AGENT})
        with opener.open(request, timeout=seconds) as answer:
            return _all_of(answer, address, most, until)
    except ImageError:
        raise
    except urllib.error.HTTPError as error:
        error.close()
        raise ImageError(f"'{address}' cannot be fetched: the server answers {error.code} {error.reason}.") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = one_line(reason) if isinstance(reason, BaseException) else str(reason)
        raise ImageError(f"'{address}' cannot be fetched: {why}.") from error


def _all_of(answer: http.client.HTTPResponse, address: str, most: int, until: float) -> bytes:
    content = bytearray()
    while chunk := answer.read1(CHUNK):
        content += chunk
        if len(content) > most:
            raise ImageError(
                f"'{address}' is larger than {most >> 20} MB; save the photo, make it smaller, and name the file."
            )
        if time.monotonic() > until:
            raise ImageError(f"'{address}' takes too long; save the photo and name the file.")
    return bytes(content)
