"""Question answering: equal to the reference, windows, answers in every form, exports."""

import itertools
import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import keras_lm
from keras_lm.export.fresh_process import load_tflite
from keras_lm.feeding import datasets
from keras_lm.models import BertBackbone, RobertaBackbone
from keras_lm.packers.overlapping_windows import tokens_and_places_lite
from keras_lm.tasks import QuestionAnswerer, TextClassifier, question_answerer
from keras_lm.tokenizers import BytePairTokenizer, SubwordTokenizer, WordPieceTokenizer
from keras_lm.utils.processes import Workers

WORDS = [
    *("who", "what", "wrote", "it", "is", "was", "by", "the", "a", "ada", "bob", "eve"),
    *("in", "film", "long", "story", ",", ".", "!", "?", "é", "sky", "##s"),
]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LONG = "a long story . "
# No window reads as another does, whose answers would be as likely.
WINDING = (
    "a long story . long a . story . a story long story . long a a . long story long a story . "
)
DATA = {
    "question": ["who wrote it ?"] * 4 + ["what is it ?"] * 2,
    "context": [
        "It was by Ada.",
        WINDING + "it was by bob !",
        "ÉÉ 😀 sky. it was by Eve " + WINDING[: len(LONG * 3)],
        "a film ?",
        "it is a film",
        "the sky",
    ],
}


def label(row, text):
    return {"text": text, "start": DATA["context"][row].index(text)}


LABELS = [
    label(0, "Ada"),
    [label(1, "bob"), label(1, "bob !")],
    {"text": ["Eve"], "start": [DATA["context"][2].index("Eve")]},
    None,
    label(4, "film"),
    label(5, "sky"),
]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY, lowercase=True, strip_accents=False)


def make(tokenizer, spread=0.0, **options):
    backbone = BertBackbone(
        tokenizer.vocabulary_size, 1, 2, 16, 24, max_sequence_length=24, dropout=0.0
    )
    task = QuestionAnswerer(backbone, tokenizer=tokenizer, **({"stride": 4} | options))
    for weight in task.trainable_weights if spread else ():
        weight.assign_add(keras.random.normal(weight.shape, stddev=spread))
    return task


@pytest.fixture(scope="module")
def task(tokenizer):
    """A task whose answers differ from each other."""
    return make(tokenizer, spread=0.5)


def assert_equal(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=5e-5)


@pytest.mark.eager
def test_huggingface(goldens, tmp_path):
    folder = goldens("bert-qa")
    arrays = np.load(folder / "expected.npz")
    inputs = {
        "token_ids": arrays["in.input_ids"],
        "segment_ids": arrays["in.token_type_ids"],
        "padding_mask": arrays["in.attention_mask"],
    }
    task = keras_lm.tasks.Task.from_preset(folder, tokenizer=None)
    assert type(task) is QuestionAnswerer
    names = ("start_logits", "end_logits")
    for name in names:
        assert_equal(task(inputs)[name], arrays[f"out.{name}"])
        assert_equal(task.predict(inputs, verbose=0)[name], arrays[f"out.{name}"])
    backbone = task.backbone
    states = keras.Model(backbone.inputs, backbone.hidden_states)(backbone.complete(inputs))
    assert_equal(np.stack(states), arrays["out.hidden_states"])
    assert_equal(backbone.attention_probabilities(inputs), arrays["out.attentions"])
    labels = dict(zip(names, (arrays["in.start_positions"], arrays["in.end_positions"])))
    metrics = task.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert_equal(metrics["loss"], arrays["out.loss"])
    task.save_to_preset(tmp_path / "preset")
    again = keras_lm.tasks.Task.from_preset(tmp_path / "preset", tokenizer=None)
    np.testing.assert_array_equal(again(inputs)["end_logits"], task(inputs)["end_logits"])
    with pytest.warns(UserWarning, match="new and random are classifier"):  # a head of its own
        TextClassifier.from_preset(folder, num_classes=2, tokenizer=None)
    # A token classifier's head has the same shape, but another meaning.
    with pytest.warns(UserWarning, match="new and random are span_head"):
        QuestionAnswerer.from_preset(goldens("bert-tokencls"), tokenizer=None)


