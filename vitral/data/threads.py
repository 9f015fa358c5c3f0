"""The same small work on many items, by as many threads as there are cores where that is faster than by one."""

import os
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE = 32  # items that a thread takes: handing over each one would take longer than reading a small image
# Shorter work is mostly Python's own, which one thread at a time does: images of 32 pixels take two threads twice as long.
WORTHWHILE_SECONDS = 3e-4


def in_threads(apply: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result, None, None]:
    """Give what a function makes of each item, in order.

    The first items tell how long one takes: only if that is long enough are the others shared out among threads.

    Raises:
        Exception: whatever the function raised, when it is that item's turn; items that have not begun by then are left out.
    """
    seconds: list[float] = []
    for item in items[:AT_ONCE]:
        start = time.perf_counter()
        result = apply(item)
        seconds.append(time.perf_counter() - start)
        yield result
    rest = items[AT_ONCE:]
    if not rest:
        return
    if statistics.median(seconds) < WORTHWHILE_SECONDS:
        yield from map(apply, rest)
        return

    def several(first: int) -> list[Result]:
        return [apply(item) for item in rest[first : first + AT_ONCE]]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for results in pool.map(several, range(0, len(rest), AT_ONCE)):
            yield from results
