"""What is too much, too slow or no image has a status and a line, and leaves the next answer as it would be."""

import asyncio
import contextlib
import io
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import vitral
from tests.conftest import Record
from tests.serving.clients import Connection, percentile, request
from tests.serving.conftest import Reply, Running, encoded, serving
from tests.serving.impatient import SECONDS as SHORT_SECONDS
from tests.serving.impatient import impatient
from tests.serving.test_serve import JSON, bomb
from vitral.events import ignore
from vitral.serving.limits import BODY_SECONDS, HEADER_SECONDS, LARGEST_BODY

pytestmark = pytest.mark.requirement(id="R20")
CHUNK = 1 << 20
KINDS = 4  # of slow clients
HEALTHY = 1.0  # seconds in which 99 of 100 signs of life come
LOOK = 0.05  # seconds between two looks


def zeros(side: int) -> bytes:
    """Return a real PNG of so many pixels a side, in a few kilobytes."""
    held = io.BytesIO()
    Image.new("1", (side, side)).save(held, "PNG")
    return held.getvalue()


def refusals() -> list[tuple[bytes, int]]:
    """Return requests that get no answer, and their statuses."""
    image = encoded(1)
    bodies = [
        (b"", 400),
        (b"hello, I am no photo", 415),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415),
        (b"%PDF-1.4", 415),
        (image[: len(image) // 2], 422),
        (encoded(1, "PNG")[:500], 422),
        (bomb(), 413),
        (zeros(8000), 413),
    ]
    return [
        *((request("/v1/predict", body, Content_Type="image/jpeg"), status) for body, status in bodies),
        (request("/v1/predict", b"\x1f\x8b" + bytes(100), Content_Encoding="gzip"), 415),
        (request("/v1/predict", image, Content_Encoding="br"), 415),
        (request("/v1/predict", b"[" * 9000, Content_Type=JSON), 400),
        (request("/v1/predict", image, Content_Type=JSON), 400),
        (request("/v1/predict", image, Content_Type="multipart/form-data"), 400),
        (request("/v1/predict", image, X_Request_Timeout_Ms="soon"), 400),
        (request("/v1/predict?model=none", image), 404),
        (request("/v1/predict?top=-1", image), 422),
        (request("/nowhere", image), 404),
        (request("/v1/predict/", image), 404),  # no redirection to an address that the client's headers name
        (request("/v1/predict", method="DELETE"), 405),
        (request("/models/%2e%2e%2fetc", image), 404),
    ]


def check_refusal(reply: Reply, status: int) -> None:
    assert reply.status == status, reply.body
    assert {"error", "code"} <= reply.json.keys()
    assert (status == 405) is ("allow" in reply.headers)
    assert "\n" not in reply.json["error"]


def test_the_next_answer_on_the_connection_is_what_it_would_be(server: Running, served_home: Path) -> None:
    classifier = vitral.load(served_home / "noise", listener=ignore)

    async def everything() -> None:
        async with Connection(server.port) as connection:
            for number, (content, status) in enumerate(refusals()):
                check_refusal(await connection.ask(content), status)
                (expected,) = classifier.predict(encoded(number), top=3)
                reply = await connection.ask(request("/v1/predict?top=3", encoded(number)))
                top = {row["label"]: row["probability"] for row in reply.json["predictions"][0]["top"]}
                assert top == pytest.approx(dict(expected.top), abs=1e-4)

    asyncio.run(everything())
    assert server.figures()["vitral_queue_depth"] == 0


def test_a_body_without_an_end_is_refused_at_the_limit(server: Running) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError, TimeoutError):
            while sent < 10 * LARGEST_BODY:
                connection.sendall(b"%x\r\n" % CHUNK + bytes(CHUNK) + b"\r\n")
                sent += CHUNK
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    if answer := connection.recv(12, socket.MSG_PEEK):
                        break
                connection.settimeout(10)
        connection.settimeout(10)
        answer = connection.recv(12)
    assert answer == b"HTTP/1.1 413"
    assert sent < 2 * LARGEST_BODY


async def crawl(port: int, kind: int, until: float, counts: Counter[str]) -> None:
    """Be slow clients, one after the other: in headers, in a body, with nothing at all, or after an answer."""
    image = encoded(1)
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        whole = (request("/v1/predict", image), request("/v1/predict", image), b"", request("/healthz", method="GET"))[
            kind
        ]
        begun = (20, len(whole) - 1000, 0, len(whole))[kind]
        try:
            writer.write(whole[:begun])
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + until - time.monotonic()):
                for number in range(begun, len(whole) - 1):
                    if reader.at_eof() or reader._buffer:  # type: ignore[attr-defined]  # it has been answered
                        break
                    writer.write(whole[number : number + 1])
                    await asyncio.sleep(1)
                answer = await reader.read()
                refused = answer.startswith(b"HTTP/1.1 408")
                counts[json.loads(answer.partition(b"\r\n\r\n")[2])["code"] if refused else "closed"] += 1
        except TimeoutError:
            counts["held to the end"] += 1
        except ConnectionError:
            counts["closed"] += 1
        finally:
            writer.close()


async def look(port: int, until: float) -> list[float]:
    """Ask for signs of life, and for an answer now and then; return the seconds that each took."""
    seconds: list[float] = []
    async with Connection(port) as connection:
        while time.monotonic() < until:
            path, body = (("/healthz", b""), ("/v1/predict", encoded(7)))[len(seconds) % 5 == 4]
            started = time.monotonic()
            reply = await connection.ask(request(path, body, "POST" if body else "GET"))
            seconds.append(time.monotonic() - started)
            assert reply.status == 200
            await asyncio.sleep(LOOK)
    return seconds


def check_slow_clients(running: Running, clients: int, seconds: float) -> dict[str, int]:
    counts: Counter[str] = Counter()
    before, until = running.descriptors(), time.monotonic() + seconds

    async def everybody() -> list[float]:
        slow = [asyncio.create_task(crawl(running.port, number % KINDS, until, counts)) for number in range(clients)]
        taken = await look(running.port, until)
        await asyncio.gather(*slow)
        return taken

    taken = asyncio.run(everybody())
    assert percentile(taken, 0.99) < HEALTHY
    assert min(counts["slow_headers"], counts["slow_body"]) >= clients // KINDS
    settle(running, before)
    return {**counts, "clients": clients, "p99_ms": round(1000 * percentile(taken, 0.99))}


def settle(running: Running, descriptors: int) -> None:
    """Wait until the server has let go of its connections."""
    for _ in range(100):
        if running.descriptors() <= descriptors:
            return
        time.sleep(0.1)
    pytest.fail(f"{running.descriptors()} descriptors, {descriptors} before")


@pytest.fixture
def hurried(served_home: Path) -> Iterator[Running]:
    """A server that waits for a body and for headers a short time alone."""
    with serving(served_home, "noise", target=impatient) as running:
        yield running


@pytest.mark.long
def test_slow_clients_are_sent_away_and_the_rest_hear_at_once(hurried: Running) -> None:
    check_slow_clients(hurried, 200, 3 * SHORT_SECONDS)


@pytest.mark.slow
def test_500_slow_clients_for_a_minute(served_home: Path, record_counts: Record) -> None:
    with serving(served_home, "noise") as running:
        assert max(BODY_SECONDS, HEADER_SECONDS) < 60
        record_counts("R20", check_slow_clients(running, 500, 60))
