"""From logits to the next token: what is penalized or banned, and how one is picked.

What penalizes or bans tokens takes its strength per row, so that rows of a batch may differ, and
does nothing if no row needs it. All of it runs on TensorFlow and on JAX, except `uniform_noise`.

Shapes: B batch, T slots for tokens, V vocabulary, K candidates, S source tokens.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from keras import ops

from keras_lm.generation.options import FRESH_SEED
from keras_lm.layers.backend import argmax, at_columns, size_within
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor

# Below any logit, but finite, so that the softmax of such values alone is still a distribution.
BANNED = float(np.finfo("float32").min)


def last_logits(head, outputs):
    """Return a head's logits (B, V) float32 of the last token that a model has read."""
    logits = head({"sequence_output": outputs["sequence_output"][:, -1:]})
    logits = ops.reshape(logits, (-1, logits.shape[-1]))  # LiteRT's slices take far longer
    return ops.cast(logits, "float32")


def penalize_repetition(logits, token_ids, padding_mask, penalty):
    """Make tokens of `token_ids` (B, T) less likely, by a penalty (B,); 1 has no effect.

    The penalty divides positive logits and multiplies negative ones, (B, V).

    Source: CTRL, https://arxiv.org/abs/1909.05858, section 4.1; the rule for negative logits is
    that of Hugging Face's `RepetitionPenaltyLogitsProcessor`.
    """

    def penalized():
        seen = marked(token_ids, padding_mask > 0, ops.shape(logits)[1])
        strength = penalty[:, None]
        return ops.where(seen, ops.where(logits < 0, logits * strength, logits / strength), logits)

    return ops.cond(ops.any(penalty != 1.0), penalized, lambda: logits)


def ban_repeated_ngrams(logits, token_ids, padding_mask, end, size):
    """Ban each token that would complete an n-gram that is already in the row (B, T).

    `size` (B,) is n: 0 bans nothing, 1 every token that has occurred. `end` (B,) is the next
    column.

    Source: https://arxiv.org/abs/1705.04304, section 2.5, for n = 3.
    """

    def banned():
        # Ban tokens that follow the same n - 1 tokens as the next token does.
        most = ops.max(size) - 1
        same = matches(token_ids, padding_mask, end, most) >= size[:, None] - 1  # (B, T)
        repeats = same & (padding_mask > 0) & (size > 0)[:, None]
        return ops.where(marked(token_ids, repeats, ops.shape(logits)[1]), BANNED, logits)

    return ops.cond(ops.any(size > 0), banned, lambda: logits)


def ban_sequences(logits, token_ids, padding_mask, end, sequences):
    """Ban each token that would complete one of the sequences (B, F, L) of its row.

    Sequences with fewer than L tokens are padded with -1 on the left. `end` (B,) is the next
    column.
    """
    back = ops.arange(ops.shape(sequences)[2] - 1, 0, -1, dtype="int32")
    columns = end[:, None] - back  # (B, L - 1)
    ids = ops.where(padding_mask > 0, token_ids, -2)
    before = at_columns(ids, ops.maximum(columns, 0))
    before = ops.where(columns >= 0, before, -2)[:, None]
    begin, last = sequences[..., :-1], sequences[..., -1]  # (B, F, L - 1), (B, F)
    is_next = ops.all((begin == before) | (begin < 0), axis=-1)
    return ops.where(marked(last, is_next, ops.shape(logits)[1]), BANNED, logits)


def matches(token_ids, padding_mask, end, most):
    """Return for each column how many tokens before it equal those before `end` (B,), (B, T).

    They are compared backwards, `most` at most, until one differs or is padding. Columns from `end`
    on are 0.
    """
    columns = ops.arange(ops.shape(token_ids)[1], dtype="int32")
    ids = ops.where(padding_mask > 0, token_ids, -1)

    def compare(back, number, same):
        before = ops.take(ids, ops.maximum(columns - back, 0), axis=1)
        last = at_columns(ids, ops.maximum(end - back, 0))
        last = ops.where(end >= back, last, -1)[:, None]
        same &= (columns >= back) & (before == last) & (last >= 0)
        return back + 1, number + ops.cast(same, "int32"), same

    # In a loop, because comparing all at once would take `most` times the memory.
    start = (1, ops.zeros_like(ids), columns < end[:, None])
    return ops.while_loop(lambda back, _, same: (back <= most) & ops.any(same), compare, start)[1]


