"""Recurrent language models continue texts in their exports as their tasks do."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import litert
from keras_lm.export.contents import inspect_saved_model
from keras_lm.layers.state import named_tensors
from keras_lm.models import AWDLSTMBackbone, ElmoBackbone, LSTMBackbone, TransformerXLBackbone
from keras_lm.serving.inference import SavedModel
from keras_lm.tasks import BidirectionalLM, CausalLM
from keras_lm.tokenizers import CharacterTokenizer, WordTokenizer, learn_words

TEXTS = ["the cat sat on the mat .", "a dog saw the cat .", "the dog ran", "a", "it ran and sat"]
PROMPTS = ["the cat", "a dog saw the", "", "ran zebra"]
NEW = {"max_new_tokens": 6}

# Eager: what the tasks say; exports are graphs all the same
pytestmark = [pytest.mark.eager, pytest.mark.slow]


def tokenizer():
    words = learn_words(TEXTS, 100)
    return WordTokenizer(words, "<UNK>", bos_token="<S>", eos_token="</S>")


def lstm():
    words = tokenizer()
    backbone = LSTMBackbone(words.vocabulary_size, num_layers=2, hidden_dim=8)
    return CausalLM(backbone, tokenizer=words)


def awd_lstm():
    words = tokenizer()
    sizes = {"num_layers": 2, "hidden_dim": 12, "embedding_dim": 8}
    return CausalLM(AWDLSTMBackbone(words.vocabulary_size, **sizes), tokenizer=words)


def elmo():
    backbone = ElmoBackbone(
        num_layers=2,
        hidden_dim=8,
        cell_dim=12,
        filters=[(1, 4), (2, 4)],
        characters_per_word=10,
    )
    task = BidirectionalLM(backbone, learn_words(TEXTS, 100), tokenizer=CharacterTokenizer(10))
    return task.forward_language_model()


STATES = {
    "lstm": [f"states_{i}_{part}" for i in range(2) for part in ("hidden", "cell")],
    "awd_lstm": [f"states_{i}_{part}" for i in range(2) for part in ("hidden", "cell")],
    "elmo": ["states_hidden", "states_cell"],
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(lstm, marks=pytest.mark.thorough),
        pytest.param(awd_lstm, marks=pytest.mark.thorough),
        elmo,
    ],
)
def task(request):
    """A task whose words differ as much as those of a trained one; no bias prefers any."""
    task = request.param()
    random = np.random.default_rng(6)
    for weight in task.trainable_weights:
        if len(weight.shape) > 1:
            weight.assign(2 * random.normal(size=weight.shape))
    return task


@pytest.fixture(scope="module")
def model(task, tmp_path_factory):
    return SavedModel(task.export(tmp_path_factory.mktemp("models") / "writer"))


def texts(answer):
    return [text.decode() for text in answer["text"]]


def rows(*prompts):
    return {"prompt": np.array(prompts, object)}


def greedily(next_token, step, number):
    """The tokens, and all logits, of decoding by hand; `step` is the first request."""
    ids, logits = [], []
    for _ in range(number):
        state = next_token(**step)
        logits.append(state.pop("logits"))
        ids.append(np.argmax(logits[-1], axis=-1).astype("int32")[:, np.newaxis])
        step = {"token_ids": ids[-1], "padding_mask": np.ones_like(ids[-1])} | state
    return np.concatenate(ids, axis=1), np.stack(logits, axis=1), state


def until_end(task, ids):
    """Texts of rows of ids, each up to the end of its sentence."""
    end = task.tokenizer.special_id("eos")
    kept = [row[: [*row, end].index(end)] for row in ids.tolist()]
    ragged = tf.ragged.constant(kept, dtype=tf.int32, ragged_rank=1)
    return [text.decode() for text in task.tokenizer.detokenize(ragged).numpy()]


def test_serves_what_the_task_does(model, task):
    expected = task.generate(PROMPTS, **NEW)
    assert len(set(expected)) > 2
    served = model.run("generate", rows(*PROMPTS) | {"max_new_tokens": np.int32(6)})
    assert texts(served) == expected
    assert texts(model.run("serving_default", rows(*PROMPTS))) == task.generate(PROMPTS)
    drawn = {"temperature": np.float32(1.5), "top_k": np.int32(5), "seed": np.arange(4)}
    served = model.run("generate", rows(*PROMPTS) | drawn | {"max_new_tokens": np.int32(6)})
    options = {"temperature": 1.5, "top_k": 5, "seed": [0, 1, 2, 3]}
    assert texts(served) == task.generate(PROMPTS, **options, **NEW)
    scores = task.score(TEXTS)
    served = model.run("score", {"text": np.array(TEXTS, object)})
    assert set(served) == set(scores)
    for name in ("scores", "perplexity", "token_scores", "num_tokens"):
        np.testing.assert_allclose(served[name], scores[name], rtol=1e-4, atol=1e-4)


def test_streams_what_the_task_does(model, task):
    for prompt in PROMPTS[1:3]:
        chosen = NEW | {"temperature": 2.0, "seed": 1}
        *pieces, _ = model.stream({"prompt": prompt, **chosen})
        assert "".join(piece["text"] for piece in pieces) == task.generate(prompt, **chosen)[0]


def test_client_drives_decoding(model, task, request):
    first = model.run("tokenize", rows(*PROMPTS))
    pieces = first.pop("tokens")
    assert pieces[1].tolist() == [b"<S>", b"a", b"dog", b"saw", b"the"]
    step = lambda **inputs: model.run("next_token", inputs)  # noqa: E731
    ids, _, state = greedily(step, first, 6)
    assert until_end(task, ids) == task.generate(PROMPTS, **NEW)
    assert texts(model.run("detokenize", {"token_ids": ids})) == [
        text.decode() for text in task.tokenizer.detokenize(ids).numpy()
    ]
    assert sorted(state) == sorted(STATES[request.node.callspec.params["task"].__name__])
    assert {len(part) for part in state.values()} == {len(PROMPTS)}


@pytest.fixture(scope="module")
def transformer_xl(tmp_path_factory):
    words = tokenizer()
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    backbone = TransformerXLBackbone(words.vocabulary_size, **sizes, memory_length=5)
    task = CausalLM(backbone, tokenizer=words)
    random = np.random.default_rng(0)
    for weight in task.trainable_weights:
        weight.assign(random.normal(size=weight.shape))
    return task, task.export(tmp_path_factory.mktemp("models") / "writer")


def test_a_long_prompt_beside_others(transformer_xl):
    task, folder = transformer_xl
    prompts = [*PROMPTS, *TEXTS, "the cat sat on the mat " * 500]
    expected = [task.generate(prompt, 4)[0] for prompt in prompts]
    assert task.generate(prompts, 4) == expected
    model = SavedModel(folder)
    served = model.run("generate", rows(*prompts) | {"max_new_tokens": np.int32(4)})
    assert texts(served) == expected
    assert max(served["num_prompt_tokens"]) == 3001
    *pieces, _ = model.stream({"prompt": prompts[-1], "max_new_tokens": 4})
    assert "".join(piece["text"] for piece in pieces) == expected[-1]


def test_a_memory_is_the_clients(transformer_xl):
    """Three segments, one of them of two lengths, with a memory from request to request."""
    task, folder = transformer_xl
    backbone, random = task.backbone, np.random.default_rng(1)
    model, memory, expected = SavedModel(folder), {}, {}
    mask = np.ones((2, 4), "int32")
    for padding_mask in (mask, np.array([[0, 0, 1, 1], [1, 1, 1, 1]], "int32"), mask[:, :3]):
        ids = random.integers(0, backbone.vocabulary_size, padding_mask.shape).astype("int32")
        packed = {"token_ids": ids, "padding_mask": padding_mask}
        memory = model.run("next_token", packed | memory)
        computed = backbone(packed | expected)
        logits = memory.pop("logits")
        np.testing.assert_allclose(logits, task.head(computed)[:, -1], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(memory["memory"], computed["memory"], rtol=1e-4, atol=1e-4)
        expected = {"memory": computed["memory"]}
    actual = inspect_saved_model(folder, [1])
    assert actual["signatures"]["next_token"]["inputs"]["memory"]["shape"] == [None, 2, 5, 8]
    assert actual["state_bytes"] == 2 * 5 * 8 * 4 == memory["memory"][0].nbytes


def test_eager_searches_and_scores(task):
    """What the export leaves out: beams, and the likelihood of continuations."""
    beams = task.generate(PROMPTS, num_beams=3, num_return_sequences=2, **NEW)
    assert [len(row) for row in beams] == [2] * len(PROMPTS)
    # One beam as wide as all there is for one token finds the two likeliest.
    best = task.generate("the cat", num_beams=3, num_return_sequences=2, max_new_tokens=1)[0]
    assert best[0] == task.generate("the cat", max_new_tokens=1)[0]
    choices = [[" sat", " sat on the mat"], [" ran"]]
    actual = task.score_continuations(["the cat", "a dog"], choices)["scores"]
    contexts = task.score(["the cat", "a dog"])["scores"]
    wholes = task.score(["the cat sat", "the cat sat on the mat", "a dog ran"])["scores"]
    expected = wholes - contexts[[0, 0, 1]]
    np.testing.assert_allclose([*actual[0], actual[1, 0]], expected, rtol=1e-3, atol=1e-3)


def test_lite_steps_as_the_task(model, task, tmp_path):
    """A `.tflite` holds `tokenize` and `next_token`; the loop is the phone's.

    Each step is compared from the same state: from step to step, rounding grows.
    """
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    path = task.export(tmp_path / "model.tflite", format="litert")
    interpreter = litert.open_interpreter(path)
    tokens = interpreter.get_signature_runner("tokenize")(**rows(*PROMPTS[:2]))
    start = named_tensors(task.backbone.initial_state(2), "states")
    start = {name: np.asarray(part) for name, part in start.items()}
    lite = interpreter.get_signature_runner("next_token")

    def next_token(**step):
        actual, expected = lite(**step), model.run("next_token", step)
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(actual[name], value, atol=1e-4)
        return actual

    ids, _, _ = greedily(next_token, tokens | start, 6)
    assert until_end(task, ids) == task.generate(PROMPTS[:2], **NEW)
