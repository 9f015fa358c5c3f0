"""Many clients at once: everybody gets their own answer, who leaves costs nothing, and what is too much is refused at once."""

import asyncio
import contextlib
import itertools
import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import vitral
from tests.conftest import Record
from tests.serving.clients import Arrival, Connection, arrive, keep_asking, percentile, request
from tests.serving.conftest import UNHURRIED, Running, encoded, serving
from tests.serving.questions import Question, questions_of
from tests.serving.test_limits import settle
from vitral.classifier.folder import save
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig

SEED = 20201022
SECONDS = float(os.environ.get("VITRAL_SOAK_SECONDS", "600"))  # of a soak; a release's takes seven hours, 25200
SHORT_SECONDS = 4.0
CLIENTS = 64
GROWTH = 100 << 20  # bytes of memory, Triton's bound
ANSWERS = 50_000 / 600  # a second at least, of a soak
WARM_SHARE = 0.2  # of a soak, after which memory is taken as warm


@pytest.fixture(scope="module")
def questions(served_home: Path) -> list[Question]:
    return questions_of(served_home)


def check_answers(
    server: Running, questions: list[Question], seconds: float, *, clients: int = CLIENTS, exactly: bool = False
) -> dict[str, int]:
    """Let every client compare every answer; return the counts."""
    taken: list[float] = []
    names = itertools.count()
    rng = random.Random(SEED)

    async def turn(client: int, connection: Connection) -> None:
        question, name = rng.choice(questions), f"{client}-{next(names)}"
        started = time.monotonic()
        question.check(await connection.ask(question.content(name)), name, exactly=exactly)
        taken.append(time.monotonic() - started)

    keep_asking(server.port, clients, WARM_SHARE * seconds, turn)
    warm = server.resident()
    keep_asking(server.port, clients, (1 - WARM_SHARE) * seconds, turn)
    growth = server.resident() - warm
    assert growth < GROWTH
    assert server.figures()["vitral_queue_depth"] == 0
    assert len(taken) == next(names)  # none is lost
    p99 = round(1000 * percentile(taken, 0.99))
    return {"clients": clients, "answers": len(taken), "p99_ms": p99, "growth_bytes": growth, "seed": SEED}


@pytest.mark.long
@pytest.mark.requirement(id="R18")
def test_every_client_gets_its_own_answer(server: Running, questions: list[Question]) -> None:
    assert check_answers(server, questions, SHORT_SECONDS, clients=16)["answers"] > 16


@pytest.mark.slow
@pytest.mark.requirement(id="R18")
def test_64_clients_get_their_own_answers(server: Running, questions: list[Question], record_counts: Record) -> None:
    counts = check_answers(server, questions, SECONDS)
    record_counts("R18", counts)
    assert counts["answers"] >= ANSWERS * SECONDS


@pytest.mark.slow
@pytest.mark.requirement(id="R18")
def test_64_clients_get_the_bits_of_predict(
    served_home: Path, questions: list[Question], record_counts: Record
) -> None:
    with serving(served_home, "noise", "--deterministic", *UNHURRIED) as running:
        record_counts("R18-bits", check_answers(running, questions, SECONDS / 10, exactly=True))


LEAVING = 0.3  # of the requests are cut somewhere
SHORT_REQUESTS, REQUESTS = 1000, 10_000


