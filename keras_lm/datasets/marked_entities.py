"""Texts with entities to type or to relate, which stand between marks that any model reads.

The marks are those of thunlp/ERNIE: `# … #` around the head of a relation, `$ … $` around its tail,
and `。 … 。` around a mention to type. Places are in characters, `text[start:end]`.
"""

import collections
import itertools
import json

from keras_lm.datasets.coreference import check_place
from keras_lm.datasets.text_lines import json_rows, json_value, undecoded
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import as_path
from keras_lm.utils.input_files import not_utf8

HEAD, TAIL, ENTITY = "#", "$", "。"
BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


def mark_relation(text: str, head: tuple[int, int], tail: tuple[int, int]) -> str:
    """Return a text with marks around the head and the tail of a relation.

    Args:
        text: str.
        head, tail: (start, end), in characters.

    Raises:
        ValueError: if one is not within the text, or they overlap.

    Example:

        mark_relation("Ada wrote to Babbage.", (0, 3), (13, 20))  # "# Ada # wrote to $ Babbage $."
    """
    if head[0] < tail[1] and tail[0] < head[1]:
        raise ValueError(f"head={tuple(head)} and tail={tuple(tail)} overlap.")
    return _mark(text, [(head, HEAD), (tail, TAIL)])


def mark_entity(text: str, mention: tuple[int, int]) -> str:
    """Return a text with marks around a mention, for a model that predicts its types.

    Args:
        text: str.
        mention: (start, end), in characters.

    Raises:
        ValueError: if it is not within the text.

    Example:

        mark_entity("Ada wrote.", (0, 3))  # "。 Ada 。 wrote."
    """
    return _mark(text, [(mention, ENTITY)])


def _mark(text, places):
    for (start, end), mark in sorted(places, reverse=True):  # the last first
        check_place((start, end), len(text), unit="characters")
        text = f"{text[:start]}{mark} {text[start:end]} {mark}{text[end:]}"
    return text


def read_mentions(path: PathLike, least_score: float = 0.3) -> dict[str, str]:
    """Return which entity each mention is, as an `EntityTokenizer` takes it, from a published file.

    Args:
        path: str or path of FewRel, TACRED, FIGER or Open Entity as thunlp/ERNIE distributes them,
            with entities that TAGME found, or of FewRel's own file.
        least_score: float. Entities that TAGME is less sure of are left out.

    Returns:
        dict of str → str: of each mention the entity that it is most often, such as
        `{"London": "Q84"}`.

    Raises:
        ValueError: see `read_published`.
    """
    counts = collections.defaultdict(collections.Counter)
    path = as_path(path)
    with open(path, "rb") as stream:
        for place, row in _objects(str(path), stream):
            try:
                entities = _entities_of(row)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise _error(str(path), place, error) from error
            for text, (id, start, end, *score) in entities:
                start = 0 if start == 1 else start
                if id[:1] == "Q" and (not score or score[0] > least_score):
                    counts[" ".join(text[start:end].split())][id] += 1
    counts.pop("", None)
    return {text: ids.most_common(1)[0][0] for text, ids in counts.items()}


def _entities_of(row):
    """Yield a text and an entity in it, (id, start, end, score), for each one of a row."""
    if "tokens" in row and "h" in row:
        return [(row[key][0], (row[key][1], 0, None)) for key in ("h", "t")]
    text = row["text"] if "text" in row else row["sent"]
    return [(text, entity) for entity in [*row.get("ents", ()), *(row.get("ann") or ())]]


# === The files of published sets ===


def relation_rows(name, stream):
    """Yield (number, row) of relations: marked texts, and the relation as the label."""
    return _rows(name, stream, _relations)


def typing_rows(name, stream):
    """Yield (number, row) of mentions to type: marked texts, and a list of types as the label."""
    return _rows(name, stream, _typed)


def _rows(name, stream, read):
    numbers = itertools.count(1)
    for place, fields in _objects(name, stream):
        try:
            for row in read(fields):
                yield next(numbers), row
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            yield next(numbers), _error(name, place, error)


def _error(name, place, error):
    reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
    return ValueError(f"{name}, {place}: {reason}")


