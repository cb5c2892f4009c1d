"""Spans of requests, as OpenTelemetry's SDK gets them, and where a command sends them."""

import http.server
import sys
import threading

import pytest
import requests

from keras_lm.serving import Server, tracing
from keras_lm.serving.client import Client, ServerError

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def sdk(monkeypatch):
    """OpenTelemetry without a provider, and as it is afterwards."""
    trace = pytest.importorskip("opentelemetry.trace", reason="opentelemetry is not installed")
    pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    from opentelemetry.util._once import Once

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    return trace


def test_a_span_for_each_request(saved_models, sdk):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    sdk.set_tracer_provider(provider)
    with Server(saved_models / "kinds") as server:
        url = f"{server.rest_url}/v1/models/kinds:predict"
        headers = {"traceparent": CLIENT, "X-Request-Id": "a-7"}
        body = {"instances": [1]}
        assert requests.post(url, json=body, headers=headers, timeout=10).status_code == 200
        requests.get(f"{server.rest_url}/readyz", timeout=10)
        client = Client(f"grpc://{server.grpc_address}", "secret-text")
        with client, pytest.raises(ServerError):
            client.status()
    first, second, third = kept.get_finished_spans()
    assert first.name == "predict kinds"
    assert first.kind is sdk.SpanKind.SERVER
    assert f"{first.context.trace_id:032x}-{first.parent.span_id:016x}" in CLIENT
    assert dict(first.attributes) == {
        "keras_lm.model": "kinds",
        "keras_lm.request_id": "a-7",
        "http.route": "predict",
        "http.response.status_code": 200,
    }
    assert 0 < first.end_time - first.start_time < 10e9
    assert second.name == "/readyz"
    assert second.parent is None
    assert third.name == "GetModelStatus"
    assert third.attributes["rpc.grpc.status"] == "NOT_FOUND"
    assert "secret" not in "".join(span.to_json() for span in kept.get_finished_spans())
    assert all(span.status.is_ok or span.status.is_unset for span in (first, second, third))


def test_failures_are_errors(sdk):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    sdk.set_tracer_provider(provider)
    codes = {"500": "rest", "429": "rest", "INTERNAL": "grpc", "CANCELLED": "grpc"}
    for code, protocol in codes.items():
        tracing.Tracer().trace({}, 0.1, protocol, "predict", "m", code, "a")
    failed = [not span.status.is_unset for span in kept.get_finished_spans()]
    assert failed == [True, False, True, False]


def test_the_environment_says_where_spans_go(sdk, monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="no exporter")
    received = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, self.headers["x-tenant"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{collector.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=us")
        send_last = tracing.set_up()
        tracing.Tracer().trace({}, 0.1, "rest", "predict", "critic", "200", "a")
        send_last()
        collector.shutdown()
    ((path, tenant, body),) = received
    assert (path, tenant) == ("/v1/traces", "us")
    assert b"predict critic" in body
    assert b"keras-lm" in body


def test_without_the_variables_or_packages_nothing_is_sent(monkeypatch, caplog):
    for name in (*tracing.ENDPOINTS, *tracing.PROTOCOLS):
        monkeypatch.delenv(name, raising=False)
    assert tracing.set_up() is None
    assert caplog.text == ""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert tracing.set_up() is None
    assert caplog.text == ""
    monkeypatch.delenv("OTEL_TRACES_EXPORTER")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert tracing.set_up() is None
    assert "grpc is not http/protobuf" in caplog.text
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert tracing.set_up() is None
    assert "pip install 'keras-lm[otel]'" in caplog.text
    tracing.Tracer().trace({}, 0.1, "rest", "predict", "critic", "200", "a")
