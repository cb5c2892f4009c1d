"""The embedded server: models behind REST and gRPC, each on its own port."""

import contextlib
import logging
import resource
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import grpc

from keras_lm.layers.tensorflow import MOST_TOKENS
from keras_lm.serving import open_inference_grpc, page
from keras_lm.serving.access import Access
from keras_lm.serving.callers import SHUTTING_DOWN, Callers
from keras_lm.serving.errors import ServingError
from keras_lm.serving.grpc_services import Arrivals, add_services
from keras_lm.serving.http_server import HANDSHAKE, Hosts, HttpServer, check_certificate
from keras_lm.serving.keys import Keys
from keras_lm.serving.models import ModelConfig, Models, check_folder
from keras_lm.serving.monitoring import Monitor
from keras_lm.serving.rest import Application
from keras_lm.serving.work_limits import BodyMemory, Tokens, Work
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.model_versions import check_name, default_name, find_models
from keras_lm.utils.user_arguments import checks_flags

logger = logging.getLogger("keras_lm.serving")

REST_THREADS = 32
MODEL_THREADS = REST_THREADS // 2  # at most for one model, so that a slow one leaves some free
STREAM_THREADS = 8  # a stream occupies one until its end; further streams wait
TELLING_THREADS = 2  # for answers about models, and measures
GRPC_THREADS = 64  # these also answer quick requests
REQUESTS_AT_ONCE = 2  # of those that generate as much as one may
GRACE = 5  # seconds that running requests have to end after `stop`
STOPPING = 1  # seconds more for work that is stopped, until its next operation
MOST_CONNECTIONS = 1000


