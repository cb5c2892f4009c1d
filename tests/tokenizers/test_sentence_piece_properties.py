"""SentencePiece on thousands of strings: equal to the package, whatever they hold."""

import io
import random
import struct
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.tokenizers import SentencePieceTokenizer, train_vocabulary
from keras_lm.tokenizers.sentence_piece_model import BPE, CONTROL, UNIGRAM, UNKNOWN, Model

sentencepiece = pytest.importorskip("sentencepiece")

WORDS = "the end of a song was loud and bad, naïve café (again) 1,990 things; then: 20, 30, ÉLAN"
# Pieces that a model keeps whole: also what its rules would change, and the start of another one.
KEPT = ["£", "–", "<sep>", "™", "½x", "<", "a–"]
SPELLED = (
    *KEPT,
    "<s>",
    "<unk>",
    "[MASK]",
    "</s>",
    "▁",
    "  ",
    "\t",
    "\u0301",
    "1,990,",
    "<0x41>",
    "\x00",
)


def characters():
    """Some characters of each category of Unicode, those of Basic Latin several times."""
    categories = {}
    for number in (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200)):
        categories.setdefault(unicodedata.category(chr(number)), []).append(chr(number))
    chosen = random.Random(1)
    results = [chosen.choice(some) for some in categories.values() for _ in range(30)]
    return results + 3 * [chr(number) for number in range(0x20, 0x7F)]


def strings(count):
    """Return strings of random characters, some repeated, letters, words and spelled-out tokens.

    Of "****" there are equally good pieces, and of letters almost equally good ones.
    """
    chosen, alphabet, words = random.Random(2), characters(), WORDS.split()
    kinds = (
        lambda: chosen.choice(alphabet),
        lambda: chosen.choice(alphabet) * chosen.randrange(1, 8),
        lambda: "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz", k=chosen.randrange(1, 14))),
        lambda: f" {chosen.choice(words)}",
        lambda: chosen.choice(SPELLED),
    )
    chances = (5, 1, 1, 3, 1)
    return [
        "".join(make() for make in chosen.choices(kinds, chances, k=chosen.randrange(12)))
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def models(goldens):
    """`models[kind]` is (our tokenizer, the package's)."""
    unigram = SentencePieceTokenizer(goldens("tokenizers") / "sentencepiece-t5" / "spiece.model")
    bpe = train_vocabulary("sentencepiece_bpe", 90, texts=[WORDS, WORDS.replace(" ", " then ")])
    keeping = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([WORDS] * 3),
        model_writer=keeping,
        vocab_size=60,
        hard_vocab_limit=False,
        user_defined_symbols=KEPT,
        minloglevel=2,
    )
    keeping = SentencePieceTokenizer(keeping.getvalue())
    return {
        kind: (tokenizer, sentencepiece.SentencePieceProcessor(model_proto=tokenizer._data))
        for kind, tokenizer in (("unigram", unigram), ("keeping", keeping), ("bpe", bpe))
    }


@pytest.mark.parametrize("kind", ["unigram", "keeping", "bpe"])
def test_ten_thousand_strings(models, kind):
    tokenizer, reference = models[kind]
    texts = strings(10_000)
    got, expected = tokenizer(texts).to_list(), reference.encode(texts)
    assert not [(t, a, b) for t, a, b in zip(texts, got, expected) if a != b]


