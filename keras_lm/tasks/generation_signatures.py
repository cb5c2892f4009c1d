"""The signatures of an exported model that continues prompts: functions of named tensors.

The model's state goes in and out by the names of `keras_lm.layers.state.named_tensors`.
Shapes: B prompts, S tokens, V vocabulary, T target tokens.
"""

import functools
import json

import numpy as np

from keras_lm.feeding.datasets import with_known_ids
from keras_lm.generation import lite
from keras_lm.generation.decoding import COLUMNS_AT_ONCE, align, real_tokens
from keras_lm.generation.lite import FOLLOWED
from keras_lm.generation.logits import OF_SAMPLING
from keras_lm.generation.options import OPTIONS
from keras_lm.generation.settings import ENDS_PROMPTS, OF_OPTIONS
from keras_lm.layers.basic import last_real_token
from keras_lm.layers.state import named_tensors, nested_tensors
from keras_lm.layers.tensorflow import (
    MOST_BEAMS,
    MOST_PIECES,
    few_tokens,
    for_lite,
    longest,
    required,
)
from keras_lm.litert import in_bytes
from keras_lm.tasks.signatures import (
    TextSignatures,
    attention_of_pair,
    attention_of_text,
    columns_from_bytes,
    plain_floats,
    trace,
    with_few_pairs,
)
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.lite_operations import places_of
from keras_lm.tokenizers.strings import without_text_operations
from keras_lm.utils.user_arguments import warn

PROMPT = {"prompt": tf.TensorSpec([None], tf.string, "prompt")}
TEXT = {"text": tf.TensorSpec([None], tf.string, "text")}
MOST_TOKENS = {"max_new_tokens": tf.TensorSpec([], tf.int32, "max_new_tokens")}
CHANCES = {
    "temperature": tf.TensorSpec([], tf.float32, "temperature"),
    "top_k": tf.TensorSpec([], tf.int32, "top_k"),
    "top_p": tf.TensorSpec([], tf.float32, "top_p"),
    "seed": tf.TensorSpec([], tf.int32, "seed"),
    "stop_tokens": tf.TensorSpec([None], tf.int32, "stop_tokens"),
}
MOST_CELLS = 2**25  # of rows that are filled up: one long text among many would take all memory
PACKED = {
    name: tf.TensorSpec([None, None], tf.int32, name) for name in ("token_ids", "padding_mask")
}


