"""Source and target texts, with one tokenizer and with two."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.packers import Packer, Seq2SeqPacker, Template
from keras_lm.tokenizers import WordTokenizer

TARGET = Template(single="$A:0 </s>:0", pair="$A:0 $B:0 </s>:0")
SPECIAL = ["<unk>", "<pad>", "</s>"]


def words(*own):
    return WordTokenizer([*SPECIAL, *own], "<unk>", "<pad>", additional_special_tokens=["</s>"])


@pytest.mark.parametrize("tokenizers", [1, 2])
def test_the_decoder_reads_the_target_one_place_late(tokenizers):
    german = words("das", "Haus", "brennt")
    english = words("the", "house", "burns") if tokenizers == 2 else german
    packer = Seq2SeqPacker(
        Packer(TARGET, german, 8), Packer(TARGET, english, 4, padding="fixed"), "<pad>"
    )
    target = ["the house burns", "the", ""] if tokenizers == 2 else ["das Haus brennt", "das", ""]
    columns = {"text": tf.constant(["das Haus", "Haus brennt das", ""])}
    inputs = packer(columns)
    assert inputs["encoder_token_ids"].numpy().tolist() == [
        [3, 4, 2, 1],
        [4, 5, 3, 2],
        [2, 1, 1, 1],
    ]
    assert inputs["encoder_padding_mask"].numpy().sum(axis=1).tolist() == [3, 4, 1]
    packed = packer(columns | {"labels": tf.constant(target)})
    assert {name: packed.pop(name).numpy().tolist() for name in inputs} == {
        name: value.numpy().tolist() for name, value in inputs.items()
    }
    assert {name: value.numpy().tolist() for name, value in packed.items()} == {
        "decoder_token_ids": [[1, 3, 4, 5], [1, 3, 2, 1], [1, 2, 1, 1]],
        "decoder_padding_mask": [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]],
        "labels": [[3, 4, 5, 2], [3, 2, -100, -100], [2, -100, -100, -100]],
    }


def test_the_same_in_a_dataset():
    packer = Packer(TARGET, words("a", "b"), 6)
    packer = Seq2SeqPacker(packer, packer, "<pad>")
    columns = {"text": ["a b", "b"], "labels": ["b", "a a a a a a a a"]}
    expected = packer({name: tf.constant(column) for name, column in columns.items()})
    (packed,) = tf.data.Dataset.from_tensor_slices(columns).batch(2).map(packer)
    for name, value in expected.items():
        np.testing.assert_array_equal(packed[name], value)
    assert packed["labels"].shape == (2, 6)


def test_padding_on_the_left_is_refused():
    left = Packer(Template("$A:0", "$A:0 $B:0", padding_side="left"), words("a"), 4)
    with pytest.raises(ValueError, match="padding_side='left'"):
        Seq2SeqPacker(left, left, "<pad>")
