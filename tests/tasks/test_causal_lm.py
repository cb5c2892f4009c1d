"""Continuing, scoring and learning texts, on a GPT-2 of two blocks."""

import itertools
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm.generation import decoding
from keras_lm.generation.logits import BANNED
from keras_lm.models import GPT2Backbone, GPT3Backbone, GPTBackbone, GPTNeoBackbone
from keras_lm.objectives import (
    IGNORED,
    MaskedCrossentropy,
    MeanOfKnown,
    Perplexity,
    PerplexityOfLosses,
)
from keras_lm.tasks import CausalLM
from keras_lm.tokenizers import BytePairTokenizer, WordTokenizer, train_vocabulary

WINDOW = 40
PROMPTS = ["Hello world", "", "a prompt of many more words than the others have", "x"]


class CountingLM(CausalLM):
    """Counts how often it is traced, and says nothing but ASCII letters and spaces."""

    traces = 0

    def _finish(self):
        super()._finish()
        plain = [
            token.replace("Ġ", "").isascii() and token.replace("Ġ", "").isalpha()
            for token in (self.tokenizer.vocabulary if self.tokenizer else [])
        ]
        self.ban = np.where(plain, 0, BANNED).astype("float32") if plain else 0.0

    def next_logits(self, token_ids, padding_mask, cache):
        logits, cache = super().next_logits(token_ids, padding_mask, cache)
        return tf.maximum(logits + self.ban, BANNED), cache

    def all_logits(self, token_ids, padding_mask, cache):
        logits, cache = super().all_logits(token_ids, padding_mask, cache)
        return tf.maximum(logits + self.ban, BANNED), cache

    def continue_prompts(self, *args, **kwargs):
        self.traces += 1
        return super().continue_prompts(*args, **kwargs)


def make_backbone(vocabulary_size, seed=0, cls=GPT2Backbone, **options):
    backbone = cls(
        vocabulary_size, 2, 2, 16, 32, dropout=0.0, max_sequence_length=WINDOW, **options
    )
    random = np.random.default_rng(seed)
    for weight in backbone.weights:
        weight.assign(0.5 * random.normal(size=weight.shape))
    return backbone


@pytest.fixture(scope="module")
def tokenizer(goldens):
    return BytePairTokenizer.from_files(goldens("tokenizers") / "bytebpe-gpt2")


@pytest.fixture(scope="module")
def task(tokenizer):
    return CountingLM(make_backbone(tokenizer.vocabulary_size), tokenizer=tokenizer)


@pytest.fixture(scope="module")
def bare_task():
    """A task without a tokenizer, over a vocabulary of its own."""
    return CausalLM(make_backbone(50))


def ids_of(task, prompt):
    return task.tokenizer(prompt).numpy().tolist() or [task.tokenizer.special_id("bos")]


def by_recomputation(task, prompts, number):
    """Greedy ids after each prompt, each by a full forward pass without any cache."""
    rows = [list(ids) for ids in prompts]
    for _ in range(number):
        ids = tf.ragged.constant(rows).to_tensor()
        logits = task({"token_ids": ids}).numpy()  # nobody sees what comes later
        for row, own in zip(rows, logits, strict=True):
            row.append(int(np.argmax(own[len(row) - 1] + getattr(task, "ban", 0.0))))
    return [row[-number:] for row in rows]


# === Greedy ===


def test_greedy_equals_arg_max_by_full_recomputation(task):
    expected = by_recomputation(task, [ids_of(task, prompt) for prompt in PROMPTS], 9)
    expected = task.tokenizer.detokenize(expected).numpy()
    assert task.generate(PROMPTS, max_new_tokens=9) == [text.decode() for text in expected]


