"""Permutation language modelling: which tokens are predicted, in which order, and who sees what."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import BertBackbone, XLNetBackbone
from keras_lm.objectives import IGNORED, MaskedLanguageModel, PermutationLanguageModel
from keras_lm.objectives.permutation_lm import choose_spans
from keras_lm.tasks import Pretrainer
from keras_lm.tokenizers import WordPieceTokenizer

PAD, UNKNOWN, CLS, SEP, MASK = range(5)
VOCABULARY = 400
NAMES = ("permutation_mask", "target_mapping")
TEXTS = ["11 13 17 19", "8 10", "20 22 23 25 26", "7"]


@pytest.fixture(scope="module")
def tokenizer():
    """Every third entry goes on with a word."""
    words = [f"##{i}" if i % 3 == 0 else str(i) for i in range(5, VOCABULARY)]
    return WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words], True)


@pytest.fixture
def make(tokenizer):
    def make(seed=0, **options):
        one = PermutationLanguageModel(seed=seed, **options)
        one.set_tokenizer(tokenizer)
        return one

    return make


def batch(lengths, columns, seed=0):
    """Rows of padding, tokens, [SEP], tokens, [SEP] [CLS]; `lengths` counts all but padding."""
    ids = np.random.default_rng(seed).integers(5, VOCABULARY, (len(lengths), columns))
    first = columns - np.array(lengths)[:, None]
    place = np.arange(columns)[None]
    ids = np.where((place - first == 5) | (place == columns - 2), SEP, ids)
    ids = np.where(place == columns - 1, CLS, np.where(place < first, PAD, ids))
    return {"token_ids": ids.astype("int32"), "padding_mask": (place >= first).astype("int32")}


def corrupted(one, inputs, training=True):
    results, labels = one.corrupt(inputs, training)
    return (*(np.asarray(results[name]) for name in NAMES), np.asarray(labels))


# === Which tokens ===


def spans_of_a_loop(starts, is_text, goal, lengths, chance, context):
    """The authors' loop, on one row without padding, with the same random numbers."""
    taken, number, place, visited = set(), 0, 0, 0
    while place < len(starts) and number < goal:
        size = min(lengths[visited], goal - number)
        around = size * context
        before = int(np.float32(chance[visited]) * np.float32(around))
        visited += 1
        begin = place + before
        while begin < len(starts) and not starts[begin]:
            begin += 1
        if begin >= len(starts) or begin + size >= len(starts):
            break
        run = [column for column in range(begin, begin + size) if is_text[column]]
        taken.update(run)
        number += len(run)
        place = begin + size + around - before
    return taken


@pytest.mark.parametrize("padding", [0, 7])
def test_spans_are_those_of_a_plain_loop(padding):
    rng = np.random.default_rng(1)
    rows = 50
    shape = rows, 60
    starts, is_text = rng.random(shape) < 0.7, rng.random(shape) < 0.95
    lengths, chance = rng.integers(1, 6, shape), rng.random(shape).astype("float32")
    goal = rng.integers(1, 12, (rows, 1))
    width = [(0, 0), (padding, 0)]
    actual = choose_spans(
        *(tf.constant(np.pad(x, width)) for x in (starts, np.ones(shape, "int32"), is_text)),
        *(tf.constant(x.astype("int32")) for x in (goal, np.pad(lengths, [(0, 0), (0, padding)]))),
        tf.constant(np.pad(chance, [(0, 0), (0, padding)])),
        6,
    ).numpy()[:, padding:]
    for row in range(rows):
        numbers = goal[row, 0], lengths[row], chance[row], 6
        expected = spans_of_a_loop(starts[row], is_text[row], *numbers)
        assert set(np.flatnonzero(actual[row])) == expected


def test_one_token_in_six_is_predicted(make):
    inputs = batch([120] * 200 + [60] * 200 + [9] * 50 + [4] * 2, 120)
    _, mapping, labels = corrupted(make(), inputs)
    assert labels.shape == (452, 20)
    number = (labels != IGNORED).sum(axis=1)
    assert set(number[:200]) == {20}
    assert set(number[200:400]) == {10}
    assert set(number[400:]) == {1}
    np.testing.assert_array_equal(mapping.sum(axis=2), labels != IGNORED)
    ids = inputs["token_ids"]
    np.testing.assert_array_equal((mapping @ ids[:, :, None])[:, :, 0], np.maximum(labels, 0))
    assert {PAD, CLS, SEP, MASK}.isdisjoint(labels.ravel())
    is_target = mapping.sum(axis=1) > 0
    # Of spans n long there are about 1 / n as many as of single tokens, of which more are added.
    sizes = [
        len(run) for row in is_target[:200] for run in "".join(map(str, row.astype(int))).split("0")
    ]
    counts = np.bincount(sizes, minlength=8)
    assert counts[1] > counts[2] > counts[3] > counts[4] > counts[5] > 20 > counts[6:].sum()
    assert 0.3 < counts[3] / counts[2] < 0.9
    # No place is predicted much more often than others, but for a row's end.
    share = is_target[:200, 6:110].mean(axis=0)
    assert 0.08 < share.min() < share.max() < 0.27
    every = corrupted(make(context=1), inputs)[2]
    np.testing.assert_array_equal((every != IGNORED).sum(axis=1)[:400], [117] * 200 + [57] * 200)


