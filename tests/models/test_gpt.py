"""GPT against Hugging Face's port and its authors' own code."""

import json
import shutil

import keras
import numpy as np
import pytest
from keras import ops

from keras_lm.converters import CheckpointError
from keras_lm.models import Backbone, GPTBackbone
from keras_lm.models.sizes import estimate
from keras_lm.tasks import MultipleChoice
from keras_lm.tokenizers import GPTTokenizer


def test_huggingface(goldens, assert_equals_causal_reference):
    backbone = Backbone.from_preset(goldens("openai-gpt"))
    assert type(backbone) is GPTBackbone
    assert_equals_causal_reference(backbone, np.load(goldens("openai-gpt") / "expected.npz"))


@pytest.mark.eager
def test_huggingface_with_both_heads(goldens, assert_equal, hidden_states):
    folder = goldens("openai-gpt-double-heads")
    arrays = np.load(folder / "expected.npz")
    ids = arrays["in.input_ids"].astype("int32")  # (B, choices, S)
    # The reference gets the token to read as an argument; we read the last real one, whatever
    # follows it.
    mask = (np.arange(ids.shape[2]) <= arrays["in.mc_token_ids"][..., None]).astype("int32")
    task = MultipleChoice.from_preset(folder)
    inputs = {"token_ids": ids, "padding_mask": mask}
    assert_equal(task(inputs), arrays["out.mc_logits"])
    metrics = task.evaluate(inputs, arrays["in.mc_labels"], verbose=0, return_dict=True)
    assert_equal(metrics["loss"], arrays["out.mc_loss"])

    flat = {"token_ids": ids.reshape(-1, ids.shape[2])}
    logits = task.backbone.make_head("causal_lm")(task.backbone(flat))
    logits = np.reshape(logits, (*ids.shape, -1))
    assert_equal(logits, arrays["out.logits"])
    losses = keras.losses.sparse_categorical_crossentropy(
        arrays["in.labels"][..., 1:], logits[..., :-1, :], from_logits=True
    )
    assert_equal(np.mean(losses), arrays["out.loss"])
    for depth, state in enumerate(hidden_states(task.backbone, flat)):
        expected = arrays[f"out.hidden_states.{depth}"]
        assert_equal(state, expected.reshape(state.shape))
    assert_equal(task.backbone.attention_probabilities(flat), arrays["out.attentions"])


@pytest.fixture
def openai(goldens):
    """The published form and, of what fine-tuning adds, rows of special tokens and a classifier."""
    folder = goldens("tf1-gpt1")
    published = Backbone.from_preset(folder)
    rows = published.config["vocabulary_size"]
    backbone = GPTBackbone(**published.config | {"vocabulary_size": rows + 3})
    for new, old in zip(backbone.trainable_weights, published.trainable_weights, strict=True):
        value = ops.convert_to_numpy(old)
        if new.path == "token_embedding/embeddings":
            value = np.concatenate([value, np.load(folder / "special.npy")])
        new.assign(value)
    return backbone, np.load(folder / "expected.npz"), np.load(folder / "clf.npz")


def test_openai_shards(openai, assert_equal, hidden_states):
    backbone, arrays, classifier = openai
    ids = arrays["in.X"][..., 0].reshape(-1, 12)
    mask = arrays["in.M"].reshape(-1, 12)
    states = hidden_states(backbone, {"token_ids": ids})
    assert_equal(states[1:], arrays["out.layers"])

    task = MultipleChoice(backbone)
    task.head.logits.kernel.assign(classifier["w"])
    task.head.logits.bias.assign(classifier["b"])
    inputs = {"token_ids": arrays["in.X"][..., 0], "padding_mask": arrays["in.M"].astype("int32")}
    logits = task(inputs)
    assert_equal(logits, arrays["out.clf_logits"])
    losses = keras.losses.sparse_categorical_crossentropy(arrays["in.Y"], logits, from_logits=True)
    assert_equal(losses, arrays["out.clf_losses"])

    # There the softmax of the language model is over the rows of the positions too.
    tables = (backbone.token_embedding.embeddings, backbone.position_embedding.embeddings)
    table = np.concatenate([ops.convert_to_numpy(rows) for rows in tables])
    losses = keras.losses.sparse_categorical_crossentropy(
        ids[:, 1:], states[-1][:, :-1] @ table.T, from_logits=True
    )
    losses = np.sum(losses * mask[:, 1:], axis=1) / np.sum(mask[:, 1:], axis=1)
    assert_equal(losses, arrays["out.lm_losses"])


def test_openai_published_no_sizes_but_those_of_the_arrays(goldens, tmp_path):
    folder = tmp_path / "published"
    shutil.copytree(goldens("tf1-gpt1"), folder)
    (folder / "hparams.json").unlink()
    config = Backbone.from_preset(folder, load_weights=False).config
    assert (config["num_layers"], config["hidden_dim"], config["vocabulary_size"]) == (3, 40, 110)
    assert config["num_heads"] == 1  # 64 wide there, and here one that is narrower


def test_the_names_of_openais_vocabulary_files(tmp_path):
    entries = ["<unk>", "a", "b", "c", "a</w>", "b</w>", "c</w>", "ab</w>"]
    ids = {entry: number for number, entry in enumerate(entries)}
    (tmp_path / "encoder_bpe_40000.json").write_text(json.dumps(ids))
    (tmp_path / "vocab_40000.bpe").write_text("#version: 0.2\na b</w>\n")
    tokenizer = GPTTokenizer.from_files(tmp_path)
    assert tokenizer(["ab cab?"]).to_list() == [[7, 3, 7, 0]]


def test_a_missing_shard_is_named(goldens, tmp_path):
    folder = tmp_path / "incomplete"
    shutil.copytree(goldens("tf1-gpt1"), folder)
    (folder / "params_4.npy").unlink()
    with pytest.raises(CheckpointError, match=r"params_4\.npy.*is missing"):
        Backbone.from_preset(folder)


def test_the_activation_is_the_one_that_is_stated(goldens, tmp_path):
    folder = tmp_path / "swish"
    shutil.copytree(goldens("openai-gpt"), folder)
    config = json.loads((folder / "config.json").read_text())
    for stated, ours in (("gelu", "gelu_tanh"), ("swish", "silu"), ("relu", "relu")):
        (folder / "config.json").write_text(json.dumps(config | {"afn": stated}))
        backbone = Backbone.from_preset(folder, load_weights=False)
        assert backbone.config["activation"] == ours


def test_going_on_equals_reading_at_once(goldens):
    backbone = Backbone.from_preset(goldens("openai-gpt"))
    ids = np.array([[4, 7, 9, 11, 23, 8]], "int32")
    prompt = {"token_ids": [[0, 4, 7, 9, 0]], "padding_mask": [[0, 1, 1, 1, 0]]}
    cache = backbone(prompt)["cache"]
    rest = backbone({"token_ids": ids[:, 3:], "cache": cache})["sequence_output"]
    whole = backbone({"token_ids": ids})["sequence_output"]
    np.testing.assert_allclose(rest, whole[:, 3:], atol=2e-5)


def test_size():
    size = GPTBackbone.SIZES["gpt_base_en"]
    assert estimate(GPTBackbone, **size)["parameters"] == 116_534_784  # of the published file
    with pytest.raises(ValueError, match="hf://openai-community/openai-gpt"):
        Backbone.from_preset("gpt_base_en")
