"""What each task computes, learns and answers."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.tasks import FeatureExtractor, MaskedLM, Pretrainer, TextClassifier, TextRegressor
from keras_lm.training import AdamW
from keras_lm.utils import batch_iteration


def fast(task, rate=0.03, **options):
    """Compiled with a rate at which a small network learns in a few steps."""
    task.compile(optimizer=AdamW(rate), **options)
    return task


def pack(task, texts):
    return task.preprocess({"text": tf.constant(texts)})


# === TextClassifier ===


@pytest.mark.thorough
def test_learns_from_string_labels(make, texts, labels, eagerly):
    task = fast(make(TextClassifier, num_classes=2, in_graph=True))
    names = [("bad", "good")[label] for label in labels]
    losses = task.fit(
        texts * 10, names * 10, batch_size=10, epochs=4, shuffle=False, verbose=0
    ).history["loss"]
    assert losses[-1] < 0.1 < losses[0]
    assert task.class_names == ["bad", "good"]
    with eagerly():
        answer = task.classify(texts)
        assert answer["labels"].tolist() == names
        np.testing.assert_allclose(answer["scores"].sum(-1), 1.0, atol=1e-5)
        assert task.evaluate(texts, names, verbose=0, return_dict=True)["accuracy"] == 1.0


@pytest.mark.eager
def test_names_stand_beside_scores_and_top_k_keeps_the_best(make):
    names = ["film", "cast", "story"]
    task = make(TextClassifier, class_names=names)
    answer = task.classify(TEXTS)
    assert answer["class_names"].tolist() == names
    best = task.classify(TEXTS, top_k=2)
    for row in range(3):
        order = np.argsort(-answer["scores"][row])[:2]
        assert best["class_names"][row].tolist() == [names[i] for i in order]
        assert best["scores"][row].tolist() == answer["scores"][row][order].tolist()
        assert best["labels"][row] == best["class_names"][row][0]
    for wrong in (0, 4):
        with pytest.raises(ValueError, match=f"top_k={wrong}: pass an int, from 1 to 3"):
            task.classify(TEXTS, top_k=wrong)


@pytest.mark.eager
def test_progress_is_drawn_on_request(make, capsys, monkeypatch):
    task = make(FeatureExtractor)
    quiet = task.embed(TEXTS, batch_size=2)["embedding"]
    assert capsys.readouterr().out == ""
    data = tf.data.Dataset.from_tensor_slices(TEXTS).batch(2)
    # At its end TensorFlow logs an error: no loop of ours may come to it.
    monkeypatch.delattr(type(iter(data)), "__next__")
    for x in (TEXTS, data, data.filter(lambda _: True)):  # of the last, the length is unknown
        loud = task.embed(x, batch_size=2, verbose=1)["embedding"]
        np.testing.assert_allclose(loud, quiet, atol=1e-6)
        out = capsys.readouterr().out
        assert "2/2" in out or "2/Unknown" in out
        assert out.endswith("\n")


@pytest.mark.eager
@pytest.mark.parametrize(
    "seconds, watched, bar", [(0, True, "2/2"), (0, False, ""), (99, True, "")]
)
def test_progress_is_drawn_of_what_takes_long(make, capsys, monkeypatch, seconds, watched, bar):
    monkeypatch.setattr(batch_iteration, "SILENT_SECONDS", seconds)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: watched)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    make(FeatureExtractor).embed(TEXTS, batch_size=2)
    out = capsys.readouterr().out
    assert bar in out if bar else out == ""


def test_answers_follow_class_names_learned_later(make):
    task = make(TextClassifier, num_classes=2)
    assert set(task.classify(["a"])["labels"]) <= {"0", "1"}
    task.fit(["a", "good"], ["no", "yes"], verbose=0)
    assert set(task.classify(["a"])["labels"]) <= {"no", "yes"}


@pytest.mark.eager
def test_class_names_give_labels_their_order(make):
    task = make(TextClassifier, class_names=["good", "bad", "so"])
    assert task.labels.prepare(np.array(["bad", "good", "so"])).tolist() == [1, 0, 2]
    assert task.labels.prepare(np.array([b"bad"])).tolist() == [1]
    assert task.labels.prepare(np.array([2, 0], dtype=object)).tolist() == [2, 0]
    data = tf.data.Dataset.from_tensor_slices((["a", "it"], ["so", "bad"])).batch(2)
    assert task.evaluate(data, verbose=0) == pytest.approx(
        task.evaluate(["a", "it"], [2, 1], verbose=0)
    )


@pytest.mark.eager
def test_multi_label(make):
    names = ["film", "cast", "story"]
    task = make(TextClassifier, class_names=names, multi_label=True)
    lists = [["film"], ["cast", "story"], []]
    hot = [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    x = ["a", "good", "film"]
    by_name = task.evaluate(x, lists, verbose=0)
    assert by_name == pytest.approx(task.evaluate(x, hot, verbose=0))
    data = tf.data.Dataset.from_tensor_slices((x, hot)).batch(3)
    assert by_name == pytest.approx(task.evaluate(data, verbose=0))
    logits = task.predict(x, verbose=0)
    losses = -np.log(1 / (1 + np.exp(-np.where(np.array(hot) == 1, logits, -logits))))
    assert by_name[0] == pytest.approx(losses.mean(), rel=1e-4)

    answer = task.classify(x)
    best_first = [[names[i] for i in np.argsort(-row) if row[i] >= 0] for row in logits]
    assert answer["labels"] == best_first
    np.testing.assert_allclose(answer["scores"], 1 / (1 + np.exp(-logits)), atol=1e-5)
    assert answer["class_names"].tolist() == names
    served = task.answer_all(x)["labels"]  # no holes: all empty strings come last
    assert served.tolist() == [row + [""] * (3 - len(row)) for row in best_first]
    for nothing in ([[], [], []], [[0] * 3] * 3):
        assert np.isfinite(task.evaluate(x, nothing, verbose=0)[0])


def test_special_tokens_that_users_type_are_pieces(make, tokenizer):
    for cls, options in [(TextClassifier, {"num_classes": 2}), (FeatureExtractor, {})]:
        packed = pack(make(cls, **options), ["good [SEP] bad [MASK]"])
        ids = packed["token_ids"].numpy()[0]
        special = [tokenizer.special_id(role) for role in ("cls", "sep", "mask", "pad")]
        assert np.isin(ids[1:-1], special).sum() == 0
        assert len(ids) > 6


# === TextRegressor ===


@pytest.mark.eager
def test_a_new_head_begins_with_the_mean_of_the_labels(make):
    task = make(TextRegressor)
    task.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    task.fit(["good", "bad", "it"], [3.0, 5.0, 10.0], verbose=0)
    (bias,) = (v for v in task.head.weights if v.path == "classifier/logits/bias")
    assert bias.numpy() == [6.0]
    task.fit(["good", "bad"], [1.0, 2.0], verbose=0)  # not new any more
    assert bias.numpy() == [6.0]
    both = make(TextRegressor, symmetric=True)  # whose two orders are added
    both.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    both.fit((["good", "bad"], ["it", "the film"]), [3.0, 5.0], verbose=0)
    (bias,) = (v for v in both.head.weights if v.path == "classifier/logits/bias")
    assert bias.numpy() == [2.0]


@pytest.mark.eager
def test_regressor_takes_columns_and_rows_alike(make):
    task = make(TextRegressor)
    x, y = ["good", "bad", "a film"], np.array([0.5, 2.0, -1.0])
    expected = ((task.predict(x, verbose=0)[:, 0] - y) ** 2).mean()
    for labels in (y, y[:, None], y.tolist()):
        assert task.evaluate(x, labels, verbose=0)[0] == pytest.approx(expected, rel=1e-4)
        data = tf.data.Dataset.from_tensor_slices((x, labels)).batch(3)
        assert task.evaluate(data, verbose=0)[0] == pytest.approx(expected, rel=1e-4)
    scores = task.regress(x)["scores"]
    np.testing.assert_allclose(scores, task.predict(x, verbose=0)[:, 0], atol=1e-5)


@pytest.mark.thorough
def test_regressor_learns(make, texts, labels):
    task = fast(make(TextRegressor, in_graph=True), rate=0.005)
    labels = [2.0 + 3.0 * label for label in labels]
    losses = task.fit(texts * 5, labels * 5, epochs=8, batch_size=2, verbose=0).history["loss"]
    assert losses[-1] < 0.3 * losses[0]


# === MaskedLM ===


@pytest.mark.thorough
def test_masked_lm_learns_without_labels(make, eagerly):
    task = fast(make(MaskedLM, in_graph=True))
    losses = task.fit(["the film was good"] * 32, epochs=15, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    with eagerly():
        once, again = (task.evaluate(["the film was good"] * 4, verbose=0)[0] for _ in range(2))
    assert once == again


@pytest.mark.eager
def test_fill_mask_looks_at_the_masks(make, tokenizer):
    task = make(MaskedLM, top_k=3)
    x = ["the [MASK] was [MASK]", "good", "[MASK] story is good", ""]
    answer = task.fill_mask(x)
    assert answer["tokens"].shape == answer["scores"].shape == (4, 2, 3)
    packed = pack(task, x)
    ids, logits = packed["token_ids"].numpy(), task(packed).numpy()
    for row in range(4):
        columns = np.flatnonzero(ids[row] == tokenizer.special_id("mask"))
        filled = ids[row].copy()
        for m in range(2):
            if m >= len(columns):
                assert answer["tokens"][row, m].tolist() == [""] * 3
                assert answer["scores"][row, m].tolist() == [0.0] * 3
                continue
            scores = logits[row, columns[m]]
            best = np.argsort(-scores)[:3]
            filled[columns[m]] = best[0]
            expected = [tokenizer.id_to_token(int(i)) for i in best]
            assert answer["tokens"][row, m].tolist() == expected
            probabilities = np.exp(scores) / np.exp(scores).sum()
            np.testing.assert_allclose(answer["scores"][row, m], probabilities[best], atol=1e-5)
        assert answer["text"][row] == tokenizer.detokenize(filled).numpy().decode()


def test_fill_mask_over_batches_of_different_mask_counts(make):
    task = make(MaskedLM, top_k=2)
    answer = task.fill_mask(["[MASK]", "a", "[MASK] [MASK] good"], batch_size=1)
    assert answer["tokens"].shape == (3, 2, 2)
    assert (answer["tokens"][2] != "").all()
    assert answer["tokens"][1].tolist() == [["", ""]] * 2
    assert task.fill_mask(["a", "b"])["tokens"].shape == (2, 0, 2)


def test_a_typed_mask_is_never_to_be_predicted(make, tokenizer):
    task = make(MaskedLM)
    _, labels = task.objective.corrupt(pack(task, ["[MASK] [MASK] good [MASK]"] * 8))
    assert set(labels.numpy().ravel()) <= {-100, tokenizer.token_to_id("good")}


# === FeatureExtractor ===

LAYERS = {
    "embedding": lambda h: h[0],
    "first": lambda h: h[1],
    "second_to_last": lambda h: h[3],
    "last": lambda h: h[4],
    "sum_all": lambda h: h[1] + h[2] + h[3] + h[4],
    "sum_last_four": lambda h: h[1] + h[2] + h[3] + h[4],
    "concat_last_four": lambda h: np.concatenate(h[1:5], -1),
    "concat_embedding_last": lambda h: np.concatenate([h[0], h[4]], -1),
    "scalar_mix": lambda h: np.mean(h, axis=0),
    2: lambda h: h[2],
    -1: lambda h: h[4],
}
POOLINGS = {
    "first": lambda x: x[0],
    "last": lambda x: x[-1],
    "mean": lambda x: x.mean(0),
    "mean_sqrt_len": lambda x: x.sum(0) / np.sqrt(len(x)),
    "weighted_mean": lambda x: np.average(x, axis=0, weights=1 + np.arange(len(x))),
    "max": lambda x: x.max(0),
    "none": lambda x: x,
}
TEXTS = ["the film was good", "bad", "i loved it"]


@pytest.fixture(scope="module")
def four_layers():
    from keras_lm.models import BertBackbone

    keras.utils.set_random_seed(1)
    backbone = BertBackbone(40, num_layers=4, num_heads=2, hidden_dim=8, intermediate_dim=8)
    for weight in backbone.weights:
        if weight.dtype == "float32":
            weight.assign(np.random.default_rng(2).normal(size=weight.shape, scale=0.5))
    return backbone


@pytest.fixture(scope="module")
def hidden_states(make, four_layers):
    """The texts, packed, and all that the layers return for them."""
    packed = pack(make(FeatureExtractor, four_layers), TEXTS)
    states = keras.Model(four_layers.inputs, four_layers.hidden_states)(packed)
    return packed, np.stack([each.numpy() for each in states])


@pytest.mark.eager
@pytest.mark.parametrize(
    "layers, pooling, normalize",
    [(layers, "mean", False) for layers in LAYERS]
    + [("last", pooling, normalize) for pooling in POOLINGS for normalize in (False, True)],
)
def test_features_equal_numpy(make, four_layers, hidden_states, layers, pooling, normalize):
    task = make(FeatureExtractor, four_layers, layers=layers, pooling=pooling, normalize=normalize)
    packed, states = hidden_states
    states = LAYERS[layers](states)
    embedding = task(packed).numpy()
    if layers == "last":
        np.testing.assert_allclose(task.embed(TEXTS)["embedding"], embedding, atol=1e-5)
    for row, mask in enumerate(packed["padding_mask"].numpy()):
        length = mask.sum()
        expected = POOLINGS[pooling](states[row, :length])
        if normalize:
            expected = expected / np.linalg.norm(expected, axis=-1, keepdims=True)
        actual = embedding[row, :length] if pooling == "none" else embedding[row]
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
        if pooling == "none":
            assert (embedding[row, length:] == 0).all()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_features_of_nothing_but_padding_are_zero_or_finite(make, four_layers, pooling):
    task = make(FeatureExtractor, four_layers, pooling=pooling, normalize=True)
    nothing = {key: np.zeros((1, 3), "int32") for key in ("token_ids", "padding_mask")}
    assert np.isfinite(task(nothing)).all()


@pytest.mark.parametrize("pooling", [name for name in POOLINGS if name != "none"])
def test_features_ignore_padding_on_the_left(make, four_layers, pooling):
    task = make(FeatureExtractor, four_layers, pooling=pooling)
    right = {"token_ids": [[7, 8, 9, 0, 0]], "padding_mask": [[1, 1, 1, 0, 0]]}
    left = {"token_ids": [[0, 0, 7, 8, 9]], "padding_mask": [[0, 0, 1, 1, 1]]}
    np.testing.assert_allclose(task(left), task(right), atol=1e-5)


@pytest.mark.eager
def test_a_classifier_trains_the_mix_over_a_frozen_backbone(make, texts, labels):
    extractor = make(FeatureExtractor, layers="scalar_mix", regularization=0.1)
    extractor.backbone.trainable = False
    task = make(TextClassifier, extractor, num_classes=2)
    names = {w.path.split("/")[-1] for w in task.trainable_weights}
    assert names == {"scalars", "gamma", "kernel", "bias"}
    frozen = extractor.backbone.get_weights()
    mix = [w.numpy().copy() for w in extractor.mixes[0].weights]
    loss = fast(task, run_eagerly=True).fit(texts, labels, epochs=2, verbose=0).history["loss"]
    assert np.isfinite(loss).all()
    for before, after in zip(frozen, extractor.backbone.get_weights()):
        np.testing.assert_array_equal(before, after)
    for before, weight in zip(mix, extractor.mixes[0].weights):
        assert (before != weight.numpy()).any()
    extractor.mixes[0].scalars.assign([3.0, 0.0])
    logits = task(pack(task, texts))
    expected = keras.losses.sparse_categorical_crossentropy(
        np.array(labels), logits, from_logits=True
    )
    total = task.evaluate(texts, labels, verbose=0)[0]
    assert total == pytest.approx(float(np.mean(expected)) + 0.1 * 9.0, rel=1e-4)  # λ Σ s²


# === Pretrainer ===


@pytest.mark.eager
def test_pretrainer_on_pairs_and_on_packed_dicts(make):
    task = make(Pretrainer)
    first, second, labels = ["the film was", "i loved"] * 4, ["so good", "it !"] * 4, [0, 1] * 4
    history = task.fit((first, second), labels, epochs=1, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    columns = {"text": tf.constant(first), "text_pair": tf.constant(second)}
    packed = {key: value.numpy() for key, value in task.preprocess(columns).items()}
    outputs = task(packed)
    assert outputs["token_logits"].shape == (
        *packed["token_ids"].shape,
        len(task.tokenizer.vocabulary),
    )
    assert outputs["next_sentence_logits"].shape == (8, 2)

    token_labels = np.full_like(packed["token_ids"], -100)
    token_labels[:, 1] = packed["token_ids"][:, 1]
    targets = {"token_labels": token_labels, "next_sentence_labels": labels}

    def cross_entropy(labels, logits):
        labels = np.array(labels)
        loss = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return float(np.mean(loss))

    expected = cross_entropy(token_labels[:, 1], outputs["token_logits"][:, 1])
    expected += cross_entropy(labels, outputs["next_sentence_logits"])
    result = task.evaluate(packed, targets, verbose=0, return_dict=True)
    assert result["loss"] == pytest.approx(expected, rel=1e-4)
    some = packed | {"mask_positions": np.ones((8, 1), "int32")}
    fewer = targets | {"token_labels": token_labels[:, 1:2]}
    result = task.evaluate(some, fewer, verbose=0, return_dict=True)
    assert result["loss"] == pytest.approx(expected, rel=1e-4)
    history = task.fit(packed, targets, validation_split=0.25, verbose=0).history
    assert np.isfinite(history["val_loss"]).all()
    predicted = task.predict((first, second), batch_size=3, verbose=0)
    np.testing.assert_allclose(
        predicted["next_sentence_logits"], task(packed)["next_sentence_logits"], atol=1e-5
    )


# === Beside scikit-learn, and several of a kind ===


@pytest.mark.eager
def test_a_transformer_of_scikit_learn(make, four_layers):
    import pickle

    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    extractor = make(FeatureExtractor, four_layers)
    vectors = extractor.embed(TEXTS)["embedding"]
    transformer = extractor.as_transformer(batch_size=2)
    np.testing.assert_allclose(transformer.fit_transform(TEXTS), vectors, atol=1e-6)
    assert transformer.get_params() == {"extractor": extractor, "batch_size": 2}
    assert clone(transformer).extractor is extractor
    assert len(transformer.get_feature_names_out()) == vectors.shape[1]
    pipeline = clone(make_pipeline(transformer, LogisticRegression(C=100.0)))
    pipeline.set_params(texttransformer__batch_size=1).fit(TEXTS, ["x", "y", "y"])
    expected = LogisticRegression(C=100.0).fit(vectors, ["x", "y", "y"]).predict_proba(vectors)
    np.testing.assert_allclose(pipeline.predict_proba(TEXTS), expected, atol=1e-4)
    copy = pickle.loads(pickle.dumps(transformer))
    np.testing.assert_allclose(copy.transform(TEXTS), vectors, atol=1e-6)
    with pytest.raises(ValueError, match="pooling='none'"):
        make(FeatureExtractor, pooling="none").as_transformer()


def test_many_tasks_answer_without_warnings_of_retracing(make, caplog):
    for length in range(1, 7):  # a task of its own for each, and texts of all sizes
        task = make(FeatureExtractor, layers="embedding")
        for rows in (1, length):
            task.embed(["a " * length] * rows)
        assert len(task._graphs) == 1
    assert "retracing" not in caplog.text
