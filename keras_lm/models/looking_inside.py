"""What a backbone shows of its inside, and what it computes per token."""

from keras_lm.models.sizes import kernels


class LookingInside:
    """The methods of a backbone for analysis and estimates."""

    @property
    def hidden_states(self):
        """Symbolic tensors: the embedding's output, then that of each block."""
        return self.symbolic["hidden_states"]

    def compute(self, inputs, training=None):
        """Return all that `forward` computes for the inputs of a call, hidden states too."""
        computed = self.forward(**self.complete(inputs), training=training)
        return computed | self._outputs(computed)

    def attention_probabilities(self, inputs):
        """Return the attention probabilities, a list of (B, N, S, T) float32, one per block.

        Raises:
            ValueError: if the model has no attention, or none with heads.
        """
        if "attention_contexts" not in self.symbolic:
            raise ValueError(
                f"{type(self).__name__} has no attention with heads to look at: see hidden_states."
            )
        computed = self.compute(inputs)
        states, contexts = computed["hidden_states"], computed["attention_contexts"]
        return [
            block.attention_probabilities(x, context)
            for block, x, context in zip(self.blocks, states[:-1], contexts, strict=True)
        ]

    @classmethod
    def of_width(cls, size, hidden_dim):
        """Return what a size, a dict of arguments, changes where it is `hidden_dim` wide."""
        if "intermediate_dim" not in size:
            return {"hidden_dim": hidden_dim}
        inner = hidden_dim * size["intermediate_dim"] // size["hidden_dim"]
        return {"hidden_dim": hidden_dim, "intermediate_dim": inner}

    def forward_flops(self):
        """Return the FLOPs of a forward for the last token of a full sequence.

        They are those of blocks with attention: two for each weight of a kernel, and four for each
        channel of each attended token. Another model overrides this, or has None: then there is no
        `keras_lm.models.sizes.estimate`.
        """
        return 2 * kernels(self.blocks) + 4 * self.attended_tokens() * self.config["hidden_dim"]

    def attended_tokens(self):
        """Return to how many tokens the last one of a full sequence attends, in all blocks."""
        return len(self.blocks) * self.max_sequence_length
