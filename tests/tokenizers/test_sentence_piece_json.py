"""SentencePiece models that lie in a tokenizer.json alone, as Hugging Face's fast tokenizers do."""

import base64
import itertools
import json
import unicodedata

import numpy as np
import pytest

from keras_lm.tokenizers import SentencePieceTokenizer, Tokenizer, huggingface_files
from keras_lm.tokenizers.sentence_piece_model import CONTROL, UNKNOWN, parse_model
from keras_lm.tokenizers.sentence_piece_normalizer import HANGUL, Table, table_of
from keras_lm.tokenizers.strings import without_text_operations

METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
ALBERTS = [
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    {"type": "NFKD"},
    {"type": "StripAccents"},
    {"type": "Lowercase"},
]
TEXTS = ["Hello  ``wörld'' 1990 £", "", " Ünïcode ½ ﬁ １２ ", "a\u3000b\tc", "the film<extra_id_0>"]


def sequence(name, steps):
    return {"type": "Sequence", name: steps}


def replaced(kind, pattern, content):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


@pytest.fixture
def described(goldens, tmp_path):
    """`described("t5", normalizers, splitter)` is a folder with a golden's model as JSON alone."""

    def make(kind, normalizers=(), splitter=METASPACE, more=(), **others):
        data = (goldens("tokenizers") / f"sentencepiece-{kind}" / "spiece.model").read_bytes()
        model = parse_model(data)
        charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
        steps = [*normalizers, {"type": "Precompiled", "precompiled_charsmap": charsmap}, SPACES]
        special = [i for i, p in enumerate(model.pieces) if p.type in (CONTROL, UNKNOWN)]
        unknown = next(i for i, p in enumerate(model.pieces) if p.type == UNKNOWN)
        tokens = [(i, model.pieces[i].piece, True) for i in special]
        tokens += [(len(model.pieces) + i, *token) for i, token in enumerate(more)]
        added = [
            {"id": i, "content": content, "special": is_special, "lstrip": False, "rstrip": False}
            for i, content, is_special in tokens
        ]
        described = {
            "added_tokens": added,
            "normalizer": sequence("normalizers", steps),
            "pre_tokenizer": splitter,
            "post_processor": None,
            "model": {
                "type": "Unigram",
                "unk_id": unknown,
                "vocab": [[piece.piece, piece.score] for piece in model.pieces],
                "byte_fallback": False,
            },
        } | others
        (tmp_path / "tokenizer.json").write_text(json.dumps(described))
        return tmp_path, data

    return make


@pytest.mark.parametrize("kind", ["t5", "xlnet"])
def test_ids_equal_those_of_the_model_file(described, goldens, kind):
    folder, _ = described(kind)
    tokenizer = Tokenizer.from_preset(folder)
    assert type(tokenizer) is SentencePieceTokenizer
    lines = (goldens("tokenizers") / f"sentencepiece-{kind}" / "expected.jsonl").read_text()
    rows = [json.loads(line) for line in lines.split("\n") if line]
    got = tokenizer([row["text"] for row in rows]).to_list()
    assert not [row["text"] for row, ids in zip(rows, got) if ids != row["raw"]]


def test_alberts_normalizers(described):
    folder, data = described("albert", ALBERTS)
    rules = {"lowercase": True, "strip_accents": True, "straighten_quotes": True}
    albert = SentencePieceTokenizer(data, **rules)
    expected = albert(TEXTS).to_list()
    assert SentencePieceTokenizer.from_files(folder)(TEXTS).to_list() == expected
    plain, _ = described("albert")
    assert SentencePieceTokenizer.from_files(plain)(TEXTS).to_list() != expected

    # As we write it: the marks are those of the authors' code, which keeps vowels of Thai.
    pytest.importorskip("tokenizers", reason="needs: pip install 'keras-lm[vocab]'")
    written = huggingface_files.backend(albert)
    marks = filter(lambda c: unicodedata.category(c).startswith("M"), map(chr, range(0x20000)))
    texts = [*TEXTS[:-1], *(f"a{mark}b" for mark in marks)]
    results = [row.ids for row in written.encode_batch(texts, add_special_tokens=False)]
    assert results == albert(texts).to_list()
    assert albert.special_id("unknown") in results[texts.index("a\u0e31b")]
    written.save(str(folder / "tokenizer.json"))
    assert SentencePieceTokenizer.from_files(folder)(TEXTS).to_list() == expected


