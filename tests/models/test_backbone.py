"""The base class: inputs with defaults of their own, state, and the functional view."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_lm.layers import CausalLMHead, PooledClassifier
from keras_lm.models import Backbone, BertBackbone
from keras_lm.models.backbone import Head, Input, from_backbone
from keras_lm.packers import Template
from keras_lm.tasks import TextClassifier


class Translator(Backbone):
    """A toy with two sequences, whose defaults each follow their own, and a state."""

    def __init__(self, vocabulary_size=10, max_sequence_length=6, dtype=None, name="translator"):
        super().__init__(
            inputs={
                "encoder_token_ids": Input(),
                "encoder_padding_mask": Input(default=1, like="encoder_token_ids"),
                "decoder_token_ids": Input(),
                "decoder_padding_mask": Input(
                    default=lambda ids: ops.cast(ids > 0, "int32"), like="decoder_token_ids"
                ),
                "memory": Input(is_state=True),
            },
            dtype=dtype,
            name=name,
        )
        self.embedding = keras.layers.Embedding(vocabulary_size, 4, dtype=dtype, name="embedding")
        self.finish()

    def forward(
        self,
        encoder_token_ids,
        encoder_padding_mask,
        decoder_token_ids,
        decoder_padding_mask,
        memory=None,
        training=None,
    ):
        source = (
            self.embedding(encoder_token_ids) * ops.cast(encoder_padding_mask, "float32")[..., None]
        )
        x = self.embedding(decoder_token_ids) * ops.cast(decoder_padding_mask, "float32")[..., None]
        total = ops.sum(source, axis=1)
        total = total if memory is None else memory["sum"] + total
        return {
            "sequence_output": x + total[:, None],
            "memory": {"sum": total},
            "hidden_states": [x],
        }

    def initial_state(self, batch_size, length=0):
        return {"sum": ops.zeros((batch_size, 4))}


@pytest.fixture(scope="module")
def translator():
    return Translator()


SOURCE, TARGET = np.array([[1, 2, 3]]), np.array([[4, 0]])


def test_each_default_follows_its_own_input(translator):
    complete = translator.complete({"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET})
    np.testing.assert_array_equal(complete["encoder_padding_mask"], [[1, 1, 1]])
    np.testing.assert_array_equal(complete["decoder_padding_mask"], [[1, 0]])
    assert "memory" not in complete


def test_every_required_input_is_asked_for_and_measured(translator):
    with pytest.raises(ValueError, match="lacks 'decoder_token_ids'"):
        translator({"encoder_token_ids": SOURCE})
    with pytest.raises(ValueError, match="decoder_token_ids has 7 columns, but max_sequence"):
        translator({"encoder_token_ids": SOURCE, "decoder_token_ids": np.ones((1, 7), "int32")})
    with pytest.raises(ValueError, match=r"unknown keys \['token_ids'\]"):
        translator({"token_ids": SOURCE})


def test_dtypes_are_those_that_are_declared(translator):
    inputs = {"encoder_token_ids": ops.convert_to_tensor(SOURCE, "float32")}
    complete = translator.complete(inputs | {"decoder_token_ids": TARGET.astype("int64")})
    assert {keras.backend.standardize_dtype(x.dtype) for x in complete.values()} == {"int32"}


def test_state_goes_in_and_out(translator):
    inputs = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}
    first = translator(inputs)
    second = translator(inputs | {"memory": first["memory"]})
    np.testing.assert_allclose(second["memory"]["sum"], 2 * first["memory"]["sum"], rtol=1e-6)
    assert translator.state_spec()["sum"].shape == (None, 4)
    two = {name: np.concatenate([x, x]) for name, x in inputs.items()}
    rest = translator(two | {"memory": first["memory"]})["memory"]["sum"]  # a row more
    np.testing.assert_allclose(rest[0], second["memory"]["sum"][0], rtol=1e-6)
    np.testing.assert_allclose(rest[1], first["memory"]["sum"][0], rtol=1e-6)


def test_outputs_leave_out_what_only_those_ask_for_who_look_inside(translator):
    inputs = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}
    assert set(translator(inputs)) == {"sequence_output", "memory"}
    assert set(translator.compute(inputs)) == {"sequence_output", "memory", "hidden_states"}
    view = keras.Model(translator.inputs, translator.hidden_states)
    (states,) = (view(translator.complete(inputs)),)
    np.testing.assert_array_equal(
        np.squeeze(states), translator.compute(inputs)["hidden_states"][0][0]
    )
    with pytest.raises(ValueError, match="no attention"):
        translator.attention_probabilities(inputs)


def test_a_model_without_state_has_none():
    class Reader(Backbone):
        def __init__(self, vocabulary_size=10, name="reader"):
            super().__init__(inputs={"token_ids": Input()}, name=name)
            self.embedding = keras.layers.Embedding(vocabulary_size, 4)
            self.finish()

        def forward(self, token_ids, training=None):
            return {"sequence_output": self.embedding(token_ids)}

    reader = Reader()
    assert reader.state_name is None
    assert reader.embedding.embeddings.path == "embedding/embeddings"  # without the model's name
    with pytest.raises(ValueError, match="Reader has no state"):
        reader.initial_state(1)


# === Heads ===


class Marked(BertBackbone):
    """A BERT whose classifier reads a token of its own, and whose language model counts beside."""

    HEADS = BertBackbone.HEADS | {
        "classification": Head(
            PooledClassifier,
            "classifier",
            template=Template(single="[CLS]:0 $A:0 [MARK]:0", pair="[CLS]:0 $A:0 $B:1 [MARK]:1"),
            lm_loss_weight=0.25,
            dropout=from_backbone("attention_dropout", "dropout"),
        ),
        "causal_lm": Head(
            CausalLMHead, "token_head", token_embedding=from_backbone("token_embedding")
        ),
    }


@pytest.fixture(scope="module")
def marked(tokenizer_of):
    rows = tokenizer_of("wordpiece").vocabulary_size
    return Marked(rows, 1, 2, 16, 24, dropout=0.3, max_sequence_length=16)


def test_a_head_is_made_as_its_table_says(marked):
    head = marked.make_head("classification", num_classes=3)
    assert (type(head), head.name, head.dropout_rate) == (PooledClassifier, "classifier", 0.3)
    assert marked.make_head("classification", num_classes=3, dropout=0.1).dropout_rate == 0.1
    assert marked.make_head("token").token_embedding is marked.token_embedding
    with pytest.raises(ValueError, match=r"Marked has no head for kind='replaced'\. It takes a mo"):
        marked.make_head("replaced")


def test_which_heads_a_checkpoint_may_lack(marked):
    new = {kind for kind in marked.HEADS if marked.is_new_head(kind)}
    assert new == {
        "classification",
        "multiple_choice",
        "token_classification",
        "question_answering",
    }


@pytest.mark.eager
def test_a_head_brings_its_tokens_and_its_loss(marked, tokenizer_of):
    tokenizer = tokenizer_of("wordpiece")
    task = TextClassifier(marked, tokenizer=tokenizer, num_classes=2)
    assert task.get_arguments()["lm_loss_weight"] == 0.25
    assert task.missing_tokens() == ["[MARK]"]
    assert {path.split("/")[0] for path in task.new_weights()} == {"classifier"}
    grown = task.with_fine_tuning_tokens()
    assert grown.missing_tokens() == []
    ids = grown.preprocess(["a film"])["token_ids"][0].numpy()
    assert ids[-1] == grown.tokenizer.token_to_id("[MARK]")


def test_stateless_call_fills_in_inputs():
    """As a call does: segments are left out, and unknown keys refused."""
    backbone = BertBackbone(20, 1, 2, 8, 16, max_sequence_length=6)
    ids = np.array([[3, 4, 0]], "int32")
    variables = backbone.trainable_variables, backbone.non_trainable_variables
    values = [[variable.value for variable in some] for some in variables]
    actual, _ = backbone.stateless_call(*values, {"token_ids": ids})
    expected = backbone({"token_ids": ids})["sequence_output"]
    np.testing.assert_allclose(actual["sequence_output"], expected, atol=1e-6)
    with pytest.raises(ValueError, match="unknown keys"):
        backbone.stateless_call(*values, {"ids": ids})