def check_aborts(server: Running, questions: list[Question], count: int) -> dict[str, int]:
    """Cut many requests somewhere, some of them only after their end; return the counts."""
    rng, counts = random.Random(SEED), Counter[str]()

    async def client(number: int, turns: int) -> None:
        async with Connection(server.port) as connection:
            for turn in range(turns):
                question, name = rng.choice(questions), f"{number}-{turn}"
                if rng.random() < LEAVING:
                    at = min(1.0, rng.uniform(0, 1.2))
                    await connection.cut(question.content(name), at, reset=rng.random() < 0.5)
                    counts["cut"] += 1
                else:
                    question.check(await connection.ask(question.content(name)), name)
                    counts["answered"] += 1

    async def everybody() -> None:
        await asyncio.gather(*(client(number, count // CLIENTS) for number in range(CLIENTS)))

    asyncio.run(everybody())  # what it needs for so many connections is taken by now
    before = server.resident()
    asyncio.run(everybody())
    return {**counts, "growth_bytes": server.resident() - before, "seed": SEED}


def check_nothing_is_left(server: Running, descriptors: int, counts: dict[str, int]) -> None:
    settle(server, descriptors)
    assert server.figures()["vitral_queue_depth"] == 0
    assert counts["growth_bytes"] < GROWTH
    assert counts["cut"] > 0.8 * LEAVING * (counts["cut"] + counts["answered"])


@pytest.mark.long
@pytest.mark.requirement(id="R22")
def test_who_leaves_leaves_nothing(server: Running, questions: list[Question]) -> None:
    descriptors = server.descriptors()
    check_nothing_is_left(server, descriptors, check_aborts(server, questions, SHORT_REQUESTS // 2))


@pytest.mark.slow
@pytest.mark.requirement(id="R22")
def test_10000_requests_of_which_a_third_is_cut(
    server: Running, questions: list[Question], record_counts: Record
) -> None:
    descriptors = server.descriptors()
    counts = check_aborts(server, questions, REQUESTS // 2)
    check_nothing_is_left(server, descriptors, counts)
    record_counts("R22", counts)


# An engine that one core is busy with at some fifty images a second: HTTP itself costs little beside it.
SLOW = ViTConfig(image_size=(96, 96), patch_size=(8, 8), dim=192, depth=6, mlp_dim=768, num_heads=3, num_classes=3)
OVERLOAD = 5.0  # times the capacity
DEADLINE = 40.0  # times the usual time, the client's own
GOODPUT = 0.9  # of the capacity
RECOVERY = 5.0  # seconds
LOOK = 0.2  # seconds between two looks at the queue
USUAL = 2.0  # times the usual time, as which an answer counts as in time again
LATE = 0.02  # of the answers that may be too late, for the slack of a busy machine
ANSWERING = 16  # clients that keep the engine busy


@pytest.fixture(scope="module")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of a network that takes its time."""
    home = tmp_path_factory.mktemp("slow")
    save(vitral.Classifier(build(SLOW, seed=0), PHOTOS.with_size(96), ("a", "b", "c")), home / "slow")
    with serving(home, "slow", *UNHURRIED) as running:
        yield running


def photos(**headers: str) -> list[bytes]:
    return [request("/v1/predict", encoded(seed, side=90), **headers) for seed in range(8)]


def capacity(server: Running, seconds: float) -> float:
    """Return the answers a second of clients that wait for theirs before they ask again."""
    contents, counts = photos(), Counter[int]()

    async def turn(client: int, connection: Connection) -> None:
        counts[(await connection.ask(contents[client % len(contents)])).status] += 1

    started = time.monotonic()
    keep_asking(server.port, ANSWERING, seconds, turn)
    assert counts.keys() == {200}
    return counts[200] / (time.monotonic() - started)


def alone(server: Running) -> float:
    """Return the seconds that a lone request takes."""
    started = time.monotonic()
    assert server.post("/v1/predict", encoded(1, side=90)).status == 200
    return time.monotonic() - started


@contextlib.contextmanager
def depths(server: Running) -> Iterator[list[float]]:
    """Note how many images wait, again and again, and that they are never more than may."""
    noted: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK):
            figures = server.figures()
            noted.append(figures["vitral_queue_depth"])
            assert noted[-1] <= figures["vitral_queue_limit"]

    with ThreadPoolExecutor(1) as watcher:
        watching = watcher.submit(watch)
        try:
            yield noted
        finally:
            ended.set()
        watching.result()


def check_overload(server: Running, seconds: float, slack: float) -> dict[str, int]:
    """Send too much and return the counts; slack is 1, or more on a machine that does other things, too."""
    usual = statistics.median(alone(server) for _ in range(9))
    peak = capacity(server, seconds / 4)
    deadline = DEADLINE * usual
    own = photos(X_Request_Timeout_Ms=str(round(1000 * deadline)))
    with depths(server) as waiting:
        arrivals = arrive(server.port, OVERLOAD * peak, seconds, own)
    ended = time.monotonic()
    while alone(server) > USUAL * slack * usual:
        assert time.monotonic() - ended < RECOVERY
    statuses = Counter(each.reply.status for each in arrivals)
    answered = [each.seconds for each in arrivals if each.reply.status == 200]
    good = sum(each.reply.status == 200 and each.due + each.seconds <= seconds for each in arrivals) / seconds
    assert statuses[504] <= LATE * (slack - 1) * len(answered)
    assert statuses.keys() - {504} == {200, 503}
    check_refusals(arrivals, deadline)
    figures = server.figures()
    assert figures["vitral_queue_depth"] == 0
    assert good >= GOODPUT / slack * peak
    assert percentile(answered, 0.99) <= deadline + 2 * slack * usual
    return {
        "peak": round(peak),
        "offered": round(OVERLOAD * peak),
        "good": round(good),
        "p99_ms": round(1000 * percentile(answered, 0.99)),
        "usual_ms": round(1000 * usual),
        "most_waiting": round(max(waiting)),
        **{str(status): count for status, count in statuses.items()},
    }


def check_refusals(arrivals: list[Arrival], deadline: float) -> None:
    """Check that those who are refused hear at once, and when to come again."""
    refused = [each for each in arrivals if each.reply.status == 503]
    assert all(1 <= int(each.reply.headers["retry-after"]) <= 60 for each in refused)
    assert percentile([each.seconds for each in refused], 0.5) < deadline / 2


@pytest.mark.long
@pytest.mark.requirement(id="R19")
def test_what_is_too_much_is_refused_and_the_rest_is_in_time(slow_server: Running) -> None:
    check_overload(slow_server, SHORT_SECONDS, slack=4.0)


@pytest.mark.slow
@pytest.mark.requirement(id="R19")
def test_two_minutes_of_five_times_too_much(slow_server: Running, record_counts: Record) -> None:
    record_counts("R19", check_overload(slow_server, 120.0, slack=1.0))


LOAD = 0.7  # of the capacity
DRIFT = 0.03  # of the throughput, from the first third of a soak to the last


def check_soak(server: Running, seconds: float) -> dict[str, int]:
    peak = capacity(server, min(20.0, seconds / 10))
    before = server.resident()
    arrivals = arrive(server.port, LOAD * peak, seconds, photos())
    growth = server.resident() - before
    assert {each.reply.status for each in arrivals} == {200}
    assert growth < GROWTH
    first, last = (
        sum(begin <= each.due + each.seconds < begin + seconds / 3 for each in arrivals)
        for begin in (0, 2 * seconds / 3)
    )
    assert abs(last / first - 1) < DRIFT
    p99 = round(1000 * percentile([each.seconds for each in arrivals], 0.99))
    return {"seconds": round(seconds), "answers": len(arrivals), "errors": 0, "p99_ms": p99, "growth_bytes": growth}


@pytest.mark.slow
@pytest.mark.requirement(id="R25")
def test_a_soak_at_seven_tenths_of_the_capacity(slow_server: Running, record_counts: Record) -> None:
    record_counts("R25", check_soak(slow_server, SECONDS))
