"""Predictors: tasks, exports and servers answer texts through the same methods.

TensorFlow is imported only by those that need it.
"""

from pathlib import Path
from typing import Any

from keras_lm.litert import InterpreterPool
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import as_local, check_sums
from keras_lm.utils.json_values import first_line
from keras_lm.utils.model_versions import find_saved_model
from keras_lm.utils.user_arguments import checks_flags

KNOWN_ORDER = ("text", "text_pair")


@checks_flags
def open_predictor(
    model: PathLike,
    signature: str | None = None,
    version: int | None = None,
    text_pair: bool = False,
) -> "Predictor":
    """Return a `Predictor` of a model, whose kind is recognised by its files.

    Args:
        model: path of an exported SavedModel (a version's folder, or the folder of all versions),
            of a `.tflite`, or of a preset or published checkpoint with a task.
        signature: str, for exports. The default is `"serving_default"`, or `"generate"` for a
            `.tflite` that writes, which writes up to 50 tokens for each text.
        version: int, for exports. The default is the latest.
        text_pair: bool. Whether to pass pairs to a task that takes both texts and pairs.

    Raises:
        ValueError: if there is no such model, or an argument does not apply to it.

    Example:

        model = keras_lm.serving.open_predictor("exported/film-critic")
        model.answers({"text": ["a joy", "dull"]}, batch_size=32)  # a dict for each text
    """
    path = as_local(model)
    folder = find_saved_model(path, version)
    if folder is not None:
        return SavedModelPredictor(folder, signature or "serving_default")
    if version is not None:
        raise ValueError(f"{model} has no versions: leave version={version} out.")
    if path.suffix == ".tflite":
        return open_litert(path, signature)
    if signature:
        raise ValueError(f"{model} is not exported: leave signature={signature} out.")

    from keras_lm import presets, tasks

    return predictor_of(presets.load_ready_task(model, tasks.Task), text_pair)


def predictor_of(task: Any, text_pair: bool = False) -> "Predictor":
    """Return the `Predictor` of a task in memory; `text_pair` is as in `open_predictor`."""
    from keras_lm import tasks

    if isinstance(task, tasks.MultiVectorEncoder):
        return CountedVectors(task)
    if isinstance(task, tasks.SparseEncoder) and task.top_k is None:
        return WeightedTerms(task)
    if isinstance(task, tasks.FeatureExtractor) and task.pooling == "none":
        return TokenVectors(task, text_pair)
    return TaskPredictor(task, text_pair)


class Predictor:
    """Answers texts; `inputs` are the names of its columns, `text` first."""

    inputs = ()
    is_ragged = False  # whether texts have as many vectors as tokens

    @property
    def of_vectors(self) -> "Predictor":
        """The predictor whose answers have `embedding`, for a file of arrays."""
        return self

    def answer(self, columns):
        """Return a dict of arrays, with a row per text, for a dict of lists of strings."""
        raise NotImplementedError

    def answers(self, columns, batch_size):
        """Return a list with a dict per row; texts of similar lengths are batched together."""
        answers = [None] * len(next(iter(columns.values())))
        for places, batch in by_length(columns, batch_size):
            answer = self.answer(batch)
            for row, place in enumerate(places):
                answers[place] = {name: answer[name][row] for name in sorted(answer)}
        return answers


def by_length(columns, batch_size):
    """Yield `(places, columns)` of batches, the longest texts first."""
    # The length is in characters, since only an export or a server may have the tokenizer.
    sizes = [sum(map(len, row)) for row in zip(*columns.values(), strict=True)]
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        yield places, {name: [column[n] for n in places] for name, column in columns.items()}


class TaskPredictor(Predictor):
    """A `keras_lm.tasks.Task`; `text_pair` only matters if it takes both texts and pairs."""

    def __init__(self, task, text_pair=False):
        self.task = task
        takes_pairs = text_pair if task.text_pair is None else task.text_pair
        self.inputs = list(task.text_names if takes_pairs else task.answer_names)

    def answer(self, columns):
        return self.task.answer_all(columns, batch_size=len(columns[self.inputs[0]]), verbose=0)


