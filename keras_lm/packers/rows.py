"""What a row is made of. Shapes: B batch, C rows an example, S sequence, W words."""

import dataclasses

import tensorflow as tf
from keras import ops

LOWEST = -1e9  # the logit of a missing choice: finite, but below all others
# The roles, the first that a tokenizer has, of special tokens that it spells otherwise.
BEGINS, ENDS = ("cls", "bos"), ("sep", "eos")
ROLES = {"[CLS]": BEGINS, "<cls>": BEGINS, "<s>": BEGINS}
ROLES |= {"[SEP]": ENDS, "<sep>": ENDS, "</s>": ("eos", "sep")}


@dataclasses.dataclass(frozen=True)
class Template:
    """A model's special tokens around one text and around a pair.

    A template is a string of pieces, `piece:segment`, separated by spaces. `$A` and `$B` are the
    texts, each needed once; anything else is a special token. Where a tokenizer spells it in
    another way, `[CLS]` and `<s>` are its cls or bos token, `[SEP]` and `</s>` its sep or eos
    token.

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
            found = [piece for piece, _ in self.pieces(name) if piece.startswith("$")]
            if sorted(found) != texts:
                raise ValueError(f"{name}={getattr(self, name)!r} must hold {texts}, each once.")
        if self.padding_side not in ("right", "left"):
            raise ValueError(f"padding_side={self.padding_side!r}: use 'right' or 'left'.")

    @property
    def special_tokens(self):
        pieces = [piece for name in ("pair", "single") for piece, _ in self.pieces(name)]
        return list(dict.fromkeys(piece for piece in pieces if not piece.startswith("$")))

    def pieces(self, name):
        """Return the pieces of `"single"` or `"pair"` as a list of (text, segment id)."""
        pieces = []
        for piece in getattr(self, name).split():
            text, _, segment = piece.rpartition(":")
            if not text or not segment.isdigit():
                raise ValueError(f"{name}: the piece {piece!r} is not of the form 'token:segment'.")
            pieces.append((text, int(segment)))
        return pieces

    def ids(self, name, tokenizer):
        """Return `pieces` with a tokenizer's ids in place of the special tokens.

        Raises:
            ValueError: if the tokenizer has no such token.
        """
        return [
            (piece if piece.startswith("$") else _special_id(piece, tokenizer), segment)
            for piece, segment in self.pieces(name)
        ]

    def for_tokenizer(self, tokenizer):
        """Return the template, with the special tokens that a tokenizer states if it does."""
        stated = getattr(tokenizer, "template", None)
        if stated is None:
            return self
        return dataclasses.replace(self, single=stated[0], pair=stated[1])

    def within(self, num_segments):
        """Return the template for a model with so many segments: its last one for those beyond."""
        last = max(num_segments - 1, 0)

        def limited(name):
            return " ".join(f"{piece}:{min(i, last)}" for piece, i in self.pieces(name))

        return dataclasses.replace(self, single=limited("single"), pair=limited("pair"))


def _special_id(token, tokenizer):
    known = tokenizer.special_tokens
    if token not in known.values():
        token = next((known[role] for role in ROLES.get(token, ()) if role in known), token)
    return tokenizer.token_to_id(token)


class Texts:
    """A text, or a pair of texts, makes one row.

    Its attributes are the names of all columns of raw text, in the order of a tuple (`names`), of
    the `required` ones, and of those whose entries are lists of strings (`lists`).

    Args:
        text_pair: bool. Whether there may be pairs.
        takes_words: bool. Whether texts may come as lists of words, if the tokenizer splits texts
            into words only.
    """

    names = ("text", "text_pair")
    required = ("text",)
    lists = ()
    # Of a column that is no text: what a request may hold in its place.
    samples = {}
    # The task with several rows per example, (B, C, S), for errors; None for one row.
    several_for = None

    def __init__(self, text_pair=True, takes_words=False):
        if not text_pair:
            self.names = self.required
        self.word_names = self.names  # which may hold lists of words, if texts may
        self.takes_words = takes_words

    def takes_words_of(self, tokenizer):
        return self.takes_words and hasattr(tokenizer, "tokenize_words")

    def pack(self, packer, columns, tokenize=None):
        names = [name for name in self.names if name in columns]
        return packer.pack(**{name: packer.ids(columns[name], tokenize) for name in names})

    def join(self, logits, inputs):
        """Combine the logits of an example's rows, (B, C, classes), into the example's."""
        raise NotImplementedError(f"{type(self).__name__} has one row an example.")


class BothOrders(Texts):
    """A pair makes two rows, one in each order; their logits are added.

    Source: GPT, "Improving Language Understanding by Generative Pre-Training", section 3.3.
    """

    several_for = "symmetric=True"

    def pack(self, packer, columns, tokenize=None):
        if "text_pair" not in columns:
            raise ValueError("symmetric=True reads pairs, and x has single texts: pass a tuple.")
        first, second = (packer.ids(columns[name], tokenize) for name in self.names)
        packed = packer.pack(text=first, text_pair=second)
        swapped = packer.pack(text=second, text_pair=first)
        return {name: tf.stack([packed[name], swapped[name]], axis=1) for name in packed}

    def join(self, logits, inputs):
        return ops.sum(logits, axis=1)


class Choices(Texts):
    """A text makes a row with each of its choices; empty choices are padding."""

    names = required = ("text", "choices")
    lists = ("choices",)
    several_for = "MultipleChoice"

    def pack(self, packer, columns, tokenize=None):
        choices = columns["choices"]
        if isinstance(choices, tf.RaggedTensor):
            choices = choices.to_tensor("")
        if choices.shape.rank != 2:
            raise ValueError(
                f"choices has the shape {choices.shape}: it must be (B, C), with the choices of a "
                "text in a row."
            )
        shape = tf.shape(choices)  # B, C
        # Strings and not their ids are repeated: LiteRT has no gather of ragged rows.
        rows = tf.range(tf.size(choices)) // tf.maximum(shape[1], 1)
        texts = tf.gather(columns["text"], rows)
        packed = packer.pack(
            text=packer.ids(texts, tokenize),
            text_pair=packer.ids(tf.reshape(choices, [-1]), tokenize),
        )
        packed = {
            name: tf.reshape(value, tf.concat([shape, tf.shape(value)[1:]], axis=0))
            for name, value in packed.items()
        }
        is_choice = tf.cast(tf.not_equal(choices, ""), tf.int32)
        packed["padding_mask"] *= tf.expand_dims(is_choice, axis=2)
        return packed

    def join(self, logits, inputs):
        logits = logits[:, :, 0]  # (B, C)
        if "padding_mask" in inputs:
            logits = ops.where(ops.any(inputs["padding_mask"] > 0, axis=2), logits, LOWEST)
        return logits
