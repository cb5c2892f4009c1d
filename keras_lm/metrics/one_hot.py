"""Keras's metrics of one-hot labels for class numbers. Shapes: B batch, S sequence, C classes."""

import keras

from keras_lm.objectives import IGNORED
from keras_lm.tensorflow import tf

# Keras's metrics that take one-hot labels and probabilities.
ONE_HOT = (
    keras.metrics.AUC,
    keras.metrics.CategoricalAccuracy,
    keras.metrics.CategoricalCrossentropy,
    keras.metrics.FBetaScore,  # and F1Score
    keras.metrics.FalseNegatives,
    keras.metrics.FalsePositives,
    keras.metrics.OneHotMeanIoU,
    keras.metrics.Precision,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.Recall,
    keras.metrics.RecallAtPrecision,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.TopKCategoricalAccuracy,
    keras.metrics.TrueNegatives,
    keras.metrics.TruePositives,
)


@keras.saving.register_keras_serializable("keras_lm")
class OneHotMetric(keras.metrics.Metric):
    """Wraps a Keras metric of one-hot labels and probabilities to take class numbers and logits.

    A task's `compile` wraps the metrics that need it.

    Args:
        metric: `keras.metrics.Metric`, one of `ONE_HOT`.
        multi_label: bool. Whether labels are (B, C) of 0 and 1, instead of class numbers, (B,) or
            (B, S).
    """

    def __init__(self, metric, multi_label=False, name=None, **kwargs):
        super().__init__(name=name or metric.name, **kwargs)
        self.metric = metric
        self.multi_label = multi_label

    def update_state(self, labels, logits, sample_weight=None):
        labels, logits = tf.convert_to_tensor(labels), tf.cast(logits, tf.float32)
        if self.multi_label:
            probabilities = tf.sigmoid(logits)
        else:
            known = labels != IGNORED
            if sample_weight is not None and labels.shape.rank == 2:
                weight = tf.reshape(sample_weight, [tf.shape(sample_weight)[0], -1])  # (B, 1 or S)
                sample_weight = tf.broadcast_to(weight, tf.shape(labels))[known]
            probabilities = tf.nn.softmax(logits[known])
            labels = tf.one_hot(tf.cast(labels[known], tf.int32), logits.shape[-1])
        self.metric.update_state(labels, probabilities, sample_weight=sample_weight)

    def reset_state(self):
        self.metric.reset_state()

    def result(self):
        return self.metric.result()

    def get_config(self):
        metric = keras.saving.serialize_keras_object(self.metric)
        return super().get_config() | {"metric": metric, "multi_label": self.multi_label}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config.pop("metric")), **config)
