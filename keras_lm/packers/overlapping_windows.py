"""Windows of long texts. Shapes: B batch, R windows of all examples, S sequence."""

import tensorflow as tf

from keras_lm.packers.rows import Texts
from keras_lm.tokenizers import ragged
from keras_lm.tokenizers.places import tokens_and_places


class Windows(Texts):
    """A question makes a row with each overlapping window of its context, for question answering.

    Args:
        stride: int. Tokens from the start of a window to that of the next.
        max_question_length: int. Longer questions are truncated to this many tokens, which must
            leave room for the context. None for 64, or for half of the room if that is less.

    Packing returns the rows (R, S) of all examples one after the other, and besides the model's
    inputs `example` (R,), the index of each window's example; `start` and `end` (R, S), the
    offsets of each context token in characters, -1 for all other tokens; and `max_context` (R, S),
    1 where a context token has more context in this window than in the others, in one of them
    each. All are int32. Only operations that LiteRT has are used.

    Raises:
        ValueError: if `stride` or `max_question_length` is less than 1; in packing, if a question
            of that length leaves no room for its context.

    Example:

        packer = Packer(BertBackbone.TEMPLATE, tokenizer, 384, rows=Windows())
        packer({"question": tf.constant(["Who?"]), "context": tf.constant(["a long text"])})

    Source: BERT, https://arxiv.org/abs/1810.04805, section 4.2; google-research/bert,
    `run_squad.py`, `convert_examples_to_features`.
    """

    names = required = ("question", "context")

    def __init__(self, stride=128, max_question_length=None):
        super().__init__()
        for name, value in (("stride", stride), ("max_question_length", max_question_length)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: pass 1 or more.")
        self.stride = stride
        self.max_question_length = max_question_length

    def pack(self, packer, columns, tokenize=None, find=tokens_and_places):
        """Return the packed windows; `find` replaces `tokens_and_places`, for contexts."""
        questions = packer.ids(columns["question"], tokenize)
        ids, starts, ends = find(packer.tokenizer, columns["context"])
        of_question, room, step, windows = self._sizes(packer, questions, ids)  # (B,)
        number = tf.cast(ids.row_lengths(), tf.int32)
        example, place = _places_in_rows(windows)  # (R,)
        begin = place * tf.gather(step, example)
        number, room, step = (tf.gather(x, example) for x in (number, room, step))
        length = tf.minimum(room, number - begin)
        first = tf.gather(_row_starts(ids), example) + begin
        texts = {
            "text": parts_of_rows(
                questions,
                tf.gather(_row_starts(questions), example),
                tf.gather(of_question, example),
            ),
            "text_pair": parts_of_rows(ids, first, length),
        }
        packed = packer.pack(**texts)
        column, kept = packer.spans(**texts)["text_pair"]
        offset = tf.range(tf.shape(packed["padding_mask"])[1]) - column[:, tf.newaxis]  # (R, S)
        inside = (offset >= 0) & (offset < kept[:, tf.newaxis])
        index = tf.where(inside, first[:, tf.newaxis] + offset, 0)

        def at(places):
            values = tf.concat([tf.cast(places.values, tf.int32), [0]], axis=0)  # never empty
            return tf.where(inside, tf.gather(values, index), -1)

        best = _best_windows(offset + begin[:, tf.newaxis], number, room, step)
        return packed | {
            "example": example,
            "start": at(starts),
            "end": at(ends),
            "max_context": tf.cast(inside & (best == place[:, tf.newaxis]), tf.int32),
        }

    def count(self, packer, columns):
        """Return how many windows each example has, (B,); finds no places, which takes longest."""
        questions, contexts = (packer.ids(columns[name]) for name in self.names)
        return self._sizes(packer, questions, contexts)[-1]

    def _sizes(self, packer, questions, contexts):
        """Return the tokens of questions, and room, step and number of windows, (B,) each."""
        lengths = tf.cast(questions.row_lengths(), tf.int32)
        lengths = tf.minimum(lengths, self._limit(packer))
        room = packer.sequence_length - packer.number_of_special_tokens("pair") - lengths
        step = tf.minimum(self.stride, room)
        # The last window of a text is the first to reach its end; one without tokens has one.
        number = tf.cast(contexts.row_lengths(), tf.int32)
        return lengths, room, step, 1 + (tf.maximum(number - room, 0) + step - 1) // step

    def _limit(self, packer):
        """Return how many tokens of a question are kept."""
        room = packer.sequence_length - packer.number_of_special_tokens("pair")
        if self.max_question_length is None:
            if room < 2:
                raise ValueError(
                    f"sequence_length={packer.sequence_length} leaves no room for a question and a "
                    f"context: pass {packer.sequence_length - room + 2} or more."
                )
            return min(64, room // 2)
        if self.max_question_length >= room:
            raise ValueError(
                f"max_question_length={self.max_question_length} leaves no room for a context in "
                f"sequence_length={packer.sequence_length}: pass less than {room}."
            )
        return self.max_question_length


def _best_windows(tokens, number, room, step):
    """Return the place of the window in which each token has the most context, (R, S).

    Context is the smaller number of tokens on either side, and a hundredth of the window's length;
    of equal windows the first counts. `tokens` (R, S) are places in the context, of which a window
    starts at each `step` and holds `room`, the last one fewer; (R,) each.
    """
    number, room, step = (x[:, tf.newaxis] for x in (number, room, step))
    last = (tf.maximum(number - room, 0) + step - 1) // step
    is_full = last * step + room <= number
    full = tf.where(is_full, last, tf.maximum(last - 1, 0))  # the last window with `room` tokens
    # The window whose middle is nearest: half-way between two it is the first.
    nearest = -((room - 1 + step - 2 * tokens) // (2 * step))
    nearest = tf.clip_by_value(nearest, 0, full)

    def context(window):
        begin = window * step
        end = tf.minimum(begin + room, number)
        return 100 * tf.minimum(tokens - begin, end - 1 - tokens) + end - begin

    return tf.where(context(last) > context(nearest), last, nearest)


def _places_in_rows(lengths):
    """Return the row of each of the values of rows of these lengths, and its place there: int32."""
    splits = tf.concat([[0], tf.cumsum(lengths)], axis=0)
    numbers = tf.RaggedTensor.from_row_splits(tf.range(splits[-1]), splits, validate=False)
    row = tf.cast(ragged.row_ids(numbers), tf.int32)
    return row, numbers.values - tf.gather(splits, row)


def parts_of_rows(texts, first, lengths):
    """Return the rows of values of a ragged tensor that begin at these places in its values."""
    row, place = _places_in_rows(lengths)
    splits = tf.concat([[0], tf.cumsum(lengths)], axis=0)
    values = tf.gather(texts.values, tf.gather(first, row) + place)
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def _row_starts(texts):
    return tf.cast(texts.row_starts(), tf.int32)
