"""LiteRT's interpreter, with TensorFlow Text's operations; for several threads, a pool of them."""

import collections
import contextlib
import ctypes
import importlib.util
import itertools
import os
import queue
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import check_end
from keras_lm.utils.json_values import first_line
from keras_lm.utils.optional_dependencies import INSTALL_TEXT, require
from keras_lm.utils.quiet_stderr import quiet
from keras_lm.utils.user_arguments import plain_column

TEXT_OPERATION = b"TFText>"  # what the names of its operations begin with
OF_ALL_ROWS = {"stop_tokens"}  # inputs of signatures that write, which are no column
REGISTRAR = "tensorflow_text.core.pybinds.tflite_registrar"


def open_interpreter(model: PathLike | bytes, num_threads: int | None = None) -> Any:
    """Return an interpreter for a `.tflite`, given by its path or its content as bytes.

    Keep a reference to it as long as you use the runner of a signature. Its methods are not for
    several threads at once: open one for each, or an `InterpreterPool`.

    Args:
        num_threads: int, the threads of an answer; None for one on each core that the process may
            use. LiteRT itself would use one.

    Raises:
        ImportError: if LiteRT's interpreter is not installed.
        ValueError: if `num_threads` is less than 1.

    Example:

        interpreter = open_interpreter("film-critic.tflite")
        classify = interpreter.get_signature_runner("serving_default")
        classify(text=np.array([b"I laughed, I cried."]))
    """
    _check_threads(num_threads)
    litert = require("ai_edge_litert.interpreter", "a .tflite")
    _check_whole(model)
    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    return litert.InterpreterWithCustomOps(
        custom_op_registerers=_text_operations(model),
        num_threads=num_threads or _num_cores(),
        **source,
    )


