"""A server that answers what no Hub does: one line each, in bounded time, bytes and memory."""

import json
import resource
import socketserver
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _detect_agent
from huggingface_hub.utils._http import default_client_factory, get_session, set_client_factory

import vitral
from tests.cases import every_case
from tests.http_servers import in_thread
from tests.weights.hostile_server import ENDLESS, HUBS, Answer, Server, head, head_drop_by_drop, later, saying
from vitral import transfers
from vitral.errors import VitralError, WeightsError
from vitral.events import ignore
from vitral.weights import download, hub
from vitral.weights.named.fetch import fetch
from vitral.weights.named.table import PublishedWeights


@contextmanager
def serving(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with in_thread(Server(answer)) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", address)
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        try:
            yield server
        finally:
            set_client_factory(default_client_factory)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Bounds of a test's length, and caches of its own."""
    monkeypatch.setattr(transfers, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(transfers, "WINDOW_SECONDS", 0.3)
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.mark.parametrize("name", HUBS)
@pytest.mark.parametrize("asked", ["weights", "push"])
def test_what_no_hub_answers_is_one_line_in_time(
    name: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    (tmp_path / "mine").mkdir()
    asks: dict[str, Callable[[], object]] = {
        "weights": lambda: hub.download("hf:me/x"),
        "push": lambda: hub.upload(tmp_path / "mine", "me/x"),
    }
    with serving(HUBS[name], monkeypatch) as server, pytest.raises(WeightsError, match="'me/x'") as refused:
        asks[asked]()
    assert "\n" not in str(refused.value)
    assert time.monotonic() - began < 20
    assert server.sent < ENDLESS
    assert server.requests < 10
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < 400  # MiB


ROW = PublishedWeights("vit-mu16@plain", "x", "Apache-2.0", "original", "ViT.npz", 1, "x", address="https://later/")


def file_of(size: int, *, measured: bool) -> Answer:
    def answer(handler: socketserver.StreamRequestHandler, method: str) -> None:
        head(handler, *([f"Content-Length: {size}"] if measured else []))
        while handler.server.sent < min(size, ENDLESS):  # type: ignore[attr-defined]
            handler.wfile.write(bytes(1 << 16))
            handler.server.sent += 1 << 16  # type: ignore[attr-defined]

    return answer


def byte_by_byte(handler: socketserver.StreamRequestHandler, method: str) -> None:
    head(handler, "Content-Length: 1000000")
    for _ in range(1000):
        handler.wfile.write(b"x")
        time.sleep(0.1)


@every_case(
    "answer",
    (
        file_of(1 << 40, measured=True),
        file_of(1 << 40, measured=False),
        byte_by_byte,
        head_drop_by_drop,
        later("Retry-After: 3600"),
    ),
    ids=("terabyte", "without end", "byte by byte", "a head drop by drop", "an hour"),
)
def test_a_file_is_never_longer_than_its_row_says_and_never_endless(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    monkeypatch.setattr(download, "TRIES", 2)
    with serving(answer, monkeypatch) as server, pytest.raises(VitralError) as refused:
        fetch(replace(ROW, address=f"{constants.ENDPOINT}/"), ignore)
    assert "\n" not in str(refused.value)
    assert time.monotonic() - began < 30
    assert server.sent < ENDLESS // 2  # what the sockets' buffers hold is sent, though nobody reads it
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 4 << 20


def test_a_slow_file_of_unknown_length_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "WINDOW_SECONDS", 1.0)
    monkeypatch.setattr(transfers, "WINDOW_BYTES", 300)

    def slowly(handler: socketserver.StreamRequestHandler, method: str) -> None:
        head(handler)
        for _ in range(6):
            handler.wfile.write(bytes(1000))
            time.sleep(0.15)  # longer in all than an answer that is no file may take

    with serving(slowly, monkeypatch):
        transfers.bound_requests()
        with get_session().stream("GET", f"{constants.ENDPOINT}/me/x/resolve/main/a.zip") as response:
            assert sum(map(len, response.iter_bytes())) == 6_000


@every_case("name", ("me/..", "..", "hf:me/..", "me/.", "a/b/c", "me/x y"))
def test_nothing_is_written_under_a_name_that_no_repository_has(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = vitral.convert("vit-mu16", tmp_path / "net", format="vitral").path
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(WeightsError, match="Hub"):
        vitral.push(classifier, name)
    assert {path.name for path in tmp_path.iterdir()} == {"net", "temporary"}
    assert list((tmp_path / "temporary").iterdir()) == []


def test_the_client_of_other_programs_stays_their_own() -> None:
    made = []

    def theirs() -> object:
        made.append(default_client_factory())
        return made[-1]

    set_client_factory(theirs)  # type: ignore[arg-type]
    try:
        transfers.bound_requests()
        transfers.bound_requests()
        assert get_session() is made[0]
        assert len(get_session().event_hooks["response"]) == 1
    finally:
        set_client_factory(default_client_factory)


def test_json_is_read_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "ANSWER_SECONDS", 30.0)  # an honest server may be slow on a busy machine
    body = json.dumps({"id": "me/x", "siblings": [{"rfilename": "notes.txt"}]}).encode()
    with serving(saying(body), monkeypatch), pytest.raises(WeightsError, match="no classifier.json"):
        hub.download("hf:me/x")


def test_what_one_server_answers_is_not_held_against_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_detect_agent, "_registry", None)
    monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "harnesses.json"))
    with serving(saying(b"7"), monkeypatch), pytest.raises(WeightsError, match="'me/x'"):
        hub.download("hf:me/x")
    test_json_is_read_as_before(monkeypatch)
