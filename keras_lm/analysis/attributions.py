"""Which tokens an answer comes from.

Shapes: B batch, S sequence, D width, C classes, K steps, T steps.
"""

import dataclasses
import html
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_lm.analysis.reader import columns_of, packed_rows, task_of, token_texts
from keras_lm.layers.embedding_hook import changed, token_embedding_of
from keras_lm.tasks.runtime import require_tensorflow
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import Tensor

ROWS = 16  # of the path from the baseline, at a time
INEXACT = 0.1  # of the sum of all scores' sizes, above which a warning is given


@dataclasses.dataclass(frozen=True)
class Attributions:
    """What each token adds to an answer. In a notebook, it shows itself as coloured text.

    Attributes:
        tokens: S str.
        scores: (S,) float32, above 0 for what speaks for the answer.
        target: int, the class, or None if it was a function.
        output: float, the answer's number, such as a logit.
        baseline_output: float, the same of the baseline; None for gradient × input.
    """

    tokens: list[str]
    scores: np.ndarray
    target: int | None
    output: float
    baseline_output: float | None = None

    @property
    def completeness_error(self) -> float:
        """By how much the scores miss the difference that they should sum up to, a float."""
        return abs(float(self.scores.sum()) - (self.output - self.baseline_output))

    def _repr_html_(self):
        largest = max(float(np.abs(self.scores).max(initial=0)), 1e-12)
        spans = [
            f'<span title="{score:+.3f}" style="background: '
            f"rgba({'36, 99, 235' if score > 0 else '234, 88, 12'}, {abs(score) / largest:.2f}); "
            f'border-radius: .2em; padding: 0 .15em; unicode-bidi: isolate">{html.escape(token)}'
            "</span>"
            for token, score in zip(self.tokens, self.scores, strict=True)
        ]
        return f'<div style="line-height: 1.8; max-width: 48em">{" ".join(spans)}</div>'


def integrated_gradients(
    model: keras.Model,
    text: str,
    text_pair: str | None = None,
    target: int | Callable[[Any], Tensor] | None = None,
    baseline: str | None = None,
    steps: int = 64,
    tokenizer: Tokenizer | None = None,
) -> Attributions:
    """Return what each token adds to an answer, compared with a baseline: `Attributions`.

    Gradients of the answer by the embeddings are averaged on the straight path from the baseline,
    and multiplied by the way. The scores then sum up to the difference between the two answers;
    `completeness_error` says how exactly they do, and a warning if they do not.

    Args:
        model: a task with logits; see `keras_lm.analysis.attention`.
        text, text_pair: str, as the task reads them.
        target: int, the class; None for the one with the highest logit. Or a function from what
            `task(inputs)` returns to a number for each row, (B,): for tasks that do not label whole
            texts, such as `lambda outputs: outputs["start_logits"][:, 3]`.
        baseline: None for embeddings of zeros; or an entry of the vocabulary, such as `"[MASK]"`,
            in place of each token that is not special. Models that normalise embeddings without
            positions (XLNet, T5, ModernBERT, DeBERTa v3) jump at zeros: they need an entry.
        steps: int. Gradients K on the path.
        tokenizer: of a backbone; None for a task.

    Raises:
        ValueError: if the model embeds no tokens, or the arguments do not fit.

    Example:

        task = keras_lm.tasks.TextClassifier(task.backbone, tokenizer=tokenizer, num_classes=2)
        attributions = keras_lm.analysis.integrated_gradients(task, "a text", target=1)
        attributions.tokens  # ["[CLS]", "a", "text", "[SEP]"]
        attributions.completeness_error < 1e-2  # True

    Source: Sundararajan et al. 2017, https://arxiv.org/abs/1703.01365, section 3; completeness:
    proposition 1, and section 5 for steps.
    """
    if steps < 1:
        raise ValueError(f"steps={steps}: pass 1 or more.")
    answer = _Answer(model, text, text_pair, target, tokenizer)
    x = answer.embedded  # (S, D)
    start = answer.baseline(baseline)
    parts = (np.arange(steps) + 0.5) / steps  # the middles, which are exact for a quadratic answer
    total = np.zeros_like(x)
    for begin in range(0, steps, ROWS):
        path = start + parts[begin : begin + ROWS, np.newaxis, np.newaxis] * (x - start)
        total += answer.gradients(path.astype("float32"))[1].sum(axis=0)
    output, before = (float(answer.gradients(e[np.newaxis])[0][0]) for e in (x, start))
    attributions = answer.attributions((total / steps * (x - start)).sum(axis=-1), output, before)
    if attributions.completeness_error > INEXACT * np.abs(attributions.scores).sum():
        warnings.warn(
            f"The scores miss the difference that they should sum up to, "
            f"{output - before:.3g}, by {attributions.completeness_error:.3g}: pass more than "
            f"steps={steps}, or another baseline than {baseline!r}, such as '[MASK]'.",
            stacklevel=2,
        )
    return attributions


