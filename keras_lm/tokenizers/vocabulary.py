"""The entries of a vocabulary and their ids, checked; and the files that hold them."""

import json
import os
import reprlib
from collections.abc import Iterable

from keras_lm.utils import input_files

MOST_IDS = 2**20


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
    try:
        "".join(values).encode()
        return values
    except (TypeError, UnicodeEncodeError):
        pass  # the first that is wrong is named
    for value in values:
        if not isinstance(value, str) or not _is_unicode(value):
            raise ValueError(
                f"`{argument}` names {reprlib.repr(value)}; entries must be strings that UTF-8 can "
                "write, so without surrogates. Correct it, or leave it out."
            )
    return values


def _is_unicode(text):
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


# === Files: lines, or entries by their ids; damaged ones are refused ===


def check_file(argument, path, remedy):
    """Raise FileNotFoundError if there is no file where a user's argument says."""
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"`{argument}` names the file {os.fspath(path)!r}, which does not exist; {remedy}"
        )


def read_lines(path, argument, remedy):
    """Return the lines of a UTF-8 file that the user passed as `argument`."""
    check_file(argument, path, remedy)
    with open(path, "rb") as file:
        data = input_files.whole(file, f"`{argument}` file {os.fspath(path)!r}")
    input_files.check_start(f"`{argument}` file {os.fspath(path)!r}", data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"`{argument}` file {os.fspath(path)!r} is not UTF-8: byte {error.start} is "
            f"{data[error.start]:#x}. Copy it again, or convert it to UTF-8."
        ) from None
    # Not splitlines(): an entry may be a line separator of Unicode.
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_lines_of_entries(path):
    """Return the entries of a vocabulary's file with one per line."""
    return read_lines(path, "vocabulary", "give the path of a vocab.txt, or a list of entries.")


def read_entries(path, remedy, with_gaps=False):
    """Return the entries of a JSON file with their ids, in the order of these."""
    check_file("vocabulary", path, remedy)
    return in_order(read_json(*os.path.split(path)), os.fspath(path), with_gaps)


def in_order(ids, path, with_gaps=False):
    """Return a dict's entries in the order of their ids; ValueError if these are not 0, 1, 2, …

    `with_gaps` allows ids without an entry; they get one that `published_files.UNUSED` matches.
    """
    check_numbers(ids, path)
    entries = sorted(ids, key=ids.get)
    by_id = {id: token for token, id in ids.items()}
    is_unique = len(by_id) == len(ids) > 0
    if with_gaps and is_unique and ids[entries[0]] >= 0 and ids[entries[-1]] < MOST_IDS:
        entries = [by_id.get(i, f"<unused id {i}>") for i in range(ids[entries[-1]] + 1)]
    check_ids(entries, ids, path)
    return entries


def check_numbers(ids, path):
    """Raise ValueError if an id is not a whole number."""
    for token, id in ids.items():
        if type(id) is not int:
            raise ValueError(
                f"{path!r} gives the token {token!r} the id {id!r}, and ids are whole numbers."
            )


def check_ids(entries, ids, path):
    """Raise ValueError if the ids of entries are not their places in a list."""
    for i, token in enumerate(entries):
        if ids.get(token, i) != i:
            raise ValueError(
                f"{path!r} gives the token {token!r} the id {ids[token]}, but its place in the "
                f"vocabulary is {i}; ids have to be the numbers from 0 without a gap. To load a "
                "task without it, for packed dicts, pass tokenizer=None."
            )


def read_json(folder, name):
    """Return what a JSON file of a folder holds; an empty dict if there is no such file."""
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return {}
    return input_files.read_once(path, _parse)


def _parse(path):
    with open(path, "rb") as file:
        data = input_files.whole(file, repr(path))
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path!r} is not a JSON file: {error}. It may be cut off: copy or download it again."
        ) from None
    if not isinstance(value, dict):
        raise ValueError(
            f"{path!r} should hold a JSON object and holds a {type(value).__name__}. Copy or "
            "download it again."
        )
    return value


def _without_repeats(pairs):
    from keras_lm.converters.checked_files import plain_numbers  # with all readers of checkpoints

    entries = dict(pairs)
    if len(entries) < len(pairs):
        earlier = set()
        for key, _ in pairs:
            if key in earlier:
                raise ValueError(f"the key {key!r} occurs twice in one object")
            earlier.add(key)
    return plain_numbers(entries)
