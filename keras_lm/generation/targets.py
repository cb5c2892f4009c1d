"""Generation with encoder-decoders, in the graph: greedily, by sampling or by beam search.

Shapes: B sources, N targets of each, T tokens of a target.
"""

from typing import Any, NamedTuple

import numpy as np

from keras_lm.generation import beam_search, decoding
from keras_lm.generation.decoding import cut
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.host import as_lists


def write(
    task,
    packed,
    prefix=None,
    stop_strings=(),
    stop_ids=(),
    num_beams=None,
    length_penalty=1.0,
    coverage_penalty=None,
    num_return_sequences=1,
    **options,
):
    """Return a dict of targets: `text` (B · N,), `num_tokens`, and with beam search `scores`.

    `task` is a `Seq2SeqLM`, `packed` its packed sources; `prefix` (B,) are strings that the targets
    begin with. For the other arguments see `CausalLM.continue_ids`. Beam search needs `num_beams`.
    """
    tokenizer = task.tokenizer.target
    rows = tf.shape(packed["encoder_token_ids"])[0]
    begin = tf.RaggedTensor.from_tensor(tf.fill([rows, 1], task.packer.start_id))
    if prefix is not None:
        prefix = task.tokenize_target(prefix)
        begin = tf.concat([begin, prefix], axis=1)
    if not task.backbone.generates_start:
        options["forbidden"] = _with_token(options.get("forbidden"), task.packer.start_id)
    ids, mask = packed["encoder_token_ids"], packed["encoder_padding_mask"]
    options["source_ids"] = tf.where(mask > 0, ids, -1)
    problem = decoding.prepare_generation(
        task.decoder(packed),
        task.limits,
        tokenizer.detokenize,
        begin,
        stop_strings,
        stop_ids,
        **options,
    )
    answer = {}
    if num_beams is None:
        token_ids, number = decoding.sample(*problem, num_return_sequences)
    elif coverage_penalty is None:
        token_ids, number, answer["scores"] = beam_search.search(
            *problem, num_beams, length_penalty, num_return_sequences
        )
    else:
        beams = beam_search.search(
            *problem, num_beams, length_penalty, num_beams, beam_search.GNMT_OFFSET
        )
        token_ids, number, answer["scores"] = _best_covering(
            task.backbone, packed, begin, beams, num_beams, coverage_penalty, num_return_sequences
        )
    ids = tf.RaggedTensor.from_tensor(token_ids, lengths=number)
    if prefix is not None:
        of_target = tf.repeat(tf.range(rows), num_return_sequences)
        ids = tf.concat([tf.gather(prefix, of_target), ids], axis=1)
    text = tokenizer.detokenize(ids)
    return {
        "text": cut(text, tf.convert_to_tensor(stop_strings, tf.string)),
        "num_tokens": number,
    } | answer


def _with_token(forbidden, token_id):
    """Add a single token to forbidden sequences (F, L), or None."""
    alone = tf.constant([[token_id]])
    if forbidden is None:
        return alone
    alone = tf.pad(alone, [[0, 0], [tf.shape(forbidden)[1] - 1, 0]], constant_values=-1)
    return tf.concat([forbidden, alone], axis=0)


class Decoder(NamedTuple):
    """The decoder, given packed sources, as a model for `decoding`."""

    task: Any
    packed: dict

    def initial_state(self, rows, length):
        packed = self.packed
        return self.task.backbone.state_after(
            packed["encoder_token_ids"], packed["encoder_padding_mask"], length
        )

    @property
    def source_length(self):
        return tf.shape(self.packed["encoder_token_ids"])[1]

    def next_logits(self, token_ids, padding_mask, state):
        return self.task.next_logits(token_ids, padding_mask, state)

    def decoding_state(self, state):
        return state


