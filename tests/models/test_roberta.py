"""What is RoBERTa's own: positions, heads, SentencePiece for XLM-R, fairseq's names."""

import argparse
import pathlib
import pickle
import shutil
import zipfile
from importlib.util import find_spec

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.converters import open_checkpoint
from keras_lm.models import Backbone, RobertaBackbone
from keras_lm.models.sizes import transformer_size
from keras_lm.tokenizers import BytePairTokenizer, SentencePieceTokenizer
from keras_lm.tokenizers.sentence_piece_model import Model

TINY = transformer_size(9, 1, 6, 2, 8, max_sequence_length=8)


def test_a_classifier_has_a_dense_layer_of_its_own():
    task = tasks.TextClassifier(RobertaBackbone(**TINY, use_pooler=True), num_classes=3)
    inputs = {"token_ids": [[3, 4, 5]]}
    outputs = task.backbone(inputs)
    assert set(outputs) == {"sequence_output", "pooled_output"}
    kernel, bias, out_kernel, out_bias = (w.numpy() for w in task.head.trainable_weights)
    first = outputs["sequence_output"].numpy()[:, 0]
    expected = np.tanh(first @ kernel + bias) @ out_kernel + out_bias
    np.testing.assert_allclose(task(inputs), expected, atol=1e-5)
    assert "pooler/kernel" not in {w.path for w in task.trainable_weights}
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


