"""Tasks: what a person wants a model to do."""

# A checkpoint may hold any model and vocabulary: imported, their classes are registered.
from keras_lm import models, tokenizers  # noqa: F401
from keras_lm.tasks.bidirectional_lm import BidirectionalLM
from keras_lm.tasks.causal_lm import CausalLM
from keras_lm.tasks.constituency_parser import ConstituencyParser
from keras_lm.tasks.coreference_resolver import CoreferenceResolver
from keras_lm.tasks.distiller import Distiller
from keras_lm.tasks.ensemble import Ensemble
from keras_lm.tasks.feature_extractor import FeatureExtractor
from keras_lm.tasks.graph_choice import GraphChoice
from keras_lm.tasks.masked_lm import MaskedLM
from keras_lm.tasks.multi_task import MultiTask
from keras_lm.tasks.multi_vector_encoder import MultiVectorEncoder
from keras_lm.tasks.multiple_choice import MultipleChoice
from keras_lm.tasks.pretrainer import Pretrainer
from keras_lm.tasks.question_answerer import QuestionAnswerer
from keras_lm.tasks.sentence_encoder import SentenceEncoder
from keras_lm.tasks.seq2seq_lm import Seq2SeqLM
from keras_lm.tasks.sparse_encoder import SparseEncoder
from keras_lm.tasks.task import Task
from keras_lm.tasks.text_classifier import TextClassifier
from keras_lm.tasks.text_regressor import TextRegressor
from keras_lm.tasks.token_classifier import TokenClassifier

__all__ = [
    "BidirectionalLM",
    "CausalLM",
    "ConstituencyParser",
    "CoreferenceResolver",
    "Distiller",
    "Ensemble",
    "FeatureExtractor",
    "GraphChoice",
    "MaskedLM",
    "MultiTask",
    "MultiVectorEncoder",
    "MultipleChoice",
    "Pretrainer",
    "QuestionAnswerer",
    "SentenceEncoder",
    "Seq2SeqLM",
    "SparseEncoder",
    "Task",
    "TextClassifier",
    "TextRegressor",
    "TokenClassifier",
]
