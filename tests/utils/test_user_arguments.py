"""Arguments that are True or False take nothing else: strings would all count as True."""

import re

import keras
import numpy as np
import pytest
import tiny

import keras_lm
from keras_lm import data, evaluation, metrics, models, objectives, serving, tasks, training
from keras_lm.tokenizers import WordPieceTokenizer
from keras_lm.utils.user_arguments import check_batch_size, checks_flags

pytestmark = pytest.mark.eager

WRONG = ("False", "3", 2, 0.5, float("nan"), [True])
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "film"]


@pytest.fixture(scope="module")
def backbone():
    return models.BertBackbone(len(WORDS), 1, 2, 8, 16, max_sequence_length=16)


@pytest.fixture(scope="module")
def task(backbone):
    tokenizer = WordPieceTokenizer(WORDS, lowercase=True)
    return tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)


def refused(name, call, says=": pass True"):
    for value in WRONG:
        with pytest.raises(ValueError, match=rf"^{name}={re.escape(repr(value))}.*{says}"):
            call(**{name: value})


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("multi_label", tasks.TextClassifier),
        ("symmetric", tasks.TextRegressor),
        ("whole_texts", tasks.TokenClassifier),
        ("predicate", tasks.TokenClassifier),
        ("conditional_ends", tasks.QuestionAnswerer),
        ("normalize", tasks.FeatureExtractor),
        ("text_pair", tasks.TextClassifier),  # of the base class, and None is allowed
        ("text_pair", tasks.MultipleChoice),
    ],
)
def test_flags_of_tasks(backbone, name, cls):
    arguments, _ = tiny.TASKS[cls.__name__]
    refused(name, lambda **flag: cls(backbone, **({"num_classes": 2} if arguments else {}), **flag))


def test_flags_of_tokenizers_and_models():
    for name in ("lowercase", "keras_hub"):
        refused(name, lambda **flag: WordPieceTokenizer(WORDS, **{"lowercase": True, **flag}))
    with pytest.raises(ValueError, match="lowercase='no': pass True or False"):
        WordPieceTokenizer(WORDS, lowercase="no")
    for value in (True, 1, np.bool_(True)):
        assert WordPieceTokenizer(WORDS, lowercase=value).lowercase is True
    refused("use_pooler", lambda **flag: models.BertBackbone(9, 1, 2, 8, 16, **flag))


def test_flags_of_steps(task):
    x, y = ["a good film"] * 2, [0, 1]
    for name in ("shuffle", "group_by_length"):
        refused(name, lambda **flag: task.fit(x, y, **flag))
    refused("return_dict", lambda **flag: task.evaluate(x, y, **flag))
    for name in ("run_eagerly", "auto_scale_loss"):
        refused(name, lambda **flag: task.compile(**flag))
    task.compile()
    for value in ("loud", 3, -1, 0.5, None, [1]):
        for call in (task.fit, task.evaluate):
            with pytest.raises(ValueError, match=r"^verbose=.*: pass 0, 1, 2 or 'auto'"):
                call(x, y, verbose=value)
        for call in (task.predict, task.classify):
            with pytest.raises(ValueError, match=r"^verbose=.*: pass 0, 1, 2 or 'auto'"):
                call(x, verbose=value)


@pytest.mark.parametrize("of", ["task", "backbone"])
def test_flags_of_files(task, of, tmp_path):
    model, folder = task if of == "task" else task.backbone, tmp_path / "written"
    for name in ("overwrite", "allow_nan"):
        refused(name, lambda **flag: model.save_to_preset(folder, **flag))
    refused("allow_nan", lambda **flag: model.save_to_huggingface(folder, **flag))
    refused("allow_nan", lambda **flag: model.save(f"{folder}.keras", **flag))
    refused("load_weights", lambda **flag: type(model).from_preset(folder, **flag), "must be True")
    if of == "task":
        for name in ("freeze", "attention", "allow_nan"):
            refused(name, lambda **flag: task.export(folder, **flag))
    assert not list(tmp_path.iterdir())


