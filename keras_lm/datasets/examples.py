"""Labelled texts from a file, in the form of each task."""

import dataclasses
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from keras_lm.datasets import PUBLISHED
from keras_lm.datasets.coreference import check_place, mentions_of
from keras_lm.datasets.row_files import (
    GUESSES,
    MISSING,
    EmptyRow,
    Rows,
    find_format,
    is_empty,
    open_rows,
)
from keras_lm.datasets.trees import labels_of_trees, read_tree
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.user_arguments import warn

UNLABELLED = ("masked-lm", "causal-lm")  # tasks whose texts need no labels
MOST_LINES = 10  # that an error names


@dataclasses.dataclass
class Examples:
    """Texts and labels of rows; see `read_examples`.

    Args:
        rows: `keras_lm.datasets.row_files.Rows` that they were read from.
        texts: dict of columns, lists with an entry per row: `"text"` (strings, or lists of words),
            for some tasks with `"text_pair"` or `"choices"` (lists of strings); or `"question"` and
            `"context"`. `fit` takes it as `x`.
        labels: list of strings, lists of strings, floats, positions, trees, lists of answers or
            clusters; None if the file has no labels.
        lines: list of int, the lines of the rows in the file.
        others: list of dict, the columns of each row that are neither text nor label; None if they
            were not kept.
    """

    rows: Rows
    texts: dict[str, list[Any]]
    labels: list[Any] | None
    lines: list[int]
    others: list[dict[str, Any]] | None = None

    def class_labels(self) -> list[Any] | None:
        """Return a class name, or a list of them, for each row."""
        return self.labels

    def class_names(self, stated: Mapping[str, Any] | None = None) -> list[str] | None:
        """Return the names of the classes.

        Args:
            stated: dict that may have the `class_names` or `num_classes` of a checkpoint, which are
                taken if the labels are among them.

        Returns:
            A list: the checkpoint's, those of the published set, or the different labels, sorted.
        """
        stated = stated or {}
        known = stated.get("class_names")
        published = list(self.rows.published.class_names) if self.rows.published else []
        if published and len(published) != len(known or []):
            return published
        known = known or [str(i) for i in range(stated.get("num_classes") or 0)]
        labels = self.class_labels()
        if known and fits(labels, known):
            return known
        return published or self._found_names(labels)

    def _found_names(self, labels):
        """Return the different labels, sorted; raise an error if one stands for a missing label."""
        for line, label in zip(self.lines, labels):
            for name in {label} if isinstance(label, str) else label:
                if name in MISSING:
                    raise self.rows.error(
                        line,
                        f"the label is {name!r}, as pandas writes a missing one: write the label, "
                        "delete the row, or name all classes by class_names=.",
                    )
        names = all_names(labels)
        if isinstance(self.texts.get("text", [""])[0], list) and all(map(_is_integer, names)):
            warn(
                f"{self.rows.name}: the labels of words are the numbers {', '.join(names)[:60]}, "
                "and nothing names the classes, so that no entities will be found. Put the data "
                "set's dataset_info.json beside the file, or name the classes by class_names=."
            )
        return names

    def targets(self, class_names: Sequence[str] | None = None, multi_label: bool = False) -> Any:
        """Return `y` for `fit`: positions in `class_names`, or the labels unchanged.

        If a task's class names are only numbers, they are positions in the published set's names.
        """
        labels = self.labels
        if labels is None or class_names is None:
            return labels
        published = list(self.rows.published.class_names) if self.rows.published else []
        numbers = [str(i) for i in range(len(published))]
        if published and class_names == numbers:
            class_names = published
        elif published and set(class_names) == set(published) and set(labels) <= set(numbers):
            # The order of `class_names` may differ from the published set's.
            labels = [published[int(label)] for label in labels]
        return class_indices(self.rows, labels, self.lines, class_names, multi_label)

    def split(self, share: float, seed: int = 0) -> tuple[Self, Self]:
        """Return two `Examples`; the second has a random `share` of the rows."""
        order = list(range(len(self.lines)))
        random.Random(seed).shuffle(order)  # files are often sorted by label
        at = len(order) - round(len(order) * share)
        if at in (0, len(order)):
            raise ValueError(
                f"{share:g} of {len(order)} rows leaves one part empty: choose another share, or "
                "pass a separate file."
            )
        return self._take(order[:at]), self._take(order[at:])

    def _take(self, order):
        def pick(column):
            return [column[i] for i in order]

        return dataclasses.replace(
            self,
            texts={role: pick(column) for role, column in self.texts.items()},
            labels=None if self.labels is None else pick(self.labels),
            lines=pick(self.lines),
            others=None if self.others is None else pick(self.others),
        )


