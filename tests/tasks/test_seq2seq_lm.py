"""Text to text: training, generation, likelihoods, files, and what is refused."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import GPT2Backbone, MarianBackbone, T5Backbone
from keras_lm.tasks import Seq2SeqLM, Task
from keras_lm.tokenizers import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["red", "green", "blue", "rot", "blau", "##s"]
TOKENIZER = WordPieceTokenizer([*SPECIAL, *WORDS], lowercase=True)
SOURCES = ["red green", "blue", "", "red red red blue green red", "unknown \u4e2d words"]
TARGETS = ["rot", "blau blau rot", "rot rot", "", "blaus"]


def make_backbone():
    return T5Backbone(len(SPECIAL + WORDS), 1, 2, 12, 16, dropout=0.0, num_buckets=8)


@functools.cache
def weights():
    """Drawn once, as Keras forgets all that is compiled when it is seeded."""
    keras.utils.set_random_seed(0)
    backbone = make_backbone()
    for weight in backbone.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.4))
    return backbone.get_weights()


def make(**arguments):
    backbone = make_backbone()
    backbone.set_weights(weights())
    arguments = {"sequence_length": 8} | arguments
    return Seq2SeqLM(backbone, tokenizer=TOKENIZER, **arguments)


@pytest.fixture(scope="module")
def task():
    return make()


def log_probabilities(task, source, *targets):
    """Those of the next token after targets of one length, computed without a cache: (rows, V)."""
    ids = np.array([[0, *ids] for ids in targets])
    packed = task.preprocess([source])
    packed = {name: np.repeat(value, len(ids), axis=0) for name, value in packed.items()}
    logits = task(packed | {"decoder_token_ids": ids})[:, -1]
    return np.asarray(keras.ops.log_softmax(logits))


def texts_of(rows):
    ids = tf.ragged.constant([[*row] for row in rows], tf.int32, ragged_rank=1)
    return [text.decode() for text in TOKENIZER.detokenize(ids).numpy()]


# === Training ===


@pytest.mark.thorough
def test_it_learns_to_translate(eagerly):
    task = make(target_length=4)
    sources, targets = ["red", "green blue", "blue red"], ["rot", "blau blau", "rot blau"]
    task.compile(optimizer=keras.optimizers.Adam(0.02))
    task.fit(sources * 40, targets * 40, epochs=6, batch_size=6, shuffle=False, verbose=0)
    with eagerly():
        loss, perplexity, accuracy = task.evaluate(sources, targets, verbose=0)
        np.testing.assert_allclose(perplexity, np.exp(loss), rtol=1e-5)
        assert accuracy == 1.0
        assert task.generate(sources) == targets
        assert task.generate(sources, num_beams=3) == targets


@pytest.mark.eager
def test_files_write_the_same(tmp_path):
    task = make(target_length=4)
    expected = task.generate(SOURCES, num_beams=2)
    assert len(set(expected)) > 2
    task.save_to_preset(tmp_path / "preset")
    task.save(tmp_path / "task.keras")
    for again in (
        Task.from_preset(tmp_path / "preset"),
        keras.saving.load_model(tmp_path / "task.keras"),
    ):
        assert type(again) is Seq2SeqLM
        assert again.get_arguments() == task.get_arguments()
        assert again.generate(SOURCES, num_beams=2) == expected


@pytest.mark.eager
def test_every_form_of_data_gives_the_same_step(task):
    x, y = SOURCES[:4], TARGETS[:4]
    inputs, labels = task.preprocess_with_labels({"text": tf.constant(x)}, tf.constant(y))
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    forms = [(x, y), (np.array(x), np.array(y)), ({"text": x}, y), (inputs, labels.numpy())]
    # All but a dataset become the same columns, before there are batches.
    losses = [task.test_on_batch(*form) for form in forms]
    losses += [task.evaluate(*form, batch_size=4, verbose=0) for form in (forms[0], (dataset,))]
    np.testing.assert_allclose(losses, [losses[0]] * len(losses), rtol=1e-6)
    after = []
    for form in (forms[0], (dataset,)):
        copy = make()
        if form is forms[0]:
            copy.train_on_batch(*form)
        else:
            copy.fit(*form, verbose=0)
        after.append(copy.test_on_batch(x, y))
    np.testing.assert_allclose(*after, rtol=1e-5)
    assert abs(after[0][0] - losses[0][0]) > 1e-4


def test_long_texts_are_truncated(task):
    inputs, labels = task.preprocess_with_labels(
        {"text": tf.constant(["red " * 50])}, tf.constant(["rot " * 50])
    )
    assert inputs["encoder_token_ids"].shape == (1, 8)
    assert labels.numpy()[0].tolist() == [TOKENIZER.token_to_id("rot")] * 7 + [3]


@pytest.mark.eager
def test_pairs(task):
    scores = [
        task.score(x, ["rot"])["scores"][0]
        for x in ((["red"], ["blue"]), {"text": ["red"], "text_pair": ["blue"]}, ["red"])
    ]
    assert scores[0] == scores[1] != scores[2]


def test_rows_of_like_sources_and_targets_come_together(task):
    sources = ["red " * (n % 2 + 1) for n in range(64)]
    targets = ["rot " * (n % 3 + 1) for n in range(64)]
    lengths = task.preprocessor.row_lengths(
        {"text": tf.constant(sources)}, np.array(targets, object)
    )
    order = np.argsort(lengths, kind="stable")
    expected = sorted(range(64), key=lambda n: (n % 2, n % 3))
    assert order.tolist() == expected
    inputs, labels = task.preprocess_with_labels(
        {"text": tf.constant(sources)}, tf.constant(targets)
    )
    assert not np.any(task.preprocessor.row_lengths(inputs, labels.numpy()))


def test_predict_pads_all_rows_alike(task):
    inputs, _ = task.preprocess_with_labels({"text": tf.constant(SOURCES)}, tf.constant(TARGETS))
    expected = task(inputs)
    answers = task.predict({name: value.numpy() for name, value in inputs.items()}, batch_size=2)
    np.testing.assert_allclose(answers, expected, atol=1e-5)


# === Generation ===


def greedy(task, sources, most):
    """The texts of the likeliest tokens up to the first end, computed without a cache."""
    packed, ids = task.preprocess(sources), np.zeros([len(sources), 1], "int32")
    for _ in range(most):
        logits = task(packed | {"decoder_token_ids": ids})[:, -1:]
        ids = np.concatenate([ids, np.argmax(logits, axis=-1)], axis=1)
    return texts_of(itertools.takewhile(lambda token: token != 3, row[1:]) for row in ids)


@pytest.mark.eager
def test_greedy_text_is_that_of_whole_passes(task):
    expected = greedy(task, SOURCES, 6)
    assert task.generate(SOURCES, max_new_tokens=6) == expected
    assert len(set(expected)) > 1


def best_pairs(task, source, divisor, with_scores=False):
    """All targets of up to two tokens, the likeliest first; two are divided by `divisor`."""
    vocabulary = [i for i in range(task.backbone.config["vocabulary_size"]) if i != 3]
    first = log_probabilities(task, source, [])[0]
    second = log_probabilities(task, source, *[[a] for a in vocabulary])
    results = {(): first[3]}
    for a, row in zip(vocabulary, second, strict=True):
        results[(a,)] = (first[a] + row[3]) / divisor
        results |= {(a, b): (first[a] + row[b]) / divisor for b in vocabulary}
    best = sorted(results, key=results.get, reverse=True)
    return [(ids, results[ids]) for ids in best] if with_scores else best


@pytest.mark.eager
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_beams_wider_than_the_vocabulary_find_the_best(task, penalty):
    texts = task.generate(
        ["red green"],
        max_new_tokens=2,
        num_beams=40,
        length_penalty=penalty,
        num_return_sequences=3,
    )
    assert texts == [texts_of(best_pairs(task, "red green", 2**penalty)[:3])]


SEARCHES = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": [1, 2, 3, 4, 5]},
    # With all that is only compared with whole passes eagerly: in a graph it does the same.
    "beams": {
        "num_beams": 3,
        "length_penalty": 0.5,
        "coverage_penalty": 0.5,
        "num_return_sequences": 2,
        "prefix": ["rot", "blau rot", "", "blau", "rot"],
        "forbidden": ["red green"],
        "stop": "##s",
    },
}


@pytest.mark.parametrize(
    "search", ["greedy", "sampled", pytest.param("beams", marks=pytest.mark.slow)]
)
def test_a_batch_gives_what_each_row_gives(task, eagerly, search):
    options = SEARCHES[search]
    together = task.generate(SOURCES, max_new_tokens=5, batch_size=3, **options)
    alone = [
        task.generate(
            [source],
            max_new_tokens=5,
            **{n: v[i : i + 1] if n in ("seed", "prefix") else v for n, v in options.items()},
        )[0]
        for i, source in enumerate(SOURCES)
    ]
    assert together == alone
    with eagerly():
        assert task.generate(SOURCES, max_new_tokens=5, **options) == together


@pytest.mark.eager
def test_a_prefix_is_continued(task):
    for options in ({}, {"num_beams": 2}):
        texts = task.generate(
            SOURCES, prefix=["rot", "blau rot", "", "blau", "rot"], max_new_tokens=4, **options
        )
        for text, begin in zip(texts, ["rot", "blau rot", "", "blau", "rot"], strict=True):
            assert text.startswith(begin)
    both = task.generate(["red"], prefix="blau", num_return_sequences=2, num_beams=2)
    assert all(text.startswith("blau") for text in both[0])


@pytest.mark.eager
def test_scores_are_those_of_the_search(task):
    options = {"max_new_tokens": 2, "num_beams": 40, "length_penalty": 2.0}
    texts, scores = task.generate(
        ["red green", "blue"], num_return_sequences=3, return_scores=True, **options
    )
    for source, row, actual in zip(["red green", "blue"], texts, scores, strict=True):
        expected = best_pairs(task, source, 2**2.0, with_scores=True)[:3]
        assert row == texts_of(ids for ids, _ in expected)
        np.testing.assert_allclose(actual, [score for _, score in expected], rtol=1e-4)
    best, first = task.generate(["red green", "blue"], return_scores=True, **options)
    assert best == [row[0] for row in texts]
    np.testing.assert_allclose(first, scores[:, 0], rtol=1e-5)
    with pytest.raises(ValueError, match="return_scores=True with num_beams=1"):
        task.generate(["red"], return_scores=True)


def unread(task, source, targets):
    """GNMT's coverage of each target, computed without padding: 0 if all was read, else below."""
    coverage = {}
    for length in {len(ids) for ids in targets}:
        same = [ids for ids in targets if len(ids) == length]
        packed = task.preprocess([source] * len(same))
        packed |= {"decoder_token_ids": np.array([[0, *ids] for ids in same])}
        results = task.backbone.cross_attention_probabilities(packed)
        results = np.mean(results, axis=(0, 2)).sum(axis=1)  # (blocks, B, N, T, S) → (B, S)
        coverage |= zip(same, np.log(np.minimum(results, 1)).sum(axis=1), strict=True)
    return coverage


