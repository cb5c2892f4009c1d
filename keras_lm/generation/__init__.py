"""Generation: continuing prompts, and scoring texts, with any model that predicts the next token.

Everything runs in the graph. `keras_lm.tasks.CausalLM` is the way to it; the modules are

- `options`: a caller's options, for each row of a batch;
- `logits`: processing of the next token's logits, `samplers`: sampling of a token;
- `decoding`: the loop, `beam_search`: the same for several beams, `stopping`: stop strings;
- `prompts`: prompts of different lengths in one batch;
- `scoring`: log-likelihoods, in windows.
"""
