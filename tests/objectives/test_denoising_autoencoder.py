"""TSDAE: sentence-transformers' loss and gradients, the words it deletes, and what it teaches."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from keras import ops

from keras_lm.objectives import IGNORED, DenoisingAutoencoder
from keras_lm.tasks import FeatureExtractor, MaskedLM, Pretrainer, SentenceEncoder
from keras_lm.tokenizers import WordPieceTokenizer
from keras_lm.training import AdamW, TrainingCheckpoint

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "film", "was", "good", "bad", "un", "##like", "##ly", "story", "it", "plot", "cast"]
TEXTS = ["the film was unlikely", "it", "the unlikely plot was good", ""]
# Models whose blocks can be a decoder's as well.
OF_BLOCKS = [
    "BertBackbone",
    "RobertaBackbone",
    "MPNetBackbone",
    "ModernBertBackbone",
    "JinaBertBackbone",
    "GteBackbone",
    "NomicBertBackbone",
    "EuroBertBackbone",
    "DistilBertBackbone",
    "AlbertBackbone",
    "ElectraBackbone",
    "DebertaV3Backbone",
    "SpanBertBackbone",
    "TinyBertBackbone",
    "ElectraGeneratorBackbone",
]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer([*SPECIAL, *WORDS], lowercase=True)


def make(tokenizer, dropout=0.0, num_layers=2, **options):
    size = {"num_layers": num_layers, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
    backbone = tiny.models.BertBackbone(
        len(tokenizer.vocabulary), max_sequence_length=16, dropout=dropout, **size
    )
    encoder = SentenceEncoder(backbone, tokenizer=tokenizer)
    objective = DenoisingAutoencoder(encoder, **{"seed": 0} | options)
    return encoder, Pretrainer(backbone, [objective], tokenizer=tokenizer)


def inputs_of(task, texts=TEXTS):
    return task.preprocessor({"text": tf.constant(texts)})


# === The reference ===


def test_loss_and_gradients_are_sentence_transformers(goldens):
    arrays = np.load(goldens("tsdae") / "expected.npz")
    pretrained = MaskedLM.from_preset(goldens("tsdae"))
    backbone, head = pretrained.backbone, pretrained.head
    encoder = SentenceEncoder(backbone, normalize=False, tokenizer=pretrained.tokenizer)
    objective = DenoisingAutoencoder(encoder)
    task = Pretrainer(backbone, [objective], {"token": head}, tokenizer=encoder.tokenizer)
    checked = {
        "grad/embeddings.word_embeddings.weight": backbone.token_embedding.embeddings,
        "grad/embeddings.position_embeddings.weight": backbone.position_embedding.embeddings,
        "head_grad/cls.predictions.bias": head.bias,
    }
    for number, own in enumerate(objective.attentions):
        for part, layer in (("value", own.value), ("output", own.output_dense), ("norm", own.norm)):
            for name in ("gamma", "beta") if part == "norm" else ("kernel", "bias"):
                variable = getattr(layer, name)
                variable.assign(arrays[f"{number}/{part}/{name}"])
                checked[f"{number}/{part}/{name}_grad"] = variable

    inputs = {"token_ids": tf.constant(arrays["ids"]), "padding_mask": tf.constant(arrays["mask"])}
    inputs = {name: tf.cast(x, "int32") for name, x in inputs.items()}
    _, labels = objective.corrupt(inputs)
    inputs["damaged"] = {
        "token_ids": tf.cast(arrays["damaged_ids"], "int32"),
        "padding_mask": tf.cast(arrays["damaged_mask"], "int32"),
    }
    with tf.GradientTape() as tape:
        loss = objective.loss()(*objective.forward(task, inputs, labels, training=False))
    np.testing.assert_allclose(loss, arrays["loss"], rtol=1e-6)
    gradients = tape.gradient(loss, [variable.value for variable in checked.values()])
    for name, gradient in zip(checked, gradients, strict=True):
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), arrays[name], atol=1e-5, err_msg=name
        )


# === Deleting ===


def test_what_is_left_is_whole_words_in_order(tokenizer):
    _, task = make(tokenizer, seed=3)
    ids, mask = [], []
    for row in (["the", "film", "was", "un", "##like", "##ly"], ["it"], []):
        row = [2, *(len(SPECIAL) + WORDS.index(token) for token in row), 3]
        ids.append(row + [0] * (10 - len(row)))
        mask.append([1] * len(row) + [0] * (10 - len(row)))
    inputs = {"token_ids": tf.constant(ids), "padding_mask": tf.constant(mask)}
    seen = set()
    for _ in range(40):
        damaged = task.objective.corrupt(inputs)[0]["damaged"]
        rows = np.where(damaged["padding_mask"] == 1, damaged["token_ids"], -1)
        real = np.asarray(damaged["padding_mask"])
        assert (np.diff(real, axis=1) <= 0).all()
        rows = [[int(x) for x in row if x >= 0] for row in rows]
        assert rows[1] == [2, len(SPECIAL) + WORDS.index("it"), 3] and rows[2] == [2, 3]
        words = [WORDS[x - 5] for x in rows[0][1:-1]]
        assert rows[0][0] == 2 and rows[0][-1] == 3 and words
        text = " ".join(words)
        assert ("##like" in words) == ("un" in words) == ("##ly" in words)
        assert words == [w for w in ["the", "film", "was", "un", "##like", "##ly"] if w in words]
        seen.add(text)
    assert len(seen) > 8


def test_the_share_of_words_is_the_deletion_rate(tokenizer):
    _, task = make(tokenizer, deletion_rate=0.3)
    inputs = inputs_of(task, ["the film was good it was bad the plot the cast"] * 300)
    damaged = task.objective.corrupt(inputs)[0]["damaged"]
    left = np.asarray(damaged["padding_mask"]).sum(axis=1) - 2
    assert left.mean() == pytest.approx(11 * 0.7, abs=0.3) and left.std() > 1
    again = [task.objective.corrupt(inputs, training=False)[0]["damaged"] for _ in range(2)]
    np.testing.assert_array_equal(again[0]["token_ids"], again[1]["token_ids"])


def test_labels_are_the_next_tokens(tokenizer):
    _, task = make(tokenizer)
    inputs = inputs_of(task)
    _, labels = task.objective.corrupt(inputs)
    ids, mask = np.asarray(inputs["token_ids"]), np.asarray(inputs["padding_mask"])
    np.testing.assert_array_equal(labels, np.where(mask[:, 1:], ids[:, 1:], IGNORED))


# === The decoder ===


def backbone_named(name, tokenizer_of):
    if name == "ElectraGeneratorBackbone":
        return tiny.PARTS[name](), tokenizer_of("wordpiece")
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    return tiny.make_backbone(name, tokenizer.vocabulary_size), tokenizer


@pytest.mark.parametrize("name", OF_BLOCKS)
def test_a_token_depends_on_those_before_and_on_the_vector(name, tokenizer_of):
    backbone, tokenizer = backbone_named(name, tokenizer_of)
    encoder = SentenceEncoder(backbone, tokenizer=tokenizer)
    objective = DenoisingAutoencoder(encoder)
    task = Pretrainer(backbone, [objective], tokenizer=tokenizer)
    for weight in objective.trainable_weights:
        weight.assign_add(0.1 * np.random.default_rng(0).normal(size=weight.shape))
    inputs = inputs_of(task, tiny.GOOD)
    changed = dict(inputs)
    place = np.asarray(inputs["padding_mask"]).shape[1] - 2
    ids = np.asarray(inputs["token_ids"]).copy()
    ids[:, place] = np.where(ids[:, place] == 7, 8, 7)
    changed["token_ids"] = tf.constant(ids)
    vectors = encoder(encoder.backbone.select_inputs(inputs))
    before, after = (np.asarray(objective.decode(x, vectors)) for x in (inputs, changed))
    np.testing.assert_allclose(before[:, :place], after[:, :place], atol=1e-5)
    real = np.asarray(inputs["padding_mask"])[:, place] == 1
    assert (np.abs(before - after)[real, place].max(axis=-1) > 1e-3).all()
    other = np.asarray(objective.decode(inputs, vectors[::-1]))
    assert (np.abs(before - other).max(axis=-1) > 1e-4).all()


@pytest.mark.parametrize(
    "name", ["XLNetBackbone", "ErnieBackbone", "ReformerBackbone", "ElmoBackbone"]
)
def test_other_blocks_are_refused(name, tokenizer_of):
    backbone, tokenizer = backbone_named(name, tokenizer_of)
    with pytest.raises(ValueError, match=f"encoder is over a {name}, whose blocks cannot"):
        DenoisingAutoencoder(SentenceEncoder(backbone, tokenizer=tokenizer))


# === Training ===


@pytest.mark.slow
def test_vectors_remember_their_texts(tokenizer):
    texts = [
        f"{a} {b} {c}" for a in ("it", "film", "plot") for b in ("good", "bad") for c in WORDS[:3]
    ]
    encoder, task = make(tokenizer, num_layers=1, deletion_rate=0.2)
    task.compile(AdamW(3e-2))
    before = encoder.embed(TEXTS)["embedding"]
    losses = task.fit(texts, epochs=35, batch_size=18, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.5
    assert np.abs(encoder.embed(TEXTS)["embedding"] - before).max() > 1e-2

    inputs = inputs_of(task, texts[::2])
    _, labels = task.objective.corrupt(inputs, training=False)
    vectors, loss = encoder(encoder.backbone.select_inputs(inputs)), task.objective.loss()

    def of(vectors):
        states = {"sequence_output": task.objective.decode(inputs, vectors)[:, :-1]}
        return float(loss(labels, task.heads["token"](states, {})))

    assert of(vectors) < of(ops.roll(vectors, 1, axis=0)) - 0.3


def test_a_step_by_parts_is_the_same_step(tokenizer):
    results = []
    for options in ({}, {"micro_batch_size": 2}):
        keras.utils.set_random_seed(1)
        _, task = make(tokenizer)
        task.compile(AdamW(1e-2), run_eagerly=True, **options)
        loss = task.fit(TEXTS, batch_size=4, verbose=0).history["loss"]
        results.append((loss, [np.asarray(w) for w in task.trainable_weights]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    for one, other in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tokenizer, tmp_path):
    def start(seed=1):
        keras.utils.set_random_seed(seed)
        _, task = make(tokenizer, dropout=0.1)
        task.compile(AdamW(1e-2), run_eagerly=True)
        return task

    (whole, file), halves = (start(), tmp_path / "run.safetensors"), (TEXTS[:2], TEXTS[2:])
    for texts in halves:
        whole.train_on_batch(texts)
    interrupted = start()
    interrupted.train_on_batch(halves[0])
    checkpoint = TrainingCheckpoint(file)
    checkpoint.set_model(interrupted)
    checkpoint.save()
    resumed = start(seed=2)
    TrainingCheckpoint(file).restore(resumed)
    resumed.train_on_batch(halves[1])
    for one, other in zip(whole.objective.variables, resumed.objective.variables, strict=True):
        np.testing.assert_array_equal(one, other)


# === Errors ===


def test_what_does_not_fit_is_refused(tokenizer):
    encoder, task = make(tokenizer)
    for rate in (-0.1, 1, 1.5):
        with pytest.raises(ValueError, match=rf"deletion_rate={rate}: pass a number from 0"):
            DenoisingAutoencoder(encoder, deletion_rate=rate)
    every_token = FeatureExtractor(encoder.backbone, pooling="none", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="pooling='none' and no single vector"):
        DenoisingAutoencoder(every_token)
    other = make(tokenizer)[0].backbone
    with pytest.raises(ValueError, match="another backbone than encoder"):
        Pretrainer(other, [task.objective], tokenizer=tokenizer)
    with pytest.raises(ValueError, match="needs a tokenizer"):
        Pretrainer(encoder.backbone, [DenoisingAutoencoder(encoder)]).objective.corrupt({})
