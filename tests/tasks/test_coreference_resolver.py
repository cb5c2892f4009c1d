"""Coreference: labels in words and characters, long and short documents, learning, files."""

import random
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.metrics import CoreferenceF1
from keras_lm.models import BertBackbone, ElmoBackbone, GPT2Backbone
from keras_lm.tasks import CoreferenceResolver, FeatureExtractor, Task
from keras_lm.tokenizers import CharacterTokenizer, WordPieceTokenizer
from keras_lm.training import AdamW

SMALL = {"max_span_width": 3, "max_antecedents": 4, "hidden_dim": 8, "feature_dim": 4}
WORDS = ["the", "films", "was", "unly", ",", "it", "was", "good"]
LABELS = [[(0, 2), (5, 6)], [(3, 4), (7, 8)]]
STRING = "the films  was unly, it was good"
IN_STRING = [[(0, 9), (21, 23)], [(15, 19), (28, 32)]]
LONG = ["a", "film", "was", "good"] * 15


@pytest.fixture
def task(make):
    return make(CoreferenceResolver, **SMALL)


def loss(task, x, y):
    return task.test_on_batch(x, y, return_dict=True)["loss"]


@pytest.mark.slow
@pytest.mark.eager
def test_labels_in_words_and_in_characters(task):
    expected = loss(task, [WORDS], [LABELS])
    assert expected > 0
    (clusters,) = task.resolve([STRING])
    for mention in (mention for cluster in clusters for mention in cluster):
        assert STRING[mention["start"] : mention["end"]] == mention["text"]
    as_dicts = [[{"start": s, "end": e} for s, e in cluster] for cluster in IN_STRING]
    for y in (IN_STRING, as_dicts):
        assert loss(task, [STRING], [y]) == pytest.approx(expected, rel=1e-5)
    flat = [(s, e, n) for n, cluster in enumerate(LABELS, 1) for s, e in cluster]
    data = tf.data.Dataset.from_tensors(([WORDS], np.array([[*flat, (0, 0, 0)]])))
    metrics = task.evaluate(data, verbose=0, return_dict=True)
    assert metrics == {"loss": pytest.approx(expected, rel=1e-5)}
    packed = task.preprocess([STRING])
    assert loss(task, packed, np.array([flat])) == pytest.approx(expected, rel=1e-5)
    # What is found may be learned from, as it is.
    assert task.score([STRING], [clusters])["conll_f1"] == (1.0 if clusters else 0.0)


@pytest.mark.eager
def test_the_loss_leaves_out_what_no_span_can_be(task):
    fewer = loss(task, [WORDS], [LABELS[:1]])
    assert loss(task, [WORDS], [[*LABELS[:1], [(1, 5), (2, 8)]]]) == pytest.approx(fewer)
    weighed = task.test_on_batch(
        [WORDS, LONG], [LABELS, []], sample_weight=np.array([1.0, 0.0]), return_dict=True
    )
    assert weighed["loss"] == pytest.approx(loss(task, [WORDS], [LABELS]), rel=1e-4)


@pytest.mark.eager
def test_padding_changes_nothing(task):
    documents = [WORDS, ["good"], [], LONG]
    together = {name: x.numpy() for name, x in task(task.preprocess(documents)).items()}
    answers = task.resolve(documents)
    for row, words in enumerate(documents):
        alone = {name: x.numpy()[0] for name, x in task(task.preprocess([words])).items()}
        k = len(alone["start"])
        for name, value in alone.items():
            np.testing.assert_allclose(together[name][row, :k], value, atol=1e-4, rtol=1e-4)
        assert not together["end"][row, k:].any()
        if words != LONG:  # which has no padding beside others
            assert answers[row] == task.resolve([words])[0]
    assert answers[1:3] == [[], []]
    assert max(m["end"] for cluster in answers[3] for m in cluster) > 44  # in the last window
    predicted = task.predict(documents, batch_size=1, verbose=0)
    assert predicted["start"].shape == (4, 24)
    np.testing.assert_array_equal(predicted["end"], together["end"])


@pytest.mark.eager
def test_parts_of_a_batch_teach_what_it_teaches_whole(make, make_backbone):
    steps = []
    for size in (None, 1):
        keras.utils.set_random_seed(0)
        task = make(CoreferenceResolver, make_backbone(), **SMALL | {"dropout": 0.0})
        sgd = keras.optimizers.SGD(0.1)
        task.compile(optimizer=sgd, run_eagerly=True, micro_batch_size=size)
        task.fit([WORDS, LONG[:9]], [LABELS, [[(0, 2), (4, 6)]]], shuffle=False, verbose=0)
        steps.append([np.asarray(weight) for weight in task.trainable_weights])
    for whole, in_parts in zip(*steps, strict=True):
        np.testing.assert_allclose(in_parts, whole, atol=1e-5)