def in_bytes(columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return columns of strings as the inputs of a `.tflite` with `tokenizer="bytes"`.

    For each column NAME these are NAME, the UTF-8 bytes of all its strings one after another, and
    NAME_ends, where each ends. Columns that are not strings are returned as they are.

    Example:

        classify(**in_bytes({"text": ["I laughed, I cried."]}))
    """
    inputs = {}
    for name, column in columns.items():
        array = plain_column(column, name)
        # (As objects: numpy's own strings end before a NUL.)
        array = array if isinstance(array, np.ndarray) else np.array(array, object)
        if array.size and not isinstance(array.flat[0], (str, bytes)):
            inputs[name] = np.asarray(
                array.tolist(), None if array.dtype == object else array.dtype
            )
            continue
        texts = _array(array, object)
        inputs[name] = np.frombuffer(b"".join(texts.ravel()), np.uint8)
        ends = np.cumsum([len(text) for text in texts.flat], dtype=np.int32)
        inputs[f"{name}_ends"] = ends.reshape(texts.shape)
    return inputs


def _from_bytes(columns):
    """Return columns with strings in the place of bytes and their ends; undoes `in_bytes`."""

    def texts(data, ends):
        strings, data = np.empty(ends.size, object), data.tobytes()
        strings[:] = [data[a:b] for a, b in itertools.pairwise([0, *ends.ravel().tolist()])]
        return strings.reshape(ends.shape)

    return _joined(columns, texts)


def _joined(columns, join):
    """Return a dict with `join(column, ends)` in the place of columns that have ends."""
    ends = {f"{name}_ends" for name in columns} & columns.keys()
    return {
        name: join(column, columns[f"{name}_ends"]) if f"{name}_ends" in ends else column
        for name, column in columns.items()
        if name not in ends
    }


def _check_whole(model):
    """Raise a ValueError if a `.tflite` has changed since it was written."""
    if isinstance(model, bytes):
        check_end(model, "the .tflite")
    elif Path(model).is_file():
        check_end(Path(model), model)


class Column(NamedTuple):
    """An input or output of a signature; strings are `object`, unknown sizes -1."""

    dtype: type
    shape: tuple


class Signature(NamedTuple):
    """What a signature takes and returns, dicts of name → `Column`."""

    inputs: dict
    outputs: dict


class InterpreterPool:
    """Interpreters of one `.tflite`, whose signatures may be run from any number of threads.

    A call waits until an interpreter is free, first come, first served. One interpreter on all
    cores answers a single client the fastest; several share the cores, and each needs memory of its
    own.

    Args:
        model: path of a `.tflite`, or its content as bytes.
        num_interpreters: int, how many calls run at a time.
        num_threads: int, the threads of all interpreters together, at least one for each; None for
            one on each core that the process may use.

    Attributes:
        signatures: dict of name → `Signature`. Those of a file with `tokenizer="bytes"` take and
            return strings here, too.

    Raises:
        ImportError: if LiteRT's interpreter is not installed.
        ValueError: if `model` is no `.tflite` that LiteRT can run, or a number is less than 1.

    Example:

        pool = InterpreterPool("film-critic.tflite", num_interpreters=2)
        pool.run("serving_default", {"text": ["I laughed, I cried."]})["labels"]
    """

    def __init__(
        self, model: PathLike | bytes, num_interpreters: int = 1, num_threads: int | None = None
    ):
        _check_threads(num_threads)
        if num_interpreters < 1:
            raise ValueError(f"num_interpreters={num_interpreters}: pass 1 or more.")
        threads, more = divmod(num_threads or _num_cores(), num_interpreters)
        self._lock = threading.Lock()
        self._free = []  # the last used is taken first, which has its memory at hand
        self._waiting = collections.deque()  # a queue for each call that waits for an interpreter
        try:
            with quiet():  # which delegate it has
                for index in range(num_interpreters):
                    interpreter = _Interpreter(model, max(threads + (index < more), 1))
                    interpreter.warm_up()
                    self._free.append(interpreter)
        except (RuntimeError, ValueError) as error:
            what = "the bytes" if isinstance(model, bytes) else model
            raise ValueError(f"{what} cannot be loaded: {first_line(error)}") from error
        self.signatures = interpreter.signatures

    def run(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the outputs of a signature, a dict of arrays; strings are arrays of `bytes`.

        Args:
            inputs: dict of name → array, list or column of another library, all with the same
                number of rows, which may be 0.

        Raises:
            ValueError: if `signature` or `inputs` does not fit the model.
        """
        if signature not in self.signatures:
            raise ValueError(f"signature={signature!r}: use one of {[*self.signatures]}.")
        columns = self.signatures[signature].inputs
        if inputs.keys() != columns.keys():
            raise ValueError(
                f"inputs has {sorted(inputs)}, but {signature!r} takes {sorted(columns)}."
            )
        arrays = {
            name: _array(plain_column(inputs[name], name), column.dtype)
            for name, column in columns.items()
        }
        rows = {
            name: len(array)
            for name, array in arrays.items()
            if array.ndim and name not in OF_ALL_ROWS
        }
        if len(set(rows.values())) > 1:  # LiteRT would repeat or drop rows, without an error
            raise ValueError(f"the inputs have different numbers of rows: {rows}.")
        for name, number in rows.items():
            (fixed, *_) = columns[name].shape or (-1,)
            if fixed > 0 and number not in (0, fixed):
                raise ValueError(
                    f"{name} has {number} rows, and this .tflite takes {fixed} at a time: run each "
                    "by itself, or export it again without a fixed number."
                )
        is_empty = 0 in rows.values()
        if is_empty:  # some operations do not run without rows
            arrays = {name: _blank_row(column) for name, column in columns.items()}
        for name, array in arrays.items():
            if not array.size:
                raise ValueError(
                    f"{name} has the shape {array.shape}: a .tflite needs one value or more in "
                    "each row."
                )
        try:
            with self._taken() as interpreter:
                outputs = interpreter.run(signature, arrays)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"the .tflite refuses it: {first_line(error)}") from error
        return {name: array[:0] for name, array in outputs.items()} if is_empty else outputs

    @contextlib.contextmanager
    def _taken(self):
        turn = queue.SimpleQueue()
        with self._lock:
            if self._free:
                turn.put(self._free.pop())
            else:
                self._waiting.append(turn)
        interpreter = turn.get()
        try:
            yield interpreter
        finally:
            # To whom waits first: else a client of many calls could come before all others.
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().put(interpreter)
                else:
                    self._free.append(interpreter)


