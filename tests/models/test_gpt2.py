"""GPT-2 against its authors' code and its ports, and what holds for every causal model."""

import json
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import keras_lm
from keras_lm.models import Backbone, GPT2Backbone, GPT3Backbone
from keras_lm.models.sizes import transformer_size
from keras_lm.tasks import TextClassifier

TINY = transformer_size(50, 3, 16, 2, 24, max_sequence_length=12)
IDS = np.array([[4, 7, 9, 11, 23, 8], [31, 2, 2, 40, 5, 17]], "int32")


# Some blocks of the second are dense.
@pytest.fixture(
    scope="module", params=[pytest.param("dense", marks=pytest.mark.thorough), "banded"]
)
def backbone(request):
    if request.param == "dense":
        backbone = GPT2Backbone(**TINY)
    else:
        backbone = GPT3Backbone(**TINY, attention_windows=(None, 3))
    rng = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    return backbone


def sequence(backbone, ids, **inputs):
    return np.asarray(backbone({"token_ids": ids, **inputs})["sequence_output"])


def padded(ids, before, after):
    """Ids with padding around them, and the mask, as inputs."""
    width = [(0, 0), (before, after)]
    return {"token_ids": np.pad(ids, width), "padding_mask": np.pad(np.ones_like(ids), width)}


# === The references ===


def test_huggingface(goldens, assert_equals_causal_reference):
    backbone = Backbone.from_preset(goldens("gpt2"))
    assert type(backbone) is GPT2Backbone
    assert_equals_causal_reference(backbone, np.load(goldens("gpt2") / "expected.npz"))


def test_last_state_times_the_table_gives_the_logits(goldens, assert_equal, hidden_states):
    backbone = Backbone.from_preset(goldens("gpt2"))
    arrays = np.load(goldens("gpt2") / "expected.npz")
    inputs = {"token_ids": arrays["in.input_ids"], "padding_mask": arrays["in.attention_mask"]}
    table = backbone.token_embedding.embeddings.numpy()
    assert_equal(hidden_states(backbone, inputs)[-1] @ table.T, arrays["out.logits"])


def test_openai(goldens, assert_equal):
    arrays = np.load(goldens("tf1-gpt2") / "expected.npz")
    backbone = Backbone.from_preset(goldens("tf1-gpt2"))
    head = backbone.make_head("causal_lm")
    first = backbone({"token_ids": arrays["in.tokens"]})
    assert_equal(head(first), arrays["out.logits"])
    present = np.stack([first["cache"]["keys"], first["cache"]["values"]], axis=2)
    assert_equal(present, arrays["out.present"])
    more = backbone({"token_ids": arrays["in.more"], "cache": first["cache"]})
    assert_equal(head(more), arrays["out.more_logits"])


def test_keras_hub(goldens, assert_equal):
    folder = goldens("gpt2-keras-hub")
    arrays = np.load(folder / "expected.npz")
    backbone = Backbone.from_preset(folder)
    outputs = backbone({name: arrays[f"in.{name}"] for name in ("token_ids", "padding_mask")})
    assert_equal(outputs["sequence_output"], arrays["out.sequence_output"])
    assert_equal(backbone.make_head("causal_lm")(outputs), arrays["out.logits"])
    tokenizer = keras_lm.tokenizers.Tokenizer.from_preset(folder)
    for row, text in enumerate(arrays["text.text"]):
        ids = tokenizer([str(text)]).to_list()[0]
        assert ids == arrays[f"text.token_ids.{row}"].tolist()


def changed_copy(folder, new, config=None, tensors=None):
    shutil.copytree(folder, new)
    stored = json.loads((new / "config.json").read_text()) | (config or {})
    (new / "config.json").write_text(json.dumps(stored))
    if tensors is not None:
        save_file(tensors(load_file(folder / "model.safetensors")), new / "model.safetensors")
    return new


def test_classifier_of_huggingface_reads_the_last_real_token(goldens, tmp_path, assert_equal):
    score = np.random.default_rng(0).normal(size=(3, 48)).astype("float32")
    folder = changed_copy(
        goldens("gpt2"),
        tmp_path / "classifier",
        {
            "architectures": ["GPT2ForSequenceClassification"],
            "id2label": {"0": "a", "1": "b", "2": "c"},
        },
        lambda tensors: tensors | {"score.weight": score},
    )
    task = TextClassifier.from_preset(folder)
    assert task.class_names == ["a", "b", "c"]
    arrays = np.load(goldens("gpt2") / "expected.npz")
    inputs = {"token_ids": arrays["in.input_ids"], "padding_mask": arrays["in.attention_mask"]}
    last = arrays["in.attention_mask"].sum(1) - 1
    expected = arrays["out.hidden_states"][-1][np.arange(3), last] @ score.T
    assert_equal(task(inputs), expected)


