"""The answers of questions: as users give them, as labels of windows, and the best of logits.

Shapes: B examples, R windows of all examples, S sequence, L tokens of an answer, n answers, K
starts.
"""

import numpy as np
from keras import ops

from keras_lm.layers.basic import last_real_token
from keras_lm.layers.tensorflow import required
from keras_lm.objectives import (
    MaskedAccuracy,
    MaskedBinaryCrossentropy,
    MaskedCrossentropy,
    ReplacedAccuracy,
)
from keras_lm.packers.rows import LOWEST
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import splitting, strings
from keras_lm.tokenizers.splitting import SPACES
from keras_lm.utils.batch_iteration import iterate_batches

EXAMPLE = "{'text': 'an answer', 'start': 0}"


def answers_of_rows(labels):
    """Return the answers of each row, lists of (text, start), empty if there is none.

    `labels` are as `QuestionAnswerer` takes them. ValueError if a row is something else.
    """
    return [_answers_of_row(label, row) for row, label in enumerate(labels)]


def _answers_of_row(label, row):
    if label is None:
        return []
    if isinstance(label, (list, tuple, np.ndarray)):
        answers = list(label)
    elif isinstance(label, dict) and isinstance(label.get("text"), (list, tuple, np.ndarray)):
        starts = _start_in(label)
        if not isinstance(starts, (list, tuple, np.ndarray)) or len(starts) != len(label["text"]):
            raise ValueError(f"labels[{row}]={label!r}: its texts need as many starts.")
        pairs = zip(label["text"], starts, strict=True)
        answers = [{"text": text, "start": start} for text, start in pairs]
    else:
        answers = [label]
    label = label.item() if isinstance(label, np.generic) else label
    spans = []
    for answer in answers:
        is_dict = isinstance(answer, dict) and isinstance(answer.get("text"), (str, bytes))
        if not is_dict or {"start", "answer_start"}.isdisjoint(answer):
            raise ValueError(
                f"labels[{row}]={label!r}: pass {EXAMPLE}, a list of such answers, or None for a "
                "question without one."
            )
        text, start = answer["text"], _start_in(answer)
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        if text and (not isinstance(start, (int, np.integer)) or start < 0):
            raise ValueError(
                f"labels[{row}]: the answer {text!r} has start={start!r}; pass the number of "
                "characters before it in its context."
            )
        if text:
            spans.append((text, int(start)))
    return spans


def rows_of_columns(labels):
    """Return the labels of rows, dicts, for columns by name: `text`, and `start`."""
    lengths = {name: len(column) for name, column in labels.items()}
    if len(lengths) != 2 or "text" not in labels or len({*lengths.values()}) > 1:
        raise ValueError(f"y has columns of the lengths {lengths}: pass 'text' and 'start' alike.")
    return [dict(zip(labels, row, strict=True)) for row in zip(*labels.values(), strict=True)]


def places_in_rows(labels):
    """Return the labels of packed rows, checked: the places of both ends, (B,) each."""
    for name in ENDS:
        places = np.asarray(labels.get(name))
        is_whole = places.dtype.kind in "iuf" and np.array_equal(places, np.floor(places))
        if places.ndim != 1 or not is_whole:
            raise ValueError(
                f"y[{name!r}] has shape {places.shape} and dtype {places.dtype}: pass the place of "
                "a token in each row, (B,) integers, for both ends of the answers."
            )
    return labels


def _start_in(answer):
    """Return what an answer has as its start, which SQuAD calls `answer_start`."""
    return answer.get("start", answer.get("answer_start"))


def check_places(answers, questions, contexts):
    """Raise ValueError if an answer is not where it should begin; all strings are bytes."""
    for row, several in enumerate(answers):
        if not several:
            continue
        context = contexts[row].decode("utf-8", "replace")
        for text, start in several:
            there = context[start : start + len(text)]
            if there == text:
                continue
            place = context.find(text)
            if place >= 0:
                remedy = f"it begins at {place}: count characters, and not bytes."
            elif text in questions[row].decode("utf-8", "replace"):
                remedy = "it is in the question: are question and context swapped?"
            else:
                remedy = "it does not occur there. Pass None for a question without an answer."
            raise ValueError(
                f"labels[{row}]: the answer {text!r} is not at start={start} of context[{row}], "
                f"where {there!r} is; {remedy}"
            )


def first_answers(answers):
    """Return the first answer of each row as tensors, `text` and `start` (B,); empty for none."""
    texts, starts = zip(*(several[0] if several else ("", 0) for several in answers), strict=True)
    texts = [text.encode("utf-8", "surrogatepass") for text in texts]
    return {"text": tf.constant(texts, tf.string), "start": tf.constant(starts, tf.int32)}


