"""AWD-LSTM and ULMFiT's classifier against fastai, and from strings to a SavedModel."""

import json
import pickle
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.models import AWDLSTMBackbone, Backbone
from keras_lm.tasks import CausalLM, TextClassifier
from keras_lm.tokenizers import WordTokenizer

SPECIAL = ["xxunk", "xxpad", "xxbos", "xxeos", "xxfld", "xxrep", "xxwrep", "xxup", "xxmaj"]
WORDS = ["the", "film", "was", "good", "bad", ".", "a", "joy", "waste"]


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer(
        SPECIAL + WORDS, "xxunk", "xxpad", "xxbos", "xxeos", SPECIAL[4:], rules="fastai"
    )


@pytest.fixture(scope="module")
def small(tokenizer):
    keras.utils.set_random_seed(1)
    return AWDLSTMBackbone(
        tokenizer.vocabulary_size, num_layers=2, hidden_dim=12, embedding_dim=8, classifier_dims=[6]
    )


# === Parity ===


@pytest.fixture(scope="module", params=["awd-lstm", "awd-lstm-bidir"])
def language_model(request, goldens):
    folder = goldens(request.param)
    return CausalLM.from_preset(folder), np.load(folder / "expected.npz")


def test_language_model(language_model, assert_equal):
    task, arrays = language_model
    states = None
    for name in ("ids1", "ids2"):
        inputs = {"token_ids": arrays[f"in.{name}"].astype("int32"), "states": states}
        outputs = task.backbone(inputs)
        states = outputs["states"]
        assert_equal(outputs["sequence_output"], arrays[f"out.{name}.encoder"])
        assert_equal(task.head(outputs), arrays[f"out.{name}.logits"])
    for i, state in enumerate(states):
        for part, theirs in (("hidden", "h"), ("cell", "c")):
            expected = arrays[f"out.final_{theirs}.{i}"]  # (directions, B, width)
            assert_equal(state[part], np.concatenate(list(expected), axis=-1))


def test_padding_on_either_side_changes_nothing(language_model, assert_equal):
    task, arrays = language_model
    ids = arrays["in.ids1"].astype("int32")
    start = task.backbone({"token_ids": arrays["in.ids2"].astype("int32")})["states"]
    # All rows three times in one batch, with padding on one side or on both.
    sides = [(0, 3), (3, 0), (1, 2)]
    three = range(len(sides))
    wide = np.concatenate([np.pad(ids, [(0, 0), side], constant_values=1) for side in sides])
    mask = np.concatenate([np.pad(np.ones_like(ids), [(0, 0), side]) for side in sides])
    repeated = tf.nest.map_structure(lambda x: np.concatenate([x for _ in three]), start)
    for states, of_each in ((None, None), (start, repeated)):
        alone = task.backbone({"token_ids": ids, "states": states})
        outputs = task.backbone({"token_ids": wide, "padding_mask": mask, "states": of_each})
        for i, (left, _) in enumerate(sides):
            rows = slice(i * len(ids), (i + 1) * len(ids))
            x = outputs["sequence_output"][rows, left : left + ids.shape[1]]
            assert_equal(x, alone["sequence_output"])
            for actual, expected in zip(
                tf.nest.flatten(outputs["states"]),
                tf.nest.flatten(alone["states"]),
                strict=True,
            ):
                assert_equal(actual[rows], expected)


def test_hidden_states_and_rows_of_padding(language_model, hidden_states):
    backbone = language_model[0].backbone
    model = keras.Model(backbone.inputs, backbone.hidden_states)
    actual = model({"token_ids": np.array([[5, 6]]), "padding_mask": np.array([[0, 0]])})
    assert [state.shape[-1] for state in actual] == [24, 40, 40, 24]
    assert not np.any(actual[-1])


def test_two_calls_are_one(goldens, assert_equal):
    backbone = Backbone.from_preset(goldens("ulmfit-classifier"))
    ids = np.arange(2, 16, dtype="int32").reshape(2, 7)
    whole = backbone({"token_ids": ids})
    first = backbone({"token_ids": ids[:, :3]})
    rest = backbone({"token_ids": ids[:, 3:], "states": first["states"]})
    assert_equal(rest["sequence_output"], whole["sequence_output"][:, 3:])
    assert_equal(rest["states"][2]["cell"], whole["states"][2]["cell"])
    with pytest.raises(ValueError, match="states has another structure"):
        backbone({"token_ids": ids, "states": first["states"][:1]})


