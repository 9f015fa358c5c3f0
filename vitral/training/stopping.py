"""Ctrl-C and termination as a wish that the training loop sees between two steps."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from vitral import distributed

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether a signal asked the run to stop: this process, or another of its job.

    Attributes:
        signal: that this process heard.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def asked(self) -> bool:
        """Tell whether any process was asked to stop; all processes of a job must ask as often, and hear the same."""
        return distributed.any_of(self.signal is not None)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note the first Ctrl-C or termination instead of dying; a second one kills at once, as ever.

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