@pytest.mark.eager
def test_packed_prompts_padded_on_either_side_give_ids(bare_task):
    rows = [[7, 8, 9], [5], [1, 2, 3, 4, 5]]
    expected = by_recomputation(bare_task, rows, 6)
    for left in (False, True):
        ids, mask = np.zeros((3, 6), "int32"), np.zeros((3, 6), "int32")
        for i, row in enumerate(rows):
            here = slice(6 - len(row), None) if left else slice(len(row))
            ids[i, here], mask[i, here] = row, 1
        prompts = {"token_ids": ids, "padding_mask": mask}
        assert bare_task.generate(prompts, max_new_tokens=6) == expected
    assert bare_task.generate({"token_ids": [rows[0]]}, max_new_tokens=6) == expected[:1]
    stopped = bare_task.generate({"token_ids": [rows[0]]}, max_new_tokens=6, stop=expected[0][4])
    assert stopped == [expected[0][: expected[0].index(expected[0][4])]]


@pytest.mark.eager
def test_greedy_continuation_of_the_reference(goldens):
    folder = goldens("gpt2")
    task = CausalLM.from_preset(str(folder))
    expected = np.load(folder / "expected.npz")["out.greedy"][0]
    tokens = task.generate({"token_ids": expected[None, :4]}, max_new_tokens=len(expected) - 4)
    assert tokens == [expected[4:].tolist()]


# === Prompts ===


def test_a_string_is_a_batch_of_one(task):
    expected = task.generate(PROMPTS, max_new_tokens=9)
    assert task.generate("Hello world", max_new_tokens=9) == expected[:1]
    assert task.generate({"prompt": np.array(PROMPTS)}, max_new_tokens=9) == expected
    assert task.generate(PROMPTS, max_new_tokens=9, batch_size=3) == expected
    assert task.generate([]) == []


def test_an_empty_prompt_begins_at_bos(task):
    bos = task.tokenizer.special_id("bos")
    ids, _ = task.continue_ids(tf.ragged.constant([[bos]]), max_new_tokens=5)
    text = task.tokenizer.detokenize(ids).numpy()[0].decode()
    assert task.generate("", max_new_tokens=5) == [text]


def own_letters(template=None):
    return BytePairTokenizer(LETTERS, [], unknown_token="<unk>", template=template, **ENDS)


def own_words(**ends):
    return WordTokenizer(["<unk>", "<s>", "</s>", "a", "film"], "<unk>", **ends)


LETTERS = ["<unk>", "<s>", "</s>", "a", "b"]
ENDS = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize(
    ("tokenizer", "begins"),
    [
        (own_words(**ENDS), True),
        (own_words(eos_token="</s>"), False),  # there is none
        (own_letters(), True),
        (own_letters(("$A:0", "$A:0 $B:0")), False),
        (own_letters(("<s>:0 $A:0", "<s>:0 $A:0 $B:0")), True),
    ],
)
def test_prompts_begin_as_texts_do_unless_files_say_otherwise(tokenizer, begins):
    task = CausalLM(make_backbone(len(tokenizer.vocabulary)), tokenizer=tokenizer)
    ids, read = tokenizer(["a"]).to_list(), task.prompt_ids(tf.constant(["a"])).to_list()
    assert read == ([[tokenizer.special_id("bos"), *ids[0]]] if begins else ids)


@pytest.mark.parametrize("files", ["vocab.json merges.txt", "vocab.json merges.txt roles"])
def test_a_published_gpt2_reads_prompts_as_they_are(goldens, tmp_path, files):
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(goldens("tokenizers") / "bytebpe-gpt2" / name, tmp_path)
    if "roles" in files:
        config = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = BytePairTokenizer.from_files(tmp_path)
    task = CausalLM(make_backbone(tokenizer.vocabulary_size), tokenizer=tokenizer)
    assert task.prompt_ids(tf.constant(["x y"])).to_list() == tokenizer(["x y"]).to_list()


