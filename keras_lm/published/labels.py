"""Labels in files → the numbers that a task takes."""

import numpy as np


def read_labels(rows, line, value, separator=None):
    """Return a row's label as a string, or with a separator its labels as a list of strings.

    The value may be a string, a number, a bool, or with a separator also a list of these.
    """
    if separator is not None:
        parts = value.split(separator) if isinstance(value, str) else value
        parts = parts if isinstance(parts, list) else [parts]
        return [label for label in (_name(rows, line, part) for part in parts) if label]
    label = _name(rows, line, value)
    if not label:
        raise rows.error(line, "the label is empty: write one, or delete the row.")
    return label


def read_number(rows, line, value):
    """Return a row's number, for a regressor."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise rows.error(line, f"the label {value!r} is not a number, which a regressor needs.")
    return number


def _name(rows, line, value):
    if isinstance(value, bool):
        return str(value).lower()  # as JSON writes it
    # NaN is what pandas writes for a missing label; it would be a class of its own.
    if isinstance(value, (int, str)) or (isinstance(value, float) and value == value):
        return str(value).strip()
    raise rows.error(line, f"the label {value!r} is neither a string nor a number.")


def all_names(labels):
    """Return the different labels, sorted: as numbers if all are integers."""
    found = {name for label in labels for name in ([label] if isinstance(label, str) else label)}
    return sorted(found, key=int) if all(map(_is_integer, found)) else sorted(found)


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
