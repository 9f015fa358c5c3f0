"""Clients of an image server, in a process of their own: how many images a second they get answered, and how long each waits.

    python benchmarks/serve_clients.py ADDRESS FOLDER --form raw --clients 8 --seconds 5
    python benchmarks/serve_clients.py ADDRESS FOLDER --form raw --rate 40 --seconds 5

With --clients each client sends its next request when it has the answer to the last (a closed loop). With --rate requests are
sent at that constant rate whatever becomes of them (an open loop), and latency is counted from the time at which each was to
be sent, so that a server that falls behind is seen to. One thread and no library: a client costs little of the cores that it
shares with the server, and how much is in the line of JSON that is printed.
"""

import argparse
import asyncio
import base64
import json
import resource
import struct
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

WARMING_SECONDS = 1.0  # before the first request that counts
PATIENCE = 15.0  # seconds after the last request in which answers still count
CONNECTIONS = 128  # of the open loop: requests that are on their way at most
END = b"\r\n\r\n"
LENGTH = b"content-length:"


def raw(image: bytes) -> tuple[bytes, bytes]:
    """Return the headers and the body of a request that is the image itself."""
    return b"", image


def as_json(image: bytes) -> tuple[bytes, bytes]:
    """Return an image as base64 in JSON."""
    return b"Content-Type: application/json\r\n", json.dumps({"image": base64.b64encode(image).decode()}).encode()


def as_list(image: bytes) -> tuple[bytes, bytes]:
    """Return an image as a list of one in JSON."""
    return b"Content-Type: application/json\r\n", json.dumps({"image": [base64.b64encode(image).decode()]}).encode()


def as_tensor(image: bytes) -> tuple[bytes, bytes]:
    """Return an image as a binary tensor of the Open Inference Protocol, a batch of one."""
    element = struct.pack("<I", len(image)) + image
    given = {"name": "image", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(element)}}
    header = json.dumps({"inputs": [given]}).encode()
    return b"Inference-Header-Content-Length: %d\r\n" % len(header), header + element


FORMS = {"raw": raw, "json": as_json, "list": as_list, "v2": as_tensor}


def requests_of(folder: Path, path: str, form: str) -> list[bytes]:
    """Return a request for each JPEG of a folder."""
    made = []
    for photo in sorted(folder.rglob("*.jpg")):
        headers, body = FORMS[form](photo.read_bytes())
        start = b"POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n" % (path.encode(), headers, len(body))
        made.append(start + body)
    return made


class Client(asyncio.Protocol):
    """A connection with one request on its way at most.

    Args:
        done: Hears the status and the time at which the request was to be sent.
    """

    def __init__(self, done: Callable[["Client", int, float], None]) -> None:
        self.done = done
        self.transport: asyncio.Transport
        self.since = 0.0
        self._got = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what sends."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, request: bytes, since: float) -> None:
        """Send a request."""
        self.since = since
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take a part of the answer."""
        self._got += data
        end = self._got.find(END)
        if end < 0:
            return
        head = bytes(self._got[:end]).lower()
        length = int(head[head.index(LENGTH) + len(LENGTH) :].partition(b"\r")[0])
        if len(self._got) >= end + len(END) + length:
            status = int(head[9:12])
            self._got.clear()
            self.done(self, status, self.since)


class Load:
    """Requests in turn, and what came of those that count.

    Attributes:
        taken: Seconds that each answer took.
        statuses: How many answers had each status.
        sent: Requests, those of the warming among them.
        answered: Of those.
    """

    def __init__(self, requests: list[bytes], seconds: float) -> None:
        self.requests, self.sent, self.answered = requests, 0, 0
        self.begin = time.monotonic() + WARMING_SECONDS
        self.end = self.begin + seconds
        self.taken: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.in_time = 0  # answers that came while requests were sent

    def next(self) -> bytes:
        """Return the next request."""
        self.sent += 1
        return self.requests[self.sent % len(self.requests)]

    def note(self, status: int, since: float) -> float:
        """Take an answer into account; return the time."""
        now = time.monotonic()
        self.answered += 1
        if self.begin <= now <= self.end and status == 200:
            self.in_time += 1
        if self.begin <= since <= self.end:
            self.statuses[status] += 1
            if status == 200:
                self.taken.append(now - since)
        return now


async def closed(load: Load, host: str, port: int, clients: int) -> int:
    """Let so many clients ask one after the other; return how many requests counted."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    waiting = clients

    def done(client: Client, status: int, since: float) -> None:
        nonlocal waiting
        if (now := load.note(status, since)) < load.end:
            client.ask(load.next(), now)
        else:
            waiting -= 1
            if not waiting:
                over.set()

    for _ in range(clients):
        _, client = await loop.create_connection(lambda: Client(done), host, port)
        client.ask(load.next(), time.monotonic())
    async with asyncio.timeout(load.end - time.monotonic() + PATIENCE):
        await over.wait()
    return sum(load.statuses.values())


async def opened(load: Load, host: str, port: int, rate: float) -> int:
    """Ask at a constant rate; return how many requests counted, those without an answer among them."""
    loop = asyncio.get_running_loop()
    late: deque[float] = deque()  # requests that no connection was free for, by the time of each
    free: list[Client] = []

    def done(client: Client, status: int, since: float) -> None:
        load.note(status, since)
        if late:
            client.ask(load.next(), late.popleft())
        else:
            free.append(client)

    for _ in range(CONNECTIONS):
        free.append((await loop.create_connection(lambda: Client(done), host, port))[1])
    start, number, counted = time.monotonic(), 0, 0
    while (due := start + number / rate) < load.end:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        number, counted = number + 1, counted + (load.begin <= due)
        if free:
            free.pop().ask(load.next(), due)
        else:
            late.append(due)
    until = load.end + PATIENCE
    while sum(load.statuses.values()) < counted and time.monotonic() < until:
        await asyncio.sleep(0.05)
    return counted


def figures(load: Load, counted: int, seconds: float) -> dict[str, object]:
    """Return what was measured."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    low, high = (round(1000 * float(np.percentile(load.taken, each)), 1) if load.taken else None for each in (50, 99))
    return {
        "images_per_second": round(load.in_time / seconds, 2),
        "p50_ms": low,
        "p99_ms": high,
        "requests": counted,
        "answered": load.answered,
        "statuses": {str(status): count for status, count in sorted(load.statuses.items())},
        "client_ms_per_request": round(1000 * (used.ru_utime + used.ru_stime) / max(1, load.sent), 3),
    }


def main() -> None:
    """Print the figures as a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="such as http://127.0.0.1:8000/v1/predict")
    parser.add_argument("folder", type=Path, help="JPEGs")
    parser.add_argument("--form", choices=list(FORMS), default="raw")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--rate", type=float, help="requests a second")
    parser.add_argument("--seconds", type=float, default=5.0)
    wanted = parser.parse_args()
    address = urlsplit(wanted.address)
    where = str(address.hostname), int(address.port or 80)
    load = Load(requests_of(wanted.folder, address.path, wanted.form), wanted.seconds)
    run = closed(load, *where, wanted.clients) if wanted.clients else opened(load, *where, wanted.rate)
    counted = asyncio.run(run)
    print(json.dumps(figures(load, counted, wanted.seconds)))


if __name__ == "__main__":
    main()
