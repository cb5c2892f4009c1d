"""Replaced-token detection: which tokens are a generator's?

Shapes: B batch, S sequence, M masked positions, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.masked_lm import MaskedLanguageModel, MasksByAnother
from keras_lm.objectives.objective import MeanLoss, Objective, label_weights, register_objective
from keras_lm.utils.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class MaskedBinaryCrossentropy(MeanLoss):
    """Binary cross-entropy over the labels that are not `IGNORED`, divided by their number.

    Call: `loss(labels, logits, sample_weight=None)`, both (B, S), labels 0 or 1.
    """

    def __init__(self, name: str = "masked_binary_crossentropy"):
        super().__init__(name)

    def sum_and_count(
        self, labels: Tensor, logits: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Any, Any]:
        labels = ops.convert_to_tensor(labels)
        logits = ops.convert_to_tensor(logits, "float32")
        targets = ops.cast(ops.where(ops.not_equal(labels, IGNORED), labels, 0), "float32")
        losses = ops.binary_crossentropy(targets, logits, from_logits=True)
        weight = label_weights(labels, sample_weight)
        return ops.sum(losses * weight), ops.sum(weight)


@keras.saving.register_keras_serializable("keras_lm")
class ReplacedAccuracy(keras.metrics.Mean):
    """Fraction of the labels that are not `IGNORED` that the sign of the logit predicts."""

    def __init__(self, name: str = "accuracy", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def update_state(
        self, labels: Any, logits: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        labels, weight = ops.convert_to_tensor(labels), label_weights(labels, sample_weight)
        replaced, predicted = ops.equal(labels, 1), ops.greater(logits, 0)
        values, counted = self.compare(replaced, predicted)
        weight = weight * ops.cast(counted, "float32")
        return super().update_state(ops.cast(values, "float32"), sample_weight=weight)

    def compare(self, replaced: Tensor, predicted: Any) -> tuple[Tensor, Tensor]:
        """Return the values to average, and a mask of which values count, bool (B, S) each."""
        return ops.equal(replaced, predicted), ops.ones_like(predicted)


@keras.saving.register_keras_serializable("keras_lm")
class ReplacedPrecision(ReplacedAccuracy):
    """Of the tokens that are predicted to be replaced, the fraction that are."""

    def __init__(self, name: str = "precision", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def compare(self, replaced: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        return replaced, predicted


@keras.saving.register_keras_serializable("keras_lm")
class ReplacedRecall(ReplacedAccuracy):
    """Of the tokens that are replaced, the fraction that are found."""

    def __init__(self, name: str = "recall", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def compare(self, replaced: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        return predicted, replaced


@keras.saving.register_keras_serializable("keras_lm")
class ReplacedShare(ReplacedAccuracy):
    """Fraction of all tokens that are replaced; one minus it is the accuracy of predicting none."""

    def __init__(self, name: str = "share", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def compare(self, replaced: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        return replaced, ops.ones_like(predicted)


@register_objective
class ReplacedTokens(Objective):
    """ELECTRA's discriminator; its labels (B, S) come with the tokens, 1 for a replaced token.

    Every real token has a label; it is 0 for a masked token that was filled in with the original.
    `ReplacedByGenerator` makes the labels itself.

    Source: https://arxiv.org/abs/2003.10555, section 2.
    """

    heads = {"replaced_logits": "replaced"}
    row_names = ()
    labels_of_data = (
        "which tokens were replaced (1) and which not (0), -100 at padding, or train with "
        "objectives=[keras_lm.objectives.ReplacedByGenerator(…)]"
    )

    def loss(self) -> MaskedBinaryCrossentropy:
        return MaskedBinaryCrossentropy()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [ReplacedAccuracy(), ReplacedPrecision(), ReplacedRecall(), ReplacedShare()]


class ReplacedByGenerator(MasksByAnother, ReplacedTokens):
    """Train a discriminator with a generator, which fills in masked tokens with its own samples.

    The generator learns to predict the masked tokens, like any masked language model; the
    discriminator learns which of all real tokens were replaced. A sample that equals the original
    counts as not replaced. The loss is the generator's plus `weight` times the discriminator's,
    which has no gradient through the samples.

    Evaluation masks and samples the same batch in the same way each time.

    A discriminator with random weights may for long only predict that no token is replaced; section
    3.2 starts from the weights of a masked LM of the same size.

    Args:
        generator: `keras_lm.tasks.MaskedLM`, which is trained, too: save it with its own
            `save_to_preset`. Over `backbone.make_generator()`, it shares the discriminator's
            embeddings; over `backbone` itself, the whole network.
        weight: float. λ of the discriminator's loss.
        temperature: float above 0, of the softmax to sample from.
        masking: `MaskedLanguageModel`. By default, 15 % of the tokens are masked, of which 85 %
            become `[MASK]` and 15 % stay.
        seed: int, for the masks and samples in training.

    Raises:
        ValueError: if `temperature` or `weight` is not above 0, or the vocabularies of generator
            and discriminator differ in size.

    Example:

        backbone = keras_lm.models.ElectraBackbone.from_preset(
            "electra_small_discriminator_uncased_en", load_weights=False
        )
        generator = keras_lm.tasks.MaskedLM(backbone.make_generator(1 / 4), tokenizer=tokenizer)
        objective = keras_lm.objectives.ReplacedByGenerator(generator)
        task = keras_lm.tasks.Pretrainer(backbone, [objective], tokenizer=tokenizer)
        task.fit(["He went out.", "It was raining."])

    Source: https://arxiv.org/abs/2003.10555, sections 2 and 3.2, and google-research/electra,
    `run_pretraining.py` and `configure_pretraining.py`; masked positions are drawn without
    replacement here.
    """

    labels_of_data = None
    row_names: tuple[str, str] = ("mask_positions", "mask_labels")

    def __init__(
        self,
        generator: Any,
        weight: float = 50.0,
        temperature: float = 1.0,
        masking: MaskedLanguageModel | None = None,
        seed: int | None = None,
    ):
        for name, value in (("weight", weight), ("temperature", temperature)):
            if not value > 0:
                raise ValueError(f"{name}={value}: pass a number above 0.")
        if masking is None:
            masking = MaskedLanguageModel(mask_share=0.85, random_share=0.0, seed=seed)
        self.generator = generator
        self.companions = [generator]
        self.weight = weight
        self.temperature = temperature
        self.masking: MaskedLanguageModel = masking
        self.seed_generator = masking.seed_generator  # one state for masks and samples

    def forward(
        self, task: keras.Model, inputs: dict[str, Tensor], labels: Tensor, training: bool | None
    ) -> Any:
        """Return labels and outputs of both networks, `generator_logits` and `replaced_logits`."""
        sizes = [one.backbone.vocabulary_size for one in (self.generator, task)]
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"The generator's vocabulary has {sizes[0]} entries, but the discriminator's "
                f"{sizes[1]}: create it with backbone.make_generator(), or with the same "
                "vocabulary."
            )
        logits = self.generator(inputs, training=training)  # (B, M, V)
        inputs, replaced = self.fill_in(inputs, labels, self.sample(logits, training))
        replaced_logits = task(inputs, training=training)["replaced_logits"]  # (B, S)
        return (
            {"generator_logits": labels, "replaced_logits": replaced},
            {"generator_logits": logits, "replaced_logits": replaced_logits},
        )

    def counted_labels(self, inputs: dict[str, Tensor], labels: Tensor) -> Any:
        """Return the generator's labels, and 0 for each real token."""
        real = ops.where(ops.equal(inputs["padding_mask"], 1), 0, IGNORED)
        return {"generator_logits": labels, "replaced_logits": real}

    def sample(self, logits: Tensor, training: bool | None = True) -> Tensor:
        """Draw a token for each masked position, (B, M), by adding Gumbel noise to its logits."""
        logits = ops.stop_gradient(ops.cast(logits, "float32")) / self.temperature
        seed = self.seed_generator if training else 3
        chance = keras.random.uniform(ops.shape(logits), seed=seed)
        return ops.cast(ops.argmax(logits - ops.log(-ops.log(chance)), axis=-1), "int32")

    def fill_in(
        self, inputs: dict[str, Tensor], labels: Tensor, samples: Tensor
    ) -> tuple[Any, Any]:
        """Put samples at the masked positions; return which tokens are replaced, (B, S).

        Args:
            inputs: dict with the masked `token_ids` (B, S) and the `mask_positions` (B, M).
            labels: the original tokens (B, M), `IGNORED` at unused positions.
            samples: (B, M).
        """
        ids, positions = inputs["token_ids"], inputs["mask_positions"]
        masked = ops.not_equal(labels, IGNORED)
        samples = ops.where(masked, samples, ops.take_along_axis(ids, positions, axis=1))
        other = ops.logical_and(masked, ops.not_equal(samples, labels))
        rows = ops.broadcast_to(ops.arange(ops.shape(ids)[0])[:, None], ops.shape(positions))
        places = ops.reshape(ops.stack([rows, positions], axis=-1), (-1, 2))

        def put(old, new):
            return ops.scatter_update(old, places, ops.reshape(ops.cast(new, old.dtype), (-1,)))

        replaced = put(ops.zeros_like(ids), other)
        replaced = ops.where(ops.equal(inputs["padding_mask"], 1), replaced, IGNORED)
        return inputs | {"token_ids": put(ids, samples)}, replaced

    def loss(self) -> dict[str, Any]:
        return {"generator_logits": self.masking.loss(), "replaced_logits": super().loss()}

    def loss_weights(self) -> dict[str, float]:
        return {"replaced_logits": self.weight}

    def metrics(self) -> dict[str, Any]:
        return {"generator_logits": self.masking.metrics(), "replaced_logits": super().metrics()}
