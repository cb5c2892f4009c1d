"""Mentions of entities in texts: which are found, where, and what a file keeps of them."""

import pickle
import random
import warnings

import pytest
import tensorflow as tf

from keras_lm.tokenizers import EntityTokenizer, Tokenizer, WordPieceTokenizer

PIECES = [*"abcu.s[]-", "new", "york", "university", "of", "san", "sao", "paulo", "ada", "love"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES, "sep", "##er", "##lace"]
MENTIONS = {
    "New York": "Q60",
    "New York University": "Q49210",
    "York": "Q42462",
    "University of": "unknown",
    "São Paulo": "Q174",
    "U.S.": "Q30",
    "Ada Lovelace": "Q7259",
}
NASTY = "New\u2028York\u0301"

YORK = 2  # the row of Q42462


def make(mentions=MENTIONS, **arguments):
    return EntityTokenizer(VOCABULARY, lowercase=True, mentions=mentions, **arguments)


@pytest.fixture(scope="module")
def tokenizer():
    return make(entities=sorted({*MENTIONS.values()} - {"unknown"}))


def linked_mentions(tokenizer, text):
    rows, starts, ends = (x[0].numpy().tolist() for x in tokenizer.find_mentions([text]))
    ids = [tokenizer.entities[row] if row >= 0 else None for row in rows]
    return [(id, text[a:b]) for id, a, b in zip(ids, starts, ends, strict=True)]


@pytest.mark.eager
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a New York b", [("Q60", "New York")]),
        ("new\tYORK  university", [("Q49210", "new\tYORK  university")]),
        ("new york york", [("Q60", "new york"), ("Q42462", "york")]),
        # Whole words alone, and no words that the dictionary does not have.
        ("new yorker, newyork, new-york", [("Q42462", "york")]),
        # A mention of an entity that is not there takes its words, too.
        ("new university of york", [(None, "university of"), ("Q42462", "york")]),
        # From left to right: what begins first wins.
        ("new york university of", [("Q49210", "new york university")]),
        ("SAO Paulo's U.S.", [("Q174", "SAO Paulo"), ("Q30", "U.S.")]),
        ("Ada Love lace Ada Lovelace", [("Q7259", "Ada Lovelace")]),
        ("new [SEP] york", [("Q42462", "york")]),
        (
            "\U0001f6ac 中York\x00 New\u2028York\u0301",
            [("Q42462", "York"), ("Q60", "New\u2028York")],
        ),
        ("", []),
    ],
)
def test_what_is_found(tokenizer, text, expected):
    assert linked_mentions(tokenizer, text) == expected


@pytest.mark.eager
def test_first_tokens(tokenizer):
    row = tokenizer.entities.index("Q7259")
    ids = tokenizer(["a ada lovelace", "", "b"])
    assert tokenizer.link(ids).to_list() == [[-1, row, -1, -1], [], [-1]]
    assert tokenizer.link(ids[:0]).to_list() == []
    # No mention goes on in the next text.
    assert tokenizer.link(tokenizer(["new", "york"])).to_list() == [[-1], [YORK]]
    # Nor over a special token, even if text may spell those.
    ids = tokenizer(["new [SEP] york"], parse_special=True)
    assert tokenizer.link(ids).to_list() == [[-1, -1, YORK]]


@pytest.mark.eager
def test_equals_a_search_in_plain_python():
    choose = random.Random(0)
    mentions = {" ".join(choose.choices("abcus", k=choose.randint(1, 4))): "" for _ in range(60)}
    mentions = {mention: f"Q{i}" for i, mention in enumerate(mentions)}
    tokenizer = make(mentions)
    texts = [choose.choices("abcus", k=choose.randint(0, 40)) for _ in range(200)]
    expected = []
    for words in texts:
        row, place = [-1] * len(words), 0
        while place < len(words):
            sizes = [n for n in range(4, 0, -1) if " ".join(words[place : place + n]) in mentions]
            sizes = [n for n in sizes if place + n <= len(words)]
            if sizes:
                id = mentions[" ".join(words[place : place + sizes[0]])]
                row[place] = tokenizer.entities.index(id)
            place += sizes[0] if sizes else 1
        expected.append(row)
    link = tf.function(lambda texts: tokenizer.link(tokenizer(texts)))
    assert link(tf.constant([" ".join(words) for words in texts])).to_list() == expected


@pytest.mark.eager
def test_what_is_left_out():
    mentions = {"york": "Q1", "YORK": "Q2", "zzz": "Q3", " ": "Q4"}
    with pytest.raises(ValueError, match="`mentions` names ' ': pass text in one line"):
        make(mentions)
    del mentions[" "]
    with pytest.warns(UserWarning, match="2 of 3 are left out, such as 'YORK'"):
        tokenizer = make(mentions)
    assert tokenizer.mentions == {"york": "Q1"}
    assert linked_mentions(tokenizer, "York zzz") == [("Q1", "York")]
    with pytest.raises(ValueError, match="`mentions` names 'new"):
        make({"new\tyork": "Q1"})
    with pytest.raises(ValueError, match="`mentions` names 7"):
        make({"new": 7})
    with pytest.raises(ValueError, match="`entities` names one twice"):
        make(entities=["Q60", "Q60"])
    assert linked_mentions(make({}), "new york") == []


@pytest.mark.eager
def test_files_keep_the_dictionary(tokenizer, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    text = "New York University of u.s."
    expected = linked_mentions(tokenizer, text)
    read = EntityTokenizer.from_preset(tmp_path, mentions=MENTIONS, entities=tokenizer.entities)
    assert type(Tokenizer.from_preset(tmp_path)) is WordPieceTokenizer  # nothing asks for another
    more = tokenizer.with_words(["lovelaced"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copies = [pickle.loads(pickle.dumps(tokenizer)), read, more]
    for copy in copies:
        assert copy.entities == tokenizer.entities and copy.mentions == MENTIONS
        assert linked_mentions(copy, text) == expected


def test_few_mentions_of_a_large_vocabulary():
    """Several that begin alike, with words far apart in the list, were an IndexError."""
    words = [f"w{number}" for number in range(20_000)]
    tokenizer = EntityTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words],
        lowercase=True,
        mentions={"w7 w0": "a", "w7 w19999": "b", "w7 w9999 w19998": "c", "w19999": "d"},
    )
    entities, starts, _ = tokenizer.find_mentions(["w7 w19999, w7 w9999 w19998 w19999", "w7 w1"])
    assert [tokenizer.entities[row] for row in entities.to_list()[0]] == ["b", "c", "d"]
    assert starts.to_list() == [[0, 11, 27], []]