MODELS = {
    "bert": "Bert",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "albert": "Albert",
    "electra-discriminator": "Electra",
    "spanbert": None,  # its published folders state no architecture
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:.*left over in the checkpoint")
def test_published_heads_of_every_encoder(goldens, tmp_path, name):
    tensors = load_file(goldens(name) / "model.safetensors")
    config = json.loads((goldens(name) / "config.json").read_text())
    width = config.get("hidden_size", config.get("dim"))
    kernel, bias = np.random.normal(size=(2, width)).astype("float32"), np.float32([0.5, -0.5])
    save_file(
        tensors | {"qa_outputs.weight": kernel, "qa_outputs.bias": bias},
        tmp_path / "model.safetensors",
    )
    config |= {"architectures": [f"{MODELS[name]}ForQuestionAnswering"]} if MODELS[name] else {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    task = keras_lm.tasks.Task.from_preset(tmp_path, tokenizer=None)
    assert type(task) is QuestionAnswerer
    inputs = {"token_ids": np.array([[5, 6, 7, 8]])}
    states = task.backbone(inputs)["sequence_output"].numpy()
    actual, expected = task(inputs), states @ kernel.T + bias
    assert_equal(actual["start_logits"], expected[:, :, 0])
    assert_equal(actual["end_logits"], expected[:, :, 1])


@pytest.mark.parametrize("name", ["tf1-bert", "tf1-albert"])
@pytest.mark.filterwarnings("ignore:.*left over in the checkpoint")
def test_published_heads_of_google(goldens, tmp_path, name):
    (config,) = goldens(name).glob("*config.json")
    (index,) = goldens(name).glob("*.index")
    reader = tf.train.load_checkpoint(str(index.with_suffix("")))
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    width = json.loads(config.read_text())["hidden_size"]
    kernel, bias = np.random.normal(size=(2, width)).astype("float32"), np.float32([0.5, -0.5])
    tensors |= {"cls/squad/output_weights": kernel, "cls/squad/output_bias": bias}
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / index.stem),
        tensor_names=[*tensors],
        shape_and_slices=[""] * len(tensors),
        tensors=[*tensors.values()],
    )
    (tmp_path / config.name).write_text(config.read_text())
    task = keras_lm.tasks.Task.from_preset(tmp_path, tokenizer=None)
    assert type(task) is QuestionAnswerer
    inputs = {"token_ids": np.array([[5, 6, 7, 8]])}
    states = task.backbone(inputs)["sequence_output"].numpy()
    assert_equal(task(inputs)["end_logits"], states @ kernel[1] + bias[1])


def by_hand(task, question, context):
    """Compare all spans of all windows, one at a time: {(start, end): score}, and no answer's."""
    packed = task.preprocess({"question": [question], "context": [context]})
    logits = task({name: packed[name] for name in task.packer.inputs})
    begins, ends = (logits[name].numpy() for name in ("start_logits", "end_logits"))
    packed = {name: value.numpy() for name, value in packed.items()}
    results = {}
    for window, first in itertools.product(*map(range, begins.shape)):
        for last in range(first, min(first + task.max_answer_length, begins.shape[1])):
            inside = packed["start"][window, [first, last]] >= 0
            if inside.all() and packed["max_context"][window, first]:
                place = packed["start"][window, first], packed["end"][window, last]
                assert place not in results
                results[place] = begins[window, first] + ends[window, last]
    return results, (begins + ends)[:, 0].min()


def test_answers_are_the_best_spans_of_all_windows(task):
    for row, answers in enumerate(task.answer(DATA, top_k=None)):
        question, context = (DATA[name][row] for name in ("question", "context"))
        scores, null = by_hand(task, question, context)
        best = sorted(scores.items(), key=lambda item: -item[1])[: task.num_answers]
        everything = sorted([*best, ((0, 0), null)], key=lambda item: -item[1])
        everything = everything[: task.num_answers]
        total = sum(np.exp(score) for _, score in best) + np.exp(null)
        assert len(answers) == len(everything)
        for answer, (place, score) in zip(answers, everything):
            assert (answer["start"], answer["end"]) == place
            assert answer["text"] == context[place[0] : place[1]]
            assert answer["score"] == pytest.approx(np.exp(score) / total, rel=1e-3)


