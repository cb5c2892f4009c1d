"""Generation: continuing prompts and scoring texts with any model that predicts the next token.

Everything runs in the graph. Users call `keras_lm.tasks.CausalLM`; the loop is in `decoding`.
"""

from keras_lm.generation.logits import Rules
from keras_lm.generation.options import Sampling

__all__ = ["Rules", "Sampling"]
