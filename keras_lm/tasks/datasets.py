"""Users' data → named columns of strings → batches for the network. Shapes: B batch, S sequence."""

import itertools

import numpy as np
import tensorflow as tf

from keras_lm.objectives.objective import label_weights
from keras_lm.tasks import lengths


def batches(task, x, y=None, sample_weight=None, batch_size=None, shuffle=False, group=True):
    """Return a dataset of packed batches `(inputs[, labels[, weights]])` of what `fit` takes.

    With `shuffle` and `group`, rows of like lengths come together; see `lengths`.
    """
    if isinstance(x, tf.data.Dataset):
        if y is not None or sample_weight is not None:
            raise ValueError("x is a tf.data.Dataset: let it yield (x, y, sample_weight).")
        return _prepared(task, x)
    if hasattr(x, "__next__"):
        return _from_generator(one_batch(task, *_as_tuple(batch)) for batch in x)
    data = _arrays(task, x, y, sample_weight)
    if shuffle:
        counts = lengths.count_tokens(task, data[0]) if group else None
        dataset = lengths.shuffled_batches(data, batch_size or 32, counts)
    else:
        dataset = tf.data.Dataset.from_tensor_slices(data).batch(batch_size or 32)
    return _prepared(task, dataset, labels_are_ready=True)


def sorted_batches(task, x, y=None, sample_weight=None, batch_size=None):
    """As `batches`, the longest rows first; and the place of each row of `x` among them.

    Of a dataset or a generator, the order stays as it is, and the places are None.
    """
    if isinstance(x, tf.data.Dataset) or hasattr(x, "__next__"):
        return batches(task, x, y, sample_weight), None
    data = _arrays(task, x, y, sample_weight)
    batch_size = batch_size or 32
    order = lengths.longest_first(task, data[0], batch_size)
    dataset = tf.data.Dataset.from_tensor_slices(lengths.take(data, order)).batch(batch_size)
    return _prepared(task, dataset, labels_are_ready=True), np.argsort(order)


def one_batch(task, x, y=None, sample_weight=None):
    """Return lists or arrays as one packed batch; see `batches`."""
    return _packed(task, *_arrays(task, x, y, sample_weight))


def with_class_weights(dataset, weights):
    """Return batches of inputs and labels with weights, see `weigh_classes`."""
    weigh = tf.autograph.experimental.do_not_convert(weigh_classes)
    return dataset.map(lambda *batch: weigh(weights, *batch))


def weigh_classes(weights, x, labels=None, sample_weight=None):
    """Return a batch `(inputs, labels, weights)` in which each label weighs what its class does.

    `weights` are those of the classes, labels are class numbers, (B,) or (B, S), and
    `sample_weight`, (B,) or like the labels, is multiplied in.
    """
    if labels is None:
        raise ValueError("class_weight is given without labels: it weighs the loss of labels.")
    labels = tf.convert_to_tensor(labels)
    if not labels.dtype.is_integer:
        raise ValueError(
            f"class_weight needs class numbers as labels, and these are {labels.dtype.name}: pass "
            "sample_weight."
        )
    of_class = tf.gather(tf.constant(weights), tf.maximum(labels, 0))
    return x, labels, of_class * label_weights(labels, sample_weight)


def validation_batches(task, data, batch_size, steps=None):
    """Return the batches of `validation_data`: x, or a tuple or list of x, y and weights.

    With `steps`, only the first are wanted.
    """
    if isinstance(data, (tuple, list)) and not _is_text(data[:1]):
        data = (*data, None, None)[:3]
    else:
        data = (data, None, None)
    if steps is not None:
        return batches(task, *data, batch_size)
    return sorted_batches(task, *data, batch_size)[0]


def split(x, y, sample_weight, share):
    """Hold out the last `share` of the rows, as Keras does."""
    if isinstance(x, tf.data.Dataset) or hasattr(x, "__next__"):
        raise ValueError("validation_split needs arrays or lists: pass validation_data.")
    if not 0 < share < 1:
        raise ValueError(f"validation_split={share} is not between 0 and 1.")
    first = next(iter(x.values())) if isinstance(x, dict) else x[0] if isinstance(x, tuple) else x
    length = len(first)
    y = list(y) if isinstance(y, tuple) else y
    at = int(length * (1 - share))
    if at in (0, length):
        raise ValueError(f"validation_split={share} of {length} examples leaves a side empty.")

    def take(data, rows):
        if data is None:
            return None
        if isinstance(data, dict):
            return {key: take(value, rows) for key, value in data.items()}
        if isinstance(data, tuple):
            return tuple(take(value, rows) for value in data)
        return data[rows] if not hasattr(data, "iloc") else data.iloc[rows]

    data = (x, y, sample_weight)
    return (
        tuple(take(part, slice(None, at)) for part in data),
        tuple(take(part, slice(at, None)) for part in data),
    )


