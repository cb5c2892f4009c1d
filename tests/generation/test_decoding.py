"""The loop × a slow reference that asks the model anew for each token."""

import functools
import itertools
import resource

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.generation import decoding
from keras_lm.generation.decoding import MOST_SERVED, Ending, Limits, align, sample
from keras_lm.generation.options import batch_options

END, LETTERS = 0, "_abcdefghij"
LIMITS = Limits([END], 6, 3)
PROMPTS = [[1, 2, 3], [4], [5, 5, 5, 5, 5, 5], [2, 1]]


def detokenize(ids):
    return tf.strings.reduce_join(tf.gather(tf.constant(list(LETTERS)), ids), axis=1)


def ending(strings=(), ids=()):
    strings = tf.constant(list(strings), tf.string)
    return Ending(tf.constant([END, *ids], tf.int32), strings, detokenize)


@functools.cache
def loop(cls, *, looks_up):
    """`sample` for all models of a class, prompts, options and ends; its graph is traced once."""

    def run(numbers, token_ids, mask, options, stop_ids, strings, sequences, proposals):
        model = object.__new__(cls)
        vars(model).update(numbers)
        ends = Ending(stop_ids, strings, detokenize)
        proposals = proposals if looks_up else None
        return sample(model, token_ids, mask, options, ends, sequences, proposals)

    def call(*given):
        if "graph" not in vars(call):
            specs = tf.nest.map_structure(spec_of_any_size, given)
            call.graph = tf.function(run, autograph=False).get_concrete_function(*specs)
        return call.graph(*given)

    return run, call


def spec_of_any_size(tensor):
    return None if tensor is None else tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype)


def continued(model, prompts, ending, sequences=1, proposals=None, in_graph=True, **options):
    options = batch_options(len(prompts), **options)
    rows = tf.ragged.constant(prompts, tf.int32)
    token_ids, mask = align(rows, tf.fill([len(prompts)], 99))
    run = loop(type(model), looks_up=proposals is not None)[in_graph]
    numbers = {name: tf.constant(value) for name, value in vars(model).items()}
    whole = map(tf.constant, (sequences, proposals or 0))
    token_ids, number = run(numbers, token_ids, mask, options, *ending[:2], *whole)
    return [row[:n].tolist() for row, n in zip(token_ids.numpy(), number.numpy())]


def greedy(model, prompt, most, stop=lambda tokens: False):
    tokens = list(prompt)
    while len(tokens) - len(prompt) < most:
        token = int(np.argmax(model.logits(tokens)))
        if token == END:
            break
        tokens.append(token)
        if stop(tokens[len(prompt) :]):
            break
    return tokens[len(prompt) :]


def text(tokens):
    return "".join(LETTERS[token] for token in tokens)


def test_greedy_equals_arg_max_of_each_step(toy_model):
    actual = set()
    for seed in range(4):
        model = toy_model(len(LETTERS), seed)
        expected = [greedy(model, prompt, 12) for prompt in PROMPTS]
        assert continued(model, PROMPTS, ending(), max_new_tokens=12) == expected
        actual |= set(map(len, expected))
    assert len(actual) > 2 and 12 in actual  # some end by themselves, others do not


def test_each_row_has_its_own_length(toy_model):
    model = toy_model(len(LETTERS), 1)
    most = [0, 3, 1, 7]
    expected = [greedy(model, prompt, n) for prompt, n in zip(PROMPTS, most)]
    assert continued(model, PROMPTS, ending(), max_new_tokens=most) == expected


def test_the_model_reads_no_token_for_nothing(toy_model):
    model = toy_model(len(LETTERS), 1)
    model.table[:, END] = -99
    continued(model, PROMPTS, ending(), max_new_tokens=5)
    assert model.calls == 5  # the prompts, and all new tokens but the last
    model.calls.assign(0)
    continued(model, PROMPTS, ending(), max_new_tokens=0)
    assert model.calls == 1
    model.calls.assign(0)
    model.table[:, END] = 99
    assert continued(model, PROMPTS, ending(), max_new_tokens=50) == [[]] * 4
    assert model.calls == 1  # all rows end at once


