"""The special tokens around a text or a pair, and their ids in a vocabulary."""

import dataclasses
from typing import Self

from keras_lm.tokenizers.tokenizer import Tokenizer

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
