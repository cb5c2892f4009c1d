"""From a label for each word to named entities."""

import numpy as np

from keras_lm.datasets.tag_schemes import LETTERS, OUTSIDE, TAG, entity_spans
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import offsets, strings


def entities_of(answer, texts, plain=False):
    """Return the entities of what `TokenClassifier.tag` answered; `texts` are (B,) strings.

    For `plain` see `keras_lm.datasets.tag_schemes.is_plain`.
    """
    found = []
    for row, labels in enumerate(answer["labels"]):
        found.append([])
        for label, first, end in entity_spans(labels, plain=plain):
            entity = {"label": label, "score": float(np.mean(answer["scores"][row][first:end]))}
            if "start" in answer:
                start, stop = answer["start"][row][first], answer["end"][row][end - 1]
                text = texts[row].numpy().decode("utf-8", "replace")
                entity |= {"text": text[start:stop], "start": start, "end": stop}
            else:
                text = " ".join(answer["tokens"][row][first:end])
                entity |= {"text": text, "start": first, "end": end}
            found[-1].append(entity)
    return found


def classes_in_parts(class_names):
    """Return the classes of words that share a token of a class, (C, 4) int32.

    They are those of a word that has the token alone, and of the first of several words, those
    within, and the last: of a token with `B-X`, the first word begins an entity, and all others
    continue it.
    """
    numbers = {name: number for number, name in enumerate(class_names)}
    parts = {"B": "BBII", "E": "EIIE", "L": "LIIL", "S": "SBIE", "U": "UBIL", "W": "WBIE"}
    found = []
    for name, number in numbers.items():
        prefixes = parts.get(name[0], "") if name[1:2] in ("-", "_") else ""
        if "M" + name[1:] in numbers:
            prefixes = prefixes.replace("I", "M")
        found.append([numbers.get(p + name[1:], number) for p in prefixes] or [number] * 4)
    return np.array(found, "int32")


def tag_rules(class_names, scheme):
    """Return which classes may follow each other, (C, C), begin a text and end one, (C,) each.

    They are arrays of 0 and 1; in the first, a row is the class before. `scheme` is `"bio"` or
    `"bioes"`. ValueError if a name is not of it, or one of its class is missing.
    """
    names = list(class_names or [])
    prefixes = ("B-", "I-", "E-", "S-") if scheme == "bioes" else ("B-", "I-")
    types = {name[2:] for name in names if name[:2] in prefixes[1:] or scheme == "bioes"} - {""}
    strange = [name for name in names if name != "O" and name[:2] not in prefixes]
    missing = [p + kind for kind in types for p in prefixes if p + kind not in names and p != "I-"]
    if not names or strange or missing:
        wanted = " and ".join(f"{prefix}X" for prefix in prefixes)
        raise ValueError(
            f"crf={scheme!r}, but class_names={class_names}: pass O, and for each class X its "
            f"{wanted}, or crf=True."
        )
    goes_on = [name[:2] in ("I-", "E-") for name in names]
    is_open = [name[:2] in ("B-", "I-") for name in names]
    must_end = np.array(is_open) & (scheme == "bioes")
    start = 1.0 - np.array(goes_on)
    transitions = np.where(must_end[:, np.newaxis], 0.0, start)
    for before, one in enumerate(names):
        for after, other in enumerate(names):
            if is_open[before] and goes_on[after] and one[2:] == other[2:]:
                transitions[before, after] = 1.0
    return tuple(x.astype("float32") for x in (transitions, start, 1.0 - must_end))


def entities_in_graph(text, answer, plain=False):
    """Return the entities that an answer's labels mark in strings (B,), in the graph: (B, E) each.

    `text`, `labels` (the classes), `scores` (the mean of the words'), and `start` and `end`, in
    characters; rows are padded with empty strings and zeros. See `entity_spans` for the labels.

    Args:
        text: (B,) strings.
        answer: dict of `labels`, `scores`, `start` and `end`, (B, W), of the words.
        plain: bool, see `keras_lm.datasets.tag_schemes.is_plain`.
    """
    labels, scores = answer["labels"], answer["scores"]
    if plain:
        labels = tf.where((labels == "") | (labels == OUTSIDE), OUTSIDE, "I-" + labels)
    is_in = tf.strings.regex_full_match(labels, f"(?s:{TAG})")  # (B, W)
    names = tf.strings.regex_replace(labels, f"^[{''.join(LETTERS)}][-_]", "")
    opens = tf.strings.regex_full_match(labels, "[BIM][-_](?s:.+)")
    goes_on = tf.strings.regex_full_match(labels, "[IMEL][-_](?s:.+)")
    same = opens[:, :-1] & goes_on[:, 1:] & (names[:, :-1] == names[:, 1:])
    first = is_in & ~tf.pad(same, [[0, 0], [1, 0]])[:, : tf.shape(labels)[1]]
    last = is_in & ~tf.pad(same, [[0, 0], [0, 1]])[:, : tf.shape(labels)[1]]

    def at(x, mask):
        return tf.ragged.boolean_mask(x, mask)

    sums = tf.cumsum(scores, axis=1)
    words = tf.broadcast_to(tf.range(tf.shape(labels)[1]), tf.shape(labels))
    number = tf.cast(at(words, last) - at(words, first) + 1, scores.dtype)
    total = at(sums, last) - at(sums - scores, first)
    start, end = at(answer["start"], first).to_tensor(), at(answer["end"], last).to_tensor()
    return {
        "text": offsets.substrings(strings.valid_utf8(text), start, end),
        "labels": at(names, first).to_tensor(),
        "scores": (total / number).to_tensor(),
        "start": start,
        "end": end,
    }
