"""Packing lists of ids without TensorFlow.

Shapes: B batch, C choices, S sequence, W words of a text.
"""

import numpy as np

from keras_lm.tokenizers import host


def packed(packer, texts):
    """As `Packer.pack`, for lists of ids: numpy arrays (B, S).

    Args:
        packer: `Packer`.
        texts: dict of `text` and, for pairs, `text_pair`: a list of ids for each row.
    """
    pieces = packer._pieces["pair" if len(texts) > 1 else "single"]
    room = packer.sequence_length - sum(not isinstance(piece, str) for piece, _ in pieces)
    rows = []
    for ids in zip(*texts.values(), strict=True):
        lengths = _lengths([len(text_ids) for text_ids in ids], room, packer.truncation)
        cut = {name: _kept(packer, text_ids, n) for name, text_ids, n in zip(texts, ids, lengths)}
        row = [(id, segment) for piece, segment in pieces for id in _ids(piece, cut)]
        rows.append(row)
    columns = packer.sequence_length
    if packer.padding == "longest":
        columns = max(1, *map(len, rows))  # of texts without tokens, a column of padding
    inputs = {
        "token_ids": np.full((len(rows), columns), packer.pad_id, "int32"),
        "segment_ids": np.full((len(rows), columns), packer.template.padding_segment, "int32"),
        "padding_mask": np.zeros((len(rows), columns), "int32"),
    }
    for place, row in enumerate(rows):
        begin = columns - len(row) if packer.template.padding_side == "left" else 0
        here = slice(begin, begin + len(row))
        inputs["token_ids"][place, here] = [id for id, _ in row]
        inputs["segment_ids"][place, here] = [segment for _, segment in row]
        inputs["padding_mask"][place, here] = 1
    return inputs


def packed_choices(packer, columns, tokenize):
    """As `Choices.pack`, for a list of choices for each text: arrays (B, C, S)."""
    rows = [[*choices] for choices in columns["choices"]]
    number = max(map(len, rows))
    rows = [[*choices, *[b""] * (number - len(choices))] for choices in rows]
    texts = [text for text, choices in zip(columns["text"], rows, strict=True) for _ in choices]
    flat = [choice for choices in rows for choice in choices]
    inputs = packed(
        packer,
        {"text": packer.ids(texts, tokenize), "text_pair": packer.ids(flat, tokenize)},
    )
    inputs = {name: value.reshape(len(rows), number, -1) for name, value in inputs.items()}
    inputs["padding_mask"] *= np.array([choice != b"" for choice in flat]).reshape(-1, number, 1)
    return inputs


def side_by_side(parts):
    """As `AnchoredTexts.side_by_side`, for lists of bytes, or of lists of bytes: an array."""
    rows = [
        [text for part in row for text in (part if isinstance(part, list) else [part])]
        for row in zip(*parts, strict=True)
    ]
    number = max(map(len, rows))
    return np.array([row + [b""] * (number - len(row)) for row in rows], object)


def keys(texts):
    """As `AnchoredTexts.keys`, for an array of bytes, whose texts are counted."""
    numbers = {}
    counted = [[numbers.setdefault(text, len(numbers)), 0] for text in texts.ravel()]
    return np.array(counted, "int32").reshape(*texts.shape, 2)


def packed_words(packer, texts, tokenize):
    """As `Words.pack_words`, for a list of words for each text.

    Returns the packed dict, and the column of each word's first piece, (B, W) int32: -1 for words
    without pieces, for truncated ones, and in padding.
    """
    pieces = [tokenize([*words]) if len(words) else [] for words in texts]
    ids = [[id for of_word in row for id in of_word] for row in pieces]
    inputs = packed(packer, {"text": ids})
    template = [piece for piece, _ in packer._pieces["single"]]
    room = packer.sequence_length - (len(template) - 1)
    columns = inputs["padding_mask"].shape[1]
    places = np.full((len(texts), max([1, *map(len, texts)])), -1, "int32")
    for row, of_text in enumerate(pieces):
        kept = min(len(ids[row]), room)
        is_left = packer.template.padding_side == "left"
        begin = columns - kept - (len(template) - 1) if is_left else 0
        place = kept - len(ids[row]) if packer.truncation_side == "left" else 0
        for word, of_word in enumerate(of_text):
            if len(of_word) and 0 <= place < kept:
                places[row, word] = begin + template.index("text") + place
            place += len(of_word)
    return inputs, places


