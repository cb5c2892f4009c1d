"""The side on which texts that are too long are cut off."""

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.packers import Packer, Template
from keras_lm.packers.words import Words, pieces_of_words
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import WordPieceTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
TEMPLATE = Template("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(WORDS, lowercase=True)


def rows(packer, *texts):
    columns = dict(zip(("text", "text_pair"), (tf.constant([t]) for t in texts)))
    packed = packer(columns)
    tokens = packer.tokenizer.tokens(packed["token_ids"][0]).numpy()
    return " ".join(token.decode() for token in tokens), packed


@pytest.mark.eager
def test_the_end_is_kept(tokenizer):
    packer = Packer(TEMPLATE, tokenizer, 6, truncation_side="left")
    assert rows(packer, "a b c d e f")[0] == "[CLS] c d e f [SEP]"
    assert rows(packer, "a b")[0] == "[CLS] a b [SEP]"
    actual, packed = rows(packer, "a b c d e f", "g h")
    assert actual == "[CLS] e f [SEP] h [SEP]"
    assert packed["segment_ids"].numpy().tolist() == [[0, 0, 0, 0, 1, 1]]
    only = Packer(TEMPLATE, tokenizer, 6, truncation="only_first", truncation_side="left")
    assert rows(only, "a b c d e f", "g h")[0] == "[CLS] f [SEP] g h [SEP]"
    fixed = Packer(TEMPLATE, tokenizer, 5, padding="fixed", truncation_side="left")
    assert rows(fixed, "a b c d")[0] == "[CLS] b c d [SEP]"
    with pytest.raises(ValueError, match="truncation_side='middle'"):
        Packer(TEMPLATE, tokenizer, 6, truncation_side="middle")


@pytest.mark.eager
def test_words_keep_their_places(tokenizer):
    words = Words("whitespace")
    packer = Packer(TEMPLATE, tokenizer, 5, rows=words, truncation_side="left")
    texts = tf.ragged.constant([["a", "b", "c", "d", "e"], ["f"]])
    pieces = pieces_of_words(texts, tokenizer(texts.values))
    packed, places = words.pack_words(packer, texts, pieces)
    flat = np.reshape(packed["token_ids"], -1)
    results = [WORDS[flat[place]] if place >= 0 else "" for place in places.numpy()]
    assert results == ["", "", "c", "d", "e", "f"]


def test_tasks_follow_it(backbone_of, tokenizer_of):
    backbone, tokenizer = backbone_of("BertBackbone"), tokenizer_of("wordpiece")
    arguments = {"tokenizer": tokenizer, "sequence_length": 6, "truncation_side": "left"}
    task = tasks.TextClassifier(backbone, num_classes=2, **arguments)
    assert task.get_arguments()["truncation_side"] == "left"
    text = "the cat sat on the mat and the dog ran"
    ids = tokenizer(text).numpy().tolist()
    assert task.preprocess([text])["token_ids"][0, 1:-1].numpy().tolist() == ids[-4:]
    end = tokenizer.detokenize(ids[-4:]).numpy().decode()
    np.testing.assert_allclose(*(task.predict([t], verbose=0) for t in (text, end)), atol=1e-6)
    with pytest.raises(ValueError, match="truncation_side='left': Windows counts"):
        tasks.QuestionAnswerer(backbone, tokenizer=tokenizer, truncation_side="left")
