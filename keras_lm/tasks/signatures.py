"""The signatures of a task's export: functions of named tensors, and requests to run them.

Shapes: B texts, L layers, N heads, S tokens that read, T tokens that are read.
"""

import contextlib
import functools
import math
import string

import keras
import numpy as np

from keras_lm.feeding.datasets import with_known_ids
from keras_lm.layers.tensorflow import (
    MOST_NUMBERS,
    MOST_PIECES,
    MOST_TOKENS,
    bounded,
    few_numbers,
    few_tokens,
    for_lite,
    require,
    required,
)
from keras_lm.layers.tensorflow_products import BFloat16Products, Int8Products
from keras_lm.litert import in_bytes
from keras_lm.objectives import IGNORED
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.mediapipe_files import for_mediapipe
from keras_lm.tokenizers.strings import without_text_operations

# Rows times their columns squared, of a request to a model that has no longest sequence: attention
# has a number for each, for every head. One row may have 4,096 columns, or 64 rows 512.
MOST_PAIRS = 2**24


def trace(function, specs, most=MOST_TOKENS):
    """Return the `ConcreteFunction` of a function of named tensors; of texts, as many in each.

    It refuses more than `most` tokens.
    """
    columns = [name for name, spec in specs.items() if spec.shape.rank and spec.dtype == tf.string]

    def served(**inputs):
        if len(columns) > 1:
            inputs |= _with_as_many_rows({name: inputs[name] for name in columns})
        with bounded(most):
            return function(**inputs)

    return tf.function(served, autograph=False).get_concrete_function(**specs)


def _with_as_many_rows(columns):
    """Return the columns, whose rows are compared first: one would be repeated for all others."""
    rows = tf.stack([tf.shape(column)[0] for column in columns.values()])
    message = f"{', '.join(columns)} have different numbers of rows: pass as many of each. Here:"
    with tf.control_dependencies([require(rows == rows[0], message, rows)]):
        return {name: tf.identity(column) for name, column in columns.items()}


def with_few_pairs(tensor, rows, columns, at_once=None):
    """Return a tensor that is available once `rows` × `columns` ² are few enough.

    If `at_once`, an int, columns are read at a time, it is `rows` × `columns` × `at_once`.
    """
    rows, columns = tf.cast(rows, tf.float32), tf.cast(columns, tf.float32)
    what = "rows times their columns squared"
    pairs = rows * columns**2
    if at_once is not None:
        what = f"rows times their columns times {at_once} of them at once"
        pairs = rows * columns * tf.minimum(columns, at_once)
    message = f"{what} may be {MOST_PAIRS} at most, but is"
    return required(tensor, pairs <= MOST_PAIRS, message, pairs)


def plain_floats(outputs):
    """Return the outputs of a signature, half precision as float32."""
    # Neither JSON nor most clients support half precision.
    halves = (tf.bfloat16, tf.float16)
    return {
        name: tf.cast(value, tf.float32) if value.dtype in halves else tf.identity(value)
        for name, value in outputs.items()
    }


