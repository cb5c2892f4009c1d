"""The signatures of an exported model that writes a text for a text: functions of named tensors.

The decoder's state goes in and out by the names of `keras_lm.layers.state.named_tensors`.
Shapes: B sources, T target tokens, V vocabulary.
"""

import numpy as np

from keras_lm.generation.options import OPTIONS
from keras_lm.generation.work import MOST_BEAMS, MOST_PIECES, few_tokens
from keras_lm.layers.state import named_tensors
from keras_lm.layers.tensorflow.tracing import for_lite, required
from keras_lm.tasks.attention_bytes import attention_of_pair
from keras_lm.tasks.generation_signatures import PACKED, GenerationSignatures
from keras_lm.tasks.signatures import TextSignatures, plain_floats, trace
from keras_lm.tensorflow import tf

LABELS = {"labels": tf.TensorSpec([None], tf.string, "labels")}
SEARCH = {"num_beams": "int32", "length_penalty": "float32", "max_new_tokens": "int32"}


class Seq2SeqSignatures(GenerationSignatures):
    """The signatures of a `keras_lm.tasks.Seq2SeqLM` with a tokenizer."""

    def texts(self):
        return TextSignatures.texts(self)

    def functions(self):
        task, texts = self.task, self.texts()
        tokenize = self.tokenize
        return {
            "serving_default": trace(self.answer(tokenize), texts),
            "generate": trace(self.generate(tokenize), texts | _specs(_sampling())),
            "beam_search": trace(self.beam_search(tokenize), texts | _specs(SEARCH)),
            "score": trace(
                lambda **columns: plain_floats(task.score_columns(columns, tokenize)),
                texts | LABELS,
            ),
            "encode": trace(self.encode(tokenize), texts),
            "next_token": trace(self.next_token, {**PACKED, **self.state_specs()}),
            "tokenize": trace(self.pieces(tokenize), texts, MOST_PIECES),
            "detokenize": trace(self.detokenize, PACKED, MOST_PIECES),
            "tokens": self.raw(),
        }

    def defaults(self):
        task = self.task
        all_real = {"padding_mask": np.ones([1, 1], "int32")}
        return {
            "generate": self.generate_defaults(),
            "beam_search": {
                "num_beams": np.array([max(task.num_beams, 2)], "int32"),
                "length_penalty": np.array([task.length_penalty], "float32"),
                "max_new_tokens": np.array([task.limits.max_new_tokens], "int32"),
            },
            "detokenize": all_real,
            "next_token": all_real,
        }

    def requests(self, batch_sizes):
        texts = {name: np.array(["a"], object) for name in self.texts()}
        few = {"max_new_tokens": np.array([min(2, self.task.limits.max_new_tokens)], "int32")}
        greedy = texts | self.generate_defaults() | few
        yield "generate", greedy
        yield "generate", greedy | {"temperature": np.ones([1], "float32")}
        yield "beam_search", texts | self.defaults()["beam_search"] | few
        yield "serving_default", texts
        yield "score", texts | {"labels": np.array(["a"], object)}
        yield "tokenize", texts
        yield "encode", texts
        tokens = {"token_ids": np.zeros([1, 1], "int32"), "padding_mask": np.ones([1, 1], "int32")}
        yield "next_token", tokens | self.initial_state(length=1)
        yield "detokenize", tokens

    def files(self):
        return {}  # no server writes targets piece by piece

    def attention(self):
        task, tokenize = self.task, self.tokenize
        specs = self.texts() | LABELS
        return trace(lambda **columns: attention_of_pair(task, columns, tokenize), specs)

    # === Text → text ===

    def generate(self, tokenize):
        """Return the function of `generate`: texts and options for each → `task.write`."""

        def generate(stop, **inputs):
            columns, options = self._divided(inputs)
            rows = tf.size(columns["text"])
            options = self.for_rows(rows, options) | self.stops(rows, stop)
            return self.task.write(columns, tokenize=tokenize, **options)

        return generate

    def beam_search(self, tokenize):
        """Return the function of `beam_search`, with the first row's beams and penalty for all."""

        def beam_search(num_beams, length_penalty, max_new_tokens, **columns):
            options = self.for_rows(tf.size(columns["text"]), {"max_new_tokens": max_new_tokens})
            most = max(MOST_BEAMS, self.task.num_beams)
            message = f"num_beams must be from 1 to {most}, but is"
            num_beams = required(num_beams, (num_beams >= 1) & (num_beams <= most), message)
            message = "length_penalty must be a finite number, but is"
            length_penalty = required(length_penalty, tf.math.is_finite(length_penalty), message)
            options["num_beams"] = tf.reshape(num_beams, [-1])[0]
            options["length_penalty"] = tf.reshape(length_penalty, [-1])[0]
            stated = self.task.sampling(num_beams=2).constants()  # the others that the task states
            return self.task.write(columns, tokenize=tokenize, **stated | options)

        return beam_search

    def pieces(self, tokenize=None):
        return TextSignatures.pieces(self, tokenize)

    def detokenize(self, token_ids, padding_mask):
        token_ids = few_tokens(token_ids, *tf.unstack(tf.shape(token_ids)))
        padding_mask = tf.broadcast_to(padding_mask, tf.shape(token_ids))
        ids = tf.ragged.boolean_mask(token_ids, padding_mask > 0)
        return {"text": self.task.tokenizer.target.detokenize(ids)}

    def _divided(self, inputs):
        texts = self.texts()
        columns = {name: value for name, value in inputs.items() if name in texts}
        return columns, {name: value for name, value in inputs.items() if name not in texts}

    # === Token by token ===

    def encode(self, tokenize, slots=1):
        """Return the function of `encode`: texts → the decoder's state, with free slots."""

        def encode(**columns):
            backbone = self.task.backbone
            packed = self.task.preprocess(columns, tokenize)
            ids, mask = packed["encoder_token_ids"], packed["encoder_padding_mask"]
            state = backbone.pack_state(backbone.state_after(ids, mask, slots))
            return plain_floats(named_tensors(state, backbone.state_name))

        return encode

    # === LiteRT ===

    def lite_functions(self):
        def next_token(token_ids, padding_mask, **state):
            with for_lite():
                return self._step(token_ids, padding_mask, self._nested(state))

        functions = {"next_token": trace(next_token, {**PACKED, **self.state_specs()})}
        if hasattr(self.task.tokenizer, "tokenize_lite"):
            with for_lite():
                # There, the state of a step cannot grow.
                encode = self.encode(self.task.tokenizer.tokenize_lite, self.task.target_length)
                functions["encode"] = trace(encode, self.texts())
        yield functions

    def lite_requests(self):
        tokens = {name: np.ones([2, 3], "int32") for name in PACKED}
        requests = [("next_token", tokens | self.initial_state(rows=2, length=4))]
        if hasattr(self.task.tokenizer, "tokenize_lite"):
            texts = np.array([b"a", b"two words"])
            requests.append(("encode", dict.fromkeys(self.texts(), texts)))
        return requests


def _sampling():
    return {"stop": "string"} | {name: option.dtype for name, option in OPTIONS.items()}


def _specs(dtypes):
    # Of unknown rank: a number for all texts is allowed, too.
    return {name: tf.TensorSpec(None, dtype, name) for name, dtype in dtypes.items()}