class CountedVectors(TaskPredictor):
    """A `MultiVectorEncoder`: the vectors of a document's tokens that count."""

    is_ragged = True

    def answer(self, columns):
        answer = super().answer(columns)
        rows = zip(answer["embedding"], answer["mask"].astype(bool), strict=True)
        return {"embedding": [vectors[counts] for vectors, counts in rows]}


class WeightedTerms(TaskPredictor):
    """A `SparseEncoder`: the terms with a weight above 0, the highest first, and not all zeros."""

    @property
    def of_vectors(self):
        return TaskPredictor(self.task)

    def answer(self, columns):
        import numpy as np

        vectors = super().answer(columns)["embedding"]
        ids = [np.argsort(-vector, kind="stable")[: (vector > 0).sum()] for vector in vectors]
        terms = [self.task.tokenizer.tokens(row.astype("int32")).numpy() for row in ids]
        terms = [np.array([term.decode("utf-8", "replace") for term in row], str) for row in terms]
        return {"terms": terms, "weights": [x[row] for x, row in zip(vectors, ids, strict=True)]}


class TokenVectors(TaskPredictor):
    """A `FeatureExtractor` with `pooling="none"`: a vector for each token, without padding."""

    is_ragged = True

    def __init__(self, task, text_pair=False):
        import tensorflow as tf

        super().__init__(task, text_pair)

        def run(columns):
            packed = task.preprocess(columns)
            return task(packed, training=False), packed["padding_mask"]

        specs = {name: tf.TensorSpec([None], tf.string, name) for name in self.inputs}
        self._run = tf.function(run, input_signature=[specs], autograph=False)

    def answer(self, columns):
        import tensorflow as tf

        tensors = {name: tf.constant(encoded(column)) for name, column in columns.items()}
        vectors, mask = (value.numpy() for value in self._run(tensors))
        return {"embedding": [row[is_token] for row, is_token in zip(vectors, mask.astype(bool))]}


class Writer(TaskPredictor):
    """A `CausalLM` or `Seq2SeqLM` that generates; `options` are arguments of its `generate`."""

    def __init__(self, task, text_pair=False, **options):
        super().__init__(task, text_pair)
        self.options = options
        self.has_scores = False
        if hasattr(task, "num_beams"):  # a Seq2SeqLM
            usual = 1 if options.get("temperature") else task.num_beams
            self.has_scores = (options.get("num_beams") or usual) > 1

    def answers(self, columns, batch_size):
        options = {"return_scores": True} | self.options if self.has_scores else self.options
        texts = columns.get("prompt", columns)
        written = self.task.generate(texts, batch_size=batch_size, verbose=0, **options)
        rows = zip(*written) if self.has_scores else ((text,) for text in written)
        return [dict(zip(("text", "scores"), row)) for row in rows]


class SavedModelPredictor(Predictor):
    """A signature of an exported SavedModel; `folder` is that of one version."""

    def __init__(self, folder, signature):
        # (Its import registers the tokenizer's operations.)
        from keras_lm.tensorflow import missing_operation, tf

        try:
            check_sums(Path(folder), "copy it again")
            self.model = tf.saved_model.load(str(folder))  # its signatures do not keep it alive
        except Exception as error:  # damaged files raise all kinds of errors
            if message := missing_operation(error):
                raise ImportError(f"{folder} cannot be loaded: {message}") from error
            raise ValueError(
                f"{folder} cannot be loaded: {first_line(error)} Export it again."
            ) from error
        if signature not in self.model.signatures:
            raise no_signature(folder, signature, self.model.signatures)
        self.function = self.model.signatures[signature]
        specs = self.function.structured_input_signature[1]
        self.inputs = string_inputs(signature, {n: spec.dtype.name for n, spec in specs.items()})

    def answer(self, columns):
        import tensorflow as tf

        tensors = {name: tf.constant(encoded(column)) for name, column in columns.items()}
        try:
            return {name: value.numpy() for name, value in self.function(**tensors).items()}
        except tf.errors.OpError as error:
            raise refused(error) from error


