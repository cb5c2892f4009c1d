"""Tasks: what a person wants a model to do."""

from keras_lm.tasks.feature_extractor import FeatureExtractor
from keras_lm.tasks.masked_lm import MaskedLM
from keras_lm.tasks.pretrainer import Pretrainer
from keras_lm.tasks.task import Task
from keras_lm.tasks.text_classifier import TextClassifier
from keras_lm.tasks.text_regressor import TextRegressor

__all__ = [
    "FeatureExtractor",
    "MaskedLM",
    "Pretrainer",
    "Task",
    "TextClassifier",
    "TextRegressor",
]
