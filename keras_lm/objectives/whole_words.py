"""Words among the tokens of a batch, and random choices of them, in static shapes.

Shapes: B batch, S sequence, V vocabulary, W = S places for words, the last ones of length 0.
"""

from keras import ops

PASSES = 4  # over the words; the rest of the budget is then below the shortest word that is left


def word_starts(token_ids, begins_word, ends_word):
    """Return which tokens (B, S) begin a word, (B, S) bool; the first of a row always does.

    `begins_word` and `ends_word` (V,) are from `keras_lm.tokenizers.Tokenizer`: the tokens that
    always begin a word, and those after which a word begins.
    """
    after = ops.take(ends_word, token_ids[:, :-1], axis=0)
    after = ops.concatenate([ops.ones_like(token_ids[:, :1], dtype="bool"), after], axis=1)
    return ops.logical_or(after, ops.take(begins_word, token_ids, axis=0))


def choose_words(starts, available, wanted, chance):
    """Choose whole words at random, up to `wanted` tokens (B, 1).

    As in BERT's code, words are visited in random order, and words that no longer fit are skipped.
    `starts` and `available` (B, S) say which tokens begin a word, and which may be chosen; tokens
    that may not separate words. `chance` (B, S) is uniform in [0, 1). Returns all columns of the
    row (B, S), the chosen ones first and those of a word in order, and the number of chosen tokens,
    (B, 1) float32.
    """
    word, size, order = _shuffled_words(starts, available, chance)
    length = ops.shape(starts)[1]
    place = _places(starts)
    size = ops.take_along_axis(size, order, axis=1)

    taken, number = ops.zeros_like(starts), ops.zeros_like(wanted)
    for _ in range(PASSES):
        fits = ops.logical_and(size <= wanted - number, ops.logical_not(taken))
        together = ops.cumsum(ops.where(fits, size, 0.0), axis=1)
        fits = ops.logical_and(fits, together <= wanted - number)
        taken = ops.logical_or(taken, fits)
        number = number + ops.sum(ops.where(fits, size, 0.0), axis=1, keepdims=True)

    rank = ops.argsort(order, axis=1)  # (B, W): the place of each word in the order
    first = ops.where(taken, place, length)  # (B, W) in order: the others come last
    key = ops.take_along_axis(ops.take_along_axis(first, rank, axis=1), word, axis=1)  # (B, S)
    # A single key for word and column, because sorting may not be stable.
    return ops.argsort(key * length + place, axis=1), number


def choose_runs(starts, available, wanted, chance, lengths, overlap):
    """Choose runs of whole words at random, up to `wanted` tokens (B, 1).

    Words are visited in random order. A run begins at each, with `lengths` (B, W) words, or fewer
    if the text ends or `wanted` would be exceeded. With `overlap`, a run may continue over words
    that are chosen already, which cost nothing, but not begin with one; without, such runs are
    skipped. Adjacent runs are always allowed.

    `starts`, `available` and `chance` are as in `choose_words`. Returns all columns of the row
    (B, S), the chosen ones first, both in order, and the number of chosen tokens, (B, 1) float32.
    """
    word, size, order = _shuffled_words(starts, available, chance)
    length = ops.shape(starts)[1]
    place = _places(starts)
    too_long = ops.cast(length + 1, "float32")

    def goes_on(visited, taken, number):
        smallest = ops.min(ops.where(taken, too_long, size), axis=1, keepdims=True)
        return ops.logical_and(visited < length, ops.any(smallest <= wanted - number))

    def visit(visited, taken, number):
        anchor = ops.take(order, visited, axis=1)[:, None]  # (B, 1)
        last = anchor + ops.take_along_axis(lengths, anchor, axis=1)
        run = ops.logical_and(place >= anchor, place < last)  # (B, W)
        new = ops.logical_and(run, ops.logical_not(taken))
        # Tokens outside of words are too long for any row, so they end the run, like the budget.
        together = ops.cumsum(ops.where(new if overlap else run, size, 0.0), axis=1)
        run = ops.logical_and(run, together <= wanted - number)
        old = ops.logical_and(run, taken)
        if overlap:
            old = ops.logical_and(old, ops.equal(place, anchor))
        run = ops.logical_and(run, ops.logical_not(ops.any(old, axis=1, keepdims=True)))
        new = ops.logical_and(run, new)
        number = number + ops.sum(ops.where(new, size, 0.0), axis=1, keepdims=True)
        return visited + 1, ops.logical_or(taken, run), number

    state = (0, ops.zeros_like(starts), ops.zeros_like(wanted))
    _, taken, number = ops.while_loop(goes_on, visit, state)
    chosen = ops.take_along_axis(taken, word, axis=1)  # (B, S)
    return ops.argsort(ops.where(chosen, place, length + place), axis=1), number


def _places(starts):
    length = ops.shape(starts)[1]
    return ops.broadcast_to(ops.arange(length, dtype="int32")[None, :], ops.shape(starts))


def _shuffled_words(starts, available, chance):
    """Return the word of each token (B, S), the words' sizes and a random order of them, (B, W).

    A size is the number of tokens, float32. Places without a word, and words that may not be
    chosen, have the size S + 1 and come last in the order.
    """
    length = ops.shape(starts)[1]
    before = ops.concatenate([ops.zeros_like(available[:, :1]), available[:, :-1]], axis=1)
    starts = ops.logical_or(starts, ops.logical_not(ops.logical_and(available, before)))
    place = _places(starts)
    word = ops.cumsum(ops.cast(starts, "int32"), axis=1) - 1  # (B, S): the word of each token

    begin = ops.sort(ops.where(starts, place, length), axis=1)  # (B, W), `length` where none is
    size = ops.pad(begin[:, 1:], [[0, 0], [0, 1]], constant_values=0)
    size = ops.where(place == length - 1, length, size) - begin  # (B, W)
    is_word = ops.take_along_axis(available, ops.minimum(begin, length - 1), axis=1)
    is_word = ops.logical_and(is_word, size > 0)
    order = ops.argsort(ops.where(is_word, chance, 2.0), axis=1)  # (B, W): words, shuffled
    return word, ops.cast(ops.where(is_word, size, length + 1), "float32"), order
