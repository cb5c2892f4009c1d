"""Generation and scoring of a causal model in the graph, for users' calls and exports.

Shapes: B batch, N continuations of a prompt, S sequence, V vocabulary.
"""

import tensorflow as tf

from keras_lm.generation import beam_search, decoding, scoring, stopping
from keras_lm.generation.options import OPTIONS, batch_options
from keras_lm.generation.prompts import align
from keras_lm.layers.tensorflow import require, writing_in_place
from keras_lm.objectives import CausalLanguageModel
from keras_lm.packers import Template, Texts
from keras_lm.tasks.generation_signatures import GenerationSignatures
from keras_lm.tasks.pretraining import PretrainingTask


class GenerativeTask(PretrainingTask):
    """A task over a model that predicts the next token; arguments are those of `Task`.

    A subclass makes the head.
    """

    rows = Texts(text_pair=False)

    def make_objectives(self):
        return [CausalLanguageModel()]

    @property
    def template(self):
        roles = {} if self.tokenizer is None else self.tokenizer.special_tokens
        bos, eos = (f"{roles[role]}:0" if role in roles else "" for role in ("bos", "eos"))
        return Template(single=f"{bos} $A:0 {eos}", pair=f"{bos} $A:0 $B:0 {eos}")

    # === Generation ===

    def initial_state(self, rows, length):
        """Return the backbone's state before any token; see `Backbone.initial_state`.

        Raises:
            ValueError: if the model is bidirectional, so that it cannot continue a text.
        """
        if not self.backbone.is_causal:
            raise ValueError(
                f"{type(self.backbone).__name__} reads a text from both ends here, so that it "
                "cannot continue one: load a model that reads forwards (bidirectional=False)."
            )
        return self.backbone.initial_state(rows, length)

    def read(self, token_ids, padding_mask, state):
        """Run the backbone on tokens after those of a state, which has room for them.

        Args:
            token_ids: (B, S) int32.
            padding_mask: (B, S) int32, 1 = real.
            state: see `Backbone.initial_state`.

        Returns:
            `(outputs, state)`: the backbone's outputs for these tokens, and the state after them.
        """
        name = self.backbone.state_name
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask, name: state}
        with writing_in_place():
            outputs = self.backbone.forward(**inputs, training=False)
        return outputs, outputs[name]

    def next_logits(self, token_ids, padding_mask, state):
        """Read tokens after those of a state, and predict what follows.

        Args:
            token_ids, padding_mask, state: see `read`; padding is on the left.

        Returns:
            `(logits, state)`: (B, V) float32 after the last column, and the state after it.
        """
        outputs, state = self.read(token_ids, padding_mask, state)
        last = {"sequence_output": outputs["sequence_output"][:, -1:]}
        return tf.cast(self.head(last)[:, 0], tf.float32), state

    def continue_ids(
        self,
        token_ids,
        stop_strings=(),
        stop_ids=(),
        num_beams=None,
        length_penalty=1.0,
        num_return_sequences=1,
        **options,
    ):
        """Continue prompts of token ids.

        Args:
            token_ids: ragged (B, None) int32, at least one token in each row.
            stop_strings: strings, (number,) for all prompts or (B, number) for each; a text ends
                before any of them. Empty ones are ignored.
            stop_ids: (number,) int32; a text ends before any of these, and the eos token.
            num_beams: int32 scalar, for beam search; None for greedy decoding or sampling.
            length_penalty: float32 scalar, for beam search.
            num_return_sequences: int32 scalar, N.
            **options: see `keras_lm.generation.options.OPTIONS`; a scalar or (B,) each.

        Returns:
            `(token_ids, number)`: the new tokens, (B · N, longest) int32, and how many each row
            has, (B · N,) int32.

        Raises:
            tf.errors.InvalidArgumentError: when it runs, if an option is out of range.
        """
        rows = tf.cast(token_ids.nrows(), tf.int32)
        options = {"max_new_tokens": self.default_max_new_tokens} | options
        options = batch_options(rows, **options)
        window = self.backbone.max_sequence_length
        room = (tf.int32.max if window is None else window) - options.max_new_tokens
        require(room > 0, no_room("…", window), options.max_new_tokens)
        ending = decoding.Ending(
            tf.concat([tf.cast(stop_ids, tf.int32), self._ids_of("eos")], axis=0),
            tf.convert_to_tensor(stop_strings, tf.string),
            None if self.tokenizer is None else self.tokenizer.detokenize,
        )
        token_ids, padding_mask = align(token_ids, room)
        problem = self, token_ids, padding_mask, options, ending
        if num_beams is None:
            return decoding.sample(*problem, num_return_sequences)
        return beam_search.search(*problem, num_beams, length_penalty, num_return_sequences)

    def prompt_ids(self, prompt, tokenize=None):
        """Return the tokens of prompts, or the bos token for an empty one.

        Args:
            prompt: (B,) string.
            tokenize: see `preprocess`.

        Returns:
            Ragged (B, None) int32.

        Raises:
            tf.errors.InvalidArgumentError: when run, if one is empty and there is no bos token.
        """
        ids = (tokenize or self.tokenize)(prompt)
        bos = self._ids_of("bos")
        is_empty = tf.cast(ids.row_lengths() == 0, tf.int64)
        if bos.shape[0] == 0:
            require(is_empty == 0, NO_BOS)
            return ids
        begin = tf.repeat(bos, tf.reduce_sum(is_empty))
        return tf.concat([tf.RaggedTensor.from_row_lengths(begin, is_empty), ids], axis=1)

    def continue_prompts(self, prompt, stop_strings=(), tokenize=None, **arguments):
        """Continue prompts of text.

        Args:
            prompt: (B,) string.
            stop_strings: see `continue_ids`.
            tokenize: see `preprocess`.
            **arguments: see `continue_ids`.

        Returns:
            dict of `text`, (B · N,) string, the continuations without their prompts; `num_tokens`,
            (B · N,) int32, how many tokens were generated for each; and `num_prompt_tokens`, (B,)
            int32, how many tokens the prompts have.
        """
        ids = self.prompt_ids(prompt, tokenize)
        token_ids, number = self.continue_ids(ids, stop_strings, **arguments)
        text = self.tokenizer.detokenize(tf.RaggedTensor.from_tensor(token_ids, lengths=number))
        return {
            "text": stopping.cut(text, tf.convert_to_tensor(stop_strings, tf.string)),
            "num_tokens": number,
            "num_prompt_tokens": tf.cast(ids.row_lengths(), tf.int32),
        }

    def score_texts(self, text, stride=None, tokenize=None):
        """Return how likely texts are; see `score`.

        Args:
            text: (B,) string.
            stride: int32 scalar, from 1 to the window; None for half of the window.
            tokenize: see `preprocess`.

        Returns:
            dict of `scores` and `perplexity`, (B,) float32, `num_tokens`, (B,) int32, `tokens`,
            (B, longest) string, and `token_scores`, (B, longest) float32.
        """
        ids = (tokenize or self.tokenize)(text)
        rows = ids.nrows()
        bos = tf.RaggedTensor.from_tensor(tf.tile(self._ids_of("bos")[tf.newaxis], [rows, 1]))
        ids = tf.concat([bos, ids], axis=1)
        window = self.backbone.max_sequence_length
        window = tf.int32.max if window is None else window
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
        logits = self({"token_ids": token_ids, "padding_mask": padding_mask}, training=False)
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(targets, tf.cast(logits, tf.float32))

    @property
    def answer_names(self):
        return ["prompt"]

    @property
    def signatures(self):
        return GenerationSignatures(self)

    def columns(self, x):
        if isinstance(x, dict) and "prompt" in x:
            x = {"text" if name == "prompt" else name: column for name, column in x.items()}
        return super().columns(x)

    def answer(self, columns, tokenize=None):
        (prompt,) = columns.values()
        return self.continue_prompts(prompt, tokenize=tokenize)

    def _ids_of(self, role):
        """The id of a special token, (1,) int32, or (0,) if there is none."""
        has_it = self.tokenizer is not None and role in self.tokenizer.special_tokens
        return tf.constant([self.tokenizer.special_id(role)] if has_it else [], tf.int32)

    @property
    def default_max_new_tokens(self):
        """The default of `max_new_tokens`: 50, or half of a small window."""
        window = self.backbone.max_sequence_length or 1024
        return min(OPTIONS["max_new_tokens"].default, window // 2)


NO_BOS = "A prompt is empty, and the tokenizer has no bos token to begin with: pass some text."


def no_room(max_new_tokens, window):
    """Return the error for more new tokens than a window can hold beside a prompt."""
    return (
        f"max_new_tokens={max_new_tokens} leaves no room for a prompt in the window of {window} "
        "tokens: it must be less than that."
    )
