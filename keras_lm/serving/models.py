"""The versions of models in memory: found, loaded, leased, released.

A model is a folder of numbered versions, or a `.tflite`, whose version is the second in which it
was written. `Models.poll` looks at the folders; it loads new versions
first, and then releases old ones. A request holds its version with `Models.lease`; a released
version leaves memory after its last request.
"""

import contextlib
import functools
import gc
import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from keras_lm.serving import messages
from keras_lm.serving.errors import ServingError, StatusCode, invalid, tensorflow_errors
from keras_lm.serving.inference import LiteRTModel, SavedModel, ServedModel
from keras_lm.utils.batch_iteration import iterate_batches
from keras_lm.utils.model_versions import find_versions

logger = logging.getLogger("keras_lm.serving")

TFLITE = ".tflite"


@dataclass(frozen=True)
class ModelConfig:
    """What to serve under one name.

    `latest` is how many of the newest versions to serve, or None for all; `versions`, if not empty,
    are served instead. `labels` is a dict of label → version number.
    """

    name: str
    folder: Path
    latest: int | None = 1
    versions: tuple = ()
    labels: dict = field(default_factory=dict)

    def wanted(self, numbers):
        """Return those of the existing versions that should be served."""
        if self.versions:
            return [number for number in numbers if number in self.versions]
        return sorted(numbers)[-self.latest :] if self.latest else sorted(numbers)


@dataclass(eq=False)
class Version:
    """One version of a model, in memory or not.

    `state` is one of TF Serving's states by name, `error` why loading failed, `users` the number of
    requests that it is answering, and `files` what was in its folder when it was loaded.
    """

    number: int
    folder: Path
    state: str = "START"
    error: ServingError | None = None
    served: ServedModel | None = None
    users: int = 0
    files: frozenset = frozenset()


class _Model:
    def __init__(self, config):
        self.config = config
        self.versions = {}
        self.is_empty = False

    def available(self):
        return {n: v for n, v in self.versions.items() if v.state == "AVAILABLE"}


