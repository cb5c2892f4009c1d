"""Windows of long texts. Shapes: B batch, R windows of all examples, S sequence."""

import tensorflow as tf

from keras_lm.packers.rows import Texts


class Windows(Texts):
    """A question makes a row with each overlapping window of its context, for question answering.

    Args:
        stride: int. Tokens from the start of a window to that of the next.
        max_question_length: int. Longer questions are truncated to this many tokens, which must
            leave room for the context.

    Packing returns the rows (R, S) of all examples one after the other, and besides the model's
    inputs `example` (R,), the index of each window's example, and `start` and `end` (R, S), the
    offsets of each context token in characters; -1 for all other tokens. All are int32.

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

    def __init__(self, stride=128, max_question_length=64):
        super().__init__()
        for name, value in (("stride", stride), ("max_question_length", max_question_length)):
            if value < 1:
                raise ValueError(f"{name}={value}: pass 1 or more.")
        self.stride = stride
        self.max_question_length = max_question_length

    def pack(self, packer, columns, tokenize=None):
        questions = packer.ids(columns["question"], tokenize)[:, : self.max_question_length]
        ids, starts, ends = packer.tokenizer.tokenize_with_offsets(columns["context"], "character")
        example, windows = self._cut(ids, self._room(packer, questions))  # (R,), (R, None) places
        texts = {
            "text": tf.gather(questions, example),
            "text_pair": tf.gather(ids.values, windows),
        }
        packed = packer.pack(**texts)
        first, length = packer.spans(**texts)["text_pair"]
        place = tf.range(tf.shape(packed["padding_mask"])[1]) - first[:, tf.newaxis]  # (R, S)
        inside = (place >= 0) & (place < length[:, tf.newaxis])
        index = tf.where(inside, place + tf.cast(windows.row_starts(), tf.int32)[:, tf.newaxis], 0)

        def at(offsets):
            flat = tf.cast(tf.gather(offsets.values, windows.values), tf.int32)
            return tf.where(inside, tf.gather(tf.concat([flat, [-1]], axis=0), index), -1)

        return packed | {
            "example": tf.cast(example, tf.int32),
            "start": at(starts),
            "end": at(ends),
        }

    def _room(self, packer, questions):
        """Return how many context tokens fit into a row beside each question, (B,) int64."""
        room = packer.sequence_length - packer.number_of_special_tokens("pair")
        if self.max_question_length >= room:
            raise ValueError(
                f"max_question_length={self.max_question_length} leaves no room for a context in "
                f"sequence_length={packer.sequence_length}: pass less than {room}."
            )
        return room - tf.cast(questions.row_lengths(), tf.int64)

    def _cut(self, ids, room):
        """Return the example of each window, (R,) int64, and its tokens' indices in `ids.values`.

        The last window of a text is the first to reach its end; a text without tokens has one.
        """
        number = tf.cast(ids.row_lengths(), tf.int64)  # (B,)
        step = tf.minimum(tf.constant(self.stride, tf.int64), room)
        windows = 1 + (tf.maximum(number - room, 0) + step - 1) // step
        example = tf.repeat(tf.range(tf.size(windows, tf.int64)), windows)  # (R,)
        begin = tf.ragged.range(windows).values * tf.gather(step, example)
        end = tf.minimum(begin + tf.gather(room, example), tf.gather(number, example))
        row = tf.gather(tf.cast(ids.row_starts(), tf.int64), example)
        return example, tf.ragged.range(row + begin, row + end)