def test_flags_of_others(tmp_path):
    refused("multi_label", lambda **flag: evaluation.ClassReport(["a"], ["a"], **flag))
    refused("strict", lambda **flag: metrics.EntityF1(["O", "B-X"], **flag))
    refused("bias_correction", lambda **flag: training.AdamW(1e-3, **flag))
    refused("cors", lambda **flag: serving.Server(tmp_path, **flag))
    refused("whole_words", lambda **flag: objectives.MaskedLanguageModel(**flag))
    refused("verify", lambda **flag: data.read_token_shards(tmp_path, **flag))
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(training.AdamW(1e-3, bias_correction=False))
    )
    assert again.bias_correction is False


def test_the_call_itself_names_what_is_missing_or_unknown():
    @checks_flags
    def run(text, loud=False, mode: bool | None = None, other: str | None = None):
        return text, loud, mode, other

    assert run("a", 1, None, "b") == ("a", 1, None, "b")
    with pytest.raises(ValueError, match="mode='x': pass True, False or None"):
        run("a", mode="x")
    assert checks_flags(lambda crf=False: crf)(True)
    with pytest.raises(ValueError, match="crf='bio': pass True or False"):
        checks_flags(lambda crf=False: crf)("bio")

    @checks_flags
    def tag(crf: bool | str = False):
        return crf

    assert tag("bio") == "bio"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'text'"):
        run()
    with pytest.raises(TypeError, match="unexpected keyword argument 'quiet'"):
        run("a", quiet=True)


# === Other arguments of constructors ===


@pytest.mark.parametrize(
    "value", ["x", "3", float("nan"), float("inf"), 1.5, -1, [], {}, [1], b"x"]
)
@pytest.mark.parametrize(
    ("cls", "names"),
    [
        ("TokenClassifier", ["sequence_length", "tokenizer"]),
        ("TextRegressor", ["sequence_length", "tokenizer", "lm_loss_weight"]),
        (
            "QuestionAnswerer",
            ["stride", "max_question_length", "max_answer_length", "num_answers", "num_starts"]
            + ["num_ends", "tokenizer"],
        ),
        ("Seq2SeqLM", ["target_length", "sequence_length", "tokenizer"]),
    ],
)
def test_wrong_values_are_named(cls, names, value):
    backbone = (
        tiny.ENCODER_DECODERS["T5Backbone"]()
        if cls == "Seq2SeqLM"
        else tiny.MODELS["BertBackbone"][1](50)
    )
    for name in names:
        if (name, value) == ("lm_loss_weight", 1.5):
            continue
        with pytest.raises(ValueError, match=name):
            getattr(tasks, cls)(backbone, **{"tokenizer": None, **tiny.TASKS[cls][0], name: value})


def test_prompts_thresholds_and_settings(backbone):
    for value in (1, 0.5, ["a"], b"a"):
        with pytest.raises(ValueError, match=r"prompt=.*: pass a str, or None"):
            tasks.TextRegressor(backbone, prompt=value)
    for value in ("x", float("nan"), float("inf"), [0.5], True):
        with pytest.raises(ValueError, match=r"null_threshold=.*: pass a finite number; None if"):
            tasks.QuestionAnswerer(backbone, null_threshold=value)
    assert tasks.QuestionAnswerer(backbone, null_threshold=-1).null_threshold == -1
    network = tiny.ENCODER_DECODERS["T5Backbone"]()
    for value in ("x", 1.5, [1], True):
        with pytest.raises(ValueError, match=r"generation=.*: pass a dict of settings"):
            keras_lm.tasks.Seq2SeqLM(network, generation=value)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "2"])
def test_numbers_of_rows(size):
    with pytest.raises(ValueError, match=f"batch_size={size!r}: pass an int, 1 or more"):
        check_batch_size(size)
    assert check_batch_size(np.int64(2)) == 2
