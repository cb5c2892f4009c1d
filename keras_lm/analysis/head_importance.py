"""Which heads a task needs, and what is left of its score without the others.

Shapes: L layers, N heads, H width of a head, D hidden, S tokens that read, T tokens that are read.
"""

import contextlib
import dataclasses
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_lm.analysis.attention_maps import attention
from keras_lm.analysis.drawings import Picture
from keras_lm.analysis.reader import task_of
from keras_lm.feeding import datasets
from keras_lm.layers.attention import Attention
from keras_lm.tasks.runtime import require_tensorflow
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import RawLabels, RawTexts


def attention_layers(model: keras.Model, of: str | None = None) -> list[keras.layers.Layer]:
    """Return the layers of attention with weights of their own, in their order, a list of L.

    Args:
        model: a task or a backbone.
        of: `"encoder"`, `"decoder"` or `"cross"` of an encoder-decoder; None for its encoder, and
            for models with one half.

    Raises:
        ValueError: if the model has none with heads, or none of this name.
    """
    backbone = getattr(model, "backbone", model)
    if backbone.encoder_class is not None and hasattr(backbone, "decoder_blocks"):
        stacks = {
            "encoder": [block.attention for block in backbone.encoder_blocks],
            "decoder": [block.attention for block in backbone.decoder_blocks],
            "cross": [block.cross_attention for block in backbone.decoder_blocks],
        }
    else:
        stacks = {"self": [getattr(e, "attention", None) for e in getattr(backbone, "blocks", [])]}
    of = next(iter(stacks)) if of is None else of
    if of not in stacks:
        raise ValueError(f"of={of!r}: {type(backbone).__name__} has {', '.join(stacks)}.")
    layers = list({id(layer): layer for layer in stacks[of]}.values())  # some are shared
    if not layers or not all(isinstance(layer, Attention) for layer in layers):
        raise ValueError(
            f"{type(backbone).__name__} has no attention with heads to take away: see word_vectors "
            "for what its layers hold."
        )
    if any(layer.output_dense.lora_enabled for layer in layers):
        raise ValueError("The heads have low-rank updates beside their weights: merge them first.")
    return layers


def prune_heads(
    model: keras.Model, heads: Sequence[tuple[int, int]], of: str | None = None
) -> None:
    """Take heads away for good: what they add to the residual becomes zero.

    The rows of the output projection that read a head are set to zero, so that a preset and an
    export are without it, too. The model stays as large and as fast as it was. Training may bring a
    head back.

    Args:
        model: a task or a backbone.
        heads: list of pairs of int, layer and head, from 0. Layers that share their weights, as in
            ALBERT, are one.
        of: see `attention_layers`.

    Raises:
        ValueError: if the model has no such head.

    Example:

        keras_lm.analysis.prune_heads(task, [(0, 1), (1, 0)])

    Source: Michel et al. 2019, https://arxiv.org/abs/1905.10650, section 2.3.
    """
    layers = attention_layers(model, of)
    for layer, head in heads:
        if not (0 <= layer < len(layers) and 0 <= head < layers[layer].num_heads):
            raise ValueError(
                f"heads names ({layer}, {head}): there are layers 0 to {len(layers) - 1}, with "
                f"heads 0 to {layers[0].num_heads - 1}."
            )
        kernel, width = layers[layer].output_dense.kernel, layers[layer].head_dim
        values = kernel.numpy()
        values[head * width : (head + 1) * width] = 0
        kernel.assign(values)


