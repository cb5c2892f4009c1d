"""Causal language modelling. Shapes: B batch, N continuations, S sequence, V vocabulary."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_lm.feeding.feed import Preprocessor
from keras_lm.generation import beam_search, decoding, scoring
from keras_lm.generation.decoding import (
    NO_BOS,
    Limits,
    cut,
    ends_of_texts,
    prompt_arrays,
    real_tokens,
    tensors_of,
    written_for_all,
)
from keras_lm.generation.logits import last_logits
from keras_lm.generation.options import OPTIONS, check_lookup
from keras_lm.generation.settings import GenerationSettings
from keras_lm.generation.streaming import Stream
from keras_lm.layers.chunks import losses_in_chunks
from keras_lm.layers.tensorflow import require, traced_once, writing_in_place
from keras_lm.models.backbone import Backbone
from keras_lm.objectives import CausalLanguageModel, MeanOfKnown
from keras_lm.packers import Template, Texts
from keras_lm.tasks.generation_signatures import GenerationSignatures
from keras_lm.tasks.pretrainer import PretrainingTask
from keras_lm.tasks.runtime import jax_decoding, require_tensorflow
from keras_lm.tasks.text_model import Batch, Computed
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor
from keras_lm.utils.user_arguments import check_batch_size

PROMPTS = ("prompt", "token_ids")  # strings, or packed


@dataclasses.dataclass(frozen=True, eq=False)
class PromptPreprocessor(Preprocessor):
    """A `Preprocessor` whose texts may be called prompts."""

    def columns(self, x):
        if isinstance(x, dict) and "prompt" in x:
            x = {"text" if name == "prompt" else name: column for name, column in x.items()}
        return super().columns(x)

    def usual_tokens(self, tokenizer):
        # What separates texts, and the turns of a dialogue, in what such models learn from.
        return list(dict.fromkeys(ends_of_texts(tokenizer).values()))


@keras.saving.register_keras_serializable("keras_lm")
class CausalLM(GenerationSettings, PretrainingTask):
    """Predict the next token: continue prompts, score texts, or continue pretraining on raw text.

    `fit(texts)` without labels trains on every next token, including the end of each text; packed
    windows (`{"token_ids": (B, S), "padding_mask": (B, S)}`) are used as they are. Labels (B, S)
    beside packed windows replace the default ones; -100 is ignored by the loss.

    If the tokenizer has bos and eos tokens, `fit` puts each text between them, and `score` starts
    each text with bos. So does a prompt, unless the tokenizer's files or the model say what stands
    before a text and it is not bos (`begins_prompts`): published GPT-2s read prompts as they are,
    an empty one as the bos token. If a prompt is too long for the backbone, its last
    `max_sequence_length - max_new_tokens` tokens are kept.

    Args:
        backbone: one that reads from left to right, such as `keras_lm.models.GPT2Backbone`.
        generation: dict. The defaults of `generate` and of exports, by the names of
            `keras_lm.generation.Sampling`; tokens that end a text, `eos_token_id`, one or several
            in place of the tokenizer's; and rules for all texts, see `keras_lm.generation.Rules`.
            None for the usual. `from_preset` takes them from a folder's `generation_config.json`.
        **arguments: see `Task`.

    Call: `task(inputs)` returns the next tokens' logits (B, S, V), float32: log-probabilities from
    an adaptive softmax. Such a head computes the losses of `fit` and `score` itself, without the
    logits of all tokens; for metrics that need these, compile with `MaskedCrossentropy`. Over any
    other head, `compile(loss=MeanOfKnown(), metrics=[PerplexityOfLosses()])` computes logits of
    16 million numbers at a time, again for the gradient: memory that neither long texts nor many
    words raise, for another pass through the head.

    Raises:
        ValueError: if the backbone has no head for causal language modelling.

    Example:

        task = keras_lm.tasks.CausalLM.from_preset(SOURCE)
        task.generate(["Once upon a time"], max_new_tokens=20)
        task.generate("Once", temperature=0.8, top_p=0.9, seed=1, num_return_sequences=3)
        for piece in task.stream("Once upon a time"):
            print(piece, end="", flush=True)
        task.score(["Once upon a time"])["perplexity"]
        task.fit(["a text to learn", "another"])

    Source: GPT-2, "Language Models are Unsupervised Multitask Learners", section 2.
    """

    rows = Texts(text_pair=False)
    preprocessor_class = PromptPreprocessor

    def make_objectives(self) -> list[Any]:
        return [CausalLanguageModel()]

    @property
    def template(self) -> Template:
        ends = {} if self.tokenizer is None else ends_of_texts(self.tokenizer)
        bos, eos = (f"{ends[role]}:0" if role in ends else "" for role in ("bos", "eos"))
        return Template(single=f"{bos} $A:0 {eos}", pair=f"{bos} $A:0 $B:0 {eos}")

    def __init__(
        self, backbone: Backbone, generation: dict[str, Any] | None = None, **arguments: Any
    ):
        super().__init__(backbone, **arguments)
        self.generation = generation
        self.head = self.add_head("causal_lm")
        self._finish()

    def published_labels(self) -> Any:
        return None

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {"generation": self.generation}

    def generate(
        self,
        prompts: str | Sequence[str] | Mapping[str, Sequence[str]],
        max_new_tokens: int | None = None,
        *,
        prompt_lookup: int = 0,
        batch_size: int = 32,
        verbose: int | str = "auto",
        **sampling: Any,
    ) -> Any:
        """Continue prompts, each independently of the rest of the batch, except for rounding.

        Args:
            prompts: a string, or a list or array of strings; or a dict of packed `token_ids` (B, S)
                and optionally `padding_mask`, padded on either side, to get ids in return.
            max_new_tokens, **sampling: see `keras_lm.generation.Sampling`, such as `temperature`,
                `top_p`, `num_beams`, `stop` and `seed`.
            prompt_lookup: int. How many tokens to propose for each step: those that followed the
                last two or three where these occurred before. The text is the same, and sooner
                there if it repeats its prompt or itself, later if it seldom does. 0 is off.
            batch_size: int, prompts at a time.
            verbose: see `Task.answer_all`.

        Returns:
            A list with the continuation of each prompt, without the prompt: str, or list of token
            ids for packed prompts; with `num_return_sequences` N > 1 a list of N of them, the best
            first in beam search.

        Raises:
            ValueError: if an argument is out of range or has no effect beside the others,
                `max_new_tokens` leaves no room for a prompt, or the backbone is recurrent and
                `prompt_lookup` is not 0.
        """
        check_batch_size(batch_size)
        sampling = self.sampling(max_new_tokens, **sampling)
        batched, once = self._arrays(prompts, sampling, prompt_lookup)
        once |= sampling.search()
        if prompt_lookup:
            once["prompt_lookup"] = np.int32(prompt_lookup)

        def write(places):
            return self._continued(**{n: value[places] for n, value in batched.items()}, **once)

        columns = {name: batched[name] for name in PROMPTS if name in batched}
        number = sampling.num_return_sequences
        return written_for_all(self, columns, write, batch_size, number, verbose)

    def stream(
        self,
        prompt: str,
        max_new_tokens: int | None = None,
        *,
        prompt_lookup: int = 0,
        **sampling: Any,
    ) -> Iterator[str]:
        """Continue one prompt as `generate` does, and return a generator of the pieces of text.

        Each is there as soon as it is certain; joined they are what `generate` returns.

        Args:
            prompt: str.
            max_new_tokens, prompt_lookup, **sampling: see `generate`; without beams.

        Raises:
            ValueError: if `prompt` is not a string, or as `generate` does.

        Example:

            for piece in task.stream("Once upon a time", temperature=0.8):
                print(piece, end="", flush=True)
        """
        if not isinstance(prompt, (str, bytes)):
            raise ValueError(f"prompt is a {type(prompt).__name__}: stream continues one string.")
        sampling = self.sampling(max_new_tokens, **sampling)
        for name in ("num_beams", "num_return_sequences"):
            if (number := getattr(sampling, name)) > 1:
                raise ValueError(
                    f"{name}={number}: stream writes one text; call generate, or pass {name}=1."
                )
        row, stops = self._arrays(prompt, sampling, prompt_lookup)
        if jax_decoding:
            return jax_decoding.pieces(self, row.pop("prompt"), **stops, options=row)
        key = ("stream", prompt_lookup)
        if key not in self._graphs:
            self._graphs[key] = Stream(self, prompt_lookup or None)
        return self._graphs[key].pieces(row.pop("prompt"), **stops, options=row)

    def _arrays(self, prompts, sampling, prompt_lookup):
        """Return arguments of `generate` as arrays: those with a row per prompt, and the stops."""
        check_lookup(prompt_lookup, sampling.num_beams)
        if prompt_lookup:
            require_tensorflow(f"prompt_lookup={prompt_lookup}")
        prompts = prompt_arrays(self, prompts)
        rows = len(next(iter(prompts.values())))
        limits = self.limits
        stops = sampling.stops(self.backbone.vocabulary_size, limits.special_tokens)
        return prompts | sampling.per_row(limits, rows), stops

    def _continued(self, **inputs):
        if jax_decoding:
            return jax_decoding.continued(self, **inputs)
        answer = self.in_graph(self.continue_columns, tensors_of(inputs))
        if "prompt" in inputs:
            return [text.decode("utf-8", "replace") for text in answer["text"].numpy()]
        rows = zip(answer["token_ids"].numpy(), answer["num_tokens"].numpy(), strict=True)
        return [ids[:number].tolist() for ids, number in rows]

    def continue_columns(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Continue prompts, text or packed; `columns` has the other arguments, too."""
        if "prompt" in columns:
            return self.continue_prompts(**columns)
        columns = dict(columns)
        ids = real_tokens(columns.pop("token_ids"), columns.pop("padding_mask"))
        return dict(zip(("token_ids", "num_tokens"), self.continue_ids(ids, **columns)))

    # === Generation in the graph ===

    def initial_state(self, rows: Any, length: Any) -> Any:
        if not self.backbone.is_causal:
            raise ValueError(
                f"{type(self.backbone).__name__} reads a text from both ends here, so that it "
                "cannot continue one: load a model that reads forwards (bidirectional=False)."
            )
        return self.backbone.initial_state(rows, length)

    def read(self, token_ids: Tensor, padding_mask: Tensor, state: Any) -> Any:
        """Read tokens (B, S) after those of a state with room for them: `(outputs, new state)`."""
        backbone = self.backbone
        name = backbone.state_name

        def compute(inputs):
            with writing_in_place():
                outputs = backbone.forward(**inputs, training=False)
            return {key: x for key, x in outputs.items() if key not in backbone.INNER}

        inputs = {"token_ids": token_ids, "padding_mask": padding_mask, name: state}
        # A single token is read by operations of its own.
        outputs = traced_once(compute, inputs, "read", id(backbone), token_ids.shape[1] == 1)
        return outputs, outputs[name]

    def next_logits(
        self, token_ids: Tensor, padding_mask: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        """Read tokens, padded on the left: logits (B, V) float32 of the next one, and the state."""
        outputs, state = self.read(token_ids, padding_mask, state)
        return last_logits(self.head, outputs), state

    def decoding_state(self, state: Any) -> Any:
        """Return a state in the form from which one token after the other is read."""
        return self.backbone.decoding_state(state)

    def all_logits(self, token_ids: Tensor, padding_mask: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read tokens (B, S): the logits (B, S, V) float32 after each of them, and the state."""
        outputs, state = self.read(token_ids, padding_mask, state)
        return tf.cast(self.head(outputs), tf.float32), state

    def decoder(self, packed: dict[str, Tensor]) -> Self:
        """Return what writes, as `generation.decoding` takes it; see `Seq2SeqLM.decoder`."""
        return self

    def rewind(self, state: Any, number: Tensor) -> Any:
        """Return the state before the last `number` (B,) columns that it has read."""
        return self.backbone.rewind(state, number)

    def continue_ids(
        self,
        token_ids: Tensor,
        stop_strings: Tensor | Sequence[str] = (),
        stop_ids: Sequence[int] = (),
        num_beams: int | None = None,
        length_penalty: float = 1.0,
        num_return_sequences: int = 1,
        prompt_lookup: Any = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor]:
        """Return the new tokens, (B · N, longest) int32, and how many each row has, (B · N,).

        `token_ids` are ragged (B, None) int32, at least one in each row. A text ends before the eos
        token, before any of `stop_ids`, and before any of `stop_strings`, (number,) each for all
        prompts or (B, number) for each, of which -1 and empty ones are ignored. `num_beams`,
        `length_penalty`, `num_return_sequences` (N) and `prompt_lookup` are scalars; without
        `num_beams` there is no beam search. `options` are those of
        `keras_lm.generation.options.OPTIONS`, a scalar or (B,) each. One that is out of range
        raises an `InvalidArgumentError` when the graph runs.
        """
        problem = self.prepare_generation(token_ids, stop_strings, stop_ids, **options)
        if num_beams is None:
            return decoding.sample(*problem, num_return_sequences, prompt_lookup)
        search = beam_search.search(*problem, num_beams, length_penalty, num_return_sequences)
        return search[:2]

    def prepare_generation(
        self,
        token_ids: Tensor,
        stop_strings: Tensor | Sequence[str] = (),
        stop_ids: Sequence[int] = (),
        **options: Any,
    ) -> tuple[Any, ...]:
        """Return `decoding.prepare_generation` for the arguments of `continue_ids`."""
        detokenize = None if self.tokenizer is None else self.tokenizer.detokenize
        return decoding.prepare_generation(
            self, self.limits, detokenize, token_ids, stop_strings, stop_ids, **options
        )

    @property
    def longest_text(self) -> int | None:
        """The most tokens of prompt and continuation; `sequence_length` is that of training."""
        return self.backbone.max_sequence_length

    @property
    def limits(self) -> Limits:
        """What texts end by, a `decoding.Limits`."""
        window = self.backbone.max_sequence_length
        return self.limits_of(self.end_ids("eos"), window, self.default_max_new_tokens)

    def prompt_ids(
        self, prompt: Tensor, tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Return the ragged tokens (B, None) of prompts (B,); an empty one begins with bos."""
        ids = (tokenize or self.preprocessor.tokenize)(prompt)
        if self.ends_prompts:
            eos = tf.tile(self._ids_of("eos")[tf.newaxis], [ids.nrows(), 1])
            ids = tf.concat([ids, tf.RaggedTensor.from_tensor(eos)], axis=1)
        bos = self._ids_of("bos")
        is_begun = (ids.row_lengths() == 0) | self.begins_prompts
        if bos.shape[0] == 0:
            require(~is_begun, NO_BOS)
            return ids
        number = tf.cast(is_begun, tf.int64)
        begin = tf.repeat(bos, tf.reduce_sum(number))
        return tf.concat([tf.RaggedTensor.from_row_lengths(begin, number), ids], axis=1)

    def continue_prompts(
        self,
        prompt: Tensor,
        stop_strings: Tensor | Sequence[str] = (),
        tokenize: Callable[[Tensor], Tensor] | None = None,
        **arguments: Any,
    ) -> dict[str, Any]:
        """Continue prompts (B,) of text; for the other arguments see `continue_ids`.

        Returns `text` (B · N,), the continuations without their prompts, and the numbers of their
        tokens and of the prompts', `num_tokens` (B · N,) and `num_prompt_tokens` (B,), int32.
        """
        ids = self.prompt_ids(prompt, tokenize)
        token_ids, number = self.continue_ids(ids, stop_strings, **arguments)
        text = self.tokenizer.detokenize(tf.RaggedTensor.from_tensor(token_ids, lengths=number))
        return {
            "text": cut(text, tf.convert_to_tensor(stop_strings, tf.string)),
            "num_tokens": number,
            "num_prompt_tokens": tf.cast(ids.row_lengths(), tf.int32),
        }

    def published_generation(self, config: Mapping[str, Any]) -> dict[str, Any]:
        entries = super().published_generation(config)
        if "max_length" in entries:
            return entries
        return {"max_new_tokens": self.default_max_new_tokens} | entries

    @property
    def answer_names(self) -> Sequence[str]:
        return ["prompt"]

    @property
    def signatures(self) -> GenerationSignatures:
        return GenerationSignatures(self)

    def answer(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> dict[str, Any]:
        (prompt,) = columns.values()
        return self.continue_prompts(prompt, tokenize=tokenize, **self.sampling().constants())

    def end_ids(self, role: str) -> list[int]:
        """Return a list with the id of `"bos"` or `"eos"`, empty if there is none."""
        ends = {} if self.tokenizer is None else ends_of_texts(self.tokenizer)
        return [self.tokenizer.token_to_id(ends[role])] if role in ends else []

    @property
    def begins_prompts(self) -> bool:
        """Whether prompts begin with the bos token, as the texts of `fit` do."""
        if not self.end_ids("bos"):
            return False
        # What the tokenizer's files say, or else the model; of one without special tokens, nothing.
        stated, template = self.tokenizer.template, self.backbone.TEMPLATE
        single, pair = stated or (template.single, template.pair)
        is_text = [piece.startswith("$") for piece in f"{single} {pair}".split()]
        return not is_text[0] or (stated is None and all(is_text))

    def prompt_template(self, template: Template) -> Template:
        """Return a `Template` that has the bos token before each text, as prompts have."""
        bos, *pieces = f"{ends_of_texts(self.tokenizer)['bos']}:0", template.single, template.pair
        single, pair = (p if p.split()[0] == bos else f"{bos} {p}" for p in pieces)
        return dataclasses.replace(template, single=single, pair=pair)

    def _ids_of(self, role):
        return tf.constant(self.end_ids(role), tf.int32)

    @property
    def default_max_new_tokens(self) -> int:
        window = self.backbone.max_sequence_length
        stated = self.setting("max_new_tokens")
        usual = OPTIONS["max_new_tokens"].default if stated is None else stated
        if window is None or (stated is not None and stated < window):
            return usual
        return min(usual, window // 2)

    # === How likely texts are ===

    def score(
        self,
        texts: str | Sequence[str],
        stride: int | None = None,
        batch_size: int = 32,
        verbose: int | str = "auto",
    ) -> dict[str, np.ndarray]:
        """Return how likely texts are, token by token.

        Each text is read after the bos token, if the tokenizer has one; otherwise its first token
        has no score. A text longer than the window is read in overlapping windows: each begins
        `stride` tokens (by default half of the window) after the previous one, and scores the
        tokens after that one's end. A smaller stride is slower, and gives each token more context.
        The perplexity of several texts is exp(-(the sum of their `scores`) / (that of
        `num_tokens`)). `verbose`: see `Task.answer_all`.

        Returns:
            dict of numpy arrays: `scores` (B,), the natural logarithm of each text's probability;
            `perplexity` (B,), 1 for an empty text; `num_tokens` (B,); `tokens` and `token_scores`,
            (B, longest), empty and 0 after the end of a text.

        Raises:
            ValueError: if `stride` is out of range or there is no text.
        """
        window = self.backbone.max_sequence_length or UNLIMITED
        stride = max(window // 2, 1) if stride is None else stride
        if not isinstance(stride, (int, np.integer)) or not 1 <= stride <= window:
            raise ValueError(f"stride={stride!r} is not an int from 1 to {window}.")
        texts = [texts] if isinstance(texts, (str, bytes)) else texts
        stride = np.int32(stride)

        def score(batch):
            if jax_decoding:
                return jax_decoding.score_texts(self, batch["text"], window, stride)
            return self.in_graph(self.score_columns, batch | {"stride": tf.constant(stride)})

        return self.answer_all(texts, batch_size, score, verbose)

    def score_continuations(
        self,
        contexts: Sequence[str],
        choices: Sequence[Sequence[str]],
        batch_size: int = 8,
        verbose: int | str = "auto",
    ) -> dict[str, Any]:
        """Return how likely each of several continuations of a text is.

        A context starts with the bos token, if the tokenizer has one: a score is that of the whole
        text minus that of the context. Context and choice are tokenized together: a token across
        their border counts as part of the choice, for all choices of the context. If a context is
        too long for the window, its first tokens are dropped. Each context is read once.

        Args:
            contexts: list or array of B strings.
            choices: list of B lists of strings, appended to the contexts as they are: a word needs
                its space, as in `" yes"`.
            batch_size: int, contexts at a time.
            verbose: see `Task.answer_all`.

        Returns:
            dict of numpy arrays: `scores` (B, C), the natural logarithm of each choice's
            probability, and `num_tokens` (B, C). Rows with fewer choices end in -inf and 0.

        Raises:
            ValueError: if a choice adds no token or is longer than the window, or a context is
                empty and the tokenizer has no bos token.
        """

        def compute(packed):
            if jax_decoding:
                return jax_decoding.score_continuations(self, packed)
            return self.in_graph(self.score_packed, tensors_of(packed))

        return scoring.score_all(self, contexts, choices, compute, batch_size, verbose)

    def score_columns(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Call `score_texts` with its arguments in one dict."""
        return self.score_texts(**columns)

    def score_packed(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Call `continuations.scores` with its arguments in one dict."""
        return scoring.scores(self, **columns)

    def score_texts(
        self,
        text: Tensor,
        stride: Tensor | None = None,
        tokenize: Callable[[Tensor], Tensor] | None = None,
    ) -> dict[str, Any]:
        """Return tensors of how likely texts (B,) are, with an int32 `stride`; see `score`."""
        require_tensorflow("Scoring")
        ids = (tokenize or self.preprocessor.tokenize)(text)
        rows = ids.nrows()
        bos = tf.RaggedTensor.from_tensor(tf.tile(self._ids_of("bos")[tf.newaxis], [rows, 1]))
        ids = tf.concat([bos, ids], axis=1)
        window = self.backbone.max_sequence_length or UNLIMITED
        stride = max(window // 2, 1) if stride is None else stride
        require(
            (stride > 0) & (stride <= window), f"stride must be from 1 to {window}, but is", stride
        )
        scored = scoring.token_scores(self._log_likelihood, ids, window, stride)
        total = tf.reduce_sum(scored, axis=1)
        number = tf.cast(scored.row_lengths(), tf.int32)
        mean = tf.math.divide_no_nan(total, tf.cast(number, tf.float32))
        return {
            "scores": total,
            "perplexity": tf.exp(-mean),
            "num_tokens": number,
            "tokens": self.tokenizer.tokens(ids[:, 1:]).to_tensor(""),
            "token_scores": scored.to_tensor(0.0),
        }

    def _log_likelihood(self, token_ids, padding_mask, targets):
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask}
        outputs = self._encode(inputs, training=False)
        return -self.target_losses(outputs["sequence_output"], targets)

    def read_head(
        self,
        head: keras.layers.Layer,
        outputs: Any,
        rows: Any,
        training: bool | None,
        terms: list[Any],
    ) -> Tensor:
        labels = rows.get("labels")
        if labels is None or getattr(head, "computes_losses", False):
            return super().read_head(head, outputs, rows, training, terms)
        return losses_in_chunks(head, outputs["sequence_output"], labels)

    def compute_batch(self, batch: Batch, training: bool | None) -> Computed:
        _, loss = self.compiled_losses.by_output.get(None, (1.0, None))
        if isinstance(loss, MeanOfKnown):  # without the logits of all tokens
            if training and getattr(self.head, "has_terms", False):
                raise ValueError(
                    f"{type(self.head).__name__} adds to the loss of whole texts, so it cannot "
                    "be computed in parts: compile with loss=MaskedCrossentropy()."
                )
            batch = batch._replace(inputs=batch.inputs | {"labels": batch.labels})
        return super().compute_batch(batch, training)

    def target_losses(self, states: Any, targets: Tensor) -> Tensor:
        """Return the cross-entropies (B, S) float32 of targets (B, S) after states (B, S, D)."""
        outputs = {"sequence_output": states}
        if getattr(self.head, "computes_losses", False):
            return self.head(outputs, {"labels": targets})
        logits = ops.cast(self.head(outputs), "float32")
        return ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)


UNLIMITED = 2**31 - 1  # the window of a model without one
