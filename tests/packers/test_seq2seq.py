"""Source and target texts, with one tokenizer and with two."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.packers import Seq2SeqPacker, Template
from keras_lm.tokenizers import WordTokenizer

TEMPLATE = Template(single="$A:0 </s>:0", pair="$A:0 </s>:0 $B:0 </s>:0")
SPECIAL = ["<unk>", "<pad>", "</s>"]


class Words(WordTokenizer):
    """Words, and others in targets."""

    def __init__(self, *own, target=None):
        super().__init__([*SPECIAL, *own], "<unk>", "<pad>", additional_special_tokens=SPECIAL[2:])
        self.other = target

    @property
    def target(self):
        return self.other or self


GERMAN, ENGLISH = ("das", "Haus", "brennt"), ("the", "house", "burns")


@pytest.mark.parametrize("tokenizers", [1, 2])
def test_the_decoder_reads_the_target_one_place_late(tokenizers):
    packer = Seq2SeqPacker(
        TEMPLATE, Words(*GERMAN, target=Words(*ENGLISH) if tokenizers == 2 else None), 8, 4
    )
    inputs = packer({"text": tf.constant(["das Haus", "Haus brennt das", ""])})
    assert inputs["encoder_token_ids"].numpy().tolist() == [
        [3, 4, 2, 1],
        [4, 5, 3, 2],
        [2, 1, 1, 1],
    ]
    assert inputs["encoder_padding_mask"].numpy().sum(axis=1).tolist() == [3, 4, 1]
    texts = ["the house burns", "the", ""] if tokenizers == 2 else ["das Haus brennt", "das", ""]
    inputs, labels = packer.targets(tf.constant(texts))
    assert {name: value.numpy().tolist() for name, value in inputs.items()} == {
        "decoder_token_ids": [[1, 3, 4, 5], [1, 3, 2, 1], [1, 2, 1, 1]],
        "decoder_padding_mask": [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]],
    }
    assert labels.numpy().tolist() == [[3, 4, 5, 2], [3, 2, -100, -100], [2, -100, -100, -100]]


def test_pairs_and_fixed_lengths():
    packer = Seq2SeqPacker(TEMPLATE, Words("a", "b"), 6, 3, padding="fixed")
    packed = packer({"text": tf.constant(["a"]), "text_pair": tf.constant(["b"])})
    assert packed["encoder_token_ids"].numpy().tolist() == [[3, 2, 4, 2, 1, 1]]
    inputs, labels = packer.targets(tf.constant(["b b b b b"]))
    assert labels.numpy().tolist() == [[4, 4, 2]]
    assert inputs["decoder_token_ids"].shape == (1, 3)
    longest = packer.with_padding("longest")
    assert longest.targets(tf.constant(["b"]))[1].shape == (1, 2)
    assert packer.targets(tf.constant(["b"]))[1].shape == (1, 3)


def test_batches_are_padded_alike():
    packer = Seq2SeqPacker(TEMPLATE, Words("a", "b"), 6, 6)
    packed = packer({"text": tf.constant(["a b"])}) | packer.targets(tf.constant(["b"]))[0]
    given = {name: value for name, value in packed.items() if "mask" not in name}
    widths = {name: tf.constant(5) for name in packed}
    wide = packer.pad_to(packer.with_mask(given), widths)
    assert {name: value.numpy().tolist() for name, value in wide.items()} == {
        "encoder_token_ids": [[3, 4, 2, 1, 1]],
        "encoder_padding_mask": [[1, 1, 1, 0, 0]],
        "decoder_token_ids": [[1, 4, 1, 1, 1]],
        "decoder_padding_mask": [[1, 1, 0, 0, 0]],
    }


def test_the_same_in_a_dataset():
    packer = Seq2SeqPacker(TEMPLATE, Words("a", "b"), 6, 6)
    texts, targets = ["a b", "b"], ["b", "a a a a a a a a"]
    expected = packer.targets(tf.constant(targets))[0] | packer({"text": tf.constant(texts)})
    dataset = tf.data.Dataset.from_tensor_slices((texts, targets)).batch(2)

    @tf.autograph.experimental.do_not_convert  # as `fit` has it
    def pack(x, y):
        return packer.targets(y)[0] | packer({"text": x})

    (packed,) = dataset.map(pack)
    for name, value in expected.items():
        np.testing.assert_array_equal(packed[name], value)


def test_padding_on_the_left_is_refused():
    left = Template("$A:0", "$A:0 $B:0", padding_side="left")
    with pytest.raises(ValueError, match="padding_side='left'"):
        Seq2SeqPacker(left, Words("a"), 4, 4)


def test_a_decoder_needs_a_token_to_start_with():
    tokenizer = WordTokenizer(["<unk>", "a"], "<unk>", None)
    with pytest.raises(ValueError, match="no padding token and no bos token"):
        Seq2SeqPacker(Template("$A:0 a:0", "$A:0 $B:0 a:0"), tokenizer, 4, 4)