@contextlib.contextmanager
def masked_heads(
    model: keras.Model, heads: Sequence[tuple[int, int]], of: str | None = None
) -> Iterator[None]:
    """A context in which a model does without some heads; see `prune_heads`.

    Args:
        model, heads, of: see `prune_heads`.

    Raises:
        ValueError: if the model has no such head.

    Example:

        with keras_lm.analysis.masked_heads(task, [(0, 1)]):
            vectors = task.embed(["a text"])
    """
    kernels = [layer.output_dense.kernel for layer in attention_layers(model, of)]
    before = [kernel.numpy() for kernel in kernels]
    try:
        prune_heads(model, heads, of)
        yield
    finally:
        for kernel, values in zip(kernels, before, strict=True):
            kernel.assign(values)


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
        data = datasets.one_batch(task.feed, one, None if labels is None else labels[row : row + 1])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for kernel in kernels:
                tape.watch(kernel.value)
            batch = task.prepare_batch(data, training=False)
            computed = task.compute_batch(batch, training=False)
            loss = task.compute_loss(
                batch.inputs,
                computed.labels,
                computed.outputs,
                computed.sample_weight,
                training=False,
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


# The roles of the special tokens in front of a text, and after it.
BEFORE, AFTER = ("cls", "bos"), ("sep", "eos")


@dataclasses.dataclass(frozen=True)
class HeadStatistics:
    """Means over all tokens of all texts, (L, N) float32 each.

    Attributes:
        entropy: in nats; 0 if a head reads one token, log(T) if all alike.
        distance: in tokens, between the one that reads and those that are read.
        previous, next, same: shares that go to the token before, to that after, and to itself.
        first, separator: shares that go to the special token in front of texts (`[CLS]`, `<s>`),
            and to those after them (`[SEP]`, `</s>`).
        punctuation: share that goes to punctuation.
    """

    entropy: np.ndarray
    distance: np.ndarray
    previous: np.ndarray
    next: np.ndarray
    same: np.ndarray
    first: np.ndarray
    separator: np.ndarray
    punctuation: np.ndarray

    def draw(self) -> Picture:
        """Draw all of them, a square for each head: a `Picture`.

        Raises:
            ImportError: if `matplotlib` is missing; the message has the command that installs it.
        """
        fields = dataclasses.fields(self)
        layers, heads = self.entropy.shape
        width, height = 1.2 + 0.16 * heads, 1.1 + 0.16 * layers
        picture = Picture.of_size(4 * max(width, 2), 2 * max(height, 1.8))
        for field, axes in zip(fields, picture.figure.subplots(2, 4).flat, strict=True):
            values = getattr(self, field.name)
            is_share = field.name not in ("entropy", "distance")
            image = axes.imshow(values, cmap="Blues", vmin=0, vmax=1 if is_share else None)
            axes.set_title(field.name, fontsize=9)
            axes.set_xlabel("head", fontsize=8)
            axes.set_ylabel("layer", fontsize=8)
            axes.tick_params(labelsize=7)
            picture.figure.colorbar(image, ax=axes).ax.tick_params(labelsize=7)
        return picture


def head_statistics(
    model: keras.Model,
    texts: Sequence[Any],
    tokenizer: Tokenizer | None = None,
    of: str | None = None,
) -> HeadStatistics:
    """Return what each head does on average over some texts: `HeadStatistics`.

    Args:
        model: a task, or a backbone with `tokenizer`; see `keras_lm.analysis.attention`.
        texts: list of str, or of pairs of str.
        tokenizer: of a backbone; None for a task.
        of: the name of a map of `TextAttention`; None for the first.

    Raises:
        ValueError: if `texts` is empty, or the model has no such map.

    Example:

        statistics = keras_lm.analysis.head_statistics(task, ["a text", "text"])
        statistics.entropy.shape  # (2, 2)

    Source: Clark et al. 2019, https://arxiv.org/abs/1906.04341, section 3.
    """
    task = task_of(model, tokenizer)
    if isinstance(texts, str) or not len(texts):
        raise ValueError("texts must be a list of one or more strings, or of pairs of them.")
    special = task.tokenizer.special_tokens
    first, after = (
        {special[role] for role in roles if role in special} for roles in (BEFORE, AFTER)
    )
    sums, rows = None, 0
    for text in texts:
        maps = attention(task, *((text,) if isinstance(text, str) else text)).maps
        of = next(iter(maps)) if of is None else of
        if of not in maps:
            raise ValueError(f"of={of!r}: {type(task.backbone).__name__} has {', '.join(maps)}.")
        attention_map, number = maps[of], len(maps[of].tokens)
        values = number * statistics_of_map(attention_map, first, after)
        sums, rows = values if sums is None else sums + values, rows + number
    return HeadStatistics(*(sums / rows).astype("float32"))


def statistics_of_map(attention_map, first, after):
    """Return the statistics of an `AttentionMap`, (8, L, N), in the order of `HeadStatistics`.

    `first` and `after` are sets of special tokens.
    """
    cells = attention_map.probabilities.astype("float64")  # (L, N, S, T)
    rows, columns = cells.shape[-2:]
    # Columns of a memory come before those of the text itself.
    places = np.arange(columns) - max(columns - rows, 0) * (
        attention_map.attended[-rows:] == attention_map.tokens
    )
    distance = places - np.arange(rows)[:, np.newaxis]  # (S, T)

    def share(chosen):
        return (cells * chosen).sum(axis=-1).mean(axis=-1)

    kinds = [
        np.array([kind(token) for token in attention_map.attended])
        for kind in (first.__contains__, after.__contains__, is_punctuation)
    ]
    entropy = -(cells * np.log(np.maximum(cells, 1e-12))).sum(axis=-1).mean(axis=-1)
    steps = [share(distance == step) for step in (-1, 1, 0)]
    return np.stack([entropy, share(np.abs(distance)), *steps, *map(share, kinds)])


def is_punctuation(token):
    """Whether a token is made of punctuation and symbols alone, apart from marks of pieces."""
    text = token.strip(" ▁").removesuffix("</w>").removeprefix("##")
    return bool(text) and all(unicodedata.category(letter)[0] in "PS" for letter in text)
