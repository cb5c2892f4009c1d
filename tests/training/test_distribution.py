"""N replicas of a batch of B/N rows train as one with B. A new task joins by a line in `CASES`.

Strategies need processes of their own, in which this file is a script: see `compare`.
"""

import contextlib
import functools
import json
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import models, objectives, tasks
from keras_lm.data import epoch_batches, window_batches
from keras_lm.data.shards import own
from keras_lm.feeding import datasets
from keras_lm.tasks import runtime
from keras_lm.tokenizers import CharacterTokenizer, WordPieceTokenizer, WordTokenizer, learn_words
from keras_lm.training import AdamW, Lamb, evaluate_streams, fit_streams, fit_windows
from keras_lm.utils.processes import workers_of

WORDS = ["good", "bad", "dull", "fine", "film", "story", "cast", "the", "was", "very", "so", "and"]
random = np.random.default_rng(0)
# The last batch of four has a single row, so that one of two replicas has none.
ROWS, BATCH, EPOCHS = 17, 4, 4
TEXTS = [" ".join(random.choice(WORDS, number)) for number in random.integers(1, 9, ROWS)]
OTHERS = [" ".join(random.choice(WORDS, number)) for number in random.integers(1, 5, ROWS)]
CLASSES = random.integers(0, 3, ROWS)
TAGS = [[(len(word) + n) % 3 for n, word in enumerate(text.split())] for text in TEXTS]
TAGS[0] = TAGS[5] = [-100] * len(TAGS[0])
TAGS[5] = [-100] * len(TEXTS[5].split())
TREES = [f"(S {' '.join(f'(NP (NN {word}))' for word in text.split())})" for text in TEXTS]
LABELS_OF_SPANS = ["NP", "S", "S::NP"]
# The first and the last word of a text are the same, if it has several.
CLUSTERS = [
    [[(0, text.index(" ")), (text.rindex(" ") + 1, len(text))]] if " " in text else []
    for text in TEXTS
]
# Of the windows of a context not all hold its answer, and of some questions none.
ANSWERS = [
    {"text": text.split()[-1], "start": text.rindex(" ") + 1} if " " in text else None
    for text in TEXTS
]
CHOICES = [[one, other] for one, other in zip(OTHERS, reversed(OTHERS))]
SIZE = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8, "dropout": 0.0}
# Replicas draw other rotations than one; texts of one chunk need none.
REFORMER = SIZE | {"num_layers": 2, "local_chunk_length": 4, "local_attention_dropout": 0.0}
PACKING = {"sequence_length": 12, "padding": "fixed"}


@functools.cache
def pieces():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return WordPieceTokenizer([*special, *WORDS], lowercase=True)


@functools.cache
def words():
    special = ["<unk>", "<pad>", "xxbos", "xxfld"]
    return WordTokenizer(
        special + WORDS, "<unk>", "<pad>", additional_special_tokens=["xxbos", "xxfld"]
    )


def task(cls, backbone=models.BertBackbone, *size, tokenizer=None, packing=PACKING, **options):
    """Return how to make a task over a small backbone, with a dtype."""

    def make(dtype=None):
        tokens = (tokenizer or pieces)()
        arguments = SIZE if not size else size[0]
        network = backbone(tokens.vocabulary_size, **arguments, dtype=dtype)
        return cls(network, tokenizer=tokens, **packing, **options)

    return make


def pretrainer(*names, backbone=models.BertBackbone):
    """Masks are those of the text, whatever the replica that draws them."""

    def make(dtype=None):
        chosen = [getattr(objectives, name) for name in names]
        chosen = [
            cls(masks_per_text=1, rate=0.3) if hasattr(cls, "draw_fates") else cls()
            for cls in chosen
        ]
        network = backbone(pieces().vocabulary_size, **SIZE, dtype=dtype)
        return tasks.Pretrainer(network, chosen, tokenizer=pieces(), **PACKING)

    return make


def masked_lm(dtype=None):
    made = task(tasks.MaskedLM)(dtype)
    made.objective.masks_per_text = 1
    return made


