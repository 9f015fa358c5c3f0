"""Whether there is a network is known soon, and asked for once."""

import threading
from collections.abc import Iterator

import pytest
from huggingface_hub import constants

from tests.weights.hub_server import HubServer, hub
from vitral.weights.named import table
from vitral.weights.named.table import PublishedWeights, answering, host, may_fetch, without_network


def row(address: str) -> PublishedWeights:
    return PublishedWeights("vit-b16@x", "x", "Apache-2.0", "original", "x.npz", 1, "x", address=address)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with hub() as running:
        yield running


def test_a_server_that_answers_anything_is_there_and_others_are_not(server: HubServer) -> None:
    here, nowhere = row(f"{server.address}/nothing/"), row("http://localhost:9/")
    unknown = row("https://there-is-no-such-host.invalid/")
    assert answering([here, here, nowhere, unknown]) == {host(here)} == {"127.0.0.1"}
    assert server.unknown == ["HEAD /nothing/x.npz"]
    assert answering([]) == frozenset()


def test_the_hub_is_asked_at_its_mirror(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", server.address)
    on_hub = PublishedWeights("vit-b16@x", "x", "Apache-2.0", "timm", "x", 1, "x", repository="lab/x")
    assert answering([on_hub]) == {"127.0.0.1"}


def test_a_name_that_is_looked_up_forever_is_not_waited_for(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    release, slow = threading.Event(), table._ask

    def hang(name: str, address: str, answered: set[str]) -> None:
        release.wait()
        slow(name, address, answered)

    monkeypatch.setattr(table, "_ask", hang)
    monkeypatch.setattr(table, "ANSWER_SECONDS", 0.05)
    try:
        assert answering([row(f"{server.address}/")]) == frozenset()
    finally:
        release.set()


def test_without_a_network_nothing_may_be_fetched_and_afterwards_again(server: HubServer) -> None:
    with without_network(False):
        assert may_fetch()
    with without_network(True):
        assert not may_fetch()
        assert answering([row(f"{server.address}/")]) == frozenset()
    assert may_fetch()
    assert server.unknown == []


def test_a_block_that_forbids_nothing_changes_nothing_beside_one_that_does(server: HubServer) -> None:
    with without_network(True):
        inner = without_network(False)
        inner.__enter__()
        with without_network(True):
            assert not may_fetch()
        assert not may_fetch()
    inner.__exit__(None, None, None)  # as in another thread that ends later
    assert may_fetch()