@pytest.mark.parametrize("stop", ["c", "dg"])
def test_a_stop_string_ends_its_row_alone(toy_model, stop):
    stopped = 0
    for seed in range(3):
        model = toy_model(len(LETTERS), seed)
        expected = [greedy(model, p, 15, lambda tokens: stop in text(tokens)) for p in PROMPTS]
        assert continued(model, PROMPTS, ending([stop, "zz"]), max_new_tokens=15) == expected
        stopped += sum(stop in text(tokens) for tokens in expected)
    assert stopped


def test_a_stop_token_is_no_part_of_the_text(toy_model):
    model = toy_model(len(LETTERS), 2)
    free = continued(model, PROMPTS, ending(), max_new_tokens=9)
    stop = free[0][3]
    expected = [row[: row.index(stop)] if stop in row else row for row in free]
    assert continued(model, PROMPTS, ending(ids=[stop]), max_new_tokens=9) == expected


SAMPLING = {"temperature": 1.0, "top_k": 8, "top_p": 0.95}


def test_a_row_is_drawn_the_same_whatever_stands_beside_it(toy_model):
    model = toy_model(len(LETTERS), 3)
    seeds = [5, 6, 5, 2**40]
    together = continued(model, PROMPTS, ending(), max_new_tokens=9, seed=seeds, **SAMPLING)
    for prompt, seed, row in zip(PROMPTS, seeds, together):
        alone = continued(model, [prompt], ending(), max_new_tokens=9, seed=seed, **SAMPLING)
        assert alone == [row]
    shorter = continued(model, PROMPTS, ending(), max_new_tokens=4, seed=seeds, **SAMPLING)
    assert shorter == [row[:4] for row in together]


def test_several_sequences_differ_and_begin_with_the_one(toy_model):
    model = toy_model(len(LETTERS), 3)
    several = continued(model, PROMPTS, ending(), 3, max_new_tokens=9, seed=7, **SAMPLING)
    one = continued(model, PROMPTS, ending(), max_new_tokens=9, seed=7, **SAMPLING)
    assert several[::3] == one
    assert all(len({tuple(row) for row in several[i : i + 3]}) == 3 for i in range(0, 12, 3))


def test_limits_of_sampling_are_greedy(toy_model):
    model = toy_model(len(LETTERS), 4)
    expected = continued(model, PROMPTS, ending(), max_new_tokens=9)
    for limit in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}):
        options = {"temperature": 1.0, "seed": 3} | limit
        assert continued(model, PROMPTS, ending(), max_new_tokens=9, **options) == expected


def test_processors_look_at_prompt_and_text(toy_model):
    model = toy_model(len(LETTERS), 6)
    options = {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2}
    rows = continued(model, PROMPTS, ending(), max_new_tokens=12, **options)
    for prompt, row in zip(PROMPTS, rows):
        tokens = list(prompt)
        while len(tokens) < len(prompt) + 12:
            logits = model.logits(tokens).copy()
            seen = sorted(set(tokens))
            logits[seen] = np.where(logits[seen] < 0, logits[seen] * 1.5, logits[seen] / 1.5)
            logits[[b for a, b in itertools.pairwise(tokens) if a == tokens[-1]]] = -np.inf
            if np.argmax(logits) == END:
                break
            tokens.append(int(np.argmax(logits)))
        assert row == tokens[len(prompt) :]
    assert rows != continued(model, PROMPTS, ending(), max_new_tokens=12)


@pytest.mark.parametrize("proposals", [None, 2])
def test_no_rows(remembering_model, proposals):
    options = batch_options(0, max_new_tokens=3, temperature=1.0)
    empty, model = tf.zeros([0, 1], tf.int32), remembering_model(len(LETTERS))
    token_ids, number = sample(model, empty, empty, options, ending(), proposals=proposals)
    assert token_ids.shape[0] == number.shape[0] == 0


# === Long prompts ===


