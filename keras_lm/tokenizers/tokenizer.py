"""The base class of tokenizers: a vocabulary, special tokens, and inputs of any shape.

Shapes: B texts, S tokens of a text, V entries of the vocabulary.
"""

import functools
import pathlib
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from keras_lm.tensorflow import IS_INSTALLED, tf, tf_text
from keras_lm.tokenizers import strings, unicode_forms
from keras_lm.tokenizers.lite_operations import SpelledTokens, Speller
from keras_lm.tokenizers.strings import as_tensor, has_text_operations, valid_utf8, where_not
from keras_lm.tokenizers.vocabulary import Vocabulary, strings_of
from keras_lm.utils.argument_types import PathLike, Tensor
from keras_lm.utils.registry import TOKENIZERS, register, tokenizer_named
from keras_lm.utils.user_arguments import check_constructor, plain_column

if TYPE_CHECKING:
    from keras_lm.presets import Source
else:
    Source = Any  # it comes with the readers of all formats


_LOCK, _BEING_MADE = threading.RLock(), set()


def traced(function, autograph=True):
    """Trace a function of (B,) strings once: all signatures of a SavedModel share its constants."""
    return tf.function(function, autograph=autograph).get_concrete_function(
        tf.TensorSpec([None], tf.string)
    )


def lookup_table(ids, default):
    """Return a hash table from strings to int32 ids."""
    rows = tf.lookup.KeyValueTensorInitializer(
        tf.constant([*ids], tf.string), tf.constant([*ids.values()], tf.int32)
    )
    return tf.lookup.StaticHashTable(rows, default)


