"""TransE: the gradient of its loss, what it learns, and what it is saved as."""

import numpy as np
import pytest

from keras_lm.knowledge import TransE

# 30 towns in 6 counties in 2 countries. Which country a town is in follows from the rest.
SIZE, IN_COUNTY, OF_COUNTRY, IN_COUNTRY = 38, 0, 1, 2
TRIPLES = np.array(
    [
        *((town, IN_COUNTY, 30 + town % 6) for town in range(30)),
        *((30 + county, OF_COUNTRY, 36 + county % 2) for county in range(6)),
        *((town, IN_COUNTRY, 36 + town % 2) for town in range(30)),
    ]
)
HELD = TRIPLES[36::5]
SEEN = np.array([row for row in TRIPLES.tolist() if row not in HELD.tolist()])


@pytest.mark.parametrize("norm", [1, 2])
def test_a_step_goes_down_the_gradient(norm):
    trans_e = TransE(6, 2, dim=4, norm=norm, seed=1)
    right = np.array([[0, 0, 1], [2, 1, 3], [0, 1, 3], [4, 0, 4]])
    draws = np.random.default_rng(3)  # the same corruptions as in the step
    trans_e._draws = np.random.default_rng(3)
    wrong = right.copy()
    column = 2 * draws.integers(0, 2, len(right))
    wrong[np.arange(len(right)), column] = draws.integers(0, 6, len(right))
    entities, relations = (x.astype("float64") for x in (trans_e.entities, trans_e.relations))

    def losses(entities, relations):
        def distance(rows):
            h, r, t = rows.T
            return np.linalg.norm(entities[h] + relations[r] - entities[t], norm, axis=-1)

        return np.maximum(1 + distance(right) - distance(wrong), 0)

    def loss(*tables):
        return losses(*tables).sum()

    # A row that several triples have moves by the mean of what each asks for.
    counted = np.concatenate([rows[losses(entities, relations) > 0] for rows in (right, wrong)])
    of_entities = np.bincount(counted[:, [0, 2]].ravel(), minlength=6)
    of_relations = np.bincount(counted[:, 1], minlength=2)
    assert of_entities.max() > 2 and of_relations.min() > 1
    assert trans_e._step(right, 1e-3) == pytest.approx(loss(entities, relations), rel=1e-5)
    for before, after, counts in (
        (entities, trans_e.entities, of_entities),
        (relations, trans_e.relations, of_relations),
    ):
        slope = np.zeros_like(before)
        for index in np.ndindex(before.shape):
            moved = []
            for by in (1e-5, -1e-5):
                before[index] += by
                moved.append(loss(entities, relations))
                before[index] -= by
            slope[index] = (moved[0] - moved[1]) / 2e-5
        slope /= np.maximum(counts, 1)[:, None]
        np.testing.assert_allclose((before - after) / 1e-3, slope, atol=2e-3)


def test_ranks_held_out_triples_far_better_than_chance(tmp_path):
    trans_e = TransE(SIZE, 3, dim=20, seed=0)
    losses = trans_e.fit(SEEN, epochs=150, batch_size=16, learning_rate=0.02)
    assert losses[-1] < losses[0] / 3
    metrics = trans_e.evaluate(HELD, known=TRIPLES)
    assert metrics["random_mean_rank"] == (SIZE + 1) / 2
    assert metrics["random_hits@10"] == pytest.approx(10 / SIZE)
    assert metrics["filtered_mean_rank"] < metrics["filtered_random_mean_rank"] / 2
    assert metrics["filtered_hits@10"] > 1.5 * metrics["filtered_random_hits@10"]
    np.testing.assert_allclose(np.linalg.norm(trans_e.entities, axis=1), 1, atol=1e-5)
    assert trans_e.scores(SEEN).mean() > trans_e.scores(SEEN[:, [2, 1, 0]]).mean() + 0.2
    trans_e.save(tmp_path / "vectors")
    again = TransE.load(tmp_path / "vectors")
    np.testing.assert_array_equal(again.distances(HELD), trans_e.distances(HELD))
    assert again.evaluate(HELD, known=TRIPLES) == metrics


def test_ranks_are_counted_by_hand():
    trans_e = TransE(4, 1, dim=1)
    trans_e.entities[:, 0], trans_e.relations[:] = [0, 1, 2, 3], 1
    # 0 + 1 → 1 is first. Of 0 → 2, tail 1 is nearer, and so is head 1, which is right as well.
    raw = trans_e.evaluate([[0, 0, 1]])
    assert (raw["mean_rank"], raw["hits@10"]) == (1, 1)
    metrics = trans_e.evaluate([[0, 0, 2]], known=[[0, 0, 1], [1, 0, 2]])
    # Tail 2 is as far from 1 as tail 0 is: a half. Head 0 is as far as head 2.
    assert (metrics["mean_rank"], metrics["filtered_mean_rank"]) == (2.5, 1.5)
    assert metrics["filtered_random_mean_rank"] == 2


def test_errors(tmp_path):
    with pytest.raises(ValueError, match="norm=3: pass 1 or 2"):
        TransE(4, 1, norm=3)
    with pytest.raises(ValueError, match="num_entities=0"):
        TransE(0, 1)
    with pytest.raises(ValueError, match="margin=0"):
        TransE(4, 1, margin=0)
    with pytest.raises(ValueError, match=r"triples\[1\]=\[0, 0, 4\]: the tail must be from 0 to 3"):
        TransE(4, 1).fit([[0, 0, 1], [0, 0, 4]])
    for method in (TransE(4, 1).fit, TransE(4, 1).evaluate):
        with pytest.raises(ValueError, match="triples is empty"):
            method(np.zeros((0, 3), "int32"))
    TransE(4, 1).save(tmp_path / "vectors")
    path = tmp_path / "vectors" / "entities.npy"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"entities.npy is damaged"):
        TransE.load(tmp_path / "vectors")