@pytest.mark.eager
def test_of_several_answers_none_overlaps_a_better_one(task):
    everything, several = task.answer(DATA, top_k=None), task.answer(DATA, top_k=4)
    assert [row[:1] for row in everything] == task.answer(DATA)
    for all_of_them, actual in zip(everything, several, strict=True):
        expected, taken = [], set()
        for answer in all_of_them:
            places = {*range(answer["start"], answer["end"])}
            if not places & taken:
                expected.append(answer)
                taken |= places
        assert actual == expected[:4]
    assert max(map(len, several)) == 4 and several != [row[:4] for row in everything]
    with pytest.raises(ValueError, match="top_k=0: pass an int, 1 or more"):
        task.answer(DATA, top_k=0)


def test_labels_are_tokens_of_the_windows_that_hold_the_answer(task):
    x, y = {name: column[1:3] for name, column in DATA.items()}, LABELS[1:3]
    columns = task.columns(x)
    labels = task.labels.match(task.labels.prepare(y), columns, False)
    packed, labels = task.preprocess_with_labels(columns, labels)
    texts = [
        [] if first == 0 else task.tokenizer.tokens(ids[first : last + 1]).numpy().tolist()
        for ids, first, last in zip(
            packed["token_ids"].numpy(), *(labels[n].numpy() for n in labels)
        )
    ]
    assert [b"bob"] in texts and [b"eve"] in texts and [] in texts
    for row, word in ((0, "bob"), (1, "eve")):
        id = task.tokenizer.token_to_id(word)
        for window in np.flatnonzero(packed["example"] == row):
            assert bool(texts[window]) == (id in packed["token_ids"][window].numpy())


@pytest.mark.thorough
def test_it_learns_and_is_measured(tokenizer, eagerly):
    task = make(tokenizer)
    task.compile(keras.optimizers.Adam(0.03))
    # Ten times in an epoch, as each epoch takes longer than its steps.
    many = {name: 10 * column for name, column in DATA.items()}
    options = {"batch_size": 32, "group_by_length": False, "epochs": 10}
    options |= {"validation_data": (DATA, LABELS), "validation_freq": 10}
    history = task.fit(many, 10 * LABELS, verbose=0, **options).history
    assert history["loss"][-1] < 0.2 * history["loss"][0]
    assert history["val_exact_match"][-1] == history["val_f1"][-1] == 1.0
    assert history["val_no_answer_accuracy"][-1] == 1.0
    with eagerly():
        results = task.evaluate(DATA, LABELS, verbose=0, return_dict=True)
        assert results["exact_match"] == results["no_answer_accuracy"] == 1.0
        best = [answer for [answer] in task.answer(DATA)]
        assert [answer["text"] for answer in best] == ["Ada", "bob", "Eve", "", "film", "sky"]
        assert (best[2]["start"], best[2]["end"]) == (20, 23)  # characters, not bytes
        assert (best[3]["start"], best[3]["end"]) == (0, 0)

        task.null_threshold = -30.0  # as if it were tuned badly
        assert task.score(DATA, LABELS)["no_answer_accuracy"] == pytest.approx(1 / 6)
        task.tune_null_threshold(DATA, LABELS)
        assert task.score(DATA, LABELS)["f1"] == 1.0
        with pytest.raises(ValueError, match="questions with an answer and questions without"):
            task.tune_null_threshold(DATA, [None] * 6)


@pytest.mark.eager
def test_files_answer_the_same(tokenizer, tmp_path):
    task = make(tokenizer, spread=0.5)
    threshold = task.tune_null_threshold(DATA, LABELS)
    assert threshold != 0.0  # the default
    expected = task.answer(DATA, top_k=None)
    task.save_to_preset(tmp_path / "preset")
    again = keras_lm.tasks.Task.from_preset(tmp_path / "preset")
    assert again.null_threshold == threshold
    assert again.answer(DATA, top_k=None) == expected
    task.save(tmp_path / "task.keras")
    again = keras.saving.load_model(tmp_path / "task.keras")
    assert again.answer(DATA, top_k=None) == expected


