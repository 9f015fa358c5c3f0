"""Many clients at once: everybody gets their own answer, who leaves costs nothing, and what is too much is refused at once."""

import random
import socket
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import vitral
from tests.conftest import Record
from tests.serving.conftest import Running, encoded, form
from vitral.events import ignore

pytestmark = pytest.mark.long
CLIENTS = 16
SECONDS = 10.0
IMAGES = 40
LEAVING = 0.2  # of the requests are cut somewhere
GROWTH = 100 << 10  # kB of memory, Triton's bound
TOGETHER = 8  # images in a request
PATIENCE = 6  # times what an answer takes alone


def resident(running: Running) -> int:
    """Return the server's memory, kB."""
    lines = Path(f"/proc/{running.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def cut(running: Running, content: bytes, at: float) -> None:
    """Send the first part of a request, and leave."""
    request = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as connection:
        connection.sendall(request[: round(at * len(request))])


def ask_several(running: Running, **headers: str) -> tuple[int, float]:
    """Ask about several images at once; return the status, and the seconds that it took."""
    body, kind = form(*((f"{number}.jpg", encoded(number, side=300)) for number in range(TOGETHER)))
    started = time.monotonic()
    reply = running.post("/v1/predict", body, kind, **headers)
    if reply.status == 200:
        assert not any("error" in row for row in reply.json["predictions"])
    if reply.status == 503:
        assert int(reply.headers["retry-after"]) >= 1
    return reply.status, time.monotonic() - started


def depth(running: Running) -> float:
    lines = running.get("/metrics").body.decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("vitral_queue_depth ")))


def test_every_client_gets_its_own_answer(server: Running, served_home: Path, record_counts: Record) -> None:
    sides = [32 + 16 * (seed % 5) for seed in range(IMAGES)]
    contents = [encoded(seed, side=side) for seed, side in enumerate(sides)]
    offline = vitral.load(served_home / "noise", listener=ignore).predict(contents, top=3, listener=ignore)
    expected = [dict(each.top) for each in offline]
    counts: Counter[str] = Counter()
    before, until = resident(server), time.monotonic() + SECONDS

    def ask(client: int) -> None:
        rng = random.Random(client)
        while time.monotonic() < until:
            number = rng.randrange(IMAGES)
            if rng.random() < LEAVING:
                cut(server, contents[number], rng.random())
                counts["cut"] += 1
                continue
            reply = server.post("/v1/predict", contents[number])
            found = {row["label"]: row["probability"] for row in reply.json["predictions"][0]["top"]}
            assert found == pytest.approx(expected[number], abs=1e-4)
            counts["answered"] += 1

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(ask, range(CLIENTS)))
    record_counts("serve_clients", {"clients": CLIENTS, **counts})
    assert counts["answered"] > CLIENTS
    assert depth(server) == 0
    assert resident(server) - before < GROWTH


def test_what_is_too_much_is_refused_and_the_rest_is_in_time(server: Running, record_counts: Record) -> None:
    counts: Counter[int] = Counter()
    alone = statistics.median(ask_several(server)[1] for _ in range(5))
    patience = {"X-Request-Timeout-Ms": str(round(1000 * PATIENCE * alone))}
    until = time.monotonic() + SECONDS / 2

    def ask(_: int) -> None:
        while time.monotonic() < until:
            counts[ask_several(server, **patience)[0]] += 1

    with ThreadPoolExecutor(2 * CLIENTS) as clients:
        list(clients.map(ask, range(2 * CLIENTS)))
    record_counts("serve_overload", {str(status): count for status, count in counts.items()})
    assert counts.keys() <= {200, 503, 504}
    assert counts[200]
    assert counts[503] + counts[504]
    assert ask_several(server)[0] == 200
    assert depth(server) == 0
