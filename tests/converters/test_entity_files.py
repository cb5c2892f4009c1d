"""The files of a knowledge graph's entities: what they hold, and damage by its line."""

import re

import numpy as np
import pytest

from keras_lm.converters import CheckpointError, read_entities, read_entity_names

IDS = "3\nQ1\t0\nQ7259\t2\nQ84\t1\n"
VECTORS = "0.5\t1\t-2e-1\n1\t2\t3\t\n4\t5\t6"
NAMES = "Universe\tQ1\nAda Lovelace\tQ7259\n\nLondon\tQ84\nLondon\tQ92\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "entity2id.txt").write_text(IDS)
    (tmp_path / "entity2vec.vec").write_text(VECTORS)
    (tmp_path / "entity_map.txt").write_text(NAMES)
    return tmp_path


def test_all_entities_or_some(folder):
    actual = read_entities(folder)
    assert actual.ids == ["Q1", "Q84", "Q7259"]
    np.testing.assert_allclose(actual.vectors, [[0.5, 1, -0.2], [1, 2, 3], [4, 5, 6]])
    actual = read_entities(folder, ["Q7259", "Q1", "Q5"])
    assert actual.ids == ["Q1", "Q7259"] and actual.vectors.dtype == np.float32
    np.testing.assert_allclose(actual.vectors, [[0.5, 1, -0.2], [4, 5, 6]])
    assert read_entities(folder, []).vectors.shape == (0, 3)


def test_names(folder):
    names = {"Universe": "Q1", "Ada Lovelace": "Q7259", "London": "Q92"}
    assert read_entity_names(folder) == names
    assert read_entity_names(folder / "entity_map.txt") == names


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("entity2id.txt", "Q1\t0\n", r"entity2id.txt, line 1: 'Q1\\t0' is not the number"),
        ("entity2id.txt", "1\nQ1 0\n", r"entity2id.txt, line 2: 'Q1 0' is not an entity"),
        ("entity2id.txt", "2\nQ1\t0\nQ1\t1\n", "entity2id.txt, line 3: Q1 occurs twice"),
        ("entity2id.txt", "2\nQ1\t0\nQ2\t0\n", "entity2id.txt, line 3: 0 occurs twice"),
        ("entity2id.txt", "4\nQ1\t0\n", "line 1 promises 4 entities, and there are 1"),
        ("entity2id.txt", "2\nQ1\t0\nQ84\t1\n", "has 3 vectors, and entity2id.txt 2 entities"),
        ("entity2vec.vec", "1\t2\t3\n1\t2\n1\t2\t3\n", "entity2vec.vec, line 2: .* 3 numbers"),
        ("entity2vec.vec", "1\t2\t3\n1\tx\t3\n1\t2\t3\n", "entity2vec.vec, line 2: .* 3 numbers"),
        ("entity2vec.vec", "1\t2\t3\n1\tnan\t3\n1\t2\t3\n", "entity2vec.vec, line 2: .* 3 numbers"),
        ("entity2vec.vec", "", "entity2vec.vec is empty"),
    ],
)
def test_damage(folder, file, text, message):
    (folder / file).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        read_entities(folder)


def test_damage_in_parts_and_names(folder):
    (folder / "entity2vec.vec").write_text("1\t2\n3\t4\n")
    with pytest.raises(CheckpointError, match="names the vector 2, counted from 0"):
        read_entities(folder, ["Q7259"])
    (folder / "entity_map.txt").write_bytes("Zürich\tQ72\nZürich".encode())
    with pytest.raises(CheckpointError, match=re.escape("entity_map.txt, line 2: 'Zürich' is not")):
        read_entity_names(folder)
    (folder / "entity_map.txt").write_bytes(b"Z\xfcrich\tQ72\n")
    with pytest.raises(CheckpointError, match="line 1: it is not UTF-8"):
        read_entity_names(folder)
    (folder / "entity_map.txt").unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        read_entity_names(folder)