class TextSignatures:
    """The signatures of a task with an answer per text."""

    # Whether a `.tflite` of the task answers by `answer_lite`.
    answers_in_lite = True

    def __init__(self, task):
        self.task = task

    def texts(self):
        """Return the inputs of `serving_default`; ValueError if the task has no tokenizer."""
        task = self.task
        if task.tokenizer is None:
            raise ValueError(
                f"{type(task).__name__} has no tokenizer, and an export takes strings: pass "
                "tokenizer= when making the task."
            )
        return task.packer.specs(optional=task.text_pair)

    def functions(self):
        """Return the signatures of a SavedModel: name → `ConcreteFunction`."""
        task, texts = self.task, self.texts()
        tokenize = self.tokenize
        answer = trace(self.answer(tokenize), texts)
        functions = self._of_texts(answer, tokenize) | {"tokens": self.raw()}
        for name, specs in task.other_signatures().items():
            is_same = specs == texts  # only a further name
            functions[name] = answer if is_same else trace(self.answer(tokenize), specs)
        return functions

    def frozen_functions(self, weights="float32"):
        """Return those of `functions` that take texts as `texts` says, with constants for weights.

        Others would hold a copy of the weights each.
        """
        tokenize = self.tokenize
        return self._of_texts(self.frozen_answer(weights, tokenize), tokenize)

    def frozen_answer(self, weights, tokenize=None):
        with constants(self.task, weights):
            return checked(trace(self.answer(tokenize), self.texts()))

    @functools.cached_property
    def tokenize(self):
        """The `ConcreteFunction` texts → ids; one for all signatures: a graph holds it once."""
        return trace(self.task.tokenize, {"text": tf.TensorSpec([None], tf.string, "text")})

    def _of_texts(self, answer, tokenize):
        pieces = trace(self.pieces(tokenize), self.texts(), MOST_PIECES)
        functions = {"serving_default": answer, "tokenize": pieces} | self.of_examples(answer)
        return functions | self.of_tokenizer()

    def of_tokenizer(self):
        """Return what the tokenizer answers about single texts, of whichever column."""
        spec = {"text": tf.TensorSpec([None], tf.string, "text")}
        return {name: trace(function, spec) for name, function in self.offered.items()}

    @property
    def offered(self):
        """What the tokenizer answers: a signature's name → its function of (B,) texts."""
        return self.task.tokenizer.signatures

    def of_examples(self, answer):
        """Return the signature for `tf.Example`s, which calls `answer`: no second copy of it."""
        example = self.task.example_signature()
        if not example:
            return {}
        name, outputs = example
        inputs = {"inputs": tf.TensorSpec([None], tf.string, "inputs")}
        return {name: trace(example_function(answer, outputs, list(self.texts())), inputs)}

    def methods(self):
        """Return the method of TF Serving of each signature that is not for Predict."""
        example = self.task.example_signature()
        return {example[0]: example[0]} if example else {}

    def defaults(self):
        """Return the defaults of inputs: signature → input → array."""
        return {}

    def files(self):
        """Return further files for servers, in `assets.extra`: name of a file → text."""
        return {}

    def answer(self, tokenize=None):
        return lambda **columns: plain_floats(self.task.answer(columns, tokenize))

    def raw(self):
        """Return the `ConcreteFunction` of `tokens`: packed inputs → raw outputs."""
        task = self.task

        axis = 1 if task.packer.rows.several_for is None else 2

        def checked(packed, check):
            # (A `CoreferenceResolver` also takes the places of words, which are in no rows.)
            sizes = {n: tf.shape(x) for n, x in packed.items() if x.shape.rank > axis}
            return packed | {
                name: check(packed[name], tf.reduce_prod(shape[:axis]), shape[axis])
                for name, shape in sizes.items()
            }

        def raw(**packed):
            packed = checked(packed, few_tokens)
            if task.backbone.max_sequence_length is None:
                packed = checked(packed, with_few_pairs)
            packed = with_known_ids(task.backbone, packed)
            outputs = task(packed, training=False)
            outputs = outputs if isinstance(outputs, dict) else {task.output_name: outputs}
            return plain_floats(outputs)

        specs = task.packer.row_specs(self.raw_specs())
        traced = trace(raw, specs)
        width = max(math.prod(n or 1 for n in x.shape) for x in traced.structured_outputs.values())
        if width * MOST_TOKENS <= MOST_NUMBERS:
            return traced
        check = functools.partial(few_numbers, width=width)
        return trace(lambda **packed: traced(**checked(packed, check)), specs)

    def raw_specs(self):
        """Return the `tf.TensorSpec`s of packed rows by name."""
        inputs = keras.tree.flatten(self.task.backbone.input)
        return {x.name: tf.TensorSpec(x.shape, x.dtype, x.name) for x in inputs}

    def pieces(self, tokenize=None):
        """Return the function of `tokenize`: named strings → the pieces that the model reads."""
        task = self.task
        return lambda **columns: task.packer.pieces(task.preprocess(columns, tokenize))

    def attention(self):
        """Return the function of `attention`: named strings → what each token reads, for pictures.

        Raises:
            ValueError: if the model has no attention with heads, or makes several rows of a text.
        """
        task, tokenize = self.task, self.tokenize
        return trace(lambda **columns: attention_of_text(task, columns, tokenize), self.texts())

    def answering(self, texts):
        """Yield the signature, task and texts of each answer to compare in an export."""
        yield "serving_default", self.task, texts

    def requests(self, batch_sizes):
        """Yield requests (signature, arrays by name) that run all signatures that take texts.

        They warm up TensorFlow for each of the ascending sizes, so that the first client need not
        wait. Batches are small and texts short, so that a server starts quickly. One text is too
        long for the model.
        """
        task, specs = self.task, self.texts()

        def columns(number, rows):
            # `MaskedLM` fills in the mask; for other tasks it is ordinary text.
            mask = task.tokenizer.special_tokens.get("mask", "a")
            text = " ".join([mask, *["a"] * (number - 1)])
            # Two choices or words per row, if a row has several.
            shapes = {name: [rows, 2][: spec.shape.rank] for name, spec in specs.items()}
            samples = dict.fromkeys(shapes, text) | task.rows.samples
            return {name: np.full(shape, samples[name]) for name, shape in shapes.items()}

        for rows in batch_sizes:
            yield "serving_default", columns(1, rows)
            yield "serving_default", columns(16, rows)
        yield "serving_default", columns(2 * task.packing["sequence_length"], 1)
        yield "tokenize", columns(16, batch_sizes[0])
        if task.example_signature():
            yield task.example_signature()[0], columns(16, batch_sizes[0])
        for name in self.offered:
            yield name, {"text": np.full(batch_sizes[0], "a")}

    # === LiteRT ===

    def lite_texts(self):
        """Return the inputs of a `.tflite`, those of `serving_default`."""
        return self.texts()

    def lite_columns(self, columns):
        """Return columns of text, arrays by name, as a `.tflite` takes them."""
        return columns

    def lite_batch(self, columns):
        """Return the rows of a call, arrays by name, as the signature takes them."""
        return columns

    def lite_functions(self):
        """Yield alternatives for a `.tflite`, as `functions` returns them, the best first.

        If a model does not convert with a variable length, every row has `sequence_length` columns.
        """
        task, texts = self.task, self.lite_texts()
        self.require_lite()
        for padding in dict.fromkeys([task.packer.padding, "fixed"]):
            with task.padded(padding):
                with for_lite():
                    functions = {"serving_default": trace(self.answer_lite, texts)}
                    for name, answer in self.further_lite.items():
                        functions[name] = trace(self.lite(answer), texts)
                yield functions

    def require_lite(self):
        """Raise a ValueError if the tokenizer has no form for LiteRT."""
        tokenizer = self.task.tokenizer
        try:
            tokenizer.tokenize_lite  # noqa: B018 - a property of some, which says why not
        except AttributeError as error:
            reason = error
            if not hasattr(type(tokenizer), "tokenize_lite"):
                reason = "it parts text by regular expressions, which neither LiteRT nor ONNX has"
            raise ValueError(
                f"{type(tokenizer).__name__} cannot tokenize in LiteRT or ONNX: {reason}. Export "
                "as a SavedModel instead."
            ) from error
        in_bytes = self.answers_in_lite and not strings.has_text_operations()
        if self.task.joins_pieces and not in_bytes:
            raise ValueError(
                f"LiteRT has no kernels of strings that join the tokens of a "
                f"{type(self.task).__name__}'s `text` (UnsortedSegmentJoin, StaticRegexReplace): "
                "export with tokenizer='bytes', or as a SavedModel."
            )
        if self.task.parse_special and not in_bytes:
            raise ValueError(
                "this .tflite does not find special tokens in text, as "
                f"parse_special={self.task.parse_special} asks for: export with tokenizer='bytes' "
                "if the task writes no text, or as a SavedModel, or set task.parse_special = False."
            )

    # What else a `.tflite` answers about its texts: a signature's name → its function of columns.
    further_lite = {}

    def answer_lite(self, **columns):
        return self.lite(self.task.answer_lite)(**columns)

    def lite(self, answer):
        """Return the function of a signature whose answer is a function of columns."""
        return lambda **columns: plain_floats(answer(columns))

    def lite_requests(self):
        """Return a list of requests, as in `requests`, that test whether a `.tflite` runs."""
        texts = np.array([[b"", b"a"], [b"two words", b""]])
        specs = self.lite_texts().items()
        columns = {name: texts if spec.shape.rank == 2 else texts[:, 0] for name, spec in specs}
        return [(name, columns) for name in ("serving_default", *self.further_lite)]


