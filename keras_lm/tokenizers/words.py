"""Words: a list of words, one id each, for ULMFiT, CoVe and TagLM.

Shapes: B batch, S words of a text, W words, L bytes of a word, V entries.
"""

import glob
import io
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from keras_lm.converters.plain_pickle import PlainUnpickler
from keras_lm.converters.word_vector_files import NAMES as NAMES_OF_WORD_VECTORS
from keras_lm.converters.word_vector_files import find_word_vectors, open_word_vectors
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import lite_operations, splitting, strings
from keras_lm.tokenizers.splitting import split_words
from keras_lm.tokenizers.strings import as_tensor, regex_literal, valid_utf8
from keras_lm.tokenizers.tokenizer import Tokenizer, lookup_table
from keras_lm.tokenizers.vocabulary import check_file
from keras_lm.utils import input_files
from keras_lm.utils.argument_types import PathLike, Tensor

RULES = (None, "fastai")

# What word lists call their special tokens.
NAMES = {
    "unknown": ("xxunk", "_unk_", "<unk>", "<UNK>"),
    "pad": ("xxpad", "_pad_", "<pad>"),
    "bos": ("xxbos", "_bos_", "<s>", "<S>"),
    "eos": ("xxeos", "_eos_", "</s>", "</S>"),
}
MORE_NAMES = ("xxfld", "xxrep", "xxwrep", "xxup", "xxmaj")
FILES = ("words.json", "itos*.pkl")
TARGET_WORDS = "target_words.json"

# A noncharacter of Unicode, which is dropped from text. Followed by an id, it makes a word that
# stands for a special token and that nobody can type.
SENTINEL = "\ufdd0"

LONGEST = 64  # bytes of a word in LiteRT; a longer one is unknown
FACTOR_BITS = 48  # 64 products with 9 more bits stay below 2 ** 63


