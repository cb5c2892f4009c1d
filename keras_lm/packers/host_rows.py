"""Packing lists of ids where TensorFlow is not installed. Shapes: B batch, S sequence."""

import numpy as np


def packed(packer, texts):
    """Return what `Packer.pack` does of ragged ids, as numpy arrays (B, S).

    Args:
        packer: `Packer`.
        texts: dict of `text` and, for pairs, `text_pair`: a list of ids for each row.
    """
    pieces = packer._pieces["pair" if len(texts) > 1 else "single"]
    room = packer.sequence_length - sum(not isinstance(piece, str) for piece, _ in pieces)
    rows = []
    for ids in zip(*texts.values(), strict=True):
        lengths = _lengths([len(each) for each in ids], room, packer.truncation)
        cut = {name: each[:n] for name, each, n in zip(texts, ids, lengths)}
        row = [(id, segment) for piece, segment in pieces for id in _ids(piece, cut)]
        rows.append(row)
    columns = packer.sequence_length
    if packer.padding == "longest":
        columns = max(1, *map(len, rows))  # of texts without tokens, a column of padding
    found = {
        "token_ids": np.full((len(rows), columns), packer.pad_id, "int32"),
        "segment_ids": np.full((len(rows), columns), packer.template.padding_segment, "int32"),
        "padding_mask": np.zeros((len(rows), columns), "int32"),
    }
    for place, row in enumerate(rows):
        begin = columns - len(row) if packer.template.padding_side == "left" else 0
        here = slice(begin, begin + len(row))
        found["token_ids"][place, here] = [id for id, _ in row]
        found["segment_ids"][place, here] = [segment for _, segment in row]
        found["padding_mask"][place, here] = 1
    return found


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
    # From the end of the longer text until both are alike, then in turns, the second one first.
    for _ in range(over):
        if first > second:
            first -= 1
        else:
            second -= 1
    return [first, second]
