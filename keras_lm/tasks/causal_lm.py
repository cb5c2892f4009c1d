"""Causal language modelling. Shapes: B batch, N continuations, S sequence, V vocabulary."""

import keras
import numpy as np
import tensorflow as tf

from keras_lm.elements import check_batch_size
from keras_lm.feeding.user_data import columns_from_user
from keras_lm.generation import arguments, continuations
from keras_lm.generation.prompts import real_tokens
from keras_lm.generation.streaming import Stream
from keras_lm.tasks.answers import with_progress, written_for_all
from keras_lm.tasks.backend_steps import require_tensorflow
from keras_lm.tasks.generative import GenerativeTask

PROMPTS = ("prompt", "token_ids")  # strings, or packed


@keras.saving.register_keras_serializable("keras_lm")
class CausalLM(GenerativeTask):
    """Predict the next token: continue prompts, score texts, or continue pretraining on raw text.

    `fit(texts)` without labels trains on every next token, including the end of each text; packed
    windows (`{"token_ids": (B, S), "padding_mask": (B, S)}`) are used as they are. Labels (B, S)
    beside packed windows replace the default ones; -100 is ignored by the loss.

    If the tokenizer has bos and eos tokens, `fit` puts each text between them, and `score` starts
    each text with bos. Prompts get neither, but an empty one becomes the bos token. If a prompt is
    too long for the backbone, its last `max_sequence_length - max_new_tokens` tokens are kept.

    Args:
        backbone: one that reads from left to right, such as `keras_lm.models.GPT2Backbone`.
        **arguments: see `Task`.

    Call: `task(inputs)` returns the next tokens' logits (B, S, V), float32.

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

    def __init__(self, backbone, **arguments):
        super().__init__(backbone, **arguments)
        self.head = self.add_head("causal_lm")
        self._finish()

    def _set_tokenizer(self, tokenizer):
        super()._set_tokenizer(tokenizer)
        self._functions = {}  # name and arguments → ConcreteFunction

    def generate(
        self,
        prompts,
        max_new_tokens=None,
        temperature=None,
        top_k=None,
        top_p=None,
        num_beams=1,
        length_penalty=1.0,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        stop=None,
        num_return_sequences=1,
        seed=None,
        prompt_lookup=0,
        batch_size=32,
        verbose="auto",
    ):
        """Continue prompts, each independently of the rest of the batch, except for rounding.

        Args:
            prompts: a string, or a list or array of strings; or a dict of packed `token_ids` (B, S)
                and optionally `padding_mask`, padded on either side, to get ids in return.
            max_new_tokens: int. Default: 50, or half of the window if that is less.
            temperature: float, divides logits before sampling. 0 or None takes the likeliest token.
            top_k: int. Sample from the `top_k` likeliest tokens.
            top_p: float. Sample from the likeliest tokens with this cumulative probability.
            num_beams: int. More than 1 is beam search.
            length_penalty: float. Beam search divides a text's log-likelihood by its number of
                tokens to this power.
            repetition_penalty: float. Above 1 makes tokens of prompt and text less likely.
            no_repeat_ngram_size: int n. No n-gram occurs twice.
            stop: str, token id, or a list of these. A text ends before any of them, and always
                before the tokenizer's eos token.
            num_return_sequences: int N. How many continuations of each prompt.
            seed: int, or a list with one per prompt. Equal prompts with equal seeds have equal
                continuations.
            prompt_lookup: int. How many tokens to propose for each step: those that followed the
                last two or three where these occurred before. The text is the same, and sooner
                there if it repeats its prompt or itself, later if it seldom does. 0 is off.
            batch_size: int, prompts at a time.
            verbose: see `Task.answer_all`.

        Returns:
            A list with the continuation of each prompt, without the prompt: str, or list of token
            ids for packed prompts; with N > 1 a list of N of them, the best first in beam search.

        Raises:
            ValueError: if an argument is out of range or has no effect beside the others,
                `max_new_tokens` leaves no room for a prompt, or the backbone is recurrent and
                `prompt_lookup` is not 0.
        """
        check_batch_size(batch_size)
        arguments.check_search(
            temperature,
            top_k,
            top_p,
            num_beams,
            length_penalty,
            num_return_sequences,
            prompt_lookup,
        )
        batched, once = self._arrays(
            prompts,
            stop,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            no_repeat_ngram_size=no_repeat_ngram_size,
            seed=seed,
        )
        once["num_return_sequences"] = np.int32(num_return_sequences)
        if num_beams > 1:
            once |= {"num_beams": np.int32(num_beams), "length_penalty": np.float32(length_penalty)}
        if prompt_lookup:
            once["prompt_lookup"] = np.int32(prompt_lookup)

        def write(places):
            return self._continued(**{n: value[places] for n, value in batched.items()}, **once)

        columns = {name: batched[name] for name in PROMPTS if name in batched}
        return written_for_all(self, columns, write, batch_size, num_return_sequences, verbose)

    def stream(
        self,
        prompt,
        max_new_tokens=None,
        temperature=None,
        top_k=None,
        top_p=None,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        stop=None,
        seed=None,
        prompt_lookup=0,
    ):
        """Continue one prompt as `generate` does, and return a generator of the pieces of text.

        Each is there as soon as it is certain; joined they are what `generate` returns. The
        arguments are those of `generate`.

        Raises:
            ValueError: if `prompt` is not a string, or as `generate` does.

        Example:

            for piece in task.stream("Once upon a time", temperature=0.8):
                print(piece, end="", flush=True)
        """
        if not isinstance(prompt, (str, bytes)):
            raise ValueError(f"prompt is a {type(prompt).__name__}: stream continues one string.")
        arguments.check_search(temperature, top_k, top_p, 1, 1.0, 1, prompt_lookup)
        row, stops = self._arrays(
            prompt,
            stop,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            no_repeat_ngram_size=no_repeat_ngram_size,
            seed=seed,
        )
        key = ("stream", prompt_lookup)
        if key not in self._functions:
            self._functions[key] = Stream(self, prompt_lookup or None)
        return self._functions[key].pieces(row.pop("prompt"), **stops, options=row)

    def _arrays(self, prompts, stop, **options):
        """Return arguments of `generate` as arrays: those with a row per prompt, and the stops."""
        options = arguments.all_options(self.limits, **options)
        strings, ids = arguments.split_stop(stop, self.backbone.vocabulary_size)
        stops = {"stop_strings": np.array(strings, object), "stop_ids": np.array(ids, "int32")}
        prompts = self._prompt_arrays(prompts)
        rows = len(next(iter(prompts.values())))
        return prompts | arguments.per_row(options, rows), stops

    def _prompt_arrays(self, prompts):
        """Return prompts as `prompt` (B,), or as `token_ids` and `padding_mask` (B, S)."""
        if not isinstance(prompts, dict) or "token_ids" not in prompts:
            self.require_tokenizer()
            prompts = [prompts] if isinstance(prompts, (str, bytes)) else prompts
            return columns_from_user(prompts, ("prompt",))
        unknown = set(prompts) - {"token_ids", "padding_mask", "segment_ids"}
        if unknown:
            raise ValueError(f"prompts has the unknown keys {sorted(unknown)}.")
        token_ids = np.asarray(prompts["token_ids"], "int32")
        mask = np.asarray(prompts.get("padding_mask", np.ones_like(token_ids)), "int32")
        if token_ids.ndim != 2 or mask.shape != token_ids.shape:
            raise ValueError(
                f"prompts has token_ids of shape {token_ids.shape} and padding_mask of shape "
                f"{mask.shape}: both must be (B, S)."
            )
        for row in np.flatnonzero(~mask.any(axis=1))[:1]:
            raise ValueError(
                f"prompts has no token in row {row}: begin an empty prompt with the bos token."
            )
        return {"token_ids": token_ids, "padding_mask": mask}

    def _continued(self, **inputs):
        if "prompt" in inputs:
            text = self._run(self.continue_prompts, inputs)["text"]
            return [value.decode("utf-8", "replace") for value in text.numpy()]
        token_ids, number = self._run(self._continue_packed, inputs)
        return [ids[:n].tolist() for ids, n in zip(token_ids.numpy(), number.numpy(), strict=True)]

    def _continue_packed(self, token_ids, padding_mask, **arguments):
        return self.continue_ids(real_tokens(token_ids, padding_mask), **arguments)

    def _run(self, function, inputs):
        """Call a function of named tensors as a graph, traced once for all shapes."""
        require_tensorflow("Generation")
        inputs = {
            name: tf.constant(value, tf.string if value.dtype == object else value.dtype)
            for name, value in inputs.items()
        }
        if tf.config.functions_run_eagerly():
            return function(**inputs)
        key = (function.__name__, *inputs)
        if key not in self._functions:
            specs = {
                name: tf.TensorSpec([None] * len(value.shape), value.dtype, name)
                for name, value in inputs.items()
            }
            traced = tf.function(lambda **inputs: function(**inputs), autograph=False)
            self._functions[key] = traced.get_concrete_function(**specs)
        return self._functions[key](**inputs)

    def score(self, texts, stride=None, batch_size=32, verbose="auto"):
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
        window = self.backbone.max_sequence_length or tf.int32.max
        stride = max(window // 2, 1) if stride is None else stride
        if not isinstance(stride, (int, np.integer)) or not 1 <= stride <= window:
            raise ValueError(f"stride={stride!r} is not an int from 1 to {window}.")
        texts = [texts] if isinstance(texts, (str, bytes)) else texts
        stride = np.int32(stride)
        return self.answer_all(
            texts,
            batch_size,
            lambda batch: self._run(self.score_texts, batch | {"stride": stride}),
            verbose,
        )

    def score_continuations(self, contexts, choices, batch_size=8, verbose="auto"):
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
        self.require_tokenizer()
        columns = columns_from_user(
            {"contexts": contexts, "choices": choices},
            ("contexts", "choices"),
            required=("contexts", "choices"),
            lists=("choices",),
        )
        rows = list(zip(columns["contexts"], columns["choices"], strict=True))
        if not rows:
            raise ValueError("contexts is empty: pass at least one.")
        for i, (_, row) in enumerate(rows):
            if isinstance(row, bytes) or not row:
                raise ValueError(f"choices[{i}] is {row!r}: pass a list of at least one choice.")
        heads = self._ids_after_bos([context for context, _ in rows])
        wholes = self._ids_after_bos([context + choice for context, row in rows for choice in row])
        ends = np.cumsum([len(row) for _, row in rows])
        wholes = [wholes[end - len(row) : end] for end, (_, row) in zip(ends, rows, strict=True)]
        borders = [continuations.border(*pair) for pair in zip(heads, wholes, strict=True)]
        numbers = [
            [len(ids) - n for ids in whole] for whole, n in zip(wholes, borders, strict=True)
        ]
        window = self.backbone.max_sequence_length or tf.int32.max
        for i, number in enumerate(numbers):
            if not borders[i]:
                raise ValueError(
                    f"contexts[{i}]={rows[i][0]!r} has no token before its choices, and the "
                    "tokenizer has no bos token to begin with: pass a longer context."
                )
            if not 0 < min(number) <= max(number) <= window:
                raise ValueError(
                    f"choices[{i}] has {number} tokens: each must have one, and at most the "
                    f"{window} of the window."
                )
            surplus = max(borders[i] + max(number) - 1 - window, 0)
            wholes[i] = [ids[surplus:] for ids in wholes[i]]
            borders[i] -= surplus
        scores = []
        starts = range(0, len(rows), batch_size)
        for start in with_progress(starts, len(starts), verbose):
            here = slice(start, start + batch_size)
            packed = continuations.pack(wholes[here], borders[here])
            scores += self._run(self._continuation_scores, packed).numpy().tolist()
        mask = np.arange(max(map(len, numbers))) < np.array([[len(row)] for row in numbers])
        answer = {
            "scores": np.full(mask.shape, -np.inf, "float32"),
            "num_tokens": np.zeros(mask.shape, "int32"),
        }
        answer["scores"][mask] = scores
        answer["num_tokens"][mask] = np.concatenate(numbers)
        return answer

    def _ids_after_bos(self, texts):
        ids = self.tokenize(texts)
        rows = np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])
        bos = self._ids_of("bos").numpy()
        return [np.concatenate([bos, row]) for row in rows]

    def _continuation_scores(self, **packed):
        return continuations.scores(self, **packed)
