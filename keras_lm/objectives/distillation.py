"""Distillation in pretraining: a student learns a teacher's predictions and layers.

Shapes: B batch, S sequence, M masked positions, N heads, L layers, D and D' the widths of student
and teacher, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_lm.layers import Dense
from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.masked_lm import MaskedLanguageModel, MasksByAnother
from keras_lm.objectives.objective import MeanLoss, MeanOfKnown, Objective
from keras_lm.packers.rows import LOWEST
from keras_lm.utils.argument_types import Tensor

UNSEEN = -100.0  # lower raw attention scores are those of padding


class MaskedLMDistillation(MasksByAnother, Objective):
    """DistilBERT's three losses: the teacher's probabilities, masked LM, and similar last states.

    - the divergence of the student's softened probabilities from the teacher's, KL(teacher ‖
      student) · T², averaged over tokens;
    - masked LM's cross-entropy;
    - one minus the cosine of their last hidden states, averaged over real tokens.

    A fourth loss, which the authors' code has but their models were trained without, is the squared
    difference of the logits, summed over the vocabulary and averaged over tokens.

    The teacher reads the same corrupted tokens, without dropout. It is not trained, and is not part
    of presets and checkpoints of the run; load it again to continue.

    Args:
        teacher: `keras_lm.tasks.MaskedLM` with the student's vocabulary, and the student's width
            unless `cosine_weight` is 0.
        temperature: float, T. Divides the logits before the softmax of the first loss.
        teacher_weight, masked_lm_weight, cosine_weight, squares_weight: float. Weights of the
            losses, in the order above; 0 for either of the last two skips that loss.
        restrict_to_mask: bool. Learn the teacher's probabilities and logits at masked positions
            only, which is faster: other positions are not projected onto the vocabulary.
        masking: the objective that masks and makes the labels; `MaskedLanguageModel()` by default.

    Raises:
        ValueError: if the teacher has no masked LM head; in the first step, if its vocabulary or
            width differs from the student's.

    Example:
        teacher = keras_lm.tasks.MaskedLM.from_preset("hf://google-bert/bert-base-uncased")
        student = keras_lm.models.DistilBertBackbone.from_teacher(teacher.backbone)
        objective = keras_lm.objectives.MaskedLMDistillation(teacher)
        task = keras_lm.tasks.Pretrainer(
            student, objectives=[objective], tokenizer=teacher.tokenizer
        )
        task.heads["token"].set_weights(teacher.head.get_weights())
        task.fit(texts)

    Source: DistilBERT, https://arxiv.org/abs/1910.01108, sections 2 and 3; the weights are those of
    huggingface/transformers, `distillation/README.md`.
    """

    heads: dict[str, str] = {"token_logits": "token"}
    row_names: tuple[str, str] = ("mask_positions", "mask_labels")

    def __init__(
        self,
        teacher: Any,
        temperature: float = 2.0,
        teacher_weight: float = 5.0,
        masked_lm_weight: float = 2.0,
        cosine_weight: float = 1.0,
        squares_weight: float = 0.0,
        restrict_to_mask: bool = False,
        masking: MaskedLanguageModel | None = None,
    ):
        if getattr(teacher, "pretraining_head", None) != "token":
            raise ValueError(
                f"teacher is a {type(teacher).__name__}: pass a MaskedLM, whose head predicts "
                "masked tokens."
            )
        check_temperature(temperature)
        self.teacher = teacher
        self.temperature = temperature
        self.teacher_weight = teacher_weight
        self.masked_lm_weight = masked_lm_weight
        self.cosine_weight = cosine_weight
        self.squares_weight = squares_weight
        self.restrict_to_mask = restrict_to_mask
        self.masking: MaskedLanguageModel = MaskedLanguageModel() if masking is None else masking
        self.seed_generator = self.masking.seed_generator

    def forward(
        self, task: Any, inputs: dict[str, Tensor], labels: Any, training: bool | None
    ) -> tuple[Any, dict[str, Tensor]]:
        self._check(task.backbone)
        positions = inputs.get("mask_positions")
        seen = inputs
        if not self.restrict_to_mask:  # then all tokens are projected onto the vocabulary
            seen = {name: value for name, value in inputs.items() if name != "mask_positions"}
        head = task.heads["token"]
        states, logits = _states_and_logits(task.backbone, head, seen, training)
        wanted_states, wanted = map(
            ops.stop_gradient,
            _states_and_logits(self.teacher.backbone, self.teacher.head, seen, training=False),
        )
        made = {"token_logits": logits}
        if positions is not None and not self.restrict_to_mask:
            made["token_logits"] = ops.take_along_axis(logits, positions[:, :, None], axis=1)
        made["teacher_losses"] = divergence(wanted, logits, self.temperature)
        if self.squares_weight:
            difference = ops.cast(logits, "float32") - ops.cast(wanted, "float32")
            made["square_losses"] = ops.sum(ops.square(difference), axis=-1)
        if self.cosine_weight:
            states, wanted_states = (
                ops.normalize(ops.cast(x, "float32"), axis=-1) for x in (states, wanted_states)
            )
            made["cosine_losses"] = 1.0 - ops.sum(states * wanted_states, axis=-1)  # (B, S)
        return self.counted_labels(inputs, labels), made

    def counted_labels(self, inputs: dict[str, Tensor], labels: Tensor) -> Any:
        """Return the labels of each loss; losses without labels get 1 for each real token."""
        real = ops.where(ops.equal(inputs["padding_mask"], 1), 1, IGNORED)  # (B, S)
        taught = labels if self.restrict_to_mask else real
        counted = {"token_logits": labels, "cosine_losses": real}
        return {name: counted.get(name, taught) for name in self.loss()}

    def _check(self, student):
        names = ["vocabulary_size"] + ["hidden_dim"] * bool(self.cosine_weight)
        for name in names:
            theirs, ours = self.teacher.backbone.config[name], student.config[name]
            if theirs != ours:
                remedy = " or cosine_weight=0" if name == "hidden_dim" else ""
                raise ValueError(
                    f"teacher has {name}={theirs}, but the student {ours}: use a student with "
                    f"the teacher's{remedy}."
                )

    def loss(self) -> dict[str, Any]:
        losses = {name: MeanOfKnown() for name in self.loss_weights()}
        return losses | {"token_logits": self.masking.loss()}

    def loss_weights(self) -> dict[str, float]:
        weights = {"token_logits": self.masked_lm_weight, "teacher_losses": self.teacher_weight}
        more = {"cosine_losses": self.cosine_weight, "square_losses": self.squares_weight}
        return weights | {name: weight for name, weight in more.items() if weight}

    def metrics(self) -> dict[str, Any]:
        return {"token_logits": self.masking.metrics()}


class LayerDistillation(Objective):
    """TinyBERT's losses: the attention scores and hidden states of the student's layers.

    - the squared difference of attention scores before the softmax, with those of padding set to 0;
    - the squared difference of hidden states, including the embeddings. The student's states are
      widened by a linear layer that all of them share (`projection`, which is trained with the
      student, but not part of its preset).

    Both are averaged over all entries, including padding, and summed over layers. In the first
    stage, they are trained on a corpus with a pretrained teacher; in the second on the texts of a
    task, with a teacher that is fine-tuned on it. Afterwards, `keras_lm.tasks.Distiller` learns the
    teacher's predictions. The teacher is not trained, and is not part of presets and checkpoints.

    Args:
        student, teacher: `keras_lm.models.Backbone`s with the same vocabulary and `num_heads`; the
            student is trained.
        layers: list of int. The teacher's layer, from 0, for each layer of the student. By default
            the teacher is divided into equal parts, and the last layer of each is used.

    Raises:
        ValueError: if one has no attention with heads; they differ in vocabulary or heads; the
            teacher's number of layers is not a multiple of the student's; or `layers` has another
            length than the student, or a layer that the teacher does not have.

    Example:
        student = keras_lm.models.Backbone.from_preset(
            "tiny_bert_4_layers_en_uncased", load_weights=False
        )
        objective = keras_lm.objectives.LayerDistillation(student, teacher)
        task = keras_lm.tasks.Pretrainer(student, objectives=[objective], tokenizer=tokenizer)
        task.fit(texts)

    Source: TinyBERT, https://arxiv.org/abs/1909.10351, sections 3.1 and 3.2; the authors'
    `general_distill.py` and `task_distill.py`.
    """

    row_names: tuple[str, ...] = ()

    def __init__(self, student: Any, teacher: Any, layers: Sequence[int] | None = None):
        for name, backbone in (("student", student), ("teacher", teacher)):
            if "attention_contexts" not in backbone.symbolic:
                raise ValueError(
                    f"{name} is a {type(backbone).__name__}, which has no attention with heads: "
                    "distil its predictions with keras_lm.tasks.Distiller."
                )
        for name in ("vocabulary_size", "num_heads"):
            ours, theirs = student.config[name], teacher.config[name]
            if ours != theirs:
                raise ValueError(
                    f"student has {name}={ours}, but the teacher {theirs}: use a student with "
                    f"{theirs}."
                )
        self.teacher = teacher
        self.layers: list[int] = layer_map(len(student.blocks), len(teacher.blocks), layers)
        width = teacher.hidden_states[-1].shape[-1]
        self.projection = Dense(width, name="projection")  # (D, D')
        self.projection.build(student.hidden_states[-1].shape)
        self.companions = [self.projection]

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Return the inputs unchanged, and no labels: nothing is masked."""
        return inputs, None

    def forward(
        self, task: Any, inputs: dict[str, Tensor], labels: Any, training: bool | None
    ) -> tuple[Any, dict[str, Tensor]]:
        own = range(len(self.layers))
        states, scores = _states_and_scores(task.backbone, own, inputs, training)
        wanted_states, wanted_scores = _states_and_scores(
            self.teacher, self.layers, inputs, training=False
        )
        made = {
            "attention_losses": sum(
                _mean_squares(ours, ops.stop_gradient(theirs))
                for ours, theirs in zip(scores, wanted_scores, strict=True)
            ),
            "state_losses": sum(
                _mean_squares(self.projection(ours), ops.stop_gradient(theirs))
                for ours, theirs in zip(states, wanted_states, strict=True)
            ),
        }
        return self.counted_labels(inputs, labels), made

    def counted_labels(self, inputs: dict[str, Tensor], labels: Tensor) -> Any:
        """Return a 0 for each row and loss."""
        rows = ops.zeros_like(inputs["token_ids"][:, 0])  # (B,)
        return {"attention_losses": rows, "state_losses": rows}

    def loss(self) -> dict[str, MeanOfKnown]:
        return {name: MeanOfKnown(name) for name in ("attention_losses", "state_losses")}

    def metrics(self) -> dict[str, Any]:
        return {}


