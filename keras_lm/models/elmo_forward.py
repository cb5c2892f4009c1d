"""The forward half of ELMo: a language model that reads words by their characters.

Shapes: B batch, S words, C characters, D hidden, U units of a cell, L layers, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Self

import keras
from keras import ops

from keras_lm.layers import CharacterCNN, WordSoftmax
from keras_lm.models.backbone import Head, Input, from_backbone
from keras_lm.models.elmo_layers import CHARACTERS, RANGES, ProjectedLSTMs
from keras_lm.models.word_backbone import WordBackbone
from keras_lm.tokenizers.characters import CharacterTokenizer
from keras_lm.tokenizers.words import WordTokenizer
from keras_lm.utils.argument_types import DType, Tensor


def _make_lstm(i, config, dtype):
    return ProjectedLSTMs(
        config["cell_dim"],
        config["hidden_dim"] if config["project_cells"] else None,
        config["cell_clip"],
        config["projection_clip"],
        residual=config["residual"] and i > 0,
        dropout=config["dropout"],
        directions=["forward"],
        dtype=dtype,
        name=f"layer_{i}",
    )


class NextWord(WordSoftmax):
    """The softmax of both directions of ELMo as a head: `head(outputs, inputs)` → (B, S, V)."""

    def build(self, outputs_shape, inputs_shape=None):
        super().build(outputs_shape["sequence_output"])

    def call(self, outputs, inputs=None, training=None):
        return super().call(outputs["sequence_output"], training=training)


@keras.saving.register_keras_serializable("keras_lm")
class ElmoForwardBackbone(WordBackbone):
    """What of an `ElmoBackbone` reads from left to right, over the ids of a list of words.

    The characters of each word of the list are a weight, `spelling` (V, C) int32, which is not
    trained; `from_elmo` fills it.

    Args:
        vocabulary_size: int. V.
        num_characters: int. The `vocabulary_size` of the `ElmoBackbone`.
        Other arguments: as `ElmoBackbone`.

    Call: `backbone({"token_ids": …, "padding_mask": …, "states": …})`, the first two (B, S) int32;
    all but the first are optional. A sentence begins with `<S>` and ends with `</S>`, which are
    words of the list. Returns `sequence_output` (B, S, D), zero at padding, and the `states` after
    the last word: `{"hidden": (B, L, D), "cell": (B, L, U)}`.

    Example:

        task = keras_lm.tasks.BidirectionalLM.from_preset("my-bilm").forward_language_model()
        type(task.backbone)  # ElmoForwardBackbone

    Source: Peters et al. 2018, https://arxiv.org/abs/1802.05365, section 3.1.
    """

    HEADS = WordBackbone.HEADS | {
        "causal_lm": Head(
            NextWord,
            "word_softmax",
            vocabulary_size=from_backbone("vocabulary_size"),
            dropout=from_backbone("dropout"),
        ),
    }
    RANGES = RANGES
    tokenizer_class = WordTokenizer
    is_causal = True

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        hidden_dim: int,
        cell_dim: int,
        filters: Sequence[Sequence[int]],
        embedding_dim: int = 16,
        num_highways: int = 2,
        num_characters: int = CHARACTERS,
        characters_per_word: int = 50,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        cell_clip: float | None = 3.0,
        projection_clip: float | None = 3.0,
        residual: bool = True,
        project_words: bool = True,
        project_cells: bool = True,
        dropout: float = 0.0,
        dtype: DType = None,
        name: str = "elmo_forward_backbone",
    ):
        super().__init__(
            inputs={
                "token_ids": Input(),
                "padding_mask": Input(default=1, like="token_ids"),
                "states": Input(is_state=True),
            },
            dtype=dtype,
            name=name,
        )
        self.spelling = keras.Variable(
            "zeros",
            (vocabulary_size, characters_per_word),
            dtype="int32",
            trainable=False,
            name="spelling",
        )
        self.character_cnn = CharacterCNN(
            num_characters,
            embedding_dim,
            filters,
            num_highways=num_highways,
            hidden_dim=hidden_dim if project_words else None,
            activation=activation,
            dtype=dtype,
            name="character_cnn",
        )
        self.lstms = [_make_lstm(i, self.config, dtype) for i in range(num_layers)]
        self.finish()

    @classmethod
    def from_elmo(cls, elmo: keras.Model, words: Sequence[str]) -> Self:
        """Return a copy of the forward half of `elmo`; `words` (V) include `<S>` and `</S>`."""
        config = elmo.get_config()
        config |= {"num_characters": config["vocabulary_size"], "vocabulary_size": len(words)}
        del config["name"]
        half = cls(**config)
        tokenizer = CharacterTokenizer(config["characters_per_word"])
        half.spelling.assign(tokenizer.tokenize_words(words, parse_special=True))
        trained = {weight.path: weight for weight in elmo.weights}
        for weight in half.trainable_weights:
            weight.assign(trained[weight.path])
        return half

    def forward(self, token_ids, padding_mask, states=None, training=None):
        is_real = ops.expand_dims(ops.transpose(padding_mask) > 0, -1)  # (S, B, 1)
        words = ops.take(self.spelling, ops.transpose(token_ids), axis=0)  # (S, B, C)
        x = self.character_cnn(words, training=training)
        layers, hidden, cells = [x], [], []  # (S, B, D)
        for i, lstm in enumerate(self.lstms):
            state = states and {name: value[:, i] for name, value in states.items()}
            x, state = lstm(x, is_real, state, training=training)
            layers.append(x)
            hidden.append(state["hidden"])
            cells.append(state["cell"])
        hidden_states = [
            ops.transpose(ops.where(is_real, x, ops.zeros_like(x)), (1, 0, 2)) for x in layers
        ]
        return {
            "sequence_output": hidden_states[-1],
            "states": {"hidden": ops.stack(hidden, axis=1), "cell": ops.stack(cells, axis=1)},
            "hidden_states": hidden_states,
        }

    def initial_state(self, batch_size, length=0):
        layers = self.config["num_layers"]
        widths = {"hidden": self.config["hidden_dim"], "cell": self.config["cell_dim"]}
        return {
            name: ops.zeros((batch_size, layers, width), self.compute_dtype)
            for name, width in widths.items()
        }