@pytest.mark.eager
@pytest.mark.parametrize("prompt", [b"\xff\xfea", "\ud800a", b"caf\xc3"])
def test_a_prompt_that_is_no_utf8_is_read_with_replacements(task, prompt):
    data = prompt if isinstance(prompt, bytes) else prompt.encode("utf-8", "surrogatepass")
    readable = task.tokenizer.detokenize(task.tokenizer([data])).numpy()[0].decode()
    assert "\ufffd" in readable
    assert task.generate([prompt], max_new_tokens=4) == task.generate(readable, max_new_tokens=4)


@pytest.mark.slow
@pytest.mark.eager
def test_a_prompt_of_a_hundred_thousand_tokens_keeps_its_last_ones(task):
    ids = task.tokenizer("so x" * 100_000).numpy()
    assert len(ids) >= 100_000
    expected = task.generate({"token_ids": ids[None, -(WINDOW - 6) :]}, max_new_tokens=6)
    text = task.tokenizer.detokenize(expected).numpy()[0].decode()
    assert task.generate("so x" * 100_000, max_new_tokens=6) == [text]


@pytest.mark.thorough
def test_no_new_tokens_at_all(task):
    assert task.generate(PROMPTS, max_new_tokens=0) == [""] * 4
    assert task.generate(PROMPTS[:1], max_new_tokens=0, num_beams=2) == [""]


@pytest.mark.thorough
@pytest.mark.eager
def test_the_window_may_be_filled_to_its_end(task):
    assert len(task.tokenizer(task.generate("x", max_new_tokens=WINDOW - 1)[0])) > 5
    answer = task.answer_all(["x", ""])
    assert answer["num_tokens"].tolist() == [WINDOW // 2] * 2
    assert answer["text"].tolist() == task.generate(["x", ""])


# === Sampling, beams and ends ===


def test_seeds_reproduce_whatever_stands_beside_a_row(task):
    options = {"max_new_tokens": 8, "temperature": 1.0, "top_p": 0.9}
    texts = task.generate(PROMPTS, seed=[1, 2, 3, 4], **options)
    assert task.generate(PROMPTS, seed=[1, 2, 3, 4], **options) == texts
    assert task.generate(PROMPTS[2], seed=3, **options) == texts[2:3]
    assert task.generate(PROMPTS[2], seed=5, **options) != texts[2:3]
    fresh = [task.generate("x", **options)[0] for _ in range(3)]
    assert len(set(fresh)) == 3


def test_limits_of_sampling_are_greedy(task):
    greedy = task.generate(PROMPTS, max_new_tokens=6)
    for options in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-9}):
        options = {"temperature": 1.0, "seed": 0} | options
        assert task.generate(PROMPTS, max_new_tokens=6, **options) == greedy
    assert task.generate(PROMPTS, max_new_tokens=6, temperature=0) == greedy


def test_several_sequences_come_as_a_list_for_each_prompt(task):
    options = {"max_new_tokens": 6, "temperature": 1.0, "seed": 1}
    texts = task.generate(PROMPTS, num_return_sequences=3, **options)
    assert [len(set(row)) for row in texts] == [3] * 4
    assert [row[0] for row in texts] == task.generate(PROMPTS, **options)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (GPT3Backbone, {"attention_windows": [3, None]}),
        *(
            pytest.param(cls, {}, marks=pytest.mark.thorough)
            for cls in (GPTBackbone, GPT2Backbone, GPTNeoBackbone)
        ),
    ],
)
def test_lookup_changes_no_text(cls, options):
    task = CausalLM(make_backbone(30, 1, cls, **options))
    ids = np.array([[7, 8, 9] * 4, [0] * 11 + [5], [0] * 7 + [1, 2, 3, 4, 5], [6] * 12])
    prompts = {"token_ids": ids, "padding_mask": ids > 0}
    for options in (
        {"max_new_tokens": WINDOW - 12},  # to the window's end
        {"max_new_tokens": [0, 20, 9, 13], "stop": 3, "repetition_penalty": 1.05},
        {"max_new_tokens": 20, "temperature": 0.7, "seed": 1, "num_return_sequences": 2},
    ):
        expected = task.generate(prompts, **options)
        for number in (1, 6):
            assert task.generate(prompts, prompt_lookup=number, **options) == expected