@pytest.mark.slow
@pytest.mark.eager
def test_coverage_is_that_of_gnmt():
    task = make(target_length=3, num_beams=40, length_penalty=0.6, coverage_penalty=0.9)
    sources = ["red green blue red", "blue", ""]  # of several lengths, so padded
    options = {"num_return_sequences": 40, "return_scores": True}
    texts, scores = task.generate(sources, 2, coverage_penalty=0, **options)
    again, covering = task.generate(sources, 2, **options)
    orders = 0
    for source, row, plain, other, actual in zip(
        sources, texts, scores, again, covering, strict=True
    ):
        expected = best_pairs(task, source, (7 / 6) ** 0.6, with_scores=True)[:40]
        assert row == texts_of(ids for ids, _ in expected)
        np.testing.assert_allclose(plain, [score for _, score in expected], rtol=1e-4)
        left = unread(task, source, [ids for ids, _ in expected])
        with_coverage = {ids: score + 0.9 * left[ids] for ids, score in expected}
        best = sorted(with_coverage, key=with_coverage.get, reverse=True)
        assert other == texts_of(best)
        np.testing.assert_allclose(actual, [with_coverage[ids] for ids in best], rtol=1e-4)
        orders += row != other
    assert orders == 2  # where there is one token to read, nothing is left unread
    first = task.generate(sources, 2)
    assert first == [row[0] for row in again] == task.generate(sources, 2, batch_size=1)
    options = {"coverage_penalty": 0.2, "num_beams": 3}
    assert task.generate(sources, **options)  # the default is not in the way of others
    assert task.generate(["red"], num_beams=1)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"coverage_penalty": -1, "num_beams": 2}, "coverage_penalty=-1 is out of range"),
        ({"coverage_penalty": "0.2", "num_beams": 2}, "coverage_penalty='0.2'"),
        ({"coverage_penalty": 0.2}, "coverage_penalty=0.2 with num_beams=1"),
    ],
)
def test_coverage_that_is_refused(task, arguments, message):
    with pytest.raises(ValueError, match=message):
        task.generate(SOURCES, **arguments)
    with pytest.raises(ValueError, match=message):
        Seq2SeqLM(task.backbone, tokenizer=TOKENIZER, **arguments)


