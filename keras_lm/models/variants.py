"""Variants of a backbone: with a larger vocabulary, with fewer blocks, with adapters."""

from collections.abc import Sequence
from typing import Self

from keras import ops

from keras_lm.layers import Dense
from keras_lm.models.students import chosen_layers, config_with, copy_layers


class Variants:
    """The methods of a backbone that return a changed copy of it, or add adapters to it."""

    def with_vocabulary_size(self, vocabulary_size):
        """Return a copy whose token embedding has more rows, not fewer; new ones are random.

        Raises:
            ValueError: if `vocabulary_size` is less than now.
        """
        rows = self.vocabulary_size
        if vocabulary_size < rows:
            raise ValueError(f"vocabulary_size={vocabulary_size} is less than the current {rows}.")
        copy = self.from_config(self.get_config() | {"vocabulary_size": vocabulary_size})
        for variable, old in zip(copy.weights, self.weights, strict=True):
            if variable.shape == old.shape:
                variable.assign(old)
            else:  # the embedding
                variable.assign(ops.concatenate([old, variable[old.shape[0] :]], axis=0))
        copy.origin = self.origin
        return copy

    def with_layers(self, layers: Sequence[int]) -> Self:
        """Return a copy with some of the blocks: a student for distillation from this model.

        Args:
            layers: list of int, the numbers of blocks from 0, in their order in the copy; or int,
                how many, spread evenly from the first to the last.

        Raises:
            ValueError: if a block is not there, or the blocks share weights or have none.

        Example:

            student = teacher.with_layers(6)  # of 12: 0, 2, 4, 7, 9 and 11
        """
        layers = chosen_layers(self, layers)
        copy = self.from_config(config_with(layers, self.get_config()))
        copy_layers(self, copy, layers)
        return copy

    def add_adapters(self, adapter_dim):
        """Add an untrained `keras_lm.layers.Adapter` after each part of each block.

        See `keras_lm.training.enable_adapters`, which also freezes the rest.

        Raises:
            ValueError: if `adapter_dim` is less than 1, or there are adapters already, or no blocks
                with attention.
        """
        self.check_adapters(adapter_dim)
        for layer in self.adapted_layers():
            layer.add_adapter(adapter_dim)
        self.adapter_dim = adapter_dim

    def check_adapters(self, adapter_dim):
        """Raise the errors of `add_adapters`."""
        if adapter_dim < 1:
            raise ValueError(f"adapter_dim={adapter_dim}: pass 1 or more.")
        if self.adapter_dim is not None:
            raise ValueError(
                f"The backbone has adapters of {self.adapter_dim} units already: load the preset "
                "that it began with."
            )
        if not self.adapted_layers():
            raise ValueError(
                f"{type(self).__name__} has no blocks with attention, in which adapters are: train "
                "it as it is, or with a lower rate for lower layers."
            )

    def adapted_layers(self):
        """Return the last layers of attention and of the feed-forward network in each block."""
        layers = {id(layer): layer for layer in self._flatten_layers()}
        return [e for e in layers.values() if isinstance(e, Dense) and e.name == "output"]
