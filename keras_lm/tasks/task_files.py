"""Tasks from and to presets and published checkpoints, and in the formats of other libraries."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import keras

from keras_lm import presets
from keras_lm.models.backbone import Backbone
from keras_lm.presets.source import Source
from keras_lm.tasks.runtime import steps
from keras_lm.tokenizers.published_files import declares_tokens, has_fast_tokenizer, stated_limits
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.registry import BACKBONES, TOKENIZERS


class NoVocabularyWarning(UserWarning):
    """A task was loaded from a checkpoint without a vocabulary: it takes no strings."""


class TaskFiles:
    """The methods of a task that load and save it; `keras_lm.export` writes what is served."""

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
        found = {"parse_special": True} if cls.parses_special and declares_tokens(folder) else {}
        length, side = stated_limits(folder)
        if length is not None and length < cls.usual_length(limit):
            found["sequence_length"] = length
        if has_fast_tokenizer(folder):
            found["truncation"] = "halves"
        return found if side == "right" else found | {"truncation_side": side}

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


class KerasFile:
    """A model with a backbone, a tokenizer and `get_arguments()`, which Keras saves and loads."""

    _tokenizer_config = None

    def get_config(self):
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
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        backbone, tokenizer = config.pop("backbone", None), config.pop("tokenizer", None)
        if not isinstance(backbone, keras.Model):
            name = backbone.get("class_name") if isinstance(backbone, dict) else backbone
            if name not in BACKBONES:  # Keras would make whatever it is
                raise ValueError(
                    f"The configuration of a {cls.__name__} names {str(name)[:80]!r} as its "
                    "backbone, which is none: the file is damaged, or another program's."
                )
            backbone = keras.saving.deserialize_keras_object(backbone, custom_objects)
        task = cls.from_parts(backbone, **cls.completed(config))
        task._tokenizer_config = tokenizer  # its vocabulary follows in load_assets
        return task

    def get_compile_config(self):
        config = without_defaults(super().get_compile_config())
        if config and self.micro_batch_size:
            config["micro_batch_size"] = self.micro_batch_size
        if config and self.smoothing is not None:
            config["smoothing"] = keras.saving.serialize_keras_object(self.smoothing)
        return config

    def compile_from_config(self, config):
        self.compile_by(config)
        with self.distribute_strategy.scope():
            self.optimizer.build(self.trainable_variables)

    def compile_by(self, config):
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

    def load_assets(self, folder):
        if self._tokenizer_config is not None:
            cls = TOKENIZERS[self._tokenizer_config["class_name"]]
            self.use_tokenizer(cls.from_assets(folder, self._tokenizer_config["config"]))


def without_defaults(config):
    """Return what a task is compiled with, without `jit_compile` as a backend has it by default.

    The file may be loaded on another backend. False is left out on all, as older files have it.
    """
    if not config or config.get("jit_compile") not in (False, steps.IS_COMPILED):
        return config
    return {name: value for name, value in config.items() if name != "jit_compile"}