class GenerationSignatures(TextSignatures):
    """The signatures of a `keras_lm.tasks.CausalLM` with a tokenizer."""

    answers_in_lite = False

    def texts(self):
        super().texts()
        return PROMPT

    def functions(self):
        task = self.task
        tokenize = self.tokenize
        by_parts, whole = self.bounded(COLUMNS_AT_ONCE), self.bounded()
        generate = trace(self.generate(by_parts), generate_specs())
        chosen = {name: tf.constant(value) for name, value in self.generate_defaults().items()}
        answer = trace(lambda prompt: generate(prompt=prompt, **chosen), PROMPT)
        if task.sampling().num_beams > 1:  # which `generate` has not
            answer = trace(self.answer(by_parts), PROMPT)
        return {
            "serving_default": answer,
            "generate": generate,
            "score": trace(lambda text: task.score_texts(text, tokenize=_few(whole)), TEXT),
            "next_token": trace(self.next_token, {**PACKED, **self.state_specs()}),
            "tokenize": trace(self.pieces(tokenize), PROMPT, MOST_PIECES),
            "detokenize": trace(self.detokenize, PACKED, MOST_PIECES),
            "tokens": self.raw(),
        }

    @functools.cached_property
    def tokenize(self):
        def tokenize(text):
            ids = self.task.tokenize(text)
            cells = ids.nrows() * longest(ids)
            message = f"texts, each as long as the longest, may have {MOST_CELLS} tokens, but have"
            return ids.with_values(required(ids.values, cells <= MOST_CELLS, message, cells))

        return trace(tokenize, TEXT)

    def bounded(self, at_once=None):
        """Return `tokenize`, which refuses texts that are too long to be read.

        A model that attends without end reads them as a whole, or `at_once` tokens at a time.
        """
        if not self.attends_without_end:
            return self.tokenize

        def tokenize(text):
            ids = self.tokenize(text)
            return ids.with_values(with_few_pairs(ids.values, ids.nrows(), longest(ids), at_once))

        return tokenize

    def attention(self):
        task, tokenize = self.task, self.bounded()
        return trace(lambda text: attention_of_text(task, {"text": text}, tokenize), TEXT)

    def frozen_functions(self, weights="float32"):
        raise ValueError(
            f"freeze=True: a {type(self.task).__name__} has several signatures that read the "
            "weights, and each would hold a copy of them: leave it out."
        )

    def defaults(self):
        all_real = {"padding_mask": np.ones([1, 1], "int32")}
        return {
            "generate": self.generate_defaults(),
            "detokenize": all_real,
            # With a free slot, since JSON cannot say the shape of an array without values.
            "next_token": all_real | self.initial_state(length=1),
        }

    def requests(self, batch_sizes):
        """Yield requests (signature, dict of arrays) that run each signature once, on one row."""
        prompt = {"prompt": np.array(["a"], object)}
        few = {"max_new_tokens": np.array([min(2, self.task.limits.max_new_tokens)], "int32")}
        greedy = prompt | self.generate_defaults() | few
        yield "generate", greedy
        yield "generate", greedy | {"temperature": np.ones([1], "float32")}
        yield "serving_default", prompt
        yield "score", {"text": prompt["prompt"]}
        yield "tokenize", prompt
        tokens = {"token_ids": np.zeros([1, 1], "int32"), "padding_mask": np.ones([1, 1], "int32")}
        yield "next_token", tokens | self.initial_state()
        yield "detokenize", tokens

    def files(self):
        return {"generation.json": json.dumps(self.task.limits.to_json())}

    @property
    def attends_without_end(self):
        """Whether tokens attend to all before them, however many these are."""
        backbone = self.task.backbone
        return backbone.max_sequence_length is None and "attention_contexts" in backbone.symbolic

    # === Text → text ===

    def generate(self, tokenize):
        """Return the function of `generate`: prompts and options → `task.continue_prompts`."""

        def generate(prompt, stop, **options):
            rows = tf.size(prompt)
            options = self.for_rows(rows, options) | self.stops(rows, stop)
            return self.task.continue_prompts(prompt, tokenize=tokenize, **options)

        return generate

    def for_rows(self, rows, options):
        """Return the options of a request, one or `rows` values of each, bounded if need be."""
        options = {name: per_row(name, value, rows) for name, value in options.items()}
        most, limits = options["max_new_tokens"], self.task.limits
        if limits.window is None:
            message = f"max_new_tokens may be {limits.most_served} at most, but is"
            options["max_new_tokens"] = required(most, most <= limits.most_served, message)
        return options

    def stops(self, rows, stop):
        """Return `stop_strings` and `stop_ids`, (rows, K): strings may name special tokens.

        `stop` is a string for all prompts, or one for each, or (1, K) or (rows, K) of them.
        """
        number = tf.concat([[1], tf.shape(stop)], axis=0)[-1]
        number = tf.where(tf.rank(stop) > 1, tf.maximum(number, 1), 1)
        stop = one_or_rows("stop", tf.reshape(stop, [-1, number]), rows)
        stop = tf.broadcast_to(stop, [rows, number])
        tokens = self.task.limits.special_tokens
        if not tokens:
            return {"stop_strings": stop}
        is_token = stop[:, :, tf.newaxis] == tf.constant([*tokens])  # (rows, K, tokens)
        ids = tf.gather(tf.constant([*tokens.values()]), tf.argmax(is_token, axis=-1))
        return {"stop_strings": stop, "stop_ids": tf.where(tf.reduce_any(is_token, -1), ids, -1)}

    def generate_defaults(self):
        """Return the inputs of `generate` except the prompts, as arrays (1,)."""
        # Not scalars, as TF Serving concatenates requests along the first axis.
        limits = self.task.limits
        stated = {name: option.default for name, option in OPTIONS.items()} | limits.options
        stated["max_new_tokens"] = limits.usual_number
        values = {n: np.array([stated[n]], option.dtype) for n, option in OPTIONS.items()}
        return {"stop": np.array([b""], object)} | values

    def pieces(self, tokenize=None):
        """Return the function of `tokenize`: prompts → the tokens that the model reads."""

        def pieces(prompt):
            ids = self.task.prompt_ids(prompt, _few(tokenize or self.tokenize))
            return {"tokens": self.task.tokenizer.tokens(ids).to_tensor("")} | _padded(ids)

        return pieces

    def detokenize(self, token_ids, padding_mask):
        token_ids = few_tokens(token_ids, *tf.unstack(tf.shape(token_ids)))
        padding_mask = tf.broadcast_to(padding_mask, tf.shape(token_ids))
        return {"text": self.task.tokenizer.detokenize(real_tokens(token_ids, padding_mask))}

    # === Token by token ===

    def state_specs(self):
        """Return the inputs of the model's state, by name, floats as float32."""
        backbone = self.task.backbone
        parts = named_tensors(backbone.state_spec(), backbone.state_name)
        return {
            name: tf.TensorSpec(p.shape, "float32" if "float" in p.dtype else p.dtype, name)
            for name, p in parts.items()
        }

    def initial_state(self, rows=1, length=0):
        """Return the state before any token, as arrays by the names of `state_specs`."""
        backbone = self.task.backbone
        state = backbone.pack_state(backbone.initial_state(rows, length))
        state = named_tensors(state, backbone.state_name)
        return {
            name: np.asarray(tf.cast(state[name], spec.dtype))
            for name, spec in self.state_specs().items()
        }

    def next_token(self, token_ids, padding_mask, **state):
        """The function of `next_token`: tokens and a state → logits and the state.

        A state of one row is used for all rows; start with the initial one. A cache grows by the
        slots that it lacks. Padding may be on either side.
        """
        rows, columns = tf.unstack(tf.shape(token_ids))
        slots = [
            tf.shape(state[name])[axis]
            for name, spec in self.state_specs().items()
            for axis in range(1, spec.shape.rank)
            if spec.shape[axis] is None
        ]
        kept = tf.reduce_max(tf.stack([0, *slots]))
        token_ids, state = few_tokens((token_ids, state), rows, columns + kept)
        name = "decoder_token_ids" if self.task.has_decoder else "token_ids"
        token_ids = with_known_ids(self.task.backbone, {name: token_ids})[name]
        if self.attends_without_end:
            token_ids = with_few_pairs(token_ids, rows, columns)
        padding_mask = tf.broadcast_to(padding_mask, tf.shape(token_ids))
        state = {
            name: tf.broadcast_to(part, tf.concat([[rows], tf.shape(part)[1:]], axis=0))
            for name, part in state.items()
        }
        backbone = self.task.backbone
        state = backbone.make_room(self._nested(state), {backbone.mask_name: padding_mask})
        return self._step(token_ids, padding_mask, state)

    def _nested(self, named):
        backbone = self.task.backbone
        tensors = {
            name: tf.cast(part, backbone.compute_dtype) if part.dtype.is_floating else part
            for name, part in named.items()
        }
        return nested_tensors(tensors, backbone.state_spec(), backbone.state_name)

    def _step(self, token_ids, padding_mask, state):
        task, backbone = self.task, self.task.backbone
        outputs, state = task.read(token_ids, padding_mask, backbone.unpack_state(state))
        last = last_real_token(padding_mask)
        last = tf.gather(outputs["sequence_output"], last[:, tf.newaxis], batch_dims=1)
        logits = task.head({"sequence_output": last})[:, 0]
        state = named_tensors(backbone.pack_state(state), backbone.state_name)
        return plain_floats({"logits": logits} | state)

    # === LiteRT ===

    def settings(self):
        """Return what the task states about texts, which a step alone cannot follow."""
        stated = self.task.generation or {}
        return {name: value for name, value in stated.items() if name != ENDS_PROMPTS}

    def warn_of_search(self):
        """Warn of what the task states that only sampling or beam search follow."""
        of_search = {*OF_OPTIONS, *OF_SAMPLING} - FOLLOWED - {"max_new_tokens"}
        if settings := {n: value for n, value in self.settings().items() if n in of_search}:
            warn(
                "`generate` of a .tflite writes greedily, and does not follow what the task "
                "states: "
                + ", ".join(f"{name}={value}" for name, value in settings.items())
                + ". Call `sample` to draw tokens; for beam search, export a SavedModel."
            )

    def warn_of_settings(self):
        if settings := self.settings():
            warn(
                "a .tflite reads and writes token by token, and does not follow what the task "
                "states about texts: "
                + ", ".join(f"{name}={value}" for name, value in settings.items())
                + ". The loop around it has to, or export a SavedModel."
            )

    def _lite_step(self):
        def next_token(token_ids, padding_mask, **state):
            with for_lite():
                return self._step(token_ids, padding_mask, self._nested(state))

        return trace(next_token, {**PACKED, **self.state_specs()})

    def lite_functions(self):
        self.warn_of_settings()
        functions = {"next_token": self._lite_step()}
        if hasattr(self.task.tokenizer, "tokenize_lite"):
            functions["tokenize"] = trace(self._lite_tokens, PROMPT)
        yield functions

    def byte_functions(self, specs):
        """Return the signatures of a `.tflite` that takes bytes: those of a loop within it, too.

        `specs` are the texts as bytes, see `ByteSignatures`.
        """
        self.require_lite()
        self.warn_of_search()
        with for_lite(), without_text_operations():
            self.task.tokenizer.target.detokenize_lite(tf.ragged.constant([[0]]))  # or says why not
            generate = trace(self.generate_lite, specs | MOST_TOKENS)
            sample = trace(self.sample_lite, specs | MOST_TOKENS | CHANCES)
        return {"generate": generate, "sample": sample, "next_token": self._lite_step()}

    def sample_lite(self, temperature, top_k, top_p, seed, stop_tokens, **inputs):
        """The function of `sample` in a `.tflite`: as `generate_lite`, with tokens that are drawn.

        The arguments are the fields of `lite.Chances`.
        """
        chances = lite.Chances(temperature, top_k, top_p, seed, stop_tokens)
        return self.generate_lite(**inputs, chances=chances)

    def generate_lite(self, max_new_tokens, chances=None, **inputs):
        """The function of `generate` in a `.tflite`: greedily, by what the task states.

        It returns `text`, uint8, the bytes of all texts, `text_ends` and `num_tokens`, (B,) int32.
        """
        columns = columns_from_bytes(inputs, self.texts())
        most = tf.clip_by_value(max_new_tokens, 0, self.task.limits.most_served)
        written = self._written(columns, most, chances)  # (B, T), -1 after an end
        is_token = written >= 0
        number = tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1)
        places = places_of(tf.reshape(is_token, [-1]))
        ids = tf.RaggedTensor.from_row_splits(
            tf.gather(tf.reshape(written, [-1]), places),
            tf.concat([[0], tf.cumsum(number)], 0),
            validate=False,
        )
        text, ends = strings.to_bytes(self.task.tokenizer.target.detokenize_lite(ids))
        return {"text": text, "text_ends": ends, "num_tokens": number}

    def _written(self, columns, most, chances=None):
        (prompt,), task = columns.values(), self.task
        prompts = self._aligned(prompt, most)
        return lite.write(task, task.limits, *prompts, most, chances=chances)

    def _aligned(self, prompt, most):
        """Return the tokens of prompts and their mask, (B, P): the last ones that leave room."""
        task, window = self.task, self.task.limits.window
        ids = task.tokenizer.tokenize_lite_with(prompt, parse_special=False)
        lengths = tf.cast(ids.row_splits[1:] - ids.row_splits[:-1], tf.int32)
        room = tf.fill(tf.shape(lengths), 2**30 if window is None else window - most)
        ends = task.end_ids("eos") if task.ends_prompts else []
        token_ids, padding_mask = align(ids, room - len(ends))
        if ends:
            end = tf.fill([tf.size(lengths), 1], ends[0])
            token_ids = tf.concat([token_ids, end], 1)
            padding_mask = tf.concat([padding_mask, tf.ones_like(end)], 1)
        if not (begin := task.end_ids("bos")):
            return token_ids, padding_mask
        # LiteRT cannot join ragged rows, but there is a free column before the first token.
        token_ids, padding_mask = (tf.pad(x, [[0, 0], [1, 0]]) for x in (token_ids, padding_mask))
        number = tf.reduce_sum(padding_mask, axis=1)
        is_begun = (number < room) & ((number == 0) | task.begins_prompts)
        column = tf.where(is_begun, tf.shape(token_ids)[1] - number - 1, -1)
        is_bos = tf.range(tf.shape(token_ids)[1]) == column[:, tf.newaxis]
        return tf.where(is_bos, begin[0], token_ids), tf.where(is_bos, 1, padding_mask)

    def _lite_tokens(self, prompt):
        ids = self.task.tokenizer.tokenize_lite(prompt)
        if self.task.ends_prompts:
            (eos,) = self.task.end_ids("eos")
            rows = tf.RaggedTensor.from_tensor(tf.fill([ids.nrows(), 1], eos))
            ids = tf.concat([ids, rows.with_row_splits_dtype(ids.row_splits.dtype)], 1)
        tokens = _padded(ids)
        if not self.task.begins_prompts:
            return tokens
        (bos,) = self.task.end_ids("bos")
        first = {"token_ids": bos, "padding_mask": 1}  # rows are padded on the right
        return {
            name: tf.pad(values, [[0, 0], [1, 0]], constant_values=first[name])
            for name, values in tokens.items()
        }

    def byte_requests(self):
        """Return a list of requests, as `lite_requests`, for a file that takes bytes."""
        texts = dict.fromkeys(self.texts(), np.array([b"a", b"two words"]))
        most = {"max_new_tokens": np.int32(2)}
        return [("generate", in_bytes(texts) | most), self.lite_requests()[0]]

    def lite_requests(self):
        tokens = {name: np.ones([2, 3], "int32") for name in PACKED}
        requests = [("next_token", tokens | self.initial_state(rows=2, length=4))]
        if hasattr(self.task.tokenizer, "tokenize_lite"):
            requests.append(("tokenize", {"prompt": np.array([b"a", b"two words"])}))
        return requests