def test_older_files_and_bare_models(goldens, tmp_path):
    # As the first published files: no prefix, and the causal mask among the weights.
    def strip(tensors):
        bare = {name.removeprefix("transformer."): value for name, value in tensors.items()}
        return bare | {"h.0.attn.bias": np.ones((1, 1, 32, 32), "float32")}

    folder = changed_copy(goldens("gpt2"), tmp_path / "bare", tensors=strip)
    expected = sequence(Backbone.from_preset(goldens("gpt2")), IDS)
    np.testing.assert_array_equal(sequence(Backbone.from_preset(folder), IDS), expected)


@pytest.mark.parametrize(
    "key, value",
    [
        ("scale_attn_by_inverse_layer_idx", True),
        ("scale_attn_weights", False),
        ("add_cross_attention", True),
        ("pruned_heads", {"0": [1]}),
    ],
)
def test_what_the_model_does_not_know_is_an_error(goldens, tmp_path, key, value):
    folder = changed_copy(goldens("gpt2"), tmp_path / "other", {key: value})
    with pytest.raises(
        ValueError, match=re.escape(f"{key}={value}") + ".*GPT2Backbone supports only"
    ):
        Backbone.from_preset(folder)


# === The cache ===


@pytest.mark.parametrize("split, before, after", [(1, 0, 0), (4, 0, 3), (4, 3, 0)])
def test_going_on_equals_reading_at_once(backbone, before, after, split):
    whole = sequence(backbone, IDS)
    first = backbone(padded(IDS[:, :split], before, after))
    slots = split + before + after
    assert first["cache"]["keys"].shape == (2, 3, 2, slots, 8)
    np.testing.assert_array_equal(first["cache"]["length"], [slots, slots])
    rest = backbone({"token_ids": IDS[:, split:], "cache": first["cache"]})
    np.testing.assert_allclose(rest["sequence_output"], whole[:, split:], atol=2e-5)
    assert rest["cache"]["padding_mask"].shape == (2, 6 + before + after)
    again = sequence(backbone, IDS[:, -1:] * 0 + 3, cache=rest["cache"])
    ten = np.concatenate([IDS, IDS[:, -1:] * 0 + 3], axis=1)
    np.testing.assert_allclose(again, sequence(backbone, ten)[:, -1:], atol=2e-5)


def test_rows_of_one_batch_may_have_prompts_of_different_lengths(backbone):
    prompts = np.array([[4, 7, 9, 11], [31, 2, 0, 0]], "int32")
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], "int32")
    cache = backbone({"token_ids": prompts, "padding_mask": mask})["cache"]
    both = sequence(backbone, np.array([[23, 8], [5, 17]]), cache=cache)
    np.testing.assert_allclose(
        both[:1], sequence(backbone, [[4, 7, 9, 11, 23, 8]])[:, -2:], atol=2e-5
    )
    np.testing.assert_allclose(both[1:], sequence(backbone, [[31, 2, 5, 17]])[:, -2:], atol=2e-5)


def test_steps_in_a_graph_keep_their_shapes(backbone):
    @tf.function(autograph=False)
    def step(token_ids, cache):
        return backbone.forward(token_ids, tf.ones_like(token_ids), cache)

    cache = backbone.initial_state(batch_size=2, length=9)
    shapes = keras.tree.map_structure(lambda x: tuple(x.shape), cache)
    for column in range(6):
        outputs = step(tf.constant(IDS[:, column : column + 1]), cache)
        cache = outputs["cache"]
    assert step.experimental_get_tracing_count() == 1
    assert keras.tree.map_structure(lambda x: tuple(x.shape), cache) == shapes
    np.testing.assert_allclose(
        outputs["sequence_output"], sequence(backbone, IDS)[:, -1:], atol=2e-5
    )
    cache = backbone.pack_state(cache)
    full = backbone({"token_ids": IDS})["cache"]
    for part in ("keys", "values"):
        np.testing.assert_allclose(cache[part][:, :, :, :6], full[part], atol=2e-5)
        assert not np.any(cache[part][:, :, :, 6:])
    np.testing.assert_array_equal(cache["padding_mask"], [[1] * 6 + [0] * 3] * 2)
    np.testing.assert_array_equal(
        backbone.pack_state(backbone.unpack_state(cache))["keys"], cache["keys"]
    )


def test_a_cache_for_another_number_of_rows(backbone):
    cache = backbone({"token_ids": IDS[:, :3]})["cache"]
    fewer = sequence(backbone, IDS[:1, 3:], cache=cache)
    np.testing.assert_allclose(fewer, sequence(backbone, IDS)[:1, 3:], atol=2e-5)
    more = sequence(backbone, np.concatenate([IDS, IDS])[:3, 3:], cache=cache)
    np.testing.assert_allclose(more[:2], sequence(backbone, IDS)[:, 3:], atol=2e-5)
    np.testing.assert_allclose(more[2:], sequence(backbone, IDS[:1, 3:]), atol=2e-5)


def test_a_step_compiles_with_xla(backbone):
    @tf.function(autograph=False, jit_compile=True)
    def step(token_ids, cache):
        mask = tf.ones_like(token_ids)
        return backbone.forward(token_ids, mask, backbone.unpack_state(cache))["sequence_output"]

    cache = backbone.make_cache(batch_size=2, slots=9)
    np.testing.assert_allclose(step(tf.constant(IDS), cache), sequence(backbone, IDS), atol=2e-5)


