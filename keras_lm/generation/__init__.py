"""Generation: continuing prompts, and scoring texts, with any model that predicts the next token.

Everything runs in the graph. `keras_lm.tasks.CausalLM` is the way to it; the loop is in `decoding`.
"""
