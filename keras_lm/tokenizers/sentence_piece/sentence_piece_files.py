"""The files of SentencePiece models: reading and checking them."""

import os

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from keras_lm.tokenizers.sentence_piece.sentence_piece_model import check_pieces
from keras_lm.tokenizers.sentence_piece.sentence_piece_normalizer import check_charsmap

ROLES = ("cls", "sep", "pad", "mask", "bos", "eos")

SPACE = "▁"  # stands for a space in pieces
BYTE_PIECE = "<0x[0-9A-F]{2}>"  # stands for a byte of a character that has no piece

# Types of pieces, and of models
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE, WORD, CHARACTER = range(1, 5)


def _message_class():
    """Return the class of a model file: the fields that matter; others are kept unseen."""
    # Described here because the generated code in `sentencepiece` runs with newest protobuf only.
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sentence_piece.proto", syntax="proto2")

    def add(name, **fields):
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


def read_model(model):
    """Return the bytes of a model, given these or its path."""
    if isinstance(model, (str, os.PathLike)):
        if not os.path.isfile(model):
            raise FileNotFoundError(
                f"`model` names the file {os.fspath(model)!r}, which does not exist; give the path "
                "of a SentencePiece model such as spiece.model, or its bytes."
            )
        with open(model, "rb") as file:
            return file.read()
    # (Of a number, Python would make that many zeros.)
    if not isinstance(model, (bytes, bytearray, memoryview)):
        raise ValueError(
            f"`model` is a {type(model).__name__}; pass the path of a SentencePiece model such as "
            "spiece.model, or its bytes."
        )
    return bytes(model)


def parse_model(data, name="`model`"):
    """Return the parsed model; ValueError if it is none, is cut off or cannot be run here."""
    try:
        model = Model.FromString(data)
    except message.DecodeError:
        model = Model()
    if not model.pieces or not any(piece.piece for piece in model.pieces):
        raise ValueError(
            f"{name} ({len(data)} bytes) is not a SentencePiece model, or is cut off. Copy the "
            "published file again, in binary form."
        )
    check_pieces(model.pieces, name)
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
