"""Generation in the graph. Shapes: B batch, N continuations, S sequence, V vocabulary."""

import tensorflow as tf

from keras_lm.generation import beam_search, decoding, scoring, stopping
from keras_lm.generation.options import OPTIONS
from keras_lm.layers.tensorflow.attention_ops import writing_in_place
from keras_lm.layers.tensorflow.graph_checks import require
from keras_lm.objectives import CausalLanguageModel
from keras_lm.packers import Template, Texts
from keras_lm.tasks.generation_signatures import GenerationSignatures
from keras_lm.tasks.pretraining import PretrainingTask


class GenerativeTask(PretrainingTask):
    """A task that predicts the next token; a subclass makes the head."""

    rows = Texts(text_pair=False)

    def make_objectives(self):
        return [CausalLanguageModel()]

    @property
    def template(self):
        ends = {} if self.tokenizer is None else ends_of_texts(self.tokenizer)
        bos, eos = (f"{ends[role]}:0" if role in ends else "" for role in ("bos", "eos"))
        return Template(single=f"{bos} $A:0 {eos}", pair=f"{bos} $A:0 $B:0 {eos}")

    def usual_tokens(self, tokenizer):
        # What separates texts, and the turns of a dialogue, in what such models learn from.
        return list(dict.fromkeys(ends_of_texts(tokenizer).values()))

    # === Generation ===

    def initial_state(self, rows, length):
        if not self.backbone.is_causal:
            raise ValueError(
                f"{type(self.backbone).__name__} reads a text from both ends here, so that it "
                "cannot continue one: load a model that reads forwards (bidirectional=False)."
            )
        return self.backbone.initial_state(rows, length)

    def read(self, token_ids, padding_mask, state):
        """Read tokens (B, S) after those of a state with room for them: `(outputs, new state)`."""
        name = self.backbone.state_name
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask, name: state}
        with writing_in_place():
            outputs = self.backbone.forward(**inputs, training=False)
        return outputs, outputs[name]

    def next_logits(self, token_ids, padding_mask, state):
        """Read tokens, padded on the left: logits (B, V) float32 of the next one, and the state."""
        outputs, state = self.read(token_ids, padding_mask, state)
        last = {"sequence_output": outputs["sequence_output"][:, -1:]}
        return tf.cast(self.head(last)[:, 0], tf.float32), state

    def all_logits(self, token_ids, padding_mask, state):
        """Read tokens (B, S): the logits (B, S, V) float32 after each of them, and the state."""
        outputs, state = self.read(token_ids, padding_mask, state)
        return tf.cast(self.head(outputs), tf.float32), state

    def rewind(self, state, number):
        """Return the state before the last `number` (B,) columns that it has read."""
        return self.backbone.rewind(state, number)

    def continue_ids(
        self,
        token_ids,
        stop_strings=(),
        stop_ids=(),
        num_beams=None,
        length_penalty=1.0,
        num_return_sequences=1,
        prompt_lookup=None,
        **options,
    ):
        """Return the new tokens, (B · N, longest) int32, and how many each row has, (B · N,).

        `token_ids` are ragged (B, None) int32, at least one in each row. A text ends before the eos
        token, before any of `stop_ids` (number,), and before any of `stop_strings`, (number,) for
        all prompts or (B, number) for each, of which empty ones are ignored. `num_beams`,
        `length_penalty`, `num_return_sequences` (N) and `prompt_lookup` are scalars; without
        `num_beams` there is no beam search. `options` are those of
        `keras_lm.generation.options.OPTIONS`, a scalar or (B,) each. One that is out of range
        raises an `InvalidArgumentError` when the graph runs.
        """
        problem = self.problem(token_ids, stop_strings, stop_ids, **options)
        if num_beams is None:
            return decoding.sample(*problem, num_return_sequences, prompt_lookup)
        search = beam_search.search(*problem, num_beams, length_penalty, num_return_sequences)
        return search[:2]

    def problem(self, token_ids, stop_strings=(), stop_ids=(), **options):
        """Return `decoding.problem` for the arguments of `continue_ids`."""
        detokenize = None if self.tokenizer is None else self.tokenizer.detokenize
        return decoding.problem(
            self, self.limits, detokenize, token_ids, stop_strings, stop_ids, **options
        )

    @property
    def limits(self):
        """What texts end by, a `decoding.Limits`."""
        return decoding.Limits(
            self.end_ids("eos"),
            self.backbone.max_sequence_length,
            self.default_max_new_tokens,
        )

    def prompt_ids(self, prompt, tokenize=None):
        """Return the ragged tokens (B, None) of prompts (B,); the bos token for an empty one."""
        ids = (tokenize or self.tokenize)(prompt)
        bos = self._ids_of("bos")
        is_empty = tf.cast(ids.row_lengths() == 0, tf.int64)
        if bos.shape[0] == 0:
            require(is_empty == 0, NO_BOS)
            return ids
        begin = tf.repeat(bos, tf.reduce_sum(is_empty))
        return tf.concat([tf.RaggedTensor.from_row_lengths(begin, is_empty), ids], axis=1)

    def continue_prompts(self, prompt, stop_strings=(), tokenize=None, **arguments):
        """Continue prompts (B,) of text; for the other arguments see `continue_ids`.

        Returns `text` (B · N,), the continuations without their prompts, and the numbers of their
        tokens and of the prompts', `num_tokens` (B · N,) and `num_prompt_tokens` (B,), int32.
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
        """Return tensors of how likely texts (B,) are, with an int32 `stride`; see `score`."""
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

    def end_ids(self, role):
        """Return a list with the id of `"bos"` or `"eos"`, empty if there is none."""
        ends = {} if self.tokenizer is None else ends_of_texts(self.tokenizer)
        return [self.tokenizer.token_to_id(ends[role])] if role in ends else []

    def _ids_of(self, role):
        return tf.constant(self.end_ids(role), tf.int32)

    @property
    def default_max_new_tokens(self):
        window = self.backbone.max_sequence_length or 1024
        return min(OPTIONS["max_new_tokens"].default, window // 2)


NO_BOS = "A prompt is empty, and the tokenizer has no bos token to begin with: pass some text."


def ends_of_texts(tokenizer):
    """Return the tokens that begin and end texts, `"bos"` and `"eos"`, of those there are.

    A BERT's vocabulary has neither, and its cls and sep tokens take their place.
    """
    roles = tokenizer.special_tokens
    if not {"bos", "eos"} & {*roles} and {"cls", "sep"} <= {*roles}:
        return {"bos": roles["cls"], "eos": roles["sep"]}
    return {role: roles[role] for role in ("bos", "eos") if role in roles}
