"""A task's vocabulary: whether it fits the backbone, and words that become tokens."""

import keras
import numpy as np


def check(backbone, tokenizer):
    """Raise a ValueError if a tokenizer, or None, belongs to another backbone."""
    if tokenizer is None:
        return
    rows = backbone.vocabulary_size
    if tokenizer.vocabulary_size > rows:
        raise ValueError(
            f"tokenizer has {tokenizer.vocabulary_size} entries, but the backbone's embedding "
            f"has {rows} rows: they belong to different checkpoints."
        )
    backbone.check_tokenizer(tokenizer)


def with_words(task, words):
    """See `keras_lm.tasks.Task.with_words`."""
    task.require_tokenizer()
    tokenizer = task.tokenizer.with_words(words)
    first, number = task.tokenizer.vocabulary_size, tokenizer.vocabulary_size
    rows = task.backbone.vocabulary_size + number - first  # padding stays the last
    copy = task.over(task.backbone.with_vocabulary_size(rows), tokenizer)
    pieces = []
    if number > first:
        texts = tokenizer.detokenize([[i] for i in range(first, number)])
        pieces = task.tokenizer(texts).to_list()
    for variable, own in zip(copy.weights, task.weights, strict=True):
        value = keras.ops.convert_to_numpy(own)
        grown = [i for i, (a, b) in enumerate(zip(variable.shape, own.shape)) if a != b]
        for axis in grown:
            means = np.stack([value.take(ids, axis).mean(axis) for ids in pieces], axis)
            value = np.insert(value, [first] * len(pieces), means, axis)
        variable.assign(value)
    return copy
