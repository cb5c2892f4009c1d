"""XLNet against Hugging Face's port and the authors' code, and its memory."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.converters import open_checkpoint
from keras_lm.layers import tensorflow as tensorflow_ops
from keras_lm.models import Backbone, XLNetBackbone
from keras_lm.models.sizes import transformer_size
from keras_lm.objectives import PermutationLanguageModel
from keras_lm.tokenizers import SentencePieceTokenizer
from keras_lm.training import evaluate_streams, fit_streams

TINY = transformer_size(40, 2, 16, 2, 24, memory_length=12, causal=True)
IDS = np.random.default_rng(1).integers(0, 40, (2, 9)).astype("int32")


def make(**arguments):
    backbone = XLNetBackbone(**TINY | arguments)
    rng = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    return backbone


# === The references ===


def inputs_of(arrays):
    names = {
        "token_ids": "input_ids",
        "segment_ids": "token_type_ids",
        "padding_mask": "attention_mask",
        "permutation_mask": "perm_mask",
        "target_mapping": "target_mapping",
    }
    return {ours: arrays[f"in.{n}"] for ours, n in names.items() if f"in.{n}" in arrays}


@pytest.fixture
def load(goldens):
    def load(name):
        with pytest.warns(UserWarning, match="there is no vocabulary"):
            task = tasks.MaskedLM.from_preset(goldens(name))
        assert type(task.backbone) is XLNetBackbone
        return task, np.load(goldens(name) / "expected.npz")

    return load


def test_content(load, assert_equal):
    task, arrays = load("xlnet")
    inputs = inputs_of(arrays)
    computed = task.backbone.compute(inputs)
    assert_equal(np.stack(computed["hidden_states"]), arrays["out.hidden_states"])
    assert_equal(task(inputs), arrays["out.logits"])
    probabilities = np.stack(task.backbone.attention_probabilities(inputs))
    assert_equal(probabilities, arrays["out.attentions"])


def test_two_streams(load, assert_equal):
    task, arrays = load("xlnet-twostream")
    computed = task.backbone.compute(inputs_of(arrays))
    both = zip(computed["hidden_states"], computed["query_hidden_states"], strict=True)
    for i, state in enumerate(state for pair in both for state in pair):
        assert_equal(state, arrays[f"out.hidden_states.{i}"])
    assert_equal(task.head(computed), arrays["out.logits"])


@pytest.mark.parametrize("name", ["xlnet-mems", "xlnet-mems-uni"])
def test_three_segments(load, name, assert_equal):
    task, arrays = load(name)
    memory = {}
    for number, ids in enumerate(arrays["in.segments"].astype("int32")):
        computed = task.backbone.compute({"token_ids": ids} | memory)
        results = {
            "hidden_states": np.stack(computed["hidden_states"]),
            # Layers and columns first.
            "mems": np.transpose(computed["memory"]["states"], (1, 2, 0, 3)),
            "logits": task.head(computed),
        }
        for output, value in results.items():
            assert_equal(value, arrays[f"out.seg{number}.{output}"])
        memory = {"memory": computed["memory"]}


def test_the_authors_code(goldens, assert_equal):
    backbone = Backbone.from_preset(goldens("tf1-xlnet"), memory_length=5)
    assert type(backbone) is XLNetBackbone
    arrays = np.load(goldens("tf1-xlnet") / "expected.npz")
    mask = 1 - arrays["in.input_mask"].T.astype("int32")
    inputs = {
        "token_ids": arrays["in.input_ids"].T,
        "segment_ids": arrays["in.seg_ids"].T,
        "padding_mask": mask,
    }
    memory = {
        "memory": {
            "states": arrays["in.mems"].transpose(2, 0, 1, 3),
            "padding_mask": np.ones((2, 5), "int32"),
        }
    }

    def assert_same(actual, name):
        expected = arrays[f"out.{name}"].swapaxes(0, 1)
        if len(mask[0]) == expected.shape[1]:  # of padding it is no use
            actual, expected = (x * mask[:, :, None] for x in (np.asarray(actual), expected))
        assert_equal(actual, expected)

    assert_same(backbone(inputs)["sequence_output"], "content_output_no_mems")
    assert_same(backbone(inputs | memory)["sequence_output"], "content_output")
    two = {
        "permutation_mask": arrays["in.perm_mask"].transpose(2, 0, 1).astype("int32"),
        "target_mapping": arrays["in.target_mapping"].transpose(2, 0, 1),
    }
    outputs = backbone(inputs | memory | two)
    assert_same(outputs["sequence_output"], "two_stream_output")
    # Of the row without padding, which the reference takes in.
    assert_equal(outputs["memory"]["states"][0], arrays["out.new_mems"][:, :, 0])


@pytest.mark.eager
def test_a_folder_as_its_authors_publish_it(goldens, tmp_path, write_tf1):
    """spiece.model, xlnet_config.json and a checkpoint of TensorFlow 1: strings in."""
    source, folder = goldens("tf1-xlnet"), tmp_path / "xlnet_cased_L-3_H-40_A-4"
    vocabulary = goldens("tokenizers") / "sentencepiece-xlnet" / "spiece.model"
    folder.mkdir()
    shutil.copy(vocabulary, folder)
    tokenizer = SentencePieceTokenizer.from_files(folder)
    config = json.loads((source / "xlnet_config.json").read_text())
    number = tokenizer.vocabulary_size
    (folder / "xlnet_config.json").write_text(json.dumps(config | {"n_token": number}))
    stored = open_checkpoint(source).tensors
    tensors = {name: stored[name] for name in stored}
    for name, array in tensors.items():
        if array.shape[:1] == (config["n_token"],):
            tensors[name] = np.resize(array, (number, *array.shape[1:])).astype("float32")
    write_tf1(folder, tensors, "xlnet_model.ckpt")
    texts = ["a film <mask>", "good"]
    task = tasks.MaskedLM.from_preset(folder)
    packed = task.preprocess(texts)
    ids = tokenizer(["a film"]).to_list()[0]
    assert packed["token_ids"].numpy()[0, : len(ids)].tolist() == ids
    assert task.backbone.config["activation"] == "gelu_tanh"
    rows = task(packed)
    assert rows.shape == (2, packed["token_ids"].shape[1], number)


def test_preset(goldens, tmp_path):
    backbone = Backbone.from_preset(goldens("xlnet-mems-uni"))
    backbone.save_to_preset(tmp_path)
    again = Backbone.from_preset(tmp_path)
    assert again.get_config() == backbone.get_config()
    for actual, expected in zip(
        keras.tree.flatten(again({"token_ids": IDS})),
        keras.tree.flatten(backbone({"token_ids": IDS})),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, expected)


# === Memory ===


def test_a_text_in_segments_is_as_it_is_in_one():
    backbone = make()
    whole = backbone({"token_ids": IDS})
    first = backbone({"token_ids": IDS[:, :4]})
    second = backbone({"token_ids": IDS[:, 4:], "memory": first["memory"]})
    joined = np.concatenate([first["sequence_output"], second["sequence_output"]], axis=1)
    np.testing.assert_allclose(joined, whole["sequence_output"], atol=1e-5)
    for actual, expected in zip(
        keras.tree.flatten(second["memory"]), keras.tree.flatten(whole["memory"]), strict=True
    ):
        mask = np.asarray(whole["memory"]["padding_mask"])
        mask = mask if actual.ndim == 2 else mask[:, None, :, None]
        np.testing.assert_allclose(actual * mask, expected * mask, atol=1e-5)


def test_a_memory_takes_in_what_is_reused():
    """As Hugging Face's `cache_mem` cuts; the next text begins where the memory ends."""
    backbone, whole = make(reuse_length=5), make()
    first = backbone({"token_ids": IDS})["memory"]
    expected = whole({"token_ids": IDS[:, :5]})["memory"]  # causal: what follows changes nothing
    np.testing.assert_array_equal(first["padding_mask"], expected["padding_mask"])
    mask = np.asarray(first["padding_mask"])[:, None, :, None]
    np.testing.assert_allclose(first["states"] * mask, expected["states"] * mask, atol=1e-5)
    padded = {
        "token_ids": np.pad(IDS, [(0, 0), (3, 0)]),
        "padding_mask": np.pad(np.ones_like(IDS), [(0, 0), (3, 0)]),
    }
    actual = backbone(padded)["memory"]
    np.testing.assert_array_equal(actual["padding_mask"], expected["padding_mask"])
    np.testing.assert_allclose(actual["states"] * mask, expected["states"] * mask, atol=1e-5)