def _best_covering(backbone, packed, begin, beams, num_beams, penalty, sequences):
    """Return the best texts of a beam search, ranked by score plus coverage.

    `beams` are tokens, numbers and scores of `num_beams` texts per source; `begin`, ragged, are the
    tokens that they begin with.
    """
    token_ids, number, scores = beams
    new = tf.RaggedTensor.from_tensor(token_ids, lengths=number)
    of_target = tf.repeat(tf.range(tf.shape(packed["encoder_token_ids"])[0]), num_beams)
    read = tf.concat([tf.gather(begin, of_target), new], axis=1)
    target_mask = tf.ones_like(read).to_tensor()
    probabilities = backbone.cross_attention_probabilities(
        {name: tf.gather(value, of_target) for name, value in packed.items()}
        | {"decoder_token_ids": read.to_tensor(), "decoder_padding_mask": target_mask}
    )
    source_mask = tf.gather(packed["encoder_padding_mask"], of_target)
    scores += penalty * coverage(probabilities, target_mask, source_mask)
    by_source = tf.reshape(scores, [-1, num_beams])
    best, places = tf.math.top_k(by_source, sequences)
    places += num_beams * tf.range(tf.shape(by_source)[0])[:, tf.newaxis]
    places = tf.reshape(places, [-1])
    number = tf.gather(number, places)
    return tf.gather(token_ids, places), number, tf.reshape(best, [-1])


# The least attention to a token, since log(0) would rule a text out, whatever its likelihood.
TINIEST = 1e-30


def coverage(probabilities, target_mask, source_mask):
    """Return the sum over source tokens of log(min(attention to the token, 1)), (B,) float32.

    GNMT's coverage penalty: how much of a source (S tokens) the attention of N heads has covered.
    It is 0 if the attention to every source token sums to 1 or more, and negative otherwise.
    `probabilities` is a list of (B, N, T, S), which is averaged over blocks and heads;
    `target_mask` (B, T) and `source_mask` (B, S) are 1 for real tokens; B counts targets.

    Source: https://arxiv.org/abs/1609.08144, equation 14.
    """
    mean = tf.add_n([tf.reduce_mean(tf.cast(layer, tf.float32), axis=1) for layer in probabilities])
    mean /= len(probabilities)
    read = tf.einsum("bts,bt->bs", mean, tf.cast(target_mask, tf.float32))
    logarithms = tf.math.log(tf.clip_by_value(read, TINIEST, 1.0))
    return tf.reduce_sum(logarithms * tf.cast(source_mask, tf.float32), axis=1)


def check_coverage(coverage_penalty, num_beams, backbone):
    """Check `coverage_penalty`, a number or None, given the number of beams and the model."""
    if coverage_penalty is None:
        return
    is_number = isinstance(coverage_penalty, (int, float, np.number))
    if not is_number or not 0 <= coverage_penalty < np.inf:
        raise ValueError(
            f"coverage_penalty={coverage_penalty!r} is out of range: it must be a number, 0 or "
            "more, or None."
        )
    if num_beams == 1:
        raise ValueError(
            f"coverage_penalty={coverage_penalty} with num_beams=1: only beam search ranks texts. "
            "Pass num_beams=2 or more."
        )
    if not backbone.has_cross_attention:
        raise ValueError(
            f"coverage_penalty={coverage_penalty}: this model has no attention over the source, "
            "so there is no coverage. Leave it out."
        )


def forbidden_ids(forbidden, tokenizer):
    """Return the token ids (F, L) of forbidden strings, padded with -1 on the left, or None.

    If a word has another token after a space, both are forbidden.
    """
    if isinstance(forbidden, (str, bytes)):
        raise ValueError(f"forbidden={forbidden!r} is a single string: pass a list of them.")
    texts = [text for phrase in forbidden for text in (phrase, f" {phrase}")]
    if not texts:
        return None
    rows = as_lists(tokenizer(texts))
    for text, row in zip(texts, rows, strict=True):
        if not row:
            raise ValueError(f"forbidden has {text.strip()!r}, which has no tokens: remove it.")
    rows = sorted(set(map(tuple, rows)))
    longest = max(map(len, rows))
    return np.array([(-1,) * (longest - len(row)) + row for row in rows], "int32")
