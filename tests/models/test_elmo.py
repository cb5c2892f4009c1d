"""ELMo against AllenNLP and its authors' TensorFlow code: every output, states and padding too."""

import json
import shutil

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_lm
from keras_lm.converters import CheckpointError
from keras_lm.layers import ScalarMix
from keras_lm.models import Backbone, ElmoBackbone
from keras_lm.tokenizers import CharacterTokenizer, Tokenizer

TINY = {"num_layers": 2, "hidden_dim": 3, "cell_dim": 5, "filters": [(1, 4), (3, 5)]}
FOLDERS = ["elmo", "elmo-small"]
only_one = pytest.mark.parametrize("folder", FOLDERS[:1], indirect=True, scope="module")


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request, goldens):
    return goldens(request.param)


@pytest.fixture(scope="module")
def reference(folder):
    """A backbone and the reference's arrays."""
    return Backbone.from_preset(folder), np.load(folder / "expected.npz")


@pytest.fixture(scope="module")
def golden(goldens):
    """What the reference's network gives for a batch, beside the batch."""
    ids = np.load(goldens("elmo") / "expected.npz")["in.ids2"]
    return ids, top(Backbone.from_preset(goldens("elmo")), ids)


@pytest.fixture(scope="module")
def tiny():
    backbone = ElmoBackbone(**TINY)
    rng = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.5))
    return backbone


@pytest.fixture(scope="module")
def tokenizer():
    return CharacterTokenizer(splitter="whitespace")


def top(backbone, ids, **inputs):
    return np.asarray(backbone({"character_ids": ids, **inputs})["sequence_output"])


def with_boundaries(backbone, ids):
    """(L + 1, B, T, 2D) and the mask (B, T)."""
    model = keras.Model(
        backbone.inputs, [backbone.hidden_states_with_boundaries, backbone.mask_with_boundaries]
    )
    states, mask = model(backbone.complete({"character_ids": ids}))
    return np.stack(states), np.asarray(mask)


# === The references ===


@pytest.mark.parametrize("batch", ["ids1", pytest.param("ids2", marks=pytest.mark.thorough)])
def test_layers(reference, batch, assert_equal, hidden_states):
    backbone, arrays = reference
    assert type(backbone) is ElmoBackbone
    ids, expected = arrays[f"in.{batch}"], arrays[f"out.fresh_{batch}.layers"]
    states, mask = with_boundaries(backbone, ids)
    assert_equal(states, expected)
    is_word = (ids > 0).any(-1)
    np.testing.assert_array_equal(mask.sum(1), is_word.sum(1) + 2)
    without = expected[:, :, 1:-1] * is_word[..., None]
    assert_equal(hidden_states(backbone, {"character_ids": ids}), without)
    assert_equal(top(backbone, ids), without[-1])


def test_token_layer_is_the_characters_twice(reference, assert_equal):
    backbone, arrays = reference
    states, _ = with_boundaries(backbone, arrays["in.ids1"])
    forward, backward = np.split(states[0], 2, axis=-1)
    np.testing.assert_array_equal(forward, backward)
    words = arrays["out.token_embedding_ids1"] * (states[0] != 0).any(-1, keepdims=True)
    assert_equal(forward, words)


def test_states_go_on_in_a_smaller_batch(reference, assert_equal):
    backbone, arrays = reference
    first = backbone({"character_ids": arrays["in.ids1"]})
    second = backbone({"character_ids": arrays["in.ids2"], "states": first["states"]})
    for name, outputs in (("1", first), ("2", second)):
        is_word = (arrays[f"in.ids{name}"] > 0).any(-1)[..., None]
        expected = arrays[f"out.call{name}.layers"][-1][:, 1:-1] * is_word
        assert_equal(outputs["sequence_output"], expected)
    for name, before in first["states"].items():  # the third row had no part in the second call
        after = np.asarray(second["states"][name])
        np.testing.assert_array_equal(after[2], before[2])
        assert np.abs(after[:2] - before[:2]).max() > 0.01


@only_one
def test_states_of_new_rows_start_at_zero(reference, assert_equal):
    backbone, arrays = reference
    first = backbone({"character_ids": arrays["in.ids2"]})
    second = backbone({"character_ids": arrays["in.ids1"], "states": first["states"]})
    fresh = backbone({"character_ids": arrays["in.ids1"]})
    assert_equal(second["sequence_output"][2], fresh["sequence_output"][2])
    for name, value in fresh["states"].items():
        assert_equal(second["states"][name][2], value[2])


@pytest.fixture(scope="module")
def published(goldens):
    folder = goldens("elmo-allennlp-test")
    return Backbone.from_preset(folder), np.load(folder / "expected.npz")


