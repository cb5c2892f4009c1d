"""A model as strings reach it: a task over its backbone.

Shapes: B batch, S sequence.
"""

import re

import numpy as np

from keras_lm.models.backbone import Backbone
from keras_lm.tasks import FeatureExtractor, Seq2SeqLM
from keras_lm.tensorflow import tf


def task_of(model, tokenizer=None):
    """Return a task that reads strings: `model` itself, or a plain one over a backbone.

    Raises:
        ValueError: if there is no tokenizer, or one beside a task, or `model` is neither.
    """
    if isinstance(model, Backbone):
        if tokenizer is None:
            raise ValueError(
                f"model is a {type(model).__name__} without a tokenizer: pass tokenizer=…, or a "
                "task, which has one."
            )
        kind = Seq2SeqLM if model.encoder_class is not None else FeatureExtractor
        return kind(model, tokenizer=tokenizer)
    if not hasattr(model, "backbone"):
        raise ValueError(
            f"model is a {type(model).__name__}: pass a task, or a backbone and its tokenizer."
        )
    if tokenizer is not None:
        raise ValueError("tokenizer is for a backbone; the task has its own: leave it out.")
    model.require_tokenizer()
    return model


def columns_of(task, text, text_pair=None):
    """Return the named string tensors (B,) of texts, in the order in which the task takes them.

    Raises:
        ValueError: if the task takes one text, or needs two.
    """
    texts = [value for value in (text, text_pair) if value is not None]
    names = task.text_names
    if not len(task.required_names) <= len(texts) <= len(names):
        raise ValueError(
            f"{type(task).__name__} takes {', '.join(names)}, and {len(texts)} of them were "
            "passed: pass text, and text_pair for the second."
        )
    return task.columns(dict(zip(names, texts, strict=False)))


def packed_rows(task, columns):
    """Return what the backbone takes for named texts: a row for each, (B, S).

    Raises:
        ValueError: if a text makes several rows, as in a task with choices or windows.
    """
    packed = task.preprocess(columns)
    if task.packer.rows.several_for or len(packed["padding_mask"].shape) > 2:
        raise ValueError(
            f"{type(task).__name__} makes several rows of a text: pass task.backbone and "
            "tokenizer=task.tokenizer."
        )
    return task.backbone.select_inputs(packed)


def batches(columns, batch_size):
    """Yield the named tensors `batch_size` rows at a time."""
    rows = next(iter(columns.values())).shape[0]
    for start in range(0, rows, batch_size):
        yield {name: value[start : start + batch_size] for name, value in columns.items()}


def token_names(tokenizer, ids):
    """Return the vocabulary's entries of ids, (S,), as a list of str."""
    return [
        token.decode("utf-8", "replace") for token in tokenizer.tokens(tf.constant(ids)).numpy()
    ]


# What marks a piece within a word in a vocabulary, and is shown as it is.
MARKED = re.compile(r"^(##|▁)|(</w>|@@)$")


def token_texts(tokenizer, ids):
    """Return ids, (S,), as they are shown to people, a list of str.

    They are the vocabulary's entries; those of byte-level BPE are decoded, with the space in them,
    if their bytes are whole characters.
    """
    entries = token_names(tokenizer, ids)
    ids = np.asarray(ids)
    texts = [t.decode("utf-8", "replace") for t in tokenizer.detokenize(ids[:, None]).numpy()]
    return [
        entry if not text or MARKED.search(entry) or "\ufffd" in text else text
        for entry, text in zip(entries, texts, strict=True)
    ]