def packed_windows(packer, columns, tokenize):
    """As `Windows.pack`, for questions and contexts: arrays (R, S), and (R,)."""
    rows = packer.rows
    template = [piece for piece, _ in packer._pieces["pair"]]
    is_left = packer.template.padding_side == "left"
    names = ("text_pair", "text") if is_left else ("text", "text_pair")
    windows = {name: [] for name in ("example", "first", *names)}
    contexts = [*zip(*host.places_of(packer.tokenizer, columns["context"]), strict=True)]
    best = []  # of each context, the window (tokens,) where each token has most context
    for example, question in enumerate(packer.ids(columns["question"], tokenize)):
        ids, question = contexts[example][0], question[: rows.question_limit(packer)]
        room = packer.sequence_length - (len(template) - 2) - len(question)
        step = min(rows.stride, room)
        firsts = np.arange(0, max(len(ids) - room, 0) + step, step)
        ends, tokens = np.minimum(firsts + room, len(ids)), np.arange(len(ids))[:, np.newaxis]
        context = 100 * np.minimum(tokens - firsts, ends - 1 - tokens) + ends - firsts
        context = np.where((firsts <= tokens) & (tokens < ends), context, -1)  # (tokens, windows)
        best.append(firsts[context.argmax(axis=1)])
        for first, end in zip(firsts, ends, strict=True):
            values = (example, first, question, ids[first:end])
            for name, value in zip(windows, values, strict=True):
                windows[name].append(value)
    packed_rows = packed(packer, {name: windows[name] for name in ("text", "text_pair")})
    shape = packed_rows["token_ids"].shape
    places = {name: np.full(shape, -1, "int32") for name in ("start", "end")}
    most = np.zeros(shape, "int32")
    for row, (example, first) in enumerate(zip(windows["example"], windows["first"], strict=True)):
        before = template[: template.index(names[1])]
        column = sum(len(windows[p][row]) if isinstance(p, str) else 1 for p in before)
        column += is_left * (shape[1] - packed_rows["padding_mask"][row].sum())
        number = len(windows[names[1]][row])
        here, tokens = slice(column, column + number), slice(first, first + number)
        places["start"][row, here], places["end"][row, here] = (
            bounds[tokens] for bounds in contexts[example][1:]
        )
        most[row, here] = best[example][tokens] == first
    example = np.array(windows["example"], "int32")
    return packed_rows | places | {"example": example, "max_context": most}


def _kept(packer, ids, length):
    begin = len(ids) - length if packer.truncation_side == "left" else 0
    return ids[begin : begin + length]


def _ids(piece, texts):
    return texts[piece] if isinstance(piece, str) else [piece]


def _lengths(lengths, room, truncation):
    """Return how many ids of one text, or of two, are kept; see `Packer`."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    first, second = lengths
    over = max(first + second - room, 0)
    if truncation == "only_first":
        cut = min(over, first)
        return [first - cut, second - (over - cut)]
    if truncation == "only_second":
        cut = min(over, second)
        return [first - (over - cut), second - cut]
    if truncation == "halves" and first <= second:
        return [*reversed(_lengths([second, first], room, "longest_first"))]
    # From the end of the longer text until both are alike, then in turns, the second one first.
    for _ in range(over):
        if first > second:
            first -= 1
        else:
            second -= 1
    return [first, second]
