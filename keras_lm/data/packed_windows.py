"""Documents → windows of tokens → batches, all in `tf.data`. Shapes: B batch, S sequence."""

from collections.abc import Iterable
from typing import Any

from keras_lm.data.documents import document_batches
from keras_lm.objectives import IGNORED
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.user_arguments import check_batch_size, checks_flags

SHUFFLED_TOGETHER = 65_536  # windows; more are shuffled in blocks of this size


@checks_flags
def token_windows(
    documents: Iterable[Any],
    tokenizer: Tokenizer,
    sequence_length: int,
    drop_remainder: bool = True,
) -> tf.data.Dataset[Any]:
    """Return a `tf.data.Dataset` of windows of tokens, (S + 1,) int32, in the order of the corpus.

    Documents are concatenated, with an `"eos"` token after each and before the first. A model reads
    the first S tokens of a window and predicts the last S. The last token of a window is also the
    first of the next, so that each token is predicted once. There is no padding, and documents may
    begin anywhere in a window.

    Args:
        documents: `tf.data.Dataset` of strings, alone or in batches (B,), or a list of strings.
        tokenizer: `keras_lm.tokenizers.Tokenizer` with an `"eos"` token.
        sequence_length: int, S.
        drop_remainder: bool. False keeps the shorter window at the end.

    Raises:
        ValueError: if an argument is not as above.

    Example:

        documents = keras_lm.data.read_documents("corpus/*.txt")
        windows = keras_lm.data.token_windows(documents, tokenizer, sequence_length=128)

    Source: GPT-2's training data; GPT-3, arXiv:2005.14165, appendix B (packed documents, separated
    by a token, without a mask between them).
    """
    if sequence_length < 1:
        raise ValueError(f"sequence_length={sequence_length}: pass 1 or more.")
    end = tokenizer.special_id("eos")

    @tf.autograph.experimental.do_not_convert  # quicker to trace
    def stream(texts):  # (B,) → (tokens of all,)
        ids = tokenizer(texts)
        return tf.concat([ids, tf.fill([ids.nrows(), 1], end)], axis=1).flat_values

    def with_last(last, tokens):
        return tokens[-1], tf.concat([last[tf.newaxis], tokens], axis=0)

    tokens = document_batches(documents).map(stream, num_parallel_calls=tf.data.AUTOTUNE)
    chunks = tokens.rebatch(sequence_length, drop_remainder=drop_remainder)  # (S,) each
    return chunks.scan(tf.constant(end, tf.int32), with_last)


@checks_flags
def window_batches(
    windows: tf.data.Dataset[Any], batch_size: int, drop_remainder: bool = False
) -> tf.data.Dataset[Any]:
    """Return a `tf.data.Dataset` of batches for `fit` and `evaluate` of pretraining tasks.

    For windows, a batch is `({"token_ids", "padding_mask"}, labels)`, (B, S) int32 each; labels of
    padding are `keras_lm.objectives.IGNORED`. For rows, it is `(inputs,)`; if columns end in
    `_labels`, it is `(inputs, labels)`, two dicts.

    Args:
        windows: `tf.data.Dataset` of windows, (S + 1,) int32, or of rows; see `token_windows` and
            `pretraining_rows`. The last window may be shorter, and is padded.
        batch_size, drop_remainder: as in `tf.data.Dataset.batch`.
    """
    if isinstance(windows.element_spec, dict):
        batches = windows.batch(batch_size, drop_remainder=drop_remainder).map(inputs_and_labels)
        return batches.prefetch(tf.data.AUTOTUNE)
    batches = windows.padded_batch(
        batch_size,
        padding_values=tf.constant(IGNORED, tf.int32),
        drop_remainder=drop_remainder,
    )
    return batches.map(inputs_and_labels).prefetch(tf.data.AUTOTUNE)


def epoch_batches(
    windows: tf.data.Dataset[Any], batch_size: int, seed: int = 0, epoch: int = 0
) -> tf.data.Dataset[Any]:
    """Return the batches of one epoch, as `window_batches` does, with the windows shuffled.

    The order depends on `seed` and `epoch` only, so an interrupted run can continue with the next
    batch: `epoch_batches(..., seed, epoch).skip(batches_done)`. Up to 65,536 windows or rows are
    shuffled together, in memory; more are shuffled in blocks of this size. An incomplete last batch
    is dropped; it has other windows in each epoch.

    Args:
        windows: finite, deterministic `tf.data.Dataset` of windows or rows; see `window_batches`.
        batch_size, seed, epoch: int. Epochs count from 0.

    Raises:
        ValueError: if `batch_size` is not positive.

    Example:

        for epoch in range(3):
            task.fit(keras_lm.data.epoch_batches(windows, 32, seed=0, epoch=epoch))
    """
    check_batch_size(batch_size)

    def shuffle(number, block):
        key = tf.random.experimental.stateless_fold_in(tf.constant([seed, epoch], tf.int64), number)
        chances = tf.random.stateless_uniform(tf.shape(tf.nest.flatten(block)[0])[:1], key)
        order = tf.argsort(chances, stable=True)
        return tf.nest.map_structure(lambda column: tf.gather(column, order), block)

    blocks = windows.batch(SHUFFLED_TOGETHER).enumerate().map(shuffle)
    shuffled = blocks.unbatch()
    if windows.cardinality() > 0:
        shuffled = shuffled.apply(tf.data.experimental.assert_cardinality(windows.cardinality()))
    return window_batches(shuffled, batch_size, drop_remainder=True)


def label_columns(windows):
    """Return the names of the columns of rows that are labels; windows have none."""
    spec = windows.element_spec
    return [name for name in spec if name.endswith("_labels")] if isinstance(spec, dict) else []


def inputs_and_labels(batch):
    """Return a batch of windows (B, S + 1), or of rows, as `fit` takes it; see `window_batches`."""
    if not isinstance(batch, dict):
        read = batch[:, :-1]
        real = tf.not_equal(batch[:, 1:], IGNORED)  # padding predicts nothing
        inputs = {"token_ids": tf.where(real, read, 0), "padding_mask": tf.cast(real, tf.int32)}
        return inputs, batch[:, 1:]
    labels = {name: batch[name] for name in batch if name.endswith("_labels")}
    inputs = {name: batch[name] for name in batch if name not in labels}
    return (inputs, labels) if labels else (inputs,)
