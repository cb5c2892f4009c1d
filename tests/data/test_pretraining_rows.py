"""Rows for encoders: exact ones, what holds for all, and shards of them."""

import gzip
import json
import random
import string

import numpy as np
import pytest

from keras_lm import data
from keras_lm.data.segments import FORMS, Layout, stream_pairs
from keras_lm.models import BertBackbone, RobertaBackbone, XLNetBackbone
from keras_lm.packers import Template
from keras_lm.tokenizers import BytePairTokenizer, WordPieceTokenizer
from keras_lm.tokenizers.sentence_piece_model import BYTES

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
DOCUMENTS = ["a b c\nd e\r\n\n  \nf g h i j", "k", "", " \n", "l m\nn"]  # 14 tokens


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer([*SPECIAL, *string.ascii_lowercase], lowercase=True)


def make(tokenizer, length, documents=DOCUMENTS, template=BertBackbone.TEMPLATE, **settings):
    return data.pretraining_rows(documents, tokenizer, template, length, **settings)


def texts(rows, tokenizer):
    """What stands in rows, `|` for [SEP], after checks of what all rows have in common."""
    results = []
    for row in rows.as_numpy_iterator():
        ids, segments, mask = (row[n] for n in ("token_ids", "segment_ids", "padding_mask"))
        assert {value.dtype for value in row.values()} == {np.dtype("int32")}
        assert (np.diff(mask) <= 0).all()  # padded on the right
        assert not ids[mask == 0].any()
        assert not segments[mask == 0].any()
        tokens = [tokenizer.vocabulary[i] for i in ids[mask == 1]]
        assert tokens[0] == "[CLS]"
        assert tokens[-1] == "[SEP]"
        ends = [i for i, token in enumerate(tokens) if token == "[SEP]"]
        if segments.any():
            assert len(ends) == 2
            assert segments.tolist() == [int(ends[0] < i <= ends[1]) for i in range(len(segments))]
        results.append("".join(tokens[1:-1]).replace("[SEP]", "|"))
    return results


@pytest.mark.eager
@pytest.mark.parametrize(
    ("form", "length", "expected"),
    [
        ("single", 6, ["abcd", "efgh", "ij", "k", "lmn"]),
        # Four tokens: "de" does not fit beside "abc"; the last sentence is longer than a row.
        ("doc_sentences", 6, ["abc", "defg", "hij", "k", "lmn"]),
        ("full_sentences", 6, ["abc", "defg", "hij", "k|lm", "n"]),
        # Two tokens are half a row.
        ("segment_pairs", 7, ["ab|c", "de|fg", "hi|j", "k", "lm|n"]),
    ],
)
def test_forms(tokenizer, form, length, expected):
    rows = make(tokenizer, length, form=form)
    assert all(spec.shape == (length,) for spec in rows.element_spec.values())
    assert texts(rows, tokenizer) == expected


def test_next_sentence(tokenizer):
    """A pair of one document has the label 0, of two 1."""
    documents = ["a b\nc d\ne f\ng h", "k l\nm n\no p\nq r"]
    rows = make(tokenizer, 7, documents, form="next_sentence")
    pairs = texts(rows, tokenizer)
    labels = [int(row["next_sentence_labels"]) for row in rows.as_numpy_iterator()]
    assert len(pairs) == len(labels) >= 3
    follows = {"ab|cd", "cd|ef", "ef|gh", "kl|mn", "mn|op", "op|qr"}
    assert [pair not in follows for pair in pairs] == [bool(label) for label in labels]
    assert all((pair[0] < "k") != (pair[-1] < "k") for pair in set(pairs) - follows)
    # There is no other document.
    assert not texts(make(tokenizer, 7, ["a b\nc d\ne f"], form="next_sentence"), tokenizer)