class PlainSignatures(TextSignatures):
    """Those of a SavedModel of TensorFlow's own operations: the tokenizer is one of integers.

    It has what answers texts alone, and `tokens`.
    """

    def __init__(self, offer):
        super().__init__(offer.task)
        self.offer = offer

    def require(self):
        """Raise a ValueError, which names what is missing, if the task has no such form."""
        name, task = type(self.task).__name__, self.task
        if not self.offer.answers_in_lite:
            raise ValueError(f"operations='tensorflow': a {name} writes text. Leave it out.")
        for member in getattr(task, "members", [task]):
            tokenizer = member.tokenizer
            if not hasattr(tokenizer, "tokenize_lite"):
                raise ValueError(
                    f"operations='tensorflow': {type(tokenizer).__name__} has no form without "
                    "TensorFlow Text's operations. Leave it out."
                )

    def functions(self):
        self.require()
        answer = trace(self.answer(), self.texts())
        signatures = {"serving_default": answer} | self.of_examples(answer)
        for name, further in self.offer.further_lite.items():
            signatures[name] = trace(self.lite(further), self.texts())
        return signatures if hasattr(self.task, "members") else signatures | {"tokens": self.raw()}

    def answer(self, tokenize=None):
        return self.lite(self.task.answer_lite)

    def lite(self, answer):
        def plain(**columns):
            rows = tf.shape(next(iter(columns.values())))[0]
            blank = tf.maximum(1 - rows, 0)  # a row, if there is none
            for name, text in columns.items():
                more = tf.fill(tf.concat([[blank], tf.shape(text)[1:]], 0), "")
                columns[name] = strings.valid_utf8(tf.concat([text, more], 0))
            with without_text_operations():
                answers = plain_floats(answer(columns))
            return {name: value[:rows] for name, value in answers.items()}

        return plain

    def requests(self, batch_sizes):
        known = {"serving_default", *self.methods(), *self.offer.further_lite}
        return [r for r in self.offer.requests(batch_sizes) if r[0] in known]


