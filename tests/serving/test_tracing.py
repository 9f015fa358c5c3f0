"""Spans that a collector gets: a small one of OTLP over HTTP, on this machine."""

import contextlib
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.http_servers import in_thread
from tests.serving.conftest import encoded, form, serving
from vitral.events import Event, Message
from vitral.serving.tracing import tracing

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"  # of W3C's examples


class Collector(ThreadingHTTPServer):
    """Keeps the spans that are sent to it, and the names of the services that sent them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[Span] = []
        self.services: set[str] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in sent.resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.server.services.add(named["service.name"])
            self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


def value(span: Span, name: str) -> str | int:
    (found,) = [each.value for each in span.attributes if each.key == name]
    return found.string_value or found.int_value


def test_a_request_s_stages_are_spans_of_its_client_s_trace(served_home: Path) -> None:
    with contextlib.ExitStack() as open_now:
        found = open_now.enter_context(in_thread(Collector()))
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": found.address}
        with serving(served_home, "plain", environment=environment) as running:
            assert running.post("/v1/predict", encoded(1), traceparent=f"00-{TRACE}-{PARENT}-01").status == 200
            assert running.post("/v1/predict", *form(("a.jpg", encoded(2)), ("b.jpg", encoded(3)))).status == 200
            assert running.post("/v1/predict", b"hello", traceparent="nonsense").status == 415
            for path in ("/healthz", "/readyz", "/metrics", "/v2/health/ready"):
                assert running.get(path).status == 200
            lines = running.log()
            running.process.send_signal(15)  # what was not sent yet is sent at the end
            assert running.process.ended(30).returncode == 0
    requests = [span for span in found.spans if span.kind == Span.SPAN_KIND_SERVER]
    assert [(span.name, value(span, "http.response.status_code")) for span in requests] == [
        *[("POST /v1/predict", 200)] * 2,
        ("POST /v1/predict", 415),
    ]
    first, second, refused = requests
    assert (first.trace_id.hex(), first.parent_span_id.hex(), found.services) == (TRACE, PARENT, {"vitral"})
    assert second.trace_id.hex() != TRACE
    assert [line.get("trace") for line in lines if line["method"] == "POST"] == [
        span.trace_id.hex() for span in requests
    ]
    for request, stages in (
        (first, {"decode", "queue", "infer"}),
        (second, {"decode", "queue", "infer"}),
        (refused, set()),
    ):
        inside = {span.name: span for span in found.spans if span.parent_span_id == request.span_id}
        assert set(inside) == stages
        for span in inside.values():
            assert request.start_time_unix_nano - 10**7 <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= request.end_time_unix_nano + 10**7
    assert abs(first.start_time_unix_nano / 1e9 - time.time()) < 60


@pytest.mark.long
def test_requests_are_answered_without_a_collector(served_home: Path) -> None:
    with in_thread(Collector()) as gone:
        address = gone.address
    with serving(served_home, "plain", environment={"OTEL_EXPORTER_OTLP_ENDPOINT": address}) as running:
        assert running.post("/v1/predict", encoded(1)).status == 200
        running.process.send_signal(15)
        assert running.process.ended(15).returncode == 0


def test_without_its_packages_requests_are_not_traced_which_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Event] = []
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert tracing(heard.append) is None
    assert not heard  # no collector is named
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert tracing(heard.append) is None
    (said,) = heard
    assert isinstance(said, Message)
    assert (said.warning, "vitral[otel]" in said.text) == (True, True)
