"""What `fit` is validated on: data of its own, or the last rows of the training data."""

from keras_lm.feeding.lengths import sorted_batches
from keras_lm.feeding.user_data import is_stream, labelled


def batches(task, data, batch_size, steps=None):
    """Return the batches of `validation_data`: x, or a tuple or list of x, y and weights."""
    if isinstance(data, (tuple, list)) and not _is_text(data[:1]):
        data = (*data, None, None)[:3]
    else:
        data = (data, None, None)
    x, y, sample_weight = data
    x, y = labelled(task, x, y)
    return sorted_batches(task, x, y, sample_weight, batch_size, steps, task.needs_labels)[0]


def split(x, y, sample_weight, share):
    """Hold out the last `share` of the rows, as Keras does."""
    if is_stream(x):
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


def _is_text(values):
    return isinstance(values, list) and all(isinstance(value, (str, bytes)) for value in values)
