"""Tasks in the formats of other libraries."""

from typing import Any

from keras_lm import presets
from keras_lm.argument_types import PathLike


class TaskFormats:
    """The methods of a task that write what other libraries load."""

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

    def save_to_huggingface(self, folder: PathLike, max_shard_bytes: int = 5_000_000_000) -> None:
        """Write model, head and tokenizer as a folder that Hugging Face's transformers loads.

        Args:
            folder, max_shard_bytes: see `keras_lm.models.Backbone.save_to_huggingface`.

        Raises:
            FileExistsError, ImportError, ValueError: see there.
        """
        presets.save_to_huggingface(folder, self.backbone, self, None, max_shard_bytes)

    def save_to_google(self, folder: PathLike) -> None:
        """Write model, head and vocabulary as a TensorFlow 1 checkpoint of google-research's form.

        Args:
            folder: see `keras_lm.models.Backbone.save_to_google`.

        Raises:
            FileExistsError, ImportError, ValueError: see there.
        """
        presets.save_to_google(folder, self.backbone, self)

    def save_to_keras_hub(self, folder: PathLike) -> None:
        """Write model, head and tokenizer as a preset that KerasHub loads.

        Args:
            folder: see `keras_lm.models.Backbone.save_to_keras_hub`.

        Raises:
            FileExistsError, ValueError: see there.
        """
        presets.save_to_keras_hub(folder, self.backbone, self)
