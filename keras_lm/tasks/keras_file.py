"""Tasks in `.keras` files: configuration, vocabulary, and what they are compiled with."""

from pathlib import Path
from typing import Any, Self

import keras

from keras_lm import presets
from keras_lm.tasks.runtime import steps
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.registry import BACKBONES, tokenizer_classes


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
            cls = tokenizer_classes()[self._tokenizer_config["class_name"]]
            self.use_tokenizer(cls.from_assets(folder, self._tokenizer_config["config"]))


def without_defaults(config):
    """Return what a task is compiled with, without `jit_compile` as a backend has it by default.

    The file may be loaded on another backend. False is left out on all, as older files have it.
    """
    if not config or config.get("jit_compile") not in (False, steps.IS_COMPILED):
        return config
    return {name: value for name, value in config.items() if name != "jit_compile"}
