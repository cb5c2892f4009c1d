"""Backbones in the formats of other libraries."""

from keras_lm import presets
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import PathLike


class BackboneFormats:
    """The methods of a backbone that write what Keras and other libraries load."""

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