@pytest.mark.eager
def test_forbidden_words_are_not_written(task):
    options = {"num_beams": 3, "max_new_tokens": 6}
    free = task.generate(SOURCES, **options)
    words = [word for text in free for word in text.split()]
    once, pair = words[0], next(text for text in free if len(text.split()) > 1).split()[-2:]
    texts = task.generate(SOURCES, forbidden=[once, " ".join(pair)], **options)
    ids = [TOKENIZER([text]).to_list()[0] for text in texts]
    banned = [TOKENIZER([text]).to_list()[0] for text in (once, " ".join(pair))]
    assert all(
        row[i : i + len(each)] != each for row in ids for each in banned for i in range(len(row))
    )
    assert texts != free and any(texts)
    with pytest.raises(ValueError, match="forbidden has '', which has no tokens"):
        task.generate(["red"], forbidden=["red", " "])
    with pytest.raises(ValueError, match="pass a list"):
        task.generate(["red"], forbidden="red")


@pytest.mark.eager
def test_attention_between_words(task):
    sources, targets = ["red  reds blue", ""], ["blaus rot", "reds"]
    first, second = task.attention(sources, targets)
    assert first["source"] == ["red", "reds", "blue", "[SEP]"]
    assert first["target"] == ["blaus", "rot", "[SEP]"]
    assert second["source"] == ["[SEP]"] and second["target"] == ["reds", "[SEP]"]
    np.testing.assert_allclose(second["attention"], [[1.0], [1.0]], rtol=1e-5)
    inputs, _ = task.preprocess_with_labels({"text": tf.constant(sources)}, tf.constant(targets))
    (tokens,) = task.backbone.cross_attention_probabilities(inputs)
    tokens = np.mean(tokens[0], axis=0)  # red red ##s blue [SEP]; blau ##s rot [SEP]
    words = np.stack([tokens[:, 0], tokens[:, 1] + tokens[:, 2], *tokens.T[3:5]], axis=1)
    expected = [(words[0] + words[1]) / 2, words[2], words[3]]
    np.testing.assert_allclose(first["attention"], expected, rtol=1e-5)
    (only,) = task.attention(sources[:1], targets[:1], block=0)
    np.testing.assert_allclose(only["attention"], expected, rtol=1e-5)
    with pytest.raises(ValueError, match="targets has 1 texts for 2 sources"):
        task.attention(sources, ["a"])


