"""Next-sentence prediction: does the second text of a pair follow the first? Shapes: B batch."""

from keras_lm.objectives.losses import MaskedCrossentropy
from keras_lm.objectives.objective import MaskedAccuracy, Objective, register_objective


@register_objective
class NextSentence(Objective):
    """BERT's second objective; its labels (B,) come with the pairs, 0 if the second text follows.

    Source: https://arxiv.org/abs/1810.04805, section 3.1, task 2.
    """

    heads = {"next_sentence_logits": "next_sentence"}
    row_names = ()
    labels_of_data = "which second texts follow (0) and which do not (1)"
    uses_pooler = True

    def loss(self):
        return MaskedCrossentropy()

    def metrics(self):
        return [MaskedAccuracy()]
