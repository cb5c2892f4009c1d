"""ELMo: words from their characters, read by a forward and a backward recurrent language model.

Shapes: B batch, S words, C characters of a word, W all words of a batch and two, D width of one
direction, U units of a cell, L layers, T steps: the words of a sentence and its two boundaries, V
vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_lm import presets
from keras_lm.converters.formats import write_allennlp
from keras_lm.layers import (
    CharacterCNN,
    EachTokenClassifier,
    MeanPooledClassifier,
    SpanHead,
    WordSoftmax,
)
from keras_lm.models.backbone import TOKENS, Backbone, Head, Input, from_backbone
from keras_lm.models.elmo_checkpoints import CONVERTERS, options_of, tensors_of
from keras_lm.models.elmo_layers import (
    CHARACTERS,
    RANGES,
    BoundaryWords,
    ProjectedLSTMs,
    ReadingOrder,
    SideBySide,
    TakeRows,
)
from keras_lm.models.sizes import kernels
from keras_lm.models.word_backbone import WordBackbone
from keras_lm.packers import CharacterPacker, Template
from keras_lm.tokenizers.characters import PAD, CharacterTokenizer
from keras_lm.tokenizers.words import WordTokenizer
from keras_lm.utils.argument_types import DType, PathLike, Tensor


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
        super().__init__(TOKENS | {"states": Input(is_state=True)}, dtype, name)
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

    def initial_state(self, batch_size: int | Tensor, length: int | Tensor = 0) -> dict[str, Any]:
        layers = self.config["num_layers"]
        widths = {"hidden": self.config["hidden_dim"], "cell": self.config["cell_dim"]}
        return {
            name: ops.zeros((batch_size, layers, width), self.compute_dtype)
            for name, width in widths.items()
        }


def _is_word(character_ids):
    return ops.cast(ops.any(character_ids > PAD, axis=-1), "int32")


@keras.saving.register_keras_serializable("keras_lm")
class ElmoBackbone(WordBackbone):
    """The bidirectional language model of ELMo.

    Args:
        num_layers, cell_dim, characters_per_word: int. L (in each direction), U and C.
        hidden_dim: int. D, the width of a word, and of one direction of a hidden state.
        filters: list of `(width, number)`, of the character convolution.
        embedding_dim, num_highways: int. Width of a character, and number of highway layers.
        vocabulary_size: int. Characters; see `keras_lm.tokenizers.CharacterTokenizer`.
        activation: `"relu"` or `"tanh"`, of the filters.
        cell_clip, projection_clip: float. The values of cells, and of projections, are clipped to ±
            this; None or 0 for no clipping.
        residual: bool. Add a recurrent layer's input to its output, from the second layer on.
        project_words, project_cells: bool. Whether a projection follows the highways (else there
            must be D filters), and the cells (else D must be U).
        dropout: float. Fraction of the inputs of each recurrent layer dropped in training.
        dtype: a dtype policy or its name.

    Call: `backbone({"character_ids": …, "padding_mask": …, "states": …})`, the first (B, S, C)
    int32 without sentence boundaries, which the model adds and removes again, the mask (B, S); all
    but the first are optional. A word of zeros is padding, at any position. Returns
    `sequence_output` (B, S, 2D), the top layer, both directions concatenated and zero in padding,
    and the `states`, `{"hidden": (B, L, 2D), "cell": (B, L, 2U)}`, from which a later call
    continues, row by row. That call may have more rows, which start from zero, or fewer: the states
    of the others are returned unchanged.

    Raises:
        ValueError: if the widths of `filters`, `hidden_dim` and `cell_dim` do not agree where there
            is no projection between them.

    Example:

        backbone = keras_lm.models.ElmoBackbone(
            num_layers=2, hidden_dim=16, cell_dim=48, filters=[(1, 8), (2, 8), (3, 16)]
        )
        ids = CharacterTokenizer()(["two words"]).to_tensor()
        backbone({"character_ids": ids})["sequence_output"].shape  # (1, 2, 32)

    Source: Peters et al. 2018, https://arxiv.org/abs/1802.05365, sections 3.1 and 3.4;
    allenai/bilm-tf; AllenNLP's `ElmoLstm`, also for the states.
    """

    TEMPLATE = Template(single="$A:0", pair="$A:0 </S>:0 <S>:0 $B:0")
    INNER = (*Backbone.INNER, "hidden_states_with_boundaries", "mask_with_boundaries")
    HEADS = {
        "bidirectional_lm": Head(WordSoftmax, "word_softmax", dropout=from_backbone("dropout")),
        "classification": Head(MeanPooledClassifier, "classifier", dropout=0.5),
        "token_classification": Head(EachTokenClassifier, "classifier", dropout=0.5),
        "question_answering": Head(SpanHead, "span_head"),
    }
    RANGES = RANGES
    CONVERTERS = CONVERTERS
    tokenizer_class = CharacterTokenizer
    packer_class = CharacterPacker

    def __init__(
        self,
        num_layers: int,
        hidden_dim: int,
        cell_dim: int,
        filters: Sequence[Sequence[int]],
        embedding_dim: int = 16,
        num_highways: int = 2,
        vocabulary_size: int = CHARACTERS,
        characters_per_word: int = 50,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        cell_clip: float | None = 3.0,
        projection_clip: float | None = 3.0,
        residual: bool = True,
        project_words: bool = True,
        project_cells: bool = True,
        dropout: float = 0.0,
        dtype: DType = None,
        name: str = "elmo_backbone",
    ):
        _check_widths(hidden_dim, cell_dim, filters, project_words, project_cells)
        _check_depths(num_layers, filters, characters_per_word)

        super().__init__(
            inputs={
                "character_ids": Input((None, characters_per_word)),
                "padding_mask": Input(default=_is_word, like="character_ids"),
                "states": Input(is_state=True),
            },
            dtype=dtype,
            name=name,
        )
        self.add_boundaries = BoundaryWords(characters_per_word)
        self.character_cnn = CharacterCNN(
            vocabulary_size,
            embedding_dim,
            filters,
            num_highways=num_highways,
            hidden_dim=hidden_dim if project_words else None,
            activation=activation,
            dtype=dtype,
            name="character_cnn",
        )
        self.reading_order = ReadingOrder()
        self.take_rows = TakeRows(dtype=dtype)
        self.lstms = [
            ProjectedLSTMs(
                cell_dim,
                hidden_dim if project_cells else None,
                cell_clip,
                projection_clip,
                residual=residual and i > 0,
                dropout=dropout,
                dtype=dtype,
                name=f"layer_{i}",
            )
            for i in range(num_layers)
        ]
        self.side_by_side = SideBySide(dtype=dtype)
        self.finish()

    def forward(self, character_ids, padding_mask, states=None, training=None):
        rows = ops.shape(character_ids)[0]
        words = self.add_boundaries(character_ids)
        words = self.character_cnn(words, training=training)  # (W, D)
        order = self.reading_order(character_ids, padding_mask)
        x = self.take_rows(words, order["steps"])  # (T, B, 2D)
        layers, hidden, cells = [x], [], []
        for i, lstm in enumerate(self.lstms):
            state = states and {name: value[:rows, i] for name, value in states.items()}
            x, state = lstm(x, order["is_real"], state, training=training)
            layers.append(x)
            hidden.append(state["hidden"])
            cells.append(state["cell"])
        new = {"hidden": ops.stack(hidden, axis=1), "cell": ops.stack(cells, axis=1)}
        if states is not None:  # those of rows that are not in this batch stay unchanged
            new = {name: ops.concatenate([new[name], states[name][rows:]]) for name in new}
        hidden_states = [self.side_by_side(x, order["places"]) for x in layers]
        boundaries = order["places_with_boundaries"]
        return {
            "sequence_output": hidden_states[-1],
            "states": new,
            "hidden_states": hidden_states,  # (B, S, 2D)
            # The start of each sentence, its words, and its end: (B, T, 2D), and (B, T) bool.
            "hidden_states_with_boundaries": [self.side_by_side(x, boundaries) for x in layers],
            "mask_with_boundaries": ops.any(boundaries >= 0, axis=0),
        }

    @property
    def hidden_states_with_boundaries(self) -> list[Tensor]:
        """Symbolic tensors (B, T, 2D): the start of each sentence, its words, and its end."""
        return self.symbolic["hidden_states_with_boundaries"]

    @property
    def mask_with_boundaries(self) -> Tensor:
        """Symbolic tensor (B, T) bool: whether there is a word or a boundary."""
        return self.symbolic["mask_with_boundaries"]

    def cache_words(self, character_ids: Tensor) -> None:
        """Look frequent words up in a table instead of computing them from their characters.

        Outputs are the same, but faster. Call this before `predict` and `export`, and again when
        the weights have changed. `character_ids` are (V, C) int32, such as
        `tokenizer.tokenize_words(words)`; None for no table.

        Raises:
            ValueError: if it has another shape, or no rows.
        """
        if character_ids is not None:
            rows, *columns = ops.shape(character_ids)
            if not rows or columns != [self.config["characters_per_word"]]:
                raise ValueError(
                    f"character_ids has the shape {(rows, *columns)}: pass one row or more, of "
                    f"{self.config['characters_per_word']} characters."
                )
        self.character_cnn.cache_words(character_ids)

    def initial_state(self, batch_size: int | Tensor, length: int | Tensor = 0) -> dict[str, Any]:
        layers = self.config["num_layers"]
        widths = {"hidden": 2 * self.config["hidden_dim"], "cell": 2 * self.config["cell_dim"]}
        return {
            name: ops.zeros((batch_size, layers, width), self.compute_dtype)
            for name, width in widths.items()
        }

    def fit_state(self, state: Any, rows: int) -> Any:
        # Filled up, but not cut: what the batch does not use comes back as it is.
        kept = ops.shape(state["hidden"])[0] if "hidden" in state else rows
        rows = max(rows, kept) if isinstance(rows, int) else ops.maximum(rows, kept)
        return super().fit_state(state, rows)

    def forward_flops(self) -> float:
        config = self.config
        multiplied = kernels([self.character_cnn, *self.lstms])
        for size, number in config["filters"]:  # at each place of a word, not once
            places = config["characters_per_word"] + 1 - size
            multiplied += (places - 1) * size * config["embedding_dim"] * number
        return 2 * multiplied

    def forward_half(self, words: Sequence[str]) -> ElmoForwardBackbone:
        """Return a copy of the direction that reads forwards, over the ids of a list of words."""
        return ElmoForwardBackbone.from_elmo(self, words)

    def save_to_allennlp(self, folder: PathLike) -> None:
        """Write `options.json` and `weights.hdf5` for AllenNLP and bilm-tf, both or none.

        `folder` must be empty or missing, and the character ids ELMo's. `from_preset` reads these
        files too. They have no row for padding among the characters.

        Raises:
            FileExistsError: if `folder` is not empty.
            ValueError: if the model's character ids are not ELMo's, or weights are NaN or
                infinite.
        """
        presets.check_finite(self)
        write_allennlp(folder, options_of(self.config), tensors_of(self.weights))


def _check_widths(hidden_dim, cell_dim, filters, project_words, project_cells):
    width = sum(number for _, number in filters)
    if not project_words and width != hidden_dim:
        raise ValueError(
            f"filters give {width} numbers, but hidden_dim={hidden_dim}: pass project_words=True."
        )
    if not project_cells and cell_dim != hidden_dim:
        raise ValueError(
            f"cell_dim={cell_dim}, but hidden_dim={hidden_dim}: pass project_cells=True."
        )


def _check_depths(num_layers, filters, characters_per_word):
    if num_layers < 1:
        raise ValueError(f"num_layers={num_layers}: pass 1 or more.")
    widest = max(width for width, _ in filters)
    if widest > characters_per_word:
        raise ValueError(
            f"filters has one that reads {widest} characters, but words have "
            f"characters_per_word={characters_per_word}: pass narrower ones, or longer words."
        )


def _size(hidden_dim, cell_dim, num_highways):
    return {
        "num_layers": 2,
        "hidden_dim": hidden_dim,
        "cell_dim": cell_dim,
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "num_highways": num_highways,
    }


ElmoBackbone.SIZES = {
    "elmo_small_en": _size(128, 1024, 1),
    "elmo_medium_en": _size(256, 2048, 1),
    "elmo_original_en": _size(512, 4096, 2),
    "elmo_original_5.5b_en": _size(512, 4096, 2),
}
ElmoBackbone.PUBLISHED = dict.fromkeys(
    ElmoBackbone.SIZES, "https://allenai.org/allennlp/software/elmo"
)
