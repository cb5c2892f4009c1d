"""Answers without TensorFlow, equal to those of its graph.

Shapes: B batch, W words of a text, S sequence, M masks of a text, k candidates, V vocabulary, R
windows of all texts, L tokens of an answer, n answers.
"""

import functools

import numpy as np

from keras_lm.packers import host_rows
from keras_lm.packers.rows import LOWEST
from keras_lm.tasks.classes import names_of_classes
from keras_lm.tasks.runtime import answered
from keras_lm.tensorflow import require_installed
from keras_lm.tokenizers import host
from keras_lm.tokenizers.unicode_ranges import WHITE_SPACE, characters

WINDOWS_AT_ONCE = 32  # of contexts of any length, so that memory is bounded
SPACES = characters(WHITE_SPACE)


def tags(task, columns, tokenize):
    """As `TokenClassifier.answer`, for lists of words: (B, W) each."""
    texts = columns["text"]
    spaced = task.tokenizer.with_space
    if task.whole_texts and spaced is not task.tokenizer:
        tokenize = functools.partial(spaced, parse_special=task.preprocessor.tokens_in_text(spaced))
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
        labels, likely = (
            np.asarray(answer(logits, mask, task.allowed))
            for answer in (task.crf.decode, task.crf.marginals)
        )
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
    """As `MaskedLM.decode`, for packed texts."""
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


def answers(task, columns):
    """As `QuestionAnswerer.answer`, for questions and contexts: (B, n) each."""
    if task.ends.kind != "question_answering":
        require_installed("A head whose ends depend on starts")
    packed, number = task.preprocess(columns), task.num_answers
    scores, first, last, nulls = _spans(task, packed)
    lists = {"text": [], "scores": [], "start": [], "end": []}
    for example, context in enumerate(columns["context"]):
        rows = np.flatnonzero(packed["example"] == example)
        best = np.argsort(-scores[rows], axis=None, kind="stable")[:number]
        rows, places = rows[best // number], best % number
        likely = scores[rows, places]
        none = nulls[packed["example"] == example].min()
        none = 2 * LOWEST if task.null_threshold is None else none - task.null_threshold
        likely = np.append(likely, np.float32(none))
        order = np.argsort(-likely, kind="stable")
        likely = likely[order]
        likely = np.where(likely > LOWEST / 2, _softmax(likely), 0)
        ends = [packed["start"][rows, first[rows, places]], packed["end"][rows, last[rows, places]]]
        is_there = scores[rows, places] > LOWEST / 2
        starts, ends = (
            np.append(np.where(is_there, column, 0), 0)[order][:number] for column in ends
        )
        text = host.valid(context)
        parts = [_without_outer_space(text, *span) for span in zip(starts, ends, strict=True)]
        for name, values in zip(("text", "start", "end"), zip(*parts, strict=True), strict=True):
            lists[name].append(values)
        lists["scores"].append(likely[:number])
    texts = _strings([text for row in lists.pop("text") for text in row])
    shape = len(columns["context"]), number
    places = {name: np.array(lists[name], "int32") for name in ("start", "end")}
    return {"text": texts.reshape(shape), "scores": np.array(lists["scores"], "float32")} | places


def _spans(task, packed):
    """Return the best answers of windows, scores and tokens (R, n), and null scores (R,)."""
    inputs = {name: packed[name] for name in task.packer.inputs}
    parts = []
    for done in range(0, len(packed["example"]), WINDOWS_AT_ONCE):
        part = {name: value[done : done + WINDOWS_AT_ONCE] for name, value in inputs.items()}
        parts.append(answered(task, part))
    begins, ends = (
        np.concatenate([np.asarray(part[name]) for part in parts])
        for name in ("start_logits", "end_logits")
    )
    rows = np.arange(len(begins))
    mask = packed["padding_mask"]
    null = (
        (mask * np.arange(mask.shape[1])).max(1)
        if task.preprocessor.ends_with_cls()
        else mask.argmax(1)
    )
    nulls = (begins + ends)[rows, null]
    begins = np.where(packed["max_context"] > 0, begins, np.float32(LOWEST))
    ends = np.where(packed["start"] >= 0, ends, np.float32(LOWEST))
    longest, number = task.max_answer_length, task.num_answers
    ends = np.pad(ends, [(0, 0), (0, longest - 1)], constant_values=LOWEST)
    place = np.arange(begins.shape[1])[:, np.newaxis] + np.arange(longest)  # (S, L)
    scores = (begins[:, :, np.newaxis] + ends[:, place]).reshape(len(begins), -1)
    scores = np.pad(scores, [(0, 0), (0, number)], constant_values=2 * LOWEST)
    index = np.argsort(-scores, axis=1, kind="stable")[:, :number]
    best = np.take_along_axis(scores, index, axis=1)
    index = np.where(best > LOWEST / 2, index, 0)
    first = index // longest
    return best, first, first + index % longest, nulls


def _without_outer_space(text, start, end):
    """Return a part of a text, and where it begins and ends, without white space around it."""
    part = text[start:end]
    if inner := part.strip(SPACES):
        start += len(part) - len(part.lstrip(SPACES))
        return inner, start, start + len(inner)
    return part, start, end


def _softmax(logits):
    likely = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return likely / likely.sum(axis=-1, keepdims=True)


def _strings(values):
    """Return strings as an array of bytes, as TensorFlow has them."""
    array = np.empty(len(values), object)
    array[:] = [value.encode("utf-8", "surrogatepass") for value in values]
    return array
