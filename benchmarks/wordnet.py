"""WordNet as a graph of concepts, where ConceptNet is not to be had.

    python benchmarks/wordnet.py FOLDER STORE

FOLDER has WordNet's `data.noun`, `data.verb`, `data.adj` and `data.adv`, as Debian's package
`wordnet-base` puts them into /usr/share/wordnet. Its pointers become ConceptNet's relations.
WordNet knows what things are and consist of, and hardly where they are or what they are used for.
"""

import argparse
import re
from pathlib import Path

from keras_lm.knowledge import ConceptStore
from keras_lm.knowledge.conceptnet import RELATIONS
from keras_lm.knowledge.stop_words import is_concept

PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
# A pointer → the relation; of the last, the word that it points to is made of this one.
POINTERS = {
    **{"@": "IsA", "@i": "IsA", "#m": "PartOf", "#p": "PartOf", "!": "Antonym", "&": "RelatedTo"},
    **{"+": "RelatedTo", "*": "HasSubevent", ">": "Causes", "#s": "MadeOf"},
}
TURNED = "#s"
WORDS_OF_A_SET = 2  # that get the edges of their set of synonyms; the others lead to the first


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("store")
    options = parser.parse_args()
    store = ConceptStore.build(edges(options.folder), options.store)
    print(f"{store.num_concepts - 1:,} concepts, {store.num_edges // 2:,} edges")


def edges(folder):
    """Yield (head, number of the relation, tail, weight)."""
    words, pointers = {}, []  # by the set's place in its file, and part of speech
    for part, letter in PARTS.items():
        for line in (folder / f"data.{part}").open(encoding="latin-1"):
            if not line.startswith("  "):  # the licence
                read_set(line.split("|")[0].split(), letter, words, pointers)
    for names in words.values():
        for name in names[1:]:
            yield names[0], number("RelatedTo"), name, 2.0
    for at, symbol, to in pointers:
        for head in words[at][:WORDS_OF_A_SET]:
            for tail in words.get(to, [])[:WORDS_OF_A_SET]:
                ends = (tail, head) if symbol == TURNED else (head, tail)
                if head != tail:
                    yield ends[0], number(POINTERS[symbol]), ends[1], 1.5


def read_set(fields, letter, words, pointers):
    """Note the words and pointers of a line: place, …, number of words, words, pointers."""
    at, end = (fields[0], letter), 4 + 2 * int(fields[3], 16)
    names = [re.sub(r"\(.*\)", "", name).lower() for name in fields[4:end:2]]
    names = [name for name in names if re.fullmatch("[a-z_-]+", name) and is_concept(name)]
    words[at] = list(dict.fromkeys(names))
    for start in range(end + 1, end + 1 + 4 * int(fields[end]), 4):
        symbol, place, part, _ = fields[start : start + 4]
        if symbol in POINTERS:
            pointers.append((at, symbol, (place, part.replace("s", "a"))))


def number(relation):
    return RELATIONS.index(relation) + 1


if __name__ == "__main__":
    main()
