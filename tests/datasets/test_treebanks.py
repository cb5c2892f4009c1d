"""Files of trees in brackets: what is read, and what is wrong with damaged ones."""

import gzip

import pytest

from keras_lm.data import read_published

TREES = """*x* A note of the publisher.

( (S (NP-SBJ (DT the) (NN dog))
     (VP (VBZ barks)
         (NP (-NONE- *T*)))
     (. .)) )
(TOP (S (VP (VB go)))) ( (X (-NONE- *)) )
(S (NP (-LRB- -LRB-) (NN a))
   (VP (VB b)))
"""


def test_trees_on_one_line_or_several(tmp_path):
    path = tmp_path / "wsj_0001.mrg"
    path.write_text(TREES)
    rows = read_published(path, "penn")
    assert rows.x == {"text": [["the", "dog", "barks", "."], ["go"], ["(", "a", "b"]]}
    assert rows.labels == [
        "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .)))",
        "(TOP (S (VP (VB go))))",
        "(TOP (S (NP (-LRB- -LRB-) (NN a)) (VP (VB b))))",
    ]
    assert (rows.class_names, rows.left_out) == (["NP", "S", "S::VP", "VP"], 1)
    (tmp_path / "02").mkdir()
    (tmp_path / "02" / "a.mrg.gz").write_bytes(gzip.compress(TREES.encode()))
    assert len(read_published(tmp_path, "penn").labels) == 6


@pytest.mark.parametrize(
    "content, message",
    [
        (TREES + "(S (NP (NN a)\n\n", "line 10: the tree that begins here is cut off"),
        (TREES + "\n.", "line 11: '.' is outside"),
        (TREES + "(NN a))", "line 10: '\\)' is outside"),
        (TREES + "(S\n (NN a b))", "line 10: 'a' has no brackets of its own"),
        ("", "has no rows"),
        (b"(S (NN \xff))", "line 1: not UTF-8"),
        (gzip.compress(TREES.encode(), mtime=0)[:40], "cannot be unpacked"),
    ],
)
def test_damaged_files(tmp_path, content, message):
    content = content if isinstance(content, bytes) else content.encode()
    path = tmp_path / ("trees.gz" if content[:2] == b"\x1f\x8b" else "trees.mrg")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_published(path, "penn")
    assert str(error.value).startswith(str(path))