def test_states_through_many_batches_of_the_published_fixture(published, assert_equal):
    backbone, arrays = published
    states = None
    for batch in range(2):
        ids = arrays[f"in.batch{batch}"].astype("int32")
        outputs = backbone({"character_ids": ids, "states": states})
        states = outputs["states"]
        is_word = (ids > 0).any(-1)[..., None]
        expected = arrays[f"out.batch{batch}.layers"][-1][:, 1:-1] * is_word
        assert_equal(outputs["sequence_output"], expected)


def test_words_of_the_published_fixture(published, tokenizer, assert_equal):
    backbone, arrays = published
    words = arrays["in.words"].tolist()  # the boundaries among them
    ids = tokenizer.tokenize_words(words, parse_special=True)
    assert_equal(backbone.character_cnn(ids), arrays["out.word_embeddings"])


@only_one
def test_mixes(reference, assert_equal):
    backbone, arrays = reference
    states, mask = with_boundaries(backbone, arrays["in.ids1"])
    for layer_norm, name in ((False, "mixed"), (True, "mixed_layer_norm_with_boundaries")):
        mix = ScalarMix(layer_norm=layer_norm)
        mix(list(states), mask)
        mix.scalars.assign(arrays["in.scalar_mix"])
        mix.gamma.assign(arrays["in.gamma"])
        expected = arrays[f"out.fresh_ids1.{name}"]
        mixed = np.asarray(mix(list(states), mask))
        if name == "mixed":
            kept = arrays["out.fresh_ids1.mixed_mask"][..., None]
            mixed, expected = mixed[:, 1:-1] * kept, expected * kept
        assert_equal(mixed, expected)


def test_sentences_give_the_ids(folder):
    tokenizer = Tokenizer.from_preset(folder)
    arrays = np.load(folder / "expected.npz")
    for number, words in enumerate(json.loads((folder / "sentences.json").read_text()), start=1):
        ids = tokenizer.tokenize_words(tf.ragged.constant(words), parse_special=True).to_tensor()
        np.testing.assert_array_equal(ids, arrays[f"in.ids{number}"])


# === Padding ===


def test_padding_has_no_effect_wherever_it_stands(tiny, tokenizer):
    ids = tokenizer(["one two three", "four five six"]).to_tensor().numpy()
    first = tiny({"character_ids": ids})
    # Rows of one batch: both sentences in each of four ways.
    wide, mask = np.zeros((8, 6, 50), "int32"), np.zeros((8, 6), "int32")
    ways = [[2, 3, 4], [0, 1, 2], [0, 2, 5], [3, 4, 5]]
    for i, places in enumerate(ways):
        wide[2 * i : 2 * i + 2, places] = ids
        mask[2 * i : 2 * i + 2, places] = 1
    outputs = tiny({"character_ids": wide})
    x = np.asarray(outputs["sequence_output"])
    assert not x[mask == 0].any()
    for i, places in enumerate(ways):
        rows = slice(2 * i, 2 * i + 2)
        np.testing.assert_allclose(x[rows, places], first["sequence_output"], atol=1e-5)
        for name, value in first["states"].items():
            np.testing.assert_allclose(outputs["states"][name][rows], value, atol=1e-5)
    wide[mask == 0] = ids[0, 0]  # words, but masked
    np.testing.assert_allclose(top(tiny, wide, padding_mask=mask), x, atol=1e-5)


def test_an_empty_sentence_is_its_boundaries(tiny):
    ids = np.zeros((2, 3, 50), "int32")
    states, mask = with_boundaries(tiny, ids)
    assert mask.sum() == 4
    assert np.isfinite(states).all() and states[:, :, :2].any()
    assert not top(tiny, ids).any()
    assert top(tiny, ids[:, :0]).shape == (2, 0, 6)


def test_any_words(tiny, tokenizer):
    """One, a long one, emoji, invalid bytes, and markers; alone as beside others."""
    texts = ["x", "a" * 200, "🙂 naïve 日本語", b"\xff\xfe \xc3 ok", "one <S> </S> two"]
    together = top(tiny, tokenizer([*texts, "a b c d e"]).to_tensor())
    for text, row in zip(texts, together, strict=False):
        x = top(tiny, tokenizer([text]).to_tensor())
        assert x.shape == (1, len(text.split()), 6) and np.isfinite(x).all()
        np.testing.assert_allclose(row[: x.shape[1]], x[0], atol=1e-5)


