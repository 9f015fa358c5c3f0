"""Bounds for what comes from a server: how much it sends, how slowly, and how long it lets us wait.

All requests to the Hugging Face Hub, and our own downloads, go through the one client of its library, which waits as long as a
server wishes (`Retry-After`), reads an answer whole however large it is, and resets its time-out at every byte (huggingface_hub
2.4, utils/_http.py). A real server is far from these bounds.
"""

import contextvars
import functools
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

MOST_BYTES = 1 << 26  # of an answer that is no file, or does not say how long it is
MOST = "vitral.most"  # a request's own bound for its answer, bytes, among its extensions
ANSWER_SECONDS = 60.0  # until the head of an answer is there, and for all of one that is no file
WINDOW_SECONDS = 30.0  # in which a transfer has to bring
WINDOW_BYTES = 30_000  # so much
WAIT_SECONDS = 300.0  # that a server may ask for before the next try: the Hub counts requests in windows so long
BUSY = (408, 429, 500, 502, 503, 504)  # answers after which the client waits
RESET = re.compile(r"\bt\s*=\s*(\d+)")  # in the header of a limit of requests: seconds until the next are taken
BOUND = "_vitral_bound"  # marks a client

# What a client raises where an answer is not what a Hub says: no JSON, other JSON, JSON without end in its depth.
NO_ANSWER = (ValueError, TypeError, AttributeError, LookupError, RecursionError)


def bound_requests() -> None:
    """Hold all further requests through the Hub's client within the bounds; a factory that a program set stays in use.

    Where an answer is out of them, the client raises its `HTTPError`, and does not try again. Nor does it ask the server for
    a list of programs that may be driving it, for its telemetry: from huggingface_hub 2.4 on it keeps whatever comes for a
    day, and fails at every request where that is other JSON.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    constants.HF_HUB_DISABLE_TELEMETRY = True
    factory = getattr(_http, "_GLOBAL_CLIENT_FACTORY", _http.default_client_factory)
    if not getattr(factory, BOUND, False):

        def made() -> Any:  # noqa: ANN401  # the client's HTTP library
            return _bound(factory())

        setattr(made, BOUND, True)
        _http.set_client_factory(made)


def _bound(client: Any) -> Any:  # noqa: ANN401  # as above
    client.send = functools.partial(_send, client.send)
    hooks = client.event_hooks
    client.event_hooks = {**hooks, "response": [*hooks.get("response", ()), _check]}
    return client


def _send(send: Callable[..., Any], request: Any, *, stream: bool = False, **options: Any) -> Any:  # noqa: ANN401  # as above
    """Send a request as the client does; the head of the answer has to come in time, and so has all of it if it is small."""
    upload = int(request.headers.get("content-length", 0)) * WINDOW_SECONDS / WINDOW_BYTES
    seconds = None if "transfer-encoding" in request.headers else ANSWER_SECONDS + upload
    response = _within(seconds, functools.partial(send, request, stream=True, **options))
    if not stream:
        try:
            response.read()
        finally:
            response.close()
    return response


def _check(response: Any) -> None:  # noqa: ANN401  # as above
    _refuse_wait(response)
    _hold(response)


def _within(seconds: float | None, work: Callable[[], Any]) -> Any:  # noqa: ANN401  # of any work
    """Return what the work gives, in time if that is limited; a head that comes byte by byte resets all other time-outs."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), name="request", daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError as error:
        if done.done() or seconds is None:
            raise  # the work's own
        raise _error(f"no answer within {seconds:.0f} seconds") from error


def _hold(response: Any) -> None:  # noqa: ANN401  # as above
    """Let a response's bytes be counted and timed as they are read."""
    request, headers = response.request, response.headers
    is_file = "/api/" not in request.url.path
    sized = is_file and "content-length" in headers and "content-encoding" not in headers
    most = request.extensions.get(MOST, None if sized else MOST_BYTES)
    deadline = None if is_file else time.monotonic() + ANSWER_SECONDS
    raw, decoded = response.iter_raw, response.iter_bytes

    def timed(chunk_size: int | None = None) -> Iterator[bytes]:
        return _timed(raw(chunk_size), deadline)

    def counted(chunk_size: int | None = None) -> Iterator[bytes]:
        return _counted(decoded(chunk_size), most)

    response.iter_raw, response.iter_bytes = timed, counted


def _timed(chunks: Iterator[bytes], deadline: float | None) -> Iterator[bytes]:
    began, came = time.monotonic(), 0
    for chunk in chunks:
        yield chunk
        came, now = came + len(chunk), time.monotonic()
        if deadline is not None and now > deadline:
            raise _error(f"the answer is not whole after {ANSWER_SECONDS:.0f} seconds")
        if now - began > WINDOW_SECONDS:
            if came < WINDOW_BYTES:
                raise _error(f"only {came:,} bytes came in {now - began:.0f} seconds")
            began, came = now, 0


def _counted(chunks: Iterator[bytes], most: int | None) -> Iterator[bytes]:
    came = 0
    for chunk in chunks:
        came += len(chunk)
        if most is not None and came > most:
            raise _error(f"the answer is longer than {most:,} bytes")
        yield chunk


def _refuse_wait(response: Any) -> None:  # noqa: ANN401  # as above
    """Refuse a server that wants a longer wait than anybody sits through; the client would sleep for all of it."""
    if response.status_code not in BUSY:
        return
    reset = RESET.search(response.headers.get("ratelimit", ""))
    for text in (response.headers.get("retry-after", "").strip(), reset[1] if reset else ""):
        if text.isdecimal() and (len(text) > 9 or int(text) > WAIT_SECONDS):
            raise _error(f"the server answers {response.status_code} and lets nobody ask again for {text[:20]} seconds")


def _error(text: str) -> Exception:
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the client's HTTP library

    return HTTPError(text)
