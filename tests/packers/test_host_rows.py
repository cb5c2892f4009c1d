"""Rows that are packed without TensorFlow are those of the graph."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import BertBackbone, GPT2Backbone, XLNetBackbone
from keras_lm.packers import host_rows
from keras_lm.packers.packer import Packer
from keras_lm.tokenizers import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<cls>", "<sep>"]
TOKENIZER = WordPieceTokenizer([*SPECIAL, *"abcdef"], lowercase=True)
ROWS = {
    "text": [[7, 8, 9, 10, 11, 12], [], [7], [8] * 9],
    "text_pair": [[9, 10], [11] * 12, [], [12] * 9],
}


@pytest.mark.parametrize("truncation", ["longest_first", "only_first", "only_second"])
@pytest.mark.parametrize("padding", ["longest", "fixed"])
@pytest.mark.parametrize("names", [["text"], ["text", "text_pair"]])
@pytest.mark.parametrize("model", [BertBackbone, XLNetBackbone, GPT2Backbone])
def test_rows_are_those_of_the_graph(model, names, padding, truncation):
    packer = Packer(model.TEMPLATE, TOKENIZER, 9, padding, truncation)
    for texts in ({name: ROWS[name] for name in names}, {name: [[]] for name in names}):
        ragged = {name: tf.ragged.constant(ids, tf.int32, 1) for name, ids in texts.items()}
        expected, found = packer.pack(**ragged), host_rows.packed(packer, texts)
        assert set(found) == set(expected)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)
            assert found[name].dtype == np.int32
