"""Task: a tokenizer, a packer, a backbone and a head. Shapes: B batch, S sequence."""

import contextlib
import dataclasses
import functools
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from keras_lm import presets
from keras_lm.feeding import predict_batches
from keras_lm.feeding.feed import Pairs, Preprocessor
from keras_lm.layers.basic import reads_first_only
from keras_lm.layers.tensorflow import GraphCache
from keras_lm.models.backbone import Backbone
from keras_lm.packers import Texts
from keras_lm.packers.packer import Template
from keras_lm.presets import SavedWhole
from keras_lm.presets.source import Source
from keras_lm.tasks.fixed_signatures import FixedSignatures
from keras_lm.tasks.number_signatures import NumberSignatures
from keras_lm.tasks.packed_signatures import PackedSignatures
from keras_lm.tasks.runtime import (
    IS_TENSORFLOW,
    RUNTIME,
    answered,
    outputs_of,
    require_tensorflow,
)
from keras_lm.tasks.signatures import ByteSignatures, IdSignatures, PlainSignatures, TextSignatures
from keras_lm.tasks.text_model import TextModel
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.published_files import declares_tokens, has_fast_tokenizer, stated_limits
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.tokenizers.vocabulary import strings_of
from keras_lm.utils.argument_types import PathLike, RawTexts, Tensor
from keras_lm.utils.registry import BACKBONES, TASKS, register, tokenizer_named
from keras_lm.utils.user_arguments import check_whole

if IS_TENSORFLOW:  # which exports need
    from keras_lm.export import export


class NoVocabularyWarning(UserWarning):
    """A task was loaded from a checkpoint without a vocabulary: it takes no strings."""


@functools.cache
def _arguments(cls):
    inits = [base.__init__ for base in cls.__mro__ if issubclass(base, Task)]
    names = {name for init in inits for name in inspect.signature(init).parameters}
    return names - {"text_pair"}  # graphs are traced for texts with and without a second one


