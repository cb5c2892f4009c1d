"""Recurrent checkpoints of forms and sizes that no reference folder has, by the papers' equations.

Shapes: B batch, S words, C characters, D width of one direction, U units.
"""

import json
import shutil
import zipfile

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_lm.converters import CheckpointError, open_checkpoint, read_word_vectors
from keras_lm.converters.converter import join_torch_lstm
from keras_lm.models import Backbone
from keras_lm.models.ulmfit import ConcatPoolingClassifier
from keras_lm.tasks import TextClassifier
from keras_lm.tokenizers import CharacterTokenizer

# === ELMo ===

D, U, E = 8, 12, 5
ELMO_FORMS = {
    "one layer, in the wrapper of several": {"layers": 1},
    "one layer alone, without clips": {
        "layers": 1,
        "cell": "RNN_{}/RNN/LSTMCell",
        "cell_clip": None,
        "projection_clip": None,
    },
    "three layers": {"layers": 3, "units": D},
    "no projection of cells": {"units": D, "project_cells": False},
    "no projection of words, no highway": {"filters": [[2, D]], "project_words": False, "gates": 0},
    "tanh, not residual, short words": {"activation": "tanh", "residual": False, "characters": 25},
    "clips that bind": {"cell_clip": 0.5, "projection_clip": 0.2},
}
SENTENCES = [["Hello", "x" * 200, "é😀"], [], [b"\xff\xfe\x00", "a"]]


class Elmo:
    """A random biLM: what AllenNLP would find in its two files, and the equations in NumPy."""

    def __init__(
        self,
        layers=2,
        units=U,
        filters=((1, 4), (3, 6)),
        gates=2,
        activation="relu",
        residual=True,
        characters=50,
        cell_clip=3.0,
        projection_clip=3.0,
        project_words=True,
        project_cells=True,
        cell="RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell",
    ):
        self.layers, self.units, self.cell, self.characters = layers, units, cell, characters
        self.options = {
            "lstm": {
                "n_layers": layers,
                "projection_dim": D,
                "dim": units,
                "cell_clip": cell_clip,
                "proj_clip": projection_clip,
                "use_skip_connections": residual,
            },
            "char_cnn": {
                "filters": [list(pair) for pair in filters],
                "embedding": {"dim": E},
                "n_highway": gates,
                "n_characters": 262,
                "max_characters_per_token": characters,
                "activation": activation,
            },
        }
        width = sum(number for _, number in filters)
        shapes = {"char_embed": (261, E)}
        for i, (reach, number) in enumerate(filters):
            shapes |= {f"CNN/W_cnn_{i}": (1, reach, E, number), f"CNN/b_cnn_{i}": (number,)}
        for i in range(gates):
            for part in ("transform", "carry"):
                shapes[f"CNN_high_{i}/W_{part}"] = (width, width)
                shapes[f"CNN_high_{i}/b_{part}"] = (width,)
        if project_words:
            shapes |= {"CNN_proj/W_proj": (width, D), "CNN_proj/b_proj": (D,)}
        for direction in range(2):
            for layer in range(layers):
                name = cell.format(direction, layer)
                shapes |= {f"{name}/W_0": (2 * D, 4 * units), f"{name}/B": (4 * units,)}
                if project_cells:
                    shapes[f"{name}/W_P_0"] = (units, D)
        rng = np.random.default_rng(5)
        self.weights = {
            name: rng.normal(size=shape, scale=0.4).astype("float32")
            for name, shape in shapes.items()
        }

    def save(self, folder):
        (folder / "options.json").write_text(json.dumps(self.options))
        with h5py.File(folder / "weights.hdf5", "w") as file:
            for name, array in self.weights.items():
                file[name] = array

    def spell(self, word):
        """The characters (C,) of a word in AllenNLP's numbers."""
        if isinstance(word, str):
            word = word.encode()
        ids = [259, *(byte + 1 for byte in word[: self.characters - 2]), 260]
        return ids + [261] * (self.characters - len(ids))

    def word(self, ids):
        """The vector (D,) of one word."""
        weights, cnn = self.weights, self.options["char_cnn"]
        embedded = np.concatenate([np.zeros((1, E)), weights["char_embed"]])[ids]  # (C, E)
        activate = np.tanh if cnn["activation"] == "tanh" else lambda x: np.maximum(x, 0)
        x = []
        for i, (reach, _) in enumerate(cnn["filters"]):
            windows = np.lib.stride_tricks.sliding_window_view(embedded, reach, axis=0)
            x.append(np.einsum("cew,wen->cn", windows, weights[f"CNN/W_cnn_{i}"][0]).max(0))
            x[-1] = activate(x[-1] + weights[f"CNN/b_cnn_{i}"])
        x = np.concatenate(x)
        for i in range(cnn["n_highway"]):
            parts = {
                part: x @ weights[f"CNN_high_{i}/W_{part}"] + weights[f"CNN_high_{i}/b_{part}"]
                for part in ("transform", "carry")
            }
            gate = _sigmoid(parts["carry"])
            x = gate * np.maximum(parts["transform"], 0) + (1 - gate) * x
        if "CNN_proj/W_proj" in weights:
            x = x @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]
        return x

    def read(self, words, hidden, cell):
        """The top layer (S, 2D) of a sentence; `hidden` and `cell` (L, 2, …) change in place."""
        ids = [[259, 257, 260], *map(self.spell, words), [259, 258, 260]]
        x = [np.stack([self.word(row + [261] * (self.characters - len(row))) for row in ids])] * 2
        options = self.options["lstm"]
        for layer in range(self.layers):
            for side in range(2):
                name = self.cell.format(side, layer)
                steps = x[side][::-1] if side else x[side]
                outputs = []
                for step in steps:
                    gates = (
                        np.concatenate([step, hidden[layer, side]]) @ self.weights[f"{name}/W_0"]
                    )
                    let_in, new, keep, out = np.split(gates + self.weights[f"{name}/B"], 4)
                    state = _sigmoid(keep + 1) * cell[layer, side] + _sigmoid(let_in) * np.tanh(new)
                    state = _clip(state, options["cell_clip"])
                    output = _sigmoid(out) * np.tanh(state)
                    if f"{name}/W_P_0" in self.weights:
                        output = output @ self.weights[f"{name}/W_P_0"]
                        output = _clip(output, options["proj_clip"])
                    cell[layer, side], hidden[layer, side] = state, output
                    outputs.append(output)
                outputs = np.stack(outputs)
                if options["use_skip_connections"] and layer:
                    outputs = outputs + steps
                x[side] = outputs[::-1] if side else outputs
        return np.concatenate(x, axis=-1)[1:-1]


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _clip(x, bound):
    return np.clip(x, -bound, bound) if bound else x


