"""Readers of rows that are more than texts or pairs with a label.

Each returns a function from (line, row) to (texts, label), and whether there are labels.
"""

import re

from keras_lm.datasets.columns import GUESSES
from keras_lm.datasets.empty_rows import EmptyRow, is_empty
from keras_lm.datasets.mentions import check_place, mentions_of
from keras_lm.datasets.trees import read_tree

# As pandas writes lists of Python and of numpy to CSV: ['a', 'b'], [0 1].
LIST_AS_TEXT = re.compile(r"\[(['\"].*['\"]|\d+[\s,]+\d[\d\s,]*)\]", re.DOTALL)


def _words(rows, columns, needs_labels):
    """Lists of words and of their labels, or strings of them with spaces in between."""
    words_column = rows.find("words", columns["text"])
    tags_column = rows.find("tags", columns["labels"], needs_labels)

    def read(line, row):
        predicate = {"predicate": row["predicate"]} if rows.published and "predicate" in row else {}
        for column in filter(None, (words_column, tags_column)):
            if isinstance(row.get(column), str) and LIST_AS_TEXT.fullmatch(row[column]):
                raise rows.error(
                    line,
                    f"{column!r} is a list that was written as text, {row[column][:40]!r}: save "
                    "the file as JSONL, or the words with spaces between them.",
                )
        row = {key: x.split() if isinstance(x, str) else x for key, x in row.items()}
        words = rows.strings(line, row, words_column)
        tags = words  # without labels, the number is right
        if tags_column is not None:
            tags = rows.labels(line, rows.value(line, row, tags_column), separator="")
        if len(words) != len(tags) or not all(words):
            raise rows.error(
                line,
                f"{len(words)} words in {words_column!r}, but {len(tags)} labels in "
                f"{tags_column!r}: each word needs one label, and words must not be empty.",
            )
        _require_words(rows, line, words, words_column)
        return {"text": words, **predicate}, tags

    return read, bool(tags_column)


def _trees(rows, columns, needs_labels):
    """Lists of words, or strings, and a tree in brackets for each."""
    words_column = rows.find("words", columns["text"])
    trees_column = rows.find("labels", columns["labels"], needs_labels)

    def read(line, row):
        words = rows.text_or_list(line, row, words_column)
        _require_words(rows, line, words, words_column)
        if trees_column is None:
            return {"text": words}, None
        tree = rows.text(line, row, trees_column)
        try:
            read_tree(tree)
        except ValueError as error:
            raise rows.error(line, f"{trees_column!r} is not a tree: {error}") from error
        return {"text": words}, tree

    return read, bool(trees_column)


def _choices(rows, columns, needs_labels):
    """Texts and their choices; in SWAG, the second sentence is put before each ending."""
    text_column = rows.find("situation", columns["text"])
    labels_column = rows.find("labels", columns["labels"], needs_labels)
    names = _choice_columns(rows, columns["choices"])
    begin = "sent2" if {"sent1", "sent2"} <= set(rows.columns) and text_column == "sent1" else None

    def read(line, row):
        found = (
            rows.strings(line, row, names)
            if isinstance(names, str)
            else [rows.text(line, row, name) for name in names]
        )
        while found and not found[-1]:  # a text with fewer choices than others
            found.pop()
        right = row.get(labels_column) if labels_column else 0
        right = int(right) if str(right).isdecimal() else right
        if not isinstance(right, int) or not 0 <= right < len(found) or not found[right]:
            raise rows.error(
                line,
                f"the label {right!r} must be the position of a choice, from 0 to "
                f"{len(found) - 1}.",
                EmptyRow if is_empty(right) else ValueError,
            )
        start = f"{rows.text(line, row, begin)} " if begin else ""
        texts = {
            "text": rows.filled(line, row, text_column),
            "choices": [start + choice if choice else "" for choice in found],
        }
        return texts, right

    return read, bool(labels_column)


def _questions(rows, columns, needs_labels):
    """Questions, contexts and answers, from SQuAD's files or from columns."""
    found = {
        "question": rows.find("question", columns["text"]),
        "context": rows.find("context", columns["text_pair"]),
    }
    answers_column = rows.find("answers", columns["labels"], needs_labels)

    def read(line, row):
        texts = {role: rows.filled(line, row, column) for role, column in found.items()}
        return texts, _answers(rows, line, row.get(answers_column))

    return read, bool(answers_column)


def _documents(rows, columns, needs_labels):
    """Documents, lists of words, and their clusters, lists of lists of (start, end) in words."""
    words_column = rows.find("words", columns["text"])
    labels_column = rows.find("labels", columns["labels"], needs_labels)

    def read(line, row):
        words = rows.strings(line, row, words_column)
        _require_words(rows, line, words, words_column)
        if labels_column is None:
            return {"text": words}, None
        clusters = rows.value(line, row, labels_column)
        try:
            for *mention, _ in mentions_of(clusters):
                check_place(tuple(mention), len(words))
        except ValueError as error:
            raise rows.error(line, str(error)) from error
        return {"text": words}, clusters

    return read, bool(labels_column)


def _require_words(rows, line, words, column):
    """Raise an error if a list of words, or a string, is blank and `rows` refuses blank texts."""
    if rows.refuses_blank and not words:
        raise rows.error(line, f"{column!r} has no words: add some, or delete the row.", EmptyRow)


def _answers(rows, line, value):
    """Return a row's answers for `fit`; Hugging Face's form of the column is read, too."""
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        starts = value.get("answer_start", value.get("start"))
        if not isinstance(starts, list) or len(starts) != len(value["text"]):
            raise rows.error(line, "the answers need as many starts as texts.")
        pairs = zip(value["text"], starts, strict=True)
        value = [{"text": text, "start": start} for text, start in pairs]
    value = [value] if isinstance(value, dict) else value or []
    answers = []
    for answer in value if isinstance(value, list) else [value]:
        answer = answer if isinstance(answer, dict) else {}
        text, start = answer.get("text"), answer.get("answer_start", answer.get("start"))
        if not isinstance(text, str) or not isinstance(start, int):
            raise rows.error(
                line,
                'write an answer as {"text": "…", "start": 0}, where start is the number of '
                "characters before it, and an empty list for a question without an answer.",
            )
        answers.append({"text": text, "start": start})
    return answers


def _choice_columns(rows, given):
    """Return the column of lists of choices, or a list of columns with one choice each."""
    for name in [given] if given else GUESSES["choices"]:
        if name in rows.columns:
            return rows.find("choices", name)
        numbered = {}
        for column in rows.columns:
            number = column.removeprefix(name).lstrip("_")
            if column.startswith(name) and number.isdecimal():
                numbered[column] = int(number)
        if numbered:
            rows.used |= {*numbered, "sent2"}
            return sorted(numbered, key=numbered.get)
    return rows.find("choices", given)  # raises


# The readers of tasks whose rows are more than texts or pairs with a label.
READERS = {
    "token-classifier": _words,
    "constituency-parser": _trees,
    "multiple-choice": _choices,
    "question-answerer": _questions,
    "coreference-resolver": _documents,
}
