"""What is RoBERTa's own: positions, heads, SentencePiece for XLM-R, fairseq's names."""

import argparse
import pickle
import shutil
import zipfile

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.converters import open_checkpoint
from keras_lm.models import Backbone, RobertaBackbone
from keras_lm.models.roberta import CountedPositionEmbedding
from keras_lm.tokenizers import BytePairTokenizer, SentencePieceTokenizer
from keras_lm.tokenizers.sentence_piece_files import CONTROL, UNKNOWN, Model

TINY = {
    "vocabulary_size": 9,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 6,
    "intermediate_dim": 8,
    "max_sequence_length": 8,
}


def test_positions_count_real_tokens():
    layer = CountedPositionEmbedding(max_sequence_length=3, hidden_dim=2)
    mask = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, 0]], "int32")
    rows = np.array([[2, 3, 4], [1, 2, 3], [2, 1, 3], [1, 1, 1]])
    np.testing.assert_array_equal(layer(mask), layer.embeddings.numpy()[rows])
    assert layer.embeddings.shape == (5, 2)


def test_a_classifier_has_a_dense_layer_of_its_own():
    task = tasks.TextClassifier(RobertaBackbone(**TINY, use_pooler=True), num_classes=3)
    inputs = {"token_ids": [[3, 4, 5]]}
    outputs = task.backbone(inputs)
    assert set(outputs) == {"sequence_output", "pooled_output"}
    kernel, bias, out_kernel, out_bias = (w.numpy() for w in task.head.trainable_weights)
    first = outputs["sequence_output"].numpy()[:, 0]
    expected = np.tanh(first @ kernel + bias) @ out_kernel + out_bias
    np.testing.assert_allclose(task(inputs), expected, atol=1e-5)
    # Choices are told apart by the pooler, where there is one.
    choice = tasks.MultipleChoice(task.backbone)
    assert [w.path for w in choice.head.trainable_weights] == [
        "classifier/logits/kernel",
        "classifier/logits/bias",
    ]


@pytest.mark.filterwarnings("ignore:RobertaBackbone.from_preset")
def test_another_padding_id_moves_the_positions(variant):
    folder = variant("roberta", {"pad_token_id": 3, "type_vocab_size": ...})
    with pytest.raises(ValueError, match="segment_embedding"):  # two of them, if nothing is said
        Backbone.from_preset(folder)
    backbone = Backbone.from_preset(folder, num_segments=1)
    assert backbone.config["first_position"] == 4
    assert backbone.max_sequence_length == 34


@pytest.mark.parametrize(
    "key, value", [("position_embedding_type", "relative_key"), ("is_decoder", True)]
)
def test_what_the_model_does_not_know_is_an_error(variant, key, value):
    with pytest.raises(ValueError, match=key):
        Backbone.from_preset(variant("roberta", {key: value}))


def test_camembert_is_refused(variant):
    with pytest.raises(ValueError, match="camembert"):
        Backbone.from_preset(variant("roberta", {"model_type": "camembert"}))


@pytest.fixture
def sentence_piece(goldens):
    """The bytes of a model as XLM-R's begins."""
    path = goldens("tokenizers") / "sentencepiece-t5" / "spiece.model"
    model = Model.FromString(path.read_bytes())
    for piece, name in zip(model.pieces, ("<unk>", "<s>", "</s>")):
        piece.piece, piece.type = name, UNKNOWN if name == "<unk>" else CONTROL
    return model.SerializeToString(), len(model.pieces) + 2


@pytest.mark.parametrize("model_type", ["xlm-roberta", "roberta"])
def test_the_files_decide_the_tokenizer(
    goldens, variant, sentence_piece, tmp_path, model_type, assert_equal
):
    data, rows = sentence_piece
    embedding = np.random.default_rng(0).normal(size=(rows, 36)).astype("float32")
    folder = variant(
        "roberta-seqcls",
        {"model_type": model_type, "vocab_size": rows},
        more={"roberta.embeddings.word_embeddings.weight": embedding},
    )
    (folder / "sentencepiece.bpe.model").write_bytes(data)
    task = tasks.TextClassifier.from_preset(folder)
    assert isinstance(task.tokenizer, SentencePieceTokenizer)
    packed = task.preprocess({"text": ["a b"], "text_pair": ["c"]})
    pieces = task.tokenizer.tokens(packed["token_ids"][0]).numpy().tolist()
    assert [pieces.index(b"<s>"), pieces.count(b"</s>")] == [0, 3]
    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    assert_equal(again.predict(["a b"], verbose=0), task.predict(["a b"], verbose=0))

    (folder / "sentencepiece.bpe.model").unlink()
    for path in (goldens("tokenizers") / "bytebpe-roberta").glob("*.*"):
        shutil.copy(path, folder)
    task = tasks.TextClassifier.from_preset(folder)
    assert isinstance(task.tokenizer, BytePairTokenizer)


# === fairseq ===

