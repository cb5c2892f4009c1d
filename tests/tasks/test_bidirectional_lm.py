"""Bidirectional language modelling on raw sentences: learning, scores, presets, AllenNLP files."""

import json

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_lm
from keras_lm.models import Backbone, ElmoBackbone, ElmoForwardBackbone
from keras_lm.objectives import IGNORED
from keras_lm.tasks import BidirectionalLM, CausalLM
from keras_lm.tokenizers import CharacterTokenizer, learn_words

TEXTS = ["the cat sat on the mat .", "a dog saw the cat .", "the dog sat .", "", "it ran"]
SIZE = {"num_layers": 2, "hidden_dim": 8, "cell_dim": 12, "filters": [(1, 8), (3, 8)]}


def make(num_candidates=8, **options):
    keras.utils.set_random_seed(0)
    backbone = ElmoBackbone(**SIZE | {"characters_per_word": 12} | options)
    return BidirectionalLM(
        backbone,
        words=learn_words(TEXTS, 100),
        num_candidates=num_candidates,
        tokenizer=CharacterTokenizer(characters_per_word=12),
    )


@pytest.fixture(scope="module")
def fresh():
    return make()


@pytest.fixture(scope="module")
def shaken():
    """A task with weights so large that its states matter."""
    task = make()
    for number, weight in enumerate(task.trainable_weights):
        weight.assign_add(0.5 * keras.random.normal(weight.shape, seed=number))
    return task


@pytest.fixture(scope="module")
def trained():
    """A task that has learnt the sentences, and its losses before and while it did."""
    task = make(num_layers=1)
    task.compile(optimizer=keras_lm.training.AdamW(0.05))
    before = task.evaluate(TEXTS, return_dict=True, verbose=0)
    task.fit(TEXTS * 10, batch_size=5, epochs=4, shuffle=False, verbose=0)
    return task, before, task.evaluate(TEXTS, return_dict=True, verbose=0)


def logits(task, texts):
    outputs = task.predict_on_batch(texts)
    return np.asarray(outputs["forward_logits"]), np.asarray(outputs["backward_logits"])


def test_words_of_a_corpus():
    words = learn_words(TEXTS, 7)
    assert words == ["<S>", "</S>", "<UNK>", "the", ".", "cat", "dog"]  # by count, then by letters
    assert "it" not in learn_words(TEXTS, 100, min_count=2)
    assert learn_words(["a <S>"], 100, splitter="whitespace") == ["<S>", "</S>", "<UNK>", "a"]
    with pytest.raises(ValueError, match="vocabulary_size=3"):
        learn_words(TEXTS, 3)
    with pytest.raises(ValueError, match="min_count=9"):
        learn_words(TEXTS, 9, min_count=9)


@pytest.mark.eager
def test_word_ids(fresh):
    task = fresh
    ids = task.preprocess({"text": np.array(["the zebra", ""])})["word_ids"]
    np.testing.assert_array_equal(ids, [[0, 3, 2, 1], [0, 1, IGNORED, IGNORED]])


