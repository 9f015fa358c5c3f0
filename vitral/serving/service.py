"""The classifiers in service, and the way of an image through them: admitted, decoded in a thread, computed in a batch."""

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from vitral.advice import printable
from vitral.classifier.classifier import Classifier
from vitral.errors import did_you_mean
from vitral.serving.batcher import Batcher, Lane, Stage, Waiting, keep_threads
from vitral.serving.collected import Collection
from vitral.serving.limits import HELD_BYTES, MOST_IMAGES, Limits
from vitral.serving.measures import Measures
from vitral.serving.refusals import RequestRefused, too_late
from vitral.serving.served import Given, Served

COLLECTED_CLASSES = 5  # the most probable ones, of which a person sees the names
MEMORY = 0.1  # weight of an image in the mean of the seconds that decoding takes
CAUTION = 1.5  # times what waits is taken to take: who is let in and then too late has cost others their time


class Service:
    """Classifiers in service; if deterministic, every image is computed alone, so that it has the same bits in any company.

    Attributes:
        models: The classifiers by name; the first is meant where a request names none.
        draining: Whether the server is about to end, and only answers what it has accepted.
        collection: Where photos of which the answers are least sure are collected; None for nowhere.
        local: Whether this machine alone is let in, without a token.
        threads: Threads of torch's that compute.
    """

    def __init__(self, limits: Limits, measures: Measures, *, deterministic: bool = False) -> None:
        self.limits, self.measures, self.deterministic = limits, measures, deterministic
        self.models: dict[str, Served] = {}
        self.draining = False
        self.collection: Collection | None = None
        self.local = False
        self.threads = torch.get_num_threads()
        self.batcher = Batcher(self.threads, measures.computed)
        self.decoders = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.decoders, "decoder", partial(keep_threads, 1))
        self._lock = threading.Lock()
        self._admitted: dict[Lane, int] = {}  # images that have no answer yet
        self._decoding, self._decode_seconds = 0, 0.0
        self._held = 0  # bytes of bodies
        measures.watch("vitral_queue_depth", "Images that wait or are computed.", lambda: self.waiting)
        measures.watch("vitral_queue_limit", "Images that may wait at most.", lambda: self.room)
        measures.watch("vitral_wait_seconds", "How long an image that comes now would wait.", self.wait_seconds)
        measures.watch("vitral_ready", "Whether requests are taken.", lambda: float(self.is_ready))

    def load(self, name: str, classifier: Classifier) -> Served:
        """Take a classifier into service, warm, in place of the one of that name if there is one, which ends its batches.

        Raises:
            VitralError: It cannot compute; the one before stays in service.
        """
        served = Served(name, classifier, alone=self.deterministic)
        served.warm(self.batcher.call)
        for decoder in [self._pool.submit(served.prepare, served.blank()) for _ in range(self.decoders)]:
            decoder.result()
        before = self.models.get(name)
        self.models[name] = served
        self.measures.serves(name, served.version, None if before is None else before.version)
        return served

    def model(self, name: str | None) -> Served:
        """Return a classifier by its name, or the first.

        Raises:
            RequestRefused: There is none.
        """
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            near = did_you_mean(name, self.models)
            raise RequestRefused(
                404, "no_such_model", f"There is no model '{printable(name[:80])}' here.{near} /v1/models lists them."
            )
        return self.models[name]

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken."""
        return bool(self.models) and not self.draining

    @property
    def waiting(self) -> int:
        """Images that were admitted and have no answer yet."""
        with self._lock:
            return sum(self._admitted.values())

    @property
    def room(self) -> int:
        """Images that may wait at most, by the memory that they take."""
        largest = max((served.image_bytes for served in self.models.values()), default=1)
        return max(MOST_IMAGES, HELD_BYTES // largest)

    @property
    def max_bytes(self) -> int:
        """Bytes of a request's body, at most."""
        return self.limits.max_bytes

    def wait_seconds(self) -> float:
        """Return how long an image that comes now would wait for its answer, as the last ones took."""
        with self._lock:
            computing = sum(count * lane.seconds for lane, count in self._admitted.items())
        return max(computing, self._decoding * self._decode_seconds / self.decoders)

    def admit(self, lane: Lane, count: int, until: float) -> None:
        """Refuse images whose answers would come too late, or for which there is no room.

        Raises:
            RequestRefused: That, with the seconds after which there is room again.
        """
        wait, left = self.wait_seconds(), until - time.monotonic()
        if left <= 0:
            raise too_late()
        batch = max(count, min(lane.most, self.waiting + count))  # with which it ends, whoever else joins it
        own = self._decode_seconds + batch * lane.seconds
        over = CAUTION * (wait + own) - left if wait > 0 else 0.0  # who comes alone may try
        if over > 0 or self.waiting + count > self.room:
            after = max(1, math.ceil(over if over > 0 else wait / 2))
            raise RequestRefused(
                503, "busy", f"The server has {wait:.1f} seconds of work waiting; try again later.", retry_after=after
            )

    def hold(self, count: int) -> None:
        """Take bytes of a body into account.

        Raises:
            RequestRefused: There is no room for them.
        """
        with self._lock:
            if self._held + count > HELD_BYTES and self._held:
                raise RequestRefused(
                    503, "busy", "The server is reading too many images; try again later.", retry_after=1
                )
            self._held += count

    def release(self, count: int) -> None:
        """Take bytes of a body out of account."""
        with self._lock:
            self._held -= count

    def submit(self, served: Served, lane: Lane, image: Given, until: float, stages: list[Stage]) -> Future[Any]:
        """Prepare an image and compute what a lane gives; who cancels the future takes its place away."""
        waiting = Waiting(None, until, stages=stages)
        self._enter(lane, waiting.answer)
        with self._lock:
            self._decoding += 1
        self._pool.submit(self._prepare, served, lane, image, waiting)
        return waiting.answer

    def put(
        self,
        lane: Lane,
        item: Any,  # noqa: ANN401  # what the lane computes from
        until: float,
        stages: list[Stage],
    ) -> Future[Any]:
        """Compute what a lane gives of something that needs no preparing."""
        waiting = Waiting(item, until, stages=stages)
        self._enter(lane, waiting.answer)
        self.batcher.put(lane, waiting)
        return waiting.answer

    def aside(self, function: Callable[[], Any]) -> Future[Any]:
        """Do work without a network in a thread of those that decode."""
        return self._pool.submit(function)

    def collect(self, served: Served, images: Sequence[Given], answers: Sequence[Any]) -> None:
        """Offer the photos of a request, as they came, to what collects them."""
        if self.collection is None:
            return
        for image, answer in zip(images, answers, strict=True):
            if not isinstance(image, bytes) or isinstance(answer, BaseException):
                continue
            if self.collection.wants(float(answer[0].max())):
                self.collection.offer(image, served.prediction("", answer, COLLECTED_CLASSES))

    def end(self) -> None:
        """End the threads; what waits is given up, but for photos on their way to the disk."""
        self._pool.shutdown(cancel_futures=True)
        self.batcher.end()
        if self.collection is not None:
            self.collection.end()

    def _enter(self, lane: Lane, answer: Future[Any]) -> None:
        with self._lock:
            self._admitted[lane] = self._admitted.get(lane, 0) + 1
        answer.add_done_callback(lambda _: self._leave(lane))

    def _leave(self, lane: Lane) -> None:
        with self._lock:
            self._admitted[lane] -= 1
            if not self._admitted[lane]:
                del self._admitted[lane]  # it may be of a version that is gone

    def _prepare(self, served: Served, lane: Lane, image: Given, waiting: Waiting) -> None:
        """Prepare an image in a thread of the pool, and let it wait for its batch; unless nobody wants it any more."""
        try:
            if waiting.answer.cancelled():
                return
            started = time.monotonic()
            if started > waiting.until:
                raise too_late()
            waiting.item = served.prepare(image)
            waiting.since = time.monotonic()
            waiting.stages.append(("decode", started, waiting.since))
            self._decoded(waiting.since - started)
        except BaseException as error:  # the client is told
            if waiting.answer.set_running_or_notify_cancel():
                waiting.answer.set_exception(error)
        else:
            self.batcher.put(lane, waiting)
        finally:
            with self._lock:
                self._decoding -= 1

    def _decoded(self, seconds: float) -> None:
        self.measures.decoded(seconds)
        with self._lock:
            self._decode_seconds += (MEMORY if self._decode_seconds else 1.0) * (seconds - self._decode_seconds)
