"""Labelled texts of a file, as `keras-lm finetune` and `keras-lm evaluate` read them."""

import dataclasses
import random

import click

from keras_lm.cli.labels import class_indices, read_labels, read_number
from keras_lm.cli.parallel_files import open_parallel
from keras_lm.cli.row_files import GUESSES, Rows, find_format, open_rows
from keras_lm.cli.shared_options import UNLABELLED
from keras_lm.published import PUBLISHED
from keras_lm.published.trees import labels_of_trees, read_tree


@dataclasses.dataclass
class Examples:
    """Texts and labels, a row each.

    `texts` is a dict of `"text"`, perhaps `"text_pair"`, → list of str; or of `"text"` → list of
    words, or of `"text"` and `"choices"`, a list of str each, or of `"question"` and `"context"`.
    `labels` is a list of strings, lists of strings, floats, positions, lists of answers or of
    clusters, or None. `lines` says where the rows stand in the file.
    """

    rows: Rows
    texts: dict
    labels: list | None
    lines: list

    def class_labels(self):
        """Return a class name, or a list of them, for each row."""
        return self.labels

    def targets(self, class_names=None, multi_label=False):
        """Return what `fit` takes as `y`; see `class_indices`. Without class names, as they are.

        If a task's names are only numbers, labels are those of the published set.
        """
        labels = self.labels
        if labels is None or class_names is None:
            return labels
        published = list(self.rows.published.class_names) if self.rows.published else []
        numbers = [str(i) for i in range(len(published))]
        if published and class_names == numbers:
            class_names = published
        elif published and set(class_names) == set(published) and set(labels) <= set(numbers):
            labels = [published[int(label)] for label in labels]  # whose order may be another
        return class_indices(self.rows, labels, self.lines, class_names, multi_label)

    def split(self, share, seed):
        """Return two `Examples`, a random `share` of the rows in the second."""
        order = list(range(len(self.lines)))
        random.Random(seed).shuffle(order)  # files are often sorted by label
        at = len(order) - round(len(order) * share)
        if at in (0, len(order)):
            raise click.ClickException(
                f"{share:g} of {len(order)} rows leaves a side empty: choose another share, or a "
                "file for --validation."
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
        )


class TreeExamples(Examples):
    """Sentences and trees in brackets, which a parser takes as they are; classes are in them."""

    def class_labels(self):
        return [labels_of_trees([tree]) for tree in self.labels]

    def targets(self, class_names=None, multi_label=False):
        return self.labels


def check_file(path, format, columns):
    """Raise an error for a file without rows or the user's columns, before the model is loaded.

    Standard input is read only once, later.
    """
    if path == "-":
        return
    with open_rows(path, format) as rows:
        for role, column in columns.items():
            if column and role != "choices":
                rows.find(role, column)
        usual = {
            name for role in ("text", "source", "words", "situation") for name in GUESSES[role]
        }
        if not columns.get("text") and usual.isdisjoint(rows.columns):
            rows.find("text")  # raises, whatever the task is
        if next(iter(rows), None) is None:
            raise click.ClickException(f"{path} has no rows.")


def read_examples(
    path,
    format,
    columns,
    task,
    separator,
    pairs=None,
    needs_labels=True,
    targets=None,
    to_learn=False,
):
    """Return the `Examples` of a whole file.

    `columns` is a dict of `"text"`, `"text_pair"`, `"labels"`, `"choices"` → the user's column or
    None. If a text has one label, `separator` is None. `pairs` says whether there are second texts;
    None leaves that to the file, as does `needs_labels=False` whether there are labels. `targets`
    is the path of their lines, if they are in a file of their own. Blank texts are refused if a
    model is `to_learn` from them, but for published sets and lines with targets, as they are found.
    """
    if task == "token-classifier" and format is None and find_format(path) == "lines":
        format = "conll"
    with _open(path, format, targets) as rows:
        rows.refuses_blank = to_learn and not rows.published and not targets
        if needs_labels and task not in UNLABELLED:
            rows.leave_out_unlabelled()
        if task in READERS:
            examples = READERS[task](rows, columns, needs_labels)
        else:
            examples = _read_texts(rows, columns, task, separator, pairs, needs_labels)
    if not examples.lines:
        raise click.ClickException(f"{path} has no rows.")
    if rows.left_out:
        click.echo(f"{path}: {rows.left_out:,} rows left out, without a label or damaged", err=True)
    return examples