def test_a_batch_may_change_its_size(goldens, assert_equal):
    backbone = Backbone.from_preset(goldens("ulmfit-classifier"))
    ids = np.arange(2, 16, dtype="int32").reshape(2, 7)
    states = backbone({"token_ids": ids})["states"]
    both = backbone({"token_ids": ids, "states": states})["sequence_output"]
    fewer = backbone({"token_ids": ids[:1], "states": states})["sequence_output"]
    assert_equal(fewer, both[:1])
    more = backbone({"token_ids": np.repeat(ids, 2, axis=0)[[0, 2, 1]], "states": states})
    assert_equal(more["sequence_output"][:2], both)
    assert_equal(more["sequence_output"][2:], backbone({"token_ids": ids[:1]})["sequence_output"])


@pytest.fixture(scope="module")
def classifier(goldens):
    folder = goldens("ulmfit-classifier")
    return TextClassifier.from_preset(folder), np.load(folder / "expected.npz")


def test_classifier(classifier, assert_equal):
    task, arrays = classifier
    ids = arrays["in.ids"].astype("int32")
    mask = (ids != 1).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": mask}
    logits = task(inputs)
    assert_equal(logits, arrays["out.logits"])
    assert_equal(tf.nn.log_softmax(logits), arrays["out.log_probs"])
    kept = slice(ids.shape[1] - 15, None)  # fastai gives the chunks that it pools
    real = mask[:, kept] > 0
    x = np.asarray(task.backbone(inputs)["sequence_output"])[:, kept]
    assert_equal(x[real], arrays["out.encoder"][real])


@pytest.mark.slow
def test_classifier_reads_a_row_alike_wherever_it_stands(classifier, assert_equal):
    task, arrays = classifier
    rows = [row[row != 1] for row in arrays["in.ids"].astype("int32")]
    width = max(map(len, rows)) + 9
    # All of them in one batch: at the left, at the right, and between.
    lefts = [(row, left) for row in rows for left in (0, width - len(row), 5)]
    sides = [(left, width - len(row) - left) for row, left in lefts]
    ids = np.stack([np.pad(row, side) for (row, _), side in zip(lefts, sides)])
    mask = np.stack([np.pad(np.ones_like(row), side) for (row, _), side in zip(lefts, sides)])
    actual = np.split(task({"token_ids": ids, "padding_mask": mask}), len(rows))
    for row, three in zip(rows, actual, strict=True):
        alone = np.asarray(task({"token_ids": row[None]}))
        for logits in three:
            assert_equal(logits, alone[0])
    nothing = {"token_ids": np.ones((1, 4), "int32"), "padding_mask": np.zeros((1, 4), "int32")}
    assert np.all(np.isfinite(task(nothing)))


@pytest.mark.slow
def test_no_limit_of_what_is_pooled(goldens, tmp_path):
    inputs = {"token_ids": np.arange(2, 26, dtype="int32")[None]}
    logits = {}
    for limit in (None, 10**6, 16):
        folder = shutil.copytree(goldens("ulmfit-classifier"), tmp_path / str(limit))
        config = json.loads((folder / "config.json").read_text()) | {"max_len": limit}
        (folder / "config.json").write_text(json.dumps(config))
        logits[limit] = np.asarray(TextClassifier.from_preset(folder)(inputs))
    np.testing.assert_array_equal(logits[None], logits[10**6])
    assert np.abs(logits[None] - logits[16]).max() > 1e-3


# === Files ===