def generate_specs():
    """Return the inputs of `generate`: prompts, and options for each."""
    # Of unknown rank: a number for all prompts is allowed, too.
    options = {name: tf.TensorSpec(None, option.dtype, name) for name, option in OPTIONS.items()}
    return PROMPT | {"stop": tf.TensorSpec(None, tf.string, "stop")} | options


def per_row(name, value, rows):
    """Return an input with one value for all rows, or one for each, as (1,) or (rows,)."""
    return one_or_rows(name, tf.reshape(value, [-1]), rows)


def one_or_rows(name, value, rows):
    """Return an input (1, …) or (rows, …); another is an error."""
    number = tf.shape(value)[0]
    return required(
        value,
        (number == 1) | (number == rows),
        f"{name} must have one value, or one for each prompt. Values and prompts are",
        number,
        rows,
    )


def _few(tokenize):
    """Return a function of texts: those of `tokenize`, whose rows are not too long together."""

    def few(text):
        ids = tokenize(text)
        return few_tokens(ids, ids.nrows(), longest(ids))

    return few


def _padded(ids):
    return {"token_ids": ids.to_tensor(0), "padding_mask": tf.ones_like(ids).to_tensor(0)}


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

    def byte_functions(self, specs):
        functions = super().byte_functions(specs)
        encode = self.encode(self.task.tokenizer.tokenize_lite, self.task.target_length)
        with for_lite(), without_text_operations():
            functions["encode"] = trace(
                lambda **inputs: encode(**columns_from_bytes(inputs, self.texts())), specs
            )
        return functions

    def _written(self, columns, most, chances=None):
        task = self.task
        tokenize = functools.partial(task.tokenizer.tokenize_lite_with, parse_special=False)
        packed = task.preprocess(columns, tokenize)
        ids, mask = packed["encoder_token_ids"], packed["encoder_padding_mask"]
        begin = tf.fill([tf.shape(ids)[0], 1], task.packer.start_id)
        return lite.write(
            task.decoder(packed),
            task.limits,
            begin,
            tf.ones_like(begin),
            most,
            source_ids=tf.where(mask > 0, ids, -1),
            banned=[] if task.backbone.generates_start else [task.packer.start_id],
            chances=chances,
        )

    def settings(self):
        task, stated = self.task, super().settings()
        if task.num_beams > 1:
            stated |= {"num_beams": task.num_beams, "length_penalty": task.length_penalty}
        return stated

    def lite_functions(self):
        self.warn_of_settings()

        functions = {"next_token": self._lite_step()}
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
