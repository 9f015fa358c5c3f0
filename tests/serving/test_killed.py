"""A server that is killed under load is back in seconds where something starts it again, and no client waits for nothing."""

import asyncio
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from tests.conftest import Record
from tests.forks import Fork
from tests.serving.audited import audited
from tests.serving.clients import GONE, Connection
from tests.serving.conftest import UNHURRIED
from tests.serving.questions import Question, questions_of

pytestmark = pytest.mark.requirement(id="R22")
SEED = 20201022
CLIENTS = 8
KILLS = 20
BACK = 10.0  # seconds until the next answer
AGAIN = 0.05  # seconds after which a client that got none asks again
BUSY = (502, 503, 504)


class Process(Protocol):
    """A server that can be killed."""

    def kill(self) -> None:
        """End it at once (SIGKILL)."""


class Typed(subprocess.Popen[bytes]):
    """A server that is started as a user does, with the seconds of importing."""

    def kill(self) -> None:
        super().kill()
        self.wait()


class Killed:
    """Clients of a server that is killed and started again.

    Args:
        start: Starts it.
        questions: What the clients ask.
    """

    def __init__(self, start: Callable[[], Process], questions: list[Question], port: int) -> None:
        self.start, self.questions, self.port = start, questions, port
        self.rng, self.counts = random.Random(SEED), Counter[str]()
        self.answered = 0.0  # when the last answer came
        self.ended = False

    async def client(self, number: int) -> None:
        async with Connection(self.port) as connection:
            while not self.ended:
                self.counts["asked"] += 1
                question, name = self.rng.choice(self.questions), f"{number}-{self.counts['asked']}"
                try:
                    reply = await connection.ask(question.content(name))
                except GONE:
                    self.counts["refused"] += 1
                    await asyncio.sleep(AGAIN)
                    continue
                if reply.status in BUSY:
                    self.counts["busy"] += 1
                    continue
                question.check(reply, name)
                self.counts["answered"] += 1
                self.answered = time.monotonic()

    async def killing(self, kills: int) -> list[float]:
        """Kill it under load again and again; return the seconds until it was back each time."""
        process, taken = self.start(), []
        try:
            await self.back(time.monotonic())
            for _ in range(kills):
                await asyncio.sleep(self.rng.uniform(0.1, 0.5))
                process.kill()
                killed = time.monotonic()
                await asyncio.sleep(AGAIN)  # in which it is gone
                process = self.start()
                taken.append(await self.back(killed + AGAIN) + AGAIN)
        finally:
            self.ended = True
            process.kill()
        return taken

    async def back(self, since: float) -> float:
        """Return the seconds until an answer came."""
        while self.answered <= since:
            assert time.monotonic() - since < 12 * BACK
            await asyncio.sleep(0.01)
        return self.answered - since

    async def run(self, kills: int) -> list[float]:
        *_, taken = await asyncio.gather(*map(self.client, range(CLIENTS)), self.killing(kills))
        assert isinstance(taken, list)
        return taken


def check_kills(home: Path, start: Callable[[Path, int], Process], kills: int) -> dict[str, int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    killed = Killed(partial(start, home, port), questions_of(home), port)
    taken = asyncio.run(killed.run(kills))
    assert len(taken) == kills
    assert killed.counts["answered"] > kills
    return {"kills": kills, "longest_ms": round(1000 * max(taken)), **killed.counts, "seed": SEED}


def words(port: int) -> tuple[str, ...]:
    return ("serve", "noise", "--port", str(port), "--engine", "torch", *UNHURRIED)


def forked(home: Path, port: int) -> Process:
    return Fork(audited, words(port), folder=home)


def typed(home: Path, port: int) -> Process:
    return Typed(
        [sys.executable, "-m", "vitral", *words(port)], cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.mark.long
def test_killed_under_load_it_is_back_and_its_answers_are_right(served_home: Path) -> None:
    check_kills(served_home, forked, 1)


@pytest.mark.slow
def test_20_kills_under_load(served_home: Path, record_counts: Record) -> None:
    counts = check_kills(served_home, typed, KILLS)
    record_counts("R22-kills", counts)
    assert counts["longest_ms"] < 1000 * BACK
