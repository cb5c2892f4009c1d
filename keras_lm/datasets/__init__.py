"""Rows of published data sets, read from their files. This package does not import TensorFlow."""

import dataclasses
import gzip
from typing import Any

from keras_lm.datasets.aligned_texts import aligned
from keras_lm.datasets.known_sets import PUBLISHED
from keras_lm.datasets.trees import labels_of_trees
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import as_path, is_remote
from keras_lm.utils.registry import advice

__all__ = ["PUBLISHED", "PublishedRows", "read_published"]


@dataclasses.dataclass
class PublishedRows:
    """Rows of a published data set, in the form that `fit` takes; see `read_published`.

    Args:
        x: dict of lists, with an entry per row: `text`, and for some sets `text_pair`, `choices` or
            `predicate`; or `question` and `context`.
        labels: list of class names, positions, floats, texts, or lists of tags, clusters or
            answers; None if the file has no labels.
        ids: list of str; None if the file has no ids.
        class_names: list of str, for the task's `class_names`; None if there are no classes.
        left_out: int, the number of rows left out: those without a label, if other rows have one,
            and those that are damaged in the published file.
    """

    x: dict[str, list[Any]]
    labels: list[Any] | None
    ids: list[str] | None
    class_names: list[str] | None
    left_out: int


def read_published(
    path: PathLike,
    name: str,
    targets: PathLike | None = None,
    labels: str | int | None = None,
) -> PublishedRows:
    """Return the rows of a file of a published data set.

    Args:
        path: str or path of a file, which may be `.gz`, or of a folder of files (RACE,
            CNN/DailyMail, `.mrg`).
        name: str, the data set:
            `"cola"`, `"sst2"`, `"mrpc"`, `"qqp"`, `"stsb"`, `"mnli"`, `"qnli"`, `"rte"`, `"wnli"`,
            `"ax"`, `"boolq"`, `"cb"`, `"multirc"`, `"wic"`, `"wsc"`, `"ax-b"`, `"ax-g"`, `"snli"`,
            `"scitail"`, `"sst5"`: texts and pairs;
            `"copa"`, `"swag"`, `"codah"`, `"commonsenseqa"`, `"race"`, `"storycloze"`: choices;
            `"conll2003"`, `"conll2000"`, `"wikiann"`, `"conll"`, `"ontonotes-srl"`: words; with
            labels from other columns `"conll2003-pos"`, `"conll2003-chunk"`, `"conll2000-pos"`;
            `"penn"`: words with a tree, in the brackets of the Penn Treebank;
            `"squad"`, `"record"`, `"coqa"`: questions;
            `"fewrel"`, `"tacred"`, `"relations"`: texts with a head and a tail between marks, see
            `mark_relation`; `"figer"`, `"open-entity"`, `"typing"`: texts with a mention between
            marks, see `mark_entity`, and a list of types each;
            `"ontonotes-coref"`: documents as words, and clusters of mentions;
            `"cnn-dailymail"`, `"wmt"`: texts with a target text each;
            `"lambada"`: passages, and the last word of each as its label, for
            `keras_lm.prompting.predict_last_words`.
        targets: str or path of the file with the target lines or segments, for WMT and
            CNN/DailyMail.
        labels: for `"conll"`, the column of the labels: its name, or its number from 1. None infers
            the columns of words and labels from the beginning of the file; a choice between several
            is a warning.

    Returns:
        `PublishedRows`. As is usual, rows with the gold label `-`, on which annotators did not
        agree, are left out. A file without any labels is read without labels.

    Raises:
        ValueError: if the file is cut off or has another format, or a label is unknown; the message
            names the file and the line. Also if the data set is unknown, or does not take
            `targets`.

    Example:

        train = keras_lm.data.read_published("multinli_1.0_train.jsonl", "mnli")
        task = keras_lm.tasks.TextClassifier.from_preset(SOURCE, class_names=train.class_names)
        task.fit(train.x, train.labels)
    """
    if name not in PUBLISHED:
        raise ValueError(
            f"name={name!r}: pass one of {', '.join(PUBLISHED)}.{advice(name, PUBLISHED)}"
        )
    published = PUBLISHED[name]
    chosen = [] if labels is None else [str(labels)]
    if chosen and not published.chooses_labels:
        raise ValueError(f"labels={labels!r}: leave it out, as the columns of {name} are known.")
    if targets is None:
        numbered = (
            row for file in files_of(path) for row in _rows_of(as_path(file), published, *chosen)
        )
    elif published.in_pairs:
        files = [as_path(path), as_path(targets)]
        numbered = aligned(*(_rows_of(file, published) for file in files), [*map(str, files)])
    else:
        raise ValueError(
            f"targets={str(targets)!r}: leave it out, as a file of {name} has its own labels."
        )
    rows = [row for _, row in numbered]
    kept = [row for row in rows if row is not None]
    if not kept:
        raise ValueError(f"{path} is empty: it has no rows.")
    target = "answers" if "answers" in kept[0] else "labels"
    if any(row.get(target) is not None for row in kept):
        kept = [row for row in kept if row.get(target) is not None]

    def column(key):
        return [row.get(key) for row in kept] if key in kept[0] else None

    x = {"text" if key == "words" else key: column(key) for key in kept[0]}
    labels, ids = x.pop(target, None), x.pop("id", None)
    labels = None if labels and labels[0] is None else labels
    classes = list(published.class_names) or None
    if labels and (published.task == "token-classifier" or published.multi_label):
        classes = sorted({tag for tags in labels for tag in tags})
    if labels and isinstance(labels[0], str) and published.task == "text-classifier":
        classes = classes or sorted(set(labels))
    if labels and published.task == "constituency-parser":
        classes = labels_of_trees(labels)
    return PublishedRows(x, labels, ids, classes, len(rows) - len(kept))


def files_of(path):
    """Return the files in a folder and its subfolders, sorted; or the file itself."""
    path = as_path(path)
    if is_remote(path):
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path} is an empty folder.")
    return files


def _rows_of(file, published, *labels):
    with file.open("rb") as packed:
        stream = gzip.GzipFile(fileobj=packed) if file.suffix == ".gz" else packed
        for number, row in published.rows(str(file), stream, *labels):
            if isinstance(row, Exception):
                raise row
            yield number, row
