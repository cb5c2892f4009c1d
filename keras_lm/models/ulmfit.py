"""ULMFiT: a stack of LSTMs as a language model, AWD-LSTM, fine-tuned into a classifier.

Shapes: B batch, S sequence, E width of the embedding and of the output, V vocabulary.
"""

import math
from collections.abc import Sequence
from typing import Self

import keras
import numpy as np
from keras import ops

from keras_lm.layers.recurrent import LSTM, BidirectionalLSTM
from keras_lm.models.backbone import Backbone, Head, Input, from_backbone
from keras_lm.models.checked_arguments import Whole
from keras_lm.models.sizes import kernels
from keras_lm.models.ulmfit_layers import AWDLSTMHead, ConcatPoolingClassifier, WordDropout
from keras_lm.packers import Template
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.tokenizers.words import WordTokenizer
from keras_lm.utils.argument_types import DType


@keras.saving.register_keras_serializable("keras_lm")
class AWDLSTMBackbone(Backbone):
    """The AWD-LSTM that ULMFiT pretrains and fine-tunes.

    Args:
        vocabulary_size, num_layers: int. V, and the number of stacked LSTMs.
        hidden_dim: int. Width of all layers except the last.
        embedding_dim: int. E, width of the embedding and of the last layer.
        bidirectional: bool. Whether one half of each layer reads backwards; widths are even then.
        dropout: float. Fraction dropped in training between the layers. All dropouts except those
            of weights and of words drop the same features of all tokens of a text.
        embedding_dropout: float. Fraction of the vocabulary's words whose embedding is zero.
        input_dropout: float. Fraction of the embedding dropped.
        weight_drop: float. Fraction of the recurrent weights dropped; see `keras_lm.layers.LSTM`.
        output_dropout: float. Fraction of the last layer's output dropped before a head.
        activation_penalty: float α. In training, heads add α times the mean square of the last
            layer's output to the loss.
        slowness_penalty: float β. The same of the difference between neighbouring tokens.
        classifier_dims: list of int. Widths of the hidden layers of the classification head.
        pooled_length: int. How many of a text's last tokens that head pools, None for all.
        pooled_chunk: int. The tokens skipped before them are a multiple of this.
        dtype: a dtype policy or its name.

    Call: `backbone({"token_ids": …, "padding_mask": …, "states": …})`, the first two (B, S) int32;
    all but the first are optional. Returns `sequence_output` (B, S, E), which is zero at padding,
    and the `states` after the last token: for each layer
    `{"hidden": (B, width), "cell": (B, width)}`, zero by default. Padding, on either side, does not
    change them.

    Raises:
        ValueError: if widths cannot be halved for two directions.

    Example:

        backbone = keras_lm.models.AWDLSTMBackbone(
            vocabulary_size=100, num_layers=2, hidden_dim=24, embedding_dim=16
        )
        first = backbone({"token_ids": [[5, 7, 3]]})
        backbone({"token_ids": [[4, 8]], "states": first["states"]})["sequence_output"]

    Source: ULMFiT: Howard and Ruder 2018, https://arxiv.org/abs/1801.06146, section 3.1 and
    appendix; AWD-LSTM: Merity et al. 2017, https://arxiv.org/abs/1708.02182, sections 2 to 4;
    fastai 2.7, `fastai/text/models/awdlstm.py`.
    """

    TEMPLATE = Template(single="xxbos:0 $A:0", pair="xxbos:0 $A:0 xxfld:0 $B:0")
    _OUTPUT = {
        name: from_backbone(name)
        for name in ("output_dropout", "activation_penalty", "slowness_penalty")
    }
    HEADS = {
        "causal_lm": Head(
            AWDLSTMHead, "token_head", token_embedding=from_backbone("token_embedding"), **_OUTPUT
        ),
        "classification": Head(
            ConcatPoolingClassifier,
            "classifier",
            classifier_dims=from_backbone("classifier_dims"),
            pooled_length=from_backbone("pooled_length"),
            pooled_chunk=from_backbone("pooled_chunk"),
            **_OUTPUT,
        ),
    }
    RANGES = {"pooled_length": Whole(is_optional=True)}
    tokenizer_class = WordTokenizer
    learning_rate = 1e-3

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int = 3,
        hidden_dim: int = 1152,
        embedding_dim: int = 400,
        bidirectional: bool = False,
        dropout: float = 0.15,
        embedding_dropout: float = 0.02,
        input_dropout: float = 0.25,
        weight_drop: float = 0.2,
        output_dropout: float = 0.1,
        activation_penalty: float = 2.0,
        slowness_penalty: float = 1.0,
        classifier_dims: Sequence[int] = (50,),
        pooled_length: int = 1440,
        pooled_chunk: int = 72,
        dtype: DType = None,
        name: str = "awd_lstm_backbone",
    ):
        if bidirectional and (hidden_dim % 2 or embedding_dim % 2):
            raise ValueError(
                f"bidirectional=True halves hidden_dim={hidden_dim} and "
                f"embedding_dim={embedding_dim}: pass even numbers."
            )

        super().__init__(
            inputs={
                "token_ids": Input(),
                "padding_mask": Input(default=1, like="token_ids"),
                "states": Input(is_state=True),
            },
            dtype=dtype,
            name=name,
        )
        self.token_embedding = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            embedding_dim,
            embeddings_initializer=keras.initializers.RandomUniform(-0.1, 0.1),
            dtype=dtype,
            name="token_embedding",
        )
        self.word_dropout = WordDropout(
            vocabulary_size, embedding_dropout, dtype=dtype, name="word_dropout"
        )
        # `SpatialDropout1D` drops the same features of all tokens: "locked", "variational".
        self.input_dropout = keras.layers.SpatialDropout1D(
            input_dropout, dtype=dtype, name="input_dropout"
        )
        widths = [hidden_dim] * (num_layers - 1) + [embedding_dim]
        self.lstms = [
            BidirectionalLSTM(width // 2, weight_drop=weight_drop, dtype=dtype, name=f"lstm_{i}")
            if bidirectional
            else LSTM(width, weight_drop=weight_drop, dtype=dtype, name=f"lstm_{i}")
            for i, width in enumerate(widths)
        ]
        self.dropouts = [
            keras.layers.SpatialDropout1D(dropout, dtype=dtype, name=f"dropout_{i}")
            for i in range(num_layers - 1)
        ]
        self.finish()

    def forward(self, token_ids, padding_mask, states=None, training=None):
        states = [None] * len(self.lstms) if states is None else states
        x = self.token_embedding(token_ids)
        hidden_states, new_states = [x], []  # (B, S, width)
        x = self.word_dropout(x, token_ids, training=training)
        x = self.input_dropout(x, training=training)
        for i, (lstm, state) in enumerate(zip(self.lstms, states, strict=True)):
            if i > 0:
                x = self.dropouts[i - 1](x, training=training)
            x, state = lstm(x, padding_mask=padding_mask, state=state, training=training)
            hidden_states.append(x)
            new_states.append(state)
        return {"sequence_output": x, "states": new_states, "hidden_states": hidden_states}

    @property
    def is_causal(self):
        return not self.config["bidirectional"]

    def initial_state(self, batch_size, length=0):
        widths = [lstm.compute_output_shape((None, None, 1))[0][-1] for lstm in self.lstms]
        zeros = [ops.zeros((batch_size, width), self.compute_dtype) for width in widths]
        return [{"hidden": zero, "cell": zero} for zero in zeros]

    def forward_flops(self):
        # The tied embedding multiplies too, for the logits.
        return 2 * (kernels(self.lstms) + math.prod(self.token_embedding.embeddings.shape))

    def with_vocabulary(self, old: Tokenizer, new: Tokenizer) -> Self:
        """Return a copy for another vocabulary, such as that of a target task's texts.

        A word in both `old` and `new`, lists of words by id, keeps its embedding; a new one starts
        from the mean of all (ULMFiT, section 3.2; fastai 2.7, `match_embeds`).

        Raises:
            ValueError: if `old` has more words than the embedding has rows.

        Example:

            backbone = backbone.with_vocabulary(tokenizer.vocabulary, target_tokenizer.vocabulary)
        """
        table = ops.convert_to_numpy(self.token_embedding.embeddings)
        if len(old) > len(table):
            raise ValueError(f"old has {len(old)} words, but the embedding {len(table)} rows.")
        rows = dict(zip(old, table, strict=False))
        mean = table[: len(old)].mean(axis=0)
        copy = self.from_config(self.get_config() | {"vocabulary_size": len(new)})
        for variable, trained in zip(copy.weights, self.weights, strict=True):
            if trained is self.token_embedding.embeddings:
                variable.assign(np.stack([rows.get(word, mean) for word in new]))
            else:
                variable.assign(trained)
        return copy


AWDLSTMBackbone.SIZES = {
    "awd_lstm_base_en": {
        "vocabulary_size": 60000,
        "num_layers": 3,
        "hidden_dim": 1152,
        "embedding_dim": 400,
    },
}
AWDLSTMBackbone.PUBLISHED = {
    "awd_lstm_base_en": "https://s3.amazonaws.com/fast-ai-modelzoo/wt103-fwd.tgz (unpacked)",
}
