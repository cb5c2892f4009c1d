"""Streams of text from an exported language model, whose signatures run token by token."""

import contextlib
import json

import numpy as np
import tensorflow as tf

from keras_lm.generation import decoding
from keras_lm.generation.decoding import real_tokens
from keras_lm.generation.options import (
    OF_SAMPLING,
    OPTIONS,
    Sampling,
    all_options,
    per_row,
    split_stop,
)
from keras_lm.generation.streaming import Stream
from keras_lm.layers.tensorflow import MOST_TOKENS, bounded
from keras_lm.serving.errors import invalid, tensorflow_errors
from keras_lm.serving.work_limits import count_tokens

FILE = "assets.extra/generation.json"  # written by an export
NAMES = ("prompt", "stop", *OPTIONS)


class Writer:
    """Writes the text that the SavedModel's `generate` would return, piece by piece.

    Args:
        signatures: dict of the loaded signatures.
        signature_defs: dict of their `SignatureDef`s.
        limits: `keras_lm.generation.decoding.Limits`.
    """

    def __init__(self, signatures, signature_defs, limits):
        self._signatures = signatures
        self._limits = limits
        step = signature_defs["next_token"]
        self._vocabulary_size = step.outputs["logits"].tensor_shape.dim[-1].size
        tokens = ("token_ids", "padding_mask")
        self._state = {
            name: (tf.make_ndarray(step.defaults[name]), info.tensor_shape.dim)
            for name, info in step.inputs.items()
            if name not in tokens
        }
        with bounded(MOST_TOKENS):
            self._stream = Stream(self)

    def events(self, request, tokens=None):
        """Check a request, a dict with keys from `NAMES`, and yield its events.

        They are dicts `{"text": piece}`; the last is `{"done": True}` with the numbers of tokens.
        `tokens` is `work_limits.Tokens`, of which the request holds its number to its end; None for
        no limit.

        Raises:
            ServingError: if the request is invalid, or too few tokens are left.
        """
        try:
            inputs = self._read(request)
        except (TypeError, ValueError) as error:
            raise invalid(str(error)) from error
        new = max(int(np.max(inputs["options"]["max_new_tokens"])), 0)
        number = count_tokens({"prompt": inputs["prompt"]}, new)
        held = contextlib.nullcontext() if tokens is None else tokens.hold(number)
        with held, tensorflow_errors():
            pieces = self._stream.pieces(**inputs)
            while True:
                try:
                    yield {"text": next(pieces)}
                except StopIteration as end:
                    yield {"done": True, **end.value}
                    return

    def _read(self, request):
        request = dict(request)
        if unknown := request.keys() - set(NAMES):
            raise ValueError(f"{sorted(unknown)} are unknown: use {list(NAMES)}.")
        prompt = request.pop("prompt", None)
        if not isinstance(prompt, str):
            raise ValueError(f"prompt={prompt!r}: pass one string.")
        stop = request.pop("stop", None)
        if not isinstance(stop, (str, int, list, type(None))):
            raise ValueError(f"stop={stop!r}: pass a string, a token id, or a list of these.")
        search = {n: _unless_default(request, n) for n in OF_SAMPLING if n in request}
        sampling = Sampling.of(None, search, self._limits.options)  # checks them
        stated = {name: getattr(sampling, name) for name in OPTIONS if name in self._limits.options}
        options = all_options(self._limits, **stated | request)
        for name, value in options.items():
            if isinstance(value, list):
                raise ValueError(f"{name}={value!r}: pass one number, as there is one prompt.")
        if (number := options["max_new_tokens"]) > self._limits.most_served:
            raise ValueError(f"max_new_tokens={number}: pass at most {self._limits.most_served}.")
        strings, ids = split_stop(stop, self._vocabulary_size, self._limits.special_tokens)
        return {
            "prompt": np.array([prompt.encode("utf-8", "surrogateescape")], object),
            "stop_strings": np.array(strings, object),
            "stop_ids": np.array(ids, "int32"),
            "options": per_row(options, 1),
        }

    # === What `Stream` asks of a model ===

    def prompt_ids(self, prompt):
        packed = self._signatures["tokenize"](prompt=prompt)
        return real_tokens(packed["token_ids"], packed["padding_mask"])

    def prepare_generation(self, token_ids, stop_strings, stop_ids, **options):
        return decoding.prepare_generation(
            self, self._limits, self._detokenize, token_ids, stop_strings, stop_ids, **options
        )

    def _detokenize(self, token_ids):
        mask = tf.ones_like(token_ids).to_tensor(0)
        return self._signatures["detokenize"](token_ids=token_ids.to_tensor(0), padding_mask=mask)[
            "text"
        ]

    def initial_state(self, rows, length):
        """Return the state before the first token; unknown sizes become `length`, the slots."""

        def start(array, dims):
            sizes = [rows, *(length if dim.size == -1 else dim.size for dim in dims[1:])]
            missing = [size - known for size, known in zip(sizes[1:], array.shape[1:], strict=True)]
            free = tf.pad(array, [[0, 0], *([0, tf.maximum(number, 0)] for number in missing)])
            return tf.broadcast_to(free, sizes)

        return {name: start(*known) for name, known in self._state.items()}

    def next_logits(self, token_ids, padding_mask, state):
        outputs = self._signatures["next_token"](
            token_ids=token_ids, padding_mask=padding_mask, **state
        )
        return outputs["logits"], {name: outputs[name] for name in state}

    def decoding_state(self, state):
        return state


def _unless_default(request, name):
    value = request.get(name)
    return None if value == OPTIONS[name].default else value


def read_limits(folder, signature_defs):
    """Return the `Limits` of a version, or None if it cannot continue prompts or is too old."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        limits = decoding.Limits.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise invalid(f"Cannot read {path}: {error}") from error
    # Older exports of encoder-decoders have this file, too.
    return limits if "prompt" in signature_defs["serving_default"].inputs else None
