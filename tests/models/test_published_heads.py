"""Heads of published folders: read, or refused by their tensors if the folder names the task."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from keras_lm import tasks
from keras_lm.converters import CheckpointError
from keras_lm.models import Backbone, T5Backbone, T5EncoderBackbone

pytestmark = pytest.mark.eager

# A golden → the task that its folder names, the tensors of its head, and its class.
HEADS = {
    "bert-seqcls": (tasks.TextClassifier, "classifier.", None),
    "bert-seqcls-regression": (tasks.TextRegressor, "classifier.", None),
    "bert-tokencls": (tasks.TokenClassifier, "classifier.", None),
    "bert-qa": (tasks.QuestionAnswerer, "qa_outputs.", None),
    "bert-multiple-choice": (tasks.MultipleChoice, "classifier.", None),
    "roberta-seqcls": (tasks.TextClassifier, "classifier.out_proj.", None),
    "modernbert-seqcls": (tasks.TextClassifier, "classifier.", None),
    "eurobert-seqcls": (tasks.TextClassifier, "classifier.", None),
    "xlnet-choice": (tasks.MultipleChoice, "logits_proj.", None),
    "distilbert": (tasks.MaskedLM, "vocab_transform.", "DistilBertForMaskedLM"),
    "electra-generator": (tasks.MaskedLM, "generator_predictions.", "ElectraForMaskedLM"),
}


@pytest.fixture
def changed(goldens, tmp_path):
    """`changed("t5", rename, more, **config)` copies a golden with other tensors and entries."""

    def changed(name, rename=lambda name: name, more=None, drop=(), **config):
        folder = tmp_path / name
        shutil.copytree(goldens(name), folder)
        path = folder / "model.safetensors"
        tensors = safetensors.numpy.load_file(path)
        assert {*drop} <= tensors.keys()
        tensors = {key: value for key, value in tensors.items() if key not in drop}
        tensors = {rename(key): value for key, value in tensors.items()} | (more or {})
        safetensors.numpy.save_file(tensors, path)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return folder

    return changed


@pytest.mark.parametrize("name", HEADS)
def test_a_named_head_under_other_names_is_refused(name, changed):
    cls, head, stated = HEADS[name]
    config = {} if stated is None else {"architectures": [stated]}
    folder = changed(name, lambda key: key.replace(head, "other_head."), **config)
    arguments = {"num_classes": 3} if cls in (tasks.TextClassifier, tasks.TokenClassifier) else {}
    with pytest.raises(CheckpointError, match=rf"is a \w+.* {cls.__name__} .*other_head\."):
        cls.from_preset(folder, tokenizer=None, **arguments)
    # The network is there all the same, and a new head is made where it is asked for.
    with pytest.warns(UserWarning, match=r"left over.*other_head\."):
        backbone = Backbone.from_preset(folder)
    cls(backbone, **arguments)


# A golden → a tensor of its head, and what our head calls it.
PARTS = {
    "bert-seqcls": ("classifier.bias", "classifier/logits/bias"),
    "bert-tokencls": ("classifier.bias", "classifier/logits/bias"),
    "bert-multiple-choice": ("classifier.bias", "classifier/logits/bias"),
    "bert-qa": ("qa_outputs.bias", "span_head/logits/bias"),
    "roberta-seqcls": ("classifier.dense.weight", "classifier/pooler/kernel"),
    "mpnet-seqcls": ("classifier.dense.bias", "classifier/pooler/bias"),
    "xlnet-choice": ("sequence_summary.summary.bias", "classifier/pooler/bias"),
    "eurobert-seqcls": ("dense.bias", "classifier/dense/bias"),
    "modernbert-seqcls": ("head.norm.weight", "classifier/transformation/norm/gamma"),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_head_in_part_is_refused(name, changed):
    tensor, path = PARTS[name]
    cls = HEADS[name][0] if name in HEADS else tasks.TextClassifier
    folder = changed(name, drop=[tensor])
    with pytest.raises(CheckpointError, match=rf"is a \w+.*missing are [^;]*{path}.*copy or down"):
        cls.from_preset(folder, tokenizer=None)


def test_a_named_head_that_is_not_there(changed):
    folder = changed("bert-qa", drop=["qa_outputs.weight", "qa_outputs.bias"])
    said = "is a BertForQuestionAnswering, and QuestionAnswerer .*missing are its weights"
    with pytest.raises(CheckpointError, match=said):
        tasks.QuestionAnswerer.from_preset(folder, tokenizer=None)
    with pytest.warns(UserWarning, match="new and random are classifier"):
        tasks.TextClassifier.from_preset(folder, tokenizer=None, num_classes=2)
    tasks.QuestionAnswerer(Backbone.from_preset(folder))
    head = ["classifier.weight", "classifier.bias"]
    folder = changed("bert-seqcls", drop=head)
    with pytest.raises(CheckpointError, match=r"is a BertForSequenceClassification.*missing are"):
        tasks.TextRegressor.from_preset(folder, tokenizer=None)
    with pytest.warns(UserWarning, match="new and random are classifier"):
        tasks.TextClassifier.from_preset(folder, tokenizer=None, class_names=["a", "b"])


@pytest.mark.parametrize("architectures", [None, ["SomeModel"]])
@pytest.mark.parametrize("name", ["bert-multiple-choice", "mpnet-multiple-choice", "xlnet-choice"])
def test_choices_of_a_folder_that_names_no_head(name, architectures, changed, goldens):
    """Their head has the tensors of a regressor's in most families: the user's task decides."""
    folder = changed(name, architectures=architectures)
    task = tasks.MultipleChoice.from_preset(folder, tokenizer=None)  # without a warning
    stated = tasks.MultipleChoice.from_preset(goldens(name), tokenizer=None)
    for variable, other in zip(task.weights, stated.weights, strict=True):
        np.testing.assert_array_equal(variable, other)
    # What the folder is by itself stays: one output is a regressor's.
    assert type(tasks.Task.from_preset(folder, tokenizer=None)) is tasks.TextRegressor


def test_an_unknown_problem_type_is_refused(changed):
    folder = changed("bert-seqcls", problem_type="ranking")
    with pytest.raises(CheckpointError, match="problem_type='ranking'; supported: 'single_"):
        tasks.TextClassifier.from_preset(folder, tokenizer=None)


def test_regression_with_several_outputs_is_refused(changed):
    folder = changed("bert-seqcls", problem_type="regression")
    for cls, arguments in ((tasks.TextRegressor, {}), (tasks.TextClassifier, {"num_classes": 3})):
        with pytest.raises(CheckpointError, match=r"for regression, .* classifier\.bias"):
            cls.from_preset(folder, tokenizer=None, **arguments)
    with pytest.warns(UserWarning, match=r"left over.*classifier\.bias"):
        tasks.FeatureExtractor.from_preset(folder, tokenizer=None)


def test_a_head_of_another_task_is_left_with_a_warning(goldens):
    with pytest.warns(UserWarning, match="new and random are classifier/logits"):
        tasks.TextRegressor.from_preset(goldens("bert-seqcls"), tokenizer=None)


@pytest.mark.parametrize("named", ["T5ForSequenceClassification", "MT5ForSequenceClassification"])
def test_t5s_classifier_of_texts_is_refused(named, changed):
    width = 48
    more = {
        "classification_head.dense.weight": np.ones((width, width), "float32"),
        "classification_head.dense.bias": np.ones(width, "float32"),
        "classification_head.out_proj.weight": np.ones((3, width), "float32"),
        "classification_head.out_proj.bias": np.ones(3, "float32"),
    }
    folder = changed("t5", "transformer.{}".format, more, architectures=[named])
    for arguments in ({}, {"num_classes": 3}):
        with pytest.raises(CheckpointError, match=rf"is a {named}.*classification_head\.dense"):
            tasks.TextClassifier.from_preset(folder, tokenizer=None, **arguments)
    with pytest.warns(UserWarning, match="left over .*classification_head"):
        assert type(Backbone.from_preset(folder)) is T5Backbone
    with pytest.warns(UserWarning, match="left over .*classification_head"):
        assert type(T5EncoderBackbone.from_preset(folder)) is T5EncoderBackbone


def test_t5s_head_of_questions_is_refused(changed):
    more = {"qa_outputs.weight": np.ones((2, 48), "float32"), "qa_outputs.bias": np.ones(2, "f")}
    folder = changed("t5", more=more, architectures=["T5ForQuestionAnswering"])
    with pytest.raises(CheckpointError, match=r"is a T5ForQuestionAnswering.*qa_outputs\.bias"):
        tasks.QuestionAnswerer.from_preset(folder, tokenizer=None)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_umt5_is_refused_by_its_tensors(stack, changed):
    table = f"{stack}.block.1.layer.0.SelfAttention.relative_attention_bias.weight"
    folder = changed("t5", more={table: np.ones((32, 4), "float32")}, model_type=None)
    for cls in (T5Backbone, T5EncoderBackbone):
        with pytest.raises(CheckpointError, match="is umT5, with a table of relative positions"):
            cls.from_preset(folder)


def test_t5s_head_of_tokens_is_read(goldens):
    folder = goldens("t5-tokencls")
    expected = np.load(folder / "expected.npz")
    task = tasks.TokenClassifier.from_preset(folder, tokenizer=None)
    assert task.class_names == ["O", "B-PER", "I-PER"]
    mask = expected["in.attention_mask"]
    actual = task({"token_ids": expected["in.input_ids"], "padding_mask": mask})
    is_real = mask[..., None] > 0
    np.testing.assert_allclose(
        np.where(is_real, actual, 0), np.where(is_real, expected["out.logits"], 0), atol=5e-5
    )


def test_class_names_in_another_order_and_case(changed):
    stated = {"0": "CONTRADICTION", "1": "not_entailment", "2": "ENTAILMENT"}
    folder = changed("bert-seqcls", id2label=stated)
    for given in (
        ["entailment", "not_entailment", "contradiction"],
        ["Entailment", "not entailment", "Contradiction"],
    ):
        with pytest.raises(ValueError, match=r"class_names=.* have the order \['CONTRADICTION'"):
            tasks.TextClassifier.from_preset(folder, tokenizer=None, class_names=given)
    given = ["contradiction", "Not-Entailment", "entailment"]
    task = tasks.TextClassifier.from_preset(folder, tokenizer=None, class_names=given)
    assert task.class_names == given


def test_class_names_of_a_tagger_in_another_order_and_case(changed):
    stated = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
    folder = changed("bert-tokencls", id2label=stated)
    given = ["o", "b-loc", "i-loc", "b-per", "i-per"]
    with pytest.raises(ValueError, match="have the order"):
        tasks.TokenClassifier.from_preset(folder, tokenizer=None, class_names=given)
    for names in (["-", "+", "x"], ["x", "-", "+"]):  # marks are names, too
        folder = changed("bert-seqcls", id2label=dict(enumerate(names)))
        if names[0] == "-":
            tasks.TextClassifier.from_preset(folder, tokenizer=None, class_names=["-", "+", "x"])
            shutil.rmtree(folder)
        else:
            with pytest.raises(ValueError, match="have the order"):
                tasks.TextClassifier.from_preset(
                    folder, tokenizer=None, class_names=["-", "+", "x"]
                )


@pytest.mark.parametrize("numbers", [(0, 1), (0, 1, 2, 3), (0, 2, 5)])
def test_names_of_other_classes_than_there_are(numbers, changed):
    folder = changed("bert-seqcls", id2label={str(n): f"class {n}" for n in numbers})
    with pytest.raises(CheckpointError, match="in id2label, and its head has 3 outputs"):
        tasks.TextClassifier.from_preset(folder)


def test_names_by_number_and_numbers_by_name(changed):
    numbers = {"c": 0, "b": 1, "a": 2}
    folder = changed("bert-seqcls", id2label=None, label2id=numbers)
    assert tasks.TextClassifier.from_preset(folder).class_names == ["c", "b", "a"]
    shutil.rmtree(folder)
    names = {"0": "a", "1": "b", "2": "c"}
    folder = changed("bert-seqcls", id2label=names, label2id=numbers)
    with pytest.warns(UserWarning, match="label2id numbers the classes otherwise than id2label"):
        assert tasks.TextClassifier.from_preset(folder).class_names == ["a", "b", "c"]
