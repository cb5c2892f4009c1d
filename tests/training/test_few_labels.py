"""A classifier from a few texts of each class: its pairs, its linear layer, and what it learns."""

import keras
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from keras_lm.models import BertBackbone
from keras_lm.tasks import SentenceEncoder, Task
from keras_lm.tokenizers import WordPieceTokenizer
from keras_lm.training import few_labels, fit_few

WORDS = "a good film so fine i loved it awful story dull cast the is poor"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENIZER = WordPieceTokenizer([*SPECIAL, *WORDS.split()], lowercase=True)
TEXTS = ["a good film", "so fine", "i loved it", "awful story", "a dull cast", "the cast is poor"]
LABELS = ["good", "good", "good", "bad", "bad", "bad"]
NEW = ["a fine film", "a poor story"]


def make_encoder(**options):
    """An encoder with the same weights each time."""
    keras.utils.set_random_seed(3)
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
    backbone = BertBackbone(TOKENIZER.vocabulary_size, dropout=0.0, **size)
    for variable in backbone.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.2))
    encoder = SentenceEncoder(backbone, **{"tokenizer": TOKENIZER} | options)
    encoder.compile(run_eagerly=True)
    return encoder


def test_a_text_is_compared_with_as_many_of_its_class_as_of_others():
    numbers = np.array([0, 0, 0, 1, 1, 2])
    first, second, scores = few_labels._draw_pairs(numbers, 2, np.random.default_rng(1))
    assert len(scores) == 5 * 2 + 6 * 2  # the text that is alone in its class has none like it
    for row, partner, score in zip(first, second, scores, strict=True):
        assert row != partner
        assert score == (numbers[row] == numbers[partner])
    assert {*first} == {*range(6)}


@pytest.mark.parametrize("classes", [2, 3])
def test_the_linear_layer_is_that_of_scikit_learn(classes):
    random = np.random.default_rng(classes)
    vectors, numbers = random.normal(size=(40, 16)), np.arange(40) % classes
    classifier = make_encoder().as_classifier(list("abc")[:classes])
    few_labels.fit_linear_layer(classifier, vectors, numbers, 0.3)
    expected = LogisticRegression(C=0.3, max_iter=1000).fit(vectors, numbers)
    logits = classifier.head({"pooled_output": vectors.astype("float32")})
    scores = keras.ops.softmax(logits)
    np.testing.assert_allclose(scores, expected.predict_proba(vectors), atol=1e-5)


@pytest.mark.eager
def test_classes_are_learned_and_go_out_with_the_weights(tmp_path):
    encoder = make_encoder()
    before = encoder.embed(TEXTS, verbose=0)["embedding"]
    classifier = fit_few(
        encoder, TEXTS, LABELS, 3, epochs=6, learning_rate=1e-2, verbose=0, batch_size=36
    )
    after = encoder.embed(TEXTS, verbose=0)["embedding"]
    alike = np.equal.outer(LABELS, LABELS)

    def contrast(vectors):
        cosines = vectors @ vectors.T
        return cosines[alike].mean() - cosines[~alike].mean()

    assert contrast(after) > contrast(before) + 0.1
    answer = classifier.classify(TEXTS, verbose=0)
    assert [*answer["labels"]] == LABELS
    assert [*answer["class_names"]] == ["bad", "good"]
    classifier.save_to_preset(tmp_path / "preset")
    loaded = Task.from_preset(tmp_path / "preset")
    expected = classifier.classify(NEW, verbose=0)["scores"]
    np.testing.assert_allclose(loaded.classify(NEW, verbose=0)["scores"], expected, atol=1e-6)


@pytest.mark.eager
def test_prompts_of_queries_are_not_put_before_texts():
    prompts = {"query": "so awful ", "document": "i loved "}
    without, with_prompts = make_encoder(), make_encoder(prompts=prompts)
    vectors = []
    for encoder in (without, with_prompts):
        fit_few(encoder, TEXTS, LABELS, 2, learning_rate=1e-3, verbose=0)
        vectors.append(encoder.embed(NEW, verbose=0)["embedding"])
    np.testing.assert_allclose(*vectors, atol=1e-6)
    assert with_prompts.prompts == prompts


@pytest.mark.eager
def test_the_prompt_of_an_encoder_stands_before_what_is_classified():
    encoder = make_encoder(prompt="so fine ")
    classifier = encoder.as_classifier(["bad", "good"])
    assert classifier.prompt == "so fine "
    packed = classifier.preprocess(NEW)
    vectors = classifier.backbone(classifier.backbone.select_inputs(packed))["pooled_output"]
    expected = encoder.embed(NEW, verbose=0)["embedding"]
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_an_encoder_that_lower_cases_texts_itself_is_no_classifier():
    cased = WordPieceTokenizer(TOKENIZER.vocabulary, lowercase=False)
    with pytest.raises(ValueError, match="lowercase=True"):
        make_encoder(lowercase=True, tokenizer=cased).as_classifier(["bad", "good"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["good"]}, "texts has 6 rows and labels 1"),
        ({"labels": ["good"] * 6}, "pass two or more classes"),
        ({"labels": [*"abcdef"]}, "two or more texts of at least one"),
        ({"labels": [[0]] * 6}, r"labels\[0\] is \[0\]"),
        ({"texts": [None] * 6}, r"texts\[0\] is None"),
        ({"pairs_per_text": 0}, "pairs_per_text=0"),
        ({"inverse_regularization": -1.0}, "inverse_regularization=-1.0"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        fit_few(None, **{"texts": TEXTS, "labels": LABELS} | changes)
