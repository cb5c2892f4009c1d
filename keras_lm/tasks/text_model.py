"""Keras's entry points on raw strings, and the batch and loss of a step. Shapes: B batch."""

import contextlib
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_lm.feeding import datasets, predict_batches
from keras_lm.feeding.feed import Feed, Preprocessor, TaskLabels, labelled, labels_from_user
from keras_lm.layers.tensorflow import said_by_require
from keras_lm.objectives.objective import CompiledLosses, Term, label_counts, label_terms
from keras_lm.tasks import classes
from keras_lm.tasks.runtime import RUNTIME
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.training.optimizers import AdamW, check_rate, plan_schedule
from keras_lm.training.smoothing import AdversarialSmoothing
from keras_lm.utils.argument_types import RawLabels, RawTexts, Tensor
from keras_lm.utils.registry import advice
from keras_lm.utils.user_arguments import check_constructor, check_flag, check_verbose, check_whole


class Batch(NamedTuple):
    """A batch as a step takes it, tensors with a row per example.

    `own` are the inputs and labels of each objective that has its own forward pass.
    """

    inputs: object
    labels: object = None
    sample_weight: object = None
    own: object = ()


class Computed(NamedTuple):
    """What a forward pass made of a batch, or of some of its rows; `terms` add to the loss."""

    labels: object
    outputs: object
    sample_weight: object = None
    terms: object = ()


# What tasks of users may still override, and what of `TaskLabels` is called in its place.
LABEL_HOOKS = {
    "check_loss": "check_loss",
    "label_columns": "columns",
    "label_names": "names",
    "labels_for_loss": "for_loss",
    "labels_for_metrics": "for_metrics",
    "labels_remedy": "remedy",
    "learn_label_names": "learn_names",
    "matched_labels": "match",
    "measured_labels": "measured",
    "named_labels": "of_names",
    "needs_labels": "are_needed",
    "prepare_class_weight": "class_weights",
    "prepare_label_tensor": "prepare_tensor",
    "prepare_labels": "prepare",
    "prepare_metric": "metric",
}
# The same of `Preprocessor`.
TEXT_HOOKS = {
    "columns": "columns",
    "is_packed": "is_packed",
    "pack": "pack",
    "preprocess": "pack",
    "preprocess_with_labels": "with_labels",
    "row_lengths": "row_lengths",
    "tokens_in_text": "tokens_in_text",
    "usual_tokens": "usual_tokens",
}


