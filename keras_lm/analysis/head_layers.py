"""The heads of a model: where they are, and without some of them.

Shapes: L layers, N heads, H width of a head, D hidden.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from keras_lm.layers.attention import Attention


def attention_layers(model: keras.Model, of: str | None = None) -> list[Any]:
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