@pytest.mark.eager
@pytest.mark.parametrize("threshold, texts", [(1e6, ["sky", ""]), (-1e6, ["", ""]), (None, 0)])
def test_the_threshold_decides_and_none_always_answers(tokenizer, threshold, texts):
    task = make(tokenizer, spread=0.5, null_threshold=threshold)
    results = [row[0] for row in task.answer((["what ?", "what ?"], ["sky", ""]))]
    assert [answer["text"] for answer in results] == (texts or ["sky", ""])
    if threshold is None:
        assert results[1]["score"] == 0


def test_extreme_texts(task):
    contexts = ["sky", "", "a long story . " * 5000 + "sky", "\ud800 sky", "\x00 \xa0"]
    questions = ["", "who ?" * 500, "what ?", "what ?", ""]
    answers = task.answer((questions, contexts), top_k=None)
    for context, row in zip(contexts, answers):
        assert all(np.isfinite(answer["score"]) for answer in row)
        for answer in row if "\ud800" not in context else ():
            assert answer["text"] == context[answer["start"] : answer["end"]]
    assert {answer["text"] for answer in answers[0]} == {"sky", ""}
    assert [answer["text"] for answer in answers[1]] == [""]
    with pytest.raises(ValueError, match="x is empty"):
        task.answer(([], []))


