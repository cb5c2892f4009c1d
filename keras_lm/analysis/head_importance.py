"""Which heads a task needs, and what is left of its score without the others.

Shapes: L layers, N heads, H width of a head, D hidden.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_lm.analysis.head_layers import attention_layers, masked_heads
from keras_lm.feeding import datasets
from keras_lm.tasks.runtime import require_tensorflow
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import RawLabels, RawTexts


def head_importance(
    task: keras.Model, x: RawTexts, y: RawLabels = None, of: str | None = None
) -> np.ndarray:
    """Return how much the loss of each example would change with each head: (L, N) float32.

    It is the mean over examples of |∂ loss / ∂ m|, where m = 1 multiplies what a head adds. As m
    scales the rows of the output projection that read the head, this is the product of these rows
    with their gradient, summed up.

    Args:
        task: a task with a loss.
        x: texts in any form that `fit` takes, except datasets and tables; some hundred suffice.
        y: their labels, if the task has any.
        of: see `keras_lm.analysis.attention_layers`.

    Raises:
        ValueError: if the model has no attention with heads.

    Example:

        task = keras_lm.tasks.TextClassifier(task.backbone, tokenizer=tokenizer, num_classes=2)
        importance = keras_lm.analysis.head_importance(task, ["a text", "text"], [0, 1])
        importance.shape  # (2, 2)

    Source: Michel et al. 2019, https://arxiv.org/abs/1905.10650, section 4.1, equation 2.
    """
    require_tensorflow("head_importance")
    layers = attention_layers(task, of)
    kernels = [layer.output_dense.kernel for layer in layers]
    texts = task.columns(x)
    rows = next(iter(texts.values())).shape[0]
    labels = None if y is None else list(y)
    if labels is not None and len(labels) != rows:
        raise ValueError(f"y has {len(labels)} labels for {rows} texts.")
    total = np.zeros((len(layers), layers[0].num_heads))
    for row in range(rows):
        one = {name: value[row : row + 1] for name, value in texts.items()}
        one = {name: _as_list(value) for name, value in one.items()}
        data = datasets.one_batch(task, one, None if labels is None else labels[row : row + 1])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for kernel in kernels:
                tape.watch(kernel.value)
            batch = task.prepare_batch(data, training=False)
            found = task.compute_batch(batch, training=False)
            loss = task.compute_loss(
                batch.inputs, found.labels, found.outputs, found.sample_weight, training=False
            )
        gradients = tape.gradient(loss, [kernel.value for kernel in kernels])
        for number, (layer, kernel, gradient) in enumerate(
            zip(layers, kernels, gradients, strict=True)
        ):
            if gradient is None:  # no token of this example goes through the layer
                continue
            products = np.sum(kernel.numpy() * gradient.numpy(), axis=1)  # (N·H,)
            total[number] += np.abs(products.reshape(layer.num_heads, -1).sum(axis=1))
    return (total / max(rows, 1)).astype("float32")


def _as_list(value):
    """Return strings (1,) or words (1, W) as a task takes them: lists of str."""
    values = value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy().tolist()
    decode = lambda e: [decode(i) for i in e] if isinstance(e, list) else e.decode()  # noqa: E731
    return decode(values)


def pruning_curve(
    task: keras.Model,
    x: RawTexts,
    y: RawLabels = None,
    importance: npt.ArrayLike | None = None,
    shares: Sequence[float] = (0.0, 0.1, 0.2, 0.4, 0.6),
    of: str | None = None,
) -> list[dict[str, Any]]:
    """Return a task's scores without its least important heads: a list with a dict for each share.

    Args:
        task, x, y: see `head_importance`; what `evaluate` takes.
        importance: (L, N) floats, from `head_importance` on other examples than these; None to
            compute it on them.
        shares: floats from 0 to 1, how many of all heads are taken away.
        of: see `keras_lm.analysis.attention_layers`.

    Returns:
        For each share, `heads`, how many were taken, and what `task.evaluate` returns: `loss` and
        the task's metrics. The model is as before afterwards.

    Raises:
        ValueError: if shares or importance do not fit.

    Example:

        task = keras_lm.tasks.TextClassifier(task.backbone, tokenizer=tokenizer, num_classes=2)
        rows = keras_lm.analysis.pruning_curve(task, ["a text"] * 2, [0, 1], shares=[0, 0.5])
        [row["heads"] for row in rows]  # [0, 2]

    Source: Michel et al. 2019, https://arxiv.org/abs/1905.10650, section 4: of each layer,
    importance is divided by its length.
    """
    if importance is None:
        importance = head_importance(task, x, y, of)
    importance = np.asarray(importance, "float64")
    layers = attention_layers(task, of)
    if importance.shape != (len(layers), layers[0].num_heads):
        raise ValueError(
            f"importance has the shape {importance.shape}, and there are {len(layers)} layers with "
            f"{layers[0].num_heads} heads: pass what head_importance returns."
        )
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"shares={list(shares)}: pass numbers from 0 to 1.")
    importance /= np.maximum(np.linalg.norm(importance, axis=1, keepdims=True), 1e-12)
    order = np.argsort(importance, axis=None, kind="stable")
    rows = []
    for share in shares:
        places = order[: round(share * order.size)]
        heads = [tuple(map(int, divmod(place, importance.shape[1]))) for place in places]
        with masked_heads(task, heads, of):
            scores = task.evaluate(x, y, verbose=0, return_dict=True)
        rows.append({"heads": len(heads)} | {name: float(s) for name, s in scores.items()})
    return rows
