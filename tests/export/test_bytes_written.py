"""A `.tflite` that takes bytes writes texts by its own loop, as its task does."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.export import tflite
from keras_lm.generation import lite
from keras_lm.generation.logits import Rules, uniform_noise
from keras_lm.layers.tensorflow import for_lite
from keras_lm.litert import in_bytes
from keras_lm.models import (
    AWDLSTMBackbone,
    GPT2Backbone,
    GPT3Backbone,
    GPTBackbone,
    LSTMBackbone,
    MarianBackbone,
    RNNEncoderDecoderBackbone,
    T5Backbone,
    TransformerXLBackbone,
)
from keras_lm.tasks import CausalLM, Seq2SeqLM
from keras_lm.tasks.signatures import columns_from_bytes
from keras_lm.tokenizers import (
    GPTTokenizer,
    MarianTokenizer,
    SentencePieceTokenizer,
    SubwordTokenizer,
    WordPieceTokenizer,
    WordTokenizer,
    learn_words,
    train_vocabulary,
)
from keras_lm.tokenizers.strings import without_text_operations

TEXTS = ["the cat sat on the mat .", "a dog saw ünaïve 日本 films", "good films , a b c"]
PROMPTS = ["the cat", "", "a dog saw the cat . ü日", "z" * 99]
SMALL = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}


def words():
    known = learn_words(TEXTS, 100)
    return WordTokenizer(known, "<UNK>", bos_token="<S>", eos_token="</S>")


def gpt2(goldens):
    letters = train_vocabulary("byte_pair", 290, texts=TEXTS * 3)
    return CausalLM(
        GPT2Backbone(letters.vocabulary_size, **SMALL, max_sequence_length=48), tokenizer=letters
    )


def pieces(goldens):
    """A GPT-2 over WordPiece, whose pieces are joined by more than their bytes."""
    tokenizer = WordPieceTokenizer.from_files(goldens("tokenizers") / "wordpiece-uncased")
    backbone = GPT2Backbone(tokenizer.vocabulary_size, **SMALL, max_sequence_length=48)
    return CausalLM(backbone, tokenizer=tokenizer)


def gpt3(goldens):
    letters = train_vocabulary("byte_pair", 290, texts=TEXTS * 3)
    backbone = GPT3Backbone(letters.vocabulary_size, **SMALL, max_sequence_length=48)
    return CausalLM(backbone, tokenizer=letters)


def awd_lstm(goldens):
    tokenizer = words()
    backbone = AWDLSTMBackbone(
        tokenizer.vocabulary_size, num_layers=2, hidden_dim=8, embedding_dim=8
    )
    return CausalLM(backbone, tokenizer=tokenizer)


def rnn(goldens):
    tokenizer = words()
    backbone = RNNEncoderDecoderBackbone(tokenizer.vocabulary_size, 1, hidden_dim=8)
    return Seq2SeqLM(backbone, tokenizer=tokenizer, sequence_length=24)


def lstm(goldens):
    tokenizer = words()
    backbone = LSTMBackbone(tokenizer.vocabulary_size, num_layers=2, hidden_dim=8)
    return CausalLM(backbone, tokenizer=tokenizer)


def transformer_xl(goldens):
    tokenizer = words()
    backbone = TransformerXLBackbone(tokenizer.vocabulary_size, **SMALL, memory_length=8)
    return CausalLM(backbone, tokenizer=tokenizer)


def t5(goldens):
    tokenizer = SentencePieceTokenizer.from_files(goldens("tokenizers") / "sentencepiece-t5")
    backbone = T5Backbone(tokenizer.vocabulary_size, **SMALL)
    return Seq2SeqLM(backbone, tokenizer=tokenizer, sequence_length=24)


def gpt(goldens):
    tokenizer = GPTTokenizer.from_files(goldens("tokenizers") / "bpe-gpt1")
    return CausalLM(GPTBackbone(tokenizer.vocabulary_size, **SMALL), tokenizer=tokenizer)


def marian(goldens):
    model = (goldens("tokenizers") / "sentencepiece-t5" / "spiece.model").read_bytes()
    entries = ["</s>", "<unk>", *"▁abcdefghilmost", "▁the", "<pad>"]
    tokenizer = MarianTokenizer(model, model, entries)
    backbone = MarianBackbone(len(entries), **SMALL, max_sequence_length=64)
    return Seq2SeqLM(backbone, tokenizer=tokenizer, sequence_length=24)


@pytest.fixture
def make(goldens):
    """`make(kind)` is a task whose weights are far from zero, so that texts differ."""

    def made(kind):
        task, random = kind(goldens), np.random.default_rng(1)
        for weight in task.backbone.trainable_weights:
            weight.assign_add(random.normal(size=weight.shape, scale=0.4))
        return task

    return made


def texts_of(answer):
    """Return the texts of an answer in bytes."""
    data, ends = np.asarray(answer["text"]).tobytes(), np.asarray(answer["text_ends"]).tolist()
    return [data[a:b].decode("utf-8", "replace") for a, b in zip([0, *ends[:-1]], ends)]


@pytest.mark.eager
@pytest.mark.parametrize("kind", [gpt2, lstm, t5])
def test_the_loop_writes_as_the_task(kind, make, monkeypatch):
    monkeypatch.setattr(lite, "BLOCK", 4)
    task = make(kind)
    signatures = task.signatures
    given = in_bytes(dict.fromkeys(signatures.texts(), PROMPTS))
    assert given.keys() == task.byte_signatures.lite_texts().keys()
    given = {name: tf.constant(column) for name, column in given.items()}
    for most in (0, 1, 9):
        with for_lite(), without_text_operations():
            columns = columns_from_bytes(given, signatures.texts())
            written = signatures._written(columns, tf.constant(most))
        rows = [[i for i in row if i >= 0] for row in written.numpy().tolist()]
        texts = task.tokenizer.target.detokenize(tf.ragged.constant(rows, tf.int32, 1))
        assert [t.decode() for t in texts.numpy()] == task.generate(PROMPTS, max_new_tokens=most)


@pytest.mark.eager
def test_words_in_int8_have_a_scale_each(make):
    task = make(gpt2)
    embedding = task.backbone.token_embedding
    table = embedding.embeddings.numpy()
    table[3] *= 50
    embedding.embeddings.assign(table)
    with tflite._tables_in("float32", task):
        np.testing.assert_array_equal(embedding(np.array([[3, 4]]))[0], table[3:5])
    with tflite._tables_in("int8", task):
        rows, rounded = embedding(np.array([[3, 4]]))[0], embedding.embeddings.numpy()
        np.testing.assert_allclose(rows, rounded[3:5], rtol=1e-6)
        errors = np.abs(rounded - table).max(axis=1) / np.abs(table).max(axis=1)
        assert 0 < errors.max() <= 0.5 / 127 + 1e-6
        logits = embedding(np.ones([1, 1, 16], "float32"), reverse=True)
        np.testing.assert_allclose(logits[0, 0], rounded.sum(1), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(embedding.embeddings, table)
    np.testing.assert_array_equal(embedding(np.array([[3, 4]]))[0], table[3:5])


@pytest.mark.eager
def test_numbers_are_those_of_the_graph():
    for seed in (0, 1, 77, 2**31 - 1):
        drawn = lite.uniform_noise(tf.constant(seed), tf.constant(13))
        expected = uniform_noise(tf.constant([seed], tf.int64), tf.constant([0], tf.int64), 13)
        np.testing.assert_array_equal(drawn, expected[0])


SAMPLES = [
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 3},
    {"temperature": 0.6, "top_k": 5, "top_p": 0.9, "seed": 11},
    {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0},
]


def sampled(task, options, prompts=PROMPTS):
    """Return the texts of `generate`, which takes no other options without a temperature."""
    options = options if options["temperature"] else {}
    return task.generate(prompts, max_new_tokens=9, **options)


def chances(temperature, top_k, top_p, seed, stop_tokens=(-1,)):
    """Return the inputs of `sample` beside texts."""
    return {
        "temperature": np.float32(temperature),
        "top_k": np.int32(top_k),
        "top_p": np.float32(top_p),
        "seed": np.int32(seed),
        "stop_tokens": np.array(stop_tokens, "int32"),
    }


@pytest.mark.eager
@pytest.mark.parametrize("kind", [gpt2, pytest.param(t5, marks=pytest.mark.slow)])
def test_the_loop_draws_as_the_task(kind, make):
    task = make(kind)
    given = in_bytes(dict.fromkeys(task.signatures.texts(), PROMPTS))
    given = {name: tf.constant(column) for name, column in given.items()}
    texts = set()
    for options in SAMPLES:
        with for_lite(), without_text_operations():
            answer = task.signatures.sample_lite(
                max_new_tokens=tf.constant(9), **given, **chances(**options)
            )
        texts.add(answer["text"].numpy().tobytes())
        assert texts_of(answer) == sampled(task, options)
    assert len(texts) == 3


@pytest.mark.eager
def test_a_stop_token_ends_a_text(make):
    task = make(gpt2)
    tokens = tf.constant([[5, 6, 7], [9, 9, 9]])

    def written(*stop_tokens):
        drawn = lite.Chances(1.0, 0, 1.0, tf.constant(4), tf.constant([-1, *stop_tokens]))
        rows = lite.write(
            task, task.limits, tokens, tf.ones_like(tokens), tf.constant(12), chances=drawn
        )
        return [row[row >= 0].tolist() for row in rows.numpy()]

    free = written()
    stop = free[0][5]
    for row, stopped in zip(free, written(stop), strict=True):
        assert stopped == (row[: row.index(stop)] if stop in row else row)


@pytest.mark.eager
def test_rules_that_the_task_states_are_followed(make):
    task = make(gpt2)
    ids = [[5, 6, 7], [9, 9, 9]]
    task.generation = {
        "repetition_penalty": 1.7,
        "no_repeat_ngram_size": 2,
        "suppress_tokens": [3, 4],
        "min_new_tokens": 4,
    }
    tokens = tf.constant(ids)
    written = lite.write(task, task.limits, tokens, tf.ones_like(tokens), tf.constant(12))
    options = {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2}
    expected, number = task.continue_ids(tf.ragged.constant(ids), max_new_tokens=12, **options)
    assert isinstance(task.limits.rules, Rules) and number.numpy().min() >= 4
    for row, wanted, size in zip(written.numpy(), expected.numpy(), number.numpy(), strict=True):
        assert row[row >= 0].tolist() == wanted[:size].tolist()


@pytest.mark.eager
def test_what_only_sampling_follows_is_warned_of(make):
    task = make(gpt2)
    task.generation = {"temperature": 0.7, "min_p": 0.1, "repetition_penalty": 1.2}
    with pytest.warns(UserWarning, match=r"greedily, and does not follow .*temperature=0.7") as all:
        task.signatures.warn_of_search()
    assert "min_p=0.1" in str(all[0].message) and "penalty" not in str(all[0].message)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        gpt2,
        pieces,
        t5,
        transformer_xl,
        *(
            pytest.param(kind, marks=pytest.mark.thorough)
            for kind in (gpt, gpt3, lstm, awd_lstm, marian, rnn)
        ),
    ],
)
def test_a_file_writes_without_a_registrar(kind, make, tmp_path):
    interpreters = pytest.importorskip("ai_edge_litert.interpreter", reason="needs litert")
    task = make(kind)
    path = task.export(tmp_path / "writer.tflite", tokenizer="bytes")
    interpreter = interpreters.Interpreter(model_path=str(path))
    run, draw = map(interpreter.get_signature_runner, ("generate", "sample"))
    (name,) = task.signatures.texts()
    prompts = [text for text in PROMPTS if text or kind is not gpt]  # it has nothing to begin with
    for texts, most in ((prompts, 20), (["the cat"], 5), (["a"] * 3, 0)):
        answer = run(**in_bytes({name: texts}), max_new_tokens=np.int32(most))
        assert texts_of(answer) == task.generate(texts, max_new_tokens=most)
        assert answer["num_tokens"].max() <= most
    for options in SAMPLES:
        asked = in_bytes({name: prompts}) | chances(**options)
        assert texts_of(draw(**asked, max_new_tokens=np.int32(9))) == sampled(
            task, options, prompts
        )


def test_what_has_no_such_form_says_so(make, tmp_path):
    task = make(gpt2)
    entries = ["<pad>", "<EOS>", *"abcdefghijklmnopqrstuvwxyz_ ", "\\", ";"]
    task.use_tokenizer(SubwordTokenizer(entries))
    with pytest.raises(ValueError, match=r"SubwordTokenizer .* LiteRT"):
        task.export(tmp_path / "writer.tflite", tokenizer="bytes")
    assert not (tmp_path / "writer.tflite").exists()