class Server:
    """Serves exports with TensorFlow Serving's REST and gRPC protocols, for development.

    It serves the newest version of each model. A version that appears in the folder is loaded and
    takes over; the old one leaves memory after its last request. If a version cannot be loaded, the
    model's status shows the error, and the old version is served on; the server tries again once
    the files change. A `.tflite` is served alike, and taken up again when it is replaced; its
    version is the second in which it was written. TensorFlow Serving cannot serve it.

    By default everyone may ask, but only this machine can reach the server; see `host`, `api_keys`
    and `certificate`. Requests for another host name are refused, so that a web page cannot reach
    the server by DNS rebinding. Over gRPC, clients may change the names, versions
    and labels of the served models (`HandleReloadConfigRequest`), but cannot add folders.

    Args:
        folders: path of a folder of numbered versions or of a `.tflite`, as `task.export` writes
            them; or of a folder with several of these; or a list of such paths; or a dict of name →
            path. The default name is that of the folder, or of the file without its suffix.
        host: str, the address to listen on.
        rest_port, grpc_port: int. 0 takes a free one.
        poll_seconds: float, how often to look for new versions.
        allowed_hosts: list of str, further names to accept in the `Host` header of REST requests,
            such as the one that a proxy passes on; `*` in them matches any characters. `host` and
            this machine's names for itself are always accepted; if `host` means all addresses, so
            are all addresses and the machine's name.
        max_request_bytes: int, the largest body of a REST request, both as sent and unzipped, and
            the largest gRPC message. Larger ones are answered with 413 or `RESOURCE_EXHAUSTED`.
        max_connections: int, for REST and for gRPC each. Above it, REST closes the connection that
            has been idle for the longest, and answers 503 if none is idle; gRPC accepts no new
            connections, but closes those without a handshake after 5 seconds; it runs as many
            calls, and answers further ones `RESOURCE_EXHAUSTED`. None is a quarter of
            the files that the process may open, at most 1,000.
        request_timeout: float, seconds that a client has to send a whole request, and to read the
            answer. Idle connections are closed after the same time. A gRPC call whose message
            takes longer is cancelled, or longer than two seconds if other messages wait for it.
        max_total_bytes: int, the most bytes of all request bodies together, unzipped, while they
            are answered; the first 64 KiB of each do not count. A request that exceeds it is
            answered with 429, or `RESOURCE_EXHAUSTED`. gRPC messages count once they are there;
            as they arrive, each counts as `max_request_bytes`, and those that would exceed the same
            number of bytes wait. None is twice `max_request_bytes`.
        max_rows: int, the maximum number of rows in a request. An input with several strings a row,
            such as choices or words, may have 16 times as many strings. Larger requests are
            answered with 400, or `INVALID_ARGUMENT`.
        num_interpreters: int, how many requests a `.tflite` answers at a time, with `num_threads`
            divided among them. By one, which has all cores, short requests are joined, and long
            ones take turns with others after each 16 rows; with two, a client waits less beside
            long requests, and all together get fewer answers.
        num_threads: int, the threads of all interpreters of a `.tflite`; None for one on each core
            that the process may use.
        cors: bool. Whether web pages of other origins may ask over REST, as with
            TensorFlow Serving's `rest_api_enable_cors_support`.
        api_keys: list of str, or a `pathlib.Path` of a file with a key on each line, which is read
            again when it changes, so that keys can be replaced. Requests then need the header
            `Authorization: Bearer KEY`, over gRPC the metadata `authorization`, and are else
            answered with 401, or `UNAUTHENTICATED`. The page asks for the key. `/healthz` and
            `/readyz` are open to everyone. None for no keys.
        certificate, private_key: paths of PEM files, of a certificate, with those that it depends
            on after it, and its key: REST is then HTTPS, and gRPC encrypted. They are read once.
        requests_per_minute: int. How often a client may ask over both protocols, each by its key,
            or without keys by its address; by default any number of times. Further requests are
            answered with 429 and `Retry-After`, or `RESOURCE_EXHAUSTED`.
        max_waiting: int. How many requests may wait for a model, over REST while it answers 16, and
            over gRPC while 64 of all are answered. Further ones are refused as above. By default as
            many as there are connections.
        max_concurrent_tokens: int. How many tokens the requests that are answered at a time may
            have, over all models and both protocols: a quarter of the bytes of the longest text for
            each row, before it is tokenized, and rows × beams × new tokens. Further requests are
            refused as above; one with more is answered if no other is. By default any number.
        examples: dict of a model's name → what its fields on the page contain at first: a text,
            or a dict of inputs → text, or list of texts. None for examples of the task.

    Raises:
        FileNotFoundError: if a folder does not exist, or has no version. TensorFlow Serving would
            wait for one to appear.
        NotADirectoryError: if a folder is a file other than a `.tflite`.
        ValueError: if a path is a version instead of the folder of all, `folders` is empty, two
            models have the same name, a name cannot be part of a URL, a number is out of range,
            `allowed_hosts` is a single string, `api_keys` has no keys, or `examples` has no texts
            of a model.

    Example:

        with keras_lm.serving.Server("exported") as server:
            url = f"{server.rest_url}/v1/models/{server.model_names[0]}:predict"
            answer = requests.post(url, json={"instances": ["a fine film"]}).json()
    """

    @checks_flags
    def __init__(
        self,
        folders: PathLike | Sequence[PathLike] | Mapping[str, PathLike],
        host: str = "127.0.0.1",
        rest_port: int = 0,
        grpc_port: int = 0,
        poll_seconds: float = 1.0,
        allowed_hosts: Sequence[str] = (),
        max_request_bytes: int = 2**26,
        max_connections: int | None = None,
        request_timeout: float = 60.0,
        max_total_bytes: int | None = None,
        max_rows: int = 1024,
        num_interpreters: int = 1,
        num_threads: int | None = None,
        cors: bool = False,
        examples: Mapping[str, Any] | None = None,
        api_keys: Sequence[str] | Path | None = None,
        certificate: PathLike | None = None,
        private_key: PathLike | None = None,
        requests_per_minute: int | None = None,
        max_waiting: int | None = None,
        max_concurrent_tokens: int | None = None,
    ):
        self._configs = _make_configs(folders)
        _check_positive(
            poll_seconds=poll_seconds,
            max_request_bytes=max_request_bytes,
            max_connections=max_connections,
            request_timeout=request_timeout,
            max_total_bytes=max_total_bytes,
            max_rows=max_rows,
            num_interpreters=num_interpreters,
            num_threads=num_threads,
            requests_per_minute=requests_per_minute,
            max_waiting=max_waiting,
            max_concurrent_tokens=max_concurrent_tokens,
        )
        max_total_bytes = _total_bytes(max_total_bytes, max_request_bytes)
        self._host = host
        self._ports = _check_ports(rest_port=rest_port, grpc_port=grpc_port)
        self._poll_seconds = poll_seconds
        self._hosts = Hosts(host, allowed_hosts)
        self._max_request_bytes = max_request_bytes
        self._max_connections = max_connections or _default_connections()
        self._request_timeout = request_timeout
        self._body_memory = BodyMemory(max_total_bytes)
        self._arrivals = Arrivals(max_total_bytes // max_request_bytes, request_timeout)
        work = Work(REQUESTS_AT_ONCE * MOST_TOKENS)
        tokens = None if max_concurrent_tokens is None else Tokens(max_concurrent_tokens)
        self._models = Models(max_rows, num_interpreters, num_threads, work, tokens)
        self._monitor = Monitor(self._models)
        self._keys = api_keys if isinstance(api_keys, (Keys, type(None))) else Keys(api_keys)
        self._access = Access(self._keys, requests_per_minute, self._monitor)
        check_certificate(certificate, private_key)
        self._certificate, self._private_key = certificate, private_key
        self._max_waiting, self._cors = max_waiting, cors
        self._examples = _check_examples(examples or {}, self.model_names)
        self._is_running = False
        self._stopping = threading.Event()

    @property
    def rest_url(self) -> str:
        """The URL of REST, such as "http://127.0.0.1:8501"."""
        return f"http{'s' if self._certificate else ''}://{self._address('rest_port')}"

    @property
    def grpc_address(self) -> str:
        """The address of gRPC, such as "127.0.0.1:8500"."""
        return self._address("grpc_port")

    @property
    def model_names(self) -> list[str]:
        """Names of the served models."""
        return self._models.names or [config.name for config in self._configs]

    def _address(self, port):
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._ports[port]}"

    def start(self) -> Self:
        """Load the models and start to answer; return the server itself.

        Raises:
            OSError: if a port is taken.
            RuntimeError: if a model cannot be loaded, or the server is already running.
        """
        if self._is_running:
            raise RuntimeError(f"This server is already running, at {self.rest_url}.")
        self._callers = Callers()
        with contextlib.ExitStack() as undo:  # ports first, since loading may take long
            rest_socket = self._bind_rest()
            undo.callback(rest_socket.close)
            self._grpc = self._bind_grpc()
            undo.callback(self._grpc.stop, None)
            undo.callback(self._models.close)
            try:
                self._models.configure(self._configs)
            except ServingError as error:
                raise RuntimeError(f"Cannot serve. {error.message}") from error
            undo.pop_all()
        self._stopping.clear()
        self._workers = ThreadPoolExecutor(REST_THREADS, "keras-lm-rest")
        self._writers = ThreadPoolExecutor(STREAM_THREADS, "keras-lm-stream")
        self._tellers = ThreadPoolExecutor(TELLING_THREADS, "keras-lm-tell")
        application = Application(
            models=self._models,
            workers=self._workers,
            share=MODEL_THREADS,
            writers=self._writers,
            tellers=self._tellers,
            callers=self._callers,
            page_data=self._page_data,
            access=self._access,
            max_waiting=self._max_waiting,
            hosts=self._hosts,
            max_request_bytes=self._max_request_bytes,
            body_memory=self._body_memory,
            monitor=self._monitor,
            cors=self._cors,
        )
        self._rest = HttpServer(
            application,
            self._max_connections,
            self._request_timeout,
            GRACE + STOPPING,
            self._certificate,
            self._private_key,
        )
        self._rest_thread = threading.Thread(
            target=self._rest.run, args=([rest_socket],), name="keras-lm-rest", daemon=True
        )
        self._poll_thread = threading.Thread(target=self._poll, name="keras-lm-poll", daemon=True)
        self._grpc.start()
        self._rest_thread.start()
        self._rest.is_ready.wait()
        self._poll_thread.start()
        self._is_running = True
        return self

    def stop(self) -> bool:
        """Stop answering. Running requests have a few seconds to finish.

        Returns:
            bool, whether nothing is computed any more. Requests that take longer are answered with
            503 or `UNAVAILABLE`, streams end with an event that says so, and their work is stopped;
            False if it cannot be, as in a long operation of TensorFlow's.
        """
        if not self._is_running:
            return True
        self._is_running = False
        self._stopping.set()
        end = time.monotonic() + GRACE
        ending = threading.Timer(GRACE, self._callers.leave, [SHUTTING_DOWN])
        ending.start()
        self._rest.should_exit = True
        self._grpc.stop(GRACE + STOPPING).wait(GRACE + STOPPING + 1)
        self._rest_thread.join()
        ending.cancel()
        for threads in (self._workers, self._writers, self._tellers):
            threads.shutdown(wait=False, cancel_futures=True)
        self._poll_thread.join(max(end - time.monotonic(), 0))
        while self._models.is_busy and time.monotonic() < end + STOPPING:
            time.sleep(0.01)
        if self._models.is_busy or self._poll_thread.is_alive():
            return False
        self._models.close()
        return True

    def wait(self) -> None:
        """Block until `stop` is called from another thread, or Ctrl+C is pressed here."""
        self._stopping.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception):
        self.stop()

    def _page_data(self):
        scheme = "grpcs" if self._certificate else "grpc"
        return page.data(self._models.names, self.grpc_address, self._examples, scheme)

    def _bind_rest(self):
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # asyncio sets TCP_NODELAY only if the socket names TCP as its protocol; without it, small
        # answers wait 40 ms.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((self._host, self._ports["rest_port"]))
        except OSError as error:
            bound.close()
            raise self._bind_error("rest_port", error) from error
        self._ports["rest_port"] = bound.getsockname()[1]
        return bound

    def _bind_grpc(self):
        server = grpc.server(
            ThreadPoolExecutor(GRPC_THREADS, "keras-lm-grpc"),
            interceptors=[self._access, self._arrivals, self._monitor],
            maximum_concurrent_rpcs=min(
                self._max_connections, GRPC_THREADS + (self._max_waiting or self._max_connections)
            ),
            options=[
                ("grpc.max_send_message_length", -1),  # no limit
                ("grpc.max_receive_message_length", self._max_request_bytes),
                ("grpc.max_allowed_incoming_connections", self._max_connections),
                ("grpc.max_connection_idle_ms", int(1000 * self._request_timeout)),
                ("grpc.server_handshake_timeout_ms", 1000 * HANDSHAKE),
                # Otherwise gRPC takes megabytes of messages that nobody waits for yet.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.so_reuseport", 0),  # otherwise two servers could share one port
            ],
        )
        folders = [config.folder for config in self._configs]
        add_services(server, self._models, folders, self._body_memory, self._callers)
        open_inference_grpc.add_service(server, self._models, self._body_memory, self._callers)
        try:
            if self._certificate:
                pair = Path(self._private_key).read_bytes(), Path(self._certificate).read_bytes()
                credentials = grpc.ssl_server_credentials([pair])
                port = server.add_secure_port(self.grpc_address, credentials)
            else:
                port = server.add_insecure_port(self.grpc_address)
        except RuntimeError as error:
            raise self._bind_error("grpc_port", error) from error
        self._ports["grpc_port"] = port
        return server

    def _bind_error(self, port, error):
        return OSError(
            f"host={self._host!r}, {port}={self._ports[port]}: cannot listen there ({error}). If "
            "the port is taken, pass another one, or 0 for any free port."
        )

    def _poll(self):
        while not self._stopping.wait(self._poll_seconds):
            self._arrivals.end_late()
            if self._keys is not None:
                self._keys.poll()
            try:
                self._models.poll()
            except Exception:
                logger.exception("Looking for new versions failed.")


