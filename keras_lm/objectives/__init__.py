"""Training objectives and losses, one class each."""

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.bidirectional_lm import BidirectionalLanguageModel, DirectionPerplexity
from keras_lm.objectives.causal_lm import (
    BitsPerToken,
    CausalLanguageModel,
    Perplexity,
    PerplexityOfLosses,
)
from keras_lm.objectives.denoising import DenoisingAutoencoder
from keras_lm.objectives.distillation import (
    LayerDistillation,
    MaskedLMDistillation,
    SoftCrossentropy,
    TeacherMeanSquares,
)
from keras_lm.objectives.embeddings import (
    AnglE,
    ContrastiveLoss,
    CoSENT,
    CosineMeanSquares,
    EmbeddingLoss,
    InBatchNegatives,
    MarginMeanSquares,
    Matryoshka,
    SupervisedContrastive,
    TripletLoss,
    VectorMeanSquares,
)
from keras_lm.objectives.entity_alignment import EntityAlignment
from keras_lm.objectives.late_interaction import MaxSimNegatives
from keras_lm.objectives.margin_ranking import MarginRanking, TreeHinge
from keras_lm.objectives.masked_lm import MaskedLanguageModel
from keras_lm.objectives.masked_runs import MaskedNGrams, MaskedSpans
from keras_lm.objectives.objective import (
    MaskedAccuracy,
    MaskedCrossentropy,
    MeanLoss,
    MeanOfKnown,
    Objective,
    pretraining_objectives,
    register_objective,
)
from keras_lm.objectives.permutation_lm import PermutationLanguageModel
from keras_lm.objectives.replaced_tokens import (
    MaskedBinaryCrossentropy,
    ReplacedAccuracy,
    ReplacedByGenerator,
    ReplacedPrecision,
    ReplacedRecall,
    ReplacedShare,
    ReplacedTokens,
)
from keras_lm.objectives.sentence_order import NextSentence, SentenceOrder
from keras_lm.objectives.span_boundary import SpanBoundary, SpanCrossentropy
from keras_lm.objectives.span_corruption import SpanCorruption, span_corruption_lengths
from keras_lm.objectives.sparse_embeddings import SpladeLoss

__all__ = [
    "IGNORED",
    "AnglE",
    "BidirectionalLanguageModel",
    "BitsPerToken",
    "CausalLanguageModel",
    "CoSENT",
    "ContrastiveLoss",
    "CosineMeanSquares",
    "DenoisingAutoencoder",
    "DirectionPerplexity",
    "EmbeddingLoss",
    "EntityAlignment",
    "InBatchNegatives",
    "LayerDistillation",
    "MarginMeanSquares",
    "MarginRanking",
    "MaskedAccuracy",
    "MaskedBinaryCrossentropy",
    "MaskedCrossentropy",
    "MaskedLMDistillation",
    "MaskedLanguageModel",
    "MaskedNGrams",
    "MaskedSpans",
    "Matryoshka",
    "MaxSimNegatives",
    "MeanLoss",
    "MeanOfKnown",
    "NextSentence",
    "Objective",
    "PermutationLanguageModel",
    "Perplexity",
    "PerplexityOfLosses",
    "ReplacedAccuracy",
    "ReplacedByGenerator",
    "ReplacedPrecision",
    "ReplacedRecall",
    "ReplacedShare",
    "ReplacedTokens",
    "SentenceOrder",
    "SoftCrossentropy",
    "SpanBoundary",
    "SpanCorruption",
    "SpanCrossentropy",
    "SpladeLoss",
    "SupervisedContrastive",
    "TeacherMeanSquares",
    "TreeHinge",
    "TripletLoss",
    "VectorMeanSquares",
    "pretraining_objectives",
    "register_objective",
    "span_corruption_lengths",
]