class LiteRTPredictor(Predictor):
    """A `.tflite` file under LiteRT's interpreter."""

    def __init__(self, path, pool, signature, others=None):
        if signature not in pool.signatures:
            raise no_signature(path, signature, pool.signatures)
        self.pool, self.signature, self.others = pool, signature, others or {}
        columns = pool.signatures[signature].inputs
        self.inputs = string_inputs(
            signature,
            {
                name: "string" if column.dtype is object else column.dtype.__name__
                for name, column in columns.items()
                if name not in self.others
            },
        )

    def answer(self, columns):
        texts = {name: encoded(column) for name, column in columns.items()}
        try:
            return self.pool.run(self.signature, texts | self.others)
        except ValueError as error:
            raise refused(error) from error


# What the signatures of a `.tflite` that writes take beside texts, as `keras_lm.generation.options`
# has it, whose import is TensorFlow's. No token has the number -1.
WRITTEN = {"generate": {"max_new_tokens": 50}}
WRITTEN["sample"] = WRITTEN["generate"] | {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "seed": 0,
    "stop_tokens": [-1],
}


def open_litert(path, signature=None, **options):
    """Return the `LiteRTPredictor` of a `.tflite`.

    Args:
        path: `Path` of the file.
        signature: str, or None for `"serving_default"`, or of a file that writes `"generate"`, and
            with a `temperature` `"sample"`.
        **options: what the signature takes beside texts, such as `max_new_tokens`.

    Raises:
        ValueError: if the file cannot be loaded, or does not have the signature or its options.
    """
    try:
        pool = InterpreterPool(path)
    except ValueError as error:
        raise ValueError(f"{error} Export it again.") from error
    if signature is None:
        writes = "generate" in pool.signatures and "serving_default" not in pool.signatures
        signature = "generate" if writes else "serving_default"
        if "temperature" in options:
            signature = "sample"
    others = WRITTEN.get(signature, {})
    if unknown := sorted(options.keys() - others.keys()):
        takes = ", ".join(others) or "texts alone"
        raise ValueError(
            f"{path}: its signature {signature!r} does not take {', '.join(unknown)}, but {takes}."
        )
    return LiteRTPredictor(path, pool, signature, others | options)


class ServerPredictor(Predictor):
    """A model on a server, asked by a `Client`; over REST it does not need TensorFlow."""

    def __init__(self, client, signature=None):
        self.client = client
        self.signature = signature or "serving_default"
        signatures = client.metadata()
        if self.signature not in signatures:
            raise no_signature("the server's model", self.signature, signatures)
        dtypes = {
            name: spec["dtype"].removeprefix("DT_").lower()
            for name, spec in signatures[self.signature]["inputs"].items()
            if "default" not in spec
        }
        self.inputs = string_inputs(self.signature, dtypes)

    def answer(self, columns):
        return self.client.predict(columns, self.signature)


def string_inputs(signature, dtypes):
    """Return the names of a signature's inputs, `text` first; all have to be strings."""
    if set(dtypes.values()) != {"string"}:
        listed = ", ".join(f"{name} ({dtype})" for name, dtype in dtypes.items())
        raise ValueError(
            f"the signature {signature!r} takes {listed}, but predict only has strings: choose "
            "another signature with signature=NAME."
        )
    return sorted(dtypes, key=lambda name: (name not in KNOWN_ORDER, name))


def refused(error):
    """Return the error for texts that an export refuses."""
    return ValueError(f"the model cannot answer: {first_line(error)}")


def no_signature(what, signature, known):
    """Return the error for an unknown signature."""
    return ValueError(f"{what} has no signature {signature!r}, only {', '.join(known) or 'none'}.")


def encoded(column):
    """Return strings as UTF-8; half a surrogate pair becomes bytes that the tokenizers replace.

    Lists are padded to the same length with empty strings.
    """
    if any(isinstance(row, list) for row in column):
        width = max(map(len, column))
        return [encoded([*row, *[""] * (width - len(row))]) for row in column]
    return [text.encode("utf-8", "surrogatepass") for text in column]
