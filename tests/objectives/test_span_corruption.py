"""Span corruption: what is left and what is asked for are the text; T5's numbers; training."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import T5Backbone
from keras_lm.objectives import IGNORED, SpanCorruption, span_corruption_lengths
from keras_lm.tasks import Pretrainer, Seq2SeqLM
from keras_lm.tokenizers import WordPieceTokenizer

WORDS = [f"w{i}" for i in range(30)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "</s>", "[MASK]"]
SENTINELS = [f"<extra_id_{i}>" for i in range(6)]
TOKENIZER = WordPieceTokenizer(
    [*SPECIAL, *WORDS, *SENTINELS[::-1]],
    lowercase=True,
    sep_token="</s>",
    additional_special_tokens=SENTINELS,
)
FIRST = TOKENIZER.vocabulary_size - 1  # the first sentinel has the last id
END = TOKENIZER.special_id("sep")


def make(**arguments):
    objective = SpanCorruption(**arguments)
    objective.set_tokenizer(TOKENIZER)
    return objective


def batch(lengths, size, ends=False):
    random = np.random.default_rng(1)
    ids = random.integers(5, 5 + len(WORDS), size=(len(lengths), size)).astype("int32")
    mask = (np.arange(size) < np.array(lengths)[:, None]).astype("int32")
    if ends:
        ids[np.arange(len(lengths)), np.maximum(np.array(lengths) - 1, 0)] = END
    return {"token_ids": ids * mask, "padding_mask": mask}


def split(ids):
    """What stands before the first sentinel, and after each, of ids that end with the end token."""
    parts = [[]]
    assert ids[-1] == END and END not in ids[:-1]
    for token in ids[:-1]:
        if token > FIRST - len(SENTINELS):
            assert token == FIRST - (len(parts) - 1)  # they count down
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


@pytest.mark.parametrize("form", ["eager", "xla", "unknown"])
def test_source_and_target_make_up_the_text(form):
    objective = make(rate=0.3, mean_span=2.0, seed=3)
    lengths = [20, 13, 7, 2, 1, 0, 20]
    inputs = batch(lengths, 20)
    corrupt = objective.corrupt
    if form == "xla":
        corrupt = tf.function(corrupt, jit_compile=True, autograph=False)
    elif form == "unknown":
        spec = {name: tf.TensorSpec([None, None], tf.int32) for name in inputs}
        corrupt = tf.function(corrupt, input_signature=[spec], autograph=False)
    actual, labels = corrupt({name: tf.constant(value) for name, value in inputs.items()})
    actual, labels = {name: np.array(value) for name, value in actual.items()}, np.array(labels)
    assert actual["encoder_token_ids"].shape == (7, 20 - 6 + 3 + 1)
    assert labels.shape == actual["decoder_token_ids"].shape == (7, 6 + 3 + 1)
    for row, length in enumerate(lengths):
        text = inputs["token_ids"][row, :length].tolist()
        source = actual["encoder_token_ids"][row][actual["encoder_padding_mask"][row] > 0].tolist()
        known = labels[row] != IGNORED
        if length < 2:
            assert source == [*text, END] and not known.any()
            continue
        target = labels[row][known].tolist()
        decoder = actual["decoder_token_ids"][row][actual["decoder_padding_mask"][row] > 0].tolist()
        assert decoder == [0, *target[:-1]]  # the target, one place later
        kept, (nothing, *noise) = split(source), split(target)
        noise_number = max(round(length * 0.3), 1)
        assert nothing == [] and kept.pop() == []
        assert sum(map(len, noise)) == noise_number
        assert len(noise) == len(kept) == max(round(noise_number / 2), 1)
        assert all(kept) and all(noise)
        assert [t for pair in zip(kept, noise, strict=True) for part in pair for t in part] == text


def test_spans_are_drawn_by_chance_and_again_by_the_seed():
    inputs = batch([40] * 300, 40)
    actual, again, other = (np.array(make(seed=seed).corrupt(inputs)[1]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(actual, again)
    assert (actual != other).any()
    objective = make(seed=1)
    for training, same in ((True, False), (False, True)):
        twice = [np.array(objective.corrupt(inputs, training)[1]) for _ in range(2)]
        assert np.array_equal(*twice) == same
    # Two spans of 6 tokens together: the first has 1 to 5, each as often as the others.
    first = np.array([len(split(row[row != IGNORED].tolist())[1]) for row in actual])
    counts = np.bincount(first, minlength=6)[1:]
    assert counts.sum() == 300 and counts.min() > 30


def test_the_end_token_of_packing_is_no_part_of_the_text():
    whole, ended = batch([12], 13), batch([13], 13, ends=True)
    whole["token_ids"][:, :12] = ended["token_ids"][:, :12]
    for one, other in zip(*(tf.nest.flatten(make(seed=1).corrupt(x)) for x in (whole, ended))):
        np.testing.assert_array_equal(one, other)


def test_lengths_are_those_of_t5():
    assert span_corruption_lengths(512) == (568, 114)
    assert span_corruption_lengths(64, rate=0.5, mean_span=4.0)[0] >= 64
    tokens, targets = span_corruption_lengths(40, 0.3, 2.0)
    actual, labels = make(rate=0.3, mean_span=2.0, sentinels=WORDS).corrupt(batch([tokens], tokens))
    assert actual["encoder_token_ids"].shape == (1, 40) and labels.shape == (1, targets)
    with pytest.raises(ValueError, match="sequence_length=2"):
        span_corruption_lengths(2)


def test_there_are_no_more_spans_than_sentinels():
    actual, _ = make(sentinels=SENTINELS[:2]).corrupt(batch([40], 40))
    sentinels = np.array(actual["encoder_token_ids"])[0]
    assert sorted(sentinels[sentinels > FIRST - 6]) == [FIRST - 1, FIRST]


def test_what_cannot_be_is_refused():
    for arguments, message in [
        ({"rate": 0.0}, "rate=0.0"),
        ({"mean_span": 0.5}, "mean_span=0.5"),
        ({"sentinels": ["no"]}, "no sentinel 'no'"),
    ]:
        with pytest.raises(ValueError, match=message):
            make(**arguments)
    plain = WordPieceTokenizer([*SPECIAL, *WORDS], lowercase=True, sep_token="</s>")
    with pytest.raises(ValueError, match=r"no sentinel '<extra_id_0>'.*with_special_tokens"):
        SpanCorruption().set_tokenizer(plain)
    with pytest.raises(ValueError, match="give the task a tokenizer"):
        SpanCorruption().set_tokenizer(None)


@pytest.mark.slow
@pytest.mark.eager
def test_a_t5_is_pretrained_and_goes_on_as_a_task(tmp_path):
    keras.utils.set_random_seed(0)
    t5 = T5Backbone(TOKENIZER.vocabulary_size, 1, 2, 16, 24, num_buckets=8, dropout=0.0)
    task = Seq2SeqLM(t5, tokenizer=TOKENIZER, sequence_length=20)
    heads = {"seq2seq_lm": task.head}
    pretrainer = Pretrainer(
        t5, [SpanCorruption(seed=1)], heads, tokenizer=TOKENIZER, sequence_length=20
    )
    pretrainer.compile(optimizer=keras.optimizers.Adam(0.05))
    texts = [" ".join(WORDS[i : i + 12]) for i in range(0, 16, 4)]
    history = pretrainer.fit(texts * 4, batch_size=16, epochs=5, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] - 0.3
    packed = batch([12] * 4, 12)
    metrics = pretrainer.evaluate(packed, verbose=0, return_dict=True)
    inputs, labels = pretrainer.objectives[0].corrupt(packed, training=False)
    assert metrics["loss"] == pytest.approx(task.evaluate(inputs, labels, verbose=0)[0], rel=1e-4)
    task.save_to_preset(tmp_path / "t5")
    again = Pretrainer.from_preset(tmp_path / "t5", objectives=[SpanCorruption()])
    assert type(again.backbone) is T5Backbone  # not the encoder alone


MANY = [f"s{i}" for i in range(600)]  # sentinels, before all tokens
RATES = [(0.15, 3.0), (0.35, 3.0), (0.5, 2.0), (0.15, 10.0)]


def with_many_sentinels(rate, mean_span):
    objective = SpanCorruption(rate, mean_span, sentinels=MANY, seed=1)
    objective.set_tokenizer(
        WordPieceTokenizer(
            [*SPECIAL, *MANY], lowercase=True, sep_token="</s>", additional_special_tokens=MANY
        )
    )
    return objective.corrupt


def check_all_is_there(corrupt, size, shorter=0):
    """Each token of texts of `size` tokens, and of some shorter ones, is in source or target."""
    first = 1000  # of the ids of tokens
    lengths = np.arange(max(size - shorter, 2), size + 1)
    mask = (np.arange(size) < lengths[:, None]).astype("int32")
    ids = mask * (first + np.arange(size, dtype="int32"))
    actual, labels = corrupt({"token_ids": ids, "padding_mask": mask})
    both = np.array(actual["encoder_token_ids"]), np.array(labels)
    sums = sum((x - first).clip(0).sum(axis=1) for x in both)
    np.testing.assert_array_equal(sum((x >= first).sum(axis=1) for x in both), lengths)
    np.testing.assert_array_equal(sums, lengths * (lengths - 1) // 2)
    assert all((x == END).any(axis=1).all() for x in both)
    spans = [((x >= len(SPECIAL)) & (x < first)).sum(axis=1) for x in both]
    np.testing.assert_array_equal(*spans)


@pytest.mark.eager
@pytest.mark.parametrize("rate, mean_span", RATES)
def test_no_token_is_lost(rate, mean_span):
    corrupt = with_many_sentinels(rate, mean_span)
    for size in (2, 3, 90, 170, 190, 330, 350, 390, 670):
        check_all_is_there(corrupt, size, shorter=20)


@pytest.mark.slow
@pytest.mark.parametrize("rate, mean_span", RATES)
def test_no_token_is_lost_at_any_length(rate, mean_span):
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in ("token_ids", "padding_mask")}
    corrupt = with_many_sentinels(rate, mean_span)
    corrupt = tf.function(corrupt, input_signature=[spec], autograph=False)
    for size in range(2, 2049):
        check_all_is_there(corrupt, size)


def test_widths_follow_the_lengths_that_are_computed():
    tokens, targets = span_corruption_lengths(172)
    assert (tokens, targets) == (190, 40)  # 29 tokens in 10 spans, and the end
    check_all_is_there(with_many_sentinels(0.15, 3.0), tokens)