class Translator(WordPieceTokenizer):
    """Another vocabulary for targets, in which all ids are others."""

    @property
    def target(self):
        if not hasattr(self, "other"):
            tokens = [*WORDS, *SPECIAL, "one", "more"]
            self.other = WordPieceTokenizer(tokens, lowercase=True)
        return self.other


@pytest.mark.slow
def test_a_vocabulary_for_targets(eagerly):
    tokenizer = Translator([*SPECIAL, *WORDS], lowercase=True)
    rows = tokenizer.target.vocabulary_size
    keras.utils.set_random_seed(0)
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 12, "intermediate_dim": 16}
    backbone = MarianBackbone(
        len(SPECIAL + WORDS), decoder_vocabulary_size=rows, dropout=0.0, **size
    )
    task = Seq2SeqLM(backbone, tokenizer=tokenizer, sequence_length=8, target_length=4)
    task.compile(optimizer=keras.optimizers.Adam(0.02))
    sources, targets = ["red", "green blue"], ["one", "more blau"]
    task.fit(sources * 60, targets * 60, epochs=4, batch_size=4, shuffle=False, verbose=0)
    with eagerly():
        for beams in (1, 2):  # which end at the targets' own end token
            assert task.generate(sources, num_beams=beams, max_new_tokens=4) == targets
        assert task.score(["red"], ["one"])["tokens"].tolist() == [["one", "[SEP]"]]
    with pytest.raises(ValueError, match=r"target has 13 entries.* has 11 rows"):
        Seq2SeqLM(MarianBackbone(len(SPECIAL + WORDS), **size), tokenizer=tokenizer)


