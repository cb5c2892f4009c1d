"""What a `.keras` file holds of a task: its configuration, and its vocabulary as an asset."""

from pathlib import Path

import keras

from keras_lm.argument_types import PathLike
from keras_lm.registry import BACKBONES, TOKENIZERS


class KerasFile:
    """A model with a backbone, a tokenizer and `get_arguments()`, which Keras saves and loads."""

    _tokenizer_config = None

    def get_config(self):
        tokenizer = self.tokenizer
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "tokenizer": tokenizer
            and {"class_name": type(tokenizer).__name__, "config": tokenizer.get_config()},
            "name": self.name,
            **self.get_arguments(),
        }

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
        task = cls.from_parts(backbone, **config)
        task._tokenizer_config = tokenizer  # its vocabulary follows in load_assets
        return task

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