@pytest.mark.eager
def test_validation_data_has_its_scores(task, monkeypatch):
    task.compile(run_eagerly=True)
    data = [WORDS], [LABELS]
    history = task.fit(*data, validation_data=data, verbose=0).history
    logs = task.evaluate(*data, verbose=0, return_dict=True)
    assert set(logs) == {"loss", "muc", "b_cubed", "ceaf_phi4", "conll_f1"}
    for name, value in logs.items():
        assert history[f"val_{name}"] == [pytest.approx(value, rel=1e-4)]
    # What is missing is missed before the first epoch.
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    before = task.head.mention_score.weights[0].numpy()
    with pytest.raises(ImportError, match=r"keras-lm\[coreference\]"):
        task.fit(*data, validation_data=data, verbose=0)
    np.testing.assert_array_equal(task.head.mention_score.weights[0].numpy(), before)


@pytest.mark.eager
@pytest.mark.parametrize(
    "labels, message",
    [
        ([(0, 2)], r"labels\[0\]: 0 is not a mention.*one cluster of two mentions"),
        ([[(0, 2, 1)]], r"\[0, 2, 1\] is not a mention"),
        ([[("a", "b")]], "is not a mention"),
        (7, r"labels\[0\]: 7 is not a list of clusters"),
        ([[(0, 2)], [(0, 2)]], r"\(0, 2\) occurs twice"),
        (
            [[(0, 2), (7, 9)]],
            r"labels\[0\]: the mention \(7, 9\) is not within the text of 8",
        ),
        ([[(-1, 2)]], r"the mention \(-1, 2\) is not within"),
        ([[(3, 3)]], "is not within the text"),
    ],
)
def test_bad_labels(task, labels, message):
    with pytest.raises(ValueError, match=message):
        task.fit([WORDS], [labels])


@pytest.mark.eager
def test_bad_labels_of_strings(task):
    with pytest.raises(ValueError, match=r"\(0, 33\) is not within the text of 32 characters"):
        task.fit([STRING], [[[(0, 33)]]])
    for mention in ((0, 8), (1, 9), (9, 14)):
        with pytest.raises(ValueError, match=r"does not begin and end with a word of text\[0\]"):
            task.fit([STRING], [[[mention]]])
    one_of_none = tf.RaggedTensor.from_tensor(tf.constant([[[0, 8, 1]]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must begin and end with words"):
        task.preprocess_with_labels({"text": tf.constant([STRING])}, one_of_none)
    with pytest.raises(ValueError, match="inputs has no word_positions"):
        task({"token_ids": np.ones((1, 1, 4), "int32")})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_span_width": 0}, "max_span_width=0: pass an integer of 1 or more"),
        ({"max_antecedents": 1.5}, "max_antecedents=1.5"),
        ({"span_ratio": 1.1}, "span_ratio=1.1: pass a number above 0"),
        ({"num_rounds": -1}, "num_rounds=-1: pass 0 or more"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"splitter": "none"}, "`splitter` is 'none'"),
    ],
)
def test_bad_arguments(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(CoreferenceResolver, **options)


@pytest.mark.eager
def test_models_and_losses_that_do_not_fit(task):
    with pytest.raises(ValueError, match="has no head"):
        CoreferenceResolver(GPT2Backbone(9, 1, 2, 8, 8))
    with pytest.raises(ValueError, match="CoreferenceResolver has its own"):
        task.compile(loss="mse")


@pytest.mark.thorough
@pytest.mark.eager
def test_over_elmo_and_over_features(make_backbone, tokenizer, tmp_path):
    elmo = ElmoBackbone(
        num_layers=1, hidden_dim=8, cell_dim=8, filters=[(1, 4), (2, 4)], characters_per_word=6
    )
    # All spans are kept, as a step may keep others, and have another loss for that.
    options = SMALL | {"dropout": 0.0, "max_span_width": 1, "span_ratio": 1.0, "max_antecedents": 6}
    elmo = CoreferenceResolver(elmo, tokenizer=CharacterTokenizer(6), sequence_length=6, **options)
    features = FeatureExtractor(
        make_backbone(), layers="scalar_mix", pooling="none", num_lstm_layers=1, lstm_dim=6
    )
    features = CoreferenceResolver(features, tokenizer=tokenizer, num_rounds=0, **options)
    for task in (elmo, features):
        task.compile(optimizer=keras.optimizers.Adam(1e-3), run_eagerly=True)
        losses = [task.train_on_batch([WORDS[:6]], [[[(1, 2), (5, 6)]]]) for _ in range(2)]
        assert losses[-1] < losses[0]
        assert task.resolve([WORDS[:6], []])[1] == []
    features.save_to_preset(tmp_path / "preset")
    again = Task.from_preset(tmp_path / "preset")
    assert type(again) is CoreferenceResolver
    assert again.get_arguments() == features.get_arguments()
    features.save(tmp_path / "task.keras")
    expected = features.resolve([WORDS])
    for each in (again, keras.saving.load_model(tmp_path / "task.keras")):
        assert each.resolve([WORDS]) == expected


# === Learning: who is "he", and who is "she"? ===

PEOPLE = {
    "he": ["bob", "tom", "the man", "the old king"],
    "she": ["ada", "eve", "the woman", "the queen"],
}
VERBS = ["sang", "slept", "left", "smiled"]


def document(draw):
    """Return words and clusters: pronouns are the last person of their gender."""
    words, clusters, last = [], [], {}

    def say(text, cluster):
        clusters[cluster].append((len(words), len(words) + len(text.split())))
        words.extend([*text.split(), draw.choice(VERBS), "."])

    for _ in range(3):
        pronoun = draw.choice(["he", "she"])
        last[pronoun] = len(clusters)
        clusters.append([])
        say(draw.choice(PEOPLE[pronoun]), last[pronoun])
        for pronoun in draw.sample(sorted(last), draw.randint(1, len(last))):
            say(pronoun, last[pronoun])
    return words, [cluster for cluster in clusters if len(cluster) > 1]


def documents(number, seed):
    draw = random.Random(seed)
    return zip(*(document(draw) for _ in range(number)))


def same_strings(words):
    """The trivial baseline: a word is the same person wherever it is."""
    places = {word: [(n, n + 1) for n, w in enumerate(words) if w == word] for word in words}
    return [results for word, results in places.items() if len(results) > 1 and word != "."]


@pytest.fixture(scope="module")
def resolver():
    keras.utils.set_random_seed(3)  # which found no cluster by the loss of antecedents alone
    names = [word for names in PEOPLE.values() for name in names for word in name.split()]
    words = dict.fromkeys(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PEOPLE, ".", *names, *VERBS]
    )
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 32}
    backbone = BertBackbone(len(words), **size, max_sequence_length=64, dropout=0.0)
    task = CoreferenceResolver(
        backbone,
        tokenizer=WordPieceTokenizer([*words], lowercase=True),
        **SMALL | {"max_antecedents": 10, "hidden_dim": 32, "dropout": 0.0},
    )
    task.compile(optimizer=AdamW(3e-3))
    x, y = map(list, documents(200, seed=0))
    task.fit(x, y, batch_size=8, epochs=10, verbose=0)
    return task


