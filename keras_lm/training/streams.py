"""Training and evaluating models on streams of text, with the state carried along.

Shapes: B batch, S sequence.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.data.packed_windows import inputs_and_labels
from keras_lm.layers.masks import IGNORED
from keras_lm.tensorflow import tf
from keras_lm.training.checkpointing import TrainingCheckpoint
from keras_lm.training.windows import check_kind, fit_epochs
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.batch_iteration import iterate_batches
from keras_lm.utils.processes import IS_JAX, workers_of
from keras_lm.utils.user_arguments import check_batch_size

READ_AT_ONCE = 1024  # windows


def fit_streams(
    task: keras.Model,
    windows: tf.data.Dataset[Any],
    batch_size: int = 32,
    epochs: int = 1,
    steps: int | None = None,
    validation_windows: tf.data.Dataset[Any] | None = None,
    checkpoint: PathLike | None = None,
    minutes: float = 5.0,
    callbacks: Sequence[Any] = (),
    verbose: int | str = "auto",
) -> dict[str, Any]:
    """Train a task on a corpus read in B streams, each from its start to its end.

    The corpus is cut into B parts of equal length. A step reads the next window of each, starting
    from the states after the previous windows; gradients stop at the start of a window (truncated
    back-propagation through time). The windows are held in memory, four bytes per token.

    With a `checkpoint`, an interrupted run continues in the middle of its streams, and ends with
    the same weights as without an interruption; see `fit_windows`.

    Under a `tf.distribute` strategy, each of N replicas reads B / N of the streams, and carries
    their states. A `checkpoint` is for the replicas of one process.

    Args:
        task: compiled `keras_lm.tasks.CausalLM` for windows, or a pretraining task for rows, such
            as a `Pretrainer`. Its backbone carries a state of one size from text to text: it is
            recurrent, or has a memory.
        windows: `tf.data.Dataset` of (S + 1,) int32, or of rows, in the order of the corpus; see
            `keras_lm.data.token_windows`, whose last may be shorter, and
            `keras_lm.data.stream_rows`. Of rows in both directions (`is_reversed`), half of the
            streams are of each.
        batch_size: int, B. Windows at the end that do not fill all streams are dropped.
        Other arguments: as `fit_windows`.

    Raises:
        ValueError: if the backbone has no states, `batch_size` is odd for rows in both directions
            or no multiple of the replicas, there is a `checkpoint` and several workers, or as
            `fit_windows` does.

    Example:
        windows = keras_lm.data.token_windows(documents, tokenizer, sequence_length=70)
        keras_lm.training.fit_streams(task, windows, batch_size=64, epochs=3)

    Source: AWD-LSTM, https://arxiv.org/abs/1708.02182, section 5; Mikolov et al. 2010; in both
    directions XLNet, https://arxiv.org/abs/1906.08237, sections 2.4 and 3.1.
    """
    _require_state(task, windows)
    if steps is not None and (steps < 1 or epochs != 1):
        raise ValueError(f"epochs={epochs} and steps={steps}: pass one of them, 1 or more.")
    streams = _streams(windows, batch_size)
    num_steps = len(tf.nest.flatten(streams)[0])  # steps of an epoch
    settings = {"batch_size": batch_size, "epochs": epochs, "steps": num_steps}
    validation = None
    if validation_windows is not None:
        validation = _batches(_streams(validation_windows, batch_size))
    return _fit(
        task,
        lambda epoch, first: _batches(tf.nest.map_structure(lambda x: x[first:], streams)),
        settings=settings if steps is None else settings | {"total": steps},
        validation=validation,
        checkpoint=checkpoint,
        minutes=minutes,
        callbacks=callbacks,
        verbose=verbose,
    )


def evaluate_streams(
    task: keras.Model,
    windows: tf.data.Dataset[Any],
    batch_size: int = 1,
    verbose: int | str = "auto",
) -> dict[str, Any]:
    """Return the loss and the metrics of a task on a corpus read in B streams, a dict.

    The state is carried along each stream as in `fit_streams`, so that a window is predicted with
    what the state keeps of all before it. With one stream, so is the whole corpus.

    Args:
        task, windows, batch_size: see `fit_streams`.
        verbose: see `keras.Model.evaluate`.

    Raises:
        ValueError: if the backbone has no states, there are too few windows, or `batch_size` is no
            multiple of the replicas.

    Example:
        task.backbone.set_lengths(memory_length=640, clamp_length=400, same_length=True)
        windows = keras_lm.data.token_windows(documents, tokenizer, 64, drop_remainder=False)
        keras_lm.training.evaluate_streams(task, windows)["perplexity"]

    Source: kimiyoung/transformer-xl, `pytorch/eval.py`.
    """
    _require_state(task, windows)
    batches = _batches(_streams(windows, batch_size))
    carried = CarriedState(task, batch_size)
    with task.carrying(carried):
        return task.evaluate(batches, callbacks=[carried], verbose=verbose, return_dict=True)


def fit_sentences(
    task: keras.Model,
    sentences: Iterable[str],
    batch_size: int = 32,
    epochs: int = 1,
    seed: int = 0,
    validation_sentences: Iterable[str] | None = None,
    checkpoint: PathLike | None = None,
    minutes: float = 5.0,
    callbacks: Sequence[Any] = (),
    verbose: int | str = "auto",
) -> dict[str, Any]:
    """Train a bidirectional language model on sentences read in B streams.

    Each epoch shuffles the sentences and cuts them into B parts. A step reads the next sentence of
    each, in both directions starting from the states after the previous sentences; gradients stop
    at the ends of a sentence. All are held in memory. A `checkpoint` is as in `fit_streams`.

    Args:
        task: compiled `keras_lm.tasks.BidirectionalLM` with a tokenizer.
        sentences: list of strings, or `tf.data.Dataset` of these.
        batch_size: int, B. Sentences that do not fill all streams are dropped, others in each
            epoch.
        seed: int, of the order of the sentences.
        validation_sentences: the same for `val_…` after each epoch, in their own order, or None.
        Other arguments: as `fit_windows`.

    Raises:
        ValueError: if there are fewer sentences than streams, or as `fit_streams` does.

    Example:
        sentences = keras_lm.data.read_documents("corpus/*.txt")  # with a sentence per line
        keras_lm.training.fit_sentences(task, sentences, batch_size=128, epochs=10)

    Source: ELMo, https://arxiv.org/abs/1802.05365, section 3.4; allenai/bilm-tf, `training.py`,
    whose windows are twenty words rather than a sentence.
    """
    task.require_tokenizer()
    sentences = _strings(sentences, batch_size, "sentences")
    validation = None
    if validation_sentences is not None:
        validation_sentences = _strings(validation_sentences, batch_size, "validation_sentences")
        validation = _sentence_streams(task, validation_sentences, batch_size)

    def shuffled(epoch, first):
        order = np.random.default_rng([seed, epoch]).permutation(len(sentences))
        return _sentence_streams(task, sentences[order], batch_size, first)

    return _fit(
        task,
        shuffled,
        settings={
            "batch_size": batch_size,
            "epochs": epochs,
            "seed": seed,
            "sentences": len(sentences),
            "steps": len(sentences) // batch_size,
        },
        validation=validation,
        checkpoint=checkpoint,
        minutes=minutes,
        callbacks=callbacks,
        verbose=verbose,
    )


def _require_state(task, windows):
    check_kind(task, windows)
    if not task.backbone.carries_state:
        raise ValueError(
            f"{type(task.backbone).__name__} has no states to carry along: use fit_windows."
        )


def _streams(windows, batch_size):
    """Return windows, or columns of rows, as (steps, B, …): a row continues in the next step."""
    check_batch_size(batch_size)
    if isinstance(windows.element_spec, dict):
        batches = windows.batch(READ_AT_ONCE)
    else:  # the last one may be shorter
        width = next((len(window) for window in iterate_batches(windows.take(1))), 0)
        padding = tf.constant(IGNORED, windows.element_spec.dtype)
        batches = windows.padded_batch(READ_AT_ONCE, [width], padding)
    parts = [tf.nest.map_structure(np.asarray, part) for part in iterate_batches(batches)]
    number = sum(len(tf.nest.flatten(part)[0]) for part in parts)
    columns = tf.nest.map_structure(lambda *arrays: np.concatenate(arrays), *parts) if parts else {}
    directions = [slice(None)]
    if isinstance(columns, dict) and "is_reversed" in columns:
        ways = columns["is_reversed"]
        directions = [np.flatnonzero(ways == way) for way in np.unique(ways)]
        number = len(directions) * min(map(len, directions))
    share, rest = divmod(batch_size, len(directions))  # streams of a direction
    if rest:
        raise ValueError(
            f"batch_size={batch_size}, and half of the streams are of each direction: pass an even "
            "number."
        )
    steps = number // batch_size
    if not steps:
        raise ValueError(
            f"windows has {number}, which do not fill batch_size={batch_size} streams: give "
            "more text, or a lower batch_size or sequence length."
        )

    def cut(column):
        streams = [column[rows][: steps * share] for rows in directions]
        streams = [stream.reshape(share, steps, *column.shape[1:]) for stream in streams]
        return np.swapaxes(np.concatenate(streams), 0, 1)

    return tf.nest.map_structure(cut, columns)


def _batches(streams):
    """Return a dataset of batches, as `fit` takes them, of what `_streams` returns."""
    return tf.data.Dataset.from_tensor_slices(streams).map(inputs_and_labels)


def _strings(sentences, batch_size, name):
    """Return a list or a dataset as an array of bytes."""
    if isinstance(sentences, tf.data.Dataset):
        sentences = [sentence.numpy() for sentence in iterate_batches(sentences)]
    if len(sentences) < check_batch_size(batch_size):
        raise ValueError(
            f"{name} has {len(sentences)}, which do not fill batch_size={batch_size} streams: give "
            "more, or a lower batch_size."
        )
    return np.array(sentences, object)


def _sentence_streams(task, sentences, batch_size, first=0):
    """Return packed batches from the first, whose rows continue in the next batch."""
    steps = len(sentences) // batch_size
    rows = sentences[: steps * batch_size].reshape(batch_size, steps).T[first:]
    batches = tf.data.Dataset.from_tensor_slices(tf.constant(rows.tolist(), tf.string))
    return batches.map(
        lambda text: task.preprocess({"text": text}), num_parallel_calls=tf.data.AUTOTUNE
    ).prefetch(tf.data.AUTOTUNE)


# === The run ===


class CarriedState(keras.callbacks.Callback):
    """The state carried from step to step, in variables: one for training, one for evaluation.

    Every epoch and every evaluation starts from the initial state, unless the epoch `goes_on` where
    an interrupted one stopped. `variables` are the state of training. `rows` are the start and the
    end of those of the batch that are computed now, or None for all.
    """

    rows = None

    def __init__(self, task, batch_size):
        super().__init__()
        if IS_JAX:
            raise RuntimeError(
                "State that streams carry needs Keras's TensorFlow backend, and KERAS_BACKEND is "
                "jax: train there, and load the preset here."
            )
        strategy, backbone = task.distribute_strategy, task.backbone
        share, rest = divmod(batch_size, strategy.num_replicas_in_sync)
        if rest:
            raise ValueError(
                f"batch_size={batch_size}, whose streams are divided among "
                f"{strategy.num_replicas_in_sync} replicas: pass a multiple."
            )
        self.name = backbone.state_name
        self.start = backbone.pack_state(backbone.initial_state(share))
        with strategy.scope():
            self.variables, self._measured = (
                [
                    keras.Variable(
                        part,
                        dtype=part.dtype,
                        trainable=False,
                        synchronization="on_read",  # each replica has its own
                        aggregation="only_first_replica",
                    )
                    for part in tf.nest.flatten(self.start)
                ]
                for _ in range(2)
            )
        self.goes_on = False

    def inputs(self, training):
        """Return the state as an input of the backbone."""
        variables = self.variables if training else self._measured
        parts = [tf.convert_to_tensor(variable.value) for variable in variables]
        if self.rows is not None:
            parts = [part[slice(*self.rows)] for part in parts]
        return {self.name: tf.nest.pack_sequence_as(self.start, parts)}

    def keep(self, outputs, training):
        """Take the state from the backbone's outputs."""
        self._write(outputs[self.name], self.variables if training else self._measured)

    def on_epoch_begin(self, epoch, logs=None):
        if not self.goes_on:
            self._write(self.start, self.variables)
        self.goes_on = False

    def on_test_begin(self, logs=None):
        self._write(self.start, self._measured)

    def _write(self, state, variables):
        for variable, part in zip(variables, tf.nest.flatten(state), strict=True):
            if self.rows is not None:
                part = keras.ops.cast(part, variable.dtype)
                start = (self.rows[0], *[0] * (len(part.shape) - 1))
                part = keras.ops.slice_update(variable.value, start, part)
            variable.assign(part)


