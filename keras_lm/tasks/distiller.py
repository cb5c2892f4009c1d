"""Distillation of a task: a student learns the answers of a larger model that was trained for it.

Shapes: B batch, W words, C classes or choices.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_lm.feeding import datasets
from keras_lm.feeding.datasets import distributed
from keras_lm.feeding.feed import TaskLabels, label_column, labelled, labels_from_user
from keras_lm.objectives import SoftCrossentropy, TeacherMeanSquares
from keras_lm.objectives.distillation import check_temperature
from keras_lm.tasks.multiple_choice import MultipleChoice
from keras_lm.tasks.task import Task
from keras_lm.tasks.text_classifier import TextClassifier
from keras_lm.tasks.text_model import TextModel, check_arguments
from keras_lm.tasks.text_regressor import TextRegressor
from keras_lm.tasks.token_classifier import TokenClassifier
from keras_lm.training.optimizers import plan_schedule
from keras_lm.utils.argument_types import RawLabels, RawTexts, Tensor

KINDS = (TextClassifier, TextRegressor, TokenClassifier, MultipleChoice)


@dataclasses.dataclass(frozen=True)
class _Teacher:
    """Holds the teacher: as an attribute of the model, Keras would count its weights as its own."""

    task: Task


class DistilledLabels(TaskLabels):
    """A teacher's answers, and labels as the student has them, if there are any."""

    def __init__(self, of_student):
        self.of_student = of_student

    def measured(self, labels):
        return labels.get("labels") if isinstance(labels, dict) else labels

    def for_metrics(self, labels, outputs):
        return self.of_student.for_metrics(labels, outputs)

    def metric(self, metric):
        return self.of_student.metric(metric)


