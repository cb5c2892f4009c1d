"""Features: a backbone's hidden states, chosen, mixed and pooled into vectors."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np

from keras_lm.converters.checkpoint import Checkpoint
from keras_lm.converters.sentence_transformers import (
    check_modules,
    read_head,
    read_inputs,
    write_modules,
)
from keras_lm.feeding.feed import Preprocessor, TaskLabels
from keras_lm.models.backbone import Backbone
from keras_lm.models.feature_backbone import FeatureBackbone
from keras_lm.packers import Texts
from keras_lm.tasks.task import Task, checked_prompt, with_prompt
from keras_lm.tensorflow import IS_INSTALLED
from keras_lm.tokenizers import strings
from keras_lm.utils.argument_types import PathLike, RawTexts, Tensor


class NoLabels(TaskLabels):
    """Any that the loss compares which a user has compiled a `FeatureExtractor` with."""

    def prepare(self, labels):
        if self.loss is None:
            raise ValueError(
                "y is given, and a FeatureExtractor has no loss to compare with: train another "
                "task over it, such as TextClassifier(extractor, …), or compile it with a loss."
            )
        return labels


@dataclasses.dataclass(frozen=True, eq=False)
class EncoderPreprocessor(Preprocessor):
    """A `Preprocessor` that puts `prompt` before every text, and may lower-case texts."""

    prompt: str | None = None
    lowercase: bool = False

    def pack(self, columns, tokenize):
        return super().pack(columns, lambda text: tokenize(self._changed(text)))

    def _changed(self, text):
        # LiteRT cannot lower-case, except in the tokenizer.
        is_left = self.lowercase and not getattr(self.tokenizer, "lowercase", False)
        text = with_prompt(self.prompt, text)
        if not IS_INSTALLED:
            return [row.lower() for row in text] if is_left else text
        return strings.lower(text) if is_left else text


@keras.saving.register_keras_serializable("keras_lm")
class FeatureExtractor(Task):
    """Turn texts into vectors.

    Args:
        layers: which hidden states: `"embedding"`, `"first"`, `"second_to_last"`, `"last"`,
            `"sum_all"` (of all blocks), `"sum_last_four"`, `"concat_last_four"` (BERT's table 7);
            `"concat_embedding_last"` (CoVe's: a word's vector, then its vector in context);
            `"scalar_mix"` (ELMo's learned mix of all, including the embedding); an int, the index
            of a hidden state; or `"all"` or a list of int, for a vector each.
        pooling: over the tokens of a text: `"first"`, `"last"`, `"mean"`, `"mean_sqrt_len"` (the
            sum over the square root of their number), `"weighted_mean"` (by places, from 1),
            `"max"`, a list of these for all one after the other; or `"none"` for a vector per
            token. Padding is excluded; its vectors are zero with `"none"`.
        normalize: bool. Scale each vector to length 1, as usual for sentence embeddings.
        regularization, layer_norm: of `"scalar_mix"`, see `keras_lm.layers.ScalarMix`. Layers are
            normalised by the statistics of the tokens; AllenNLP's include the sentences'
            boundaries.
        num_mixes: int. How many mixes `"scalar_mix"` learns.
        feature_dropout: float. Fraction of the features dropped in training, before pooling, and
            of what each LSTM returns.
        num_lstm_layers, lstm_dim: int. Bidirectional LSTMs over the vectors, with pooling
            `"none"`, and the width of both directions together: for a task on frozen features to
            learn. BERT's tagger has two of 768 on `"concat_last_four"`.
        projections: list of dict. Dense layers after pooling, of `output_dim` units, an
            `activation` such as `"tanh"` (none by default) and a bias, if not `use_bias=False`;
            with `use_residual=True`, their input is added, by a matrix if it is of another width.
            `{"layer": "layer_norm"}` and `{"layer": "normalize"}` are layers of these kinds.
        truncate_dim: int. How many of a vector's first numbers are kept, of all that was done.
        prompt: str. What is put before each text, such as `"query: "`.
        skipped_tokens: int. How many tokens at the begin of a text pooling leaves out, such as the
            special ones before a prompt and the prompt's.
        lowercase: bool. Lower-case texts before the tokenizer reads them.
        backbone, **arguments: see `Task`.

    Call: `task(inputs)` returns (B, D), or (B, S, D) with pooling `"none"`, float32. Several
    vectors, for `"all"`, a list or several mixes, have an axis before the last.

    If the tokenizer splits texts into words only (ELMo's), texts may also be lists of words, and an
    export has the signatures `default`, for strings, and `tokens`, for words.

    Of a folder of the library sentence-transformers, `from_preset` takes pooling, the layers after
    it, `normalize`, `truncate_dim`, `sequence_length`, the default prompt and `lowercase`, so that
    vectors are those of `SentenceTransformer(folder).encode(texts)`; what is not known there is an
    error that names it. Of a router, it is the route that `encode` takes. An argument counts more
    than a folder or a preset; with `layers` or `pooling`, neither the layers, the `normalize` nor
    the `truncate_dim` found there apply, and of such a folder no pooling.

    As the backbone of another task, it lets that learn a linear layer on its vectors, and the
    scalar mix, LSTMs and projections with it; texts are read as that task says.
    `extractor.backbone.trainable = False` freezes the backbone (BERT's feature-based approach).

    Raises:
        ValueError: if `layers` or `pooling` has another value, the backbone has too few layers,
            they differ in width and cannot be mixed or stacked, or LSTMs are to read pooled vectors
            or have an odd width, or projections token by token; or the backbone is an
            encoder-decoder: pass its encoder.

    Example:

        extractor = keras_lm.tasks.FeatureExtractor.from_preset(SOURCE)
        extractor.embed(["a sentence"])["embedding"].shape  # (1, 384)

    Source: BERT, https://arxiv.org/abs/1810.04805, section 5.3, table 7; ELMo,
    https://arxiv.org/abs/1802.05365, equation 1; CoVe, https://arxiv.org/abs/1708.00107, section 4.
    """

    labels_class = NoLabels
    rows = Texts(takes_words=True)
    preprocessor_class = EncoderPreprocessor
    output_name = "embedding"
    uses_pooler = False
    # The class of sentence-transformers that loads what `save_to_huggingface` writes.
    published_class = "SentenceTransformer"

    def __init__(
        self,
        backbone: Backbone,
        layers: str | Sequence[int] = "last",
        pooling: str = "mean",
        normalize: bool = False,
        regularization: float = 0.0,
        layer_norm: bool = False,
        num_mixes: int = 1,
        feature_dropout: float = 0.0,
        num_lstm_layers: int = 0,
        lstm_dim: int = 768,
        projections: Sequence[Mapping[str, Any]] | None = None,
        prompt: str | None = None,
        lowercase: bool = False,
        truncate_dim: int | None = None,
        skipped_tokens: int = 0,
        **arguments: Any,
    ):
        if skipped_tokens and not prompt:
            raise ValueError(
                f"skipped_tokens={skipped_tokens} without a prompt: pass a prompt, or 0."
            )
        super().__init__(backbone, **arguments)
        self.prompt, self.lowercase = checked_prompt(prompt), lowercase
        self.features = FeatureBackbone(
            backbone,
            layers,
            pooling,
            normalize,
            regularization,
            layer_norm,
            num_mixes,
            feature_dropout,
            num_lstm_layers,
            lstm_dim,
            projections,
            truncate_dim,
            skipped_tokens,
        )
        self.predicts_sequences = pooling == "none"
        self._finish()
        if (prompt or lowercase) and self.packer.takes_words:
            raise ValueError(
                f"prompt={prompt!r} and lowercase={lowercase} with {type(self.tokenizer).__name__}:"
                " it reads lists of words, too, so leave them out."
            )

    pooling = property(lambda self: self.features.pooling, doc="See the class.")
    output = property(
        lambda self: next(iter(self.features.output.values())),
        doc="Symbolic, what calling returns.",
    )
    mixes = property(lambda self: self.features.mixes, doc="The layers that weigh hidden states.")

    @classmethod
    def states_modules(cls, checkpoint: Checkpoint) -> bool:
        """Whether a folder states arguments, see `arguments_from_modules`."""
        return checkpoint.has_modules

    @classmethod
    def arguments_from_modules(
        cls, checkpoint: Checkpoint, limit: int, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments that a folder of sentence-transformers states.

        `limit` is the number of tokens that the backbone has positions for, or None; `given` is a
        dict of the user's arguments.
        """
        stated = read_inputs(checkpoint, limit)
        if given.keys().isdisjoint(("layers", "pooling")):
            stated |= read_head(checkpoint)
        return stated

    @classmethod
    def from_parts(cls, backbone: Backbone, pool_prompt: bool = True, **arguments: Any) -> Self:
        """Return a task; with `pool_prompt=False`, pooling leaves out its prompt.

        See `Task.from_parts` for the others.
        """
        tokenizer, prompt = arguments.get("tokenizer"), arguments.get("prompt")
        if not pool_prompt and prompt and tokenizer is not None:
            prompt = prompt.lower() if arguments.get("lowercase") else prompt
            number = _prompt_length(prompt, tokenizer, backbone.template_for(tokenizer))
            arguments = {"skipped_tokens": number} | arguments
        return super().from_parts(backbone, **arguments)

    def _check_skipped(self, skipped):
        """Raise a ValueError if sentence-transformers would leave out other tokens of a prompt."""
        if not skipped or self.tokenizer is None:
            return
        prompt = self.prompt.lower() if self.lowercase else self.prompt
        number = _prompt_length(prompt, self.tokenizer, self.template)
        if skipped != number:
            raise ValueError(
                f"FeatureExtractor has skipped_tokens={skipped}, and sentence-transformers leaves "
                f"out all {number} tokens before a text with prompt={self.prompt!r}, or none: make "
                f"it with skipped_tokens={number}, or 0."
            )

    def published_labels(self) -> Any:
        arguments = self.features.get_arguments()
        self._check_skipped(arguments["skipped_tokens"])
        for name, only in (("layers", "last"), ("num_lstm_layers", 0)):
            if arguments[name] != only:
                raise ValueError(
                    f"FeatureExtractor has {name}={arguments[name]!r}, and sentence-transformers "
                    f"supports only {only!r}."
                )
        check_modules(arguments["pooling"], arguments["projections"])
        own, width = (
            x.shape[-1]
            for x in (self.backbone.hidden_states[-1], self.backbone.output["sequence_output"])
        )
        if own != width:
            raise ValueError(
                f"FeatureExtractor pools vectors of {own} numbers, and sentence-transformers the "
                f"{width} of {type(self.backbone).__name__}'s sequence_output."
            )
        is_static = "hidden_dim" not in self.backbone.config
        if is_static:
            self._check_static(arguments["pooling"])
        elif self.tokenizer is not None and "pad" not in self.tokenizer.special_tokens:
            raise ValueError(
                f"{type(self.tokenizer).__name__} has no pad_token, without which "
                "sentence-transformers takes no two texts: make it with one, such as its eos_token."
            )
        return None

    def _check_static(self, pooling):
        """Raise a ValueError if a `StaticEmbedding` would make another vector of a text."""
        side = self.packing["truncation_side"]
        for name, value, only in (
            ("pooling", pooling, "mean"),
            ("lowercase", self.lowercase, False),
            ("truncation_side", side, "right"),
        ):
            if value != only:
                raise ValueError(
                    f"{type(self).__name__} over static vectors has {name}={value!r}, and "
                    f"sentence-transformers' StaticEmbedding supports only {only!r}."
                )

    def write_modules(self, folder: PathLike) -> None:
        hidden_dim = self.backbone.config.get("hidden_dim")
        arguments = self.features.get_arguments()
        write_modules(folder, hidden_dim, arguments, self.written_layers(), self.written_inputs())

    def written_layers(self) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
        """Return what describes each of `projections`, and its arrays by name."""
        stated = self.features.get_arguments()["projections"] or []
        return [
            (
                settings,
                {
                    v.path.partition(f"{layer.name}/")[2]: keras.ops.convert_to_numpy(v)
                    for v in layer.weights
                },
            )
            for settings, layer in zip(stated, self.features.projections, strict=True)
        ]

    def written_inputs(self) -> dict[str, Any]:
        """Return how texts are read, as sentence-transformers' files have it."""
        return {
            "sequence_length": self.packing["sequence_length"],
            "prompt": self.prompt,
            "lowercase": self.lowercase,
            "prompts": getattr(self, "prompts", {}),
        }

    def get_arguments(self) -> dict[str, Any]:
        own = {"prompt": self.prompt, "lowercase": self.lowercase}
        return super().get_arguments() | self.features.get_arguments() | own

    def preprocessing(self) -> dict[str, Any]:
        return super().preprocessing() | {"prompt": self.prompt, "lowercase": self.lowercase}

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        (vectors,) = self.features(self.backbone.select_inputs(inputs), training=training).values()
        return vectors

    def single_output(self) -> Any:
        return ("embedding", None) if len(self.output.shape) == 2 else None

    def embed(self, x: RawTexts, batch_size: int = 32, verbose: int | str = "auto") -> np.ndarray:
        """Return `embedding` for raw texts in any form that `predict` takes.

        `verbose`: see `Task.answer_all`.
        """
        return self.answer_all(x, batch_size, verbose=verbose)

    def as_transformer(self, batch_size: int = 32) -> Any:
        """Return it as a transformer of scikit-learn, texts → vectors, for its pipelines.

        Raises:
            ImportError: if scikit-learn is not installed.
            ValueError: if there is no single vector for each text, with `pooling="none"`.
        """
        if self.predicts_sequences:
            raise ValueError(
                "pooling='none' makes a vector for each token, and scikit-learn takes one for each "
                "text: use another pooling."
            )
        # It subclasses scikit-learn's, which may be missing.
        from keras_lm.tasks.sklearn_transformer import TextTransformer

        return TextTransformer(self, batch_size)

    def other_signatures(self) -> dict[str, Any]:
        specs, is_pair = self.packer.specs, self.text_pair
        if not self.packer.takes_words:
            return {}
        return {"default": specs(is_pair), "tokens": specs(is_pair, words=True)}


def _prompt_length(prompt, tokenizer, template):
    """Return how many tokens sentence-transformers counts as a prompt's.

    They are those of the prompt as a text, without the special token at its end.
    """
    special = len(template.pieces("single")) - 1
    ends_special = template.pieces("single")[-1][0] != "$A"
    return special - ends_special + len(tokenizer([prompt]).to_list()[0])
