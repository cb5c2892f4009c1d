"""What users pass → what a network takes: columns, a task's preprocessor, and its labels.

Shapes: B batch, N rows of all, S sequence, C classes.
"""

import contextlib
import dataclasses
import json
import numbers
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_lm.layers.tensorflow import GraphCache, few_packed
from keras_lm.models.backbone import Backbone
from keras_lm.objectives.objective import CompiledLosses
from keras_lm.packers import Packer, Texts
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import RawTexts, Tensor
from keras_lm.utils.user_arguments import (
    ACCEPTED,
    columns_of,
    names_of_feature,
    plain_column,
    read_table,
    refuse_queries,
    refuse_tables,
    warn,
)

COUNTED_TOGETHER = 1024  # texts


# === Columns ===


def columns_from_user(x, names, required=None, lists=()):
    """Return user data as a dict of numpy arrays of equal length, of `bytes` or lists of `bytes`.

    `x` is a list or array of strings, a tuple of two of these (pairs), a list of pairs of strings,
    or a dict keyed by `names`. The `required` names, by default the first, come first and must not
    be missing; rows of the names in `lists` may be lists of strings. A table, or a query of DuckDB,
    is read by the names of its columns, and may have others. A `ValueError` names the argument, the
    value and the remedy.
    """
    x = read_table(x)
    if names_in_table(x) is not None:
        x = columns_of_table(x, names, required)
    if isinstance(x, (str, bytes)) or (
        isinstance(x, tuple) and any(isinstance(part, (str, bytes)) for part in x)
    ):
        raise ValueError(f"x={_short(x)} is a single example: pass a batch, such as [{_short(x)}].")
    if isinstance(x, dict):
        columns = dict(x)
    elif isinstance(x, tuple):
        columns = _pair(x, names)
    else:
        column = as_objects(x, "x")
        if len(column) and all(isinstance(row, dict) for row in column):
            raise ValueError(
                "x is a list of dicts: pass pandas.DataFrame(x), or a dict of lists, "
                f"{{{names[0]!r}: [row[{names[0]!r}] for row in x], …}}."
            )
        is_pair = names[0] not in lists and all(
            isinstance(row, (tuple, list)) and len(row) == 2 for row in column
        )
        if len(column) and is_pair:
            columns = _pair(tuple(zip(*column, strict=True)), names)
        elif len(required or ()) > 1:
            needed = " and ".join(map(repr, required))
            columns = ", ".join(f"{name!r}: […]" for name in required)
            raise ValueError(
                f"x is a {type(x).__name__}, and {needed} are needed: pass {{{columns}}}."
            )
        else:
            columns = {names[0]: column}
    check_names(columns, names, required)
    columns = {
        name: _lists(column, name) if name in lists else _strings(column, name)
        for name, column in columns.items()
    }
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"x has columns of different lengths, {lengths}: they must be equal.")
    return columns


def is_stream(x):
    """Return whether x yields batches: a dataset, a generator or a `keras.utils.PyDataset`."""
    return isinstance(x, (tf.data.Dataset, keras.utils.PyDataset)) or hasattr(x, "__next__")


def names_in_table(x):
    """Return the columns of a DataFrame or of a Hugging Face `Dataset`, None for anything else.

    Raises:
        ValueError: if x holds several datasets, or one that cannot be read by its columns.
    """
    if isinstance(x, dict) and x and all(hasattr(part, "column_names") for part in x.values()):
        splits = [*x]
        raise ValueError(
            f"x is a {type(x).__name__} of {splits}: pass one of them, such as x[{splits[0]!r}]."
        )
    if is_stream(x):
        return None
    refuse_queries(x, "x")
    names = columns_of(x)
    if hasattr(x, "column_names") and not hasattr(x, "__len__"):
        features = getattr(x, "features", None) or {}
        named = [name for name in features if hasattr(features[name], "int2str")]
        label = "batch['label']"
        if named:  # numbers may be those of other classes than the task's
            label = f"x.features[{named[0]!r}].int2str(batch[{named[0]!r}])"
        raise ValueError(
            f"x is a {type(x).__name__}, of unknown length: pass a Dataset, or a generator of "
            f"batches, such as ((batch['text'], {label}) for batch in "
            "x.iter(batch_size=16))."
        )
    return None if names is None else [str(name) for name in names]


