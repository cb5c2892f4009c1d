"""The F1 of constituents against the program EVALB with COLLINS.prm."""

import pytest

from keras_lm.metrics import ConstituentF1

# A right tree, another one, and EVALB's numbers of brackets: that match, of each.
PAIRS = [
    (  # the same
        "(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))",
        "(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))",
        (3, 3, 3),
    ),
    (  # another label and another end
        "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (PRP it)) (PP (IN in) (NP (NN town)))))",
        "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (S (NP (PRP it)) (PP (IN in) (NP (NN town))))))",
        (6, 6, 7),
    ),
    (  # PRT is ADVP
        "(S (NP (PRP he)) (VP (VBD gave) (PRT (RP up))))",
        "(S (NP (PRP he)) (VP (VBD gave) (ADVP (RP up))))",
        (4, 4, 4),
    ),
    (  # punctuation elsewhere
        "(S (NP (NP (NNP Ada)) (, ,) (NP (NN poet)) (, ,)) (VP (VBD left)) (. .))",
        "(S (NP (NP (NNP Ada) (, ,)) (NP (NN poet))) (, ,) (VP (VBD left) (. .)))",
        (5, 5, 5),
    ),
    (  # a chain that is longer
        "(S (VP (VB go)))",
        "(S (S (VP (VB go))))",
        (2, 2, 3),
    ),
    (  # a label that is there twice
        "(NP (NP (NP (NN a)) (NN b)))",
        "(NP (NP (NN a) (NN b)))",
        (2, 3, 2),
    ),
    (
        "(S (S (NP (NN a)) (VP (VB b))))",
        "(S (NP (NN a)) (VP (VB b)))",
        (3, 4, 3),
    ),
    (  # a constituent of punctuation
        "(S (NP (NN a)) (VP (VB b)) (. .))",
        "(S (NP (NN a)) (PRN (VP (VB b)) (X (. .))))",
        (3, 3, 4),
    ),
    (
        "(S (`` ``) (S (NP (NN a)) (VP (VB b))) (, ,) ('' '') (NP (NN c)) (VP (VB d)) (. .))",
        "(SINV (`` ``) (S (NP (NN a)) (VP (VB b))) (, ,) ('' '') (NP (NN c)) (VP (VB d)) (. .))",
        (5, 6, 6),
    ),
    (  # function tags, and ( for TOP
        "( (S (NP-SBJ-1 (DT the) (NN dog)) (VP (VBZ barks) (ADVP-TMP (RB now)))))",
        "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ barks)) (ADVP (RB now))))",
        (3, 4, 4),
    ),
    (  # nothing in common
        "(FRAG (NP (NN dog)))",
        "(TOP (X (NN dog)))",
        (0, 2, 1),
    ),
    (  # right-branching
        "(NP (NP (NN a) (NN b)) (NP (NN c) (NN d)))",
        "(NP (NN a) (NP (NN b) (NP (NN c) (NN d))))",
        (2, 3, 3),
    ),
    (  # punctuation before a phrase
        "(S (NP (NN a)) (: --) (VP (VB b) (NP (CD 3) (NNS c))))",
        "(S (NP (NN a) (: --)) (VP (VB b) (NP (CD 3)) (NP (NNS c))))",
        (3, 4, 5),
    ),
]


@pytest.mark.parametrize("right, actual, numbers", PAIRS)
def test_brackets_are_counted_as_by_evalb(right, actual, numbers):
    metric = ConstituentF1()
    metric.update_state([right], [actual])
    counts = [float(count) for count in (metric.right, metric.marked, metric.found)]
    assert counts == [*numbers]


def test_scores_of_all_sentences_are_evalbs():
    metric = ConstituentF1()
    right, actual, _ = zip(*PAIRS, strict=True)
    metric.update_state(right[:4], actual[:4])
    metric.update_state(right[4:], actual[4:])
    percents = {name: 100 * value for name, value in metric.scores().items()}
    expected = {"precision": 82.00, "recall": 83.67, "f1": 82.83, "complete_match": 23.08}
    assert percents == pytest.approx(expected, abs=0.005)
    assert float(metric.result()) == pytest.approx(0.8283, abs=5e-5)
    metric.reset_state()
    assert metric.scores() == dict.fromkeys(expected, 0.0)


def test_tags_of_a_parser_do_not_matter():
    metric = ConstituentF1()
    metric.update_state(
        ["(S (NP (NN a)) (, ,) (VP (VB b)) (. .))"],
        ["(S (NP (XX a) (XX ,)) (VP (XX b)) (XX .))"],
    )
    assert metric.scores() == dict.fromkeys(("precision", "recall", "f1", "complete_match"), 1.0)
    metric.update_state(["(X (. .))", ""], ["(. .)", ""])  # nothing that counts
    assert float(metric.sentences) == 1


def test_mistakes_are_named():
    metric = ConstituentF1()
    with pytest.raises(ValueError, match=r"trees\[1\] has 2 words, but labels\[1\] has 1"):
        metric.update_state(["(NN a)"] * 2, ["(NN a)", "(S (NN a) (NN b))"])
    with pytest.raises(ValueError, match=r"labels\[0\]='\(S': a bracket is not closed"):
        metric.update_state(["(S"], ["(S (NN a))"])
    with pytest.raises(ValueError, match="takes no weights"):
        metric.update_state(["(NN a)"], ["(NN a)"], sample_weight=[1.0])
