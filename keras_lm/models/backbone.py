"""Backbones: what each pretrained model is, under its head, and what models that write share.

Shapes: B batch, S new tokens, T slots, L blocks, N heads, H per head, D hidden.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_lm import presets
from keras_lm.converters.checkpoint import are_replaced, is_read_by_keras, replaced_weights
from keras_lm.layers import (
    CausalLMHead,
    Dense,
    EachTokenClassifier,
    LastTokenClassifier,
    MaskedLMHead,
    SpanHead,
)
from keras_lm.layers.backend import known_array, require, traced_once
from keras_lm.layers.basic import as_tensor, get_activation
from keras_lm.layers.state import fit_rows, known, with_free_slots
from keras_lm.models.sizes import kernels
from keras_lm.models.students import chosen_layers, config_with, copy_layers
from keras_lm.packers import Packer, Template
from keras_lm.presets import SavedWhole
from keras_lm.presets.argument_ranges import Known, bind_arguments
from keras_lm.presets.source import Source
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import DType, PathLike, Tensor
from keras_lm.utils.processes import as_array
from keras_lm.utils.registry import BACKBONES, register
from keras_lm.utils.registry import sizes as all_sizes

# At 768 units, BERT's of section A.3, and the most; the most of random weights.
FINE_TUNING_RATE, MOST, MOST_OF_RANDOM = 5e-5, 3e-4, 1e-3


@dataclasses.dataclass(frozen=True)
class Input:
    """One entry of the dict that a backbone takes.

    `shape` is without the batch axis. `default` fills a missing input: an int fills (B, S), a
    callable computes it from the input called `like`, and with None the input is required. With
    `is_state` it is what an earlier call returned under the same key, by default the initial state.

    Example:

        Input(default=1, like="token_ids")  # a mask: every token is real
    """

    shape: tuple = (None,)
    dtype: str = "int32"
    default: int | Callable | None = None
    like: str | None = None
    is_state: bool = False

    def make_default(self, like):
        """Return the default for the input `like`, (B, S) or (B, S, …)."""
        if callable(self.default):
            return self.default(like)
        like = like[:, :, 0] if len(like.shape) == 3 else like
        return ops.cast(ops.full_like(like, self.default), self.dtype)


# What most models read of a text; and those that tell its parts apart, such as a pair's two texts.
TOKENS = {"token_ids": Input(), "padding_mask": Input(default=1, like="token_ids")}
TOKENS_IN_SEGMENTS = {
    "token_ids": Input(),
    "segment_ids": Input(default=0, like="token_ids"),
    "padding_mask": Input(default=1, like="token_ids"),
}


class Head:
    """One entry of the table of heads that a model has: how the layer is made.

    An option that is a function, such as `from_backbone("dropout")`, is called with the backbone.

    Args:
        layer: class of the layer, called with a backbone's outputs and inputs.
        name: str. The layer's name, which the paths of its weights begin with.
        template: `keras_lm.packers.Template`. The special tokens that fine-tuning adds for this
            head, where pretraining had none; None for the model's `TEMPLATE`.
        lm_loss_weight: float. The weight of the language model's loss beside this head's in
            training, if the user passes none.
        **options: arguments of the layer.
    """

    def __init__(self, layer, name, template=None, lm_loss_weight=0.0, **options):
        self.layer = layer
        self.name = name
        self.template = template
        self.lm_loss_weight = lm_loss_weight
        self.options = options

    @property
    def reads_embedding(self):
        """Whether the output matrix is the backbone's token embedding."""
        return "token_embedding" in self.options

    def make(self, backbone, **options):
        """Return the layer, unbuilt; `options` replace those that were declared."""
        declared = {
            name: value(backbone) if callable(value) else value
            for name, value in self.options.items()
        }
        return self.layer(name=self.name, dtype=backbone.dtype_policy, **declared | options)


def from_backbone(*names):
    """Return what reads an argument or a layer from a backbone: the first of these not None."""

    def read(backbone):
        config = backbone.config
        values = (config[name] if name in config else getattr(backbone, name) for name in names)
        return next((value for value in values if value is not None), None)

    return read


def encoder_heads(
    classifier: type,
    chooser: type | None = None,
    dropout: str = "dropout",
    activation: str | None = None,
) -> dict[str, Head]:
    """Return the heads of an encoder such as BERT, `HEADS` without those that only it has.

    Args:
        classifier: class of the layer that scores the classes of a text.
        chooser: class of the layer that scores one of several choices; None for `classifier`.
        dropout: name of the backbone's argument that is the dropout of these and of a tagger.
        activation: that of the masked LM's head, whatever the blocks have; None for theirs.
    """
    kept = {"dropout": from_backbone(dropout)}
    return {
        "classification": Head(classifier, "classifier", **kept),
        "multiple_choice": Head(chooser or classifier, "classifier", num_classes=1, **kept),
        "token_classification": Head(EachTokenClassifier, "classifier", **kept),
        "question_answering": Head(SpanHead, "span_head"),
        "token": Head(
            MaskedLMHead,
            "token_head",
            token_embedding=from_backbone("token_embedding"),
            activation=activation or from_backbone("activation"),
            layer_norm_epsilon=from_backbone("layer_norm_epsilon"),
        ),
    }