@pytest.mark.eager
def test_templates_of_other_models():
    special = ["<s>", "</s>", "<pad>"]
    tokenizer = BytePairTokenizer(
        [*special, *BYTES.values()],
        [],
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
    )
    rows = make(tokenizer, 12, ["a.\nb", "c"], RobertaBackbone.TEMPLATE, form="full_sentences")
    (row,) = rows.as_numpy_iterator()
    tokens = tokenizer.tokens(row["token_ids"]).numpy().tolist()
    # Between sentences there is a space, as in running text, and between documents a separator.
    expected = ["<s>", "a", ".", BYTES[32], "b", "</s>", "c", "</s>", *["<pad>"] * 4]
    assert [token.decode() for token in tokens] == expected
    on_the_left = Template("$A:0 </s>:0 <s>:2", "$A:0 </s>:0 $B:1 </s>:0 <s>:2", "left", 3)
    rows = make(tokenizer, 10, ["a\nb", "c"], on_the_left, form="segment_pairs")
    pair, single = [row["segment_ids"].tolist() for row in rows.as_numpy_iterator()]
    assert pair == [3, 3, 3, 3, 0, 0, 1, 1, 0, 2]  # " b" is two bytes
    assert single == [3] * 7 + [0, 0, 2]
    with pytest.raises(ValueError, match="no separator after"):
        make(tokenizer, 10, ["a"], Template("<s>:0 $A:0", "$A:0 $B:0"), form="full_sentences")


@pytest.mark.eager
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"form": "pairs"}, r"form='pairs': use one of \('single'"),
        ({"short_share": 1.5}, r"short_share=1.5: pass a number from 0 to 1"),
        ({"single_share": 0.1}, "single_share=0.1 needs form='segment_pairs'"),
        ({"sequence_length": 4, "form": "segment_pairs"}, "use 5 or more"),
        ({"sequence_length": 2}, "sequence_length=2 leaves no room"),
        ({"documents": "one text"}, "list of strings"),
    ],
)
def test_bad_arguments(tokenizer, settings, message):
    settings = {"documents": DOCUMENTS, "sequence_length": 16} | settings
    with pytest.raises(ValueError, match=message):
        data.pretraining_rows(tokenizer=tokenizer, template=BertBackbone.TEMPLATE, **settings)


# === What holds for all forms, on numbered tokens ===

ROOM = 60


def numbered(seed=0, documents=80, sentences=(1, 60), tokens=(1, 15)):
    """Documents of sentences, in which each token has a number of its own."""
    draw, count, results = random.Random(seed), 1, []
    for _ in range(documents):
        results.append([])
        for _ in range(draw.randint(*sentences)):
            n = draw.randint(*tokens)
            results[-1].append(np.arange(count, count + n, dtype="int32"))
            count += n
    return results


def segments(form, documents, seed=0, short_share=0.0, single_share=0.0):
    layout = Layout(ROOM, short_share, single_share, 0, random.Random(seed))
    rows = list(FORMS[form](iter(documents), layout))
    assert all(len(first) > 0 and len(first) + len(second) <= ROOM for first, second, _ in rows)
    return rows


def tokens_of(rows):
    results = np.concatenate([np.concatenate([first, second]) for first, second, _ in rows])
    return results[results > 0]


CORPORA = {
    "usual": numbered(),
    "of long sentences": numbered(1, 20, (1, 4), (50, 400)),
    "of single tokens": numbered(2, 50, (1, 1), (1, 1)),
    "of one document": numbered(3, 1, (500, 500)),
}


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("form", [form for form in FORMS if form != "next_sentence"])
def test_each_token_stands_in_one_row_in_order(form, corpus):
    documents = CORPORA[corpus]
    total = documents[-1][-1][-1]
    for share in (0.0, 0.5):
        rows = segments(form, documents, short_share=share)
        np.testing.assert_array_equal(tokens_of(rows), np.arange(1, total + 1))


@pytest.mark.parametrize("corpus", ["usual", "of long sentences"])
def test_next_sentence_uses_no_token_twice(corpus):
    documents = CORPORA[corpus]
    total = documents[-1][-1][-1]
    actual = tokens_of(segments("next_sentence", documents))
    assert len(set(actual.tolist())) == len(actual)
    assert len(actual) > 0.97 * total  # what is left of the last document is dropped


def test_what_rows_depend_on():
    def drawn(form, seed):
        rows = segments(form, CORPORA["usual"], seed, short_share=0.2)
        return [(first.tolist(), second.tolist(), label) for first, second, label in rows]

    for form in FORMS:
        assert drawn(form, 1) == drawn(form, 1)
        assert drawn(form, 1) != drawn(form, 2)


