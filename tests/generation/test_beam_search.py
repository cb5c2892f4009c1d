"""Beam search × all texts there are, and × a slow reference with few beams."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.generation.beam_search import search
from keras_lm.generation.decoding import Ending, align
from keras_lm.generation.options import batch_options
from keras_lm.layers.state import FIXED

END, VOCABULARY = 0, 4
PROMPTS = [[1, 2, 3], [2], [3, 3, 1, 2, 1]]
ENDING = Ending(tf.constant([END]), tf.constant([], tf.string), None)


def search_texts(model, prompts, most, beams, penalty=1.0, sequences=1, **options):
    options = batch_options(len(prompts), max_new_tokens=most, **options)
    token_ids, mask = align(tf.ragged.constant(prompts, tf.int32), tf.fill([len(prompts)], 99))
    problem = (model, token_ids, mask, options, ENDING)
    token_ids, number, _ = search(*problem, beams, penalty, sequences)
    return [row[:n].tolist() for row, n in zip(token_ids.numpy(), number.numpy())]


def log_probabilities(model, tokens):
    logits = model.logits(tokens).astype("float64")
    return logits - np.log(np.exp(logits).sum())


def score_of(model, prompt, text, penalty):
    """Log-likelihood of a text with its end, over its length to the power of the penalty."""
    total = sum(
        log_probabilities(model, [*prompt, *text[:i]])[token] for i, token in enumerate(text)
    )
    return total / len(text) ** penalty


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_enough_beams_find_the_best_of_all_texts(toy_model, penalty):
    model, most = toy_model(VOCABULARY, seed=1), 3
    texts = [
        text
        for n in range(1, most + 1)
        for text in itertools.product(range(VOCABULARY), repeat=n)
        if END not in text[:-1] and (n == most or text[-1] == END)
    ]
    rows = search_texts(model, PROMPTS, most, beams=40, penalty=penalty, sequences=3)
    for i, prompt in enumerate(PROMPTS):
        best = sorted(texts, key=lambda text: -score_of(model, prompt, text, penalty))[:3]
        expected = [[token for token in text if token != END] for text in best]
        assert rows[3 * i : 3 * i + 3] == expected


def reference(model, prompt, most, beams, penalty):
    """The rule of `search`, one prompt and one candidate at a time."""
    running, done = [(0.0, [])], []
    for length in range(1, most + 1):
        candidates = [
            (score + value, [*text, token])
            for score, text in running
            for token, value in enumerate(log_probabilities(model, [*prompt, *text]))
        ]
        candidates = sorted(candidates, key=lambda c: -c[0])[: 2 * beams]
        running = []
        for rank, (score, text) in enumerate(candidates):
            if text[-1] != END and length < most:
                running.append((score, text))
            elif rank < beams:
                done.append((score / length**penalty, text))
        running = running[:beams]
        done = sorted(done, key=lambda c: -c[0])[:beams]
        if len(done) == beams and (not running or done[-1][0] >= running[0][0] / length**penalty):
            break
    return [[token for token in text if token != END] for _, text in done]


@pytest.mark.parametrize("penalty", [0.5, 1.5])
def test_few_beams_follow_the_rule(toy_model, penalty):
    lengths = set()
    for seed in range(3):
        model = toy_model(VOCABULARY, seed)
        rows = search_texts(model, PROMPTS, 9, beams=3, penalty=penalty, sequences=2)
        for i, prompt in enumerate(PROMPTS):
            expected = reference(model, prompt, 9, 3, penalty)[:2]
            assert rows[2 * i : 2 * i + 2] == expected
            lengths |= set(map(len, expected))
        if seed == 0:  # the same without the others
            assert search_texts(model, PROMPTS[:1], 9, 3, penalty, sequences=2) == rows[:2]
    assert len(lengths) > 1


def test_each_prompt_has_its_own_length(toy_model):
    model = toy_model(VOCABULARY, 5)
    rows = search_texts(model, PROMPTS, [0, 2, 6], beams=2)
    assert rows[0] == []
    assert rows[1:] == [reference(model, PROMPTS[i], n, 2, 1.0)[0] for i, n in ((1, 2), (2, 6))]


def test_no_ngram_occurs_twice(toy_model):
    model = toy_model(10, 6)
    model.table[:, END] = -99
    for prompt, row in zip(PROMPTS, search_texts(model, PROMPTS, 6, 2, no_repeat_ngram_size=2)):
        tokens = [*prompt, *row]
        pairs = list(itertools.pairwise(tokens))
        assert len(row) == 6
        assert len(set(pairs[-6:])) == 6 and not set(pairs[-6:]) & set(pairs[:-6])


def test_a_stop_string_ends_a_beam(toy_model):
    model = toy_model(VOCABULARY, 2)
    letters = tf.constant(list("_abc"))
    ending = Ending(
        tf.constant([END]),
        tf.constant(["ca"]),
        lambda ids: tf.strings.reduce_join(tf.gather(letters, ids), axis=1),
    )
    token_ids, mask = align(tf.ragged.constant(PROMPTS, tf.int32), tf.fill([3], 99))
    options = batch_options(3, max_new_tokens=9)
    token_ids, number, _ = search(model, token_ids, mask, options, ending, 3, 1.0, 3)
    texts = [
        "".join("_abc"[token] for token in row[:n])
        for row, n in zip(token_ids.numpy(), number.numpy())
    ]
    assert any(text.endswith("ca") for text in texts)
    assert not any("ca" in text[:-2] for text in texts)


def test_no_rows(toy_model):
    empty = tf.zeros([0, 1], tf.int32)
    options = batch_options(0, max_new_tokens=3)
    token_ids, number, _ = search(toy_model(VOCABULARY), empty, empty, options, ENDING, 2, 1.0)
    assert token_ids.shape[0] == number.shape[0] == 0


def test_what_the_state_holds_for_a_whole_search_stays_with_its_prompt(toy_model):
    class Conditioned(toy_model):
        """Its logits also depend on a number for each prompt, as on an encoder's text."""

        key = FIXED

        def initial_state(self, rows, length):
            start = super().initial_state(rows, length)
            return {"words": start, self.key: {"source": tf.range(rows)}}

        def next_logits(self, token_ids, padding_mask, state):
            logits, words = super().next_logits(token_ids, padding_mask, state["words"])
            source = state[self.key]["source"]
            return logits + 2 * tf.one_hot(1 + source, VOCABULARY), state | {"words": words}

    class Moving(Conditioned):
        key = "moving"

    fixed, moving = (
        search_texts(cls(VOCABULARY, seed=2), PROMPTS, 4, 3, sequences=2)
        for cls in (Conditioned, Moving)
    )
    assert fixed == moving
    assert fixed != search_texts(toy_model(VOCABULARY, seed=2), PROMPTS, 4, 3, sequences=2)
