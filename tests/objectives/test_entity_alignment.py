"""ERNIE's entities: what is hidden, the candidates, and the labels; in steps and from files."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import data, tasks
from keras_lm.models import BertBackbone, ErnieBackbone
from keras_lm.objectives import (
    IGNORED,
    EntityAlignment,
    MaskedLanguageModel,
    NextSentence,
)
from keras_lm.tokenizers import EntityTokenizer

WORDS = ["the", "film", "was", "good", "a", "great", "story", "cast", "song", "."]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
MENTIONS = {word: f"Q{i}" for i, word in enumerate(["film", "story", "cast", "song"])}
SIZES = {"num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24, "max_sequence_length": 16}


def make_task(*objectives, **arguments):
    tokenizer = EntityTokenizer(VOCABULARY, lowercase=True, mentions=MENTIONS)
    backbone = ErnieBackbone(len(VOCABULARY), 2, **SIZES, entity_dim=8, dropout=0.0)
    backbone = backbone.with_entities(3 * np.eye(4, 8))
    return tasks.Pretrainer(backbone, objectives, tokenizer=tokenizer, **arguments)


def corrupted(ids, objective, **how):
    results, labels = objective.corrupt({"entity_ids": tf.constant(ids)}, **how)
    return *(np.asarray(results[name]) for name in ("entity_ids", "candidate_ids")), np.asarray(
        labels
    )


@pytest.mark.eager
def test_candidates_and_labels():
    ids = np.array([[-1, 7, -1, 3], [9, -1, -1, 7]], "int32")
    hidden, candidates, labels = corrupted(ids, EntityAlignment(0.0, 0.0))
    np.testing.assert_array_equal(hidden, ids)
    # None, the different entities, and then no candidates.
    assert candidates.tolist() == [[-1, 3, 7, 9, -2, -2, -2, -2, -2]] * 2
    assert labels.tolist() == [[IGNORED, 2, IGNORED, 1], [3, IGNORED, IGNORED, 2]]
    hidden, _, again = corrupted(ids, EntityAlignment(0.0, 1.0))
    assert (hidden == -1).all() and (again == labels).all()  # labels are the originals
    hidden, candidates, labels = corrupted(np.full((1, 3), -1, "int32"), EntityAlignment())
    assert (hidden == -1).all() and (labels == IGNORED).all() and (candidates <= -1).all()


@pytest.mark.eager
def test_shares():
    ids = np.random.default_rng(0).integers(-1, 50, (200, 100)).astype("int32")
    is_entity = ids >= 0
    hidden, candidates, labels = corrupted(ids, EntityAlignment(seed=0))
    assert candidates[0, :51].tolist() == [*range(-1, 50)]
    np.testing.assert_array_equal(candidates[0][labels[is_entity]], ids[is_entity])
    assert (hidden[~is_entity] == -1).all()
    now, before = hidden[is_entity], ids[is_entity]
    # Of the replaced ones a fiftieth gets itself again; three deviations of 20,000 are 0.8 %.
    assert abs(np.mean(now == -1) - 0.15) < 0.008
    assert abs(np.mean((now != before) & (now >= 0)) - 0.049) < 0.005
    others = np.bincount(now[(now != before) & (now >= 0)], minlength=50)
    assert others.min() > 0 and others.max() < 3 * others.mean()
    first, second = (corrupted(ids, EntityAlignment(), training=False)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    one = EntityAlignment(seed=1)
    assert (corrupted(ids, one)[0] != corrupted(ids, one)[0]).any()


FIRST = ["the film was good", "a great story"] * 8
SECOND = ["a great cast .", "the song was a story"] * 8


@pytest.mark.thorough
def test_it_is_learnt():
    task = make_task(EntityAlignment(seed=0))
    history = task.fit((FIRST * 4, SECOND * 4), epochs=3, batch_size=16, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    rows = task.preprocess((FIRST[:2], SECOND[:2]))
    inputs, _ = EntityAlignment(0.0, 0.0).corrupt(dict(rows))
    logits = np.asarray(task(inputs)["entity_logits"])
    assert logits.shape[:2] == rows["token_ids"].shape
    assert (logits[:, :, :5] > -1e8).all() and (logits[:, :, 5:] < -1e8).all()
    np.testing.assert_allclose(logits[:, :, 0], 0, atol=1e-5)  # none, the zero vector


@pytest.mark.thorough
def test_beside_the_other_objectives_and_in_parts():
    """The entities of a part of a batch are told apart from those of the whole batch."""
    logs = []
    for size in (None, 4):
        task = make_task(MaskedLanguageModel(seed=0), NextSentence(), EntityAlignment(seed=0))
        for weight in task.trainable_weights:
            weight.assign(np.random.default_rng(0).normal(size=weight.shape, scale=0.2))
        task.compile(micro_batch_size=size)
        fitted = task.fit((FIRST, SECOND), [0, 1] * 8, batch_size=16, shuffle=False, verbose=0)
        logs.append(fitted.history["entity_logits_loss"][0])
    np.testing.assert_allclose(*logs, rtol=1e-4)


def test_rows_of_a_corpus_have_entities():
    task = make_task(EntityAlignment())
    texts = ["the film was good .\na great story .\na song ."] * 6
    documents = tf.data.Dataset.from_tensor_slices(texts)
    for form, expected in (("full_sentences", 3), ("next_sentence", 2)):
        rows = data.pretraining_rows(documents, task.tokenizer, task.packer.template, 16, form=form)
        row = next(rows.as_numpy_iterator())
        assert row["entity_ids"].shape == (16,)
        assert (row["entity_ids"] >= 0).sum() >= expected
        np.testing.assert_array_equal(
            row["entity_ids"] >= 0, np.isin(row["token_ids"], [6, 11, 12, 13])
        )


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"replaced_share=0.9 and dropped_share=0.2"):
        EntityAlignment(0.9, 0.2)
    with pytest.raises(ValueError, match="BertBackbone has no table of entities"):
        tasks.Pretrainer(BertBackbone(50, 2, **SIZES), [EntityAlignment()])
    with pytest.raises(ValueError, match="inputs lacks 'entity_ids'"):
        EntityAlignment().corrupt({"token_ids": np.zeros((1, 2), "int32")})