class _Interpreter:
    """An interpreter with the runners of its signatures, which do not keep it alive."""

    def __init__(self, model, num_threads):
        self._interpreter = open_interpreter(model, num_threads)
        names = self._interpreter.get_signature_list()
        self._runners = {name: self._interpreter.get_signature_runner(name) for name in names}
        self.signatures = {
            name: Signature(
                _columns(runner.get_input_details()), _columns(runner.get_output_details())
            )
            for name, runner in self._runners.items()
        }

    def warm_up(self):
        """Answer an empty text: the first answer takes ten times as long as the next."""
        for name, signature in self.signatures.items():
            if all(column.dtype is object for column in signature.inputs.values()):
                self.run(name, {n: _blank_row(column) for n, column in signature.inputs.items()})

    def run(self, signature, arrays):
        runner = self._runners[signature]
        details = runner.get_input_details()
        if details.keys() != arrays.keys():
            arrays = _of_known_sizes(in_bytes(arrays), details)
        return _from_bytes(runner(**arrays))


def _of_known_sizes(arrays, details):
    """Return texts as bytes in as many as the model takes, if it says how many."""
    for name in [name for name in arrays if f"{name}_ends" in arrays]:
        array, (size, *_) = arrays[name], details[name]["shape_signature"]
        if size < 0:
            continue
        if len(array) > size:
            raise ValueError(
                f"{name} has {len(array)} bytes, and this .tflite takes {size}: pass shorter "
                "texts, or export it with a larger num_bytes."
            )
        arrays[name] = np.pad(array, [0, size - len(array)])
    return arrays


def _columns(details):
    import numpy as np

    def column(detail):
        dtype = object if detail["dtype"] is np.bytes_ else detail["dtype"]
        return Column(dtype, tuple(detail["shape_signature"].tolist()))

    columns = {name: column(detail) for name, detail in details.items()}
    return _joined(columns, lambda _, ends: Column(object, ends.shape))


def _array(value, dtype):
    """Return an array for an input; strings become bytes, which LiteRT takes."""
    import numpy as np

    if dtype is not object:
        return np.asarray(value, dtype)
    encode = np.frompyfunc(
        lambda text: text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, 1, 1
    )
    return np.asarray(encode(np.array(value, object)), object)


def _blank_row(column):
    import numpy as np

    shape = (1, *(max(size, 1) for size in column.shape[1:]))
    return np.full(shape, b"" if column.dtype is object else 0, column.dtype)


def _text_operations(model):
    """Return the functions that register TensorFlow Text's operations with an interpreter.

    Without TensorFlow Text there are none; an ImportError is raised if a model needs them.
    """
    if importlib.util.find_spec("tensorflow_text") is None:
        data = model if isinstance(model, bytes) else Path(model).read_bytes()
        if TEXT_OPERATION in data:
            raise ImportError(
                f"the .tflite takes strings, and {INSTALL_TEXT}. Or export it again with "
                "tokenizer='bytes'."
            )
        return []
    if "tensorflow_text" not in sys.modules:
        try:
            with quiet():  # which devices there are
                return _without_tensorflow()
        except (AttributeError, ImportError, OSError):  # its wheel is built in another way
            pass
    from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS

    return SELECT_TFTEXT_OPS


def _without_tensorflow():
    """Load the library of the operations alone; its package imports TensorFlow, for seconds.

    The library needs TensorFlow's own one, and finds it only in memory.
    """
    tensorflow, text = (
        Path(importlib.util.find_spec(name).origin).parent
        for name in ("tensorflow", "tensorflow_text")
    )
    ctypes.CDLL(str(tensorflow / "libtensorflow_framework.so.2"))
    path = text.joinpath(*REGISTRAR.split(".")[1:]).with_suffix(".so")
    spec = importlib.util.spec_from_file_location(REGISTRAR, path)
    registrar = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(registrar)
    return [getattr(registrar, name) for name in dir(registrar) if name.startswith("Add")]


def _check_threads(num_threads):
    if num_threads is not None and num_threads < 1:
        raise ValueError(f"num_threads={num_threads}: pass 1 or more, or None for all cores.")


def _num_cores():
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux alone
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