@pytest.mark.thorough
def test_pronouns_are_learned(resolver):
    x, y = map(list, documents(40, seed=1))
    baseline = CoreferenceF1()
    baseline.update_state(y, [same_strings(words) for words in x])
    metrics = resolver.evaluate(x, y, verbose=0, return_dict=True)
    assert set(metrics) == {"loss", "muc", "b_cubed", "ceaf_phi4", "conll_f1"}
    assert float(baseline.result()) < 0.3
    assert metrics["conll_f1"] > 0.9


@pytest.mark.slow
def test_saved_model(resolver, tmp_path):
    x, _ = map(list, documents(3, seed=2))
    texts = [" ".join(words).capitalize() for words in x] + ["", "tom"]
    signatures = tf.saved_model.load(str(resolver.export(tmp_path / "export"))).signatures
    served = signatures["serving_default"](text=tf.constant(texts))
    expected = resolver.resolve(texts)
    assert sum(map(len, expected)) > 3
    for row, clusters in enumerate(expected):
        columns = (served[name][row].numpy() for name in ("cluster", "start", "end", "text"))
        results = [each for each in zip(*columns) if each[0]]
        mentions = [
            (number, m["start"], m["end"], m["text"].encode())
            for number, cluster in enumerate(clusters, 1)
            for m in cluster
        ]
        assert sorted(results) == sorted(mentions)
        assert [start for _, start, _, _ in results] == sorted(start for _, start, _, _ in results)
    words = signatures["words"](text=tf.ragged.constant(x).to_tensor(""))
    expected = resolver.resolve(x)
    for row, clusters in enumerate(expected):
        mentions = [m for cluster in clusters for m in cluster]
        results = {*zip(words["start"][row].numpy(), words["text"][row].numpy())} - {(0, b"")}
        assert results == {(m["start"], m["text"].encode()) for m in mentions}
    packed = resolver.preprocess(x)
    raw, own = signatures["tokens"](**packed), resolver(packed)
    for name in own:
        np.testing.assert_allclose(raw[name], own[name], atol=1e-4)


def test_litert_is_refused(task, tmp_path):
    with pytest.raises(ValueError, match="LiteRT lacks: export as a SavedModel instead"):
        task.export(tmp_path / "model.tflite", format="litert")
