"""Small work on many items, by several threads."""

import threading
import time

import pytest

from tests.cases import every_case
from vitral.machine import AT_ONCE, WORTHWHILE_SECONDS, in_threads

QUICK, SLOW = 0.0, 2 * WORTHWHILE_SECONDS
both = pytest.mark.parametrize("seconds", [QUICK, SLOW], ids=["quick", "slow"])


@both
@every_case("count", [0, 1, AT_ONCE, AT_ONCE + 1, 7 * AT_ONCE - 3])
def test_results_come_in_order_one_for_each_item(count: int, seconds: float) -> None:
    def square(item: int) -> int:
        if seconds:
            time.sleep(seconds)
        return item * item

    assert list(in_threads(square, range(count))) == [item * item for item in range(count)]


@both
@pytest.mark.parametrize("turn", [AT_ONCE // 2, 2 * AT_ONCE, 2 * AT_ONCE + 7])
def test_an_error_comes_when_it_is_its_items_turn(turn: int, seconds: float) -> None:
    def inverse(item: int) -> float:
        if seconds:
            time.sleep(seconds)
        return 1 / (item - turn)

    results = in_threads(inverse, range(100 * AT_ONCE))
    seen = [next(results) for _ in range(turn)]
    assert len(seen) == turn
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_only_work_that_takes_some_time_is_shared_out() -> None:
    def worker(seconds: float) -> set[str]:
        def name(item: int) -> str:
            if seconds:
                time.sleep(seconds)
            return threading.current_thread().name

        return set(in_threads(name, range(4 * AT_ONCE)))

    assert worker(QUICK) == {threading.current_thread().name}
    assert len(worker(SLOW)) > 1


def test_few_items_that_take_long_are_shared_out_after_the_first() -> None:
    def name(_: int) -> str:
        time.sleep(20 * WORTHWHILE_SECONDS)
        return threading.current_thread().name

    names = list(in_threads(name, range(AT_ONCE)))
    assert names.count(threading.current_thread().name) < AT_ONCE // 2


def test_who_stops_listening_waits_for_nothing_that_has_not_begun() -> None:
    begun: list[int] = []
    go_on = threading.Event()

    def wait(item: int) -> int:
        begun.append(item)
        time.sleep(SLOW)
        if item >= 2 * AT_ONCE:
            go_on.wait()
        return item

    results = in_threads(wait, range(10_000 * AT_ONCE))
    assert [next(results) for _ in range(AT_ONCE + 1)][-1] == AT_ONCE
    threading.Timer(0.1, go_on.set).start()
    results.close()
    assert len(begun) < 5_000 * AT_ONCE
