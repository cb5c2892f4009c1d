"""Columns of text → the packed batch. Shapes: B batch, C rows per example, S sequence, W words."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from keras import ops

from keras_lm.packers import host_rows
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import Tensor

# Special tokens that a tokenizer may spell differently → their roles; its first one is taken.
BEGINS, ENDS = ("cls", "bos"), ("sep", "eos")
ROLES = {"[CLS]": BEGINS, "<cls>": BEGINS, "<s>": BEGINS}
ROLES |= {"[SEP]": ENDS, "<sep>": ENDS, "</s>": ("eos", "sep")}


@dataclasses.dataclass(frozen=True)
class Template:
    """A model's special tokens around one text and around a pair.

    A template is a string of pieces, `piece:segment`, separated by spaces. `$A` and `$B` are the
    texts, each needed once; anything else is a special token. If a tokenizer spells it differently,
    `[CLS]` and `<s>` are its cls or bos token, `[SEP]` and `</s>` its sep or eos token.

    Args:
        single, pair: str, for one text and for two.
        padding_side: `"right"` or `"left"`.
        padding_segment: int. Segment id of padding.

    Raises:
        ValueError: if a piece is malformed, or a text is missing.

    Example:

        Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    """

    single: str
    pair: str
    padding_side: str = "right"
    padding_segment: int = 0

    def __post_init__(self):
        for name, texts in (("single", ["$A"]), ("pair", ["$A", "$B"])):
            placeholders = [piece for piece, _ in self.pieces(name) if piece.startswith("$")]
            if sorted(placeholders) != texts:
                raise ValueError(f"{name}={getattr(self, name)!r} must hold {texts}, each once.")
        if self.padding_side not in ("right", "left"):
            raise ValueError(f"padding_side={self.padding_side!r}: use 'right' or 'left'.")

    @property
    def special_tokens(self) -> list[str]:
        pieces = [piece for name in ("pair", "single") for piece, _ in self.pieces(name)]
        return list(dict.fromkeys(piece for piece in pieces if not piece.startswith("$")))

    def pieces(self, name: str) -> list[tuple[str, int]]:
        """Return the pieces of `"single"` or `"pair"` as a list of (text, segment id)."""
        pieces = []
        for piece in getattr(self, name).split():
            text, _, segment = piece.rpartition(":")
            if not text or not segment.isdigit():
                raise ValueError(f"{name}: the piece {piece!r} is not of the form 'token:segment'.")
            pieces.append((text, int(segment)))
        return pieces

    def ids(self, name: str, tokenizer: Tokenizer) -> list[tuple[str | int, int]]:
        """Return `pieces` with a tokenizer's ids in place of the special tokens.

        Raises:
            ValueError: if the tokenizer has no such token.
        """
        return [
            (piece if piece.startswith("$") else _special_id(piece, tokenizer), segment)
            for piece, segment in self.pieces(name)
        ]

    def for_tokenizer(self, tokenizer: Tokenizer) -> Self:
        """Return the template, with the special tokens that a tokenizer states, if it does."""
        stated = getattr(tokenizer, "template", None)
        if stated is None:
            return self
        return dataclasses.replace(self, single=stated[0], pair=stated[1])

    def within(self, num_segments: int) -> Self:
        """Return the template for a model with this many segments; higher ones become its last."""
        last = max(num_segments - 1, 0)

        def limited(name):
            return " ".join(f"{piece}:{min(i, last)}" for piece, i in self.pieces(name))

        return dataclasses.replace(self, single=limited("single"), pair=limited("pair"))


def _special_id(token, tokenizer):
    known = tokenizer.special_tokens
    if token not in known.values():
        token = next((known[role] for role in ROLES.get(token, ()) if role in known), token)
    try:
        return tokenizer.token_to_id(token)
    except ValueError:
        roles = " or ".join(f"{role}_token" for role in ROLES.get(token, ()))
        raise ValueError(
            f"the model puts {token!r} around texts, and the tokenizer has no such entry"
            f"{f', and names no {roles}' if roles else ''}. Append it to the vocabulary"
            f"{', or name the entry that plays this role' if roles else ''}; or pass "
            "template=('$A:0', '$A:0 $B:0') to the tokenizer for texts without special tokens."
        ) from None


TRUNCATIONS = ("longest_first", "halves", "only_first", "only_second")
PADDINGS = ("longest", "fixed")
TRUNCATION_SIDES = ("right", "left")
TEXTS = {"$A": "text", "$B": "text_pair"}  # a text in a template → its column


class Texts:
    """A text, or a pair of texts, makes one row.

    Its attributes are the names of all columns of text, in the order of a tuple (`names`), of the
    `required` ones, and of those whose entries are lists of strings (`lists`).

    Args:
        text_pair: bool. Whether there may be pairs.
        takes_words: bool. Whether texts may be lists of words, if the tokenizer only splits texts
            into words.
    """

    names: tuple[str, ...] = ("text", "text_pair")
    required: tuple[str, ...] = ("text",)
    lists: tuple[str, ...] = ()
    truncation_sides: tuple[str, ...] = TRUNCATION_SIDES
    # Values that a request may have in columns that are not text.
    samples: dict[str, str] = {}
    # The name, for errors, of what makes several rows per example, (B, C, S); None for one row.
    several_for: str | None = None

    def __init__(self, text_pair: bool = True, takes_words: bool = False):
        if not text_pair:
            self.names = self.required
        self.word_names: tuple[str, ...] = (
            self.names
        )  # those that may be lists of words, if texts may
        self.takes_words = takes_words

    def takes_words_of(self, tokenizer: Tokenizer | None) -> bool:
        return self.takes_words and hasattr(tokenizer, "tokenize_words")

    def pack(
        self,
        packer: "Packer",
        columns: dict[str, Tensor],
        tokenize: Callable[..., Any] | None = None,
    ) -> dict[str, Tensor]:
        names = [name for name in self.names if name in columns]
        return packer.pack(**{name: packer.ids(columns[name], tokenize) for name in names})

    def join(self, logits: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Combine the logits of the rows of each example, (B, C, classes), into one (B, …)."""
        raise NotImplementedError(f"{type(self).__name__} has one row per example.")


