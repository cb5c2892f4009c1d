"""What operators watch: whether the server lives and is ready, and its measures for Prometheus."""

import time

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.metrics_core import GaugeMetricFamily

from keras_lm.serving import logs
from keras_lm.serving.errors import ServingError
from keras_lm.serving.tracing import Tracer

ROWS = tuple(2**power for power in range(11))  # 1 to 1,024
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


def not_ready(models):
    """Return the names of the models without a version that answers."""
    return [name for name in models.names if not _available(models, name)]


def _available(models, name):
    try:
        return [number for number, state, _ in models.status(name) if state == "AVAILABLE"]
    except ServingError:  # the model, or its last version, has just gone
        return []


class Monitor(grpc.ServerInterceptor):
    """Counts and times requests, of REST and, as an interceptor, of gRPC.

    Args:
        models: `Models`.
    """

    def __init__(self, models):
        self._models = models
        self._tracer = Tracer()
        self._registry = CollectorRegistry()
        names = ("protocol", "method", "model")
        self._requests = Counter(
            "keras_lm_requests", "Requests answered.", [*names, "code"], registry=self._registry
        )
        self._seconds = Histogram(
            "keras_lm_request_seconds",
            "From a request's arrival to its answer.",
            names,
            buckets=SECONDS,
            registry=self._registry,
        )
        self._batch_rows = Histogram(
            "keras_lm_batch_rows",
            "Rows that the requests of a batch have together.",
            ["model"],
            buckets=ROWS,
            registry=self._registry,
        )
        self._queue_seconds = Histogram(
            "keras_lm_queue_seconds",
            "From a request's joining the queue of a model to the start of its batch.",
            ["model"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._gone = Counter(
            "keras_lm_clients_gone",
            "Requests whose client closed the connection before it had the whole answer.",
            names[1:],
            registry=self._registry,
        )
        models.observe = self.batched
        self.running = Gauge(
            "keras_lm_requests_running", "Requests being answered.", registry=self._registry
        )
        self._registry.register(self)

    def collect(self):
        """Yield what is measured when it is asked for, as Prometheus's registry calls it."""
        versions = GaugeMetricFamily(
            "keras_lm_model_available",
            "1 for each version that answers.",
            labels=["model", "version"],
        )
        for name in self._models.names:
            for number in _available(self._models, name):
                versions.add_metric([name, str(number)], 1)
        yield versions

    def write(self):
        """Return the body in Prometheus's text format, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE

    def answered(self, protocol, method, model, code, seconds, id=None, route=None, headers=None):
        """Count, log and trace a request.

        Args:
            protocol: str, "rest" or "grpc".
            method, model: str. A model that is not served is "", as clients invent names.
            code: int or str, of the answer.
            seconds: float, how long it took.
            id: str, the request's; None for a new one.
            route: str, for logs and traces; None for the method.
            headers: dict of its headers; None for none.
        """
        model = model if model and model in self._models.names else ""
        self._requests.labels(protocol, method, model, str(code)).inc()
        self._seconds.labels(protocol, method, model).observe(seconds)
        fields = {
            "request_id": id or logs.request_id(),
            "protocol": protocol,
            "route": route or method,
            "model": model,
            "code": str(code),
        }
        logs.log_request(**fields, milliseconds=round(1000 * seconds, 3))
        self._tracer.trace(headers or {}, seconds, **fields)

    def batched(self, model, rows, waits):
        """Count a batch: its rows, and the seconds that each of its requests has waited."""
        self._batch_rows.labels(model).observe(rows)
        for seconds in waits:
            self._queue_seconds.labels(model).observe(seconds)

    def gone(self, method, model):
        """Count a request of REST whose client did not wait for the answer, or its end."""
        self._gone.labels(method, model if model in self._models.names else "").inc()

    def intercept_service(self, continuation, handler_call_details):
        handler = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        method = handler_call_details.method.rpartition("/")[2]
        headers = dict(handler_call_details.invocation_metadata or ())
        request_id = logs.request_id(headers.get("x-request-id"))

        def answer(request, context):
            begin, code = time.perf_counter(), "OK"
            spec = getattr(request, "model_spec", None)  # TF Serving's messages have one
            model = getattr(spec, "name", "") or getattr(request, "model_name", "")
            try:
                with self.running.track_inprogress():
                    return handler.unary_unary(request, context)
            except BaseException:
                code = context.code()
                code = "UNKNOWN" if code is None else code.name
                raise
            finally:
                seconds = time.perf_counter() - begin
                self.answered("grpc", method, model, code, seconds, request_id, None, headers)

        return grpc.unary_unary_rpc_method_handler(
            answer, handler.request_deserializer, handler.response_serializer
        )
