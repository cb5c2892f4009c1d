"""ELECTRA's pretraining: its losses as its authors compute them, its samples, its two networks."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_lm.models import BertBackbone, ElectraBackbone, ElectraGeneratorBackbone
from keras_lm.objectives import (
    IGNORED,
    MaskedLanguageModel,
    ReplacedAccuracy,
    ReplacedByGenerator,
    ReplacedPrecision,
    ReplacedRecall,
    ReplacedShare,
)
from keras_lm.tasks import MaskedLM, Pretrainer, TextClassifier
from keras_lm.tokenizers import WordPieceTokenizer
from keras_lm.training import TrainingCheckpoint

WORDS = ["the", "a", "film", "cast", "was", "is", "good", "bad", "very", "so", "##ly", "it"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TEXTS = ["the film was very good", "it is so bad", "a cast", "the cast is very very good", "", "it"]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY, lowercase=True)


def make_backbone(cls=ElectraBackbone, **options):
    options = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24} | options
    return cls(len(VOCABULARY), max_sequence_length=16, **{"dropout": 0.0} | options)


@pytest.fixture
def make(tokenizer):
    """A task with a generator half as wide; it runs eagerly, which is faster than tracing."""

    def make(backbone=None, generator=None, in_graph=False, optimizer="auto", **options):
        backbone = backbone or make_backbone(embedding_dim=8)
        generator = generator or MaskedLM(backbone.make_generator(1 / 2), tokenizer=tokenizer)
        objective = ReplacedByGenerator(generator, **{"seed": 0} | options)
        task = Pretrainer(backbone, objectives=[objective], tokenizer=tokenizer)
        task.compile(optimizer=optimizer, run_eagerly=not in_graph)
        return task

    return make


def fixed(objective, inputs, labels, samples):
    """An objective whose masks and samples are given."""
    objective.corrupt = lambda *_, **__: (inputs, labels)
    objective.sample = lambda *_, **__: samples
    return objective


def values(variables):
    return [ops.convert_to_numpy(variable).copy() for variable in variables]


# === The loss ===


@pytest.mark.eager
@pytest.mark.filterwarnings("ignore:.*left over in the checkpoint")
def test_losses_are_those_of_the_authors_code(goldens):
    """From a folder that holds both networks, with masks and samples that give its tokens."""
    folder, arrays = goldens("tf1-electra"), np.load(goldens("tf1-electra") / "expected.npz")
    generator = MaskedLM.from_preset(folder, tokenizer=None)
    objective = ReplacedByGenerator(generator)
    task = Pretrainer.from_preset(
        folder, objectives=[objective], embeddings_of=generator.backbone, tokenizer=None
    )
    task.compile(run_eagerly=True)
    shared = {id(weight) for weight in task.backbone.weights} & {*map(id, generator.weights)}
    assert len(shared) == 5

    def losses(positions, labels, samples):
        inputs = {
            "token_ids": arrays["in.input_ids"],
            "segment_ids": arrays["in.segment_ids"],
            "padding_mask": arrays["in.input_mask"],
            "mask_positions": positions,
        }
        inputs = {name: tf.constant(value, tf.int32) for name, value in inputs.items()}
        fixed(objective, inputs, tf.constant(labels, tf.int32), tf.constant(samples, tf.int32))
        return inputs, task.test_on_batch(inputs, return_dict=True)

    # The generator's, at the positions that were masked; every sample is the original.
    known = arrays["in.masked_lm_weights"] > 0
    labels = np.where(known, arrays["in.masked_lm_ids"], IGNORED)
    _, logs = losses(arrays["in.masked_lm_positions"], labels, labels)
    assert logs["generator_logits_loss"] == pytest.approx(arrays["out.mlm_loss"], rel=1e-5)
    assert logs["replaced_logits_share"] == 0

    # The discriminator's, where the text of the reference differs, and at one place where not.
    originals, others = arrays["in.input_ids"], arrays["in.replaced_ids"]
    columns = [[4, 9, 10], [3, 5, 0], [4, 8, 0]]
    taken = [np.take_along_axis(x, np.array(columns), axis=1) for x in (originals, others)]
    inputs, logs = losses(columns, *taken)
    assert logs["replaced_logits_loss"] == pytest.approx(arrays["out.rtd_loss"], rel=1e-5)
    real, fake = arrays["in.input_mask"] > 0, arrays["in.is_fake"]
    _, actual = objective.fill_in(inputs, *map(tf.constant, taken))
    np.testing.assert_array_equal(actual, np.where(real, fake, IGNORED))

    # Their sum, by hand.
    logits = np.asarray(generator(inputs))
    at_masks = np.take_along_axis(logits, taken[0][:, :, None], axis=2)[:, :, 0]
    masked = (np.log(np.exp(logits).sum(axis=-1)) - at_masks).mean()
    expected = masked + 50 * arrays["out.rtd_loss"]
    assert logs["loss"] == pytest.approx(expected, rel=1e-5)
    said = arrays["out.rtd_probs"][real] > 0.5
    assert logs["replaced_logits_accuracy"] == pytest.approx((said == fake[real]).mean())


@pytest.mark.eager
def test_gradients_reach_both_networks_and_add_in_what_they_share(make):
    task = make(optimizer=keras.optimizers.SGD(1.0), weight=3.0)
    (objective,) = task.objectives
    generator = objective.generator
    for weight in task.trainable_weights:
        weight.assign_add(0.3 * keras.random.normal(weight.shape, seed=1))
    packed = task.preprocess({"text": tf.constant(TEXTS)})
    inputs, labels = objective.corrupt(packed, training=False)
    samples = objective.sample(generator(inputs), training=False)
    fixed(objective, inputs, labels, samples)

    weights = task.trainable_weights
    assert len(weights) == len({id(weight) for weight in weights})
    losses = objective.loss()
    gradients = {}
    for name, loss in losses.items():
        with tf.GradientTape() as tape:
            made, outputs = objective.forward(task, inputs, labels, training=False)
            total = loss(made[name], outputs[name])
        gradients[name] = tape.gradient(total, weights)
    own = {id(w) for w in task.weights} - {id(w) for w in generator.weights}
    shared = {id(w) for w in task.weights} & {id(w) for w in generator.weights}
    assert len(shared) == 5
    before = values(weights)
    task.train_on_batch(inputs)
    for i, weight in enumerate(weights):
        one, two = (gradients[name][i] for name in ("generator_logits", "replaced_logits"))
        # Neither loss reaches what only the other network has.
        assert (one is None) == (id(weight) in own)
        assert (two is None) == (id(weight) not in own | shared)
        expected = sum(
            factor * ops.convert_to_numpy(tf.convert_to_tensor(gradient))
            for factor, gradient in ((1.0, one), (3.0, two))
            if gradient is not None
        )
        assert weight.path.endswith("key/bias") or np.abs(expected).max() > 1e-7, weight.path
        np.testing.assert_allclose(before[i] - weight.numpy(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.thorough
def test_fitting_lowers_both_losses(make):
    task = make(optimizer=keras.optimizers.Adam(0.01), in_graph=True)
    history = task.fit(TEXTS * 4, epochs=12, batch_size=12, verbose=0).history
    names = ["loss", *(f"generator_logits_{name}" for name in ("loss", "accuracy"))]
    measures = ("loss", "accuracy", "precision", "recall", "share")
    names += [f"replaced_logits_{name}" for name in measures]
    assert set(history) == set(names)
    for name in ("generator_logits_loss", "replaced_logits_loss"):
        assert np.mean(history[name][-3:]) < np.mean(history[name][:3])
    assert 0.02 < np.mean(history["replaced_logits_share"]) < 0.3
    task.compile(run_eagerly=True)
    evaluated = [task.evaluate(TEXTS, verbose=0, return_dict=True) for _ in range(2)]
    assert evaluated[0] == evaluated[1]


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(make, dtype):
    task = make(make_backbone(dtype=dtype, embedding_dim=8))
    (objective,) = task.objectives
    assert objective.generator.backbone.blocks[0].compute_dtype == dtype.removeprefix("mixed_")
    before = values(task.trainable_weights)
    logs = task.train_on_batch(TEXTS, return_dict=True)
    assert np.isfinite(list(logs.values())).all()
    after = values(task.trainable_weights)
    assert all(weight.dtype == "float32" and np.isfinite(weight).all() for weight in after)
    assert any((old != new).any() for old, new in zip(before, after))


# === Masks and samples ===


def test_what_is_masked_and_what_counts_as_replaced(make):
    task = make()
    (objective,) = task.objectives
    packed = task.preprocess({"text": tf.constant(TEXTS * 300)})
    inputs, labels = objective.corrupt(packed)
    ids, labels = packed["token_ids"].numpy(), labels.numpy()
    positions, known = inputs["mask_positions"].numpy(), labels != IGNORED
    assert not np.isin(labels[known], [0, 2, 3, 4]).any()  # no [CLS], no [SEP]
    assert not known[4::6].any()  # the empty text
    now = np.take_along_axis(inputs["token_ids"].numpy(), positions, axis=1)[known]
    assert (now == 4).mean() == pytest.approx(0.85, abs=0.04)
    assert ((now == 4) | (now == labels[known])).all()

    samples = np.where(np.arange(len(labels))[:, None] % 12 < 6, 7, labels)
    filled, replaced = objective.fill_in(inputs, tf.constant(labels), tf.constant(samples))
    expected, fake = ids.copy(), np.where(packed["padding_mask"] > 0, 0, IGNORED)
    for row, column in np.argwhere(known):
        place = positions[row, column]
        expected[row, place] = samples[row, column]
        fake[row, place] = samples[row, column] != labels[row, column]
    assert 0.2 < (fake == 1).sum() / known.sum() < 0.6
    np.testing.assert_array_equal(filled["token_ids"], expected)
    np.testing.assert_array_equal(replaced, fake)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_follow_the_softmax(temperature):
    logits = np.array([0.0, 1.0, 2.0, -1.0, -30.0], "float32")
    objective = ReplacedByGenerator(None, temperature=temperature, seed=0)
    samples = np.asarray(objective.sample(np.tile(logits, (40, 1000, 1))))
    assert samples.shape == (40, 1000)
    expected = np.exp(logits / temperature)
    actual = np.bincount(samples.ravel(), minlength=5) / samples.size
    np.testing.assert_allclose(actual, expected / expected.sum(), atol=0.01)
    assert actual[4] == 0
    again = ReplacedByGenerator(None, temperature=temperature, seed=0)
    np.testing.assert_array_equal(again.sample(np.tile(logits, (40, 1000, 1))), samples)
    assert (np.asarray(objective.sample(np.tile(logits, (40, 1000, 1)))) != samples).any()


@pytest.mark.slow
def test_under_xla(make):
    task = make()
    (objective,) = task.objectives
    packed = task.preprocess({"text": tf.constant(TEXTS)})

    @tf.function(jit_compile=True, autograph=False)
    def run(inputs):
        inputs, labels = objective.corrupt(inputs, training=False)
        samples = objective.sample(objective.generator(inputs, training=False), training=False)
        return (
            inputs["mask_positions"],
            labels,
            samples,
            *objective.fill_in(inputs, labels, samples),
        )

    positions, labels, samples, filled, replaced = run(packed)
    known = labels.numpy() != IGNORED
    expected = packed["token_ids"].numpy()
    for row, column in np.argwhere(known):
        expected[row, positions[row, column]] = samples[row, column]
    np.testing.assert_array_equal(filled["token_ids"], expected)
    changed = expected != packed["token_ids"].numpy()
    np.testing.assert_array_equal(replaced.numpy() == 1, changed)


@pytest.mark.eager
def test_masking_may_be_another(make):
    task = make(masking=MaskedLanguageModel(rate=0.8, whole_words=True))
    logs = task.test_on_batch(TEXTS, return_dict=True)
    assert logs["replaced_logits_share"] > 0.25


def test_measures_of_what_is_found():
    labels = np.array([[1, 0, 0, IGNORED], [1, 1, 0, IGNORED]])
    logits = np.array([[2.0, 1.0, -1.0, 5.0], [-1.0, 0.5, -2.0, 5.0]])
    for cls, first, weighted in [
        (ReplacedAccuracy, 4 / 6, (2 + 3 * 2) / 12),
        (ReplacedPrecision, 2 / 3, (1 + 3 * 1) / (2 + 3 * 1)),
        (ReplacedRecall, 2 / 3, (1 + 3 * 1) / (1 + 3 * 2)),
        (ReplacedShare, 3 / 6, (1 + 3 * 2) / 12),
    ]:
        for expected, weight in ((first, None), (weighted, [1.0, 3.0])):
            metric = cls()
            metric.update_state(labels, logits, sample_weight=weight)
            assert float(metric.result()) == pytest.approx(expected)
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(cls()))
        assert type(again) is cls


# === The two networks ===


@pytest.mark.slow
@pytest.mark.parametrize("size", [*ElectraBackbone.SIZES])
def test_generators_of_published_sizes(size):
    share = {"small": 1, "base": 1 / 3, "large": 1 / 4}[size.split("_")[1]]
    published = ElectraGeneratorBackbone.SIZES[ElectraBackbone.PRETRAINED_WITH[size]]
    tiny = make_backbone(
        **{
            name: value if name != "num_layers" else 1
            for name, value in ElectraBackbone.SIZES[size].items()
            if name != "vocabulary_size"
        }
    )
    config = tiny.make_generator(share).config
    assert {
        **published,
        "num_layers": 1,
        "vocabulary_size": len(VOCABULARY),
    }.items() <= config.items()


@pytest.mark.eager
def test_embeddings_of_their_own(make, tokenizer):
    backbone = make_backbone()
    generator = MaskedLM(backbone.make_generator(share_embeddings=False), tokenizer=tokenizer)
    assert not {id(w) for w in backbone.weights} & {id(w) for w in generator.weights}
    before = values(generator.backbone.token_embedding.weights)
    task = make(backbone, generator)
    task.train_on_batch(TEXTS)
    assert (before[0] != values(generator.backbone.token_embedding.weights)[0]).any()


@pytest.mark.eager
def test_one_network_for_both(make, tokenizer):
    backbone = make_backbone()
    task = make(backbone, MaskedLM(backbone, tokenizer=tokenizer))
    alone = len(Pretrainer(backbone).trainable_weights)
    assert len(task.trainable_weights) == alone + 5  # of the generator's head
    assert np.isfinite(task.train_on_batch(TEXTS)).all()


@pytest.mark.eager
def test_a_generator_of_another_kind(make, tokenizer):
    task = make(generator=MaskedLM(make_backbone(BertBackbone), tokenizer=tokenizer))
    assert np.isfinite(task.train_on_batch(TEXTS)).all()


@pytest.mark.slow
@pytest.mark.eager
def test_both_are_kept(make, tokenizer, tmp_path):
    task = make(optimizer=keras.optimizers.Adam(0.01))
    generator = task.objective.generator
    task.fit(TEXTS, verbose=0)
    packed = task.preprocess({"text": tf.constant(TEXTS)})
    task.save_to_preset(tmp_path / "discriminator")
    generator.save_to_preset(tmp_path / "generator")
    embeddings = values(task.backbone.token_embedding.weights)[0]

    again = Pretrainer.from_preset(tmp_path / "discriminator")
    np.testing.assert_allclose(
        again(packed)["replaced_logits"], task(packed)["replaced_logits"], atol=1e-5
    )
    classifier = TextClassifier.from_preset(tmp_path / "discriminator", num_classes=2)
    assert type(classifier.backbone) is ElectraBackbone
    writer = MaskedLM.from_preset(tmp_path / "generator")
    assert type(writer.backbone) is ElectraGeneratorBackbone
    np.testing.assert_allclose(writer(packed), generator(packed), atol=1e-5)
    for one in (again, writer):
        np.testing.assert_array_equal(values(one.backbone.token_embedding.weights)[0], embeddings)

    # And both go on, tied again.
    objective = ReplacedByGenerator(writer)
    task = Pretrainer.from_preset(
        tmp_path / "discriminator", objectives=[objective], embeddings_of=writer.backbone
    )
    assert task.backbone.token_embedding is writer.backbone.token_embedding
    task.compile(run_eagerly=True)
    assert np.isfinite(task.train_on_batch(TEXTS)).all()


@pytest.mark.eager
def test_what_cannot_be(make, tokenizer):
    backbone = make_backbone(embedding_dim=8)
    with pytest.raises(ValueError, match="embeddings_of has embedding_dim=8, and this backbone 16"):
        make_backbone(embeddings_of=backbone)
    with pytest.raises(ValueError, match="temperature=0: pass a number above 0"):
        ReplacedByGenerator(None, temperature=0)
    with pytest.raises(ValueError, match="weight=-1: pass a number above 0"):
        ReplacedByGenerator(None, weight=-1)
    other = MaskedLM(ElectraGeneratorBackbone(30, 1, 2, 16, 24), tokenizer=tokenizer)
    with pytest.raises(ValueError, match="vocabulary has 30 entries, but the discriminator's 17"):
        make(backbone, other).train_on_batch(TEXTS)
    with pytest.raises(ValueError, match=r"labels are missing.*objectives=\[.*ReplacedByGenerator"):
        Pretrainer(backbone, tokenizer=tokenizer).train_on_batch(TEXTS)


# === A run that is killed ===


class Killed(Exception):
    """In place of the end of a process."""


class Kill(keras.callbacks.Callback):
    """Raise an error before a step."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.step:
            raise Killed


