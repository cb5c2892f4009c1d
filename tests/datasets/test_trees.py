"""Trees in brackets: what is read, what is left out, what is refused."""

import time

import pytest

from keras_lm.data import Tree, labels_of_trees, read_tree

PUBLISHED = """
( (S (NP-SBJ-1 (DT the) (NN dog))
     (VP (MD can) (VP=2 (VB bark) (NP (-NONE- *T*-1)) (-LRB- -LRB-) (ADVP|PRT (RB now)) (-RRB- -RRB-)))
     (`` ``) (CD 1\\/2) (. .)))
"""  # noqa: E501


def test_a_published_tree_loses_what_is_not_counted():
    tree = read_tree(PUBLISHED)
    assert tree.words == ("the", "dog", "can", "bark", "(", "now", ")", '"', "1/2", ".")
    assert tree.tags == ("DT", "NN", "MD", "VB", "-LRB-", "RB", "-RRB-", "``", "CD", ".")
    assert tree.constituents == (
        ("S", 0, 10),
        ("NP", 0, 2),
        ("VP", 2, 7),
        ("VP", 3, 7),
        ("ADVP", 5, 6),
    )
    assert str(tree) == (
        "(TOP (S (NP (DT the) (NN dog)) (VP (MD can) (VP (VB bark) (-LRB- -LRB-) (ADVP (RB now)) "
        '(-RRB- -RRB-))) (`` ") (CD 1/2) (. .)))'
    )
    assert read_tree(str(tree)) == tree


def test_unary_chains_are_one_span():
    text = "(ROOT (S (S (VP (VB go) (NP (NN now))))))"
    assert read_tree(text).spans() == [("S::S::VP", 0, 2), ("NP", 1, 2)]
    assert labels_of_trees([text, "(NP (NN a))", "(X (X (NN b)))"]) == ["NP", "S::S::VP", "X::X"]


@pytest.mark.parametrize(
    "text, words, constituents",
    [
        ("(TOP (NN dog))", ("dog",), ()),
        ("((NN dog) (. .))", ("dog", "."), ()),
        ("(S1 (FRAG (NN dog)))", ("dog",), (("FRAG", 0, 1),)),
        ("(S (NP (-NONE- *)))", (), ()),
        ("()", (), ()),
    ],
)
def test_small_trees(text, words, constituents):
    assert read_tree(text) == Tree(words, read_tree(text).tags, constituents)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "cut off"),
        ("(S (NN a)", "cut off"),
        ("a", "'a' is outside"),
        ("(NN a))", "'\\)' is outside"),
        ("(S (NN a)) (S (NN b))", "text after the last bracket"),
        ("(S dog cat)", "'dog' has no brackets"),
        ("(S (NN a) b)", "'b' has no brackets"),
        ("(S (NN a b))", "'a' has no brackets"),
        ("(S (NP))", "\\(NP\\) has no word"),
    ],
)
def test_what_is_no_tree(text, message):
    with pytest.raises(ValueError, match=message):
        read_tree(text)


def test_words_that_cannot_stand_in_a_tree():
    tree = Tree(("a b", "(", "(x)", "\u00a0"), ("XX",) * 4, ())
    assert str(tree) == "(TOP (XX ab) (XX -LRB-) (XX -LRB-x-RRB-) (XX _))"


@pytest.mark.parametrize(
    "text", ["(S " + "(NP (NN a)) " * 20_000 + ")", "(" * 20_000 + "(NN a)" + ")" * 20_000]
)
def test_time_is_that_of_the_length(text):
    start = time.monotonic()
    assert read_tree(str(read_tree(text))) == read_tree(text)
    assert time.monotonic() - start < 10