FORMS = {
    "tuple": lambda x: (x["question"], x["context"]),
    "rows": lambda x: list(zip(x["question"], x["context"])),
    "dataset": lambda x: tf.data.Dataset.from_tensor_slices(x).batch(4),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data(task, form):
    actual, expected = (task.answer(x, top_k=None) for x in (FORMS[form](DATA), DATA))
    for answers, same in zip(actual, expected, strict=True):
        assert [answer["text"] for answer in answers[:3]] == [answer["text"] for answer in same[:3]]
        assert answers[0]["score"] == pytest.approx(same[0]["score"], rel=1e-4)


def test_predict_returns_the_logits_of_all_windows(task, eagerly):
    packed = {name: x for name, x in task.preprocess(DATA).items() if name in task.packer.inputs}
    expected = task(packed)
    data = tf.data.Dataset.from_tensor_slices(DATA).batch(6)
    results = [task.predict(DATA, verbose=0)]
    with eagerly():
        results += [task.predict(x, verbose=0) for x in (data, packed)]
    for each in results:
        for name, logits in expected.items():
            np.testing.assert_allclose(each[name], logits, atol=1e-5)


def dataset_of(labels):
    texts = tf.ragged.constant([["Ada"], ["bob", "it"], ["Eve"], [], ["film"], ["sky"]])
    starts = tf.ragged.constant(
        [[10], [LABELS[1][0]["start"], 90], LABELS[2]["start"], [], [8], [4]], tf.int32
    )
    if labels == "one":
        texts, starts = texts.to_tensor("")[:, 0], starts.to_tensor()[:, 0]
    return tf.data.Dataset.from_tensor_slices((DATA, {"text": texts, "start": starts}))


@pytest.mark.eager
def test_datasets_with_labels(task):
    data = dataset_of("several")
    logs = task.evaluate(data.batch(6), verbose=0, return_dict=True)
    expected = task.test_on_batch(DATA, LABELS, return_dict=True)
    assert logs["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    expected = task.score(DATA, LABELS)
    for scores in (logs, task.score(data.batch(4))):
        assert scores["no_answer_accuracy"] == expected["no_answer_accuracy"]


@pytest.mark.eager
def test_fitting_takes_windows_in_batches_of_the_given_size(tokenizer):
    task = make(tokenizer)
    sizes = []
    make_batches = task.training_batches
    task.training_batches = lambda *arguments, **options: make_batches(*arguments, **options).map(
        lambda *batch: (
            tf.py_function(
                lambda n: sizes.append(int(n)), [tf.shape(batch[1]["end_logits"])[0]], []
            ),
            batch,
        )[1]
    )
    windows = task.preprocess(DATA)["example"].shape[0]
    weighed = {"x": DATA, "y": LABELS, "sample_weight": np.zeros(6), "batch_size": 4}
    for data in (weighed, {"x": dataset_of("one").batch(4)}):
        sizes.clear()
        (loss,) = task.fit(**data, verbose=0).history["loss"]
        assert sorted(sizes) == [windows % 4 or 4, *[4] * (windows // 4)][-len(sizes) :]
        assert sum(sizes) == windows
        assert (loss == 0.0) == (data is weighed)
    assert np.isfinite(task.train_on_batch(DATA, LABELS)[0])


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("shuffle", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_workers_train_on_every_window_once(tokenizer, monkeypatch, shuffle):
    task = make(tokenizer, stride=3)
    strategy = SimpleNamespace(num_replicas_in_sync=2)
    monkeypatch.setattr(task, "_distribute_strategy", strategy)
    for module in (datasets, question_answerer):
        monkeypatch.setattr(module, "common_seed", lambda strategy: 7)
    results = []
    for index in range(2):
        worker = Workers(2, index, 1)
        monkeypatch.setattr(datasets, "workers_of", lambda strategy, worker=worker: worker)
        parts = task.training_batches(DATA, LABELS, None, 4, shuffle, True)
        results.append([part[0]["token_ids"].numpy() for part in parts])
        assert len(results[-1]) == int(parts.cardinality())
    assert all(0 <= len(one) - len(other) <= 1 for one, other in zip(*results, strict=True))
    rows = [row[row > 0].tolist() for own in results for part in own for row in part]
    windows = task.preprocess(DATA)
    expected = [row[row > 0].tolist() for row in windows["token_ids"].numpy()]
    assert sorted(rows) == sorted(expected)


@pytest.mark.parametrize(
    "x, message",
    [
        (["a"], "'question' and 'context' are needed"),
        ({"question": ["a"]}, "'question' and 'context' are needed"),
        ({"question": ["a"], "context": [None]}, r"context\[0\] is None"),
        ({"question": ["a", None], "context": ["a", "b"]}, r"question\[1\] is None"),
        ({"question": ["a", "b"], "context": ["a"]}, "columns of different lengths"),
        (("a", "b"), "is a single example"),
    ],
)
def test_bad_data(task, x, message):
    with pytest.raises(ValueError, match=message):
        task.answer(x)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"text": "Ada", "start": 3}, r"labels\[2\]: the answer 'Ada' is not .* not occur"),
        ({"text": "Eve", "start": 25}, r"labels\[2\]: .* it begins at 20: count characters"),
        ({"text": "wrote", "start": 4}, r"labels\[2\]: .* are question and context swapped"),
        ({"text": "Eve", "start": None}, r"labels\[2\]: the answer 'Eve' has start=None"),
        ({"text": "Eve"}, r"labels\[2\]=.*: pass \{'text'"),
        ("Eve", r"labels\[2\]='Eve': pass \{'text'"),
        ({"text": ["Eve"], "start": []}, r"labels\[2\]=.* as many starts"),
        (3, r"labels\[2\]=3"),
    ],
)
def test_bad_labels(task, wrong, message):
    with pytest.raises(ValueError, match=message):
        task.fit(DATA, [*LABELS[:2], wrong, *LABELS[3:]], verbose=0)


@pytest.mark.eager
def test_other_bad_arguments(task, tokenizer):
    with pytest.raises(ValueError, match="labels has 1 rows for 6"):
        task.fit(DATA, [None], verbose=0)
    with pytest.raises(ValueError, match=r"max_answer_length=0"):
        make(tokenizer, max_answer_length=0)
    with pytest.raises(ValueError, match="num_answers=0"):
        make(tokenizer, num_answers=0)
    packed = task.preprocess(DATA)
    with pytest.raises(ValueError, match="x is packed: pass a dict of start_logits"):
        task.fit({"token_ids": packed["token_ids"]}, [None] * len(packed["token_ids"]))
    wrong = tf.data.Dataset.from_tensors((DATA, [0] * 6))
    with pytest.raises(ValueError, match="labels are not a dict of 'text' and 'start'"):
        task.fit(wrong, verbose=0)


@pytest.mark.slow
@pytest.mark.eager
def test_saved_model(task, tmp_path):
    folder = task.export(tmp_path / "answerer")
    signatures = tf.saved_model.load(str(folder)).signatures
    served = signatures["serving_default"](**{n: tf.constant(x) for n, x in DATA.items()})
    assert {name: value.dtype for name, value in served.items()} == {
        "text": tf.string,
        "scores": tf.float32,
        "start": tf.int32,
        "end": tf.int32,
    }
    expected = task.answer_all(DATA)
    texts = [[text.decode() for text in row] for row in served["text"].numpy()]
    assert texts == expected["text"].tolist()
    for name in ("start", "end"):
        np.testing.assert_array_equal(served[name], expected[name])
    np.testing.assert_allclose(served["scores"], expected["scores"], atol=1e-4)
    assert (np.diff(served["scores"], axis=1) <= 0).all()
    packed = task.preprocess(DATA)
    packed = {name: packed[name] for name in task.packer.inputs}
    raw = signatures["tokens"](**packed)
    np.testing.assert_allclose(raw["end_logits"], task(packed)["end_logits"], atol=1e-5)
    assert (folder / "assets.extra/tf_serving_warmup_requests").is_file()


@pytest.mark.slow
@pytest.mark.eager
def test_litert(task, tmp_path):
    pytest.importorskip("ai_edge_litert")
    serve, _ = load_tflite(str(task.export(tmp_path / "m.tflite", format="litert")))
    rows = (0, 2, 3)
    data = {name: [*(column[row] for row in rows), ""] for name, column in DATA.items()}
    actual = serve(**{n: np.array([*map(str.encode, x)], object) for n, x in data.items()})
    own = {name: value.numpy() for name, value in task.answer_lite(task.columns(data)).items()}
    assert actual.keys() == own.keys()
    np.testing.assert_allclose(actual.pop("scores"), own["scores"], atol=1e-4)
    for name, values in actual.items():
        np.testing.assert_array_equal(values, own[name])
    # Its answers are whole words, as here all of Python's are.
    expected = task.answer_all(data)
    np.testing.assert_array_equal(own["start"], expected["start"])
    texts = [[text.decode() for text in row] for row in own["text"]]
    assert texts == expected["text"].tolist()


@pytest.fixture(scope="module")
def byte_pair_task(goldens):
    tokenizer = BytePairTokenizer.from_files(goldens("tokenizers") / "bytebpe-roberta")
    backbone = RobertaBackbone(tokenizer.vocabulary_size, 1, 2, 16, 24, max_sequence_length=32)
    return QuestionAnswerer(backbone, tokenizer=tokenizer)


@pytest.mark.slow
@pytest.mark.eager
def test_byte_pairs_in_litert(byte_pair_task, tmp_path):
    pytest.importorskip("ai_edge_litert")
    contexts = ["😀 It was written by Ada.", "", "  two  spaces\u3000日本 ", " "]
    data = {"question": ["Who wrote it?"] * 4, "context": contexts}
    expected = byte_pair_task.answer_all(data)
    answers = byte_pair_task.answer(data, top_k=None)
    for row in (0, 2):
        for answer in answers[row]:
            assert answer["text"] == contexts[row][answer["start"] : answer["end"]]
            assert answer["text"] == answer["text"].strip()  # tokens have the space before a word
    file = byte_pair_task.export(tmp_path / "m.tflite", format="litert")
    serve, _ = load_tflite(str(file))
    actual = serve(**{n: np.array([*map(str.encode, x)], object) for n, x in data.items()})
    np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-4)
    for row in (0, 2):
        texts = [text.decode() for text in actual["text"][row]]
        assert texts == expected["text"][row].tolist()
        for name in ("start", "end"):
            np.testing.assert_array_equal(actual[name][row], expected[name][row])


def test_no_places_in_litert():
    tokenizer = SubwordTokenizer(["<pad>", "<EOS>", "a_", "a"])
    with pytest.raises(ValueError, match=r"no places of tokens in LiteRT.* SavedModel instead"):
        tokens_and_places_lite(tokenizer, tf.constant(["a"]))