def test_prompts_are_read_in_parts(toy_model, monkeypatch):
    model, prompts = toy_model(len(LETTERS), 7), [*PROMPTS, [6, 7, 8] * 4]
    expected = [greedy(model, prompt, 5) for prompt in prompts]
    for columns, parts in ((5, 3), (6, 2), (12, 1)):
        monkeypatch.setattr(decoding, "COLUMNS_AT_ONCE", columns)
        anew = {"in_graph": False}  # in the graph is another number of columns
        assert continued(model, prompts, ending(), max_new_tokens=5, **anew) == expected
        model.calls.assign(0)
        continued(model, prompts, ending(), max_new_tokens=0, **anew)
        assert model.calls == parts


# === Prompt look-up ===


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_new_tokens": [0, 20, 7, 12]},
        SAMPLING | {"seed": [5, 6, 5, 7], "temperature": [0.0, 0.2, 0.5, 1.0]},
        {"repetition_penalty": 1.2, "no_repeat_ngram_size": [0, 4, 3, 0]},
    ],
    ids=["greedy", "lengths", "sampled", "processors"],
)
def test_lookup_changes_no_token(remembering_model, options):
    prompts = [[1, 2, 3, 1, 2, 3, 1], [4], [5, 5, 5, 5, 5, 5], [2, 1]]
    options, proposed = {"max_new_tokens": 16} | options, 0
    stops = ending(["dg", "zz"], ids=[9])
    for memory, proposals, ends in ((1, 3, ending()), (2, 8, stops), (999, 1, stops)):
        model = remembering_model(len(LETTERS), memory=memory)
        expected = continued(model, prompts, ends, **options)
        columns = int(model.columns)
        model.columns.assign(0)
        assert continued(model, prompts, ends, proposals=proposals, **options) == expected
        proposed += int(model.columns) - columns
    assert proposed > 0


def test_lookup_takes_fewer_steps_where_a_text_repeats_itself(remembering_model):
    model = remembering_model(len(LETTERS), memory=1)
    for token in range(1, 11):
        model.table[token + 1] = np.eye(11)[token % 10 + 1]  # 1, 2, …, 10, 1, 2, …
    text = continued(model, [[1, 2]], ending(), max_new_tokens=60)
    assert text[0][:18] == [*range(3, 11), *range(1, 11)] and model.calls == 60
    model.calls.assign(0)
    assert continued(model, [[1, 2]], ending(), proposals=4, max_new_tokens=60) == text
    # The prompt and ten new tokens one by one, until the last two occur again; then five at a time.
    assert model.calls == 10 + 10


# === Bounds ===


def test_too_many_new_tokens_are_refused_before_memory_is_taken(toy_model):
    """As in a server, which knows a graph only: nothing in Python looks at the number."""

    @tf.function(autograph=False)
    def write(token_ids, most):
        rows = tf.RaggedTensor.from_tensor(token_ids)
        model = toy_model(len(LETTERS))
        return sample(
            *decoding.prepare_generation(model, LIMITS, detokenize, rows, max_new_tokens=most)
        )

    prompt = tf.constant([[1, 2]])
    graph = write.get_concrete_function(*map(spec_of_any_size, (prompt, tf.constant(0))))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for most in (6, 10**8, 2**31 - 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="leaves no room for a prompt"):
            graph(prompt, tf.constant(most))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17  # kB
    assert graph(prompt, tf.constant(5))[1] <= 5


def test_a_stop_string_of_any_length(toy_model):
    model = toy_model(len(LETTERS))
    long = "x" * 2**24
    expected = continued(model, PROMPTS, ending(), max_new_tokens=4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert continued(model, PROMPTS, ending([long]), max_new_tokens=4) == expected
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17  # kB


def test_servers_write_no_more_than_there_is_memory_for():
    assert LIMITS.most_served == 5
    assert Limits([], None, 50).most_served == MOST_SERVED
    assert Limits([], None, 2 * MOST_SERVED).most_served == 2 * MOST_SERVED
