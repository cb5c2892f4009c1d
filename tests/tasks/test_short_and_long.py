"""Texts of one word, of none and of 20,000, beside usual ones: trained on, measured, answered."""

import numpy as np
import pytest
import tiny

from keras_lm.tasks import FeatureExtractor, QuestionAnswerer, TextClassifier, TokenClassifier

LONG = ["the", "film", "was", "good"] * 5_000


@pytest.mark.eager
def test_texts(make):
    task = make(TextClassifier, class_names=["bad", "good"])
    texts, labels = ["good", "", " ".join(LONG), "the film was bad"], ["good", "bad", "good", "bad"]
    assert np.isfinite(task.fit(texts, labels, verbose=0).history["loss"][0])
    assert np.isfinite(task.evaluate(texts, labels, verbose=0)).all()
    alone = [task.predict([text], verbose=0)[0] for text in texts]
    np.testing.assert_allclose(task.predict(texts, verbose=0), alone, atol=1e-5)


@pytest.mark.eager
@pytest.mark.parametrize("name", ["GPT2Backbone", "GPTNeoBackbone", "TransformerXLBackbone"])
def test_an_empty_text_of_which_all_is_padding(tokenizer_of, name):
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    backbone = tiny.make_backbone(name, tokenizer.vocabulary_size)
    tasks = [TextClassifier(backbone, tokenizer=tokenizer, num_classes=3)]
    tasks += [
        FeatureExtractor(backbone, tokenizer=tokenizer, pooling=which)
        for which in ("first", "last")
    ]
    for task in tasks:
        alone, (beside, other) = (task.predict_on_batch(x) for x in ([""], ["", tiny.GOOD[0]]))
        np.testing.assert_allclose(beside, alone[0], atol=1e-6)
        assert np.abs(other - beside).max() > 1e-3


@pytest.mark.eager
def test_words(make):
    task = make(TokenClassifier, class_names=["O", "B-X"])
    words = [["good"], LONG, [], ["the", "film"]]
    labels = [["B-X"], ["O"] * len(LONG), [], ["O", "B-X"]]
    assert np.isfinite(task.fit(words, labels, verbose=0).history["loss"][0])
    tagged = task.tag(words)["labels"]
    assert [len(row) for row in tagged] == [1, 20_000, 0, 2]
    assert set(tagged[1][:5]) <= {"O", "B-X"} and tagged[1][-1] == ""  # after the window


@pytest.mark.slow
@pytest.mark.eager
def test_questions_and_contexts(make):
    task = make(QuestionAnswerer, stride=16)
    contexts = ["good", " ".join([*LONG[:4_000], "dull"]), "the film was bad", ""]
    labels = [
        {"text": "good", "start": 0},
        {"text": "dull", "start": len(contexts[1]) - 4},
        None,
        None,
    ]
    data = {"question": ["was it ?", "was it so ?", "", ""], "context": contexts}
    assert np.isfinite(task.fit(data, labels, verbose=0).history["loss"][0])
    for context, row in zip(contexts, task.answer(data, top_k=None), strict=True):
        assert all(answer["text"] == context[answer["start"] : answer["end"]] for answer in row)
    with pytest.raises(ValueError, match=r"labels\[1\].*not occur"):
        task.fit(data, [labels[0], {"text": "awful", "start": 9}, None, None], verbose=0)
