"""Several tasks over one encoder, trained together and shipped as one artefact."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from keras_lm import presets
from keras_lm.feeding import datasets
from keras_lm.feeding.datasets import number_of_batches
from keras_lm.models.backbone import Backbone
from keras_lm.presets.source import Source
from keras_lm.tasks.runtime import RUNTIME, check_alike, require_tensorflow
from keras_lm.tasks.task import KerasFile, Task
from keras_lm.tasks.text_model import TextModel, check_arguments, watched
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.training.optimizers import plan_schedule
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.processes import common_seed
from keras_lm.utils.registry import TASKS, register


@keras.saving.register_keras_serializable("keras_lm")
class MultiTask(KerasFile, presets.SavedWhole, TextModel):
    """Train several tasks over one backbone together, and ship them as one artefact.

    Each has its own head, labels, loss and metrics, and stays a task like any other, in `tasks`: to
    predict with, to evaluate, to train on alone. In `fit` a batch belongs to one task; an epoch is
    all batches of all tasks, shuffled, so that tasks count by the sizes of their data. Only the
    weights that a batch's task reads are updated, by one optimizer for all.

    Presets, `.keras` files and SavedModels hold the backbone once. The signatures of a SavedModel
    begin with the task's name: `sentiment` answers texts, `sentiment_tokenize`,
    `sentiment_classify` and the like are as `keras_lm.export` has them of a task alone. For LiteRT,
    export the tasks one by one.

    Args:
        tasks: dict of name → `keras_lm.tasks.Task`. All are over the same backbone and have the
            same tokenizer, the very same objects: make the first from a preset, and the others of
            its `backbone` and `tokenizer`. A name is of small letters, digits and `_`.

    Raises:
        ValueError: if there are no tasks, one is there twice or writes with a decoder, a name is
            of other characters, a backbone or a tokenizer is another object, or a task was made
            under another strategy than this.

    Example:

        sentiment = keras_lm.tasks.TextClassifier.from_preset(SOURCE, class_names=["bad", "good"])
        shared = {"backbone": sentiment.backbone, "tokenizer": sentiment.tokenizer}
        similarity = keras_lm.tasks.TextRegressor(**shared)
        task = keras_lm.tasks.MultiTask({"sentiment": sentiment, "similarity": similarity})
        task.fit({"sentiment": (texts, labels), "similarity": (pairs, scores)}, epochs=3)
        sentiment.classify(["I laughed"])
        task.export("exported")  # signatures sentiment, similarity, …

    Source: MT-DNN, Liu et al. 2019, https://arxiv.org/abs/1901.11504, algorithm 1.
    """

    has_decoder = False
    pretraining_head = None
    text_pair = None

    def __init__(self, tasks: Mapping[str, Task], name: str | None = None):
        require_tensorflow("Training of several tasks together")
        _check_tasks(tasks)
        first = next(iter(tasks.values()))
        super().__init__(name=name, dtype=first.dtype_policy)
        check_alike(self, "tasks", tasks.values())
        self.tasks = dict(tasks)
        self.backbone, self.tokenizer = first.backbone, first.tokenizer
        self._batches = {}  # name of a task → iterator of its batches, while it trains
        self.built = True
        self.compile()

    # === Training ===

    def get_compile_config(self) -> dict[str, Any]:
        configs = {name: task.get_compile_config() for name, task in self.tasks.items()}
        return {"optimizer": super().get_compile_config()["optimizer"], "tasks": configs}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        config = dict(config)
        for name, of_task in config.pop("tasks").items():
            self.tasks[name].compile_by(of_task)
        super().compile_from_config(config)

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        weights = {id(v): v for task in self.tasks.values() for v in task.trainable_weights}
        return list(weights.values())

    trainable_variables = property(lambda self: self.trainable_weights)

    def compile(self, optimizer: Any = "auto", run_eagerly: bool = False) -> None:
        """Set the optimizer; losses, metrics and `micro_batch_size` are those of each task.

        After a task is compiled again, compile this, too.
        """
        super().compile(optimizer, loss=None, metrics=None, run_eagerly=run_eagerly)

    def fit(
        self,
        data: Any,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Sequence[Any] | None = None,
        validation_data: Any = None,
        initial_epoch: int = 0,
    ) -> keras.callbacks.History:
        """Train on batches of all tasks, shuffled, as `keras.Model.fit` on raw strings.

        Args:
            data: dict of a task's name → `(x, y)` or `(x, y, sample_weight)` as its own `fit` takes
                them, or a `tf.data.Dataset` of batches whose number is known. Tasks without data
                are not trained.
            validation_data: the same, for `evaluate` after each epoch.
            batch_size, epochs, verbose, callbacks, initial_epoch: as `Task.fit`.

        Returns:
            Keras's `History`, with the logs of each task under its name: `sentiment_loss`, ….

        Raises:
            ValueError: if there is no data or no such task, a dataset's length is unknown, or as
                the task's own `fit` does.
        """
        options = {"verbose": verbose, "callbacks": callbacks, "initial_epoch": initial_epoch}
        check_arguments("fit", {}, batch_size=batch_size, epochs=epochs, **options)
        batches = {
            name: self.tasks[name].first_batches(*given, batch_size, True, True)
            for name, given in self._by_task(data).items()
        }
        turns = self._turns(batches)
        number = number_of_batches(turns)
        plan_schedule(self, -initial_epoch * number, epochs * number)
        if validation_data is not None:
            validation = _EachEvaluated(self, self._by_task(validation_data), batch_size)
            callbacks = [validation, *keras.tree.flatten(callbacks or [])]
        # Without an end, so that an epoch takes each task's batches once, newly shuffled.
        self._batches = {name: iter(self._distributed(b.repeat())) for name, b in batches.items()}
        try:
            options["callbacks"] = watched(callbacks, self)
            # Shuffled above.
            return keras.Model.fit(self, turns, epochs=epochs, shuffle=False, **options)
        finally:
            self._batches = {}

    def _turns(self, batches):
        """Return a dataset of names of tasks, in the order in which their batches are taken."""
        strategy = self.distribute_strategy
        here = datasets.number_here(strategy)
        sizes = {name: int(parts.cardinality()) // here for name, parts in batches.items()}
        for name in [name for name, size in sizes.items() if size < 1]:
            raise ValueError(
                f"data[{name!r}] has an unknown number of batches, or no end: state it with "
                "tf.data.experimental.assert_cardinality, or cut it by .take(n)."
            )
        names = np.repeat([*sizes], [*sizes.values()])
        turns = tf.data.Dataset.from_tensor_slices(names)
        turns = turns.shuffle(len(names), common_seed(strategy))
        if here > 1:  # each replica takes one
            turns = turns.batch(1).map(lambda name: tf.repeat(name, here)).unbatch()
            turns = turns.apply(tf.data.experimental.assert_cardinality(len(names) * here))
        return self._distributed(turns)

    def _distributed(self, parts):
        return datasets.distributed(self.distribute_strategy, parts)

    def make_train_function(self, force: bool = False) -> Any:
        """Make the step: whose turn it is → that task's own step, on its next batch."""
        if self.train_function is not None and not force:
            return
        strategy = self.distribute_strategy
        if not self.optimizer.built:
            with strategy.scope():
                self.optimizer.build(self.trainable_variables)

        def step_of(task):
            def step(batches):
                strategy.run(RUNTIME.train_by, args=(task, self.optimizer, next(batches)))

            return step if self.run_eagerly else tf.function(step, reduce_retracing=True)

        step_by_name = {name: step_of(task) for name, task in self.tasks.items()}

        def train_function(turns):
            (name, *_) = strategy.experimental_local_results(next(turns))
            name = name.numpy().decode()
            step_by_name[name](self._batches[name])
            return self.get_metrics_result()

        self.train_function = train_function

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [metric for task in self.tasks.values() for metric in task.metrics]

    def get_metrics_result(self) -> dict[str, Any]:
        """Return the logs of the tasks that have had a batch, and `loss`, the mean of all rows."""
        # Read as tensors: of several replicas they are the sums of all.
        trackers = {name: task._loss_tracker for name, task in self.tasks.items()}
        rows = {n: float(tf.convert_to_tensor(loss.count)) for n, loss in trackers.items()}
        logs = {n: self.tasks[n].get_metrics_result() for n in self.tasks if rows[n]}
        total = sum(float(tf.convert_to_tensor(trackers[n].total)) for n in logs)
        return {"loss": total / max(sum(rows.values()), 1.0)} | _joined(logs)

    def evaluate(
        self, data: Any, batch_size: int | None = None, verbose: int | str = "auto"
    ) -> Any:
        """Return a dict of what each task's own `evaluate` returns, under its name.

        Args:
            data, batch_size: see `fit`.
            verbose: see `Task.evaluate`.
        """
        logs = {}
        for name, (x, y, weight) in self._by_task(data).items():
            options = {"sample_weight": weight, "return_dict": True}
            logs[name] = self.tasks[name].evaluate(x, y, batch_size, verbose, **options)
        return _joined(logs)

    def predict(self, data: Any, batch_size: int | None = None, verbose: int | str = "auto") -> Any:
        """Return a dict of a task's name → the outputs of its own `predict`, for texts by name."""
        self._check_names(data)
        return {name: self.tasks[name].predict(x, batch_size, verbose) for name, x in data.items()}

    def _by_task(self, data):
        """Return name → (x, y, sample_weight)."""
        self._check_names(data)
        by_task = {}
        for name, given in data.items():
            x, y, weights = (*given, None)[:3] if isinstance(given, tuple) else (given, None, None)
            by_task[name] = *self.tasks[name].with_labels(x, y), weights
        return by_task

    def _check_names(self, data):
        if not isinstance(data, dict) or not data or not set(data) <= set(self.tasks):
            given = sorted(data) if isinstance(data, dict) else type(data).__name__
            raise ValueError(
                f"data is {given}: pass a dict with data for some of the tasks {[*self.tasks]}."
            )

    # === From and to files ===

    @property
    def weights_by_path(self) -> dict[str, Any]:
        """The backbone's weights, and those of heads, whose paths begin with the task's name."""
        weights = {v.path: v for v in self.backbone.weights}
        shared = {id(v) for v in self.backbone.weights}
        for name, task in self.tasks.items():
            weights |= {f"{name}/{v.path}": v for v in task.weights if id(v) not in shared}
        return weights

    @classmethod
    def from_preset(
        cls, source: PathLike | Source, load_weights: bool = True, **arguments: Any
    ) -> Self:
        """Load the tasks of a preset, compiled; see `Task.from_preset`."""
        return presets.load_task(source, cls, load_weights=load_weights, **arguments)

    @classmethod
    def arguments_from_checkpoint(cls, labels: Any) -> None:
        return None  # nobody publishes several

    @classmethod
    def from_parts(
        cls,
        backbone: Backbone,
        tokenizer: Tokenizer | None = None,
        tasks: Any = None,
        name: str | None = None,
    ) -> Self:
        """Return the tasks that `get_arguments` describes, over a backbone."""
        if tasks is None:
            raise ValueError(
                f"It holds no {cls.__name__}: load one task by its own from_preset, make others of "
                f"its backbone and tokenizer, and pass them to {cls.__name__}."
            )
        made = {}
        for key, stated in tasks.items():
            if stated["class"] not in TASKS:
                raise ValueError(
                    f"tasks[{key!r}] is of the class {stated['class']!r}, which no task has: "
                    "the file is damaged, or another program's."
                )
            task = TASKS[stated["class"]]
            arguments = task.completed(stated["arguments"])
            made[key] = task.from_parts(backbone, tokenizer=tokenizer, **arguments)
        return cls(made, name=name)

    def get_arguments(self) -> dict[str, Any]:
        return {
            "tasks": {
                name: {"class": type(task).__name__, "arguments": task.get_arguments()}
                for name, task in self.tasks.items()
            }
        }

    def use_tokenizer(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        for task in self.tasks.values():
            task.use_tokenizer(tokenizer)

    save_to_preset = Task.save_to_preset

    def missing_tokens(self) -> list[str]:
        return []

    def with_fine_tuning_tokens(self) -> Self:
        return self

    # === Exports ===

    def trimmed(self) -> Self:
        """Return itself: an export holds all of the shared backbone, whatever task needs it."""
        return self

    def forget_graphs(self) -> None:
        super().forget_graphs()
        for task in self.tasks.values():
            task.forget_graphs()

    def export(self, path: PathLike, format: str | None = None, **options: Any) -> Path:
        """Write all tasks as one SavedModel; see `keras_lm.export.export`.

        `texts` is a dict of a task's name → texts to compare its answers on.
        """
        from keras_lm import export  # which needs TensorFlow

        return export.export(self, path, format, **options)

    @property
    def signatures(self) -> "MultiTaskSignatures":
        return MultiTaskSignatures(self.tasks)

    @property
    def id_signatures(self) -> dict[str, Any]:
        raise ValueError(
            f"MediaPipe runs one task: export those of {[*self.tasks]} one by one, or all as a "
            "SavedModel."
        )

    # (For one task, as its functions say.)
    byte_signatures = property(lambda self: self.signatures)

    def fixed_signatures(self, *_: Any) -> Any:
        """Raise a ValueError: a page for browsers asks one task."""
        raise ValueError(
            f"format='web': a page asks one task, and this {type(self).__name__} has "
            f"{[*self.tasks]}: export each of task.tasks by itself."
        )

    @property
    def plain_signatures(self):
        raise ValueError(
            f"operations='tensorflow' is for one task: export those of {[*self.tasks]} one by one."
        )

    @property
    def packed_signatures(self):
        raise ValueError(
            f"an .onnx is for one task: export those of {[*self.tasks]} one by one, or all as a "
            "SavedModel."
        )

    number_signatures = packed_signatures

    @property
    def lookups(self) -> list[Any]:
        return [lookup for task in self.tasks.values() for lookup in task.lookups]


class MultiTaskSignatures:
    """The signatures of several tasks, under their names; see `TextSignatures`."""

    def __init__(self, tasks):
        self.parts = {name: task.signatures for name, task in tasks.items()}

    def texts(self):
        return {name: part.texts() for name, part in self.parts.items()}

    def functions(self):
        return self._named(lambda part: part.functions())

    def attention(self):
        raise ValueError(
            f"attention=True is of one task: export those of {[*self.parts]} one by one with it."
        )

    def methods(self):
        return self._named(lambda part: part.methods())

    def defaults(self):
        return self._named(lambda part: part.defaults())

    def files(self):
        return {}

    def frozen_functions(self, weights="float32"):
        raise ValueError(
            "freeze=True would put the weights into the graph once for each task: leave it out, or "
            "export the tasks one by one."
        )

    def lite_functions(self):
        raise ValueError(
            f"a .tflite is for one task: export those of {[*self.parts]} one by one, or all as a "
            "SavedModel."
        )

    def answering(self, texts):
        if not isinstance(texts, dict) or set(texts) != set(self.parts):
            raise ValueError(
                f"texts: pass a dict with texts for each of the tasks {[*self.parts]}."
            )
        for name, part in self.parts.items():
            yield name, part.task, texts[name]

    def requests(self, batch_sizes):
        for name, part in self.parts.items():
            for signature, arrays in part.requests(batch_sizes):
                yield _name_of(name, signature), arrays

    def _named(self, of_part):
        named = {}
        for name, part in self.parts.items():
            mine = {_name_of(name, signature): value for signature, value in of_part(part).items()}
            for both in mine.keys() & named.keys():
                raise ValueError(
                    f"two tasks of {[*self.parts]} have a signature {both!r}: rename one of them."
                )
            named |= mine
        return named


class _EachEvaluated(keras.callbacks.Callback):
    """Adds what `evaluate` returns to an epoch's logs, before other callbacks read these."""

    def __init__(self, task, data, batch_size):
        super().__init__()
        self.task, self.data, self.batch_size = task, data, batch_size

    def on_epoch_end(self, epoch, logs=None):
        results = self.task.evaluate(self.data, self.batch_size, verbose=0)
        logs.update({f"val_{name}": value for name, value in results.items()})


def _name_of(task, signature):
    return task if signature == "serving_default" else f"{task}_{signature}"


def _joined(logs):
    return {f"{name}_{key}": v for name, task_logs in logs.items() for key, v in task_logs.items()}


def _check_tasks(tasks):
    if not isinstance(tasks, dict) or not tasks:
        raise ValueError(f"tasks is {tasks!r}: pass a dict of a name → task, one or more.")
    first_name, first = next(iter(tasks.items()))
    for name, task in tasks.items():
        if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
            raise ValueError(f"tasks has the name {name!r}: use small letters, digits and _.")
        if not isinstance(task, Task) or task.has_decoder:
            raise ValueError(
                f"tasks[{name!r}] is a {type(task).__name__}: pass tasks over an encoder, or over "
                "one stack of a decoder."
            )
        for part in ("backbone", "tokenizer"):
            if getattr(task, part) is not getattr(first, part):
                raise ValueError(
                    f"tasks[{name!r}] has another {part} than tasks[{first_name!r}]: make it of "
                    f"the same object, {type(task).__name__}(first.backbone, "
                    "tokenizer=first.tokenizer, …)."
                )
    if len({id(task) for task in tasks.values()}) < len(tasks):
        raise ValueError("tasks has the same task twice: make one for each name.")


register(MultiTask, TASKS)