@pytest.mark.slow
def test_a_text_from_right_to_left():
    """With other signs of the distances it is the same text, and its memory what follows it."""
    backbone = make(causal=False)
    targets = np.repeat(np.eye(9, dtype="float32")[None, [2, 6]], 2, axis=0)
    plain = {"token_ids": IDS, "target_mapping": targets}
    turned = {"token_ids": IDS[:, ::-1], "target_mapping": targets[:, :, ::-1]}
    turned |= {"is_reversed": [1, 0]}
    actual, expected = (backbone.compute(x) for x in (turned, plain))
    np.testing.assert_allclose(
        actual["sequence_output"][0], expected["sequence_output"][0], atol=1e-5
    )
    assert np.abs(actual["sequence_output"] - expected["sequence_output"])[1].max() > 0.01
    (*_, last), (*_, other) = actual["hidden_states"], expected["hidden_states"]
    np.testing.assert_allclose(last[0], other[0, ::-1], atol=1e-5)
    # What is left of a text and what is right of it change places.
    inputs = {"token_ids": IDS[:, ::-1], "memory": backbone({"token_ids": IDS})["memory"]}
    actual = backbone(inputs | {"is_reversed": [1, 1]})["sequence_output"]
    assert np.abs(actual - backbone(inputs)["sequence_output"]).max() > 0.01


