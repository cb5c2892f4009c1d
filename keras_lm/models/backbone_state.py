"""The state of a backbone: what it keeps of the tokens that it has read, for those that follow."""

import keras

from keras_lm.layers.state import fit_rows


class BackboneState:
    """The methods of a backbone that make, convert and measure a state; a model overrides some.

    An input that `is_state` declares it.
    """

    @property
    def carries_state(self):
        """Whether there is a state that has one size, however long the text before it was."""
        parts = keras.tree.flatten(self.state_spec()) if self.state_name else []
        return bool(parts) and all(None not in part.shape[1:] for part in parts)

    def initial_state(self, batch_size, length=0):
        """Return the state before any token as `forward` takes it: nested tensors, each (B, …).

        `length` is how many tokens to make room for, if there are slots. Both may be int32 scalars.
        """
        raise ValueError(f"{type(self).__name__} has no state: it reads whole texts at once.")

    def pack_state(self, state):
        """Convert a state from the form of `forward` to that of callers."""
        return state

    def unpack_state(self, state):
        """Convert a state from the form of callers to that of `forward`."""
        return state

    def rewind(self, state, number):
        """Return a state of `forward` as it was before the last `number` (B,) columns it read."""
        raise ValueError(
            f"{type(self).__name__} cannot take back tokens that it has read, as prompt_lookup "
            "must: pass prompt_lookup=0."
        )

    def decoding_state(self, state):
        """Return a state of `forward` in the form from which it best reads a token at a time.

        It is for loops that read one token of each row in every step. A state whose tensors are
        computed with in each step, such as a memory that is projected, overrides it.
        """
        return state

    def fit_state(self, state, rows):
        """Return a caller's state for `rows` rows: cut, or filled up with initial states."""
        return fit_rows(state, rows, self.state_spec(), self.state_name)

    def make_room(self, state, inputs):
        """Return a caller's state with room for the tokens of `inputs`, if the state has slots."""
        return state

    def state_spec(self):
        """Return a caller's state as `keras.KerasTensor`s, None for sizes that vary."""
        small, large = (self.pack_state(self.initial_state(size, size)) for size in (1, 2))

        def spec(a, b):
            shape = [m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)]
            return keras.KerasTensor(shape, keras.backend.standardize_dtype(a.dtype))

        return keras.tree.map_structure(spec, small, large)
