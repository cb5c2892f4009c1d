"""Text classification: one of several classes, or any number of them."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.published_labels import Labels
from keras_lm.feeding.feed import Pairs
from keras_lm.layers.backend import argmax
from keras_lm.metrics.label_metrics import LooseF1
from keras_lm.models.backbone import Backbone
from keras_lm.objectives import IGNORED, CausalLanguageModel
from keras_lm.packers import BothOrders, Texts
from keras_lm.tasks import classes
from keras_lm.tasks.classes import (
    ClassLabels,
    MultiLabels,
    check_classes,
    names_of_classes,
    of_labels,
)
from keras_lm.tasks.runtime import at_numbers
from keras_lm.tasks.task import Prompted, Task, checked_prompt
from keras_lm.training.smoothing import symmetric_divergence
from keras_lm.utils.argument_types import RawTexts, Tensor
from keras_lm.utils.user_arguments import check_finite, check_whole

# What a CrossEncoder may do to its logits; the last is what `classify` does, too.
SCORES = (None, "linear", "sigmoid", "torch.nn.modules.activation.Softmax")


@keras.saving.register_keras_serializable("keras_lm")
class TextClassifier(Prompted, Task):
    """Classify texts, or pairs of texts.

    If the tokenizer splits texts into words only (ELMo's, word lists), texts may also be lists of
    words, and an export has the signature `words`.

    Args:
        num_classes: int. By default the number of `class_names`; one of them is needed.
        class_names: list of str, in the order of the logits. By default `fit` learns them from
            string labels, sorted; integer labels are served as `"0"`, `"1"`, ….
        multi_label: bool. Whether a text may have any number of classes; labels are then (B,
            classes) of 0 and 1, or lists of class names.
        symmetric: bool. Read each pair in both orders and add the logits, as for similarity, which
            has no order.
        lm_loss_weight: float, 0 or more. Weight of the language model's loss in training, see
            `keras_lm.tasks.text_classifier.GPTFineTuning`; None for the model's default: 0.5 for
            GPT, else 0.
        prompt: str. What is put before each text, or the first of a pair.
        backbone, **arguments: see `Task`.

    Labels are a class number or name for each text, (B,) or (B, 1), or one-hot or soft labels, (B,
    classes), which sum to 1. The default loss takes both, and Keras's get what they take: its
    categorical ones, which may smooth labels, (B, classes), its sparse ones numbers, which soft
    labels cannot become. Metrics compare with numbers, of soft labels the likeliest class.

    Call: `task(inputs)` returns logits (B, classes), float32.

    Raises:
        ValueError: if neither `num_classes` nor `class_names` is given, or they disagree; if
            `lm_loss_weight` is negative, or the backbone is not a language model.

    Example:

        task = keras_lm.tasks.TextClassifier.from_preset(SOURCE, class_names=["bad", "good"])
        task.fit(["what a film", "a waste"], ["good", "bad"], epochs=2)
        task.classify(["I laughed"])
        # {"labels": ["good"], "scores": [[0.1, 0.9]], "class_names": [["bad", "good"]]}

    Source: BERT, https://arxiv.org/abs/1810.04805, section 4.1.
    """

    num_classes, class_names = of_labels("num_classes"), of_labels("class_names")

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        multi_label: bool = False,
        symmetric: bool = False,
        lm_loss_weight: float | None = None,
        prompt: str | None = None,
        **arguments: Any,
    ):
        num_classes, class_names = check_classes(num_classes, class_names)
        super().__init__(backbone, **arguments)
        self.prompt = checked_prompt(prompt)
        self.fine_tuning = GPTFineTuning(self, "classification", symmetric, lm_loss_weight)
        self.rows, self.lm_head = self.fine_tuning.rows, self.fine_tuning.lm_head
        self.multi_label = multi_label
        self.labels = (MultiLabels if multi_label else ClassLabels)(num_classes, class_names)
        self.head = self.add_head("classification", num_classes=num_classes)
        self._finish()

    @classmethod
    def arguments_from_checkpoint(cls, labels: Any) -> dict[str, Any] | None:
        if labels.problem_type not in (
            "single_label_classification",
            "multi_label_classification",
        ):
            return None
        if labels.activation not in SCORES:
            raise CheckpointError(
                f"The checkpoint's activation is {labels.activation!r}: the scores of a "
                "TextClassifier are a softmax, or a sigmoid of each class."
            )
        return labels.read_texts | {
            "num_classes": labels.num_classes,
            "class_names": labels.class_names,
            "multi_label": labels.problem_type == "multi_label_classification",
        }

    def published_labels(self) -> Any:
        self.check_without_prompt()
        kind = "multi" if self.multi_label else "single"
        return Labels(self.num_classes, self.class_names, f"{kind}_label_classification")

    def get_arguments(self) -> dict[str, Any]:
        return (
            super().get_arguments()
            | self.fine_tuning.get_arguments()
            | {
                "num_classes": self.num_classes,
                "class_names": self.class_names,
                "multi_label": self.multi_label,
            }
        )

    def default_loss(self) -> Any:
        if self.multi_label:
            return keras.losses.BinaryCrossentropy(from_logits=True)
        return classes.ClassCrossentropy()

    def divergence(self, outputs: Any, others: Any) -> Tensor:
        """Return how far the probabilities of texts differ, (B,), for `AdversarialSmoothing`."""
        if self.multi_label:  # of each class, that it is one and that it is not
            pairs = (keras.ops.stack([x, keras.ops.zeros_like(x)], -1) for x in (outputs, others))
            return keras.ops.sum(symmetric_divergence(*pairs), axis=-1)
        return symmetric_divergence(outputs, others)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        if self.multi_label:
            accuracy = keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)
            return [accuracy, LooseF1(name="micro_f1")]
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def decode(self, outputs: Any, packed: dict[str, Tensor]) -> Any:
        """Return `scores` and their `class_names`, (B, classes), and `labels` (B,), the best ones.

        With `multi_label`, `labels` is (B, classes): the names whose score is at least 0.5, the
        best first, and then empty strings.
        """
        # Selects numbers, because LiteRT can neither select nor broadcast strings.
        names = [*names_of_classes(self.class_names, self.num_classes), ""]
        number = ops.arange(self.num_classes, dtype="int32")
        number = ops.broadcast_to(number, ops.shape(outputs))
        if self.multi_label:
            scores = ops.sigmoid(outputs)
            best_scores, best = ops.top_k(scores, self.num_classes)
            labels = ops.where(best_scores >= 0.5, best, self.num_classes)
        else:
            scores = ops.softmax(outputs)
            labels = argmax(outputs)
        labels, number = at_numbers(names, labels, number)
        return {"labels": labels, "scores": scores, "class_names": number}

    def single_output(self) -> Any:
        return "scores", names_of_classes(self.class_names, self.num_classes)

    def example_signature(self) -> Any:
        return "classify", self._scores_by_class

    @staticmethod
    def _scores_by_class(answer):
        return {"classes": answer["class_names"], "scores": answer["scores"]}

    def classify(
        self,
        x: RawTexts,
        batch_size: int = 32,
        top_k: int | None = None,
        verbose: int | str = "auto",
    ) -> dict[str, Any]:
        """Return the classes of raw texts, in any form that `predict` takes.

        Args:
            x: the texts.
            batch_size: int.
            top_k: int. How many classes `scores` and `class_names` have, from best to worst.
            verbose: see `Task.answer_all`.

        Returns:
            dict of `labels`, the best class's name for each text, (B,), `scores`, (B, classes), and
            `class_names`, (classes,), in whose order the scores are; with `top_k`, each text has
            its own row of them, (B, top_k). With `multi_label`, `labels` is a list for each text of
            all its classes, the best first.

        Raises:
            ValueError: if there is no text, or `top_k` is not a number of classes.
        """
        if top_k is not None:
            check_whole("top_k", top_k, 1, self.num_classes, ", the number of classes")
        answer = self.answer_all(x, batch_size, verbose=verbose)
        if self.multi_label:
            answer["labels"] = [[name for name in row if name] for row in answer["labels"]]
        answer["class_names"] = answer["class_names"][0]  # an export has them beside each score
        if top_k is not None:
            best = np.argsort(-answer["scores"], axis=1, kind="stable")[:, :top_k]
            answer["scores"] = np.take_along_axis(answer["scores"], best, axis=1)
            answer["class_names"] = answer["class_names"][best]
        return answer


class GPTFineTuning:
    """GPT's way of fine-tuning: pairs of texts in both orders, and an auxiliary loss.

    The arguments are those of `TextClassifier`: if `symmetric`, a pair is read in both orders; the
    training loss is the task's plus `lm_loss_weight` times the language model's on the same tokens.
    By default the weight is the head's, whose `template` has the special tokens around texts.

    Source: GPT, "Improving Language Understanding by Generative Pre-Training", sections 3.2 and
    3.3; openai/finetune-transformer-lm, `train.py`.
    """

    def __init__(self, task, kind, symmetric=False, lm_loss_weight=None):
        if lm_loss_weight is None:
            head = task.backbone.HEADS.get(kind)
            lm_loss_weight = head.lm_loss_weight if head else 0.0
        check_finite("lm_loss_weight", lm_loss_weight, ", 0 for none")
        if lm_loss_weight < 0:
            raise ValueError(f"lm_loss_weight={lm_loss_weight} is negative: use 0 for none.")
        self.lm_loss_weight = lm_loss_weight
        self.lm_head = task.add_head("causal_lm") if lm_loss_weight else None
        self.symmetric = symmetric
        self.rows = (BothOrders if symmetric else Texts)(takes_words=True)
        if symmetric:
            task.pairs = Pairs(True)

    def get_arguments(self):
        return {"symmetric": self.symmetric, "lm_loss_weight": self.lm_loss_weight}

    def terms(self, task, outputs, inputs):
        """Return what the language model adds to the training loss for a backbone's outputs."""
        if self.lm_head is None:
            return []
        terms = []
        logits = task.read_head(self.lm_head, outputs, inputs, True, terms)
        return [*terms, (*language_model_losses(logits, inputs), self.lm_loss_weight)]


def language_model_losses(logits, inputs):
    """Return the sum of rows' mean cross-entropies of next tokens, and how many rows have any."""
    _, labels = CausalLanguageModel().corrupt(inputs)
    known = ops.not_equal(labels, IGNORED)
    losses = keras.losses.sparse_categorical_crossentropy(
        ops.where(known, labels, 0), ops.cast(logits, "float32"), from_logits=True
    )
    known = ops.cast(known, "float32")
    number = ops.sum(known, axis=1)  # (B,)
    rows = ops.divide_no_nan(ops.sum(losses * known, axis=1), number)
    return ops.sum(rows), ops.sum(ops.cast(number > 0, "float32"))
