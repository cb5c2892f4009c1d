"""XLNet's head for questions: against the formula, from published files, and what it answers."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from safetensors.numpy import load_file, save_file
from scipy.special import expit, log_softmax, softmax

from keras_lm.models import Backbone
from keras_lm.packers.rows import LOWEST
from keras_lm.tasks import MultipleChoice, QuestionAnswerer, Task, TextClassifier, TextRegressor
from keras_lm.tasks.answer_spans import ConditionalEnds

pytestmark = pytest.mark.eager

DATA = {
    "question": ["who is he?", "what film?"],
    "context": [
        "the film was good and a very nice cast loved it so much that they came again",
        "i loved it",
    ],
}
WIDTH = 48
RNG = np.random.default_rng(3)
# Hugging Face's names and shapes; kernels of theirs are (out, in).
TENSORS = {
    "start_logits.dense.weight": (1, WIDTH),
    "start_logits.dense.bias": (1,),
    "end_logits.dense_0.weight": (WIDTH, 2 * WIDTH),
    "end_logits.dense_0.bias": (WIDTH,),
    "end_logits.LayerNorm.weight": (WIDTH,),
    "end_logits.LayerNorm.bias": (WIDTH,),
    "end_logits.dense_1.weight": (1, WIDTH),
    "end_logits.dense_1.bias": (1,),
    "answer_class.dense_0.weight": (WIDTH, 2 * WIDTH),
    "answer_class.dense_0.bias": (WIDTH,),
    "answer_class.dense_1.weight": (1, WIDTH),
}
TENSORS = {name: RNG.normal(size=shape, scale=0.4) for name, shape in TENSORS.items()}


def write(folder, source, tensors, **config):
    """A copy of a Hugging Face folder with a head's tensors."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    stated = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(stated))
    stored = load_file(folder / "model.safetensors")
    stored |= {name: np.asarray(value, "float32") for name, value in tensors.items()}
    save_file(stored, folder / "model.safetensors")


def load(folder, cls=Task, **arguments):
    with pytest.warns(UserWarning, match="there is no vocabulary"):
        return cls.from_preset(folder, **arguments)


# === The formula ===


def dense(x, name, tensors=TENSORS):
    return x @ tensors[f"{name}.weight"].T + tensors.get(f"{name}.bias", 0)


def reference(x, barred, starts=None, number=3):
    """What `get_qa_outputs` computes of states (B, S, D), in float64."""
    start_logits = dense(x, "start_logits.dense")[..., 0] * (1 - barred) - 1e30 * barred
    if starts is None:
        starts = np.argsort(-start_logits, axis=1, kind="stable")[:, :number]
    of_starts = np.take_along_axis(x, starts[:, :, None], axis=1)[:, :, None]  # (B, K, 1, D)
    both = np.broadcast_arrays(x[:, None], of_starts)
    y = np.tanh(dense(np.concatenate(both, axis=-1), "end_logits.dense_0"))
    y = (y - y.mean(axis=-1, keepdims=True)) / np.sqrt(y.var(axis=-1, keepdims=True) + 1e-12)
    y = y * TENSORS["end_logits.LayerNorm.weight"] + TENSORS["end_logits.LayerNorm.bias"]
    end_logits = dense(y, "end_logits.dense_1")[..., 0]
    end_logits = end_logits * (1 - barred[:, None]) - 1e30 * barred[:, None]
    start = np.einsum("bs,bsd->bd", softmax(start_logits, axis=1), x)
    null = np.tanh(dense(np.concatenate([start, x[:, -1]], axis=-1), "answer_class.dense_0"))
    return {
        "start_logits": start_logits,
        "starts": starts,
        "end_logits": end_logits,
        "null_logits": dense(null, "answer_class.dense_1")[:, 0],
    }


# Two texts: padding, context, separator, question, separator, <cls>.
SEGMENTS = np.array([[3, 3, 0, 0, 0, 0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2]])
PACKED = {
    "token_ids": RNG.integers(9, 190, SEGMENTS.shape).astype("int32"),
    "segment_ids": SEGMENTS.astype("int32"),
    "padding_mask": (SEGMENTS < 3).astype("int32"),
}
BARRED = np.ones(SEGMENTS.shape)
BARRED[0, [*range(2, 6), 10]] = BARRED[1, [*range(7), 10]] = 0