class ByteSignatures(TextSignatures):
    """Those of a `.tflite` without TensorFlow Text's operations: strings are UTF-8 and row ends.

    In place of a string tensor NAME there are NAME, uint8 (N,), the bytes of all its strings one
    after another, and NAME_ends, int32, where each ends, in the shape of the strings. So are
    strings of answers that are parts of texts; bytes after the last end do not count.
    """

    def __init__(self, offer):
        super().__init__(offer.task)
        self.offer = offer

    def lite_functions(self):
        if self.offer.answers_in_lite:
            yield from super().lite_functions()
        else:
            yield self.offer.byte_functions(self.lite_texts())

    def require_lite(self):
        with without_text_operations():
            self.offer.require_lite()

    def lite_texts(self):
        specs = {}
        for name, spec in self.offer.lite_texts().items():
            specs[name] = spec
            if spec.dtype == tf.string:
                specs[name] = tf.TensorSpec([None], tf.uint8, name)
                specs[f"{name}_ends"] = tf.TensorSpec(spec.shape, tf.int32, f"{name}_ends")
        return specs

    def lite_columns(self, columns):
        return self.offer.lite_columns(columns)

    def lite_batch(self, columns):
        return in_bytes(columns)

    further_lite = property(lambda self: self.offer.further_lite)

    def lite(self, answer):
        def of_bytes(**inputs):
            columns = columns_from_bytes(inputs, self.offer.lite_texts())
            with for_lite(), without_text_operations(), self.context():
                return plain_floats(self.outputs(answer(columns)))

        return of_bytes

    # A context in which answers are traced.
    context = staticmethod(contextlib.nullcontext)

    def outputs(self, answers):
        """Return an answer with bytes and their ends in place of texts."""
        outputs = {}
        for name, value in answers.items():
            outputs[name] = value
            if strings.are_bytes(value):
                outputs[name], outputs[f"{name}_ends"] = strings.to_bytes(value)
        return outputs

    def lite_requests(self):
        if not self.offer.answers_in_lite:
            return self.offer.byte_requests()
        return [(name, in_bytes(columns)) for name, columns in self.offer.lite_requests()]


