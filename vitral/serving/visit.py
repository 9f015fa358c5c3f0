"""A request on its way: its id, its deadline, its body within limits, and its answers unless the client leaves."""

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Scope

from vitral.serving.batcher import Lane, Stage
from vitral.serving.limits import BODY_SECONDS, MOST_IMAGES
from vitral.serving.measures import Measures
from vitral.serving.refusals import RequestRefused, malformed, refusal_of, too_late
from vitral.serving.served import Given, Served
from vitral.serving.service import Service

REQUEST_ID = re.compile(rb"[\w.:-]{1,100}", re.ASCII)  # of a client; anything else could be meant for who reads the log
OWN_DEADLINE = b"x-request-timeout-ms"
KEY = "vitral"  # of the visit in the scope of ASGI
MOST_DIGITS = 9


@dataclass
class Visit:
    """A request on its way.

    Attributes:
        id: The client's id of it, or one of ours.
        until: When it must be answered, by `time.monotonic()`.
        held: Bytes of its body.
        log: What its line in the log says besides.
        stages: What was done for its images.
    """

    service: Service
    id: str
    until: float
    held: int = 0
    log: dict[str, Any] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)

    @property
    def measures(self) -> Measures:
        """What the server counts."""
        return self.service.measures

    def release(self) -> None:
        """Let go of what is held for it."""
        self.service.release(self.held)
        self.held = 0


def visit_of(service: Service, headers: dict[bytes, bytes]) -> Visit:
    """Return a request as it arrives."""
    given = headers.get(b"x-request-id", b"")
    name = given.decode() if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    return Visit(service, name, time.monotonic() + service.limits.deadline)


def shorten(visit: Visit, headers: dict[bytes, bytes]) -> None:
    """Take the deadline that a client names, where it is sooner than the server's.

    Raises:
        RequestRefused: It is no number.
    """
    given = headers.get(OWN_DEADLINE)
    if given is None:
        return
    if not given.isdigit() or len(given) > MOST_DIGITS:
        raise malformed("X-Request-Timeout-Ms is a whole number of milliseconds.")
    visit.until = min(visit.until, time.monotonic() + int(given) / 1000)


def refused(scope: Scope, error: BaseException) -> JSONResponse:
    """Return the answer to a request that came to an error, which is counted."""
    visit: Visit = scope[KEY]
    refusal = refusal_of(error)
    visit.measures.without_answer(refusal.code)
    visit.log["error"] = refusal.message
    challenge = {"www-authenticate": "Bearer"} if refusal.status == 401 else {}
    return JSONResponse(refusal.to_json() | {"request_id": visit.id}, refusal.status, refusal.headers() | challenge)


async def body_of(request: Request) -> bytes:
    """Return the body of a request, refusing what is too large before it is read.

    Raises:
        RequestRefused: It is too large, compressed, empty or does not come.
    """
    visit: Visit = request.scope[KEY]
    limit = visit.service.max_bytes
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RequestRefused(415, "compressed", "Send the body as it is, without Content-Encoding.")
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                visit.service.hold(len(part))
                visit.held += len(part)
                if visit.held > limit:
                    raise too_large(limit)
                parts.append(part)
    except TimeoutError:
        raise RequestRefused(408, "slow_body", f"The body did not come within {BODY_SECONDS:.0f} seconds.") from None
    if not visit.held:
        raise malformed("The body is empty; send an image.")
    return b"".join(parts)


def too_large(limit: int) -> RequestRefused:
    """Return the refusal of a body that is too large."""
    return RequestRefused(
        413, "too_large", f"The body is larger than the limit of {limit:,} bytes; send fewer or smaller images."
    )


async def answers_of(request: Request, served: Served, lane: Lane, images: Sequence[Given]) -> list[Any]:
    """Return what a lane gives for each image of a request, or the exception that it came to.

    Raises:
        RequestRefused: There are too many, or no time for them.
        ClientDisconnect: The client has left; what it wanted is given up.
    """
    visit: Visit = request.scope[KEY]
    service = visit.service
    if len(images) > MOST_IMAGES:
        raise RequestRefused(413, "too_many_images", f"A request has up to {MOST_IMAGES} images, not {len(images)}.")
    visit.log |= {"model": served.name, "version": served.version, "images": len(images)}
    service.admit(lane, len(images), visit.until)
    futures = [service.submit(served, lane, image, visit.until, visit.stages) for image in images]
    answers = await until_gone(request, futures)
    for answer in answers:
        if isinstance(answer, RequestRefused) and answer.status == 504:
            raise answer  # it is the request that is late, not one image
    if service.collection is not None and lane is served.answers and not served.finds_regions:
        service.collect(served, images, answers)
    return answers


async def answer_of(request: Request, served: Served, function: Callable[[], Any]) -> Any:  # noqa: ANN401  # the function's
    """Return what a function computes with a network, when its turn comes.

    Raises:
        RequestRefused: It could not, or there is no time for it.
        ClientDisconnect: The client has left.
    """
    visit: Visit = request.scope[KEY]
    visit.log |= {"model": served.name, "version": served.version, "images": 1}
    visit.service.admit(served.others, 1, visit.until)
    (answer,) = await until_gone(request, [visit.service.put(served.others, function, visit.until, visit.stages)])
    if isinstance(answer, BaseException):
        raise refusal_of(answer) from answer
    return answer


async def aside(request: Request, work: Callable[[], Any]) -> Any:  # noqa: ANN401  # the work's own
    """Return what work without a network gives, in a thread: it takes long, or waits for the disk.

    Raises:
        RequestRefused: There is no time for it.
        ClientDisconnect: The client has left.
    """
    visit: Visit = request.scope[KEY]
    (done,) = await until_gone(request, [visit.service.aside(work)])
    if isinstance(done, BaseException):
        raise done
    return done


async def until_gone(request: Request, futures: Sequence[Future[Any]]) -> list[Any]:
    """Return the results of futures, or the exceptions that they came to.

    Raises:
        RequestRefused: They were not there in time.
        ClientDisconnect: The client has left; the futures are cancelled.
    """
    visit: Visit = request.scope[KEY]
    results = asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
    gone = asyncio.ensure_future(_gone(request))
    try:
        left = max(0.0, visit.until - time.monotonic())
        both: set[asyncio.Future[Any]] = {results, gone}
        await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if results.done():
            return list(results.result())
        raise ClientDisconnect if gone.done() else too_late()
    finally:
        gone.cancel()
        for future in futures:
            future.cancel()  # which does nothing to one that is done
        results.cancel()


async def _gone(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