def electra(dtype=None):
    """Samples are the likeliest tokens, whatever the replica that draws them."""
    backbone = models.ElectraBackbone(pieces().vocabulary_size, **SIZE, dtype=dtype)
    generator = tasks.MaskedLM(backbone.make_generator(1 / 2), tokenizer=pieces(), **PACKING)
    masking = objectives.MaskedLanguageModel(
        mask_share=1.0, random_share=0.0, masks_per_text=1, rate=0.3
    )
    objective = objectives.ReplacedByGenerator(generator, temperature=1e-6, masking=masking)
    return tasks.Pretrainer(backbone, [objective], tokenizer=pieces(), **PACKING)


def distilbert(dtype=None):
    masking = objectives.MaskedLanguageModel(masks_per_text=1, rate=0.3)
    objective = objectives.MaskedLMDistillation(masked_lm(), masking=masking)
    backbone = models.DistilBertBackbone(pieces().vocabulary_size, **SIZE)
    return tasks.Pretrainer(backbone, [objective], tokenizer=pieces(), **PACKING)


def tinybert(dtype=None):
    student, teacher = (models.BertBackbone(pieces().vocabulary_size, **SIZE) for _ in range(2))
    objective = objectives.LayerDistillation(student, teacher)
    return tasks.Pretrainer(student, [objective], tokenizer=pieces(), **PACKING)


def ulmfit(dtype=None):
    make = task(tasks.TextClassifier, models.AWDLSTMBackbone, AWD, tokenizer=words, num_classes=3)
    model = make(dtype)
    for weight in model.backbone.trainable_variables:
        # Of features that hardly vary, batch norm makes rounding large, on one replica too.
        weight.assign(10.0 * weight)
    return model


def distiller(dtype=None):
    student, teacher = (task(tasks.TextClassifier, num_classes=3)() for _ in range(2))
    for number, weight in enumerate(teacher.trainable_weights):
        weight.assign_add(0.5 * keras.random.normal(weight.shape, seed=number))
    return tasks.Distiller(student, teacher)


def bidirectional_lm(dtype=None):
    size = {"num_layers": 1, "hidden_dim": 4, "cell_dim": 6, "filters": [(1, 4), (2, 4)]}
    return tasks.BidirectionalLM(
        models.ElmoBackbone(**size, characters_per_word=6, dropout=0.0),
        words=learn_words(TEXTS, 100),
        num_candidates=None,
        tokenizer=CharacterTokenizer(6),
    )


AWD = {"num_layers": 2, "hidden_dim": 8, "embedding_dim": 6}
# Arguments of `trained`: how to make the task, labels, and whether texts come in pairs.
CASES = {
    "classifier": (task(tasks.TextClassifier, num_classes=3), CLASSES),
    "pairs": (task(tasks.TextClassifier, num_classes=3), CLASSES, (TEXTS, OTHERS)),
    "multi_label": (
        task(tasks.TextClassifier, num_classes=2, multi_label=True),
        np.eye(3)[CLASSES][:, :2],
    ),
    "regressor": (task(tasks.TextRegressor), CLASSES.astype("float32")),
    "choices": (task(tasks.MultipleChoice), CLASSES % 2, {"text": TEXTS, "choices": CHOICES}),
    "questions": (
        task(tasks.QuestionAnswerer, stride=4),
        ANSWERS,
        {"question": OTHERS, "context": TEXTS},
    ),
    "tagger": (task(tasks.TokenClassifier, num_classes=3), TAGS),
    "crf": (task(tasks.TokenClassifier, num_classes=3, crf=True), TAGS),
    "parser": (
        task(tasks.ConstituencyParser, class_names=LABELS_OF_SPANS, hidden_dim=8),
        TREES,
    ),
    "coreference": (task(tasks.CoreferenceResolver, max_span_width=2, hidden_dim=4), CLUSTERS),
    "gpt": (task(tasks.TextClassifier, models.GPTBackbone, num_classes=3), CLASSES),
    "ulmfit": (ulmfit, CLASSES),
    "causal_lm": (task(tasks.CausalLM, models.GPT2Backbone), None),
    "awd_lstm": (task(tasks.CausalLM, models.AWDLSTMBackbone, AWD, tokenizer=words), None),
    "reformer": (task(tasks.CausalLM, models.ReformerBackbone, REFORMER), None),
    "bidirectional_lm": (bidirectional_lm, None),
    "masked_lm": (masked_lm, None),
    "bert": (pretrainer("MaskedLanguageModel", "NextSentence"), CLASSES % 2, (TEXTS, OTHERS)),
    "albert": (
        pretrainer("MaskedNGrams", "SentenceOrder", backbone=models.AlbertBackbone),
        {"sentence_order_labels": CLASSES % 2},
        (TEXTS, OTHERS),
    ),
    "spanbert": (
        pretrainer("MaskedSpans", "SpanBoundary", backbone=models.SpanBertBackbone),
        None,
    ),
    "electra": (electra, None),
    "distilbert": (distilbert, None),
    "tinybert": (tinybert, None),
    "distiller": (distiller, CLASSES),
    "seq2seq": (task(tasks.Seq2SeqLM, models.T5Backbone), OTHERS),
    "encoder": (task(tasks.SentenceEncoder), None, (TEXTS, OTHERS)),
}


