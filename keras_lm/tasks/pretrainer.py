"""Tasks that train on objectives; all pretraining objectives of a model at once."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras

from keras_lm.feeding.feed import Preprocessor, TaskLabels
from keras_lm.models.backbone import Backbone
from keras_lm.objectives import pretraining_objectives
from keras_lm.tasks.task import Task
from keras_lm.tasks.text_model import Batch, Computed
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import Tensor


class PretrainingLabels(TaskLabels):
    """Labels of data that some objectives need, or that replace those which they would make."""

    objectives = ()
    are_needed = property(lambda self: bool(self._of_data))
    remedy = property(lambda self: f"pass y, and say there {' and '.join(self._of_data)}")

    @property
    def _of_data(self):
        return [one.labels_of_data for one in self.objectives if one.labels_of_data]

    def prepare(self, labels):
        if not self.are_needed and (labels.dtype.kind not in "iuf" or labels.ndim < 2):
            held = "strings" if labels.dtype.kind in "OSU" else f"{labels.dtype} {labels.shape}"
            raise ValueError(
                f"y holds {held}, and {self.task} learns from the texts of x alone: leave y out, "
                "or pass x packed and the ids of its labels, integers (B, S)."
            )
        return labels


class LabelsByOutput(PretrainingLabels):
    """Those of a `Pretrainer`, in a dict by the outputs of its objectives."""

    def names(self, is_packed):
        names = [name for one in self.objectives for name in _outputs(one)]
        return [*names, *(name.replace("_logits", "_labels") for name in names)]


class PretrainingTask(Task):
    """A task that the objectives of `make_objectives` train; labels in the data replace theirs."""

    predicts_sequences = True
    labels_class = PretrainingLabels

    def make_objectives(self) -> list[Any]:
        return []

    @property
    def objective(self) -> Any:
        (objective,) = self.objectives
        return objective

    def _set_tokenizer(self, tokenizer):
        super()._set_tokenizer(tokenizer)
        self._train_on(self.objectives or self.make_objectives())

    def with_backbone(self, backbone: Backbone, tokenizer: Tokenizer | None) -> Self:
        task = super().with_backbone(backbone, tokenizer)
        task._train_on(map(copy.copy, self.objectives))
        return task

    def _train_on(self, objectives):
        self.objectives: list[Any] = list(objectives)
        self.labels.objectives = self.objectives
        for objective in self.objectives:
            objective.set_tokenizer(self.tokenizer)
            objective.set_backbone(self.backbone)
        if keras.backend.backend() != "tensorflow":  # whose steps do not find their state otherwise
            self.objective_seeds: list[Any] = [
                o.seed_generator for o in self.objectives if o.seed_generator
            ]

    def default_loss(self) -> Any:
        return self.objective.loss()

    def default_metrics(self) -> Any:
        return self.objective.metrics()

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        # Also those of companions, which are trained, but not saved with the model.
        return _with_others(
            super().trainable_weights, [w for o in self.objectives for w in o.trainable_weights]
        )

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        # Of companions, the state of their dropout, which a step of JAX takes and returns.
        variables = super().non_trainable_variables
        if keras.backend.backend() == "tensorflow":
            return variables
        others = [v for o in self.objectives for v in o.variables if not v.trainable]
        return _with_others(variables, others)

    def known_inputs(self) -> set[str] | None:
        # (A user's own objective may read whatever its rows have.)
        ours = [cls.__module__.startswith("keras_lm.") for cls in map(type, self.objectives)]
        names = [objective.row_names for objective in self.objectives]
        is_known = all(ours) and None not in names
        return super().known_inputs().union(*names) if is_known else None

    # === Steps ===

    def _encode(self, inputs, training):
        return self._read(self.backbone, inputs, training)

    def _read(self, compute, inputs, training):
        inputs = self.backbone.select_inputs(inputs)
        if self._carried is None:
            return compute(inputs, training=training)
        outputs = compute(inputs | self._carried.inputs(training), training=training)
        self._carried.keep(outputs, training)
        return outputs

    def prepare_batch(self, data: Any, training: bool | None) -> Any:
        """Corrupt a batch without labels."""
        batch = super().prepare_batch(data, training)
        if batch.labels is None:
            inputs, labels = self.objective.corrupt(batch.inputs, training)
            batch = batch._replace(inputs=inputs, labels=labels)
        return batch


@dataclasses.dataclass(frozen=True, eq=False)
class PretrainingPreprocessor(Preprocessor):
    """A `Preprocessor` whose packed texts may still lack what an objective makes of them."""

    def is_packed(self, x):
        # Also before an objective makes an encoder-decoder's inputs of them.
        return super().is_packed(x) or (isinstance(x, dict) and "token_ids" in x)


@keras.saving.register_keras_serializable("keras_lm")
class Pretrainer(PretrainingTask):
    """A backbone with its pretraining heads, such as BERT's masked LM and next sentence.

    `fit` takes raw texts, with labels if an objective needs them: for BERT pairs of texts, with 0
    if the second text follows the first, else 1. Labels may also be a dict, which replaces those
    that objectives would make: `token_labels` (B, S), or (B, M) with `mask_positions`, and
    `next_sentence_labels` (B,); -100 is ignored by the loss.

    Objectives without a `forward` of their own share one forward pass: each in turn corrupts the
    batch. The loss is the sum of all, with the objectives' `loss_weights`. Presets do not store
    objectives: pass them to `from_preset` again. Nor do `.keras` files, which load with the usual
    objectives of their heads.

    Args:
        objectives: list of `keras_lm.objectives.Objective`; by default those that the backbone was
            pretrained with.
        heads: dict from a kind of head to the head of another task, to evaluate a model with
            objectives that it was not trained on; new ones by default.
        backbone, **arguments: see `Task`.

    Call: `task(inputs)` returns a dict with a key per head: for BERT `token_logits` (B, S, V), or
    (B, M, V) if `inputs` holds `mask_positions`, and `next_sentence_logits` (B, 2).

    Raises:
        ValueError: if there are no objectives, two have the same output, or `heads` lacks one.

    Example:

        task = keras_lm.tasks.Pretrainer.from_preset(SOURCE)
        task.fit((["He went out."], ["It was raining."]), [0])

        whole_words = keras_lm.objectives.MaskedLanguageModel(whole_words=True)
        task = keras_lm.tasks.Pretrainer.from_preset(SOURCE, objectives=[whole_words])
        task.fit(["He went out."])

    Source: BERT, https://arxiv.org/abs/1810.04805, section 3.1.
    """

    is_pretraining = True
    labels_class = LabelsByOutput
    preprocessor_class = PretrainingPreprocessor
    has_decoder = True  # if the model has one, which T5's objective trains

    def __init__(
        self,
        backbone: Backbone,
        objectives: Sequence[Any] | None = None,
        heads: Mapping[str, str] | None = None,
        **arguments: Any,
    ):
        super().__init__(backbone, **arguments)
        self._train_on(pretraining_objectives(backbone) if objectives is None else objectives)
        self.uses_pooler = any(objective.uses_pooler for objective in self.objectives)
        outputs = [name for objective in self.objectives for name in _outputs(objective)]
        for name in {name for name in outputs if outputs.count(name) > 1}:
            raise ValueError(f"objectives has two that predict {name!r}: keep one.")
        self.output_kinds: dict[str, str] = {
            name: kind for objective in self.objectives for name, kind in objective.heads.items()
        }
        kinds = dict.fromkeys(self.output_kinds.values())
        missing = [kind for kind in kinds if heads is not None and kind not in heads]
        if missing:
            raise ValueError(
                f"heads has {sorted(heads)}, but objectives need {missing}: pass heads of a task "
                "that has them, or leave heads out for new ones."
            )
        self.heads: dict[str, Any] = {
            kind: heads[kind] if heads else self.add_head(kind) for kind in kinds
        }
        self._finish()

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"outputs": list(self.output_kinds)}

    @classmethod
    def from_parts(cls, backbone: Backbone, outputs: Any = None, **arguments: Any) -> Self:
        """As `Task.from_parts`; with `outputs`, with the usual objectives that have these alone."""
        if outputs is not None:
            try:
                usual = pretraining_objectives(backbone)
            except ValueError:
                usual = []
            kept = [objective for objective in usual if objective.heads.keys() <= set(outputs)]
            other = set(outputs) - {name for objective in kept for name in objective.heads}
            if other:
                raise ValueError(
                    f"The file has a head for {sorted(other)}, of an objective that "
                    f"{type(backbone).__name__} was not pretrained with, and files hold no "
                    "objectives: make the task with its own, and call load_weights with the file."
                )
            arguments["objectives"] = kept
        return cls(backbone, **arguments)

    def with_backbone(self, backbone: Backbone, tokenizer: Tokenizer | None) -> Self:
        if any(objective.companions for objective in self.objectives):
            raise ValueError(
                "An objective has a network of its own, such as a generator, over this vocabulary: "
                "make the backbone and tokenizer with another task, such as MaskedLM, and then the "
                "objective."
            )
        objectives = [copy.copy(objective) for objective in self.objectives]
        return type(self)(backbone, objectives, tokenizer=tokenizer, **self.get_arguments())

    def published_labels(self) -> Any:
        return None

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None, with_terms: bool = False
    ) -> Any:
        outputs, terms = self._encode(inputs, training), []
        head_outputs = {
            name: self.read_head(self.heads[kind], outputs, inputs, training, terms)
            for name, kind in self.output_kinds.items()
        }
        return (head_outputs, terms) if with_terms else head_outputs

    @property
    def has_terms(self) -> bool:
        return any(getattr(head, "has_terms", False) for head in self.heads.values())

    def predict_step(self, *data: Any) -> Any:
        # Without masked spans, SpanBERT's head has empty outputs, which workers cannot exchange.
        result = super().predict_step(*data)
        # On JAX, there is a state as well.
        outputs, *state = result if isinstance(result, tuple) else [result]
        outputs = {name: value for name, value in outputs.items() if 0 not in value.shape[1:]}
        return (outputs, *state) if state else outputs

    def compile(
        self, optimizer: Any = "auto", loss: Any = "auto", metrics: Any = "auto", **kwargs: Any
    ) -> None:
        """As `Task.compile`; the losses of the objectives have their `loss_weights` by default."""
        if isinstance(loss, str) and loss == "auto":
            weights = {name: 1.0 for o in self.objectives for name in _outputs(o)}
            weights |= {name: w for o in self.objectives for name, w in o.loss_weights().items()}
            kwargs = {"loss_weights": weights} | kwargs
        super().compile(optimizer, loss, metrics, **kwargs)

    def default_loss(self) -> dict[str, Any]:
        return {k: v for o in self.objectives for k, v in o.by_output(o.loss()).items()}

    def default_metrics(self) -> dict[str, Any]:
        return {k: v for o in self.objectives for k, v in o.by_output(o.metrics()).items()}

    def prepare_batch(self, data: Any, training: bool | None) -> Any:
        """Corrupt a batch by all objectives, each with its own forward for itself."""
        inputs, given, weights = keras.utils.unpack_x_y_sample_weight(data)
        together = [objective for objective in self.objectives if objective.forward is None]
        given = _labels_by_output(given, together)
        shared, labels = inputs, dict(given)
        for objective in together:
            if given.keys().isdisjoint(_outputs(objective)):
                shared, made = objective.corrupt(shared, training)
                labels |= objective.by_output(made)
        own = [objective.corrupt(inputs, training) for objective in self._alone]
        return Batch(shared, labels, weights, own)

    @property
    def _alone(self):
        return [objective for objective in self.objectives if objective.forward is not None]

    def compute_batch(self, batch: Batch, training: bool | None) -> Computed:
        labels, outputs, terms = dict(batch.labels), {}, ()
        if len(batch.own) < len(self.objectives):
            shared = super().compute_batch(batch, training)
            outputs, terms = dict(shared.outputs), shared.terms
        for objective, (inputs, made) in zip(self._alone, batch.own, strict=True):
            made, read = objective.forward(self, inputs, made, training)
            labels |= objective.by_output(made)
            outputs |= objective.by_output(read)
        outputs = {name: outputs[name] for name in labels}
        return Computed(labels, outputs, batch.sample_weight, terms)

    def counted_labels(self, batch: Batch) -> dict[str, Any]:
        labels = dict(batch.labels)
        for objective, (inputs, made) in zip(self._alone, batch.own, strict=True):
            labels |= objective.counted_labels(inputs, made)
        return labels


def _with_others(variables, others):
    own = {id(variable) for variable in variables}
    return variables + [variable for variable in others if id(variable) not in own]


def _labels_by_output(labels, objectives):
    """The labels of the data by output, which replace those that objectives would make."""
    needing = [objective for objective in objectives if objective.labels_of_data]
    if labels is None:
        labels = {}
    elif isinstance(labels, dict):
        labels = {name.replace("_labels", "_logits"): value for name, value in labels.items()}
        unknown = set(labels) - {name for one in objectives for name in _outputs(one)}
        if unknown:
            raise ValueError(f"y has labels for {sorted(unknown)}, which no objective takes.")
    else:
        candidates = needing or objectives
        names = [name.replace("_logits", "_labels") for one in candidates for name in _outputs(one)]
        if len(names) != 1:
            raise ValueError(f"y has no names: pass a dict with some of the keys {names}.")
        labels = candidates[0].by_output(labels)
    for objective in needing:
        if labels.keys().isdisjoint(_outputs(objective)):
            raise ValueError(f"y is missing: say {objective.labels_of_data}.")
    return labels


def _outputs(objective):
    return list(objective.by_output(objective.loss()))
