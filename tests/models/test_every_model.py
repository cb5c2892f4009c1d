"""What holds for every model, whatever its weights. A new model joins by a line in `MODELS`."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import models, tasks
from keras_lm.export import tflite
from keras_lm.export.fresh_process import load_tflite
from keras_lm.models import Backbone
from keras_lm.models.sizes import estimate
from keras_lm.registry import BACKBONES
from keras_lm.tokenizers import (
    BytePairTokenizer,
    CharacterTokenizer,
    GPTTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    WordTokenizer,
)

TRANSFORMER = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "max_sequence_length": 32,
    "dropout": 0.0,
}
CHARACTERS = 6
SPECIAL = ["<unk>", "<pad>", "xxbos", "xxfld"]
WORDS = ["the", "film", "was", "good", "great", "story", "loved", "it", "very", "bad", "dull"]
GOOD = ["the film was good", "great story", "i loved it", "a very nice cast"]
BAD = ["the film was bad", "awful story", "i hated it", "a very dull cast"]
TEXTS = [*GOOD, "", "\U0001f600 " * 20]


def elmo():
    return models.ElmoBackbone(
        num_layers=1, hidden_dim=8, cell_dim=8, filters=[(1, 4), (2, 4)], characters_per_word=6
    )


def cove(vocabulary_size):
    return models.CoveBackbone(1, embedding_dim=6, hidden_dim=8, vocabulary_size=vocabulary_size)


# A model → its tokenizer, and how it is made for a vocabulary of some size.
MODELS = {
    "BertBackbone": ("wordpiece", lambda n: models.BertBackbone(n, **TRANSFORMER)),
    "RobertaBackbone": ("bytebpe-roberta", lambda n: models.RobertaBackbone(n, **TRANSFORMER)),
    "DistilBertBackbone": ("wordpiece", lambda n: models.DistilBertBackbone(n, **TRANSFORMER)),
    "AlbertBackbone": (
        "sentencepiece-albert",
        lambda n: models.AlbertBackbone(n, embedding_dim=8, **TRANSFORMER),
    ),
    "ElectraBackbone": (
        "wordpiece",
        lambda n: models.ElectraBackbone(n, embedding_dim=12, **TRANSFORMER),
    ),
    "ElectraGeneratorBackbone": None,  # an `ElectraBackbone` of another size
    "SpanBertBackbone": ("wordpiece", lambda n: models.SpanBertBackbone(n, **TRANSFORMER)),
    "TinyBertBackbone": ("wordpiece", lambda n: models.TinyBertBackbone(n, **TRANSFORMER)),
    "GPTBackbone": ("bpe-gpt1", lambda n: models.GPTBackbone(n, **TRANSFORMER)),
    "GPT2Backbone": ("bytebpe-gpt2", lambda n: models.GPT2Backbone(n, **TRANSFORMER)),
    "GPT3Backbone": ("bytebpe-gpt2", lambda n: models.GPT3Backbone(n, **TRANSFORMER)),
    "GPTNeoBackbone": ("bytebpe-gpt2", lambda n: models.GPTNeoBackbone(n, **TRANSFORMER)),
    "LSTMBackbone": ("words", lambda n: models.LSTMBackbone(n, 1, hidden_dim=12, dropout=0.0)),
    "AWDLSTMBackbone": (
        "words",
        lambda n: models.AWDLSTMBackbone(n, num_layers=2, hidden_dim=12, embedding_dim=8),
    ),
    "ElmoBackbone": ("characters", lambda n: elmo()),
    "ElmoForwardBackbone": None,  # half an `ElmoBackbone`: tests/export/test_recurrent_generation
    "CoveBackbone": ("words", cove),
    "PairLSTMBackbone": (
        "words",
        lambda n: models.PairLSTMBackbone(n, 6, hidden_dim=8, num_layers=1, pooled_dim=8),
    ),
    "PairCBOWBackbone": ("words", lambda n: models.PairCBOWBackbone(n, 6, pooled_dim=8)),
    "EsimBackbone": ("words", lambda n: models.EsimBackbone(n, 6, hidden_dim=8)),
    "TagLMBackbone": (
        "words",
        lambda n: models.TagLMBackbone(cove(n), embedding_dim=6, hidden_dim=8, dropout=0.0),
    ),
    "WordVectorBackbone": ("words", lambda n: models.WordVectorBackbone(n, 8)),
    "TransformerBackbone": None,  # with other inputs: test_encoder_decoders.py
    "MarianBackbone": None,
    "T5Backbone": None,
    "Tensor2TensorBackbone": None,
    "RNNEncoderDecoderBackbone": None,
    "T5EncoderBackbone": (
        "sentencepiece-t5",
        lambda n: models.T5EncoderBackbone(n, 1, 2, 16, 24, num_buckets=8, dropout=0.0),
    ),
    "RNNEncoderBackbone": None,  # as T5's: test_encoder_decoders.py
    "TransformerEncoderBackbone": None,
    "MarianEncoderBackbone": None,
    "Tensor2TensorEncoderBackbone": None,
}
ENCODER_DECODERS = {
    "TransformerBackbone",
    "MarianBackbone",
    "T5Backbone",
    "Tensor2TensorBackbone",
    "RNNEncoderDecoderBackbone",
}
ENCODERS = {
    "BertBackbone",
    "RobertaBackbone",
    "DistilBertBackbone",
    "AlbertBackbone",
    "ElectraBackbone",
    "ElectraGeneratorBackbone",
    "SpanBertBackbone",
    "TinyBertBackbone",
}
GPTS = {"GPTBackbone", "GPT2Backbone", "GPT3Backbone", "GPTNeoBackbone"}
# The tasks for which only some models have a head.
READERS = {*MODELS} - ENCODER_DECODERS
# Have no head for each word.
POOLED = {"AWDLSTMBackbone", "EsimBackbone", "PairCBOWBackbone", "PairLSTMBackbone"}
ONLY = {
    **dict.fromkeys(("TextClassifier", "TextRegressor", "FeatureExtractor"), READERS),
    "MultipleChoice": ENCODERS | GPTS,
    "TokenClassifier": READERS - GPTS - POOLED,
    "ConstituencyParser": READERS - GPTS - POOLED,
    "CoreferenceResolver": READERS - GPTS - POOLED,
    "QuestionAnswerer": READERS - GPTS - POOLED,
    "MaskedLM": ENCODERS,
    "CausalLM": GPTS | {"LSTMBackbone", "AWDLSTMBackbone"},
    "Seq2SeqLM": ENCODER_DECODERS,
}
ALL_TASKS = {
    "TextClassifier": {"num_classes": 3},
    "TextRegressor": {},
    "TokenClassifier": {"class_names": ["O", "X"]},
    "ConstituencyParser": {"class_names": ["NP", "S"], "hidden_dim": 8},
    "CoreferenceResolver": {"max_span_width": 2, "hidden_dim": 4},
    "MultipleChoice": {},
    "QuestionAnswerer": {},
    "MaskedLM": {},
    "CausalLM": {},
    "Seq2SeqLM": {},
    "FeatureExtractor": {},
}


@pytest.fixture(scope="module")
def tokenizers(goldens):
    folder = goldens("tokenizers")
    return {
        "wordpiece": WordPieceTokenizer.from_files(folder / "wordpiece-uncased"),
        "sentencepiece-albert": SentencePieceTokenizer.from_files(folder / "sentencepiece-albert"),
        "bytebpe-roberta": BytePairTokenizer.from_files(folder / "bytebpe-roberta"),
        "sentencepiece-t5": SentencePieceTokenizer.from_files(folder / "sentencepiece-t5"),
        "bytebpe-gpt2": BytePairTokenizer.from_files(folder / "bytebpe-gpt2"),
        "bpe-gpt1": GPTTokenizer.from_files(folder / "bpe-gpt1"),
        "words": WordTokenizer(
            SPECIAL + WORDS, "<unk>", "<pad>", additional_special_tokens=SPECIAL[2:]
        ),
        "characters": CharacterTokenizer(CHARACTERS),
    }


@pytest.fixture(scope="module", params=[name for name in MODELS if MODELS[name]])
def name(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(name, tokenizers):
    return tokenizers[MODELS[name][0]]


@pytest.fixture
def make(name, tokenizer):
    """`make()` returns a new backbone; with `spread`, as different from others as a trained one."""

    def make(spread=True):
        backbone = MODELS[name][1](tokenizer.vocabulary_size)
        for weight in backbone.trainable_weights if spread else ():
            weight.assign_add(keras.random.normal(weight.shape, stddev=0.2))
        return backbone

    return make


WRONG = {
    "vocabulary_size": [-1, 1.5, "9", True],
    "num_layers": [-1, 0, None, float("inf")],
    "num_heads": [0],
    "hidden_dim": [0, 2.0],
    "intermediate_dim": [[24]],
    "embedding_dim": [0],
    "num_highways": [-1],
    "filters": [[[1, 0]], [[1]], "ab", None],
    "characters_per_word": [10**7],
    "dropout": [-0.1, 2, float("nan"), "0.1"],
    "activation": [{"class_name": "Dense", "config": {}}, "no_such", ["gelu"], None],
    "max_sequence_length": [0],
    "layer_norm_epsilon": [float("nan"), 0.0, -1e-5, "1e-5", None],
    "cell_clip": [float("nan"), -1],
    "activation_penalty": [float("inf")],
}


def test_wrong_arguments_are_named_before_anything_is_built(make):
    backbone = make(spread=False)
    config = backbone.get_config()
    tried = [(name, value) for name in WRONG if name in config for value in WRONG[name]]
    assert tried
    for name, value in tried:
        with pytest.raises(ValueError, match=rf"^{name}=.*: pass "):
            type(backbone).from_config(config | {name: value})


def pack(backbone, tokenizer, texts, side="right"):
    template = dataclasses.replace(backbone.TEMPLATE, padding_side=side)
    packer = backbone.packer_class(template, tokenizer, sequence_length=16)
    packed = packer({"text": tf.constant(texts)})
    return {key: packed[key].numpy() for key in backbone.input_names if key in packed}


def test_every_model_is_listed():
    ours = {name for name, cls in BACKBONES.items() if cls.__module__.startswith("keras_lm.models")}
    parts = {"Backbone", "CachedBackbone", "CausalBackbone", "EncoderDecoderBackbone"}
    parts |= {"CachedEncoderDecoderBackbone", "EncoderHalf", "WordBackbone", "FeatureBackbone"}
    parts |= {"PairBackbone"}
    assert ours - parts == set(MODELS)


def test_padding_changes_nothing_on_either_side(make, tokenizer):
    backbone = make()
    alone = backbone(pack(backbone, tokenizer, GOOD[1:2]))["sequence_output"]
    for side, columns in (
        ("right", slice(None, alone.shape[1])),
        ("left", slice(-alone.shape[1], None)),
    ):
        inputs = pack(backbone, tokenizer, GOOD, side)
        outputs = backbone(inputs)["sequence_output"]
        assert outputs.shape[1] > alone.shape[1]
        np.testing.assert_allclose(outputs[1:2, columns], alone, atol=2e-5)


def test_a_row_of_padding_gives_finite_numbers(make, tokenizer):
    backbone = make()
    inputs = pack(backbone, tokenizer, GOOD)
    inputs["padding_mask"][1:] = 0
    for outputs in (backbone(inputs), backbone(inputs, training=True)):
        assert all(np.isfinite(x).all() for x in keras.tree.flatten(outputs))


def test_files(make, tokenizer, tmp_path):
    backbone = make()
    inputs = pack(backbone, tokenizer, GOOD)
    backbone.save(tmp_path / "backbone.keras")
    backbone.save_to_preset(tmp_path / "preset")
    json.dumps(backbone.get_config())
    for again in (
        keras.saving.load_model(tmp_path / "backbone.keras"),
        Backbone.from_preset(tmp_path / "preset"),
    ):
        assert type(again) is type(backbone)
        assert again.get_config() == backbone.get_config()
        expected, found = backbone(inputs), again(inputs)
        assert set(found) == set(expected)
        np.testing.assert_array_equal(found["sequence_output"], expected["sequence_output"])


def test_bad_inputs(make, tokenizer):
    backbone = make()
    inputs = pack(backbone, tokenizer, GOOD)
    first = backbone.input_names[0]
    with pytest.raises(ValueError, match=r"unknown keys \['padding_maks'\]"):
        backbone(inputs | {"padding_maks": inputs["padding_mask"]})
    with pytest.raises(ValueError, match=f"lacks '{first}'"):
        backbone({"padding_mask": inputs["padding_mask"]})
    with pytest.raises(ValueError, match=rf"takes a dict with the keys \['{first}'"):
        backbone([[1, 2]])
    if backbone.max_sequence_length is not None:
        with pytest.raises(ValueError, match="33 columns, but max_sequence_length=32"):
            backbone({first: np.ones((1, 33), "int32")})


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_other_precision(make, tokenizer, policy):
    keras.config.set_dtype_policy(policy)
    try:
        backbone = make(spread=False)
        task = tasks.TextClassifier(backbone, num_classes=2)
    finally:
        keras.config.set_dtype_policy("float32")
    wide = "float64" if policy == "float64" else "float32"  # of weights and logits
    inputs = pack(backbone, tokenizer, GOOD)
    x = backbone(inputs)["sequence_output"]
    assert keras.backend.standardize_dtype(x.dtype) in (policy.removeprefix("mixed_"), wide)
    assert {weight.dtype for weight in task.trainable_weights} == {wide}
    if "attention_biases" in backbone.symbolic:
        assert backbone.attention_probabilities(inputs)[0].dtype == "float32"
    logits = task(inputs)
    assert logits.dtype == wide
    assert np.isfinite(logits).all()


def test_estimate_equals_a_model_that_is_built(make):
    backbone = make(spread=False)
    counted = sum(np.prod(weight.shape) for weight in backbone.trainable_weights)
    try:
        found = estimate(type(backbone), **backbone.config)
    except ValueError as error:
        pytest.skip(str(error))
    assert found["parameters"] == counted


@pytest.mark.parametrize("cls", ALL_TASKS)
def test_every_task(name, make, tokenizer, cls):
    backbone = make(spread=False)
    if name not in ONLY.get(cls, MODELS):
        with pytest.raises(ValueError, match=r"has no head|no special token|has no mask token"):
            getattr(tasks, cls)(backbone, tokenizer=tokenizer, **ALL_TASKS[cls])
        return
    task = getattr(tasks, cls)(backbone, tokenizer=tokenizer, **ALL_TASKS[cls])
    x = {"prompt" if cls == "CausalLM" else "text": GOOD}
    if cls == "MultipleChoice":
        x = x | {"choices": [["good", "bad"]] * 4}
    if cls == "QuestionAnswerer":
        x = {"question": GOOD, "context": BAD}
        answers = task.answer(x, top_k=1)
        assert all(text[a["start"] : a["end"]] == a["text"] for text, (a,) in zip(BAD, answers))
    outputs = keras.tree.flatten(task(task.preprocess(task.columns(x))))
    assert all(len(output) == 4 and np.isfinite(output).all() for output in outputs)
    if cls == "MaskedLM":
        mask = tokenizer.special_tokens["mask"]
        assert task.fill_mask([f"great {mask}"])["tokens"].shape == (1, 1, 5)
    if cls in ("MaskedLM", "CausalLM"):
        assert np.isfinite(task.evaluate(GOOD, verbose=0, return_dict=True)["loss"])


@pytest.fixture(scope="module")
def classifier(name, tokenizer):
    """A task that has learnt a little."""
    backbone = MODELS[name][1](tokenizer.vocabulary_size)
    task = tasks.TextClassifier(backbone, class_names=["bad", "good"], tokenizer=tokenizer)
    task.compile(optimizer=keras.optimizers.Adam(0.02))
    labels = ["good"] * 4 + ["bad"] * 4
    task.losses_of_fit = task.fit(GOOD + BAD, labels, epochs=20, verbose=0).history["loss"]
    return task


# The networks and tokenizers of others.
ALIKE = ("SpanBertBackbone", "TinyBertBackbone", "GPT3Backbone", "GPTNeoBackbone")


def models_but(*quick):
    """Parametrize by models, of which all but some are slow."""
    marks = {name: pytest.mark.slow for name in MODELS if name not in quick}
    marks |= dict.fromkeys(ALIKE, pytest.mark.thorough)
    params = [pytest.param(name, marks=marks.get(name, ())) for name in MODELS if MODELS[name]]
    return pytest.mark.parametrize("name", params, indirect=True, scope="module")


@models_but("BertBackbone")
def test_a_classifier_learns_and_goes_into_files(classifier, tokenizer, tmp_path):
    losses = classifier.losses_of_fit
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    answer = classifier.classify(TEXTS)

    classifier.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    assert type(again.tokenizer) is type(tokenizer)
    np.testing.assert_array_equal(again.classify(TEXTS)["scores"], answer["scores"])

    served = tf.saved_model.load(str(classifier.export(tmp_path / "export")))
    found = served.signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(found["scores"], answer["scores"], atol=1e-5)
    assert found["labels"].numpy().tolist() == [label.encode() for label in answer["labels"]]


@models_but()
def test_a_classifier_runs_in_litert(classifier, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    path = classifier.export(tmp_path / "model.tflite", format="litert")
    operations = {operation for operation, _ in tflite._custom_operations(path.read_bytes())}
    assert operations <= tflite.TEXT_OPERATIONS
    serve, _ = load_tflite(str(path))
    for texts in (TEXTS, TEXTS[-1:]):
        found = serve(text=np.array([text.encode() for text in texts], object))
        expected = classifier.answer_lite({"text": tf.constant(texts)})
        np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-4)
        np.testing.assert_array_equal(found["labels"], expected["labels"].numpy())
