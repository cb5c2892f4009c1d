"""Text to text, by an encoder and a decoder.

Shapes: B batch, N targets a source, S source, T target, V vocabulary, W words.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.feeding.datasets import take
from keras_lm.feeding.feed import Preprocessor, TaskLabels, columns_from_user, tensors
from keras_lm.feeding.predict_batches import join_answers
from keras_lm.generation.decoding import tensors_of, with_scores, written_for_all
from keras_lm.generation.logits import last_logits
from keras_lm.generation.options import Sampling
from keras_lm.generation.scoring import target_scores
from keras_lm.generation.settings import GenerationSettings, with_targets
from keras_lm.generation.targets import Decoder, check_coverage, forbidden_ids, write
from keras_lm.layers.masks import IGNORED
from keras_lm.layers.tensorflow import few_numbers, traced_once, writing_in_place
from keras_lm.models.backbone import Backbone
from keras_lm.objectives import MaskedAccuracy, MaskedCrossentropy, Perplexity
from keras_lm.packers import Seq2SeqPacker, Template
from keras_lm.tasks.generation_signatures import Seq2SeqSignatures
from keras_lm.tasks.runtime import jax_decoding, require_tensorflow
from keras_lm.tasks.task import Task
from keras_lm.tensorflow import require_installed, tf
from keras_lm.utils.argument_types import RawTexts, Tensor
from keras_lm.utils.batch_iteration import with_progress
from keras_lm.utils.user_arguments import check_batch_size, check_whole, checks_flags

SENTINEL = re.compile(r"<extra_id_\d+>")


class TargetLabels(TaskLabels):
    """The target of each source, a text; of packed rows, the ids of its tokens, (B, S)."""

    remedy = "pass y, the target of each source; for new text call generate"

    def prepare(self, labels):
        if labels.dtype.kind in "iu":
            return labels.astype("int32")
        return columns_from_user({"labels": labels}, ("labels",))["labels"]

    def match(self, labels, columns, is_packed):
        if is_packed != (labels.dtype.kind in "iu"):
            raise ValueError(
                "labels are "
                + ("texts, and x is packed" if is_packed else "ids, and x are texts")
                + ": pass both as strings, or both packed, with decoder_token_ids in x."
            )
        return labels


@dataclasses.dataclass(frozen=True, eq=False)
class Seq2SeqPreprocessor(Preprocessor):
    """A `Preprocessor` of sources, and of the targets that they are learned with."""

    def usual_tokens(self, tokenizer):
        # T5's, which its pretraining fills in.
        return [token for token in tokenizer.all_special_tokens if SENTINEL.fullmatch(token)]

    def tokenize_target(self, text: Tensor) -> tf.RaggedTensor:
        """Return the ragged ids of targets (B,), without special tokens around them."""
        tokenizer = self.tokenizer.target
        return tokenizer(text, self.tokens_in_text(tokenizer))

    def row_lengths(self, columns, labels=None):
        # Sorted by source, then by target, since both are padded.
        sources = super().row_lengths(columns)
        if self.is_packed(columns) or labels is None:
            return sources
        targets = {"labels": tf.constant(list(labels))}
        targets = self.count_tokens(targets, self.tokenize_target)
        return sources * (targets.max() + 1) + targets

    def with_labels(self, columns, labels):
        inputs, labels = self.packer.targets(labels, self.tokenize_target)
        return self(columns) | inputs, labels


@keras.saving.register_keras_serializable("keras_lm")
class Seq2SeqLM(GenerationSettings, Task):
    """Write a text for a text: translate, summarise, answer, or whatever was trained.

    `fit(sources, targets)` takes strings for both; a tuple of two lists as sources is a pair of
    texts. Targets end with the tokenizer's eos token, or its sep token if there is none. In both,
    T5's sentinels (`<extra_id_0>`) are recognised; see `parse_special` of `Task`. `predict` takes
    packed dicts only, with the decoder's inputs: for text, see `generate`.

    Args:
        backbone: an encoder-decoder, such as `keras_lm.models.T5Backbone`.
        target_length: int. Longer targets are truncated in training, and `generate` stops there by
            default. None for `sequence_length`.
        num_beams: int. The beams of `generate` and of the export where nothing else is said.
        length_penalty, coverage_penalty: float. The same, see `generate`.
        generation: dict. The other defaults of `generate` and of exports, and rules for all
            targets; see `CausalLM`. Also `decoder_start_token_id`, what the decoder starts with, in
            training, too: by default the padding token.
        **arguments: see `Task`.

    Call: `task(inputs)` returns logits (B, T, V), float32, for the packed `encoder_token_ids`,
    `encoder_padding_mask`, `decoder_token_ids` and `decoder_padding_mask`; see
    `keras_lm.packers.Seq2SeqPacker`.

    Raises:
        ValueError: if the backbone is not an encoder-decoder, or an argument is out of range.

    Example:

        task = keras_lm.tasks.Seq2SeqLM.from_preset(SOURCE)
        task.fit(["translate English to German: a house"], ["ein Haus"])
        task.generate(["translate English to German: a house"], num_beams=4)
        task.score(["translate English to German: a house"], ["ein Haus"])["scores"]

    Source: Sutskever et al. 2014, https://arxiv.org/abs/1409.3215, section 2.
    """

    preprocessor_class = Seq2SeqPreprocessor
    predicts_sequences = True
    uses_pooler = False
    labels_class = TargetLabels
    has_decoder = True

    def __init__(
        self,
        backbone: Backbone,
        target_length: int | None = None,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        coverage_penalty: float | None = None,
        generation: dict[str, Any] | None = None,
        **task_arguments: Any,
    ):
        Sampling(num_beams=num_beams, length_penalty=length_penalty)
        if target_length is not None:
            check_whole("target_length", target_length, 2)
        self._target_length = target_length
        super().__init__(backbone, **task_arguments)
        self.num_beams, self.length_penalty = num_beams, length_penalty
        self.coverage_penalty = coverage_penalty
        self.generation = generation
        self.head = self.add_head("seq2seq_lm")
        check_coverage(coverage_penalty, num_beams, backbone)
        self._finish()

    def _set_tokenizer(self, tokenizer):
        super()._set_tokenizer(tokenizer)
        config = self.backbone.config
        rows = config.get("decoder_vocabulary_size") or self.backbone.vocabulary_size
        if tokenizer is not None and tokenizer.target.vocabulary_size > rows:
            raise ValueError(
                f"tokenizer.target has {tokenizer.target.vocabulary_size} entries, but the "
                f"decoder's embedding has {rows} rows: they belong to different checkpoints."
            )

    def published_labels(self) -> Any:
        return None

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {
            "target_length": self._target_length,
            "num_beams": self.num_beams,
            "length_penalty": self.length_penalty,
            "coverage_penalty": self.coverage_penalty,
            "generation": self.generation,
        }

    @classmethod
    def arguments_of_settings(cls, settings: dict[str, Any], given: Mapping[str, Any]) -> Any:
        if given.get("target_length") is not None:
            settings.pop("max_new_tokens", None)
        names = ("num_beams", "length_penalty", "target_length")
        own = {name: settings.pop(name) for name in names if name in settings}
        return own | super().arguments_of_settings(settings, given)

    def stated_options(self) -> dict[str, Any]:
        own = {"num_beams": self.num_beams, "length_penalty": self.length_penalty}
        return own | super().stated_options()

    def own_token_ids(self) -> dict[str, int]:
        (end,) = self.own_end_ids()
        return {"eos_token_id": end, "decoder_start_token_id": self.packer.start_id}

    def published_generation(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return with_targets(self, super().published_generation(config))

    @property
    def target_length(self) -> int | str:
        return self._target_length or self.packing["sequence_length"]

    def _make_packer(self):
        self.packer = Seq2SeqPacker(
            self.template,
            self.tokenizer,
            target_length=self.target_length,
            start_id=self.setting("decoder_start_token_id"),
            rows=self.rows,
            **self.packing,
        )

    @property
    def template(self) -> Template:
        if self.tokenizer is None:
            return self.backbone.TEMPLATE
        stated = self.tokenizer.template
        if stated and not stated[0].split()[-1].startswith("$"):  # it ends texts by itself
            return self.backbone.TEMPLATE.for_tokenizer(self.tokenizer).within(1)
        roles = self.tokenizer.special_tokens
        end = next((roles[role] for role in ("eos", "sep") if role in roles), None)
        if end is None:
            raise ValueError(
                f"{type(self.tokenizer).__name__} has no eos and no sep token to end a target "
                "with: make it with eos_token=…, an entry of its vocabulary."
            )
        return Template(single=f"$A:0 {end}:0", pair=f"$A:0 {end}:0 $B:0 {end}:0")

    def tokenize_target(self, text: Tensor) -> tf.RaggedTensor:
        """Return the ragged ids of targets (B,), without special tokens around them."""
        return self.preprocessor.tokenize_target(text)

    # === Training ===

    def default_loss(self) -> Any:
        return MaskedCrossentropy()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [Perplexity(), MaskedAccuracy()]

    def __call__(self, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        if isinstance(inputs, dict) and "decoder_token_ids" not in inputs:
            raise ValueError(
                "inputs has no decoder_token_ids, the target so far: fit and evaluate need targets "
                "as y; for new text call generate, and for a target's likelihood score."
            )
        return super().__call__(inputs, *args, **kwargs)

    # === Generation ===

    @checks_flags
    def generate(
        self,
        x: RawTexts,
        max_new_tokens: int | None = None,
        *,
        prefix: str | Sequence[str] | None = None,
        forbidden: Sequence[str] | None = None,
        coverage_penalty: float | None = None,
        return_scores: bool = False,
        batch_size: int = 32,
        verbose: int | str = "auto",
        **sampling: Any,
    ) -> Any:
        """Write a text for each of the sources.

        Args:
            x: sources in any form that `fit` takes, except datasets.
            max_new_tokens, **sampling: see `keras_lm.generation.Sampling`. By default `num_beams`
                and `length_penalty` are the task's; one beam with a `temperature`.
            prefix: str, or a list with one per source. What each target begins with.
            forbidden: list of str. No target has their tokens in a row; a word that is the
                beginning of others forbids these, too, and other cases are other tokens.
            coverage_penalty: float. GNMT's β, with `length_penalty` as its α: the log-likelihood is
                divided by ((5 + tokens) / 6) ** α, and the texts that the search has found are
                ranked with β times how much of the source the decoder's attention left unread; see
                `keras_lm.generation.targets`. The paper takes 0.2 for both. Default: the task's.
            return_scores: bool. Return `(texts, scores)` of beam search.
            batch_size: int, sources at a time.
            verbose: see `Task.answer_all`.

        Returns:
            A list with the target of each source; with `num_return_sequences` > 1 a list of lists,
            the best first in beam search. With `return_scores` also their scores, (B,) or (B, N)
            float32: the log-likelihood that `length_penalty` divides, and the coverage penalty.

        Raises:
            ValueError: if an argument is out of range or has no effect beside the others.
        """
        check_batch_size(batch_size)
        sampling = self.sampling(max_new_tokens, **sampling)
        number, num_beams = sampling.num_return_sequences, sampling.num_beams
        check_coverage(coverage_penalty, num_beams, self.backbone)
        if coverage_penalty is None:
            coverage_penalty = self.coverage_penalty
        if return_scores and num_beams == 1:
            raise ValueError(
                "return_scores=True with num_beams=1: only beam search ranks texts. Pass "
                "num_beams=2 or more, or the texts to score."
            )
        self.require_tokenizer()
        columns, tokenizer = self.columns(x), self.tokenizer.target
        rows = next(iter(columns.values())).shape[0]
        limits = self.limits
        options = sampling.per_row(limits, rows)
        if prefix is not None:
            prefix = [prefix] * rows if isinstance(prefix, (str, bytes)) else prefix
            options |= columns_from_user({"prefix": prefix}, ("prefix",))
            if len(options["prefix"]) != rows:
                raise ValueError(
                    f"prefix has {len(options['prefix'])} strings for {rows} sources: pass one "
                    "for each, or one for all."
                )
        once = sampling.stops(tokenizer.vocabulary_size, limits.special_tokens) | sampling.search()
        if num_beams > 1 and coverage_penalty is not None:
            once["coverage_penalty"] = np.float32(coverage_penalty)
        banned = forbidden_ids(forbidden or [], tokenizer)
        once |= {} if banned is None else {"forbidden": banned}

        def write_by_jax(places):
            here = {name: value[places] for name, value in options.items()} | once
            texts, scores = jax_decoding.targets(self, take(columns, places), **here)
            return [*zip(texts, scores, strict=True)] if return_scores else texts

        if jax_decoding:
            written = written_for_all(self, columns, write_by_jax, batch_size, number, verbose)
            return with_scores(written, number) if return_scores else written
        once, batched = tensors_of(once), columns | tensors_of(options)

        def write(places):
            answer = self.in_graph(self.write_columns, take(batched, places) | once)
            texts = [value.decode("utf-8", "replace") for value in answer["text"].numpy()]
            return [*zip(texts, answer["scores"].numpy(), strict=True)] if return_scores else texts

        written = written_for_all(self, columns, write, batch_size, number, verbose)
        return with_scores(written, number) if return_scores else written

    def write_columns(self, columns: dict[str, Tensor]) -> Any:
        """Call `write` with the texts and the other arguments in one dict."""
        texts = {name: columns[name] for name in self.text_names if name in columns}
        return self.write(texts, **{n: v for n, v in columns.items() if n not in texts})

    def write(
        self,
        columns: dict[str, Tensor],
        tokenize: Callable[[Tensor], Tensor] | None = None,
        **options: Any,
    ) -> Any:
        """Write targets in the graph; `options` are those of `generation.targets.write`."""
        require_tensorflow("Generation")
        return write(self, self.preprocess(columns, tokenize), **options)

    def read(self, token_ids: Tensor, padding_mask: Tensor, state: Any) -> Any:
        """Read target tokens (B, T) after those of a state with room for them."""
        backbone = self.backbone
        name = backbone.state_name

        def compute(inputs):
            with writing_in_place():
                outputs = backbone.forward(*inputs[:2], **{name: inputs[2]}, training=False)
            return {key: x for key, x in outputs.items() if key not in backbone.INNER}

        inputs = (token_ids, padding_mask, state)
        # A single token is read by operations of its own.
        outputs = traced_once(compute, inputs, "read", id(backbone), token_ids.shape[1] == 1)
        return outputs, outputs[name]

    def next_logits(
        self, token_ids: Tensor, padding_mask: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        """Read target tokens: logits (B, V) float32 of the next one, and the state."""
        outputs, state = self.read(token_ids, padding_mask, state)
        return last_logits(self.head, outputs), state

    def decoder(self, packed: dict[str, Tensor]) -> Any:
        """Return what writes for packed sources, as `generation.decoding` takes it.

        To go on from a state, it needs no sources.
        """
        return Decoder(self, packed)

    @property
    def limits(self) -> Any:
        """What targets end by, a `decoding.Limits`."""
        ends = self.own_end_ids()
        window = self.backbone.max_sequence_length
        most = self.setting("max_new_tokens", self.target_length)
        return self.limits_of(ends, window, most if window is None else min(most, window - 1))

    def own_end_ids(self) -> list[int]:
        if self.tokenizer is None:
            return []
        return [self.template.ids("single", self.tokenizer.target)[-1][0]]

    # === Answers ===

    def answer(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> Any:
        options = self.sampling().constants()
        if "num_beams" in options:
            options["coverage_penalty"] = self.coverage_penalty
        return self.write(columns, tokenize=tokenize, **options)

    @property
    def signatures(self) -> Seq2SeqSignatures:
        return Seq2SeqSignatures(self)

    def score(
        self, x: RawTexts, targets: Sequence[str], batch_size: int = 32, verbose: int | str = "auto"
    ) -> dict[str, np.ndarray]:
        """Return how likely targets are for their sources, token by token, the end included.

        Args:
            x: sources in any form that `fit` takes, except datasets.
            targets: list or array of strings, one for each source.
            batch_size: int, sources at a time.
            verbose: see `Task.answer_all`.

        Returns:
            dict of numpy arrays: `scores` (B,), the natural logarithm of each target's probability;
            `perplexity` (B,); `num_tokens` (B,); `tokens` and `token_scores`, (B, longest), empty
            and 0 after the end of a target.
        """
        require_installed("Scoring targets")
        columns, targets = self._pairs(x, targets)
        parts, columns = [], columns | targets
        starts = range(0, len(targets["labels"]), batch_size)
        for start in with_progress(starts, len(starts), verbose):
            batch = {name: column[start : start + batch_size] for name, column in columns.items()}
            parts.append(self.in_graph(self.score_columns, batch))
        return {key: join_answers([part[key].numpy() for part in parts]) for key in parts[0]}

    def score_columns(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> dict[str, Any]:
        """Return tensors of how likely `labels` (B,) are, texts for the other columns."""
        columns = dict(columns)
        targets = self.packer.targets(columns.pop("labels"), self.tokenize_target)
        rows, tokens = tf.unstack(tf.shape(targets[1]))
        inputs, labels = few_numbers(targets, rows, tokens, self.backbone.vocabulary_size)
        logits = self(self.preprocess(columns, tokenize) | inputs, training=False)
        return target_scores(logits, labels, self.tokenizer.target.tokens)

    def attention(
        self, x: RawTexts, targets: Sequence[str], block: int | None = None
    ) -> list[dict[str, Any]]:
        """Return what each word of targets read of its source when it was written, for a picture.

        Args:
            x: sources in any form that `fit` takes, except datasets.
            targets: list or array of strings, one for each source.
            block: int. The decoder's block to look at; None for the mean of all.

        Returns:
            A list with a dict for each target: `attention` (target words, source words) float32,
            the mean over heads, whose rows sum to 1; and the words, lists of str, `source`
            and `target`, special tokens among them.
        """
        columns, targets = self._pairs(x, targets)
        return attention_by_words(self, columns, targets["labels"], block)

    def _pairs(self, x, targets):
        """Return the columns of sources, and of targets, equally many."""
        self.require_tokenizer()
        columns = self.columns(x)
        targets = tensors(columns_from_user({"labels": targets}, ("labels",)))
        rows, number = next(iter(columns.values())).shape[0], targets["labels"].shape[0]
        if rows != number:
            raise ValueError(f"targets has {number} texts for {rows} sources: pass one for each.")
        return columns, targets


def attention_by_words(task, columns, targets, block=None):
    """Return what targets (B,) read of sources, named texts; see `Seq2SeqLM.attention`."""
    inputs, labels = task.packer.targets(targets)
    packed = task.preprocess(columns) | inputs
    probabilities = task.backbone.cross_attention_probabilities(packed)
    probabilities = probabilities if block is None else [probabilities[block]]
    mean = np.mean([np.mean(layer, axis=1) for layer in probabilities], axis=0)  # (B, T, S)
    pictures = []
    for row, attention in enumerate(mean):
        known = packed["encoder_padding_mask"][row].numpy() > 0
        source = words_of(task.tokenizer, packed["encoder_token_ids"][row].numpy()[known])
        ids = labels[row].numpy()
        target = words_of(task.tokenizer.target, ids[ids != IGNORED])
        pictures.append(by_words(attention[: len(target[1]), known], source, target))
    return pictures


def words_of(tokenizer, ids):
    """Return the words that token ids make up, and the word of each token, (S,) int.

    Special tokens are words of their own, which are called as in the vocabulary.
    """
    starts = tokenizer.word_starts(tf.constant([ids]))[0].numpy()
    parts = tf.RaggedTensor.from_row_lengths(ids, np.bincount(np.cumsum(starts) - 1))
    texts = [text.decode("utf-8", "replace") for text in tokenizer.detokenize(parts).numpy()]
    names = [tokenizer.id_to_token(part[0]) for part in parts.to_list()]
    return [text.strip() or name for text, name in zip(texts, names, strict=True)], np.cumsum(
        starts
    ) - 1


def by_words(attention, source, target):
    """Return attention (T, S) between tokens as that between words, with their names, in a dict.

    `source` and `target` are from `words_of`. What the tokens of a source's word are read with is
    summed up; over those of a target's word it is averaged, so that rows still sum to 1.
    """
    (source_words, columns), (target_words, rows) = source, target
    rows, columns = np.eye(len(target_words))[rows], np.eye(len(source_words))[columns]
    weights = rows.T @ attention @ columns / rows.sum(axis=0)[:, np.newaxis]
    return {"source": source_words, "target": target_words, "attention": weights.astype("float32")}
