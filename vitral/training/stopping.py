"""Ctrl-C and termination as a request that the training loop reads between two steps."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from vitral import distributed

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """A request to stop, by a signal to this process or to another process of its job.

    Attributes:
        signal: The signal that this process received; None for none.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def received(self) -> bool:
        """Tell whether any process received a signal; all processes of a job must call this equally often."""
        return distributed.any_of(self.signal is not None)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note the first Ctrl-C or termination instead of ending the process; a second signal ends it at once.

    Outside the main thread, where Python receives no signals, nothing is noted.
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