def test_a_thousand_words(tiny, tokenizer):
    words = [f"w{i}" for i in range(1000)]
    ids = tokenizer([" ".join(words), "short"]).to_tensor()
    run = tf.function(
        lambda ids: tiny({"character_ids": ids})["sequence_output"],
        input_signature=[tf.TensorSpec((None, None, 50), tf.int32)],
        autograph=False,
    )
    x = run(ids).numpy()
    assert x.shape == (2, 1000, 6) and np.isfinite(x).all() and not x[1, 1:].any()
    # Far from an end, what stands there is forgotten; near it, it counts.
    cut = run(ids[:, 200:]).numpy()
    np.testing.assert_allclose(cut[0, 600:], x[0, 800:], atol=1e-4)
    assert np.abs(cut[0, 0] - x[0, 200]).max() > 1e-3


# === Arguments and files ===


def test_config_round_trip_and_dtype(tiny, tokenizer):
    assert ElmoBackbone.from_config(tiny.get_config()).get_config() == tiny.get_config()
    half = ElmoBackbone.from_config(tiny.get_config() | {"dtype": "mixed_bfloat16"})
    for variable, own in zip(half.weights, tiny.weights, strict=True):
        variable.assign(own)
    ids = tokenizer(["one two three"]).to_tensor()
    np.testing.assert_allclose(
        np.asarray(half({"character_ids": ids})["sequence_output"], "float32"),
        top(tiny, ids),
        atol=0.1,
    )


def test_sizes():
    backbone = Backbone.from_preset("elmo_small_en", load_weights=False)
    assert backbone.output["sequence_output"].shape == (None, None, 256)
    assert round(backbone.count_params() / 1e5) == 136  # 13.6 million, its page says
    with pytest.raises(ValueError, match=r"allenai\.org"):
        Backbone.from_preset("elmo_original_en")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"project_words": False}, "project_words"),
        ({"project_cells": False}, "project_cells"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"filters": [(1, 4), (51, 4)]}, "reads 51 characters"),
    ],
)
def test_widths_have_to_agree(change, words):
    with pytest.raises(ValueError, match=words):
        ElmoBackbone(**TINY | change)


def test_wrong_inputs(tiny):
    with pytest.raises(ValueError, match="lacks 'character_ids'"):
        tiny({"padding_mask": [[1]]})
    ids = np.ones((1, 2, 50), "int32")
    with pytest.raises(ValueError, match="states has another structure"):
        tiny({"character_ids": ids, "states": {"hidden": np.zeros((1, 2, 6))}})
    states = dict(tiny.initial_state(1), cell=np.zeros((1, 2, 7)))
    with pytest.raises(ValueError, match=r"states has a tensor of shape \(1, 2, 7\)"):
        tiny({"character_ids": ids, "states": states})
    with pytest.raises(ValueError, match="no attention"):
        tiny.attention_probabilities({"character_ids": ids})


def changed_copy(folder, new, options=None, tensors=None):
    """A checkpoint with other options, and tensors put in, or taken out where None."""
    new.mkdir()
    stored = json.loads((folder / "options.json").read_text())
    for part, values in (options or {}).items():
        stored[part] = values if values is None else stored.get(part, {}) | values
    stored = {part: values for part, values in stored.items() if values is not None}
    (new / "elmo_2x_options.json").write_text(json.dumps(stored))
    shutil.copy(folder / "lm_weights.hdf5", new / "elmo_2x_weights.hdf5")
    with h5py.File(new / "elmo_2x_weights.hdf5", "a") as file:
        for name, value in (tensors or {}).items():
            del file[name]
            if value is not None:
                file[name] = value
    return new


def test_published_file_names_and_a_character_too_many(goldens, golden, tmp_path):
    ids, expected = golden
    with h5py.File(goldens("elmo") / "lm_weights.hdf5") as file:
        table = np.pad(file["char_embed"][:], [(0, 1), (0, 0)], constant_values=9.0)
    for number, change in ((1, {}), (2, {"tensors": {"char_embed": table}})):
        folder = changed_copy(goldens("elmo"), tmp_path / str(number), **change)
        (folder / "other.hdf5").write_bytes(b"not weights")
        np.testing.assert_array_equal(top(Backbone.from_preset(folder), ids), expected)
        assert keras_lm.tokenizers.Tokenizer.from_preset(folder).characters_per_word == 50
    folder = changed_copy(goldens("elmo"), tmp_path / "3", tensors={"char_embed": table[:100]})
    with pytest.raises(CheckpointError, match="char_embed has 100 rows"):
        Backbone.from_preset(folder)