def columns_from_bytes(inputs, names):
    """Return columns by their names; those that come with where each text ends are bytes."""
    return {
        name: strings.from_bytes(inputs[name], inputs[f"{name}_ends"])
        if f"{name}_ends" in inputs
        else inputs[name]
        for name in names
    }


def example_function(answer, outputs, names):
    """Return `answer` and `outputs` as a function of serialized `tf.Example`s, for TF Serving."""
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names}

    def examples(inputs):
        return outputs(answer(**tf.io.parse_example(inputs, features)))

    return examples


# MediaPipe lower-cases ASCII before it looks for pieces.
CAPITALS = " ".join([string.ascii_uppercase, *string.ascii_uppercase])


class IdSignatures(TextSignatures):
    """The signature of a `.tflite` whose program tokenizes: (1, S) int32 in, an array (1, …) out.

    The inputs are `ids`, `mask` and `segment_ids`, or `ids` alone for a tokenizer of words. For the
    methods see `TextSignatures`. Attributes: `tokenizer`, a `MediaPipeTokenizer`; `output`, the
    array's name; `labels`, a list of the names of its columns, or None.

    Raises:
        ValueError: if MediaPipe cannot run the task, or would tokenize in another way.
    """

    def __init__(self, task):
        super().__init__(task)
        name = type(task).__name__
        if task.single_output() is None:
            raise ValueError(
                f"MediaPipe has no runner for this {name}, only for a TextClassifier, and a "
                "FeatureExtractor with one vector for each text: export with format='litert'."
            )
        self.output, self.labels = task.single_output()
        self.texts()  # raises if there is no tokenizer
        if task.text_pair:
            raise ValueError(
                f"MediaPipe passes one text, and this {name} takes pairs: export with "
                "format='litert'."
            )
        if getattr(task, "prompt", None):
            raise ValueError(
                f"MediaPipe puts nothing before a text: make the {name} with prompt=None, and let "
                f"your program put {task.prompt!r} there."
            )
        if task.parse_special:
            raise ValueError(
                "MediaPipe finds no special tokens in text, as "
                f"parse_special={task.parse_special} asks for: set task.parse_special = False."
            )
        self.tokenizer = for_mediapipe(task.tokenizer, self._around())
        if self.tokenizer.kind != "regex":
            self._require_lower_case()

    def _around(self):
        """Return the ids before and after a text."""
        template, packer = self.task.template, self.task.packer
        pieces = template.ids("single", packer.tokenizer)
        ids, segments = zip(*pieces)
        if template.padding_side == "left" or any(segments):
            raise ValueError(
                "MediaPipe pads texts on the right, and has one segment: export with "
                "format='litert'."
            )
        place = ids.index("$A")
        return list(ids[:place]), list(ids[place + 1 :])

    def _require_lower_case(self):
        texts = tf.constant([CAPITALS, CAPITALS.lower()])
        upper, lower = self.task.preprocess({"text": texts})["token_ids"].numpy()
        if not np.array_equal(upper, lower):
            raise ValueError(
                "MediaPipe lower-cases texts, and this tokenizer keeps capitals: export with "
                "format='litert', or train an uncased model."
            )

    def lite_functions(self):
        task = self.task
        paddings = ["fixed"] if self.tokenizer.kind == "regex" else [task.packer.padding, "fixed"]
        for padding in dict.fromkeys(paddings):
            length = task.packer.sequence_length if padding == "fixed" else None
            specs = {name: tf.TensorSpec([1, length], tf.int32, name) for name in self._names()}
            with for_lite():
                yield {"serving_default": trace(self.answer_lite, specs)}

    def _names(self):
        return ["ids"] if self.tokenizer.kind == "regex" else ["ids", "mask", "segment_ids"]

    def answer_lite(self, ids, mask=None, segment_ids=None):
        task = self.task
        if self.tokenizer.kind == "regex":
            mask = tf.cast(ids != self.tokenizer.pad_id, tf.int32)
            ids = tf.where(mask > 0, ids, task.packer.pad_id)
            segment_ids = tf.zeros_like(ids)
        packed = {"token_ids": ids, "segment_ids": segment_ids, "padding_mask": mask}
        packed = {name: self._cut(x) for name, x in packed.items()}
        answer = task.decode(task(packed, training=False), packed)
        return plain_floats({self.output: answer[self.output]})

    def _cut(self, x):
        """Cut what MediaPipe passes uncut, if the length may vary; the last token ends a text."""
        longest = self.task.packer.sequence_length
        if x.shape[1] is not None:
            return x
        return tf.concat([x[:, : tf.minimum(tf.shape(x)[1], longest) - 1], x[:, -1:]], axis=1)

    def lite_columns(self, columns):
        with self.task.padded("fixed"):
            packed = self.task.preprocess({n: tf.constant(x) for n, x in columns.items()})
        names = {"ids": "token_ids", "mask": "padding_mask", "segment_ids": "segment_ids"}
        rows = {name: packed[names[name]].numpy() for name in self._names()}
        if self.tokenizer.kind == "regex":
            rows["ids"] = np.where(packed["padding_mask"], rows["ids"], self.tokenizer.pad_id)
        return rows

    def lite_requests(self):
        rows = self.lite_columns({"text": np.array(["a"])})
        return [("serving_default", {name: row[:1] for name, row in rows.items()})]