class Models:
    """All models of a server. Every method may be called from any thread.

    Args:
        max_rows: int, the maximum number of rows in a request; None for no limit.
        num_interpreters, num_threads: int, of each `.tflite`; see `litert.InterpreterPool`.
        work: `work_limits.Work` that all share; None for no limit.
        tokens: `work_limits.Tokens` that all share; None for no limit.

    Attributes:
        observe: function that is called with a model's name, the number of rows of a batch, and a
            list of the seconds that its requests have waited; None for none. A version that is
            served under several names is counted under the first.
    """

    def __init__(self, max_rows=None, num_interpreters=1, num_threads=None, work=None, tokens=None):
        self._max_rows = max_rows
        self._work, self._tokens = work, tokens
        self._pool = {"num_interpreters": num_interpreters, "num_threads": num_threads}
        self._models = {}
        self._lock = threading.Lock()  # held briefly, to read or change `_models`
        self._changing = threading.Lock()  # held while a thread loads and releases versions
        self._has_garbage = False
        self.observe = None

    @property
    def names(self):
        """Names of the models, in the order they were given in."""
        with self._lock:
            return list(self._models)

    # For requests

    @contextlib.contextmanager
    def lease(self, name, version=None, label=None):
        """Keep a version in memory and yield its `ServedModel`; the default is the newest."""
        if not name:
            raise invalid("ModelSpec has no name specified.")
        with self._lock:
            held = self._find(name, version, label)
            held.users += 1
        try:
            yield held.served
        finally:
            with self._lock:
                held.users -= 1
                self._end_if_unused(held)

    def _find(self, name, version, label):
        model = self._models.get(name)
        if label is not None:
            version = model.config.labels.get(label) if model else None
            if version is None:
                raise invalid(f"Unrecognized servable version label: {label}")
        available = model.available() if model else {}
        number = max(available, default=None) if version is None else version
        if number not in available:
            asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise ServingError(
                StatusCode.NOT_FOUND,
                f"Servable not found for request: {asked}{self._others(name)}",
            )
        return available[number]

    def _others(self, name):
        """Return the end of an error about a model: those that there are, if it is not one."""
        others = [] if name in self._models else list(self._models)[:20]
        return f"; there are: {', '.join(others)}" if others else ""

    def status(self, name, version=None):
        """Return (number, state, `ServingError` or None) of each version, the newest first."""
        with self._lock:
            model = self._models.get(name)
            statuses = (
                [
                    (number, known.state, known.error)
                    for number, known in sorted(model.versions.items(), reverse=True)
                    if version in (None, number)
                ]
                if model
                else []
            )
        if not statuses:
            which = "any versions" if version is None else f"version {version}"
            raise ServingError(
                StatusCode.NOT_FOUND, f"Could not find {which} of model {name}{self._others(name)}"
            )
        return statuses

    @property
    def is_busy(self):
        """Whether any version is answering a request."""
        with self._lock:
            return any(v.users for model in self._models.values() for v in model.versions.values())

    # For the server

    def configure(self, configs):
        """Serve these models and no others; return once they are loaded.

        A label needs a version that is available already; otherwise nothing is changed, and a
        `ServingError` is raised. It is also raised if a new model does not become available.
        """
        with self._changing:
            for config in configs:
                self._check_labels(config)
            with self._lock:
                before = self._models
                self._models = {
                    config.name: before.get(config.name) or _Model(config) for config in configs
                }
                for config in configs:
                    self._models[config.name].config = config
                for name in before.keys() - self._models.keys():
                    for version in before[name].available().values():
                        self._let_go(name, version)
            self._poll()
            failed = [
                model
                for name, model in self._models.items()
                if name not in before and not model.available()
            ]
        if failed:
            details = "; ".join(_describe_failure(model) for model in failed)
            raise ServingError(
                StatusCode.UNKNOWN, f"Some models did not become available: {details}"
            )

    def poll(self):
        """Look at the folders, and load and release versions accordingly."""
        with self._changing:
            self._poll()

    def close(self):
        """Release everything."""
        self.configure([])

    def _check_labels(self, config):
        with self._lock:
            model = self._models.get(config.name)
            available = model.available() if model else {}
        for version in config.labels.values():
            if version not in available:
                raise ServingError(
                    StatusCode.FAILED_PRECONDITION,
                    f"Request to assign label to version {version} of model {config.name}, which "
                    "is not currently available for inference",
                )

    def _poll(self):
        for model in list(self._models.values()):
            self._poll_model(model)
        if self._has_garbage:  # a loaded function and its graph refer to each other
            self._has_garbage = False
            gc.collect()

    def _poll_model(self, model):
        folders = _find_versions(model.config.folder)
        if not folders:
            # Loaded versions stay: an empty folder is more likely a mistake than intended.
            if not model.is_empty:
                logger.warning("No versions of %s in %s.", model.config.name, model.config.folder)
            model.is_empty = True
            return
        model.is_empty = False
        wanted = model.config.wanted(folders)
        for number in wanted:
            self._load_if_new(model, number, folders[number])
        with self._lock:
            available = model.available()
            if any(number in available for number in wanted):
                for number in available.keys() - set(wanted):
                    self._let_go(model.config.name, available[number])

    def _load_if_new(self, model, number, folder):
        known = model.versions.get(number)
        is_file = folder.suffix == TFLITE and not folder.is_dir()
        if known is not None and known.state != "END":
            if is_file and known.files != (files := _list_files(folder)):
                self._replace(model, known, files)
            return
        files = _list_files(folder)
        if known is not None and known.error is not None and known.files == files:
            return  # loading failed before, and no file has changed
        version = Version(number, folder, "LOADING", files=files)
        with self._lock:
            model.versions[number] = version
        name = model.config.name
        logger.info("Loading version %d of %s from %s.", number, name, folder)
        try:
            served = self._in_memory(folder, files)
            if served is None:
                served = self._read(number, folder)
                served.observe = self.observe and functools.partial(self.observe, name)
        except ServingError as error:
            logger.error("Version %d of %s cannot be served. %s", number, name, error)
            # Any client may read this error, so it must not reveal the path.
            told = error.message.replace(str(model.config.folder), name)
            with self._lock:
                version.state, version.error = "END", ServingError(error.code, told)
            return
        with self._lock:
            version.served, version.state = served, "AVAILABLE"
        logger.info("Version %d of %s is available.", number, name)

    def _replace(self, model, known, files):
        """Reload a `.tflite` that was rewritten within the second that is its version."""
        name, number = model.config.name, known.number
        known.files = files  # a file that cannot be read is not tried again
        try:
            served = self._read(number, known.folder)
        except ServingError as error:
            logger.error("Version %d of %s was replaced by what fails. %s", number, name, error)
            return
        served.observe = self.observe and functools.partial(self.observe, name)
        with self._lock:
            known.served = served
            self._has_garbage = True

    def _read(self, number, path):
        if path.suffix == TFLITE:
            served = LiteRTModel(number, path, self._max_rows, **self._pool)
        else:
            served = SavedModel(path)
            served.work = self._work
            warm_up(served, path)
            served.warm_up_streams()
            served.max_rows = self._max_rows  # its own first requests may have more
        served.tokens = self._tokens  # its own first requests are not counted
        return served

    def _in_memory(self, folder, files):
        """Return the model that another name has loaded from the same files, or None."""
        with self._lock:
            loaded = (v for model in self._models.values() for v in model.available().values())
            same = (v.served for v in loaded if v.folder == folder and v.files == files)
            return next(same, None)

    def _let_go(self, name, version):
        version.state = "UNLOADING"
        self._end_if_unused(version)
        logger.info("Version %d of %s is being released.", version.number, name)

    def _end_if_unused(self, version):
        if version.state == "UNLOADING" and version.users == 0:
            version.state, version.served = "END", None
            self._has_garbage = True


