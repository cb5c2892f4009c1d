"""What a backbone says of each of its inputs."""

import dataclasses
from collections.abc import Callable

from keras import ops


@dataclasses.dataclass(frozen=True)
class Input:
    """One entry of the dict that a backbone takes.

    `shape` is without the batch axis. `default` fills a missing input: an int fills (B, S), a
    callable computes it from the input called `like`, and with None the input is required. With
    `is_state` it is what an earlier call returned under the same key, by default the initial state.

    Example:

        Input(default=1, like="token_ids")  # a mask: every token is real
    """

    shape: tuple = (None,)
    dtype: str = "int32"
    default: int | Callable | None = None
    like: str | None = None
    is_state: bool = False

    @property
    def is_required(self):
        return self.default is None and not self.is_state

    def make_default(self, like):
        """Return the default for the input `like`, (B, S) or (B, S, …)."""
        if callable(self.default):
            return self.default(like)
        like = like[:, :, 0] if len(like.shape) == 3 else like
        return ops.cast(ops.full_like(like, self.default), self.dtype)