def gradient_times_input(
    model: keras.Model,
    text: str,
    text_pair: str | None = None,
    target: int | Callable[[Any], Tensor] | None = None,
    tokenizer: Tokenizer | None = None,
) -> Attributions:
    """Return the gradient of an answer by each token's embedding times it: `Attributions`.

    It is the first-order estimate of what the answer loses if the embedding becomes zero: one
    gradient instead of many, and no more than an estimate.

    Args:
        model, text, text_pair, target, tokenizer: see `integrated_gradients`.

    Raises:
        ValueError: see `integrated_gradients`.

    Example:

        task = keras_lm.tasks.TextClassifier(task.backbone, tokenizer=tokenizer, num_classes=2)
        keras_lm.analysis.gradient_times_input(task, "a text").scores.shape  # (4,)

    Source: Shrikumar et al. 2016, https://arxiv.org/abs/1605.01713.
    """
    answer = _Answer(model, text, text_pair, target, tokenizer)
    outputs, gradients = answer.gradients(answer.embedded[np.newaxis])
    scores = (gradients[0] * answer.embedded).sum(axis=-1)
    return answer.attributions(scores, float(outputs[0]))


class _Answer:
    """The answer to a text as a function of its embeddings."""

    def __init__(self, model, text, text_pair, target, tokenizer):
        require_tensorflow("attributions")
        self.task = task = task_of(model, tokenizer)
        self.embedding = token_embedding_of(task.backbone)
        if self.embedding is None or task.has_decoder:
            raise ValueError(
                "Attributions are for the embeddings of a text's tokens, of which "
                f"{type(task.backbone).__name__} has no single layer: take an encoder or a decoder "
                "that has one."
            )
        texts = [value if value is None else [value] for value in (text, text_pair)]
        self.packed = packed_rows(task, columns_of(task, *texts))
        self.keep = np.flatnonzero(self.packed["padding_mask"].numpy()[0])
        seen = []
        with changed(self.embedding, lambda x: (seen.append(x), x)[1]):
            outputs = task(self.packed, training=False)
        self.embedded = np.asarray(seen[0], "float32")[0]  # (S, D)
        self.target = target
        if not callable(target):
            self.target = self._class(outputs, target)

    def _class(self, outputs, target):
        if isinstance(outputs, dict) or len(outputs.shape) != 2:
            raise ValueError(
                f"target={target!r}: {type(self.task).__name__} does not label whole texts, so "
                "pass a function from what it returns to a number for each row."
            )
        classes = outputs.shape[1]
        target = int(np.argmax(outputs[0])) if target is None else target
        if not 0 <= target < classes:
            raise ValueError(f"target={target}: there are classes 0 to {classes - 1}.")
        return target

    def baseline(self, token):
        """Return the embeddings of a baseline, (S, D)."""
        if token is None:
            return np.zeros_like(self.embedded)
        tokenizer = self.task.tokenizer
        ids = self.packed["token_ids"].numpy()[0]
        special = set(map(tokenizer.token_to_id, tokenizer.all_special_tokens))
        is_text = ~np.isin(ids, list(special))
        row = np.asarray(self.embedding(tf.constant([[tokenizer.token_to_id(token)]])))[0, 0]
        return np.where(is_text[:, np.newaxis], row, self.embedded).astype("float32")

    def gradients(self, embedded):
        """Return the answers (B,) to rows of embeddings (B, S, D), and their gradients."""
        rows = {name: np.repeat(e, len(embedded), axis=0) for name, e in self.packed.items()}
        x = tf.constant(embedded)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(x)
            with changed(self.embedding, lambda before: tf.cast(x, before.dtype)):
                outputs = self.task(rows, training=False)
            answers = self.target(outputs) if callable(self.target) else outputs[:, self.target]
        return answers.numpy(), tape.gradient(answers, x).numpy()

    def attributions(self, scores, output, before=None):
        tokens = token_texts(self.task.tokenizer, self.packed["token_ids"].numpy()[0, self.keep])
        target = None if callable(self.target) else self.target
        scores = scores[self.keep].astype("float32")
        return Attributions(tokens, scores, target, output, before)


def step_gradient_norms(
    layer: Callable[[Tensor], Tensor], inputs: npt.ArrayLike, seed: int = 0
) -> np.ndarray:
    """Return how much the last state depends on each step's input: (T,) floats.

    It is the length of the gradient of the last state, in a random direction, by the input of each
    step, a mean over rows. If it falls by a factor a step, what lies far back cannot be learned.

    Args:
        layer: a recurrent layer of Keras that returns its last state, such as
            `keras.layers.LSTM(64)`; or a function from (B, T, D) to (B, units).
        inputs: (B, T, D) floats.
        seed: int, of the direction.

    Raises:
        ValueError: if the shapes are others.

    Example:

        import keras

        inputs = np.random.default_rng(0).normal(size=(4, 30, 8)).astype("float32")
        rnn = keras.layers.SimpleRNN(16, recurrent_initializer="glorot_uniform")
        norms = step_gradient_norms(rnn, inputs)
        bool(norms[0] < norms[-1])  # True

    Source: Pascanu et al. 2013, https://arxiv.org/abs/1211.5063, section 2.
    """
    require_tensorflow("step_gradient_norms")
    x = tf.constant(np.asarray(inputs, "float32"))
    if x.shape.rank != 3:
        raise ValueError(f"inputs has the shape {x.shape}: pass (B, T, D).")
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        last = layer(x)
        if len(last.shape) != 2:
            raise ValueError(
                f"layer returns {tuple(last.shape)}: it must return the last state, (B, units), so "
                "make it with return_sequences=False."
            )
        direction = np.random.default_rng(seed).standard_normal(last.shape[1]).astype("float32")
        along = ops.sum(last * (direction / np.linalg.norm(direction)))
    return np.linalg.norm(tape.gradient(along, x).numpy(), axis=2).mean(axis=0)
