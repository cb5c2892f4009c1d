"""Windows of documents: no piece is lost, and each word knows its place in them."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import BertBackbone, ElmoBackbone
from keras_lm.packers import Packer, WordEnds, WordWindows
from keras_lm.tokenizers import CharacterTokenizer, WordPieceTokenizer

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "good", "##s", "##ly"]
DOCUMENTS = [
    ["a", "films", "goodly", "a", "filmsly", "good", "\u200b", "a"],
    [],
    ["a"],
    ["filmssss"],
]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("room", [2, 3, 40])
def test_each_word_has_its_first_piece(side, room):
    tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=True)
    template = dataclasses.replace(BertBackbone.TEMPLATE, padding_side=side)
    packer = Packer(template, tokenizer, room + 2, rows=WordWindows())
    packed = packer({"text": tf.ragged.constant(DOCUMENTS)})
    ids, mask = packed["token_ids"].numpy(), packed["padding_mask"].numpy()
    positions = packed["word_positions"].numpy()
    assert ids.shape[:2] == (4, max(1, -(-11 // room)))
    for row, words in enumerate(DOCUMENTS):
        pieces = [tokenizer([word]).to_list()[0] for word in words]
        flat = [piece for piece in ids[row][mask[row] > 0] if piece not in (2, 3)]
        assert flat == [piece for word in pieces for piece in word]
        for n, word in enumerate(pieces):
            place = positions[row, n]
            assert place == 0 if not word else ids[row].reshape(-1)[place - 1] == word[0]
        assert not positions[row, len(words) :].any()
        used = (mask[row].sum(axis=1) > 0).sum()
        assert used == max(1, -(-len(flat) // room))  # the rest is padding


@pytest.mark.parametrize(("padding", "number"), [("longest", 8), ("fixed", 20)])
def test_places_of_words_are_as_many_as_the_padding_asks(padding, number):
    tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=True)
    packer = Packer(BertBackbone.TEMPLATE, tokenizer, 20, padding=padding, rows=WordEnds())
    positions = packer({"text": tf.ragged.constant(DOCUMENTS)})["word_positions"].numpy()
    assert positions.shape == (len(DOCUMENTS), number)
    assert positions[0, :8].tolist() == [2, 4, 6, 7, 10, 11, 11, 12]
    assert not positions[0, 8:].any() and not positions[1].any()


def test_strings_and_words_of_characters():
    packer = ElmoBackbone.packer_class(
        ElmoBackbone.TEMPLATE, CharacterTokenizer(6), 3, rows=WordWindows()
    )
    packed = packer({"text": tf.constant(["Ada, Bob and Eve", "", "Ada"])})
    assert packed["character_ids"].shape == (3, 2, 3, 6)
    assert packed["word_positions"].numpy().tolist() == [[1, 2, 3, 4, 5], [0] * 5, [1, *[0] * 4]]
    assert packed["padding_mask"].numpy().sum(axis=2).tolist() == [[3, 2], [0, 0], [1, 0]]
    words = packer({"text": tf.constant([["Ada", ",", "Bob"], ["Ada", "", ""]])})
    np.testing.assert_array_equal(words["word_positions"], [[1, 2, 3], [1, 0, 0]])
    empty = packer({"text": tf.constant([""])})
    assert empty["word_positions"].numpy().tolist() == [[0]]
