"""Ids that a model has no embedding for are refused: eagerly, in data sets, and in exports."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm.models.backbone import id_limit
from keras_lm.tasks import CausalLM, TextClassifier

MODELS = {
    name: lambda name=name: tiny.make_backbone(name, 40, spread=False) for name in tiny.MODELS
}
MODELS |= tiny.ENCODER_DECODERS | {name: make for name, make in tiny.PARTS.items() if make}


def inputs_of(backbone):
    """Return packed rows of ones, (2, 3) or (2, 3, …), and the names of those that are ids."""
    fields = {
        n: f for n, f in backbone.input_fields.items() if not f.is_state and f.default is None
    }
    if "segment_ids" in backbone.input_fields:
        fields["segment_ids"] = backbone.input_fields["segment_ids"]
    inputs = {}
    for name, field in fields.items():
        shape = [2, *(3 if size is None else size for size in field.shape)]
        inputs[name] = np.zeros(shape, field.dtype)
    return inputs, [name for name in inputs if id_limit(backbone, name) is not None]


@pytest.mark.parametrize("name", MODELS)
def test_every_model(name):
    backbone = MODELS[name]()
    inputs, ids = inputs_of(backbone)
    if not ids:
        assert set(inputs) == {"word_vectors"}
        return
    for each in ids:
        limit = id_limit(backbone, each)
        for wrong in [-1, -5] + ([int(limit), 10**9] if np.isfinite(limit) else []):
            rows = inputs[each].copy()
            rows[1, -1] = wrong
            for values in (rows, rows.tolist(), tf.constant(rows)):
                with pytest.raises(ValueError, match=rf"{each} has {wrong} in row 1: ids of this"):
                    backbone.complete(inputs | {each: values})
        if np.isfinite(limit):
            rows[1, -1] = limit - 1
            backbone.complete(inputs | {each: rows})


@pytest.fixture(scope="module")
def classifier(tokenizer_of):
    tokenizer = tokenizer_of("wordpiece")
    backbone = tiny.make_backbone("BertBackbone", tokenizer.vocabulary_size)
    return TextClassifier(backbone, tokenizer=tokenizer, class_names=["bad", "good"])


@pytest.mark.parametrize("method", ["predict", "evaluate", "fit", "predict_on_batch"])
@pytest.mark.eager
def test_packed_rows_of_a_task(classifier, method):
    x = {"token_ids": np.array([[2, 7, 3], [2, -5, 3]])}
    y = () if method.startswith("predict") else ([0, 1],)
    with pytest.raises(ValueError, match="token_ids has -5 in row 1"):
        getattr(classifier, method)(x, *y)
    with pytest.raises(ValueError, match="token_ids has -5 in row 1"):
        classifier(x)


@pytest.mark.parametrize("wrong", [-5, 4000])
def test_a_data_set_of_packed_rows(classifier, wrong):
    rows = tf.data.Dataset.from_tensors({"token_ids": np.array([[2, wrong, 3]])})
    with pytest.raises(ValueError, match=rf"^token_ids: ids of this .* {wrong}\b"):
        classifier.predict(rows, verbose=0)


def test_prompts_of_ids(tokenizer_of):
    tokenizer = tokenizer_of("bytebpe-gpt2")
    task = CausalLM(
        tiny.make_backbone("GPT2Backbone", tokenizer.vocabulary_size), tokenizer=tokenizer
    )
    for wrong in (-5, 10**6):
        with pytest.raises(ValueError, match=f"token_ids has {wrong} in row 0"):
            task.generate({"token_ids": [[3, wrong]]}, max_new_tokens=2)


@pytest.mark.parametrize("name, decoder", [("tokens", False), ("next_token", True)])
@pytest.mark.slow
def test_signatures_that_take_ids(classifier, tokenizer_of, name, decoder):
    """The functions of an export, which servers call over gRPC and REST."""
    task = classifier
    if decoder:
        tokenizer = tokenizer_of("bytebpe-gpt2")
        backbone = tiny.make_backbone("GPT2Backbone", tokenizer.vocabulary_size)
        task = CausalLM(backbone, tokenizer=tokenizer)
    offer = task.signatures
    function = offer.raw() if name == "tokens" else offer.functions()[name]
    ones = tf.constant([[1, 1, 1]])
    rest = {"padding_mask": ones}
    if decoder:
        rest |= {name: tf.constant(value) for name, value in offer.initial_state().items()}
    else:
        rest["segment_ids"] = tf.zeros_like(ones)
    for wrong in (-5, task.backbone.vocabulary_size):
        ids = tf.constant([[2, wrong, 3]])
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"token_ids: ids .*{wrong}"):
            function(token_ids=ids, **rest)
    function(token_ids=ones, **rest)
