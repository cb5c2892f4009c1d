"""Documents of tokens → the one or two segments of rows, in the forms of `pretraining_rows`.

A document is a list of sentences, each an int32 array of at least one token. A form is a function
`(documents, layout)`: it yields `(first, second, label)`, where `second` may be empty.
"""

import dataclasses
import itertools
import random
from collections import deque

import numpy as np

DOCUMENTS_OPEN = 256  # from which `next_sentence` draws second segments
NOTHING = np.zeros(0, "int32")


@dataclasses.dataclass
class Layout:
    """What a form needs to know about rows.

    Args:
        room: int. The number of tokens in a row without special tokens.
        short_share, single_share: see `pretraining_rows`.
        separator: int. Id of the token between documents in one row.
        draw: `random.Random`, which draws the same numbers in all versions of Python.
    """

    room: int
    short_share: float
    single_share: float
    separator: int | None
    draw: random.Random

    def target(self):
        """Return the target length of a row, in tokens."""
        is_short = self.draw.random() < self.short_share
        return self.draw.randint(2, self.room) if is_short else self.room


def single(documents, layout):
    """Yield stretches of documents, cut anywhere."""
    for document in documents:
        tokens = np.concatenate(document)
        while tokens.size:
            target = layout.target()
            yield tokens[:target], NOTHING, 0
            tokens = tokens[target:]


def doc_sentences(documents, layout):
    """Yield whole sentences of one document each."""
    for document in documents:
        for row in _whole_sentences([document], layout):
            yield np.concatenate(row), NOTHING, 0


def full_sentences(documents, layout):
    """Yield whole sentences across documents."""
    for row in _whole_sentences(documents, layout):
        yield np.concatenate(row), NOTHING, 0


def segment_pairs(documents, layout):
    """Yield sentences of one document as two consecutive segments."""
    for document in documents:
        for row in _whole_sentences([_cut(document, layout)], layout):
            if len(row) == 1 or layout.draw.random() < layout.single_share:
                yield np.concatenate(row), NOTHING, 0
            else:
                border = layout.draw.randint(1, len(row) - 1)
                yield np.concatenate(row[:border]), np.concatenate(row[border:]), 0


def next_sentence(documents, layout):
    """Yield two segments of one document (label 0) or of two (label 1)."""
    waiting = (deque(_cut(document, layout)) for document in documents)
    opened = []
    while True:
        opened = [document for document in opened if document]
        opened += itertools.islice(waiting, DOCUMENTS_OPEN - len(opened))
        if len(opened) < 2:
            return
        # Drawn by how much is left of each, so that all end at about the same time.
        weights = [len(document) for document in opened]
        (number,) = layout.draw.choices(range(len(opened)), weights)
        document = opened[number]
        target = layout.target()
        sentences = _take(document, target)
        border = layout.draw.randint(1, max(len(sentences) - 1, 1))
        first, second = sentences[:border], sentences[border:]
        label = int(not second or layout.draw.random() < 0.5)
        if label:
            document.extendleft(reversed(second))
            weights[number] = 0
            (other,) = layout.draw.choices(opened, weights)
            while _size(first) + len(other[0]) > layout.room:  # not if `first` is one sentence
                document.appendleft(first.pop())
            second = _take(other, target - _size(first))
        yield np.concatenate(first), np.concatenate(second), label


FORMS = {
    form.__name__: form
    for form in (single, doc_sentences, full_sentences, segment_pairs, next_sentence)
}


def stream_pairs(documents, room, reuse_length, separator, draw):
    """Yield rows of a corpus that is one stream, from its start, then from its end.

    A row has `room` tokens: `reuse_length` of the stream, and what comes after these up to a
    sentence's end, the first segment; the second is what comes then, or from anywhere (in half of
    the rows). The next row begins `reuse_length` tokens later. From the end, all tokens are in
    reverse order.

    Yields:
        (first, second, is_reversed).

    Source: zihangdai/xlnet, `data_utils.py`.
    """
    sentences = []
    for document in documents:
        border = [np.array([separator], "int32")] if sentences else []
        sentences += border + document
    tokens = np.concatenate([NOTHING, *sentences])
    borders = np.cumsum([0, *map(len, sentences)])  # with those of the corpus
    for is_reversed in (0, 1):
        for start in range(0, len(tokens) - room + 1, reuse_length):
            begin = start + reuse_length
            (a, b), (c, d) = _two_segments(borders, begin, room - reuse_length, draw)
            yield tokens[start : begin + b - a], tokens[c:d], is_reversed
        tokens, borders = tokens[::-1], len(tokens) - borders[::-1]


def _two_segments(borders, begin, length, draw):
    """Return where two segments begin and end, of `length` tokens together, the first at `begin`.

    Both are whole sentences, but for the tokens that are too many.
    """
    after = np.searchsorted(borders, begin, "right")
    last = np.searchsorted(borders, begin + length, "left")
    cuts, end = borders[after:last], borders[last]
    first = int(draw.choice(cuts)) if len(cuts) else int(end)
    if not len(cuts) or draw.random() < 0.5:
        number = max(1, length - (first - begin))
        second = draw.randint(0, int(borders[-1]) - 1 - number)
        end = borders[np.searchsorted(borders, second + number, "left")]
        second = int(borders[np.searchsorted(borders, second, "right") - 1])
    else:
        second = first
    both = first - begin, int(end) - second
    # Of too many, the longer one loses its last tokens.
    number = min(both[0], max(length - both[1], (length + 1) // 2))
    return (begin, begin + number), (second, second + length - number)


def _whole_sentences(documents, layout):
    """Yield rows, lists of as many whole sentences as fit, with a separator between documents.

    A row has at least one sentence. Sentences longer than a row are cut at its end.
    """
    row, size, target = [], 0, layout.target()
    for document in documents:
        border = [np.array([layout.separator], "int32")] if row else []
        for sentence in document:
            before = size + len(border)
            fits = before + len(sentence) <= target
            if row and not fits and (len(sentence) <= layout.room or before >= target):
                yield row
                row, size, target, border = [], 0, layout.target(), []
            row += border
            size, border = size + len(border), []
            while size + len(sentence) > layout.room:
                yield [*row, sentence[: layout.room - size]]
                sentence = sentence[layout.room - size :]
                row, size, target = [], 0, layout.target()
            row.append(sentence)
            size += len(sentence)
    if row:
        yield row


def _take(sentences, target):
    """Remove as many sentences as fit, at least one, from a deque; return them as a list."""
    taken = [sentences.popleft()]
    while sentences and _size(taken) + len(sentences[0]) <= target:
        taken.append(sentences.popleft())
    return taken


def _cut(document, layout):
    """Return sentences, the longer ones cut so that any two fit into a row."""
    longest = layout.room // 2
    return [
        sentence[start : start + longest]
        for sentence in document
        for start in range(0, len(sentence), longest)
    ]


def _size(sentences):
    return sum(map(len, sentences))
