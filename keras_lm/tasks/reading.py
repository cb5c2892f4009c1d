"""What tasks share that read whole texts and give numbers.

Shapes: B batch, C sequences a row, S sequence, V vocabulary.
"""

import keras
from keras import ops

from keras_lm.objectives import IGNORED, CausalLanguageModel
from keras_lm.tasks.task import Task


class ReadingTask(Task):
    """A task that reads one sequence a row, or several, and gives numbers for the row.

    Over a model that GPT's recipe fine-tunes, texts stand between its start and extract tokens, the
    two of a pair with its delimiter between them. `from_preset` adds these tokens to tokenizer and
    embedding where the head is new; by hand, `with_fine_tuning_tokens` does. While training, the
    language model's own loss is added.

    Args:
        backbone: see `Task`.
        symmetric: bool. Read each pair in both orders, and add what the head says of them, as for
            similarity, which has no order.
        lm_loss_weight: float λ. The loss in training is the task's plus λ times the language
            model's on the same tokens. None for the model's own recipe: 0.5 for GPT, else 0.
        **arguments: see `Task`.

    Raises:
        ValueError: if `lm_loss_weight` is negative, or the backbone is no language model.

    Source: GPT, "Improving Language Understanding by Generative Pre-Training", sections 3.2 and
    3.3; openai/finetune-transformer-lm, `train.py`.
    """

    def __init__(self, backbone, symmetric=False, lm_loss_weight=None, **arguments):
        if lm_loss_weight is None:
            lm_loss_weight = getattr(backbone, "LM_LOSS_WEIGHT", 0.0)
        if lm_loss_weight < 0:
            raise ValueError(f"lm_loss_weight={lm_loss_weight} is negative: use 0 for none.")
        if symmetric:
            arguments["text_pair"] = True
        super().__init__(backbone, **arguments)
        self.symmetric = symmetric
        self.lm_loss_weight = lm_loss_weight
        self.lm_head = self.add_head("causal_lm") if lm_loss_weight else None

    def get_arguments(self):
        return super().get_arguments() | {
            "symmetric": self.symmetric,
            "lm_loss_weight": self.lm_loss_weight,
        }

    @property
    def template(self):
        fine_tuning = getattr(self.backbone, "FINE_TUNING_TEMPLATE", None)
        return fine_tuning if fine_tuning and not self.missing_tokens() else super().template

    def missing_tokens(self):
        """Return the tokens of the model's fine-tuning that the tokenizer lacks, a list of str."""
        fine_tuning = getattr(self.backbone, "FINE_TUNING_TEMPLATE", None)
        if fine_tuning is None or self.tokenizer is None:
            return []
        known = set(self.tokenizer.vocabulary)
        return [token for token in fine_tuning.special_tokens if token not in known]

    def with_fine_tuning_tokens(self):
        """Return a task over the same weights, its vocabulary grown by the fine-tuning tokens.

        Its head is new. A task whose model needs none, or has them, is returned as it is.
        """
        missing = self.missing_tokens()
        if not missing:
            return self
        tokenizer = self.tokenizer.with_special_tokens(missing)
        rows = max(self.backbone.config["vocabulary_size"], tokenizer.vocabulary_size)
        backbone = self.backbone.with_vocabulary_size(rows)
        return type(self)(backbone, tokenizer=tokenizer, **self.get_arguments())

    # === Several sequences a row ===

    @property
    def has_several(self):
        """Whether packed inputs are (B, C, S)."""
        return self.symmetric

    def preprocess(self, columns, tokenize=None):
        """Tokenize and pack, in the graph.

        Args:
            columns: dict of string tensors (B,), keyed `text` and perhaps `text_pair`.
            tokenize: see `Task.preprocess`.

        Returns:
            The packed dict of int32 that calling the task takes: (B, S), or (B, 2, S) with
            `symmetric`, the second with the texts in the other order.
        """
        packed = super().preprocess(columns, tokenize)
        if not self.symmetric:
            return packed
        if "text_pair" not in columns:
            raise ValueError("symmetric=True reads pairs, and x has single texts: pass a tuple.")
        swapped = {"text": columns["text_pair"], "text_pair": columns["text"]}
        swapped = super().preprocess(swapped, tokenize)
        return {name: ops.stack([packed[name], swapped[name]], axis=1) for name in packed}

    def packed_specs(self):
        specs = super().packed_specs()
        if not self.has_several:
            return specs
        return {
            name: keras.tree.map_structure(_with_another_axis, spec) for name, spec in specs.items()
        }

    def call(self, inputs, training=None):
        if not self.has_several:
            return self._read(inputs, training)
        shape = ops.shape(inputs["token_ids"])
        if len(shape) != 3:
            raise ValueError(
                f"token_ids has the shape {tuple(shape)}: {type(self).__name__} takes several "
                "sequences a row here, (B, number, S)."
            )
        flat = {
            name: ops.reshape(value, (-1, shape[2]))
            for name, value in self._backbone_inputs(inputs).items()
        }
        logits = self._read(flat, training)
        logits = ops.reshape(logits, (-1, shape[1], logits.shape[-1]))
        return self.join(logits, inputs)

    def join(self, logits, inputs):
        """Return a row's logits for those of its sequences, (B, C, classes)."""
        return ops.sum(logits, axis=1)

    def _read(self, inputs, training):
        """Return the head's logits for one sequence a row, and add the language model's loss."""
        outputs = self._encode(inputs, training)
        if training and self.lm_head is not None:
            token_logits = self.lm_head(outputs, inputs, training=training)
            self.add_loss(self.lm_loss_weight * language_model_loss(token_logits, inputs))
        return self.head(outputs, inputs, training=training)


def language_model_loss(logits, inputs):
    """Return the next tokens' cross-entropy, averaged in each row and then over rows.

    Rows with fewer than two tokens count for nothing.

    Args:
        logits: (B, S, V) float.
        inputs: packed dict of (B, S) int32: `token_ids` and perhaps `padding_mask`.

    Returns:
        Scalar float32.
    """
    _, labels = CausalLanguageModel().corrupt(inputs)
    known = ops.not_equal(labels, IGNORED)
    losses = keras.losses.sparse_categorical_crossentropy(
        ops.where(known, labels, 0), ops.cast(logits, "float32"), from_logits=True
    )
    known = ops.cast(known, "float32")
    number = ops.sum(known, axis=1)  # (B,)
    rows = ops.divide_no_nan(ops.sum(losses * known, axis=1), number)
    return ops.divide_no_nan(ops.sum(rows), ops.sum(ops.cast(number > 0, "float32")))


def _with_another_axis(spec):
    return type(spec)([None, *spec.shape], spec.dtype, spec.name)
