"""The same small work on many items, by as many threads as there are cores."""

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE = 32  # items that a thread takes: to hand over each by itself would take longer than to read a small image


def in_threads(apply: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result, None, None]:
    """Give what a function makes of each item, in order.

    Raises:
        Exception: whatever the function raised, when it is that item's turn; what has not begun by then is left out.
    """

    def several(first: int) -> list[Result]:
        return [apply(item) for item in items[first : first + AT_ONCE]]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for results in pool.map(several, range(0, len(items), AT_ONCE)):
            yield from results