class WordTokenizer(Tokenizer):
    """Words and their ids, in the graph: split text, look the words up.

    The noncharacter U+FDD0 vanishes from text: inside, it stands for special tokens.

    Args:
        vocabulary: list of str, or the path of a file: `.json` with a list, fastai's `.pkl` with a
            list, GloVe's `glove*.txt` or fastText's `.vec` (see
            `keras_lm.converters.read_word_vectors`), or text with one word per line.
        unknown_token: str, the entry for all words that are not in the list.
        pad_token, bos_token, eos_token: str, or None if the vocabulary has none.
        additional_special_tokens: list of str, entries that plain text is never tokenized to.
        lowercase: bool. Lower-case text first.
        rules: None, or `"fastai"` for fastai's (`xxmaj` and the like), as in the vocabularies of
            ULMFiT.
        splitter: see `CharacterTokenizer`. fastai, CoVe and TagLM used spaCy, Moses and the Penn
            Treebank's rules; to use these, pass their words joined by spaces, and `"whitespace"`.
        target_vocabulary: like `vocabulary`, for translations: `target` is then a tokenizer with
            these words, otherwise like this one. None if there is one list for both.

    Raises:
        FileNotFoundError: if a vocabulary file does not exist.
        ValueError: as `Tokenizer`, or if a file is damaged or an argument has another value.

    Example:

        tokenizer = WordTokenizer(["<unk>", "hello", "world", "!"], unknown_token="<unk>")
        ids = tokenizer(["hello brave world!"])              # [[1, 0, 2, 3]]
        ids = tokenizer.tokenize_words([["hello", "!"]])     # [[1, 3]]

    Reference: Howard and Ruder 2018, "Universal Language Model Fine-tuning for Text
    Classification", arXiv:1801.06146; the rules are those of fastai 2.7.
    """

    ROLES = tuple(NAMES)

    def __init__(
        self,
        vocabulary: Sequence[str] | PathLike,
        unknown_token: str,
        pad_token: str | None = None,
        bos_token: str | None = None,
        eos_token: str | None = None,
        additional_special_tokens: Sequence[str] = (),
        lowercase: bool = False,
        rules: str | None = None,
        splitter: str = "punctuation",
        target_vocabulary: Any = None,
        name: str | None = None,
    ):
        if isinstance(vocabulary, (str, os.PathLike)):
            vocabulary = _read(vocabulary)
        if unknown_token is None:
            raise ValueError("`unknown_token` is None, but a word list needs one; name its entry.")
        if rules not in RULES:
            raise ValueError(f"`rules` is {rules!r}; it must be one of {RULES}.")
        splitting.check_splitter(splitter)
        roles = dict(zip(self.ROLES, (unknown_token, pad_token, bos_token, eos_token)))
        super().__init__(vocabulary, roles, additional_special_tokens, name=name)
        self.lowercase, self.rules, self.splitter = bool(lowercase), rules, splitter
        self._finder = None  # made when a `.tflite` needs it
        special = set(self._vocabulary.all_special_tokens)
        if rules == "fastai":
            missing = {*MARKERS} - {*special, "xxunk"}
            if missing:
                raise ValueError(
                    f"`rules` is 'fastai', which needs {sorted(missing)} among "
                    "`additional_special_tokens`; add them there, and to the vocabulary."
                )
        words = [
            _sentinel(i) if token in special else token
            for i, token in enumerate(self._vocabulary.tokens)
        ]
        with tf.init_scope():
            ids = {word: i for i, word in enumerate(words)}
            self._table = lookup_table(ids, self.special_id("unknown"))
        if target_vocabulary is not None:
            self._target = type(self)(target_vocabulary, **self.get_config())

    def tokenize_words(self, words: Tensor) -> Tensor:
        """Turn words, strings of any shape, into ids, without splitting and without rules."""
        words = as_tensor(words, tf.string)
        if words.dtype != tf.string:
            raise ValueError(f"`words` must hold strings; it is a tensor of {words.dtype.name}.")
        if isinstance(words, tf.RaggedTensor):
            return words.with_flat_values(self.tokenize_words(words.flat_values))
        shape = tf.shape(words)
        words = self._clean(tf.reshape(words, [-1]))
        words = strings.lower(words) if self.lowercase else words
        return tf.reshape(self._table.lookup(words), shape)

    @property
    def tokenize_lite(self) -> Any:
        """A function like a call, with operations that LiteRT has; none with fastai's rules.

        It takes (B,) strings and optionally another `splitter`, and returns ragged (B, S) ids.
        `lowercase` only knows the letters of ASCII, and words of more than 64 bytes are unknown.
        """
        if self.rules is not None:
            raise AttributeError(
                "its rules='fastai' need operations that LiteRT does not have: StaticRegexReplace "
                "and StringLower"
            )
        find = self._find_lite()
        return lambda text, splitter=None: find.tokenize(text, splitter or self.splitter)

    def find_lite(self, letters: Tensor) -> Tensor:
        """Return the ids of words, with operations that LiteRT has.

        `letters` (…, L) int32 are the bytes of words plus 1, and 0 after the last. `lowercase` only
        knows the letters of ASCII, and words of more than 64 bytes are unknown.
        """
        return self._find_lite().find(letters)

    def _find_lite(self):
        if self._finder is None:
            special = set(self._vocabulary.all_special_tokens)
            words = {t.encode(): i for t, i in self._vocabulary.ids.items() if t not in special}
            self._finder = WordFinder(words, self.special_id("unknown"), self.lowercase)
        return self._finder

    def _clean(self, text):
        return tf.strings.regex_replace(valid_utf8(text), SENTINEL, "")

    def _tokenize(self, text, special):
        text = self._clean(text)
        for token in sorted(special, key=len, reverse=True):
            name = f" {_sentinel(self.token_to_id(token))} "
            text = tf.strings.regex_replace(text, regex_literal(token), name)
        if self.rules == "fastai":
            unknown = self.special_tokens["unknown"]
            names = {marker: marker for marker in MARKERS} | {"xxunk": unknown}
            markers = {m: _sentinel(self.token_to_id(token)) for m, token in names.items()}
            text = apply_rules(text, markers)
        elif self.lowercase:
            text = strings.lower(text)
        words = splitting.split_words(text, self.splitter)  # ragged (B, S)
        return words.with_values(self._table.lookup(words.values))

    def _join(self, entries):
        return strings.join(entries, " ")

    def _spellings_alone(self):
        spellings = [f" {word}".encode() for word in self.vocabulary]
        return spellings, lite_operations.without_first_space

    def get_config(self) -> dict[str, Any]:
        names = ("lowercase", "rules", "splitter")
        return super().get_config() | {name: getattr(self, name) for name in names}

    def save_assets(self, folder: PathLike) -> None:
        # Not one word per line: fastai's lists have a line end as a word.
        lists = {"words.json": self.vocabulary}
        if self.target is not self:
            lists[TARGET_WORDS] = self.target.vocabulary
        for name, words in lists.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump(words, file, ensure_ascii=False, indent=0)

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        target = os.path.join(folder, TARGET_WORDS)
        config = {"target_vocabulary": target if os.path.isfile(target) else None} | config
        return cls(os.path.join(folder, "words.json"), **config)

    @classmethod
    def from_files(cls, folder: PathLike, **overrides: Any) -> Self:
        """Return the tokenizer that a published word list describes.

        Reads `words.json`, fastai's `itos*.pkl` (no code in it can run) or a file of word vectors,
        see `keras_lm.converters.read_word_vectors`; a folder with several is an error. Special
        tokens are found by their usual names; fastai's `xxmaj` and the like turn its rules on. Word
        vectors have none: here `<unk>` and `<pad>` come first, with the ids 0 and 1, and the n-th
        word, counted from 0, has the id n + 2.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if there are several, or one is damaged or has no unknown token.
        """
        folder = os.fspath(folder)
        paths = [p for name in FILES for p in glob.glob(os.path.join(glob.escape(folder), name))]
        vectors = find_word_vectors(pathlib.Path(folder))
        paths += [str(vectors)] if vectors else []
        if not paths:
            raise FileNotFoundError(
                f"`folder` {os.fspath(folder)!r} holds none of {', '.join(FILES)}, and no word "
                "vectors; copy the word list there."
            )
        if len(paths) > 1:
            names = sorted(os.path.basename(path) for path in paths)
            raise ValueError(f"{os.fspath(folder)!r} holds several word lists, {names}: keep one.")
        words = open_word_vectors(vectors).words() if vectors else _read(paths[0])
        known = set(words)
        settings = {
            f"{role}_token": next((name for name in names if name in known), None)
            for role, names in NAMES.items()
        }
        if settings["unknown_token"] is None and "unknown_token" not in overrides:
            raise ValueError(
                f"{paths[0]!r} has no unknown token, none of {NAMES['unknown']}; pass the entry "
                "that plays this role: `unknown_token=...`."
            )
        more = [name for name in MORE_NAMES if name in known]
        is_fastai = known.issuperset(MARKERS)
        settings |= {"additional_special_tokens": more, "rules": "fastai" if is_fastai else None}
        return cls(words, **{**settings, **overrides})


