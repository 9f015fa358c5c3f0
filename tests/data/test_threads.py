"""Small work on many items, by several threads."""

import threading

import pytest

from vitral.data.threads import AT_ONCE, in_threads


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 7 * AT_ONCE - 3])
def test_results_come_in_order_one_for_each_item(count: int) -> None:
    assert list(in_threads(lambda item: item * item, range(count))) == [item * item for item in range(count)]


def test_an_error_comes_when_it_is_its_items_turn() -> None:
    def inverse(item: int) -> float:
        return 1 / (item - 2 * AT_ONCE)

    results = in_threads(inverse, range(100 * AT_ONCE))
    seen = [next(results) for _ in range(2 * AT_ONCE)]
    assert len(seen) == 2 * AT_ONCE
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_who_stops_listening_waits_for_nothing_that_has_not_begun() -> None:
    begun: list[int] = []
    go_on = threading.Event()

    def wait(item: int) -> int:
        begun.append(item)
        if item >= AT_ONCE:
            go_on.wait()
        return item

    results = in_threads(wait, range(10_000 * AT_ONCE))
    assert next(results) == 0
    threading.Timer(0.1, go_on.set).start()
    results.close()
    assert len(begun) < 5_000 * AT_ONCE
