"""Windows of long texts. Shapes: B batch, R windows of all examples, S sequence."""

from collections.abc import Callable
from typing import Any

from keras_lm.packers import host_rows
from keras_lm.packers.packer import Packer, Texts
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.tokenizers import splitting, strings
from keras_lm.utils.argument_types import Tensor
from keras_lm.utils.user_arguments import check_whole


def tokens_and_places(tokenizer, text):
    """Return `(ids, starts, ends)` of (B,) texts, ragged (B, S), in characters of the texts.

    With tokenizers of words, which have no offsets of their own, a token is a word.
    """
    if not hasattr(tokenizer, "tokenize_words"):
        return tokenizer.tokenize_with_offsets(text, "character")
    words, starts, ends = splitting.words_and_places(text, tokenizer.splitter)
    return words.with_values(tokenizer.tokenize_words(words.values)), starts, ends


def tokens_and_places_lite(tokenizer, text):
    """Return what `tokens_and_places` does with operations that LiteRT has.

    Raises:
        ValueError: if the tokenizer has no places there.
    """
    if hasattr(tokenizer, "tokenize_lite_with_offsets"):
        return tokenizer.tokenize_lite_with_offsets(text)
    if not hasattr(tokenizer, "tokenize_words"):
        raise ValueError(
            f"{type(tokenizer).__name__} has no places of tokens in LiteRT, which answers need: "
            "export as a SavedModel instead."
        )
    words, starts, ends, _ = splitting.words_and_places_lite(text, tokenizer.splitter)
    ids = tokenizer.tokenize_lite(words.values, splitter="whitespace")
    return words.with_values(ids.values), starts, ends


class Windows(Texts):
    """A question makes a row with each overlapping window of its context, for question answering.

    Args:
        stride: int. Tokens from the start of a window to that of the next.
        max_question_length: int. Longer questions are truncated to this many tokens, which must
            leave room for the context. None for 64, or for half of the room if that is less.

    The question is the first text of a row, and its context the second; with padding on the left it
    is the other way round, as for XLNet.

    Packing returns the rows (R, S) of all examples in order. Besides the model's inputs there are
    `example` (R,), the index of each window's example; `start` and `end` (R, S), the offsets of
    each context token in characters, -1 for other tokens; and `max_context` (R, S), 1 in the one
    window where a context token has the most context. All are int32, made by operations that
    LiteRT has.

    Raises:
        ValueError: if `stride` or `max_question_length` is less than 1; in packing, if a question
            of that length leaves no room for its context.

    Example:

        packer = Packer(BertBackbone.TEMPLATE, tokenizer, 384, rows=Windows())
        packer({"question": tf.constant(["Who?"]), "context": tf.constant(["a long text"])})

    Source: BERT, https://arxiv.org/abs/1810.04805, section 4.2; google-research/bert,
    `run_squad.py`, `convert_examples_to_features`; the same of zihangdai/xlnet.
    """

    names = required = ("question", "context")
    truncation_sides = ("right",)

    def __init__(self, stride: int = 128, max_question_length: int | None = None):
        super().__init__()
        for name, value in (("stride", stride), ("max_question_length", max_question_length)):
            if value is not None or name == "stride":
                check_whole(name, value, 1)
        self.stride = stride
        self.max_question_length = max_question_length

    def pack(
        self,
        packer: Packer,
        columns: dict[str, Tensor],
        tokenize: Callable[[Tensor], Tensor] | None = None,
        find: Callable[..., Any] = tokens_and_places,
    ) -> dict[str, Tensor]:
        """Return the packed windows; `find` replaces `tokens_and_places`, for contexts."""
        if not IS_INSTALLED:
            return host_rows.packed_windows(packer, columns, tokenize)
        questions = packer.ids(columns["question"], tokenize)
        ids, starts, ends = find(packer.tokenizer, columns["context"])
        of_question, room, step, windows = self._sizes(packer, questions, ids)  # (B,)
        number = tf.cast(ids.row_lengths(), tf.int32)
        example, place = strings.places_in_rows(windows)  # (R,)
        begin = place * tf.gather(step, example)
        number, room, step = (tf.gather(x, example) for x in (number, room, step))
        length = tf.minimum(room, number - begin)
        first = tf.gather(_row_starts(ids), example) + begin
        rows = {
            "question": strings.parts_of_rows(
                questions,
                tf.gather(_row_starts(questions), example),
                tf.gather(of_question, example),
            ),
            "context": strings.parts_of_rows(ids, first, length),
        }
        places = {"question": "text", "context": "text_pair"}
        if packer.template.padding_side == "left":
            places = {"question": "text_pair", "context": "text"}
        texts = {place: rows[name] for name, place in places.items()}
        packed = packer.pack(**texts)
        column, kept = packer.spans(**texts)[places["context"]]
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

    def count(self, packer: Packer, columns: dict[str, Tensor]) -> Tensor:
        """Return the number of windows of each example, (B,), without finding places: quicker."""
        questions, contexts = (packer.ids(columns[name]) for name in self.names)
        return self._sizes(packer, questions, contexts)[-1]

    def _sizes(self, packer, questions, contexts):
        """Return the length of questions, and the room, step and number of windows, (B,) each."""
        lengths = tf.cast(questions.row_lengths(), tf.int32)
        lengths = tf.minimum(lengths, self.question_limit(packer))
        room = packer.sequence_length - packer.number_of_special_tokens("pair") - lengths
        step = tf.minimum(self.stride, room)
        # The first window that reaches the end is the last one. An empty text has one window.
        number = tf.cast(contexts.row_lengths(), tf.int32)
        return lengths, room, step, 1 + (tf.maximum(number - room, 0) + step - 1) // step

    def question_limit(self, packer):
        """Return the maximum number of tokens of a question."""
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

    Context is the smaller number of tokens on either side, plus a hundredth of the window's length;
    the first of several equal windows is taken.

    Args:
        tokens: (R, S), places of tokens in the context.
        number, room, step: (R,), the number of tokens of the context, how many a window has room
            for, and how many are between the starts of two windows.
    """
    number, room, step = (x[:, tf.newaxis] for x in (number, room, step))
    last = (tf.maximum(number - room, 0) + step - 1) // step
    is_full = last * step + room <= number
    full = tf.where(is_full, last, tf.maximum(last - 1, 0))  # the last window with `room` tokens
    # The window with the nearest middle; half-way between two, the first.
    nearest = -((room - 1 + step - 2 * tokens) // (2 * step))
    nearest = tf.clip_by_value(nearest, 0, full)

    def context(window):
        begin = window * step
        end = tf.minimum(begin + room, number)
        return 100 * tf.minimum(tokens - begin, end - 1 - tokens) + end - begin

    return tf.where(context(last) > context(nearest), last, nearest)


def _row_starts(texts):
    return tf.cast(texts.row_starts(), tf.int32)