def without_chance(model):
    """Set all rates of dropout to zero: replicas draw other numbers than one."""
    for layer in model._flatten_layers():
        for rate in {"rate", "weight_drop"} & set(vars(layer)):
            setattr(layer, rate, 0.0)
    return model


def trained(strategy, case, optimizer="adamw", dtype=None, epochs=EPOCHS, **options):
    """Return what a task learns in 20 steps under a strategy, by name: lists and arrays.

    With another number of epochs than `EPOCHS` there are five steps in each.
    """
    make, labels, *texts = CASES[case]
    x = texts[0] if texts else TEXTS
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = without_chance(make(dtype))
    rate = 0.01
    if optimizer == "sgd":  # gradients of so narrow a network are small, with weights of 0.02
        rate = 0.1
        for weight in model.trainable_weights:
            if weight.path.endswith(("kernel", "embeddings")):
                weight.assign(20 * weight)
    rate = keras.optimizers.schedules.PolynomialDecay(rate, 40)
    make_optimizer = {"adamw": AdamW, "lamb": Lamb, "sgd": keras.optimizers.SGD}[optimizer]
    # The norm of gradients is far above: they are clipped in every step.
    clip = {} if optimizer == "sgd" else {"global_clipnorm": 0.01}
    with strategy.scope():
        model.compile(optimizer=make_optimizer(rate, **clip), **options)
    before = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    history = model.fit(
        x,
        labels,
        batch_size=BATCH,
        epochs=epochs,
        shuffle=False,
        validation_data=x if labels is None else (x, labels),
        verbose=0,
    )
    results = {f"history {name}": values for name, values in history.history.items()}
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    assert keras.ops.convert_to_numpy(inner.iterations) == 5 * epochs
    weights = zip(model.weights, before)
    assert any(
        np.abs(keras.ops.convert_to_numpy(weight) - start).max() > 1e-2 for weight, start in weights
    )
    for weight in model.weights:
        if weight.trainable and "key/bias" not in weight.path:  # their gradient is zero in theory
            results[f"weight {weight.path.split('/', 1)[-1]}"] = keras.ops.convert_to_numpy(weight)
    model = getattr(model, "student", model)
    if labels is not None or isinstance(model, tasks.MaskedLM | tasks.Pretrainer | tasks.CausalLM):
        measured = model.evaluate(x, labels, batch_size=BATCH, return_dict=True, verbose=0)
        results |= {f"evaluate {name}": value for name, value in measured.items()}
    if isinstance(model, tasks.Seq2SeqLM):  # it predicts what targets follow
        inputs, _ = datasets.one_batch(model.feed, x, labels)
        x = {name: value.numpy() for name, value in inputs.items()}
    outputs = model.predict(x, batch_size=BATCH, verbose=0)
    outputs = outputs if isinstance(outputs, dict) else {"": outputs}
    results |= {f"predict {name}": value for name, value in outputs.items()}
    return results


def difference(one, other):
    """Return the largest difference, relative to the largest number."""
    one, other = np.asarray(one, "float64"), np.asarray(other, "float64")
    assert one.shape == other.shape, (one.shape, other.shape)
    if not one.size:
        return 0.0
    assert np.isfinite(one).all() and np.isfinite(other).all()
    return float(np.abs(one - other).max() / max(np.abs(one).max(), 1e-3))


