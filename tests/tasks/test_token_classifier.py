"""Token classification: the reference, labels at first pieces, entities, exports."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import assert_equal, hidden_states, inputs_of

import keras_lm
from keras_lm.datasets.tag_schemes import entity_spans
from keras_lm.objectives import IGNORED
from keras_lm.tasks import TokenClassifier
from keras_lm.tasks.token_classifier import entities_in_graph, entities_of

NAMES = ["O", "B-X", "I-X"]
WORDS = [["the", "films", "was", "unlike"], ["good"], ["\u200b", "nice"]]
LABELS = [["O", "B-X", "I-X", "O"], ["B-X"], ["O", "I-X"]]


@pytest.fixture(scope="module")
def shared(make):
    """A task for tests that only read it."""
    return make(TokenClassifier, class_names=NAMES)


@pytest.fixture
def task(make):
    return make(TokenClassifier, class_names=NAMES)


@pytest.mark.eager
def test_huggingface(goldens, tmp_path):
    folder = goldens("bert-tokencls")
    arrays = np.load(folder / "expected.npz")
    inputs = inputs_of(arrays)
    task = keras_lm.tasks.Task.from_preset(folder)
    assert type(task) is TokenClassifier
    assert_equal(task(inputs), arrays["out.logits"])
    backbone = task.backbone
    assert_equal(hidden_states(backbone, inputs), arrays["out.hidden_states"])
    assert_equal(backbone.attention_probabilities(inputs), arrays["out.attentions"])
    assert (arrays["in.labels"] == IGNORED).any()
    metrics = task.evaluate(inputs, arrays["in.labels"], verbose=0, return_dict=True)
    assert_equal(metrics["loss"], arrays["out.loss"])
    task.save_to_preset(tmp_path / "preset")
    again = keras_lm.tasks.Task.from_preset(tmp_path / "preset")
    np.testing.assert_array_equal(again(inputs), task(inputs))


def test_labels_stand_at_first_pieces(shared):
    packed, labels = shared.preprocess_with_labels(
        shared.columns(WORDS), shared.labels.prepare(np.array(LABELS, object))
    )
    tokens = shared.tokenizer.tokens(packed["token_ids"]).numpy()
    expected = {b"the": 0, b"film": 1, b"was": 2, b"good": 1, b"nice": 2}
    for pieces, row in zip(tokens, labels.numpy()):
        for piece, label in zip(pieces, row):
            if piece in expected:
                assert label == expected[piece]
            elif piece.startswith((b"##", b"[CLS", b"[SEP", b"[PAD")):
                assert label == IGNORED
    assert (labels.numpy() != IGNORED).sum() == 6  # and none for the word without pieces


FORMS = {
    "lists": lambda words, labels: (words, labels),
    "numbers": lambda words, labels: (words, [[NAMES.index(x) for x in row] for row in labels]),
    "strings": lambda words, labels: ([" ".join(row) for row in words], labels),
    "dict": lambda words, labels: ({"text": words}, labels),
    "ragged": lambda words, labels: (words, tf.ragged.constant(labels)),
    "arrays": lambda words, labels: ([np.array(w) for w in words], [np.array(x) for x in labels]),
}


@pytest.mark.eager
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data(shared, form):
    words, labels = WORDS[:2], LABELS[:2]
    reference = shared.test_on_batch(words, labels, return_dict=True)["loss"]
    x, y = FORMS[form](words, labels)
    result = shared.test_on_batch(x, y, return_dict=True)
    assert result["loss"] == pytest.approx(reference, rel=1e-5)
    if form in ("lists", "strings"):  # others become lists, before there are batches
        result = shared.evaluate(x, y, verbose=0, return_dict=True)
        assert result["loss"] == pytest.approx(reference, rel=1e-5)


def test_every_form_of_dataset(shared):
    words, labels = WORDS[:2], LABELS[:2]
    reference = shared.test_on_batch(words, labels, return_dict=True)["loss"]
    ragged = tf.ragged.constant(words), tf.ragged.constant(labels)
    data = tf.data.Dataset.from_tensor_slices(ragged).batch(2)
    result = shared.evaluate(data, verbose=0, return_dict=True)
    assert result["loss"] == pytest.approx(reference, rel=1e-5)
    filled = [[*row, *[""] * (4 - len(row))] for row in words]
    numbers = [[NAMES.index(x) for x in row] + [IGNORED] * (4 - len(row)) for row in labels]
    data = tf.data.Dataset.from_tensors((filled, numbers))
    assert shared.evaluate(data, verbose=0)[0] == pytest.approx(reference, rel=1e-5)


def test_words_of_equal_number_are_no_pairs(task):
    x, y = [["a", "film"], ["so", "good"]], [["O", "B-X"], ["O", "I-X"]]
    assert np.isfinite(task.fit(x, y, verbose=0).history["loss"][0])
    logits = task.predict(x, verbose=0)
    assert logits.shape == (2, 4, 3)
    uncounted = tf.data.Dataset.from_tensors(tf.ragged.constant(x)).filter(lambda _: True)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Your input ran out of data")  # Keras's
        np.testing.assert_array_equal(task.predict(uncounted, verbose=0), logits)


@pytest.mark.thorough
@pytest.mark.eager
def test_it_learns_names_and_labels(make):
    task = make(TokenClassifier, num_classes=2)
    task.compile(optimizer=keras.optimizers.Adam(1e-2), run_eagerly=True)
    words = [["the", "film", "was", "good"], ["a", "story", "films"], ["i", "saw", "it"]] * 4
    labels = [["O", "B-T", "O", "O"], ["O", "B-T", "B-T"], ["O", "O", "O"]] * 4
    words, labels = [*words, ["é"], ["[UNK]"]] * 2, [*labels, ["O"], ["O"]] * 2
    options = {"validation_split": 0.25, "validation_freq": 15, "epochs": 15}
    history = task.fit(words, labels, **options, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["val_accuracy"][-1] == 1.0
    assert task.class_names == ["B-T", "O"]
    assert task.tag(["a film"])["labels"] == [["O", "B-T"]]
    text = "é\x00 story, it"
    (actual,) = task.entities([text])
    assert [(e["label"], e["text"], text[e["start"] : e["end"]]) for e in actual] == [
        ("T", "story", "story")
    ]
    assert 0.5 < actual[0]["score"] <= 1
    (actual,) = task.entities([["a", "story", "was"]])
    assert [(e["text"], e["start"], e["end"]) for e in actual] == [("story", 1, 2)]


def test_scores_are_those_of_first_pieces(shared):
    answer = shared.tag(WORDS)
    packed = shared.preprocess(shared.columns(WORDS))
    scores = keras.ops.softmax(shared(packed)).numpy()
    np.testing.assert_allclose(answer["scores"][0], scores[0, [1, 2, 4, 5]].max(-1), atol=1e-5)
    best = scores[0, [1, 2, 4, 5]].argmax(-1)
    assert answer["labels"][0] == [NAMES[i] for i in best]
    assert answer["tokens"] == WORDS
    assert answer["labels"][2][0] == "" and answer["scores"][2][0] == 0  # nothing to see


@pytest.mark.eager
def test_words_after_the_window_get_no_label(make):
    task = make(TokenClassifier, class_names=NAMES, sequence_length=5)
    answer = task.tag([["a"] * 9, ["the", "films", "so"]])
    assert [bool(label) for label in answer["labels"][0]] == [True] * 3 + [False] * 6
    labels = [["O"] * 9, ["O", "B-X", "I-X"]]
    assert np.isfinite(
        task.fit([["a"] * 9, ["the", "films", "so"]], labels, verbose=0).history["loss"]
    )


@pytest.mark.eager
def test_strings_are_split_as_conll_and_lists_are_not(make):
    task = make(TokenClassifier, class_names=["B-X"])  # every word is an entity
    text = "Ada Lovelace, Bob's (U.S.) office."
    (actual,) = task.entities([text])
    words = ["Ada", "Lovelace", ",", "Bob", "'s", "(", "U.S.", ")", "office", "."]
    assert [entity["text"] for entity in actual] == words
    assert [text[entity["start"] : entity["end"]] for entity in actual] == words
    assert task.tag([["Lovelace,", "Bob's"]])["tokens"] == [["Lovelace,", "Bob's"]]
    with pytest.raises(ValueError, match=r"has 2 labels, but text\[0\] has 3 words"):
        task.fit(["a film."], [["B-X"] * 2], verbose=0)


@pytest.mark.eager
def test_presets_keep_the_splitter_that_they_were_saved_with(make, tmp_path):
    make(TokenClassifier, class_names=NAMES, splitter="whitespace").save_to_preset(tmp_path / "old")
    again = keras_lm.tasks.Task.from_preset(tmp_path / "old")
    assert again.tag(["a film."])["tokens"] == [["a", "film."]]


@pytest.mark.eager
@pytest.mark.parametrize("splitter", ["whitespace", "punctuation"])
def test_words_of_strings_and_their_places(make, splitter):
    task = make(TokenClassifier, class_names=NAMES, splitter=splitter)
    texts = [" the film,\u3000was\tgood!!", "", " ", "日本 é\u00a0x.", "a\x00b c"]
    answer = task.tag(texts)
    for text, words, starts, ends in zip(texts, answer["tokens"], answer["start"], answer["end"]):
        parts = [text[s:e] for s, e in zip(starts, ends)]
        if splitter == "whitespace":
            parts = [part.replace("\x00", "\x01") for part in parts]
        assert parts == words
    if splitter == "whitespace":
        assert answer["tokens"] == [
            text.split() if "\x00" not in text else ["a\x01b", "c"] for text in texts
        ]
    else:
        assert answer["tokens"][0] == ["the", "film", ",", "was", "good", "!", "!"]
    invalid = task.tag([b"a \xff film"])
    assert (invalid["start"], invalid["end"]) == ([[0, 2, 4]], [[1, 3, 8]])


def test_entity_spans_by_hand():
    assert entity_spans([]) == []
    assert entity_spans(["B-A", "I-A", "O", "I-B", "I-A"]) == [
        ("A", 0, 2),
        ("B", 3, 4),
        ("A", 4, 5),
    ]
    assert entity_spans(["B-A", "B-A", "", "I-A"]) == [("A", 0, 1), ("A", 1, 2), ("A", 3, 4)]
    assert entity_spans(["S-A", "I-A", "E-A", "I-A"]) == [("A", 0, 1), ("A", 1, 3), ("A", 3, 4)]
    assert entity_spans(["U-A", "B-B-C", "L-B-C", "L-B-C"]) == [
        ("A", 0, 1),
        ("B-C", 1, 3),
        ("B-C", 3, 4),
    ]
    assert entity_spans(["NOUN", "O", "B-"]) == []


@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
def test_entity_spans_are_seqevals(prefixes):
    sequence_labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    choices = ["O", *(f"{prefix}-{name}" for prefix in prefixes for name in ("PER", "LOC"))]
    random = np.random.default_rng(0)
    for _ in range(300):
        labels = random.choice(choices, size=8).tolist()
        expected = [(n, s, e + 1) for n, s, e in sequence_labeling.get_entities(labels)]
        assert entity_spans(labels) == expected, labels


@pytest.mark.parametrize(
    "y, message",
    [
        ([["O"], ["O"]], r"labels\[0\] has 1 labels, but text\[0\] has 2 words"),
        ([["O", "Q"], ["O"]], r"labels\[0\]\[1\]='Q' is not one of"),
        ([[0, 0], [3]], r"labels\[1\]\[0\]=3, but num_classes=3"),
        (["O", "O"], r"labels\[0\]=.*O.*: pass a list"),
        ([["O", 1.5], ["O"]], r"labels\[0\]\[1\]=1.5 is neither"),
        ([["O", "O"]], "labels has 1 rows for 2 examples"),
    ],
)
def test_bad_labels(shared, y, message):
    with pytest.raises(ValueError, match=message):
        shared.fit([["a", "b"], ["c"]], y, verbose=0)


@pytest.mark.parametrize(
    "x, message",
    [
        ([["a", ""]], r"text\[0\] has an empty string among its words"),
        ([["a"], ["b", None]], r"text\[1\]\[1\] is None"),
        ([["a"], "b"], r"text\[1\] is 'b', a str, and not a list"),
        ((["a"], ["b"]), "this task takes"),
        ("a", "is a single example"),
    ],
)
def test_bad_data(shared, x, message):
    with pytest.raises(ValueError, match=message):
        shared.predict_on_batch(x)


def test_a_wrong_number_of_labels_in_a_dataset(shared):
    data = tf.data.Dataset.from_tensors((tf.constant(["a film"]), [["O"]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="one for each word"):
        shared.evaluate(data, verbose=0)


def test_an_unknown_splitter(make):
    with pytest.raises(ValueError, match="`splitter` is 'comma'"):
        make(TokenClassifier, class_names=NAMES, splitter="comma")


@pytest.mark.eager
def test_saved_model(make, tmp_path):
    task = make(TokenClassifier, class_names=NAMES)
    (bias,) = (weight for weight in task.head.weights if weight.shape == (len(NAMES),))
    bias.assign([-1.0, 0.0, 0.0])  # it finds some entities
    texts = ["the films, so good", "", b"a \xff \xe6\x97 bad!", "unlike " * 40]
    folder = task.export(tmp_path / "tagger")
    signatures = tf.saved_model.load(str(folder)).signatures
    served = signatures["serving_default"](text=tf.constant(texts))
    answer = task.answer_all(texts)
    assert set(served) == set(answer) == {"tokens", "labels", "scores", "start", "end"}
    for name, expected in answer.items():
        actual = served[name].numpy()
        if expected.dtype == object:
            actual = np.array([[word.decode() for word in row] for row in actual], object)
        if name == "scores":
            np.testing.assert_allclose(actual, expected, atol=1e-6)
        else:
            np.testing.assert_array_equal(actual, expected)
    words = signatures["words"](text=tf.constant([["the", "films"], ["so", ""]]))
    assert set(words) == {"tokens", "labels", "scores"}
    own = task.tag([["the", "films"], ["so"]])
    assert [label.decode() for label in words["labels"].numpy()[0]] == own["labels"][0]
    assert words["labels"].numpy()[1].tolist() == [own["labels"][1][0].encode(), b""]
    nothing = signatures["serving_default"](text=tf.constant([], tf.string))
    assert nothing["labels"].shape == (0, 0)

    results = {name: value.numpy() for name, value in signatures["entities"](text=texts).items()}
    assert set(results) == {"text", "labels", "scores", "start", "end"}
    own = task.entities(texts)
    assert any(own)
    for n, row in enumerate(own):
        assert results["text"][n, : len(row)].astype(str).tolist() == [e["text"] for e in row]
        assert results["labels"][n].astype(str).tolist()[: len(row)] == [e["label"] for e in row]
        for name in ("start", "end", "scores"):
            expected = [e["score" if name == "scores" else name] for e in row]
            np.testing.assert_allclose(results[name][n, : len(row)], expected, atol=1e-5)
        assert not results["labels"][n, len(row) :].any()
    assert signatures["entities"](text=tf.constant([], tf.string))["text"].shape == (0, 0)


@pytest.mark.eager
def test_entity_f1_and_keras_metrics_fit_the_outputs(make):
    for options in ({}, {"crf": "bio"}):
        task = make(TokenClassifier, class_names=NAMES, **options)
        f1 = keras.metrics.F1Score(average="micro", name="f1")
        metrics = ["accuracy", f1, keras_lm.metrics.EntityF1(NAMES)]
        task.compile(metrics=metrics, run_eagerly=True)
        actual = task.evaluate(WORDS, LABELS, verbose=0, return_dict=True)
        assert actual["f1"] == pytest.approx(actual["accuracy"])  # both count the words alone
        words = task.tag(WORDS)["labels"]
        spans = [
            {(i, *span) for i, labels in enumerate(rows) for span in entity_spans(labels)}
            for rows in (words, _seen(words))
        ]
        right = len(spans[0] & spans[1])
        expected = 2 * right / max(len(spans[0]) + len(spans[1]), 1)
        assert actual["entity_f1"] == pytest.approx(expected)


def test_entities_of_labels_in_the_graph():
    """All ways to begin, go on and end, beside the same in Python."""
    random = np.random.default_rng(0)
    choices = ["", "O", "B-", *(f"{p}-{name}" for p in "BIELSUMW" for name in ("X", "Y-Z"))]
    choices += ["B_X", "I_X", "M_X", "E_X", "T_X"]
    labels = random.choice(choices, size=(50, 9))
    starts = np.tile(np.arange(0, 27, 3), (50, 1)).astype("int32")
    scores = random.random(labels.shape).astype("float32")
    answer = {"labels": labels, "scores": scores, "start": starts, "end": starts + 2}
    texts = tf.constant(["éß " * 9] * 50)
    actual = entities_in_graph(texts, {name: tf.constant(x) for name, x in answer.items()})
    lists = {name: value.tolist() for name, value in answer.items()}
    for n, row in enumerate(entities_of(lists, texts)):
        for name, value in actual.items():
            own = [entity.get(name, entity.get(name[:-1])) for entity in row]
            if name in ("text", "labels"):
                assert [x.decode() for x in value[n, : len(own)].numpy()] == own
            else:
                np.testing.assert_allclose(value[n, : len(own)], own, atol=1e-5)


@pytest.mark.slow
@pytest.mark.eager
def test_class_weights_weigh_words(task, make):
    packed, labels = task.preprocess_with_labels(
        task.columns(WORDS), task.labels.prepare(np.array(LABELS, object))
    )
    known = labels.numpy() != IGNORED
    losses = -np.log(keras.ops.softmax(task(packed)).numpy()[known])
    losses = losses[np.arange(len(losses)), labels.numpy()[known]]
    weights = np.array([0.25, 3.0, 1.0])[labels.numpy()[known]]  # of O, B-X, I-X
    rows = np.broadcast_to([[1.0], [2.0], [0.5]], known.shape)[known]
    task.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)

    def assert_weighted(expected, *data, **options):
        options = {"class_weight": {"O": 0.25, 1: 3}, "verbose": 0} | options
        (loss,) = task.fit(*data, **options).history["loss"]
        assert loss == pytest.approx(np.average(losses, weights=expected), rel=1e-4)

    assert_weighted(weights, WORDS, LABELS)
    assert_weighted(weights * rows, WORDS, LABELS, sample_weight=[1.0, 2.0, 0.5])
    assert_weighted(weights, packed, labels)
    ragged = [tf.ragged.constant(WORDS), tf.ragged.constant(LABELS)]
    assert_weighted(weights, tf.data.Dataset.from_tensor_slices(tuple(ragged)).batch(3))
    by_hand = task.train_on_batch(WORDS, LABELS, class_weight={"B-X": 3.0, 0: 0.25})[0]
    assert by_hand == pytest.approx(np.average(losses, weights=weights), rel=1e-4)
    with pytest.raises(ValueError, match=r"class_weight has the key 'B-Y'.*B-X"):
        task.fit(WORDS, LABELS, class_weight={"B-Y": 1.0})
    with_crf = make(TokenClassifier, class_names=NAMES, crf=True)
    with pytest.raises(ValueError, match=r"with a CRF .* pass sample_weight"):
        with_crf.fit(WORDS, LABELS, class_weight={"O": 0.5})


def _seen(words):
    """The true labels of the words that have pieces; others are left out of both."""
    return [[label if word else "" for label, word in zip(*rows)] for rows in zip(LABELS, words)]


# === Words in texts ===


@pytest.fixture(scope="module")
def byte_pair_task(tokenizer_of, backbone_of):
    tokenizer = tokenizer_of("bytebpe-roberta")
    backbone = backbone_of("RobertaBackbone")
    return TokenClassifier(backbone, class_names=NAMES, tokenizer=tokenizer)


def logits_of_tokens(task, ids):
    ids = [task.tokenizer.special_id("cls"), *ids, task.tokenizer.special_id("sep")]
    return np.asarray(task({"token_ids": np.array([ids], "int32")})[0])[1:-1]


@pytest.mark.eager
def test_words_have_the_logits_of_their_pieces(byte_pair_task):
    task, text = byte_pair_task, "The film was good."
    tokens, _, ends = task.tokenizer.tokenize_with_offsets(text, "character")
    first = [np.flatnonzero(ends.numpy() > start)[0] for start in (0, 4, 9, 13, 17)]
    expected = logits_of_tokens(task, tokens.numpy())[first]
    assert_equal(task.word_logits([text])[0].numpy(), expected)
    words = ["The", "film", "."]
    pieces = task.tokenizer([f" {word}" for word in words])
    expected = logits_of_tokens(task, pieces.values.numpy())
    assert_equal(task.word_logits([words])[0].numpy(), expected[pieces.row_starts().numpy()])


@pytest.mark.eager
def test_labels_of_strings_stand_at_first_pieces(byte_pair_task):
    task = byte_pair_task
    packed, labels = task.preprocess_with_labels(
        task.columns(["good (x)."]), task.labels.prepare(np.array([[1, 0, 2, 1, 2]]))
    )
    tokens = task.tokenizer.tokens(packed["token_ids"])[0].numpy().tolist()
    results = {
        token.decode(): label for token, label in zip(tokens, labels[0].numpy()) if label >= 0
    }
    # The full stop is in the bracket's piece, which has the bracket's label.
    assert tokens[-2] == b")." and results[")."] == 1
    assert [*results.values()] == [1, 0, 2, 1]


def test_words_of_one_piece_continue_its_entity(byte_pair_task):
    from keras_lm.tasks.token_classifier import classes_in_parts

    assert classes_in_parts(NAMES).tolist() == [[0] * 4, [1, 1, 2, 2], [2] * 4]
    names = ["O", "B-X", "I-X", "E-X", "S-X", "PER"]
    table = [[names[i] for i in row] for row in classes_in_parts(names)]
    assert table[3] == ["E-X", "I-X", "I-X", "E-X"] and table[5] == ["PER"] * 4
    assert table[4] == ["S-X", "B-X", "I-X", "E-X"]
    names = ["O", "B_X", "M_X", "E_X", "W_X"]
    table = [[names[i] for i in row] for row in classes_in_parts(names)]
    assert table[1] == ["B_X", "B_X", "M_X", "M_X"] and table[2] == ["M_X"] * 4
    assert table[3] == ["E_X", "M_X", "M_X", "E_X"] and table[4] == ["W_X", "B_X", "M_X", "E_X"]
    task = TokenClassifier(
        byte_pair_task.backbone, class_names=["B-X", "I-X"], tokenizer=byte_pair_task.tokenizer
    )
    kernel, bias = task.head.trainable_variables
    kernel.assign(keras.ops.zeros_like(kernel))
    bias.assign([1.0, 0.0])  # each token begins an entity
    actual = task.entities(["good (x)."])[0]
    assert [entity["text"] for entity in actual] == ["good", "(", "x", ")."]


@pytest.mark.eager
def test_presets_and_files_of_before_read_word_by_word(byte_pair_task, tmp_path):
    import json

    task, texts = byte_pair_task, ["The film was good.", "日本"]
    words = [["The", "film", "was", "good", "."], ["日本"]]
    task.save_to_preset(tmp_path / "preset")
    assert keras_lm.tasks.Task.from_preset(tmp_path / "preset").whole_texts
    file = tmp_path / "preset" / "keras_lm.json"
    (tmp_path / "preset" / "checksums.json").unlink()  # which earlier presets lack
    config = json.loads(file.read_text())
    del config["task"]["arguments"]["whole_texts"]
    file.write_text(json.dumps(config))
    stated = task.get_config()
    del stated["whole_texts"]
    again = [
        keras_lm.tasks.Task.from_preset(tmp_path / "preset"),
        TokenClassifier.from_config(stated),
    ]
    again[1].use_tokenizer(task.tokenizer)
    for old in again:
        assert not old.whole_texts and old.get_arguments()["whole_texts"] is False
        assert old.tag(texts)["tokens"] == words
        ids = old.preprocess({"text": tf.constant(texts[:1])})["token_ids"][0, 1:-1]
        assert ids.numpy().tolist() == task.tokenizer(words[0]).values.numpy().tolist()
        listed = old.preprocess({"text": tf.ragged.constant(words[:1])})["token_ids"][0, 1:-1]
        assert listed.numpy().tolist() == ids.numpy().tolist()


@pytest.mark.eager
def test_each_letter_of_a_script_without_spaces_is_a_word(byte_pair_task, shared):
    text = "Ada在東京。ไทย"
    for task in (shared, byte_pair_task):
        assert task.tag([text])["tokens"] == [["Ada", *"在東京。ไทย"]]


@pytest.mark.slow
def test_exports_read_whole_texts(byte_pair_task, tmp_path):
    pytest.importorskip("ai_edge_litert")
    from keras_lm.export.fresh_process import load_tflite

    texts = ["The film (was) good.", "", "  don't 日本 ไทย", "naïve."]
    expected = byte_pair_task.answer_all(texts)
    folder = byte_pair_task.export(tmp_path / "saved")
    served = tf.saved_model.load(str(folder)).signatures["serving_default"](text=tf.constant(texts))
    served = {name: value.numpy() for name, value in served.items()}
    serve, _ = load_tflite(str(byte_pair_task.export(tmp_path / "m.tflite", format="litert")))
    for actual in (served, serve(text=np.array([*map(str.encode, texts)], object))):
        for name in ("start", "end"):
            np.testing.assert_array_equal(actual[name], expected[name])
        for name in ("tokens", "labels"):
            decoded = [[value.decode() for value in row] for row in actual[name]]
            assert decoded == expected[name].tolist()
        np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-5)
