"""What is counted and timed, in Prometheus' form; a registry of its own, so that nothing is shared between two servers."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from vitral.serving.batcher import Computed

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32)


class Measures:
    """Counters and histograms of a server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "vitral_requests", "Requests by route and status.", ["route", "code"], registry=registry
        )
        self.refused = Counter(
            "vitral_errors", "Requests and images without an answer, by reason.", ["reason"], registry=registry
        )
        labels = ["name", "version"]
        self.model_info = Gauge("vitral_model_info", "1 for each classifier in service.", labels, registry=registry)
        self.images = Counter("vitral_images", "Images that were computed.", registry=registry)
        self.batches = Counter("vitral_batches", "Batches that were computed.", registry=registry)
        self.request_seconds = self._seconds("vitral_request_seconds", "From a request's arrival to its answer.")
        self.queue_seconds = self._seconds("vitral_queue_seconds", "From a prepared image to its batch.")
        self.decode_seconds = self._seconds("vitral_decode_seconds", "Decoding and resizing of an image.")
        self.inference_seconds = self._seconds("vitral_inference_seconds", "Computing of a batch.")
        self.batch_size = Histogram("vitral_batch_size", "Images in a batch.", buckets=SIZES, registry=registry)

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=SECONDS, registry=self.registry)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a value as it is whenever somebody looks."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def serves(self, name: str, version: str, before: str | None) -> None:
        """Show which version of a classifier is in service, in place of the one before it."""
        if before is not None:
            self.model_info.remove(name, before)
        self.model_info.labels(name, version).set(1)

    def without_answer(self, reason: str) -> None:
        """Count a request or an image that gets no answer."""
        self.refused.labels(reason).inc()

    def decoded(self, seconds: float) -> None:
        """Count an image that was decoded."""
        self.decode_seconds.observe(seconds)

    def computed(self, batch: Computed) -> None:
        """Count a batch that was computed."""
        self.batches.inc()
        self.images.inc(len(batch.waited))
        self.batch_size.observe(len(batch.waited))
        self.inference_seconds.observe(batch.seconds)
        for seconds in batch.waited:
            self.queue_seconds.observe(seconds)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests.labels(route, str(status)).inc()
        self.request_seconds.observe(seconds)

    def text(self) -> bytes:
        """Return everything as Prometheus reads it."""
        return generate_latest(self.registry)
