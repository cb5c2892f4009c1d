"""Batching: concurrent requests to one signature run as one batch.

The settings come from the file that TF Serving reads, next to the SavedModel; a version without it
is not batched. Differences from TF Serving: a request waits only while another batch is running,
so a single client never waits; batches are not padded to `allowed_batch_sizes`; and a request with
more than `max_batch_size` rows is not refused, but runs alone, in parts of that size.
"""

import threading
import time
from collections import deque

import numpy as np
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

from keras_lm.serving import callers
from keras_lm.serving.errors import ServingError, invalid

FILE = "batching_params.pbtxt"
DEFAULTS = {"max_batch_size": 1000, "batch_timeout_micros": 0, "num_batch_threads": 4}


def _make_message():
    """Return a message class with the fields of TF Serving's message that are used here."""
    file = descriptor_pb2.FileDescriptorProto(name="batching.proto", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name="BatchingParameters")
    for number, name in enumerate(DEFAULTS, start=1):
        message.field.add(
            name=name, number=number, label=1, type=11, type_name=".google.protobuf.Int64Value"
        )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("BatchingParameters"))


_Message = _make_message()


def read_parameters(folder):
    """Return a version's batching parameters, a dict with the keys of `DEFAULTS`, or None.

    None means that the version is not batched.

    Raises:
        ServingError: if TF Serving could not read the file either.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        message = text_format.Parse(path.read_text(), _Message(), allow_unknown_field=True)
    except (text_format.ParseError, ValueError) as error:
        raise invalid(f"Cannot read {path}: {error}") from error
    stated = {field.name: value.value for field, value in message.ListFields()}
    if stated.get("max_batch_size", 1) < 1 or stated.get("num_batch_threads", 1) < 1:
        raise invalid(f"{path}: max_batch_size and num_batch_threads must be 1 or more.")
    return DEFAULTS | stated


def can_join(signature):
    """Return whether requests to a signature can be joined and their outputs split again.

    Every input and output needs the batch as its first dimension, and fixed sizes after it: an
    output as wide as the longest row would reveal the length of other clients' rows.
    """
    infos = [*signature.inputs.values(), *signature.outputs.values()]
    sizes = [[dim.size for dim in info.tensor_shape.dim] for info in infos]
    return bool(signature.inputs) and all(
        shape and shape[0] == -1 and min(shape[1:], default=0) >= 0 for shape in sizes
    )


class Batcher:
    """Joins the requests to one signature that arrive while a batch is running.

    It has no threads: one request's thread runs the whole batch, the others wait. If a batch fails,
    each of its requests runs alone, so that a bad row fails for its own client only.

    Args:
        run: function that maps a dict of arrays to a dict of arrays.
        parameters: dict, from `read_parameters`. At most `num_batch_threads` batches run at once,
            each of at most `max_batch_size` rows. A batch starts once no other is running, it is
            full, or its first request has waited for `batch_timeout_micros`.
        observe: function that is called with the number of rows of each batch, and a list of the
            seconds that its requests have waited.
    """

    def __init__(self, run, parameters, observe=None):
        self._run = run
        self._observe = observe or (lambda rows, waits: None)
        self._most_rows = parameters["max_batch_size"]
        self._most_running = parameters["num_batch_threads"]
        self._patience = parameters["batch_timeout_micros"] / 1e6
        self._lock = threading.Lock()
        self._queue = deque()
        self._running = 0

    def run(self, inputs):
        """Return the outputs for a dict of arrays."""
        sizes = {len(array) for array in inputs.values()}
        if len(sizes) > 1 or not 0 < min(sizes) <= self._most_rows:
            self._observe(max(sizes), [0.0])
            return self._run_alone(inputs, max(sizes))
        request = _Request(inputs, min(sizes))
        with self._lock:
            self._queue.append(request)
            batch = self._next_batch()
        patience = self._patience
        while not request.is_answered:
            if batch:
                self._answer(batch)
                batch = None
            elif request.wake.wait(patience):
                request.wake.clear()
                batch, request.batch = request.batch, None
            else:
                patience = None
                with self._lock:
                    batch = self._next_batch() if request in self._queue else None
        if request.error is not None:
            raise request.error
        return request.outputs

    def _run_alone(self, inputs, rows):
        """Run a request that cannot be joined, in parts if it is large, to bound the memory."""
        if {len(array) for array in inputs.values()} != {rows} or rows <= self._most_rows:
            return self._run(inputs)
        outputs = []
        for start in range(0, rows, self._most_rows):
            part = {n: array[start : start + self._most_rows] for n, array in inputs.items()}
            outputs.append(self._run(part))
            number = min(self._most_rows, rows - start)
            if {len(array) for array in outputs[-1].values()} != {number}:
                return self._run(inputs)  # an output does not have one entry per row
        return {name: np.concatenate([output[name] for output in outputs]) for name in outputs[0]}

    def _next_batch(self):
        """Take a batch from the queue, or return None if none is due."""
        if not self._queue or self._running >= self._most_running:
            return None
        is_late = time.monotonic() - self._queue[0].since >= self._patience
        is_full = sum(request.rows for request in self._queue) >= self._most_rows
        if not (is_late or is_full or self._running == 0):
            return None
        for request in [waiting for waiting in self._queue if waiting.caller.has_left]:
            self._queue.remove(request)
            request.drop()
        if not self._queue:
            return None
        batch, rows = [], 0
        while self._queue and rows + self._queue[0].rows <= self._most_rows:
            batch.append(self._queue.popleft())
            rows += batch[-1].rows
        self._running += 1
        return batch

    def _answer(self, batch):
        """Run a batch, wake its requests, and hand the next batch to one of its own requests."""
        now = time.monotonic()
        self._observe(
            sum(request.rows for request in batch), [now - request.since for request in batch]
        )
        if len(batch) == 1 or not self._run_joined(batch):
            for request in batch:
                try:
                    with request.caller.served():
                        request.outputs = self._run(request.inputs)
                except Exception as error:
                    request.error = error
        for request in batch:
            request.is_answered = True
            request.wake.set()
        with self._lock:
            self._running -= 1
            if following := self._next_batch():
                following[0].batch = following
                following[0].wake.set()

    def _run_joined(self, batch):
        """Run several requests as one; return whether that succeeded."""
        names = batch[0].inputs
        ends = np.cumsum([request.rows for request in batch])
        try:
            with callers.all_of([request.caller for request in batch]).served():
                inputs = {n: np.concatenate([r.inputs[n] for r in batch]) for n in names}
                outputs = self._run(inputs)
        except Exception:
            return False
        if {len(array) for array in outputs.values()} != {ends[-1]}:
            return False
        parts = {name: np.split(array, ends[:-1]) for name, array in outputs.items()}
        for index, request in enumerate(batch):
            request.outputs = {name: part[index] for name, part in parts.items()}
        return True


class _Request:
    """A request and later its answer; `batch` is set if its thread has to run that batch."""

    def __init__(self, inputs, rows):
        self.inputs = inputs
        self.rows = rows
        self.since = time.monotonic()
        self.wake = threading.Event()
        self.batch = None
        self.is_answered = False
        self.outputs = None
        self.error = None
        self.caller = callers.current()

    def drop(self):
        """End a request that nobody waits for."""
        try:
            self.caller.check()
        except ServingError as error:
            self.error = error
        self.is_answered = True
        self.wake.set()