def _open(path, format, targets):
    return open_parallel(path, targets, format) if targets else open_rows(path, format)


def _read_texts(rows, columns, task, separator, pairs, needs_labels):
    writes = task == "seq2seq-lm"
    if writes and (rows.columns == ["text"] or (rows.published and "labels" not in rows.columns)):
        raise click.UsageError(
            f"{rows.name} has lines without targets: name the file of these with --targets."
        )
    found = {"text": rows.find("source" if writes else "text", columns["text"])}
    if pairs is not False:
        pair = rows.find("text_pair", columns["text_pair"], required=bool(pairs))
        found |= {"text_pair": pair} if pair else {}
    labels_column = None
    if task not in UNLABELLED or rows.published is PUBLISHED["lambada"]:
        role = "target" if writes else "labels"
        labels_column = rows.find(role, columns["labels"], needs_labels)
    texts, labels, lines = {role: [] for role in found}, [], []
    for line, row in rows:
        if task in UNLABELLED and not rows.text(line, row, found["text"]).strip():
            continue  # as between the paragraphs of plain lines: there is nothing to predict
        lines.append(line)
        for role, column in found.items():
            texts[role].append(rows.filled(line, row, column))
        if labels_column is not None:
            labels.append(_read_target(rows, line, row, labels_column, task, separator))
    return Examples(rows, texts, labels if labels_column is not None else None, lines)


def _read_target(rows, line, row, column, task, separator):
    if task in ("seq2seq-lm", "causal-lm"):
        return rows.filled(line, row, column)
    value = rows.value(line, row, column)
    if task == "text-regressor":
        return read_number(rows, line, value)
    return read_labels(rows, line, value, separator)


def _read_words(rows, columns, needs_labels):
    """Read lists of words and of their labels, or both as strings with spaces between them."""
    words_column = rows.find("words", columns["text"])
    tags_column = rows.find("tags", columns["labels"], needs_labels)
    sentences, labels, lines, predicates = [], [], [], []
    for line, row in rows:
        if rows.published and "predicate" in row:
            predicates.append(row["predicate"])
        row = {key: x.split() if isinstance(x, str) else x for key, x in row.items()}
        words = rows.strings(line, row, words_column)
        tags = words  # as many, if there are none
        if tags_column is not None:
            tags = read_labels(rows, line, rows.value(line, row, tags_column), separator="")
        if len(words) != len(tags) or not all(words):
            raise rows.error(
                line,
                f"{len(words)} words in {words_column!r} and {len(tags)} labels in "
                f"{tags_column!r}: each word needs one, and no word is empty.",
            )
        _require_words(rows, line, words, words_column)
        sentences.append(words)
        labels.append(tags)
        lines.append(line)
    texts = {"text": sentences} | ({"predicate": predicates} if predicates else {})
    return Examples(rows, texts, labels if tags_column else None, lines)


def _read_trees(rows, columns, needs_labels):
    """Read lists of words, or strings, and a tree in brackets for each."""
    words_column = rows.find("words", columns["text"])
    trees_column = rows.find("labels", columns["labels"], needs_labels)
    sentences, trees, lines = [], [], []
    for line, row in rows:
        sentences.append(rows.text_or_list(line, row, words_column))
        _require_words(rows, line, sentences[-1], words_column)
        if trees_column is not None:
            trees.append(rows.text(line, row, trees_column))
            try:
                read_tree(trees[-1])
            except ValueError as error:
                raise rows.error(line, f"{trees_column!r} is no tree: {error}") from error
        lines.append(line)
    return TreeExamples(rows, {"text": sentences}, trees if trees_column else None, lines)