def _sentinel(id):
    return f"{SENTINEL}{id}"


def _read(path):
    path = os.fspath(path)
    check_file("vocabulary", path, "give the path of a word list, or a list of words.")
    if NAMES_OF_WORD_VECTORS.search(os.path.basename(path)):
        return open_word_vectors(path).words()
    try:
        words = _read_list(path)
    except Exception as e:  # a damaged pickle can raise nearly anything
        raise ValueError(
            f"`vocabulary` file {path!r} is damaged, or of another kind than its name says ({e}); "
            "copy or download it again."
        ) from None
    if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
        raise ValueError(f"`vocabulary` file {path!r} must hold a list of strings, nothing else.")
    # fastai repeats this word at the end to make the size a multiple of eight.
    fill = [i for i, word in enumerate(words) if word == "xxfake"]
    for number, i in enumerate(fill[1:], start=2):
        words[i] = f"xxfake{number}"
    return words


def _read_list(path):
    with open(path, "rb") as file:
        data = input_files.whole(file, f"`vocabulary` file {path!r}")
    if path.endswith(".json"):
        return json.loads(data)
    if path.endswith(".pkl"):
        return PlainUnpickler(io.BytesIO(data)).load()
    lines = data.decode("utf-8-sig").removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


# === LiteRT, which has no hash tables ===


