"""A client for TF Serving and for the embedded server: strings in, numpy arrays out.

REST only needs `requests`; TensorFlow is imported for `grpc://` servers only.
"""

import base64
import contextlib
import json
import numbers
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from keras_lm.serving.keys import KEY
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.user_arguments import ACCEPTED, plain_column, refuse_tables

# === Arrays and the JSON of requests and answers ===

DTYPES = {
    "DT_STRING": object,
    "DT_BOOL": np.bool_,
    "DT_HALF": np.float16,
    "DT_BFLOAT16": np.float32,  # numpy has no bfloat16
    "DT_FLOAT": np.float32,
    "DT_DOUBLE": np.float64,
    **{f"DT_{kind}INT{bits}": np.dtype(f"{kind.lower()}int{bits}") for kind in ("", "U")
       for bits in (8, 16, 32, 64)},
}  # fmt: skip


def signatures_from_json(signature_def_map):
    """Convert the JSON of a SignatureDefMap to the result of `Client.metadata`."""
    return {
        name: {
            "method": value.get("method_name", ""),
            "inputs": {
                n: _column(info, value.get("defaults", {}).get(n))
                for n, info in value.get("inputs", {}).items()
            },
            "outputs": {n: _column(info) for n, info in value.get("outputs", {}).items()},
        }
        for name, value in signature_def_map.get("signature_def", {}).items()
    }


def fits(inputs, columns):
    """Return whether all inputs are known, and all inputs without a default are there."""
    required = {name for name, column in columns.items() if "default" not in column}
    return required <= set(inputs) <= set(columns)


def rows_of(column, name):
    """Return an input as a list, an array of numbers, or a number.

    A lone surrogate becomes invalid UTF-8, as in tasks.

    Args:
        column: what a user passes, of any library.
        name: str, of the input, for messages.

    Raises:
        ValueError: if it has no rows.
    """
    refuse_tables(column, name)
    column = plain_column(column, name)
    if hasattr(column, "row_splits"):  # a ragged tensor
        column = column.to_list()
    if isinstance(column, np.ndarray) and (column.dtype.kind not in "biufc" or not column.ndim):
        column = column.tolist() if column.size else column
    if isinstance(column, (str, bytes)):
        raise ValueError(f"{name}={column!r}: pass a list of texts, [{column!r}].")
    if isinstance(column, Sequence) and not isinstance(column, (bytearray, memoryview)):
        return [_row(row, f"{name}[{number}]") for number, row in enumerate(column)]
    if not isinstance(column, (np.ndarray, np.generic, numbers.Number)):
        raise ValueError(f"{name} is a {type(column).__name__}: pass {ACCEPTED}.")
    return column


def _row(row, name):
    if isinstance(row, str):
        return row if row.isascii() or _is_utf8(row) else row.encode("utf-8", "surrogatepass")
    is_plain = row is None or isinstance(row, (bytes, numbers.Number, np.generic))
    is_row = isinstance(row, Sequence) or hasattr(row, "__array__")
    return rows_of(row, name) if is_row and not is_plain else row


