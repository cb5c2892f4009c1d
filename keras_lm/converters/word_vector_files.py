"""Word vectors as word2vec, GloVe and fastText publish them, gzipped or not.

- word2vec's and fastText's text form: a line `NUMBER_OF_WORDS WIDTH`, then a word and its numbers a
  line; GloVe's is the same without the first line;
- word2vec's binary form: the same first line, then each word, a space, and its numbers as float32.

A file is read block by block, so that memory holds little more than its vectors.

Shapes: V words, E width of a vector.
"""

import dataclasses
import functools
import gzip
import io
import itertools
import pathlib
import re
import warnings
import zlib
from typing import Any

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, require_file
from keras_lm.utils.files import as_local

# Entries without vectors in a file: they come first, with zeros.
SPECIAL_TOKENS = ("<unk>", "<pad>")
ENDINGS = re.compile(r"\.(txt|vec|bin|w2v)(\.gz)?$")
NAMES = re.compile(r"^glove.*\.txt(\.gz)?$|\.vec(\.gz)?$")  # nothing else is called that
HEADER = re.compile(rb"(\d+) (\d+)[ \r]*\n")
GZIP_START = b"\x1f\x8b"
FASTTEXT_START = (793712314).to_bytes(4, "little")
BLOCK_ROWS = 4096
LONGEST_LINE = 2**20
LONGEST_WORD = 2**16  # in the binary form, as all that follow are bytes
LARGEST_WIDTH = 2**16
LARGEST_RATIO = 100  # of text and its gzip; numbers have no more than 10


def read_word_vectors(path: str | pathlib.Path, limit: int | None = None) -> tuple[Any, Any]:
    """Read words and their vectors: return a list of V str, and an array (V, E) float32.

    `<unk>` and `<pad>` come first, with vectors of zeros, unless the file itself has them. Of a
    word that occurs twice the first vector is kept, with a warning.

    Args:
        path: a file of word2vec (text or binary), GloVe or fastText (`.vec`), gzipped or not.
        limit: how many words to read, or None for all. Files begin with the most frequent ones.

    Raises:
        CheckpointError: the file is of another kind, cut off or damaged; the message says where.

    Example:
        words, vectors = read_word_vectors("glove.6B.100d.txt", limit=50_000)
    """
    file = open_word_vectors(path)
    words = file.words(limit)
    return words, file.vectors(words, limit)


def find_word_vectors(folder: pathlib.Path) -> pathlib.Path | None:
    """Return the only file of word vectors in a folder, or None if there is none."""
    candidates = [path for path in sorted(folder.iterdir()) if ENDINGS.search(path.name)]
    # One number after a word is more often its count than its vector.
    paths = [
        path
        for path in candidates
        if path.is_file() and (NAMES.search(path.name) or (_recognise(path) or (0,))[0] > 1)
    ]
    if len(paths) > 1:
        raise CheckpointError(
            f"{folder} holds several files of word vectors, {[path.name for path in paths]}: put "
            "the one that you want into a folder of its own."
        )
    return paths[0] if paths else None


def open_word_vectors(path: str | pathlib.Path) -> "WordVectors":
    """Open a file, and read only its first lines."""
    path = require_file(as_local(path))
    layout = _recognise(path)
    if layout is None:
        with path.open("rb") as file:
            is_fasttext = file.read(4) == FASTTEXT_START
        raise CheckpointError(
            f"{path} is damaged, or holds no word vectors: line 1 is neither NUMBER_OF_WORDS WIDTH "
            f"(at most {LARGEST_WIDTH}) nor a word and its numbers, in UTF-8."
            + (" It is a whole fastText model: take the `.vec` file beside it." * is_fasttext)
        )
    return WordVectors(path, *layout)


