"""Optimizers, learning-rate schedules, and training runs that may be interrupted."""

from keras_lm.training.adapters import enable_adapters, load_adapters, save_adapters
from keras_lm.training.averaging import AverageWeights
from keras_lm.training.checkpointing import OrbaxTrainingCheckpoint, TrainingCheckpoint
from keras_lm.training.decays import InverseSquareRoot, SlantedTriangular, WarmupPolynomialDecay
from keras_lm.training.few_labels import fit_few
from keras_lm.training.fine_tuning import DiscriminativeAdamW, GradualUnfreezing, layer_groups
from keras_lm.training.lora import enable_lora, load_lora, save_lora
from keras_lm.training.model_parallel import layout_of_transformers, model_parallel
from keras_lm.training.optimizers import AdamW, Lamb, WarmupLinearDecay
from keras_lm.training.progress import EvaluateEvery, GenerateEachEpoch, TokensPerSecond
from keras_lm.training.rematerialization import enable_rematerialization
from keras_lm.training.runs import Run
from keras_lm.training.smoothing import AdversarialSmoothing
from keras_lm.training.streams import evaluate_streams, fit_sentences, fit_streams
from keras_lm.training.windows import fit_windows
from keras_lm.utils.processes import start_processes

__all__ = [
    "AdamW",
    "AdversarialSmoothing",
    "AverageWeights",
    "DiscriminativeAdamW",
    "EvaluateEvery",
    "GenerateEachEpoch",
    "GradualUnfreezing",
    "InverseSquareRoot",
    "Lamb",
    "OrbaxTrainingCheckpoint",
    "Run",
    "SlantedTriangular",
    "TokensPerSecond",
    "TrainingCheckpoint",
    "WarmupLinearDecay",
    "WarmupPolynomialDecay",
    "enable_adapters",
    "enable_lora",
    "enable_rematerialization",
    "evaluate_streams",
    "fit_few",
    "fit_sentences",
    "fit_streams",
    "fit_windows",
    "layer_groups",
    "layout_of_transformers",
    "load_adapters",
    "load_lora",
    "model_parallel",
    "save_adapters",
    "save_lora",
    "start_processes",
]
