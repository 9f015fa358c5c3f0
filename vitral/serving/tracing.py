"""Spans of requests for OpenTelemetry, where the environment names a collector: what decoding, waiting and computing took.

They are made when a request is over, of the times that were noted on its way. Source: opentelemetry.io, specification of the
environment's variables, and the semantic conventions of HTTP; W3C Trace Context.
"""

import os
import threading
import time
from collections.abc import Mapping

from starlette.types import Scope

from vitral import __version__
from vitral.errors import PackageError, extra_module
from vitral.events import Listener, Message
from vitral.serving.batcher import Stage
from vitral.serving.visit import KEY, Visit

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
NAMES = ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES")  # of the service, as its user has it
CONTEXT = ("traceparent", "tracestate")  # the headers by which a client's trace goes on here
PROBES = ("/healthz", "/readyz", "/metrics", "/live", "/ready")  # the ends of routes that are called all the time
LAST_SECONDS = 3.0  # in which the last spans are sent


class Tracing:
    """Sends spans to the collector that the environment names, by OTLP over HTTP."""

    def __init__(self) -> None:
        sdk, resources, export, otlp, self._api, context = (
            extra_module(f"opentelemetry.{name}", "otel", "Tracing")
            for name in (
                *("sdk.trace", "sdk.resources", "sdk.trace.export", "exporter.otlp.proto.http.trace_exporter", "trace"),
                "trace.propagation.tracecontext",
            )
        )
        own = {} if any(map(os.environ.get, NAMES)) else {"service.name": "vitral"}
        resource = resources.Resource.create({"service.version": __version__, **own})
        self._provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("vitral", __version__)
        self._context = context.TraceContextTextMapPropagator()

    def request(
        self, scope: Scope, headers: Mapping[bytes, bytes], route: str, status: int, started: float
    ) -> str | None:
        """Send the spans of a request that is over now, and return the id of its trace; None for a probe's."""
        if route.endswith(PROBES):
            return None
        visit: Visit = scope[KEY]
        given = {name: headers.get(name.encode(), b"").decode("latin-1") for name in CONTEXT}
        span = self._tracer.start_span(
            f"{scope['method']} {route}",
            context=self._context.extract(given),
            kind=self._api.SpanKind.SERVER,
            start_time=_nanoseconds(started),
            attributes={
                "http.request.method": scope["method"],
                "http.route": route,
                "http.response.status_code": status,
                "vitral.request_id": visit.id,
                **{f"vitral.{name}": value for name, value in visit.log.items()},
            },
        )
        inside = self._api.set_span_in_context(span)
        for name, begin, end in merged(visit.stages):
            self._tracer.start_span(name, context=inside, start_time=_nanoseconds(begin)).end(_nanoseconds(end))
        if status >= 500:
            span.set_status(self._api.StatusCode.ERROR)
        span.end()
        return f"{span.get_span_context().trace_id:032x}"

    def end(self) -> None:
        """Send the last spans, unless the collector takes too long."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(LAST_SECONDS)


def tracing(listener: Listener) -> Tracing | None:
    """Return what sends spans, where the environment names a collector.

    A platform may set it for every container: without the packages the listener hears of it, and requests are answered.
    """
    if not any(map(os.environ.get, ENDPOINTS)):
        return None
    try:
        return Tracing()
    except PackageError as error:
        listener(Message(f"Requests are not traced, though {ENDPOINTS[0]} is set. {error}", warning=True))
        return None


def merged(stages: list[Stage]) -> list[Stage]:
    """Return each stage once, from its first image's beginning to its last one's end."""
    names = dict.fromkeys(name for name, _, _ in stages)
    return [
        (
            name,
            min(begin for each, begin, _ in stages if each == name),
            max(end for each, _, end in stages if each == name),
        )
        for name in names
    ]


def _nanoseconds(moment: float) -> int:
    """Return a moment of `time.monotonic()` as nanoseconds since 1970."""
    return time.time_ns() - round(1e9 * (time.monotonic() - moment))