def _check_positive(**numbers):
    for name, value in numbers.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name}={value}: pass a number above 0.")


def _total_bytes(max_total_bytes, max_request_bytes):
    if max_total_bytes is None:
        return 2 * max_request_bytes
    if max_total_bytes < max_request_bytes:
        raise ValueError(
            f"max_total_bytes={max_total_bytes} is less than max_request_bytes="
            f"{max_request_bytes}: pass at least as many."
        )
    return max_total_bytes


def _check_ports(**ports):
    for name, port in ports.items():
        if not 0 <= port < 2**16:
            raise ValueError(f"{name}={port}: pass a number from 1 to 65535, or 0 for any.")
    return ports


def _default_connections():
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files < 0 else max(min(files // 4, MOST_CONNECTIONS), 1)


def _check_examples(examples, model_names):
    """Return a dict of name → text or dict of texts; raise a ValueError if it fits no model."""
    for name, example in examples.items():
        if name not in model_names:
            raise ValueError(f"examples has {name!r}, and the models are {', '.join(model_names)}.")
        texts = example.values() if isinstance(example, Mapping) else [example]
        for text in texts:
            if not isinstance(text, str) and not (
                isinstance(text, (list, tuple)) and all(isinstance(part, str) for part in text)
            ):
                raise ValueError(
                    f"examples[{name!r}] has {text!r}: pass a text, or a dict of inputs → text, or "
                    "list of texts."
                )
    return dict(examples)


def _make_configs(folders):
    if not isinstance(folders, dict):
        paths = [folders] if isinstance(folders, (str, Path)) else folders
        if not isinstance(paths, Iterable):
            raise ValueError(
                f"folders is a {type(folders).__name__}: pass the path of a folder of exports, as "
                "`task.export` writes them."
            )
        paths = [model for path in paths for model in find_models(Path(path).resolve())]
        named = [(default_name(path), path) for path in paths]
    else:
        named = list(folders.items())
    if not named:
        raise ValueError("folders is empty: pass at least one folder of exported versions.")
    configs = {}
    for name, path in named:
        folder = Path(path).resolve()
        check_folder(folder)
        check_name(name)
        if name in configs:
            raise ValueError(
                f"folders: {str(configs[name].folder)!r} and {str(folder)!r} would both be called "
                f"{name!r}. Pass a dict of folders by name."
            )
        configs[name] = ModelConfig(name, folder)
    return list(configs.values())
