"""A server in this process: models, REST and gRPC, each on its own port."""

import contextlib
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import uvicorn

from keras_lm.serving.errors import ServingError
from keras_lm.serving.grpc_services import add_services
from keras_lm.serving.models import ModelConfig, Models, check_folder, check_name
from keras_lm.serving.rest import make_application

logger = logging.getLogger("keras_lm.serving")

REST_THREADS = 32
GRPC_THREADS = 64  # these answer everything, also what is quick
GRACE = 5  # seconds in which requests may end after `stop`


class Server:
    """Serves SavedModels with TensorFlow Serving's REST and gRPC protocols, for development.

    The newest version of a model is served. A version that appears in its folder is loaded beside
    the old one and takes over; the old one leaves memory with its last request. A version that
    cannot be loaded shows in the model's status with the error, while the old one serves on; it is
    tried again once its files change.

    Nobody is asked for a password and nothing is encrypted, which is why a server can be reached
    from this machine only, unless `host` says otherwise.

    Args:
        folders: path of a folder of numbered versions, such as `task.export` writes; or a list of
            such paths; or a dict of them by name. A model without a name is called like its folder.
        host: str, the address to listen on.
        rest_port, grpc_port: int. 0 takes a free one.
        poll_seconds: float, how often to look for new versions.

    Raises:
        FileNotFoundError: if a folder does not exist, or no version is in it. TensorFlow Serving
            would wait for one to appear.
        ValueError: if a path is a version and not the folder of all, two models have one name, or a
            number is out of range.

    Example:

        with keras_lm.serving.Server("exported") as server:
            url = f"{server.rest_url}/v1/models/{server.model_names[0]}:predict"
            answer = requests.post(url, json={"instances": ["a fine film"]}).json()
    """

    def __init__(self, folders, host="127.0.0.1", rest_port=0, grpc_port=0, poll_seconds=1.0):
        self._configs = _make_configs(folders)
        if not poll_seconds > 0:
            raise ValueError(f"poll_seconds={poll_seconds}: pass a number above 0.")
        self._host = host
        self._ports = {"rest_port": rest_port, "grpc_port": grpc_port}
        for name, port in self._ports.items():
            if not 0 <= port < 2**16:
                raise ValueError(f"{name}={port}: pass a number from 1 to 65535, or 0 for any.")
        self._poll_seconds = poll_seconds
        self._models = Models()
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
        self._rest = _RestServer(
            uvicorn.Config(
                make_application(self._models, self._workers, self.grpc_address),
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
            )
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

    def stop(self):
        """Stop answering. Running requests get a few seconds to finish."""
        if not self._is_running:
            return
        self._is_running = False
        self._stopping.set()
        self._rest.should_exit = True
        self._grpc.stop(GRACE).wait()
        self._rest_thread.join()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._poll_thread.join()
        self._models.close()

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
        unlimited = -1
        server = grpc.server(
            ThreadPoolExecutor(GRPC_THREADS, "keras-lm-grpc"),
            options=[
                ("grpc.max_send_message_length", unlimited),
                ("grpc.max_receive_message_length", unlimited),
                ("grpc.so_reuseport", 0),  # else two servers would share one port
            ],
        )
        add_services(server, self._models)
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


class _RestServer(uvicorn.Server):
    """Tells when it has begun to answer."""

    def __init__(self, config):
        super().__init__(config)
        self.is_ready = threading.Event()

    async def startup(self, sockets=None):
        try:
            await super().startup(sockets)
        finally:
            self.is_ready.set()


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
