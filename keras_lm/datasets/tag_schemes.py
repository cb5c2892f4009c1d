"""Schemes of word tags that mark spans: BIO, IOB1, BIOES, BILOU, BMES, and plain classes."""

import re
from collections.abc import Sequence

OUTSIDE = "O"
# Each letter of a scheme → that of BIOES or BILOU which means the same.
LETTERS = {letter: letter for letter in "BIELSU"} | {"M": "I", "W": "S"}
TAG = rf"([{''.join(LETTERS)}])[-_](.+)"


def is_plain(class_names):
    """Return whether classes are names of entities themselves, such as `PER` and `O`."""
    inner = [name for name in class_names or [] if name != OUTSIDE]
    tagged = [name for name in inner if re.match(TAG, name, re.DOTALL)]
    is_scheme = any(re.match("[BI]-.", name) for name in inner)
    # (`B_cell` beside `T_cell` is the name of an entity.)
    is_scheme |= tagged == inner and any(re.match("[BISU][-_].", name) for name in inner)
    return bool(inner) and not is_scheme


def parts_of(label):
    """Return the letter of a label, as in BIOES or BILOU, and its class; "" and "" outside."""
    match = re.fullmatch(TAG, label, re.DOTALL)
    return (LETTERS[match[1]], match[2]) if match else ("", "")


def marks_entities(class_names):
    """Return whether some class marks an entity; plain ones do so beside an `O`."""
    if is_plain(class_names):
        return OUTSIDE in class_names
    return bool(entity_spans(class_names or []))


def entity_spans(labels, scheme=None, plain=False):
    """Return the entities that the labels of words mark, as (class, start, exclusive end).

    `B-X` begins an entity of class X; `I-X` continues it or, after anything else, begins one, as in
    the CoNLL evaluation. In the richer schemes, `M-X` continues an entity as well, `E-X` and `L-X`
    end it, and `S-X`, `U-X` and `W-X` mark an entity of one word. `_` may stand for `-`. All other
    labels are outside of entities. With `plain`, see `is_plain`, all labels but `O` and the empty
    one are classes, and equal ones are one entity.

    With `scheme`, `"BIO"` or `"BIOES"`, only entities that are complete in it count, as in
    seqeval's strict mode: they begin with `B-X` and, in `"BIOES"`, end with `E-X` or are a single
    `S-X`. Plain entities are all complete.

    Source: Tjong Kim Sang and De Meulder 2003, https://aclanthology.org/W03-0419; seqeval,
    https://github.com/chakki-works/seqeval; for plain labels, the token classification pipeline of
    transformers with `aggregation_strategy="simple"`.
    """
    if plain:
        labels, scheme = (
            [label if label in ("", OUTSIDE) else f"I-{label}" for label in labels],
            None,
        )
    spans, is_open, prefixes = [], False, []
    for position, label in enumerate(labels):
        prefix, name = parts_of(label)
        if not name:
            is_open = False
            continue
        if is_open and prefix in tuple("IEL") and name == spans[-1][0]:
            spans[-1] = (name, spans[-1][1], position + 1)
            prefixes[-1] += prefix
        else:
            spans.append((name, position, position + 1))
            prefixes.append(prefix)
        is_open = prefix in tuple("BI")
    if scheme is None:
        return spans
    whole = {"BIO": "BI*", "BIOES": "BI*[EL]|[SU]"}[scheme]
    return [s for s, letters in zip(spans, prefixes, strict=True) if re.fullmatch(whole, letters)]


def tags_of(spans, length, scheme="BIO"):
    """Return the labels of `length` words that mark spans; the inverse of `entity_spans`.

    Args:
        spans: list of (class, start, exclusive end); if two overlap, the later one wins.
        length: int, the number of words.
        scheme: `"BIO"` or `"BIOES"`.

    Raises:
        ValueError: if `scheme` is neither.
    """
    if scheme not in ("BIO", "BIOES"):
        raise ValueError(f"scheme={scheme!r}: use 'BIO' or 'BIOES'.")
    tags = ["O"] * length
    for name, start, end in spans:
        inner = [f"I-{name}"] * (end - start - 1)
        tags[start:end] = [f"B-{name}", *inner]
        if scheme == "BIOES":
            tags[end - 1] = f"E-{name}" if inner else f"S-{name}"
    return tags


def convert_tags(labels: Sequence[str], scheme: str = "BIO") -> list[str]:
    """Convert the labels of words to another scheme.

    Args:
        labels: list of str, in any scheme: BIO, BIOES, BILOU, BMES, or IOB1, that of CoNLL-2003's
            files.
        scheme: `"BIO"` or `"BIOES"`.

    Example:

        keras_lm.data.convert_tags(["I-PER", "I-PER", "O", "I-LOC"], "BIOES")
        # ["B-PER", "E-PER", "O", "S-LOC"]
    """
    return tags_of(entity_spans(labels), len(labels), scheme)


def scheme_of(class_names):
    """Return `"BIOES"` if a class marks the end of entities, else `"BIO"`."""
    return "BIOES" if any(parts_of(name)[0] in tuple("ESLU") for name in class_names) else "BIO"