def test_other_spellings_of_fastais_names(goldens, tmp_path, assert_equal):
    """An encoder alone, fastai 0.7's names, and version 1's copies of the recurrent weights."""
    checkpoint = open_checkpoint(goldens("awd-lstm"))
    assert checkpoint.format == "fastai"
    tensors = {name: np.ascontiguousarray(checkpoint.tensors[name]) for name in checkpoint.tensors}
    ids = np.array([[5, 9, 77]], "int32")
    expected = Backbone.from_preset(goldens("awd-lstm"))({"token_ids": ids})["sequence_output"]
    alone = {k.removeprefix("0."): v for k, v in tensors.items() if k.startswith("0.")}
    oldest = {
        k.replace("weight_hh_l0_raw", "module.weight_hh_l0_raw").replace(
            "encoder_dp.emb", "encoder_with_dropout.embed"
        ): v
        for k, v in tensors.items()
    }
    copies = {
        k.replace("weight_hh_l0_raw", "module.weight_hh_l0"): v * 0
        for k, v in tensors.items()
        if k.endswith("_raw")
    }
    for number, renamed in enumerate((alone, oldest, copies | tensors)):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_file(renamed, folder / "model.safetensors")
        backbone = Backbone.from_preset(folder)
        assert type(backbone) is AWDLSTMBackbone
        assert backbone.config["hidden_dim"] == 40
        assert_equal(backbone({"token_ids": ids})["sequence_output"], expected)
    tensors["1.decoder.weight"] = tensors["1.decoder.weight"] + 1
    save_file(tensors, tmp_path / "2" / "model.safetensors")
    with pytest.raises(CheckpointError, match="tie_weights=False"):
        Backbone.from_preset(tmp_path / "2")


def test_two_models_in_a_folder(goldens, tmp_path):
    for name in ("fwd.pth", "bwd.pth"):
        shutil.copy(goldens("awd-lstm") / "lstm.pth", tmp_path / name)
    with pytest.raises(CheckpointError, match=r"several models: bwd\.pth, fwd\.pth"):
        Backbone.from_preset(tmp_path)


@pytest.mark.eager
def test_published_folder_with_its_vocabulary(goldens, tmp_path):
    shutil.copy(goldens("awd-lstm") / "lstm.pth", tmp_path / "lstm_fwd.pth")  # and no config.json
    words = SPECIAL + WORDS + [f"word{i}" for i in range(130 - len(SPECIAL + WORDS))]
    (tmp_path / "itos_wt103.pkl").write_bytes(pickle.dumps(words))
    task = CausalLM.from_preset(tmp_path)
    config = task.backbone.config
    assert (config["num_layers"], config["embedding_dim"], config["dropout"]) == (3, 24, 0.15)
    scores = task.score(["the film was good", ""])
    assert scores["num_tokens"].tolist() == [4, 0]
    assert scores["tokens"][0, 1] == "film"
    ids = np.array([[2, *task.tokenizer("the film was good").numpy()]])
    log_likelihood = tf.nn.log_softmax(task({"token_ids": ids[:, :-1]}), axis=-1).numpy()[0]
    expected = sum(log_likelihood[i, token] for i, token in enumerate(ids[0, 1:]))
    np.testing.assert_allclose(scores["scores"][0], expected, rtol=1e-5)
    # Greedy continuation by the states equals reading everything anew at each step.
    text = task.generate("the film", max_new_tokens=3)[0]
    ids = [2, *task.tokenizer("the film").numpy()][1:]
    for word in text.split():
        following = int(np.argmax(task({"token_ids": np.array([ids])})[0, -1]))
        assert task.tokenizer.vocabulary[following] == word
        ids.append(following)


@pytest.mark.eager
def test_a_model_of_both_directions_continues_nothing(goldens, language_model):
    task, _ = language_model
    if task.backbone.config["bidirectional"]:
        with pytest.raises(ValueError, match="cannot continue one"):
            task.generate({"token_ids": [[5, 6]]}, max_new_tokens=1)


def test_size():
    assert AWDLSTMBackbone.SIZES["awd_lstm_base_en"]["vocabulary_size"] == 60000
    with pytest.raises(ValueError, match="fast-ai-modelzoo"):
        Backbone.from_preset("awd_lstm_base_en")


# === Training, and strings in ===