def _is_utf8(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_strings(inputs, columns):
    """Raise ValueError if an input that takes strings has a row that is another value."""
    for name, column in inputs.items():
        if columns[name]["dtype"] != "DT_STRING" or not isinstance(column, (list, np.ndarray)):
            continue
        for row, value in enumerate(column):
            if not isinstance(value, (str, bytes, list, tuple, np.ndarray)):
                raise ValueError(
                    f"{name}[{row}] is {value!r}, a {type(value).__name__}, and not a string: "
                    "replace or drop it."
                )


def _column(tensor_info, default=None):
    """One input or output of a signature, from the JSON of a TensorInfo and a TensorProto."""
    shape = tensor_info.get("tensor_shape", {})
    dtype = tensor_info.get("dtype", "DT_INVALID")
    column = {"dtype": dtype, "shape": None if shape.get("unknown_rank") else _sizes(shape)}
    return column if default is None else column | {"default": _array(default)}


def _sizes(tensor_shape):
    return [int(dim.get("size", 0)) for dim in tensor_shape.get("dim", [])]


def _array(tensor):
    """The array in the JSON of a TensorProto."""
    dtype, shape = DTYPES.get(tensor["dtype"]), _sizes(tensor.get("tensor_shape", {}))
    if tensor.get("tensor_content"):
        return np.frombuffer(base64.b64decode(tensor["tensor_content"]), dtype).reshape(shape)
    values = next((value for name, value in tensor.items() if name.endswith("_val") and value), [])
    if dtype is object:
        values = [base64.b64decode(value) for value in values]
    if len(values) == 1:  # TensorProto's short form of equal values
        return np.full(shape, values[0], dtype)
    return np.array(values, dtype).reshape(shape)


def to_json(value):
    """Return an array, list or value in a form that JSON can hold."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def from_json(value, dtype):
    """Return nested lists as an array; `dtype` is a key of `DTYPES`."""

    def decode(item):
        if isinstance(item, list):
            return [decode(inner) for inner in item]
        return base64.b64decode(item["b64"]) if isinstance(item, dict) else item

    return np.array(decode(value), dtype=DTYPES.get(dtype))


def from_tensor(name, array):
    """Return an output of gRPC as REST would return it, with strings as `str`."""
    if array.dtype == object and not name.endswith("_bytes"):
        texts = [item.decode("utf-8", "replace") for item in array.ravel()]
        return np.array(texts, dtype=object).reshape(array.shape)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


# === The client ===

# HTTP status → gRPC's name of the error, the likeliest if several share a status: TF Serving also
# answers 400 for FAILED_PRECONDITION and OUT_OF_RANGE, 409 for ABORTED, 500 for UNKNOWN and
# DATA_LOSS.
HTTP_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}

REMEDIES = {
    "UNAUTHENTICATED": "Pass api_key=; or, on the command line, set KERAS_LM_API_KEY.",
    "NOT_FOUND": "Check model= and version= against what the server was started with.",
    "UNAVAILABLE": "Is a server running there, and is this its {protocol} port?",
    "DEADLINE_EXCEEDED": "Pass a longer timeout= than {timeout:g} seconds, or fewer texts at once.",
}


class ServerError(Exception):
    """A request that failed: the server refused it, or did not answer.

    Attributes:
        code: str. gRPC's name of the error: `"NOT_FOUND"`, `"INVALID_ARGUMENT"`, `"UNAVAILABLE"`
            (no answer), `"DEADLINE_EXCEEDED"` (no answer in time), … REST only returns an HTTP
            status, which several errors share; then `code` is the most common of them. For example,
            a signature that does not exist is `"INVALID_ARGUMENT"` over REST, and
            `"FAILED_PRECONDITION"` over gRPC.
        message: str. The server's own message.
    """

    def __init__(self, code, message, about, remedy=""):
        super().__init__(f"{about}: {code}: {message.rstrip('.')}. {remedy}".strip())
        self.code = code
        self.message = message


class Client:
    """Asks one model of a server, over REST or gRPC.

    Methods raise `ServerError` if the server refuses, or does not answer.

    Args:
        url: `"http://HOST:PORT"` for REST (usually 8501), `"grpc://HOST:PORT"` for gRPC (8500); or
            `"https://…"` and `"grpcs://…"` for a server with a certificate.
        model: str. The model's name on the server.
        version: int. None is the latest version that the server has loaded.
        timeout: float. Seconds to wait for an answer.
        api_key: str, for a server that asks for one, such as `keras-lm serve --api-key @FILE`.
        certificate: path of a PEM file, with the certificate by which an https:// or grpcs://
            server is known if no authority of this machine vouches for it, such as its own.

    Raises:
        OSError: if `certificate` cannot be read.
        ValueError: if `url` has another form, `model` is missing, or `api_key` is not a key.

    Example:

        client = Client("http://127.0.0.1:8501", "film-critic")
        client.predict({"text": ["never a dull moment"]})["labels"]  # array(['good'], dtype=object)
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        version: int | None = None,
        timeout: float = 60.0,
        api_key: str | None = None,
        certificate: PathLike | None = None,
    ):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "grpc", "grpcs") or not parts.hostname:
            raise ValueError(
                f"url={url!r}: write http://HOST:PORT for REST, or grpc://HOST:PORT for gRPC."
            )
        if not model:
            raise ValueError(
                f"model={model!r}: name the model to ask, as in Client({url!r}, 'film-critic'); "
                "`keras-lm serve` prints the names that it serves."
            )
        if api_key is not None and not KEY.fullmatch(api_key):
            raise ValueError("api_key has other characters than letters, digits and -._~+/=.")
        if certificate is not None:
            certificate = Path(certificate).resolve(strict=True)
        transport = _Grpc if parts.scheme.startswith("grpc") else _Rest
        self._transport = transport(url.rstrip("/"), model, version, timeout, api_key, certificate)
        self._signatures = {}

    def predict(
        self, inputs: Mapping[str, Any], signature: str = "serving_default"
    ) -> dict[str, np.ndarray]:
        """Return a dict of the outputs as numpy arrays, of the dtypes that the model declares.

        Strings are `str`, and `bytes` if the output's name ends in `_bytes`.

        Args:
            inputs: dict of name → list, array, or column of another library, one row per example.
                Inputs with a default are optional.
            signature: str. Which of the model's signatures to call.

        Raises:
            ServerError: if the server refuses, or does not answer.
            ValueError: if `inputs` or `signature` does not fit the model.
        """
        if not isinstance(inputs, Mapping):
            raise ValueError(
                f"inputs is a {type(inputs).__name__}: pass a dict, such as {{'text': ['a text']}}."
            )
        inputs = {name: rows_of(column, name) for name, column in inputs.items()}
        expected = self._signatures.get(signature)
        if expected is None or not fits(inputs, expected["inputs"]):
            # The first call, or the server has loaded a new version.
            self._signatures = self.metadata()
            if signature not in self._signatures:
                raise ValueError(f"signature={signature!r}: use one of {list(self._signatures)}.")
            expected = self._signatures[signature]
            if not fits(inputs, expected["inputs"]):
                names = sorted(expected["inputs"])
                raise ValueError(f"inputs has {sorted(inputs)}, but {signature!r} takes {names}.")
        check_strings(inputs, expected["inputs"])
        return self._transport.predict(inputs, signature, expected)

    def stream(self, prompt: str, **options: Any) -> Iterator[str]:
        """Continue a prompt; return a generator of the pieces of text as they are written.

        Only the embedded server does this, over REST.

        Args:
            prompt: str.
            options: those of `CausalLM.stream`, such as `max_new_tokens`, `temperature` or `stop`.

        Raises:
            ServerError: if the server refuses, does not answer, or stops before the text ends.
            ValueError: if this is a gRPC client.

        Example:

            for piece in client.stream("Once upon a time", max_new_tokens=40):
                print(piece, end="", flush=True)
        """
        return self._transport.stream({"prompt": prompt, **options})

    def metadata(self) -> dict[str, Any]:
        """Return a dict of signature → `{"method": str, "inputs": columns, "outputs": columns}`.

        Columns are a dict of name → `{"dtype": "DT_STRING", "shape": [-1]}`; an unknown shape is
        None. An optional input has a `"default"`, an array.
        """
        signatures = self._transport.signatures()
        # TensorFlow's own signature, which initialises tables, starts with "__".
        return {name: value for name, value in signatures.items() if not name.startswith("__")}

    def status(self) -> list[dict[str, Any]]:
        """Return the state of the model's versions.

        It is a list of `{"version": int, "state": str, "error": str}`; a version answers requests
        if its state is `"AVAILABLE"`.
        """
        return self._transport.status()

    def close(self) -> None:
        """Close the connection, as does the end of a `with Client(…) as client:` block."""
        self._transport.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Transport:
    """What REST and gRPC share: the server's address, and errors."""

    protocol = None

    def __init__(self, url, model, version, timeout, api_key, certificate):
        self.url = url
        self.model = model
        self.version = version
        self.timeout = timeout
        self.certificate = certificate
        self.authorization = None if api_key is None else f"Bearer {api_key}"

    def error(self, code, message):
        remedy = REMEDIES.get(code, "").format(protocol=self.protocol, timeout=self.timeout)
        about = f"{self.url}, model {self.model!r}"
        if self.version is not None:
            about += f", version {self.version}"
        return ServerError(code, message, about, remedy)