STEPS = 255  # a byte is round(√probability · STEPS), so that small shares keep their digits
MOST_TOKEN_PAIRS = (
    2**20
)  # of tokens: four texts of 512, which are 38 MB each in 12 layers with 12 heads
MEMORY = "(memory)"  # a column before the text's own, in models that carry one


def attention_of_text(task, columns, tokenize=None):
    """Return the outputs of `attention` for named strings (B,); see `export_saved_model`."""
    packed = task.preprocess(columns, tokenize)
    if task.packer.rows.several_for or packed["padding_mask"].shape.rank > 2:
        raise ValueError(
            f"attention=True: {type(task).__name__} makes several rows of a text. Export a "
            "FeatureExtractor of its backbone with it."
        )
    packed = _few(task.backbone.select_inputs(packed), "token_ids")
    tokens = _named(task.tokenizer, packed["token_ids"], packed["padding_mask"])
    return _outputs("self", task.backbone.attention_probabilities(packed), tokens, tokens)


def attention_of_pair(task, columns, tokenize=None):
    """Return those of an encoder-decoder, for texts and the `labels` written for them."""
    columns, backbone = dict(columns), task.backbone
    inputs, labels = task.packer.targets(columns.pop("labels"), task.tokenize_target)
    packed = task.preprocess(columns, tokenize) | inputs
    target = task.tokenizer.target
    source = _named(task.tokenizer, packed["encoder_token_ids"], packed["encoder_padding_mask"])
    taken = _named(target, packed["decoder_token_ids"], packed["decoder_padding_mask"])
    given = _named(target, tf.where(labels == IGNORED, 0, labels), packed["decoder_padding_mask"])
    packed = _few(packed, "encoder_token_ids")
    packed = _few(packed, "decoder_token_ids")
    maps = {}
    if "attention_contexts" in backbone.symbolic:  # else a recurrent one, which has no others
        encoder = backbone.encoder_attention_probabilities(packed)
        maps |= _outputs("encoder", encoder, source, source)
        maps |= _outputs("decoder", backbone.attention_probabilities(packed), taken, taken)
    # What was read to write a token: the label, not the input, names the row.
    return maps | _outputs("cross", backbone.cross_attention_probabilities(packed), given, source)