def test_training_drops_and_penalises(small):
    ids = np.array([[2, 9, 10, 11, 12], [2, 15, 16, 1, 1]], "int32")
    inputs = {"token_ids": ids, "padding_mask": (ids != 1).astype("int32")}
    still = small(inputs, training=False)["sequence_output"]
    moved = small(inputs, training=True)["sequence_output"]
    assert np.abs(still - moved).max() > 1e-4
    assert not np.any(np.asarray(moved)[1, 3:])

    head = small.make_head(
        "causal_lm",
    )
    head.penalty.dropout.rate = 0.0
    outputs = {"sequence_output": still}
    assert head(outputs, inputs, with_terms=True)[1] == []
    _, terms = head(outputs, inputs, training=True, with_terms=True)
    penalties = [float(total / count * weight) for total, count, weight in terms]
    x = np.asarray(still)
    mask = inputs["padding_mask"][..., None]
    steps = (x[:, 1:] - x[:, :-1]) ** 2 * mask[:, 1:]
    expected = [2 * (x**2 * mask).sum() / (8 * 8), steps.sum() / (6 * 8)]
    np.testing.assert_allclose(penalties, expected, rtol=1e-5)


def test_embedding_dropout_drops_words(small):
    dropout = small.word_dropout
    dropout.rate = 0.5
    ids = np.array([[3, 4, 3, 5], [4, 3, 5, 5]], "int32")
    kept = np.asarray(dropout(np.ones((2, 4, 1), "float32"), ids, training=True))[..., 0]
    dropout.rate = 0.02
    assert set(np.unique(kept)) <= {0.0, 2.0}
    for word in (3, 4, 5):
        assert len(np.unique(kept[ids == word])) == 1


def test_a_vocabulary_of_the_target_texts(small, tokenizer):
    words = [*SPECIAL, "bad", "new", "good"]
    copy = small.with_vocabulary(tokenizer.vocabulary, words)
    old, new = (model.token_embedding.embeddings.numpy() for model in (small, copy))
    np.testing.assert_array_equal(new[9], old[tokenizer.token_to_id("bad")])
    np.testing.assert_allclose(new[10], old.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(copy.lstms[0].kernel, small.lstms[0].kernel)


@pytest.mark.slow
def test_classifier_of_strings_as_preset_and_saved_model(small, tokenizer, tmp_path):
    task = TextClassifier(small, tokenizer=tokenizer, class_names=["bad", "good"])
    task.compile(optimizer=keras.optimizers.Adam(0.03))
    texts = ["the film was good .", "a joy", "a waste", "The film was BAD ."] * 2
    labels = ["good", "good", "bad", "bad"] * 2
    losses = task.fit(texts, labels, batch_size=8, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]
    texts = ["a good film", "", "bad " * 40, "zebra \U0001f600"]
    expected = task.classify(texts)
    task.save_to_preset(tmp_path / "preset")
    stored = json.loads((tmp_path / "preset" / "keras_lm.json").read_text())
    assert stored["backbone"]["class"] == "AWDLSTMBackbone"
    again = TextClassifier.from_preset(tmp_path / "preset").classify(texts)
    np.testing.assert_allclose(again["scores"], expected["scores"], atol=1e-6)
    serve = tf.saved_model.load(str(task.export(tmp_path / "export"))).signatures["serving_default"]
    served = serve(text=tf.constant(texts))["scores"]
    np.testing.assert_allclose(served, expected["scores"], atol=1e-5)
    with pytest.raises(
        ValueError, match=r"LiteRT or ONNX: its rules='fastai' need.*: StaticRegexReplace and"
    ):
        task.export(tmp_path / "model.tflite", format="litert")


@pytest.mark.thorough  # as in tests/export/test_recurrent_generation.py
def test_language_model_of_strings_as_saved_model(small, tokenizer, tmp_path):
    task = CausalLM(small, tokenizer=tokenizer)
    module = tf.saved_model.load(str(task.export(tmp_path / "export")))
    assert "next_token" in module.signatures
    answer = module.signatures["serving_default"](prompt=tf.constant(["the film"]))
    assert answer["text"].numpy()[0].decode() == task.generate("the film")[0]
    path = task.export(tmp_path / "model.tflite", format="litert")
    assert set(signatures_of(path)) == {"next_token"}  # fastai's rules do not run in LiteRT


def signatures_of(path):
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT")
    from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS

    return litert.InterpreterWithCustomOps(
        model_path=str(path), custom_op_registerers=SELECT_TFTEXT_OPS
    ).get_signature_list()
