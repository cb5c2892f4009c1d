"""Several masks filled in together: XLNet's product of conditionals beside BERT's of marginals."""

import numpy as np
import pytest
import tiny
from scipy.special import log_softmax

from keras_lm.tasks import MaskedLM

pytestmark = pytest.mark.eager


def make(name):
    tokenizer = tiny.TOKENIZERS[tiny.MODELS[name][0]]()
    return MaskedLM(tiny.make_backbone(name, tokenizer.vocabulary_size), tokenizer=tokenizer)


def fill_of(task):
    """Two tokens that text spells, and their ids."""
    for text in ("good film", "so it", "he is", "a b"):
        ids = task.tokenizer([text]).to_list()[0]
        if len(ids) == 2:
            return text, ids
    (ids,) = task.tokenizer(["a"]).to_list()
    return "a", ids


def test_bert_multiplies_what_it_knows_of_each_alone():
    task = make("BertBackbone")
    text, ids = fill_of(task)
    texts = ["[MASK] " * len(ids) + "is a city", "a city [MASK]"]
    one = next(w for w in ("good", "film", "it") if len(task.tokenizer([w]).to_list()[0]) == 1)
    actual = task.score_fills(texts, [text, one])
    packed = task.preprocess(texts[:1])
    scores = log_softmax(np.asarray(task(packed))[0], axis=-1)
    expected = sum(scores[1 + i, token] for i, token in enumerate(ids))
    np.testing.assert_allclose(actual[0], expected, rtol=1e-4)
    with pytest.raises(ValueError, match=r"fills\[0\]='.*' has \d tokens, and the text 1 masks"):
        task.score_fills(["[MASK] is"], [text + " " + text])
    with pytest.raises(ValueError, match="fills has 1, and x 2 texts"):
        task.score_fills(texts, [text])


def test_xlnet_predicts_one_after_the_other():
    """Log p(New | is a city) + log p(York | New, is a city), in two passes."""
    task = make("XLNetBackbone")
    text, ids = fill_of(task)
    assert len(ids) > 1
    texts = ["<mask>" * len(ids) + " is a city"]
    actual, again = task.score_fills(texts * 2, [text] * 2, batch_size=1)
    assert actual == pytest.approx(again, rel=1e-5)
    packed = {name: np.array(value) for name, value in task.preprocess(texts).items()}
    columns = np.flatnonzero(packed["token_ids"][0] == task.tokenizer.special_id("mask"))
    length, expected, alone = packed["token_ids"].shape[1], 0.0, 0.0
    for step, (column, token) in enumerate(zip(columns, ids, strict=True)):
        # What is not predicted yet is hidden from all; what was predicted is in the text.
        hidden = np.zeros((1, length, length), "int32")
        hidden[:, :, columns[step:]] = 1
        target = np.eye(length, dtype="float32")[None, [column]]
        inputs = packed | {"permutation_mask": hidden, "target_mapping": target}
        expected += log_softmax(np.asarray(task(inputs))[0, 0])[token]
        hidden = np.zeros((1, length, length), "int32")
        hidden[:, :, columns] = 1
        inputs = inputs | {"permutation_mask": hidden}
        alone += log_softmax(np.asarray(task(inputs))[0, 0])[token]
        packed["token_ids"][0, column] = token
    assert actual == pytest.approx(expected, rel=1e-4)
    assert abs(actual - alone) > 1e-3


def test_xlnet_fills_by_its_second_stream():
    """No token sees the mask token, which the texts that XLNet learned from never had."""
    task = make("XLNetBackbone")
    texts = ["<mask> is a<mask>", "a city is a<mask>"]
    packed = {name: np.array(value) for name, value in task.preprocess(texts).items()}
    is_mask = packed["token_ids"] == task.tokenizer.special_id("mask")
    answer = task.fill_mask(texts)
    for row, mask in enumerate(is_mask):
        columns = np.flatnonzero(mask)
        hidden = np.repeat(mask[None, None], len(mask), axis=1).astype("int32")
        target = np.eye(len(mask), dtype="float32")[None, columns]
        inputs = {name: value[row : row + 1] for name, value in packed.items()}
        inputs["token_ids"] = np.where(
            mask, task.tokenizer(["a"]).to_list()[0][0], inputs["token_ids"]
        )
        inputs |= {"permutation_mask": hidden, "target_mapping": target}
        best = np.sort(np.exp(log_softmax(np.asarray(task(inputs))[0], axis=-1)))[:, ::-1]
        actual = answer["scores"][row, : len(columns)]
        np.testing.assert_allclose(actual, best[:, : actual.shape[1]], rtol=1e-4)