def columns_of_table(table, names, required=None):
    """Return the columns of a table that a task needs; others may be labels or ids."""
    column_names, kind = names_in_table(table), type(table).__name__
    for name in names[:1] if required is None else required:
        if name not in column_names:
            other = (column_names or ["…"])[0]
            if hasattr(table, "rename_column"):  # of datasets
                rename = f"x.rename_column({other!r}, {name!r})"
            elif hasattr(table, "rename_columns"):  # of pyarrow
                rename = f"x.rename_columns({{{other!r}: {name!r}}})"
            else:
                columns = "columns=" if hasattr(table, "iloc") else ""
                rename = f"x.rename({columns}{{{other!r}: {name!r}}})"
            raise ValueError(
                f"x is a {kind} with the columns {column_names}, and {name!r} is missing: rename "
                f"one, {rename}, or pass a column, x['…'], or two as a tuple."
            )
    return {name: table[name] for name in names if name in column_names}


def check_names(x, names, required=None):
    """Raise ValueError if a key of `x` is not among `names`, or a required one is missing."""
    required = names[:1] if required is None else required
    if not set(required) <= set(x) <= set(names):
        needed = " and ".join(map(repr, required)) + (" is" if len(required) == 1 else " are")
        raise ValueError(
            f"x has the keys {sorted(x)}: {needed} needed, and allowed are {list(names)}."
        )


def tensors(columns):
    """Return columns of bytes as string tensors (B,), those of lists as ragged ones (B, None).

    Without TensorFlow, they stay arrays and lists.
    """
    if not IS_INSTALLED:
        return columns

    def tensor(column):
        if all(isinstance(value, bytes) for value in column):
            return tf.constant(list(column), tf.string)
        values = [value for row in column for value in row]
        return tf.RaggedTensor.from_row_lengths(
            tf.constant(values, tf.string), [len(row) for row in column]
        )

    return {name: tensor(column) for name, column in columns.items()}


def _pair(x, names):
    if len(x) != 2 or len(names) < 2:
        raise ValueError(
            f"x is a tuple of {len(x)}: a tuple is a pair of texts, and this task takes "
            f"{list(names)}. Pass a list for a batch."
        )
    return dict(zip(names[:2], x, strict=True))


def as_objects(column, name):
    """Return a column as an array of objects; ValueError if it has no rows."""
    kind = type(column).__name__
    refuse_tables(column, name)
    column = plain_column(column, name)
    if hasattr(column, "numpy"):  # a ragged tensor
        column = column.numpy()
    if not is_sequence(column):
        raise ValueError(
            f"{name} is a {kind}: pass {ACCEPTED}, a dict of these, or a tf.data.Dataset of raw "
            "strings."
        )
    array = np.empty(len(column), dtype=object)
    array[:] = list(column)
    return array


def is_sequence(value):
    """Whether rows can be read in their order, as from a list; so from a column of a `Dataset`."""
    if isinstance(value, (str, bytes, dict)):
        return False
    is_list = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return is_list and getattr(value, "ndim", 1) != 0


def _strings(column, name):
    column = as_objects(column, name)
    for row, value in enumerate(column):
        if isinstance(value, str):
            # A lone surrogate becomes invalid UTF-8, which the tokenizers replace.
            column[row] = value.encode("utf-8", "surrogatepass")
        elif not isinstance(value, bytes):
            raise ValueError(
                f"{name}[{row}] is {_short(value)}, a {type(value).__name__}, and not a string: "
                "replace or drop it."
            )
    return column