class TreeExamples(Examples):
    """Sentences and their trees in brackets, which contain the classes."""

    def class_labels(self):
        return [labels_of_trees([tree]) for tree in self.labels]

    def targets(self, class_names=None, multi_label=False):
        return self.labels


def all_names(labels):
    """Return the different labels, sorted: as numbers if all are integers."""
    names = {name for label in labels for name in ([label] if isinstance(label, str) else label)}
    return sorted(names, key=int) if all(map(_is_integer, names)) else sorted(names)


def fits(labels, class_names):
    """Return whether all labels are among `class_names`, or all are positions in it."""
    return _index(all_names(labels), class_names) is not None


def class_indices(rows, labels, lines, class_names, multi_label=False):
    """Return positions, (B,) int32, or with `multi_label` (B, classes) float32 of 0 and 1.

    For labels of words, it returns lists of int.
    """
    index = _index(all_names(labels), class_names)
    if index is None:
        for line, label in zip(lines, labels):
            for name in [label] if isinstance(label, str) else label:
                if name not in class_names:
                    raise rows.error(
                        line, f"the label {name!r} is not one of {', '.join(class_names)}."
                    )
    if labels and isinstance(labels[0], list) and not multi_label:
        return [[index[name] for name in row] for row in labels]
    if not multi_label:
        return np.array([index[label] for label in labels], "int32")
    hot = np.zeros((len(labels), len(class_names)), "float32")
    for row, names in enumerate(labels):
        hot[row, [index[name] for name in names]] = 1.0
    return hot


def _index(names, class_names):
    """Return a dict of name → position; None if names are neither all classes nor all positions."""
    index = {name: position for position, name in enumerate(class_names)}
    if all(name in index for name in names):
        return index
    if all(_is_integer(name) and int(name) < len(class_names) for name in names):
        return {name: int(name) for name in names}
    return None


def _is_integer(name):
    return name.isascii() and name.isdigit()


def check_file(path, format, columns, task=None):
    """Raise an error if a file has no rows, or lacks the user's columns; read its beginning only.

    Standard input is not checked, because it can be read only once.
    """
    if path == "-":
        return
    with open_rows(path, format, labels=columns.get("labels")) as rows:
        for role, column in columns.items():
            if column and role != "choices":
                rows.find(role, column)
        roles = ("text", "source", "words", "situation", "anchor")
        usual = {name for role in roles for name in GUESSES[role]}
        if not columns.get("text") and usual.isdisjoint(rows.columns):
            rows.find("words" if task == "token-classifier" else "text")  # raises
        if next(iter(rows), None) is None:
            raise rows.empty()


