"""Batches across requests: whenever the engine gets free, it takes what waits.

There is no timer. A request that comes alone is computed at once; while the engine is busy others gather, and are the next
batch. One thread computes, whatever the number of classifiers: two at once would wait for each other's cores.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch

from vitral.serving.refusals import too_late

Stage = tuple[str, float, float]  # of an image's way: its name, its beginning and its end, by `time.monotonic()`
MEMORY = 0.2  # weight of a full batch in the mean of the seconds that an image takes


@dataclass(eq=False)
class Waiting:
    """Something to be computed.

    Attributes:
        item: What a lane computes from, such as a prepared image.
        until: When nobody wants it any more, by `time.monotonic()`.
        answer: What came of it; who cancels it takes its place away.
        since: When it began to wait.
        stages: What was done for it so far; those of a request may share it.
    """

    item: Any
    until: float
    answer: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)
    stages: list[Stage] = field(default_factory=list)


class Lane:
    """What may be computed together, in order of arrival.

    Attributes:
        most: Items in a batch at most.
        seconds: That an item takes in a batch, as the last ones took.
    """

    def __init__(self, compute: Callable[[list[Any]], Sequence[Any]], *, counted: bool = True) -> None:
        self.compute, self.counted = compute, counted
        self.most, self.seconds = 1, 0.0
        self.waiting: deque[Waiting] = deque()

    def timed(self, count: int, seconds: float) -> None:
        """Take a batch into the mean; a small one, which tells less of a full one, for less."""
        share = MEMORY * count / self.most if self.seconds else 1.0
        self.seconds += share * (seconds / count - self.seconds)


@dataclass(frozen=True)
class Computed:
    """A batch that was computed, with the seconds that each item waited and those that the batch took."""

    waited: list[float]
    seconds: float


class Batcher:
    """Computes what waits, the longest waiting first, in one thread; the listener hears of every batch of images."""

    def __init__(self, threads: int, listener: Callable[[Computed], None]) -> None:
        self.listener = listener
        self._lanes: set[Lane] = set()  # those in which something waits
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._work, args=(threads,), name="engine", daemon=True)
        self._thread.start()

    def put(self, lane: Lane, waiting: Waiting) -> None:
        """Let something wait in a lane."""
        with self._changed:
            lane.waiting.append(waiting)
            self._lanes.add(lane)
            self._changed.notify()

    def call(self, function: Callable[[], Any], until: float) -> Future[Any]:
        """Compute by a function of its own, when its turn comes."""
        waiting = Waiting(None, until)
        self.put(Lane(lambda _: [function()], counted=False), waiting)
        return waiting.answer

    def end(self) -> None:
        """End after the batch that is being computed."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _work(self, threads: int) -> None:
        keep_threads(threads)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lanes or self._ended)
                if self._ended:
                    return
                lane = min(self._lanes, key=lambda lane: lane.waiting[0].since)
                taken = [lane.waiting.popleft() for _ in range(min(lane.most, len(lane.waiting)))]
                if not lane.waiting:
                    self._lanes.discard(lane)
            if batch := [one for one in taken if _is_wanted(one)]:
                self._compute(lane, batch)

    def _compute(self, lane: Lane, batch: list[Waiting]) -> None:
        started = time.monotonic()
        try:
            answers = lane.compute([one.item for one in batch])
            ended = time.monotonic()
            seconds = ended - started
            lane.timed(len(batch), seconds)
            if lane.counted:
                self.listener(Computed([started - one.since for one in batch], seconds))
            for one, answer in zip(batch, answers, strict=True):
                one.stages += (("queue", one.since, started), ("infer", started, ended))
                one.answer.set_result(answer)
        except BaseException as error:  # each client is told; the thread goes on
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(error)


def _is_wanted(waiting: Waiting) -> bool:
    """Tell whether somebody still waits; where the time is over, say so."""
    if not waiting.answer.set_running_or_notify_cancel():
        return False
    if time.monotonic() <= waiting.until:
        return True
    waiting.answer.set_exception(too_late())
    return False


def keep_threads(threads: int) -> None:
    """Give the current thread so many of torch's threads, whatever other threads of the process set for themselves later.

    Setting the number also sets what threads that begin to compute later start with. Asking for it first ends this one's own
    beginning.
    """
    torch.get_num_threads()
    torch.set_num_threads(threads)
