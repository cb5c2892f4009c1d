"""Embeddings that learn: from each form of data, in parts, and what an export searches."""

import json

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tiny

from keras_lm import litert
from keras_lm.evaluation import evaluate_similarity
from keras_lm.export.fresh_process import load_plain_tflite, load_tflite
from keras_lm.metrics import CosineSpearman, InBatchRecall
from keras_lm.objectives import (
    AnglE,
    CoSENT,
    CosineMeanSquares,
    InBatchNegatives,
    MarginMeanSquares,
    Matryoshka,
    SupervisedContrastive,
    TripletLoss,
    VectorMeanSquares,
)
from keras_lm.search import Index
from keras_lm.tasks import FeatureExtractor, MultiTask, SentenceEncoder, Task
from keras_lm.training import Run


class Batches(keras.utils.PyDataset):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def __len__(self):
        return 1

    def __getitem__(self, place):
        return self.batch


ANCHORS = ["the film was good", "awful story", "i loved it", "a dull cast", "so fine !"]
POSITIVES = ["a good film", "the story is bad", "it was nice", "the cast is poor", "very fine"]
NEGATIVES = [["so dull"], ["great story", "a fine film"], [], ["not the cast"], ["unfine ."]]
PAIRS = {"anchor": ANCHORS, "positive": POSITIVES}
PROMPTS = {"query": "a ", "document": "the film "}


@pytest.fixture
def encoder(make):
    return make(SentenceEncoder)


def stream(*columns):
    return tf.data.Dataset.from_tensor_slices(columns).batch(5)


def loss_by_hand(encoder, loss, *columns, names=(None, None, None)):
    vectors = [
        encoder.embed(column, verbose=0, prompt_name=name)["embedding"]
        for column, name in zip(columns, names)
    ]
    return float(loss(None, np.stack(vectors, axis=1)))