def marked(token_ids, chosen, vocabulary_size):
    """Return whether each token of the vocabulary is among the `chosen` (B, T) ones, (B, V)."""
    rows = ops.shape(chosen)[0]
    # Those not chosen share a column of their own, because shapes must not depend on values.
    tokens = ops.where(chosen, token_ids, vocabulary_size)
    row = ops.arange(rows, dtype="int32")[:, None] + ops.zeros_like(tokens)
    cells = ops.reshape(ops.stack([row, tokens], axis=-1), (-1, 2))
    counts = ops.scatter(cells, ops.ones_like(cells[:, 0]), (rows, vocabulary_size + 1))
    return counts[:, :-1] > 0


# Sorting the whole vocabulary is much slower than finding the likeliest tokens, which nearly always
# suffice for sampling.
FIRST_CANDIDATES = 1024
LEAST_TEMPERATURE = 1e-6

# Of Philox, which other runtimes compute themselves: rounds, and numbers of 32 bits.
ROUNDS = 10
FACTORS, WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
FIRST_KEY = (0x3EC8F720, 0x02461E29)  # TensorFlow's, of which it makes others


def uniform_noise(seed, sequence, number):
    """Return random numbers (B, number) in [0, 1) that only depend on a row's seed and sequence.

    `seed` is (B,) int64, where `FRESH_SEED` means a new one; `sequence` (B,) int64 is the index
    among the continuations of a prompt. A larger `number` starts with the same values. JAX and
    LiteRT have the same numbers from `jax_decoding.uniform_noise` and `lite.uniform_noise`.
    """
    fresh = tf.random.uniform(tf.shape(seed), maxval=tf.int64.max, dtype=tf.int64)
    seeds = tf.stack([tf.where(seed == FRESH_SEED, fresh, seed), sequence], axis=1)
    seeds = tf.pad(seeds, [[0, 1], [0, 0]])  # `map_fn` needs a row
    return tf.map_fn(
        lambda row: tf.random.stateless_uniform([number], row, alg="philox"),
        seeds,
        fn_output_signature=tf.TensorSpec([None], tf.float32),
    )[:-1]


def pick(logits, temperature, top_k, top_p, noise, keep=None):
    """Pick a token (B,) for each row of logits (B, V): the likeliest, or a random one.

    With a `temperature` above 0, keep the `top_k` likeliest tokens (0 keeps all), then the fewest
    of them whose probabilities sum to `top_p` (1 keeps all); `noise` in [0, 1) picks one. `keep`
    maps the probabilities (B, V) of those, the largest first and 0 for the others, to the same with
    0 for more of them; None keeps them.

    Source: https://arxiv.org/abs/1805.04833, section 5.4 (top-k); https://arxiv.org/abs/1904.09751,
    section 3.1 (top-p).
    """
    return ops.cond(
        ops.any(temperature > 0),
        lambda: _sample(logits, temperature, top_k, top_p, noise, keep),
        lambda: argmax(logits),
    )


def _sample(logits, temperature, top_k, top_p, noise, keep):
    vocabulary_size = ops.shape(logits)[1]
    greedy = temperature <= 0
    temperature = ops.where(greedy, 1.0, ops.maximum(temperature, LEAST_TEMPERATURE))
    # The largest logit becomes 0, so that no temperature makes one infinite.
    logits = logits - ops.max(logits, axis=-1, keepdims=True)
    probabilities = ops.softmax(logits / temperature[:, None])
    number = ops.where(top_k > 0, ops.minimum(top_k, vocabulary_size), vocabulary_size)
    number = ops.where(greedy, 1, number)
    keeps_all = number == vocabulary_size

    def candidates(size):
        """The likeliest tokens, their probabilities and the sums of those before, (B, K) each."""
        values, ids = ops.top_k(probabilities, size)
        values = ops.where(ops.arange(size, dtype="int32") < number[:, None], values, 0.0)
        return ids, values, ops.pad(ops.cumsum(values, axis=1)[:, :-1], [[0, 0], [1, 0]])

    def draw(ids, values, before):
        total = ops.where(keeps_all, 1.0, before[:, -1] + values[:, -1])[:, None]  # (B, 1)
        kept = (before < top_p[:, None] * total) & (values > 0)
        until = ops.where(kept, before + values, 0.0)
        mass = ops.where(top_p[:, None] < 1.0, ops.max(until, axis=1, keepdims=True), total)
        passed = kept & (until <= noise[:, None] * mass)
        drawn = ops.sum(ops.cast(passed, "int32"), axis=1)
        # By rounding, the sum of all may be below 1, and the draw above it.
        drawn = ops.minimum(drawn, ops.sum(ops.cast(kept, "int32"), axis=1) - 1)
        return at_columns(ids, ops.maximum(drawn, 0))  # below 0 if logits are NaN

    def draw_kept(ids, values, before):
        total = before[:, -1:] + values[:, -1:]
        values = keep(ops.where(before < top_p[:, None] * total, values, 0.0))
        until = ops.cumsum(values, axis=1)
        passed = until <= noise[:, None] * until[:, -1:]
        return at_columns(ids, ops.sum(ops.cast(passed, "int32"), axis=1))

    if keep is not None:
        return draw_kept(*candidates(vocabulary_size))
    most = ops.maximum(ops.max(number), 1)  # 1 for an empty batch
    few = candidates(size_within(most, FIRST_CANDIDATES, vocabulary_size))
    # The candidates suffice if they include a row's top_k, its top_p or, without these, its draw.
    held = few[2][:, -1] + few[1][:, -1]
    enough = (number <= FIRST_CANDIDATES) | (
        keeps_all & (held > ops.where(top_p < 1.0, top_p, noise))
    )
    return ops.cond(
        ops.all(enough),
        lambda: draw(*few),
        lambda: draw(*candidates(size_within(most, vocabulary_size, vocabulary_size))),
    )


