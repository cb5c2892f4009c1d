"""DeBERTa against Hugging Face's port of it, and the authors' heads; its sizes; its folders."""

import json
import warnings

import keras
import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.converters import CheckpointError
from keras_lm.layers import tensorflow as tensorflow_ops
from keras_lm.models import Backbone, DebertaV3Backbone
from keras_lm.models.deberta_layers import DistanceEmbedding, log_buckets
from keras_lm.models.sizes import estimate, transformer_size
from keras_lm.objectives import MaskedLanguageModel, ReplacedByGenerator, ReplacedTokens

TINY = transformer_size(60, 2, 16, 2, 24, bucket_size=8, max_sequence_length=32)
# A golden → the task whose head it has.
GOLDENS = {
    "deberta-v3": tasks.MaskedLM,
    "deberta-v2": tasks.TextClassifier,
    "deberta-unshared": tasks.QuestionAnswerer,
    "deberta-distances": tasks.Pretrainer,  # with both of the authors' heads
}
# What the rows of a golden are besides padded on the right; see its README.
OTHER_ROWS = [
    ("deberta-v3", "left"),
    ("deberta-v3", "long"),
    ("deberta-v3", "one"),
    ("deberta-v2", "long"),
    ("deberta-unshared", "left"),
    ("deberta-distances", "left"),
]


def load(folder, rows=""):
    names = {
        "token_ids": "input_ids",
        "segment_ids": "token_type_ids",
        "padding_mask": "attention_mask",
    }
    with np.load(folder / "expected.npz") as arrays:
        inputs = {
            ours: arrays[f"{rows}in.{theirs}"]
            for ours, theirs in names.items()
            if f"{rows}in.{theirs}" in arrays
        }
        begin = f"{rows}out."
        return inputs, {n.removeprefix(begin): arrays[n] for n in arrays if n.startswith(begin)}


# === The references ===