class KerasFile:
    """A model with a backbone, a tokenizer and `get_arguments()`, which Keras saves and loads."""

    _tokenizer_config = None

    def get_config(self) -> dict[str, Any]:
        presets.check_unquantized(self)
        tokenizer = self.tokenizer
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "tokenizer": tokenizer
            and {"class_name": type(tokenizer).__name__, "config": tokenizer.get_config()},
            "name": self.name,
            **self.get_arguments(),
        }

    @classmethod
    def completed(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments in a preset or file, with those that older ones lack."""
        return arguments

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        backbone, tokenizer = config.pop("backbone", None), config.pop("tokenizer", None)
        if not isinstance(backbone, keras.Model):
            name = backbone.get("class_name") if isinstance(backbone, dict) else backbone
            if name not in BACKBONES:  # Keras would make whatever it is
                raise ValueError(
                    f"The configuration of a {cls.__name__} names {str(name)[:80]!r} as its "
                    "backbone, which is not a backbone: the file is damaged, or another program's."
                )
            backbone = keras.saving.deserialize_keras_object(backbone, custom_objects)
        task = cls.from_parts(backbone, **cls.completed(config))
        task._tokenizer_config = tokenizer  # its vocabulary follows in load_assets
        return task

    def get_compile_config(self) -> dict[str, Any]:
        config = without_defaults(super().get_compile_config())
        if config and self.micro_batch_size:
            config["micro_batch_size"] = self.micro_batch_size
        if config and self.smoothing is not None:
            config["smoothing"] = keras.saving.serialize_keras_object(self.smoothing)
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile_by(config)
        with self.distribute_strategy.scope():
            self.optimizer.build(self.trainable_variables)

    def compile_by(self, config: dict[str, Any]) -> None:
        """Compile by what `get_compile_config` returned; the optimizer's state stays unmade."""
        try:
            self.compile(**keras.saving.deserialize_keras_object(without_defaults(config)))
        except (AttributeError, ImportError, KeyError, TypeError) as error:
            raise ValueError(
                "What the file says of optimizer, loss and metrics cannot be used, "
                f"{type(error).__name__}: {' '.join(str(error).split())[:200]}. Load it with "
                "compile=False."
            ) from error

    def save_assets(self, folder: PathLike) -> None:
        """Called by Keras for a `.keras` file: the vocabulary."""
        if self.tokenizer is not None:
            self.tokenizer.save_assets(folder)
            # For tokenizers without files: where there is none, Keras does not call load_assets.
            Path(folder, "tokenizer").touch()

    def load_assets(self, folder: PathLike) -> None:
        if self._tokenizer_config is not None:
            cls = tokenizer_named(self._tokenizer_config["class_name"])
            self.use_tokenizer(cls.from_assets(folder, self._tokenizer_config["config"]))


def without_defaults(config):
    """Return what a task is compiled with, without `jit_compile` as a backend has it by default.

    The file may be loaded on another backend. False is left out on all, as older files have it.
    """
    if not config or config.get("jit_compile") not in (False, RUNTIME.is_compiled):
        return config
    return {name: value for name, value in config.items() if name != "jit_compile"}


class Task(KerasFile, SavedWhole, TextModel):
    """The base class of all tasks: a model from raw text to an answer.

    A subclass makes its head in `__init__` (with `add_head`, and `_finish()` at the end), and
    defines its defaults for `compile`, its answer (`decode`) and the texts that it takes (`rows`).
    Keras's methods (`fit`, `evaluate`, `predict`, `train_on_batch`, …) take raw strings: a list or
    array is a batch, a tuple of two is a pair, a dict uses the keys `text` and `text_pair`, and so
    do the columns of a table, a pandas DataFrame or a Hugging Face `Dataset`; a `tf.data.Dataset`,
    a generator or a `keras.utils.PyDataset` yields batches of these, alone or with labels. They
    also take packed dicts (`token_ids`, …), as `task(inputs)` does. Strings are packed on the host,
    in `tf.data`.

    Args:
        backbone: `keras_lm.models.Backbone`; or a `FeatureExtractor`, to learn on its vectors.
        tokenizer: `keras_lm.tokenizers.Tokenizer`, or None for a task that takes packed dicts only.
        sequence_length: int. Longer texts are truncated. None for the backbone's limit, or 512 if
            it has none, as recurrent ones; `from_preset` takes a published vocabulary's
            `model_max_length` if that is less, and its `truncation_side`.
        padding, truncation, truncation_side: see `keras_lm.packers.Packer`.
        text_pair: bool. Whether the served signature takes `text_pair` beside `text`; None to learn
            it from the data of the first `fit`.
        parse_special: bool or list of str. Whether text that spells special tokens (`[SEP]`), all
            or those listed, becomes these; leave it at False for untrusted text, which could
            end early by it. None recognises only what the task is made for, such as the mask of
            a `MaskedLM`. `from_preset` passes True for a published checkpoint that declares tokens
            of its own (`additional_special_tokens`), such as markers of entities.

    Raises:
        ValueError: if the tokenizer's vocabulary is larger than the backbone's embedding, or
            `sequence_length` exceeds what the backbone has positions for.
    """

    # Which texts the task takes, and the rows that they make.
    rows = Texts()
    preprocessor_class = Preprocessor
    # A way of fine-tuning with rows and a loss of its own, such as `GPTFineTuning`.
    fine_tuning = None
    # Path prefixes of layers of the task's own, beside its head, that a checkpoint may lack.
    FRESH = ()
    # Those of weights that `write_modules` writes.
    WRITTEN_APART = ()
    # The kind of the pretraining head that it reads: of a checkpoint's two networks, it takes the
    # one that has it.
    pretraining_head = None
    # Whether it is over both halves of an encoder-decoder, not over the encoder alone.
    has_decoder = False
    # Names of inputs that it reads beside the backbone's.
    row_names = ()
    # The name of a raw output that is a single tensor.
    output_name = "logits"
    # Whether special tokens in text can be recognised, and which are; see the argument.
    parses_special = True
    parse_special = None
    # Whether an answer has texts of joined tokens, which are no parts of the given texts.
    joins_pieces = False
    # False where the loss does not reach the backbone's pooler.
    uses_pooler = True
    # Whether it trains the backbone's layers that only pretraining uses.
    is_pretraining = False

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Tokenizer | None = None,
        sequence_length: int | None = None,
        padding: str = "longest",
        truncation: str = "longest_first",
        truncation_side: str = "right",
        text_pair: bool | None = None,
        parse_special: bool | Sequence[str] | None = None,
        name: str | None = None,
    ):
        if isinstance(backbone, (str, os.PathLike)):
            raise ValueError(
                f"backbone={str(backbone)!r} is a path: call {type(self).__name__}.from_preset, or "
                "pass models.Backbone.from_preset(…)."
            )
        backbone = getattr(backbone, "features", backbone)  # of a `FeatureExtractor`
        if getattr(backbone, "skipped_tokens", 0):
            raise ValueError(
                f"backbone is a FeatureExtractor with skipped_tokens={backbone.skipped_tokens}, "
                f"those of a prompt, which {type(self).__name__} does not put before texts: make "
                "it with skipped_tokens=0."
            )
        super().__init__(name=name, dtype=backbone.dtype_policy)
        limit = backbone.max_sequence_length
        if sequence_length is not None:
            check_whole("sequence_length", sequence_length, 1)
        if sequence_length is not None and limit is not None and sequence_length > limit:
            raise ValueError(
                f"sequence_length={sequence_length}, but the backbone has positions for {limit}: "
                f"pass {limit} or less."
            )
        self.backbone = backbone
        if sequence_length is None:
            sequence_length = self.usual_length(limit)
        self.packing = {
            "sequence_length": sequence_length,
            "padding": padding,
            "truncation": truncation,
            "truncation_side": truncation_side,
        }
        self._graphs = GraphCache()
        self.head_kinds: list[str] = []
        self.pairs = Pairs(text_pair)
        self.parse_special = check_parse_special(parse_special, self)
        self._set_tokenizer(tokenizer)

    @classmethod
    def usual_length(cls, limit: int | None) -> int:
        """Return the default of `sequence_length`, given the backbone's limit."""
        return limit or 512

    @property
    def longest_text(self) -> int | None:
        """The number of tokens that texts are truncated to, or None if they are read whole."""
        return self.packing["sequence_length"]

    def __setattr__(self, name, value):
        """Set an attribute. What was traced with an argument's old value is traced again."""
        is_argument = hasattr(self, "_graphs") and name in _arguments(type(self))
        is_new = is_argument and getattr(self, name, None) is not value
        super().__setattr__(name, value)
        if is_new:
            self.forget_answers()

    def _set_tokenizer(self, tokenizer):
        check_tokenizer(self.backbone, tokenizer)
        if tokenizer is not None:
            check_special_tokens(self.parse_special, tokenizer)
        self.tokenizer: Tokenizer | None = tokenizer

    def _make_packer(self):
        self.packer = self.backbone.packer_class(
            self.template, self.tokenizer, rows=self.rows, **self.packing
        )

    def with_backbone(self, backbone: Backbone, tokenizer: Tokenizer | None) -> Self:
        """Return a task with the same arguments and new heads over another backbone."""
        return type(self)(backbone, tokenizer=tokenizer, **self.get_arguments())

    def over(self, backbone: Backbone, tokenizer: Tokenizer | None) -> Self:
        """Deprecated: `with_backbone`."""
        warnings.warn("over is deprecated: use with_backbone.", DeprecationWarning, stacklevel=2)
        return self.with_backbone(backbone, tokenizer)

    def add_head(self, kind: str, **options: Any) -> keras.Layer:
        """Return the backbone's head of a `kind`, built."""
        self.head_kinds.append(kind)
        head = self.backbone.make_head(kind, **options)
        head(self.backbone.output, self.backbone.input)
        self.uses_pooler = self.uses_pooler and getattr(head, "uses_pooler", True)
        return head

    def new_weights(self) -> list[Any]:
        """Return the paths of the weights that are new if a checkpoint has no fitting head."""
        kinds = filter(self.backbone.is_new_head, self.head_kinds)
        prefixes = (*self.FRESH, *(f"{self.backbone.HEADS[kind].name}/" for kind in kinds))
        return [v.path for v in self.weights if v.path.startswith(prefixes)]

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        weights = super().trainable_weights
        # Keras would warn in each step of weights without a gradient.
        unused = () if self.is_pretraining else self.backbone.PRETRAINING_LAYERS
        unused = tuple(f"{name}/" for name in (*unused, *([] if self.uses_pooler else ["pooler"])))
        return [w for w in weights if not w.path.startswith(unused)]

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        return self.trainable_weights

    def _finish(self):
        """End a constructor: make the packer, build, and compile with the defaults."""
        self._make_packer()
        self.built = True
        self.compile()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        register(cls, TASKS)

    def get_arguments(self) -> dict[str, Any]:
        """Return the arguments except backbone, tokenizer and name, JSON-serializable."""
        return {**self.packing, "text_pair": self.text_pair, "parse_special": self.parse_special}

    def use_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Take a tokenizer; called for that of a `.keras` file, after the constructor."""
        self._set_tokenizer(tokenizer)
        self._make_packer()

    # === Special tokens and new words ===

    @property
    def template(self) -> Template:
        """The `Template` around texts: that of the head, if the tokenizer has its tokens."""
        template = None if self.missing_tokens() else self._fine_tuning_template()
        return template or self.backbone.template_for(self.tokenizer)

    def missing_tokens(self) -> list[str]:
        """Return the tokens that fine-tuning adds and the tokenizer lacks, a list of str."""
        template = self._fine_tuning_template()
        if template is None or self.tokenizer is None:
            return []
        known = set(self.tokenizer.vocabulary)
        return [token for token in template.special_tokens if token not in known]

    def _fine_tuning_template(self):
        templates = (self.backbone.HEADS[kind].template for kind in self.head_kinds)
        return next(filter(None, templates), None)

    def with_fine_tuning_tokens(self) -> Self:
        """Return a task over the same weights, with the missing fine-tuning tokens and a new head.

        A task that lacks none is returned unchanged.
        """
        missing = self.missing_tokens()
        if not missing:
            return self
        tokenizer = self.tokenizer.with_special_tokens(missing)
        rows = max(self.backbone.vocabulary_size, tokenizer.vocabulary_size)
        return self.with_backbone(self.backbone.with_vocabulary_size(rows), tokenizer)

    def with_words(self, words: Sequence[str]) -> Self:
        """Return a copy of the task in which each of some words is a single token.

        A new row of an embedding, and what a head has for each token, is the mean of those of the
        pieces that the word was made of until now. Train on: the copy is compiled with defaults.

        Args:
            words: see `keras_lm.tokenizers.Tokenizer.with_words`.

        Raises:
            ValueError: if a word cannot be one token, or the vocabulary cannot grow.

        Example:

            task = keras_lm.tasks.MaskedLM.from_preset(SOURCE).with_words(["remdesivir"])
            task.fit(texts)
            task.save_to_preset("my-bert")

        Source: Gee et al., "Fast Vocabulary Transfer for Language Model Compression", EMNLP 2022,
        https://arxiv.org/abs/2402.09977.
        """
        self.require_tokenizer()
        tokenizer = self.tokenizer.with_words(words)
        first, number = self.tokenizer.vocabulary_size, tokenizer.vocabulary_size
        rows = self.backbone.vocabulary_size + number - first  # padding stays the last
        copy = self.with_backbone(self.backbone.with_vocabulary_size(rows), tokenizer)
        pieces = []
        if number > first:
            texts = tokenizer.detokenize([[i] for i in range(first, number)])
            pieces = self.tokenizer(texts).to_list()
        for variable, own in zip(copy.weights, self.weights, strict=True):
            value = keras.ops.convert_to_numpy(own)
            grown = [i for i, (a, b) in enumerate(zip(variable.shape, own.shape)) if a != b]
            for axis in grown:
                means = np.stack([value.take(ids, axis).mean(axis) for ids in pieces], axis)
                value = np.insert(value, [first] * len(pieces), means, axis)
            variable.assign(value)
        return copy

    # === Files ===

    @classmethod
    def from_preset(
        cls, source: PathLike | Source, load_weights: bool = True, **arguments: Any
    ) -> Self:
        """Load a compiled task from a preset, a published checkpoint or a size name.

        A head that the checkpoint lacks is new and random, with a warning; and there is one if it
        has no vocabulary, unless `tokenizer` is given, which may be None.

        Args:
            source, load_weights: see `keras_lm.models.Backbone.from_preset`.
            **arguments: of the task, such as `num_classes`, or of its backbone, such as `dropout`.
                `tokenizer` replaces the checkpoint's own.

        Raises:
            FileNotFoundError: if `source` is neither a folder nor a known name.
            ValueError: if the checkpoint is damaged, unknown or ambiguous, or an argument is
                unknown.
        """
        task = presets.load_task(source, cls, load_weights=load_weights, **arguments)
        if task.tokenizer is None and "tokenizer" not in arguments:
            warnings.warn(
                f"{type(task).__name__}.from_preset({str(source)!r}): there is no vocabulary, so "
                "the task takes packed dicts only. For strings, pass "
                "tokenizer=keras_lm.tokenizers.Tokenizer.from_preset(…); None says to do without.",
                NoVocabularyWarning,
                stacklevel=2,
            )
        return task

    @classmethod
    def from_parts(cls, backbone: Backbone, **arguments: Any) -> Self:
        """Return a task over a backbone, by its arguments in a preset."""
        return cls(backbone, **arguments)

    @classmethod
    def arguments_from_files(
        cls, folder: PathLike, given: Mapping[str, Any], limit: int | None
    ) -> dict[str, Any]:
        """Return the arguments that files of a published folder state beside its config.json.

        `given` are the user's, which count more; `limit` is the number of tokens that the backbone
        has positions for, or None.
        """
        stated = {"parse_special": True} if cls.parses_special and declares_tokens(folder) else {}
        length, side = stated_limits(folder)
        if length is not None and length < cls.usual_length(limit):
            stated["sequence_length"] = length
        if has_fast_tokenizer(folder):
            stated["truncation"] = "halves"
        return stated if side == "right" else stated | {"truncation_side": side}

    @classmethod
    def arguments_from_checkpoint(cls, labels: Any) -> dict[str, Any] | None:
        """Return the arguments for a published head (`Labels`), or None for another task's head."""
        return None

    def save_to_preset(
        self, folder: PathLike, overwrite: bool | None = None, allow_nan: bool = False
    ) -> None:
        """Write a preset, atomically; see `keras_lm.models.Backbone.save_to_preset`."""
        presets.save(folder, self.backbone, self, overwrite=overwrite, allow_nan=allow_nan)

    # === For other libraries ===

    def published_labels(self) -> Any:
        """Return the `Labels` of a published checkpoint with the task's head, None for none.

        Raises:
            ValueError: if the task is not one of transformers'.
        """
        raise ValueError(
            f"{type(self).__name__} is not a task of transformers', so it cannot be saved for it; "
            "its backbone can."
        )

    def write_modules(self, folder: PathLike) -> None:
        """Write what is beside the model and the tokenizer in a folder of Hugging Face's."""

    def save_to_huggingface(
        self,
        folder: PathLike,
        max_shard_bytes: int = 5_000_000_000,
        allow_nan: bool = False,
    ) -> None:
        """Write model, head and tokenizer as a folder that Hugging Face's transformers loads.

        Args:
            folder, max_shard_bytes, allow_nan: see `keras_lm.models.Backbone.save_to_huggingface`.

        Raises:
            FileExistsError, ImportError, ValueError: see there.
        """
        presets.save_to_huggingface(folder, self.backbone, self, None, max_shard_bytes, allow_nan)

    def save_to_google(self, folder: PathLike, allow_nan: bool = False) -> None:
        """Write model, head and vocabulary as a TensorFlow 1 checkpoint of google-research's form.

        Args:
            folder, allow_nan: see `keras_lm.models.Backbone.save_to_google`.

        Raises:
            FileExistsError, ImportError, ValueError: see there.
        """
        presets.save_to_google(folder, self.backbone, self, allow_nan=allow_nan)

    def save_to_keras_hub(self, folder: PathLike, allow_nan: bool = False) -> None:
        """Write model, head and tokenizer as a preset that KerasHub loads.

        Args:
            folder, allow_nan: see `keras_lm.models.Backbone.save_to_keras_hub`.

        Raises:
            FileExistsError, ValueError: see there.
        """
        presets.save_to_keras_hub(folder, self.backbone, self, allow_nan=allow_nan)

    # === Calling ===

    def __call__(self, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        if not isinstance(inputs, dict):
            raise ValueError(
                f"inputs is a {type(inputs).__name__}: calling {type(self).__name__} takes the "
                "dict that preprocess(['a text']) returns. Raw strings go to fit, predict and "
                "export, so it needs no keras.Input and cannot be a layer of a "
                "keras.Sequential. To add layers, make a keras.Model of its backbone.input and of "
                "layers on its backbone.output."
            )
        self.check_inputs(inputs)
        if not IS_TENSORFLOW and any(map(tf.is_tensor, inputs.values())):
            return answered(self, inputs)
        lists = {name: np.asarray(v) for name, v in inputs.items() if isinstance(v, list)}
        return super().__call__(inputs | lists, *args, **kwargs)

    def check_inputs(self, inputs: dict[str, Any]) -> None:
        """Raise a ValueError if packed inputs hold a state, or anything that nothing reads."""
        state, known = self.backbone.state_name, self.known_inputs()
        if inputs.get(state) is not None:
            raise ValueError(
                f"inputs has {state!r}, and {type(self).__name__} reads whole texts: call "
                f"task.backbone(inputs), which reads and returns the {state}."
            )
        optional = {state, *self.backbone.fields_of(inputs)}
        unknown = [] if known is None else sorted(inputs.keys() - known - optional)
        if unknown:
            raise ValueError(f"inputs has the unknown keys {unknown}: it takes {sorted(known)}.")

    def known_inputs(self) -> set[str] | None:
        """Return the names that packed inputs may have; None for any."""
        return {*self.backbone.input_names, *self.packer.inputs, *self.row_names}

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None, with_terms: bool = False
    ) -> Any:
        rows = self.packer.flatten(inputs)
        # Heads need the mask, too.
        rows = rows | self.backbone.complete(self.backbone.select_inputs(rows))
        outputs, terms = self._encode(rows, training), []
        if with_terms and self.fine_tuning:
            terms += self.fine_tuning.terms(self, outputs, rows)
        answer = self.read_head(self.head, outputs, rows, training, terms)
        answer = self.packer.join(answer, inputs)
        return (answer, terms) if with_terms else answer

    def read_head(
        self,
        head: keras.layers.Layer,
        outputs: Any,
        rows: Any,
        training: bool | None,
        terms: list[Any],
    ) -> Any:
        """Return what a head makes of a backbone's outputs, and extend the terms of the loss."""
        if not (training and getattr(head, "has_terms", False)):
            return head(outputs, rows, training=training)
        answer, more = head(outputs, rows, training=training, with_terms=True)
        terms += more
        return answer

    @property
    def has_terms(self) -> bool:
        is_beside = self.fine_tuning is not None and self.fine_tuning.lm_head is not None
        return is_beside or getattr(getattr(self, "head", None), "has_terms", False)

    def _encode(self, inputs, training):
        options = {"first_only": True} if self._reads_first_only else {}
        return self.backbone(self.backbone.select_inputs(inputs), training=training, **options)

    @property
    def _reads_first_only(self):
        """Whether the last block computes the first token alone, as nothing reads the others."""
        is_beside = self.fine_tuning is not None and self.fine_tuning.lm_head is not None
        is_enough = reads_first_only(getattr(self, "head", None))
        return is_enough and not is_beside and self.backbone.takes_first_only

    # === From strings to answers ===

    text_names = property(lambda self: self.rows.names, doc="Names of all texts it takes.")
    required_names = property(
        lambda self: self.rows.required, doc="Names of texts that data must have."
    )

    @property
    def answer_names(self) -> Sequence[str]:
        """Names of the texts that `answer` takes; `text_pair` only if it is True."""
        return list(self.text_names if self.text_pair else self.required_names)

    @property
    def text_pair(self) -> bool | None:
        """Whether texts come in pairs; None until the first data show it."""
        return self.pairs.text_pair

    @text_pair.setter
    def text_pair(self, value: bool | None) -> None:
        self.pairs.text_pair = value

    @property
    def preprocessor(self) -> Preprocessor:
        return self.preprocessor_class(**self.preprocessing())

    def preprocessing(self) -> dict[str, Any]:
        """Return the arguments of the preprocessor; a subclass adds what its own takes."""
        return {
            "task": type(self).__name__,
            "backbone": self.backbone,
            "tokenizer": self.tokenizer,
            "packer": self.packer,
            "rows": self.rows,
            "parse_special": self.parse_special,
            "pairs": self.pairs,
            "graphs": self._graphs,
        }

    def answer(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> Any:
        """Return the answer for named strings, in the graph: the function that is exported."""
        packed = self.preprocess(columns, tokenize)
        return self.decode(outputs_of(self, packed), packed)

    def answer_lite(self, columns: dict[str, Tensor]) -> Any:
        """`answer` with operations that LiteRT has: the function in a `.tflite`."""
        return self.answer(columns, self.preprocessor.tokenize_lite)

    def decode(self, outputs: Any, packed: dict[str, Tensor]) -> Any:
        """Return the served dict for raw outputs: by default the outputs themselves."""
        return outputs if isinstance(outputs, dict) else {self.output_name: outputs}

    def answer_all(
        self,
        x: RawTexts,
        batch_size: int = 32,
        answer: str | None = None,
        verbose: int | str = "auto",
    ) -> dict[str, Any]:
        """Return the answers for raw strings in any form that `predict` takes, as numpy arrays.

        There is a row per example, and strings are `str`. `batch_size` rows are answered at a time,
        on a CPU fewer of long texts: as many as have 1,024 tokens. `answer` maps a dict of string
        tensors to one of tensors; by default it is the task's. `verbose=1` draws Keras's progress
        bar, and `"auto"` does if it takes more than some seconds, in a terminal or a notebook.
        """
        self.require_tokenizer()
        answer = answer or (lambda columns: self.in_graph(self.answer, columns))
        return predict_batches.answer_all(self.preprocessor, x, batch_size, answer, verbose)

    def in_graph(self, function: Callable[..., Any], columns: dict[str, Tensor]) -> Any:
        """Call a method of the task as a graph, traced once for texts of all sizes in a form.

        After `tf.config.run_functions_eagerly(True)` it is called as it is, as any `tf.function`;
        and so is what has a network that Keras has on another backend.
        """
        if not IS_TENSORFLOW or tf.config.functions_run_eagerly():
            return function(columns)
        names = tuple(self.labels.class_names or ())  # learned, perhaps, since the last trace
        return self._graphs.call(function.__name__, function, columns, names)

    def decode_packed(self, outputs: Any, packed: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the numbers of the answer for packed rows, of which the texts are not known."""
        answer = self.decode(outputs, packed)
        return {name: value for name, value in answer.items() if value.dtype != tf.string}

    @property
    def lookups(self) -> list[Any]:
        """The lookup tables of `answer`, for an export to track."""
        return [self.tokenizer, *self.packer.lookups]

    def forget_answers(self) -> None:
        """Retrace `answer`, after Python values that it reads have changed."""
        self._graphs.clear()

    def forget_graphs(self) -> None:
        super().forget_graphs()
        self.forget_answers()

    # === Exports ===

    def export(self, path: PathLike, format: str | None = None, **options: Any) -> Path:
        """Write one artefact that takes strings; see `keras_lm.export.export`."""
        require_tensorflow("An export")
        return export(self, path, format, **options)

    def trimmed(self) -> Self:
        """Return what an export holds: the task, or a copy without weights that no text uses."""
        parts = self.tokenizer and self.backbone.trimmed(self.tokenizer)
        if parts is None:
            return self
        copy = self.with_backbone(*parts)
        for variable, own in zip(copy.weights, self.weights, strict=True):
            if variable.shape == own.shape:  # of others, the backbone has a part
                variable.assign(own)
        # What the card of an export says.
        copy.history = getattr(self, "history", None)
        copy.backbone.origin = getattr(self.backbone, "origin", None)
        return copy

    @property
    def signatures(self) -> TextSignatures:
        return TextSignatures(self)

    id_signatures = property(IdSignatures)
    byte_signatures = property(lambda self: ByteSignatures(self.signatures))
    plain_signatures = property(lambda self: PlainSignatures(self.signatures))
    packed_signatures = property(PackedSignatures)
    number_signatures = property(lambda self: NumberSignatures(self.signatures))

    def fixed_signatures(self, num_bytes: int | None = None, num_rows: int = 1) -> FixedSignatures:
        """Return those of a `.tflite` for browsers; see `FixedSignatures`."""
        return FixedSignatures(self, num_bytes, num_rows)

    def require_packed_answers(self) -> None:
        """Raise a ValueError if there is no answer to packed rows alone."""

    def single_output(self) -> Any:
        """Return (name, names of its columns or None) of the one array that answers a text.

        None if an answer is more than one array (B, …), or another task's than those that MediaPipe
        has.
        """
        return None

    @contextlib.contextmanager
    def padded(self, padding: str) -> Any:
        """A context in which rows are padded in another way, see `keras_lm.packers.Packer`."""
        packer = self.packer
        self.packer = packer.with_padding(padding)
        try:
            yield
        finally:
            self.packer = packer

    def other_signatures(self) -> dict[str, Any]:
        """Return signatures for texts in another form: name → dict of `tf.TensorSpec`s."""
        if not self.packer.takes_words:
            return {}
        return {"words": self.packer.specs(optional=self.text_pair, words=True)}

    def example_signature(self) -> Any:
        """Return the method for TF Serving's `tf.Example`s, `"classify"` or `"regress"`, if any.

        With the method comes a function from the answer to its outputs. Without one, None is
        returned.
        """
        return None


def check_tokenizer(backbone, tokenizer):
    """Raise a ValueError if a tokenizer, or None, belongs to another backbone."""
    if isinstance(tokenizer, (str, os.PathLike)):
        raise ValueError(
            f"tokenizer={str(tokenizer)!r} is a path: pass tokenizers.Tokenizer.from_preset(…)."
        )
    if tokenizer is None:
        return
    if not isinstance(tokenizer, Tokenizer):
        raise ValueError(
            f"tokenizer={tokenizer!r}: pass a keras_lm.tokenizers.Tokenizer, or None for packed "
            "dicts alone."
        )
    rows = backbone.vocabulary_size
    if tokenizer.vocabulary_size > rows:
        more = ", ".join(map(repr, tokenizer.vocabulary[rows : rows + 5]))
        raise ValueError(
            f"tokenizer has {tokenizer.vocabulary_size} entries, but the backbone's embedding "
            f"has {rows} rows, and none for {more}: if they belong together, take these tokens out "
            "of the vocabulary's files; otherwise take the tokenizer of the backbone's checkpoint."
        )
    backbone.check_tokenizer(tokenizer)


def check_parse_special(parse_special, task):
    """Return the argument of a task as a bool, None or a list of str.

    Raises:
        ValueError: if it is something else, or asks for what the task cannot do.
    """
    if parse_special and not task.parses_special:
        raise ValueError(
            f"parse_special={parse_special}: {type(task).__name__} finds places in texts, in which "
            "special tokens have none: leave it out."
        )
    if isinstance(parse_special, (bool, type(None))):
        return parse_special
    return strings_of("parse_special", parse_special)


def check_special_tokens(parse_special, tokenizer):
    """Raise a ValueError if a list names a token that is not a special token of the tokenizer."""
    for token in parse_special if isinstance(parse_special, list) else ():
        if token not in tokenizer.all_special_tokens:
            raise ValueError(
                f"parse_special names {token!r}, which is not a special token of the "
                f"{type(tokenizer).__name__}: see tokenizer.with_special_tokens."
            )


def with_prompt(prompt: str | None, text: Any) -> Any:
    """Return texts (B,), string tensors or bytes where TensorFlow is missing, after a prompt."""
    if not IS_INSTALLED:
        return [(prompt or "") + row.decode("utf-8", "replace") for row in text]
    return text if not prompt else strings.after(prompt, text)


def checked_prompt(prompt: str | None) -> str | None:
    """Return a prompt; raise a ValueError if it is not a str."""
    if not isinstance(prompt, str | None):
        raise ValueError(f"prompt={prompt!r}: pass a str, or None for no prompt.")
    return prompt


@dataclasses.dataclass(frozen=True, eq=False)
class PromptedPreprocessor(Preprocessor):
    """A `Preprocessor` that puts `prompt`, if there is one, before the first text."""

    prompt: str | None = None

    def pack(self, columns, tokenize):
        if self.prompt:
            columns = columns | {"text": with_prompt(self.prompt, columns["text"])}
        return super().pack(columns, tokenize)


class Prompted:
    """A task's argument `prompt`, which is put before the first text of each example."""

    prompt = None
    preprocessor_class = PromptedPreprocessor

    def preprocessing(self) -> dict[str, Any]:
        return super().preprocessing() | {"prompt": self.prompt}

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {"prompt": self.prompt}

    def check_without_prompt(self) -> None:
        """Raise a ValueError if texts have a prompt, which no other library would put there."""
        if self.prompt:
            raise ValueError(
                f"{type(self).__name__} has prompt={self.prompt!r}, and transformers' classes have "
                "none: only prompt=None can be saved for it."
            )

    def _finish(self):
        super()._finish()
        if self.prompt and self.packer.takes_words:
            raise ValueError(
                f"prompt={self.prompt!r} with {type(self.tokenizer).__name__}: it reads lists of "
                "words, too, so leave it out."
            )