class TextModel(keras.Model):
    """A `keras.Model` whose `fit`, `evaluate`, `predict` and the like take raw strings.

    As in KerasHub's `PipelineModel`, `preprocess` runs in `tf.data`, on the host; the network takes
    packed dicts. See `keras_lm.feeding.datasets`.

    A step may be computed in parts: by replicas of a `tf.distribute` strategy, in micro-batches, or
    both. Losses, gradients and their norm are those of the whole batch, whichever part has how many
    of its rows and labels. Two private methods of Keras 3 fail under a strategy and are amended,
    see `_maybe_symbolic_build` and `keras_lm.tasks.runtime`.
    """

    # Whether an output has a sequence axis, so that rows of a prediction need one common length.
    predicts_sequences = False
    # The labels that it learns from; those with arguments are made by the constructor.
    labels_class = TaskLabels
    objectives = ()  # that make labels of what they corrupt, and train further networks
    compiled_losses = CompiledLosses()
    micro_batch_size = None
    smoothing = None
    # Whether its loss compares rows of a batch with each other: parts cannot be computed alone.
    compares_rows = False
    _carried = None
    taken = None  # values of variables, on JAX while it is trained

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for name in vars(cls).keys() & LABEL_HOOKS.keys():
            raise TypeError(
                f"{cls.__name__}.{name} would not be called: labels are an object, task.labels. "
                f"Override {LABEL_HOOKS[name]} of its class, and set self.labels to one of yours."
            )
        for name in vars(cls).keys() & TEXT_HOOKS.keys():
            raise TypeError(
                f"{cls.__name__}.{name} would not be called: texts are prepared by an object, "
                f"task.preprocessor. Override {TEXT_HOOKS[name]} of its class, and set "
                "preprocessor_class to yours."
            )

    def __new__(cls, *args, **kwargs):
        check_constructor(cls, args, kwargs)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.labels = self.labels_class()

    # === What it makes of texts and labels ===

    @property
    def preprocessor(self) -> Preprocessor:
        """Raw texts → packed batches, as the model's arguments say now."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to preprocess text.")

    @property
    def feed(self) -> Feed:
        """What turns data into its batches: preprocessor, labels and strategy."""
        return Feed(self.preprocessor, self.labels, self.distribute_strategy)

    def preprocess(
        self, columns: RawTexts, tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Tokenize and pack raw texts, in any form that `columns` takes: (B, S) int32 each.

        Named string tensors, (B,) or words (B, W), are packed in the graph. `tokenize` maps strings
        to ragged ids; by default it is the task's tokenizer.
        """
        return self.preprocessor(columns, tokenize)

    def preprocess_with_labels(self, columns: dict[str, Tensor], labels: Any) -> Any:
        """Return packed texts, and labels as the network's outputs are compared with them."""
        return self.preprocessor.with_labels(columns, labels)

    def columns(self, x: RawTexts) -> dict[str, Any]:
        """Return raw text in any form that `fit` takes, except datasets, as string tensors."""
        return self.preprocessor.columns(x)

    def tokenize(self, text: Tensor) -> tf.RaggedTensor:
        """Return the ragged ids of strings (B,), without special tokens around them."""
        return self.preprocessor.tokenize(text)

    def is_packed(self, x: Any) -> bool:
        """Return whether `x` is a packed dict, and not raw texts."""
        return self.preprocessor.is_packed(x)

    def require_tokenizer(self) -> None:
        """Raise a ValueError if there is no tokenizer, without which it takes no strings."""
        self.preprocessor.require_tokenizer()

    # === Defined by subclasses ===

    def start_from(self, labels: Any) -> None:
        """Set what a new head begins with, from the labels of `fit`; None if x is a dataset."""

    def training_batches(
        self,
        x: RawTexts,
        y: RawLabels,
        sample_weight: Any,
        batch_size: int,
        shuffle: bool,
        group: bool,
        seed: int | None = None,
    ) -> Any:
        """Return the packed batches of `fit`; overridden if an example has several rows there."""
        arguments = (x, y, sample_weight, batch_size, shuffle, group)
        needs_labels = self.labels.are_needed
        return datasets.batches(self.feed, *arguments, needs_labels=needs_labels, seed=seed)

    def validation_batches(self, data: Any, batch_size: int, steps: int | None = None) -> Any:
        """Return the packed batches of `validation_data`."""
        return predict_batches.validation_batches(self.feed, data, batch_size, steps)

    def default_loss(self) -> Any:
        return None

    def default_metrics(self) -> Any:
        return None

    def forget_graphs(self) -> None:
        """Retrace what was traced, after what the network computes has changed."""
        self.train_function = self.test_function = self.predict_function = None

    @property
    def weights_by_path(self) -> dict[str, Any]:
        """All weights by their paths in a preset."""
        return {v.path: v for v in self.weights}

    # === Keras's methods ===

    @property
    def distribute_strategy(self) -> Any:
        return getattr(self, "_distribute_strategy", None) or tf.distribute.get_strategy()

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        metrics: Any = "auto",
        weighted_metrics: Any = None,
        loss_weights: Any = None,
        jit_compile: bool | str = RUNTIME.is_compiled,
        micro_batch_size: int | None = None,
        smoothing: AdversarialSmoothing | None = None,
        **kwargs: Any,
    ) -> None:
        """As `keras.Model.compile`, with the task's own optimizer, loss and metrics for `"auto"`.

        The optimizer is `AdamW(backbone.learning_rate)`, which warms up and decays.
        Keras's metrics take the labels and outputs of a task, also those that are defined for
        one-hot labels and probabilities, such as `keras.metrics.F1Score(average="macro")`; see
        `keras_lm.metrics` for others. With `jit_compile`, the default on JAX alone, XLA recompiles
        for every sequence length: use it with `padding="fixed"`.

        With `micro_batch_size`, an int, a step computes its batch in parts of this many rows of
        each replica, which takes the memory of one, and adds their gradients. The step is that of
        the whole batch: losses are divided by its labels, however these are distributed, then
        gradients are clipped once. Keras's `gradient_accumulation_steps` takes the mean of the
        means of several batches instead, and its schedules count these batches. Losses that layers
        add are means over the parts.

        Args:
            smoothing: `keras_lm.training.AdversarialSmoothing`, or None.

        Raises:
            ValueError: if the learning rate is negative or not finite; if `micro_batch_size` is
                not an int of 1 or more, or on TensorFlow comes with
                `jit_compile`; or under a strategy that Keras cannot train with, or cannot with
                these options.
        """
        check_arguments(
            "compile", kwargs, optimizer=optimizer, loss=loss, loss_weights=loss_weights
        )
        RUNTIME.check(self, jit_compile, micro_batch_size, smoothing)
        with self.distribute_strategy.scope():  # Keras makes a metric for the loss
            optimizer = AdamW(self.backbone.learning_rate) if optimizer == "auto" else optimizer
            loss = self.default_loss() if isinstance(loss, str) and loss == "auto" else loss
            is_auto = isinstance(metrics, str) and metrics == "auto"
            metrics = self.default_metrics() if is_auto else metrics
            self.labels.check_loss(loss)
            metrics, weighted_metrics = keras.tree.map_structure(
                self.labels.metric, (metrics, weighted_metrics)
            )
            super().compile(
                optimizer=optimizer,
                loss=loss,
                loss_weights=loss_weights,
                metrics=metrics,
                weighted_metrics=weighted_metrics,
                jit_compile=jit_compile,
                **kwargs,
            )
            self.compiled_losses = CompiledLosses(loss, loss_weights)
        self.labels.compiled(loss, type(self).__name__)
        self._compile_loss = None  # Keras's, which knows the mean over a part alone
        self.micro_batch_size = micro_batch_size
        self.smoothing = smoothing
        check_rate(self.optimizer)
        RUNTIME.check_compiled(self, [metrics, weighted_metrics])

    def fit(
        self,
        x: RawTexts | None = None,
        y: RawLabels = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Sequence[Any] | None = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[Any, float] | None = None,
        sample_weight: Sequence[float] | Tensor | None = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_batch_size: int | None = None,
        group_by_length: bool = True,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """As `keras.Model.fit`, on raw strings.

        `batch_size` is 16 by default, half of Keras's: few examples then teach more, as they make
        more steps. Of a table without `y`, a pandas DataFrame or a Hugging Face `Dataset`, the
        column `labels` or `label` has the labels. `class_weight` may have class names as keys; a
        tagger's weighs each word by its own class. It is `"balanced"`, of labels in memory, for
        classes that count the same, however many labels they have. Where lists or arrays of texts
        are shuffled, `group_by_length` puts texts of similar length into one batch, to save the
        time of padding: rows are shuffled, sorted in blocks of up to 50 batches, and the batches
        shuffled again.

        A learning-rate schedule of `keras_lm.training` without a length gets the steps of this
        call.

        Raises:
            FloatingPointError: in the first step whose loss is not a finite number; with a
                `keras.callbacks.TerminateOnNaN`, training ends there without an error.
            TypeError: if an argument is unknown.
            ValueError: if strings or labels have another form; names row and value. If an argument
                is out of its range.
        """
        check_arguments(
            "fit",
            {"shuffle": shuffle, "group_by_length": group_by_length, **kwargs},
            batch_size=batch_size,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_split=validation_split,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_batch_size=validation_batch_size,
        )
        x, y = labelled(self.feed, x, y)
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = predict_batches.split_validation(
                x, y, sample_weight, validation_split
            )
        batches = self.first_batches(
            x, y, sample_weight, batch_size, shuffle, group_by_length, class_weight
        )
        if validation_data is not None:
            size = batch_size if validation_batch_size is None else validation_batch_size
            steps = kwargs.get("validation_steps")
            validation_data = self.validation_batches(validation_data, size, steps)
        batches = datasets.distributed(self.distribute_strategy, batches)
        steps = datasets.number_of_batches(batches) if steps_per_epoch is None else steps_per_epoch
        if steps is None or steps < 1:
            plan_schedule(self, 0, None)
        else:
            plan_schedule(self, -initial_epoch * steps, epochs * steps)
        return self.fit_packed(
            batches,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_data=validation_data,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            **kwargs,
        )

    def fit_packed(
        self, batches: Any, callbacks: Any = None, validation_data: Any = None, **kwargs: Any
    ) -> keras.callbacks.History:
        """As `keras.Model.fit`, on what `first_batches` and `validation_batches` return."""
        kwargs["callbacks"] = callbacks
        strategy = self.distribute_strategy
        with watching(kwargs, self):
            history = keras.Model.fit(
                self,
                datasets.distributed(strategy, batches),
                validation_data=datasets.distributed(strategy, validation_data),
                shuffle=False,  # done before
                **kwargs,
            )
        history.restored_epoch = restored_epoch(callbacks)
        return history

    def maker_of_batches(
        self,
        x: RawTexts,
        y: RawLabels,
        batch_size: int,
        class_weight: Mapping[Any, float] | None = None,
    ) -> Callable[[int], Any]:
        """Return a function from a seed to the packed batches of an epoch, in an order by it."""
        x, y = labelled(self.feed, x, y)
        return lambda seed: self.first_batches(
            x, y, None, batch_size, True, class_weight=class_weight, seed=seed
        )

    def with_labels(self, x: RawTexts, y: RawLabels) -> tuple[Any, Any]:
        """Return texts and labels, of a table those of its columns, as `first_batches` takes."""
        return labelled(self.feed, x, y)

    def first_batches(
        self,
        x: RawTexts,
        y: RawLabels,
        sample_weight: Any,
        batch_size: int,
        shuffle: bool,
        group: bool = True,
        class_weight: Mapping[Any, float] | None = None,
        seed: int | None = None,
    ) -> Any:
        """Return the packed batches of `fit`, and learn from its data what the task begins with."""
        arguments = (x, y, sample_weight, batch_size, shuffle, group)
        with self.pairs.learning():
            batches = self.training_batches(*arguments, seed=seed)
        self.start_from(y)
        if class_weight is None:
            return batches
        is_counted = isinstance(class_weight, str) and y is not None
        labels = self.labels.prepare(labels_from_user(y, len(y))) if is_counted else None
        weights = self.labels.class_weights(class_weight, labels)
        return classes.with_class_weights(batches, weights)

    def evaluate(
        self,
        x: RawTexts | None = None,
        y: RawLabels = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        check_arguments("evaluate", kwargs, batch_size=batch_size, verbose=verbose)
        x, y = labelled(self.feed, x, y)
        batches, _ = predict_batches.sorted_batches(
            self.feed, x, y, sample_weight, batch_size, kwargs.get("steps"), self.labels.are_needed
        )
        batches = datasets.distributed(self.distribute_strategy, batches)
        with watching(kwargs, self):
            return super().evaluate(batches, verbose=verbose, **kwargs)

    def predict(
        self, x: RawTexts, batch_size: int | None = None, verbose: int | str = "auto", **kwargs: Any
    ) -> Any:
        """As `keras.Model.predict`; sequence outputs are padded to the longest text of all."""
        check_arguments("predict", kwargs, batch_size=batch_size, verbose=verbose)
        steps, strategy = kwargs.get("steps"), self.distribute_strategy
        has_replicas = datasets.has_replicas(strategy)
        batches, places = predict_batches.sorted_batches(
            self.feed, x, batch_size=batch_size, steps=steps
        )
        if self.predicts_sequences:
            number = steps and steps * (datasets.number_here(strategy) if has_replicas else 1)
            batches = predict_batches.padded_alike(batches, self.packer, strategy, number)
        batches = datasets.distributed(strategy, batches)
        with watching(kwargs, self):
            outputs = super().predict(batches, verbose=verbose, **kwargs)
        if places is None:
            return outputs
        return keras.tree.map_structure(lambda array: array[places], outputs)

    def train_on_batch(
        self,
        x: RawTexts,
        y: RawLabels = None,
        sample_weight: Any = None,
        class_weight: Mapping[Any, float] | None = None,
        **kwargs: Any,
    ) -> Any:
        plan_schedule(self, 0, None)
        batch = datasets.one_batch(self.feed, x, y, sample_weight, self.labels.are_needed)
        if class_weight is not None:
            batch = classes.weigh_classes(self.labels.class_weights(class_weight), *batch)
        return super().train_on_batch(*RUNTIME.one_batch(batch), **kwargs)

    def test_on_batch(
        self, x: RawTexts, y: RawLabels = None, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        batch = datasets.one_batch(self.feed, x, y, sample_weight, self.labels.are_needed)
        return super().test_on_batch(*RUNTIME.one_batch(batch), **kwargs)

    def predict_on_batch(self, x: RawTexts) -> Any:
        packed = RUNTIME.as_arrays(datasets.one_batch(self.feed, x)[0])
        outputs, rows = super().predict_on_batch(packed), len(next(iter(packed.values())))
        return keras.tree.map_structure(lambda array: array[:rows], outputs)  # every replica's

    # === A step ===

    def prepare_batch(self, data: Any, training: bool | None) -> Batch:
        """Return the `Batch` of a step for Keras's `(x, y, sample_weight)`: before the network."""
        return Batch(*keras.utils.unpack_x_y_sample_weight(data))

    def compute_batch(self, batch: Batch, training: bool | None) -> Computed:
        """Return what the network makes of a `Batch`, or of some of its rows: `Computed`."""
        if training and self.has_terms:
            outputs, terms = self(batch.inputs, training=True, with_terms=True)
        else:
            outputs, terms = self(batch.inputs, training=training), ()
        return Computed(batch.labels, outputs, batch.sample_weight, terms)

    # Whether calling takes `with_terms`, and then also returns what training adds to the loss.
    has_terms = False

    def losses_of(self, labels: Any) -> dict[str, Any]:
        """Return the losses of labels; see `CompiledLosses.of`."""
        return self.compiled_losses.of(labels)

    def counted_labels(self, batch: Batch) -> Any:
        """Return labels of a whole batch from which its losses can count what they sum."""
        return batch.labels

    def label_counts(self, batch: Batch) -> dict[str, Any]:
        """Return by what each loss of labels is divided: its count in a batch, by its name."""
        labels = self.counted_labels(batch)
        return label_counts(self.losses_of(labels), labels, batch.sample_weight)

    def loss_terms(self, batch: Batch, computed: Computed, training: bool | None) -> list[Term]:
        """Return the parts of the loss of what was computed of a batch: a list of `Term`."""
        labels, outputs, weights, terms = computed
        labels, weights = self.labels.for_loss(labels, outputs, weights)
        terms = [Term(*term) for term in terms]
        terms += label_terms(self.losses_of(labels), labels, outputs, weights)
        rows = ops.cast(ops.shape(keras.tree.flatten(batch.inputs)[0])[0], "float32")
        if of_layers := self.losses:
            terms.append(Term(rows * ops.cast(sum(of_layers), "float32"), rows))
        if training and self.smoothing is not None:
            terms.append(Term(*self.smoothing.sum_and_count(self, batch.inputs, outputs)))
        return terms

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool | None = True,
    ) -> Tensor:
        """As `keras.Model.compute_loss`: the mean of a batch that is not a part of a larger one."""
        terms = self.loss_terms(Batch(x), Computed(y, y_pred, sample_weight), training)
        return sum(term.weight * ops.divide_no_nan(term.total, term.count) for term in terms)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        return super().compute_metrics(x, self.labels.for_metrics(y, y_pred), y_pred, sample_weight)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [*super().metrics, *self.compiled_losses.means.values()]

    def train_step(self, *data: Any) -> dict[str, Any]:
        if not self.trainable_weights:
            return super().train_step(*data)  # warns
        return RUNTIME.train_step(self, *data)

    def test_step(self, *data: Any) -> dict[str, Any]:
        return RUNTIME.test_step(self, *data)

    def _get_jax_state(self, **options):
        RUNTIME.before_taking(self)
        return super()._get_jax_state(**options)

    def predict_step(self, *data: Any) -> Any:
        return RUNTIME.predict_step(super().predict_step, *data)

    @contextlib.contextmanager
    def carrying(self, carried):
        """A context in which each batch starts from the previous one's state (`CarriedState`)."""
        self._carried, self.train_function, self.test_function = carried, None, None
        try:
            yield
        finally:
            self._carried, self.train_function, self.test_function = None, None, None

    def _symbolic_build(self, iterator=None, data_batch=None):
        if not RUNTIME.build(self, iterator, data_batch):
            super()._symbolic_build(iterator, data_batch)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # Keras takes the mean of the replicas' first inputs, for which these have to be alike.
        if iterator is not None and getattr(self, "_distribute_strategy", None) is not None:
            iterator, data_batch = None, RUNTIME.first_batch(self, iterator)
        super()._maybe_symbolic_build(iterator, data_batch)

    def make_train_function(self, force: bool = False) -> Any:
        # TensorFlow traces a step twice if that creates variables.
        if self.optimizer is not None and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)


# === Calls of Keras's `fit`, `evaluate` and `predict` ===

NO_CLASS = re.compile(r"label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)")

# What Keras says if there were no batches.
WITHOUT_BATCHES = ("since the metric has not yet been built", "'batch_outputs'")

InvalidArgument = ()

if IS_INSTALLED:
    InvalidArgument = tf.errors.InvalidArgumentError

    class WrongDataError(InvalidArgument, ValueError):
        """Data that a graph refused; the message says what is wrong with them."""

        def __init__(self, message):
            super().__init__(None, None, message)

        def __str__(self):
            return self.message


@contextlib.contextmanager
def watching(options: dict[str, Any], model: keras.Model) -> Any:
    """A context to call Keras's `fit`, `evaluate` or `predict` in.

    A `WatchedSteps` joins their callbacks. Data without batches raise a ValueError, and so do those
    that a graph refuses: a `WrongDataError`.

    Args:
        options: arguments of the call.
        model: the model.
    """
    options["callbacks"] = watched(options.get("callbacks"), model)
    try:
        with RUNTIME.calling(model):
            yield
    except (UnboundLocalError, ValueError) as error:
        if any(words in str(error) for words in WITHOUT_BATCHES):
            raise no_batches() from None
        raise
    except InvalidArgument as error:
        message = _plain(error.message)
        if message is None:
            raise
        raise WrongDataError(message) from None


def _plain(message):
    """Return what an error of a graph says, or None if that is not about data."""
    if said := said_by_require(message):
        return said
    if match := NO_CLASS.search(message):
        last = int(match[2]) - 1
        return f"labels hold {match[1]}, which is not a class: they count from 0 to {last}."
    return None


# === Options ===

# What counts something → the least of it.
COUNTS = {
    "batch_size": 1,
    "epochs": 0,
    "initial_epoch": 0,
    "steps": 1,
    "steps_per_epoch": 1,
    "steps_per_execution": 1,
    "validation_batch_size": 1,
    "validation_freq": 1,
    "validation_steps": 1,
}
ORBAX = getattr(keras.callbacks, "OrbaxCheckpoint", None)  # of newer Keras
FLAGS = ("auto_scale_loss", "group_by_length", "return_dict", "run_eagerly", "shuffle")
REQUIRED = ("epochs", "initial_epoch", "steps_per_execution", "validation_freq")
# Names of further arguments, also those that need no check.
MORE = {
    "fit": (
        *("class_weight", "group_by_length", "sample_weight", "shuffle", "validation_data"),
        *("validation_freq", "validation_steps"),
    ),
    "evaluate": ("callbacks", "return_dict", "sample_weight", "steps"),
    "predict": ("callbacks", "steps"),
    "compile": ("auto_scale_loss", "run_eagerly", "steps_per_execution"),
}


def check_arguments(call: str, more: Mapping[str, Any], **given: Any) -> None:
    """Raise an error that names an argument of a call if its value, or its name, is none.

    Args:
        call: name of the method.
        more: the arguments that it passes on to Keras.
        **given: its own.

    Raises:
        TypeError: if one of `more` is no argument.
        ValueError: if a value is out of its range.
    """
    known = [*given, *MORE[call]]
    for name in more:
        if name not in known and not name.startswith("_"):  # Keras's own
            raise TypeError(f"{call}() has no argument {name!r}.{advice(name, known)}")
    for name, value in {**given, **more}.items():
        if name == "validation_freq" and isinstance(value, (list, tuple, set)):
            for epoch in value:
                check_whole(name, epoch, 1)
        elif name in COUNTS and (value is not None or name in REQUIRED):
            check_whole(name, value, COUNTS[name])
        elif name in CHECKS:
            CHECKS[name](value)


def _check_split(share):
    is_number = isinstance(share, numbers.Real) and not isinstance(share, bool)
    if share is not None and not (is_number and 0 <= share < 1):
        raise ValueError(
            f"validation_split={share!r}: pass a share of the rows, 0 or more and less than 1."
        )


def _check_callbacks(callbacks):
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return
    is_list = isinstance(callbacks, Iterable) and not isinstance(callbacks, (str, Mapping))
    for callback in callbacks if is_list else [callbacks]:
        is_none = callback is None and not is_list
        if not (is_none or isinstance(callback, keras.callbacks.Callback)):
            raise ValueError(
                f"callbacks has {callback!r}: pass objects of keras.callbacks.Callback, in a list."
            )
        if ORBAX is not None and isinstance(callback, ORBAX):
            raise ValueError(
                "callbacks has an OrbaxCheckpoint, from which random seeds and gradient "
                "accumulation do not come back: pass keras_lm.training.TrainingCheckpoint(FILE) "
                "or OrbaxTrainingCheckpoint(FOLDER), from which a run goes on exactly, on any "
                "devices."
            )


def _check_optimizer(optimizer):
    is_config = isinstance(optimizer, dict) and "class_name" in optimizer
    if not (optimizer is None or is_config or isinstance(optimizer, (str, keras.Optimizer))):
        raise ValueError(
            f"optimizer={optimizer!r}: pass a keras.Optimizer, such as "
            "keras_lm.training.AdamW(5e-5), its name, or 'auto'."
        )


def _check_loss(loss):
    for value in keras.tree.flatten(loss):
        is_loss = isinstance(value, (str, keras.Loss, Callable))
        if value is not None and not is_loss:
            raise ValueError(
                f"loss={value!r}: pass a keras.Loss, a function of labels and outputs, the name of "
                "one, or 'auto'."
            )


def _check_loss_weights(weights):
    for weight in keras.tree.flatten(weights):
        is_number = isinstance(weight, numbers.Real) and not isinstance(weight, bool)
        if weight is not None and not (is_number and 0 <= weight < math.inf):
            raise ValueError(f"loss_weights has {weight!r}: pass finite numbers, 0 or more.")


CHECKS = {
    **{name: partial(check_flag, name) for name in FLAGS},
    "verbose": check_verbose,
    "callbacks": _check_callbacks,
    "loss": _check_loss,
    "loss_weights": _check_loss_weights,
    "optimizer": _check_optimizer,
    "validation_split": _check_split,
}


# === Steps that are watched ===


class WatchedSteps(keras.callbacks.Callback):
    """Raises an error in the first step whose loss is NaN or infinite, and if there is no step.

    Args:
        stops: bool. False leaves a loss that is not a number to others.
    """

    # Keras may run it beside the next step, so that no step waits for the loss of the one before.
    async_safe = True
    epoch = steps = answers = 0

    def __init__(self, stops: bool = True):
        super().__init__()
        self.stops = stops

    def on_train_begin(self, logs=None):
        self.steps = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        loss = float((logs or {}).get("loss", 0.0))
        if self.stops and not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} in step {batch + 1} of epoch {self.epoch + 1}, and so are "
                "weights from then on. Load the task again and try a lower learning_rate, longer "
                "warm-up, clipping (global_clipnorm=1.0), float32 or bfloat16 in place of float16, "
                "or look for wrong labels and sample_weight."
            )

    def on_epoch_end(self, epoch, logs=None):
        if not self.steps:
            raise no_batches()

    def on_test_begin(self, logs=None):
        self.answers = 0

    def on_test_batch_end(self, batch, logs=None):
        self.answers += 1

    def on_test_end(self, logs=None):
        if not self.answers:
            raise no_batches()

    on_predict_begin, on_predict_batch_end = on_test_begin, on_test_batch_end


