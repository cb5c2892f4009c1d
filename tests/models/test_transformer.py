"""The Transformer against PyTorch's, and the settings in which implementations differ."""

import json

import numpy as np
import pytest

from keras_lm.converters import open_checkpoint
from keras_lm.converters.converter import PyTorchNames
from keras_lm.layers import SinusoidalPositionEmbedding
from keras_lm.models import Backbone, TransformerBackbone
from keras_lm.models.sizes import estimate
from keras_lm.objectives import IGNORED, MaskedCrossentropy
from keras_lm.tasks import Seq2SeqLM

TINY = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}

# === torch.nn.Transformer ===


def torch_names():
    names = {"token_embedding": "embed"}
    for half, norms in (("encoder", 2), ("decoder", 3)):
        ours, theirs = f"{half}_block_{{i}}", f"transformer.{half}.layers.{{i}}"
        names |= {
            f"{ours}/attention/query_key_value/kernel": f"{theirs}.self_attn.in_proj_weight",
            f"{ours}/attention/query_key_value/bias": f"{theirs}.self_attn.in_proj_bias",
            f"{ours}/attention/output": f"{theirs}.self_attn.out_proj",
            f"{ours}/attention_norm": f"{theirs}.norm1",
            f"{ours}/cross_attention/output": f"{theirs}.multihead_attn.out_proj",
            f"{ours}/cross_attention_norm": f"{theirs}.norm2",
            f"{ours}/feedforward/intermediate": f"{theirs}.linear1",
            f"{ours}/feedforward/output": f"{theirs}.linear2",
            f"{ours}/feedforward_norm": f"{theirs}.norm{norms}",
            f"{half}_norm": f"transformer.{half}.norm",
        }
    return PyTorchNames(names)


def load_torch(folder):
    config = json.loads((folder / "config.json").read_text())
    backbone = TransformerBackbone(
        vocabulary_size=config["vocab"],
        num_layers=config["enc"],
        num_heads=config["heads"],
        hidden_dim=config["d"],
        intermediate_dim=config["ff"],
        num_decoder_layers=config["dec"],
        final_norms=config["final_norm"],
        layer_norm_epsilon=1e-5,
    )
    tensors = dict(open_checkpoint(folder).tensors)
    # Cross-attention: one matrix there, two here.
    for name in [name for name in tensors if "multihead_attn.in_proj" in name]:
        parts = np.split(np.asarray(tensors.pop(name)), [config["d"]])
        layer, leaf = int(name.split(".")[3]), "kernel" if name.endswith("weight") else "bias"
        attention = backbone.decoder_blocks[layer].cross_attention
        for dense, part in zip((attention.query, attention.key_value), parts, strict=True):
            getattr(dense, leaf).assign(part.T)
    missing, unused = torch_names().load({w.path: w for w in backbone.weights}, tensors)
    assert not unused
    assert {path.split("/")[2] for path in missing} == {"query", "key_value"}
    return backbone


@pytest.fixture(scope="module", params=["transformer-torch", "transformer-torch-final-norm"])
def torch_model(request, goldens):
    """A backbone with PyTorch's weights, its inputs, and the reference's arrays."""
    folder = goldens(request.param)
    arrays = np.load(folder / "expected.npz")
    inputs = {
        "encoder_token_ids": arrays["in.src"],
        "encoder_padding_mask": 1 - arrays["in.src_pad"],
        "decoder_token_ids": arrays["in.tgt"],
        "decoder_padding_mask": 1 - arrays["in.tgt_pad"],
    }
    return load_torch(folder), inputs, arrays


def test_torch(torch_model, assert_equal):
    backbone, inputs, arrays = torch_model
    outputs = backbone.compute(inputs)
    for half in ("encoder", "decoder"):
        prefix = "" if half == "decoder" else "encoder_"
        states = outputs[f"{prefix}hidden_states"]
        layers = arrays[f"out.{half}_layers"]
        assert_equal(np.stack(states[1:-1]), layers[:-1])
        norm = getattr(backbone, f"{half}_norm")
        assert_equal(states[-1], layers[-1] if norm is None else norm(layers[-1]))
    assert_equal(outputs["encoder_hidden_states"][0], arrays["out.encoder_embedding"])
    assert_equal(outputs["encoder_sequence_output"], arrays["out.memory"])
    assert_equal(outputs["sequence_output"], arrays["out.decoder_output"])
    logits = backbone.make_head("seq2seq_lm")(outputs)
    assert_equal(logits, arrays["out.logits"])
    labels = np.where(arrays["in.labels"] == 0, IGNORED, arrays["in.labels"])
    for name, smoothing in (("loss", 0.0), ("loss_label_smoothing_0_1", 0.1)):
        loss = MaskedCrossentropy(label_smoothing=smoothing)(labels, logits)
        np.testing.assert_allclose(loss, arrays[f"out.{name}"], rtol=1e-6)


