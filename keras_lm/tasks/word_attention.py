"""Attention between the words of two texts, from that between their tokens.

Shapes: T target tokens, S source tokens, W words.
"""

import numpy as np

from keras_lm.layers.masks import IGNORED
from keras_lm.tensorflow import tf


def attention_by_words(task, columns, targets, block=None):
    """Return what targets (B,) read of sources, named texts; see `Seq2SeqLM.attention`."""
    inputs, labels = task.packer.targets(targets)
    packed = task.preprocess(columns) | inputs
    found = task.backbone.cross_attention_probabilities(packed)
    found = found if block is None else [found[block]]
    mean = np.mean([np.mean(each, axis=1) for each in found], axis=0)  # (B, T, S)
    pictures = []
    for row, attention in enumerate(mean):
        known = packed["encoder_padding_mask"][row].numpy() > 0
        source = words_of(task.tokenizer, packed["encoder_token_ids"][row].numpy()[known])
        ids = labels[row].numpy()
        target = words_of(task.tokenizer.target, ids[ids != IGNORED])
        pictures.append(by_words(attention[: len(target[1]), known], source, target))
    return pictures


def words_of(tokenizer, ids):
    """Return the words that token ids make up, and the word of each token, (S,) int.

    Special tokens are words of their own, which are called as in the vocabulary.
    """
    starts = tokenizer.word_starts(tf.constant([ids]))[0].numpy()
    parts = tf.RaggedTensor.from_row_lengths(ids, np.bincount(np.cumsum(starts) - 1))
    texts = [text.decode("utf-8", "replace") for text in tokenizer.detokenize(parts).numpy()]
    names = [tokenizer.id_to_token(part[0]) for part in parts.to_list()]
    return [text.strip() or name for text, name in zip(texts, names, strict=True)], np.cumsum(
        starts
    ) - 1


def by_words(attention, source, target):
    """Return attention (T, S) between tokens as that between words, with their names, in a dict.

    `source` and `target` are from `words_of`. What the tokens of a source's word are read with is
    summed up; over those of a target's word it is averaged, so that rows still sum to 1.
    """
    (source_words, columns), (target_words, rows) = source, target
    rows, columns = np.eye(len(target_words))[rows], np.eye(len(source_words))[columns]
    found = rows.T @ attention @ columns / rows.sum(axis=0)[:, np.newaxis]
    return {"source": source_words, "target": target_words, "attention": found.astype("float32")}