def padded_alike(dataset, packer):
    """Return the inputs of packed batches, each padded to the columns of the widest."""
    inputs = dataset.cache().map(lambda *batch: packer.with_mask(batch[0]))
    widths = inputs.map(lambda packed: {key: tf.shape(v)[1] for key, v in packed.items()})
    widths, number = widths.reduce(
        (dict.fromkeys(widths.element_spec, 0), np.int64(0)),
        lambda so_far, here: (
            {key: tf.maximum(most, here[key]) for key, most in so_far[0].items()},
            so_far[1] + 1,
        ),
    )
    padded = inputs.map(lambda packed: packer.pad_to(packed, widths))
    return padded.apply(tf.data.experimental.assert_cardinality(number))


def named(task, x):
    """Return the texts of a dataset's element, a tensor, a tuple of two or a dict, as a dict."""
    names = task.text_names
    if not isinstance(x, dict):
        parts = _as_tuple(x)
        if len(parts) > len(names):
            raise ValueError(f"x is a tuple of {len(parts)} texts: allowed are {list(names)}.")
        x = dict(zip(names, parts, strict=False))
    check_names(x, names, task.required_names)
    return x


def _arrays(task, x, y, sample_weight):
    if task.is_packed(x):
        columns = {key: np.asarray(value) for key, value in x.items()}
    else:
        task.require_tokenizer()
        columns = task.columns(x)
        task.note_pairs(columns)
    length = next(iter(columns.values())).shape[0]
    if not length:
        raise ValueError("x is empty: pass at least one example.")
    data = [columns]
    if isinstance(y, dict):
        data.append({key: labels_from_user(value, length) for key, value in y.items()})
    elif y is not None:
        labels = task.prepare_labels(labels_from_user(y, length))
        data.append(task.matched_labels(columns, labels))
    if sample_weight is not None:
        if y is None:
            raise ValueError("sample_weight is given without y: it weighs the loss of labels.")
        data.append(labels_from_user(sample_weight, length))
    return tuple(data)


def _packed(task, x, *rest):
    """Pack the columns of `(x[, labels[, weights]])`, unless they are packed already."""
    if task.is_packed(x):
        return (x, *rest)
    if not rest:
        return (task.preprocess(x),)
    return (*task.preprocess_with_labels(x, rest[0]), *rest[1:])


def _prepared(task, dataset, labels_are_ready=False):
    spec = _as_tuple(dataset.element_spec)[0]
    packed = task.is_packed(spec)
    for leaf in tf.nest.flatten(spec):
        if leaf.shape.rank == 0:
            raise ValueError("x is a tf.data.Dataset of single examples: call .batch(n) on it.")
        if not packed:
            _check_strings(task, leaf)
    if not packed:
        task.require_tokenizer()
        task.note_pairs(named(task, spec))

    # Plain graph code: without AutoGraph it is quicker to trace and errors are clearer.
    @tf.autograph.experimental.do_not_convert
    def prepare(*batch):
        x, *rest = batch
        if rest and not labels_are_ready:
            rest[0] = task.prepare_label_tensor(rest[0])
        return _packed(task, x if packed else named(task, x), *rest)

    return dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _check_strings(task, leaf):
    if leaf.dtype != tf.string:
        raise ValueError(
            f"x is a tf.data.Dataset of {leaf.dtype.name}: it must yield strings, or dicts with "
            "token_ids."
        )
    is_list = leaf.shape.rank == 2 and task.packer.lists
    if leaf.shape.rank not in (None, 1) and not is_list:
        raise ValueError(
            f"x is a tf.data.Dataset of strings of shape {leaf.shape}: it must yield (B,), and "
            "pairs as a tuple or a dict."
        )


def _as_tuple(element):
    return element if isinstance(element, tuple) else (element,)


def _is_text(values):
    return isinstance(values, list) and all(isinstance(value, (str, bytes)) for value in values)


def _from_generator(generated):
    first = next(generated, None)
    if first is None:
        raise ValueError("x is a generator without batches: pass at least one.")
    spec = tf.nest.map_structure(
        lambda value: tf.TensorSpec([None] * len(value.shape), value.dtype), first
    )
    rest = itertools.chain([first], generated)
    return tf.data.Dataset.from_generator(lambda: rest, output_signature=spec)


