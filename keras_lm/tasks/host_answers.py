"""Answers about words and masks where TensorFlow is not installed, as TensorFlow's graph has them.

Shapes: B batch, W words of a text, S sequence, M masks of a text, k candidates, V vocabulary.
"""

import numpy as np

from keras_lm.packers import host_rows
from keras_lm.tasks.backend_steps import answered
from keras_lm.tasks.classes import names_of_classes


def tags(task, columns, tokenize):
    """Return what `TokenClassifier.answer` does of lists of words: (B, W) each."""
    texts = columns["text"]
    packed, places = host_rows.packed_words(task.packer, texts, tokenize)
    logits = np.asarray(answered(task, packed))  # (B, S, classes)
    is_there = places >= 0
    places = np.maximum(places, 0)
    if task.crf is None:
        labels, likely = logits.argmax(-1), _softmax(logits)
    else:
        mask = np.zeros(logits.shape[:2], "int32")
        rows, _ = np.nonzero(is_there)
        mask[rows, places[is_there]] = 1
        found = (each(logits, mask, task.allowed) for each in (task.crf.decode, task.crf.marginals))
        labels, likely = map(np.asarray, found)
    labels = np.take_along_axis(labels, places, axis=1)
    likely = np.take_along_axis(likely, places[:, :, np.newaxis], axis=1)  # (B, W, classes)
    scores = np.take_along_axis(likely, labels[:, :, np.newaxis], axis=2)[:, :, 0]
    names = names_of_classes(task.class_names, task.num_classes)
    words = [[*words, *[b""] * (places.shape[1] - len(words))] for words in texts]
    return {
        "tokens": np.array(words, object).reshape(places.shape),
        "labels": _strings([*names, ""])[np.where(is_there, labels, len(names))],
        "scores": np.where(is_there, scores, 0).astype("float32"),
    }


def fills(task, packed):
    """Return what `MaskedLM.decode` does of packed texts."""
    ids, tokenizer = packed["token_ids"], task.tokenizer
    is_mask = ids == tokenizer.special_id("mask")  # (B, S)
    number = is_mask.sum(axis=1).max()
    columns = np.argsort(~is_mask, axis=1, kind="stable")[:, :number]  # (B, M)
    known = np.take_along_axis(is_mask, columns, axis=1)
    logits = np.zeros((*columns.shape, tokenizer.vocabulary_size), "float32")
    if number:
        logits = np.asarray(answered(task, _asking(task, packed, is_mask, columns, known)))
    likely = _softmax(logits)
    best = np.argsort(-likely, axis=2, kind="stable")[:, :, : task.top_k]  # (B, M, k)
    filled = ids.copy()
    filled[is_mask] = best[:, :, 0][known]
    tokens = _strings([*tokenizer.vocabulary, ""])[np.minimum(best, tokenizer.vocabulary_size)]
    known = known[:, :, np.newaxis]
    return {
        "tokens": np.where(known, tokens, b""),
        "scores": np.where(known, np.take_along_axis(likely, best, axis=2), 0).astype("float32"),
        "text": _strings(tokenizer.detokenize(filled.tolist())),
    }


def _asking(task, packed, is_mask, columns, known):
    """See `MaskedLM._asking`."""
    if "target_mapping" not in task.backbone.fields_of({"target_mapping": None}):
        return {**packed, "mask_positions": columns.astype("int32")}
    length = is_mask.shape[1]
    places = np.eye(length, dtype="float32")[columns] * known[:, :, np.newaxis]  # (B, M, S)
    unseen = np.repeat(is_mask[:, np.newaxis], length, axis=1).astype("int32")  # (B, S, S)
    return {**packed, "permutation_mask": unseen, "target_mapping": places}


def _softmax(logits):
    likely = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return likely / likely.sum(axis=-1, keepdims=True)


def _strings(values):
    """Return strings as an array of bytes, as TensorFlow has them."""
    found = np.empty(len(values), object)
    found[:] = [value.encode("utf-8", "surrogatepass") for value in values]
    return found
