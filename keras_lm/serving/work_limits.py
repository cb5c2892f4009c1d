"""What a request may ask of a model, and what all take together.

Options are in their ranges, and the work of a request has a bound. Graphs check the same, but say
it in fewer words, and those of older exports have no limit. All requests share the memory of bodies
and the work of generating, and may share a number of tokens.
"""

import contextlib
import threading

import numpy as np
import tensorflow as tf

from keras_lm.generation.options import OPTIONS, check_options
from keras_lm.layers.tensorflow import MOST_BEAMS, MOST_NUMBERS, MOST_TOKENS, TOO_MANY
from keras_lm.serving.errors import ServingError, StatusCode, invalid


def check_request(inputs, signature):
    """Raise a `ServingError` for inputs of a signature that generates, if they ask too much.

    Args:
        inputs: dict of arrays.
        signature: its `SignatureDef`, whose defaults are what the model states.

    Returns:
        int, rows × beams × new tokens; 0 for a signature that does not generate.
    """
    if "max_new_tokens" not in inputs:
        return 0
    try:
        for name in OPTIONS.keys() & inputs.keys():
            array = np.ravel(inputs[name])
            is_wrong = ~OPTIONS[name].allowed(array) & ~_is_stated(name, array, signature)
            for value in array[is_wrong][:1]:
                check_options(**{name: value.item()})
    except ValueError as error:
        raise invalid(str(error)) from error
    beams = np.ravel(inputs.get("num_beams", 1))
    is_right = (beams >= 1) & (beams <= MOST_BEAMS) | _is_stated("num_beams", beams, signature)
    _check_all("num_beams", beams, is_right, f"from 1 to {MOST_BEAMS}")
    penalty = np.ravel(inputs.get("length_penalty", 1.0))
    _check_all("length_penalty", penalty, np.isfinite(penalty), "a finite number")
    rows = max((len(array) for array in inputs.values() if array.ndim), default=1)
    # What is known before prompts are read; graphs, but for those of older exports, count all.
    tokens = int(np.max(inputs["max_new_tokens"], initial=0))
    if tokens > MOST_TOKENS:  # the graph names the option, which is out of its own range
        return 0
    work = rows * int(np.max(beams, initial=0)) * tokens
    if work > MOST_TOKENS:
        raise invalid(f"{TOO_MANY.format(MOST_TOKENS)} {work}.")
    return max(work, 0)


def _is_stated(name, array, signature):
    """Return where an array has a signature's default, such as -1 for as many tokens as fit."""
    if name not in signature.defaults:
        return np.zeros(array.shape, bool)
    return np.isin(array, tf.make_ndarray(signature.defaults[name]))


def _check_all(name, array, is_right, words):
    for value in array[~is_right][:1]:
        raise invalid(f"{name}={value} is out of range: it must be {words}.")


def count_tokens(inputs, work):
    """Return about how many tokens a request has, before any is read: what `Tokens` counts.

    Strings have a token for each `BYTES_A_TOKEN` begun, as many as the longest of their input, to
    which they are padded; arrays of ids of several columns have one for each number. `work` is the
    rows × beams × new tokens of `check_request`.
    """
    tokens = work
    for array in inputs.values():
        if array.dtype == object and array.size:
            longest = max(len(string) for string in array.ravel())
            tokens += array.size * max(-(-longest // BYTES_A_TOKEN), 1)
        elif array.ndim > 1:
            tokens += array.size
    return max(tokens, 1)


def check_answer(outputs):
    """Raise a `ServingError` for outputs, a dict of arrays, that are too large to be sent."""
    number = sum(array.size for array in outputs.values())
    if number > MOST_NUMBERS:
        raise invalid(
            f"The answer has {number} numbers and strings, and may have {MOST_NUMBERS}: send fewer "
            "or shorter rows."
        )


# === What all requests share ===

BYTES_A_TOKEN = 4  # English has about as many


class Budget:
    """A number that all requests share; thread-safe.

    Subclasses say of what: `free` is how much of each request is not counted, so that a small one
    never has to wait for large ones; `message` is what a client gets if too little is left.
    """

    free = 0
    message = "{}"

    def __init__(self, size):
        self._size = self._left = size
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def share(self):
        """Yield a function that reserves a number until the end of the block.

        It raises a `ServingError` if fewer are left.
        """
        asked = held = 0

        def take(number):
            nonlocal asked, held
            asked += number
            more = max(asked - self.free, 0) - held
            with self._lock:
                if more > self._left:
                    message = self.message.format(self._size)
                    raise ServingError(StatusCode.RESOURCE_EXHAUSTED, message)
                self._left -= more
            held += more

        try:
            yield take
        finally:
            with self._lock:
                self._left += held


class BodyMemory(Budget):
    """The bytes of all bodies."""

    free = 2**16
    message = (
        "The bodies of all requests together may have {} bytes, and other requests use them now: "
        "try again later."
    )


class Work(Budget):
    """Rows × beams × new tokens of all requests that generate, whose memory is held to their end.

    What is free is a text of usual length.
    """

    free = 2**10
    message = (
        "All requests that generate may have {} rows times beams times new tokens together, and "
        "others use them now: try again later."
    )


class Tokens(Budget):
    """The tokens of all requests that are answered at a time, as `count_tokens` counts them.

    A request with more than all counts as all: it is answered if no other is.
    """

    message = (
        "All requests may have {} tokens together (max_concurrent_tokens), and others use them "
        "now: try again later."
    )

    @contextlib.contextmanager
    def hold(self, number):
        """Reserve a number until the end of the block; raise a `ServingError` if fewer are left."""
        with self.share() as take:
            take(min(number, self._size))
            yield