FAIRSEQ = [  # Hugging Face's names → fairseq's
    ("roberta.embeddings.word_embeddings", "{}embed_tokens"),
    ("roberta.embeddings.position_embeddings", "{}embed_positions"),
    ("roberta.embeddings.LayerNorm", "{}emb_layer_norm"),
    ("roberta.encoder.layer", "{}layers"),
    ("attention.self.query", "self_attn.q_proj"),
    ("attention.self.key", "self_attn.k_proj"),
    ("attention.self.value", "self_attn.v_proj"),
    ("attention.output.dense", "self_attn.out_proj"),
    ("attention.output.LayerNorm", "self_attn_layer_norm"),
    ("intermediate.dense", "fc1"),
    ("output.dense", "fc2"),
    ("output.LayerNorm", "final_layer_norm"),
    ("classifier.", "classification_heads.mnli."),
    ("lm_head.", "{}lm_head."),
]


def fairseq_names(name, prefix):
    for theirs, ours in FAIRSEQ:
        where = prefix.split(".")[0] + "." if "lm_head" in ours else prefix
        name = name.replace(theirs, ours.format(where))
    return name


def data(value):
    """Instructions of the pickle machine that push plain data."""
    return pickle.dumps(value, 2)[2:-1]


def write_torch(path, arrays, args):
    """Write what `torch.save({"model": arrays, "args": args})` does."""
    program = b"\x80\x02}" + data("args") + data(args) + b"s" + data("model") + b"}"
    with zipfile.ZipFile(path, "w") as archive:
        for i, (name, array) in enumerate(arrays.items()):
            strides = tuple(stride // 4 for stride in np.ascontiguousarray(array).strides)
            storage = b"(" + data("storage") + b"ctorch\nFloatStorage\n" + data(str(i))
            storage += data("cpu") + data(array.size) + b"tQ"
            rebuilt = storage + data(0) + data(array.shape) + data(strides) + data(False)
            rebuilt = b"ctorch._utils\n_rebuild_tensor_v2\n(" + rebuilt + data(None) + b"tR"
            program += data(name) + rebuilt + b"s"
            archive.writestr(f"x/data/{i}", array.tobytes())
        archive.writestr("x/data.pkl", program + b"s.")


@pytest.mark.parametrize("prefix", ["decoder.sentence_encoder.", "encoder.sentence_encoder."])
@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("folder", ["roberta", "roberta-seqcls"])
def test_fairseq(goldens, tmp_path, folder, prefix, is_fused, assert_equal, hidden_states):
    tensors = open_checkpoint(goldens(folder)).tensors
    arrays = {fairseq_names(name, prefix): np.asarray(tensors[name]) for name in tensors}
    # There are no segments: what the one has is part of every token's vector.
    segment = arrays.pop("roberta.embeddings.token_type_embeddings.weight")
    arrays[f"{prefix}embed_tokens.weight"] = arrays[f"{prefix}embed_tokens.weight"] + segment
    if is_fused:
        for i in range(2):
            for leaf in ("weight", "bias"):
                place = f"{prefix}layers.{i}.self_attn."
                parts = [arrays.pop(f"{place}{part}_proj.{leaf}") for part in "qkv"]
                arrays[f"{place}in_proj_{leaf}"] = np.concatenate(parts)
    arrays |= {
        f"{prefix.split('.')[0]}.lm_head.weight": arrays[f"{prefix}embed_tokens.weight"],
        f"{prefix}version": np.zeros(1, "float32"),
    }
    args = argparse.Namespace(arch="roberta", encoder_attention_heads=3, activation_fn="gelu")
    write_torch(tmp_path / "model.pt", arrays, args)
    with np.load(goldens(folder) / "expected.npz") as expected:
        inputs = {
            "token_ids": expected["in.input_ids"].astype("int32"),
            "padding_mask": expected["in.attention_mask"].astype("int32"),
        }
        if folder == "roberta-seqcls":
            task = tasks.TextClassifier.from_preset(tmp_path)
            assert task.num_classes == 3
            assert_equal(task(inputs), expected["out.logits"])
        else:
            task = tasks.MaskedLM.from_preset(tmp_path, load_weights=False)
            backbone = Backbone.from_preset(tmp_path)
            assert_equal(hidden_states(backbone, inputs), expected["out.hidden_states"])
    assert task.backbone.config["num_segments"] == 0
    assert task.backbone.max_sequence_length == 36


def test_fairseq_with_other_parts_is_refused(tmp_path):
    arrays = {"encoder.lm_head.dense.weight": np.zeros((2, 2), "float32")}
    arrays["encoder.sentence_encoder.layers.0.self_attn.q_proj.weight"] = np.zeros(
        (2, 2), "float32"
    )
    args = argparse.Namespace(arch="roberta", activation_fn="relu")
    write_torch(tmp_path / "model.pt", arrays, args)
    with pytest.raises(ValueError, match="activation_fn='relu'"):
        Backbone.from_preset(tmp_path)