def test_what_a_configuration_has_that_is_not_known(goldens, tmp_path):
    shutil.copytree(goldens("xlnet"), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    for more in ({"bi_data": True}, {"same_length": True, "attn_type": "uni"}):
        (tmp_path / "config.json").write_text(json.dumps(config | more))
        (name, value), *_ = more.items()
        with pytest.raises(ValueError, match=f"has {name}={value}, and XLNetBackbone supports"):
            Backbone.from_preset(tmp_path)
    more = {"reuse_len": 3, "mem_len": 6, "same_length": True, "summary_type": "first"}
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    assert Backbone.from_preset(tmp_path).config["reuse_length"] == 3


@pytest.mark.eager
def test_memories_of_other_batches_and_models():
    """One token, of more rows than the memory has, the others of which begin without one."""
    backbone = make()
    memory = backbone({"token_ids": IDS[:1, :8]})["memory"]
    actual = backbone({"token_ids": IDS[:, 8:], "memory": memory})["sequence_output"]
    whole = backbone({"token_ids": IDS[:1]})["sequence_output"]
    np.testing.assert_allclose(actual[:1], whole[:, 8:], atol=1e-5)
    alone = backbone({"token_ids": IDS[1:, 8:]})["sequence_output"]
    np.testing.assert_allclose(actual[1:], alone, atol=1e-5)
    for part in (memory["states"][:, :1], memory["states"][:, :, 1:], memory["states"][..., 1:]):
        with pytest.raises(ValueError, match=r"has a tensor of shape .*, but needs"):
            backbone({"token_ids": IDS, "memory": memory | {"states": part}})


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("before, after", [(3, 0), (0, 2), (2, 2)])
def test_padding_beside_a_memory(before, after, causal):
    backbone = make(causal=causal)
    memory = backbone({"token_ids": IDS[:, :4]})["memory"]
    alone = backbone({"token_ids": IDS[:, 4:], "memory": memory})
    width = [(0, 0), (before, after)]
    padded = backbone(
        {
            "token_ids": np.pad(IDS[:, 4:], width, constant_values=7),
            "segment_ids": np.pad(np.zeros_like(IDS[:, 4:]), width, constant_values=3),
            "padding_mask": np.pad(np.ones_like(IDS[:, 4:]), width),
            "memory": memory,
        }
    )
    actual = padded["sequence_output"][:, before : before + 5]
    np.testing.assert_allclose(actual, alone["sequence_output"], atol=1e-5)
    np.testing.assert_array_equal(padded["memory"]["padding_mask"], [[0] * 3 + [1] * 9] * 2)
    actual, expected = (x["memory"]["states"][:, :, 3:] for x in (padded, alone))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_a_target_sees_neither_itself_nor_what_its_order_hides():
    backbone = make(causal=False)
    order = np.array([3, 0, 5, 8, 1, 7, 2, 6, 4])  # which token is how early
    hidden = order[:, None] <= order
    inputs = {
        "permutation_mask": np.repeat(hidden[None], 2, axis=0).astype("int32"),
        "target_mapping": np.repeat(np.eye(9, dtype="float32")[None, [2, 6]], 2, axis=0),
    }
    out = backbone({"token_ids": IDS} | inputs)["sequence_output"]
    assert out.shape == (2, 2, 16)
    others = (IDS + np.eye(9, dtype="int32")[:, None]) % 40  # in each, another column is other
    inputs = {name: np.tile(value, (9, 1, 1)) for name, value in inputs.items()}
    others = backbone({"token_ids": others.reshape(18, 9)} | inputs)["sequence_output"]
    moved = np.ptp(np.reshape(others, (9, 2, 2, 16)) - out, axis=(1, 3)) > 1e-4
    np.testing.assert_array_equal(moved, order[:, None] < order[[2, 6]])


@pytest.mark.slow
def test_long_texts_in_blocks(monkeypatch):
    """Both streams, beside a memory: a block has distances and segments of its own rows."""
    backbone = make(causal=False, attention_dropout=0.0, dropout=0.0)
    inputs = {
        "token_ids": IDS,
        "segment_ids": np.repeat([[0, 1, 0], [1, 1, 0]], 3, axis=1).astype("int32"),
        "permutation_mask": np.triu(np.ones((2, 9, 9), "int32")),
        "target_mapping": np.repeat(np.eye(9, dtype="float32")[None], 2, axis=0),
        "memory": backbone({"token_ids": IDS[:, ::-1]})["memory"],
    }

    def compute():
        with tf.GradientTape() as tape:
            computed = backbone.compute(inputs)
            loss = tf.reduce_sum(computed["sequence_output"] ** 3)
        states = [computed[name] for name in ("hidden_states", "query_hidden_states")]
        return tf.nest.flatten([states, tape.gradient(loss, backbone.trainable_variables)])

    whole = compute()
    monkeypatch.setattr(tensorflow_ops, "BLOCK", 4)  # the last is shorter
    monkeypatch.setattr(tensorflow_ops, "MANY_SCORES", 0)
    for one, other in zip(compute(), whole, strict=True):
        one, other = (tf.convert_to_tensor(part).numpy() for part in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.thorough
def test_streams_teach_what_only_the_memory_holds():
    """Every other row repeats the one before: without a memory, its tokens are chance, too."""
    keras.utils.set_random_seed(1)
    halves = np.random.default_rng(0).integers(1, 9, (640, 1, 4)).astype("int32")
    ids = np.repeat(halves, 2, axis=1).reshape(-1, 4)
    columns = {
        "token_ids": np.concatenate([ids, ids[::-1, ::-1]]),
        "is_reversed": np.repeat([0, 1], len(ids)).astype("int32"),
    }
    rows = tf.data.Dataset.from_tensor_slices(columns)
    backbone = XLNetBackbone(9, 1, 2, 32, 64, memory_length=4, dropout=0.0, attention_dropout=0.0)
    task = tasks.Pretrainer(backbone, [PermutationLanguageModel([0], context=2)])
    task.compile(optimizer=keras.optimizers.AdamW(1e-2))
    fit_streams(task, rows, batch_size=32, epochs=4, verbose=0)
    for way in (0, 1):
        one = rows.filter(lambda row, way=way: row["is_reversed"] == way)
        # Whether a row is a copy it can at best guess: by the tokens that it sees.
        assert evaluate_streams(task, one, batch_size=16, verbose=0)["loss"] < np.log(8) - 0.4
        assert task.evaluate(one.batch(16), verbose=0)[0] > np.log(8) - 0.02
