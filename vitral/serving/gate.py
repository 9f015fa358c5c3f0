"""What every request passes, whatever its route: its size and the token are looked at, then it is answered, counted and logged.

It wraps the whole application, so that no route can be added past it.
"""

import asyncio
import contextlib
import hmac
import json
import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitral.serving.page import PATHS
from vitral.serving.refusals import RequestRefused, malformed
from vitral.serving.service import Service
from vitral.serving.tracing import Tracing
from vitral.serving.visit import KEY, Visit, refused, shorten, too_large, visit_of

# That need no token: probes, as load balancers have none, and the pages, which ask for it.
OPEN_ROUTES = frozenset((method, path) for method in ("GET", "HEAD") for path in ("/healthz", "/readyz", *PATHS))
LINGER_SECONDS = 2.0  # in which a body that is not wanted is read and dropped, so that the client sees why
LOG = logging.getLogger("vitral.serving")
HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Gate:
    """The outermost layer of the application; clients must send the token, if there is one."""

    def __init__(self, app: ASGIApp, service: Service, token: str | None, tracing: Tracing | None) -> None:
        self.app, self.service, self.token, self.tracing = app, service, token, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        visit = scope[KEY] = visit_of(self.service, headers)
        answer = Exchange(self.service, visit, headers, receive, send)
        started = time.monotonic()
        try:
            self._check((scope["method"], scope["path"]), visit, headers)
            await self.app(scope, answer.receive, answer.send)
        except Exception as error:
            if not isinstance(error, RequestRefused):
                LOG.error("%s", json.dumps({"id": visit.id, "error": repr(error)}), exc_info=error)
            if not answer.status:
                await refused(scope, error)(scope, answer.receive, answer.send)
        finally:
            visit.release()
            self._log(scope, headers, answer.status, started)

    def _check(self, route: tuple[str, str], visit: Visit, headers: dict[bytes, bytes]) -> None:
        """Refuse a request by its headers.

        Raises:
            RequestRefused: It is too large, or its token is another; or its headers cannot be understood.
        """
        length, limit = headers.get(b"content-length", b"0"), self.service.max_bytes
        if not length.isdigit():
            raise malformed("Content-Length is a whole number of bytes.")
        if int(length) > limit:
            raise too_large(limit)
        given = headers.get(b"authorization", b"")
        if self.token is not None and route not in OPEN_ROUTES and not _is_token(given, self.token):
            raise RequestRefused(
                401, "token", "This server takes requests with its token: Authorization: Bearer TOKEN."
            )
        shorten(visit, headers)

    def _log(self, scope: Scope, headers: dict[bytes, bytes], status: int, started: float) -> None:
        visit: Visit = scope[KEY]
        seconds = time.monotonic() - started
        route = getattr(scope.get("route"), "path", "other")  # not the path, of which there are endlessly many
        visit.measures.answered(route, status, seconds)
        line = {
            "time": now(),
            "id": visit.id,
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": status,
            "ms": round(1000 * seconds, 1),
            **visit.log,
        }
        if self.tracing is not None and (trace := self.tracing.request(scope, headers, route, status, started)):
            line["trace"] = trace
        LOG.info("%s", json.dumps(line))


def now() -> str:
    """Return the time as the log has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _is_token(given: bytes, token: str) -> bool:
    scheme, _, value = given.partition(b" ")
    return hmac.compare_digest(value.strip(), token.encode()) and scheme.lower() == b"bearer"


class Exchange:
    """The two ways of a connection, looked at as a request is answered.

    Attributes:
        status: The status that was sent; 0 before.
    """

    def __init__(
        self, service: Service, visit: Visit, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        self.service, self.visit, self.status = service, visit, 0
        self._receive, self._send = receive, send
        self._read = not (b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0"))
        self._waits = headers.get(b"expect", b"").lower() == b"100-continue"  # for leave to send the body

    async def receive(self) -> Message:
        """Return what comes from the client."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._read = True
        return message

    async def send(self, message: Message) -> None:
        """Send to the client; a body that is still coming is dropped at the end, and the connection closed."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            close = ((b"connection", b"close"),) if self.service.draining or not self._read else ()
            own = ((b"x-request-id", self.visit.id.encode()), *HEADERS, *close)
            message = {**message, "headers": [*message["headers"], *own]}
        elif not self._read and not self._waits and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._drop()
            message = {"type": "http.response.body"}
        await self._send(message)

    async def _drop(self) -> None:
        dropped = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while not self._read and dropped <= self.service.max_bytes:
                    message: dict[str, Any] = dict(await self.receive())
                    if message["type"] == "http.disconnect":
                        return
                    dropped += len(message.get("body", b"")) or 1