def first_of_tensors(labels):
    """Return the same of a dataset's labels: `text` and `start`, (B,) or (B, G), perhaps ragged."""
    if not isinstance(labels, dict) or set(labels) != {"text", "start"}:
        raise ValueError(
            "x is a tf.data.Dataset whose labels are not a dict of 'text' and 'start': pass the "
            "answers as these, (B,) or several for each question, with empty texts for none."
        )
    rests = {"text": "", "start": 0}

    def first(value, rest):
        if value.shape.rank == 1:
            return value
        value = value if isinstance(value, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(value)
        rest = tf.fill([value.nrows(), 1], tf.constant(rest, value.dtype))
        return tf.concat([value, rest], axis=1)[:, :1].to_tensor()[:, 0]

    return {name: first(labels[name], rest) for name, rest in rests.items()}


def rows_of_tensors(labels):
    """Return the labels of a dataset's batch as rows."""

    def lists(value):
        rows = value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy().tolist()
        return [row if isinstance(row, list) else [row] for row in rows]

    texts, starts = lists(labels["text"]), lists(labels["start"])
    return [{"text": text, "start": start} for text, start in zip(texts, starts, strict=True)]


# === In the graph ===


def null_positions(packed, ends_with_cls=False):
    """Return the place (R,) that stands for no answer: each window's first token, or `<cls>`."""
    mask = packed["padding_mask"]
    if ends_with_cls:
        return last_real_token(mask)
    return tf.argmax(mask, axis=1, output_type=tf.int32)


def best_spans(logits, packed, number, longest):
    """Return the best answers of each window: scores, and places of both ends, (R, number).

    An answer is a run of at most `longest` tokens of the context, which begins where the window has
    most context. Its score is the sum of both logits; `LOWEST` or less if there is no such answer.
    All of them are compared, not only those between the likeliest ends.
    """
    shape = tf.shape(packed["padding_mask"])  # R, S
    # As in comparing: a logit that is far below all others.
    begins = tf.where(packed["max_context"] > 0, logits["start_logits"], LOWEST)
    ends = tf.where(packed["start"] >= 0, logits["end_logits"], LOWEST)
    ends = tf.pad(ends, [[0, 0], [0, longest - 1]], constant_values=LOWEST)
    place = tf.range(shape[1])[:, tf.newaxis] + tf.range(longest)  # (S, L)
    scores = begins[:, :, tf.newaxis] + tf.gather(ends, place, axis=1)  # (R, S, L)
    scores = tf.reshape(scores, [shape[0], -1])
    spare = tf.fill([shape[0], number], 2 * LOWEST)  # so that there are enough
    best, index = tf.math.top_k(tf.concat([scores, spare], axis=1), number)
    index = tf.where(best > LOWEST / 2, index, 0)
    first = index // longest
    return best, first, first + index % longest


def answers_of_examples(scores, places, nulls, example, rows):
    """Return what windows found, by example: `(scores, places, nulls)` of (B, n) and (B,).

    `scores` and each of `places` are (R, n), `nulls` (R,), and `rows` is B. The null score of an
    example is the least of its windows.
    """
    number = tf.shape(scores)[1]
    counts = tf.scatter_nd(example[:, tf.newaxis], tf.ones_like(example), [rows])
    first = tf.cumsum(counts, exclusive=True)
    place = tf.range(tf.maximum(tf.reduce_max(counts), 1))[tf.newaxis, :]  # (1, windows)
    is_there = place < counts[:, tf.newaxis]  # (B, windows)
    window = tf.where(is_there, first[:, tf.newaxis] + place, 0)
    nulls = tf.reduce_min(tf.where(is_there, tf.gather(nulls, window), -LOWEST), axis=1)
    is_there = tf.expand_dims(is_there, 2)  # LiteRT cannot slice bools so
    scores = tf.where(is_there, tf.gather(scores, window), 2 * LOWEST)
    best, index = tf.math.top_k(tf.reshape(scores, [rows, -1]), number)
    window = tf.gather(window, index // number, batch_dims=1)  # (B, n)
    flat = window * number + index % number
    return best, [tf.gather(tf.reshape(place, [-1]), flat) for place in places], nulls


def ranked(scores, nulls, number):
    """Return the `(places, probabilities)` of the best of spans (B, n) and no answer, (B,).

    Both are (B, number), from best to worst; no answer has the place n.
    """
    everything = tf.concat([scores, nulls[:, tf.newaxis]], axis=1)
    best, index = tf.math.top_k(everything, tf.shape(everything)[1])
    likely = tf.where(best > LOWEST / 2, tf.nn.softmax(best), 0.0)
    return index[:, :number], likely[:, :number]


def without_outer_space_lite(context, start, end):
    """Return places (B, n) in contexts (B,) without white space around, as LiteRT can find it."""
    _, *bounds, _ = splitting.words_and_places_lite(context, "whitespace")
    far = tf.int32.max
    begins, stops = (strings.padded(x, far)[:, tf.newaxis] for x in bounds)  # (B, 1, W)
    begins, stops = (
        tf.pad(x, [[0, 0], [0, 0], [0, 1]], constant_values=far) for x in (begins, stops)
    )
    first, last = start[:, :, tf.newaxis], end[:, :, tf.newaxis]
    is_in = (stops > first) & (begins < last)
    some = tf.reduce_any(is_in, axis=2)
    first = tf.reduce_min(tf.where(is_in, tf.maximum(begins, first), far), axis=2)
    last = tf.reduce_max(tf.where(is_in, tf.minimum(stops, last), 0), axis=2)
    return tf.where(some, first, start), tf.where(some, last, end)


def without_outer_space(text, start, end):
    """Return answers (B, n), and where they begin and end, without the white space around them.

    The tokens of byte-pair vocabularies begin with the space before their word.
    """
    left = tf.strings.regex_replace(text, f"^{SPACES}+", "")
    inner = tf.strings.regex_replace(left, f"{SPACES}+$", "")
    size, size_left, size_inner = (
        tf.strings.length(part, unit="UTF8_CHAR") for part in (text, left, inner)
    )
    begin = start + size - size_left
    has_words = size_inner > 0
    return (
        tf.where(has_words, inner, text),
        tf.where(has_words, begin, start),
        tf.where(has_words, begin + size_inner, end),
    )


# === Labels ===


def labels_of_windows(packed, context, text, start, null):
    """Return the tokens in which answers begin and end, `start_logits` and `end_logits`, (R,) each.

    A window without the whole answer has the place of no answer, twice.

    Args:
        packed: the windows, as `keras_lm.packers.Windows` packs them.
        context: (B,) strings.
        null: (R,) int32, the places of no answer.
        text, start: (B,) strings and int32: the answers, and where they begin, in characters. An
            empty text means that there is no answer, whatever its start.
    """
    context, text = strings.valid_utf8(context), strings.valid_utf8(text)
    size = tf.strings.length(text, unit="UTF8_CHAR")
    start = tf.where(size > 0, tf.cast(start, tf.int32), 0)
    piece = strings.substrings(context, start[:, tf.newaxis], (start + size)[:, tf.newaxis])[:, 0]
    message = "labels: an answer is not where it should begin in its context. It is, and there is,"
    both = tf.boolean_mask(tf.stack([text, piece], axis=1), piece != text)[:1]
    start = required(start, piece == text, message, both)
    begin, end = (tf.gather(x, packed["example"])[:, tf.newaxis] for x in (start, start + size))
    is_in = (packed["end"] > begin) & (packed["start"] < end) & (packed["start"] >= 0)  # (R, S)
    is_in = is_in & (end > begin)
    is_in = tf.cast(is_in, tf.int32)
    # Each token counts once, in the window that has most context.
    total = tf.math.unsorted_segment_sum(
        tf.reduce_sum(is_in * packed["max_context"], axis=1), packed["example"], tf.size(context)
    )
    total = tf.gather(total, packed["example"])
    is_whole = (total > 0) & (tf.reduce_sum(is_in, axis=1) == total)
    last = tf.shape(is_in)[1] - 1
    first, last = (
        tf.argmax(is_in, axis=1, output_type=tf.int32),
        last - tf.argmax(is_in[:, ::-1], axis=1, output_type=tf.int32),
    )
    return {
        "start_logits": tf.where(is_whole, first, null),
        "end_logits": tf.where(is_whole, last, null),
    }


def apart(answers):
    """Return the answers that overlap none before them."""
    kept = []
    for one in answers:
        if all(one["end"] <= other["start"] or other["end"] <= one["start"] for other in kept):
            kept.append(one)
    return kept


def required_answers(x, y):
    """Return `answers_of`; ValueError if there are none."""
    answers = answers_of(x, y)
    if answers is None:
        raise ValueError(f"y={y!r}: pass the answers of raw texts, see QuestionAnswerer.")
    return answers


def answers_of(x, y):
    """Return the texts of each row's answers, a list of lists, or None without such labels."""
    if isinstance(x, tf.data.Dataset):
        if not isinstance(x.element_spec, tuple) or "text" not in x.element_spec[1]:
            return None
        batches = [rows_of_tensors(labels) for _, labels, *_ in iterate_batches(x)]
        y = [row for batch in batches for row in batch]
    if y is None or isinstance(y, dict):
        return None
    return [[text for text, _ in row] for row in answers_of_rows(y)]


ENDS = ("start_logits", "end_logits")


class IndependentEnds:
    """BERT's: an answer's score is that of its start and that of its end; none is one token."""

    kind = "question_answering"
    # Outputs → the shapes of their rows, None for S, and whether they are ints.
    outputs = dict.fromkeys(ENDS, ((None,), False))

    def options(self):
        """Return the arguments of the head."""
        return {}

    def losses(self):
        return {name: MaskedCrossentropy() for name in ENDS}

    def metrics(self):
        return {name: [MaskedAccuracy()] for name in ENDS}

    def prepare(self, batch):
        """Return a `Batch` as the network and the loss take it."""
        return batch

    def best_spans(self, logits, packed, number, longest):
        return best_spans(logits, packed, number, longest)

    def null_scores(self, logits, places):
        """Return the scores of no answer in windows (R,), where `places` stand for it."""
        total = logits["start_logits"] + logits["end_logits"]
        return tf.gather(total, places[:, tf.newaxis], batch_dims=1)[:, 0]

    def compared_nulls(self, nulls, scores):
        """Return the scores of no answer, (B,), as they compare with those of answers, (B, n)."""
        return nulls


class ConditionalEnds(IndependentEnds):
    """XLNet's: the likeliest starts, with the likeliest ends of each; none has its own logit.

    Scores are sums of log-probabilities. That of no answer is its logit above the best answer's.

    Args:
        num_starts, num_ends: int. How many of both are tried.

    Source: zihangdai/xlnet, `run_squad.py`, `write_predictions`.
    """

    kind = "conditional_question_answering"

    def __init__(self, num_starts, num_ends):
        self.num_starts, self.num_ends = num_starts, num_ends
        self.outputs = {
            "start_logits": ((None,), False),
            "starts": ((num_starts,), True),
            "end_logits": ((num_starts, None), False),
            "null_logits": ((), False),
        }

    def options(self):
        return {"num_starts": self.num_starts}

    def losses(self):
        return super().losses() | {"null_logits": MaskedBinaryCrossentropy()}

    def metrics(self):
        return super().metrics() | {"null_logits": [ReplacedAccuracy()]}

    def prepare(self, batch):
        labels = batch.labels
        if labels is None:
            return batch
        start = ops.cast(labels["start_logits"], "int32")
        token_ids = batch.inputs["token_ids"]
        mask = batch.inputs.get("padding_mask", ops.ones_like(token_ids))
        is_null = ops.cast(ops.equal(start, last_real_token(mask)), "int32")
        return batch._replace(
            inputs=batch.inputs | {"start_positions": start},
            labels=labels | {"null_logits": is_null},
        )

    def best_spans(self, logits, packed, number, longest):
        shape = tf.shape(packed["padding_mask"])
        starts = logits["starts"]  # (R, K)
        start_scores = tf.gather(tf.nn.log_softmax(logits["start_logits"]), starts, batch_dims=1)
        end_scores = tf.nn.log_softmax(logits["end_logits"])  # (R, K, S)
        spare = tf.fill([shape[0], self.num_starts, self.num_ends], 2 * LOWEST)
        end_scores, ends = tf.math.top_k(tf.concat([end_scores, spare], axis=2), self.num_ends)
        ends = tf.minimum(ends, shape[1] - 1)
        first = tf.broadcast_to(starts[:, :, tf.newaxis], tf.shape(ends))
        scores = start_scores[:, :, tf.newaxis] + end_scores

        def flat(x):
            return tf.reshape(x, [shape[0], self.num_starts * self.num_ends])

        first, last, scores = flat(first), flat(ends), flat(scores)
        # The same start may be there twice in a text of few tokens: with scores below all others.
        fits = (last >= first) & (last < first + longest) & (scores > LOWEST / 2)
        fits &= tf.gather(packed["max_context"], first, batch_dims=1) > 0
        fits &= tf.gather(packed["start"], last, batch_dims=1) >= 0
        scores = tf.concat(
            [tf.where(fits, scores, 2 * LOWEST), tf.fill([shape[0], number], 2 * LOWEST)], axis=1
        )
        best, index = tf.math.top_k(scores, number)
        index = tf.where(best > LOWEST / 2, index, 0)
        return best, *(tf.gather(x, index, batch_dims=1) for x in (first, last))

    def null_scores(self, logits, places):
        return logits["null_logits"]

    def compared_nulls(self, nulls, scores):
        best = scores[:, 0]
        return nulls + tf.where(best > LOWEST / 2, best, 0.0)
