"""T5 and T5 1.1 against Hugging Face's outputs, and what their checkpoints look like."""

import json
import re
import shutil
import warnings

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_lm.models import Backbone, T5Backbone, T5EncoderBackbone
from keras_lm.models.sizes import estimate
from keras_lm.tasks import Seq2SeqLM, TextClassifier
from keras_lm.tokenizers import Tokenizer, WordPieceTokenizer


@pytest.fixture(scope="module", params=["t5", "t5-v1_1"])
def folder(request, goldens):
    return goldens(request.param)


def arrays_and_inputs(folder):
    arrays = np.load(folder / "expected.npz")
    before = np.where(arrays["in.labels"] < 0, 0, arrays["in.labels"])[:, :-1]
    return arrays, {
        "encoder_token_ids": arrays["in.input_ids"],
        "encoder_padding_mask": arrays["in.attention_mask"],
        "decoder_token_ids": np.pad(before, [(0, 0), (1, 0)]),
        "decoder_padding_mask": arrays["in.decoder_attention_mask"],
    }


@pytest.mark.eager
def test_huggingface(folder, assert_equal, hidden_states):
    arrays, inputs = arrays_and_inputs(folder)
    task = Seq2SeqLM.from_preset(folder, tokenizer=None)
    backbone = task.backbone
    assert type(backbone) is T5Backbone
    outputs = backbone(inputs)
    assert_equal(outputs["encoder_sequence_output"], arrays["out.encoder_last_hidden_state"])
    assert_equal(hidden_states(backbone, inputs), arrays["out.decoder_hidden_states"])
    encoder = keras.Model(backbone.inputs, backbone.encoder_hidden_states)
    assert_equal(np.stack(encoder(inputs)), arrays["out.encoder_hidden_states"])
    for name, actual in {
        "encoder_attentions": backbone.encoder_attention_probabilities(inputs),
        "decoder_attentions": backbone.attention_probabilities(inputs),
        "cross_attentions": backbone.cross_attention_probabilities(inputs),
    }.items():
        assert_equal(np.stack(actual), arrays[f"out.{name}"])
    assert_equal(task(inputs), arrays["out.logits"])
    loss, *_ = task.evaluate(inputs, arrays["in.labels"], verbose=0)
    np.testing.assert_allclose(loss, arrays["out.loss"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder",
    ["t5", pytest.param("t5-v1_1", marks=pytest.mark.thorough)],
    indirect=True,
    scope="module",
)
def test_generated_text_is_the_reference_s(folder):
    expected = json.loads((folder / "generated.json").read_text())
    rows = [*expected["sources"], *(ids for each in expected["searches"] for ids in each["ids"])]
    unused = min({*range(1, 180)}.difference([expected["end"]], *rows))
    words = [f"w{i}" for i in range(180)]
    words[0], words[unused], words[expected["end"]] = "[PAD]", "[UNK]", "[SEP]"
    tokenizer = WordPieceTokenizer(words, lowercase=True, cls_token=None, mask_token=None)
    # The reference was asked with this end, not with that of its configuration.
    with pytest.warns(UserWarning, match="the tokenizer that was passed ends texts with"):
        task = Seq2SeqLM.from_preset(folder, tokenizer=tokenizer, sequence_length=32)
    sources = [" ".join(words[i] for i in ids) for ids in expected["sources"]]
    for search in expected["searches"]:
        texts = [" ".join(words[i] for i in ids if i) for ids in search.pop("ids")]  # 0 is padding
        scores, number = search.pop("scores"), search["num_return_sequences"]
        if scores is None:
            assert task.generate(sources, 10) == texts
            continue
        actual, of_found = task.generate(sources, 10, return_scores=True, **search)
        assert [text for row in actual for text in (row if number > 1 else [row])] == texts
        np.testing.assert_allclose(np.ravel(of_found), scores, rtol=1e-4)


def test_the_encoder_alone(folder, assert_equal, hidden_states, tmp_path):
    arrays, inputs = arrays_and_inputs(folder)
    inputs = {name: inputs[f"encoder_{name}"] for name in ("token_ids", "padding_mask")}
    with pytest.warns(UserWarning, match="new and random") as said:
        task = TextClassifier.from_preset(folder, num_classes=2, tokenizer=None)
    assert not any("left over" in str(each.message) for each in said)

    # What Hugging Face's `T5EncoderModel` saves.
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: t for name, t in tensors.items() if not name.startswith(("decoder", "lm_h"))}
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((folder / "config.json").read_text()) | {"is_encoder_decoder": False}
    (tmp_path / "config.json").write_text(json.dumps(config))

    for encoder in (task.backbone, Backbone.from_preset(tmp_path)):
        assert type(encoder) is T5EncoderBackbone
        outputs = encoder(inputs)
        assert_equal(outputs["sequence_output"], arrays["out.encoder_last_hidden_state"])
    assert_equal(hidden_states(encoder, inputs), arrays["out.encoder_hidden_states"])
    probabilities = np.stack(encoder.attention_probabilities(inputs))
    assert_equal(probabilities, arrays["out.encoder_attentions"])