NOT_IN_A_WAY = "early_stopping={!r}: it must be False, True or 'never'."


def _ids(value):
    """Return one id or several as a tuple of int."""
    return tuple(map(int, [value] if isinstance(value, (int, np.integer)) else value))


@dataclasses.dataclass(frozen=True)
class Rules:
    """What holds for every text that a task writes.

    Args:
        max_length, min_length: int. The most and the fewest tokens of a text, its prompt included.
            `max_length` does not count if `max_new_tokens` is given.
        min_new_tokens: int. The fewest tokens of a continuation; none ends before.
        early_stopping: True ends beam search once it has as many texts as beams; False if the best
            beam scores below them at its length, `"never"` if it does at the greatest length.
        min_p: float. Sample no tokens that are less likely than this part of the likeliest one.
        typical_p: float. Sample from the tokens whose surprise is closest to the expected one, up
            to this cumulative probability.
        epsilon_cutoff, eta_cutoff: float. Sample no tokens of a smaller probability than this; that
            of `eta_cutoff` is lower where the distribution is flat.
        encoder_no_repeat_ngram_size: int. No n-gram of the source, or of the prompt, is written.
        encoder_repetition_penalty: float. Above 1 makes tokens of source or prompt likelier.
        suppress_tokens, begin_suppress_tokens: ids that are never written, or not at first.
        bad_words_ids: sequences of ids that are never written.
        sequence_bias: pairs of a sequence of ids and the number to add to the last one's logit.
        forced_bos_token_id: int. The token after a prompt, or start, of one token.
        forced_eos_token_id: int or several. The last token of a text of the greatest length.
        exponential_decay_length_penalty: `(start, factor)`. After `start` new tokens, the end
            becomes likelier with each one.
        renormalize_logits: bool. Whether beam search adds log-probabilities that sum to 1 after
            all other rules.

    Raises:
        ValueError: if a value is out of range.

    Source: Hewitt et al. 2022, https://arxiv.org/abs/2210.15191 (epsilon and eta); Meister et al.
    2022, https://arxiv.org/abs/2202.00666 (typical); https://arxiv.org/abs/2407.01082 (min-p).
    """

    max_length: int | None = None
    min_length: int = 0
    min_new_tokens: int = 0
    early_stopping: bool | str = False
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0
    encoder_no_repeat_ngram_size: int = 0
    encoder_repetition_penalty: float = 1.0
    suppress_tokens: Sequence[int] = ()
    begin_suppress_tokens: Sequence[int] = ()
    bad_words_ids: Sequence[Sequence[int]] = ()
    sequence_bias: Sequence[tuple[Sequence[int], float]] = ()
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Sequence[int] = ()
    exponential_decay_length_penalty: Sequence[float] | None = None
    renormalize_logits: bool = False

    def __post_init__(self):
        if self.early_stopping not in (False, True, "never"):
            raise ValueError(NOT_IN_A_WAY.format(self.early_stopping))
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"max_length={self.max_length}: it must be 1 or more.")
        for name in ("min_length", "min_new_tokens", "encoder_no_repeat_ngram_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: it must be 0 or more.")
        for name in ("min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}: it must be from 0 to 1.")
        for name in ("suppress_tokens", "begin_suppress_tokens", "forced_eos_token_id"):
            object.__setattr__(self, name, _ids(getattr(self, name)))
        words = tuple(map(_ids, self.bad_words_ids))
        object.__setattr__(self, "bad_words_ids", words)
        biases = tuple((_ids(ids), float(bias)) for ids, bias in self.sequence_bias)
        object.__setattr__(self, "sequence_bias", biases)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return the rules among the settings of a task, a dict that has others, too."""
        return cls(**{n: v for n, v in settings.items() if n in RULES and v is not None})

    def stated(self) -> dict[str, Any]:
        """Return what differs from no rules, as values of JSON."""
        fields = {f.name: (getattr(self, f.name), f.default) for f in dataclasses.fields(self)}
        return {name: _plain(v) for name, (v, default) in fields.items() if v != default}

    @property
    def samples(self) -> bool:
        """Whether some of the rules concern how a token is sampled."""
        return (
            self.min_p > 0 or self.typical_p < 1 or self.epsilon_cutoff > 0 or self.eta_cutoff > 0
        )

    # === Before and after what an option of `generate` says ===

    def before(self, logits: Tensor, state: Any, source: Tensor | None, begin: Tensor) -> Tensor:
        """Return logits (B, V) with what counts before the penalties of options.

        `state` is a `decoding.State`, `begin` the column of the first new token; `source` (B, S)
        are the tokens of the sources, -1 in padding, or None to use the prompts.
        """
        for ids, bias in self.sequence_bias:
            chosen = _ends_with(state, ids[:-1])[:, None] & _among(ids[-1:], logits)
            logits = ops.where(chosen, logits + max(bias, BANNED), logits)
        if self.encoder_repetition_penalty != 1.0:
            source = _source(state, source, begin)
            penalty = ops.ones_like(logits[:, 0]) / self.encoder_repetition_penalty
            real = ops.cast(source >= 0, "int32")
            logits = penalize_repetition(logits, source, real, penalty)
        return logits

    def after(
        self,
        logits: Tensor,
        state: Any,
        source: Tensor | None,
        begin: Tensor,
        most: Tensor,
        end_ids: Sequence[int],
    ) -> Tensor:
        """Return logits (B, V) with what counts after them.

        `most` (B,) are the most new tokens, and `end_ids` the tokens that end a text, list of int.
        """
        total = ops.sum(state.padding_mask, axis=1)  # (B,)
        new = state.end - begin
        if size := self.encoder_no_repeat_ngram_size:
            logits = _ban_ngrams_of(_source(state, source, begin), logits, state, size)
        if words := [ids for ids in self.bad_words_ids if list(ids) not in [[i] for i in end_ids]]:
            longest = max(map(len, words))
            table = np.array([(-1,) * (longest - len(ids)) + ids for ids in words], "int32")
            written = (state.token_ids, state.padding_mask, state.end)
            logits = ban_sequences(logits, *written, table[None])
        if self.min_length or self.min_new_tokens:
            is_short = (
                (new < self.min_new_tokens) if self.min_new_tokens else total < self.min_length
            )
            logits = _banned(logits, end_ids, is_short)
        if self.forced_bos_token_id is not None:
            logits = _forced(logits, (self.forced_bos_token_id,), total == 1)
        if self.forced_eos_token_id:
            logits = _forced(logits, self.forced_eos_token_id, new == most - 1)
        if self.exponential_decay_length_penalty is not None:
            start, factor = self.exponential_decay_length_penalty
            beyond = ops.cast(ops.maximum(new - start, 0), "float32")[:, None]
            more = ops.abs(logits) * (ops.power(float(factor), beyond) - 1.0)
            likelier = _among(end_ids, logits) & (logits > BANNED)
            logits = ops.where(likelier, logits + more, logits)
        if self.suppress_tokens:
            logits = _banned(logits, self.suppress_tokens, total >= 0)
        if self.begin_suppress_tokens:
            first = new == 0
            if self.forced_bos_token_id is not None:  # which would be the first one
                first = ops.where(total - new == 1, new == 1, first)
            logits = _banned(logits, self.begin_suppress_tokens, first)
        return ops.log_softmax(logits) if self.renormalize_logits else logits

    # === Sampling ===

    def kept(self, values: Tensor) -> Tensor:
        """Return probabilities (B, K), the largest first, with 0 for those not to sample."""
        if self.min_p > 0:
            values = ops.where(values >= self.min_p * values[:, :1], values, 0.0)
        if self.typical_p < 1:
            values = _typical(values, self.typical_p)
        if self.epsilon_cutoff > 0:
            share = values / ops.sum(values, axis=1, keepdims=True)
            values = ops.where((share >= self.epsilon_cutoff) | _largest(values), values, 0.0)
        if self.eta_cutoff > 0:
            share = values / ops.sum(values, axis=1, keepdims=True)
            entropy = ops.sum(share * _surprise(share), axis=1, keepdims=True)
            least = np.sqrt(self.eta_cutoff) * ops.exp(-entropy)
            least = ops.minimum(self.eta_cutoff, least)
            values = ops.where((share >= least) | _largest(values), values, 0.0)
        return values


RULES = [field.name for field in dataclasses.fields(Rules)]
OF_SAMPLING = ("min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "early_stopping")  # or search


def _plain(value):
    return [*map(_plain, value)] if isinstance(value, (tuple, list)) else value


def _among(ids, logits):
    """Return whether each token of the vocabulary is among some ids, (1, V) bool."""
    ids, size = np.array([ids], "int32"), ops.shape(logits)[1]
    return marked(ids, ids < size, size)


def _banned(logits, ids, rows):
    """Ban some tokens in some of the rows, (B,) bool."""
    return ops.where(rows[:, None] & _among(ids, logits), BANNED, logits)


def _forced(logits, ids, rows):
    """Allow only some tokens, with a logarithm of 0, in some of the rows, (B,) bool."""
    alone = ops.where(_among(ids, logits), 0.0, BANNED)
    return ops.where(rows[:, None], alone, logits)


def _source(state, source, begin):
    """Return the source tokens (B, S), -1 in padding; those of the prompt if `source` is None."""
    if source is not None:
        return source
    is_prompt = ops.arange(ops.shape(state.token_ids)[1], dtype="int32") < begin
    return ops.where(is_prompt & (state.padding_mask > 0), state.token_ids, -1)


def _newest(state, number):
    """Return the newest tokens (B, number), -2 where there are fewer."""
    columns = state.end[:, None] - np.arange(number, 0, -1, dtype="int32")
    ids = ops.where(state.padding_mask > 0, state.token_ids, -2)
    return ops.where(columns >= 0, at_columns(ids, ops.maximum(columns, 0)), -2)


def _ends_with(state, ids):
    """Return whether rows end with some ids, (B,) bool."""
    if not ids:
        return state.end >= 0
    return ops.all(_newest(state, len(ids)) == np.array(ids, "int32"), axis=1)


def _ban_ngrams_of(source, logits, state, size):
    """Ban each token that would complete an n-gram of the source (B, S)."""
    width = ops.shape(source)[1]
    source = ops.pad(source, [[0, 0], [0, size]], constant_values=-1)
    last = source[:, size - 1 : size - 1 + width]  # (B, S): the last token of each n-gram
    same = last >= 0
    if size > 1:
        newest = _newest(state, size - 1)
        for i in range(size - 1):
            same &= source[:, i : i + width] == newest[:, i : i + 1]
    repeated = marked(last, same, ops.shape(logits)[1])
    return ops.where(repeated, BANNED, logits)


def _surprise(share):
    """Return the negative logarithms of probabilities, 0 where they are 0."""
    return -ops.log(ops.where(share > 0, share, 1.0))


def _largest(values):
    return values >= ops.max(values, axis=1, keepdims=True)


def _typical(values, mass):
    """Keep the probabilities (B, K) whose surprise is closest to the entropy, up to a mass."""
    share = values / ops.sum(values, axis=1, keepdims=True)
    surprise = _surprise(share)
    entropy = ops.sum(share * surprise, axis=1, keepdims=True)
    distance = ops.where(share > 0, ops.abs(surprise - entropy), np.inf)
    order = ops.argsort(distance, axis=1)
    below = ops.cumsum(at_columns(share, order), axis=1) < mass
    last = ops.sum(ops.cast(below, "int32"), axis=1)
    last = ops.minimum(last, ops.shape(values)[1] - 1)
    furthest = at_columns(at_columns(distance, order), last)[:, None]
    return ops.where(distance <= furthest, values, 0.0)