@pytest.mark.slow
def test_a_few_steps_teach_both_directions():
    task = make(num_layers=1)
    task.compile(optimizer=keras_lm.training.AdamW(0.05))
    losses = task.fit(TEXTS * 5, batch_size=5, epochs=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.thorough
def test_both_directions_learn_from_samples(trained):
    _, before, after = trained
    for name in ("forward_perplexity", "backward_perplexity", "perplexity"):
        assert after[name] < before[name] / 3, name
    assert after["loss"] == pytest.approx(np.log(after["perplexity"]), abs=1e-4)


@pytest.mark.eager
def test_no_direction_sees_what_it_predicts(fresh):
    task = fresh
    one, other = logits(task, ["the cat sat on a mat"]), logits(task, ["the cat ran on a mat"])
    # Word 2 changed. Forward, place t has read words 0 … t - 1; backward, words t … 5.
    for (first, second), unchanged in zip(
        zip(one, other, strict=True), (slice(0, 3), slice(3, None)), strict=True
    ):
        same = np.isclose(first, second, atol=1e-6).all(-1)[0]
        expected = np.zeros(7, bool)
        expected[unchanged] = True
        np.testing.assert_array_equal(same, expected)


@pytest.mark.eager
def test_padding_makes_no_difference(shaken, capsys):
    task = shaken
    together = task.score(TEXTS, verbose=1)
    assert "1/1" in capsys.readouterr().out
    for i in (2, 3):
        alone = task.score([TEXTS[i]])
        for name, values in together.items():
            assert alone[name][0] == pytest.approx(values[i], rel=1e-4)
    measured = task.evaluate(TEXTS, batch_size=2, return_dict=True, verbose=0)
    words = np.array([len(text.split()) + 1 for text in TEXTS])
    assert measured["perplexity"] == pytest.approx(
        np.exp(-together["scores"].sum() / words.sum()), rel=1e-4
    )


@pytest.mark.eager
def test_preset_round_trip(fresh, tmp_path):
    task = fresh
    task.save_to_preset(tmp_path / "preset")
    again = BidirectionalLM.from_preset(tmp_path / "preset")
    assert again.words == task.words
    assert again.num_candidates == task.num_candidates
    for name, values in task.score(TEXTS).items():
        np.testing.assert_array_equal(again.score(TEXTS)[name], values)


@pytest.mark.slow
@pytest.mark.eager
def test_saved_model_scores_as_the_task(trained, tmp_path):
    task, *_ = trained
    serve = tf.saved_model.load(task.export(tmp_path)).signatures["serving_default"]
    served = serve(text=tf.constant(TEXTS))
    for name, values in task.score(TEXTS).items():
        np.testing.assert_allclose(served[name], values, rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.thorough),
        {"num_layers": 1, "num_highways": 1, "residual": False, "activation": "tanh"},
        {"hidden_dim": 16, "cell_dim": 16, "project_words": False, "project_cells": False},
        {"cell_clip": None, "projection_clip": None, "embedding_dim": 5, "dropout": 0.25},
    ],
)
def test_allennlp_files_hold_the_same_model(options, tmp_path):
    task = make(**options)
    rng = np.random.default_rng(1)
    for weight in task.backbone.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.5))
    task.backbone.save_to_allennlp(tmp_path / "elmo")
    assert {path.name for path in tmp_path.iterdir()} == {"elmo"}  # nothing temporary is left
    assert json.loads((tmp_path / "elmo/options.json").read_text())["lstm"]["n_layers"]
    again = Backbone.from_preset(tmp_path / "elmo")
    config = task.backbone.get_config()
    assert again.get_config() | {"name": config["name"]} == config
    for ours, theirs in zip(task.backbone.weights, again.weights, strict=True):
        rows = slice(1, None) if ours.path.endswith("embeddings") else slice(None)  # no padding
        np.testing.assert_array_equal(np.asarray(ours)[rows], np.asarray(theirs)[rows])
    inputs = task.preprocess({"text": np.array(TEXTS)})
    inputs = {"character_ids": inputs["character_ids"]}
    np.testing.assert_array_equal(
        task.backbone(inputs)["sequence_output"], again(inputs)["sequence_output"]
    )


def test_published_files_come_back_byte_for_byte(goldens, tmp_path):
    backbone = Backbone.from_preset(goldens("elmo-small"))
    backbone.save_to_allennlp(tmp_path / "elmo")
    (published,) = goldens("elmo-small").glob("*.hdf5")
    with h5py.File(published) as theirs, h5py.File(tmp_path / "elmo/weights.hdf5") as ours:
        names = []
        theirs.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
        for name in names:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


# === The forward half ===


@pytest.fixture(scope="module")
def writer(trained):
    return trained[0].forward_language_model()