class Distiller(TextModel):
    """Trains a student task on a teacher's answers, and on labels if there are any.

    Both read the same raw strings, each with its own tokenizer, so the student may be any model: a
    smaller BERT, an LSTM, word vectors. The teacher answers all texts once, before the first epoch,
    and is not changed. The student is trained in place, and stays a task like any other, to save
    and export. Texts need no labels: more of them, perhaps from `keras_lm.data.augment_texts`,
    bring a student closer to its teacher than its labelled ones alone.

    The loss is `keras_lm.objectives.SoftCrossentropy` over a text's classes or choices, or the
    classes of each word; a regressor's is the mean squared difference from the teacher. With
    labels, `label_weight` times the task's own loss is added.

    A tagger learns word by word, so that the two may split words into other pieces; strings are
    split into words as the student does. A word that either cuts off does not count. Of a teacher
    with a CRF, the student learns the marginal probabilities. It has none itself: words by
    themselves would not train its transitions.

    Args:
        student: `TextClassifier`, `TextRegressor`, `TokenClassifier` or `MultipleChoice` with a
            tokenizer; its weights are trained.
        teacher: a trained task of the same kind, with the same classes. A student without
            `class_names` gets the teacher's.
        temperature: float, T. See `SoftCrossentropy`.
        label_weight: float, 0 or more. Weight of the loss of labels, where `fit` gets some.

    Raises:
        ValueError: if the two are not of one kind or differ in their classes, one has no tokenizer,
            the student has a CRF, `temperature` is not positive, or `label_weight` is negative.

    Example:

        teacher = keras_lm.tasks.TextClassifier.from_preset("film-critic")
        student = keras_lm.tasks.TextClassifier(
            teacher.backbone.with_layers(2), tokenizer=teacher.tokenizer, num_classes=2
        )
        distiller = keras_lm.tasks.Distiller(student, teacher)
        distiller.fit(texts, epochs=3)
        student.save_to_preset("small-film-critic")

    Source: Hinton et al. 2015, https://arxiv.org/abs/1503.02531; into an LSTM: Tang et al. 2019,
    https://arxiv.org/abs/1903.12136; the prediction layer of TinyBERT,
    https://arxiv.org/abs/1909.10351, equation 10.
    """

    def __init__(
        self,
        student: Task,
        teacher: Task,
        temperature: float = 1.0,
        label_weight: float = 0.5,
        name: str | None = None,
    ):
        check_temperature(temperature)
        if label_weight < 0:
            raise ValueError(f"label_weight={label_weight} is negative: use 0 for none.")
        _check_pair(student, teacher)
        super().__init__(name=name, dtype=student.dtype_policy)
        # Which other backends than TensorFlow lack.
        strategies = [getattr(model, "_distribute_strategy", None) for model in (student, self)]
        if strategies[0] is not strategies[1]:
            raise ValueError(
                "student was made in another scope of tf.distribute than this Distiller: make both "
                "inside of strategy.scope()."
            )
        self.student, self.labels = student, DistilledLabels(student.labels)
        self.label_weight = label_weight
        self._teacher = _Teacher(teacher)
        if isinstance(student, TextRegressor):
            self.teacher_loss = TeacherMeanSquares()
        else:
            multi_label = getattr(student, "multi_label", False)
            self.teacher_loss = SoftCrossentropy(temperature, multi_label)
        if getattr(student, "class_names", ()) is None:
            student.class_names = teacher.class_names
        self.built = True
        self.compile()

    teacher = property(lambda self: self._teacher.task)
    trainable_weights = property(lambda self: self.student.trainable_weights)
    trainable_variables = property(lambda self: self.student.trainable_variables)

    def compile(self, optimizer: Any = "auto", metrics: Any = "auto", **kwargs: Any) -> None:
        """As `Task.compile`; optimizer and metrics are the student's own for `"auto"`.

        Metrics compare the student with labels, not with the teacher. `micro_batch_size` computes
        a batch in parts.
        """
        super().compile(optimizer, metrics=metrics, **kwargs)

    backbone = property(lambda self: self.student.backbone)

    def default_loss(self) -> Any:
        return self.student.default_loss()

    def default_metrics(self) -> Any:
        return self.student.default_metrics()

    def known_inputs(self) -> set[str] | None:
        return self.student.known_inputs()

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        return self.student(inputs, training=training)

    def losses_of(self, labels: Tensor) -> Any:
        """Return the losses of a teacher's answers and of labels; of labels alone in validation."""
        own = self.compiled_losses.by_output
        if not isinstance(labels, dict):
            return own
        losses = {"teacher": (1.0, self.teacher_loss)}
        if self.label_weight and "labels" in labels:
            losses["labels"] = self.label_weight, own[None][1]
        return losses

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Tensor | None = None
    ) -> dict[str, Any]:
        """Return the metrics of a step's labels, or its loss alone where there are none."""
        y = self.labels.measured(y)
        if y is None:
            return {"loss": self._loss_tracker.result()}
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def get_metrics_result(self) -> dict[str, Any]:
        """As Keras's, which fails if no labels ever built the metrics."""
        is_unbuilt = self._compile_metrics is not None and not self._compile_metrics.built
        return {"loss": self._loss_tracker.result()} if is_unbuilt else super().get_metrics_result()

    evaluate = keras.Model.evaluate  # of packed batches, in validation

    def fit(
        self,
        x: RawTexts,
        y: RawLabels = None,
        batch_size: int = datasets.TRAINING_BATCH_SIZE,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Sequence[Any] | None = None,
        validation_data: Any = None,
        shuffle: bool = True,
    ) -> keras.callbacks.History:
        """Train the student, as `keras.Model.fit` on raw strings.

        Args:
            x: texts, or pairs, in any form that `Task.fit` takes but datasets and packed dicts.
            y: their labels, as the student takes them, or None.
            validation_data: texts and labels, measured as `student.evaluate` does.
            batch_size, epochs, verbose, callbacks, shuffle: see there.

        Raises:
            ValueError: if `x` comes in batches or packed, or as `Task.fit` does.
        """
        options = {"callbacks": callbacks, "shuffle": shuffle, "verbose": verbose}
        check_arguments("fit", {}, batch_size=batch_size, epochs=epochs, **options)
        make = self.maker_of_batches(x, y, batch_size, shuffle=shuffle, verbose=verbose)
        if validation_data is not None:
            validation_data = self.validation_batches(validation_data, batch_size)
        batches = distributed(self.distribute_strategy, make(None))
        plan_schedule(self, 0, epochs * datasets.number_of_batches(batches))
        return self.fit_packed(
            batches,
            callbacks=callbacks,
            validation_data=validation_data,
            epochs=epochs,
            verbose=verbose,
        )

    def maker_of_batches(
        self,
        x: RawTexts,
        y: RawLabels,
        batch_size: int,
        class_weight: Mapping[Any, float] | None = None,
        shuffle: bool = True,
        verbose: int | str = 0,
    ) -> Callable[[int], Any]:
        """Return a function from a seed to the batches of an epoch; the teacher reads all now."""
        student = self.student
        if y is not None or label_column(student.labels, x):
            x, y = labelled(student.feed, x, y)
        if datasets.is_stream(x) or student.is_packed(x) or self.teacher.is_packed(x):
            raise ValueError(
                f"x is a {type(x).__name__}: pass lists or arrays of raw strings, which the "
                "teacher reads once, and the student in every epoch."
            )
        columns = student.columns(x)
        if isinstance(student, TokenClassifier):
            x = {"text": student.rows.words(columns["text"])[0]}
            answers = self.teacher.word_logits(x, batch_size, verbose)  # ragged (B, W, C)
        else:
            answers = self.teacher.predict(x, batch_size, verbose)  # (B, C)
        targets = {"teacher": answers}
        if y is not None:
            labels = student.labels.prepare(labels_from_user(y, answers.shape[0]))
            targets["labels"] = student.labels.match(labels, columns, is_packed=False)
        arguments = student.feed, x, targets, None, batch_size, shuffle, shuffle
        return lambda seed: datasets.batches(*arguments, seed=seed)

    def validation_batches(self, data: Any, batch_size: int, steps: int | None = None) -> Any:
        return self.student.validation_batches(data, batch_size, steps)


def _check_pair(student, teacher):
    if student is teacher:
        raise ValueError("student and teacher are the same object: load the student by itself.")
    for name, task in (("student", student), ("teacher", teacher)):
        if not isinstance(task, KINDS):
            kinds = ", ".join(kind.__name__ for kind in KINDS)
            raise ValueError(
                f"{name} is a {type(task).__name__}: what is distilled is one of {kinds}, whatever "
                "its backbone."
            )
        if task.tokenizer is None:
            raise ValueError(f"{name} has no tokenizer, and both read raw strings: give it one.")
    if [isinstance(student, kind) for kind in KINDS] != [
        isinstance(teacher, kind) for kind in KINDS
    ]:
        raise ValueError(
            f"student is a {type(student).__name__}, and the teacher a {type(teacher).__name__}: "
            "pass two of a kind."
        )
    if getattr(student, "crf", None) is not None:
        raise ValueError(
            f"student has crf={student.crf_choice!r}, and a teacher's answers for single words do "
            "not train the transitions of a CRF: make the student with crf=False."
        )
    for name in ("num_classes", "class_names", "multi_label"):
        ours, theirs = getattr(student, name, None), getattr(teacher, name, None)
        if ours != theirs and None not in (ours, theirs):
            raise ValueError(
                f"student has {name}={ours}, and the teacher {theirs}: make the student with "
                "the teacher's, in the same order."
            )
