"""Characters: the tokenizer of ELMo, which reads the bytes of each word."""

import glob
import json
import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import lite_operations, splitting, strings
from keras_lm.tokenizers.strings import as_tensor
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import PathLike, Tensor

# AllenNLP's ids. The bytes 0..255 have the ids 1..256.
PAD = 0  # all characters of padding
BEGIN_SENTENCE, END_SENTENCE = 257, 258  # each is a word
BEGIN_WORD, END_WORD, FILL = 259, 260, 261
LONGEST_WORD = 1000  # characters; the published models have 50
BYTES = [chr(b) if 33 <= b < 127 else f"<0x{b:02X}>" for b in range(256)]
VOCABULARY = ["<pad>", *BYTES, "<S>", "</S>", "<W>", "</W>", "<fill>"]
SENTENCE_TOKENS = {"<S>": BEGIN_SENTENCE, "</S>": END_SENTENCE}


class CharacterTokenizer(Tokenizer):
    """ELMo's tokenizer, in the graph: words, and the UTF-8 bytes of each word.

    A word is a row of `characters_per_word` ids, AllenNLP's: 259 (the word begins), each byte plus
    1, 260 (the word ends), and 261 up to the end of the row. Words are truncated to
    `characters_per_word` - 2 bytes. Text stays as it is: any bytes, no lower-casing. The model adds
    sentence boundaries.

    A call returns one dimension more than other tokenizers: for a batch, a ragged (B, S, C) tensor
    with uniform C, so that `ids.to_tensor()` is the `character_ids` of an ELMo model, with 0 in
    padding.

    Published ELMo models read text split as in the One Billion Word Benchmark: `do n't`, `'s`. The
    splitters here are simpler; pass words from a better one to `tokenize_words(words)`.

    Args:
        characters_per_word: int, C, at least 3.
        splitter: `"punctuation"` splits text at white space and makes each punctuation mark a word;
            `"whitespace"` only splits at white space, for text that is already split.

    Raises:
        ValueError: if an argument is out of range.

    Example:

        tokenizer = CharacterTokenizer()
        ids = tokenizer(["Hello, world"])                 # (1, 3, 50)
        ids = tokenizer.tokenize_words([["do", "n't"]])   # (1, 2, 50)
        tokenizer.detokenize(ids)                         # [[b"do", b"n't"]]

    Reference: Peters et al. 2018, "Deep contextualized word representations", arXiv:1802.05365.
    """

    def __init__(
        self, characters_per_word: int = 50, splitter: str = "punctuation", name: str | None = None
    ):
        if type(characters_per_word) is not int or not 3 <= characters_per_word <= LONGEST_WORD:
            raise ValueError(
                f"`characters_per_word` is {characters_per_word!r}; it must be an integer from 3 "
                f"(the begin and the end of a word take two) to {LONGEST_WORD}."
            )
        splitting.check_splitter(splitter)
        roles = {"pad": "<pad>", "bos": "<S>", "eos": "</S>"}
        super().__init__(VOCABULARY, roles, ["<W>", "</W>", "<fill>"], name=name)
        self.characters_per_word = characters_per_word
        self.splitter = splitter
        with tf.init_scope():
            self._frames = tf.constant(_frames(characters_per_word))  # (C - 1, C)
            self._bytes = tf.constant([bytes([b]) for b in range(256)])

    def split(self, text: Tensor) -> Tensor:
        """Return the words of (B,) texts as a ragged (B, S) tensor of strings."""
        return splitting.split_words(as_tensor(text, tf.string), self.splitter)

    def tokenize_words(self, words: Tensor, parse_special: bool | Sequence[str] = False) -> Tensor:
        """Turn words, (…) strings, into (…, C) int32 ids, without splitting them.

        White space and punctuation in words are ordinary characters. `parse_special=True` makes the
        words `<S>` and `</S>` sentence boundaries, a list only those in it.
        """
        words = as_tensor(words, tf.string)
        if words.dtype != tf.string:
            raise ValueError(f"`words` must hold strings; it is a tensor of {words.dtype.name}.")
        if isinstance(words, tf.RaggedTensor):
            return words.with_flat_values(self.tokenize_words(words.flat_values, parse_special))
        ids = self._spell(tf.reshape(words, [-1]))
        for token in self._sentence_tokens(parse_special):
            is_token = tf.reshape(words, [-1, 1]) == token
            ids = tf.where(is_token, self._boundary(SENTENCE_TOKENS[token]), ids)
        return tf.reshape(ids, tf.concat([tf.shape(words), [self.characters_per_word]], axis=0))

    def _tokenize(self, text, special):
        words = splitting.split_words(text, self.splitter, self._sentence_tokens(special))
        return self.tokenize_words(words, special)

    def _sentence_tokens(self, parse_special):
        return [t for t in self._special_in_text(parse_special) if t in SENTENCE_TOKENS]

    def _boundary(self, character):
        rest = [FILL] * (self.characters_per_word - 3)
        return tf.constant([[BEGIN_WORD, character, END_WORD, *rest]])

    def _spell(self, words):
        """Return the (W, C) ids of (W,) words."""
        longest = self.characters_per_word - 2
        lengths = tf.minimum(tf.strings.length(words), longest)
        # Bytes for as long as possible: most of the time goes into memory.
        data = tf.io.decode_raw(words, tf.uint8, fixed_length=longest)  # (W, C - 2)
        data = tf.pad(data, [[0, 0], [1, 1]])
        return tf.cast(data, tf.int32) + tf.gather(self._frames, lengths)

    def _sides(self, tokens):
        raise ValueError(
            "CharacterTokenizer does not find special tokens in text in LiteRT: export as a "
            "SavedModel instead."
        )

    def tokenize_lite(self, text: Tensor, splitter: str | None = None) -> Any:
        """Return ragged (B, S, C) ids of (B,) texts like a call, with operations of LiteRT.

        With a `splitter`, they are those of the words of `splitting.words_and_places`, in which
        U+FFFD stands for invalid UTF-8.
        """
        texts = lite_operations.bytes_with_tail if splitter is None else lite_operations.valid_bytes
        data, text_splits = texts(text)
        starts, ends, row_splits = splitting.split_bytes(
            data, text_splits, splitter or self.splitter
        )
        lengths = tf.minimum(ends - starts, self.characters_per_word - 2)
        frames = tf.gather(self._frames, lengths)  # (W, C)
        place = tf.range(self.characters_per_word)[tf.newaxis, :] - 1
        is_byte = (place >= 0) & (place < lengths[:, tf.newaxis])
        place = tf.where(is_byte, starts[:, tf.newaxis] + place, 0)
        ids = tf.where(is_byte, tf.gather(data, place) + 1, frames)[:-1]
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def detokenize(self, ids: Tensor | Sequence[Any]) -> Tensor:
        """Turn (S, C) or (B, S, C) ids into (S,) or ragged (B, S) words, without `<S>`, `</S>`."""
        ids = as_tensor(ids, tf.int32)
        if ids.shape.rank not in (2, 3):
            raise ValueError(f"`ids` has the shape {ids.shape}; it must be (S, C) or (B, S, C).")
        if ids.shape.rank == 2:
            return self.detokenize(ids[tf.newaxis]).values
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.RaggedTensor.from_tensor(ids)
        if isinstance(ids.values, tf.RaggedTensor):
            ids = ids.with_values(ids.values.to_tensor(FILL))
        data = ids.values  # (W, C)
        is_boundary = (data == BEGIN_SENTENCE) | (data == END_SENTENCE)
        is_word = (data[:, 0] == BEGIN_WORD) & ~tf.reduce_any(is_boundary, axis=1)
        return strings.keep(ids.with_values(self.words(data)), is_word)

    def words(self, ids: Tensor) -> Tensor:
        """Return the (…) words of (…, C) ids, with `<S>` and `</S>`; padding becomes ""."""
        is_byte = (ids > PAD) & (ids < BEGIN_SENTENCE)
        letters = tf.gather(self._bytes, tf.where(is_byte, ids - 1, 0))
        words = tf.strings.reduce_join(tf.where(is_byte, letters, b""), axis=-1)
        for token, character in SENTENCE_TOKENS.items():
            words = tf.where(tf.reduce_any(ids == character, axis=-1), token, words)
        return words

    def letters(self, ids: Tensor) -> Tensor:
        """Return the bytes of words plus 1, (…, C - 2), and 0 elsewhere."""
        ids = ids[..., 1:-1]
        return tf.where((ids > PAD) & (ids < BEGIN_SENTENCE), ids, 0)

    def word_starts(self, ids: Tensor) -> Tensor:
        ids = as_tensor(ids, tf.int32)
        if isinstance(ids, tf.RaggedTensor) and ids.shape.rank > 2:
            return ids.with_values(self.word_starts(ids.values))
        first = ids.to_tensor() if isinstance(ids, tf.RaggedTensor) else ids
        return tf.ones_like(first[..., 0], tf.bool)

    def get_config(self) -> dict[str, Any]:
        return {"characters_per_word": self.characters_per_word, "splitter": self.splitter}

    def save_assets(self, folder: PathLike) -> None:
        """Write nothing: bytes need no vocabulary file."""

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        return cls(**config)

    @classmethod
    def from_files(cls, folder: PathLike, **overrides: Any) -> Self:
        """Return the tokenizer of a published ELMo's `options.json`, or `NAME_options.json`.

        Raises:
            FileNotFoundError: if there is no `options.json` of a model that reads characters.
            ValueError: if the file is not JSON, or numbers characters differently.
        """
        files = {
            path: _read_options(path) for path in glob.glob(f"{glob.escape(folder)}/*options.json")
        }
        files = {path: options for path, options in files.items() if "char_cnn" in options}
        if len(files) != 1:
            raise FileNotFoundError(
                f"`folder` {os.fspath(folder)!r} holds {len(files)} files options.json (or "
                "NAME_options.json) with `char_cnn`; put that of one ELMo checkpoint there."
            )
        ((path, options),) = files.items()
        if not isinstance(options["char_cnn"], dict):
            raise ValueError(f"{path!r}: `char_cnn` is not an object; copy or download it again.")
        number = options["char_cnn"].get("n_characters", 262)
        if number not in (261, 262):  # 261 does not count the padding
            raise ValueError(
                f"{path!r} has `n_characters` {number}, but ELMo's numbering has 262 ids (or 261 "
                "without padding): the model reads characters of another kind."
            )
        length = options["char_cnn"].get("max_characters_per_token")
        if length is None:
            raise ValueError(f"{path!r} lacks `max_characters_per_token` in `char_cnn`; add it.")
        return cls(**{"characters_per_word": length, **overrides})


def _read_options(path):
    if not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as file:
        try:
            options = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path!r} is not a JSON file: {error}") from None
    return options if isinstance(options, dict) else {}


def _frames(characters_per_word):
    """Return what to add to the bytes of a word of n bytes, which start in column 1, in row n."""
    lengths = np.arange(characters_per_word - 1)[:, np.newaxis]
    place = np.arange(characters_per_word)[np.newaxis, :]
    frames = np.where(place <= lengths, 1, FILL)
    frames[:, 0] = BEGIN_WORD
    return np.where(place == lengths + 1, END_WORD, frames).astype(np.int32)
