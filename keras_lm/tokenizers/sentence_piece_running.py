"""How a SentencePiece model's file becomes the one that TF Text's operations run."""

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import sentence_piece_model as files
from keras_lm.tokenizers.sentence_piece_model import BYTE_PIECE
from keras_lm.tokenizers.sentence_piece_normalizer import compose, shorten_unknown


def outer_space(normalizer, collapse_whitespace):
    """Return a pattern of the spaces around text that the model adds."""
    if normalizer.remove_extra_whitespaces or collapse_whitespace:
        return "^ +| +$"
    return "^ " if normalizer.add_dummy_prefix else "^$"


def is_fast(proto):
    """Whether TF Text's fast operation is right for a model.

    It only knows unigram models, and takes tabs and ends of lines for spaces.
    """
    spec = proto.trainer_spec
    if spec.model_type != files.UNIGRAM or spec.byte_fallback:
        return False
    return not any(letter in piece.piece for piece in proto.pieces for letter in "\t\n\r")


def prepared_model(proto, preparation, special):
    """Return the model to run: it prepares text, and never returns special tokens."""
    prepared = files.Model()
    prepared.CopyFrom(proto)
    normalizer = prepared.normalizer_spec
    if preparation:
        normalizer.precompiled_charsmap = compose(normalizer.precompiled_charsmap, preparation)
    if preparation.collapse_whitespace:
        normalizer.remove_extra_whitespaces = True
    for i, piece in enumerate(prepared.pieces):
        if piece.type == files.UNKNOWN:
            # The fast operation reads this number, which other tools may leave wrong.
            prepared.trainer_spec.unk_id = i
        elif piece.piece in special or (
            # (The model never sees what preparation changes.)
            piece.type == files.USER_DEFINED and preparation(piece.piece) != piece.piece
        ):
            piece.type = files.CONTROL
            if len(piece.piece) == 1:
                # A model of byte pairs fails on a character that is one: no text has NUL after it.
                piece.piece += "\0"
    return prepared


def take_reference_rules(model, preparation):
    """Change a parsed model so that the fast operation agrees with the reference."""
    kept = [p for p in model.pieces if p.type == files.USER_DEFINED]
    for piece in kept:
        # Whatever the file says: another score would also change how later sums are rounded.
        piece.score = 0.1 * (len(piece.piece.encode()) - 1)
    known = frozenset().union(*(piece.piece for piece in model.pieces))
    # (Twice because of `` and '', which preparation changes as a whole.)
    texts = {p.piece for p in kept if preparation(2 * p.piece) == 2 * p.piece}
    model.normalizer_spec.precompiled_charsmap = shorten_unknown(
        model.normalizer_spec.precompiled_charsmap,
        known,
        frozenset(text for text in texts if text and "\0" not in text),
    )


def bytes_of_pieces(pieces):
    """Replace those of (T,) pieces that stand for a byte by that byte."""
    places = tf.where(tf.strings.regex_full_match(pieces, BYTE_PIECE))
    digits = tf.strings.substr(tf.gather_nd(pieces, places), 3, 2)
    digits = tf.cast(tf.io.decode_raw(digits, tf.uint8, fixed_length=2), tf.int32) - ord("0")
    digits = tf.where(digits > 9, digits - (ord("A") - ord("9") - 1), digits)  # (found, 2)
    table = tf.constant([bytes([i]) for i in range(256)])
    return tf.tensor_scatter_nd_update(
        pieces, places, tf.gather(table, digits[:, 0] * 16 + digits[:, 1])
    )