@pytest.mark.slow
@pytest.mark.eager
def test_a_killed_run_ends_in_the_same_weights(make, tokenizer, tmp_path):
    """Generator, dropout, masks and samples go on where they were, whatever the seed is now."""

    def start(seed):
        keras.utils.set_random_seed(seed)
        return make(make_backbone(embedding_dim=8, dropout=0.2), optimizer="adam", seed=seed)

    def state(task):
        return values([*task.variables, *task.optimizer.variables, *task.objective.variables])

    packed = start(0).preprocess({"text": tf.constant(TEXTS)})
    batches = tf.data.Dataset.from_tensor_slices(packed).batch(2)  # three of them
    whole = start(1)
    whole.fit(batches, verbose=0)

    file = tmp_path / "run.safetensors"
    with pytest.raises(Killed):
        start(1).fit(batches, verbose=0, callbacks=[TrainingCheckpoint(file, minutes=0), Kill(2)])
    resumed = start(2)
    done = TrainingCheckpoint(file).restore(resumed)
    assert done == 2
    resumed.fit(batches.skip(done), verbose=0)
    for ours, theirs in zip(state(resumed), state(whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    generator, other = (task.objective.generator for task in (resumed, start(1)))
    moved = zip(values(generator.trainable_weights), values(other.trainable_weights))
    assert sum((a != b).any() for a, b in moved) > 20
