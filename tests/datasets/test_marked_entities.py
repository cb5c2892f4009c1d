"""Relations and entities to type: marks in texts, and the files that have them."""

import io
import json

import pytest

from keras_lm.data import mark_entity, mark_relation, read_mentions, read_published
from keras_lm.datasets.marked_entities import relation_rows


def test_marks():
    assert mark_relation("Ada wrote to Babbage.", (0, 3), (13, 20)) == (
        "# Ada # wrote to $ Babbage $."
    )
    assert mark_relation("Ada wrote to Babbage.", (13, 20), (0, 3)) == (
        "$ Ada $ wrote to # Babbage #."
    )
    assert mark_relation("ab", (0, 1), (1, 2)) == "# a #$ b $"
    assert mark_entity("Ada wrote.", (0, 3)) == "。 Ada 。 wrote."
    with pytest.raises(ValueError, match=r"head=\(0, 3\) and tail=\(2, 5\) overlap"):
        mark_relation("Ada wrote", (0, 3), (2, 5))
    with pytest.raises(ValueError, match=r"\(4, 20\) is not within the text of 9 characters"):
        mark_entity("Ada wrote", (4, 20))


FEWREL = {
    "P40": [
        {
            "tokens": ["Ada", ",", "child", "of", "Lord", "Byron"],
            "h": ["lord byron", "Q5679", [[4, 5]]],
            "t": ["ada", "Q7259", [[0], [3]]],
        }
    ],
    "P19": [
        {"tokens": ["Ada", "in", "London"], "h": ["ada", "Q7259", [[0]]], "t": ["", "Q84", [[2]]]}
    ],
}
TACRED = [
    {
        **{"id": "e1", "relation": "no_relation", "token": ["-LRB-", "Ada", "-RRB-", "London"]},
        **{"subj_start": 1, "subj_end": 1, "obj_start": 3, "obj_end": 3},
    }
]
# As thunlp/ERNIE distributes them, with TAGME's entities; a start of 1 means 0.
RELATION = {
    "text": "Ada in London",
    "ents": [["Q7259", 1, 3, 0.5], ["Q84", 7, 13, 0.5]],
    "ann": [["Q84", 7, 13, 0.9], ["Q90", 7, 13, 0.2]],
    "label": "P19",
}
TYPED = {
    "sent": "Ada in London",
    **{"start": 7, "end": 13, "ents": [["Q84", 7, 13, 0.9]], "labels": ["place", "city"]},
}
OPEN = {
    "annot_id": "a1",
    "left_context_token": ["In"],
    "mention_span": "old London",
    "right_context_token": [],
    "y_str": ["city"],
}
FIGER = {
    "tokens": ["Ada", "in", "old", "London"],
    "mentions": [
        {"start": 0, "end": 1, "labels": ["/person"]},
        {"start": 2, "end": 4, "labels": ["/location", "/location/city"]},
    ],
}


@pytest.mark.parametrize(
    ("name", "content", "texts", "labels"),
    [
        (
            "fewrel",
            json.dumps(FEWREL),
            ["$ Ada $ , child of # Lord Byron #", "# Ada # in $ London $"],
            ["P40", "P19"],
        ),
        ("tacred", json.dumps(TACRED), ["( # Ada # ) $ London $"], ["no_relation"]),
        ("fewrel", json.dumps([RELATION]), ["# Ada # in $ London $"], ["P19"]),
        (
            "relations",
            json.dumps({"text": "Ada in London", "head": [0, 3], "tail": [7, 13], "label": "x"}),
            ["# Ada # in $ London $"],
            ["x"],
        ),
        ("figer", json.dumps([TYPED]), ["Ada in 。 London 。"], [["place", "city"]]),
        ("open-entity", json.dumps(OPEN), ["In 。 old London 。"], [["city"]]),
        (
            "figer",
            json.dumps(FIGER) + "\n",
            ["。 Ada 。 in old London", "Ada in 。 old London 。"],
            [["/person"], ["/location", "/location/city"]],
        ),
        (
            "typing",
            '{"text": "Ada", "mention": [0, 3], "labels": ["a"]}\n' * 2,
            ["。 Ada 。"] * 2,
            [["a"], ["a"]],
        ),
    ],
)
def test_forms(name, content, texts, labels, tmp_path):
    path = tmp_path / "file"
    path.write_text(content, encoding="utf-8")
    rows = read_published(path, name)
    assert (rows.x, rows.labels) == ({"text": texts}, labels)
    flat = [label for each in labels for label in (each if isinstance(each, list) else [each])]
    assert rows.class_names == sorted(set(flat))


def test_overlaps_are_left_out_and_labels_may_lack(tmp_path):
    row = {"text": "Ada Lovelace", "head": [0, 12], "tail": [0, 3], "label": "x"}
    other = {"text": "Ada Lovelace", "head": [4, 12], "tail": [0, 3]}
    (tmp_path / "file").write_text(json.dumps([row, other]))
    rows = read_published(tmp_path / "file", "relations")
    assert (rows.left_out, rows.x["text"], rows.labels) == (1, ["$ Ada $ # Lovelace #"], None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"text": "Ada"', "file: not JSON, or cut off"),
        ('"Ada"', "file: the file must be a list of objects"),
        ('[{"text": "Ada"}]', "file, example 1: there is no 'head'"),
        ('{"text": "Ada", "head": [0, 3]}\n', "file, line 1: there is no 'tail'"),
        ('{"text": "Ada", "head": [0, 1], "tail": [1, 9]}', r"line 1: .*\(1, 9\) is not within"),
        ('{"text": "Ada", "head": [0, 1], "tail": [1, 2], "label": 7}', "label is 7, not the name"),
        ('{"P1": [{"tokens": ["a"], "h": ["a", "Q1", []]}]}', r"P1\[1\]: .*out of range"),
        ("[7]", "file, example 1: "),
    ],
)
def test_damage(content, message):
    stream = io.BytesIO(content.encode())
    with pytest.raises(ValueError, match=message):
        for _, row in relation_rows("file", stream):
            if isinstance(row, Exception):
                raise row


def test_mentions(tmp_path):
    rows = [RELATION, RELATION | {"ents": [], "ann": [["Q90", 7, 13, 0.9]]}, TYPED]
    (tmp_path / "file").write_text(json.dumps(rows))
    assert read_mentions(tmp_path / "file") == {"Ada": "Q7259", "London": "Q84"}
    (tmp_path / "file").write_text(json.dumps(FEWREL))
    actual = read_mentions(tmp_path / "file")
    assert actual["ada"] == "Q7259" and actual["lord byron"] == "Q5679"
