"""Word vectors: every published form gives the same words and numbers; damage is named."""

import gzip

import numpy as np
import pytest

from keras_lm.converters import CheckpointError, read_word_vectors
from keras_lm.converters.word_vector_files import BLOCK_ROWS, find_word_vectors

WORDS = ["the", ",", "café", "日本", "#", "-1.5", "</s>"]
VECTORS = np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype("float32")


def lines(words=WORDS, vectors=VECTORS, end="\n"):
    rows = (f"{word} {' '.join(map(repr, row.tolist()))}{end}" for word, row in zip(words, vectors))
    return "".join(rows).encode()


def binary(words=WORDS, vectors=VECTORS, end=b"\n"):
    header = f"{len(words)} {vectors.shape[1]}\n".encode()
    rows = (word.encode() + b" " + row.tobytes() + end for word, row in zip(words, vectors))
    return header + b"".join(rows)


HEADER = f"{len(WORDS)} 5\n".encode()
FORMS = {
    "glove.5d.txt": lines(),
    "glove-windows.txt": lines(end="\r\n"),
    "word2vec.txt": HEADER + lines(end=" \n"),  # a space at the end, as the C program writes it
    "wiki.vec": HEADER + lines(),
    "word2vec.bin": binary(),
    "gensim.bin": binary(end=b""),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("zipped", [False, True])
def test_every_form(tmp_path, name, zipped):
    path = tmp_path / (f"{name}.gz" if zipped else name)
    path.write_bytes(gzip.compress(FORMS[name]) if zipped else FORMS[name])
    words, vectors = read_word_vectors(path)
    assert words == ["<unk>", "<pad>", *WORDS]
    assert vectors.dtype == np.float32 and not vectors[:2].any()
    np.testing.assert_array_equal(vectors[2:], VECTORS)
    assert find_word_vectors(tmp_path) == path
    words, vectors = read_word_vectors(path, limit=3)
    assert words == ["<unk>", "<pad>", *WORDS[:3]]
    np.testing.assert_array_equal(vectors[2:], VECTORS[:3])


def test_words_that_are_in_the_file_keep_their_vectors(tmp_path):
    words = ["the", "<pad>", ". . .", "at name@domain.com", "<unk>"]
    (tmp_path / "glove.txt").write_bytes(lines(words))
    actual, vectors = read_word_vectors(tmp_path / "glove.txt")
    assert actual == words
    np.testing.assert_array_equal(vectors, VECTORS[:5])


def test_repeated_words_keep_the_first_vector(tmp_path):
    (tmp_path / "glove.txt").write_bytes(lines(["a", "b", "a", "c", "b"]))
    with pytest.warns(UserWarning, match="2 words more than once, such as 'a'"):
        words, vectors = read_word_vectors(tmp_path / "glove.txt")
    assert words[2:] == ["a", "b", "c"]
    np.testing.assert_array_equal(vectors[2:], VECTORS[[0, 1, 3]])


def test_more_rows_than_a_block(tmp_path):
    words = [f"w{i}" for i in range(2 * BLOCK_ROWS + 3)]
    expected = np.arange(2 * len(words), dtype="float32").reshape(-1, 2)
    for name, data in (("a.bin", binary(words, expected)), ("glove.txt", lines(words, expected))):
        (tmp_path / name).write_bytes(data)
        actual, vectors = read_word_vectors(tmp_path / name)
        assert actual[2:] == words
        np.testing.assert_array_equal(vectors[2:], expected)
    late = lines(words, expected).replace(f"w{BLOCK_ROWS} ".encode(), b"w x", 1)
    (tmp_path / "glove.txt").write_bytes(late)
    with pytest.raises(CheckpointError, match=f"line {BLOCK_ROWS + 1}: what follows"):
        read_word_vectors(tmp_path / "glove.txt")


@pytest.mark.parametrize(
    "name, data, message",
    [
        ("glove.txt", b"a 1 2 3\nb 1 2\n", "line 2: 2 numbers, where the lines before it have 3"),
        ("glove.txt", b"a 1 2\nb 1 2 3\n", "line 2: 3 numbers, where the lines before it have 2"),
        ("x.vec", b"2 2\na 1 2\nb 1 x\n", "line 3: what follows the word are not numbers"),
        ("x.vec", b"2 2\na 1 nan\nb 1 3\n", "line 2: what follows the word are not numbers"),
        ("x.vec", b"3 2\na 1 2\nb 1 2\n", "promises 3 words, and there are 2"),
        ("x.vec", b"2 2\na 1 2\n\xe9 1 2\n", "line 3: the word b'.xe9' is not UTF-8"),
        ("x.bin", binary()[:-30], "the file ends in word 6 of 7"),
        ("x.bin", binary()[:-3], "the file ends in word 7 of 7"),
        ("glove.txt", b"a \x00\x01", "damaged, or holds no word vectors"),
        ("x.bin", (793712314).to_bytes(4, "little") + bytes(99), "take the `.vec` file"),
        ("x.vec", b"", "is empty"),
        ("x.vec.gz", gzip.compress(HEADER + lines(), mtime=0)[:-40], "damaged"),
        ("x.vec", b"9" * 5000 + b" 2\na 1 2\n", r"line 1 is neither .* WIDTH \(at most 65536\)"),
        ("x.vec", b"2 9999999999\na 1 2\n", "line 1 is neither"),
        ("x.bin", b"2 9999999999\na \0\1\2\3", "line 1 is neither"),
        ("x.bin", b"2 1\n" + b"a" * 10**5, "after word 0 .the next one has more than 65536 bytes"),
        ("glove.txt", b"a 1 2\n" + b"0 " * 2**20, "line 2: it is longer than 1048576 bytes"),
        (
            "x.vec.gz",
            gzip.compress(b"3 2\na 1 2\n" + bytes(2**25), 1, mtime=0),
            "line 3: it is longer than",
        ),
        (
            "x.bin.gz",
            gzip.compress(b"9000000 8\n" + (b"a " + bytes(32)) * 10**6, 6, mtime=0),
            "unfolds to more",
        ),
    ],
)
def test_damage_is_named(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        read_word_vectors(tmp_path / name)


def test_a_cut_archive(tmp_path):
    words = [f"w{i}" for i in range(999)]
    vectors = np.random.default_rng(0).normal(size=(999, 50)).astype("float32")
    (tmp_path / "x.vec.gz").write_bytes(gzip.compress(b"999 50\n" + lines(words, vectors))[:-9999])
    with pytest.raises(CheckpointError, match="cut off or damaged after word 9"):
        read_word_vectors(tmp_path / "x.vec.gz")


def test_what_is_no_word_vectors_is_left_alone(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\nthe\n")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    (tmp_path / "counts.txt").write_text("the 17\nof 12\n")
    (tmp_path / "weights.bin").write_bytes(b"PK\x03\x04" + bytes(99))
    assert find_word_vectors(tmp_path) is None
    for name in ("glove.50d.txt", "glove.100d.txt"):
        (tmp_path / name).write_bytes(lines())
    with pytest.raises(CheckpointError, match="several files of word vectors"):
        find_word_vectors(tmp_path)
