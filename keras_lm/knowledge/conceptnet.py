"""ConceptNet's dump: its English edges, with 17 relations made of its own."""

import gzip
import zlib
from collections.abc import Iterator

from keras_lm.datasets.text_lines import json_value
from keras_lm.knowledge.stop_words import is_concept
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import as_local
from keras_lm.utils.input_files import lines

DUMP = "conceptnet-assertions-5.7.0.csv.gz"
URL = f"https://s3.amazonaws.com/conceptnet/downloads/2019/edges/{DUMP}"
ENGLISH = b"/c/en/"

# The relation that is kept → those of ConceptNet that become it; `-` turns head and tail around.
MERGED = {
    "Antonym": "Antonym DistinctFrom",
    "AtLocation": "AtLocation LocatedNear",
    "CapableOf": "CapableOf",
    "Causes": "Causes CausesDesire -MotivatedByGoal",
    "CreatedBy": "CreatedBy",
    "IsA": "IsA InstanceOf DefinedAs",
    "Desires": "Desires",
    "HasSubevent": "HasSubevent HasFirstSubevent HasLastSubevent HasPrerequisite Entails MannerOf",
    "PartOf": "PartOf -HasA",
    "HasContext": "HasContext",
    "HasProperty": "HasProperty",
    "MadeOf": "MadeOf",
    "NotCapableOf": "NotCapableOf",
    "NotDesires": "NotDesires",
    "ReceivesAction": "ReceivesAction",
    "RelatedTo": "RelatedTo SimilarTo Synonym",
    "UsedFor": "UsedFor",
}
RELATIONS = tuple(MERGED)
# ConceptNet's relation → the number of ours, from 1, and whether it is turned around.
_NUMBERS = {
    f"/r/{name.lstrip('-')}".encode(): (number, name.startswith("-"))
    for number, names in enumerate(MERGED.values(), start=1)
    for name in names.split()
}


def read_conceptnet(path: PathLike) -> Iterator[tuple[str, int, str, float]]:
    """Yield the English edges of ConceptNet's dump as (head, relation, tail, weight).

    A relation is its number in `RELATIONS`, from 1. Left out are edges of other relations, from a
    concept to itself, and of concepts with other signs than letters, `_` and `-`, with a stop word,
    or too general (`keras_lm.knowledge.stop_words`).

    Args:
        path: the dump, a line per edge with five fields between tabs, plain or `.gz`.

    Raises:
        FileNotFoundError: if there is no such file; the message has the command that gets it.
        ValueError: if a line has another form, or the file is cut; it names file and line.

    Source: Speer et al. 2017, https://arxiv.org/abs/1612.03975; merged relations: INK-USC/KagNet,
    `conceptnet/merge_relation.txt`. Of `/c/en/plant/n/wn/artifact`, the concept is `plant`.
    """
    path = as_local(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no {str(path)!r}. Get ConceptNet's dump (about 500 MB) by: curl -LO {URL}"
        )
    names = {}  # as the dump has it → as it is stored, None if it is not a concept
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(lines(stream, path), start=1):
                edge = _edge(line, names, f"{path}, line {number}")
                if edge is not None:
                    yield edge
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path}, after line {number}: the file is cut or damaged, get it again: {error}"
        ) from error


def _edge(line, names, where):
    fields = line.rstrip(b"\r\n").split(b"\t")
    if len(fields) != 5:
        raise ValueError(f"{where}: {_short(line)} has {len(fields)} fields, not 5.")
    _, relation, head, tail, details = fields
    if relation not in _NUMBERS or not (head.startswith(ENGLISH) and tail.startswith(ENGLISH)):
        return None
    head, tail = _name(head, names), _name(tail, names)
    if head is None or tail is None or head == tail:
        return None
    try:
        weight = float(json_value(details.decode())["weight"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: {_short(details)} has no weight: {error!r}.") from error
    relation, is_turned = _NUMBERS[relation]
    return (tail, relation, head, weight) if is_turned else (head, relation, tail, weight)


def _name(uri, names):
    term = uri.split(b"/", 4)[3]
    if term not in names:
        name = term.decode("utf-8", "replace").lower()
        letters = name.replace("_", "").replace("-", "")
        names[term] = name if letters.isalpha() and is_concept(name) else None
    return names[term]


def _short(line):
    return repr(line[:100].decode("utf-8", "replace").rstrip())