def _find_versions(path):
    """Return a dict of the numbers of a model's versions → their paths."""
    if path.suffix != TFLITE or path.is_dir():
        return find_versions(path)
    with contextlib.suppress(OSError):  # the file was removed meanwhile
        return {int(path.stat().st_mtime): path}
    return {}


def _list_files(folder):
    # Name, size and time of each file, which change while a version is still being copied.
    files = set()
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(OSError):  # the file was removed meanwhile
            status = path.stat()
            files.add((str(path), status.st_size, status.st_mtime_ns))
    return frozenset(files)


def _describe_failure(model):
    errors = [f"version {v.number}: {v.error}" for v in model.versions.values() if v.error]
    return f"{model.config.name} ({'; '.join(errors) or 'no versions'})"


def check_folder(folder):
    """Raise an error if a folder does not exist, has no versions, or is itself a version."""
    shown = repr(str(folder))
    if not folder.exists():
        raise FileNotFoundError(f"folder={shown} does not exist.")
    if not folder.is_dir():
        if folder.suffix == TFLITE:
            return
        raise NotADirectoryError(
            f"folder={shown} is a file. Pass a folder of numbered versions, or a .tflite."
        )
    if (folder / "saved_model.pb").exists():
        raise ValueError(
            f"folder={shown} is one version, not the folder of all: pass {str(folder.parent)!r}."
        )
    if not find_versions(folder):
        remedy = (
            "it is a preset, whose export is served: `task.export` or `keras-lm export` writes it."
            if (folder / "keras_lm.json").is_file()
            else "pass a folder with numbered folders in it, as `task.export` writes them."
        )
        raise FileNotFoundError(f"folder={shown} has no versions: {remedy}")


# === Warm-up: requests stored with a version, which it answers before it becomes available ===

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
MOST_RECORDS = 1000

WARMUP_ANSWERS = {
    "predict_log": messages.predict,
    "classify_log": messages.classify,
    "regress_log": messages.regress,
    "multi_inference_log": messages.multi_inference,
}


def warm_up(saved_model, folder):
    """Answer the requests in a version's warm-up file, if it has one.

    As in TF Serving, an error in the file or in an answer, a `ServingError`, means that the version
    is not served.
    """
    path = folder / WARMUP_FILE
    if not path.exists():
        return
    count = 0
    try:
        with tensorflow_errors():
            for record in iterate_batches(tf.data.TFRecordDataset(str(path))):
                _answer_record(saved_model, record.numpy(), path)
                count += 1
                if count > MOST_RECORDS:
                    raise invalid(
                        f"Number of warmup records exceeds the maximum ({MOST_RECORDS}) at {path}"
                    )
    except ServingError as error:
        if error.code is StatusCode.DATA_LOSS:
            hint = ". Please verify your warmup data is in TFRecord format."
            raise ServingError(error.code, error.message + hint) from error
        raise


def _answer_record(saved_model, record, path):
    try:
        log = prediction_log_pb2.PredictionLog.FromString(record)
    except DecodeError as error:
        raise invalid(f"Failed to parse warmup record: {record[:100]} from {path}") from error
    kind = log.WhichOneof("log_type")
    if kind in WARMUP_ANSWERS:
        WARMUP_ANSWERS[kind](saved_model, getattr(log, kind).request)
    elif kind is not None:
        raise ServingError(
            StatusCode.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind} in {path}"
        )