@pytest.mark.eager  # tests/generation/test_decoding.py does so in a graph
def test_long_prompts_are_read_in_parts(bare_task, monkeypatch):
    random = np.random.default_rng(3)
    ids = random.integers(1, 50, size=(3, 30))
    ids[1, :22] = ids[2, :5] = 0
    prompts = {"token_ids": ids, "padding_mask": ids > 0}
    expected = bare_task.generate(prompts, max_new_tokens=9)
    monkeypatch.setattr(decoding, "COLUMNS_AT_ONCE", 8)
    parts = CausalLM(bare_task.backbone)
    assert parts.generate(prompts, max_new_tokens=9) == expected
    assert parts.generate(prompts, max_new_tokens=9, prompt_lookup=3) == expected


def test_beams_find_texts_at_least_as_likely_as_greedy(task):
    prompts = [ids_of(task, prompt) for prompt in PROMPTS]
    rows = tf.ragged.constant(prompts, tf.int32)
    greedy, _ = task.continue_ids(rows, max_new_tokens=5)
    options = {"max_new_tokens": 5, "num_beams": 4, "length_penalty": 0.0}
    beams, number = task.continue_ids(rows, num_return_sequences=2, **options)
    assert number.numpy().tolist() == [5] * 8
    for i, prompt in enumerate(prompts):
        texts = greedy[i], beams[2 * i], beams[2 * i + 1]
        likely = [likelihood(task, prompt, text.numpy().tolist()) for text in texts]
        assert likely[1] >= likely[2]
        assert likely[1] >= likely[0] - 1e-4
    best = task.tokenizer.detokenize(beams).numpy()[::2]
    assert task.generate(PROMPTS, **options) == [text.decode() for text in best]


def likelihood(task, prompt, new):
    """The tokens after a prompt, among those that the task may generate."""
    logits = task({"token_ids": np.array([prompt + new])})[0].numpy() + task.ban
    scores = tf.nn.log_softmax(logits).numpy()
    return sum(scores[len(prompt) + i - 1, token] for i, token in enumerate(new))


def test_a_stop_string_may_lie_across_tokens(task):
    prompt = tf.ragged.constant([ids_of(task, PROMPTS[2])])
    (ids,), _ = task.continue_ids(prompt, max_new_tokens=12)
    pieces = [piece.decode() for piece in task.tokenizer.detokenize(ids[:, None]).numpy()]
    free = task.generate(PROMPTS[2], max_new_tokens=12)[0]
    assert free == "".join(pieces)
    for left, right in itertools.pairwise(pieces):
        stop = left[-1] + right[:2]
        options = {"max_new_tokens": 12, "stop": ["<none>", stop]}
        assert task.generate(PROMPTS[2], **options) == [free[: free.index(stop)]]
    beam = task.generate(PROMPTS[2], max_new_tokens=6, num_beams=2, stop=stop)[0]
    assert stop not in beam


@pytest.mark.slow
def test_processors_reach_the_loop(bare_task):
    def written(**options):
        return bare_task.generate({"token_ids": [[7]]}, max_new_tokens=20, **options)[0]

    free, once = written(), written(no_repeat_ngram_size=1)
    assert len(set(free)) < 20 and len(set(once)) == 20
    assert len(set(written(repetition_penalty=50.0))) > len(set(free))


def test_one_trace_serves_all_lengths_and_options(task):
    task.generate(PROMPTS, max_new_tokens=3)
    before = task.traces
    task.generate(["a few words", "more of them"], max_new_tokens=7, stop=["q", 5])
    task.generate(["a"] * 5, temperature=0.5, top_k=3, top_p=0.5, seed=3, num_return_sequences=2)
    task.generate("word " * 50, repetition_penalty=2.0, no_repeat_ngram_size=2)
    assert task.traces == before


