"""A task's vocabulary: whether it fits, its special tokens, and words that become tokens."""

import os

import keras
import numpy as np

from keras_lm.tokenizers.vocabulary import strings_of


def check(backbone, tokenizer):
    """Raise a ValueError if a tokenizer, or None, belongs to another backbone."""
    if isinstance(tokenizer, (str, os.PathLike)):
        raise ValueError(
            f"tokenizer={str(tokenizer)!r} is a path: pass tokenizers.Tokenizer.from_preset(…)."
        )
    if tokenizer is None:
        return
    rows = backbone.vocabulary_size
    if tokenizer.vocabulary_size > rows:
        raise ValueError(
            f"tokenizer has {tokenizer.vocabulary_size} entries, but the backbone's embedding "
            f"has {rows} rows: they belong to different checkpoints."
        )
    backbone.check_tokenizer(tokenizer)


def trimmed(task):
    """Return a task without what no text can ask for, such as entities that none mentions."""
    found = task.tokenizer and task.backbone.trimmed(task.tokenizer)
    if found is None:
        return task
    copy = task.over(*found)
    for variable, own in zip(copy.weights, task.weights, strict=True):
        if variable.shape == own.shape:  # of others, the backbone has a part
            variable.assign(own)
    # What the card of an export tells.
    copy.history = getattr(task, "history", None)
    copy.backbone.origin = getattr(task.backbone, "origin", None)
    return copy


# === Special tokens: those around texts, and which of them text may spell ===


def checked(parse_special, task):
    """Return the argument of a task as a bool, None or a list of str.

    Raises:
        ValueError: if it is nothing of these, or asks for what the task cannot do.
    """
    if parse_special and not task.parses_special:
        raise ValueError(
            f"parse_special={parse_special}: {type(task).__name__} finds places in texts, in which "
            "special tokens have none: leave it out."
        )
    if isinstance(parse_special, (bool, type(None))):
        return parse_special
    return strings_of("parse_special", parse_special)


def check_known(parse_special, tokenizer):
    """Raise a ValueError if a list names a token that is not a special token of the tokenizer."""
    for token in parse_special if isinstance(parse_special, list) else ():
        if token not in tokenizer.all_special_tokens:
            raise ValueError(
                f"parse_special names {token!r}, which is not a special token of the "
                f"{type(tokenizer).__name__}: see tokenizer.with_special_tokens."
            )


def template_of(task):
    """Return the `Template` around a task's texts: its head's, if the tokenizer has the tokens."""
    template = None if missing_tokens(task) else _fine_tuning_template(task)
    return template or task.backbone.template_for(task.tokenizer)


def missing_tokens(task):
    """Return the tokens that fine-tuning adds and the task's tokenizer lacks, a list of str."""
    template = _fine_tuning_template(task)
    if template is None or task.tokenizer is None:
        return []
    known = set(task.tokenizer.vocabulary)
    return [token for token in template.special_tokens if token not in known]


def with_missing_tokens(task):
    """Return a task over the same weights, with the missing tokens and a new head."""
    missing = missing_tokens(task)
    if not missing:
        return task
    tokenizer = task.tokenizer.with_special_tokens(missing)
    rows = max(task.backbone.vocabulary_size, tokenizer.vocabulary_size)
    return task.over(task.backbone.with_vocabulary_size(rows), tokenizer)


def _fine_tuning_template(task):
    templates = (task.backbone.HEADS[kind].template for kind in task.head_kinds)
    return next(filter(None, templates), None)


# === Words ===


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