@pytest.mark.eager
def test_marian_never_writes_padding_which_counts_in_scores():
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 12, "intermediate_dim": 16}
    keras.utils.set_random_seed(0)
    task = Seq2SeqLM(MarianBackbone(len(SPECIAL + WORDS), **size), tokenizer=TOKENIZER)
    bias = np.where(np.arange(len(SPECIAL + WORDS)) == 0, 5.0, 0.0)  # likely wherever it is allowed
    bias[SPECIAL.index("[SEP]")] = -9.0
    task.head.bias.assign(bias)
    for forbidden in (None, ["rot", "blau blau"]):
        options = {"max_new_tokens": 3, "forbidden": [*SPECIAL[1:3], "[MASK]", *(forbidden or [])]}
        assert not any("[PAD]" in text for text in task.generate(SOURCES, **options))
        texts, scores = task.generate(SOURCES, num_beams=2, return_scores=True, **options)
        actual = task.score(SOURCES, texts)
        assert (actual["num_tokens"] == 4).all()  # with the end
        # Of the probabilities as they are, those of texts with padding among them.
        np.testing.assert_allclose(scores, actual["token_scores"][:, :3].mean(1), rtol=1e-4)
        assert (scores < -4).all()


@pytest.mark.eager
def test_stop_and_the_default_length(task):
    whole = task.generate(["red green"], max_new_tokens=8)[0]
    word = whole.split()[1]
    assert task.generate(["red green"], max_new_tokens=8, stop=word)[0].strip() == (
        whole[: whole.index(word)].strip()
    )
    long = make(target_length=3)
    assert all(len(TOKENIZER([text])[0]) <= 3 for text in long.generate(SOURCES))


@pytest.mark.slow
@pytest.mark.eager
def test_beams_of_the_task_are_those_of_the_answer():
    task = make(num_beams=3, length_penalty=2.0, target_length=4)
    expected = task.generate(SOURCES, num_beams=3, length_penalty=2.0)
    assert task.generate(SOURCES) == expected
    assert task.answer_all(SOURCES)["text"].tolist() == expected
    greedy = make(target_length=4).generate(SOURCES)
    assert task.generate(SOURCES, num_beams=1) == greedy