def test_pairs_in_each_form_have_one_loss(encoder):
    expected = loss_by_hand(encoder, InBatchNegatives(), ANCHORS, POSITIVES)
    named = {"anchor": ANCHORS, "positive": POSITIVES}
    dataset = tf.data.Dataset.from_tensor_slices(named).batch(5)
    for x in [
        (ANCHORS, POSITIVES),
        [*zip(ANCHORS, POSITIVES, strict=True)],
        named,
        pd.DataFrame(named),
        dataset,
        Batches((named,)),
        np.array([ANCHORS, POSITIVES]).T,
    ]:
        actual = encoder.evaluate(x, verbose=0)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_it_learns_in_a_graph(make):
    encoder = make(SentenceEncoder, in_graph=True)
    encoder.compile(optimizer=keras.optimizers.Adam(0.01))
    before = encoder.embed(ANCHORS, verbose=0)["embedding"]
    history = encoder.fit(
        (ANCHORS, POSITIVES), epochs=8, verbose=0, validation_data=(ANCHORS, POSITIVES)
    ).history
    assert history["loss"][-1] < history["loss"][0] / 2
    assert history["val_loss"][-1] < history["val_loss"][0]
    after = encoder.embed(ANCHORS, verbose=0)["embedding"]
    assert abs(after - before).max() > 0.01
    np.testing.assert_allclose(np.linalg.norm(after, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(encoder.predict(ANCHORS, verbose=0), after, atol=1e-6)


@pytest.mark.eager
def test_negatives_are_a_text_or_several(encoder):
    anchors, positives = ANCHORS[:2], POSITIVES[:2]
    loss = loss_by_hand(encoder, InBatchNegatives(), anchors, positives, ["so dull", "great story"])
    for negative in (["so dull", "great story"], [["so dull"], ["great story"]]):
        x = {"anchor": anchors, "positive": positives, "negative": negative}
        np.testing.assert_allclose(encoder.evaluate(x, verbose=0), loss, rtol=1e-5)
    triple = (anchors, positives, ["so dull", "great story"])
    np.testing.assert_allclose(encoder.evaluate(triple, verbose=0), loss, rtol=1e-5)
    rows = [[*row] for row in zip(*triple, strict=True)]
    np.testing.assert_allclose(encoder.evaluate(rows, verbose=0), loss, rtol=1e-5)
    x = {"anchor": ANCHORS, "positive": POSITIVES, "negative": NEGATIVES}
    assert np.isfinite(encoder.evaluate(x, verbose=0))
    assert len(encoder.fit(x, batch_size=2, verbose=0).history["loss"]) == 1


@pytest.mark.eager
def test_a_repeated_positive_is_no_wrong_answer(encoder):
    """Two of the same pairs: each has its own positive alone to choose from."""
    loss = encoder.evaluate((["good film"] * 2, ["fine film"] * 2), verbose=0)
    np.testing.assert_allclose(loss, 0, atol=1e-6)


@pytest.mark.parametrize(
    "loss, x, y",
    [
        (CoSENT(), (ANCHORS, POSITIVES), [0.1, 0.9, 0.5, 0.3, 1.0]),
        (AnglE(), (ANCHORS, POSITIVES), [1, 5, 3, 2, 4]),
        (CosineMeanSquares(), (ANCHORS, POSITIVES), np.linspace(-1, 1, 5)),
        (SupervisedContrastive(), ANCHORS, ["good", "bad", "good", "bad", "good"]),
        (VectorMeanSquares(), ANCHORS, np.eye(5, 16)),
        (TripletLoss(), (ANCHORS, POSITIVES, POSITIVES[::-1]), None),
        (MarginMeanSquares(), (ANCHORS, POSITIVES, POSITIVES[::-1]), [0.1, 0.4, 0, 0.2, 0.3]),
        (Matryoshka(InBatchNegatives(), [16, 8]), (ANCHORS, POSITIVES), None),
        ("mse", ANCHORS, np.eye(5, 16)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, keras.Loss) else "",
)
@pytest.mark.eager
def test_each_loss_learns(encoder, loss, x, y):
    encoder.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, run_eagerly=True)
    losses = encoder.fit(x, y, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.eager
def test_texts_alone_are_their_own_positives(make, make_backbone):
    encoder = make(SentenceEncoder, make_backbone(dropout=0.3))
    encoder.compile(optimizer=keras.optimizers.Adam(0.01), run_eagerly=True)
    losses = encoder.fit(ANCHORS, epochs=3, verbose=0).history["loss"]
    assert losses[0] > 0.01  # by another dropout of each
    assert encoder.evaluate({"text": ANCHORS}, verbose=0) < losses[0]


@pytest.mark.parametrize("dropout, size", [(0.0, 2), pytest.param(0.3, 5, marks=pytest.mark.slow)])
def test_cached_gradients_are_those_of_the_whole_batch(make, make_backbone, dropout, size):
    def trained(micro_batch_size):
        keras.utils.set_random_seed(3)
        encoder = make(SentenceEncoder, make_backbone(dropout=dropout), in_graph=True)
        encoder.compile(optimizer=keras.optimizers.SGD(0.5), micro_batch_size=micro_batch_size)
        options = {"batch_size": 5, "shuffle": False, "epochs": 2, "verbose": 0}
        losses = encoder.fit((ANCHORS, POSITIVES), **options).history["loss"]
        return [losses, *(weight.numpy() for weight in encoder.weights)]

    for whole, parts in zip(trained(None), trained(size), strict=True):
        np.testing.assert_allclose(parts, whole, atol=2e-5)


def test_labels_of_a_dataset_are_refused_by_name(make):
    """It was a raw TypeError: each of its tuples was read as a text."""
    encoder = make(SentenceEncoder)
    labelled = tf.data.Dataset.from_tensor_slices((ANCHORS, [1.0] * len(ANCHORS))).batch(2)
    with pytest.raises(ValueError, match=r"y is given, and loss=InBatchNegatives\(\) learns"):
        encoder.fit(labelled, verbose=0)


@pytest.mark.eager
def test_several_datasets_are_learned_together(make, make_backbone):
    """Each has its loss, as a `MultiTask` of encoders over one network."""
    backbone = make_backbone()
    nli, sts = make(SentenceEncoder, backbone), make(SentenceEncoder, backbone)
    sts.compile(loss=CoSENT(), run_eagerly=True)
    task = MultiTask({"nli": nli, "sts": sts})
    task.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    scores = np.linspace(0, 1, len(ANCHORS))
    pairs = {"anchor": ANCHORS, "positive": POSITIVES}
    data = {"nli": pairs, "sts": (pairs, scores)}
    expected = {"nli_loss": nli.evaluate(pairs, verbose=0, batch_size=5)}
    expected["sts_loss"] = sts.evaluate(pairs, scores, verbose=0, batch_size=5)
    assert task.evaluate(data, batch_size=5, verbose=0) == pytest.approx(expected, rel=1e-5)
    logs = task.fit(data, batch_size=5, verbose=0).history
    for name, loss in expected.items():
        assert logs[name] == pytest.approx([loss], rel=1e-5)


@pytest.mark.parametrize("form", [dict, pd.DataFrame])
def test_columns_of_other_names_are_named(make, form):
    """They were a raw KeyError: 'text'."""
    columns = form({"question": ANCHORS, "answer": POSITIVES})
    message = r"x has the columns \['question', 'answer'\]: call those of pairs 'anchor' and 'posi"
    with pytest.raises(ValueError, match=message):
        make(SentenceEncoder).fit(columns, verbose=0)
    with pytest.raises(ValueError, match="encoder is of the class FeatureExtractor: pass a Senten"):
        Index(make(FeatureExtractor), ANCHORS)


@pytest.mark.eager
def test_prompts_stand_before_queries_and_documents(make, tmp_path):
    encoder = make(SentenceEncoder, prompts=PROMPTS)
    plain = make(SentenceEncoder, encoder.backbone)
    asked = encoder.embed(ANCHORS, verbose=0, prompt_name="query")["embedding"]
    by_hand = plain.embed(["a " + text for text in ANCHORS], verbose=0)["embedding"]
    np.testing.assert_allclose(asked, by_hand, atol=1e-6)
    loss = loss_by_hand(
        encoder, InBatchNegatives(), ANCHORS, POSITIVES, names=("query", "document")
    )
    np.testing.assert_allclose(encoder.evaluate((ANCHORS, POSITIVES), verbose=0), loss, rtol=1e-5)
    x = {"anchor": ANCHORS, "positive": POSITIVES, "negative": NEGATIVES}
    with encoder._reading(x) as x:
        packed = encoder.feed.preprocessor(x)
    assert packed["is_text"].numpy().tolist()[2] == [1, 1, 0, 0]
    encoder.save_to_preset(tmp_path / "preset")
    loaded = Task.from_preset(tmp_path / "preset")
    assert type(loaded) is SentenceEncoder and loaded.prompts == PROMPTS
    again = loaded.embed(ANCHORS, verbose=0, prompt_name="query")["embedding"]
    np.testing.assert_allclose(again, asked, atol=1e-6)


@pytest.mark.eager
def test_a_compiled_encoder_is_kept_in_a_keras_file(encoder, tmp_path):
    encoder.compile(loss=Matryoshka(InBatchNegatives(), [16, 4]), run_eagerly=True)
    encoder.fit((ANCHORS, POSITIVES), verbose=0)
    encoder.save(tmp_path / "encoder.keras")
    loaded = keras.models.load_model(tmp_path / "encoder.keras")
    assert loaded.labels.loss.sizes == [16, 4]
    expected = encoder.evaluate((ANCHORS, POSITIVES), verbose=0)
    np.testing.assert_allclose(
        loaded.evaluate((ANCHORS, POSITIVES), verbose=0), expected, rtol=1e-5
    )


@pytest.mark.eager
def test_folders_of_sentence_transformers_have_prompts(make, tmp_path):
    encoder = make(SentenceEncoder, prompts=PROMPTS)
    encoder.save_to_huggingface(tmp_path / "folder")
    path = tmp_path / "folder" / "config_sentence_transformers.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    assert stated["prompts"] == PROMPTS and stated["default_prompt_name"] is None
    loaded = SentenceEncoder.from_preset(tmp_path / "folder")
    assert loaded.prompts == PROMPTS and loaded.prompt is None
    np.testing.assert_allclose(
        loaded.embed(ANCHORS, verbose=0, prompt_name="document")["embedding"],
        encoder.embed(ANCHORS, verbose=0, prompt_name="document")["embedding"],
        atol=1e-5,
    )
    assert FeatureExtractor.from_preset(tmp_path / "folder").prompt is None
    path.write_text(json.dumps(stated | {"prompts": ["a"]}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"prompts=\['a'\], which is not a dict"):
        SentenceEncoder.from_preset(tmp_path / "folder")


@pytest.mark.parametrize(
    "loss, x, y, message",
    [
        (None, (ANCHORS, POSITIVES), [1] * 5, r"loss=InBatchNegatives\(\) learns without labels"),
        (CoSENT(), (ANCHORS, POSITIVES), None, "labels are missing.*a score for each pair"),
        (CoSENT(), ANCHORS, [1.0] * 5, "compares pairs.* has 1"),
        (CoSENT(), (ANCHORS, POSITIVES), [1.0, np.nan, 1, 1, 1], r"labels\[1\]=nan is not finite"),
        (CoSENT(), (ANCHORS, POSITIVES), ["a"] * 5, "takes a score for each pair"),
        (CosineMeanSquares(), (ANCHORS, POSITIVES), [1, 2, 0, 1, 1], r"labels has 2: Cosine"),
        (TripletLoss(), (ANCHORS, POSITIVES), None, "compares triples"),
        (None, {"anchor": ANCHORS}, None, "'anchor' and 'positive' are needed"),
        (None, {"anchor": ANCHORS, "positive": POSITIVES[:3]}, None, "of different lengths"),
        (None, (text for text in ANCHORS), None, "x is a generator"),
        (None, stream(PAIRS, [1.0] * 5), None, r"loss=InBatchNegatives\(\) learns without labels"),
        (SupervisedContrastive(), stream(ANCHORS, [*"abcde"]), None, "an integer for each class"),
        (None, Batches((ANCHORS,)), None, "compares pairs.* has 1"),
        (None, {"anchor": ANCHORS, "positive": POSITIVES, "text": ANCHORS}, None, "allowed are"),
    ],
)
@pytest.mark.eager
def test_data_that_do_not_fit(encoder, loss, x, y, message):
    if loss is not None:
        encoder.compile(loss=loss, run_eagerly=True)
    with pytest.raises(ValueError, match=message):
        encoder.fit(x, y, verbose=0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"pooling": "none"}, "use another pooling"),
        ({"prompts": "query: "}, "pass a dict"),
        ({"prompts": {"query": 1}}, "pass a str"),
        ({"similarity": "euclidean"}, "similarity='euclidean': use one of"),
        ({"prompts": PROMPTS, "prompt": "a", "skipped_tokens": 2}, "prompts and skipped_tokens"),
    ],
)
def test_arguments_that_do_not_fit(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(SentenceEncoder, **options)


@pytest.mark.eager
def test_prompts_that_are_unknown(encoder):
    with pytest.raises(ValueError, match="prompt_name='query': use one of"):
        encoder.embed(ANCHORS, prompt_name="query")


@pytest.mark.thorough
@pytest.mark.eager
@pytest.mark.parametrize("name", tiny.MODELS)
def test_every_model_learns(name, tokenizer_of):
    """Rows are computed by length, in two parts, whatever a model reads beside them."""
    pooling = "last" if name.startswith(("GPT", "Transformer", "XLNet")) else "mean"
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    backbone = tiny.make_backbone(name, tokenizer.vocabulary_size)
    encoder = SentenceEncoder(backbone, tokenizer=tokenizer, pooling=pooling)
    encoder.compile(run_eagerly=True)
    texts = ["good film", "story is bad", "it is nice and very long indeed so"]
    loss = loss_by_hand(encoder, InBatchNegatives(), ANCHORS[:3], texts)
    np.testing.assert_allclose(encoder.evaluate((ANCHORS[:3], texts), verbose=0), loss, atol=1e-4)
    assert np.isfinite(encoder.train_on_batch((ANCHORS[:3], texts)))


@pytest.mark.eager
def test_batches_of_one_example_warn(encoder, recwarn):
    with pytest.warns(UserWarning, match="one example, and loss=InBatchNegatives"):
        encoder.fit((ANCHORS[:1], POSITIVES[:1]), verbose=0)
    with pytest.warns(UserWarning, match="batch_size of 2 or more"):
        encoder.fit(PAIRS, batch_size=1, steps_per_epoch=1, verbose=0)
    recwarn.clear()
    encoder.fit({"anchor": ANCHORS[:1], "positive": POSITIVES[:1], "negative": ["dull"]}, verbose=0)
    encoder.compile(loss=CosineMeanSquares())
    encoder.fit((ANCHORS[:1], POSITIVES[:1]), [0.5], verbose=0)
    assert not [warning for warning in recwarn if "one example" in str(warning.message)]


# === Search in an export ===

DOCUMENTS = [*POSITIVES, "", "Ünïcödé ☕", "the the the"]
QUERIES = ["the film was good", "i hated it", "", "☕"]


def test_a_saved_model_searches_as_the_index_does(make, tmp_path):
    encoder = make(SentenceEncoder, prompts=PROMPTS)
    expected = Index(encoder, DOCUMENTS, verbose=0).search(QUERIES, k=3)
    folder = encoder.export(tmp_path / "search", corpus=DOCUMENTS, k=3)
    served = tf.saved_model.load(str(folder)).signatures
    answers = served["search"](text=tf.constant(QUERIES))
    assert_equal(expected, {name: value.numpy() for name, value in answers.items()})
    assert encoder.signatures.functions().keys().isdisjoint({"search"})
    vectors = served["serving_default"](text=tf.constant(QUERIES))["embedding"]
    plain = encoder.embed(QUERIES, verbose=0)["embedding"]
    np.testing.assert_allclose(vectors, plain, atol=1e-5)


def assert_equal(expected, answers):
    np.testing.assert_array_equal(answers["rows"], expected["rows"])
    np.testing.assert_allclose(answers["scores"], expected["scores"], atol=5e-5)
    texts = [[text.decode() for text in row] for row in answers["documents"]]
    assert texts == expected["documents"].tolist()


MANY = [f"a film {['fine', 'good', 'bad', 'dull'][i % 4]} {i // 8}" for i in range(240)]  # in pairs


@pytest.mark.parametrize(("weights", "k"), [("float32", 3), ("float16", 150)])
@pytest.mark.slow
def test_forms_search_many_documents_as_the_index_does(make, tmp_path, weights, k):
    """Vectors of any length and values: all are compared in int8, and the best again."""
    encoder = make(SentenceEncoder, normalize=False, similarity="dot")
    vectors = np.random.default_rng(0).normal(size=(240, encoder.output.shape[-1]))
    vectors *= np.geomspace(1e-3, 1e3, 240)[:, np.newaxis]
    vectors[7] = 0
    vectors[200:220] = vectors[219]  # equal ones
    index = Index(encoder, MANY, vectors.astype("float32"))
    columns = {"text": np.array([query.encode() for query in QUERIES], object)}
    expected = index.search(QUERIES, k=k)
    scale = np.abs(expected["scores"]).max()
    folder = encoder.export(tmp_path / "search", corpus=index, k=k, weights=weights)
    search = tf.saved_model.load(str(folder)).signatures["search"]
    path = encoder.export(
        tmp_path / "search.tflite", corpus=index, k=k, weights=weights, tokenizer="bytes"
    )
    in_lite = load_plain_tflite(str(path), "search")[0]
    for answer in (search(text=tf.constant(QUERIES)), in_lite(**litert.in_bytes(columns))):
        np.testing.assert_allclose(answer["scores"], expected["scores"], atol=1e-3 * scale)
        np.testing.assert_array_equal(answer["rows"][:, :3], expected["rows"][:, :3])
    stored = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    kinds = stored.get_variable_to_dtype_map()
    shapes = stored.get_variable_to_shape_map().items()
    of_vectors = [kinds[name] for name, shape in shapes if shape == [*vectors.shape]]
    assert of_vectors == [tf.int8, tf.int8]


@pytest.mark.slow
def test_forms_without_text_operations_search_alike(make, tmp_path):
    encoder = make(SentenceEncoder, prompts=PROMPTS)
    index = Index(encoder, DOCUMENTS, verbose=0)
    expected = index.search(QUERIES, k=3)
    folder = encoder.export(tmp_path / "search", corpus=index, k=3, operations="tensorflow")
    search = tf.saved_model.load(str(folder)).signatures["search"]
    answers = search(text=tf.constant(QUERIES))
    assert_equal(expected, {name: value.numpy() for name, value in answers.items()})
    path = encoder.export(tmp_path / "search.tflite", corpus=index, k=3, tokenizer="bytes")
    columns = {"text": np.array([query.encode() for query in QUERIES], object)}
    answers = load_plain_tflite(str(path), "search")[0](**litert.in_bytes(columns))
    ends = answers["documents_ends"].ravel()
    text = answers["documents"].tobytes()
    texts = [text[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    answers["documents"] = np.array(texts, object).reshape(4, 3)
    assert_equal(expected, answers)
    plain = make(SentenceEncoder, encoder.backbone)  # LiteRT cannot join strings: no prompts
    index = Index(plain, DOCUMENTS, verbose=0)
    path = plain.export(tmp_path / "strings.tflite", corpus=index, k=3)
    answers = load_tflite(str(path), "search")[0](text=columns["text"])
    assert_equal(index.search(QUERIES, k=3), answers)


@pytest.mark.eager
def test_vectors_are_compared_as_a_folder_says(make, tmp_path):
    """By dot products: in a search, its export, the default loss and the folder again."""
    encoder = make(SentenceEncoder, normalize=False, similarity="dot")
    encoder.save_to_huggingface(tmp_path / "folder")
    encoder = SentenceEncoder.from_preset(tmp_path / "folder")
    assert encoder.similarity == "dot"
    documents, asked = (encoder.embed(x, verbose=0)["embedding"] for x in (DOCUMENTS, QUERIES))
    scores = asked @ documents.T
    np.testing.assert_allclose(encoder.similarities(asked, documents), scores, rtol=1e-5)
    rows = np.argsort(-scores, axis=1, kind="stable")
    index = Index(encoder, DOCUMENTS, verbose=0)
    np.testing.assert_array_equal(index.search(QUERIES, k=99)["rows"], rows)
    # As many documents as there are.
    folder = encoder.export(tmp_path / "search", corpus=index, k=99)
    search = tf.saved_model.load(str(folder)).signatures["search"]
    answers = search(text=tf.constant(QUERIES))
    np.testing.assert_array_equal(answers["rows"], rows)
    np.testing.assert_allclose(answers["scores"], -np.sort(-scores, axis=1), rtol=1e-4)
    loss = loss_by_hand(encoder, InBatchNegatives(1.0, "dot"), ANCHORS, POSITIVES)
    np.testing.assert_allclose(encoder.evaluate((ANCHORS, POSITIVES), verbose=0), loss, rtol=1e-5)
    plain = make(SentenceEncoder, normalize=False)
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (asked, documents))
    np.testing.assert_allclose(plain.similarities(asked, documents), a @ b.T, atol=1e-6)
    path = tmp_path / "folder" / "config_sentence_transformers.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(stated | {"similarity_fn_name": "manhattan"}), encoding="utf-8")
    with pytest.warns(UserWarning, match="'manhattan' distances: cosines are taken"):
        assert SentenceEncoder.from_preset(tmp_path / "folder").similarity == "cosine"
    path.write_text(json.dumps(stated | {"similarity_fn_name": "l0"}), encoding="utf-8")
    with pytest.raises(ValueError, match="similarity_fn_name='l0', which is not 'cosine' or 'dot'"):
        SentenceEncoder.from_preset(tmp_path / "folder")


@pytest.mark.eager
def test_an_index_of_another_encoder_is_refused(make, make_backbone, tmp_path):
    index = Index(make(SentenceEncoder), DOCUMENTS, verbose=0)
    encoder = make(SentenceEncoder, make_backbone(hidden_dim=32))
    with pytest.raises(ValueError, match="vectors of 32 numbers, and those of the documents have"):
        encoder.export(tmp_path / "search", corpus=index)
    index.encoder = encoder
    with pytest.raises(ValueError, match="vectors of 32 numbers"):
        index.search(QUERIES)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"k": 0}, "k=0"),
        ({"freeze": True}, "leave freeze out"),
        ({"format": "web"}, "only a SavedModel"),
        ({"format": "litert", "tokenizer": "metadata"}, "only a SavedModel"),
    ],
)
@pytest.mark.eager
def test_exports_that_cannot_search(encoder, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        encoder.export(tmp_path / "search", corpus=DOCUMENTS, **options)
    assert not (tmp_path / "search").exists()


# === Whether it learns what it should ===

TOPICS = ["film", "story", "cast", "film story", "story cast", "cast film", "a", "i", "it", "not"]
ASKED, ANSWERED = "{} is good and {} was fine", "i loved {} so very {}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_recall_rises_on_paraphrases_with_distractors(make, make_backbone, seed):
    """Each question shares its words with its answer, and half of them with others."""
    keras.utils.set_random_seed(seed)
    encoder = make(SentenceEncoder, make_backbone(hidden_dim=32), in_graph=True)
    pairs = [(a, b) for a in TOPICS for b in TOPICS if a != b]
    np.random.default_rng(seed).shuffle(pairs)
    questions = [ASKED.format(*pair) for pair in pairs]
    answers = [ANSWERED.format(*pair) for pair in pairs]

    def recall():
        rows = Index(encoder, answers[60:], verbose=0).search(questions[60:], k=1)["rows"]
        return np.mean(rows[:, 0] == np.arange(len(questions) - 60))

    before = recall()
    encoder.compile(optimizer=keras.optimizers.Adam(0.003))
    encoder.fit((questions[:60], answers[:60]), batch_size=20, epochs=60, verbose=0)
    after = recall()
    assert before < 0.4 and after > 0.9, (before, after)


@pytest.mark.parametrize("eagerly", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_metrics_of_pairs_with_labels_and_without(make, eagerly):
    encoder = make(SentenceEncoder, in_graph=not eagerly)
    encoder.compile(metrics=[InBatchRecall()], run_eagerly=eagerly)
    history = encoder.fit(
        (ANCHORS, POSITIVES), validation_data=(ANCHORS, POSITIVES), verbose=0
    ).history
    vectors = encoder.predict((ANCHORS, POSITIVES), verbose=0)
    expected = np.mean(np.argmax(vectors[:, 0] @ vectors[:, 1].T, axis=1) == np.arange(5))
    np.testing.assert_allclose(history["val_in_batch_recall"], [expected])
    encoder.compile(loss=CoSENT(), metrics=[CosineSpearman()], run_eagerly=eagerly)
    values = encoder.evaluate((ANCHORS, POSITIVES), np.arange(5.0), verbose=0, return_dict=True)
    measured = evaluate_similarity(encoder, ANCHORS, POSITIVES, np.arange(5.0))
    np.testing.assert_allclose(values["cosine_spearman"], measured["spearman"], atol=1e-6)


def test_an_empty_positive_is_the_answer_of_its_anchor(encoder):
    positives = ["", *POSITIVES[1:]]
    expected = loss_by_hand(encoder, InBatchNegatives(), ANCHORS, positives)
    np.testing.assert_allclose(
        encoder.evaluate((ANCHORS, positives), verbose=0), expected, rtol=1e-5
    )
    # With negatives, of which one example lacks some.
    columns = {"anchor": ANCHORS, "positive": positives, "negative": NEGATIVES}
    assert encoder.evaluate(columns, verbose=0) < 100


@pytest.mark.slow
def test_an_interrupted_run_goes_on_bit_for_bit(
    make_backbone, tokenizer, tmp_path, interrupt_before
):
    def run(folder, callbacks=()):
        keras.utils.set_random_seed(0)
        encoder = SentenceEncoder(make_backbone(dropout=0.1), tokenizer=tokenizer)
        x, options = {"anchor": ANCHORS, "positive": POSITIVES}, {"batch_size": 2, "epochs": 2}
        run = Run(tmp_path / folder, {}, say=lambda text: None)
        history = run.fit_texts(
            encoder, x, None, callbacks=callbacks, minutes=0, verbose=0, **options
        )
        return encoder, history

    expected, history = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("killed", [interrupt_before(3)])
    actual, again = run("killed")
    assert again["loss"][-1] == history["loss"][-1]
    for a, b in zip(actual.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(a, b)
