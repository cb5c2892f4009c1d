"""Words in a vocabulary: which entries begin one, and tokenizers with further words.

Shapes: S pieces of a row.
"""

from collections.abc import Sequence
from typing import Self

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.vocabulary import strings_of


class VocabularyWords:
    """The methods of a tokenizer about words, and those that return one with more entries."""

    def word_starts(self, ids):
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
            found = grown.tokens(grown(words)).to_list()
            for word, tokens, several in zip(words, found, entries):
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
