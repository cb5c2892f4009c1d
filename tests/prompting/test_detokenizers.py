"""What corpora did to their text, undone and done again."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_lm.prompting import Detokenizer, penn_treebank, wikitext

WIKITEXT = {
    " = = The Early Years = = ": "== The Early Years ==",
    "3 @,@ 000 men , 2 @.@ 5 % of a well @-@ known lot .": "3,000 men, 2.5% of a well-known lot.",
    'She said , " I don \'t ( really ) know ! " .': 'She said, "I don\'t (really) know!".',
    "Dr. Who met J. Smith of the U.S. in St. Paul ; $ 5 each .": (
        "Dr. Who met J. Smith of the U.S. in St. Paul; $5 each."
    ),
    'A " quoted " word ... and 1998 – 99 : <unk> \'s .': (
        'A "quoted" word ... and 1998 – 99: <unk> \'s.'
    ),
    "": "",
}
PENN = {
    " the investors ' fund did n't lose N % or $ N ": "the investors' fund didn't lose N% or $N",
    "it 's <unk> 's # N they 'll say": "it's <unk>'s #N they'll say",
}


@pytest.mark.parametrize(
    ("detokenizer", "tokens", "plain"),
    [
        *[(wikitext, *item) for item in WIKITEXT.items()],
        *[(penn_treebank, *item) for item in PENN.items()],
    ],
)
def test_tokens_become_text_and_tokens_again(detokenizer, tokens, plain):
    assert detokenizer(tokens) == plain
    assert detokenizer.restore(plain).split() == tokens.split()


def test_lines_stay_apart():
    tokens = ' = A = \n \n " b , c " \n d @-@ e .'
    assert wikitext(tokens) == '= A =\n\n"b, c"\nd-e.'


@pytest.mark.parametrize("line", ["a-b , c", "Ann .com , c", '" a , c', "plan A , c.d"])
def test_a_line_that_would_not_come_back_stays(line):
    plain = wikitext(line)
    assert plain == line or wikitext.restore(plain) == line
    assert wikitext("a-b , c") == "a-b , c"
    assert Detokenizer([("x", "")], [("y", "x")])("x y") == "x y"


PIECES = st.sampled_from([*"ab19.,;:!?%()[]\"'=-$A", "@-@", "@,@", "'s", "n't", "...", "Dr.", "N"])


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=9), st.sampled_from([wikitext, penn_treebank]))
def test_no_token_is_lost(pieces, detokenizer):
    line = " ".join(pieces)
    plain = detokenizer(line)
    assert plain == line or detokenizer.restore(plain) == line