def read_examples(
    path: PathLike,
    task: str = "text-classifier",
    format: str | None = None,
    targets: PathLike | None = None,
    text: str | Sequence[str] | None = None,
    text_pair: str | Sequence[str] | None = None,
    labels: str | Sequence[str] | None = None,
    choices: str | Sequence[str] | None = None,
    separator: str | None = None,
    pairs: bool | None = None,
    needs_labels: bool = True,
    refuse_blank: bool = False,
    skip_empty: bool = False,
    keep_others: bool = False,
) -> Examples:
    """Return the texts and labels in a file, for a task.

    Args:
        path: str or path of a CSV, TSV, JSONL, CoNLL or SQuAD file, of plain lines, or of a
            published data set; it may be `.gz`.
        task: str, the task for the rows: `"text-classifier"`, `"text-regressor"`,
            `"token-classifier"`, `"multiple-choice"`, `"question-answerer"`, `"seq2seq-lm"`,
            `"sentence-encoder"`, `"causal-lm"`, …
        format: `"csv"`, `"tsv"`, `"jsonl"`, `"lines"` or the name of a published data set, see
            `read_published`; None infers it from the suffix. Of CSV, TSV and JSONL with a
            `dataset_info.json` of Hugging Face beside them, labels are the names of classes there.
        targets: path of a second file, with the targets of the lines in `path`.
        text, text_pair, labels, choices: names of columns; None looks for usual names, such as
            `sentence` and `label`. Of a CoNLL file, `labels` may be a number from 1, too.
        separator: str between the labels of a text, if it may have several.
        pairs: bool, whether to read second texts; None reads them if the file has them.
        needs_labels: bool. Whether a file without labels is an error.
        refuse_blank: bool. Whether a blank text is an error, as in training data. Published sets,
            and lines with targets, are not checked.
        skip_empty: bool. Whether to leave out rows that lack a text or a label: `rows.num_empty`
            of the result is how many they are.
        keep_others: bool. Whether to keep the other columns, such as ids, as `others`.

    Returns:
        `Examples`.

    Raises:
        ValueError: if a column is missing or a row cannot be read; the message names the file and
            the line.

    Example:

        train = keras_lm.data.read_examples("train.csv", text="review")
        task.fit(train.texts, train.labels)
    """
    path = str(path)
    labels = str(labels) if isinstance(labels, int) else labels
    if task == "token-classifier" and format is None and find_format(path) == "lines":
        format = "conll"
    columns = {"text": text, "text_pair": text_pair, "labels": labels, "choices": choices}
    with open_rows(path, format, targets, labels) as rows:
        rows.refuses_blank = skip_empty or (refuse_blank and not rows.published and not targets)
        rows.skips_empty = skip_empty
        if needs_labels and task not in UNLABELLED:
            rows.leave_out_unlabelled()
        if task in READERS:
            read, has_labels = READERS[task](rows, columns, needs_labels)
        else:
            read, has_labels = _texts(rows, columns, task, separator, pairs, needs_labels)
        texts_of, labels, lines, others, empty = {}, [], [], [], []
        for line, row in rows:
            try:
                example = read(line, row)
            except EmptyRow as error:
                empty.append((line, error))
                continue
            if example is None:
                continue
            for name, value in example[0].items():
                texts_of.setdefault(name, []).append(value)
            labels.append(example[1])
            lines.append(line)
            if keep_others:
                others.append({name: v for name, v in row.items() if name not in rows.used})
    if empty and not (skip_empty and lines):
        raise _of_all(rows, empty, skip_empty)
    if not lines:
        raise rows.empty()
    rows.num_empty = len(empty)
    cls = TreeExamples if task == "constituency-parser" else Examples
    others = others if keep_others else None
    return cls(rows, texts_of, labels if has_labels else None, lines, others)


def _of_all(rows, empty, skip_empty):
    """Return the error for the rows that lack something, (line, error) of each."""
    (_, first), *others = empty
    if skip_empty:
        return EmptyRow(f"{first} No row has all that is needed.")
    numbers = ", ".join(str(line) for line, _ in empty[:MOST_LINES])
    more = ", …" if len(empty) > MOST_LINES else ""
    count = f" There are {len(empty):,} such rows, {rows.unit}s {numbers}{more}." if others else ""
    return EmptyRow(f"{first}{count} skip_empty=True leaves them out.")


# A reader, as those of `task_rows`.


