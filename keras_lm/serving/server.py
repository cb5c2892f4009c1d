"""A server in this process: models, REST and gRPC, each on its own port."""

import contextlib
import logging
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from keras_lm.serving.body_memory import BodyMemory
from keras_lm.serving.errors import ServingError
from keras_lm.serving.grpc_services import add_services
from keras_lm.serving.hosts import Hosts
from keras_lm.serving.http_server import HttpServer
from keras_lm.serving.model_names import check_name
from keras_lm.serving.models import ModelConfig, Models, check_folder
from keras_lm.serving.rest import make_application

logger = logging.getLogger("keras_lm.serving")

REST_THREADS = 32
MODEL_THREADS = REST_THREADS // 2  # a model's at most, however slow it is
STREAM_THREADS = 8  # each is a text's until its end; further ones wait for another to end
GRPC_THREADS = 64  # these answer everything, also what is quick
GRACE = 5  # seconds in which requests may end after `stop`
HANDSHAKE = 5000  # milliseconds that a gRPC client has to introduce itself
MOST_CONNECTIONS = 1000


class Server:
    """Serves SavedModels with TensorFlow Serving's REST and gRPC protocols, for development.

    The newest version of a model is served. A version that appears in its folder is loaded beside
    the old one and takes over; the old one leaves memory with its last request. A version that
    cannot be loaded shows in the model's status with the error, while the old one serves on; it is
    tried again once its files change.

    Nobody is asked for a password and nothing is encrypted, which is why a server can be reached
    from this machine only, unless `host` says otherwise. Requests for another host are refused, so
    that no web page gets in by a name of its own. Over gRPC, clients may have the models served by
    other names, versions and labels (`HandleReloadConfigRequest`), but from no other folders.

    Args:
        folders: path of a folder of numbered versions, such as `task.export` writes; or a list of
            such paths; or a dict of them by name. A model without a name is called like its folder.
        host: str, the address to listen on.
        rest_port, grpc_port: int. 0 takes a free one.
        poll_seconds: float, how often to look for new versions.
        allowed_hosts: list of str, further names that the `Host` header of a REST request may have,
            such as the one that a proxy passes on; `*` in them stands for any characters. Allowed
            anyway are `host` and this machine's names for itself, and with a `host` that stands for
            all addresses any address and the machine's name.
        max_request_bytes: int, the largest body of a REST request, also once it is unzipped, and
            the largest message over gRPC. More is answered by 413 or `RESOURCE_EXHAUSTED`.
        max_connections: int, over REST, and as many over gRPC. REST closes the one that has been
            idle for the longest to take a new one, and answers 503 if none is; gRPC takes no new
            one, but closes after 5 seconds those that say nothing. None is a quarter of the files
            that the process may have open, and 1,000 at most.
        request_timeout: float, seconds in which a client has to send the whole of a request, and
            to take its answer. A connection without a request is closed after them.
        max_total_bytes: int, how many bytes the bodies of all requests may have together while they
            are answered, unzipped; the first 64 KiB of each do not count. A request for which none
            are left is answered by 429, or `RESOURCE_EXHAUSTED`. None is twice `max_request_bytes`.
        max_rows: int, the most rows of a request. An input with several strings a row, such as
            choices or words, may have 16 times as many strings in all. More is answered by 400, or
            `INVALID_ARGUMENT`.

    Raises:
        FileNotFoundError: if a folder does not exist, or no version is in it. TensorFlow Serving
            would wait for one to appear.
        NotADirectoryError: if a folder is a file.
        ValueError: if a path is a version and not the folder of all, there is no folder, two models
            have one name, a name cannot stand in URLs, a number is out of range, or `allowed_hosts`
            is a single string.

    Example:

        with keras_lm.serving.Server("exported") as server:
            url = f"{server.rest_url}/v1/models/{server.model_names[0]}:predict"
            answer = requests.post(url, json={"instances": ["a fine film"]}).json()
    """

    def __init__(
        self,
        folders,
        host="127.0.0.1",
        rest_port=0,
        grpc_port=0,
        poll_seconds=1.0,
        allowed_hosts=(),
        max_request_bytes=2**26,
        max_connections=None,
        request_timeout=60.0,
        max_total_bytes=None,
        max_rows=1024,
    ):
        self._configs = _make_configs(folders)
        if max_connections is None:
            max_connections = _default_connections()
        if max_total_bytes is None:
            max_total_bytes = 2 * max_request_bytes
        for name, value in {
            "poll_seconds": poll_seconds,
            "max_request_bytes": max_request_bytes,
            "max_connections": max_connections,
            "request_timeout": request_timeout,
            "max_total_bytes": max_total_bytes,
            "max_rows": max_rows,
        }.items():
            if not value > 0:
                raise ValueError(f"{name}={value}: pass a number above 0.")
        if max_total_bytes < max_request_bytes:
            raise ValueError(
                f"max_total_bytes={max_total_bytes} is less than the {max_request_bytes} that one "
                "request may have: pass as many at least."
            )
        self._host = host
        self._ports = {"rest_port": rest_port, "grpc_port": grpc_port}
        for name, port in self._ports.items():
            if not 0 <= port < 2**16:
                raise ValueError(f"{name}={port}: pass a number from 1 to 65535, or 0 for any.")
        self._poll_seconds = poll_seconds
        self._hosts = Hosts(host, allowed_hosts)
        self._max_request_bytes = max_request_bytes
        self._max_connections = max_connections
        self._request_timeout = request_timeout
        self._body_memory = BodyMemory(max_total_bytes)
        self._models = Models(max_rows)
        self._is_running = False
        self._stopping = threading.Event()

    @property
    def rest_url(self):
        """Where REST answers, such as "http://127.0.0.1:8501"."""
        return f"http://{self._address('rest_port')}"

    @property
    def grpc_address(self):
        """Where gRPC answers, such as "127.0.0.1:8500"."""
        return self._address("grpc_port")

    @property
    def model_names(self):
        """Names of the models that are served."""
        return self._models.names or [config.name for config in self._configs]

    def _address(self, port):
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._ports[port]}"

    def start(self):
        """Load the models and begin to answer; return this server once both ports do.

        Raises:
            OSError: if a port is taken.
            RuntimeError: if a model cannot be loaded, or the server runs already.
        """
        if self._is_running:
            raise RuntimeError(f"This server runs already, at {self.rest_url}.")
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
        application = make_application(
            self._models,
            self._workers,
            MODEL_THREADS,
            self._writers,
            self.grpc_address,
            self._hosts,
            self._max_request_bytes,
            self._body_memory,
        )
        self._rest = HttpServer(application, self._max_connections, self._request_timeout, GRACE)
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

    def stop(self):
        """Stop answering. Running requests get a few seconds to finish.

        Returns:
            bool, whether they did. A client whose request did not is told that the server ends
            (503, `CANCELLED`), but TensorFlow computes on, in a thread that cannot be ended.
        """
        if not self._is_running:
            return True
        self._is_running = False
        self._stopping.set()
        end = time.monotonic() + GRACE
        self._rest.should_exit = True
        self._grpc.stop(GRACE).wait(GRACE + 1)
        self._rest_thread.join()
        for threads in (self._workers, self._writers):
            threads.shutdown(wait=False, cancel_futures=True)
        self._poll_thread.join(max(end - time.monotonic(), 0))
        if self._models.is_busy or self._poll_thread.is_alive():
            return False
        self._models.close()
        return True

    def wait(self):
        """Block until `stop` is called from another thread, or Ctrl+C is pressed here."""
        self._stopping.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception):
        self.stop()

    def _bind_rest(self):
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # Only of a socket that says TCP does asyncio send what is small at once, not 40 ms later.
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
            options=[
                ("grpc.max_send_message_length", -1),  # no limit
                ("grpc.max_receive_message_length", self._max_request_bytes),
                ("grpc.max_allowed_incoming_connections", self._max_connections),
                ("grpc.max_connection_idle_ms", int(1000 * self._request_timeout)),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE),
                ("grpc.so_reuseport", 0),  # else two servers would share one port
            ],
        )
        folders = [config.folder for config in self._configs]
        add_services(server, self._models, folders, self._body_memory)
        try:
            port = server.add_insecure_port(self.grpc_address)
        except RuntimeError as error:
            raise self._bind_error("grpc_port", error) from error
        self._ports["grpc_port"] = port
        return server

    def _bind_error(self, port, error):
        return OSError(
            f"host={self._host!r}, {port}={self._ports[port]}: cannot listen there. Is the port "
            f"taken? Pass another one, or 0 for any that is free. ({error})"
        )

    def _poll(self):
        while not self._stopping.wait(self._poll_seconds):
            try:
                self._models.poll()
            except Exception:
                logger.exception("Looking for new versions failed.")


def _default_connections():
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files < 0 else max(min(files // 4, MOST_CONNECTIONS), 1)


def _make_configs(folders):
    if not isinstance(folders, dict):
        paths = [folders] if isinstance(folders, (str, Path)) else list(folders)
        named = [(Path(path).resolve().name, path) for path in paths]
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
