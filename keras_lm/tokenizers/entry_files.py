"""Files of a vocabulary's entries, as lines or by their ids; damaged ones are refused."""

import json
import os

from keras_lm import files

MOST_IDS = 2**20


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
        data = files.whole(file, f"`{argument}` file {os.fspath(path)!r}")
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
    with open(path, "rb") as file:
        data = files.whole(file, repr(path))
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
    found = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice in one object")
        found[key] = value
    return found