def _lists(column, name):
    """The same for a column whose rows are strings, or lists of strings."""
    column = as_objects(column, name)
    if not any(map(is_sequence, column)):
        return _strings(column, name)
    for row, value in enumerate(column):
        value = value if isinstance(value, (str, bytes)) else plain_column(value, f"{name}[{row}]")
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise ValueError(
                f"{name}[{row}] is {_short(value)}, a {type(value).__name__}, and not a list of "
                "strings, as other rows are: correct or drop it."
            )
        column[row] = list(_strings(value, f"{name}[{row}]"))
    return column


def refuse_empty_words(columns):
    """Raise ValueError if there is an empty string in a column of lists of words."""
    for name, words in columns.items():
        if not isinstance(words, tf.RaggedTensor):
            continue
        for i in np.flatnonzero(words.values.numpy() == b"")[:1]:
            row = int(np.searchsorted(words.row_splits.numpy(), i, "right")) - 1
            raise ValueError(
                f"{name}[{row}] has an empty string among its words: leave it out, and its label, "
                "if words have labels."
            )


def _short(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


# === The preprocessor ===


class Pairs:
    """Whether texts come in pairs: as the user said, or as the data of the first `fit` show.

    Args:
        text_pair: bool, or None to learn it.
    """

    def __init__(self, text_pair: bool | None = None):
        self.text_pair = text_pair
        self.is_stated = text_pair is not None
        self.trained_on = None  # what `fit` was last called with

    @contextlib.contextmanager
    def learning(self) -> Iterator[None]:
        """A context in which the first data show it anew, unless the user said it."""
        guessed = self.text_pair
        if not self.is_stated:
            self.text_pair = None
        self.trained_on = None
        try:
            yield
            self.trained_on = self.text_pair
        finally:
            self.text_pair = guessed if self.text_pair is None else self.text_pair

    def note(self, columns: Mapping[str, Any]) -> None:
        """Learn it from the first data, and warn of pairs for a task of single texts."""
        if self.text_pair is None:
            self.text_pair = "text_pair" in columns
        self.warn(columns)

    def warn(self, columns: Mapping[str, Any]) -> None:
        """Warn of pairs of texts for a task of single ones."""
        reads_pairs = self.text_pair if self.is_stated else self.trained_on
        if reads_pairs is False and "text_pair" in columns:
            warn(
                "x has text_pair, and the task was made for single texts, or trained on them: its "
                "answers to pairs mean little."
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Preprocessor:
    """Raw texts → the packed dict that a network takes: one half of a task's data.

    The other half are its `TaskLabels`. A task makes it of its tokenizer, packer and arguments, as
    they are at the moment: `task.preprocessor`. A task whose texts need more sets
    `preprocessor_class` to a subclass, and adds to `preprocessing` what that takes.

    Args:
        task: name of the task's class, for errors.
        backbone: the network's, whose inputs a packed dict has.
        tokenizer: `keras_lm.tokenizers.Tokenizer`, or None for packed dicts alone.
        packer: `keras_lm.packers.Packer`.
        rows: `keras_lm.packers.Texts`, which texts it takes.
        parse_special: the special tokens that text may spell, see `Task`.
        pairs: `Pairs`.
        graphs: `GraphCache` of the task.

    Call: `preprocessor(columns)` tokenizes and packs raw texts, in any form that `columns` takes:
    (B, S) int32 each.

    Example:

        task.preprocessor(["a text", "another"])["token_ids"]  # (2, S)
    """

    task: str
    backbone: Backbone
    tokenizer: Tokenizer | None
    packer: Packer
    rows: Texts
    parse_special: Any
    pairs: Pairs
    graphs: GraphCache

    def __call__(
        self, columns: RawTexts, tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> dict[str, Tensor]:
        """See the class; `tokenize` replaces the tokenizer."""
        self.require_tokenizer()
        if self.is_packed(columns):
            raise ValueError(
                f"x has {sorted(columns)}, which is packed: pass texts, or call predict, which "
                "takes both."
            )
        return few_packed(self.pack(self.as_columns(columns), tokenize or self.tokenize))

    def in_graph(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what calling does, by a graph that is traced once for texts of all sizes."""
        if tf.config.functions_run_eagerly():
            return self(columns)
        return self.graphs.call("preprocess", self, columns)

    # === What a subclass may override ===

    def columns(self, x: RawTexts) -> dict[str, Any]:
        """Return raw text in any form that `fit` takes, except datasets, as string tensors."""
        x = columns_from_user(x, self.rows.names, self.rows.required, self.packer.lists)
        columns = tensors(x)
        if self.packer.takes_words:
            refuse_empty_words(columns)
        return columns

    def is_packed(self, x: Any) -> bool:
        """Return whether `x` is a packed dict, and not raw texts."""
        return isinstance(x, dict) and not set(x).isdisjoint(self.backbone.input_names)

    def usual_tokens(self, tokenizer: Tokenizer) -> Any:
        """Return the special tokens that the task is made for, where text spells them."""
        return []

    def tokens_in_text(self, tokenizer: Tokenizer) -> Any:
        """Return what text may spell, as the call of a tokenizer takes it."""
        return self.usual_tokens(tokenizer) if self.parse_special is None else self.parse_special

    def pack(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        """Return the packed rows of named string tensors."""
        return self.packer(columns, tokenize)

    def with_labels(self, columns: dict[str, Tensor], labels: Any) -> Any:
        """Return packed texts and labels; overridden if labels depend on the text's tokens."""
        return self(columns), labels

    def row_lengths(self, columns: dict[str, Tensor], labels: Any = None) -> np.ndarray:
        """Return the lengths (N,) by which `fit` sorts rows, so that similar ones share a batch."""
        return self.count_tokens(columns)

    # === Parts ===

    def require_tokenizer(self) -> None:
        """Raise a ValueError if there is none."""
        if self.tokenizer is None:
            raise ValueError(
                f"{self.task} has no tokenizer, so it cannot take raw strings: pass tokenizer= "
                "when making it, or call it with packed dicts."
            )

    def as_columns(self, x: RawTexts) -> dict[str, Tensor]:
        """Return named string tensors, or raw texts as such."""
        is_ready = isinstance(x, dict) and all(map(tf.is_tensor, x.values()))
        return x if is_ready else self.columns(x)

    def tokenize(self, text: Tensor) -> tf.RaggedTensor:
        """Return the ragged ids of strings (B,), without special tokens around them."""
        return self.tokenizer(text, self.tokens_in_text(self.tokenizer))

    def tokenize_lite(self, text: Tensor) -> tf.RaggedTensor:
        """Return what `tokenize` does, by operations that LiteRT has."""
        return self.tokenizer.tokenize_lite_with(text, self.tokens_in_text(self.tokenizer))

    def count_tokens(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> np.ndarray:
        """Return the number of tokens in each row, (N,) int64, given string tensors by name.

        It is 0 for all rows if they are padded to the same length anyway, because they are packed
        already, or to a fixed length. `tokenize` replaces the tokenizer.
        """
        tokenize = tokenize or self.tokenize
        size = next(iter(columns.values())).shape[0]
        if self.is_packed(columns) or self.packer.padding == "fixed":
            return np.zeros(size, "int64")
        if not IS_INSTALLED:
            ids = [tokenize(column) for column in columns.values()]
            return np.array([sum(map(_number, row)) for row in zip(*ids, strict=True)], "int64")

        def count(start):
            total = np.int64(0)
            for name, column in columns.items():
                if name in self.rows.samples:  # no text
                    continue
                here = column[start : start + COUNTED_TOGETHER]
                sizes = tf.ragged.map_flat_values(lambda text: _sizes(tokenize, text), here)
                total += tf.reduce_sum(sizes, axis=list(range(1, sizes.shape.rank))).numpy()
            return total

        # Counting bytes would save the tokenizer's time, but on titles, sentences and articles
        # mixed it pads 20 % where tokens pad 2 %.
        with ThreadPoolExecutor() as threads:
            return np.concatenate(list(threads.map(count, range(0, size, COUNTED_TOGETHER))))


def _number(ids):
    """Return how many ids there are in nested lists."""
    return sum(_number(part) if isinstance(part, list) else 1 for part in ids)


def _sizes(tokenize, text):
    sizes = tokenize(tf.reshape(text, [-1])).row_lengths()
    return tf.reshape(tf.cast(sizes, tf.int64), tf.shape(text))


# === Labels ===


class TaskLabels:
    """The labels of a task; a subclass says what they are, and overrides what differs.

    Labels take this way: `of_names` reads those in a dict, `prepare` checks a whole array on the
    host (`prepare_tensor` a batch of a `tf.data.Dataset`, in the graph), `match` compares them with
    their texts; in a step, `for_loss` and `for_metrics` give them the form that each compares.

    Attributes:
        loss: what the task was compiled with.
        task: name of the task's class, for errors.
        class_names: list of str, or None if there are none, or none are known yet.
        multi_label: whether a row has any number of classes.
        are_needed: whether data to learn from and to evaluate on must come with labels.
        remedy: what to do where they are missing, for the error.
        columns: what a table's column of labels may be called.
    """

    loss, task = None, "The task"
    class_names = None
    multi_label = False
    are_needed = True
    remedy = "pass y, the labels of x"
    columns = ("labels", "label")

    # === From users ===

    def names(self, is_packed: bool) -> list[str]:
        """Return the keys that a dict of labels may have; without any, labels are no dict."""
        return [name for name in CompiledLosses(self.loss).by_output if name is not None]

    def of_names(self, labels: dict[str, Any], is_packed: bool) -> Any:
        """Return labels in a dict as `prepare` takes them, or as they are."""
        return labels

    def learn_names(self, names: list[str]) -> None:
        """Take the names that a table has for the numbers of its labels, if there are none yet."""

    def prepare(self, labels: np.ndarray) -> Any:
        """Return labels, an array with a row per example, as `match` and the loss take them."""
        return labels

    def prepare_tensor(self, labels: Tensor) -> Any:
        """The same for a batch of a `tf.data.Dataset`, in the graph."""
        return labels

    def match(self, labels: Any, columns: Mapping[str, Any], is_packed: bool) -> Any:
        """Return prepared labels for texts or packed inputs; raise an error if they do not fit."""
        return labels

    # === In a step ===

    def for_loss(self, labels: Any, outputs: Any, sample_weight: Tensor) -> Any:
        """Return labels and their weights as the compiled loss compares them with outputs."""
        return labels, sample_weight

    def for_metrics(self, labels: Any, outputs: Any) -> Any:
        """Return labels of a batch as metrics compare them with outputs."""
        return labels

    def measured(self, labels: Any) -> Any:
        """Return those of a batch's labels that metrics compare; None if there are none."""
        return labels

    # === What `compile` and `fit` were given for them ===

    def compiled(self, loss: Any, task: str) -> None:
        """Take the loss of `compile`, and the name of the task's class."""
        self.loss, self.task = loss, task

    def check_loss(self, loss: Any) -> None:
        """Raise an error, or warn, if a loss does not fit the task's outputs."""

    def metric(self, metric: Any) -> Any:
        """Return a metric, or its name, as it fits labels and outputs."""
        return metric

    def class_weights(self, class_weight: Any, labels: Any = None) -> list[float]:
        """Return the weight of each class, in their order, for `class_weight` of `fit`.

        `labels` are all of them, prepared, or None where they are not in memory.
        """
        raise ValueError(
            f"class_weight weighs classes, and {self.task} has none: pass sample_weight, a number "
            "for each text."
        )


class Feed(NamedTuple):
    """What turns a user's data into batches: `task.feed`.

    `strategy` is the `tf.distribute.Strategy` whose replicas take them.
    """

    preprocessor: Preprocessor
    labels: TaskLabels
    strategy: Any


# === Users' labels → arrays with a row per example, or an error that says what to pass ===

# Labels of a row, as opposed to a column of a library.
PLAIN = (
    *(str, bytes, int, float, list, tuple, dict, set, frozenset),
    *(np.ndarray, np.generic, type(None)),
)

ROWLESS = (str, bytes, bytearray, memoryview, Mapping, type)


def label_column(labels, x):
    """Return the name of a table's column of labels; None if there is none, or x is not a table."""
    column_names = names_in_table(x) or ()
    return next((name for name in labels.columns if name in column_names), None)


def labelled(feed, x, y):
    """Return texts and labels: of a table without `y`, its columns, and that of the labels.

    Raises:
        ValueError: if the task needs labels, and a table has none; if they are a dict with other
            names than the task's.
    """
    x = read_table(x)
    column_names = names_in_table(x)
    labels, is_packed = feed.labels, feed.preprocessor.is_packed(x)
    check_label_names(labels, y, is_packed)
    if isinstance(y, Mapping):
        y = labels.of_names(dict(y), is_packed)
    else:
        y = _in_order_of_classes(labels, _one_column(y))
    if column_names is None:
        return x, by_names_of(labels, y)
    if y is None and labels.are_needed:
        column = label_column(labels, x)
        if column is None:
            raise ValueError(
                f"labels are missing: x is a {type(x).__name__} with the columns "
                f"{column_names}. Rename that of the labels to {labels.columns[0]!r}, or pass "
                "it as y."
            )
        y = by_names_of(labels, x[column], _feature(x, column))
    else:
        y = by_names_of(labels, y)
    rows = feed.preprocessor.rows
    return columns_of_table(x, rows.names, rows.required), y


def check_label_names(labels, y, is_packed, name="y"):
    """Raise ValueError if `y` is a dict, and not by names of the task's labels."""
    if not isinstance(y, Mapping):
        return
    known = sorted(labels.names(is_packed))
    if not y or not {*y} <= {*known}:
        needed = f"a dict with the keys {known}" if known else "a list with a label for each row"
        raise ValueError(
            f"{name} is a {type(y).__name__} with the keys {[*y][:10]}: {labels.task} "
            f"takes {needed}."
        )


def _one_column(y):
    """Return the column of a table of labels with one; others are as they are."""
    column = getattr(y, "column_name", None)
    if type(y).__name__ == "IterableColumn" and (
        names := names_of_feature(_feature(y.source, column))
    ):
        raise ValueError(
            f"y is an IterableColumn, of unknown length, whose numbers are the classes {names}: "
            f"pass names, [y.source.features[{column!r}].int2str(each) for each in y]."
        )
    refuse_queries(y, "y")
    names = None if is_stream(y) or isinstance(y, dict) else getattr(y, "column_names", None)
    if names is not None and len(names) != 1:
        raise ValueError(
            f"y is a {type(y).__name__} with the columns {[*names]}: pass one, y[{names[0]!r}]."
        )
    return y if names is None else y[names[0]]


def _in_order_of_classes(labels, y):
    """Return a DataFrame with a column for each class in the order of the task's classes."""
    classes = labels.class_names
    columns = None if is_stream(y) else getattr(y, "columns", None)
    if classes is None or columns is None or len(columns) < 2:
        return y
    by_name = {str(column): column for column in columns}
    if {*by_name} == {*classes}:
        return y[[by_name[name] for name in classes]]
    if any(isinstance(column, str) for column in columns):
        raise ValueError(
            f"y is a {type(y).__name__} with the columns {[*by_name]}, and class_names are "
            f"{classes}: pass one column, one for each class by its name, or y.to_numpy() with "
            "columns in the order of class_names."
        )
    return y


def by_names_of(labels, y, feature=None):
    """Return labels whose numbers a Hugging Face `Dataset` names as numbers of the task's classes.

    Of several labels a row, those of `multi_label`, it returns names. A task without `class_names`
    learns those of the `Dataset`. Labels without names, and those of a task without classes, are
    returned as they are.

    Args:
        labels: the task's `TaskLabels`.
        y: column of labels, of a `Dataset` or not.
        feature: the `ClassLabel` of the column, or a sequence of it; None for that of `y`.

    Raises:
        ValueError: if a name is not in `class_names`, or the task has another number of classes.
    """
    names = names_of_feature(getattr(y, "features", None) if feature is None else feature)
    if names is None:
        return y
    labels.learn_names(names)
    classes, is_multi_label = labels.class_names, labels.multi_label
    if classes is None or (names == classes and not is_multi_label):
        return y

    def renamed(label):
        if isinstance(label, (list, tuple, np.ndarray)) and np.ndim(label):
            return [renamed(item) for item in label]
        if not isinstance(label, numbers.Integral) or not 0 <= label < len(names):
            return label  # -100, or nothing that the feature names
        if names[label] not in classes:
            raise ValueError(
                f"the table calls a label {names[label]!r}, and class_names are {classes}: make "
                f"the task with class_names={names}, or pass the table's numbers as a list, y."
            )
        return names[label] if is_multi_label else classes.index(names[label])

    return [renamed(label) for label in plain_column(y, "y")]


def named_column(labels, name):
    """Return the names for a column of numbers that is of a table which names them.

    Others, and lists, are returned as they are.
    """
    names = names_of_feature(getattr(labels, "features", None))
    if names is None:
        return labels

    def named(label):
        if isinstance(label, (list, tuple, np.ndarray)):
            return [named(item) for item in label]
        is_known = isinstance(label, numbers.Integral) and 0 <= label < len(names)
        return names[label] if is_known else label

    return [named(label) for label in plain_column(labels, name)]


def _feature(table, column):
    """Return the feature of a column that a table of `datasets`, or one from it, states."""
    features = getattr(table, "features", None)
    metadata = getattr(getattr(table, "schema", None), "metadata", None)
    if isinstance(metadata, Mapping) and b"huggingface" in metadata:  # of pyarrow
        features = json.loads(metadata[b"huggingface"]).get("info", {}).get("features")
    return features.get(column) if isinstance(features, Mapping) else None


def labels_from_user(labels, length, name="labels"):
    """Return labels as an array with a row per example; ValueError if their number differs."""
    labels = plain_column(labels, name)
    if isinstance(labels, tf.RaggedTensor):
        labels = labels.to_list()
    has_rows = hasattr(labels, "__len__") or hasattr(labels, "ndim")
    if isinstance(labels, ROWLESS) or not (has_rows or isinstance(labels, numbers.Number)):
        raise ValueError(
            f"{name} is a {type(labels).__name__}: pass {ACCEPTED}, with a row for each of the "
            f"{length} examples."
        )
    is_column = is_sequence(labels) and not hasattr(labels, "__array__")
    is_object = isinstance(labels, np.ndarray) and labels.dtype.kind == "O" and labels.ndim
    if is_column or (is_object and all(map(_is_row, labels))):  # of a Series of lists
        labels = [
            row if isinstance(row, PLAIN) else plain_column(row, f"{name}[{i}]")
            for i, row in enumerate(labels)
        ]
    try:
        labels = np.asarray(labels)
    except ValueError:  # lists of different lengths: the classes of a multi-label row
        labels = as_objects(labels, name)
    if labels.ndim == 0 or len(labels) != length:
        raise ValueError(
            f"{name} has {len(labels) if labels.ndim else 1} rows for {length} examples: pass one "
            "a row."
        )
    return labels


def weights_from_user(weights, length):
    """Return `sample_weight` as an array of numbers with a row per example."""
    weights = labels_from_user(weights, length, "sample_weight")
    is_number = weights.dtype.kind in "biuf"
    for row, weight in enumerate(weights):
        if not (is_number or isinstance(weight, (int, float))) or np.isnan(weight).any():
            raise ValueError(f"sample_weight[{row}]={weight!r} is not a number.")
    return weights if is_number else weights.astype("float32")


def _is_row(value):
    return isinstance(value, (list, tuple, np.ndarray))