@pytest.mark.eager
@pytest.mark.parametrize(("name", "rows"), [*((name, "") for name in GOLDENS), *OTHER_ROWS])
def test_huggingface(goldens, name, rows, assert_equal):
    """With padding on either side, at padding too, beyond the buckets, and of one token."""
    inputs, expected = load(goldens(name), f"{rows}." if rows else "")
    heads = {}
    if GOLDENS[name] is tasks.Pretrainer:
        heads = {"objectives": [ReplacedTokens(), MaskedLanguageModel()]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = GOLDENS[name].from_preset(goldens(name), tokenizer=None, **heads)
    outputs = task(inputs)
    for output, value in (outputs if isinstance(outputs, dict) else {"logits": outputs}).items():
        assert_equal(value, expected["logits" if output == "token_logits" else output])
    computed = task.backbone.compute(inputs)
    assert_equal(np.stack(computed["hidden_states"]), expected["hidden_states"])
    probabilities = np.stack(task.backbone.attention_probabilities(inputs))
    np.testing.assert_allclose(probabilities, expected["attentions"], rtol=1e-5, atol=5e-5)


@pytest.mark.eager
def test_keras_hub(goldens, assert_equal):
    folder = goldens("deberta-keras-hub")
    arrays = np.load(folder / "expected.npz")
    inputs = {key: arrays[f"in.{key}"] for key in ("token_ids", "padding_mask")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = tasks.TextClassifier.from_preset(folder / "classifier")
    real = inputs["padding_mask"] > 0
    outputs = task.backbone(inputs)["sequence_output"]
    assert_equal(outputs[real], arrays["classifier.sequence_output"][real])
    assert_equal(task(inputs), arrays["classifier.logits"])
    packed = task.preprocess({"text": [str(text) for text in arrays["text.text"]]})
    ids = packed["token_ids"]
    np.testing.assert_array_equal(ids, arrays["text.token_ids"][:, : ids.shape[1]])
    assert_equal(task(packed), arrays["text.logits"])


# Of `make_log_bucket_position` in transformers: (buckets, largest distance), bucket by distance.
BUCKETS = {
    (8, 32): {0: 0, 3: 3, 4: 4, 5: 5, 7: 5, 8: 6, 15: 6, 16: 7, 31: 7, 32: 8, 40: 8},
    (256, 512): {127: 127, 128: 128, 129: 129, 130: 130, 200: 169, 511: 255, 512: 256, 600: 270},
}


@pytest.mark.parametrize("sizes", BUCKETS)
def test_buckets(sizes):
    distances = np.array([*BUCKETS[sizes]])
    assert log_buckets(distances, *sizes).tolist() == [*BUCKETS[sizes].values()]


def test_buckets_of_a_text():
    """From the first query's last key to the last query's first key, and never out of the table."""
    layer = DistanceEmbedding(4, max_sequence_length=9, max_distance=3)
    layer.build((None, None))
    actual = layer(np.ones((1, 3), "int32"))["buckets"]
    assert np.array(actual).tolist() == [5, 4, 3, 2, 1, 0]
    actual = layer(np.ones((1, 9), "int32"))["buckets"]
    assert set(np.array(actual).tolist()) == set(range(6))


@pytest.mark.eager
def test_long_texts_in_blocks(goldens, monkeypatch, assert_equal):
    inputs, expected = load(goldens("deberta-v3"), "long.")
    backbone = tasks.MaskedLM.from_preset(goldens("deberta-v3"), tokenizer=None).backbone
    monkeypatch.setattr(tensorflow_ops, "MANY_SCORES", 0)
    monkeypatch.setattr(tensorflow_ops, "BLOCK", 5)
    assert_equal(backbone(inputs)["sequence_output"], expected["hidden_states"][-1])


# As Hugging Face counts them.
@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        ("deberta_v3_extra_small_en", 70_682_112),
        pytest.param("deberta_v3_small_en", 141_304_320, marks=pytest.mark.thorough),
        ("deberta_v3_base_en", 183_831_552),
        pytest.param("deberta_v3_large_en", 434_012_160, marks=pytest.mark.thorough),
        pytest.param("deberta_v3_base_multi", 278_218_752, marks=pytest.mark.thorough),
        ("deberta_v2_extra_large_en", 884_593_152),
        pytest.param("deberta_v2_extra_extra_large_en", 1_564_549_632, marks=pytest.mark.thorough),
    ],
)
def test_sizes(size, parameters):
    arguments = DebertaV3Backbone.SIZES[size]
    assert estimate(DebertaV3Backbone, **arguments)["parameters"] == parameters
    assert set(DebertaV3Backbone.SIZES) == set(DebertaV3Backbone.PUBLISHED)


# === Arguments ===


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"position_attention": ["p2p"]}, r"position_attention=\['p2p'\]: pass a list of some of"),
        ({"position_attention": "c2p"}, "position_attention='c2p'"),
        ({"conv_kernel_size": 4}, "conv_kernel_size=4: pass an odd number"),
        ({"bucket_size": 1}, "bucket_size=1: pass a whole number of 2 or more"),
        ({"bucket_size": 24, "max_distance": 13}, "bucket_size=24: pass less than 24"),
        ({"max_distance": 0}, "max_distance=0: pass a whole number of 1 or more"),
        ({"num_segments": -1}, "num_segments=-1"),
        ({"num_heads": 3}, "num_heads=3 does not divide"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        DebertaV3Backbone(**TINY | arguments)


@pytest.mark.eager
def test_padding_between_tokens_counts():
    """Distances are of columns; a mask only hides."""
    backbone = DebertaV3Backbone(**TINY)
    for weight in backbone.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    ids = np.array([[5, 6, 7, 8, 9]])
    apart = backbone({"token_ids": [[5, 6, 0, 7, 8, 9]], "padding_mask": [[1, 1, 0, 1, 1, 1]]})
    together = backbone({"token_ids": ids})
    real = np.delete(apart["sequence_output"], 2, axis=1)
    assert np.abs(real - together["sequence_output"]).max() > 1e-3


# === Folders as they are found ===


@pytest.mark.eager
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"pos_att_type": "p2c|p2p"}, "pos_att_type='p2c|p2p'"),
        ({"relative_attention": False}, "relative_attention=False"),
        ({"pooler_hidden_size": 8}, "pooler_hidden_size=8"),
        ({"attention_head_size": 4}, "attention_head_size=4"),
        ({"conv_groups": 2}, "conv_groups=2"),
        ({"position_buckets": 9}, "has 16 rows, and its configuration asks for 18"),
    ],
)
def test_what_is_refused(variant, config, words):
    with pytest.raises(CheckpointError) as caught:
        Backbone.from_preset(variant("deberta-v3", config))
    assert words in str(caught.value)


