"""Windows over long texts, against the loop of BERT's `run_squad.py`."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from keras_lm.packers import Packer, Template, Windows
from keras_lm.tokenizers import WordPieceTokenizer

BERT = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
LEFT = Template(single="$A:0 [SEP]:0", pair="$A:0 [SEP]:0 $B:1 [SEP]:1", padding_side="left")
WORDS = ["a", "film", "was", "##s", "good", "é", "!"]
TOKENIZER = WordPieceTokenizer(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=False
)


def reference(rows, template, sequence_length, stride, longest):
    """One window and one token at a time: (tokens and segments, example, places in characters)."""
    results = []
    questions, contexts = map(list, zip(*rows))
    places = [x.to_list() for x in TOKENIZER.tokenize_with_offsets(contexts, "character")]
    texts = zip(TOKENIZER(questions).to_list(), *places)
    for example, (question, ids, starts, ends) in enumerate(texts):
        question = question[:longest]
        special = sum(not p.startswith("$") for p, _ in template.pieces("pair"))
        room = sequence_length - special - len(question)
        start, context_first = 0, template.padding_side == "left"
        while True:
            length = min(len(ids) - start, room)
            row = []
            for piece, segment in template.pieces("pair"):
                if piece == ("$B" if context_first else "$A"):
                    row += [(token, segment, -1, -1) for token in question]
                elif piece in ("$A", "$B"):
                    for i in range(start, start + length):
                        row.append((ids[i], segment, starts[i], ends[i]))
                else:
                    row.append((TOKENIZER.token_to_id(piece), segment, -1, -1))
            results.append((example, row, start, length))
            if start + length == len(ids):
                break
            start += min(length, stride)
    return results


def best_window(windows, token):
    """Of windows (number, start, length), that in which a token has the most context."""
    best, most = None, None
    for number, start, length in windows:
        if start <= token < start + length:
            score = min(token - start, start + length - 1 - token) + 0.01 * length
            if most is None or score > most:
                best, most = number, score
    return best


text = strategies.lists(strategies.sampled_from(["a", "films", "was", "good", "é!", "?"])).map(
    " ".join
)


@hypothesis.settings(max_examples=18, deadline=None, derandomize=True, database=None)
@hypothesis.given(
    rows=strategies.lists(strategies.tuples(text, text), min_size=1, max_size=8),
    template=strategies.sampled_from([BERT, LEFT]),
    sequence_length=strategies.integers(8, 16),
    stride=strategies.integers(1, 9),
    longest=strategies.integers(1, 4),
)
def test_windows_equal_the_reference(rows, template, sequence_length, stride, longest):
    packer = Packer(template, TOKENIZER, sequence_length, rows=Windows(stride, longest))
    columns = dict(zip(packer.names, map(tf.constant, zip(*rows))))
    packed = packer(columns)
    expected = reference(rows, template, sequence_length, stride, longest)
    assert packed["example"].numpy().tolist() == [example for example, *_ in expected]
    columns = ("token_ids", "segment_ids", "start", "end")
    assert {value.dtype for value in packed.values()} == {tf.int32}
    packed = {name: value.numpy() for name, value in packed.items()}
    for i, (example, row, start, _) in enumerate(expected):
        own = [(n, *window[2:]) for n, window in enumerate(expected) if window[0] == example]
        places = iter(range(start, 10**6))
        for column in range(len(packed["start"][i])):
            is_best = False
            if packed["start"][i, column] >= 0:
                is_best = best_window(own, next(places)) == i
            assert packed["max_context"][i, column] == is_best
        real = packed["padding_mask"][i] == 1
        for name, values in zip(columns, zip(*row)):
            assert packed[name][i][real].tolist() == list(values), name
        assert (packed["start"][i][~real] == -1).all()


@pytest.mark.slow
def test_in_a_dataset_and_in_a_graph():
    packer = Packer(BERT, TOKENIZER, 12, padding="fixed", rows=Windows(3, 4))
    columns = {"question": ["a film", "good !"], "context": ["a good film was " * 9, ""]}
    expected = packer({name: tf.constant(column) for name, column in columns.items()})
    assert expected["example"].numpy().tolist() == [0] * 11 + [1]
    # As `fit` has it: the code is made of operations, and needs no AutoGraph.
    pack = tf.autograph.experimental.do_not_convert(packer)
    (packed,) = tf.data.Dataset.from_tensor_slices(columns).batch(2).map(pack)
    function = tf.function(lambda **texts: packer(texts), autograph=False)
    served = function.get_concrete_function(**packer.specs())
    for actual in (packed, served(**{n: tf.constant(c) for n, c in columns.items()})):
        for name, value in expected.items():
            np.testing.assert_array_equal(actual[name], value)
    assert packed["token_ids"].shape[1] == 12
    text = columns["context"][0]
    for start, end, token in zip(*(packed[n][5].numpy() for n in ("start", "end", "token_ids"))):
        assert start < 0 or text[start:end] == TOKENIZER.id_to_token(token)


def test_bad_arguments():
    with pytest.raises(ValueError, match="stride=0"):
        Windows(stride=0)
    packer = Packer(BERT, TOKENIZER, 10, rows=Windows(3, max_question_length=7))
    with pytest.raises(ValueError, match=r"max_question_length=7 leaves no room .* less than 7"):
        packer({"question": tf.constant(["a"]), "context": tf.constant(["a"])})