@pytest.fixture
def task(goldens, tmp_path):
    names = ["XLNetForQuestionAnswering"]
    write(tmp_path, goldens("xlnet"), TENSORS, architectures=names, start_n_top=3, end_n_top=4)
    task = load(tmp_path)
    assert type(task) is QuestionAnswerer
    assert (task.num_starts, task.num_ends) == (3, 4)
    return task


def test_outputs(task, assert_equal):
    states = np.float64(task.backbone(PACKED)["sequence_output"])
    actual, expected = task(PACKED), reference(states, BARRED)
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert_equal(np.asarray(actual[name]), np.float32(value))
    given = np.array([3, 10], "int32")
    actual = task(PACKED | {"start_positions": given})
    expected = reference(states, BARRED, given[:, None])
    assert_equal(np.asarray(actual["end_logits"]), np.float32(expected["end_logits"][:, 0]))
    assert "starts" not in actual


def test_loss(task):
    """The mean of both ends', the end's for the true start, and half of no answer's."""
    start, end = np.array([3, 10], "int32"), np.array([5, 10], "int32")  # the second has none
    states = np.float64(task.backbone(PACKED)["sequence_output"])
    expected = reference(states, BARRED, start[:, None])
    rows = range(2)
    losses = [
        -log_softmax(expected["start_logits"], axis=1)[rows, start].mean(),
        -log_softmax(expected["end_logits"][:, 0], axis=1)[rows, end].mean(),
        -np.log(expit(expected["null_logits"] * [-1, 1])).mean(),
    ]
    labels = {"start_logits": start, "end_logits": end}
    logs = task.evaluate(PACKED, labels, verbose=0, return_dict=True)
    results = [logs[f"{name}_logits_loss"] for name in ("start", "end", "null")]
    np.testing.assert_allclose(results, losses, rtol=1e-4)
    assert logs["loss"] == pytest.approx(sum(losses) / 2, rel=1e-4)


def test_answers_are_those_of_a_plain_loop():
    rows, columns, longest = 6, 12, 4
    ends = ConditionalEnds(num_starts=3, num_ends=4)
    start_logits = RNG.normal(size=(rows, columns)).astype("float32")
    end_logits = RNG.normal(size=(rows, 3, columns)).astype("float32")
    starts = np.argsort(-start_logits, axis=1)[:, :3].astype("int32")
    is_context = np.arange(columns) < 9
    packed = {
        "padding_mask": np.ones((rows, columns), "int32"),
        "max_context": (is_context & (RNG.random((rows, columns)) < 0.8)).astype("int32"),
        "start": np.where(is_context, np.arange(columns), -1) + np.zeros((rows, 1), int),
    }
    logits = {"start_logits": start_logits, "end_logits": end_logits, "starts": starts}
    actual = ends.best_spans(*({k: tf.constant(v) for k, v in x.items()} for x in (logits, packed)),
                            20, longest)  # fmt: skip
    for row in range(rows):
        spans = []
        scores = log_softmax(start_logits[row]), log_softmax(end_logits[row], axis=-1)
        for k, first in enumerate(starts[row]):
            for last in np.argsort(-end_logits[row, k])[:4]:
                is_valid = packed["max_context"][row, first] and is_context[last]
                if is_valid and first <= last < first + longest:
                    spans.append((scores[0][first] + scores[1][k, last], first, last))
        spans.sort(reverse=True)
        best, first, last = (np.asarray(x)[row] for x in actual)
        there = best > LOWEST / 2
        assert there.sum() == len(spans)
        found_spans = zip(best[there], first[there], last[there], strict=True)
        np.testing.assert_allclose([*found_spans] or np.empty((0, 3)),
                                   spans or np.empty((0, 3)), rtol=1e-4)  # fmt: skip


# === transformers' outputs ===


def packed_of(arrays):
    names = {"token_ids": "ids", "padding_mask": "mask", "segment_ids": "seg"}
    return {ours: arrays[theirs].astype("int32") for ours, theirs in names.items()}


def test_a_published_folder_with_its_beam(goldens, assert_equal):
    """Padding on either side; of each of three starts the two likeliest ends."""
    task, arrays = load(goldens("xlnet-qa")), np.load(goldens("xlnet-qa") / "expected.npz")
    assert type(task) is QuestionAnswerer
    results = {name: np.asarray(value) for name, value in task(packed_of(arrays)).items()}
    starts, ends = softmax(results["start_logits"], axis=1), softmax(results["end_logits"], axis=2)
    np.testing.assert_array_equal(results["starts"], arrays["out.start_top_index"])
    likely = np.take_along_axis(starts, results["starts"], axis=1)
    assert_equal(likely, arrays["out.start_top_log_probs"])  # which are no logarithms
    places = np.argsort(-ends, axis=2)[:, :, :2]
    likely = np.take_along_axis(ends, places, axis=2)
    for part, name in ((places, "index"), (likely, "log_probs")):  # theirs: all first ends, …
        np.testing.assert_allclose(
            part.swapaxes(1, 2).reshape(6, 6), arrays[f"out.end_top_{name}"], atol=1e-5
        )
    assert_equal(results["null_logits"], arrays["out.cls_logits"])


