"""Answers as users give them: texts, and where they begin in their contexts."""

import numpy as np
import tensorflow as tf

EXAMPLE = "{'text': 'an answer', 'start': 0}"


def answers_of_rows(labels):
    """Return the answers of each row, lists of (text, start), empty if there is none.

    `labels` are as `QuestionAnswerer` takes them. ValueError if a row is something else.
    """
    return [_answers_of_row(label, row) for row, label in enumerate(labels)]


def _answers_of_row(label, row):
    if label is None:
        return []
    if isinstance(label, (list, tuple, np.ndarray)):
        answers = list(label)
    elif isinstance(label, dict) and isinstance(label.get("text"), (list, tuple, np.ndarray)):
        starts = _start_in(label)
        if not isinstance(starts, (list, tuple, np.ndarray)) or len(starts) != len(label["text"]):
            raise ValueError(f"labels[{row}]={label!r}: its texts need as many starts.")
        pairs = zip(label["text"], starts, strict=True)
        answers = [{"text": text, "start": start} for text, start in pairs]
    else:
        answers = [label]
    found = []
    for answer in answers:
        is_dict = isinstance(answer, dict) and isinstance(answer.get("text"), (str, bytes))
        if not is_dict or {"start", "answer_start"}.isdisjoint(answer):
            raise ValueError(
                f"labels[{row}]={label!r}: pass {EXAMPLE}, a list of such answers, or None for a "
                "question without one."
            )
        text, start = answer["text"], _start_in(answer)
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        if text and (not isinstance(start, (int, np.integer)) or start < 0):
            raise ValueError(
                f"labels[{row}]: the answer {text!r} has start={start!r}; pass the number of "
                "characters before it in its context."
            )
        if text:
            found.append((text, int(start)))
    return found


def _start_in(answer):
    """Return what an answer has as its start, which SQuAD calls `answer_start`."""
    return answer.get("start", answer.get("answer_start"))


def check_places(answers, questions, contexts):
    """Raise ValueError if an answer is not where it should begin; all strings are bytes."""
    for row, several in enumerate(answers):
        if not several:
            continue
        context = contexts[row].decode("utf-8", "replace")
        for text, start in several:
            there = context[start : start + len(text)]
            if there == text:
                continue
            place = context.find(text)
            if place >= 0:
                remedy = f"it begins at {place}: count characters, and not bytes."
            elif text in questions[row].decode("utf-8", "replace"):
                remedy = "it is in the question: are question and context swapped?"
            else:
                remedy = "it does not occur there. Pass None for a question without an answer."
            raise ValueError(
                f"labels[{row}]: the answer {text!r} is not at start={start} of context[{row}], "
                f"where {there!r} is; {remedy}"
            )


def first_answers(answers):
    """Return the first answer of each row as tensors, `text` and `start` (B,); empty for none."""
    texts, starts = zip(*(several[0] if several else ("", 0) for several in answers), strict=True)
    texts = [text.encode("utf-8", "surrogatepass") for text in texts]
    return {"text": tf.constant(texts, tf.string), "start": tf.constant(starts, tf.int32)}


def first_of_tensors(labels):
    """Return the same of a dataset's labels: `text` and `start`, (B,) or (B, G), perhaps ragged."""
    if not isinstance(labels, dict) or set(labels) != {"text", "start"}:
        raise ValueError(
            "x is a tf.data.Dataset whose labels are not a dict of 'text' and 'start': pass the "
            "answers as these, (B,) or several for each question, with empty texts for none."
        )
    rests = {"text": "", "start": 0}

    def first(value, rest):
        if value.shape.rank == 1:
            return value
        value = value if isinstance(value, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(value)
        rest = tf.fill([value.nrows(), 1], tf.constant(rest, value.dtype))
        return tf.concat([value, rest], axis=1)[:, :1].to_tensor()[:, 0]

    return {name: first(labels[name], rest) for name, rest in rests.items()}


def rows_of_tensors(labels):
    """Return the labels of a dataset's batch as rows."""

    def lists(value):
        rows = value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy().tolist()
        return [row if isinstance(row, list) else [row] for row in rows]

    texts, starts = lists(labels["text"]), lists(labels["start"])
    return [{"text": text, "start": start} for text, start in zip(texts, starts, strict=True)]