class Backbone(SavedWhole, keras.Model):
    """A pretrained network without a head: from token ids to vectors.

    A subclass declares its inputs, makes its layers, and ends its constructor with `finish`. The
    arguments of its constructor are its configuration, `config`, already there when the constructor
    runs. The network itself is its method `forward`:

        def forward(self, token_ids, padding_mask, training=None):
            …
            return self.outputs_of(hidden_states, contexts)

    which takes the inputs by name and returns a dict of all that it computes: `sequence_output`,
    `hidden_states` and, with attention, `attention_contexts`. Calling the backbone fills in missing
    inputs and returns the outputs, without internals such as `hidden_states`.

    Class attributes:
    - `SIZES`: dict of a size's name → its arguments, and `PUBLISHED`: where its weights are;
    - `PRETRAINED_WITH`: dict of a size's name → the size of a network that was trained beside it;
    - `CONVERTERS`: dict of a checkpoint format → `Converter`;
    - `HEADS`: dict of a kind of head, such as `"classification"` → `Head`;
    - `RANGES`: dict of an argument's name → what it may be, such as `Axis()`, beside those of all;
    - `PRETRAINING_HEADS`: dict of an output's name → the kind of head that computes it;
    - `PRETRAINING_LAYERS`: names of layers of the backbone that only pretraining uses;
    - `PRETRAINING_OBJECTIVES`: dict of a kind of head → the class of the objective that trained it,
      if that is not the usual one;
    - `STREAM_LENGTHS`: dict of an argument → its value in training on streams, as a share of a row;
    - `TEMPLATE`: the special tokens around one text and around a pair (see `keras_lm.packers`);
    - `tokenizer_class`: the class of the tokenizer its checkpoints were trained with.

    Args:
        inputs: dict of name → `Input`.
        dtype: a dtype policy or its name.

    Arguments of constructors are checked, see `keras_lm/presets/argument_ranges.py`.

    A model with attention has `blocks`, layers with `attention_probabilities(x, context)`; the
    `attention_contexts` have one for each.
    """

    SIZES: dict[str, dict[str, Any]] = {}
    PUBLISHED: dict[str, str] = {}
    PRETRAINED_WITH: dict[str, str] = {}
    CONVERTERS: dict[str, Any] = {}
    HEADS: dict[str, Head] = {}
    RANGES = {
        "activation": Known(get_activation, "the name of an activation, such as 'gelu' or 'relu'")
    }
    PRETRAINING_HEADS: dict[str, str] = {}
    PRETRAINING_OBJECTIVES: dict[str, str] = {}
    PRETRAINING_LAYERS: tuple[str, ...] = ()
    STREAM_LENGTHS: dict[str, float] = {}
    # Whether a token attends only to tokens before it, so that the model can continue a text.
    is_causal = False
    # If a model may be of either kind: `(size)` → the arguments by which a size is not causal.
    in_both_directions = None
    # The peak learning rate of random weights with 768 units, and the power of the width by which
    # it falls: those of BERT-base and ELECTRA-small.
    SCRATCH_RATE = (1e-4, 1.5)
    # The key of the mask of the tokens that a state takes in.
    mask_name = "padding_mask"
    # The class that packs a tokenizer's ids into rows.
    packer_class: type[Packer] = Packer
    # The tensors of a checkpoint, a regular expression, that the model does without on purpose.
    LEFT_OUT = r"(?!)"
    # The class of an encoder-decoder's encoder alone, which all tasks but `Seq2SeqLM` are over.
    encoder_class = None
    # The name of the task that it does with no head of a task, if any.
    usual_task = None
    # `(teacher, layers)` → a student that begins with layers of a teacher of another class.
    from_teacher = None
    # Of a state with slots: `(batch_size, slots)` → an empty cache.
    make_cache = None
    # The layer that makes `pooled_output` of the first token, in a model that has one.
    pooler: keras.layers.Layer | None = None
    # Units of its adapters, if it has any.
    adapter_dim: int | None = None
    # The source of loaded weights and the text of its card: see `keras_lm.presets.saving`.
    origin = None
    stated_token_ids = None  # of the special tokens, as the folder of its weights has them
    # What `forward` returns beside the outputs, for inspection.
    INNER = ("hidden_states", "attention_contexts")

    def __new__(cls, *args, **kwargs):
        # Before anything is built, and in one place for the constructors of all models.
        arguments = bind_arguments(cls, args, kwargs)
        backbone = super().__new__(cls, *args, **kwargs)
        backbone._arguments = arguments
        return backbone

    def __init__(self, inputs: dict[str, Input], dtype: DType = None, name: str | None = None):
        super().__init__(dtype=dtype, name=name)
        self.input_fields = inputs

    @property
    def weights_by_path(self) -> dict[str, keras.Variable]:
        """All weights by their paths in a preset."""
        return {v.path: v for v in self.weights}

    @property
    def config(self) -> dict[str, Any]:
        """The arguments of the constructor, except `dtype`, `name` and other backbones."""
        return self._arguments

    def finish(self) -> None:
        """End a constructor: build the layers."""
        inputs = {
            name: keras.Input(field.shape, dtype=field.dtype, name=name)
            for name, field in self.input_fields.items()
            if not field.is_state
        }
        # Not by calling the model: its name would become part of the variables' paths.
        computed = self.forward(**inputs)
        self._view = _View(inputs, computed, self._outputs(computed))
        self.built = True

    def forward(self, **inputs: Any) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} must define forward.")

    def outputs_of(self, hidden_states: list[Tensor], contexts: list[Any]) -> dict[str, Any]:
        """Return what `forward` does, given the embeddings and what each block makes of them.

        Args:
            hidden_states: list of (B, S, D); the last is `sequence_output`.
            contexts: list of the `AttentionContext` of each block.
        """
        x = hidden_states[-1]
        outputs = {"sequence_output": x}
        if self.pooler is not None:
            outputs["pooled_output"] = self.pooler(x[:, 0])
        return outputs | {"hidden_states": hidden_states, "attention_contexts": contexts}

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None, **options: Any
    ) -> dict[str, Any]:
        def compute(inputs):
            return self._outputs(self.forward(**inputs, training=training, **options))

        return traced_once(compute, inputs, "call", id(self), training, *options.items())

    @property
    def takes_first_only(self) -> bool:
        """Whether `forward` can compute the first token alone in its last block.

        It then takes `first_only`, and so does a call; `sequence_output` is (B, 1, D) with it.
        """
        return "first_only" in inspect.signature(self.forward).parameters

    def _outputs(self, computed):
        outputs = {name: value for name, value in computed.items() if name not in self.INNER}
        if self.state_name in outputs:
            outputs[self.state_name] = self.pack_state(outputs[self.state_name])
        return outputs

    def compute_output_spec(
        self, inputs: dict[str, Tensor], training: bool | None = None, **options: Any
    ) -> dict[str, Any]:
        return self.call(inputs, **options)

    # === Symbolic inputs and outputs ===

    @property
    def symbolic(self) -> dict[str, Any]:
        """What `forward` returns for the symbolic inputs."""
        return self._view.computed

    @property
    def input(self) -> dict[str, Tensor]:
        """The symbolic inputs by name."""
        return dict(self._view.inputs)

    @property
    def output(self) -> dict[str, Any]:
        """The symbolic outputs by name."""
        return dict(self._view.outputs)

    @property
    def inputs(self) -> list[Tensor]:
        return list(self.input.values())

    @property
    def outputs(self) -> list[Tensor]:
        return keras.tree.flatten(self.output)

    # === Inspection ===

    @property
    def hidden_states(self) -> list[Tensor]:
        """Symbolic tensors: the embedding's output, then that of each block."""
        return self.symbolic["hidden_states"]

    def compute(self, inputs: dict[str, Tensor], training: bool | None = None) -> dict[str, Any]:
        """Return all that `forward` computes for the inputs of a call, hidden states too."""
        computed = self.forward(**self.complete(inputs), training=training)
        return computed | self._outputs(computed)

    def attention_probabilities(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        """Return the attention probabilities, a list of (B, N, S, T) float32, one per block.

        Raises:
            ValueError: if the model has no attention, or none with heads.
        """
        if "attention_contexts" not in self.symbolic:
            raise ValueError(
                f"{type(self).__name__} has no attention with heads to look at: see hidden_states."
            )
        computed = self.compute(inputs)
        states, contexts = computed["hidden_states"], computed["attention_contexts"]
        return [
            block.attention_probabilities(x, context)
            for block, x, context in zip(self.blocks, states[:-1], contexts, strict=True)
        ]

    @property
    def input_names(self) -> list[str]:
        """The keys of the input dict, without the state's."""
        return list(self.input)

    @property
    def state_name(self) -> str | None:
        """The key of the state in inputs and outputs, or None if the model has no state."""
        return next((name for name, field in self.input_fields.items() if field.is_state), None)

    # === Files ===

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        register(cls, BACKBONES)

    @classmethod
    def sizes(cls) -> dict[str, dict[str, Any]]:
        """Return the model's sizes that `from_preset` knows by name, those of all for `Backbone`.

        The dict has a size's name → its arguments. No other names are known: no weights come with
        the package, so a preset is a folder, or any repository `"hf://owner/name"`. `PUBLISHED` of
        a model says where the weights of its sizes are.

        Example:

            keras_lm.models.Backbone.sizes()["bert_base_en_uncased"]["num_layers"]  # 12
            keras_lm.models.BertBackbone.PUBLISHED["bert_base_en_uncased"]  # an "hf://…"
        """
        # A model's relatives, which may be subclasses of it, have sizes of their own.
        owners = {
            name: owner
            for name, owner in all_sizes().items()
            if owner is cls or (issubclass(owner, cls) and not cls.SIZES)
        }
        return {name: dict(owner.SIZES[name]) for name, owner in sorted(owners.items())}

    @classmethod
    def from_preset(
        cls, source: PathLike | Source, load_weights: bool = True, **overrides: Any
    ) -> Self:
        """Load a backbone, of the class that `source` calls for.

        Args:
            source: a folder (a keras_lm preset or a published checkpoint), `"hf://owner/name"`, or
                the name of a size such as `"bert_base_en_uncased"`; `sizes()` lists these. Also a
                `keras_lm.presets.Source`, for several calls that are to open a folder once.
            load_weights: bool. False for random weights; a size name needs it.
            **overrides: arguments of the class to change, such as `dropout` or `dtype`.

        Raises:
            FileNotFoundError: if `source` is neither a folder nor a known name.
            ValueError: if the checkpoint is damaged, unknown, or of another model than `cls`.

        Example:

            backbone = keras_lm.models.Backbone.from_preset(
                "bert_tiny_en_uncased", load_weights=False
            )
            backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 128)
        """
        return presets.load_backbone(source, cls, load_weights=load_weights, **overrides)

    def save_to_preset(
        self, folder: PathLike, overwrite: bool | None = None, allow_nan: bool = False
    ) -> None:
        """Write configuration and weights to `folder` as a keras_lm preset, in one step.

        The folder is created, or replaced if it holds a preset and nothing else. A preset with
        other files, such as the `run.toml` of `keras-lm finetune`, is only replaced, and these
        removed, with `overwrite=True`; with `overwrite=False`, no preset is. Whatever is not
        replaced raises `FileExistsError` before anything is written, as does any other folder.

        Weights that are NaN or infinite raise a `ValueError`. `allow_nan=True` writes them, for a
        look at the files; `from_preset` refuses them.
        """
        presets.save(folder, backbone=self, overwrite=overwrite, allow_nan=allow_nan)

    # === Other libraries' files ===

    def save_to_huggingface(
        self,
        folder: PathLike,
        tokenizer: Tokenizer | None = None,
        max_shard_bytes: int = 5_000_000_000,
        allow_nan: bool = False,
    ) -> None:
        """Write the bare model as a folder that Hugging Face's transformers loads.

        Args:
            folder: path of a new or empty folder.
            tokenizer: `Tokenizer` to write beside it, or None.
            max_shard_bytes: int. Larger weights are divided into several files.
            allow_nan: bool. Whether to write weights that are NaN or infinite.

        Raises:
            FileExistsError: if `folder` is not empty.
            ImportError: if there is a tokenizer, and the package `tokenizers` is not installed.
            ValueError: if weights are NaN or infinite, or transformers has no counterpart for the
                model, or lacks an option of it.

        Example:

            backbone = keras_lm.models.BertBackbone(
                vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
            )
            backbone.save_to_huggingface("my-bert")
            # transformers.AutoModel.from_pretrained("my-bert")
        """
        presets.save_to_huggingface(folder, self, None, tokenizer, max_shard_bytes, allow_nan)

    def save_to_google(
        self, folder: PathLike, tokenizer: Tokenizer | None = None, allow_nan: bool = False
    ) -> None:
        """Write the bare model as a TensorFlow 1 checkpoint that google-research's code takes.

        Args:
            folder: path of a new or empty folder.
            tokenizer: `Tokenizer` whose vocabulary is written beside it, or None.
            allow_nan: bool. Whether to write weights that are NaN or infinite.

        Raises:
            FileExistsError: if `folder` is not empty.
            ImportError: if TensorFlow is not installed.
            ValueError: if weights are NaN or infinite, or that code has no counterpart for the
                model, or lacks an option of it, such as BERT's `activation="gelu"`, which is the
                tanh form there.

        Example:

            backbone = keras_lm.models.BertBackbone(100, 2, 2, 16, 32, activation="gelu_tanh")
            backbone.save_to_google("my-tf1-bert")
            # bert_config.json, bert_model.ckpt.index, bert_model.ckpt.data-00000-of-00001
        """
        presets.save_to_google(folder, self, None, tokenizer, allow_nan)

    def save_to_keras_hub(
        self, folder: PathLike, tokenizer: Tokenizer | None = None, allow_nan: bool = False
    ) -> None:
        """Write the bare model as a preset that KerasHub loads.

        Args:
            folder: path of a new or empty folder.
            tokenizer: `Tokenizer` to write beside it, or None.
            allow_nan: bool. Whether to write weights that are NaN or infinite.

        Raises:
            FileExistsError: if `folder` is not empty.
            ValueError: if weights are NaN or infinite, or KerasHub has no counterpart for the
                model, or lacks an option of it.

        Example:

            backbone = keras_lm.models.GPT2Backbone(100, 2, 2, 16, 64)
            backbone.save_to_keras_hub("my-gpt2")
            # keras_hub.models.Backbone.from_preset("my-gpt2")
        """
        presets.save_to_keras_hub(folder, self, None, tokenizer, allow_nan)

    def get_config(self) -> dict[str, Any]:
        presets.check_unquantized(self)
        config = dict(self._arguments) | {"name": self.name, "dtype": self.dtype_policy.name}
        return config | ({"adapter_dim": self.adapter_dim} if self.adapter_dim else {})

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        adapter_dim = config.pop("adapter_dim", None)
        with replaced_weights(are_replaced() or is_read_by_keras()):
            backbone = cls(**config)
            if adapter_dim is not None:
                backbone.add_adapters(adapter_dim)
        return backbone

    # === Heads ===

    def make_head(self, kind: str, **options: Any) -> keras.layers.Layer:
        """Return the head of a `kind` such as `"token"`, with its `options`: an unbuilt layer.

        Raises:
            ValueError: if the model has no such head.
        """
        if kind not in self.HEADS:
            raise ValueError(self.without_head(kind))
        return self.HEADS[kind].make(self, **options)

    def without_head(self, kind: str) -> str:
        """Return the message of the error that there is no head of a `kind`."""
        what = {"seq2seq_lm": "an encoder-decoder", "causal_lm": "a decoder"}.get(kind, "a model")
        others = [name for name, cls in BACKBONES.items() if cls.PUBLISHED and kind in cls.HEADS]
        remedy = f" It takes {what}, such as {' or '.join(others[:2])}." if others else ""
        return f"{type(self).__name__} has no head for kind={kind!r}.{remedy}"

    def is_new_head(self, kind: str) -> bool:
        """Whether a head is one for a user's task, that is, no part of pretraining."""
        return not (self.HEADS[kind].reads_embedding or kind in self.PRETRAINING_HEADS.values())

    # === State ===
    # What it keeps of the tokens that it has read, for those that follow, in the input that
    # `is_state` declares. A model overrides some of these methods.

    @property
    def carries_state(self) -> bool:
        """Whether there is a state that has one size, however long the text before it was."""
        parts = keras.tree.flatten(self.state_spec()) if self.state_name else []
        return bool(parts) and all(None not in part.shape[1:] for part in parts)

    def initial_state(self, batch_size: int | Tensor, length: int | Tensor = 0) -> Any:
        """Return the state before any token as `forward` takes it: nested tensors, each (B, …).

        `length` is how many tokens to make room for, if there are slots. Both may be int32 scalars.
        """
        raise ValueError(f"{type(self).__name__} has no state: it reads whole texts at once.")

    def pack_state(self, state: Any) -> Any:
        """Convert a state from the form of `forward` to that of callers."""
        return state

    def unpack_state(self, state: Any) -> Any:
        """Convert a state from the form of callers to that of `forward`."""
        return state

    def rewind(self, state: Any, number: Tensor) -> Any:
        """Return a state of `forward` as it was before the last `number` (B,) columns it read."""
        raise ValueError(
            f"{type(self).__name__} cannot take back tokens that it has read, as prompt_lookup "
            "must: pass prompt_lookup=0."
        )

    def decoding_state(self, state: Any) -> Any:
        """Return a state of `forward` in the form from which it best reads a token at a time.

        It is for loops that read one token of each row in every step. A state whose tensors are
        computed with in each step, such as a memory that is projected, overrides it.
        """
        return state

    def fit_state(self, state: Any, rows: int) -> Any:
        """Return a caller's state for `rows` rows: cut, or filled up with initial states."""
        return fit_rows(state, rows, self.state_spec(), self.state_name)

    def make_room(self, state: Any, inputs: dict[str, Tensor]) -> Any:
        """Return a caller's state with room for the tokens of `inputs`, if the state has slots."""
        return state

    def state_spec(self) -> Any:
        """Return a caller's state as `keras.KerasTensor`s, None for sizes that vary."""
        small, large = (self.pack_state(self.initial_state(size, size)) for size in (1, 2))

        def spec(a, b):
            shape = [m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)]
            return keras.KerasTensor(shape, keras.backend.standardize_dtype(a.dtype))

        return keras.tree.map_structure(spec, small, large)

    # === Inputs ===

    def __call__(self, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> dict[str, Any]:
        return super().__call__(self.complete(inputs), *args, **kwargs)

    def stateless_call(
        self,
        trained: Sequence[Tensor],
        others: Sequence[Tensor],
        inputs: dict[str, Tensor],
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        return super().stateless_call(trained, others, self.complete(inputs), **kwargs)

    def complete(self, inputs: dict[str, Tensor]) -> dict[str, Any]:
        """Return `inputs` as `forward` takes them: checked tensors, missing ones filled in."""
        fields = self.fields_of(inputs)
        required = [
            name for name, field in fields.items() if field.default is None and not field.is_state
        ]
        names = required + [name for name in fields if name not in required]
        if not isinstance(inputs, dict):
            raise ValueError(
                f"inputs is a {type(inputs).__name__}: {type(self).__name__} takes a dict with the "
                f"keys {names}."
            )
        unknown = sorted(set(inputs) - set(names))
        if unknown:
            raise ValueError(f"inputs has the unknown keys {unknown}: it takes {names}.")
        check_ids(self, inputs)
        complete = {}
        for name in names:
            field = fields[name]
            if field.is_state:
                continue
            if name in inputs:
                complete[name] = as_tensor(inputs[name], field.dtype)
            elif name in required:
                raise ValueError(f"inputs lacks {name!r}, which {type(self).__name__} needs.")
            else:
                complete[name] = field.make_default(complete[field.like])
        limit = self.max_sequence_length
        for name in required:
            length = complete[name].shape[1]
            if length is not None and limit is not None and length > limit:
                raise ValueError(
                    f"{name} has {length} columns, but max_sequence_length={limit}: truncate the "
                    "text to that length."
                )
        if inputs.get(self.state_name) is not None:
            state = self.fit_state(inputs[self.state_name], ops.shape(complete[required[0]])[0])
            state = self.make_room(state, complete)
            complete[self.state_name] = self.unpack_state(state)
        return complete

    def fields_of(self, inputs: dict[str, Tensor]) -> dict[str, Input]:
        """Return the inputs that a call with these takes: name → `Input`."""
        return self.input_fields

    def select_inputs(self, inputs: dict[str, Tensor]) -> dict[str, Any]:
        """Return those of `inputs` that a call takes, without a state and what is for heads."""
        fields = self.fields_of(inputs).items()
        return {n: inputs[n] for n, field in fields if n in inputs and not field.is_state}

    def template_for(self, tokenizer: Tokenizer | None) -> Template:
        """Return the `Template` of special tokens around a tokenizer's texts.

        It is the one that the tokenizer's files state, and `TEMPLATE` if they state none; segments
        that the model lacks are its last one.
        """
        template = self.TEMPLATE.for_tokenizer(tokenizer)
        number = self.config.get("num_segments") if "segment_ids" in self.input_fields else 1
        return template if number is None else template.within(number)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise a ValueError if a tokenizer lacks what the model needs beside its vocabulary."""

    def trimmed(self, tokenizer: Tokenizer) -> tuple["Backbone", Tokenizer] | None:
        """Return a copy without what no text can ask for, and its tokenizer; None if all is."""

    def usual_token_ids(self) -> dict[str, int]:
        """Return the special tokens of published vocabularies, where no tokenizer says others.

        Their ids are by the names of Hugging Face's configuration; only those that it needs.
        """
        return {}

    @property
    def vocabulary_size(self) -> int:
        """The number of token ids that the model takes."""
        return self.config["vocabulary_size"]

    @property
    def max_sequence_length(self) -> int | None:
        """The longest sequence that the model takes, or None for no limit."""
        return self.config.get("max_sequence_length")

    @property
    def learning_rate(self) -> float:
        """The peak learning rate of a task that is compiled with its defaults.

        To fine-tune, 5e-5 for 768 units, as BERT-base has; by the inverse square of the width for
        others, but 3e-4 at most. Weights that are still random get more, by `SCRATCH_RATE` up to
        1e-3. See `docs/training.md` for what was measured.
        """
        width = 768 / self.config.get("hidden_dim", 768)
        if are_random(self.weights):
            rate, power = self.SCRATCH_RATE
            return min(rate * width**power, MOST_OF_RANDOM)
        return min(FINE_TUNING_RATE * width**2, MOST)

    # === Changed copies, and adapters ===

    def with_vocabulary_size(self, vocabulary_size: int) -> Self:
        """Return a copy whose token embedding has more rows, not fewer; new ones are random.

        Raises:
            ValueError: if `vocabulary_size` is less than now.
        """
        rows = self.vocabulary_size
        if vocabulary_size < rows:
            raise ValueError(f"vocabulary_size={vocabulary_size} is less than the current {rows}.")
        copy = self.from_config(self.get_config() | {"vocabulary_size": vocabulary_size})
        for variable, old in zip(copy.weights, self.weights, strict=True):
            if variable.shape == old.shape:
                variable.assign(old)
            else:  # the embedding
                variable.assign(ops.concatenate([old, variable[old.shape[0] :]], axis=0))
        copy.origin = self.origin
        return copy

    def with_layers(self, layers: Sequence[int]) -> Self:
        """Return a copy with some of the blocks: a student for distillation from this model.

        Args:
            layers: list of int, the numbers of blocks from 0, in their order in the copy; or int,
                how many, spread evenly from the first to the last.

        Raises:
            ValueError: if a block is not there, or the blocks share weights or have none.

        Example:

            student = teacher.with_layers(6)  # of 12: 0, 2, 4, 7, 9 and 11
        """
        layers = chosen_layers(self, layers)
        copy = self.from_config(config_with(layers, self.get_config()))
        copy_layers(self, copy, layers)
        return copy

    def add_adapters(self, adapter_dim: int) -> None:
        """Add an untrained `keras_lm.layers.Adapter` after each part of each block.

        See `keras_lm.training.enable_adapters`, which also freezes the rest.

        Raises:
            ValueError: if `adapter_dim` is less than 1, or there are adapters already, or no blocks
                with attention.
        """
        self.check_adapters(adapter_dim)
        for layer in self.adapted_layers():
            layer.add_adapter(adapter_dim)
        self.adapter_dim = adapter_dim

    def check_adapters(self, adapter_dim: int) -> None:
        """Raise the errors of `add_adapters`."""
        if adapter_dim < 1:
            raise ValueError(f"adapter_dim={adapter_dim}: pass 1 or more.")
        if self.adapter_dim is not None:
            raise ValueError(
                f"The backbone has adapters of {self.adapter_dim} units already: load the preset "
                "that it began with."
            )
        if not self.adapted_layers():
            raise ValueError(
                f"{type(self).__name__} has no blocks with attention, in which adapters are: train "
                "it as it is, or with a lower rate for lower layers."
            )

    def adapted_layers(self) -> list[Dense]:
        """Return the last layers of attention and of the feed-forward network in each block."""
        layers = {id(layer): layer for layer in self._flatten_layers()}
        return [e for e in layers.values() if isinstance(e, Dense) and e.name == "output"]

    # === Cost ===

    @classmethod
    def layers_with_tensors(cls, arguments: dict[str, Any]) -> int:
        """Return how many layers with kernels of their own a model of these arguments has."""
        return arguments.get("num_layers", 0)

    @classmethod
    def of_width(cls, size: dict[str, Any], hidden_dim: int) -> dict[str, Any]:
        """Return what a size, a dict of arguments, changes where it is `hidden_dim` wide."""
        if "intermediate_dim" not in size:
            return {"hidden_dim": hidden_dim}
        inner = hidden_dim * size["intermediate_dim"] // size["hidden_dim"]
        return {"hidden_dim": hidden_dim, "intermediate_dim": inner}

    def forward_flops(self) -> float:
        """Return the FLOPs of a forward for the last token of a full sequence.

        They are those of blocks with attention: two for each weight of a kernel, and four for each
        channel of each attended token. Another model overrides this, or has None: then there is no
        `estimate`.
        """
        return 2 * kernels(self.blocks) + 4 * self.attended_tokens() * self.config["hidden_dim"]

    def attended_tokens(self) -> int:
        """Return to how many tokens the last one of a full sequence attends, in all blocks."""
        return len(self.blocks) * self.max_sequence_length


@dataclasses.dataclass(frozen=True)
class _View:
    """Symbolic inputs and outputs; as attributes of a model, Keras would wrap these dicts."""

    inputs: dict
    computed: dict
    outputs: dict


def are_random(weights):
    """Whether weights of a model are still those that it was made with.

    Norms and biases begin as ones and zeros, and neither a checkpoint nor training leaves them so.
    """
    vectors = (as_array(weight) for weight in weights if len(weight.shape) == 1)
    return all(((vector == 0) | (vector == 1)).all() for vector in vectors)


def id_limit(model: keras.Model, name: str) -> float | None:
    """Return how many ids an input of a model may have, infinity if any; None if it has no ids.

    Args:
        model: a backbone.
        name: str, of the input.
    """
    config = model.config
    if name == "decoder_token_ids" and config.get("decoder_vocabulary_size"):
        return config["decoder_vocabulary_size"]
    if name.endswith("token_ids") or name == "character_ids":
        return model.vocabulary_size or math.inf
    return config.get("num_segments") or math.inf if name == "segment_ids" else None


def check_ids(model: keras.Model, inputs: dict[str, Any]) -> None:
    """Raise a ValueError if a backbone's inputs have ids without an embedding.

    Tensors of a graph that is traced have no values yet; see `keras_lm.feeding.datasets`.
    """
    for name, value in inputs.items():
        limit = id_limit(model, name)
        array = None if limit is None else known_array(value)
        if array is None or not array.size:
            continue
        for wrong in (array.min(), array.max()):
            if not 0 <= wrong < limit:
                row = np.argwhere(array == wrong)[0][:1]
                raise ValueError(
                    f"{name} has {wrong} in row {row[0] if len(row) else 0}: "
                    f"{allowed_ids(model, limit)}."
                )


def allowed_ids(model: keras.Model, limit: float) -> str:
    """Return what the ids of an input may be, for an error."""
    most = "0 or more" if limit == math.inf else f"from 0 to {limit - 1}"
    return f"ids of this {type(model).__name__} are {most}"


class CachedBackbone(Backbone):
    """A model whose state, a `cache`, has slots with the keys and values of the tokens so far."""

    def cache_sizes(self) -> tuple[int, int, int]:
        """Return L, N and H of the cache."""
        heads = self.config["num_heads"]
        return self.config["num_layers"], heads, self.config["hidden_dim"] // heads

    def cache_bytes(self) -> int:
        """Return how many bytes the cache of one full sequence has, in float32."""
        return 4 * 2 * math.prod(self.cache_sizes()) * self.max_sequence_length

    def initial_state(self, batch_size: int | Tensor, length: int | Tensor = 0) -> dict[str, Any]:
        layers, heads, width = self.cache_sizes()
        shape = (batch_size, heads, length, width)
        empty = [ops.zeros(shape, self.compute_dtype) for _ in range(layers)]
        return {
            "keys": tuple(empty),
            "values": tuple(empty),
            "padding_mask": ops.zeros((batch_size, length), "int32"),
            "length": ops.zeros((batch_size,), "int32"),
        }

    def make_cache(self, batch_size: int, slots: int | None) -> Any:
        """Return an empty cache with T = `slots` free slots, as a call takes and returns it."""
        return self.pack_state(self.initial_state(batch_size, slots))

    def pack_state(self, state: Any) -> Any:
        return state | {name: ops.stack(state[name], axis=1) for name in ("keys", "values")}

    def unpack_state(self, state: Any) -> Any:
        number, _, _ = self.cache_sizes()
        return state | {
            name: tuple(ops.unstack(state[name], number, axis=1)) for name in ("keys", "values")
        }

    def rewind(self, state: Any, number: Tensor) -> dict[str, Any]:
        length = state["length"] - number
        slots = ops.arange(ops.shape(state["padding_mask"])[1], dtype="int32")
        is_used = ops.less(slots, ops.expand_dims(length, 1))  # (B, T)
        mask = state["padding_mask"] * ops.cast(is_used, "int32")
        return state | {"padding_mask": mask, "length": length}

    def make_room(self, state: Any, inputs: dict[str, Tensor]) -> dict[str, Any]:
        mask = inputs[self.mask_name]
        self._check_positions(mask, state["padding_mask"])
        return with_free_slots(state, ops.shape(mask)[1])

    def _check_positions(self, new, past):
        number, limit = ops.sum(past, axis=1) + ops.sum(new, axis=1), self.max_sequence_length
        tokens = known(ops.max(number))
        if limit is None:
            return
        if tokens is None:  # while a graph is traced
            message = f"cache and token_ids may have {limit} tokens together, but have"
            require(ops.less_equal(number, limit), message, number)
        elif tokens > limit:
            raise ValueError(
                f"cache and token_ids have {tokens} tokens together, but "
                f"max_sequence_length={limit}: start again with the last of them."
            )


class CausalBackbone(CachedBackbone):
    """A causal Transformer. A subclass defines its layers, with a `token_embedding`, and `forward`.

    Args:
        dtype: a dtype policy or its name.

    Call: `backbone({"token_ids": …, "padding_mask": …, "cache": …})`, the first two (B, S) int32;
    the mask and the cache are optional. Returns `sequence_output` (B, S, D) of these tokens, and
    the `cache` with them in it:

        {"keys": (B, L, N, T, H), "values": (B, L, N, T, H),
         "padding_mask": (B, T) int32, 1 where a slot holds a real token,
         "length": (B,) int32, how many slots are in use, padding among them}

    Tokens go into the cache's free slots; if there are too few, it grows. Positions count real
    tokens only, so prompts may be padded on either side; more of them than positions are an error.

    Raises:
        ValueError: if an input is unknown or missing, or there are more tokens than positions.

    Example:

        first = backbone({"token_ids": [[5, 9, 2]]})
        backbone({"token_ids": [[7]], "cache": first["cache"]})["sequence_output"]  # of the fourth
    """

    TEMPLATE = Template(single="$A:0", pair="$A:0 $B:0")
    HEADS = {
        "causal_lm": Head(
            CausalLMHead, "token_head", token_embedding=from_backbone("token_embedding")
        ),
        "classification": Head(
            LastTokenClassifier, "classifier", use_bias=False, dropout=from_backbone("dropout")
        ),
        "multiple_choice": Head(
            LastTokenClassifier,
            "multiple_choice_head",
            num_classes=1,
            dropout=from_backbone("dropout"),
        ),
    }
    is_causal = True
    SCRATCH_RATE = (6e-4, 1.0)  # GPT-3, table 2.1

    def __init__(self, dtype: DType = None, name: str | None = None):
        super().__init__(TOKENS | {"cache": Input(is_state=True)}, dtype, name)

    def forward_flops(self) -> float:
        return super().forward_flops() + 2 * self.vocabulary_size * self.config["hidden_dim"]