class StateOfAll:
    """A carried state of all replicas of this process, as a checkpoint reads and assigns it."""

    def __init__(self, strategy, variable):
        self._parts = strategy.experimental_local_results(variable.value)
        self.shape = (sum(part.shape[0] for part in self._parts), *variable.shape[1:])

    def __array__(self, dtype=None, copy=None):
        return np.concatenate([part.numpy() for part in self._parts]).astype(dtype)

    def assign(self, rows):
        for part, own in zip(self._parts, np.split(rows, len(self._parts)), strict=True):
            part.assign(own)


def _fit(task, batches, settings, validation, checkpoint, minutes, callbacks, verbose):
    """Train on `batches(epoch, first step)`, and evaluate on `validation`."""
    batch_size, epochs, steps = (settings[name] for name in ("batch_size", "epochs", "steps"))
    carried, done = CarriedState(task, batch_size), 0
    callbacks = [*callbacks, carried]
    if checkpoint is not None:
        workers = workers_of(task.distribute_strategy).number
        if workers > 1:
            raise ValueError(
                f"checkpoint={str(checkpoint)!r} and {workers} workers, each of which carries the "
                "states of other streams: leave it out, or train on the replicas of one process."
            )
        settings = settings | {"optimizer": keras.saving.serialize_keras_object(task.optimizer)}
        states = [StateOfAll(task.distribute_strategy, state) for state in carried.variables]
        checkpoint = TrainingCheckpoint(checkpoint, settings, minutes, states)
        done = checkpoint.restore(task)
        carried.goes_on = done % steps > 0
        callbacks.append(checkpoint)
    with task.carrying(carried):
        total = settings.get("total", epochs * steps)
        return fit_epochs(task, batches, steps, total, done, validation, callbacks, verbose)