class _Rest(_Transport):
    protocol = "REST"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        import requests

        self.requests = requests
        self.session = requests.Session()
        self.session.trust_env = not _is_here(self.url)  # no proxy for this machine itself
        if self.certificate is not None:
            self.session.verify = str(self.certificate)
        if self.authorization is not None:
            self.session.auth = self._authorize  # as a header, one of ~/.netrc would replace it

    def _authorize(self, request):
        request.headers["Authorization"] = self.authorization
        return request

    def predict(self, inputs, signature, expected):
        # Servers fill in the defaults of inputs over gRPC only.
        missing = expected["inputs"].keys() - inputs.keys()
        inputs = {n: expected["inputs"][n]["default"] for n in missing} | dict(inputs)
        for name in sorted(missing):
            if not inputs[name].size:  # JSON cannot express the shape of an empty array
                raise ValueError(
                    f"inputs has no {name!r}, and its default of shape {inputs[name].shape} cannot "
                    "be sent over REST: pass it, or ask a grpc:// server."
                )
        body = {
            "signature_name": signature,
            "inputs": {name: to_json(column) for name, column in inputs.items()},
        }
        outputs = self.call("POST", ":predict", json.dumps(body))["outputs"]
        if len(expected["outputs"]) == 1:  # a single output comes without its name
            outputs = dict.fromkeys(expected["outputs"], outputs)
        return {
            name: from_json(value, expected["outputs"].get(name, {}).get("dtype"))
            for name, value in outputs.items()
        }

    def signatures(self):
        return signatures_from_json(self.call("GET", "/metadata")["metadata"]["signature_def"])

    def status(self):
        return [
            {
                "version": int(version["version"]),
                "state": version["state"],
                "error": version.get("status", {}).get("error_message", ""),
            }
            for version in self.call("GET", "")["model_version_status"]
        ]

    def stream(self, request):
        with self.failures():
            response = self.send("POST", ":stream", json.dumps(request), stream=True)
            if not response.ok:
                self.read(response)
            return self.pieces(response)

    def pieces(self, response):
        with response, self.failures():
            for line in response.iter_lines():
                event = json.loads(line.removeprefix(b"data: ") or b"{}")
                if "error" in event:
                    raise self.error("UNKNOWN", event["error"])
                if "done" in event:
                    return
                if "text" in event:
                    yield event["text"]
        raise self.error("UNAVAILABLE", "the connection closed before the end of the text")

    def call(self, method, what, body=None):
        with self.failures():
            return self.read(self.send(method, what, body))

    def send(self, method, what, body=None, **arguments):
        url = f"{self.url}/v1/models/{quote(self.model, safe='')}"
        if self.version is not None:
            url += f"/versions/{self.version}"
        headers = {"Content-Type": "application/json"}
        return self.session.request(
            method, url + what, data=body, headers=headers, timeout=self.timeout, **arguments
        )

    @contextlib.contextmanager
    def failures(self):
        """Turn connection errors into a `ServerError`."""
        try:
            yield
        except self.requests.Timeout:
            raise self.error("DEADLINE_EXCEEDED", "no answer in time") from None
        except self.requests.RequestException as error:
            raise self.error("UNAVAILABLE", f"no answer ({type(error).__name__})") from None

    def read(self, response):
        """Return the JSON object of an answer; raise a `ServerError` if the answer is an error."""
        text = response.content.decode("utf-8", "replace")
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if response.ok and isinstance(answer, dict):
            return answer
        message = answer.get("error") if isinstance(answer, dict) else None
        raise self.error(
            HTTP_CODES.get(response.status_code, "UNKNOWN"),
            str(message or f"HTTP status {response.status_code}, {text[:200]!r}"),
        )

    def close(self):
        self.session.close()


