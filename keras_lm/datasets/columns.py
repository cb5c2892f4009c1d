"""Which columns of a file hold what: their usual names, and remedies if there is none."""

import itertools
import re

from keras_lm.datasets.empty_rows import EmptyRow
from keras_lm.utils.registry import advice

DELIMITERS = {"csv": ",", "tsv": "\t"}
# The usual names of columns, which are looked for if the user names none.
GUESSES = {
    "text": ("text", "sentence", "sentence1", "prompt"),
    "text_pair": ("text_pair", "sentence2"),
    "labels": ("labels", "label"),
    # Text to text.
    "source": ("text", "source", "sentence", "article", "document", "prompt"),
    "target": ("labels", "label", "target", "translation", "summary"),
    # Words with labels, and multiple choice.
    "words": ("words", "tokens", "text"),
    "tags": ("labels", "tags", "ner_tags", "label"),
    "situation": ("text", "sentence", "sent1", "question", "context", "prompt"),
    "choices": ("choices", "choice", "ending"),
    "question": ("question",),
    "context": ("context",),
    "answers": ("answers", "labels", "label"),
}
# The arguments that name such columns, if their names differ from the role.
ARGUMENTS = {
    **{"words": "text", "tags": "labels", "situation": "text"},
    **{"source": "text", "target": "labels"},
    **{"question": "text", "context": "text_pair", "answers": "labels"},
}


def no_column(rows, role, candidates):
    """Return the `ValueError` for `Rows` that have none of the columns for a role."""
    remedy = f" Name the column: {ARGUMENTS.get(role, role)}=NAME." if role in GUESSES else ""
    if role == "words":
        remedy += " If there is a word and its label on each line, pass format=conll."
    remedy = _other_delimiter(rows.columns) or _word_lines(rows.columns) or remedy
    wanted = " or ".join(repr(name) for name in candidates)
    near = advice(candidates[0], rows.columns) if len(candidates) == 1 else ""
    return ValueError(
        f"{rows.name} has no column {wanted}, only {', '.join(rows.columns)}.{near}{remedy}"
    )


def _other_delimiter(columns):
    """Return a remedy if a header of one column contains another separator."""
    found = [each for each in (";", "\t", ",", "|") if len(columns) == 1 and each in columns[0]]
    if not found:
        return None
    formats = {delimiter: name for name, delimiter in DELIMITERS.items()}
    if found[0] in formats:
        remedy = f"pass format={formats[found[0]]}"
    else:
        remedy = "save it with commas, or with tabs and format=tsv"
    return f" Its columns seem to be separated by {found[0]!r}: {remedy}."


def _word_lines(columns):
    """Return a remedy if a header seems to belong to a file with a word and its label on a line."""
    is_tag = columns and re.fullmatch("O|[BIESLU]-.+", columns[-1])
    if not is_tag and not {"word", "token"} & {name.lower() for name in columns}:
        return None
    remedy = "pass format=conll" if is_tag else "remove the header and pass format=conll"
    return (
        f" There seems to be a word and its label on each line: {remedy}, with a tab or a space "
        "between them and an empty line after each sentence."
    )


def choose_columns(rows, inputs, given):
    """Return a dict of the model's inputs → columns.

    Args:
        rows: `Rows`.
        inputs: list of str, the model's inputs.
        given: dict of `"text"` and `"text_pair"` → the user's column, or None.

    Raises:
        ValueError: if there is no column for an input.
    """
    is_words = rows.published and "words" in rows.columns and not given["text"]
    roles = {"text": "words"} if is_words else {}
    if len(inputs) == 1:  # whatever it is called
        return {inputs[0]: rows.find(roles.get("text", "text"), given["text"])}
    if rows.columns == ["text"]:
        raise ValueError(
            f"the model takes {' and '.join(inputs)}: pass a CSV, TSV or JSONL file with these "
            "columns."
        )
    found = {name: roles.get(name, name) for name in inputs}
    return {name: rows.find(r, given.get(ARGUMENTS.get(r, r))) for name, r in found.items()}


def batches(rows, columns, batch_size, skip_empty=False):
    """Yield `(rows, columns)` batch by batch: a list of dicts, and a dict of lists of strings.

    For words and choices, the lists contain lists. With `skip_empty`, rows that lack a text are
    left out.
    """
    if skip_empty:
        rows.leave_out_empty(columns.values())
    while batch := list(itertools.islice(rows, batch_size)):
        try:
            texts = {
                name: [rows.text_or_list(line, row, column) for line, row in batch]
                for name, column in columns.items()
            }
        except EmptyRow as error:
            raise EmptyRow(f"{error} skip_empty=True leaves such rows out.") from error
        yield [row for _, row in batch], texts
