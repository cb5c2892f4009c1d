"""OpenKE's files: read as written, and an error names file, line and content."""

import pytest

from keras_lm.knowledge import read_triples, write_triples

ENTITIES, RELATIONS = [f"entity {i}" for i in range(7)], ["IsA", "PartOf"]
TRIPLES = [[i, i % 2, i + 1] for i in range(6)]  # head, relation, tail


def test_round_trip_in_the_order_of_openke(tmp_path):
    write_triples(tmp_path, ENTITIES, RELATIONS, TRIPLES)
    lines = (tmp_path / "train2id.txt").read_text().splitlines()
    assert lines[:3] == ["6", "0 1 0", "1 2 1"]  # head, tail, relation
    assert (tmp_path / "entity2id.txt").read_text().startswith("7\nentity 0\t0\n")
    entities, relations, triples = read_triples(tmp_path)
    assert (entities, relations, triples.tolist()) == (ENTITIES, RELATIONS, TRIPLES)
    # As other programs write them: in any order, with spaces, with or without a last newline.
    (tmp_path / "relation2id.txt").write_text("2\nPartOf 1\nIsA 0")
    assert read_triples(tmp_path)[1] == RELATIONS


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("train2id.txt", "5 six 1", "expected the numbers of head, tail and relation"),
        ("train2id.txt", "5 6", "expected the numbers"),
        ("train2id.txt", "5 7 1", "tail 7 is not below 7"),
        ("train2id.txt", "5 6 2", "relation 2 is not below 2"),
        ("entity2id.txt", "entity", "expected a name and its number"),
        ("entity2id.txt", "entity 4", "4 is 'entity 4' already"),
    ],
)
def test_what_is_wrong_in_line_7_is_named(tmp_path, file, line, message):
    write_triples(tmp_path, ENTITIES, RELATIONS, TRIPLES)
    lines = (tmp_path / file).read_text().splitlines()
    lines[6] = line
    (tmp_path / file).write_text("\n".join(lines))
    with pytest.raises(ValueError, match=rf"{file}, line 7: '{line}': {message}"):
        read_triples(tmp_path)


def test_counts_that_do_not_fit(tmp_path):
    write_triples(tmp_path, ENTITIES, RELATIONS, TRIPLES, "test")
    path = tmp_path / "test2id.txt"
    path.write_text(path.read_text()[:-6])  # cut
    with pytest.raises(ValueError, match=r"test2id.txt, line 1: '6': 5 lines follow"):
        read_triples(tmp_path, "test")
    (tmp_path / "relation2id.txt").write_text("2\nIsA 0\nPartOf 2")
    with pytest.raises(ValueError, match="nothing has the number 1, but something 2"):
        read_triples(tmp_path, "test")
    with pytest.raises(ValueError, match=r"triples\[0\]=\[0, 2, 1\]: the relation must be from 0"):
        write_triples(tmp_path, ENTITIES, RELATIONS, [[0, 2, 1]])
    with pytest.raises(ValueError, match="cannot be a name"):
        write_triples(tmp_path, ["a\tb"], RELATIONS, [[0, 1, 0]])
