"""Start a server of exported models: TF Serving if it is available, else the embedded one.

`launch` tries `tensorflow_model_server` on PATH, TF Serving's container and the embedded server, in
this order, and keeps the first that starts.
"""

import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from keras_lm.serving.client import Client, ServerError, signatures_from_json
from keras_lm.utils import model_versions, optional_dependencies
from keras_lm.utils.files import is_remote
from keras_lm.utils.model_versions import check_name, default_name, find_versions

BINARY = "tensorflow_model_server"
IMAGE = "tensorflow/serving:2.20.0"  # runs the exports of 2.21, too
PATIENCE = 10  # seconds that a server has to end after SIGTERM
# Options that must not be without effect → what TensorFlow Serving lacks for them.
PROTECTIONS = {
    "api_keys": "does not check keys",
    "certificate": "does not encrypt REST",
    "requests_per_minute": "does not limit the requests of a client",
    "max_waiting": "does not limit the requests that wait",
    "max_concurrent_tokens": "does not limit the tokens of all requests",
}


class LaunchError(Exception):
    """A server that cannot be started, or that failed.

    Attributes:
        exit_code: int. The exit code for the command: the server's own, if it had one.
    """

    def __init__(self, message, exit_code=1):
        super().__init__(message)
        self.exit_code = exit_code


class CannotStart(LaunchError):
    """An engine that is installed but does not work here; `launch` tries the next one."""


def family_of(host):
    """Return the family of an address, IPv4 or IPv6; IPv4 for names."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def open_socket(host):
    """Return a new socket of the family of an address."""
    return socket.socket(family_of(host))


def address_of(host):
    """Return the address of a host name in the form that a port can follow: IPv6 in brackets."""
    address = socket.getaddrinfo(host, None, family_of(host))[0][4][0]
    return f"[{address}]" if ":" in address else address


def reachable(host):
    """Return the host by which this machine reaches a server that listens on `host`."""
    every = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    host = every.get(host, host)
    return f"[{host}]" if ":" in host else host


def free_ports(host):
    """Return two ports that are free now."""
    with open_socket(host) as one, open_socket(host) as two:
        one.bind((host, 0))
        two.bind((host, 0))
        return one.getsockname()[1], two.getsockname()[1]


def model_config(models):
    """Return TF Serving's `ModelServerConfig` for a dict of name → path, in text form."""

    config = model_server_config_pb2.ModelServerConfig()
    for name, path in models.items():
        config.model_config_list.config.add(
            name=name, base_path=str(path), model_platform="tensorflow"
        )
    return text_format.MessageToString(config, as_utf8=False)


