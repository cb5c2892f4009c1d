"""What a backbone shows of its inside: hidden states, attention, all that it computes."""


class LookingInside:
    """The methods of a backbone for analysis."""

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
