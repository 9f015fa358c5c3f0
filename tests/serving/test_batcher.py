"""Batches form while the engine is busy, and nothing is computed that nobody waits for."""

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from vitral.serving.batcher import Batcher, Computed, Lane, Waiting
from vitral.serving.refusals import RequestRefused

SOON = 60.0


class Held:
    """Computes when it is let; notes the batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.let = threading.Event(), threading.Event()

    def __call__(self, items: list[int]) -> list[int]:
        self.batches.append(items)
        self.begun.set()
        assert self.let.wait(SOON)
        return [10 * item for item in items]


@pytest.fixture
def heard() -> list[Computed]:
    return []


@pytest.fixture
def batcher(heard: list[Computed]) -> Iterator[Batcher]:
    made = Batcher(1, heard.append)
    yield made
    made.end()


def waiting(item: int, seconds: float = SOON) -> Waiting:
    return Waiting(item, time.monotonic() + seconds)


def test_what_waits_while_the_engine_is_busy_is_the_next_batch(batcher: Batcher, heard: list[Computed]) -> None:
    held = Held()
    lane = Lane(held)
    lane.most = 4
    several = [waiting(item) for item in range(7)]
    batcher.put(lane, several[0])
    assert held.begun.wait(SOON)  # a lone one is not kept waiting
    for one in several[1:]:
        batcher.put(lane, one)
    held.let.set()
    assert [one.answer.result(SOON) for one in several] == [10 * item for item in range(7)]
    assert held.batches == [[0], [1, 2, 3, 4], [5, 6]]
    assert sum(len(batch.waited) for batch in heard) == 7
    assert lane.seconds > 0


def test_who_left_and_whose_time_is_over_takes_no_place(batcher: Batcher) -> None:
    held = Held()
    lane = Lane(held)
    lane.most = 8
    first, left, late, last = waiting(0), waiting(1), waiting(2, 0.01), waiting(3)
    batcher.put(lane, first)
    assert held.begun.wait(SOON)
    for one in (left, late, last):
        batcher.put(lane, one)
    assert left.answer.cancel()
    time.sleep(0.02)
    held.let.set()
    assert last.answer.result(SOON) == 30
    assert held.batches == [[0], [3]]
    with pytest.raises(RequestRefused) as refusal:
        late.answer.result(SOON)
    assert refusal.value.status == 504


def test_lanes_take_turns_and_an_error_is_told_to_its_own_batch(batcher: Batcher) -> None:
    held = Held()
    lane, broken = Lane(held), Lane(lambda items: [1 // 0 for _ in items])
    one, two, three = waiting(1), waiting(2), waiting(3)
    batcher.put(lane, one)
    assert held.begun.wait(SOON)
    batcher.put(broken, two)
    batcher.put(lane, three)
    held.let.set()
    with pytest.raises(ZeroDivisionError):
        two.answer.result(SOON)
    assert three.answer.result(SOON) == 30
    ending = waiting(5)
    batcher.put(Lane(lambda _: sys.exit(1)), ending)  # which would end a thread that only minds exceptions
    with pytest.raises(SystemExit):
        ending.answer.result(SOON)
    short = waiting(4)
    batcher.put(Lane(lambda _: []), short)  # which forgets an answer
    with pytest.raises(ValueError, match="shorter"):
        short.answer.result(SOON)
    assert batcher.call(lambda: 5, time.monotonic() + SOON).result(SOON) == 5
