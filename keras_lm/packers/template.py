"""Templates of special tokens."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Template:
    """A model's special tokens around one text and around a pair.

    A template is a string of pieces, `piece:segment`, separated by spaces. `$A` and `$B` are the
    texts, anything else is a special token.

    Args:
        single: str, for one text.
        pair: str, for two.
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
        """The special tokens in the template, each once."""
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