class ChildServer:
    """TF Serving as a child process, which ends with this process."""

    has_page = False

    def __init__(self, plan):
        rest_port, grpc_port = free_ports(plan.host)
        self.plan = replace(
            plan, rest_port=plan.rest_port or rest_port, grpc_port=plan.grpc_port or grpc_port
        )
        self.rest_url = f"http://{reachable(plan.host)}:{self.plan.rest_port}"
        self.grpc_address = f"{reachable(plan.host)}:{self.plan.grpc_port}"
        self.last_lines = deque(maxlen=5)

    @classmethod
    def problem(cls, plan):
        """Return why this engine cannot serve a plan, or None."""
        for option, what in PROTECTIONS.items():
            if plan.limits.get(option):
                return f"TensorFlow Serving {what}"
        files = [path.name for path in plan.models.values() if path.is_file()]
        if files:
            return f"TensorFlow Serving does not have the operations of {files[0]}"
        return cls.missing()

    def start(self):
        """Start the process; return once it answers for every model."""
        self.folder = tempfile.TemporaryDirectory(prefix="keras-lm-serve-")
        os.chmod(self.folder.name, 0o755)  # a container may run as another user
        self.process = None
        try:
            self.process = subprocess.Popen(
                self.command(Path(self.folder.name)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"},  # warnings and errors
                start_new_session=True,  # Ctrl-C reaches only this process, which ends the child
            )
            self.reader = threading.Thread(target=self._pass_on, daemon=True)
            self.reader.start()
            while not self._is_ready():
                self._check()
                time.sleep(0.2)
        except BaseException:
            self.stop()
            raise

    def signatures(self, name):
        """Return a model's signatures, as `Client.metadata` does."""
        with Client(self.rest_url, name) as client:
            return client.metadata()

    def wait(self):
        """Block until the server ends by itself, then raise a `LaunchError` that says why."""
        self.process.wait()
        self._check()

    def stop(self):
        """End the server; kill it if it does not end in time."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                self.kill()
        self.folder.cleanup()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def failure(self, exit_code, last_words):
        """Return the exception for a server that ended with a nonzero exit code."""
        return LaunchError(f"{BINARY} ended with exit code {exit_code}.{last_words}", exit_code)

    def _pass_on(self):
        for line in self.process.stdout:
            text = line.decode("utf-8", "replace")
            self.last_lines.append(text.rstrip())
            sys.stderr.write(text)
            sys.stderr.flush()
        self.process.stdout.close()

    def _is_ready(self):
        try:
            for name in self.plan.models:
                with Client(self.rest_url, name, timeout=2) as client:
                    if not any(version["state"] == "AVAILABLE" for version in client.status()):
                        return False
        except ServerError:
            return False
        return True

    def _check(self):
        code = self.process.poll()
        if code is None:
            return
        self.reader.join(2)
        if code != 0:
            code = 128 - code if code < 0 else code  # a signal, numbered as shells do
            lines = "".join(f"\n  {line}" for line in self.last_lines)
            raise self.failure(code, " Its last lines:" + lines if lines else "")
        raise LaunchError(f"{BINARY} ended by itself.")

    def _flags(self, config, rest_port, grpc_port):
        # Each model's batching_params.pbtxt sets its batching; without one it is not batched.
        return [
            f"--port={grpc_port}",
            f"--rest_api_port={rest_port}",
            f"--model_config_file={config}",
            "--enable_batching=true",
            "--enable_per_model_batching_parameters=true",
            *(["--rest_api_enable_cors_support=true"] if self.plan.limits.get("cors") else []),
        ]


class BinaryServer(ChildServer):
    """The `tensorflow_model_server` on PATH."""

    description = f"{BINARY}, which listens on all addresses of this machine"

    @staticmethod
    def missing():
        """Return what this engine lacks on this machine, or None."""
        return None if shutil.which(BINARY) else f"{BINARY} is not on PATH"

    def command(self, folder):
        """Write the configuration into a folder, and return the command line."""
        config = folder / "models.config"
        config.write_text(model_config(self.plan.models), encoding="ascii")
        return [BINARY, *self._flags(config, self.plan.rest_port, self.plan.grpc_port)]


class DockerServer(ChildServer):
    """TF Serving's container."""

    description = f"{IMAGE} in docker"

    @staticmethod
    def missing():
        if not shutil.which("docker"):
            return "docker is not on PATH"
        try:
            # The docker client may be installed without an engine that runs containers.
            done = subprocess.run(
                ["docker", "version", "--format", "{{.Server.Version}}"],
                capture_output=True,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired:
            return f"docker's engine did not answer within {PATIENCE} seconds"
        return "docker's engine does not answer" if done.returncode else None

    def command(self, folder):
        inside = {name: Path("/models") / name for name in self.plan.models}
        (folder / "models.config").write_text(model_config(inside), encoding="ascii")
        mounts = [(folder, "/config")]
        mounts += [(path, inside[name]) for name, path in self.plan.models.items()]
        address = address_of(self.plan.host)
        self.container = f"keras-lm-serve-{os.getpid()}-{self.plan.rest_port}"
        command = ["docker", "run", "--rm", f"--name={self.container}"]
        command += ["--init"]  # a server that is process 1 would ignore SIGTERM
        command += [f"--publish={address}:{self.plan.rest_port}:8501"]
        command += [f"--publish={address}:{self.plan.grpc_port}:8500"]
        for source, target in mounts:
            fields = [f"source={source}", f"target={target}"]
            quoted = ['"' + field.replace('"', '""') + '"' for field in fields]  # a line of CSV
            command += ["--mount", ",".join(["type=bind", *quoted, "readonly"])]
        command += ["--env=TF_CPP_MIN_LOG_LEVEL=1", "--env=TF_ENABLE_ONEDNN_OPTS"]  # as it is here
        command += [f"--entrypoint={BINARY}", IMAGE]
        return command + self._flags("/config/models.config", 8501, 8500)

    def failure(self, exit_code, last_words):
        if exit_code in (125, 126, 127):  # docker's own: no image, no network, no program
            reason = next((line for line in self.last_lines if "rror" in line), "no reason given")
            return CannotStart(f"docker cannot start {IMAGE} ({reason})", exit_code)
        return super().failure(exit_code, last_words)

    def kill(self):
        subprocess.run(["docker", "kill", self.container], capture_output=True)
        super().kill()


class EmbeddedServer:
    """The server in this library, run in this process."""

    description = "the embedded server of keras_lm"
    has_page = True

    def __init__(self, plan):
        self.plan = plan

    @staticmethod
    def problem(plan):
        missing = [
            name for name in optional_dependencies.packages("serving") if find_spec(name) is None
        ]
        return optional_dependencies.hint(missing, "the embedded server") if missing else None

    def start(self):
        from keras_lm.serving import tracing
        from keras_lm.serving.server import Server  # imports TensorFlow

        # What is there already stays: to look through it for garbage takes a second, in which no
        # thread of Python runs, and would be done while models are loaded.
        gc.freeze()
        plan = self.plan
        try:
            self.server = Server(
                plan.models, plan.host, plan.rest_port, plan.grpc_port, **plan.limits
            )
            self.server.start()
        except (OSError, RuntimeError, ValueError) as error:  # a wrong model or port
            raise LaunchError(str(error)) from error
        self._send_last_traces = tracing.set_up()
        rest = urlsplit(self.server.rest_url)
        self.rest_url = f"{rest.scheme}://{reachable(plan.host)}:{rest.port}"
        self.grpc_address = f"{reachable(plan.host)}:{self.server.grpc_address.rpartition(':')[2]}"
        self.wait = self.server.wait

    def signatures(self, name):
        from keras_lm.serving.rest import write_metadata

        metadata = json.loads(write_metadata(self.server._models, {"name": name}))["metadata"]
        return signatures_from_json(metadata["signature_def"])

    def stop(self):
        """End the server, and the whole process if a request does not end."""
        has_ended = self.server.stop()
        if self._send_last_traces is not None:
            self._send_last_traces()
        if not has_ended:
            # TensorFlow still computes in a thread, and a normal exit would wait for it.
            sys.stdout.flush()
            os._exit(0)


ENGINES = {"binary": BinaryServer, "docker": DockerServer, "embedded": EmbeddedServer}


# === Which one ===


@dataclass(frozen=True)
class Plan:
    """What to serve, and where; port 0 takes a free one.

    `models` is a dict of name → absolute `Path` of its versions or `.tflite`; see `find_models`.
    `limits` are further arguments of `Server`, for the embedded server only, except for `cors`;
    with one of `PROTECTIONS`, TensorFlow Serving is not started.
    """

    models: dict
    host: str = "127.0.0.1"
    rest_port: int = 0
    grpc_port: int = 0
    limits: dict = field(default_factory=dict)


def find_models(folders, names=()):
    """Check folders of versions and `.tflite`s, and return a dict of name → absolute `Path`.

    A folder of several models stands for all of them.
    """
    for folder in filter(is_remote, folders):
        raise LaunchError(f"{folder} is an address: copy it to a disk, and serve it from there.")
    folders = [path for folder in folders for path in model_versions.find_models(Path(folder))]
    if names and len(names) != len(folders):
        raise LaunchError(
            f"--name is given {len(names)} times for {len(folders)} models, "
            f"{', '.join(map(str, folders))}: give it once for each, in their order, or not at all."
        )
    models = {}
    for index, folder in enumerate(folders):
        path = folder.resolve()
        _check_exported(folder, path)
        name = names[index] if names else default_name(path)
        try:
            check_name(name)
        except ValueError as error:
            raise LaunchError(f"{error} Pass another name with --name.") from None
        if name in models:
            raise LaunchError(f"Two models are called {name!r}: name them with --name.")
        models[name] = path
    return models


def _check_exported(folder, path):
    if path.is_file():
        if path.suffix == ".tflite":
            return
        raise LaunchError(
            f"{folder} is a file, but a server takes a folder of SavedModel versions or a .tflite: "
            "task.export(...) or keras-lm export writes them."
        )
    if not path.is_dir():
        raise LaunchError(f"There is no folder {folder}: task.export(...) writes one.")
    if (path / "saved_model.pb").exists():
        raise LaunchError(
            f"{folder} is one version of a model: pass the folder of all versions, {path.parent}."
        )
    if not any((version / "saved_model.pb").exists() for version in find_versions(path).values()):
        remedy = (
            f"it is a preset: keras-lm export {folder} exported writes one."
            if (path / "keras_lm.json").is_file()
            else "a version is a folder with a number for a name and a SavedModel in it, as "
            "task.export writes it."
        )
        raise LaunchError(f"{folder} has no version of a model: {remedy}")


def launch(plan, engine="auto", say=print):
    """Start the first engine that works, and say which one it is and why others were not used.

    An `engine` other than `"auto"` is the only one tried. The returned server has `rest_url`,
    `grpc_address`, `wait()`, which blocks until it ends, and `stop()`. Raises a `LaunchError` if no
    engine starts, or a port is taken.
    """
    if plan.rest_port == plan.grpc_port != 0:
        raise LaunchError(
            f"--rest-port and --grpc-port are both {plan.rest_port}: choose two different ports."
        )
    check_port("--rest-port", plan.host, plan.rest_port)
    check_port("--grpc-port", plan.host, plan.grpc_port)
    missed = []
    for candidate in ENGINES.values() if engine == "auto" else [ENGINES[engine]]:
        problem = candidate.problem(plan)
        if problem is None:
            say(f"Starting {candidate.description} ...")
            server = candidate(plan)
            try:
                server.start()
            except CannotStart as error:
                if engine != "auto":
                    raise
                problem = str(error)
            else:
                say(
                    f"Engine: {candidate.description}"
                    + "".join(f"; {m}" for m in dict.fromkeys(missed))
                    + "."
                )
                return server
        missed.append(problem)
    raise LaunchError("No server could be started: " + "; ".join(dict.fromkeys(missed)) + ".")


def check_port(option, host, port):
    """Raise a `LaunchError` for a port that is not available, before a model is loaded."""
    with open_socket(host) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just closed is free
        try:
            probe.bind((host, port))
        except OSError as error:
            raise LaunchError(
                f"{option} {port} of {host} cannot be used ({error.strerror}): choose another, or "
                "0 for a free one."
            ) from None
