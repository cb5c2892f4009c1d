"""TF Serving's gRPC services over `Models`: PredictionService and ModelService."""

import functools
import logging
import threading
import time
from pathlib import Path

import grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from keras_lm.serving import messages
from keras_lm.serving.callers import Caller
from keras_lm.serving.errors import ServingError, StatusCode, invalid
from keras_lm.serving.models import ModelConfig
from keras_lm.utils.model_versions import check_name

logger = logging.getLogger("keras_lm.serving")

LONGEST_MESSAGE = 1024  # characters of an error, which is sent in an HTTP header
LARGEST_CONFIG = 2**16  # bytes; the folder of each name in it is polled once a second
PATIENCE = 2  # seconds that a message may take to arrive while other calls wait
TENSORFLOW = 1  # the older way of saying model_platform: "tensorflow"


def add_services(server, models, folders, body_memory, callers):
    """Register both services over `Models` with a `grpc.Server`.

    Messages count in the `BodyMemory`, and all who wait join the `Callers`. Clients may change the
    names, versions and labels under which the models in `folders` are served. They cannot add other
    folders, because there is no authentication.
    """
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(models, body_memory, callers), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(
        ModelService(models, body_memory, callers, folders), server
    )


class Arrivals(grpc.ServerInterceptor):
    """Bounds the messages that arrive at a time, so that slow clients take no memory or threads.

    gRPC itself waits for a message as long as its client wants, and does not show its size before
    it is there: each is as large as the largest may be, until it has arrived. Of those that nobody
    waits for, gRPC takes the first 64 KiB.

    Args:
        number: int. How many messages arrive at a time; other calls wait.
        seconds: float. How long a message may take, and how long a call may wait for its turn. If
            other calls wait, a message has `PATIENCE` seconds.
    """

    def __init__(self, number, seconds):
        self._seconds = seconds
        self._places = threading.Semaphore(number)
        self._begun = {}  # a call's context → since when its message has been arriving
        self._lock = threading.Lock()

    def intercept_service(self, continuation, handler_call_details):
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        # On the wire the same; here, a stream's handler is called before its message has arrived.
        return grpc.stream_unary_rpc_method_handler(
            functools.partial(self._receive, handler.unary_unary),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _receive(self, answer, requests, context):
        self._wait_for_a_place(context)
        with self._lock:
            self._begun[context] = time.monotonic()
        try:
            request = next(requests, None)
        finally:
            with self._lock:
                del self._begun[context]
            self._places.release()
        if request is None:
            context.abort(StatusCode.INVALID_ARGUMENT, "The call has no message.")
        return answer(request, context)

    def _wait_for_a_place(self, context):
        end = time.monotonic() + self._seconds
        while not self._places.acquire(timeout=PATIENCE / 4):
            self.end_late(PATIENCE)
            if time.monotonic() > end or not context.is_active():
                context.abort(
                    StatusCode.RESOURCE_EXHAUSTED,
                    "The messages of other calls are arriving, and may be large: try again later.",
                )

    def end_late(self, seconds=None):
        """Cancel the calls whose message has been arriving for longer than it may."""
        latest = time.monotonic() - (self._seconds if seconds is None else seconds)
        with self._lock:
            late = [context for context, begun in self._begun.items() if begun < latest]
        for context in late:
            context.cancel()


def answering(method):
    """Wrap a method so that a `ServingError` ends the call with its status."""

    @functools.wraps(method)
    def answer(self, request, context):
        try:
            with self._body_memory.share() as take:
                take(request.ByteSize())
                caller = self._callers.add(Caller())
                # At the call's end, too: if its deadline passes, or its client leaves.
                if not context.add_callback(caller.leave):
                    caller.leave()
                with caller.served():
                    result = method(self, request)
            logger.debug("%s OK", method.__name__)
            return result
        except ServingError as error:
            code, message = error.code, error.message
        except MemoryError:
            code, message = StatusCode.RESOURCE_EXHAUSTED, "Out of memory."
        except Exception as error:
            logger.exception("%s failed.", method.__name__)
            code, message = StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
        logger.debug("%s %s", method.__name__, code.name)
        if len(message) > LONGEST_MESSAGE:
            message = message[:LONGEST_MESSAGE] + "...TRUNCATED"
        return context.abort(code, message.encode("utf-8", "replace").decode())

    return answer


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Runs models."""

    def __init__(self, models, body_memory, callers):
        self._models = models
        self._body_memory = body_memory
        self._callers = callers

    def _lease(self, spec):
        choice = spec.WhichOneof("version_choice")
        return self._models.lease(
            spec.name,
            version=spec.version.value if choice == "version" else None,
            label=spec.version_label if choice == "version_label" else None,
        )

    @answering
    def Predict(self, request):
        """Run any signature on tensors."""
        _check_spec(request)
        with self._lease(request.model_spec) as served:
            return messages.predict(served, request)

    @answering
    def Classify(self, request):
        """Run a signature that returns classes and scores for tf.Examples."""
        _check_spec(request)
        with self._lease(request.model_spec) as served:
            return messages.classify(served, request)

    @answering
    def Regress(self, request):
        """Run a signature that returns a number for each tf.Example."""
        _check_spec(request)
        with self._lease(request.model_spec) as served:
            return messages.regress(served, request)

    @answering
    def MultiInference(self, request):
        """Run several signatures on the same tf.Examples."""
        if not request.tasks:
            raise invalid("ModelSpec has no name specified.")
        with self._lease(request.tasks[0].model_spec) as served:
            return messages.multi_inference(served, request)

    @answering
    def GetModelMetadata(self, request):
        _check_spec(request)
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise invalid(f"Metadata field {field} is not supported")
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        with self._lease(request.model_spec) as served:
            signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=served.signature_defs)
            response.model_spec.version.value = served.number
        response.model_spec.name = request.model_spec.name
        response.metadata["signature_def"].Pack(signatures)
        return response


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """Reports which versions are served, and changes them."""

    def __init__(self, models, body_memory, callers, folders):
        self._models = models
        self._body_memory = body_memory
        self._callers = callers
        self._folders = folders

    @answering
    def GetModelStatus(self, request):
        _check_spec(request)
        spec = request.model_spec
        version = spec.version.value if spec.HasField("version") else None
        return messages.model_status(self._models, spec.name, version)

    @answering
    def HandleReloadConfigRequest(self, request):
        """Serve the models under other names, or other versions of them."""
        kind = request.config.WhichOneof("config")
        if kind != "model_config_list":
            raise invalid(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                "ModelConfigList is currently supported"
            )
        entries = request.config.model_config_list.config
        if not entries:
            raise invalid("The model_config_list is empty: list the models to serve.")
        if request.ByteSize() > LARGEST_CONFIG:
            raise invalid(
                f"The request has {request.ByteSize()} bytes, more than the {LARGEST_CONFIG} that "
                "a list of models may have: list fewer names, versions or labels."
            )
        configs = [_read_config(entry, self._folders) for entry in entries]
        names = [config.name for config in configs]
        for name in names:
            if names.count(name) > 1:
                raise invalid(f"Illegal to list model {name} multiple times in config list")
        self._models.configure(configs)
        return model_management_pb2.ReloadConfigResponse()


def _check_spec(request):
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")


def _read_config(entry, folders):
    platform = entry.model_platform or ("tensorflow" if entry.model_type == TENSORFLOW else "")
    if not platform:
        raise invalid(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            "ModelServerConfig::model_platform."
        )
    if platform != "tensorflow":
        raise invalid(f"Model {entry.name} requests unsupported platform {platform}")
    folder = Path(entry.base_path)
    if not folder.is_absolute():
        raise invalid(
            f"Expected model {entry.name} to have an absolute path or URI; got base_path()="
            f"{entry.base_path}"
        )
    try:
        folder = folder.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # such as a null byte
        raise invalid(f"base_path={entry.base_path!r} is not a path: {error}.") from error
    if folder not in folders:
        raise ServingError(
            StatusCode.PERMISSION_DENIED,
            f"base_path={entry.base_path!r}: this server only serves the folders that it was "
            "started with.",
        )
    try:
        check_name(entry.name)
    except ValueError as error:
        raise invalid(str(error)) from error
    policy = entry.model_version_policy
    choice = policy.WhichOneof("policy_choice")
    return ModelConfig(
        entry.name,
        folder,
        latest=None if choice == "all" else max(policy.latest.num_versions, 1),
        versions=tuple(policy.specific.versions) if choice == "specific" else (),
        labels=dict(entry.version_labels),
    )