@pytest.mark.parametrize(
    ("prompts", "arguments", "message"),
    [
        ("x", {"max_new_tokens": WINDOW}, "no room for a prompt in the window of 40"),
        ("x", {"max_new_tokens": -1}, "max_new_tokens=-1"),
        ("x", {"temperature": 1.0, "top_p": 1.5}, "top_p=1.5 .*at most 1"),
        ("x", {"top_k": 5}, "top_k=5 has no effect"),
        ("x", {"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences=3"),
        ("x", {"stop": ""}, "stop has an empty string"),
        ("x", {"stop": 5000}, "token id 5000"),
        (["x", "y"], {"seed": [1, 2, 3]}, "seed has 3 values for 2 prompts"),
        ("x", {"batch_size": 0}, "batch_size=0"),
        (["x", None], {}, r"prompt\[1\] is None"),
        ({"question": ["x"]}, {}, "question"),
        (3, {}, "is a int"),
        ({"token_ids": [[1, 2]], "padding_mask": [[0, 0]]}, {}, "no token in row 0"),
        ({"token_ids": [1, 2]}, {}, r"\(B, S\)"),
        ({"token_ids": [[1, 2]], "cache": 1}, {}, "unknown keys"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_before_anything_runs(task, prompts, arguments, message):
    with pytest.raises(ValueError, match=message):
        task.generate(prompts, **arguments)


def test_strings_need_a_tokenizer(bare_task):
    with pytest.raises(ValueError, match="no tokenizer"):
        bare_task.generate("x")
    with pytest.raises(ValueError, match="no tokenizer"):
        bare_task.score(["x"])


# === Scores ===


def slow_scores(task, text, stride):
    """Each token's log-likelihood, by one forward pass for each window."""
    ids = [task.tokenizer.special_id("bos"), *task.tokenizer(text).numpy().tolist()]
    scores, start = [], 0
    while len(scores) < len(ids) - 1:
        logits = task({"token_ids": np.array([ids[start : start + WINDOW]])})[0]
        values = tf.nn.log_softmax(logits).numpy()
        for i in range(len(scores) + 1, min(start + WINDOW, len(ids) - 1) + 1):
            scores.append(values[i - 1 - start, ids[i]])
        start += stride
    return scores


@pytest.mark.parametrize("stride", [None, 7, WINDOW])
def test_scores_equal_one_forward_pass_for_each_window(task, stride):
    texts = ["Hello world", "", "a long text of many words " * 8, "x"]
    actual = task.score(texts, stride=stride, batch_size=3)
    for i, text in enumerate(texts):
        expected = slow_scores(task, text, stride or WINDOW // 2)
        number = len(expected)
        assert actual["num_tokens"][i] == number
        np.testing.assert_allclose(actual["token_scores"][i, :number], expected, atol=1e-4)
        assert not actual["token_scores"][i, number:].any()
        np.testing.assert_allclose(actual["scores"][i], sum(expected), rtol=1e-4)
        mean = sum(expected) / max(number, 1)
        np.testing.assert_allclose(actual["perplexity"][i], np.exp(-mean), rtol=1e-4)
        tokens = task.tokenizer.tokens(task.tokenizer(text)).numpy().tolist()
        assert [t.encode() for t in actual["tokens"][i] if t] == tokens
    assert actual["perplexity"][1] == 1.0


@pytest.mark.parametrize("stride", [0, WINDOW + 1, 2.5])
def test_stride_lies_within_the_window(task, stride):
    with pytest.raises(ValueError, match="stride="):
        task.score(["x"], stride=stride)


# === Learning ===


@pytest.mark.eager
def test_loss_is_the_mean_over_the_next_tokens_that_there_are(tokenizer):
    task = CausalLM(make_backbone(tokenizer.vocabulary_size), tokenizer=tokenizer)
    task.compile(run_eagerly=True)
    texts = ["Hello world", "a few more words than there"]
    scores = []
    end = tokenizer.special_id("eos")
    for text in texts:
        ids = [end, *tokenizer(text).numpy().tolist(), end]
        values = tf.nn.log_softmax(task({"token_ids": np.array([ids])})[0]).numpy()
        scores += [values[i, token] for i, token in enumerate(ids[1:])]
    metrics = task.evaluate(texts, verbose=0, return_dict=True)
    np.testing.assert_allclose(metrics["loss"], -np.mean(scores), rtol=1e-5)
    np.testing.assert_allclose(metrics["perplexity"], np.exp(-np.mean(scores)), rtol=1e-4)
    packed = task.preprocess({"text": tf.constant(texts)})
    assert task.evaluate(packed, verbose=0, return_dict=True) == pytest.approx(metrics, rel=1e-5)
    labels = np.full(packed["token_ids"].shape, IGNORED)
    labels[0, 3] = packed["token_ids"][0, 4]
    one = task.evaluate(packed, labels, verbose=0, return_dict=True)
    np.testing.assert_allclose(one["loss"], -scores[3], rtol=1e-5)


@pytest.mark.thorough
def test_it_learns_texts_and_says_them(tokenizer):
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 64}
    backbone = GPT2Backbone(tokenizer.vocabulary_size, **size, dropout=0.0, max_sequence_length=20)
    task = CausalLM(backbone, tokenizer=tokenizer)
    task.compile(optimizer=keras.optimizers.Adam(0.01))
    history = task.fit(["The cat sat on the mat"] * 64, epochs=5, batch_size=8, verbose=0)
    perplexity = history.history["perplexity"]
    assert perplexity[-1] < 2 < perplexity[0]
    assert task.generate("") == ["The cat sat on the mat"]  # and ends by itself


@pytest.mark.thorough
def test_a_small_network_of_ones_own_continues_a_prompt():
    tokenizer = own_words(**ENDS)
    backbone = make_backbone(len(tokenizer.vocabulary))
    task = CausalLM(backbone, tokenizer=tokenizer)
    task.compile(optimizer=keras.optimizers.Adam(0.02))
    task.fit(["a film film a a film"] * 80, batch_size=8, epochs=3, verbose=0)
    prompts = ["", "a", "a film", "a film film a"]
    assert task.generate(prompts) == ["a film film a a film"[len(p) :].strip() for p in prompts]


def test_a_preset_holds_all_of_it(task, tmp_path):
    saved = CausalLM(task.backbone, tokenizer=task.tokenizer)
    saved.save_to_preset(tmp_path / "preset")
    loaded = CausalLM.from_preset(tmp_path / "preset")
    inputs = {"token_ids": np.array([[5, 6, 7]])}
    np.testing.assert_array_equal(loaded(inputs), task(inputs))
    assert loaded.tokenizer.vocabulary == task.tokenizer.vocabulary
    assert loaded.get_arguments() == saved.get_arguments()
    assert loaded.backbone.get_config() == saved.backbone.get_config()


# === Streaming ===


def test_continuations_are_in_the_order_of_the_prompts(task):
    options = {"max_new_tokens": 3, "temperature": 1.0, "seed": 1, "num_return_sequences": 2}
    expected = [task.generate(prompt, **options)[0] for prompt in PROMPTS]
    assert task.generate(PROMPTS, batch_size=2, **options) == expected
    expected = [task.generate(prompt, max_new_tokens=3)[0] for prompt in PROMPTS]
    assert task.generate(PROMPTS, max_new_tokens=3, batch_size=2) == expected


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 1.0, "top_k": 20, "seed": 3},
        {"repetition_penalty": 1.3, "stop": "e"},
        pytest.param({"prompt_lookup": 2}, marks=[pytest.mark.thorough, pytest.mark.eager]),
    ],
    ids=["greedy", "sampled", "stopped", "looked up"],
)
def test_stream_gives_the_pieces_of_generate(task, options):
    wholes = task.generate(PROMPTS[1:3], max_new_tokens=8, **options)
    for prompt, whole in zip(PROMPTS[1:3], wholes):
        pieces = list(task.stream(prompt, max_new_tokens=8, **options))
        assert "".join(pieces) == whole
        assert all(pieces)
        assert {"stop", "prompt_lookup"} & set(options) or len(pieces) > 4


@pytest.mark.slow
@pytest.mark.eager
def test_stream_keeps_characters_and_stop_strings_whole(task, tokenizer):
    plain = CausalLM(task.backbone, tokenizer=tokenizer)  # its random bytes are seldom characters
    whole = "".join(plain.stream("€ ☃", 20, temperature=4.0, seed=1))
    assert plain.generate("€ ☃", max_new_tokens=20, temperature=4.0, seed=1) == [whole]
    stop = whole[9:14]  # of several tokens
    assert (
        "".join(plain.stream("€ ☃", 20, temperature=4.0, seed=1, stop=stop))
        == whole[: whole.index(stop)]
    )


def test_stream_checks_its_arguments_before_the_first_piece(task):
    assert list(task.stream("a", max_new_tokens=0)) == []
    for wrong in ({"temperature": -1.0}, {"top_p": 0.5}, {"max_new_tokens": WINDOW}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            task.stream("a", **wrong)
    with pytest.raises(ValueError, match="prompt is a list"):
        task.stream(["a"])


@pytest.mark.parametrize(
    "name", ["GPT2Backbone", pytest.param("ReformerBackbone", marks=pytest.mark.eager)]
)
def test_losses_in_parts_are_those_of_all_logits(name, monkeypatch):
    """`MeanOfKnown` needs no logits of all tokens; what `fit` learns is the same."""
    monkeypatch.setattr("keras_lm.layers.chunks.NUMBERS_AT_ONCE", 5 * 60)
    ids = np.random.default_rng(0).integers(1, 60, (4, 9)).astype("int32")
    packed = {"token_ids": ids, "padding_mask": (np.arange(9) < [[9], [7], [5], [9]]).astype(int)}
    kinds = {
        MaskedCrossentropy(): [Perplexity()],
        MeanOfKnown(): [PerplexityOfLosses()],
    }
    results = []
    for loss, metrics in kinds.items():
        keras.utils.set_random_seed(0)
        task = CausalLM(tiny.make_backbone(name, 60))
        task.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=metrics)
        history = task.fit(packed, epochs=2, batch_size=2, verbose=0, shuffle=False).history
        results.append([*history["loss"], *next(history[n] for n in history if "perp" in n)])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4)


def test_prompts_of_published_folders_end_as_their_files_say(tmp_path):
    """Transformers puts eos after a prompt, too; a task made here ends the texts of `fit` alone."""
    letters = train_vocabulary("byte_pair", 280, texts=["a bc", "b c"])
    backbone = GPT2Backbone(letters.vocabulary_size, 1, 2, 8, 16, max_sequence_length=16)
    CausalLM(backbone, tokenizer=letters).save_to_huggingface(tmp_path / "theirs")
    (tmp_path / "theirs" / "tokenizer.json").unlink()  # which would say what is around texts
    path = tmp_path / "theirs" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"add_eos_token": True}))
    task = CausalLM.from_preset(tmp_path / "theirs")
    task.save_to_preset(tmp_path / "preset")
    (end,) = task.limits.end_ids
    for each in (task, CausalLM.from_preset(tmp_path / "preset")):
        assert each.prompt_ids(["a"]).to_list()[0][-1] == end
    by_hand = CausalLM(task.backbone, tokenizer=task.tokenizer)
    assert by_hand.prompt_ids(["a"]).to_list()[0][-1] != end
    assert by_hand.generation is None
