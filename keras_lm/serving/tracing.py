"""Traces of requests by OpenTelemetry: a span for each, below that of the client, if it sends one.

The server only uses OpenTelemetry's interface, by which a program that has set up its SDK gets the
spans of its `Server`. `keras-lm serve` sets it up by the standard variables of the environment.

Source: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables;
https://opentelemetry.io/docs/specs/semconv/http/http-spans.
"""

import logging
import os
import time

from keras_lm.utils.optional_dependencies import hint

logger = logging.getLogger("keras_lm.serving")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
FAILURES = ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")


def set_up():
    """Send spans where the environment says; return a function that sends the last, or None.

    Nothing is sent, with a warning, if the packages of the extra `otel` are missing, or another
    protocol than `http/protobuf` is asked for.
    """
    is_off = os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    if is_off or not any(os.environ.get(name) for name in ENDPOINTS):
        return None
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), None)
    if protocol not in (None, "http/protobuf"):
        logger.warning("No traces are sent: %s is not http/protobuf.", protocol)
        return None
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        logger.warning("No traces are sent. %s", hint(["opentelemetry"], "Sending them"))
        return None
    named = Resource.create() if os.environ.get("OTEL_SERVICE_NAME") else None
    provider = TracerProvider(resource=named or Resource.create({SERVICE_NAME: "keras-lm"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


class Tracer:
    """Makes the spans of a server's requests; none if OpenTelemetry is not installed."""

    def __init__(self):
        try:
            from opentelemetry import propagate, trace
        except ImportError:
            self._trace = None
        else:
            self._trace, self._propagate = trace, propagate

    def trace(self, headers, seconds, protocol, route, model, code, request_id):
        """Make the span of a request that has just been answered.

        Args:
            headers: dict of the request's headers, of which `traceparent` names the client's span.
            seconds: float, how long it took.
            protocol, route, model, code, request_id: see `logs`.
        """
        if self._trace is None:
            return
        end = time.time_ns()
        attributes = {"keras_lm.model": model, "keras_lm.request_id": request_id}
        if protocol == "rest":
            attributes |= {"http.route": route, "http.response.status_code": int(code)}
        else:
            attributes |= {"rpc.system": "grpc", "rpc.method": route, "rpc.grpc.status": code}
        span = self._trace.get_tracer("keras_lm.serving").start_span(
            f"{route} {model}".strip(),
            self._propagate.extract(headers),
            self._trace.SpanKind.SERVER,
            attributes,
            start_time=end - round(1e9 * seconds),
        )
        if code in FAILURES or (code.isdecimal() and int(code) >= 500):
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(end)
