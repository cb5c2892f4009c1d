"""Tokenizers with more entries than their vocabulary had."""

from collections.abc import Sequence
from typing import Self

from keras_lm.tokenizers.vocabulary import strings_of


class GrowingVocabulary:
    """The methods of a tokenizer that return one with more entries."""

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
