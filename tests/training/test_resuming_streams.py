"""Streams that were interrupted go on in their midst, states and all, to the same weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import AWDLSTMBackbone, ElmoBackbone, XLNetBackbone
from keras_lm.objectives import PermutationLanguageModel
from keras_lm.tasks import BidirectionalLM, CausalLM, Pretrainer
from keras_lm.tokenizers import CharacterTokenizer, learn_words
from keras_lm.training import AdamW, fit_sentences, fit_streams

SENTENCES = ["the cat sat .", "a dog ran", "it sat", "the dog", "a mat .", "cat and dog", "it"]
V, S = 20, 4


@pytest.fixture(autouse=True)
def eagerly():
    """What is computed is the same, and nothing has to be traced."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def over_sentences(seed):
    """Dropout, and a sample of words in each step."""
    keras.utils.set_random_seed(seed)
    size = {"num_layers": 1, "hidden_dim": 4, "cell_dim": 5, "filters": [(1, 4)], "num_highways": 0}
    backbone = ElmoBackbone(**size, characters_per_word=6, dropout=0.2)
    task = BidirectionalLM(
        backbone,
        words=learn_words(SENTENCES, 50),
        num_candidates=4,
        tokenizer=CharacterTokenizer(characters_per_word=6),
    )
    task.compile(optimizer=AdamW(0.03))
    return task


def over_windows(seed):
    keras.utils.set_random_seed(seed)
    task = CausalLM(AWDLSTMBackbone(V, num_layers=2, hidden_dim=6, embedding_dim=4))
    task.compile(optimizer=AdamW(0.03))
    return task


def over_rows(seed, micro_batch_size=None, **arguments):
    """A memory, an order that is drawn in each step, and half of the streams from right to left."""
    keras.utils.set_random_seed(seed)
    size = {"num_layers": 1, "num_heads": 1, "hidden_dim": 6, "intermediate_dim": 8}
    backbone = XLNetBackbone(V, **size, memory_length=5, reuse_length=4, **arguments)
    task = Pretrainer(backbone, [PermutationLanguageModel([0], context=3)])
    task.compile(optimizer=AdamW(0.03), micro_batch_size=micro_batch_size)
    return task


def sentences(task, **options):
    options = {"batch_size": 2, "epochs": 2} | options
    return fit_sentences(task, SENTENCES, verbose=0, **options)


def windows(task, **options):
    tokens = np.random.default_rng(0).integers(0, V, (7, S + 1)).astype("int32")
    tokens = tf.data.Dataset.from_tensor_slices(tokens)
    options = {"batch_size": 2, "epochs": 2, "validation_windows": tokens} | options
    return fit_streams(task, tokens, verbose=0, **options)


def rows(task, **options):
    ids = np.random.default_rng(0).integers(1, V, (13, 2 * S)).astype("int32")
    columns = {"token_ids": ids, "is_reversed": np.repeat([0, 1], [6, 7]).astype("int32")}
    columns = tf.data.Dataset.from_tensor_slices(columns)
    options = {"batch_size": 4, "epochs": 2, "validation_windows": columns} | options
    return fit_streams(task, columns, verbose=0, **options)


def state(task):
    variables = [*task.variables, *task.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


@pytest.mark.parametrize(
    ("make", "fit"),
    [
        pytest.param(over_sentences, sentences, id="words", marks=pytest.mark.slow),
        pytest.param(over_windows, windows, id="tokens", marks=pytest.mark.slow),
        pytest.param(over_rows, rows, id="rows", marks=pytest.mark.slow),
    ],
)
def test_interrupted_streams_go_on_bit_for_bit(make, fit, tmp_path, interrupt_before):
    whole = make(seed=1)
    expected = fit(whole)
    file = tmp_path / "run.safetensors"
    for seed, step in [(1, 2), (100, 3)]:  # within the first epoch, and within the second
        with pytest.raises(KeyboardInterrupt):
            fit(make(seed), checkpoint=file, minutes=0, callbacks=[interrupt_before(step)])
    task = make(seed=101)  # by another seed: what is restored is not made again by luck
    history = fit(task, checkpoint=file, minutes=0)
    for ours, theirs in zip(state(task), state(whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(history["loss"]) == 1
    for name in expected:
        if name.startswith("val_"):
            assert history[name][-1] == expected[name][-1]
    assert fit(make(seed=102), checkpoint=file) == {}  # at its end there is nothing left to train
    with pytest.raises(ValueError, match="epochs=2, and not 3"):
        fit(make(seed=1), checkpoint=file, epochs=3)


@pytest.mark.slow
def test_streams_in_micro_batches():
    """Parts of a batch start from their own rows of the memory, and leave theirs to the next."""
    states = []
    for size in (None, 3):
        task = over_rows(1, size, dropout=0.0, attention_dropout=0.0)
        history = rows(task, epochs=1, validation_windows=None)
        states.append([history["loss"], *state(task)])
    for whole, parts in zip(*states, strict=True):
        np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-5)


def test_half_of_the_streams_are_of_each_direction():
    with pytest.raises(ValueError, match="batch_size=3, and half of the streams are of each"):
        rows(over_rows(1), batch_size=3)
    with pytest.raises(ValueError, match="windows has 12, which do not fill batch_size=14"):
        rows(over_rows(1), batch_size=14)
    read = []

    class Seen(PermutationLanguageModel):
        def corrupt(self, inputs, training=True):
            read.append({name: np.asarray(value) for name, value in inputs.items()})
            return super().corrupt(inputs, training)

    task = over_rows(1)
    task = Pretrainer(task.backbone, [Seen([0])])
    task.compile()
    rows(task, epochs=1, steps=2, validation_windows=None)
    ids = np.random.default_rng(0).integers(1, V, (13, 2 * S))
    for step, batch in enumerate(read[-2:]):
        assert batch["is_reversed"].tolist() == [0, 0, 1, 1]
        np.testing.assert_array_equal(batch["token_ids"], ids[[step, 3 + step, 6 + step, 9 + step]])
    with pytest.raises(ValueError, match="epochs=2 and steps=3: pass one"):
        rows(task, steps=3)
    with pytest.raises(ValueError, match="which Pretrainer is not: pass rows"):
        windows(task)
