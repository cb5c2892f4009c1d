"""Backbone: what every pretrained model is, under its head."""

import keras
from keras import ops

from keras_lm import presets
from keras_lm.converters import Converter  # noqa: F401 - the models take it from here
from keras_lm.packers import Packer
from keras_lm.registry import BACKBONES, register


class Backbone(keras.Model):
    """A pretrained network without a head: a functional `keras.Model` from token ids to vectors.

    A subclass builds its layers, calls `super().__init__(inputs, outputs, …)` and then stores its
    arguments in `self.config`. It declares, as class attributes:

    - `SIZES`: dict of a published size's name → its arguments, and `PUBLISHED`: where its
      weights are;
    - `CONVERTERS`: dict of a checkpoint format → `Converter`;
    - `PRETRAINING_HEADS`: dict of an output's name → the kind of head that gives it;
    - `TEMPLATE`: the special tokens around one text and around a pair (see `keras_lm.packers`);
    - `tokenizer_class`: the class of the tokenizer its checkpoints were trained with;

    and makes its heads in `make_head`.

    Args:
        inputs: dict of `keras.Input`, keyed by name.
        outputs: dict of `KerasTensor`s, `sequence_output` (B, S, D) among them.
        hidden_states: list of `KerasTensor`s (B, S, D): the embedding, then each block's output.
        attention_biases: list of `KerasTensor`s, what each block adds to its scores.
        blocks: list of layers with `attention_probabilities(x, bias)`.
        dtype: a dtype policy or its name.
        name: str.

    Call: `backbone(inputs)` with a dict of (B, S) int32 arrays returns the dict of outputs. All but
    `token_ids` may be left out.
    """

    SIZES = {}
    PUBLISHED = {}
    CONVERTERS = {}
    PRETRAINING_HEADS = {}
    # The special tokens that a model is fine-tuned with where pretraining had none, as a template,
    # and the weight of its language model's loss in fine-tuning.
    FINE_TUNING_TEMPLATE = None
    LM_LOSS_WEIGHT = 0.0
    # The peak of the learning rate in fine-tuning, None for what the task has for Transformers.
    LEARNING_RATE = None
    # The class that makes rows of a tokenizer's ids.
    packer_class = Packer
    # What a missing input means, as a function of the first that is required; others are required.
    DEFAULTS = {"segment_ids": ops.zeros_like, "padding_mask": ops.ones_like}

    def __init__(
        self, inputs, outputs, hidden_states, attention_biases, blocks, dtype=None, name=None
    ):
        super().__init__(inputs=inputs, outputs=outputs, name=name)
        self.dtype_policy = keras.dtype_policies.get(dtype)
        self.hidden_states = hidden_states
        self._attention_inputs = keras.Model(inputs, [attention_biases, hidden_states])
        self.blocks = blocks

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        register(cls, BACKBONES)

    @classmethod
    def from_preset(cls, source, load_weights=True, **overrides):
        """Load a backbone from a preset, a published checkpoint or a size name.

        Args:
            source: a folder (a keras_lm preset or a published checkpoint), `"hf://owner/name"`, or
                the name of a size such as `"bert_base_en_uncased"`.
            load_weights: bool. False gives random weights; a size name needs it.
            **overrides: arguments of the class to change, such as `dropout` or `dtype`.

        Returns:
            A `Backbone` of the class that the checkpoint calls for.

        Raises:
            FileNotFoundError: if `source` is neither a folder nor a known name.
            ValueError: if the checkpoint is damaged, unknown, or of another model than `cls`.

        Example:

            backbone = keras_lm.models.Backbone.from_preset("bert_tiny_en_uncased",
            load_weights=False) backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1,
            3, 128)
        """
        return presets.load_backbone(source, cls, load_weights=load_weights, **overrides)

    def save_to_preset(self, folder):
        """Write configuration and weights to `folder` as a keras_lm preset, in one step.

        Args:
            folder: path. Made, or replaced where it holds a preset; otherwise left as it is.

        Raises:
            FileExistsError: if `folder` holds something that is no preset.
        """
        presets.save(folder, backbone=self)

    def with_vocabulary_size(self, vocabulary_size):
        """Return a copy with more rows in the token embedding; the new ones are random.

        Args:
            vocabulary_size: int, at least the present one.

        Raises:
            ValueError: if it is less.
        """
        rows = self.config["vocabulary_size"]
        if vocabulary_size < rows:
            raise ValueError(f"vocabulary_size={vocabulary_size} is less than the present {rows}.")
        copy = self.from_config(self.get_config() | {"vocabulary_size": vocabulary_size})
        for variable, own in zip(copy.weights, self.weights, strict=True):
            if variable.shape == own.shape:
                variable.assign(own)
            else:  # the embedding
                variable.assign(ops.concatenate([own, variable[own.shape[0] :]], axis=0))
        return copy

    def make_head(self, kind, **options):
        """Return this model's head of a `kind`, as an unbuilt layer.

        Args:
            kind: str, what a task asks for: `"classification"`, `"token"`, …
            **options: what the kind needs, such as `num_classes`.

        Raises:
            ValueError: if the model has no such head.
        """
        raise ValueError(f"{type(self).__name__} has no head for kind={kind!r}.")

    def attention_probabilities(self, inputs):
        """Return who attends to whom: a list with a (B, N, S, T) float32 per block."""
        biases, states = self._attention_inputs(self.complete(inputs))
        return [
            block.attention_probabilities(state, bias)
            for block, state, bias in zip(self.blocks, states[:-1], biases, strict=True)
        ]

    def __call__(self, inputs, *args, **kwargs):
        return super().__call__(self.complete(inputs), *args, **kwargs)

    def complete(self, inputs):
        """Return `inputs` with what was left out filled in, as tensors.

        Raises:
            ValueError: if a key is unknown or required and missing, or a row is too long.
        """
        names = sorted(self.input_names, key=lambda name: name in self.DEFAULTS)  # required first
        if not isinstance(inputs, dict):
            raise ValueError(
                f"inputs is a {type(inputs).__name__}: {type(self).__name__} takes a dict with the "
                f"keys {names}."
            )
        unknown = sorted(set(inputs) - set(names))
        if unknown:
            raise ValueError(f"inputs has the unknown keys {unknown}: known are {names}.")
        dtypes = {tensor.name: tensor.dtype for tensor in self.inputs}
        complete = {
            name: value
            if ops.is_tensor(value) or isinstance(value, keras.KerasTensor)
            else ops.convert_to_tensor(value, dtypes[name])
            for name, value in inputs.items()
        }
        for name in names:
            if name not in complete:
                if name not in self.DEFAULTS:
                    raise ValueError(f"inputs lacks {name!r}, which {type(self).__name__} needs.")
                complete[name] = self.DEFAULTS[name](complete[names[0]])
        length, limit = complete[names[0]].shape[1], self.max_sequence_length
        if length is not None and limit is not None and length > limit:
            raise ValueError(
                f"{names[0]} has {length} columns, but max_sequence_length={limit}: truncate the "
                "text to that length."
            )
        return complete

    @property
    def input_names(self):
        """The keys of the input dict."""
        return [tensor.name for tensor in self.inputs]

    @property
    def max_sequence_length(self):
        """The longest sequence that the model takes, or None where there is no limit."""
        return self.config.get("max_sequence_length")

    def get_config(self):
        return dict(self.config) | {"name": self.name, "dtype": self.dtype_policy.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)