# Steps for spaces, whether one is before a text, and whether only there.
SPLITTERS = [
    (METASPACE, True, False),
    (sequence("pretokenizers", [{"type": "WhitespaceSplit"}, METASPACE]), True, False),
    ({"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}, True, False),
    ({"type": "Metaspace", "replacement": "▁", "add_prefix_space": False}, False, False),
    (METASPACE | {"prepend_scheme": "never"}, False, False),
    (METASPACE | {"prepend_scheme": "first"}, True, True),
]
SPACED = ["  film", "film", " film film"]


@pytest.mark.parametrize("splitter, has_prefix, is_once", SPLITTERS)
def test_the_space_before_text(described, splitter, has_prefix, is_once):
    folder, _ = described("t5", splitter=splitter, more=[("<E>", True)])
    tokenizer = SentencePieceTokenizer.from_files(folder)
    entries = tokenizer.tokens(tokenizer("film<E>film", parse_special=True)).numpy().tolist()
    entries = [entry.decode() for entry in entries]
    place = entries.index("<E>")
    assert entries[0].startswith("▁") == has_prefix
    assert entries[place + 1].startswith("▁") == (has_prefix and not is_once)
    # A space that is there stays, on both sides of a token.
    spaced = tokenizer.tokens(tokenizer("film <E> film", parse_special=True)).numpy().tolist()
    assert spaced[spaced.index(b"<E>") + 1].startswith("▁".encode())
    # Nor does one at the start of a text go, and places are those in the text.
    ids, starts, ends = tokenizer.tokenize_with_offsets(SPACED)
    assert ids.to_list() == tokenizer(SPACED).to_list()
    assert tokenizer.tokens(ids)[0, 0].numpy().startswith("▁".encode())
    assert [row[0] for row in starts.to_list()] == [2, 0, 1]
    assert [row[-1] for row in ends.to_list()] == [6, 4, 10]


@pytest.mark.slow
@pytest.mark.parametrize("splitter", [splitter for splitter, *_ in SPLITTERS])
def test_the_space_before_text_in_integers(described, splitter):
    folder, _ = described("t5", splitter=splitter, more=[("<E>", True)])

    def read(tokenizer):
        values = tokenizer(["film <E> film"], parse_special=True)
        return [x.to_list() for x in (values, *tokenizer.tokenize_with_offsets(SPACED))]

    expected = read(SentencePieceTokenizer.from_files(folder))
    with without_text_operations():
        assert read(SentencePieceTokenizer.from_files(folder)) == expected


def test_a_round_trip_keeps_all_settings(described, tmp_path):
    splitter = METASPACE | {"prepend_scheme": "first"}
    folder, _ = described("albert", ALBERTS, splitter, [("<E>", True), ("New York", False)])
    tokenizer = SentencePieceTokenizer.from_files(folder)
    tokenizer.save_assets(tmp_path)
    config = json.loads(json.dumps(tokenizer.get_config()))
    again = SentencePieceTokenizer.from_assets(tmp_path, config)
    assert again.get_config() == tokenizer.get_config()
    texts = [*TEXTS, "New York <E>film <E> in New York"]
    for parse_special in (False, True):
        expected = tokenizer(texts, parse_special=parse_special).to_list()
        assert again(texts, parse_special=parse_special).to_list() == expected
    assert len(expected[-1]) < len(tokenizer(texts[-1]))


def merged(text, merges, entries):
    """BPE of a text with spaces as "▁", pair by pair, and the unknown token for letters."""
    parts = list("▁" + text.replace(" ", "▁"))
    ranks = {tuple(pair.split(" ")): i for i, pair in enumerate(merges)}
    while True:
        results = [
            (ranks[pair], i) for i, pair in enumerate(itertools.pairwise(parts)) if pair in ranks
        ]
        if not results:
            break
        _, i = min(results)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [entries.index(part) if part in entries else 0 for part in parts]


@pytest.mark.parametrize("as_pairs", [False, True])
def test_merges_of_words_with_spaces(tmp_path, as_pairs):
    merges = ["▁ a", "b a", "▁a b", "ba b", "▁ bab", "b b"]
    entries = ["<unk>", "▁", "a", "b", "▁a", "ba", "▁ab", "bab", "▁bab", "bb"]
    model = {
        "type": "BPE",
        "unk_token": "<unk>",
        "vocab": {entry: i for i, entry in enumerate(entries)},
        "merges": [merge.split(" ") for merge in merges] if as_pairs else merges,
        "fuse_unk": True,
    }
    normalizer = sequence(
        "normalizers",
        [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    )
    described = {"model": model, "normalizer": normalizer, "pre_tokenizer": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    tokenizer = Tokenizer.from_preset(tmp_path)
    generator = np.random.default_rng(0)
    texts = ["".join(generator.choice(list("ab "), size=n)) for n in range(1, 40)] + ["xab"]
    assert tokenizer(texts).to_list() == [merged(text, merges, entries) for text in texts]


@pytest.mark.parametrize(
    "changed, says",
    [
        (
            {"normalizer": sequence("normalizers", [{"type": "Lowercase"}, {"type": "NFKC"}])},
            "normalizer asks for {'type': 'NFKC'}",
        ),
        ({"normalizer": {"type": "Nmt"}}, "normalizer 'Nmt', which"),
        # What is put in their place is another, or one of two goes without the other.
        ({"normalizer": replaced("String", " ", '"')}, "normalizer asks for .*Replace"),
        ({"normalizer": replaced("String", "``", " ")}, "normalizer asks for .*Replace"),
        ({"normalizer": replaced("String", "''", '"')}, "normalizer asks for .*Replace"),
        ({"normalizer": replaced("Regex", " {2,}", "")}, "normalizer asks for .*Replace"),
        (
            {"pre_tokenizer": sequence("pretokenizers", [METASPACE, METASPACE])},
            "pre_tokenizer asks for .*Metaspace.*Metaspace",
        ),
        ({"pre_tokenizer": {"type": "Digits", "individual_digits": True}}, "Digits"),
        ({"pre_tokenizer": METASPACE | {"replacement": "_"}}, "pre_tokenizer asks for"),
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}, "names no unknown token"),
        ({"model": {"type": "Unigram", "unk_id": 5, "vocab": [["a", 0.0]]}}, "IndexError"),
        ({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a"]]}}, "not have the form"),
        ({"post_processor": {"type": "Weird"}}, "post_processor 'Weird', which"),
        ({"pre_tokenizer": {"type": "WhitespaceSplit"}}, "for spaces, .*WhitespaceSplit, are not"),
        ({"pre_tokenizer": None}, "are not those of SentencePiece"),
        *(
            ({"normalizer": steps}, "are not those of SentencePiece")
            for steps in (
                {"type": "Strip", "strip_left": True, "strip_right": True},
                sequence("normalizers", [SPACES]),  # a space at the end of a text stays
            )
        ),
    ],
)
def test_what_is_not_understood_is_named(described, changed, says):
    folder, _ = described("t5", **changed)
    with pytest.raises(ValueError, match=says):
        SentencePieceTokenizer.from_files(folder)


RUNS = {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "}
STRIP = {"type": "Strip", "strip_left": False, "strip_right": True}
UNCOMPOSED = [
    "cafe\u0301 re\u0301sume\u0301",  # a letter and a mark
    "a\u0302\u0323 a\u0323\u0302 \u00e2\u0323 \u1ea1\u0302",  # two, in either order
    "\u212b \u2126 \uf900",  # which are others in NFC
    "\u00bd \ufb01 \uff11",  # which are not
    "a \n\t b\u00a0\u00a0c\u2003 d\r\ne\tf  g  ",
    "a\u00a0b",
    "",
    " \n ",
]
ENDS = [
    "a film\u00a0",
    "a\u3000",
    "\u2028",
    "film\x85 \u2003",
    "film\x1c",
    "film\u200b",
]


def test_composition_as_transformers_5_has_it(described):
    """What its class for DeBERTa writes in place of the model's own table of characters."""
    tokenizers = pytest.importorskip("tokenizers")
    steps = sequence("normalizers", [RUNS, {"type": "NFC"}, STRIP])
    folder, _ = described("t5", normalizer=steps)
    stated = json.loads((folder / "tokenizer.json").read_text()) | {"added_tokens": []}
    reference = tokenizers.Tokenizer.from_str(json.dumps(stated))
    expected = [reference.encode(text, add_special_tokens=False).ids for text in UNCOMPOSED]
    tokenizer = SentencePieceTokenizer.from_files(folder)
    assert tokenizer(UNCOMPOSED).to_list() == expected
    assert tokenizer.tokenize_lite(UNCOMPOSED).to_list() == expected
    expected = [reference.encode(text, add_special_tokens=False).ids for text in ENDS]
    assert tokenizer(ENDS).to_list() == expected
    # What the table for LiteRT leaves as it is: Hangul, and marks in another order.
    more = ["\u1112\u1161\u11ab\u1100\u1173\u11af", "e\u0301\u0323 a\u0301\u0327\u0323"]
    expected_more = [reference.encode(text, add_special_tokens=False).ids for text in more]
    assert tokenizer(more).to_list() == expected_more
    ids, _, ends = tokenizer.tokenize_with_offsets(ENDS[:4], unit="character")
    assert ids.to_list() == expected[:4]
    assert [max(each, default=0) for each in ends.to_list()] == [6, 1, 0, 4]


WHITE_LINES = [
    "\u3000film",
    "\x85a film",
    "a\u2028film",
    " film\u3000",
    "\tfilm",
    "a\nfilm",
    "\x0bfilm",
]


@pytest.mark.parametrize(
    "splitter",
    [
        sequence("pretokenizers", [{"type": "WhitespaceSplit"}, METASPACE]),
        METASPACE | {"prepend_scheme": "never"},
    ],
)
def test_white_space_without_a_table_of_characters(described, splitter):
    """All of it parts words for transformers 5; without that step, only a space is a space."""
    tokenizers = pytest.importorskip("tokenizers")
    folder, _ = described("t5", normalizer=None, splitter=splitter)
    stated = json.loads((folder / "tokenizer.json").read_text()) | {"added_tokens": []}
    reference = tokenizers.Tokenizer.from_str(json.dumps(stated))
    expected = [reference.encode(text, add_special_tokens=False).ids for text in WHITE_LINES]
    tokenizer = SentencePieceTokenizer.from_files(folder)
    assert tokenizer(WHITE_LINES).to_list() == expected
    assert tokenizer.tokenize_lite(WHITE_LINES).to_list() == expected


def test_spaces_with_a_table_of_characters(described, goldens):
    """XLM-R's steps and those of transformers 4 are equal, but for some texts."""
    tokenizers = pytest.importorskip("tokenizers")
    lines = (goldens("tokenizers") / "sentencepiece-t5" / "expected.jsonl").read_text()
    texts = [json.loads(line)["text"] for line in lines.split("\n") if line]
    each = sequence("pretokenizers", [{"type": "WhitespaceSplit"}, METASPACE])

    def other(kinds, splitter):
        folder, _ = described("t5")
        stated = json.loads((folder / "tokenizer.json").read_text())
        table = stated["normalizer"]["normalizers"][0]
        steps = [{"Table": table, "Strip": STRIP, "Spaces": SPACES}[kind] for kind in kinds]
        changed = {"normalizer": sequence("normalizers", steps), "pre_tokenizer": splitter}
        stated |= changed | {"added_tokens": []}
        (folder / "tokenizer.json").write_text(json.dumps(stated))
        reference = tokenizers.Tokenizer.from_str(json.dumps(stated))
        expected = reference.encode_batch(texts, add_special_tokens=False)
        actual = SentencePieceTokenizer.from_files(folder)(texts).to_list()
        pairs = zip(texts, actual, expected, strict=True)
        return {text for text, ids, right in pairs if ids != right.ids}

    spelled = {"</w> <unk> <s>"}
    assert other(["Table"], each) == spelled | {"\x85next"}
    assert other(["Table", "Strip", "Spaces"], METASPACE) == spelled
    # (The table makes spaces of U+FEFF and U+FFFD, too.)
    space, both = (" ", "\t", "\n", "\xa0", "\u3000", "\ufeff", "\ufffd"), {"crlf\r\nline", "\x7f"}
    late = other(["Table", "Spaces"], METASPACE) - spelled
    assert late and all(text.endswith(space) for text in late)
    assert other(["Table"], METASPACE) - spelled - both <= {"▁"}


def test_every_composition():
    table = Table(table_of(True, True))
    table.read()
    letters = [chr(number) for number in (*range(0xD800), *range(0xF900, 0x11200))]
    for form in ("NFC", "NFD"):
        wrong = []
        for letter in letters:
            text = unicodedata.normalize(form, letter)
            actual, right = table.apply(text), unicodedata.normalize("NFC", letter)
            if actual != right and not letter.isspace() and letter not in HANGUL:
                wrong.append((letter, actual))
        assert not wrong
    assert table.apply(" " * 3) == table.apply("\u00a0\n") == table.apply("\t") == " "
    assert table.apply("\u00a0") == "\u00a0"


@pytest.mark.parametrize(
    ("text", "all_marks", "combining"),
    [
        ("สวัสดี", "สวสด", "สวัสดี"),
        ("ខ្មែរ", "ខមរ", "ខមែរ"),
        ("हिन्दी", "हनद", "हिनदी"),
        ("❤\ufe0f", "❤", "❤\ufe0f"),
        ("ẹ́a\u0301ﬁ½", "eafi1⁄2", "eafi1⁄2"),
    ],
)
def test_marks_that_are_dropped(text, all_marks, combining, tmp_path):
    """StripAccents drops all marks; published code only those that Unicode calls combining."""
    backend = pytest.importorskip("tokenizers")
    letters = sorted({*text, *all_marks, *combining, "▁"})
    model = backend.models.Unigram([("<unk>", 0.0), *((x, -1.0) for x in letters)], 0)
    tokenizer = backend.Tokenizer(model)
    kinds = backend.normalizers
    tokenizer.normalizer = kinds.Sequence([kinds.NFKD(), kinds.StripAccents()])
    tokenizer.pre_tokenizer = backend.pre_tokenizers.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_preset(tmp_path)
    assert ours(text).numpy().tolist() == tokenizer.encode(text).ids
    assert b"".join(ours.tokens(ours(text)).numpy()).decode() == f"▁{all_marks}"
    other = Tokenizer.from_preset(tmp_path, strip_accents=True)
    assert b"".join(other.tokens(other(text)).numpy()).decode() == f"▁{combining}"


@pytest.mark.parametrize("cleans", [True, False])
def test_cleaned_text(cleans, tmp_path):
    pieces = [["<unk>", 0.0], *([piece, -1.0] for piece in ("▁", "▁a", "a", "."))]
    described = {
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    stated = {"clean_up_tokenization_spaces": cleans}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(stated))
    tokenizer = Tokenizer.from_preset(tmp_path)
    assert tokenizer.detokenize(tokenizer("a .")).numpy() == (b"a." if cleans else b"a .")
