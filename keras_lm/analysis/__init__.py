"""Looking inside a model: what its vectors hold, and what it is made of.

Functions take a task, or a backbone with its tokenizer, and strings; they return arrays and small
dataclasses. Pictures of these need matplotlib (the extra `plot`), what learns scikit-learn (the
extra `sklearn`). How much context a language model uses is measured by
`keras_lm.metrics.relative_effective_context_length`.
"""

from keras_lm.analysis.attention_maps import (
    AttentionMap,
    Neurons,
    OffsetMap,
    TextAttention,
    attention,
    dot_product_variance,
    neurons,
    offset_map,
)
from keras_lm.analysis.attention_page import AttentionPage
from keras_lm.analysis.attention_pictures import draw_head, draw_heads
from keras_lm.analysis.attributions import (
    Attributions,
    gradient_times_input,
    integrated_gradients,
    step_gradient_norms,
)
from keras_lm.analysis.drawings import Picture
from keras_lm.analysis.head_importance import (
    HeadStatistics,
    attention_layers,
    head_importance,
    head_statistics,
    masked_heads,
    prune_heads,
    pruning_curve,
)
from keras_lm.analysis.probing import LayerProbes, probe_layers
from keras_lm.analysis.projections import draw_points, principal_components, tsne, write_projector
from keras_lm.analysis.similarity import (
    cosine_similarity,
    nearest_neighbors,
    rotation,
    spearman,
    word_similarity,
)
from keras_lm.analysis.vocabulary_contents import VocabularyContents, vocabulary_contents
from keras_lm.analysis.word_readings import WordVectors, vectors_of_word, word_vectors

__all__ = [
    "AttentionMap",
    "AttentionPage",
    "Attributions",
    "HeadStatistics",
    "LayerProbes",
    "Neurons",
    "OffsetMap",
    "Picture",
    "TextAttention",
    "VocabularyContents",
    "WordVectors",
    "attention",
    "attention_layers",
    "cosine_similarity",
    "dot_product_variance",
    "draw_head",
    "draw_heads",
    "draw_points",
    "gradient_times_input",
    "head_importance",
    "head_statistics",
    "integrated_gradients",
    "masked_heads",
    "nearest_neighbors",
    "neurons",
    "offset_map",
    "principal_components",
    "probe_layers",
    "prune_heads",
    "pruning_curve",
    "rotation",
    "spearman",
    "step_gradient_norms",
    "tsne",
    "vectors_of_word",
    "vocabulary_contents",
    "word_similarity",
    "word_vectors",
    "write_projector",
]
