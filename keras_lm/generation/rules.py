"""Rules that a checkpoint states for what its model writes: the same for all texts of a task.

They are those of Hugging Face's `generate`, under its names. What is not stated costs nothing: no
operation of it is in the graph.

Shapes: B rows, T slots for tokens, S source tokens, V vocabulary, K candidates.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from keras import ops

from keras_lm.generation import logits as processors
from keras_lm.generation.logits import BANNED
from keras_lm.layers.backend import at_columns

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
    sequence_bias: Sequence = ()
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Sequence[int] = ()
    exponential_decay_length_penalty: Sequence | None = None
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
    def samples(self):
        """Whether some of the rules concern how a token is sampled."""
        return (
            self.min_p > 0 or self.typical_p < 1 or self.epsilon_cutoff > 0 or self.eta_cutoff > 0
        )

    # === Before and after what an option of `generate` says ===

    def before(self, logits, state, source, begin):
        """Return logits (B, V) with what counts before the penalties of options.

        `state` is a `decoding.State`, `begin` the column of the first new token; `source` (B, S)
        are the tokens of the sources, -1 in padding, or None if the prompts are meant.
        """
        for ids, bias in self.sequence_bias:
            chosen = _ends_with(state, ids[:-1])[:, None] & _among(ids[-1:], logits)
            logits = ops.where(chosen, logits + max(bias, BANNED), logits)
        if self.encoder_repetition_penalty != 1.0:
            source = _source(state, source, begin)
            penalty = ops.ones_like(logits[:, 0]) / self.encoder_repetition_penalty
            real = ops.cast(source >= 0, "int32")
            logits = processors.penalize_repetition(logits, source, real, penalty)
        return logits

    def after(self, logits, state, source, begin, most, end_ids):
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
            so_far = (state.token_ids, state.padding_mask, state.end)
            logits = processors.ban_sequences(logits, *so_far, table[None])
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

    def kept(self, values):
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


def _plain(value):
    return [*map(_plain, value)] if isinstance(value, (tuple, list)) else value


def _among(ids, logits):
    """Return whether each token of the vocabulary is among some ids, (1, V) bool."""
    ids, size = np.array([ids], "int32"), ops.shape(logits)[1]
    return processors.marked(ids, ids < size, size)


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
    marked = processors.marked(last, same, ops.shape(logits)[1])
    return ops.where(marked, BANNED, logits)


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