def _read_choices(rows, columns, needs_labels):
    """Read texts and their choices; SWAG's second sentence begins each of its endings."""
    text_column = rows.find("situation", columns["text"])
    labels_column = rows.find("labels", columns["labels"], needs_labels)
    names = _choice_columns(rows, columns["choices"])
    begin = "sent2" if {"sent1", "sent2"} <= set(rows.columns) and text_column == "sent1" else None
    texts, choices, labels, lines = [], [], [], []
    for line, row in rows:
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
                f"the label {right!r} is not the position of one of {len(found)} choices, from 0.",
            )
        start = f"{rows.text(line, row, begin)} " if begin else ""
        texts.append(rows.filled(line, row, text_column))
        choices.append([start + choice if choice else "" for choice in found])
        labels.append(right)
        lines.append(line)
    labels = labels if labels_column else None
    return Examples(rows, {"text": texts, "choices": choices}, labels, lines)


def _read_questions(rows, columns, needs_labels):
    """Read questions, contexts and answers: those of SQuAD's files, or columns of such."""
    found = {
        "question": rows.find("question", columns["text"]),
        "context": rows.find("context", columns["text_pair"]),
    }
    answers_column = rows.find("answers", columns["labels"], needs_labels)
    texts, labels, lines = {role: [] for role in found}, [], []
    for line, row in rows:
        lines.append(line)
        for role, column in found.items():
            texts[role].append(rows.filled(line, row, column))
        labels.append(_answers(rows, line, row.get(answers_column)))
    return Examples(rows, texts, labels if answers_column else None, lines)


def _read_documents(rows, columns, needs_labels):
    """Read documents, lists of words, and their clusters, lists of lists of places in words."""
    from keras_lm.tasks.clusters import check_place, mentions_of  # imports TensorFlow

    words_column = rows.find("words", columns["text"])
    labels_column = rows.find("labels", columns["labels"], needs_labels)
    texts, labels, lines = [], [], []
    for line, row in rows:
        texts.append(rows.strings(line, row, words_column))
        _require_words(rows, line, texts[-1], words_column)
        lines.append(line)
        if labels_column is not None:
            labels.append(rows.value(line, row, labels_column))
            try:
                for *mention, _ in mentions_of(labels[-1]):
                    check_place(tuple(mention), len(texts[-1]))
            except ValueError as error:
                raise rows.error(line, str(error)) from error
    return Examples(rows, {"text": texts}, labels if labels_column else None, lines)


def _require_words(rows, line, words, column):
    """Raise an error if there is no word in a list of them, or a string, where blank is refused."""
    if rows.refuses_blank and not words:
        raise rows.error(line, f"{column!r} has no word: write some there, or delete the row.")


def _answers(rows, line, value):
    """Return a row's answers, as `fit` takes them; also of columns as Hugging Face has them."""
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
                'an answer is {"text": "…", "start": 0}, with the number of characters before it, '
                "and a question without one has an empty list.",
            )
        answers.append({"text": text, "start": start})
    return answers


def _choice_columns(rows, given):
    """Return the column of lists of choices, or the list of columns with a choice each."""
    candidates = [given] if given else GUESSES["choices"]
    for name in candidates:
        if name in rows.columns:
            return name
        numbered = [
            column
            for column in rows.columns
            if column.startswith(name) and column.removeprefix(name).lstrip("_").isdecimal()
        ]
        if numbered:
            return sorted(numbered, key=lambda column: int(column.removeprefix(name).lstrip("_")))
    return rows.find("choices", given)  # raises


# Of tasks whose rows are more than texts, a pair perhaps, and a label.
READERS = {
    "token-classifier": _read_words,
    "constituency-parser": _read_trees,
    "multiple-choice": _read_choices,
    "question-answerer": _read_questions,
    "coreference-resolver": _read_documents,
}