@dataclasses.dataclass(frozen=True)
class PackedInput:
    """One of the tensors that a packer makes.

    Args:
        rank, fill: int. The number of axes, for one row per example, and the value in padding.
    """

    rank: int = 2
    fill: int = 0


class Packer:
    """Tokenize texts, cut them to length, put special tokens around them, and pad.

    A model with other inputs sets `packer_class` to a subclass, which extends `pack` and `inputs`,
    and `read_vocabulary` if these need something of the tokenizer.

    Args:
        template: `Template`.
        tokenizer: `keras_lm.tokenizers.Tokenizer`; None if all inputs are already packed.
        sequence_length: int. Maximum of S, special tokens included.
        padding: `"longest"` pads to the longest row of the batch; `"fixed"` always to
            `sequence_length`, for XLA, TPUs and TFLite.
        truncation: which text of a pair is truncated. `"longest_first"` removes tokens from
            the longer one, or from the second one at a tie, until both fit, as in BERT; `"halves"`
            does so, but the longer of two that exceed half of the room, or the second one at a tie,
            keeps one more if the room is odd, as in fast tokenizers of `transformers`;
            `"only_first"` and `"only_second"` truncate that one, down to nothing, then the other.
        truncation_side: `"right"` cuts the end of texts that are too long off, `"left"` their
            beginning.
        rows: `keras_lm.packers.Texts` or a subclass: the columns of text, and their rows.

    Call: `packer({"text": …, "text_pair": …})` with string tensors (B,) returns a dict of (B, S)
    int32: `token_ids`, `segment_ids`, `padding_mask`. If the tokenizer only splits texts into
    words, a column may also be (B, W), the words of each text, ragged or padded with empty strings.

    Raises:
        ValueError: if an argument is out of range, or `sequence_length` leaves no room for text.

    Example:

        packer = Packer(BertBackbone.TEMPLATE, tokenizer, sequence_length=128)
        packer({"text": tf.constant(["a text"])})["token_ids"]
    """

    # Resources with lookup tables, which an export has to track.
    lookups: Sequence[Any] = ()

    def __init__(
        self,
        template: Template,
        tokenizer: Tokenizer,
        sequence_length: int,
        padding: str = "longest",
        truncation: str = "longest_first",
        rows: Any = None,
        truncation_side: str = "right",
    ):
        if padding not in PADDINGS:
            raise ValueError(f"padding={padding!r}: use one of {PADDINGS}.")
        if truncation not in TRUNCATIONS:
            raise ValueError(f"truncation={truncation!r}: use one of {TRUNCATIONS}.")
        if truncation_side not in TRUNCATION_SIDES:
            raise ValueError(f"truncation_side={truncation_side!r}: use 'right' or 'left'.")
        self.template: Template = template
        self.tokenizer: Tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.padding = padding
        self.truncation = truncation
        self.truncation_side = truncation_side
        self.rows: Texts = Texts() if rows is None else rows
        if truncation_side not in self.rows.truncation_sides:
            raise ValueError(
                f"truncation_side={truncation_side!r}: {type(self.rows).__name__} counts words or "
                "windows from the start of a text. Pass truncation_side='right'."
            )
        self.pad_id: int = 0
        if tokenizer is not None:
            self.read_vocabulary(tokenizer)

    def read_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Look up the ids of special tokens; called once if there is a tokenizer."""
        # Without a padding token, as in GPT-2, any id will do: the mask marks real tokens.
        roles = [role for role in ("pad", "eos") if role in tokenizer.special_tokens]
        self.pad_id = tokenizer.special_id(roles[0]) if roles else 0
        # Lists of (id or name of a text, segment id).
        self._pieces = {
            name: [
                (TEXTS.get(piece, piece), segment)
                for piece, segment in self.template.ids(name, tokenizer)
            ]
            for name in ("single", "pair")
        }
        least = max(self.number_of_special_tokens(name) for name in self._pieces) + 1
        if self.sequence_length < least:
            raise ValueError(
                f"sequence_length={self.sequence_length} leaves no room for text beside the "
                f"special tokens: use {least} or more."
            )

    def number_of_special_tokens(self, name: str) -> int:
        """Return the number of special tokens around one text (`"single"`) or a `"pair"`."""
        return sum(not isinstance(piece, str) for piece, _ in self._pieces[name])

    def with_padding(self, padding: str) -> Self:
        other = copy.copy(self)
        other.padding = padding
        return other

    def with_rows(self, rows: Texts) -> Self:
        other = copy.copy(self)
        other.rows = rows
        return other

    # === Columns of text ===

    @property
    def names(self) -> tuple[str, ...]:
        return self.rows.names

    @property
    def lists(self) -> tuple[str, ...]:
        """Names of the columns whose entries are lists of strings, or can be lists of words."""
        return self.rows.word_names if self.takes_words else self.rows.lists

    @property
    def takes_words(self) -> bool:
        return self.rows.takes_words_of(self.tokenizer)

    def specs(self, optional: bool = False, words: bool = False) -> dict[str, Any]:
        """Return the `tf.TensorSpec`s of text columns; `words` if texts are words, (B, W)."""
        names = self.names if optional else self.rows.required
        wide = self.lists if words else self.rows.lists
        shapes = {name: [None, None] if name in wide else [None] for name in names}
        return {name: tf.TensorSpec(shape, tf.string, name) for name, shape in shapes.items()}

    # === Packing ===

    def __call__(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Return the packed dict for columns of text; `tokenize` replaces the tokenizer."""
        return self.rows.pack(self, columns, tokenize)

    def ids(self, text: Tensor, tokenize: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the ragged ids of texts (B,), or of words (B, W)."""
        if not IS_INSTALLED:
            return (tokenize or self.tokenizer)(text)
        if not isinstance(text, tf.RaggedTensor):
            text = tf.convert_to_tensor(text, tf.string)
        if text.shape.rank == 1 or strings.are_bytes(text):
            return (tokenize or self.tokenizer)(text)
        if not isinstance(text, tf.RaggedTensor):
            text = tf.RaggedTensor.from_tensor(text, padding="")
        return self.tokenizer.tokenize_words(text)

    def pack(self, **texts: Any) -> dict[str, Tensor]:
        """Return the packed dict for ragged ids (B, None), `text` and for pairs `text_pair`."""
        if not IS_INSTALLED:
            return host_rows.packed(self, texts)
        runs, first, total, columns = self._lay_out(texts)
        position = tf.range(columns)[tf.newaxis, :]  # (1, S)
        token_ids = tf.fill([tf.size(total), columns], self.pad_id)  # (B, S)
        segment_ids = tf.fill([tf.size(total), columns], self.template.padding_segment)
        for piece, segment, start, length in runs:
            is_text = isinstance(piece, str)
            offset = position - start[:, tf.newaxis]  # (B, S)
            inside = (offset >= 0) & (offset < length[:, tf.newaxis])
            value = self._gather(texts[piece], length, offset, inside) if is_text else piece
            token_ids = tf.where(inside, value, token_ids)
            segment_ids = tf.where(inside, segment, segment_ids)
        offset = position - first[:, tf.newaxis]
        real = (offset >= 0) & (offset < total[:, tf.newaxis])
        return {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": tf.cast(real, tf.int32),
        }

    def pieces(self, packed: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return `tokens` and `token_ids` of packed rows, (B, S) each: what the model reads."""
        tokens = self.tokenizer.tokens(packed["token_ids"])
        # By the mask: a text can have the padding token, too.
        tokens = tf.where(packed["padding_mask"] > 0, tokens, "")
        return {"tokens": tokens, "token_ids": packed["token_ids"]}

    def spans(self, **texts: Any) -> dict[str, tuple[Tensor, Tensor]]:
        """Return where `pack` puts each text: name → (first column, number of tokens), (B,)."""
        runs, *_ = self._lay_out(texts)
        return {piece: (start, n) for piece, _, start, n in runs if isinstance(piece, str)}

    # === What is packed already ===

    @property
    def inputs(self) -> dict[str, PackedInput]:
        """The packed inputs, the sequence itself first: name → `PackedInput`."""
        return {
            "token_ids": PackedInput(fill=self.pad_id),
            "segment_ids": PackedInput(fill=self.template.padding_segment),
            "padding_mask": PackedInput(),
        }

    def with_mask(self, packed: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return packed rows with their default mask, before they are padded further."""
        if "token_ids" not in packed:
            return packed
        return {"padding_mask": tf.ones_like(packed["token_ids"])} | packed

    def pad_to(self, packed: dict[str, Tensor], widths: Mapping[str, int]) -> dict[str, Any]:
        """Pad packed rows (B, S, …) to columns, int32 by name, on the template's padding side.

        Tensors that the packer did not make (`mask_positions`) are padded with zeros on the right.
        """

        def widen(name, value):
            own = self.inputs.get(name)
            missing = widths[name] - tf.shape(value)[1]
            is_left = own is not None and self.template.padding_side == "left"
            sides = [missing, 0] if is_left else [0, missing]
            others = [[0, 0]] * (value.shape.rank - 2)
            return tf.pad(value, [[0, 0], sides, *others], constant_values=own.fill if own else 0)

        return {name: widen(name, value) for name, value in packed.items()}

    def row_specs(self, specs: dict[str, Any]) -> dict[str, Any]:
        if self.rows.several_for is None:
            return specs
        return {
            name: tf.TensorSpec([None, *spec.shape], spec.dtype, name)
            for name, spec in specs.items()
        }

    def flatten(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return packed examples as rows: (B, C, S) → (B · C, S); `join` undoes it for logits."""
        if self.rows.several_for is None:
            return inputs
        self._shape(inputs)
        return {
            name: ops.reshape(value, (-1, *ops.shape(value)[2:])) for name, value in inputs.items()
        }

    def join(self, logits: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        if self.rows.several_for is None:
            return logits
        number = self._shape(inputs)[1]
        logits = ops.reshape(logits, (-1, number, logits.shape[-1]))
        return self.rows.join(logits, inputs)

    def _shape(self, inputs):
        name, own = next((name, own) for name, own in self.inputs.items() if name in inputs)
        shape = ops.shape(inputs[name])
        if len(shape) != own.rank + 1:
            raise ValueError(
                f"{name} has the shape {tuple(shape)}: {self.rows.several_for} takes several "
                "sequences per row, (B, number, S)."
            )
        return shape

    def _lay_out(self, texts):
        """Return `(runs, first, total, columns)`: where each piece of the template goes.

        `runs` has, for each piece: its id or text, segment, first column (B,) and number of columns
        (B,). `first` is the first real column of each row (B,), `total` the number of real columns
        (B,), `columns` is S.
        """
        name = "pair" if "text_pair" in texts else "single"
        lengths = {key: tf.cast(text.row_lengths(), tf.int32) for key, text in texts.items()}
        lengths = self._truncate(
            lengths, self.sequence_length - self.number_of_special_tokens(name)
        )
        total = tf.add_n(list(lengths.values())) + self.number_of_special_tokens(name)  # (B,)
        columns = self.sequence_length
        if self.padding != "fixed":
            # An empty batch still gets one column, so that every model runs on it.
            columns = tf.maximum(tf.reduce_max(total), 1)
        is_left = self.template.padding_side == "left"
        first = columns - total if is_left else tf.zeros_like(total)
        runs, start = [], first
        for piece, segment in self._pieces[name]:
            length = lengths[piece] if isinstance(piece, str) else tf.ones_like(total)
            runs.append((piece, segment, start, length))
            start += length
        return runs, first, total, columns

    def _truncate(self, lengths, room):
        """Return how many tokens each text keeps, in closed form."""
        if len(lengths) == 1:
            return {"text": tf.minimum(lengths["text"], room)}
        first, second = lengths["text"], lengths["text_pair"]
        if self.truncation == "only_first":
            second = tf.minimum(second, room)
            first = tf.minimum(first, room - second)
        elif self.truncation == "only_second":
            first = tf.minimum(first, room)
            second = tf.minimum(second, room - first)
        else:  # the longer one is truncated to half of the room, or less if the other is short
            half = room - room // 2
            if self.truncation == "halves":
                half = tf.where(first > second, half, room // 2)
            first, second = (
                tf.minimum(first, tf.maximum(half, room - second)),
                tf.minimum(second, tf.maximum(room - half, room - first)),
            )
        return {"text": first, "text_pair": second}

    def cut_off(self, text: Any, length: Tensor) -> Tensor:
        """Return how many tokens come before the `length` that are kept of ragged texts, (B,)."""
        if self.truncation_side == "right":
            return tf.zeros_like(length)
        return tf.cast(text.row_lengths(), tf.int32) - length

    def _gather(self, text, length, offset, inside):
        """Gather what is kept of texts where `inside`, by plain integer ops that TFLite has too."""
        values = tf.concat([text.flat_values, [0]], axis=0)  # never empty
        first = tf.cast(text.row_starts(), tf.int32) + self.cut_off(text, length)
        return tf.gather(values, tf.where(inside, first[:, tf.newaxis] + offset, 0))
