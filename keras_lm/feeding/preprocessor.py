"""Raw texts → the packed batch of a network. Shapes: B batch, N rows of all, S sequence."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from keras_lm.feeding.user_data import columns_from_user, refuse_empty_words, tensors
from keras_lm.layers.tensorflow import GraphCache, few_packed
from keras_lm.models.backbone import Backbone
from keras_lm.packers import Packer, Texts
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import RawTexts, Tensor
from keras_lm.utils.user_warning import warn

COUNTED_TOGETHER = 1024  # texts


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