def _few(packed, name):
    """Return packed rows whose tokens are available once there are few enough of them."""
    rows, columns = tf.unstack(tf.cast(tf.shape(packed[name]), tf.float32))
    pairs = rows * columns**2
    message = (
        f"rows times their tokens squared may be {MOST_TOKEN_PAIRS} at most for attention, but are"
    )
    return packed | {name: required(packed[name], pairs <= MOST_TOKEN_PAIRS, message, pairs)}


def _named(tokenizer, ids, mask):
    # By the mask: a text can have the padding token, too.
    return tf.where(mask > 0, tokenizer.tokens(ids), "")


def _outputs(name, layers, tokens, attended):
    """Return what describes the probabilities of L layers, (B, N, S, T) each, under a name."""
    rounded = [tf.cast(tf.round(tf.sqrt(layer) * STEPS), tf.uint8) for layer in layers]
    rounded = tf.stack(rounded, axis=1)  # (B, L, N, S, T)
    sizes = tf.shape(rounded)
    more = tf.fill([sizes[0], sizes[4] - tf.shape(attended)[1]], MEMORY)
    return {
        f"{name}_tokens": tokens,
        f"{name}_attended": tf.concat([more, attended], axis=1),
        f"{name}_sizes": tf.tile(sizes[tf.newaxis, 1:], [sizes[0], 1]),
        f"{name}_bytes": tf.map_fn(_as_string, rounded, fn_output_signature=tf.string),
    }


def _as_string(array):
    # The bytes of an array are the last of its TensorProto.
    return tf.strings.substr(tf.io.serialize_tensor(array), -tf.size(array), tf.size(array))


LARGEST_GRAPH = 2_000_000_000  # bytes of weights; a protocol buffer holds 2**31 in all


def constants(task, weights):
    """Return a context for tracing a task, in which its weights are constants.

    With `weights` of `"int8"` or `"bfloat16"`, these are the matrices of `Int8Products` or
    `BFloat16Products`; what is not multiplied stays a variable.
    """
    if weights == "int8":
        return Int8Products()
    return BFloat16Products() if weights == "bfloat16" else Constants(task.variables)


def checked(function):
    """Return a `ConcreteFunction`; raise a ValueError if its constants are too large."""
    operations = [op for op in function.graph.get_operations() if op.type == "Const"]
    _check_size([op.outputs[0] for op in operations])
    return function


class Constants(keras.StatelessScope):
    """A scope for tracing, in which variables are constants of the graph that reads them."""

    def __init__(self, variables):
        super().__init__()
        self.variables = {id(variable): variable.value for variable in variables}
        self.known = {}

    def get_current_value(self, variable):
        key = (id(variable), id(tf.compat.v1.get_default_graph()))
        if key not in self.known:
            _check_size([*self.known.values(), variable])
            with tf.init_scope():
                value = self.variables[id(variable)].numpy()
            self.known[key] = tf.constant(value)
        return self.known[key]


def _check_size(tensors):
    """Raise a ValueError if a graph cannot hold constants with the values of these."""
    size = sum(tf.as_dtype(one.dtype).size * math.prod(one.shape) for one in tensors)
    if size > LARGEST_GRAPH:
        raise ValueError(
            f"freeze=True puts the weights into the graph, which may have 2 GB, and these take "
            f"{size / 1e9:.1f} GB: leave it out."
        )