# === Losses for a task's predictions ===


class TeacherLoss(MeanLoss):
    """The mean of losses over all of a teacher's outputs that are not `LOWEST`.

    `LOWEST` are the logits of missing choices, and of tokens that do not begin a word.
    """

    def losses(self, wanted: Tensor, answers: Any) -> Tensor:
        """Return the loss of each output; both tensors and the result have the same shape."""
        raise NotImplementedError(f"{type(self).__name__} must define losses.")

    def sum_and_count(
        self, labels: Tensor, outputs: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Any, Any]:
        wanted, answers = (ops.convert_to_tensor(x, "float32") for x in (labels, outputs))
        weight = self._weights(wanted, sample_weight)
        return ops.sum(self.losses(wanted, answers) * weight), ops.sum(weight)

    def count(self, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        return ops.sum(self._weights(labels, sample_weight))

    def _weights(self, labels, sample_weight):
        known = ops.cast(ops.greater(labels, LOWEST), "float32")
        if sample_weight is None:
            return known
        shape = (-1, *[1] * (len(known.shape) - 1))
        return known * ops.cast(ops.reshape(sample_weight, shape), "float32")


@keras.saving.register_keras_serializable("keras_lm")
class SoftCrossentropy(TeacherLoss):
    """Cross-entropy with a teacher's probabilities, averaged over all texts and classes.

    Args:
        temperature: float, T. Divides the logits of both; the loss is multiplied by T², so that the
            size of its gradient does not change.
        multi_label: bool. Whether a text may have any number of classes, each with a probability.

    Call: `loss(teacher_logits, logits, sample_weight=None)`, (B, …, classes) both; entries where
    the teacher has `LOWEST` do not count. A weight per row, (B,), makes it a weighted mean.

    Source: https://arxiv.org/abs/1503.02531, section 2; the mean is TinyBERT's.
    """

    def __init__(
        self, temperature: float = 1.0, multi_label: bool = False, name: str = "soft_crossentropy"
    ):
        super().__init__(name)
        self.temperature = temperature
        self.multi_label = multi_label

    def losses(self, wanted: Tensor, answers: Any) -> Tensor:
        wanted, answers = wanted / self.temperature, answers / self.temperature
        if self.multi_label:
            losses = ops.binary_crossentropy(ops.sigmoid(wanted), answers, from_logits=True)
        else:
            losses = -ops.softmax(wanted) * ops.log_softmax(answers)
        return losses * self.temperature**2

    def get_config(self) -> dict[str, Any]:
        more = {"temperature": self.temperature, "multi_label": self.multi_label}
        return super().get_config() | more


@keras.saving.register_keras_serializable("keras_lm")
class TeacherMeanSquares(TeacherLoss):
    """Mean squared difference from a teacher's outputs, for a regressor; both (B, 1)."""

    def __init__(self, name: str = "teacher_mean_squares"):
        super().__init__(name)

    def losses(self, wanted: Tensor, answers: Any) -> Tensor:
        return ops.square(answers - wanted)


# === Parts ===


def layer_map(num_layers, teacher_layers, layers=None):
    """Return the teacher's layer for each of a student's, a list of int from 0.

    By default, the teacher is divided into as many equal parts as the student has layers, and the
    last layer of each is used: i·k + k − 1 for a teacher with k times as many layers.

    Args:
        num_layers, teacher_layers: int. The numbers of layers of student and teacher.
        layers: list of int to check and return, or None.

    Raises:
        ValueError: if `layers` is None and the teacher cannot be divided equally, or if `layers`
            has another length, or a layer that does not exist.
    """
    if layers is None:
        times, rest = divmod(teacher_layers, num_layers)
        if rest or not times:
            raise ValueError(
                f"teacher has {teacher_layers} layers, which is not a multiple of the student's "
                f"{num_layers}: pass layers=[…], the teacher's layer for each of the student's."
            )
        return [i * times + times - 1 for i in range(num_layers)]
    layers = [int(layer) for layer in layers]
    if len(layers) != num_layers or not all(0 <= layer < teacher_layers for layer in layers):
        raise ValueError(
            f"layers={layers}: pass {num_layers} numbers from 0 to {teacher_layers - 1}, one for "
            "each of the student's layers."
        )
    return layers


def check_temperature(temperature):
    """Raise a ValueError if a temperature is not positive."""
    if not temperature > 0:
        raise ValueError(f"temperature={temperature}: pass a number above 0.")


def divergence(wanted, logits, temperature):
    """Return KL(softmax(wanted / T) ‖ softmax(logits / T)) · T², (B, S), of two (B, S, V)."""
    wanted, logits = (
        ops.log_softmax(ops.cast(x, "float32") / temperature) for x in (wanted, logits)
    )
    return ops.sum(ops.exp(wanted) * (wanted - logits), axis=-1) * temperature**2


def _states_and_logits(backbone, head, inputs, training):
    outputs = backbone(backbone.select_inputs(inputs), training=training)
    return outputs["sequence_output"], head(outputs, inputs, training=training)


def _states_and_scores(backbone, layers, inputs, training):
    """Return the states of the embeddings and of some layers, and these layers' scores."""
    computed = backbone.compute(backbone.select_inputs(inputs), training=training)
    states, contexts = computed["hidden_states"], computed["attention_contexts"]
    scores = [backbone.blocks[i].attention_scores(states[i], contexts[i]) for i in layers]
    # Teacher and student may have different biases for padding, so its scores become 0.
    scores = [ops.where(x <= UNSEEN, 0.0, x) for x in scores]  # (B, N, S, S)
    return [states[0], *(states[i + 1] for i in layers)], scores


def _mean_squares(ours, theirs):
    """Return the mean squared difference of each row, (B,)."""
    difference = ops.cast(ours, "float32") - ops.cast(theirs, "float32")
    return ops.mean(ops.square(difference), axis=list(range(1, len(ours.shape))))
