"""Servers that answer what no Hub does."""

import socketserver
import time
from collections.abc import Callable
from contextlib import suppress

Answer = Callable[[socketserver.StreamRequestHandler, str], None]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ENDLESS = 1 << 28  # bytes after which the server gives up


class Server(socketserver.ThreadingTCPServer):
    """Answers every request alike, with bytes of its own making."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        self.answer, self.requests, self.sent = answer, 0, 0
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        line = self.rfile.readline().decode()
        while self.rfile.readline().strip():
            pass
        self.server.requests += 1
        with suppress(OSError):  # who asked has gone
            self.server.answer(self, line.split()[0])


def head(handler: socketserver.StreamRequestHandler, *lines: str, status: str = "200 OK") -> None:
    handler.wfile.write("\r\n".join([f"HTTP/1.1 {status}", *lines, "Connection: close", "", ""]).encode())


def saying(body: bytes) -> Answer:
    def answer(handler: socketserver.StreamRequestHandler, method: str) -> None:
        head(handler, "Content-Type: application/json", f"Content-Length: {len(body)}", f"X-Repo-Commit: {COMMIT}")
        if method != "HEAD":
            handler.wfile.write(body)

    return answer


def without_end(handler: socketserver.StreamRequestHandler, method: str) -> None:
    head(handler, "Content-Type: application/json", f'ETag: "{"0" * 40}"', f"X-Repo-Commit: {COMMIT}")
    handler.wfile.write(b"[")
    while method != "HEAD" and handler.server.sent < ENDLESS:  # type: ignore[attr-defined]
        handler.wfile.write(b"1," * (1 << 15))
        handler.server.sent += 1 << 16  # type: ignore[attr-defined]


def of_gigabytes(handler: socketserver.StreamRequestHandler, method: str) -> None:
    head(handler, "Content-Type: text/plain", f"Content-Length: {3 << 30}")
    while method != "HEAD" and handler.server.sent < ENDLESS:  # type: ignore[attr-defined]
        handler.wfile.write(b"1," * (1 << 15))
        handler.server.sent += 1 << 16  # type: ignore[attr-defined]


def drop_by_drop(handler: socketserver.StreamRequestHandler, method: str) -> None:
    head(handler, "Content-Type: application/json", "Content-Length: 1000")
    for _ in range(1000 if method != "HEAD" else 0):
        handler.wfile.write(b" ")
        time.sleep(0.1)


def head_drop_by_drop(handler: socketserver.StreamRequestHandler, method: str) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    for _ in range(1000):
        handler.wfile.write(b"x")
        time.sleep(0.1)


def later(*lines: str, status: str = "429 Too Many Requests") -> Answer:
    return lambda handler, method: head(handler, "Content-Length: 0", *lines, status=status)


HUBS: dict[str, Answer] = {
    "null": saying(b"null"),
    "numbers": saying(b"[1, 2, 3]"),
    "a number": saying(b"7"),
    "siblings of numbers": saying(b'{"id": "me/x", "siblings": [1, 2]}'),
    "a sibling without a name": saying(b'{"id": "me/x", "siblings": [{"rfilename": 7}]}'),
    "deep": saying(b"[" * 200_000),
    "no JSON": saying(b"<html>"),
    "no text": saying(bytes(range(128, 256))),
    "without end": without_end,
    "of gigabytes": of_gigabytes,
    "drop by drop": drop_by_drop,
    "a head drop by drop": head_drop_by_drop,
    "an hour": later("Retry-After: 3600"),
    "for ever": later("Retry-After: 100000000000"),
    "a limit": later('RateLimit: "api";r=0;t=4000'),
    "busy for ever": later("Retry-After: 99999", status="503 Service Unavailable"),
}