class WordFinder:
    """A dict from words, as bytes, to ids, with operations that LiteRT has.

    A word is the sum of its bytes, each times a number that depends on its place. These sums are
    sorted, and a word's is found by bisection. They are so wide that no two words of a list share
    one. `lowercase` only knows the letters of ASCII.
    """

    def __init__(self, words, unknown_id, lowercase):
        words = {word: id for word, id in words.items() if 0 < len(word) <= LONGEST}
        self.lowercase = lowercase
        seed = 0
        while True:  # nearly always once: with two million words, 99 times of 100
            factors = np.random.default_rng(seed).integers(1, 2**FACTOR_BITS, LONGEST)
            sums = _sums(list(words), factors)
            if len(np.unique(sums)) == len(sums):
                break
            seed += 1
        order = np.argsort(sums)
        ids = np.fromiter(words.values(), "int32", len(words))[order]
        self.steps = max(len(words), 1).bit_length()
        with tf.init_scope():
            self.factors = tf.constant(factors)
            # The last one is larger than all others, for words that are not there.
            self.sums = tf.constant(np.append(sums[order], np.iinfo("int64").max))
            self.ids = tf.constant(np.append(ids, unknown_id).astype("int32"))
        self.unknown_id = unknown_id

    def tokenize(self, text, splitter):
        """Return the ids of the words of (B,) texts, ragged (B, S) int32."""
        data, text_splits = lite_operations.valid_bytes(text)
        starts, ends, row_splits = splitting.split_bytes(data, text_splits, splitter)
        place = tf.range(LONGEST)[tf.newaxis, :]
        is_byte = place < (ends - starts)[:, tf.newaxis]  # (W, L)
        letters = tf.gather(data, tf.where(is_byte, starts[:, tf.newaxis] + place, 0))
        sums = self._sums(tf.where(is_byte, letters + 1, 0))
        sums = tf.where(ends - starts > LONGEST, tf.constant(-1, tf.int64), sums)
        ids = self._find(sums)[:-1]  # without the empty word of split_bytes
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def find(self, letters):
        """Return the ids of words of (…, L) bytes plus 1, with 0 after the last."""
        is_long = tf.reduce_any(letters[..., LONGEST:] > 0, axis=-1)
        sums = self._sums(letters[..., :LONGEST])
        return self._find(tf.where(is_long, tf.constant(-1, tf.int64), sums))

    def _sums(self, letters):
        if self.lowercase:
            is_upper = (letters > ord("A")) & (letters <= ord("Z") + 1)
            letters = tf.where(is_upper, letters + 32, letters)
        return tf.reduce_sum(
            tf.cast(letters, tf.int64) * self.factors[: letters.shape[-1]], axis=-1
        )

    def _find(self, sums):
        low = tf.zeros_like(sums, tf.int32)
        high = tf.fill(tf.shape(sums), self.sums.shape[0] - 1)
        for _ in range(self.steps):
            middle = (low + high) // 2
            is_before = tf.gather(self.sums, middle) < sums
            low, high = tf.where(is_before, middle + 1, low), tf.where(is_before, high, middle)
        return tf.where(
            tf.equal(tf.gather(self.sums, low), sums), tf.gather(self.ids, low), self.unknown_id
        )


def _sums(words, factors):
    """Return the sums of words, (V,), in blocks: a table of all bytes would be large."""
    sums = np.zeros(len(words), "int64")
    for start in range(0, len(words), 2**16):
        block = words[start : start + 2**16]
        table = np.zeros((len(block), LONGEST), "int64")
        for row, word in enumerate(block):
            table[row, : len(word)] = np.frombuffer(word, "uint8").astype("int64") + 1
        sums[start : start + len(block)] = (table * factors).sum(axis=1)
    return sums


# === fastai's rules for ULMFiT's vocabularies, as graph operations ===

# They are those of fastai 2.7, `fastai/text/core.py`, and run in this order:
#
# - HTML: `<br />` becomes a line end, `#39;`, `quot;` and the like what they stand for;
# - a character three times or more becomes `xxrep 3 c`, then a word `xxwrep 3 word`;
# - spaces around `/`, `#` and the backslash;
# - WORD becomes `xxup word`, Word `xxmaj word`, then everything is lower-cased.
#
# Two things differ: of HTML's other entities, only `lt`, `gt` and `apos` are known, and of two
# consecutive runs of words both are replaced. The packer adds `xxbos`.

MARKERS = ("xxunk", "xxrep", "xxwrep", "xxup", "xxmaj")
W = r"[\p{L}\p{N}_]"

