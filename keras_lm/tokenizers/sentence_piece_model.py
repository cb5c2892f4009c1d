"""Files of SentencePiece models, models of merges, and models as a resource of the graph."""

import hashlib
import itertools
import math
import os
import struct

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from keras_lm.tensorflow import gen_sentencepiece_tokenizer as operations
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.sentence_piece_normalizer import check_charsmap
from keras_lm.tokenizers.vocabulary import check_file

# More than any published vocabulary has; TF Text is made for no more.
LONGEST_PIECE, MOST_PIECES = 1000, 2**20

ROLES = ("cls", "sep", "pad", "mask", "bos", "eos")

SPACE = "▁"  # stands for a space in pieces
# Pieces that are words of their own, although they have no space, in the code of ALBERT and XLNet.
MARKS = set('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
BYTE_PIECE = "<0x[0-9A-F]{2}>"  # stands for a byte of a character without a piece

# Types of pieces, and of models
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE, WORD, CHARACTER = range(1, 5)


# === Files ===


def _message_class():
    """Return the class of a model file, with the fields that matter; it keeps all others."""
    # Defined here because the generated code in `sentencepiece` needs the newest protobuf.
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sentence_piece.proto", syntax="proto2")

    def add(name, /, **fields):
        described = file.message_type.add(name=name)
        for name, (number, kind, *default) in fields.items():
            one = described.field.add(name=name, number=number, label=field.LABEL_OPTIONAL)
            if isinstance(kind, str):
                one.type, one.type_name = field.TYPE_MESSAGE, f".{kind}"
                if name == "pieces":
                    one.label = field.LABEL_REPEATED
            else:
                one.type = kind
            if default:
                one.default_value = default[0]

    whole, yes_no = field.TYPE_INT32, field.TYPE_BOOL
    add("Piece", piece=(1, field.TYPE_STRING), score=(2, field.TYPE_FLOAT), type=(3, whole, "1"))
    add(
        "TrainerSpec",
        model_type=(3, whole, "1"),
        treat_whitespace_as_suffix=(24, yes_no, "false"),
        byte_fallback=(35, yes_no, "false"),
        unk_id=(40, whole, "0"),
    )
    add(
        "NormalizerSpec",
        name=(1, field.TYPE_STRING),
        precompiled_charsmap=(2, field.TYPE_BYTES),
        add_dummy_prefix=(3, yes_no, "true"),
        remove_extra_whitespaces=(4, yes_no, "true"),
        escape_whitespaces=(5, yes_no, "true"),
    )
    add(
        "Model",
        pieces=(1, "Piece"),
        trainer_spec=(2, "TrainerSpec"),
        normalizer_spec=(3, "NormalizerSpec"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Model"))


Model = _message_class()

# The name of a normalizer that adds no space before texts, joins spaces, and leaves the one that a
# text begins with, as those of a tokenizer.json do; the reference drops it.
OWN_SPACE = "own first space"


def read_model(model):
    """Return the bytes of a model, given these or its path."""
    if isinstance(model, (str, os.PathLike)):
        remedy = "give the path of a SentencePiece model such as spiece.model, or its bytes."
        check_file("model", model, remedy)
        with open(model, "rb") as file:
            return file.read()
    # (Python would turn a number into that many zeros.)
    if not isinstance(model, (bytes, bytearray, memoryview)):
        raise ValueError(
            f"`model` is a {type(model).__name__}; pass the path of a SentencePiece model such as "
            "spiece.model, or its bytes."
        )
    return bytes(model)


def parse_model(data, name="`model`"):
    """Return the parsed model; ValueError if it is damaged, cut off or cannot be run here."""
    try:
        model = Model.FromString(data)
    except message.DecodeError:
        model = Model()
    if not model.pieces or not any(piece.piece for piece in model.pieces):
        raise ValueError(
            f"{name} ({len(data)} bytes) is not a SentencePiece model, or is cut off. Copy the "
            "published file again, in binary form."
        )
    _check_pieces(model.pieces, name)
    if not model.HasField("trainer_spec") or not model.HasField("normalizer_spec"):
        raise ValueError(
            f"{name} ends after {len(model.pieces)} pieces and lacks its settings: it is cut off. "
            "Copy the published file again."
        )
    unknown = [piece.piece for piece in model.pieces if piece.type == UNKNOWN]
    if len(unknown) != 1:
        raise ValueError(
            f"{name} has {len(unknown)} unknown tokens, where SentencePiece needs one; train it "
            "without unk_id=-1."
        )
    if (
        model.trainer_spec.treat_whitespace_as_suffix
        or not model.normalizer_spec.escape_whitespaces
    ):
        raise ValueError(
            f"{name} puts white space at the end of pieces, or leaves it unescaped, which "
            "SentencePieceTokenizer does not support. Tokenize such text outside of the graph."
        )
    check_charsmap(model.normalizer_spec.precompiled_charsmap)
    return model


def _check_pieces(pieces, name):
    """Raise ValueError if a model has pieces that no published one has."""
    if len(pieces) > MOST_PIECES:
        raise ValueError(
            f"{name} has {len(pieces)} pieces, and the limit is {MOST_PIECES}: this is not a "
            "published model. Copy the file again."
        )
    try:
        texts, scores = zip(*((piece.piece, piece.score) for piece in pieces))
        # (A character has at most four bytes, and a sum is finite only if all numbers are.)
        is_usual = all(texts) and 4 * max(map(len, texts)) <= LONGEST_PIECE
        if is_usual and "".join(texts) and math.isfinite(math.fsum(scores)):
            return
    except (TypeError, OverflowError, ValueError):
        pass  # the first that is wrong is named
    for number, piece in enumerate(pieces):
        if not isinstance(piece.piece, str):  # protobuf leaves what is not UTF-8
            raise ValueError(
                f"{name}: piece {number} is {piece.piece[:40]!r}, which is not UTF-8. Copy the "
                "published file again, in binary form."
            )
        size = len(piece.piece.encode("utf-8", "surrogatepass"))
        if not 0 < size <= LONGEST_PIECE or not math.isfinite(piece.score):
            raise ValueError(
                f"{name}: piece {number} has {size} bytes and the score {piece.score}. Pieces have "
                f"1 to {LONGEST_PIECE} bytes and a finite score: copy the published file again."
            )


# === Models of a list of merges ===

# A few entries that no merge makes are usual (RoBERTa has three); more are a sign of damage.
MAX_UNMADE = 16


def _byte_characters():
    """Return GPT-2's character for each byte: its own if visible, otherwise one from U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {b: chr(b) for b in seen} | {b: chr(0x100 + i) for i, b in enumerate(unseen)}


BYTES = _byte_characters()
_OF_CHARACTER = {character: byte for byte, character in BYTES.items()}


def spelling(entry):
    """Return the bytes that an entry of byte-level BPE stands for."""
    try:
        return bytes(_OF_CHARACTER[character] for character in entry)
    except KeyError as error:
        raise ValueError(
            f"`vocabulary` holds {entry!r}, and {error.args[0]!r} stands for no byte: this is not "
            "a byte-level BPE, or the entry has to be named as a special or an added token."
        ) from None


def check_merges(merges, entries, whole, end=""):
    """Return a dict from pair to rank; ValueError if merges are damaged or do not fit the entries.

    Entries in `whole` need no merge, nor do single symbols, which may end with `end`.
    """
    ranks, known = ranks_of(merges), set(entries)
    parts, made = set(itertools.chain.from_iterable(ranks)), set(map("".join, ranks))
    are_pairs = all(len(pair) == 2 for pair in ranks) and "" not in parts
    if not are_pairs or len(ranks) < len(merges) or not known.issuperset(parts | made):
        _refuse_merges(merges, known)
    unmade = [t for t in entries if t not in made and t not in whole and _is_long(t, end)]
    if len(unmade) > MAX_UNMADE:
        raise ValueError(
            f"`merges` make none of {len(unmade)} of the vocabulary's {len(entries)} entries, such "
            f"as {unmade[0]!r}: they are cut off, or another vocabulary's. Take both files from "
            "the same checkpoint."
        )
    return ranks


def ranks_of(merges):
    """Return a dict from pair to rank."""
    return {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}


def _refuse_merges(merges, known):
    """Raise the ValueError of `check_merges` for the first merge that is wrong."""
    ranks = {}
    for rank, merge in enumerate(merges):
        pair = tuple(merge.split(" "))
        if len(pair) != 2 or not all(pair):
            raise ValueError(
                f"`merges` holds {merge!r} as number {rank + 1}, which is not a pair "
                "separated by a space. The file may be cut off: copy or download it again."
            )
        if pair in ranks:
            raise ValueError(
                f"`merges` holds {merge!r} twice, as numbers {ranks[pair] + 1} and {rank + 1}; "
                "remove one of them."
            )
        ranks[pair] = rank
        absent = next((t for t in (*pair, "".join(pair)) if t not in known), None)
        if absent is not None:
            raise ValueError(
                f"`merges` joins {pair[0]!r} and {pair[1]!r} as number {rank + 1}, but {absent!r} "
                f"is not in the vocabulary of {len(known)} entries: the merges are another "
                "vocabulary's. Take both files from the same checkpoint."
            )


def last_ranks(words, ranks):
    """Return the rank of the last merge of each entry that BPE builds, -1 for single symbols."""
    entry_ranks = {}
    none = len(ranks)
    for entry, word in words.items():
        rank, word = -1, list(word)
        pairs = [ranks.get(pair, none) for pair in itertools.pairwise(word)]  # their ranks
        while pairs and (rank := min(pairs)) != none:
            place = pairs.index(rank)
            word[place : place + 2] = [word[place] + word[place + 1]]
            del pairs[place]
            if place:
                pairs[place - 1] = ranks.get((word[place - 1], word[place]), none)
            if place < len(pairs):
                pairs[place] = ranks.get((word[place], word[place + 1]), none)
        if len(word) == 1:
            entry_ranks[entry] = rank
    return entry_ranks


def _is_long(entry, end):
    return len(entry.removesuffix(end) if end else entry) > 1


def merging_model(pieces, byte_characters=None):
    """Return the model of BPE as GPT-1 and GPT-2 know it, bytes.

    SentencePiece's BPE joins the two neighbours whose concatenation is the piece with the highest
    score; theirs joins the pair with the lowest rank. Both agree if the pieces are exactly the
    entries that BPE builds from their own symbols, each with the rank of its last merge as its
    negative score:

    - What BPE builds in a text, it built from the symbols below it alone, since merges across its
      ends would have used them up. So an entry that is not built from its own symbols never occurs.
    - If two neighbours spell such an entry, the merges so far are the first ones of building that
      entry alone, and the only one left is that of these two.

    Args:
        pieces: list of a (spelling, score) for each id, or None for an id that no word becomes.
        byte_characters: dict from byte to the character that pieces spell it with. None if pieces
            are spelled in the characters of words.
    """
    model = Model()
    for i, piece in enumerate(pieces):
        if piece is None:  # only has to differ from all others: no word has U+FDEF
            model.pieces.add(piece=f"\ufdef{i}", score=0.0, type=CONTROL)
        else:
            model.pieces.add(piece=piece[0], score=piece[1], type=NORMAL)
    model.pieces.add(piece="\ufdef", score=0.0, type=UNKNOWN)
    model.trainer_spec.model_type = BPE
    spec = model.normalizer_spec
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = False
    # The operation writes a line to the log if there is no table.
    spec.precompiled_charsmap = _byte_table(byte_characters or {0x20: " "})
    return model.SerializeToString()


def _byte_table(byte_characters):
    """Return a `precompiled_charsmap`: a double-array trie of bytes, then what they become.

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


# === Models in the graph: operations of TF Text. Shapes: B texts, S ids, T pieces ===

PLAIN = {"nbest_size": 0, "alpha": 1.0, "add_bos": False, "add_eos": False, "reverse": False}


class SentencePieceModel(tf.saved_model.experimental.TrackableResource):
    """A serialized model as a resource for SentencePiece's operations.

    TensorFlow drops the resource of TF Text's own class whenever its cache of operations is
    cleared, as by `tf.random.set_seed`, and the tokenizer fails from then on. This one lives as
    long as the process. Its name depends on the model, so that SavedModels share only equal ones.
    """

    def __init__(self, model):
        super().__init__()
        self._bytes = model
        _ = self.resource_handle  # creates it

    def _create_resource(self):
        name = "keras_lm_" + hashlib.sha256(self._bytes).hexdigest()
        return operations.sentencepiece_op(model=self._bytes, shared_name=name)

    def tokenize(self, text):
        """Return the ids of (B,) texts as a ragged (B, S) int32 tensor."""
        ids, splits = operations.sentencepiece_tokenize_op(
            self.resource_handle, text, out_type=tf.int32, **PLAIN
        )
        return tf.RaggedTensor.from_row_splits(ids, tf.cast(splits, tf.int64), validate=False)

    def pieces_with_offsets(self, text):
        """Return the (T,) pieces of (B,) texts, and the bytes where they begin and end."""
        return self.rows_with_offsets(text)[1:]

    def rows_with_offsets(self, text):
        """Return the row splits (B + 1,), and what `pieces_with_offsets` does."""
        pieces, splits, starts, ends = operations.sentencepiece_tokenize_with_offsets_op(
            self.resource_handle, text, out_type=tf.string, **PLAIN
        )
        return splits, pieces, tf.cast(starts, tf.int64), tf.cast(ends, tf.int64)

    def string_to_id(self, pieces):
        return operations.sentencepiece_string_to_id_op(self.resource_handle, pieces)
