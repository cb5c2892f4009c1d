"""Metrics that Keras lacks: of entities, coreference, answers, labels, vectors and texts."""

from keras_lm.metrics.constituent_f1 import ConstituentF1
from keras_lm.metrics.context_length import context_losses, relative_effective_context_length
from keras_lm.metrics.coreference_f1 import CoreferenceF1
from keras_lm.metrics.embedding_metrics import CosineSpearman, InBatchRecall
from keras_lm.metrics.entity_f1 import EntityF1
from keras_lm.metrics.generation_metrics import Bleu, ChrF, Rouge
from keras_lm.metrics.label_metrics import (
    BestThresholdAccuracy,
    BinaryF1,
    ExpectedCalibrationError,
    LooseF1,
    MatthewsCorrelation,
    MicroF1,
    PearsonCorrelation,
    SpearmanCorrelation,
)
from keras_lm.metrics.squad_answers import AnswerF1, ExactMatch, NoAnswerAccuracy

__all__ = [
    "AnswerF1",
    "BestThresholdAccuracy",
    "BinaryF1",
    "Bleu",
    "ChrF",
    "ConstituentF1",
    "CoreferenceF1",
    "CosineSpearman",
    "EntityF1",
    "ExactMatch",
    "ExpectedCalibrationError",
    "InBatchRecall",
    "LooseF1",
    "MatthewsCorrelation",
    "MicroF1",
    "NoAnswerAccuracy",
    "PearsonCorrelation",
    "Rouge",
    "SpearmanCorrelation",
    "context_losses",
    "relative_effective_context_length",
]