def test_a_published_folder_of_choices(goldens, assert_equal):
    task, arrays = load(goldens("xlnet-choice")), np.load(goldens("xlnet-choice") / "expected.npz")
    assert type(task) is MultipleChoice
    ends_with_cls = arrays["mask"][:, :, -1] > 0
    actual = np.asarray(task(packed_of(arrays)))
    assert_equal(actual[ends_with_cls], arrays["out.logits"][ends_with_cls])


# === A task ===


@pytest.mark.thorough
def test_it_learns_which_questions_have_an_answer(tokenizer_of, tmp_path):
    tokenizer = tokenizer_of("sentencepiece-xlnet")
    backbone = tiny.make_backbone("XLNetBackbone", tokenizer.vocabulary_size)
    task = QuestionAnswerer(backbone, tokenizer=tokenizer, sequence_length=80)
    packed = task.preprocess(DATA)
    # The context comes first, and <cls>, in the end, stands for no answer.
    np.testing.assert_array_equal(packed["token_ids"][:, -1], [tokenizer.special_id("cls")] * 2)
    assert packed["start"][0, 0] == 0
    labels = [{"text": "nice cast", "start": 29}, None]
    _, places = task.preprocess_with_labels(
        {name: tf.constant(value) for name, value in DATA.items()},
        {"text": tf.constant(["nice cast", ""]), "start": tf.constant([29, 0])},
    )
    assert places["start_logits"][1] == places["end_logits"][1] == packed["token_ids"].shape[1] - 1
    task.compile(optimizer=keras.optimizers.Adam(2e-2))
    many = {name: 5 * column for name, column in DATA.items()}
    task.fit(many, 5 * labels, batch_size=2, epochs=5, shuffle=False, verbose=0)
    assert [answers[0]["text"] for answers in task.answer(DATA)] == ["nice cast", ""]
    assert task.score(DATA, labels, verbose=0)["exact_match"] == 1
    task.null_threshold = None  # then all have one
    assert [bool(answers[0]["text"]) for answers in task.answer(DATA)] == [True, True]
    task.tune_null_threshold(DATA, labels, verbose=0)
    task.save_to_preset(tmp_path / "preset")
    again = Task.from_preset(tmp_path / "preset")
    assert again.answer(DATA) == task.answer(DATA)
    exported = tf.saved_model.load(task.export(tmp_path / "exported"))
    columns = {name: tf.constant(value) for name, value in DATA.items()}
    served = exported.signatures["serving_default"](**columns)
    assert [text.decode() for text in served["text"][:, 0].numpy()] == ["nice cast", ""]
    packed = {name: packed[name] for name in ("token_ids", "segment_ids", "padding_mask")}
    for actual, expected in (
        (served, task.answer(columns)),
        (exported.signatures["tokens"](**packed), task(packed)),  # ends for each of the starts
    ):
        assert set(actual) == set(expected)
        for name in {*expected} - {"text"}:
            np.testing.assert_allclose(actual[name], expected[name], rtol=1e-4, atol=1e-4)
        if "text" in expected:
            np.testing.assert_array_equal(actual["text"], expected["text"])


@pytest.mark.slow
def test_labels_are_places_of_batches_of_any_width(tokenizer_of):
    """Padding is on the left: a token's place depends on the longest window beside it."""
    tokenizer = tokenizer_of("sentencepiece-xlnet")
    backbone = tiny.make_backbone("XLNetBackbone", tokenizer.vocabulary_size)
    task = QuestionAnswerer(backbone, tokenizer=tokenizer, sequence_length=40, stride=8)
    data = {name: [*column, "what film?", "so?"] for name, column in DATA.items()}
    labels = [{"text": "cast", "start": 34}, None, {"text": "what", "start": 0}, None]
    actual, widths = [], set()
    for packed, places in task.training_batches(data, labels, None, 1, True, True):
        (ids,), (mask,) = packed["token_ids"].numpy(), packed["padding_mask"].numpy()
        start, end = (int(places[name][0]) for name in ("start_logits", "end_logits"))
        widths.add(mask.sum())
        assert mask.all()
        if start == len(ids) - 1:  # <cls>
            assert end == start
        else:
            actual.append(tokenizer.detokenize(ids[start : end + 1]).numpy().decode())
    assert {*actual} == {"cast", "what"} and len(widths) > 2