def test_the_encoder_of_a_published_size():
    narrow = {"vocabulary_size": 9, "num_heads": 1, "intermediate_dim": 8}
    size = T5EncoderBackbone.from_preset("t5_1.1_small", load_weights=False, **narrow)
    assert (size.config["num_layers"], size.config["hidden_dim"]) == (8, 512)


# As the published `operative_config.gin` have it; macros and long values are spelled so.
GIN = """\
import mesh_tensorflow.transformer.transformer
# Macros:
d_ff = 80
num_heads = 4
dropout_rate = 0.0

encoder/DenseReluDense.activation = {activation}
encoder/DenseReluDense.dropout_rate = %dropout_rate
encoder/SelfAttention.num_heads = %num_heads
encoder/LayerStack.sublayers_final = \\
    [@transformer.sublayer_rms_norm, @transformer.sublayer_dropout]
sublayer_rms_norm.epsilon = 1e-06
sublayer_rms_norm.name = 'rms_norm'
"""


def as_mesh(tensors, norm="layer_norm"):
    """Hugging Face's tensors of T5 under mesh_tensorflow's names, by T5's conversion script."""
    results = {}
    for name, array in tensors.items():
        name = re.sub(r"(block|layer)\.(\d+)", lambda m: f"{m[1]}_{int(m[2]):03}", name)
        name = name.removesuffix(".weight").replace(".", "/")
        name = name.replace("lm_head", "decoder/logits/kernel")
        name = (
            re.sub("(?<=coder/)final_layer_norm", "rms_norm", name) if norm == "rms_norm" else name
        )
        name = name.replace("/layer_norm", f"/{norm}")
        if name.endswith("norm"):
            name += "/scale"
        elif name == "shared":
            name += "/embedding"
        elif "DenseReluDense" in name:
            name += "/kernel"
        results[name] = array if name.endswith(("embedding", "scale")) else array.T
        results[f"{name}_slot_vr"] = np.ones(3, "float32")
    return results


