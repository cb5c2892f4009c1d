"""The RNN encoder-decoder against its papers' equations, in plain numpy, and what it learns."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_lm.models import RNNEncoderDecoderBackbone
from keras_lm.models.rnn_layers import SourceAttention
from keras_lm.tasks import Seq2SeqLM
from keras_lm.tokenizers import WordTokenizer

SOURCE, TARGET = [3, 8, 5, 5, 9], [0, 7, 4, 11]
WIDTH, NARROW = 6, 4


def make(num_layers=1, **arguments):
    keras.utils.set_random_seed(0)
    backbone = RNNEncoderDecoderBackbone(
        12, num_layers, hidden_dim=WIDTH, embedding_dim=NARROW, dropout=0.0, **arguments
    )
    task = Seq2SeqLM(backbone)
    for weight in task.trainable_weights:
        weight.assign(keras.random.normal(weight.shape, stddev=0.7))
    return task


def call(task):
    inputs = {"encoder_token_ids": [SOURCE], "decoder_token_ids": [TARGET]}
    outputs = task.backbone(inputs)
    results = {name: outputs[name][0] for name in ("encoder_sequence_output", "sequence_output")}
    if task.backbone.decoder.attention is not None:
        (weights,) = task.backbone.cross_attention_probabilities(inputs)
        results["weights"] = weights[0, 0]
    return results | {"logits": task(task.backbone.complete(inputs))[0]}


# === The papers' equations, a vector at a time ===


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    return np.exp(x) / np.exp(x).sum()


class Weights:
    """A task's weights by the ends of their paths, and what the papers compute with them."""

    def __init__(self, task):
        self.arrays = {w.path.removeprefix("seq2seq_lm/"): w.numpy() for w in task.weights}

    def __call__(self, name):
        (results,) = [array for path, array in self.arrays.items() if path.endswith(name)]
        return results

    def cell(self, name, x, h, c=None, fed=None):
        """Return the state (h, c) of an LSTM, or (h, None) of a GRU, after reading x."""
        W, U, b = (self(f"{name}/{part}") for part in ("kernel", "recurrent_kernel", "bias"))
        if fed is not None:
            x, W = np.concatenate([x, fed]), np.concatenate([W, self("decoder/feed/kernel")])
        units = len(h)
        if c is not None:
            i, f, g, o = np.split(x @ W + h @ U + b, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            return sigmoid(o) * np.tanh(c), c
        z = sigmoid((x @ W + b)[:units] + h @ U[:, :units])
        r = sigmoid((x @ W + b)[units : 2 * units] + h @ U[:, units : 2 * units])
        new = np.tanh((x @ W + b)[2 * units :] + (r * h) @ U[:, 2 * units :])
        return z * h + (1 - z) * new, None

    def run(self, name, xs, units, is_lstm):
        """Return the outputs of a layer for vectors in this order, and its last state."""
        h, c, outputs = np.zeros(units), np.zeros(units) if is_lstm else None, []
        for x in xs:
            h, c = self.cell(name, x, h, c)
            outputs.append(h)
        return outputs, (h, c)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_bahdanau(cell):
    task = make(cell=cell, attention="additive", bidirectional=True)
    w, is_lstm = Weights(task), cell == "lstm"
    E = w("token_embedding/embeddings")
    xs = [E[i] for i in SOURCE]
    ahead, _ = w.run("encoder_0/forward", xs, WIDTH // 2, is_lstm)
    back, _ = w.run("encoder_0/backward", xs[::-1], WIDTH // 2, is_lstm)
    annotations = [np.concatenate(pair) for pair in zip(ahead, back[::-1])]
    # ←h_1 is the last that the backward network made.
    s = np.tanh(back[-1] @ w("start_0/kernel") + w("start_0/bias"))
    c = np.zeros(WIDTH) if is_lstm else None
    W, U, v = (
        w("attention/query/kernel"),
        w("source_keys/kernel"),
        w("attention/vector")[:, 0],
    )
    expected = {"encoder_sequence_output": annotations, "sequence_output": [], "weights": []}
    for token in TARGET:
        alpha = softmax(np.array([v @ np.tanh(s @ W + h @ U) for h in annotations]))
        context = sum(a * h for a, h in zip(alpha, annotations))
        s, c = w.cell("decoder/layer_0", E[token], s, c, fed=context)
        t = np.concatenate([s, E[token], context]) @ w("readout/kernel") + w("readout/bias")
        expected["weights"].append(alpha)
        expected["sequence_output"].append([max(t[2 * i], t[2 * i + 1]) for i in range(WIDTH)])
    check(task, w, expected)


def check(task, w, expected):
    states = np.array(expected["sequence_output"])
    expected["logits"] = states @ w("token_head/embeddings").T + w("token_head/bias")
    actual = call(task)
    assert set(actual) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], np.array(value), atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    "attention, input_feeding", [("dot", False), ("general", True), ("concat", True)]
)
def test_luong(attention, input_feeding):
    task = make(2, attention=attention, bidirectional=False, input_feeding=input_feeding)
    w = Weights(task)
    E = w("token_embedding/embeddings")
    xs, states = [E[i] for i in SOURCE], []
    for i in range(2):
        xs, last = w.run(f"encoder_{i}", xs, WIDTH, True)
        states.append(last)

    def score(h, source):
        if attention == "dot":
            return h @ source
        if attention == "general":
            return h @ w("source_keys/kernel").T @ source
        W = np.concatenate([w("attention/query/kernel"), w("source_keys/kernel")])
        return w("attention/vector")[:, 0] @ np.tanh(np.concatenate([h, source]) @ W)

    expected = {"encoder_sequence_output": xs, "sequence_output": [], "weights": []}
    attentional = np.zeros(WIDTH)
    for token in TARGET:
        x, fed = E[token], attentional if input_feeding else None
        for i in range(2):
            states[i] = w.cell(f"decoder/layer_{i}", x, *states[i], fed=fed)
            x, fed = states[i][0], None
        alpha = softmax(np.array([score(x, source) for source in xs]))
        context = sum(a * source for a, source in zip(alpha, xs))
        attentional = np.tanh(np.concatenate([context, x]) @ w("readout/kernel"))
        expected["weights"].append(alpha)
        expected["sequence_output"].append(attentional)
    check(task, w, expected)


def test_attention_multiplies_no_four_axes_by_fewer(monkeypatch):
    """It is memory beyond its own that oneDNN writes then: TensorFlow's issue 117700."""
    matmul, axes = ops.matmul, []

    def recorded(x, y):
        axes.append((len(x.shape), len(y.shape)))
        return matmul(x, y)

    monkeypatch.setattr(ops, "matmul", recorded)
    attention = SourceAttention("additive", 8)
    attention.build((None, None, 8))
    keys = ops.ones((4, 6, 8))
    assert attention(ops.ones((4, 1, 8)), keys, keys, ops.zeros((4, 1, 6))).shape == (4, 1, 8)
    assert axes and all(of_x == of_y for of_x, of_y in axes)


def test_sutskever():
    task = make(2, attention=None, bidirectional=False, reverse_source=True)
    w = Weights(task)
    E = w("token_embedding/embeddings")
    xs, states = [E[i] for i in SOURCE[::-1]], []
    for i in range(2):
        xs, last = w.run(f"encoder_{i}", xs, WIDTH, True)
        states.append(last)
    expected = {"encoder_sequence_output": xs[::-1], "sequence_output": []}
    for token in TARGET:
        x = E[token]
        for i in range(2):
            states[i] = w.cell(f"decoder/layer_{i}", x, *states[i])
            x = states[i][0]
        expected["sequence_output"].append(x)
    check(task, w, expected)
    with pytest.raises(ValueError, match="no attention to look at"):
        task.backbone.cross_attention_probabilities(
            {"encoder_token_ids": [SOURCE], "decoder_token_ids": [TARGET]}
        )


def test_dropout_is_for_training_and_between_layers():
    inputs = {"encoder_token_ids": [SOURCE], "decoder_token_ids": [TARGET]}
    backbone = RNNEncoderDecoderBackbone(12, 2, WIDTH, dropout=0.5)
    names = [w.path for w in backbone.trainable_weights]
    plain, again, dropped = (
        backbone(inputs, training=training)["sequence_output"] for training in (False, False, True)
    )
    np.testing.assert_array_equal(plain, again)
    assert np.abs(plain - dropped).max() > 1e-3
    # The same features of all tokens, here those before the softmax.
    assert set(np.sum(np.asarray(dropped[0]) == 0, axis=0)) <= {0, len(TARGET)}
    assert "decoder/layer_1/recurrent_kernel" in names


# === In use ===

WORDS = ["red", "green", "blue", "rot", "blau"]
TOKENIZER = WordTokenizer(
    ["<unk>", "<pad>", "<s>", "</s>", *WORDS],
    unknown_token="<unk>",
    pad_token="<pad>",
    bos_token="<s>",
    eos_token="</s>",
)


@pytest.mark.thorough
@pytest.mark.eager
def test_it_learns_to_translate_and_beams_are_those_of_whole_passes():
    keras.utils.set_random_seed(0)
    backbone = RNNEncoderDecoderBackbone(
        9, 1, 12, attention="additive", cell="gru", tie_embeddings=True, dropout=0.0
    )
    task = Seq2SeqLM(backbone, tokenizer=TOKENIZER, sequence_length=8, target_length=4)
    task.compile(optimizer=keras.optimizers.Adam(0.05))
    sources, targets = ["red", "green blue", "blue red"], ["rot", "blau blau", "rot blau"]
    task.fit(sources * 10, targets * 10, batch_size=3, epochs=3, verbose=0)
    assert task.generate(sources) == targets
    actual = task.generate(sources, num_beams=3, num_return_sequences=2, length_penalty=0.0)
    assert [texts[0] for texts in actual] == targets
    # A beam's texts come by their likelihoods, which `score` computes without a state.
    for source, texts in zip(sources, actual):
        assert len(set(texts)) == 2
        best, next_best = task.score([source] * 2, texts)["scores"]
        assert best > next_best


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"cell": "rnn"}, r"cell='rnn': pass one of \['gru', 'lstm'\]"),
        ({"attention": "product"}, "attention='product': pass one of"),
        ({"hidden_dim": 7}, "halves hidden_dim=7"),
        ({"reverse_source": True}, "reverse_source=True with bidirectional=True"),
        ({"attention": "additive", "input_feeding": True}, "it feeds its context anyway"),
        ({"attention": None, "input_feeding": True}, "no attentional output to feed"),
        ({"tie_embeddings": True, "embedding_dim": 4}, "embedding_dim=4 to equal hidden_dim=500"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        RNNEncoderDecoderBackbone(12, **arguments)


def test_coverage_needs_attention():
    backbone = RNNEncoderDecoderBackbone(12, 1, 8, attention=None)
    with pytest.raises(ValueError, match=r"0\.2: this model has no attention"):
        Seq2SeqLM(backbone, num_beams=2, coverage_penalty=0.2)
