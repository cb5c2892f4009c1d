"""Byte-pair encoding by TF Text's SentencePiece operation, with a model made from a list of merges.

SentencePiece's BPE joins the two neighbours whose concatenation is the piece with the highest
score; BPE as GPT-1 and GPT-2 know it joins the pair with the lowest rank. Both agree if the model
holds exactly the entries that BPE, given an entry alone, puts together from its symbols, each with
the rank of the last merge as its negative score:

- Whatever BPE makes in a text it made from the symbols below it alone, since merges across its ends
  would have used them up. So an entry that does not come out of its own symbols never comes out.
- If two neighbours spell such an entry, the merges so far are the first ones of making that entry
  alone, and the only one that is left is that of these two.
"""

import struct

import tensorflow as tf

from keras_lm.tokenizers.sentence_piece.sentence_piece_model import SentencePieceModel

NORMAL, UNKNOWN, CONTROL = 1, 2, 3  # types of pieces
BPE = 2  # type of a model


class PieceMerger(tf.Module):
    """Splits words into pieces by BPE, in the graph.

    `pieces` has each id's spelling and score, or None for an id that words never turn into. With
    `byte_characters`, pieces are spelled in these, else in the characters of words.
    """

    def __init__(self, pieces, byte_characters=None, name=None):
        super().__init__(name=name)
        # The operation writes a line to the log if there is no map.
        model = _model(pieces, byte_characters or {0x20: " "})
        with tf.init_scope():
            self._model = SentencePieceModel(model)

    def __call__(self, words):
        """Return the ids of (B,) words as a ragged (B, S) int32 tensor."""
        return self._model.tokenize(words)


# === SentencePiece's file format ===


def _model(pieces, byte_characters):
    """Return a serialized `ModelProto`: 1 pieces, 2 trainer_spec, 3 normalizer_spec."""
    model = []
    for i, piece in enumerate(pieces):
        # Names of control pieces only have to differ from all others; no word holds U+FDEF.
        spelling, score = piece or (f"\ufdef{i}", 0.0)
        model.append(_message(1, _piece(spelling, score, NORMAL if piece else CONTROL)))
    model.append(_message(1, _piece("\ufdef", 0.0, UNKNOWN)))
    model.append(_message(2, _integer(3, BPE)))
    normalizer = _message(2, _byte_map(byte_characters))
    # No space in front, no spaces dropped, none replaced.
    normalizer += _integer(3, 0) + _integer(4, 0) + _integer(5, 0)
    model.append(_message(3, normalizer))
    return b"".join(model)


def _piece(spelling, score, kind):
    return _message(1, spelling.encode()) + b"\x15" + struct.pack("<f", score) + _integer(3, kind)


def _integer(field, value):
    return _varint(field << 3) + _varint(value)


def _message(field, data):
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _varint(value):
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def _byte_map(byte_characters):
    """Return a `precompiled_charsmap`: a double-array trie of bytes, and what they turn into.

    A node of the trie has 32 bits: its label in bits 0 to 7, whether a value follows in bit 8, and
    the distance (by exclusive or) to its children from bit 10. Bit 31 marks values. The root is
    node 0, its children are nodes 256 to 511, and their values nodes 512 to 767.
    """
    nodes = [0] * 768
    nodes[0] = 256 << 10
    texts = b""
    for byte, character in byte_characters.items():
        nodes[256 + byte] = (256 ^ 512) << 10 | 1 << 8 | byte
        nodes[512 + byte] = 1 << 31 | len(texts)
        texts += character.encode() + b"\0"
    trie = struct.pack("<768I", *nodes)
    return struct.pack("<I", len(trie)) + trie + texts