def _objects(name, stream):
    """Yield (place, dict) of JSONL, of a JSON list, or of FewRel's object of lists by relation."""
    lines = undecoded(name, stream)
    first = next(lines, (1, b""))
    begin = first[1].strip()
    try:
        is_row = begin.startswith(b"{") and not _is_fewrel(json.loads(begin))
    except (ValueError, RecursionError):
        is_row = False
    if is_row:
        for line, row in json_rows(name, itertools.chain([first], lines)):
            if isinstance(row, Exception):
                raise row
            yield f"line {line}", row
        return
    content = b"".join(line for _, line in itertools.chain([first], lines))
    try:
        objects = json_value(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise not_utf8(name, content.count(b"\n", 0, error.start) + 1, error) from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}.") from error
    if isinstance(objects, dict) and _is_fewrel(objects):
        for relation, rows in objects.items():
            for number, row in enumerate(rows, start=1):
                yield f"{relation}[{number}]", {"label": relation, **row}
    elif isinstance(objects, list):
        for number, row in enumerate(objects, start=1):
            yield f"example {number}", row
    else:
        raise ValueError(f"{name}: the file must be a list of objects, or an object in each line.")


def _is_fewrel(objects):
    """Whether all values are lists of objects: those of a relation."""
    return all(
        isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
        for rows in objects.values()
    )


def _relations(row):
    """Yield a relation's row, or None if its head and tail overlap, which no marks can show."""
    label = row.get("relation", row.get("label"))
    if "tokens" in row:  # FewRel: name, entity, and the positions of each mention
        words = row["tokens"]
        head, tail = ((row[key][2][0][0], row[key][2][0][-1]) for key in ("h", "t"))
    elif "token" in row:  # TACRED
        words = [BRACKETS.get(word, word) for word in row["token"]]
        head, tail = ((row[f"{key}_start"], row[f"{key}_end"]) for key in ("subj", "obj"))
    if "tokens" in row or "token" in row:
        text, starts = _joined(words)
        head, tail = (
            (starts[first], starts[last] + len(words[last])) for first, last in (head, tail)
        )
    elif "ents" in row:  # as thunlp/ERNIE distributes both; a 1 means 0 there
        text = row["text"]
        head, tail = ((0 if ent[1] == 1 else ent[1], ent[2]) for ent in row["ents"])
    else:
        text, head, tail = row["text"], tuple(row["head"]), tuple(row["tail"])
    if head[0] < tail[1] and tail[0] < head[1]:
        yield None
        return
    example = {"text": mark_relation(text, head, tail), "labels": _name(label)}
    yield example | ({"id": str(row["id"])} if "id" in row else {})


def _typed(row):
    """Yield a row for each mention to type."""
    if "mentions" in row:  # FIGER, whose mentions are in words
        text, starts = _joined(row["tokens"])
        for entry in row["mentions"]:
            last = entry["end"] - 1
            place = starts[entry["start"]], starts[last] + len(row["tokens"][last])
            yield {"text": mark_entity(text, place), "labels": _names(entry["labels"])}
        return
    if "mention_span" in row:  # Open Entity
        left, right = (" ".join(row[f"{side}_context_token"]) for side in ("left", "right"))
        mention = row["mention_span"]
        text = " ".join(part for part in (left, mention, right) if part)
        start = len(left) + bool(left)
        place, labels = (start, start + len(mention)), row.get("y_str")
    elif "sent" in row:  # as thunlp/ERNIE distributes both
        text, place, labels = row["sent"], (row["start"], row["end"]), row.get("labels")
    else:
        text, place, labels = row["text"], tuple(row["mention"]), row.get("labels")
    example = {"text": mark_entity(text, place), "labels": _names(labels)}
    yield example | ({"id": row["annot_id"]} if "annot_id" in row else {})


def _joined(words):
    """Return the text of words, and where each one begins."""
    starts = [0, *itertools.accumulate(len(word) + 1 for word in words)]
    return " ".join(words), starts


def _name(label):
    if label is None or (isinstance(label, str) and label.strip()):
        return label
    raise ValueError(f"the label is {json.dumps(label)[:40]}, not the name of a relation.")


def _names(labels):
    if labels is None or (isinstance(labels, list) and all(map(_name, labels))):
        return labels
    raise ValueError(f"the labels are {json.dumps(labels)[:40]}, not a list of types.")
