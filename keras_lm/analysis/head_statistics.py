"""What heads do, in numbers: how widely they read, how far, and what kind of tokens.

Shapes: L layers, N heads, S tokens that read, T tokens that are read.
"""

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.analysis.attention_maps import attention
from keras_lm.analysis.drawings import Picture
from keras_lm.analysis.reader import task_of
from keras_lm.tokenizers.tokenizer import Tokenizer

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

        found = keras_lm.analysis.head_statistics(task, ["a text", "text"])
        found.entropy.shape  # (2, 2)

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
        found, number = maps[of], len(maps[of].tokens)
        values = number * statistics_of_map(found, first, after)
        sums, rows = values if sums is None else sums + values, rows + number
    return HeadStatistics(*(sums / rows).astype("float32"))


def statistics_of_map(found, first, after):
    """Return the statistics of an `AttentionMap`, (8, L, N), in the order of `HeadStatistics`.

    `first` and `after` are sets of special tokens.
    """
    cells = found.probabilities.astype("float64")  # (L, N, S, T)
    rows, columns = cells.shape[-2:]
    # Columns of a memory come before those of the text itself.
    places = np.arange(columns) - max(columns - rows, 0) * (found.attended[-rows:] == found.tokens)
    distance = places - np.arange(rows)[:, np.newaxis]  # (S, T)

    def share(chosen):
        return (cells * chosen).sum(axis=-1).mean(axis=-1)

    kinds = [
        np.array([kind(token) for token in found.attended])
        for kind in (first.__contains__, after.__contains__, is_punctuation)
    ]
    entropy = -(cells * np.log(np.maximum(cells, 1e-12))).sum(axis=-1).mean(axis=-1)
    steps = [share(distance == step) for step in (-1, 1, 0)]
    return np.stack([entropy, share(np.abs(distance)), *steps, *map(share, kinds)])


def is_punctuation(token):
    """Whether a token is made of punctuation and symbols alone, apart from marks of pieces."""
    text = token.strip(" ▁").removesuffix("</w>").removeprefix("##")
    return bool(text) and all(unicodedata.category(letter)[0] in "PS" for letter in text)