# === Columns: what users pass → equally long arrays by name ===


def columns_from_user(x, names, required=None, lists=()):
    """Return user data as a dict of equally long numpy arrays of `bytes`, or of lists of these.

    `x` is a list or array of strings, a tuple of two such (a pair), a list of pairs of strings, or
    a dict keyed by `names`. Of these, the `required` ones, by default the first, come first and may
    not be missing; rows of those in `lists` may be lists of strings. A DataFrame is read by the
    names of its columns, and may have others. An error (`ValueError`) names the argument, the value
    and the remedy.
    """
    if hasattr(x, "columns"):
        x = _columns_of_frame(x, names, required)
    if isinstance(x, (str, bytes)) or (
        isinstance(x, tuple) and any(isinstance(part, (str, bytes)) for part in x)
    ):
        raise ValueError(f"x={_short(x)} is a single example: pass a batch, such as [{_short(x)}].")
    if isinstance(x, dict):
        columns = dict(x)
    elif isinstance(x, tuple):
        columns = _pair(x, names)
    else:
        column = _as_objects(x, "x")
        is_pair = names[0] not in lists and all(
            isinstance(row, (tuple, list)) and len(row) == 2 for row in column
        )
        if len(column) and is_pair:
            columns = _pair(tuple(zip(*column, strict=True)), names)
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


def _columns_of_frame(frame, names, required=None):
    """Return the columns of a DataFrame that a task takes; others may be labels or ids."""
    found = [str(name) for name in frame.columns]
    for name in names[:1] if required is None else required:
        if name not in found:
            raise ValueError(
                f"x is a DataFrame with the columns {found}, and {name!r} is none of them: rename "
                f"one, df.rename(columns={{{(found or ['…'])[0]!r}: {name!r}}}), or pass a column, "
                "df['…'], or two as a tuple."
            )
    return {name: frame[name] for name in names if name in found}


def check_names(x, names, required=None):
    """Raise ValueError if a key of `x` is not among `names`, or a required one is missing."""
    required = names[:1] if required is None else required
    if not set(required) <= set(x) <= set(names):
        needed = " and ".join(map(repr, required)) + (" is" if len(required) == 1 else " are")
        raise ValueError(
            f"x has the keys {sorted(x)}: {needed} needed, and allowed are {list(names)}."
        )


def tensors(columns):
    """Return columns of bytes as string tensors (B,), those of lists as ragged ones (B, None)."""

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
    return dict(zip(names, x, strict=True))


def _as_objects(column, name):
    if hasattr(column, "to_numpy"):  # pandas
        column = column.to_numpy()
    elif hasattr(column, "numpy"):  # TensorFlow
        column = column.numpy()
    if not isinstance(column, (list, tuple, np.ndarray)):
        raise ValueError(
            f"{name} is a {type(column).__name__}: pass a list, an array, a dict of these, or a "
            "tf.data.Dataset of raw strings."
        )
    array = np.empty(len(column), dtype=object)
    array[:] = list(column)
    return array


def _strings(column, name):
    column = _as_objects(column, name)
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
    column = _as_objects(column, name)
    if all(isinstance(value, (str, bytes)) for value in column):
        return _strings(column, name)
    for row, value in enumerate(column):
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise ValueError(
                f"{name}[{row}] is {_short(value)}, a {type(value).__name__}, and not a list of "
                "strings."
            )
        column[row] = list(_strings(value, f"{name}[{row}]"))
    return column


def labels_from_user(labels, length):
    """Return labels as an array with a row per example; ValueError if their number differs."""
    if hasattr(labels, "to_numpy"):
        labels = labels.to_numpy()
    try:
        labels = np.asarray(labels)
    except ValueError:  # lists of different lengths: the classes of a multi-label row
        labels = _as_objects(labels, "labels")
    if labels.ndim == 0 or len(labels) != length:
        raise ValueError(
            f"labels has {len(labels) if labels.ndim else 1} rows for {length} examples: pass one "
            "a row."
        )
    return labels


def row_of_labels(labels, number):
    """Return the labels of one text's words, names or integers, as a list."""
    if isinstance(labels, (list, tuple, np.ndarray)):
        labels = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
        for column, label in enumerate(labels):
            if not isinstance(label, (str, bytes, int, np.integer)):
                raise ValueError(
                    f"labels[{number}][{column}]={label!r} is neither a class name nor an integer."
                )
        return labels
    raise ValueError(
        f"labels[{number}]={labels!r}: pass a list with a label for each word of the text."
    )


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
