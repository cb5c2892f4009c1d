"""Bidirectional language modelling: pretrain ELMo, and score sentences from both sides.

Shapes: B batch, S words, T = S + 1 predictions and D width of a direction, V words of the list.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.feeding.feed import Preprocessor
from keras_lm.models.backbone import Backbone
from keras_lm.objectives import IGNORED, BidirectionalLanguageModel
from keras_lm.packers import Texts
from keras_lm.tasks.causal_lm import CausalLM
from keras_lm.tasks.pretrainer import PretrainingTask
from keras_lm.tasks.task import Task
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import WordTokenizer
from keras_lm.utils.argument_types import Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class BidirectionalPreprocessor(Preprocessor):
    """A `Preprocessor` that adds `word_ids`, by the tokenizer of a list of words."""

    word_tokenizer: WordTokenizer

    def __call__(self, columns, tokenize=None):
        packed = super().__call__(columns, tokenize)
        words = self.tokenizer.words(packed["character_ids"])  # as the model reads them, truncated
        ids = tf.pad(self.word_tokenizer.tokenize_words(words), [[0, 0], [1, 1]])
        count = tf.reduce_sum(packed["padding_mask"], axis=1, keepdims=True)
        place = tf.range(tf.shape(ids)[1])[tf.newaxis]
        begin, end = (self.word_tokenizer.special_id(role) for role in ("bos", "eos"))
        ids = tf.where(place == 0, begin, tf.where(place == count + 1, end, ids))
        return packed | {"word_ids": tf.where(place > count + 1, IGNORED, ids)}


@keras.saving.register_keras_serializable("keras_lm")
class BidirectionalLM(PretrainingTask):
    """Predict each word of a sentence from the words before it, and from those after it.

    Both directions read words as characters and share one softmax over a list of words.
    `fit(sentences)` predicts all words of each sentence and its end, or backwards its start.
    Training uses a softmax over a sample of the list, so that its losses and perplexities are too
    low; those of `evaluate` and `validation_data` are over the whole list.

    Args:
        words: list of different str, from the most frequent word to the rarest, with `<S>`, `</S>`
            and `<UNK>` among the first; see `keras_lm.tokenizers.learn_words`. Others become
            `<UNK>`.
        num_candidates: int. How many words of the list a training step samples; None for all.
        backbone, **arguments: see `Task`; the backbone is a `keras_lm.models.ElmoBackbone`.

    Call: `task(inputs)` returns `forward_logits` and `backward_logits`, (B, T, V) float32. Forward,
    position t predicts word t of the sentence, and finally its end; backward, position 0 predicts
    the start, and position t word t - 1. If `inputs` holds `labels` (B, 2, T), it returns their
    cross-entropy instead, (B, 2, T); `fit` makes them from `word_ids` (B, S + 2), the words between
    `<S>` and `</S>`, padded with -100.

    Raises:
        ValueError: if `words` lacks one of the special words or holds a word twice, or the backbone
            has no such head.

    Example:

        backbone = keras_lm.models.ElmoBackbone.from_preset("elmo_small_en", load_weights=False)
        words = keras_lm.tokenizers.learn_words(sentences, 50_000)
        tokenizer = keras_lm.tokenizers.CharacterTokenizer()
        task = keras_lm.tasks.BidirectionalLM(backbone, words=words, tokenizer=tokenizer)
        task.fit(sentences, validation_data=(held_out, None))
        task.score(["how likely is this sentence ?"])["perplexity"]
        task.backbone.save_to_allennlp("elmo")

    Source: ELMo, https://arxiv.org/abs/1802.05365, section 3.1; allenai/bilm-tf, `training.py`.
    """

    rows = Texts(text_pair=False)
    preprocessor_class = BidirectionalPreprocessor

    def __init__(
        self,
        backbone: Backbone,
        words: Sequence[str],
        num_candidates: int | None = 8192,
        **arguments: Any,
    ):
        super().__init__(backbone, **arguments)
        self.words = list(words)
        self.word_tokenizer = WordTokenizer(
            self.words, unknown_token="<UNK>", bos_token="<S>", eos_token="</S>"
        )
        self.num_candidates = num_candidates
        self.head = backbone.make_head(
            "bidirectional_lm", vocabulary_size=len(self.words), num_candidates=num_candidates
        )
        self.head.build((None, 2, None, backbone.config["hidden_dim"]))
        self._finish()

    def make_objectives(self) -> list[Any]:
        return [BidirectionalLanguageModel()]

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {
            "words": self.words,
            "num_candidates": self.num_candidates,
        }

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        computed = self._read(self.backbone.compute, inputs, training)
        states = computed["hidden_states_with_boundaries"]
        return self.predicted(states[-1], inputs.get("labels"), training)

    def predicted(
        self, states: Any, labels: Tensor | None = None, training: bool | None = None
    ) -> Any:
        """Return what calling returns, for the top layer (B, S + 2, 2D), boundaries included."""
        forward, backward = ops.split(states, 2, axis=-1)
        x = ops.stack([forward[:, :-1], backward[:, 1:]], axis=1)  # (B, 2, T, D)
        if labels is None:
            forward, backward = ops.unstack(self.head(x, training=training), 2, axis=1)
            return {"forward_logits": forward, "backward_logits": backward}
        known = ops.not_equal(labels, IGNORED)
        losses = self.head(x, ops.where(known, labels, 0), training=training)
        return ops.where(known, losses, 0.0)

    def preprocessing(self) -> dict[str, Any]:
        return super().preprocessing() | {"word_tokenizer": self.word_tokenizer}

    def prepare_batch(self, data: Any, training: bool | None) -> Any:
        if keras.utils.unpack_x_y_sample_weight(data)[1] is not None:
            raise ValueError("BidirectionalLM makes its labels of the texts: leave y out.")
        return super().prepare_batch(data, training)

    # === Scores ===

    @property
    def lookups(self) -> list[Any]:
        return [*super().lookups, self.word_tokenizer]

    def answer(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> dict[str, Any]:
        inputs, labels = self.objective.corrupt(self.preprocess(columns, tokenize), training=False)
        losses = tf.reduce_sum(self(inputs, training=False), axis=2)  # (B, 2)
        number = tf.reduce_sum(tf.cast(labels != IGNORED, tf.float32), axis=2)
        mean = losses / number  # there is always the sentence's end
        return {
            "scores": -tf.reduce_mean(losses, axis=1),
            "perplexity": tf.exp(tf.reduce_mean(mean, axis=1)),
            "forward_perplexity": tf.exp(mean[:, 0]),
            "backward_perplexity": tf.exp(mean[:, 1]),
        }

    def score(
        self, texts: Tensor, batch_size: int = 32, verbose: int | str = "auto"
    ) -> dict[str, np.ndarray]:
        """Return how likely raw sentences are, as a dict of numpy arrays (B,).

        `scores` is the logarithm of a sentence's probability, the mean of both directions. There
        are a `forward_perplexity`, a `backward_perplexity`, and the `perplexity` of both together.
        `verbose`: see `Task.answer_all`.
        """
        return self.answer_all(texts, batch_size, verbose=verbose)

    # === One direction ===

    def forward_language_model(self) -> Task:
        """Return the direction that reads forwards as a `CausalLM`, which continues texts.

        Its weights are copies: training one task leaves the other as it is. It predicts what this
        task's forward direction does, but reads the words of the list alone: any other is read as
        `<UNK>`, and not by its characters. As in training, a sentence begins with `<S>`: so does an
        empty prompt, and so do texts that are scored or learnt.

        Raises:
            ValueError: if the task has no tokenizer.
        """
        self.require_tokenizer()
        backbone = self.backbone.forward_half(self.words)
        config = self.word_tokenizer.get_config() | {"splitter": self.tokenizer.splitter}
        task = CausalLM(backbone, tokenizer=WordTokenizer(self.words, **config))
        for weight, trained in zip(task.head.weights, self.head.weights, strict=True):
            weight.assign(trained)
        return task
