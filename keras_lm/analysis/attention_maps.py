"""What each token of a text reads, in every head of every layer.

Shapes: L layers, N heads, S tokens that read, T tokens that are read, H width of a head, P
positions, D width.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_lm.analysis.attention_page import AttentionPage
from keras_lm.analysis.reader import columns_of, packed_rows, task_of, token_texts
from keras_lm.layers.attention import Attention
from keras_lm.objectives import IGNORED
from keras_lm.tokenizers.tokenizer import Tokenizer

MEMORY = "(memory)"  # a column before the text's own, in models that carry one


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """The attention of one kind of layers.

    Attributes:
        tokens: S str, those that read.
        attended: T str, those that are read.
        probabilities: (L, N, S, T) float32; over all of T, they sum to 1.
    """

    tokens: list[str]
    attended: list[str]
    probabilities: np.ndarray


@dataclasses.dataclass(frozen=True)
class TextAttention:
    """The attention of a model on a text. In a notebook, it shows itself as an interactive page.

    Attributes:
        maps: dict of name → `AttentionMap`: `"self"`, or of an encoder-decoder `"encoder"`,
            `"decoder"` and `"cross"`, in which the target reads the source.
    """

    maps: dict[str, AttentionMap]

    @property
    def _first(self):
        return next(iter(self.maps.values()))

    @property
    def tokens(self) -> list[str]:
        """The tokens of the first of the maps, S str."""
        return self._first.tokens

    @property
    def probabilities(self) -> np.ndarray:
        """The probabilities of the first of the maps, (L, N, S, T) float32."""
        return self._first.probabilities

    def page(
        self,
        layers: Sequence[int] | None = None,
        neurons: "Neurons | None" = None,
        height: int = 640,
    ) -> AttentionPage:
        """Return an `AttentionPage` of it: a picture by token, by head, and by cell.

        Args:
            layers: list of int, those to show; None for all. A page of 12 layers with 12 heads of a
                text of 512 tokens takes some 20 MB, as much as a notebook grows by.
            neurons: `Neurons` of a head, or None.
            height: int, pixels in a notebook.

        Raises:
            ValueError: if there is no such layer.
        """
        maps = self.maps
        if layers is not None:
            for name, attention_map in maps.items():
                number = len(attention_map.probabilities)
                if not layers or not all(0 <= layer < number for layer in layers):
                    raise ValueError(
                        f"layers={layers}: the map {name!r} has layers 0 to {number - 1}."
                    )
            layers = list(layers)
            maps = {
                name: dataclasses.replace(
                    attention_map, probabilities=attention_map.probabilities[layers]
                )
                for name, attention_map in maps.items()
            }
        return AttentionPage(maps, layers, neurons, height)

    def _repr_html_(self):
        return self.page()._repr_html_()


@dataclasses.dataclass(frozen=True)
class Neurons:
    """The query and key vectors of one head: what its scores are sums of.

    Attributes:
        layer, head: int.
        tokens: S str.
        query, key: (S, H) float32.
        scores: (S, S) float32, what the softmax takes: q·k times the scale, and what masks and
            positions add.
        probabilities: (S, S) float32.
    """

    layer: int
    head: int
    tokens: list[str]
    query: np.ndarray
    key: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray


def attention(
    model: keras.Model, text: str, text_pair: str | None = None, tokenizer: Tokenizer | None = None
) -> TextAttention:
    """Return what each token of a text reads, in every head: `TextAttention`.

    Args:
        model: a task, or a backbone with `tokenizer`: an encoder, a decoder or an encoder-decoder.
        text: str, read as the task reads it; of a `QuestionAnswerer` the question.
        text_pair: str, the second text, if the task takes one; of an encoder-decoder the target,
            or None for what it writes itself.
        tokenizer: of a backbone; None for a task.

    Raises:
        ValueError: if the model has no attention with heads, or the text makes several rows.

    Example:

        maps = attention(task, "a text")
        maps.tokens  # ["[CLS]", "a", "text", "[SEP]"]
        maps.probabilities.shape  # (2, 2, 4, 4)
        maps.page().save("attention.html")
    """
    task = task_of(model, tokenizer)
    if task.has_decoder:
        return _of_both_halves(task, text, text_pair)
    packed, keep = _one_row(task, text, text_pair)
    probabilities = task.backbone.attention_probabilities(packed)
    tokens = token_texts(task.tokenizer, packed["token_ids"].numpy()[0, keep])
    return TextAttention({"self": _cut(probabilities, tokens, keep, tokens, keep)})


def neurons(
    model: keras.Model,
    text: str,
    layer: int,
    head: int,
    text_pair: str | None = None,
    tokenizer: Tokenizer | None = None,
) -> Neurons:
    """Return the query and key vectors of a head: `Neurons`, for `TextAttention.page`.

    Args:
        model, text, text_pair, tokenizer: see `attention`; not of an encoder-decoder.
        layer, head: int, from 0.

    Raises:
        ValueError: if there is no such layer or head, or its scores are not products of queries and
            keys alone, as with XLNet's distances.

    Example:

        head = neurons(task, "a text", layer=1, head=0)
        head.query.shape  # (4, 8)
    """
    task = task_of(model, tokenizer)
    if task.has_decoder:
        raise ValueError(
            f"{type(task).__name__} has two halves: pass task.backbone.encoder_backbone() and "
            "tokenizer=task.tokenizer."
        )
    packed, keep = _one_row(task, text, text_pair)
    backbone = task.backbone
    if "attention_contexts" not in backbone.symbolic:
        backbone.attention_probabilities(packed)  # raises the error that says so
    if not 0 <= layer < len(backbone.blocks):
        raise ValueError(f"layer={layer}: there are layers 0 to {len(backbone.blocks) - 1}.")
    computed = backbone.compute(packed)
    block, context = backbone.blocks[layer], computed["attention_contexts"][layer]
    layer_of_heads = block.attention
    if type(layer_of_heads).raw_scores is not Attention.raw_scores:
        raise ValueError(
            f"{type(backbone).__name__} adds to its scores what is not in queries and keys, such "
            "as distances: attention(…) shows its probabilities."
        )
    if not 0 <= head < layer_of_heads.num_heads:
        raise ValueError(f"head={head}: there are heads 0 to {layer_of_heads.num_heads - 1}.")
    x = computed["hidden_states"][layer]
    inputs = block.attention_inputs(x, context)
    query, key, _ = (np.asarray(e, "float32")[0, head] for e in layer_of_heads.project(*inputs))
    scores, probabilities = (
        np.asarray(method(x, context))[0, head]
        for method in (block.attention_scores, block.attention_probabilities)
    )
    rows = np.ix_(keep, keep)
    return Neurons(
        layer,
        head,
        token_texts(task.tokenizer, packed["token_ids"].numpy()[0, keep]),
        query[keep],
        key[keep],
        scores[rows],
        probabilities[rows],
    )


def _one_row(task, text, text_pair):
    """Return the packed row of a text, (1, S), and the columns without padding."""
    texts = [value if value is None else [value] for value in (text, text_pair)]
    packed = packed_rows(task, columns_of(task, *texts))
    return packed, np.flatnonzero(packed["padding_mask"].numpy()[0])


def _of_both_halves(task, text, text_pair):
    """Return the maps of an encoder-decoder: of its two halves, and between them."""
    columns = columns_of(task, [text])
    if text_pair is None:
        (text_pair,) = task.generate([text], num_return_sequences=1)
    inputs, labels = task.packer.targets([text_pair])
    packed = task.preprocess(columns) | inputs
    read = np.flatnonzero(packed["encoder_padding_mask"].numpy()[0])
    written = np.flatnonzero(labels.numpy()[0] != IGNORED)
    source = token_texts(task.tokenizer, packed["encoder_token_ids"].numpy()[0, read])
    target = task.tokenizer.target
    taken = token_texts(target, packed["decoder_token_ids"].numpy()[0, written])
    given = token_texts(target, labels.numpy()[0, written])
    backbone, maps = task.backbone, {}
    if "attention_contexts" in backbone.symbolic:  # else a recurrent one, which has no others
        probabilities = backbone.encoder_attention_probabilities(packed)
        maps["encoder"] = _cut(probabilities, source, read, source, read)
        probabilities = backbone.attention_probabilities(packed)
        maps["decoder"] = _cut(probabilities, taken, written, taken, written)
    # What was read to write a token: the label, not the input, names the row.
    probabilities = backbone.cross_attention_probabilities(packed)
    maps["cross"] = _cut(probabilities, given, written, source, read)
    return TextAttention(maps)


def _cut(layers, tokens, rows, attended, columns):
    """Return the `AttentionMap` of layers (1, N, S, T), without padding.

    Before the columns of the text, T may have some of a memory, which are kept if they are read.
    """
    whole = np.stack([np.asarray(layer, "float32")[0] for layer in layers])  # (L, N, S, T)
    length = columns[-1] + 1 if len(columns) else 0
    more = whole.shape[-1] - whole.shape[-2] if whole.shape[-1] > whole.shape[-2] else 0
    if tokens is not attended:  # a source is not a memory
        more = 0
    whole = whole[:, :, rows]
    read = [i for i in range(more) if whole[..., i].max(initial=0) > 1e-6]
    index = [*read, *(more + columns)]
    assert more + length <= whole.shape[-1]
    return AttentionMap(tokens, [MEMORY] * len(read) + list(attended), whole[..., index])


@dataclasses.dataclass(frozen=True)
class OffsetMap:
    """The linear map that best takes each position to the one `offset` further.

    Attributes:
        offset: int.
        matrix: (D, D) float64; `table[:-offset] @ matrix` comes near `table[offset:]`.
        error: float, what is left of the variance: 0 for an exact map, 1 for one that is no better
            than the mean.
    """

    offset: int
    matrix: np.ndarray
    error: float


def offset_map(table: npt.ArrayLike, offset: int) -> OffsetMap:
    """Return the linear map that best takes position p to p + offset, for all p: an `OffsetMap`.

    Sines and cosines have an exact one, which rotates each frequency's pair by the angle that
    belongs to the offset: so attention can learn to look a fixed number of tokens back. Learned
    positions have none, but training may bring them near one. The map is fitted to every other
    position, and its error measured on the rest, as any few positions could be fitted exactly.

    Args:
        table: (P, D) floats, an embedding of positions, with P of 4·D + offset or more.
        offset: int, 1 or more.

    Raises:
        ValueError: if the table is too short for the width, or the offset.

    Example:

        layer = keras_lm.layers.SinusoidalPositionEmbedding(512, 32)
        layer.build((None, 512, 32))
        keras_lm.analysis.offset_map(layer.embeddings, 5).error < 1e-6  # True

    Source: https://arxiv.org/abs/1706.03762, section 3.5.
    """
    table = np.asarray(table, "float64")
    if table.ndim != 2 or offset < 1 or len(table) - offset < 4 * table.shape[1]:
        raise ValueError(
            f"table has the shape {table.shape} and offset={offset}: pass (P, D) with P of 4·D + "
            "offset or more, and an offset of 1 or more."
        )
    before, after = table[:-offset], table[offset:]
    matrix = np.linalg.lstsq(before[::2], after[::2], rcond=1e-6)[0]
    left = after[1::2] - before[1::2] @ matrix
    spread = after[1::2] - after[1::2].mean(axis=0)
    return OffsetMap(offset, matrix, float((left**2).sum() / max((spread**2).sum(), 1e-300)))


def dot_product_variance(
    dims: Sequence[int] = (4, 16, 64, 256, 1024), num_pairs: int = 20_000, seed: int = 0
) -> list[dict[str, Any]]:
    """Return the variance of q·k and of q·k / √d for random vectors of several widths.

    The parts of q and k are independent, with mean 0 and variance 1, so that q·k has the variance
    d, and q·k / √d the variance 1. Without the division, the softmax over a few keys gives nearly
    all of its weight to one of them, where its gradient vanishes: `largest` shows it.

    Args:
        dims: ints, the widths d.
        num_pairs: int. Pairs of vectors to draw for each width.
        seed: int.

    Returns:
        A list with a dict for each width: `dim`; `variance` of q·k, and `scaled_variance` of
        q·k / √d; `largest` and `scaled_largest`, the mean of the largest of the weights that a
        softmax gives to ten keys.

    Raises:
        ValueError: if a width is less than 1, or there are fewer than ten pairs.

    Example:

        (row,) = dot_product_variance([64])
        round(row["variance"] / 64, 1), round(row["scaled_variance"], 1)  # (1.0, 1.0)

    Source: https://arxiv.org/abs/1706.03762, section 3.2.1, note 4.
    """
    dims = [int(dim) for dim in dims]
    if min(dims, default=0) < 1 or num_pairs < 10:
        raise ValueError(
            f"dims={dims}, num_pairs={num_pairs}: pass widths of 1 or more, and ten pairs or more."
        )
    generator, results = np.random.default_rng(seed), []
    for dim in dims:
        products = np.concatenate(
            [
                np.einsum("pd,pd->p", *generator.standard_normal((2, size, dim), dtype="float32"))
                for size in _parts(num_pairs, max(2**22 // dim, 10))
            ]
        ).astype("float64")
        scaled = products / np.sqrt(dim)
        results.append(
            {
                "dim": dim,
                "variance": float(products.var()),
                "scaled_variance": float(scaled.var()),
                "largest": _largest(products),
                "scaled_largest": _largest(scaled),
            }
        )
    return results


def _parts(number, size):
    """Yield the sizes of parts, so that all vectors need not be in memory at once."""
    while number > 0:
        yield min(number, size)
        number -= size


def _largest(scores):
    scores = scores[: len(scores) // 10 * 10].reshape(-1, 10)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return float((weights.max(axis=1) / weights.sum(axis=1)).mean())