def compare(strategy, case, **options):
    """Return the largest differences between a strategy and one replica by kind, and of what."""
    both = trained(strategy, case, **options)
    few = options.get("epochs", EPOCHS) < EPOCHS  # so few that it takes longer to trace them
    tf.config.run_functions_eagerly(few)
    one = trained(tf.distribute.get_strategy(), case, **options)
    tf.config.run_functions_eagerly(False)
    assert one.keys() == both.keys(), (one.keys(), both.keys())
    kinds = {}
    for name in one:
        kind, here = name.split()[0], difference(one[name], both[name])
        if here >= kinds.get(kind, (-1,))[0]:
            kinds[kind] = here, name
    return kinds


def besides(strategy):
    """What is refused with two replicas, and that each draws numbers of its own."""
    make = CASES["classifier"][0]
    with strategy.scope():
        model = make()
        accumulating = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    for refused in (
        {"jit_compile": True},
        {"steps_per_execution": 2},
        {"optimizer": accumulating},
    ):
        with pytest.raises(ValueError, match="compile with micro_batch_size"):
            model.compile(**refused)
    with pytest.raises(ValueError, match="made outside of strategy"):
        model.compile(optimizer=AdamW(0.1))
    model.compile()
    with pytest.raises(ValueError, match="x is a generator"):
        model.fit(iter([(TEXTS, CLASSES)]))
    student = task(tasks.TextClassifier, num_classes=3)()
    with strategy.scope(), pytest.raises(ValueError, match="student was made in another"):
        tasks.Distiller(student, model)
    with strategy.scope():
        model = tasks.MaskedLM(models.BertBackbone(17, **SIZE), tokenizer=pieces())
    generator = model.objective.seed_generator

    def draw():
        with runtime.draws_of_replica(model):
            return keras.random.uniform([8], seed=generator), generator.state.value * 1

    (one, other), _ = map(strategy.experimental_local_results, strategy.run(tf.function(draw)))
    assert np.abs(one - other).max() > 0.1
    first, second = strategy.experimental_local_results(generator.state.value)
    np.testing.assert_array_equal(first, second)
    return {"besides": (0.0, "")}