class Tokenizer(tf.Module):
    """Strings to ids and back, as TensorFlow graph operations.

    Subclasses implement `_tokenize`, from (B,) strings and the special tokens to recognise in them
    to ragged (B, S) int32 ids, and `_join`, from ragged (B, S) entries to (B,) strings, or
    `_detokenize`, from ragged (B, S) ids. A tokenizer is stateless and runs eagerly, in `tf.data`
    and inside exported graphs.

    Args:
        vocabulary: list of str, the entries in the order of their ids.
        special_tokens: dict from role (`"cls"`, `"sep"`, `"pad"`, `"mask"`, `"unknown"`, ...) to
            its entry; roles with None are ignored.
        additional_special_tokens: further entries that ordinary text is never tokenized to.
        template: two str, the special tokens around one text and around a pair, in the form of
            `keras_lm.packers.Template`, that a model over this tokenizer reads. None for those that
            the model was published with.

    Raises:
        ValueError: if the vocabulary is empty, holds an entry twice or lacks a special token, or
            if an entry is not a string.

    Example:

        tokenizer = Tokenizer.from_preset("path/to/a/checkpoint")
        ids = tokenizer(["some text", "some more"])
        texts = tokenizer.detokenize(ids)
    """

    # The roles of special tokens that the constructor takes, as `cls_token` and the like.
    ROLES = ()
    # Vocabulary files that show this kind of tokenizer in a folder, if any network may have it.
    PUBLISHED_FILES = ()
    # Whether special tokens that text spells have offsets, too.
    has_offsets_of_special = False
    _target = None  # the tokenizer of translations, if it is another one
    # Attributes of graphs → the method that sets them, called when the first of them is read.
    MADE_LATER: dict[str, str] = {"_entries": "_make_entries", "_has_no_text": "_make_entries"}

    def __new__(cls, *args, **kwargs):
        check_constructor(cls, args, kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        vocabulary: Sequence[str] | PathLike,
        special_tokens: Mapping[str, str | None],
        additional_special_tokens: Sequence[str] = (),
        template: Sequence[str] | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self._vocabulary = Vocabulary(
            vocabulary, special_tokens, additional_special_tokens, template
        )
        self._has_text = has_text_operations()

    def __getattr__(self, name):
        make = type(self).MADE_LATER.get(name)
        if make is not None and IS_INSTALLED:  # otherwise `host` tokenizes
            self._make(make, name)
            if name in self.__dict__:
                return self.__dict__[name]
        return object.__getattribute__(self, name)  # raises, for a property what it says

    def _make(self, make, name):
        """Call the method of a name in `MADE_LATER` once, whichever thread asks first."""
        # Constants made here, not in a traced function: every graph then refers to the same one.
        with _LOCK, strings.text_operations(self._has_text), tf.init_scope():
            # (TensorFlow reads an attribute before it sets it.)
            if name not in self.__dict__ and (id(self), make) not in _BEING_MADE:
                _BEING_MADE.add((id(self), make))
                try:
                    getattr(self, make)()
                finally:
                    _BEING_MADE.remove((id(self), make))

    def _make_entries(self):
        # One more, for ids beyond: models may have more rows than there are entries.
        tokens = [*self._vocabulary.tokens, ""]
        special = set(self._vocabulary.all_special_tokens)
        self._entries = tf.constant(tokens, tf.string)  # (V + 1,)
        is_special = [token in special for token in tokens[:-1]]
        self._has_no_text = tf.constant([*is_special, True])  # (V + 1,)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        register(cls, TOKENIZERS)

    @classmethod
    def from_preset(cls, source: PathLike | Source, **overrides: Any) -> Self:
        """Return the tokenizer of a preset or of a published checkpoint.

        `source` is the folder of one, `hf://owner/name` or a size name; `overrides` are constructor
        arguments that replace its own.
        """
        from keras_lm import presets

        return presets.load_tokenizer(source, cls, **overrides)

    @classmethod
    def from_files(cls, folder: PathLike, **overrides: Any) -> Self:
        """Return the tokenizer that a folder with published vocabulary files describes.

        `overrides` are constructor arguments that replace the files'. Raises FileNotFoundError if
        there is no vocabulary of this kind, and ValueError if a file is damaged or asks for
        something that the class does not do.
        """
        raise NotImplementedError(f"{cls.__name__} cannot read published files.")

    @classmethod
    def class_for(cls, folder: PathLike) -> "type[Tokenizer]":
        """Return the class that reads a published folder: by its files, or else this one.

        Raises:
            ValueError: if they name a class whose rules are not known.
        """
        from keras_lm.tokenizers.published_files import kind_of

        return tokenizer_named(kind_of(folder, usual=cls.__name__)) or cls

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        """Return the tokenizer that `save_assets(folder)` and `get_config()` describe."""
        raise NotImplementedError(f"{cls.__name__} cannot read assets.")

    def save_assets(self, folder: PathLike) -> None:
        """Write the vocabulary files, in their published form, into an existing folder."""
        raise NotImplementedError(f"{type(self).__name__} cannot write assets.")

    def save_published_files(self, folder: PathLike) -> None:
        """Write the vocabulary as published folders have it, into an existing folder."""
        self.save_assets(folder)

    def save_huggingface(self, folder: PathLike, *arguments: Any) -> None:
        """Write Hugging Face's files of the tokenizer; see `huggingface_files.write`."""
        from keras_lm.tokenizers import huggingface_files

        huggingface_files.write(folder, self, *arguments)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as JSON-able values, without the vocabulary."""
        tokens = {f"{role}_token": self.special_tokens.get(role) for role in self.ROLES}
        more = list(self._vocabulary.additional_special_tokens)
        return tokens | {"additional_special_tokens": more}

    def __reduce__(self):
        # As files, like a preset: the tables cannot be pickled.
        with tempfile.TemporaryDirectory() as folder:
            self.save_assets(folder)
            files = {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}
        return _unpickled, (type(self), files, self.get_config())

    def _tokenize(self, text, special):
        raise NotImplementedError

    def _tokenize_with_offsets(self, text, special=()):
        raise NotImplementedError(f"{type(self).__name__} has no offsets of its tokens.")

    def has_offsets(self, parse_special: bool | Sequence[str] = False) -> bool:
        """Return whether `tokenize_with_offsets` works, with these special tokens in text."""
        method = type(self)._tokenize_with_offsets
        is_known = not self._special_in_text(parse_special) or self.has_offsets_of_special
        return method is not Tokenizer._tokenize_with_offsets and is_known

    @property
    def with_space(self) -> Self:
        """The same tokenizer for words of a list, whose pieces begin with the space before them.

        This one itself, unless its pieces have spaces and it adds none.
        """
        return self

    def _join(self, entries):
        raise NotImplementedError

    def _detokenize(self, ids):
        return self._join(self.tokens(ids))

    def __call__(
        self, text: Tensor | Sequence[Any] | str, parse_special: bool | Sequence[str] = False
    ) -> Tensor:
        """Turn text into int32 ids, adding no special tokens.

        One string becomes a 1-D tensor; lists, arrays and tensors of strings become a ragged tensor
        of one more dimension. `parse_special=True` recognises all special tokens that the text
        spells, a list only those in it; with False, users cannot inject them by typing `[SEP]`.
        Where TensorFlow is not installed, ids are lists of int, made by the package `tokenizers`.
        """
        if not IS_INSTALLED:
            from keras_lm.tokenizers import host

            return host.ids_of(self, plain_column(text, "text"), parse_special)
        text = as_tensor(text, tf.string)
        if text.dtype != tf.string:
            raise ValueError(f"`text` must hold strings; it is a tensor of {text.dtype.name}.")
        if isinstance(text, tf.RaggedTensor):
            text = text.with_row_splits_dtype(tf.int64)
            return text.with_flat_values(self(text.flat_values, parse_special))
        if text.shape.rank is None:
            raise ValueError("`text` has an unknown rank; give it a shape such as [None].")
        if text.shape.rank == 0:
            return self(text[tf.newaxis], parse_special).values
        shape = tf.shape(text, tf.int64)
        ids = self._tokenize(tf.reshape(text, [-1]), self._special_in_text(parse_special))
        for axis in range(text.shape.rank - 1, 0, -1):
            rows = tf.reduce_prod(shape[:axis])
            ids = tf.RaggedTensor.from_uniform_row_length(ids, shape[axis], rows)
        return ids

    def _special_in_text(self, parse_special):
        """Return the special tokens that `parse_special` names, a list of str."""
        if not parse_special:
            return []
        special = self.all_special_tokens
        return [token for token in special if parse_special is True or token in parse_special]

    def tokenize_lite_with(self, text: Tensor, parse_special: bool | Sequence[str]) -> Tensor:
        """Return what `tokenize_lite` does, and the ids of special tokens that texts spell.

        Only without TensorFlow Text's operations, which also finds tokens that were added to a
        vocabulary, except WordPiece's. For `parse_special` see a call.

        Raises:
            ValueError: if the special tokens of this tokenizer are found otherwise.
        """
        tokens = self._special_in_text(parse_special)
        if not has_text_operations():
            tokens = [*self._added_in_text, *tokens]
        if not tokens:
            return self.tokenize_lite(text)
        spelled = SpelledTokens({t: self.token_to_id(t) for t in tokens if t}, *self._sides(tokens))
        return spelled(text, self.tokenize_lite)

    # Tokens that `tokenize_lite_with` finds in all texts.
    _added_in_text: Sequence[str] = ()

    def _sides(self, tokens):
        """Return which of some tokens include the white space before, and after, in LiteRT.

        Raises:
            ValueError: if one of them is not found wherever it is spelled.
        """
        return (), ()

    def tokenize_with_offsets(
        self,
        text: str | Sequence[str],
        unit: str = "byte",
        parse_special: bool | Sequence[str] = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Turn a string, or a list of strings, into `(ids, starts, ends)`.

        A token is `text[start:end]`: in bytes of the original UTF-8 text, as in
        `tf.strings.substr`, or with `unit="character"` in characters, as in Python. Ids are int32
        and offsets int64, 1-D for one string, otherwise ragged (B, S). For `parse_special` see a
        call.

        Raises:
            ValueError: if `unit` is something else, or `text` has more than one dimension.
            NotImplementedError: if this kind of tokenizer has no offsets, or none of such tokens.
        """
        if unit not in strings.UNITS:
            raise ValueError(f"`unit` is {unit!r}; it must be one of {strings.UNITS}.")
        text = as_tensor(text, tf.string)
        if text.dtype != tf.string or text.shape.rank not in (0, 1):
            raise ValueError(
                f"`text` must hold strings in at most one dimension; it is a tensor of "
                f"{text.dtype.name} with the shape {text.shape}."
            )
        if text.shape.rank == 0:
            rows = self.tokenize_with_offsets(text[tf.newaxis], unit, parse_special)
            return tuple(x[0] for x in rows)
        special = self._special_in_text(parse_special)
        if special and not self.has_offsets_of_special:
            raise NotImplementedError(f"{type(self).__name__} has no offsets of special tokens.")
        ids, starts, ends = self._tokenize_with_offsets(text, special)
        return ids, *strings.in_original(text, starts, ends, unit)

    def tokens(self, ids: Tensor | Sequence[Any]) -> Tensor:
        """Return the vocabulary entries of ids (dense or ragged, any rank), as strings.

        Models may have more rows than there are entries; ids beyond these are empty strings.
        """
        return tf.gather(self._entries, self._within(as_tensor(ids, tf.int32)))

    def _within(self, ids):
        return tf.minimum(ids, self.vocabulary_size)

    @functools.cached_property
    def begins_word(self):
        """Which entries always begin a word: (V,) numpy bool."""
        return self._in_any_word(self._begins_word)

    @functools.cached_property
    def ends_word(self):
        """Which entries are always followed by the start of a word: (V,) numpy bool."""
        return self._in_any_word(self._ends_word)

    def _in_any_word(self, rule):
        special = {*self._vocabulary.all_special_tokens} - {self.special_tokens.get("unknown")}
        return np.array([t in special or rule(t) for t in self._vocabulary.tokens])

    def _begins_word(self, token):
        return True

    def _ends_word(self, token):
        return False

    def detokenize(self, ids: Tensor | Sequence[Any]) -> Tensor:
        """Turn (…, S) ids into (…) strings without special tokens, ragged beyond two dimensions.

        Ids beyond the vocabulary have no text.
        """
        if not IS_INSTALLED:
            from keras_lm.tokenizers import host

            return host.text_of(self, ids)
        return self._by_text(ids, self._detokenize)

    def _by_text(self, ids, function):
        """Apply a function of ragged (B, S) ids, without special tokens, to ids of any rank."""
        ids = as_tensor(ids, tf.int32)
        if not ids.shape.rank:
            raise ValueError(f"`ids` has the shape {ids.shape}; give it one dimension or more.")
        if ids.shape.rank == 1:
            return self._by_text(ids[tf.newaxis], function)[0]
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.RaggedTensor.from_tensor(ids, ragged_rank=ids.shape.rank - 1)
        elif ids.flat_values.shape.rank > 1:
            inner = tf.RaggedTensor.from_tensor(
                ids.flat_values, ragged_rank=ids.flat_values.shape.rank - 1
            )
            ids = ids.with_row_splits_dtype(tf.int64).with_flat_values(inner)
        if ids.shape.rank > 2:
            return ids.with_values(self._by_text(ids.values, function))
        plain = tf.logical_not(tf.gather(self._has_no_text, self._within(ids.values)))
        return function(strings.keep(ids, plain))

    def detokenize_lite(self, ids: Tensor) -> Any:
        """Return the texts of ragged (B, S) ids as bytes, with operations that LiteRT has.

        They are ragged (B, N) uint8, those of what `detokenize` returns; bytes that are not UTF-8,
        as of a character that was not written to its end, stay as they are.

        Raises:
            ValueError: if the text of a token depends on those beside it.
        """
        return self._speller(ids)

    def tokens_lite(self, ids: Tensor) -> Any:
        """Return what `tokens` does for dense ids, as bytes, with operations that LiteRT has."""
        rows = tf.range(tf.size(ids) + 1)
        flat = tf.RaggedTensor.from_row_splits(tf.reshape(ids, [-1]), rows, validate=False)
        return strings.in_rows(self._entry_speller(flat), ids)

    @functools.cached_property
    def _entry_speller(self):
        return Speller([token.encode() for token in self.vocabulary])

    @functools.cached_property
    def _speller(self):
        spellings, *changes = self._spellings_alone()
        special = {self.token_to_id(token) for token in self.all_special_tokens}
        spellings = [b"" if i in special else text for i, text in enumerate(spellings)]
        return Speller(spellings, *changes)

    def _spellings_alone(self):
        """Return the bytes of each token, then how they are changed together; see `Speller`."""
        raise ValueError(
            f"{type(self).__name__} joins tokens by regular expressions, for which LiteRT has no "
            "operations: export as a SavedModel instead."
        )

    @property
    def target(self) -> "Tokenizer":
        """The tokenizer of what a model writes; another one only for a translator with two."""
        return self._target or self

    @property
    def vocabulary(self) -> list[str]:
        """All entries, in the order of their ids."""
        return list(self._vocabulary.tokens)

    @property
    def vocabulary_size(self) -> int:
        """The number of ids."""
        return len(self._vocabulary.tokens)

    @property
    def signatures(self) -> dict[str, Callable[[Tensor], dict[str, Tensor]]]:
        """What exports offer beside answers: a signature's name → its function of (B,) texts."""
        return {}

    @property
    def template(self) -> list[str] | None:
        """The special tokens around one text and around a pair, two str, or None; see above."""
        return self._vocabulary.template

    @property
    def special_tokens(self) -> dict[str, str]:
        """A dict from role to the entry that plays it, such as `{"sep": "[SEP]"}`."""
        return dict(self._vocabulary.special_tokens)

    @property
    def all_special_tokens(self) -> list[str]:
        """The entries that play a role, and the additional ones, a list of str."""
        return list(self._vocabulary.all_special_tokens)

    def token_to_id(self, token: str) -> int:
        """Return the id of a vocabulary entry; ValueError if there is none."""
        try:
            return self._vocabulary.ids[token]
        except KeyError:
            raise ValueError(
                f"`token` {token!r} is not one of the vocabulary's {self.vocabulary_size} entries. "
                "Call the tokenizer to turn text into ids."
            ) from None

    def id_to_token(self, id: int) -> str:
        """Return the vocabulary entry of an id; ValueError if there is none."""
        if not 0 <= id < self.vocabulary_size:
            raise ValueError(f"`id` is {id}; it must lie in [0, {self.vocabulary_size}).")
        return self._vocabulary.tokens[id]

    def special_id(self, role: str) -> int:
        """Return the id of the special token in a role, such as `"sep"`; ValueError if none is."""
        if role not in self._vocabulary.special_tokens:
            raise ValueError(
                f"`role` {role!r} has no special token here; there are "
                f"{sorted(self._vocabulary.special_tokens)}."
            )
        return self.token_to_id(self._vocabulary.special_tokens[role])

    # === Words, and further entries ===

    def word_starts(self, ids: Tensor) -> Tensor:
        """Return which of (…, S) pieces, packed or not, begin a word: bool of the same shape.

        The first piece of a row does, special tokens except the unknown one do, and so do pieces
        after these. For all others see `begins_word` and `ends_word`.

        Example:

            tokenizer.word_starts(tokenizer(["unaffable film"]))  # [[True, False, False, True]]
        """
        ids = strings.as_tensor(ids, tf.int32)
        if isinstance(ids, tf.RaggedTensor):
            if isinstance(ids.values, tf.RaggedTensor):
                return ids.with_values(self.word_starts(ids.values))
            row = strings.row_ids(ids)
            is_first = tf.concat([tf.ones_like(row[:1], tf.bool), row[1:] != row[:-1]], axis=0)
            return ids.with_values(self.word_starts(ids.values) | is_first)
        after = tf.gather(self.ends_word, ids[..., :-1])
        after = tf.concat([tf.ones_like(ids[..., :1], tf.bool), after], axis=-1)
        return after | tf.gather(self.begins_word, ids)

    def with_special_tokens(self, tokens: Sequence[str]) -> Self:
        """Return the same tokenizer with more special tokens; new ones get the last ids.

        Raises:
            NotImplementedError: if the vocabulary of this kind of tokenizer cannot grow.
        """
        config = self.get_config()
        special = [*self._vocabulary.additional_special_tokens, *tokens]
        config["additional_special_tokens"] = list(dict.fromkeys(special))
        return self._grown([t for t in tokens if t not in self._vocabulary.ids], config)

    def with_words(self, words: Sequence[str]) -> Self:
        """Return the same tokenizer with further words, each of which becomes a single token.

        They are ordinary entries with the last ids. Words that are already one token are left out;
        if there are no others, the tokenizer itself is returned. A new WordPiece, or piece of a
        unigram SentencePiece, may also begin a longer word, like all others. In byte-level BPE, a
        word has two entries, with and without a space before it, and longer words keep their
        pieces.

        Args:
            words: list of str, spelled as in text, such as `"remdesivir"`.

        Raises:
            ValueError: if a word cannot be one token because it is split first (`"COVID-19"`), or
                if the vocabulary cannot grow (words, characters, GPT-1's, SentencePiece's BPE).

        Example:

            tokenizer = tokenizer.with_words(["remdesivir"])
            tokenizer.tokens(tokenizer("Remdesivir helps."))  # ["remdesivir", "helps", "."]
        """
        words = strings_of("words", words)
        entries = [self._entries_of_word(word.strip()) for word in words]
        new = [entry for several in entries for entry in several]
        new = [entry for entry in dict.fromkeys(new) if entry not in self._vocabulary.ids]
        grown = self._with_entries(new) if new else self
        if words:
            token_lists = grown.tokens(grown(words)).to_list()
            for word, tokens, several in zip(words, token_lists, entries):
                tokens = [token.decode() for token in tokens]
                if len(tokens) != 1 or tokens[0] not in several:
                    raise ValueError(
                        f"`words` names {word!r}, which cannot be one token: text is split first, "
                        f"here into {tokens}. Leave it out, or name its parts."
                    )
        return grown

    def _entries_of_word(self, word):
        """Return the entries, in normal form, that make a word one token."""
        raise ValueError(
            f"{type(self).__name__} cannot take further words: only WordPiece, byte-level BPE and "
            "unigram SentencePiece can."
        )

    def _with_entries(self, entries):
        """Return the tokenizer with more entries, made by `_entries_of_word`."""
        return self._grown(entries, self.get_config())

    def _grown(self, entries, config):
        """Return the tokenizer of a configuration, with more entries."""
        raise NotImplementedError(f"{type(self).__name__} cannot take further tokens.")


def _unpickled(cls, files, config):
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            pathlib.Path(folder, name).write_bytes(content)
        return cls.from_assets(folder, config)


# === Unicode's normal forms, by TensorFlow Text or without it ===


def in_form(text, form):
    """Return (B,) strings as valid UTF-8 in one of Unicode's normal forms; as they are for None."""
    text = valid_utf8(text)
    if form is None:
        return text
    return where_not(text, r"[\x00-\x7F]*", lambda rows: normalized(rows, form))


def normalized(text, form):
    """Return (B,) strings of valid UTF-8 in one of Unicode's normal forms.

    Without TensorFlow Text's operations, characters that are newer than Python's Unicode stay as
    they are.
    """
    return (
        tf_text.normalize_utf8(text, form)
        if has_text_operations()
        else unicode_forms.traced_form(form)(text)
    )


def folded(text):
    """Return (B,) strings of valid UTF-8 for comparisons that ignore case (NFKC_Casefold)."""
    return (
        tf_text.case_fold_utf8(text)
        if has_text_operations()
        else unicode_forms.traced_form(unicode_forms.FOLDED)(text)
    )


def offsets_in_form(text, form, find):
    """Return what `find`, from texts in a normal form to ids, starts and ends, finds in texts.

    Offsets are in bytes of `valid_utf8(text)`; one within what has changed becomes the end of that.
    """
    text = valid_utf8(text)
    if form is None:
        return find(text)
    if not has_text_operations():
        return unicode_forms.offsets_in_form(text, form, find)
    text, places = tf_text.normalize_utf8_with_offsets_map(text, form)
    ids, *offsets = find(text)
    zero = tf.zeros([ids.nrows(), 1], tf.int64)  # the operation fails for rows without any

    def in_text(offset):
        return tf_text.find_source_offsets(places, tf.concat([zero, offset], axis=1))[:, 1:]

    return ids, *map(in_text, offsets)
