"""`augment_texts`: which words become which others, and what stays."""

import re

import numpy as np
import pytest

from keras_lm.converters import read_word_vectors
from keras_lm.data import augment_texts
from keras_lm.models import BertBackbone
from keras_lm.tasks import MaskedLM, TextClassifier
from keras_lm.tokenizers import WordPieceTokenizer

WORDS = ["a", "good", "bad", "film", "song", "was", "loud", "un", "##like", "##ly", "like", "!"]
# By their directions: un- and -ly words side by side, `film` far from all.
VECTORS = """\
unlike 1.0 0.0 0.1
unlikely 0.9 0.1 0.0
likely 2.0 0.3 0.0
film 0.0 0.0 1.0
song -1.0 0.2 0.0
"""
TEXTS = ["A  good film, was unlikely!", "(loud) song", "", "42 ?", "Unlikely [MASK] film"]


@pytest.fixture(scope="module")
def masked_lm():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    backbone = BertBackbone(
        vocabulary_size=len(tokens) + 3,  # a padded embedding
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        max_sequence_length=32,
    )
    return MaskedLM(backbone, tokenizer=WordPieceTokenizer(tokens, lowercase=True))


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    path = tmp_path_factory.mktemp("glove") / "glove.3d.txt"
    path.write_text(VECTORS)
    return read_word_vectors(path)


def test_words_become_likely_and_near_ones(masked_lm, vectors):
    versions = augment_texts(TEXTS, masked_lm, vectors, candidates=5, copies=40, probability=0.5)
    assert [texts[0] for texts in versions] == TEXTS
    assert versions[2:4] == [[""], ["42 ?"]]
    assert all(len(texts) == len(set(texts)) for texts in versions)
    assert 10 < len(versions[0]) <= 41

    # What stands at each place, and nothing else has changed.
    pattern = re.compile(r"(\w+)  (\w+) (\w+), (\w+) (\w+)!")
    a, good, film, was, unlikely = map(
        set, zip(*(pattern.fullmatch(t).groups() for t in versions[0]))
    )
    assert unlikely == {"unlikely", "likely", "unlike", "song", "film"}  # those that have vectors
    assert all(word[0].isupper() for word in a)
    packed = masked_lm.preprocess((["a  good [MASK], was unlikely!"], [TEXTS[0]]))
    position = np.flatnonzero(packed["token_ids"].numpy()[0] == 4)
    logits = masked_lm({**packed, "mask_positions": position[None]}).numpy()[0, 0]
    best = [masked_lm.tokenizer.vocabulary[i] for i in np.argsort(-logits[: len(WORDS) + 5])[:5]]
    assert film == {"film"} | {word for word in best if word.isalpha()}
    assert good | was <= {word for word in WORDS if word.isalpha()}

    # A mask in the text itself is no place to fill.
    assert {text.split()[1:][0] for text in versions[4]} == {"[MASK]"}
    assert {text.split()[2] for text in versions[4]} == {"film"}
    assert {text.split()[0] for text in versions[4]} == {w.capitalize() for w in unlikely}


@pytest.mark.eager
def test_only_the_seed_and_the_text_decide(masked_lm, vectors):
    few = {"candidates": 5, "copies": 6}
    together = augment_texts(TEXTS, masked_lm, vectors, **few)
    assert augment_texts(TEXTS[1:2], masked_lm, vectors, batch_size=1, **few) == together[1:2]
    assert augment_texts(TEXTS, masked_lm, vectors, seed=1, **few) != together
    assert augment_texts(TEXTS[:0], masked_lm, **few) == []
    nearest = augment_texts(TEXTS[4:], masked_lm, vectors, candidates=1, probability=1.0)
    assert nearest == [["Unlikely [MASK] film", "Likely [MASK] film"]]
    assert augment_texts(TEXTS[4:], masked_lm) == [TEXTS[4:]]  # no vectors, no other word


def test_what_cannot_be_is_refused(masked_lm, vectors):
    with pytest.raises(ValueError, match="single text"):
        augment_texts("a film", masked_lm)
    with pytest.raises(ValueError, match="masked_lm is a TextClassifier: pass a MaskedLM"):
        augment_texts(TEXTS, TextClassifier(masked_lm.backbone, num_classes=2))
    for name, value in (("candidates", 0), ("copies", 0), ("probability", 0.0)):
        with pytest.raises(ValueError, match=f"{name}={value} is"):
            augment_texts(TEXTS, masked_lm, **{name: value})
    with pytest.raises(ValueError, match=r"word_vectors has 6 words and vectors of shape \(7, 3\)"):
        augment_texts(TEXTS, masked_lm, (vectors[0][1:], vectors[1]))