@pytest.mark.parametrize(("with_gin", "norm"), [(True, "rms_norm"), (False, "layer_norm")])
def test_mesh_tensorflow(folder, goldens, assert_equal, write_tf1, tmp_path, with_gin, norm):
    gated = folder == goldens("t5-v1_1")
    tensors = as_mesh(load_file(folder / "model.safetensors"), norm)
    cross = "decoder/block_000/layer_001/EncDecAttention/relative_attention_bias"
    write_tf1(tmp_path, tensors | {cross: np.ones((4, 8), "float32")})
    if with_gin:
        activation = "['gelu', 'linear']" if gated else "'relu'"
        (tmp_path / "operative_config.gin").write_text(GIN.format(activation=activation))
    arrays, inputs = arrays_and_inputs(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of what is left over
        # There, distances end at 128; the reference's at 12.
        if with_gin:
            task = Seq2SeqLM.from_preset(tmp_path, tokenizer=None, max_distance=12)
            backbone = task.backbone
        else:
            backbone = T5EncoderBackbone.from_preset(tmp_path, max_distance=12)
    assert (backbone.config["gated"], backbone.config["dropout"]) == (gated, 0.1)
    if with_gin:
        assert_equal(task(inputs), arrays["out.logits"])
        return
    inputs = {name: inputs[f"encoder_{name}"] for name in ("token_ids", "padding_mask")}
    actual = backbone(inputs)["sequence_output"]
    assert_equal(actual, arrays["out.encoder_last_hidden_state"])


@pytest.mark.eager
def test_the_vocabulary_of_a_mesh_tensorflow_checkpoint(goldens, write_tf1, tmp_path):
    tensors = load_file(goldens("t5") / "model.safetensors")
    published = Tokenizer.from_preset(goldens("tokenizers") / "sentencepiece-t5")
    rows = published.vocabulary_size
    tensors["shared.weight"] = np.ones((rows, 48), "float32")
    write_tf1(tmp_path, as_mesh(tensors))
    name = "sentencepiece-t5/spiece.model"
    shutil.copy(goldens("tokenizers") / name, tmp_path / "sentencepiece.model")
    task = Seq2SeqLM.from_preset(tmp_path)
    assert task.backbone.config["max_distance"] == 128
    tokenizer = task.tokenizer
    assert tokenizer.vocabulary == published.vocabulary  # the sentinels too
    assert tokenizer.special_tokens == published.special_tokens


def test_mesh_tensorflow_with_more_is_refused(goldens, write_tf1, tmp_path):
    tensors = as_mesh(load_file(goldens("t5") / "model.safetensors"))
    table = "encoder/block_{}/layer_000/SelfAttention/relative_attention_bias"
    write_tf1(tmp_path, tensors | {table.format("001"): tensors[table.format("000")]})
    with pytest.raises(ValueError, match="each block has a table of relative positions"):
        Backbone.from_preset(tmp_path)
    write_tf1(tmp_path, tensors)
    gin = tmp_path / "operative_config.gin"
    gin.write_text(GIN.format(activation="['gelu', 'linear']"))
    with pytest.raises(ValueError, match="activation"):
        Backbone.from_preset(tmp_path)


@pytest.mark.parametrize("name", ["t5-keras-hub", "t5-v1_1-keras-hub"])
def test_keras_hub(name, goldens, assert_equal):
    arrays = np.load(goldens(name) / "expected.npz")
    task = Seq2SeqLM.from_preset(goldens(name), tokenizer=None)
    inputs = {name[3:]: array for name, array in arrays.items() if name.startswith("in.")}
    outputs = task.backbone(inputs)
    real = inputs["encoder_padding_mask"] > 0
    actual = np.asarray(outputs["encoder_sequence_output"])
    assert_equal(actual[real], arrays["out.encoder_sequence_output"][real])
    real = inputs["decoder_padding_mask"] > 0
    assert_equal(
        np.asarray(outputs["sequence_output"])[real], arrays["out.decoder_sequence_output"][real]
    )
    assert_equal(np.asarray(task(inputs))[real], arrays["out.logits"][real])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of what is left over
        encoder = T5EncoderBackbone.from_preset(goldens(name))
    inputs = {name: inputs[f"encoder_{name}"] for name in ("token_ids", "padding_mask")}
    np.testing.assert_allclose(encoder(inputs)["sequence_output"], actual, atol=1e-6)


def test_the_vocabulary_of_a_keras_hub_preset(goldens, tmp_path):
    (tmp_path / "assets/tokenizer").mkdir(parents=True)
    shutil.copy(goldens("t5-keras-hub") / "config.json", tmp_path)
    published = goldens("tokenizers") / "sentencepiece-t5"
    shutil.copy(published / "spiece.model", tmp_path / "assets/tokenizer/vocabulary.spm")
    tokenizer, expected = (Tokenizer.from_preset(folder) for folder in (tmp_path, published))
    assert tokenizer.vocabulary == expected.vocabulary  # the sentinels too
    assert tokenizer.special_tokens == expected.special_tokens


@pytest.mark.parametrize("changed", [{"activation": {"config": "no_such"}}, {"num_layers": 3}])
def test_a_damaged_keras_hub_preset(changed, goldens, tmp_path):
    shutil.copytree(goldens("t5-keras-hub"), tmp_path / "t5")
    config = json.loads((tmp_path / "t5/config.json").read_text())
    config["config"] |= changed
    (tmp_path / "t5/config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"no_such|lacks the weights"):
        Backbone.from_preset(tmp_path / "t5")


def test_names_of_older_checkpoints(goldens, tmp_path):
    folder = tmp_path / "t5"
    shutil.copytree(goldens("t5"), folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    shared = tensors["shared.weight"]
    cross = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    save_file(
        tensors | dict.fromkeys(copies, shared) | {cross: np.ones((8, 4), "float32")},
        folder / "model.safetensors",
    )
    del config["model_type"], config["is_gated_act"], config["dense_act_fn"]
    (folder / "config.json").write_text(json.dumps(config))
    one, other = Backbone.from_preset(folder), Backbone.from_preset(goldens("t5"))
    for a, b in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"feed_forward_proj": "mixture-gelu"}, "feed_forward_proj='mixture-gelu'"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder=False"),
        ({"model_type": "umt5"}, "it is umT5, a T5 with a table of relative positions"),
    ],
)
def test_relatives_are_refused(goldens, tmp_path, changed, says):
    folder = tmp_path / "t5"
    shutil.copytree(goldens("t5"), folder)
    config = json.loads((folder / "config.json").read_text()) | changed
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=says):
        Backbone.from_preset(folder)


@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        # As the checkpoints at PUBLISHED have them, by Hugging Face's count.
        ("t5_small_multi", 60_506_624),
        ("t5_base_multi", 222_903_552),
        ("t5_large_multi", 737_668_096),
        ("t5_1.1_small", 76_961_152 - 32128 * 512),
        ("flan_base_multi", 247_577_856 - 32128 * 768),
    ],
)
def test_published_sizes(size, parameters):
    # Without the output matrix of T5 1.1, which belongs to the task.
    assert estimate(T5Backbone, **T5Backbone.SIZES[size])["parameters"] == parameters
