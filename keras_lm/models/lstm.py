"""A stack of LSTMs: the language model and the encoder that Transformers are compared with.

Differs from AWD-LSTM (`ulmfit.py`): all layers have the same width and dropout; weights and words
are not dropped, and the loss has no penalties; the heads are plain, and texts are read without
special tokens.

Shapes: B batch, S sequence, D hidden, V vocabulary.
"""

from typing import Any

import keras

from keras_lm.layers.recurrent import LSTM, BidirectionalLSTM
from keras_lm.models.backbone import TOKENS, Head, Input, from_backbone
from keras_lm.models.ulmfit import AWDLSTMHead, StackedLSTMs
from keras_lm.models.word_backbone import WordBackbone
from keras_lm.tokenizers.words import WordTokenizer
from keras_lm.utils.argument_types import DType


@keras.saving.register_keras_serializable("keras_lm")
class LSTMBackbone(StackedLSTMs, WordBackbone):
    """A stack of LSTMs over words, in both directions with `bidirectional=True`.

    With `CausalLM` it is the LSTM language model, whose output layer is tied to the word embedding
    (https://arxiv.org/abs/1608.05859); with `TextClassifier` or `TokenClassifier`, the (bi)LSTM
    that is trained from scratch. To predict words in both directions takes a stack per direction:
    see `BidirectionalLM` over `ElmoBackbone`.

    Args:
        vocabulary_size, num_layers: int. V, and the number of stacked LSTMs.
        hidden_dim: int. D, also of a word. The paper's models are 200, 650 and 1500 wide.
        bidirectional: bool. Whether one half of each layer reads backwards; D must then be even.
        dropout: float. Fraction dropped in training before each layer and each head; the same
            features for all tokens of a text.
        dtype: a dtype policy or its name.

    Call: like `AWDLSTMBackbone`; `sequence_output` is (B, S, D).

    Raises:
        ValueError: if `hidden_dim` cannot be halved for two directions.

    Example:

        words = keras_lm.tokenizers.learn_words(texts, 10_000)
        tokenizer = keras_lm.tokenizers.WordTokenizer(
            words, unknown_token="<UNK>", bos_token="<S>", eos_token="</S>"
        )
        backbone = keras_lm.models.LSTMBackbone(len(words), hidden_dim=200)
        task = keras_lm.tasks.CausalLM(backbone, tokenizer=tokenizer)
        task.fit(texts)
        task.generate("the film")

    Source: Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735; Zaremba et
    al. 2014, https://arxiv.org/abs/1409.2329, sections 3 and 4.1. There dropout differs between
    tokens, and the output layer is not tied.
    """

    HEADS = WordBackbone.HEADS | {
        "causal_lm": Head(
            AWDLSTMHead,
            "token_head",
            token_embedding=from_backbone("token_embedding"),
            output_dropout=from_backbone("dropout"),
            activation_penalty=0.0,
            slowness_penalty=0.0,
        ),
    }
    tokenizer_class = WordTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int = 2,
        hidden_dim: int = 650,
        bidirectional: bool = False,
        dropout: float = 0.2,
        dtype: DType = None,
        name: str = "lstm_backbone",
    ):
        if bidirectional and hidden_dim % 2:
            raise ValueError(
                f"bidirectional=True halves hidden_dim={hidden_dim}: pass an even number."
            )
        super().__init__(TOKENS | {"states": Input(is_state=True)}, dtype, name)
        self.token_embedding = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=keras.initializers.RandomUniform(-0.1, 0.1),
            dtype=dtype,
            name="token_embedding",
        )
        self.dropout = keras.layers.SpatialDropout1D(dropout, dtype=dtype)
        self.lstms = [
            BidirectionalLSTM(hidden_dim // 2, dtype=dtype, name=f"lstm_{i}")
            if bidirectional
            else LSTM(hidden_dim, dtype=dtype, name=f"lstm_{i}")
            for i in range(num_layers)
        ]
        self.finish()

    def forward(self, token_ids, padding_mask, states=None, training=None):
        states = [None] * len(self.lstms) if states is None else states
        x = self.token_embedding(token_ids)
        hidden_states, new_states = [x], []  # (B, S, D)
        for lstm, state in zip(self.lstms, states, strict=True):
            x = self.dropout(x, training=training)
            x, state = lstm(x, padding_mask=padding_mask, state=state, training=training)
            hidden_states.append(x)
            new_states.append(state)
        return {"sequence_output": x, "states": new_states, "hidden_states": hidden_states}

    def make_head(self, kind: str, **options: Any) -> keras.layers.Layer:
        if kind == "causal_lm" and not self.is_causal:
            raise ValueError(
                "bidirectional=True: this model reads the word that it would predict. Pass False, "
                "or train BidirectionalLM over an ElmoBackbone."
            )
        return super().make_head(kind, **options)
