"""Ctrl-C and termination as a wish that the training loop sees between two steps."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """The signal that asked the run to stop, if any did."""

    def __init__(self) -> None:
        self.signal: int | None = None


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note the first Ctrl-C or termination in place of dying; a second one kills at once, as ever.

    Outside the main thread, where Python hears no signals, nothing is noted.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        request.signal = number
        for handled in SIGNALS:
            signal.signal(handled, signal.SIG_DFL)

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
