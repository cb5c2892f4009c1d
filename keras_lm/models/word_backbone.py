"""What models with a vector per word share."""

from keras_lm.layers import EachTokenClassifier, MeanPooledClassifier, SpanHead
from keras_lm.models.backbone import Backbone, Head, from_backbone
from keras_lm.packers import Template


class WordBackbone(Backbone):
    """A model with a vector per word, for texts of any length; heads read their mean, or each."""

    TEMPLATE = Template(single="$A:0", pair="$A:0 $B:0")
    HEADS = {
        "classification": Head(
            MeanPooledClassifier, "classifier", dropout=from_backbone("dropout")
        ),
        "token_classification": Head(
            EachTokenClassifier, "classifier", dropout=from_backbone("dropout")
        ),
        "question_answering": Head(SpanHead, "span_head"),
    }
    learning_rate = 1e-3
    forward_flops = None