# In this order, like fastai: `&amp;` becomes two ampersands there, too.
HTML = [
    ("#39;", "'"), ("amp;", "&"), ("#146;", "'"), ("nbsp;", " "), ("#36;", "$"), (r"\\n", "\n"),
    ("quot;", "'"), ("<br />", "\n"), (r'\\"', '"'), ("<unk>", " xxunk "), (r" @\.@ ", "."),
    (" @-@ ", "-"), (r"\.\.\.", " …"), ("&lt;", "<"), ("&gt;", ">"), ("&apos;", "'"),
]  # fmt: skip

# Rows that may have a character three times: one of ASCII, or any three others in a row.
TRIPLES = "|".join(
    [rf"\x{{{code:X}}}{{3}}" for code in range(0x21, 0x7F)] + [r"[^\x{0}-\x{7F}]{3}"]
)


def apply_rules(text, markers):
    """Apply the rules to (B,) strings of valid UTF-8; `markers` maps `MARKERS` to their words."""
    for before, after in HTML:
        text = tf.strings.regex_replace(text, before, after.replace("xxunk", markers["xxunk"]))
    rows = tf.where(tf.strings.regex_full_match(text, rf"(?s).*(?:{TRIPLES}).*"))
    replaced = _replace_characters(tf.gather_nd(text, rows), markers["xxrep"])
    text = tf.tensor_scatter_nd_update(text, rows, replaced)
    text = _replace_words(text, markers["xxwrep"])
    text = tf.strings.regex_replace(text, r"[/#\\]", r" \0 ")
    return _replace_capitals(text, markers)


def _replace_characters(text, marker):
    characters = tf.strings.unicode_split(text, "UTF-8")
    is_space = tf.strings.regex_full_match(characters.values, r"[\s\x{B}\x{85}\p{Z}]")
    is_same = _equals_previous(characters) & ~is_space
    count, is_first, _ = _runs(is_same)
    run = tf.strings.join(
        [" ", marker, " ", tf.strings.as_string(count), " ", characters.values, " "]
    )
    run = tf.where(is_first, run, "")
    characters = characters.with_values(tf.where(count < 3, characters.values, run))
    return strings.join(characters)


def _replace_words(text, marker):
    words = split_words(text, "whitespace")
    letters = tf.strings.regex_replace(words.values, rf"(?s)^({W}*).*", r"\1")
    # The last of several equal words may have something after it: "no no no!"
    is_whole = _previous(words.values == letters, False)
    is_same = _equals_previous(words.with_values(letters)) & is_whole & (letters != "")
    count, is_first, is_last = _runs(is_same)
    run = tf.strings.join([marker, " ", tf.strings.as_string(count), " ", letters])
    rest = tf.strings.regex_replace(words.values, f"^{W}*", "")
    run = tf.where(is_first, run, tf.where(is_last, rest, ""))
    words = words.with_values(tf.where(count < 3, words.values, run))
    return strings.join(words, " ")


def _replace_capitals(text, markers):
    words = split_words(text, "whitespace")
    is_up = tf.strings.regex_full_match(words.values, r"[A-Z][^a-z]+")
    is_maj = tf.strings.regex_full_match(words.values, r"[A-Z][^A-Z]+") & ~is_up
    marks = tf.where(is_up, f"{markers['xxup']} ", tf.where(is_maj, f"{markers['xxmaj']} ", ""))
    words = words.with_values(tf.strings.join([marks, words.values]))
    text = strings.join(words, " ")
    return strings.lower(text)


def _previous(values, first):
    return tf.concat([[first], values], axis=0)[:-1]


def _equals_previous(texts):
    """Return whether each value equals the one before it in the same row."""
    rows = strings.row_ids(texts)
    return (texts.values == _previous(texts.values, "")) & (
        rows == _previous(rows, tf.constant(-1, rows.dtype))
    )


def _runs(is_same):
    """Return the length of each value's run of equals, and whether it is its first, or last."""
    run = tf.cumsum(tf.cast(~is_same, tf.int32)) - 1
    counts = tf.math.unsorted_segment_sum(tf.ones_like(run), run, tf.size(run))
    is_last = tf.concat([~is_same, [True]], axis=0)[1:]
    return tf.gather(counts, run), ~is_same, is_last