@pytest.mark.eager
def test_other_spellings(goldens, variant, assert_equal):
    """The terms as one string, an older prefix, and positions of the authors' decoder."""
    inputs, expected = load(goldens("deberta-v3"))
    made = variant(
        "deberta-v3",
        {"pos_att_type": "p2c|c2p", "model_type": ...},
        lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma"),
        {
            "deberta.embeddings.position_embeddings.weight": np.ones((32, 16), "float32"),
            "deberta.embeddings.position_ids": np.arange(32)[None],
        },
    )
    config = json.loads((made / "config.json").read_text())
    assert "model_type" not in config
    task = tasks.MaskedLM.from_preset(made, tokenizer=None)
    assert_equal(task(inputs), expected["logits"])


@pytest.mark.eager
def test_a_second_bias_is_refused(variant):
    """Transformers takes the one of the decoder, where files have two."""
    other = {"cls.predictions.decoder.bias": np.zeros(60, "float32")}
    made = variant("deberta-v3", more=other)
    with pytest.raises(CheckpointError, match=r"decoder\.bias, which differs from .*\.bias, and"):
        tasks.MaskedLM.from_preset(made, tokenizer=None)


@pytest.mark.eager
@pytest.mark.parametrize("config", [{"pos_att_type": []}, {"pos_att_type": "none"}])
def test_no_scores_of_distances(variant, config, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = tasks.MaskedLM.from_preset(variant("deberta-v3", config), tokenizer=None)
    backbone = task.backbone
    assert not any("distances" in path for path in backbone.weights_by_path)
    backbone.save_to_huggingface(tmp_path / "new")
    stated = json.loads((tmp_path / "new/config.json").read_text())
    assert not stated["relative_attention"]
    again = Backbone.from_preset(tmp_path / "new")
    ids = {"token_ids": [[5, 6, 7]]}
    np.testing.assert_array_equal(again(ids)["sequence_output"], backbone(ids)["sequence_output"])


# === Training ===


@pytest.mark.eager
def test_a_generator_replaces_tokens():
    """ELECTRA's objective trains it and a generator of half the depth with own embeddings."""
    backbone = DebertaV3Backbone(**TINY)
    generator = tasks.MaskedLM(backbone.make_generator())
    assert generator.backbone.config == backbone.config | {"num_layers": 1}
    masking = MaskedLanguageModel(4, 60, [0, 4], mask_share=0.85, random_share=0.0, seed=0)
    task = tasks.Pretrainer(backbone, [ReplacedByGenerator(generator, masking=masking)])
    weights = [*task.trainable_weights, *generator.trainable_weights]
    before = [np.array(weight) for weight in weights]
    ids = np.random.default_rng(0).integers(5, 60, (4, 16)).astype("int32")
    rows = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    task.fit(rows, epochs=2, verbose=0)
    same = [w.path for w, old in zip(weights, before, strict=True) if (np.array(w) == old).all()]
    # (Softmax does not see what it adds to all scores of a query.)
    assert all("query_key_value/bias" in path for path in same)