def forward_inputs(writer, texts):
    """Sentences after their begin, padded on the right: (B, T) ids and mask."""
    ids = writer.tokenizer(texts)
    begin = tf.fill([len(texts), 1], writer.tokenizer.special_id("bos"))
    ids = tf.concat([begin, ids], axis=1)
    return ids.to_tensor().numpy(), tf.ones_like(ids).to_tensor().numpy()


@pytest.mark.eager
def test_forward_half_predicts_what_the_direction_does(shaken):
    writer = shaken.forward_language_model()
    expected, _ = logits(shaken, TEXTS)  # (B, T, V)
    ids, mask = forward_inputs(writer, TEXTS)
    actual = np.asarray(writer({"token_ids": ids, "padding_mask": mask}))
    real = mask > 0
    assert expected[real].std() > 1
    np.testing.assert_allclose(actual[real], expected[real], rtol=1e-5, atol=1e-5)
    # With padding on both sides, and read in two calls.
    ids, mask = (np.pad(x, [(0, 0), (2, 0)]) for x in (ids, mask))
    states, parts = None, []
    for here in (slice(0, 4), slice(4, None)):
        inputs = {"token_ids": ids[:, here], "padding_mask": mask[:, here], "states": states}
        outputs = writer.backbone(inputs)
        states = outputs["states"]
        parts.append(writer.head(outputs))
    assert not np.asarray(outputs["sequence_output"])[mask[:, 4:] == 0].any()
    actual = np.concatenate(parts, axis=1)
    np.testing.assert_allclose(actual[mask > 0], expected[real], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.eager
def test_forward_half_continues_sentences(trained, writer):
    perplexity = trained[0].evaluate(TEXTS, return_dict=True, verbose=0)["forward_perplexity"]
    measured = writer.evaluate(TEXTS, return_dict=True, verbose=0)["perplexity"]
    assert measured == pytest.approx(perplexity, rel=1e-4)
    prompt = {"token_ids": [[writer.tokenizer.token_to_id(w) for w in ("<S>", "the", "dog")]]}
    (ids,) = writer.generate(prompt)
    assert writer.tokenizer.detokenize([ids]).numpy()[0].decode() == "sat ."


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.thorough)]
)
def test_forward_half_in_files(writer, dtype, tmp_path):
    writer.save_to_preset(tmp_path / "preset")
    again = CausalLM.from_preset(tmp_path / "preset", dtype=dtype)
    assert type(again.backbone) is ElmoForwardBackbone
    ids, mask = forward_inputs(writer, TEXTS)
    inputs = {"token_ids": ids, "padding_mask": mask}
    expected = writer(inputs)
    np.testing.assert_allclose(again(inputs), expected, atol=0.3 if "16" in dtype else 1e-6)
    if dtype == "float32":
        again.save(tmp_path / "task.keras")
        loaded = keras.models.load_model(tmp_path / "task.keras")
        np.testing.assert_allclose(loaded(inputs), expected, atol=1e-6)
        assert loaded.generate(["the"]) == writer.generate(["the"])


@pytest.mark.slow
@pytest.mark.eager
def test_training_the_forward_half_leaves_the_whole_as_it_is(trained):
    task, *_ = trained
    before = [np.array(weight) for weight in task.weights]
    writer = task.forward_language_model()
    writer.fit(TEXTS, verbose=0)
    assert writer.backbone.spelling.shape == (len(task.words), 12)
    for old, weight in zip(before, task.weights, strict=True):
        np.testing.assert_array_equal(old, weight)


def test_files_are_not_overwritten(fresh, tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="choose another folder"):
        fresh.backbone.save_to_allennlp(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


@pytest.mark.eager
def test_mistakes(fresh):
    task = fresh
    with pytest.raises(ValueError, match="leave y out"):
        task.fit(TEXTS, [0] * len(TEXTS), verbose=0)
    with pytest.raises(ValueError, match="<UNK>"):
        BidirectionalLM(task.backbone, words=["<S>", "</S>", "cat"])
