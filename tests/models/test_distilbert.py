"""What is DistilBERT's own: its head, its sines, its two rates of dropout."""

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.models import Backbone, DistilBertBackbone
from keras_lm.models.sizes import transformer_size

# The head of the masked language model is left over.
pytestmark = pytest.mark.filterwarnings("ignore:DistilBertBackbone.from_preset")
TINY = transformer_size(9, 1, 6, 2, 8, max_sequence_length=8)


@pytest.mark.parametrize("cls", [tasks.TextClassifier, tasks.MultipleChoice])
def test_texts_are_classified_by_a_dense_layer_with_relu(cls):
    is_choice = cls is tasks.MultipleChoice
    task = cls(DistilBertBackbone(**TINY), **({} if is_choice else {"num_classes": 3}))
    ids = np.array([[3, 4, 5], [6, 7, 8]])
    kernel, bias, out_kernel, out_bias = (w.numpy() for w in task.head.trainable_weights)
    first = task.backbone({"token_ids": ids})["sequence_output"].numpy()[:, 0]
    expected = np.maximum(first @ kernel + bias, 0) @ out_kernel + out_bias
    actual = task({"token_ids": ids[None] if is_choice else ids})
    np.testing.assert_allclose(actual, expected.T if is_choice else expected, atol=1e-5)


def test_sines_are_not_trained(variant):
    backbone = DistilBertBackbone(**TINY, sinusoidal=True)
    table = backbone.position_embedding.embeddings
    assert table.path not in {w.path for w in backbone.trainable_weights}
    expected = [f(2 / 10000 ** (k / 6)) for k in (0, 2, 4) for f in (np.sin, np.cos)]
    np.testing.assert_allclose(table.numpy()[2], expected, atol=1e-6)
    # A checkpoint has them among its tensors.
    folder = variant("distilbert", {"sinusoidal_pos_embds": True})
    loaded = Backbone.from_preset(folder).position_embedding.embeddings
    assert not loaded.trainable
    again = Backbone.from_preset(folder, sinusoidal=False).position_embedding.embeddings
    np.testing.assert_array_equal(loaded, again)


def test_dropout_of_classifiers(variant):
    backbone = Backbone.from_preset(variant("distilbert", {"qa_dropout": 0.4}))
    assert backbone.config["dropout"] == 0.1
    assert backbone.make_head("classification", num_classes=2).dropout_rate == 0.2
    assert backbone.make_head("token_classification", num_classes=2).dropout_rate == 0.1
    assert DistilBertBackbone(**TINY).make_head("multiple_choice").dropout_rate == 0.1
