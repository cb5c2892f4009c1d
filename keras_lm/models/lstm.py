"""A stack of LSTMs: the language model, and the encoder, that Transformers are compared with.

Hochreiter and Schmidhuber 1997, "Long Short-Term Memory", https://doi.org/10.1162/neco.1997.9.8.1735;
as a language model Zaremba et al. 2014, "Recurrent Neural Network Regularization",
https://arxiv.org/abs/1409.2329.

Differs from AWD-LSTM (`ulmfit.py`): all layers have one width and one dropout; no weights and no
words are dropped, and the loss has no penalties; the heads are plain, and texts are read without
special tokens.

Shapes: B batch, S sequence, D hidden, V vocabulary.
"""

import keras

from keras_lm.layers import EachTokenClassifier, MeanPooledClassifier
from keras_lm.models.ulmfit import AWDLSTMBackbone
from keras_lm.packers import Template


@keras.saving.register_keras_serializable("keras_lm")
class LSTMBackbone(AWDLSTMBackbone):
    """A stack of LSTMs over words, or with `bidirectional=True` of LSTMs in both directions.

    With `CausalLM` it is the LSTM language model, whose output layer is the word table
    (Press and Wolf 2017, https://arxiv.org/abs/1608.05859). With `TextClassifier` and
    `TokenClassifier` it is the (bi)LSTM that reads texts and tags words from scratch. A model that
    predicts words in both directions is another: each direction has a stack of its own, which
    `BidirectionalLM` trains over `ElmoBackbone`.

    Args:
        vocabulary_size: int. V.
        num_layers: int. LSTMs, one on the other.
        hidden_dim: int. D, also of a word. The paper's models are 200, 650 and 1500 wide.
        bidirectional: bool. Let one half of each layer read backwards.
        dropout: float. Share dropped, in training, in front of each layer and of a head. All tokens
            of a text lose the same features.
        dtype: a dtype policy or its name.
        name: str.

    Call: `backbone({"token_ids": …, "padding_mask": …, "states": …})`, the first two (B, S) int32;
    all but the first may be left out, and the states are then zero. Returns `sequence_output`
    (B, S, D), which is zero at padding, and the `states` behind the last token.

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

    Source: Zaremba et al., sections 3 and 4.1. There dropout takes other features of each token,
    and the output layer has weights of its own.
    """

    SIZES = {}
    PUBLISHED = {}
    CONVERTERS = {}
    TEMPLATE = Template(single="$A:0", pair="$A:0 $B:0")
    LEARNING_RATE = 1e-3

    def __init__(
        self,
        vocabulary_size,
        num_layers=2,
        hidden_dim=650,
        bidirectional=False,
        dropout=0.2,
        dtype=None,
        name="lstm_backbone",
    ):
        super().__init__(
            vocabulary_size,
            num_layers,
            hidden_dim,
            embedding_dim=hidden_dim,
            bidirectional=bidirectional,
            dropout=dropout,
            input_dropout=dropout,
            output_dropout=dropout,
            embedding_dropout=0.0,
            weight_drop=0.0,
            activation_penalty=0.0,
            slowness_penalty=0.0,
            dtype=dtype,
            name=name,
        )

    def get_config(self):
        arguments = ("vocabulary_size", "num_layers", "hidden_dim", "bidirectional", "dropout")
        config = super().get_config()
        return {name: config[name] for name in (*arguments, "dtype", "name")}

    def make_head(self, kind, **options):
        if kind == "causal_lm" and self.config["bidirectional"]:
            raise ValueError(
                "bidirectional=True: this model reads the word that it would predict. Pass False, "
                "or train BidirectionalLM over an ElmoBackbone."
            )
        options = {"dropout": self.config["dropout"], "dtype": self.dtype_policy} | options
        if kind == "classification":
            return MeanPooledClassifier(name="classifier", **options)
        if kind == "token_classification":
            return EachTokenClassifier(name="classifier", **options)
        return super().make_head(kind)
