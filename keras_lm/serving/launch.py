"""Start a server of exported models: TF Serving if it is available, else the embedded one.

`launch` tries `tensorflow_model_server` on PATH, TF Serving's container and the embedded server, in
this order, and keeps the first that starts.
"""

import socket
from dataclasses import dataclass, field
from pathlib import Path

from keras_lm.serving.engines import ENGINES, CannotStart, LaunchError, open_socket
from keras_lm.serving.model_names import check_name, default_name
from keras_lm.utils.model_versions import find_versions


@dataclass(frozen=True)
class Plan:
    """What to serve, and where; port 0 takes a free one.

    `models` is a dict of name → absolute `Path` of its versions or `.tflite`; see `find_models`.
    `limits` are further arguments of `Server`, for the embedded server only, except for `cors`.
    """

    models: dict
    host: str = "127.0.0.1"
    rest_port: int = 0
    grpc_port: int = 0
    limits: dict = field(default_factory=dict)


def find_models(folders, names=()):
    """Check folders of versions and `.tflite`s, and return a dict of name → absolute `Path`."""
    if names and len(names) != len(folders):
        raise LaunchError(
            f"--name is given {len(names)} times for {len(folders)} folders: give it once for each "
            "folder, in their order, or not at all."
        )
    models = {}
    for index, folder in enumerate(folders):
        path = Path(folder).resolve()
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
                say(f"Engine: {candidate.description}" + "".join(f"; {m}" for m in missed) + ".")
                return server
        missed.append(problem)
    raise LaunchError("No server could be started: " + "; ".join(missed) + ".")


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