def watched(callbacks: Any, model: keras.Model) -> Any:
    """Return the callbacks of a call of `fit` or `evaluate`, with a `WatchedSteps` before them.

    Args:
        callbacks: a callback, a list of them, a `CallbackList`, or None.
        model: the model that is trained.
    """
    is_list = isinstance(callbacks, keras.callbacks.CallbackList)
    given = keras.tree.flatten(callbacks.callbacks if is_list else callbacks or [])
    if any(isinstance(callback, WatchedSteps) for callback in given):
        return callbacks
    own = WatchedSteps(not any(isinstance(c, keras.callbacks.TerminateOnNaN) for c in given))
    if not is_list:
        return [own, *given]
    own.set_model(model)
    callbacks.callbacks.insert(0, own)
    return callbacks


def no_batches():
    """Return the error of data without batches."""
    return ValueError(
        "x has no batches: pass data with one example at least. A tf.data.Dataset may have lost "
        "all of them by filter, skip or batch(…, drop_remainder=True)."
    )


def restored_epoch(callbacks: Any) -> int | None:
    """Return the number of the epoch, from 0, whose weights a callback restores after `fit`.

    Args:
        callbacks: Keras's callbacks, a list or a `CallbackList`, or None.
    """
    for callback in keras.tree.flatten(getattr(callbacks, "callbacks", callbacks) or []):
        if isinstance(callback, keras.callbacks.EarlyStopping) and callback.restore_best_weights:
            return callback.best_epoch if callback.best_weights is not None else None
    return None