def test_the_simple_head(goldens, tmp_path, assert_equal):
    tensors = {"qa_outputs.weight": RNG.normal(size=(2, WIDTH)), "qa_outputs.bias": [0.1, -0.2]}
    names = ["XLNetForQuestionAnsweringSimple"]
    write(tmp_path, goldens("xlnet"), tensors, architectures=names)
    task = load(tmp_path)
    assert type(task) is QuestionAnswerer
    expected = dense(task.backbone(PACKED)["sequence_output"], "qa_outputs",
                     {name: np.array(value) for name, value in tensors.items()})  # fmt: skip
    actual = task(PACKED)
    assert set(actual) == {"start_logits", "end_logits"}
    for i, name in enumerate(("start_logits", "end_logits")):
        assert_equal(actual[name], expected[..., i])


# === The authors' files ===


def google(folder, source, head):
    """A copy of a folder whose checkpoint has more tensors, as fine-tuning writes."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    reader = tf.train.load_checkpoint(str(source / "xlnet_model.ckpt"))
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    tensors |= {name: np.asarray(value, "float32") for name, value in head.items()}
    slots = {f"{name}/adam_m": value for name, value in tensors.items()}
    tensors |= slots | {"global_step": np.int64(9)}
    tf.raw_ops.SaveV2(
        prefix=str(folder / "xlnet_model.ckpt"),
        tensor_names=[*tensors],
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(value) for value in tensors.values()],
    )


SUMMARY = {
    "model/sequnece_summary/summary/kernel": RNG.normal(size=(40, 40)),
    "model/sequnece_summary/summary/bias": RNG.normal(size=40),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls, kernel, bias, classes",
    [
        (TextClassifier, "model/classification_imdb/logit/{}", "", 3),
        (TextRegressor, "model/regression_sts-b/logit/{}", "", 1),
        (MultipleChoice, "logits/dense/{}", "", 1),
    ],
)
def test_classifiers_of_google(goldens, tmp_path, assert_equal, cls, kernel, bias, classes):
    head = {"kernel": RNG.normal(size=(40, classes)), "bias": RNG.normal(size=classes)}
    head = {kernel.format(name): value for name, value in head.items()}
    google(tmp_path, goldens("tf1-xlnet"), SUMMARY | head)
    task = load(tmp_path)
    assert type(task) is cls
    ids = RNG.integers(9, 100, (2, 7)).astype("int32")
    last = np.asarray(task.backbone({"token_ids": ids})["sequence_output"])[:, -1]
    weight, summary = ([*x.values()] for x in (head, SUMMARY))
    expected = np.tanh(last @ summary[0] + summary[1]) @ weight[0] + weight[1]
    packed = {"token_ids": ids}
    if cls is MultipleChoice:  # one row, two choices
        packed = {"token_ids": ids[None], "padding_mask": np.ones_like(ids[None])}
        expected = expected.T
    assert_equal(task(packed), np.float32(expected))


def test_questions_of_google(goldens, tmp_path, assert_equal):
    head = {name: RNG.normal(size=np.shape(value)) for name, value in TENSORS.items()}
    head = {
        name.replace(".", "/")
        .replace("LayerNorm/weight", "LayerNorm/gamma")
        .replace("LayerNorm/bias", "LayerNorm/beta")
        .replace("weight", "kernel"): value[tuple(slice(80 if n == 96 else min(n, 40))
                                                  for n in value.shape)].T
        for name, value in head.items()
    }  # fmt: skip
    google(tmp_path, goldens("tf1-xlnet"), head)
    task = load(tmp_path)
    assert type(task) is QuestionAnswerer and task.num_starts == 5
    for path, name in (
        ("conditional_span_head/start/kernel", "start_logits/dense/kernel"),
        ("conditional_span_head/end_norm/gamma", "end_logits/LayerNorm/gamma"),
        ("conditional_span_head/null/kernel", "answer_class/dense_1/kernel"),
    ):
        assert_equal(task.weights_by_path[path], np.float32(head[name]))


def test_a_backbone_of_either(goldens, task):
    assert "span" not in " ".join(Backbone.from_preset(goldens("xlnet")).weights_by_path)
