"""Not ready before it is warm, no more ready once it ends, and nothing lost of what it took."""

import asyncio
import contextlib
import http.client
import random
import re
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Record
from tests.forks import Fork, script
from tests.serving.audited import audited
from tests.serving.clients import GONE, Connection, request
from tests.serving.conftest import Reply, Running, encoded, serving
from vitral.serving.limits import DRAIN_SECONDS

pytestmark = pytest.mark.requirement(id="R21")
SEED = 20201022
CLIENTS = 16
SHORT_DRAINS, DRAINS = 2, 50
LATEST = 1.0  # seconds of load before the signal, at most
# The signal comes while the server is set up, when it hears signals and takes no requests yet.
EARLY = """
import signal, uvicorn
from vitral.cli.main import main

def load(config, original=uvicorn.Config.load):
    original(config)
    signal.raise_signal(signal.SIGTERM)

uvicorn.Config.load = load
raise SystemExit(main(["serve", "plain", "--port", "0", "--engine", "torch"]))
"""
LONGEST = 30.0  # seconds until the end; Kubernetes kills after them
FIRST = 2.0  # times the usual time that the first request takes at most


def load_until_gone(port: int) -> set[str]:
    """Ask on many kept connections until the server is gone; return the names of the requests that were answered."""
    answered: set[str] = set()

    async def client(number: int) -> None:
        async with Connection(port) as connection:
            for turn in range(10**6):
                name = f"drain-{number}-{turn}"
                try:
                    reply = await connection.ask(request("/v1/predict", encoded(number), X_Request_ID=name))
                except GONE:
                    if await is_gone(port):
                        return
                    continue
                assert (reply.status, reply.headers["x-request-id"]) == (200, name)
                answered.add(name)

    async def everybody() -> None:
        await asyncio.gather(*map(client, range(CLIENTS)))

    asyncio.run(everybody())
    return answered


async def is_gone(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return True
    writer.close()
    return False


def readiness(port: int) -> tuple[int, int]:
    """Return the status of readiness and of life, asked on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    statuses = []
    with contextlib.closing(connection):
        for path in ("/readyz", "/healthz"):
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
    return statuses[0], statuses[1]


def check_drain(home: Path, seconds: float) -> int:
    """End a server under load; return how many requests were answered."""
    with serving(home, "noise") as running:
        found: list[set[str]] = []
        load = threading.Thread(target=lambda: found.append(load_until_gone(running.port)))
        load.start()
        time.sleep(seconds)
        assert readiness(running.port) == (200, 200)
        told = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        while (seen := readiness(running.port)) == (200, 200):
            assert time.monotonic() - told < 0.5  # of a machine that does other things, too
        assert seen == (503, 200)
        load.join()
        done = running.process.ended(LONGEST)
        assert time.monotonic() - told < LONGEST
    assert done.returncode == 0, done.stderr
    (answered,) = found
    assert named(done.stderr) == answered
    return len(answered)


def named(log: str) -> set[str]:
    """Return the names of the requests that were taken."""
    return set(re.findall(r'"id": "(drain-[\d-]+)"', log))


def check_drains(home: Path, count: int) -> dict[str, int]:
    rng = random.Random(SEED)
    answered = [check_drain(home, rng.uniform(0.05, LATEST)) for _ in range(count)]
    assert min(answered) > 0
    return {"drains": count, "answered": sum(answered), "lost": 0, "seed": SEED}


@pytest.mark.long
def test_a_termination_under_load_loses_nothing(served_home: Path) -> None:
    check_drains(served_home, SHORT_DRAINS)


@pytest.mark.slow
def test_50_terminations_under_load_lose_nothing(served_home: Path, record_counts: Record) -> None:
    record_counts("R21-drains", check_drains(served_home, DRAINS))


def test_it_drains_before_it_would_be_killed() -> None:
    assert DRAIN_SECONDS < LONGEST


@pytest.fixture
def starting(served_home: Path) -> Iterator[Running]:
    """A server that has just been started, at a port that is known before."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = Fork(audited, ("serve", "noise", "--port", str(port), "--engine", "torch"), folder=served_home)
    yield Running(process, port)
    process.kill()


def timed(running: Running) -> tuple[float, Reply]:
    started = time.monotonic()
    reply = running.post("/v1/predict", encoded(3))
    return time.monotonic() - started, reply


@pytest.mark.long
def test_who_is_let_in_first_is_served_as_fast_as_later(starting: Running, record_counts: Record) -> None:
    early = 0
    while True:
        try:
            status = starting.get("/readyz").status
        except ConnectionError:
            early += 1
            time.sleep(0.01)
            continue
        assert status in (200, 503)
        if status == 200:
            break
    assert early > 0  # it was not let in before it was warm
    first, reply = timed(starting)
    assert reply.status == 200
    usual = statistics.median(timed(starting)[0] for _ in range(50))
    record_counts("R21-first", {"first_us": round(1e6 * first), "median_us": round(1e6 * usual)})
    assert first < FIRST * usual + 0.05  # of a machine that does other things, too


def test_a_signal_before_the_first_request_ends_it(served_home: Path) -> None:
    done = Fork(script, EARLY, folder=served_home).ended(LONGEST)
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1].startswith("Answers at")
