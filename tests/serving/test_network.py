"""A server is reached from this machine alone, calls nobody, and says how it is in figures that the documentation names."""

import json
import re
import socket
from pathlib import Path

import pytest

from tests.forks import Fork
from tests.serving.audited import note
from tests.serving.conftest import Running, encoded
from tests.serving.test_serve import JSON

pytestmark = pytest.mark.requirement(id="R24")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"
LOOPBACK = "0100007F"  # 127.0.0.1, as Linux lists sockets
LISTENS = "0A"


def listening(port: int) -> list[str]:
    """Return the addresses at which a port is listened at, as Linux lists them."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    places = [row[1].partition(":") for row in rows if row[3] == LISTENS]
    return [address for address, _, number in places if int(number, 16) == port]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux lists sockets so")
def test_only_this_machine_reaches_it(server: Running) -> None:
    assert listening(server.port) == [LOOPBACK]


def test_a_server_calls_nobody_whatever_it_is_asked(server: Running) -> None:
    address = "http://127.0.0.1:9/cat.jpg"
    for path in ("/v1/predict", "/v1/features", "/v1/explain", "/"):
        assert server.post(path, encoded(1)).status == 200
        assert server.post(f"{path}?url={address}&image={address}", address.encode()).status == 415
    for listed in ({"images": [address]}, {"images": [{"name": "x", "url": address}]}, {"url": address}):
        assert server.post("/v1/predict", json.dumps(listed).encode(), JSON).status == 400
    assert server.post("/", json.dumps({"inputs": address}).encode(), JSON).status == 400
    server.get("/metrics")
    assert not server.calls()


def call_out() -> int:
    """Be a process that calls."""
    import sys

    sys.addaudithook(note)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.connect(("127.0.0.1", 9))
    return 0


def test_the_watch_sees_who_calls() -> None:
    assert '"calls": "socket.connect"' in Fork(call_out).ended().stderr


def test_the_figures_are_those_that_the_page_names(server: Running) -> None:
    documented = set(re.findall(r"`(vitral_\w+)`", PAGE.read_text()))
    figures = server.figures()
    names = {name.partition("{")[0] for name in figures}
    assert len(documented) >= 5
    assert documented <= names
    for histogram in ("request_seconds", "queue_seconds", "decode_seconds", "inference_seconds", "batch_size"):
        assert f"vitral_{histogram}_bucket" in names
    assert any(re.fullmatch(r'vitral_requests_total{code="200",route="[^"]+"}', name) for name in figures)
