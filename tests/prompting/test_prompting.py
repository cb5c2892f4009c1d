"""Prompts, choices by likelihood, and how GPT-2 does tasks zero-shot, on a GPT-2 of two blocks."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.data import window_batches
from keras_lm.models import GPT2Backbone
from keras_lm.prompting import (
    STOP_WORDS,
    Prompt,
    Prompted,
    answer_questions,
    choose,
    fill_blank,
    perplexity,
    predict_last_words,
    summarize,
    translate,
    wikitext,
)
from keras_lm.prompting.zero_shot import first_sentences, first_word
from keras_lm.tasks import CausalLM
from keras_lm.tokenizers import BytePairTokenizer

WINDOW = 80
PAIRS = [("sea otter", "loutre de mer"), ("peppermint", "menthe"), ("a bee", "une abeille")]


@pytest.fixture(scope="module")
def tokenizer(goldens):
    return BytePairTokenizer.from_files(goldens("tokenizers") / "bytebpe-gpt2")


@pytest.fixture(scope="module")
def task(tokenizer):
    backbone = GPT2Backbone(
        tokenizer.vocabulary_size, 2, 2, 16, 32, dropout=0.0, max_sequence_length=WINDOW
    )
    random = np.random.default_rng(0)
    for weight in backbone.weights:
        weight.assign(0.5 * random.normal(size=weight.shape))
    return CausalLM(backbone, tokenizer=tokenizer)


@pytest.fixture
def spoken(task, monkeypatch):
    """What `generate` is asked for; it says the same to every prompt."""
    calls = []

    def generate(prompts, **options):
        calls.append((list(prompts), options))
        return [" One. Two! Three? Four.\nmore"] * len(prompts)

    monkeypatch.setattr(task, "generate", generate)
    return calls


# === Prompts ===


def test_shots_of_a_prompt():
    prompt = Prompt("Translate English to French:", PAIRS)
    assert prompt.shots(0).text("cheese") == "Translate English to French:\ncheese =>"
    assert prompt.shots(1).text("cheese") == prompt.text("cheese", num_examples=1)
    assert prompt.text("cheese") == (
        "Translate English to French:\nsea otter => loutre de mer\npeppermint => menthe\n"
        "a bee => une abeille\ncheese =>"
    )
    assert (prompt.lead, prompt.stop) == (" ", "\n")


def test_templates_with_several_fields_and_a_tail():
    template = "{{{premise}}} Q: {question}\nA: {answer}."
    example = {"premise": "p{x}", "question": "q", "answer": "yes"}
    prompt = Prompt(examples=[example, ("r", "s", "no")], template=template, separator="\n\n")
    query = {"premise": "t", "question": "u"}
    assert prompt.text(query) == "{p{x}} Q: q\nA: yes.\n\n{r} Q: s\nA: no.\n\n{t} Q: u\nA:"
    assert prompt.text(("t", "u")) == prompt.text(query)
    assert prompt.stop == ".\n\n"
    assert prompt.output_names == ["no", "yes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"template": "no field"}, "has the fields"),
        ({"template": "{input}"}, "has the fields"),
        ({"template": "{} {output}"}, "plain name"),
        ({"template": "{x} {x}"}, "plain name"),
        ({"template": "{x!r} {y}"}, "plain name"),
        ({"template": "{x"}, "not well formed"),
        ({"examples": ["text"]}, r"examples\[0\]"),
        ({"examples": [("a", "b"), ("a", "b", "c")]}, r"examples\[1\]"),
        ({"examples": [{"input": "a"}]}, r"pass \['input', 'output'\]"),
        ({"examples": [("a", 3)]}, "output=3"),
    ],
)
def test_what_is_wrong_with_a_prompt_is_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        Prompt(**arguments)


def test_as_many_examples_as_fit_by_brute_force(task):
    examples = [(f"word {'so ' * (i % 4)}{i}", f"other {i}") for i in range(12)]
    prompt = Prompt("Say it:", examples)
    queries = ["x", "a longer query than that " * 2, "cheese", "word " * 14]
    endings = [[" a"], [" long " * 5, " a"], [" one", " two two two two"], [" b"]]
    room = WINDOW - 1 - 6
    expected = []
    for query, ends in zip(queries, endings, strict=True):
        fits = [
            number
            for number in range(13)
            if all(len(task.tokenizer(prompt.text(query, number) + end)) <= room for end in ends)
        ]
        expected.append(prompt.text(query, max(fits)))
    assert prompt.pack(task, queries, endings, max_new_tokens=6) == expected
    assert len({text.count("=>") for text in expected}) > 2
    with pytest.raises(ValueError, match=r"queries\[1\] needs .* room for 73 next to 6 new"):
        prompt.pack(task, ["x", "word " * 90], max_new_tokens=6)
    with pytest.raises(ValueError, match="is a single query"):
        prompt.pack(task, "x")


# === Likelihoods ===


def by_hand(task, context, choices):
    """Log-likelihoods and numbers of tokens, each by a forward pass over the whole text."""
    bos = task.tokenizer.special_id("bos")
    head = [bos, *task.tokenizer(context).numpy().tolist()]
    wholes = [[bos, *task.tokenizer(context + x).numpy().tolist()] for x in choices]
    border = min(
        next((i for i, (a, b) in enumerate(zip(head, ids)) if a != b), min(len(head), len(ids)))
        for ids in wholes
    )
    surplus = max(max(map(len, wholes)) - 1 - WINDOW, 0)
    scores = []
    for ids in wholes:
        logits = task({"token_ids": np.array([ids[surplus:-1]])})[0]
        values = tf.nn.log_softmax(logits).numpy()
        scores.append(sum(values[i - surplus - 1, ids[i]] for i in range(border, len(ids))))
    return np.array(scores), np.array([len(ids) - border for ids in wholes])


CONTEXTS = ["Hello world", "A: ", "", "many words " * 50, "x"]
CHOICES = [
    [" yes", " no way"],
    ["yes", "no"],
    ["a", "bc"],
    [" a", " many more of them", "z"],
    ["y"],
]


@pytest.mark.slow
def test_continuations_equal_whole_forward_passes(task):
    for size in (8, 2):
        actual = task.score_continuations(CONTEXTS, CHOICES, batch_size=size)
        assert actual["scores"].shape == (5, 3)
        for i, (context, row) in enumerate(zip(CONTEXTS, CHOICES, strict=True)):
            scores, number = by_hand(task, context, row)
            np.testing.assert_allclose(actual["scores"][i, : len(row)], scores, rtol=1e-4)
            assert actual["num_tokens"][i].tolist() == [*number, 0, 0][:3]
            assert np.isneginf(actual["scores"][i, len(row) :]).all()
    whole = task.score([CONTEXTS[0] + x for x in CHOICES[0]])["scores"]
    alone = task.score([CONTEXTS[0]])["scores"]
    actual = task.score_continuations(CONTEXTS[:1], CHOICES[:1])["scores"]
    np.testing.assert_allclose(actual[0], whole - alone, rtol=1e-4)


def test_a_space_belongs_to_the_word_after_it(task):
    tight = task.score_continuations(["so A:"], [[" the", " that"]])
    loose = task.score_continuations(["so A: "], [["the", "that"]])
    np.testing.assert_allclose(tight["scores"], loose["scores"], rtol=1e-5)
    np.testing.assert_array_equal(tight["num_tokens"], loose["num_tokens"])


@pytest.mark.slow
def test_normalizations(task):
    values = {None: [], "tokens": [], "unconditional": []}
    for context, row in zip(CONTEXTS, CHOICES, strict=True):
        scores, number = by_hand(task, context, row)
        values[None].append(scores)
        values["tokens"].append(scores / number)
        values["unconditional"].append(scores - by_hand(task, "Answer:", row)[0])
    for normalization, expected in values.items():
        actual = choose(task, CONTEXTS, CHOICES, normalization=normalization)
        assert actual["labels"].tolist() == [int(np.argmax(row)) for row in expected]
        for i, row in enumerate(expected):
            odds = np.exp(row - np.max(row))
            np.testing.assert_allclose(
                actual["scores"][i], [*(odds / odds.sum()), 0, 0][:3], atol=1e-4
            )
    with pytest.raises(ValueError, match="normalization='bytes'"):
        choose(task, CONTEXTS, CHOICES, normalization="bytes")


@pytest.mark.parametrize(
    ("contexts", "choices", "message"),
    [
        ([], [], "empty"),
        (["a"], [["b"], ["c"]], "different lengths"),
        (["a"], ["b"], "pass a list of at least one"),
        (["a"], [[]], "pass a list of at least one"),
        (["so"], [["", " b"]], "each must have one"),
        (["a"], [["so x" * WINDOW]], "at most the 80"),
        ([None], [["b"]], r"contexts\[0\] is None"),
        ("a", [["b"]], "contexts"),
    ],
)
def test_what_is_wrong_with_choices_is_said(task, contexts, choices, message):
    with pytest.raises(ValueError, match=message):
        task.score_continuations(contexts, choices)


# === A prompted model ===


def test_classes_are_chosen_by_the_likelihood_after_the_prompt(task):
    template = "Review: {text}\nIt was {label}."
    reviews = [("a joy", "good"), ("dull and loud", "bad")]
    prompt = Prompt(examples=reviews, template=template, separator="\n\n")
    texts = ["never a dull moment", "what a waste of so many words"]
    actual = Prompted(task, prompt).classify(texts)
    contexts = [prompt.text(text) for text in texts]
    assert contexts[0].endswith("Review: never a dull moment\nIt was")
    expected = choose(task, contexts, [[" bad", " good"]] * 2)
    np.testing.assert_allclose(actual["scores"], expected["scores"], rtol=1e-5)
    assert actual["labels"].tolist() == [["bad", "good"][i] for i in expected["labels"]]
    zero = Prompted(task, prompt.shots(0), class_names=["good", "bad"], normalization=None)
    scores = [by_hand(task, prompt.text(text, 0), [" good", " bad"])[0] for text in texts]
    assert zero.classify(texts)["labels"].tolist() == [
        ["good", "bad"][np.argmax(row)] for row in scores
    ]


def test_what_is_wrong_with_queries_is_said(task):
    with pytest.raises(ValueError, match="class_names is missing"):
        Prompted(task, Prompt("Say:")).classify(["x"])
    with pytest.raises(ValueError, match="names a class twice"):
        Prompted(task, Prompt("Say:"), class_names=["a", "a"])
    prompted = Prompted(task, Prompt("Say:"), class_names=["a", "b"])
    with pytest.raises(ValueError, match="single query"):
        prompted.classify("x")
    with pytest.raises(ValueError, match="queries is empty"):
        prompted.classify([])
    with pytest.raises(ValueError, match="query has the keys"):
        prompted.classify([{"text": "x"}])
    with pytest.raises(ValueError, match="choices has 1 rows for 2"):
        prompted.choose(["x", "y"], [["a"]])
    with pytest.raises(ValueError, match=r"choices\[0\] is 'ab'"):
        prompted.choose(["x"], ["ab"])


@pytest.mark.slow
def test_answers_end_where_the_next_example_would_begin(tokenizer):
    keras.utils.set_random_seed(0)
    backbone = GPT2Backbone(
        tokenizer.vocabulary_size, 1, 2, 32, 64, dropout=0.0, max_sequence_length=WINDOW
    )
    task = CausalLM(backbone, tokenizer=tokenizer)
    prompt = Prompt(examples=PAIRS)
    task.compile(optimizer=keras.optimizers.Adam(0.02))
    # A prompt is continued as it is, and scored after the bos token.
    ids = tokenizer(prompt.text("cheese") + " fromage\nq => r\n")
    previous = tf.concat([[tokenizer.special_id("bos")], ids[:-1]], axis=0)
    windows = tf.data.Dataset.from_tensor_slices(tf.stack([ids, previous]))
    task.fit(window_batches(windows, 2).repeat(), epochs=1, steps_per_epoch=100, verbose=0)
    prompted = Prompted(task, prompt)
    assert prompted.answer(["cheese"], max_new_tokens=12) == ["fromage"]
    assert translate(task, ["cheese"], PAIRS, max_new_tokens=5) != [""]
    actual = prompted.choose(["cheese"], [["menthe", "fromage", "r"]])
    assert actual["labels"].tolist() == [1]
    assert actual["scores"][0, 1] > 0.8


# === Zero-shot tasks ===


def test_prompts_and_options_of_zero_shot_tasks(task, spoken):
    assert translate(task, ["cheese"], PAIRS[:1], max_new_tokens=9) == ["One."]
    assert spoken[-1] == (
        ["sea otter = loutre de mer\ncheese ="],
        {"stop": "\n", "max_new_tokens": 9},
    )
    answer_questions(task, ["Why?"], [("Who?", "Ann")], context="Ann ran.", max_new_tokens=9)
    assert spoken[-1][0] == ["Ann ran.\nQ: Who?\nA: Ann\nQ: Why?\nA:"]
    assert summarize(task, ["a text"], max_new_tokens=10, seed=3) == ["One. Two! Three?"]
    assert spoken[-1] == (
        ["a text\nTL;DR:"],
        {"temperature": 1.0, "top_k": 2, "seed": 3, "max_new_tokens": 10},
    )


def test_a_long_text_keeps_its_beginning_and_the_cue(task, spoken):
    summarize(task, ["first of " + "many words é" * 60], max_new_tokens=10)
    prompt = spoken[-1][0][0]
    assert prompt.startswith("first of many") and prompt.endswith("\nTL;DR:")
    assert WINDOW - 14 <= len(task.tokenizer(prompt)) <= WINDOW - 9
    with pytest.raises(ValueError, match="max_new_tokens=80 leaves no room"):
        summarize(task, ["x"], max_new_tokens=80)


@pytest.mark.thorough
def test_summaries_reproduce_by_their_seed(task):
    texts = ["a text of words", "more of them"]
    options = {"max_new_tokens": 8, "seed": 1}
    assert summarize(task, texts, **options) == summarize(task, texts, **options)


@pytest.mark.slow
def test_last_words_by_a_slow_search(task, capsys):
    texts = ["he went to the", "so many"]
    plain = task.generate(texts, max_new_tokens=5)
    assert predict_last_words(task, texts, verbose=1) == [first_word(text) for text in plain]
    assert "1/1" in capsys.readouterr().out
    for stop_words in ({"none"}, set(STOP_WORDS) | {first_word(text).lower() for text in plain}):
        actual = predict_last_words(task, texts, stop_words, num_candidates=30)
        for text, word in zip(texts, actual, strict=True):
            ids = [*task.tokenizer(text).numpy().tolist()]
            logits = task({"token_ids": np.array([ids])})[0, -1].numpy()
            words = set()
            for token in np.argsort(-logits)[:30]:
                piece = task.tokenizer.detokenize([int(token)]).numpy().decode()
                if piece and not piece[0].isalnum():
                    words.add(first_word(piece + task.generate(text + piece, max_new_tokens=4)[0]))
            words = sorted(words - {""})
            allowed = [x for x in words if x.lower() not in stop_words]
            scores = by_hand(task, text, [" " + x for x in allowed])[0]
            assert word == allowed[int(np.argmax(scores))]
            assert word.lower() not in stop_words
    with pytest.raises(ValueError, match="num_candidates=1"):
        predict_last_words(task, texts, STOP_WORDS, num_candidates=1)


def test_blanks_are_filled_by_what_stands_after_them(task):
    texts = ["the trophy is in the _ now", "so _ it"]
    choices = [["box", "suitcase", "bag"], ["be", "say"]]
    full, partial = fill_blank(task, texts, choices), fill_blank(task, texts, choices, partial=True)
    for i, (text, row) in enumerate(zip(texts, choices, strict=True)):
        before, after = text.split("_")
        scores = by_hand(task, before, [x + after for x in row])[0]
        np.testing.assert_allclose(full["log_likelihoods"][i, : len(row)], scores, rtol=1e-4)
        scores = [by_hand(task, before + x, [after])[0][0] for x in row]
        np.testing.assert_allclose(partial["log_likelihoods"][i, : len(row)], scores, rtol=1e-4)
        assert partial["labels"][i] == np.argmax(scores)
    for text, message in (("none", "has 0 blanks"), ("_ _", "has 2 blanks"), ("x _", "nothing")):
        with pytest.raises(ValueError, match=message):
            fill_blank(task, [text], [["a"]], partial=True)
    with pytest.raises(ValueError, match="choices has 2 rows for 1"):
        fill_blank(task, ["_ x"], [["a"], ["b"]])


def test_progress_is_drawn_on_request(task, capsys):
    texts = ["a bee", "peppermint _", "sea"]
    prompted = Prompted(task, Prompt(examples=PAIRS), normalization="unconditional")

    def bars(call, *arguments, **options):
        call(*arguments, **options)
        assert capsys.readouterr().out == ""
        call(*arguments, **options, verbose=1)
        return re.findall(r"\d/\d", capsys.readouterr().out)

    assert bars(task.score_continuations, texts, [["b"]] * 3, 2)[-1] == "2/2"
    assert bars(prompted.classify, texts, 2)[-2:] == ["2/2", "1/1"]
    assert bars(perplexity, task, texts, batch_size=2)[-1] == "2/2"
    assert bars(fill_blank, task, texts[1:2], [["b"]])[-1] == "1/1"
    assert bars(fill_blank, task, ["_ b"], [["a", "c"]], partial=True, batch_size=1)[-1] == "2/2"


def test_first_sentences_and_words():
    text = ' "Is it 3.5?" Yes. It is\nThe end'
    assert first_sentences(text, 1) == '"Is it 3.5?"'
    assert first_sentences(text, 2) == '"Is it 3.5?" Yes.'
    assert first_sentences(text, 3) == '"Is it 3.5?" Yes. It is'
    assert first_sentences(text, 4) == text.strip()
    assert first_sentences("\n\nOne.\n\nTwo.", 2) == "One.\n\nTwo."
    assert [first_word(x) for x in (" don't, no", ' "well-known"', "...", "")] == [
        "don't",
        "well-known",
        "",
        "",
    ]


# === Perplexity ===


def test_perplexity_counts_the_tokens_of_the_corpus(task):
    documents = [" A man @-@ eater , he said . \n\n 3 @,@ 000 of them \n", "x y"]
    actual = perplexity(task, documents, wikitext)
    plain = ["A man-eater, he said.\n\n3,000 of them\n", "x y"]
    total = task.score(plain)["scores"].sum()
    assert actual["num_tokens"] == 8 + 5 + 2 + 3  # words, and ends of lines
    np.testing.assert_allclose(actual["log_likelihood"], total, rtol=1e-5)
    np.testing.assert_allclose(actual["perplexity"], np.exp(-total / 18), rtol=1e-4)
    size = sum(map(len, documents))
    np.testing.assert_allclose(actual["bits_per_byte"], -total / np.log(2) / size, rtol=1e-5)
    assert perplexity(task, "x y")["num_tokens"] == 2
    with pytest.raises(ValueError, match="have no words"):
        perplexity(task, [" "])