@pytest.mark.parametrize("form", ELMO_FORMS)
def test_elmo_of_any_form_by_its_equations(tmp_path, form):
    reference = Elmo(**ELMO_FORMS[form])
    reference.save(tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    rows = [[], *SENTENCES]
    hidden = np.zeros((len(rows), reference.layers, 2, D))
    cell = np.zeros((len(rows), reference.layers, 2, reference.units))
    states = None
    # The second batch is smaller: its last row's state stays for the third one.
    for sentences in (SENTENCES, SENTENCES[1:], [*SENTENCES[::-1], ["new"]]):
        ids = np.zeros((len(sentences), 4, reference.characters), "int32")
        for row, words in enumerate(sentences):
            for place, word in enumerate(words, start=row % 2):  # padding on the left, too
                ids[row, place] = reference.spell(word)
        outputs = backbone({"character_ids": ids, "states": states})
        states = outputs["states"]
        for row, words in enumerate(sentences):
            expected = np.zeros((4, 2 * D))
            read = reference.read(words, hidden[row], cell[row])
            expected[row % 2 : row % 2 + len(words)] = read
            np.testing.assert_allclose(outputs["sequence_output"][row], expected, atol=2e-5)
        for name, value in (("hidden", hidden), ("cell", cell)):
            value = value[: len(states[name])]
            actual = np.reshape(states[name], value.shape)
            np.testing.assert_allclose(actual, value, atol=2e-5)


def test_elmos_characters_as_its_files_count_them(tmp_path):
    reference = Elmo(characters=25)
    reference.save(tmp_path)
    tokenizer = CharacterTokenizer.from_files(str(tmp_path))
    words = ["Zoë", "x" * 200, "😀", b"\xff\x00", "", " "]
    expected = [reference.spell(word) for word in words]
    np.testing.assert_array_equal(tokenizer.tokenize_words(words), expected)


# === fastai ===


def fastai_tensors(goldens, name):
    checkpoint = open_checkpoint(goldens(name))
    return {name: np.ascontiguousarray(checkpoint.tensors[name]) for name in checkpoint.tensors}


def test_a_file_of_fastai_0_7(goldens, tmp_path):
    shutil.copy(goldens("awd-lstm") / "lstm.pth", tmp_path / "fwd_wt103.h5")
    ids = {"token_ids": np.array([[5, 9, 77]], "int32")}
    expected = Backbone.from_preset(goldens("awd-lstm"))(ids)["sequence_output"]
    actual = Backbone.from_preset(tmp_path)(ids)["sequence_output"]
    np.testing.assert_array_equal(actual, expected)


def test_a_classifier_of_one_layer(goldens, tmp_path):
    tensors = fastai_tensors(goldens, "ulmfit-classifier")
    head = {name: tensors.pop(name) for name in list(tensors) if name.startswith("1.layers.")}
    width = len(head["1.layers.0.0.weight"])
    rng = np.random.default_rng(2)
    kernel = rng.normal(size=(5, width)).astype("float32")
    first = {name: value for name, value in head.items() if name.startswith("1.layers.0.0.")}
    save_file(tensors | first | {"1.layers.0.2.weight": kernel}, tmp_path / "model.safetensors")
    task = TextClassifier.from_preset(tmp_path)
    inputs = {
        "token_ids": np.array([[5, 9, 77]], "int32"),
        "padding_mask": np.ones((1, 3), "int32"),
    }
    x = np.asarray(task.backbone(inputs)["sequence_output"])[0]
    x = np.concatenate([x[-1], x.max(0), x.mean(0)])
    norm = {name.rpartition(".")[2]: value for name, value in first.items()}
    x = (x - norm["running_mean"]) / np.sqrt(norm["running_var"] + 1e-5)
    expected = kernel @ (x * norm["weight"] + norm["bias"])
    np.testing.assert_allclose(task(inputs)[0], expected, atol=5e-5)


def test_pooling_as_fastai_does_in_any_of_its_layouts():
    """Whole chunks of padding before, the rest of it after; the last chunks within a length."""
    rng = np.random.default_rng(0)
    compared = 0
    for _ in range(20):
        chunk = int(rng.integers(2, 8))
        length = chunk * int(rng.integers(1, 4))
        lengths = np.sort(rng.integers(1, 30, size=3))[::-1]
        columns = lengths[0]
        x, is_pad = np.zeros((3, columns, 2), "float32"), np.ones((3, columns), bool)
        for row, number in enumerate(lengths):
            first = (columns - number) // chunk * chunk
            x[row, first : first + number] = rng.uniform(-1, 1, size=(number, 2))
            is_pad[row, first : first + number] = False
        start = next(i for i in range(0, columns, chunk) if columns - i <= length)
        kept, pad = x[:, start:], is_pad[:, start:]
        last = kept.shape[1] - 1 - pad[:, -chunk:].sum(1)
        if pad.all(1).any() or last.min() < 0:  # fastai has no answer there
            continue
        compared += 1
        expected = [
            kept[range(3), last],
            np.where(pad[..., None], -np.inf, kept).max(1),
            kept.sum(1) / (~pad).sum(1, keepdims=True),
        ]
        head = ConcatPoolingClassifier(2, pooled_length=length, pooled_chunk=chunk)
        pooled = head.pool(x, (~is_pad).astype("int32"))
        np.testing.assert_allclose(pooled, np.concatenate(expected, -1), atol=1e-6)
    assert compared > 10


def test_a_qrnn_is_refused(goldens, tmp_path):
    # Two names of one length, so that the pickle's own lengths stay true.
    old, new = b"0.rnns.0.module.weight_ih_l0", b"0.rnns.0.0.linear.weight_raw"
    with (
        zipfile.ZipFile(goldens("awd-lstm") / "lstm.pth") as archive,
        zipfile.ZipFile(tmp_path / "lm.pth", "w") as copy,
    ):
        for entry in archive.namelist():
            copy.writestr(entry, archive.read(entry).replace(old, new))
    with pytest.raises(CheckpointError, match="holds a QRNN"):
        Backbone.from_preset(tmp_path)


def test_biases_of_half_precision_are_added_in_full():
    parts = [np.array([1.0], "float16"), np.array([0.0007], "float16")]
    np.testing.assert_array_equal(
        join_torch_lstm("lstm/bias", parts), np.float32(parts[0]) + np.float32(parts[1])
    )


# === Word vectors ===


@pytest.mark.parametrize("place", range(5))
def test_binary_vectors_whose_first_bytes_look_like_text(tmp_path, place):
    numbers = np.frombuffer(b"AB CDEFG", np.uint8).copy()
    if place < 4:
        numbers[place] = 10  # ends a line, where there were lines
    rows = np.stack([numbers, numbers[::-1]]).view("<f4")
    words = ["the", "cat"]
    data = b"2 2\n" + b"".join(w.encode() + b" " + r.tobytes() for w, r in zip(words, rows))
    (tmp_path / "x.bin").write_bytes(data)
    actual, vectors = read_word_vectors(tmp_path / "x.bin")
    assert actual[2:] == words
    np.testing.assert_array_equal(vectors[2:], rows)


@pytest.mark.parametrize("header", [b"", b"2 2\n"])
def test_empty_lines_at_the_end_are_no_words(tmp_path, header):
    (tmp_path / "x.txt").write_bytes(header + b"a 1 2\nb 3 4\n\n\n")
    words, vectors = read_word_vectors(tmp_path / "x.txt")
    assert words[2:] == ["a", "b"]
    np.testing.assert_array_equal(vectors[2:], [[1, 2], [3, 4]])
