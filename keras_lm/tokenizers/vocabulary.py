"""The entries of a vocabulary and their ids, checked."""

import reprlib
from collections.abc import Iterable


class Vocabulary:
    """Entries and their ids, in a class so that `tf.Module` does not put them into checkpoints."""

    def __init__(self, tokens, special_tokens, additional_special_tokens, template):
        self.tokens = strings_of("vocabulary", tokens)
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.special_tokens = {role: t for role, t in special_tokens.items() if t is not None}
        for role, token in self.special_tokens.items():
            strings_of(f"{role}_token", [token])
        self.template = template and strings_of("template", template)
        self._check()
        self.additional_special_tokens = self.entries(
            "additional_special_tokens", additional_special_tokens
        )
        special = [*self.special_tokens.values(), *self.additional_special_tokens]
        self.all_special_tokens = list(dict.fromkeys(special))

    def entries(self, argument, tokens):
        """Return `tokens`, passed as `argument`, as a list; ValueError if one is not an entry."""
        tokens = strings_of(argument, tokens)
        for token in tokens:
            if token not in self.ids:
                raise ValueError(
                    f"`{argument}` names {token!r}, which is not in the vocabulary of "
                    f"{len(self.tokens)} entries; append it there first."
                )
        return tokens

    def _check(self):
        if not self.tokens:
            raise ValueError("`vocabulary` is empty; it needs at least the special tokens.")
        if len(self.ids) < len(self.tokens):
            # `ids` keeps the last place of an entry, so its first place disagrees.
            first = next(i for i, token in enumerate(self.tokens) if self.ids[token] != i)
            raise ValueError(
                f"`vocabulary` holds {self.tokens[first]!r} twice, as ids {first} and "
                f"{self.ids[self.tokens[first]]}; remove or rename one of them."
            )
        for role, token in self.special_tokens.items():
            if token not in self.ids:
                raise ValueError(
                    f"`{role}_token` {token!r} is not in the vocabulary of {len(self.tokens)} "
                    f"entries. Add it to the vocabulary, or say which entry plays this role: "
                    f"`{role}_token=...`"
                    + ("." if role == "unknown" else f", or `{role}_token=None` for none.")
                )
        if self.template is not None and len(self.template) != 2:
            raise ValueError(
                f"`template` is {self.template!r}: pass two strings, for one text and for a pair."
            )


def strings_of(argument, values):
    """Return `values`, which a user passed as `argument`, as a list; ValueError if not strings."""
    # (A dict would lose its ids, and a string would become its characters.)
    is_one = isinstance(values, (str, bytes, dict))
    if is_one or not isinstance(values, Iterable):
        raise ValueError(
            f"`{argument}` is {reprlib.repr(values)}, of type {type(values).__name__}; pass a list "
            "of strings."
        )
    values = list(values)
    for value in values:
        if not isinstance(value, str) or not _is_unicode(value):
            raise ValueError(
                f"`{argument}` names {reprlib.repr(value)}; entries must be strings that UTF-8 can "
                "write, so without surrogates. Correct it, or leave it out."
            )
    return values


def _is_unicode(text):
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