def _texts(rows, columns, task, separator, pairs, needs_labels):
    writes = task == "seq2seq-lm"
    if writes and (rows.columns == ["text"] or (rows.published and "labels" not in rows.columns)):
        raise ValueError(
            f"{rows.name} has lines without targets: pass the file of targets as targets=FILE."
        )
    is_labelled = rows.columns != ["text"] or columns["labels"]
    if needs_labels and not is_labelled and task not in UNLABELLED:
        raise ValueError(
            f"{rows.name} has texts without labels: pass a CSV, TSV or JSONL file with the columns "
            "text and label."
        )
    column_of = {"text": rows.find("source" if writes else "text", columns["text"])}
    if pairs is not False:
        pair = rows.find("text_pair", columns["text_pair"], required=bool(pairs))
        column_of |= {"text_pair": pair} if pair else {}
    labels_column = None
    if task not in UNLABELLED or rows.published is PUBLISHED["lambada"]:
        role = "target" if writes else "labels"
        labels_column = rows.find(role, columns["labels"], needs_labels)

    def read_label(line, row):
        if labels_column is None:
            return None
        if task in ("seq2seq-lm", "causal-lm"):
            return rows.filled(line, row, labels_column)
        value = rows.value(line, row, labels_column)
        if task == "text-regressor":
            return rows.number(line, value)
        return rows.labels(line, value, separator)

    def read(line, row):
        if task in UNLABELLED and not rows.text(line, row, column_of["text"]).strip():
            return None  # a blank line, for example between paragraphs: nothing to predict
        texts = {role: rows.filled(line, row, column) for role, column in column_of.items()}
        return texts, read_label(line, row)

    return read, labels_column is not None


# === Rows that are more than texts or pairs with a label ===
#
# A reader returns a function from (line, row) to (texts, label), and whether there are labels.

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
        choices = (
            rows.strings(line, row, names)
            if isinstance(names, str)
            else [rows.text(line, row, name) for name in names]
        )
        while choices and not choices[-1]:  # a text with fewer choices than others
            choices.pop()
        right = row.get(labels_column) if labels_column else 0
        right = int(right) if str(right).isdecimal() else right
        if not isinstance(right, int) or not 0 <= right < len(choices) or not choices[right]:
            raise rows.error(
                line,
                f"the label {right!r} must be the position of a choice, from 0 to "
                f"{len(choices) - 1}.",
                EmptyRow if is_empty(right) else ValueError,
            )
        start = f"{rows.text(line, row, begin)} " if begin else ""
        texts = {
            "text": rows.filled(line, row, text_column),
            "choices": [start + choice if choice else "" for choice in choices],
        }
        return texts, right

    return read, bool(labels_column)


def _questions(rows, columns, needs_labels):
    """Questions, contexts and answers, from SQuAD's files or from columns."""
    column_of = {
        "question": rows.find("question", columns["text"]),
        "context": rows.find("context", columns["text_pair"]),
    }
    answers_column = rows.find("answers", columns["labels"], needs_labels)

    def read(line, row):
        texts = {role: rows.filled(line, row, column) for role, column in column_of.items()}
        return texts, _answers(rows, line, row.get(answers_column))

    return read, bool(answers_column)


def _anchors(rows, columns, needs_labels):
    """Pairs, with negatives and scores if the file has them; or texts, with classes if it has."""
    anchor = rows.find("anchor", columns["text"])
    positive = rows.find("positive", columns["text_pair"], required=False)
    negative = rows.find("negative", None, required=False) if positive else None
    labels = rows.find("scores", columns["labels"], required=False)

    def read(line, row):
        label = None if labels is None else rows.value(line, row, labels)
        if positive is None:
            label = label if labels is None else rows.labels(line, label, None)
            return {"text": rows.filled(line, row, anchor)}, label
        texts = {"anchor": rows.filled(line, row, anchor)}
        texts["positive"] = rows.filled(line, row, positive)
        if negative:
            value = row.get(negative)
            if isinstance(value, list):
                texts["negative"] = rows.strings(line, row, negative)
            else:
                texts["negative"] = [] if is_empty(value) else [rows.text(line, row, negative)]
        return texts, None if labels is None else rows.number(line, label)

    return read, labels is not None


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
    **dict.fromkeys(("sentence-encoder", "sparse-encoder", "multi-vector-encoder"), _anchors),
}