def test_a_checkpoint_with_a_pooler_tells_choices_apart_by_it(variant):
    rng = np.random.default_rng(0)
    shapes = {"pooler.dense.weight": (36, 36), "pooler.dense.bias": (36,)}
    pooler = {name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    logits = {"weight": rng.normal(size=(1, 36)).astype("f4"), "bias": np.ones(1, "f4")}
    folder = variant(
        "roberta-seqcls",
        {"architectures": ["RobertaForMultipleChoice"]},
        rename=lambda name: None if name.startswith("classifier") else name,
        more={f"roberta.{name}": array for name, array in pooler.items()}
        | {f"classifier.{leaf}": array for leaf, array in logits.items()},
    )
    task = tasks.Task.from_preset(folder)
    assert type(task) is tasks.MultipleChoice
    ids = np.array([[0, 9, 2], [0, 8, 2]], "int32")
    outputs = task.backbone({"token_ids": ids})
    first = outputs["sequence_output"].numpy()[:, 0]
    pooled = np.tanh(first @ pooler["pooler.dense.weight"].T + pooler["pooler.dense.bias"])
    np.testing.assert_allclose(outputs["pooled_output"], pooled, atol=1e-5)
    expected = pooled @ logits["weight"].T + logits["bias"]
    np.testing.assert_allclose(task({"token_ids": ids[None]}), expected.T, atol=1e-5)


def test_two_segments(variant):
    name = "roberta.embeddings.token_type_embeddings.weight"
    table = np.random.default_rng(0).normal(size=(2, 36)).astype("f4")
    folder = variant("roberta-seqcls", {"type_vocab_size": 2}, more={name: table})
    task = tasks.TextClassifier.from_preset(folder)
    ids = {"token_ids": [[0, 9, 2, 2, 8, 2]]}
    one, two = (task(ids | {"segment_ids": [[0] * 3 + [i] * 3]}) for i in (0, 1))
    np.testing.assert_array_equal(task(ids), one)
    assert np.abs(two - one).max() > 1e-3


@pytest.mark.parametrize(
    "key, value",
    [
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
    ],
)
def test_what_the_model_does_not_know_is_an_error(variant, key, value):
    with pytest.raises(ValueError, match=key):
        Backbone.from_preset(variant("roberta", {key: value}))


def test_camembert_is_refused(variant):
    with pytest.raises(ValueError, match="camembert"):
        Backbone.from_preset(variant("roberta", {"model_type": "camembert"}))


@pytest.mark.eager
@pytest.mark.parametrize("model_type", ["xlm-roberta", "roberta"])
def test_the_files_decide_the_tokenizer(goldens, variant, xlm_roberta_model, tmp_path, model_type):
    data, rows = xlm_roberta_model, len(Model.FromString(xlm_roberta_model).pieces) + 2
    embedding = np.random.default_rng(0).normal(size=(rows, 36)).astype("float32")
    folder = variant(
        "roberta-seqcls",
        {"model_type": model_type, "vocab_size": rows},
        more={"roberta.embeddings.word_embeddings.weight": embedding},
    )
    (folder / "sentencepiece.bpe.model").write_bytes(data)
    task = tasks.TextClassifier.from_preset(folder)
    assert isinstance(task.tokenizer, SentencePieceTokenizer)
    packed = task.preprocess({"text": ["a b"]})
    pieces = task.tokenizer.tokens(packed["token_ids"][0]).numpy().tolist()
    assert [pieces[0], pieces[-1], pieces.count(b"</s>")] == [b"<s>", b"</s>", 1]
    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    assert isinstance(again.tokenizer, SentencePieceTokenizer)
    np.testing.assert_array_equal(again(again.preprocess({"text": ["a b"]})), task(packed))

    (folder / "sentencepiece.bpe.model").unlink()
    for path in (goldens("tokenizers") / "bytebpe-roberta").glob("*.*"):
        shutil.copy(path, folder)
    task = tasks.TextClassifier.from_preset(folder)
    assert isinstance(task.tokenizer, BytePairTokenizer)


@pytest.mark.eager
def test_pairs_have_two_separators_between_them(goldens):
    tokenizer = BytePairTokenizer.from_files(goldens("tokenizers") / "bytebpe-roberta")
    sizes = TINY | {"vocabulary_size": tokenizer.vocabulary_size, "max_sequence_length": 32}
    task = tasks.TextClassifier(RobertaBackbone(**sizes), num_classes=2, tokenizer=tokenizer)
    packed = task.preprocess(
        {"text": tf.constant(["a b", "c"]), "text_pair": tf.constant(["d", ""])}
    )
    pieces = task.tokenizer.tokens(packed["token_ids"]).numpy().tolist()
    ends = [[i for i, piece in enumerate(row) if piece == b"</s>"] for row in pieces]
    assert [row[1] - row[0] for row in ends] == [1, 1]
    assert not np.any(packed["segment_ids"])
    padded = np.asarray(packed["token_ids"])[np.asarray(packed["padding_mask"]) == 0]
    assert set(padded.tolist()) == {1}


# === fairseq ===

# Variable regions as people's genes have them: IGHV3-23 and IGKV1-39.
ANTIBODIES = {
    "vh": "EVQLLESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSA"
    "ISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAEDTAVYYCAK",
    "vl": "DIQMTQSPSSLSASVGDRVTITCRASQSISSYLNWYQQKPGKAPKLLIYA"
    "ASSLQSGVPSRFSGSGSGTDFTLTISSLQPEDFATYYCQQSYSTP",
}
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


# A sum of two embeddings moves the output matrix too, so that the head's logits are others.
@pytest.mark.parametrize(
    "folder, is_fused, prefix",
    [
        ("roberta", True, "decoder.sentence_encoder."),
        ("roberta", False, "encoder.sentence_encoder."),
        ("roberta-seqcls", True, "encoder.sentence_encoder."),
        ("roberta-seqcls", False, "decoder.sentence_encoder."),
    ],
)
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
            task = tasks.MaskedLM.from_preset(tmp_path)
            assert_equal(hidden_states(task.backbone, inputs), expected["out.hidden_states"])
    assert task.backbone.config["num_segments"] == 0
    assert task.backbone.max_sequence_length == 36


def test_fairseq_has_an_order_of_its_own_for_the_ids_of_gpt2(goldens, tmp_path):
    golden = goldens("tokenizers") / "bytebpe-gpt2"
    theirs = BytePairTokenizer.from_files(golden)
    order = np.random.default_rng(0).permutation(theirs.vocabulary_size)
    lines = [f"{number} {count}\n" for count, number in enumerate(order)]
    (tmp_path / "dict.txt").write_text("".join([*lines, "madeupword0000 0\n"]))
    shutil.copy(golden / "vocab.json", tmp_path / "encoder.json")
    shutil.copy(golden / "merges.txt", tmp_path / "vocab.bpe")
    tokenizer = RobertaBackbone.tokenizer_class.from_files(tmp_path)
    texts = ["Hello there, 1990 caf\u00e9s", "", " madeupword0000 <|endoftext|> <mask>"]
    expected = [[int(np.argmax(order == i)) + 4 for i in ids] for ids in theirs(texts).to_list()]
    assert tokenizer(texts).to_list() == expected
    assert tokenizer.detokenize(tokenizer(texts)).numpy().tolist() == [t.encode() for t in texts]
    assert tokenizer.vocabulary[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert tokenizer.special_id("mask") == len(order) + 5 == tokenizer.vocabulary_size - 1


@pytest.mark.parametrize("name", ["vh", pytest.param("vl", marks=pytest.mark.thorough)])
def test_a_published_model_of_antibodies_fills_in(tmp_path, name):
    spec = find_spec("sapiens")
    if spec is None:
        pytest.skip("needs: pip install --no-deps -r requirements-weights.txt")
    folder = pathlib.Path(spec.submodule_search_locations[0]) / "models" / "v1"
    for file in (f"checkpoint_{name}.pt", "dict.txt"):
        shutil.copy(folder / file, tmp_path)
    task = tasks.MaskedLM.from_preset(tmp_path)
    letters = [line.split()[0] for line in (tmp_path / "dict.txt").read_text().splitlines()]
    ids = np.array([0, *[letters.index(letter) + 4 for letter in ANTIBODIES[name]], 2], "int32")
    places = np.arange(1, len(ids) - 1)
    rows = np.repeat(ids[None], len(places), axis=0)
    rows[places - 1, places] = len(letters) + 4  # each row hides another letter
    actual = task({"token_ids": rows, "mask_positions": places[:, None]})
    assert np.mean(np.argmax(actual[:, 0], axis=-1) == ids[1:-1]) > 0.85


def test_fairseq_with_other_parts_is_refused(tmp_path):
    arrays = {"encoder.lm_head.dense.weight": np.zeros((2, 2), "float32")}
    arrays["encoder.sentence_encoder.layers.0.self_attn.q_proj.weight"] = np.zeros(
        (2, 2), "float32"
    )
    args = argparse.Namespace(arch="roberta", activation_fn="relu")
    write_torch(tmp_path / "model.pt", arrays, args)
    with pytest.raises(ValueError, match="activation_fn='relu'"):
        Backbone.from_preset(tmp_path)
