"""What heads for questions differ in: their outputs, labels, losses, and how answers are read.

Shapes: R windows of all examples, S sequence, n answers, K starts.
"""

from keras import ops

from keras_lm.layers.last_token import last_real_token
from keras_lm.objectives import (
    MaskedAccuracy,
    MaskedBinaryCrossentropy,
    MaskedCrossentropy,
    ReplacedAccuracy,
)
from keras_lm.packers.rows import LOWEST
from keras_lm.tasks import answer_spans
from keras_lm.tensorflow import tf

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
        return answer_spans.best_spans(logits, packed, number, longest)

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
