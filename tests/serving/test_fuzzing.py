"""Nothing that is sent comes to an error of the server's own: requests made from its description, and damaged bytes."""

import asyncio
import contextlib
import json
import random
import re
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

from tests.conftest import Record
from tests.serving.clients import request
from tests.serving.conftest import Running, encoded, form
from tests.serving.test_serve import JSON, LENGTH, b64, binary_requests, bomb, infer
from vitral.serving.ours import router

pytestmark = pytest.mark.requirement(id="R23")

SEED = 20201022
SHORT_CASES, CASES = 8, 1000  # for each operation of the description
SHORT_DAMAGED, DAMAGED = 300, 20_000  # requests
AT_ONCE = 64  # connections
LONGEST = 5.0  # seconds until an answer, or the end of a connection
INCOMPLETE = 0.5  # seconds without an answer after which the rest of a request is taken to be missing
TRACES = ("Traceback", "site-packages", ".py", "/tmp", "/home", "/work")


def description(server: Running) -> dict[str, Any]:
    """Return what /openapi.json says, with the names and versions that are there: of others every answer is a 404."""
    described: dict[str, Any] = server.get("/openapi.json").json
    models = server.get("/v1/models").json["models"]
    known = {"name": [each["name"] for each in models], "model": [each["name"] for each in models]}
    known["version"] = [each["version"] for each in models]
    for path in described["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in known:
                    parameter["schema"] = {"enum": known[parameter["name"]]}
    return described


def check_described(server: Running, cases: int) -> dict[str, int]:
    load_all_checks()
    unknowable: list[Any] = [
        CHECKS.get_one("positive_data_acceptance")
    ]  # that bytes are an image is not in a description
    counts: Counter[str] = Counter()
    schema = schemathesis.openapi.from_dict(description(server))
    phases = (Phase.explicit, Phase.generate)
    with requests.Session() as session:
        for found in schema.get_all_operations():
            assert isinstance(found, Ok), found
            operation = found.ok()

            @settings(
                max_examples=cases,
                deadline=None,
                derandomize=True,
                database=None,
                phases=phases,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def check(case: schemathesis.Case[Any]) -> None:
                reply = case.call(base_url=f"http://127.0.0.1:{server.port}", session=session, timeout=LONGEST)
                case.validate_response(reply, excluded_checks=unknowable)
                counts[str(reply.status_code)] += 1

            check()
            counts["operations"] += 1
    assert counts["operations"] >= len(router.routes)
    assert counts["200"] > counts["operations"]
    assert not counts["500"]
    return dict(counts)


@pytest.mark.long
def test_requests_made_from_the_description_get_described_answers(server: Running) -> None:
    check_described(server, SHORT_CASES)


@pytest.mark.slow
def test_a_thousand_requests_for_each_operation(server: Running, record_counts: Record) -> None:
    record_counts("R23-schema", check_described(server, CASES))


def seeds() -> list[bytes]:
    """Return a request of every form, for every route."""
    image = encoded(1)
    several, kind = form(("one.jpg", image), ("two.png", encoded(2, "PNG")))
    listed = json.dumps({"images": [b64(image), {"name": "two", "data": b64(image)}]}).encode()
    task = json.dumps({"inputs": b64(image), "parameters": {"top_k": 2, "function_to_apply": "softmax"}}).encode()
    pixels = infer(*range(12), kind="UINT8", shape=[1, 2, 2, 3])
    prepared = infer(*[0.5] * 768, kind="FP32", shape=[1, 3, 16, 16])
    ranked = infer(b64(image), outputs=[{"name": "probabilities", "parameters": {"classification": 2}}])
    binary = [
        request("/v2/models/noise/infer", about + rest, **{LENGTH: str(len(about))})
        for about, rest in binary_requests(image)
    ]
    infers = [request("/v2/models/noise/infer", each, Content_Type=JSON) for each in (pixels, prepared, ranked)]
    bytes_alone = [
        "/v1/predict?top=2",
        "/v1/features",
        "/v1/explain?layer=1&head=0",
        "/",
        "/models/plain",
        "/predictions/noise",
    ]
    looks = ["/v1/models", "/metrics", "/readyz", "/openapi.json", "/v2", "/v2/models/noise", "/v2/models/noise/ready"]
    return [
        *(request(path, image) for path in bytes_alone),
        *(request(path, method="GET") for path in looks),
        *(request(path, several, Content_Type=kind) for path in ("/v1/predict", "/v1/features")),
        request("/v1/predict", listed, Content_Type=JSON),
        request("/v1/predict", bomb()),
        request("/", task, Content_Type=JSON),
        request("/v1/explain", image, Accept="image/jpeg", X_Request_Timeout_Ms="20000"),
        *binary,
        *infers,
    ]


EXTREMES = (
    b"-1",
    b"0",
    b"1",
    b"255",
    b"2147483648",
    b"18446744073709551616",
    b"1" + b"0" * 40,
    b"NaN",
    b"1e400",
    b"1.5",
)
LENGTHS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1)


def flipped(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def removed(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + content[at + rng.randrange(1, 40) :]


def repeated(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + content[at : at + 40] * rng.randrange(2, 9) + content[at:]


def inserted(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + rng.randbytes(rng.randrange(1, 20)) + content[at:]


def renumbered(rng: random.Random, content: bytes) -> bytes:
    """Put another number in the place of one."""
    if not (found := [match.span() for match in re.finditer(rb"-?\d+(\.\d+)?", content)]):
        return content
    start, end = rng.choice(found)
    return content[:start] + rng.choice(EXTREMES) + content[end:]


def relengthened(rng: random.Random, content: bytes) -> bytes:
    """Put another length in the place of four bytes, as tensors' elements have them."""
    at = rng.randrange(max(1, len(content) - 4))
    return content[:at] + struct.pack("<I", rng.choice(LENGTHS)) + content[at + 4 :]


DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    flipped,
    removed,
    repeated,
    inserted,
    renumbered,
    renumbered,
    relengthened,
)


def damaged(rng: random.Random, valid: list[bytes]) -> bytes:
    """Return a request that is damaged in its head, its body or both, mostly with the length that it then has."""
    head, _, body = rng.choice(valid).partition(b"\r\n\r\n")
    for _ in range(rng.randrange(1, 4)):
        damage = rng.choice(DAMAGES)
        if body and rng.random() < 0.7:
            body = damage(rng, body)
        else:
            head = damage(rng, head)
    if rng.random() < 0.8:
        head = re.sub(rb"(?i)\r\ncontent-length: [^\r]*", b"\r\nContent-Length: %d" % len(body), head)
    return head + b"\r\n\r\n" + body


async def sent(port: int, content: bytes) -> bytes:
    """Send bytes, and return what comes back; a connection that waits for more is ended from here."""
    async with asyncio.timeout(4 * LONGEST):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        got = b""
        try:
            writer.write(content)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INCOMPLETE):
                    while part := await reader.read(1 << 16):
                        got += part
            writer.write_eof()
            async with asyncio.timeout(LONGEST):
                while part := await reader.read(1 << 16):
                    got += part
        except ConnectionError:  # it was closed while more was sent
            pass
        finally:
            writer.close()
        return got


def check_damaged(server: Running, home: Path, count: int) -> dict[str, int]:
    rng, valid = random.Random(SEED), seeds()
    counts: Counter[str] = Counter()
    before = len(server.log())
    unhurt = server.post("/v1/predict", encoded(7)).json["predictions"]

    async def one(free: asyncio.Semaphore, content: bytes) -> None:
        async with free:
            got = await sent(server.port, content)
        counts[got[9:12].decode() or "none"] += 1
        told = got.decode("latin-1")
        assert not [trace for trace in (*TRACES, str(home)) if trace in told], content
        assert not got.startswith(b"HTTP/1.1 500"), content

    async def everybody() -> None:
        free = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(one(free, damaged(rng, valid)))

    asyncio.run(everybody())
    assert server.post("/v1/predict", encoded(7)).json["predictions"] == unhurt
    lines = server.log()[before:]
    assert not [line for line in lines if line.get("status") == 500]
    assert max(line.get("ms", 0) for line in lines) < 1000 * LONGEST
    assert server.figures()["vitral_queue_depth"] == 0
    return {**counts, "seed": SEED}


def test_damaged_requests_come_to_no_error_of_the_server(server: Running, served_home: Path) -> None:
    counts = check_damaged(server, served_home, SHORT_DAMAGED)
    assert counts["200"] > 0
    assert counts["400"] > 0


@pytest.mark.slow
def test_twenty_thousand_damaged_requests(server: Running, served_home: Path, record_counts: Record) -> None:
    record_counts("R23-bytes", check_damaged(server, served_home, DAMAGED))