def single_batches(strategy):
    """Keras's methods for single batches, and epochs over a dataset."""
    with strategy.scope():
        model = CASES["classifier"][0]()
    model.compile()
    one = model.predict(TEXTS[:3], verbose=0)
    assert model.predict_on_batch(TEXTS[:3]).shape == one.shape == (3, 3)
    np.testing.assert_allclose(model.predict_on_batch(TEXTS[:3]), one, atol=1e-6)
    loss = model.test_on_batch(TEXTS, CLASSES, return_dict=True)["loss"]
    np.testing.assert_allclose(loss, model.evaluate(TEXTS, CLASSES, verbose=0)[0], rtol=1e-5)
    data = tf.data.Dataset.from_tensor_slices((TEXTS, CLASSES)).batch(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # such as that the data ended early
        history = model.fit(data, epochs=2, validation_data=data.take(2), verbose=0)
    assert len(history.history["val_loss"]) == 2
    return {"batches": (0.0, "")}


def keras_without_us(strategy):
    """Each of the two amendments of `TextModel` is needed, as long as one of these fails."""

    class Plain(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

    class WithLogs(Plain):
        def train_step(self, data):
            return {name: value[None] for name, value in super().train_step(data).items()}

    class WithBuild(Plain):
        def _maybe_symbolic_build(self, iterator=None, data_batch=None):
            super()._maybe_symbolic_build(None, runtime.RUNTIME.first_batch(self, iterator))

    class WithBoth(WithLogs, WithBuild):
        pass

    data = tf.data.Dataset.from_tensor_slices((np.ones((8, 2)), np.ones((8, 1)))).batch(4)
    for cls, fails in ((WithLogs, True), (WithBuild, True), (WithBoth, False)):
        with strategy.scope():
            model = cls()
            model.compile("sgd", "mse")
        with pytest.raises(Exception) if fails else contextlib.nullcontext():
            model.fit(data, verbose=0)
    return {"keras": (0.0, "")}


def own_windows(strategy):
    """Two workers with windows of their own train as one does on their batches, side by side."""
    rows = np.random.default_rng(1).integers(0, 17, (27, 9)).astype("int32")
    halves = [own(tf.data.Dataset.from_tensor_slices(half)) for half in (rows[:13], rows[13:])]
    results = []
    for here in (strategy, tf.distribute.get_strategy()):
        keras.utils.set_random_seed(0)
        with here.scope():
            model = without_chance(tasks.CausalLM(models.GPT2Backbone(17, **SIZE)))
            model.compile(optimizer=keras.optimizers.SGD(1.0))
        if here is strategy:
            half = halves[workers_of(strategy).index]
            fit_windows(model, half, batch_size=4, epochs=2, verbose=0)
            with pytest.raises(ValueError, match="pass a multiple"):
                fit_windows(model, half, batch_size=5)
            with pytest.raises(ValueError, match="another number of batches"):
                model.fit(window_batches(half, 1))
        else:
            batches = [
                keras.tree.map_structure(lambda *parts: tf.concat(parts, 0), *both)
                for epoch in range(2)
                for both in zip(*(epoch_batches(half, 2, 0, epoch) for half in halves))
            ]
            assert len(batches) == 12
            for batch in batches:
                model.train_on_batch(*batch)
        results.append([*map(keras.ops.convert_to_numpy, model.trainable_weights)])
    return {"weights": (max(difference(*each) for each in zip(*results)), "")}


def streams(strategy):
    """Replicas carry the memories of their own streams, as one does of all, and go on with them."""
    rows = np.random.default_rng(1).integers(0, 17, (44, 7)).astype("int32")
    windows = tf.data.Dataset.from_tensor_slices(rows)
    results = []
    for here in (strategy, strategy, tf.distribute.get_strategy()):
        is_cut = len(results) == 1 and workers_of(strategy).number == 1
        keras.utils.set_random_seed(0)
        with here.scope():
            backbone = models.TransformerXLBackbone(
                17, **SIZE, memory_length=7, clamp_length=9, attention_dropout=0.0
            )
            model = without_chance(tasks.CausalLM(backbone))
            model.compile(optimizer=keras.optimizers.SGD(1.0))
        run = functools.partial(
            fit_streams, model, windows, 4, epochs=2, validation_windows=windows, verbose=0
        )
        if is_cut:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run.safetensors"
                stop = Stop(16)  # of 22 steps, in the second epoch
                with pytest.raises(KeyboardInterrupt):
                    run(checkpoint=path, minutes=0.0, callbacks=[stop])
                run(checkpoint=path)
            history = {}
        else:
            history = run()
        results.append([*map(keras.ops.convert_to_numpy, model.trainable_weights)])
        measured = [*history.values(), evaluate_streams(model, windows, 2, verbose=0)["loss"]]
        results[-1] += map(np.asarray, [] if is_cut else measured)
    with strategy.scope():
        model = tasks.CausalLM(models.TransformerXLBackbone(17, **SIZE, memory_length=7))
        model.compile()
    with pytest.raises(ValueError, match="batch_size=3, whose streams are divided among 2"):
        fit_streams(model, windows, 3)
    if workers_of(strategy).number > 1:
        with pytest.raises(ValueError, match="and 2 workers, each of which carries the states"):
            fit_streams(model, windows, 4, checkpoint="run.safetensors")
    differences = [difference(*each) for other in results[:2] for each in zip(results[-1], other)]
    return {"streams": (max(differences), "")}


class Stop(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.left = step

    def on_train_batch_begin(self, batch, logs=None):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def main(name, *cases):
    if name == "mirrored":
        (cpu,) = tf.config.list_physical_devices("CPU")
        devices = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, devices)
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    else:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    for case in map(json.loads, cases):
        case, options = case if isinstance(case, list) else (case, {})
        check = {
            "besides": besides,
            "batches": single_batches,
            "keras": keras_without_us,
            "own": own_windows,
            "streams": streams,
        }.get(case)
        actual = check(strategy) if check else compare(strategy, case, **options)
        print(json.dumps([case, options, actual]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])


# === Tests ===

LAUNCH = [Path(sys.executable).with_name("keras-lm"), "launch", "--workers", "2", "--"]
PARTS = {"micro_batch_size": 1}
# A strategy's processes take long to start, so that they do all that is to be done.
QUICK = {
    "mirrored": [["tagger", {"optimizer": "lamb", "epochs": 1} | PARTS], "besides", "batches"]
    + ["streams"],
    # If "keras" fails, Keras has mended a failure: remove the override in `TextModel`.
    "workers": [["classifier", {"epochs": 1}], "own", "keras", "streams"],
}
SLOW = {
    "tasks": ["classifier", "pairs", "multi_label", "regressor", "tagger", "crf", "gpt", "ulmfit"]
    + ["parser"],
    "texts": ["seq2seq", "encoder", ["encoder", PARTS]],
    "language models": ["causal_lm", "awd_lstm", "bidirectional_lm", "masked_lm", "bert"]
    + ["reformer"],
    "objectives": ["albert", "spanbert", "electra", "distilbert", "tinybert", "distiller"],
    "options": [
        # Adding a number to all choices changes nothing: Adam would make steps of its rounding. So
        # it is with all places of an answer.
        ["choices", {"optimizer": "sgd"}],
        ["questions", {"optimizer": "sgd"}],
        ["coreference", {"optimizer": "sgd"} | PARTS],
        ["classifier", {"optimizer": "lamb"}],
        ["bert", PARTS],
        ["masked_lm", {"dtype": "float64"}],
        # Batch norm makes the rounding of float32 large where a feature hardly varies.
        ["ulmfit", {"dtype": "float64"}],
        ["classifier", {"dtype": "mixed_float16"}],
        ["classifier", {"dtype": "mixed_bfloat16"} | PARTS],
    ],
}


def run(strategy, cases):
    """Return what `main` prints, of each process, with two replicas in one or in two of them."""
    start = [sys.executable] if strategy == "mirrored" else LAUNCH
    result = subprocess.run(
        [*start, __file__, strategy, *map(json.dumps, cases)],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-5000:]
    lines = [re.sub(r"^\[\d\] ", "", line) for line in result.stdout.splitlines()]
    results = [json.loads(line) for line in lines if line.startswith('["')]
    assert len(results) == len(cases) * (1 if strategy == "mirrored" else 2)
    return results


def check(actual):
    for case, options, kinds in actual:
        tolerance = 1e-2 if "mixed" in options.get("dtype", "") else 1e-5
        for kind, (here, where) in kinds.items():
            assert here < tolerance, (case, options, kind, here, where)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", QUICK)
def test_two_replicas_train_as_one(strategy):
    check(run(strategy, QUICK[strategy]))


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", QUICK)
@pytest.mark.parametrize("cases", SLOW)
def test_every_task_trains_as_one(strategy, cases):
    check(run(strategy, SLOW[cases]))


def test_every_case_is_compared():
    compared = [case if isinstance(case, str) else case[0] for c in SLOW.values() for case in c]
    assert {*compared} == {*CASES}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        case if case == "tagger" else pytest.param(case, marks=pytest.mark.thorough)
        for case in CASES
    ],
)
def test_steps_compile_under_xla(case):
    """What a TPU asks of a step: static shapes, no strings, only operations that XLA knows."""
    make, labels, *texts = CASES[case]
    model = without_chance(make())
    student = getattr(model, "student", model)
    x, y = (texts[0] if texts else TEXTS), labels
    if model is not student:
        y = {"teacher": model.teacher.predict(TEXTS, verbose=0), "labels": CLASSES}
    feed = getattr(student, "pair_feed", student.feed)
    batch = datasets.one_batch(feed, x, y)
    batch = tf.nest.map_structure(tf.convert_to_tensor, batch)
    model.optimizer.build(model.trainable_variables)
    model.train_step(batch)  # makes the metrics' variables

    def without_training(batch):
        return model.predict_step(batch), model.test_step(batch)

    for step in (without_training, model.train_step):
        results = tf.function(step, jit_compile=True, autograph=False)(batch)
        assert all(np.isfinite(value).all() for value in tf.nest.flatten(results))


def test_strategies_that_are_refused(monkeypatch):
    model = CASES["classifier"][0]()
    strategy = object.__new__(tf.distribute.ParameterServerStrategy)
    monkeypatch.setattr(model, "_distribute_strategy", strategy)
    with pytest.raises(ValueError, match="ParameterServerStrategyV2 is not supported"):
        runtime.RUNTIME.check_compiled(model, [])