def test_other_networks(goldens, golden, tmp_path):
    ids, full = golden
    plain = changed_copy(goldens("elmo"), tmp_path / "1", {"lstm": {"use_skip_connections": False}})
    loose = changed_copy(goldens("elmo"), tmp_path / "2", {"lstm": {"cell_clip": None}})
    for folder in (plain, loose):
        x = top(Backbone.from_preset(folder), ids)
        assert np.abs(x - full).max() > 0.01 and np.isfinite(x).all()
    without = {f"CNN_high_{i}/{part}": None for i in (0, 1) for part in ("W_carry", "b_carry")}
    without |= {
        f"CNN_high_{i}/{part}": None for i in (0, 1) for part in ("W_transform", "b_transform")
    }
    folder = changed_copy(
        goldens("elmo"), tmp_path / "3", {"char_cnn": {"n_highway": None}}, without
    )
    assert Backbone.from_preset(folder).config["num_highways"] == 0


def test_one_layer_without_any_projection(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"char_embed": (261, 3), "CNN/W_cnn_0": (1, 2, 3, 4), "CNN/b_cnn_0": (4,)}
    for number in (0, 1):
        cell = f"RNN_{number}/RNN/LSTMCell"
        arrays |= {f"{cell}/W_0": (8, 16), f"{cell}/B": (16,)}
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        for name, shape in arrays.items():
            file[name] = rng.normal(size=shape).astype("float32")
    options = {
        "lstm": {"dim": 4, "projection_dim": 4, "n_layers": 1},
        "char_cnn": {
            "activation": "tanh",
            "embedding": {"dim": 3},
            "filters": [[2, 4]],
            "n_characters": 261,
            "max_characters_per_token": 20,
        },
    }
    (tmp_path / "options.json").write_text(json.dumps(options))
    backbone = Backbone.from_preset(tmp_path)
    assert top(backbone, np.full((1, 2, 20), 7, "int32")).shape == (1, 2, 8)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"options": {"char_cnn": None}}, "whole words"),
        ({"options": {"char_cnn": {"activation": "selu"}}}, "selu"),
        ({"options": {"lstm": {"projection_dim": 15}}}, "does not describe"),
        ({"tensors": {"CNN_proj/b_proj": None}}, "lacks the weights of character_cnn/projection"),
    ],
    ids=["words", "activation", "width", "missing"],
)
def test_what_cannot_be_loaded_is_said(goldens, tmp_path, change, words):
    folder = changed_copy(goldens("elmo"), tmp_path / "new", **change)
    with pytest.raises(ValueError, match=words):
        Backbone.from_preset(folder)


def test_ambiguous_folders_are_refused(goldens, tmp_path):
    folder = changed_copy(goldens("elmo"), tmp_path / "new")
    shutil.copy(folder / "elmo_2x_weights.hdf5", folder / "more_weights.hdf5")
    with pytest.raises(CheckpointError, match=r"more_weights\.hdf5"):
        Backbone.from_preset(folder)
    shutil.copy(folder / "elmo_2x_options.json", folder / "options.json")
    with pytest.raises(CheckpointError, match="several models"):
        Backbone.from_preset(folder)
    (folder / "options.json").unlink()
    for path in folder.glob("*.hdf5"):
        path.unlink()
    with pytest.raises(CheckpointError, match=r"NAME_weights\.hdf5"):
        Backbone.from_preset(folder)


# === The vocabulary cache ===


def test_cached_words_are_looked_up_and_others_computed(goldens, tokenizer):
    backbone = Backbone.from_preset(goldens("elmo-small"))
    ids = tokenizer(["the cat saw the dog 🙂", "the unknown"]).to_tensor()
    expected = top(backbone, ids)
    backbone.cache_words(tokenizer.tokenize_words(["the", "cat", "saw", "the", "bird"]))
    np.testing.assert_allclose(top(backbone, ids), expected, atol=1e-5)

    # Only what is in the cache stays as it was, when the weights below it change.
    words = tokenizer.tokenize_words(["cat", "dog"])
    before = np.asarray(backbone.character_cnn(words))
    for weight in backbone.character_cnn.weights:
        weight.assign(weight * 1.5)
    after = np.asarray(backbone.character_cnn(words))
    np.testing.assert_array_equal(after[0], before[0])
    assert np.abs(after[1] - before[1]).max() > 0.01
    trained = np.asarray(backbone.character_cnn(words, training=True))
    assert np.abs(trained[0] - before[0]).max() > 0.01
    backbone.cache_words(None)
    np.testing.assert_allclose(backbone.character_cnn(words), trained, atol=1e-6)
    with pytest.raises(ValueError, match="one row or more, of 50"):
        backbone.cache_words(np.zeros((0, 50), "int32"))
