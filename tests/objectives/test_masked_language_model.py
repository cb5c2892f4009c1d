"""Masked language modelling: which tokens are masked, how, and what the loss counts."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.objectives import (
    IGNORED,
    MaskedAccuracy,
    MaskedCrossentropy,
    MaskedLanguageModel,
    MaskedNGrams,
    MaskedSpans,
)
from keras_lm.objectives.span_boundary import SpanCrossentropy
from keras_lm.tokenizers import BytePairTokenizer, Tokenizer, WordPieceTokenizer

MASK, CLS, SEP, PAD, VOCABULARY = 4, 2, 3, 0, 1000


def objective(**options):
    options = {"special_ids": [CLS, SEP, PAD], "seed": 0} | options
    return MaskedLanguageModel(mask_id=MASK, vocabulary_size=VOCABULARY, **options)


def batch(lengths, columns, seed=0):
    """Rows of [CLS] tokens [SEP] and padding; `lengths` counts the tokens between."""
    ids = np.random.default_rng(seed).integers(5, VOCABULARY, (len(lengths), columns))
    mask = np.zeros((len(lengths), columns), "int32")
    for row, length in enumerate(lengths):
        ids[row, 0] = CLS
        ids[row, length + 1] = SEP
        ids[row, length + 2 :] = PAD
        mask[row, : length + 2] = 1
    return {
        "token_ids": tf.constant(ids, tf.int32),
        "segment_ids": tf.zeros_like(mask),
        "padding_mask": tf.constant(mask),
    }


def taken(inputs, positions):
    return np.take_along_axis(np.asarray(inputs["token_ids"]), np.asarray(positions), axis=1)


@pytest.mark.parametrize("rate", [0.15, 0.4, 1.0])
def test_what_is_masked(rate):
    lengths = [0, 1, 3, 10, 20, 38]
    inputs = batch(lengths, 40)
    corrupted, labels = objective(rate=rate).corrupt(inputs)
    positions, labels = corrupted["mask_positions"].numpy(), labels.numpy()
    assert corrupted["mask_positions"].dtype == "int32"
    known = labels != IGNORED

    # How many: the rounded share of the row's real tokens, one at the least.
    wanted = [min(length, max(1, round(rate * length))) for length in lengths]
    assert known.sum(axis=1).tolist() == wanted
    for row in range(len(lengths)):
        assert len(set(positions[row])) == positions.shape[1]  # no position twice

    # Which: labels are the originals, and none of them special or padding.
    originals = taken(inputs, positions)
    np.testing.assert_array_equal(labels[known], originals[known])
    assert not np.isin(originals[known], [CLS, SEP, PAD]).any()

    # All else stays: other positions, segments and mask.
    hidden = np.zeros((len(lengths), 40), bool)
    for row in range(len(lengths)):
        hidden[row, positions[row][known[row]]] = True
    before, after = inputs["token_ids"].numpy(), corrupted["token_ids"].numpy()
    np.testing.assert_array_equal(before[~hidden], after[~hidden])
    np.testing.assert_array_equal(corrupted["padding_mask"], inputs["padding_mask"])
    np.testing.assert_array_equal(corrupted["segment_ids"], inputs["segment_ids"])


def test_eighty_ten_ten():
    inputs = batch([126] * 600, 128)
    corrupted, labels = objective().corrupt(inputs)
    after, originals = taken(corrupted, corrupted["mask_positions"]), labels.numpy()
    known = originals != IGNORED
    after, originals = after[known], originals[known]
    assert len(originals) == 600 * 19
    assert (after == MASK).mean() == pytest.approx(0.8, abs=0.015)
    assert (after == originals).mean() == pytest.approx(0.1, abs=0.015)
    others = after[(after != MASK) & (after != originals)]
    assert len(others) / len(originals) == pytest.approx(0.1, abs=0.015)
    assert others.min() < 50 and others.max() >= VOCABULARY - 50  # from all of the vocabulary
    assert others.max() < VOCABULARY


@pytest.mark.parametrize("shares", [(0.85, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_shares(shares):  # the first is ELECTRA's
    one = objective(mask_share=shares[0], random_share=shares[1])
    corrupted, labels = one.corrupt(batch([126] * 300, 128))
    after, originals = taken(corrupted, corrupted["mask_positions"]), labels.numpy()
    after, originals = (x[labels.numpy() != IGNORED] for x in (after, originals))
    masked, kept = (after == MASK).mean(), (after == originals).mean()
    # Four standard deviations; a random token is at times the one that was there.
    bound = 1e-9 + 4 * np.sqrt(0.25 / len(originals)) * (0 < shares[0] < 1)
    assert masked == pytest.approx(shares[0], abs=bound + 4 / VOCABULARY * (shares[1] > 0))
    assert masked + kept == pytest.approx(
        1 - shares[1], abs=1e-9 + 4 / VOCABULARY * (shares[1] > 0)
    )


@pytest.mark.parametrize("shares", [(0.9, 0.2), (-0.1, 0.1), (0.8, -0.1), (1.1, 0.0)])
def test_shares_that_are_none_are_an_error(shares):
    with pytest.raises(ValueError, match=f"mask_share={shares[0]} .* sum of at most 1"):
        objective(mask_share=shares[0], random_share=shares[1])


def test_every_token_is_equally_likely():
    inputs = batch([18] * 4000, 20)
    corrupted, labels = objective(rate=0.15).corrupt(inputs)
    known = labels.numpy() != IGNORED
    counts = np.bincount(corrupted["mask_positions"].numpy()[known], minlength=20) / 4000
    assert counts[0] == counts[19] == 0
    np.testing.assert_allclose(counts[1:19], 3 / 18, atol=0.03)


@pytest.mark.parametrize("columns", [3, 7, 20, 40, 60, 100, 128, 512])
@pytest.mark.parametrize("rate", [0.15, 0.1, 0.3])
def test_number_of_columns(columns, rate):
    corrupted, labels = objective(rate=rate).corrupt(batch([columns - 2], columns))
    expected = math.ceil(round(rate * columns, 6))
    assert corrupted["mask_positions"].shape == labels.shape == (1, expected)


def test_a_row_without_text_has_nothing_to_predict():
    inputs = batch([0, 0], 6)
    empty = {key: tf.zeros_like(value) for key, value in inputs.items()}
    for some in (inputs, empty):
        corrupted, labels = objective().corrupt(some)
        assert (labels.numpy() == IGNORED).all()
        np.testing.assert_array_equal(corrupted["token_ids"], some["token_ids"])


def test_evaluation_is_deterministic_and_training_is_not():
    inputs = batch([30] * 8, 32)
    one = objective()
    first, first_labels = one.corrupt(inputs, training=False)
    one.corrupt(inputs)
    second, second_labels = objective(seed=7).corrupt(inputs, training=False)
    np.testing.assert_array_equal(first["token_ids"], second["token_ids"])
    np.testing.assert_array_equal(first_labels, second_labels)
    trained = [one.corrupt(inputs)[0]["token_ids"].numpy() for _ in range(2)]
    assert (trained[0] != trained[1]).any()


def test_seeds_reproduce():
    inputs = batch([30] * 8, 32)

    def run(seed):
        one = objective(seed=seed)
        return np.stack([one.corrupt(inputs)[0]["token_ids"].numpy() for _ in range(3)])

    np.testing.assert_array_equal(run(3), run(3))
    assert (run(3) != run(4)).any()


@pytest.mark.parametrize(
    "options", [{}, {"masks_per_text": 2, "token_counts": range(VOCABULARY), "random_share": 0.2}]
)
def test_in_a_function_of_unknown_shape(options):
    one = objective(**options)
    spec = tf.TensorSpec([None, None], tf.int32)
    keys = ("token_ids", "segment_ids", "padding_mask")
    function = tf.function(
        lambda inputs: one.corrupt(inputs, training=False),
        input_signature=[dict.fromkeys(keys, spec)],
        autograph=False,
    )
    for columns in (7, 20):
        inputs = batch([columns - 2] * 3, columns)
        actual, labels = function(inputs)
        expected, expected_labels = one.corrupt(inputs, training=False)
        np.testing.assert_array_equal(labels, expected_labels)
        for key in expected:
            np.testing.assert_array_equal(actual[key], expected[key])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"masks_per_text": 2, "token_counts": range(VOCABULARY)},
        {"token_weights": range(1, VOCABULARY + 1)},
    ],
)
def test_under_xla(options):
    one = objective(**options)
    inputs = batch([18] * 2, 20)
    corrupted, labels = tf.function(one.corrupt, jit_compile=True, autograph=False)(inputs)
    known = labels.numpy() != IGNORED
    np.testing.assert_array_equal(
        labels.numpy()[known], taken(inputs, corrupted["mask_positions"])[known]
    )


@pytest.mark.parametrize("rate", [0, -0.1, 1.1])
def test_bad_rate_is_an_error(rate):
    with pytest.raises(ValueError, match="pass a number above 0"):
        objective(rate=rate)


# === What a tokenizer tells ===

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def of_tokenizer(cls=MaskedLanguageModel, **options):
    """An objective over a vocabulary in which every other entry goes on with a word."""
    words = [f"##{i}" if i % 2 else str(i) for i in range(5, VOCABULARY)]
    one = cls(**({"seed": 0} | options))
    one.set_tokenizer(WordPieceTokenizer([*SPECIAL, *words], lowercase=True))
    return one


def test_a_tokenizer_tells_which_ids_there_are(goldens):
    one = of_tokenizer()
    assert (one.mask_id, one.vocabulary_size) == (MASK, VOCABULARY)
    assert one.special_ids == [PAD, CLS, SEP, MASK]  # an unknown token may be masked
    folder = goldens("tokenizers") / "bytebpe-roberta"
    roberta: Tokenizer = BytePairTokenizer.from_files(folder)
    one.set_tokenizer(roberta)
    assert one.mask_id == roberta.token_to_id("<mask>")
    special = [roberta.token_to_id(token) for token in ("<s>", "</s>", "<pad>", "<mask>")]
    assert one.special_ids == sorted(special)
    given = MaskedLanguageModel(mask_id=7, special_ids=[9])
    given.set_tokenizer(roberta)
    assert (given.mask_id, given.special_ids) == (7, [9])
    assert given.vocabulary_size == roberta.vocabulary_size


@pytest.mark.parametrize("options", [{}, {"mask_id": 4, "vocabulary_size": 9, "special_ids": []}])
def test_without_a_tokenizer_what_is_missing_is_an_error(options):
    one = MaskedLanguageModel(whole_words=True, **options)
    missing = "tokenizer" if options else "mask_id, vocabulary_size, special_ids, tokenizer"
    with pytest.raises(ValueError, match=f"has no {missing}: give the task a tokenizer"):
        one.corrupt(batch([3], 5))


# === Whole words ===


def words_of(row, mask):
    """The places of each word of a row of ids: even ids begin one, odd ids go on with it."""
    words, before = [], None
    for place, (token, real) in enumerate(zip(row, mask, strict=True)):
        if not real or token <= MASK:
            before = None
            continue
        if before is None or token % 2 == 0:
            words.append([])
        words[-1].append(place)
        before = token
    return words


@pytest.mark.parametrize("rate", [0.15, 0.4, 1.0])
def test_a_word_is_masked_as_a_whole(rate):
    lengths = [0, 1, 3, 10, 20, 38] * 5
    inputs = batch(lengths, 40, seed=1)
    corrupted, labels = of_tokenizer(rate=rate, whole_words=True).corrupt(inputs)
    positions, labels = corrupted["mask_positions"].numpy(), labels.numpy()
    known = labels != IGNORED
    originals = taken(inputs, positions)
    np.testing.assert_array_equal(labels[known], originals[known])
    ids, mask = inputs["token_ids"].numpy(), inputs["padding_mask"].numpy()
    for row, length in enumerate(lengths):
        assert len(set(positions[row])) == positions.shape[1]
        hidden = set(positions[row][known[row]])
        words = words_of(ids[row], mask[row])
        assert all(hidden.issuperset(word) or hidden.isdisjoint(word) for word in words)
        assert hidden <= {place for word in words for place in word}
        # As many as fit: no word that is left is short enough for what is left.
        left = min(length, max(1, round(rate * length))) - len(hidden)
        assert left >= 0
        assert not [word for word in words if hidden.isdisjoint(word) and len(word) <= left]
    outside = np.ones_like(mask, bool)
    for row in range(len(lengths)):
        outside[row, positions[row][known[row]]] = False
    np.testing.assert_array_equal(ids[outside], corrupted["token_ids"].numpy()[outside])
    masked = corrupted["token_ids"].numpy()[~outside]
    assert (masked == MASK).mean() > 0.6


def test_words_are_equally_likely_and_seeded():
    ids = tf.constant([[CLS, 6, 8, 7, 10, 12, 14, 16, SEP]] * 4000)  # the second has two pieces
    inputs = {"token_ids": ids, "padding_mask": tf.ones_like(ids)}
    corrupted, labels = of_tokenizer(rate=0.3, whole_words=True).corrupt(inputs)
    known = labels.numpy() != IGNORED
    assert (known.sum(axis=1) == 2).all()
    counts = np.bincount(corrupted["mask_positions"].numpy()[known], minlength=9) / 4000
    # Of six words two are chosen, or the second alone where it comes first: 1/6.
    np.testing.assert_allclose(counts[[2, 3]], 1 / 6, atol=0.03)
    np.testing.assert_allclose(counts[[1, 4, 5, 6, 7]], (2 - 2 / 6) / 5, atol=0.03)
    again, _ = of_tokenizer(rate=0.3, whole_words=True).corrupt(inputs)
    np.testing.assert_array_equal(again["token_ids"], corrupted["token_ids"])
    other, _ = of_tokenizer(rate=0.3, whole_words=True, seed=1).corrupt(inputs)
    assert (other["token_ids"].numpy() != corrupted["token_ids"].numpy()).any()


def test_whole_words_in_a_function_of_unknown_shape():
    one = of_tokenizer(whole_words=True)
    inputs = batch([18] * 8, 20)
    expected, labels = one.corrupt(inputs, training=False)
    spec = dict.fromkeys(inputs, tf.TensorSpec([None, None], tf.int32))
    function = tf.function(
        lambda x: one.corrupt(x, training=False), input_signature=[spec], autograph=False
    )
    actual, found_labels = function(inputs)
    np.testing.assert_array_equal(found_labels, labels)
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name])


@pytest.mark.slow
def test_whole_words_under_xla():  # which has random numbers of its own
    inputs = batch([18] * 8, 20)
    corrupt = of_tokenizer(whole_words=True).corrupt
    corrupted, labels = tf.function(corrupt, jit_compile=True, autograph=False)(inputs)
    positions, known = corrupted["mask_positions"].numpy(), labels.numpy() != IGNORED
    assert (known.sum(axis=1) > 0).all()
    for row, (ids, mask) in enumerate(zip(inputs["token_ids"], inputs["padding_mask"])):
        hidden = set(positions[row][known[row]])
        for word in words_of(ids.numpy(), mask.numpy()):
            assert hidden.issuperset(word) or hidden.isdisjoint(word)


# === Texts with next to nothing to mask ===


def few(name):
    """Rows that are all special, all padding, or one token between [CLS] and [SEP]."""
    rows = {
        "special": [[CLS, SEP, SEP, MASK]],
        "padding": [[PAD] * 4],
        "one token": [[CLS, 6, SEP, PAD]],
        "one long word": [[CLS, 6, 7, 9, 11, SEP]],
        "one column": [[6]],
    }
    ids = tf.constant(rows[name], tf.int32)
    return {"token_ids": ids, "padding_mask": tf.cast(ids != PAD, tf.int32)}


@pytest.mark.parametrize("cls", [MaskedLanguageModel, MaskedNGrams, MaskedSpans])
@pytest.mark.parametrize("options", [{}, {"masks_per_text": 2}])
def test_texts_with_next_to_nothing(cls, options):
    one = of_tokenizer(cls, **options)
    for name in ("special", "padding"):
        inputs = few(name)
        corrupted, labels = one.corrupt(inputs)
        assert (labels.numpy() == IGNORED).all()
        np.testing.assert_array_equal(corrupted["token_ids"], inputs["token_ids"])
    for name, place in (("one token", 1), ("one column", 0)):
        corrupted, labels = one.corrupt(few(name))
        assert labels.numpy().tolist() == [[6]]
        assert corrupted["mask_positions"].numpy().tolist() == [[place]]


@pytest.mark.parametrize(
    "one", [(MaskedLanguageModel, {"whole_words": True}), (MaskedNGrams, {}), (MaskedSpans, {})]
)
def test_a_text_without_a_word_that_fits_stays_as_it_is(one):
    inputs = few("one long word")  # of four tokens, with a budget of one
    corrupted, labels = of_tokenizer(one[0], **one[1]).corrupt(inputs)
    assert (labels.numpy() == IGNORED).all()
    np.testing.assert_array_equal(corrupted["token_ids"], inputs["token_ids"])


@pytest.mark.parametrize("cls", [MaskedLanguageModel, MaskedSpans])
def test_a_vocabulary_without_a_mask_token_is_an_error_at_once(cls):
    tokenizer = WordPieceTokenizer([*SPECIAL[:4], "a"], lowercase=True, mask_token=None)
    with pytest.raises(
        ValueError, match=r"no mask token, only .*'sep'.* with mask_token=.*mask_id"
    ):
        cls().set_tokenizer(tokenizer)
    one = cls(mask_id=4)
    one.set_tokenizer(tokenizer)
    assert one.special_ids == [PAD, CLS, SEP]


# === Random tokens as the corpus has them ===


def test_random_tokens_follow_their_counts():
    counts = np.zeros(VOCABULARY)
    counts[[10, 11, 999]] = 6, 3, 1
    one = objective(token_counts=counts, mask_share=0.0, random_share=1.0)
    corrupted, labels = one.corrupt(batch([126] * 300, 128))
    after = taken(corrupted, corrupted["mask_positions"])[labels.numpy() != IGNORED]
    for token, share in ((10, 0.6), (11, 0.3), (999, 0.1)):
        bound = 5 * np.sqrt(share * (1 - share) / len(after))
        assert (after == token).mean() == pytest.approx(share, abs=bound)
    assert set(after) == {10, 11, 999}


@pytest.mark.parametrize("counts", [[1, 2], [], [0] * VOCABULARY, [-1] + [1] * (VOCABULARY - 1)])
def test_counts_that_are_none_are_an_error(counts):
    with pytest.raises(ValueError, match="token_counts"):
        objective(token_counts=counts)


# === Rare tokens more often ===


def test_tokens_are_masked_by_their_weights():
    # Of rows with one token of weight 4 and three of weight 1, one token each is masked.
    weights = np.ones(VOCABULARY)
    weights[10] = 4
    inputs = batch([4] * 4000, 6)
    ids = inputs["token_ids"].numpy()
    ids[:, 1:5] = 10, 11, 12, 13
    one = objective(token_weights=weights, rate=0.25)
    _, labels = one.corrupt(inputs | {"token_ids": tf.constant(ids)})
    chosen = labels.numpy()[labels.numpy() != IGNORED]
    assert len(chosen) == 4000
    for token, share in ((10, 4 / 7), (11, 1 / 7), (12, 1 / 7), (13, 1 / 7)):
        bound = 5 * np.sqrt(share * (1 - share) / len(chosen))
        assert (chosen == token).mean() == pytest.approx(share, abs=bound)


def test_weights_that_differ_by_far_mask_as_many():
    weights = np.geomspace(1e-6, 1e6, VOCABULARY)
    lengths = [0, 1, 3, 10, 20, 38]
    _, labels = objective(token_weights=weights).corrupt(batch(lengths, 40))
    known = (labels.numpy() != IGNORED).sum(axis=1)
    assert known.tolist() == [min(n, max(1, round(0.15 * n))) for n in lengths]


@pytest.mark.parametrize("weights", [[1, 2], [], [0] * VOCABULARY, [np.nan] * VOCABULARY])
def test_weights_that_are_none_are_an_error(weights):
    with pytest.raises(ValueError, match="token_weights"):
        objective(token_weights=weights)


def test_weights_are_not_for_whole_words():
    with pytest.raises(ValueError, match="token_weights choose tokens"):
        MaskedLanguageModel(token_weights=[1.0], whole_words=True)


# === Static masking ===


def masks_of(one, inputs, training=True):
    return one.corrupt(inputs, training)[0]["token_ids"].numpy()


@pytest.mark.parametrize("cls", [MaskedLanguageModel, MaskedSpans])
def test_a_text_has_the_same_mask_in_every_epoch_and_batch(cls):
    one = of_tokenizer(cls, masks_per_text=1, seed=5)
    inputs = batch([18, 18, 12, 30], 32)
    first = masks_of(one, inputs)
    np.testing.assert_array_equal(masks_of(one, inputs), first)
    np.testing.assert_array_equal(
        masks_of(of_tokenizer(cls, masks_per_text=1, seed=5), inputs), first
    )
    # In another batch, of another width, and in another order.
    narrow = {name: value[2:0:-1, :20] for name, value in inputs.items()}
    np.testing.assert_array_equal(masks_of(one, narrow), first[2:0:-1, :20])
    assert (
        (masks_of(of_tokenizer(cls, masks_per_text=1, seed=6), inputs) != first).any(axis=1).all()
    )
    # Two texts that differ in one token have nothing else in common.
    other = dict(inputs, token_ids=tf.where(tf.range(32) == 4, 8, inputs["token_ids"]))
    assert (masks_of(one, other)[:, 6:] != first[:, 6:]).any(axis=1).all()


def test_a_text_has_one_of_several_masks():
    one = objective(masks_per_text=3)
    inputs = {name: tf.repeat(value, 300, axis=0) for name, value in batch([30], 32).items()}
    masks = masks_of(one, inputs)
    actual, counts = np.unique(masks, axis=0, return_counts=True)
    assert len(actual) == 3
    np.testing.assert_allclose(counts, 100, atol=5 * np.sqrt(300 * 2 / 9))
    again = np.unique(masks_of(one, inputs), axis=0)
    np.testing.assert_array_equal(again, actual)
    evaluated = np.unique(masks_of(one, inputs, training=False), axis=0)
    assert len(evaluated) == 1
    np.testing.assert_array_equal(
        masks_of(objective(seed=9, masks_per_text=3), inputs, False)[:1], evaluated
    )


def test_static_masks_have_berts_shares():
    one, inputs = objective(masks_per_text=1), batch([126] * 600, 128)
    corrupted, labels = one.corrupt(inputs)
    known = labels.numpy() != IGNORED
    assert (known.sum(axis=1) == 19).all()
    after, originals = taken(corrupted, corrupted["mask_positions"])[known], labels.numpy()[known]
    for share, actual in ((0.8, after == MASK), (0.1, after == originals)):
        bound = 5 * np.sqrt(share * (1 - share) / len(after))
        assert actual.mean() == pytest.approx(share, abs=bound)
    counts = np.bincount(corrupted["mask_positions"].numpy()[known], minlength=128)[1:127]
    np.testing.assert_allclose(counts / 600, 19 / 126, atol=5 * np.sqrt(0.15 * 0.85 / 600))


@pytest.mark.parametrize("number", [0, -1, 1.5])
def test_a_number_of_masks_that_is_none_is_an_error(number):
    with pytest.raises(ValueError, match=f"masks_per_text={number}: pass an int"):
        objective(masks_per_text=number)


# === Loss and metric ===

LABELS = np.array([[3, IGNORED, 0], [IGNORED, IGNORED, 2]])
LOGITS = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")


def cross_entropy(labels, logits):
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(log_probabilities, np.maximum(labels, 0)[..., None], -1)[..., 0]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_loss_is_the_mean_over_known_labels(dtype):
    expected = cross_entropy(LABELS, LOGITS)[LABELS != IGNORED].mean()
    loss = MaskedCrossentropy()(LABELS.astype(dtype), LOGITS)
    assert loss.shape == ()
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_loss_weighs_rows():
    losses, weights = cross_entropy(LABELS, LOGITS), np.array([[0.5], [2.0]])
    known = (LABELS != IGNORED) * weights
    loss = MaskedCrossentropy()(LABELS, LOGITS, sample_weight=weights[:, 0])
    assert loss.shape == ()
    assert float(loss) == pytest.approx((losses * known).sum() / 3, rel=1e-5)


def test_label_smoothing_spreads_a_share_over_all_classes():
    target = 0.9 * np.eye(5)[np.maximum(LABELS, 0)] + 0.1 / 5
    log_probabilities = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))
    expected = -(target * log_probabilities).sum(-1)[LABELS != IGNORED].mean()
    assert float(MaskedCrossentropy(0.1)(LABELS, LOGITS)) == pytest.approx(expected, rel=1e-5)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=f"^label_smoothing={share}: pass a number from 0"):
            MaskedCrossentropy(label_smoothing=share)


def test_nothing_to_predict_is_a_loss_of_zero():
    labels = np.full((2, 3), IGNORED)
    assert float(MaskedCrossentropy()(labels, LOGITS)) == 0.0
    metric = MaskedAccuracy()
    metric.update_state(labels, LOGITS)
    assert float(metric.result()) == 0.0


def test_accuracy_counts_known_labels_over_batches():
    metric = MaskedAccuracy()
    best = LOGITS.argmax(-1)
    right = np.where(LABELS == IGNORED, IGNORED, best)
    metric.update_state(right, LOGITS)
    wrong = np.array([[IGNORED, (best[0, 1] + 1) % 5, IGNORED], [IGNORED] * 3])
    metric.update_state(wrong, LOGITS)
    assert float(metric.result()) == pytest.approx(3 / 4)


def test_accuracy_weighs_rows():
    metric = MaskedAccuracy()
    labels = LOGITS.argmax(-1)
    labels[1] = (labels[1] + 1) % 5
    metric.update_state(labels, LOGITS, sample_weight=[3.0, 1.0])
    assert float(metric.result()) == pytest.approx(3 / 4)


def test_loss_and_metric_round_trip():
    for thing in (MaskedCrossentropy(0.1), SpanCrossentropy(), MaskedAccuracy()):
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(thing))
        assert type(again) is type(thing)
        assert again.get_config() == thing.get_config()
