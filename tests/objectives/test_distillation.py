"""Distillation in pretraining: the losses of the authors' code, layer maps, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors import safe_open

from keras_lm.models import (
    AlbertBackbone,
    BertBackbone,
    DistilBertBackbone,
    LSTMBackbone,
    RobertaBackbone,
)
from keras_lm.models.students import spread_layers
from keras_lm.objectives import (
    LayerDistillation,
    MaskedLanguageModel,
    MaskedLMDistillation,
    NextSentence,
    SoftCrossentropy,
    TeacherMeanSquares,
)
from keras_lm.objectives.distillation import layer_map
from keras_lm.tasks import MaskedLM, Pretrainer, TextClassifier
from keras_lm.tokenizers import WordPieceTokenizer
from keras_lm.training import TrainingCheckpoint

SIZES = {"vocabulary_size": 12, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 12}
WORDS = ["a", "good", "film", "bad", "song", "was", "loud"]
TEXTS = ["a good film", "a bad song was loud", "loud film", "a song was good"]


def reference(folder):
    arrays = np.load(folder / "expected.npz")
    names = {
        "input_ids": "token_ids",
        "attention_mask": "padding_mask",
        "token_type_ids": "segment_ids",
    }
    inputs = {
        ours: arrays[f"in.{theirs}"].astype("int32")
        for theirs, ours in names.items()
        if f"in.{theirs}" in arrays
    }
    return {name: arrays[name] for name in arrays}, inputs


def losses(objective, task, inputs, labels):
    """Each loss of an objective, as a step divides it, and as `"sum"` that of the task."""
    labels, outputs = objective.forward(task, inputs, labels, False)
    each = {
        name: float(loss(labels[name], outputs[name])) for name, loss in objective.loss().items()
    }
    return each | {"sum": float(task.compute_loss(inputs, labels, outputs))}


def values(model):
    return [weight.numpy() for weight in model.weights]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True
    )


@pytest.fixture
def make_bert():
    def make(num_layers=2, cls=BertBackbone, **options):
        return cls(**SIZES | {"num_layers": num_layers, "max_sequence_length": 16} | options)

    return make


# === Equal to the references ===


@pytest.mark.eager
@pytest.mark.parametrize("restrict_to_mask, squares_weight", [(False, 0.0), (True, 0.5)])
def test_losses_of_distilbert(goldens, restrict_to_mask, squares_weight):
    folder = goldens("distilbert-loss")
    arrays, inputs = reference(folder)
    labels = arrays["in.labels"].astype("int32")
    teacher = MaskedLM.from_preset(folder / "teacher", tokenizer=None)
    objective = MaskedLMDistillation(
        teacher, squares_weight=squares_weight, restrict_to_mask=restrict_to_mask
    )
    student = Pretrainer.from_preset(folder / "student", tokenizer=None, objectives=[objective])
    actual = losses(objective, student, inputs, labels)
    prefix = "out.restrict_ce_to_mask." * restrict_to_mask or "out."
    theirs = {
        "teacher_losses": "ce",
        "token_logits": "mlm",
        "cosine_losses": "cos",
        "sum": "triple",
    }
    if squares_weight:
        theirs |= {"square_losses": "mse", "sum": "all_four"}
    expected = {name: float(arrays[prefix + theirs]) for name, theirs in theirs.items()}
    assert actual == pytest.approx(expected, rel=1e-5)

    # The same where only some positions are projected onto the vocabulary.
    positions = np.tile(np.arange(11, dtype="int32"), (3, 1))
    again = losses(objective, student, inputs | {"mask_positions": positions}, labels)
    assert again == pytest.approx(actual, rel=1e-5)


@pytest.mark.eager
@pytest.mark.filterwarnings("ignore:.*new and random are next_sentence_head")
@pytest.mark.parametrize("stage, cls", [("general", Pretrainer), ("task", TextClassifier)])
def test_losses_of_tinybert(goldens, stage, cls):
    folder = goldens("tinybert-loss")
    arrays, inputs = reference(folder)
    student = cls.from_preset(folder / f"{stage}_student", tokenizer=None)
    teacher = cls.from_preset(folder / f"{stage}_teacher", tokenizer=None)
    objective = LayerDistillation(student.backbone, teacher.backbone)
    assert objective.layers == [1, 3]
    with safe_open(folder / f"{stage}_student" / "model.safetensors", "numpy") as file:
        fit = {leaf: file.get_tensor(f"fit_dense.{leaf}") for leaf in ("weight", "bias")}
    objective.projection.set_weights([fit["weight"].T, fit["bias"]])
    task = Pretrainer(student.backbone, objectives=[objective])
    actual = losses(objective, task, inputs, None)
    assert actual["attention_losses"] == pytest.approx(arrays[f"out.{stage}.att_loss"], rel=1e-5)
    assert actual["state_losses"] == pytest.approx(arrays[f"out.{stage}.rep_loss"], rel=1e-5)
    assert actual["sum"] == pytest.approx(arrays[f"out.{stage}.loss"], rel=1e-5)
    if cls is TextClassifier:  # the second half of the second stage
        loss = SoftCrossentropy()(teacher(inputs), student(inputs))
        assert float(loss) == pytest.approx(arrays["out.task.cls_loss"], rel=1e-5)


def test_losses_of_predictions():
    wanted, actual = np.array([[2.0, -1.0], [0.5, 0.0]]), np.array([[1.0, 0.0], [0.0, 3.0]])

    def cross_entropy(p, q):
        return -(p * np.log(q)).mean()

    def softmax(x):
        return np.exp(x) / np.exp(x).sum(-1, keepdims=True)

    expected = 9 * cross_entropy(softmax(wanted / 3), softmax(actual / 3))
    assert float(SoftCrossentropy(3.0)(wanted, actual)) == pytest.approx(expected, rel=1e-5)
    p, q = 1 / (1 + np.exp(-wanted)), 1 / (1 + np.exp(-actual))
    expected = cross_entropy(p, q) + cross_entropy(1 - p, 1 - q)
    loss = SoftCrossentropy(multi_label=True)
    assert float(loss(wanted, actual)) == pytest.approx(expected, rel=1e-5)
    first = float(loss(wanted, actual, sample_weight=[1.0, 0.0]))
    assert first == pytest.approx(float(loss(wanted[:1], actual[:1])), rel=1e-5)
    assert float(TeacherMeanSquares()([[1.0], [2.0]], [[3.0], [2.0]])) == pytest.approx(2.0)


# === Which layers ===


@pytest.mark.slow
def test_a_student_starts_from_layers_of_its_teacher(make_bert):
    teacher = make_bert(6)
    inputs = {"token_ids": [[2, 7, 8, 3], [2, 9, 3, 0]], "padding_mask": [[1] * 4, [1] * 3 + [0]]}
    same = DistilBertBackbone.from_teacher(teacher, layers=6)
    expected = teacher(inputs)["sequence_output"]
    np.testing.assert_allclose(same(inputs)["sequence_output"], expected, rtol=1e-5, atol=1e-5)
    for student in (teacher.with_layers(3), DistilBertBackbone.from_teacher(teacher)):
        assert student.config["num_layers"] == 3
        assert type(student).from_config(student.get_config()).config == student.config
        for block, number in zip(student.blocks, [0, 2, 5]):
            np.testing.assert_array_equal(
                block.feedforward.intermediate.kernel,
                teacher.blocks[number].feedforward.intermediate.kernel,
            )
    last = make_bert(2, RobertaBackbone).with_layers([1, 1])
    np.testing.assert_array_equal(*(b.attention_norm.gamma for b in last.blocks))


def test_layers_of_twelve():
    assert spread_layers(6, 12) == [0, 2, 4, 7, 9, 11]  # as huggingface/transformers took them
    assert spread_layers(1, 12) == [0]
    assert layer_map(4, 12) == [2, 5, 8, 11]
    assert layer_map(6, 12) == [1, 3, 5, 7, 9, 11]
    assert layer_map(2, 3, [0, 2]) == [0, 2]


# === A run ===


@pytest.fixture
def make_run(make_bert, tokenizer):
    """Return (task, teacher) with both objectives of distillation, from the same start each."""

    def make():
        keras.utils.set_random_seed(3)
        teacher = MaskedLM(make_bert(2), tokenizer=tokenizer)
        student = DistilBertBackbone.from_teacher(teacher.backbone)
        objectives = [
            MaskedLMDistillation(teacher, masking=MaskedLanguageModel(rate=0.5)),
            LayerDistillation(student, teacher.backbone),
        ]
        task = Pretrainer(student, objectives=objectives, tokenizer=tokenizer)
        task.heads["token"].set_weights(teacher.head.get_weights())
        task.compile(optimizer=keras.optimizers.Adam(0.01), run_eagerly=True)
        return task, teacher

    return make


def state(task):
    more = [v for objective in task.objectives for v in objective.variables]
    return [v.numpy() for v in [*task.variables, *task.optimizer.variables, *more]]


@pytest.mark.thorough
@pytest.mark.eager
def test_a_run_goes_on_and_leaves_the_teacher_as_it_is(make_run, tmp_path):
    file = tmp_path / "run.safetensors"

    def train(task, epochs, **options):
        options |= {"batch_size": 2, "shuffle": False, "verbose": 0}
        return task.fit(TEXTS, epochs=epochs, **options).history

    task, teacher = make_run()
    before, projection = values(teacher), values(task.objectives[1].projection)
    history = train(task, 2)
    assert {"teacher_losses_loss", "attention_losses_loss"} <= set(history)
    for old, new in zip(before, values(teacher), strict=True):
        np.testing.assert_array_equal(old, new)
    assert (projection[0] != task.objectives[1].projection.kernel.numpy()).any()

    first, _ = make_run()
    train(first, 1, callbacks=[TrainingCheckpoint(file)])
    with safe_open(file, "numpy") as stored:  # two losses more, and no teacher
        assert len(stored.keys()) == len(state(first))
    second, _ = make_run()
    train(second, 1)  # another state than that of the run
    assert TrainingCheckpoint(file).restore(second) == 2
    train(second, 1)
    for one, other in zip(state(task), state(second), strict=True):
        np.testing.assert_array_equal(one, other)

    second.objectives[0].teacher.head.bias.assign_add([0.1] * 12)
    with pytest.raises(ValueError, match="of a run with another teacher"):
        TrainingCheckpoint(file).restore(second)


@pytest.mark.eager
def test_the_preset_of_a_student_has_no_teacher(make_run, tmp_path):
    task, _ = make_run()
    task.save_to_preset(tmp_path / "preset")
    with safe_open(tmp_path / "preset" / "model.safetensors", "numpy") as file:
        assert set(file.keys()) == {weight.path for weight in task.weights}
    again = MaskedLM.from_preset(tmp_path / "preset")
    packed = again.preprocess({"text": tf.constant(TEXTS)})
    np.testing.assert_allclose(again(packed), task(packed)["token_logits"], atol=1e-6)


@pytest.mark.thorough  # as docs/combine.md does
def test_distillation_in_the_graph(make_run):
    task, _ = make_run()
    task.compile(optimizer=keras.optimizers.Adam(0.01))
    losses = task.fit(TEXTS, batch_size=2, epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


# === What cannot be ===


@pytest.mark.eager
def test_wrong_pairs_are_refused(make_bert, tokenizer):
    with pytest.raises(ValueError, match=r"teacher has 3 layers, .* of the student's 2"):
        LayerDistillation(make_bert(2), make_bert(3))
    with pytest.raises(ValueError, match=r"layers=\[0, 3\]: pass 2 numbers from 0 to 2"):
        LayerDistillation(make_bert(2), make_bert(3), layers=[0, 3])
    with pytest.raises(ValueError, match="student has num_heads=1, but the teacher 2"):
        LayerDistillation(make_bert(num_heads=1), make_bert())
    with pytest.raises(ValueError, match="student has vocabulary_size=13, but the teacher 12"):
        LayerDistillation(make_bert(vocabulary_size=13), make_bert())
    with pytest.raises(ValueError, match="student is a LSTMBackbone, which has no attention"):
        LayerDistillation(LSTMBackbone(12, hidden_dim=8), make_bert())
    wider = MaskedLM(make_bert(hidden_dim=10), tokenizer=tokenizer)
    for options, expected in [
        ({}, "hidden_dim=10, but the student 8"),
        ({"cosine_weight": 0}, None),
    ]:
        objectives = [MaskedLMDistillation(wider, **options)]
        task = Pretrainer(make_bert(), objectives=objectives, tokenizer=tokenizer)
        task.compile(run_eagerly=True)
        if expected:
            with pytest.raises(ValueError, match=expected):
                task.train_on_batch(TEXTS)
        else:
            assert "cosine_losses_loss" not in task.train_on_batch(TEXTS, return_dict=True)
    with pytest.raises(ValueError, match="teacher is a Pretrainer: pass a MaskedLM"):
        MaskedLMDistillation(Pretrainer(make_bert(), objectives=[NextSentence()]))
    with pytest.raises(ValueError, match="temperature=0: pass"):
        MaskedLMDistillation(wider, temperature=0)


def test_layers_that_cannot_be_taken(make_bert):
    with pytest.raises(ValueError, match="layers=3: the teacher has 2"):
        make_bert(2).with_layers(3)
    with pytest.raises(ValueError, match=r"layers=\[2\]: pass numbers from 0 to 1"):
        make_bert(2).with_layers([2])
    for other in (make_bert(2, AlbertBackbone, embedding_dim=4), LSTMBackbone(12, hidden_dim=8)):
        with pytest.raises(ValueError, match="has no blocks with weights of their own"):
            other.with_layers([1])
    with pytest.raises(ValueError, match=r"teacher is a RobertaBackbone.*with_layers"):
        DistilBertBackbone.from_teacher(make_bert(2, RobertaBackbone))
    with pytest.raises(ValueError, match="layer_norm_epsilon=1e-05"):
        DistilBertBackbone.from_teacher(make_bert(2, layer_norm_epsilon=1e-5))
