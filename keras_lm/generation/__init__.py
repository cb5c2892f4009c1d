"""Generation: continuing prompts and scoring texts with any model that predicts the next token.

Everything runs in the graph. Users call `keras_lm.tasks.CausalLM`; the loop is in `decoding`.
"""

from keras_lm.generation.options import Sampling
from keras_lm.generation.rules import Rules

__all__ = ["Rules", "Sampling"]