@dataclasses.dataclass(frozen=True)
class WordVectors:
    """An opened file of word vectors; `num_rows` is the number in its first line, if it has one."""

    path: pathlib.Path
    embedding_dim: int
    num_rows: int | None
    is_binary: bool

    def words(self, limit: int | None = None) -> list[str]:
        """Return the words in the order of their vectors, `<unk>` and `<pad>` among them."""
        first, repeated, count = {}, None, 0
        for number, (word, _) in enumerate(self._rows(limit), start=1):
            if first.setdefault(word, number) != number:
                repeated = word if repeated is None else repeated
                count += 1
        if count:
            warnings.warn(
                f"{self.path} has {count} words more than once, such as {repeated!r}: "
                "the first vector of each is kept.",
                stacklevel=3,
            )
        return [token for token in SPECIAL_TOKENS if token not in first] + list(first)

    def vectors(self, words: list[str], limit: int | None = None) -> np.ndarray:
        """Return the vectors (V, E) of what `words` returned with the same limit."""
        places = {word: row for row, word in enumerate(words)}
        vectors = np.zeros((len(words), self.embedding_dim), "float32")
        rows = self._rows(limit)
        number = 1
        while block := list(itertools.islice(rows, BLOCK_ROWS)):
            numbers = self._parse([numbers for _, numbers in block], number)
            number += len(block)
            # A place is taken once, by the first vector of its word.
            rows_and_places = [(i, places.pop(w)) for i, (w, _) in enumerate(block) if w in places]
            sources, taken = zip(*rows_and_places, strict=True) if rows_and_places else ((), ())
            vectors[list(taken)] = numbers[list(sources)]
        return vectors

    def _rows(self, limit):
        """Yield (word, its numbers as bytes), at most `limit` of them."""
        rows = self._binary_rows() if self.is_binary else self._text_rows()
        count = 0
        try:
            for row in itertools.islice(rows, limit):
                yield row
                count += 1
        except (EOFError, OSError, zlib.error) as error:
            raise CheckpointError(
                f"{self.path} is cut off or damaged after word {count} ({error}): copy or "
                "download it again."
            ) from error
        expected = self.num_rows if limit is None else min(limit, self.num_rows or limit)
        if self.num_rows is not None and count != expected:
            raise CheckpointError(
                f"{self.path} is damaged: line 1 promises {self.num_rows} words, and there are "
                f"{count}. Copy or download it again."
            )

    def _text_rows(self):
        size = self.embedding_dim
        with _open(self.path) as file:
            first = 1
            if self.num_rows is not None:
                file.readline()
                first = 2
            lines = iter(functools.partial(file.readline, LONGEST_LINE), b"")
            for number, line in enumerate(lines, start=first):
                if len(line) == LONGEST_LINE:
                    raise CheckpointError(
                        f"{self.path}, line {number}: it is longer than {LONGEST_LINE} bytes. The "
                        "file is damaged: copy or download it again."
                    )
                line = line.rstrip(b" \r\n")
                if not line:
                    continue
                if line.count(b" ") == size:
                    word, _, numbers = line.partition(b" ")
                else:  # a few of GloVe's words hold spaces
                    word, numbers = _split_long(line, size)
                    if word is None:
                        raise CheckpointError(
                            f"{self.path}, line {number}: {numbers} numbers, where the lines "
                            f"before it have {size}. The file is damaged: copy or download it "
                            "again."
                        )
                try:
                    yield word.decode("utf-8"), numbers
                except UnicodeDecodeError:
                    raise CheckpointError(
                        f"{self.path}, line {number}: the word {word!r} is not UTF-8. The file is "
                        "damaged, or of another encoding: convert it to UTF-8."
                    ) from None

    def _binary_rows(self):
        size = 4 * self.embedding_dim
        with _open(self.path) as file:
            file.readline()
            for number in range(self.num_rows):
                word = bytearray()
                while (letter := file.read(1)) != b" ":
                    if not letter:
                        raise EOFError(f"the file ends in word {number + 1} of {self.num_rows}")
                    word += letter
                    if len(word) > LONGEST_WORD:
                        raise EOFError(f"the next one has more than {LONGEST_WORD} bytes")
                numbers = file.read(size)
                if len(numbers) < size:
                    raise EOFError(f"the file ends in word {number + 1} of {self.num_rows}")
                # The tool ends a line after each vector, and cuts long words anywhere.
                yield bytes(word).removeprefix(b"\n").decode("utf-8", "replace"), numbers

    def _parse(self, rows, first):
        """Return the numbers of rows (R, E), the first of which is row `first` of the file."""
        if self.is_binary:
            numbers = np.frombuffer(b"".join(rows), "<f4").reshape(len(rows), -1)
        else:
            try:
                text = io.BytesIO(b"\n".join(rows))
                numbers = np.loadtxt(text, "float32", comments=None, delimiter=" ", ndmin=2)
            except ValueError:
                numbers = np.array([_numbers(row, self.embedding_dim) for row in rows], "float32")
        for row in np.flatnonzero(~np.isfinite(numbers).all(axis=1))[:1]:
            place = first + row + (self.num_rows is not None)
            raise CheckpointError(
                f"{self.path}, {'word' if self.is_binary else 'line'} {place - self.is_binary}: "
                "what follows the word are not numbers. The file is damaged: copy or "
                "download it again."
            )
        return numbers


def _numbers(row, size):
    try:
        return [float(number) for number in row.split(b" ")]
    except ValueError:
        return [np.nan] * size


def _split_long(line, size):
    """Split a line whose word contains spaces; `(None, number of numbers)` if it does not."""
    word, *numbers = line.rsplit(b" ", size)
    extra = word.rpartition(b" ")[2]
    if len(numbers) < size or not word or _is_number(extra):
        return None, sum(map(_is_number, line.split(b" ")[1:]))
    return word, b" ".join(numbers)


def _is_number(text):
    try:
        return float(text) is not None
    except ValueError:
        return False


def _open(path):
    with path.open("rb") as file:
        is_gzip = file.read(2) == GZIP_START
    return io.BufferedReader(_BoundedGzip(path)) if is_gzip else path.open("rb")


class _BoundedGzip(gzip.GzipFile):
    """A gzip that raises an OSError if a few bytes unfold without end."""

    def __init__(self, path):
        super().__init__(path, "rb")
        self.limit = 2**24 + LARGEST_RATIO * path.stat().st_size

    def readinto(self, buffer):
        count = super().readinto(buffer)
        if self.tell() > self.limit:
            raise OSError(f"it unfolds to more than {LARGEST_RATIO} times its size")
        return count


def _recognise(path):
    """Return `(width, number of words or None, whether binary)`, or None for another kind."""
    try:
        with _open(path) as file:
            line = file.readline(LONGEST_LINE)
            header = HEADER.fullmatch(line)
            if header:
                if max(map(len, header.groups())) >= 20:
                    return None
                rows, size = map(int, header.groups())
                if not 0 < size <= LARGEST_WIDTH:
                    return None
                # Of a binary form this is what comes before the first byte of value 10.
                line = file.readline(LONGEST_LINE)
                has_number = any(map(_is_number, line.split(b" ")[1:]))
                return size, rows, not (has_number and _is_text(line))
    except (EOFError, OSError, zlib.error):
        return None
    size = len(line.rstrip(b" \r\n").split(b" ")) - 1
    return (size, None, False) if size and _is_row(line, size) else None


def _is_row(line, size):
    numbers = line.rstrip(b" \r\n").rsplit(b" ", size)[1:]
    return len(numbers) == size and all(map(_is_number, numbers)) and _is_text(line)


def _is_text(line):
    try:
        return "\0" not in line.decode("utf-8")
    except UnicodeDecodeError:
        return False
