"""Generation: continuing prompts, and scoring texts, with any model that predicts the next token.

Everything runs in the graph. `keras_lm.tasks.CausalLM` is the way to it; the modules are

- `options`: what a caller may choose, for each row of a batch;
- `logits`: what changes the next token's logits, `samplers`: how a token is picked;
- `decoding`: the loop, `beam_search`: the same for several beams, `stopping`: stop strings;
- `prompts`: prompts of different lengths in one table;
- `scoring`: log-likelihoods, in windows.
"""