def test_rows_are_full():
    """Short documents and sentences leave hardly any padding; see RoBERTa, section 4.2."""
    rows = segments("full_sentences", numbered(4, 1000, (1, 5), (1, 5)))
    assert len(np.concatenate([first for first, _, _ in rows[:-1]])) > 0.95 * ROOM * (len(rows) - 1)


def test_shares():
    documents = numbered(5, 400)
    lengths = np.array([len(first) for first, *_ in segments("single", documents)])
    cut = np.mean(lengths == ROOM)
    lengths = np.array([len(a) for a, *_ in segments("single", documents, short_share=0.1)])
    assert abs(np.mean(lengths == ROOM) - 0.9 * cut) < 0.03
    rows = segments("segment_pairs", documents, single_share=0.1)
    without = np.mean([not len(second) for _, second, _ in segments("segment_pairs", documents)])
    assert 0 < without < 0.05  # what is left of documents
    assert abs(np.mean([not len(second) for _, second, _ in rows]) - without - 0.1) < 0.02
    # The border is anywhere, on average in the middle.
    pairs = [(len(a), len(b)) for a, b, _ in rows if len(b)]
    assert abs(np.mean([a / (a + b) for a, b in pairs]) - 0.5) < 0.05


def test_second_segments_of_next_sentence():
    documents = numbered(6, 400, (30, 60))
    of = np.repeat(np.arange(400), [sum(map(len, document)) for document in documents])
    borders = {int(sentence[0]) for document in documents for sentence in document}
    rows = segments("next_sentence", documents)
    for first, second, label in rows:
        assert (of[first[-1] - 1] != of[second[0] - 1]) == label
        assert label or first[-1] + 1 == second[0]
        assert {int(first[0]), int(second[0])} <= borders  # whole sentences
        for segment in (first, second):
            assert (np.diff(segment) == 1).all()
    labels = np.array([label for *_, label in rows])
    assert 0.48 < labels.mean() < 0.56
    # Lengths do not tell the labels.
    for part in (0, 1):
        sizes = np.array([len(row[part]) for row in rows])
        assert abs(sizes[labels == 1].mean() - sizes[labels == 0].mean()) < 0.1 * ROOM


# === Documents ===


def test_sentences_by_rule():
    text = (
        'He came ("Late.") She went!  ÄRGER? no. 2 of "Them."\nA line\nIt\'s Dr. Who… “Yes.” 好。好'
    )
    results = [row.decode() for row in data.split_sentences([text, ""]).as_numpy_iterator()]
    expected = [
        'He came ("Late.")',
        "She went!",
        'ÄRGER? no. 2 of "Them."',
        "A line",
        "It's Dr.",  # a limit of the rule
        "Who…",
        "“Yes.” 好。好",
    ]
    assert results == ["\n".join(expected), ""]