def test_last_block_before_a_final_norm(torch_model, assert_equal):
    backbone, inputs, arrays = torch_model
    outputs = backbone.compute(inputs)
    x, context = outputs["encoder_hidden_states"][-2], outputs["encoder_attention_contexts"][-1]
    assert_equal(backbone.encoder_blocks[-1](x, context)[0], arrays["out.encoder_layers"][-1])
    x, _ = backbone.decoder_blocks[-1](
        outputs["hidden_states"][-2], outputs["attention_contexts"][-1]
    )
    assert_equal(x, arrays["out.decoder_layers"][-1])


def test_torch_step_by_step(torch_model, assert_equal):
    backbone, inputs, arrays = torch_model
    head, actual, more = backbone.make_head("seq2seq_lm"), [], inputs
    for column in range(arrays["in.tgt"].shape[1]):
        new = {name: inputs[name][:, column : column + 1] for name in inputs if "decoder" in name}
        outputs = backbone(more | new)
        actual.append(head(outputs))
        more = {"cache": outputs["cache"]}
    is_real = ~arrays["in.tgt_pad"]  # (the positions of padding are others)
    assert_equal(np.concatenate(actual, axis=1)[is_real], arrays["out.logits"][is_real])


# === Positions ===


@pytest.mark.parametrize("hidden_dim", [6, 7])
@pytest.mark.parametrize("interleaved", [True, False])
def test_positions_are_sines_and_cosines(hidden_dim, interleaved):
    layer = SinusoidalPositionEmbedding(9, hidden_dim, interleaved)
    actual = np.asarray(layer(np.ones((1, 9), "int32")))[0]
    assert not layer.weights
    for position in range(9):
        angles = [position / 10000 ** (2 * i / hidden_dim) for i in range(4)]
        pairs = [(np.sin(angle), np.cos(angle)) for angle in angles[: (hidden_dim + 1) // 2]]
        order = np.array(pairs) if interleaved else np.array(pairs).T
        np.testing.assert_allclose(actual[position], order.ravel()[:hidden_dim], atol=1e-6)


def test_positions_of_a_target_that_goes_on():
    layer = SinusoidalPositionEmbedding(9, 6)
    whole = np.asarray(layer(np.ones((1, 9), "int32")))
    np.testing.assert_array_equal(layer(np.ones((1, 2), "int32"), start=[4]), whole[:, 4:6])
    np.testing.assert_array_equal(layer(np.array([[0, 0, 1, 1]]))[:, 2:], whole[:, :2])


# === Settings ===


def test_an_embedding_for_the_target():
    backbone = TransformerBackbone(11, **TINY, decoder_vocabulary_size=7)
    embeddings = [w.shape for w in backbone.weights if w.path.endswith("embeddings")]
    assert embeddings == [(11, 8), (7, 8)]
    inputs = {"encoder_token_ids": [[10, 3]], "decoder_token_ids": [[6, 1]]}
    assert Seq2SeqLM(backbone)(inputs).shape == (1, 2, 7)
    shared = TransformerBackbone(11, **TINY)
    assert shared.decoder_token_embedding is shared.token_embedding
    assert Seq2SeqLM(shared)(inputs).shape == (1, 2, 11)


def test_embeddings_are_as_long_as_positions():
    backbone = TransformerBackbone(500, **TINY | {"hidden_dim": 64})
    x = backbone.token_embedding.embeddings.numpy() * 8
    assert x.std() == pytest.approx(1, rel=0.05)


def test_longer_texts_than_positions_are_an_error():
    backbone = TransformerBackbone(11, **TINY, max_sequence_length=3)
    four, two = [[1, 2, 3, 4]], [[1, 2]]
    for name, ids in (("encoder", (four, two)), ("decoder", (two, four))):
        inputs = dict(zip(("encoder_token_ids", "decoder_token_ids"), ids, strict=True))
        with pytest.raises(ValueError, match=f"{name}_token_ids has 4 columns"):
            backbone(inputs)
    cache = backbone({"encoder_token_ids": two, "decoder_token_ids": two})["cache"]
    with pytest.raises(ValueError, match="4 tokens together, but max_sequence_length=3"):
        backbone({"decoder_token_ids": two, "cache": cache})


def test_published_sizes():
    """Table 3 of the paper, in millions; its attention has no biases, which are few."""
    millions = {
        size: estimate(TransformerBackbone, **arguments)["parameters"] / 1e6
        for size, arguments in TransformerBackbone.SIZES.items()
    }
    assert millions["transformer_base_en_de"] == pytest.approx(65, rel=0.04)
    assert millions["transformer_big_en_de"] == pytest.approx(213, rel=0.02)
    with pytest.raises(ValueError, match="never published"):
        Backbone.from_preset("transformer_base_en_de")