class _Grpc(_Transport):
    protocol = "gRPC"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        import grpc
        from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

        self.grpc = grpc
        parts = urlsplit(self.url)
        options = [
            ("grpc.max_receive_message_length", -1),  # the default, 4 MB, holds few embeddings
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_http_proxy", int(not _is_here(self.url))),
        ]
        address = f"{parts.hostname}:{parts.port or 8500}"
        if parts.scheme == "grpcs":
            known = self.certificate and self.certificate.read_bytes()
            credentials = grpc.ssl_channel_credentials(known)
            self.channel = grpc.secure_channel(address, credentials, options)
        else:
            self.channel = grpc.insecure_channel(address, options)
        self.metadata = self.authorization and [("authorization", self.authorization)]
        self.predictions = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def predict(self, inputs, signature, expected):
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = self.about(predict_pb2.PredictRequest(), signature_name=signature)
        for name, column in inputs.items():
            dtype = tf.as_dtype(expected["inputs"][name]["dtype"].removeprefix("DT_").lower())
            try:
                tensor = tf.make_tensor_proto(column, dtype)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"inputs[{name!r}] cannot be read as {dtype.name}: {error}"
                ) from None
            request.inputs[name].CopyFrom(tensor)
        outputs = self.call(self.predictions.Predict, request).outputs
        return {name: from_tensor(name, tf.make_ndarray(value)) for name, value in outputs.items()}

    def stream(self, request):
        raise ValueError(f"url={self.url!r}: stream needs REST, so pass an http:// address.")

    def signatures(self):
        from google.protobuf.json_format import MessageToDict
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = self.about(get_model_metadata_pb2.GetModelMetadataRequest())
        request.metadata_field.append("signature_def")
        packed = self.call(self.predictions.GetModelMetadata, request).metadata["signature_def"]
        signatures = get_model_metadata_pb2.SignatureDefMap()
        packed.Unpack(signatures)
        return signatures_from_json(MessageToDict(signatures, preserving_proto_field_name=True))

    def status(self):
        from tensorflow_serving.apis import get_model_status_pb2

        request = self.about(get_model_status_pb2.GetModelStatusRequest())
        answer = self.call(self.models.GetModelStatus, request)
        return [
            {
                "version": version.version,
                "state": version.State.Name(version.state),
                "error": version.status.error_message,
            }
            for version in answer.model_version_status
        ]

    def about(self, request, **spec):
        for key, value in {"name": self.model, **spec}.items():
            setattr(request.model_spec, key, value)
        if self.version is not None:
            request.model_spec.version.value = self.version
        return request

    def call(self, method, request):
        try:
            return method(request, timeout=self.timeout, metadata=self.metadata)
        except self.grpc.RpcError as error:
            raise self.error(error.code().name, error.details() or "") from None

    def close(self):
        self.channel.close()


def _is_here(url):
    host = urlsplit(url).hostname
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