def test_blocks(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\n \none\r\ntwo \r\n\t\r\n\nthree")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("four\nfünf\n".encode()))
    (tmp_path / "c.txt").write_bytes(b"")
    read = data.read_documents(f"{tmp_path}/*", document="block")
    for _ in range(2):
        assert list(read.as_numpy_iterator()) == [
            b"one\r\ntwo ",
            b"three",
            "four\nfünf".encode(),
        ]


# === Shards and batches ===


@pytest.mark.slow
@pytest.mark.eager
def test_shards_of_rows(tokenizer, tmp_path):
    settings = {"form": "next_sentence", "short_share": 0.5, "seed": 3}
    documents = ["a b\nc d\ne f\ng h", "k l\nm n\no p\nq r"] * 5
    folder = tmp_path / "rows"
    arguments = (documents, tokenizer, BertBackbone.TEMPLATE, 7, folder)
    number = data.write_row_shards(*arguments, num_shards=2, **settings)
    read = data.read_token_shards(folder, tokenizer)
    made = make(tokenizer, 7, documents, **settings)
    assert read.element_spec == made.element_spec
    assert int(read.cardinality()) == number

    def rows(dataset):
        return [{k: v.tolist() for k, v in row.items()} for row in dataset.as_numpy_iterator()]

    actual, expected = rows(read), rows(made)
    assert actual == expected[0::2] + expected[1::2]
    index = json.loads((folder / "tokens.json").read_text())
    assert index["settings"] == {"single_share": 0.0} | settings
    assert Template(**index["template"]) == BertBackbone.TEMPLATE
    with pytest.raises(ValueError, match=r"fill 0 windows of 7 tokens"):
        data.write_row_shards([""], *arguments[1:-1], tmp_path / "none")

    batches = list(data.epoch_batches(read, 4, seed=1, epoch=2).as_numpy_iterator())
    assert len(batches) == number // 4
    inputs, labels = batches[0]
    assert set(inputs) == {"token_ids", "segment_ids", "padding_mask"}
    assert inputs["token_ids"].shape == (4, 7)
    assert labels["next_sentence_labels"].shape == (4,)
    again = {str(row) for row in actual}  # columns of a row stay together
    for inputs, labels in batches:
        for i in range(4):
            row = {name: value[i].tolist() for name, value in (inputs | labels).items()}
            assert str({name: row[name] for name in read.element_spec}) in again
    (inputs,) = next(iter(data.window_batches(make(tokenizer, 6), 8)))
    assert inputs["token_ids"].shape == (5, 6)


# === Streams ===


def halves_of_a_loop(borders, begin, length, draw):
    """Where two segments begin and end by the authors' loops, with the same random numbers."""
    inside, end = [], begin + 1
    while end not in borders or end - begin < length:
        inside += [end] if end in borders else []
        end += 1
    a_end = draw.choice(inside) if inside else end
    if not inside or draw.random() < 0.5:
        number = max(1, length - (a_end - begin))
        b_begin = draw.randint(0, max(borders) - 1 - number)
        b_end = b_begin + number
        while b_begin not in borders:
            b_begin -= 1
        while b_end not in borders:
            b_end += 1
    else:
        b_begin, b_end = a_end, end
    while a_end - begin + b_end - b_begin > length:
        if a_end - begin > b_end - b_begin:
            a_end -= 1
        else:
            b_end -= 1
    return a_end, b_begin, b_end


@pytest.mark.parametrize("corpus", ["usual", "of long sentences", "of one document"])
def test_rows_of_a_stream_are_those_of_plain_loops(corpus):
    room, reuse = 57, 30
    documents = CORPORA[corpus][:12]
    actual = list(stream_pairs(documents, room, reuse, 0, random.Random(1)))
    sentences = [part for document in documents for part in ([0], *document)][1:]
    tokens = np.concatenate(sentences)
    borders = {0, *np.cumsum([*map(len, sentences)]).tolist()}
    draw, expected = random.Random(1), []
    for way in (0, 1):
        start = 0
        while start + room <= len(tokens):
            a, b, c = halves_of_a_loop(borders, start + reuse, room - reuse, draw)
            expected.append((tokens[start:a].tolist(), tokens[b:c].tolist(), way))
            start += reuse
        tokens, borders = tokens[::-1], {len(tokens) - place for place in borders}
    assert [(first.tolist(), second.tolist(), way) for first, second, way in actual] == expected
    assert len(expected) > 10


@pytest.mark.eager
def test_stream_rows(tokenizer):
    documents = ["a b c\nd e f", "g h i j\nk l m n o p", "q r s t"]
    rows = data.stream_rows(documents, tokenizer, XLNetBackbone.TEMPLATE, 12, 4, seed=2)
    rows = list(rows.as_numpy_iterator())
    read = "".join(string.ascii_lowercase[:20]).replace("f", "f|").replace("p", "p|")  # two borders
    for way, text in enumerate((read, read[::-1])):
        of_way = [row for row in rows if row["is_reversed"] == way]
        assert len(of_way) == (len(text) - 9) // 4 + 1
        for number, row in enumerate(of_way):
            assert row["padding_mask"].all()
            words = [tokenizer.vocabulary[i] for i in row["token_ids"]]
            shown = "".join(words).replace("[SEP]", "|").replace("[CLS]", "")
            assert shown[:4] == text[4 * number :][:4]
            assert words[-2:] == ["[SEP]", "[CLS]"]
            segments = row["segment_ids"].tolist()
            assert segments[:5] == [0] * 5
            assert segments[-1] == 2
            assert 1 in segments
    with pytest.raises(ValueError, match="reuse_length=8: pass 1 to 7"):
        data.stream_rows(documents, tokenizer, XLNetBackbone.TEMPLATE, 12, 8)
    with pytest.raises(ValueError, match="begins with another token than the text"):
        data.stream_rows(documents, tokenizer, BertBackbone.TEMPLATE, 12)