@pytest.mark.parametrize("kind", ["unigram", "keeping", "bpe"])
def test_any_bytes(models, kind):
    tokenizer, reference = models[kind]
    chosen = np.random.default_rng(3)
    texts = [chosen.bytes(chosen.integers(40)) for _ in range(2_000)]
    # Bytes that are no UTF-8 are U+FFFD to us; the package is not asked about those.
    valid = [t.decode() for t in tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8").numpy()]
    ids = tokenizer(texts)
    assert ids.to_list() == tokenizer(valid).to_list() == reference.encode(valid)
    assert tokenizer.detokenize(ids).shape == (2_000,)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_long_and_empty_strings(models, kind):
    tokenizer, reference = models[kind]
    long = " ".join(random.Random(4).choices(WORDS.split(), k=22_000))
    assert len(long) > 100_000
    assert tokenizer(["", long, "a"]).to_list() == reference.encode(["", long, "a"])
    one_word = "abcdefgh" * 13_000
    assert tokenizer.detokenize(tokenizer([one_word])).shape == (1,)
    assert tokenizer([""] * 10_000).to_list() == [[]] * 10_000


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_models_outlive_the_cache_of_operations(models, kind):
    tokenizer, _ = models[kind]
    before = [part.to_list() for part in tokenizer.tokenize_with_offsets([WORDS])]
    tf.random.set_seed(1)  # which clears it
    assert tokenizer([WORDS]).to_list() == before[0]
    assert [part.to_list() for part in tokenizer.tokenize_with_offsets([WORDS])] == before


def make(pieces, model_type=UNIGRAM, charsmap=b""):
    model = Model()
    model.pieces.add(piece="<unk>", type=UNKNOWN)
    model.pieces.add(piece="<s>", type=CONTROL)
    for i, piece in enumerate(pieces):
        model.pieces.add(piece=piece, score=-1.0 - i**0.5)
    model.trainer_spec.model_type = model_type
    model.normalizer_spec.SetInParent()
    if charsmap:
        model.normalizer_spec.precompiled_charsmap = charsmap
    return model.SerializeToString()


def test_commas_part_from_numbers_as_in_the_models_own_code():
    # Some with and some without a space in front; of "▁07," and "25," the numbers are no pieces.
    words = ["▁19", "▁1990", "90", "▁1990,", "▁19,", "▁07,", "0,", "9,", "90,", "25,", "00"]
    model = make([*words, *"▁0123456789,.a"])
    tokenizer = SentencePieceTokenizer(model, split_digit_commas=True)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)

    def parted(piece):
        if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
            return [piece]
        number = reference.encode(piece[:-1].replace("▁", ""), out_type=str)
        if piece[0] != "▁":
            number[0] = number[0].removeprefix("▁")
        return [part for part in number if part] + [","]

    chosen = random.Random(5)
    parts = [*"0123456789,,, a.", "19", "1990,", " 07,", "25,"]
    texts = ["".join(chosen.choices(parts, k=chosen.randrange(25))) for _ in range(999)]
    rows = reference.encode(texts, out_type=str)
    pieces = [[part for piece in row for part in parted(piece)] for row in rows]
    assert sum(len(new) > len(old) for new, old in zip(pieces, rows)) > 500
    expected = [[reference.piece_to_id(piece) for piece in row] for row in pieces]
    assert tokenizer(texts).to_list() == expected
    assert tokenizer.tokenize_lite(tf.constant(texts)).to_list() == expected


def test_commas_in_a_bpe_model():
    model = make(["▁1", "▁19", "▁19,", "9,", *"▁19,a"], BPE)
    tokenizer = SentencePieceTokenizer(model, split_digit_commas=True)
    texts = ["19, a9,", "", "a", "9,9,"]
    entries = [[t.decode() for t in tokenizer.tokens(row).numpy()] for row in tokenizer(texts)]
    assert entries == [["▁19", ",", "▁", "a", "9", ","], [], ["▁", "a"], ["▁", *"9,9,"]]
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    assert ids.to_list() == tokenizer(texts).to_list()
    assert list(zip(starts[0].numpy(), ends[0].numpy())) == [
        *((0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7))
    ]
    assert tokenizer.detokenize(tokenizer(texts)).numpy().tolist() == [t.encode() for t in texts]


def test_accents_of_korean_where_the_model_has_no_rules_of_its_own():
    model = make([*"▁\u1100\u1161\u11a8", "각"])
    plain = SentencePieceTokenizer(model)
    assert plain(["각"]).to_list() == [[2, 6]]
    tokenizer = SentencePieceTokenizer(model, strip_accents=True)
    # NFKD parts a syllable, and a letter by itself is another letter after it.
    assert tokenizer(["각", "\u3131"]).to_list() == [[2, 3, 4, 5], [2, 3]]


@pytest.mark.parametrize("units", ["in circles", "random"])
def test_damaged_table_of_characters(units):
    if units == "random":
        table = np.random.default_rng(0).integers(1 << 32, size=512, dtype=np.uint32)
    else:
        table = np.zeros(512, np.uint32)
        base, label = 256, ord("a")
        table[0] = base << 10
        table[base ^ label] = label | label << 10  # its own child
    charsmap = struct.pack("<I", 4 * len(table)) + table.tobytes()
    with pytest.raises(ValueError, match="damaged"):
        SentencePieceTokenizer(make("ab", charsmap=charsmap), lowercase=True)
