"""Rates by depth, layers that join in, streams with a carried state: ULMFiT's three stages."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.data import token_windows
from keras_lm.metrics import ChrF, Rouge
from keras_lm.models import (
    AWDLSTMBackbone,
    BertBackbone,
    ElectraBackbone,
    ElmoBackbone,
    GPT2Backbone,
    MarianBackbone,
)
from keras_lm.tasks import CausalLM, MultiTask, Seq2SeqLM, TextClassifier
from keras_lm.tokenizers import WordTokenizer
from keras_lm.training import (
    AdamW,
    DiscriminativeAdamW,
    GenerateEachEpoch,
    GradualUnfreezing,
    SlantedTriangular,
    fit_streams,
    layer_groups,
)

SPECIAL = ["xxunk", "xxpad", "xxbos", "xxeos", "xxfld"]
OPINIONS = ["good", "bad"]
WORDS = ["the", "cat", "dog", "sat", "ran", "on", "mat", "road", "good", "bad", "."]


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer(SPECIAL + WORDS, "xxunk", "xxpad", "xxbos", "xxeos", SPECIAL[4:])


def recurrent(tokenizer, **options):
    keras.utils.set_random_seed(3)
    options = {
        "num_layers": 2,
        "hidden_dim": 16,
        "embedding_dim": 12,
        "classifier_dims": [6],
    } | options
    return AWDLSTMBackbone(tokenizer.vocabulary_size, **options)


# === Schedule ===


def test_slanted_triangular():
    schedule = SlantedTriangular(peak=0.32, total_steps=100)
    rates = [float(schedule(step)) for step in (0, 5, 10, 55, 100, 200)]
    np.testing.assert_allclose(rates, [0.01, 0.165, 0.32, 0.165, 0.01, 0.01], rtol=1e-5)
    again = SlantedTriangular.from_config(schedule.get_config())
    assert float(again(5)) == float(schedule(5))
    assert float(SlantedTriangular(peak=0.5)(7)) == 0.5  # until its length is known
    with pytest.raises(ValueError, match=r"ratio=0\.5 is less than 1"):
        SlantedTriangular(1.0, ratio=0.5)


# === Groups ===


def names(groups):
    return [sorted({variable.path.split("/")[0] for variable in group}) for group in groups]


def test_groups_of_a_transformer():
    size = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}
    task = TextClassifier(BertBackbone(vocabulary_size=20, **size), num_classes=2)
    groups = layer_groups(task)
    assert [sorted(group) for group in names(groups)[1:]] == [
        ["block_0"],
        ["block_1", "pooler"],
        ["classifier"],
    ]
    assert "token_embedding" in names(groups)[0]
    paths = [variable.path for group in groups for variable in group]
    assert sorted(paths) == sorted(variable.path for variable in task.trainable_variables)

    task = CausalLM(GPT2Backbone(vocabulary_size=20, **size))
    assert names(layer_groups(task)) == [
        ["position_embedding"],
        ["block_0"],
        ["block_1", "final_norm"],
        ["token_embedding"],  # which is the head, too
    ]


def test_groups_of_elmo():
    """The parts of the network over characters are numbered, too, and are one group."""
    backbone = ElmoBackbone(num_layers=2, hidden_dim=4, cell_dim=6, filters=[(1, 3), (2, 3)])
    task = TextClassifier(backbone, num_classes=2)
    assert names(layer_groups(task)) == [
        ["character_cnn"],
        ["layer_0"],
        ["layer_1"],
        ["classifier"],
    ]


def test_groups_of_two_stacks():
    backbone = MarianBackbone(20, 2, 2, 8, 8)
    assert names(layer_groups(Seq2SeqLM(backbone))) == [
        ["decoder_block_0", "encoder_block_0"],
        ["decoder_block_1", "encoder_block_1"],
        ["token_embedding"],
    ]


@pytest.mark.eager
def test_heads_of_several_tasks_are_one_group(tokenizer):
    backbone = recurrent(tokenizer)
    made = {"backbone": backbone, "tokenizer": tokenizer, "num_classes": 2}
    task = MultiTask({"a": TextClassifier(**made), "b": TextClassifier(**made)})
    groups = layer_groups(task)
    assert names(groups)[1:] == [["lstm_0"], ["lstm_1"], ["classifier"]]
    assert sum(map(len, groups)) == len(task.trainable_variables)
    before = [variable.numpy() for variable in backbone.weights]
    task.fit({"a": (OPINIONS, [1, 0])}, callbacks=[GradualUnfreezing()], verbose=0)
    assert all(map(np.array_equal, before, [variable.numpy() for variable in backbone.weights]))


def test_groups_of_ulmfit(tokenizer):
    backbone = recurrent(tokenizer)
    lower = [["lstm_0"], ["lstm_1"]]
    task = TextClassifier(backbone, num_classes=2)
    assert names(layer_groups(task)) == [["token_embedding"], *lower, ["classifier"]]
    task = CausalLM(backbone)
    assert names(layer_groups(task)) == [*lower, ["token_embedding", "token_head"]]


# === Rates by depth ===


@pytest.mark.eager
def test_rates_fall_with_depth(tokenizer):
    task = TextClassifier(recurrent(tokenizer), tokenizer=tokenizer, num_classes=2)
    optimizer = DiscriminativeAdamW.for_task(
        task, factor=10.0, learning_rate=SlantedTriangular(0.01), weight_decay=0.0
    )
    task.compile(optimizer=optimizer)
    before = [[v.numpy() for v in group] for group in layer_groups(task)]
    task.train_on_batch(["the cat sat", "the bad dog"], [0, 1])
    moved = [
        max(np.abs(v.numpy() - old).max() for v, old in zip(group, values, strict=True))
        for group, values in zip(layer_groups(task), before, strict=True)
    ]
    # Adam's first step is the rate itself, wherever there is a gradient.
    rate = 0.01
    np.testing.assert_allclose(moved, [rate / 1e3, rate / 1e2, rate / 10, rate], rtol=0.05)
    again = DiscriminativeAdamW.from_config(optimizer.get_config())
    assert again.multipliers == optimizer.multipliers
    with pytest.raises(ValueError, match="factor=0 is not positive"):
        DiscriminativeAdamW.for_task(task, factor=0)


def test_rates_are_those_of_electra():
    """`_get_layer_lrs` of google-research/electra: by the depth of names as in its checkpoints."""
    decay, layers = 0.8, 3
    backbone = ElectraBackbone(20, layers, 2, 8, 8, embedding_dim=4)
    task = TextClassifier(backbone, num_classes=2)
    optimizer = DiscriminativeAdamW.for_task(
        task, factor=1 / decay, head_steps=2, learning_rate=3e-4
    )
    depths = {"classifier/": layers + 2} | {f"block_{i}/": i + 1 for i in range(layers)}
    lower = ("token_embedding", "position_embedding", "segment_embedding", "embedding_norm")
    depths |= {f"{name}/": 0 for name in (*lower, "projection")}
    expected = {
        variable.path: decay ** (layers + 2 - depth)
        for variable in task.trainable_variables
        for name, depth in depths.items()
        if variable.path.startswith(name)
    }
    assert len(expected) == len(task.trainable_variables)
    assert optimizer.multipliers == pytest.approx(expected)


# === Layers that join in ===


@pytest.mark.slow
@pytest.mark.eager
def test_layers_join_in_one_by_one(tokenizer):
    task = TextClassifier(recurrent(tokenizer), tokenizer=tokenizer, num_classes=2)
    task.compile(optimizer=AdamW(learning_rate=keras.optimizers.schedules.CosineDecay(0.01, 99)))
    groups = layer_groups(task)
    texts, labels = ["the cat sat", "the bad dog"], [0, 1]
    values = [[[v.numpy() for v in group] for group in groups]]
    record = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: values.append([[v.numpy() for v in group] for group in groups])
    )
    task.fit(texts, labels, epochs=4, callbacks=[GradualUnfreezing(), record], verbose=0)
    moved = [
        [
            any(np.any(a != b) for a, b in zip(old, new, strict=True))
            for old, new in zip(*pair, strict=True)
        ]
        for pair in itertools.pairwise(values)
    ]
    assert moved == [[i >= 3 - epoch for i in range(4)] for epoch in range(4)]
    assert all(v.trainable for group in groups for v in group)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    broken_off = keras.callbacks.LambdaCallback(on_train_batch_end=interrupt)
    with pytest.raises(KeyboardInterrupt):
        task.fit(texts, labels, callbacks=[GradualUnfreezing(), broken_off], verbose=0)
    assert [group[0].trainable for group in groups] == [False, False, False, True]
    task.compile(run_eagerly=True)  # a new optimizer, made while most layers are frozen
    before = groups[-2][0].numpy()
    task.fit(texts, labels, epochs=2, callbacks=[GradualUnfreezing()], verbose=0)
    assert all(v.trainable for group in groups for v in group)
    assert np.abs(groups[-2][0].numpy() - before).max() > 0


# === Streams, and the three stages ===


def corpus(nouns, number=60, seed=0):
    rng = np.random.default_rng(seed)
    return [f"the {rng.choice(nouns)} sat , {rng.choice(OPINIONS)} ." for _ in range(number)]


@pytest.mark.slow
def test_streams_carry_the_state(tokenizer):
    still = dict.fromkeys(
        ("dropout", "embedding_dropout", "input_dropout", "weight_drop", "output_dropout"), 0.0
    )
    task = CausalLM(
        recurrent(tokenizer, **still, activation_penalty=0.0, slowness_penalty=0.0),
        tokenizer=tokenizer,
    )
    task.compile(optimizer=keras.optimizers.SGD(0.0))
    windows = token_windows(corpus(["cat", "dog"], 12), tokenizer, sequence_length=5)
    history = fit_streams(task, windows, batch_size=2, validation_windows=windows, verbose=0)
    rows = np.stack(list(windows.as_numpy_iterator()))
    rows = rows[: len(rows) // 2 * 2].reshape(2, -1, 6)
    whole = np.concatenate([rows[:, :, :-1].reshape(2, -1), rows[:, -1:, -1]], axis=1)
    task.compile(run_eagerly=True)
    expected = task.evaluate({"token_ids": whole[:, :-1]}, whole[:, 1:], verbose=0)
    np.testing.assert_allclose(history["loss"], expected[0], rtol=1e-4)
    np.testing.assert_allclose(history["val_loss"], expected[0], rtol=1e-4)


def test_streams_that_cannot_be(tokenizer):
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}
    windows = tf.data.Dataset.from_tensor_slices(np.ones((4, 3), "int32"))
    with pytest.raises(ValueError, match="GPT2Backbone has no states to carry"):
        fit_streams(CausalLM(GPT2Backbone(vocabulary_size=20, **size)), windows)
    with pytest.raises(ValueError, match="do not fill batch_size=5"):
        fit_streams(CausalLM(recurrent(tokenizer)), windows, batch_size=5)


@pytest.mark.thorough
def test_three_stages(tokenizer, tmp_path):
    """General language model, target language model, classifier; averaged weights at the end."""
    task = CausalLM(recurrent(tokenizer, weight_drop=0.0, input_dropout=0.0), tokenizer=tokenizer)
    # Averaged weights, in the place of AWD-LSTM's NT-ASGD.
    task.compile(optimizer=AdamW(learning_rate=0.03, use_ema=True, ema_momentum=0.9))
    windows = token_windows(corpus(["cat"]), tokenizer, sequence_length=10)
    history = fit_streams(task, windows, batch_size=4, epochs=6, verbose=0)
    assert history["perplexity"][-1] < 0.5 * history["perplexity"][0]
    task.save_to_preset(tmp_path / "general")

    task = CausalLM.from_preset(tmp_path / "general")
    sentence = ["the dog sat , good ."]
    before = task.score(sentence)["perplexity"][0]
    task.compile(
        optimizer=DiscriminativeAdamW.for_task(task, learning_rate=SlantedTriangular(0.03))
    )
    windows = token_windows(corpus(["dog"], seed=1), tokenizer, sequence_length=10)
    fit_streams(task, windows, batch_size=4, epochs=4, verbose=0)
    assert task.score(sentence)["perplexity"][0] < 0.9 * before
    task.save_to_preset(tmp_path / "target")

    with pytest.warns(UserWarning, match="new and random are classifier/"):
        task = TextClassifier.from_preset(tmp_path / "target", class_names=OPINIONS)
    task.compile(
        optimizer=DiscriminativeAdamW.for_task(task, learning_rate=SlantedTriangular(0.05))
    )
    texts = corpus(["dog", "cat"], 48, seed=2)
    labels = [next(word for word in OPINIONS if word in text) for text in texts]
    task.fit(texts, labels, batch_size=4, epochs=12, callbacks=[GradualUnfreezing()], verbose=0)
    assert task.evaluate(texts, labels, verbose=0, return_dict=True)["accuracy"] > 0.9


def test_generated_texts_are_measured_after_each_epoch():
    class Writer:
        asked = []

        def generate(self, x, **options):
            self.asked.append((x, options))
            return [f"{text} {len(self.asked)}" for text in x]

    targets = [["a 2", "other"], ["b 2"]]
    metrics = [ChrF(), Rouge("rouge1")]
    callback = GenerateEachEpoch(["a", "b"], targets, metrics, num_beams=2)
    callback.set_model(Writer())
    results = []
    for epoch in range(2):
        logs = {"loss": 1.0}
        callback.on_epoch_end(epoch, logs)
        results.append(logs)
    assert results[0]["val_rouge1"] == 0.5
    assert results[1] == {"loss": 1.0, "val_chrf": 100.0, "val_rouge1": 1.0}
    assert Writer.asked == [(["a", "b"], {"num_beams": 2})] * 2
    for x in (["a"], {"text": ["a"]}, (["a"], ["b"])):
        with pytest.raises(ValueError, match="targets has 2 rows for 1 texts"):
            GenerateEachEpoch(x, targets, metrics)