def test_what_a_cache_looks_like(backbone):
    spec = backbone.state_spec()
    assert spec["keys"].shape == (None, 3, 2, None, 8)
    assert spec["padding_mask"].shape == (None, None)
    assert spec["length"].dtype == "int32"


def test_free_slots_are_used_before_a_cache_grows(backbone):
    cache = backbone.make_cache(batch_size=2, slots=4)
    first = backbone({"token_ids": IDS[:, :3], "cache": cache})
    assert first["cache"]["keys"].shape[3] == 4
    rest = backbone({"token_ids": IDS[:, 3:], "cache": first["cache"]})
    assert rest["cache"]["keys"].shape[3] == 6
    np.testing.assert_allclose(rest["sequence_output"], sequence(backbone, IDS)[:, 3:], atol=2e-5)


def test_a_cache_grows_in_a_graph_too(backbone):
    @tf.function(autograph=False)
    def go_on(token_ids, cache):
        return backbone({"token_ids": token_ids, "cache": cache})

    first = backbone({"token_ids": IDS[:, :4]})
    rest = go_on(tf.constant(IDS[:, 4:]), first["cache"])
    assert rest["cache"]["values"].shape == (2, 3, 2, 6, 8)
    np.testing.assert_allclose(rest["sequence_output"], sequence(backbone, IDS)[:, 4:], atol=2e-5)


def test_a_cache_of_numpy_arrays_that_a_client_kept(backbone):
    first = backbone({"token_ids": IDS[:, :4]})
    kept = keras.tree.map_structure(np.asarray, first["cache"])
    np.testing.assert_allclose(
        sequence(backbone, IDS[:, 4:], cache=kept), sequence(backbone, IDS)[:, 4:], atol=2e-5
    )


def test_no_cache_is_an_empty_cache(backbone):
    np.testing.assert_array_equal(sequence(backbone, IDS, cache=None), sequence(backbone, IDS))


def test_bad_caches(backbone):
    cache = backbone({"token_ids": IDS})["cache"]
    with pytest.raises(ValueError, match=r"13 tokens together, but max_sequence_length=12"):
        backbone({"token_ids": np.ones((2, 7), "int32"), "cache": cache})
    with pytest.raises(ValueError, match=r"cache has the keys \['keys'\]"):
        backbone({"token_ids": IDS, "cache": {"keys": cache["keys"]}})


# === What holds whatever the weights ===


def test_no_token_sees_one_after_it(backbone):
    changed = IDS.copy()
    changed[:, 4:] += 1
    np.testing.assert_array_equal(
        sequence(backbone, IDS)[:, :4], sequence(backbone, changed)[:, :4]
    )
    for probabilities in backbone.attention_probabilities({"token_ids": IDS}):
        assert not np.any(np.triu(probabilities, k=1))
        np.testing.assert_allclose(np.sum(probabilities, axis=-1), 1.0, rtol=1e-5)


def test_a_row_of_padding_gives_finite_numbers(backbone):
    nothing = np.zeros((2, 3), "int32")
    first = backbone({"token_ids": nothing, "padding_mask": nothing})
    rest = backbone({"token_ids": nothing, "padding_mask": nothing, "cache": first["cache"]})
    for outputs in (first, rest):
        assert np.isfinite(outputs["sequence_output"]).all()
        assert np.isfinite(outputs["cache"]["values"]).all()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_precision(policy):
    backbone = GPT2Backbone(**TINY | {"num_layers": 1}, dtype=policy)
    mask = np.array([[1] * 6, [0] * 6], "int32")
    outputs = backbone({"token_ids": IDS, "padding_mask": mask})
    compute = policy.removeprefix("mixed_")
    for name in ("keys", "values"):
        assert outputs["cache"][name].dtype == compute
        assert backbone.make_cache(2, 3)[name].dtype == compute
    rest = backbone({"token_ids": IDS, "padding_mask": mask, "cache": outputs["cache"]})
    for head in (
        backbone.make_head("causal_lm"),
        backbone.make_head("classification", num_classes=2),
    ):
        for result in (outputs, rest):
            logits = head(result, {"padding_mask": mask})
            assert logits.dtype == "float32"
            assert np.isfinite(logits).all()


def test_what_adds_to_the_residual_starts_smaller():
    backbone = GPT2Backbone(**TINY | {"num_layers": 2, "hidden_dim": 64, "intermediate_dim": 256})
    block = backbone.blocks[1]
    plain = np.std(block.feedforward.intermediate.kernel)
    for layer in (block.attention.output_dense, block.feedforward.output_dense):
        assert np.std(layer.kernel) == pytest.approx(plain / 2, rel=0.05)  # sqrt(2 · 2)


def test_size_names():
    assert set(GPT2Backbone.SIZES) == set(GPT2Backbone.PUBLISHED)
    with pytest.raises(ValueError, match="hf://openai-community/gpt2"):
        Backbone.from_preset("gpt2_base_en")