def test_seeds_and_evaluation(make):
    inputs = batch([30] * 8, 30)
    first, again, other = (corrupted(make(seed), inputs)[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    one = make()
    assert (corrupted(one, inputs)[0] != corrupted(one, inputs)[0]).any()
    specs = [dict.fromkeys(inputs, tf.TensorSpec([None, None], tf.int32))]
    function = tf.function(lambda x: one.corrupt(x, False)[0], specs, autograph=False)
    expected = corrupted(make(4), inputs, training=False)
    for _ in range(2):
        np.testing.assert_array_equal(function(inputs)[NAMES[1]], expected[1])


@pytest.mark.slow
def test_under_xla(make):
    inputs = batch([30] * 2 + [20] * 2, 30)
    corrupt = tf.function(make().corrupt, jit_compile=True, autograph=False)
    _, labels = corrupt(inputs)
    assert (labels.numpy() != IGNORED).sum(axis=1).tolist() == [5, 5, 3, 3]


# === In which order ===


def order_of(hidden, is_target, is_special):
    """The tokens with a place in the order of one row, the first ones first."""
    ordered = np.flatnonzero(is_target | is_special)
    known = np.flatnonzero(~(is_target | is_special))
    assert not hidden[:, known].any()  # all see what is known from the start,
    assert hidden[np.ix_(known, ordered)].all()  # which sees nothing else
    among = hidden[np.ix_(ordered, ordered)]
    np.testing.assert_array_equal(np.diag(among), is_target[ordered])
    np.fill_diagonal(among, 0)
    np.testing.assert_array_equal(among + among.T, 1 - np.eye(len(ordered)))
    rank = among.sum(axis=0)
    assert sorted(rank) == list(range(len(ordered)))  # a total order
    return ordered[np.argsort(rank, kind="stable")]


def rows_of(one, inputs):
    hidden, mapping, _ = corrupted(one, inputs)
    for row, ids in enumerate(inputs["token_ids"]):
        yield hidden[row], mapping[row].sum(axis=0) > 0, np.isin(ids, [PAD, CLS, SEP, MASK])


def test_a_token_sees_what_comes_before_it_in_one_order(make):
    orders = [order_of(*row) for row in rows_of(make(), batch([40] * 60 + [25] * 40, 40))]
    ascending = np.concatenate([np.diff(order) > 0 for order in orders])
    assert 0.4 < ascending.mean() < 0.6


def test_blocks_follow_each_other(make):
    one = make(permutation_length=10)
    inside = []
    for row in rows_of(one, batch([40] * 60, 40)):
        block = order_of(*row) // 10
        assert (np.diff(block) >= 0).all()
        inside.append(np.diff(order_of(*row))[np.diff(block) == 0] > 0)
    assert 0.35 < np.concatenate(inside).mean() < 0.65


def test_what_is_remembered_sees_nothing_after_it(make):
    one = make(reuse_length=24)
    number = []
    for hidden, is_target, is_special in rows_of(one, batch([48] * 40, 48)):
        assert hidden[:24, 24:].all()
        assert not hidden[24:, :24].any()
        for part in (slice(24), slice(24, None)):
            order_of(hidden[part, part], is_target[part], is_special[part])
        number.append([is_target[:24].sum(), is_target[24:].sum()])
    assert number == [[4, 4]] * 40


def test_reversed_rows_have_their_spans_from_right_to_left(make):
    """A span begins with the first token of a word, in either direction."""
    ids = np.tile([[7, 9] * 15], (40, 1)).astype("int32")
    is_reversed = (np.arange(40) >= 20).astype("int32")
    ids = np.where(is_reversed[:, None] > 0, ids[:, ::-1], ids)
    inputs = {"token_ids": ids, "is_reversed": is_reversed}
    _, mapping, _ = corrupted(
        make(context=10, longest=2), inputs | {"padding_mask": np.ones_like(ids)}
    )
    is_target = mapping.sum(axis=1) > 0
    assert (is_target.sum(axis=1) == 3).all()
    is_pair = is_target[:, :-1] & is_target[:, 1:]  # the first two tokens of a span
    places = [np.flatnonzero(row) % 2 for row in is_pair]
    assert np.concatenate(places[:20]).mean() < 0.4  # a chosen single may stand beside
    assert np.concatenate(places[20:]).mean() < 0.4


# === With a network ===


def network(vocabulary_size=VOCABULARY, **arguments):
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
    backbone = XLNetBackbone(vocabulary_size, **sizes | {"dropout": 0.0} | arguments)
    rng = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    return backbone


def test_no_target_sees_itself_or_later_ones(make):
    inputs = batch([30], 30)
    inputs["token_ids"][0] = [*range(8, 13), SEP, *range(20, 42), SEP, CLS]  # all differ, but SEP
    actual, _ = make().corrupt(inputs)
    hidden, mapping = (actual[name].numpy()[0] for name in NAMES)
    backbone, ids = network(), inputs["token_ids"][0]
    table = backbone.token_embedding.embeddings
    # Logits use the embedding too: the gradient is that of the state before them.
    with tf.GradientTape(persistent=True) as tape:
        states = backbone(actual)["sequence_output"]
        sums = [tf.reduce_sum(states[0, i] ** 3) for i in range(states.shape[1])]
    for i, place in enumerate(mapping.argmax(axis=1)):
        gradient = tf.convert_to_tensor(tape.gradient(sums[i], table)).numpy()
        moved = np.abs(gradient[ids]).sum(axis=1) > 1e-9
        is_seen = hidden[place] == 0
        is_sep = ids == SEP
        np.testing.assert_array_equal(moved[~is_sep], is_seen[~is_sep])


@pytest.mark.thorough
def test_it_learns(tokenizer):
    texts = [" ".join(map(str, range(i, i + 24, 2))) for i in range(7, 60, 5)]
    task = Pretrainer(network(num_layers=1, memory_length=4), tokenizer=tokenizer)
    assert [type(one) for one in task.objectives] == [PermutationLanguageModel]
    task.compile(optimizer=keras.optimizers.Adam(2e-2))
    history = task.fit(texts, epochs=8, batch_size=11, verbose=0).history
    assert set(history) == {"loss", "perplexity", "accuracy"}
    assert history["loss"][-1] < history["loss"][0] - 1


@pytest.mark.eager
def test_preset(tokenizer, tmp_path):
    task = Pretrainer(network(), [PermutationLanguageModel(seed=1)], tokenizer=tokenizer)
    task.save_to_preset(tmp_path)
    again = Pretrainer.from_preset(tmp_path)
    assert again.evaluate(TEXTS, verbose=0) == task.evaluate(TEXTS, verbose=0)
    packed = task.preprocess(TEXTS)
    np.testing.assert_array_equal(again(packed)["token_logits"], task(packed)["token_logits"])


def test_what_it_needs_is_said(tokenizer):
    for name in ("context", "longest", "permutation_length", "reuse_length"):
        with pytest.raises(ValueError, match=f"{name}=0: pass an int"):
            PermutationLanguageModel(**{name: 0})
    with pytest.raises(ValueError, match="permutation_length=9 exceeds reuse_length=8"):
        PermutationLanguageModel(permutation_length=9, reuse_length=8)
    with pytest.raises(ValueError, match="no special_ids: give the task a tokenizer"):
        PermutationLanguageModel().corrupt(batch([4], 4))
    bert = BertBackbone(VOCABULARY, 1, 2, 8, 8, max_sequence_length=8)
    with pytest.raises(ValueError, match=r"BertBackbone has no second stream.*MaskedLanguage"):
        Pretrainer(bert, [PermutationLanguageModel()], tokenizer=tokenizer)
    masked = Pretrainer(network(), [MaskedLanguageModel()], tokenizer=tokenizer)
    assert np.isfinite(masked.evaluate(TEXTS, verbose=0)).all()


# === Replicas ===


@pytest.mark.thorough
def test_two_replicas():
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def train_on_two():
    """Targets that come with the data give the losses of one replica; drawn ones, finite losses."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    packed = batch([12, 12, 12, 6], 12)
    drawn, labels = PermutationLanguageModel([PAD, CLS, SEP], seed=0).corrupt(packed)
    drawn = {name: np.asarray(value) for name, value in drawn.items()}
    losses = []
    for strategy in (mirrored, tf.distribute.get_strategy()):
        with strategy.scope():
            objective = PermutationLanguageModel([PAD, CLS, SEP])
            task = Pretrainer(network(attention_dropout=0.0), [objective])
            task.compile(optimizer=keras.optimizers.SGD(0.5))
            given = {"token_labels": np.asarray(labels)}
            run = task.fit(drawn, given, batch_size=4, epochs=3, shuffle=False, verbose=0)
            losses.append(run.history["loss"])
            assert np.isfinite(task.fit(packed, batch_size=4, verbose=0).history["loss"]).all()
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


if __name__ == "__main__":
    train_on_two()