# === Likelihoods ===


def test_score_is_the_sum_over_tokens(task):
    actual = task.score(SOURCES, TARGETS, batch_size=2)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        ids = [*TOKENIZER([target]).to_list()[0], 3]
        logits = task(task.preprocess([source]) | {"decoder_token_ids": np.array([[0, *ids[:-1]]])})
        each = np.asarray(keras.ops.log_softmax(logits))[0, np.arange(len(ids)), ids]
        np.testing.assert_allclose(actual["scores"][row], sum(each), rtol=1e-4)
        np.testing.assert_allclose(actual["token_scores"][row, : len(ids)], each, rtol=1e-4)
        assert actual["num_tokens"][row] == len(ids)
        np.testing.assert_allclose(actual["perplexity"][row], np.exp(-np.mean(each)), rtol=1e-4)
        assert actual["tokens"][row, len(ids) - 1] == "[SEP]"
        assert set(actual["tokens"][row, len(ids) :]) <= {""}


# === What is refused ===


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (["a", "b"], ["a"], "labels has 1 rows for 2 examples"),
        (["a"], [None], r"labels\[0\] is None"),
        (["a"], [1.5], r"labels\[0\] is .*1.5"),
        (["a"], [3], "labels are ids, and x are texts"),
        ([], [], "x is empty"),
        ("a", ["b"], "is a single example"),
    ],
)
def test_bad_data(task, x, y, message):
    with pytest.raises(ValueError, match=message):
        task.fit(x, y, verbose=0)


@pytest.mark.eager
def test_bad_calls(task):
    with pytest.raises(ValueError, match=r"no decoder_token_ids.*generate"):
        task.predict(["a"])
    with pytest.raises(
        ValueError, match=r"labels are missing.*the target of each source; .*generate"
    ):
        task.fit(["a", "b"], verbose=0)
    packed, _ = task.preprocess_with_labels({"text": tf.constant(["a"])}, tf.constant(["b"]))
    with pytest.raises(ValueError, match="labels are texts, and x is packed"):
        task.fit(packed, ["b"], verbose=0)
    with pytest.raises(ValueError, match="targets has 1 texts for 2 sources"):
        task.score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="prefix has 1 strings for 2 sources"):
        task.generate(["a", "b"], prefix=["a"])
    with pytest.raises(ValueError, match="num_beams=0"):
        task.generate(["a"], num_beams=0)
    with pytest.raises(ValueError, match="num_beams=2 with temperature"):
        task.generate(["a"], num_beams=2, temperature=1.0)
    with pytest.raises(ValueError, match="batch_size=0"):
        task.generate(["a"], batch_size=0)


def test_bad_tasks(task):
    with pytest.raises(ValueError, match="target_length=1"):
        Seq2SeqLM(task.backbone, tokenizer=TOKENIZER, target_length=1)
    with pytest.raises(ValueError, match="num_beams=0"):
        Seq2SeqLM(task.backbone, tokenizer=TOKENIZER, num_beams=0)
    with pytest.raises(
        ValueError, match=r"kind='seq2seq_lm'\. It takes an encoder-decoder, such as"
    ):
        Seq2SeqLM(GPT2Backbone(50, 1, 2, 16, 24), num_beams=2, coverage_penalty=0.2)
    without = Seq2SeqLM(task.backbone)
    with pytest.raises(ValueError, match="no tokenizer"):
        without.generate(["a"])
    nothing_to_end_with = WordPieceTokenizer(["[PAD]", "[UNK]", "a"], True, cls_token=None,
                                             sep_token=None, mask_token=None)  # fmt: skip
    with pytest.raises(ValueError, match="no eos and no sep token"):
        Seq2SeqLM(task.backbone, tokenizer=nothing_to_end_with)
