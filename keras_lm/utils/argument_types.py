"""The types that public calls share, by the names in their annotations."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ForwardRef, Protocol, Union

if TYPE_CHECKING:
    import keras

# A file or a folder.
PathLike = str | os.PathLike[str]

# Raw text in any form that `fit` and `predict` take: a string, a list, an array or a dataset of
# strings, a tuple of these for pairs, or a dict of columns.
RawTexts = str | Iterable[Any] | Mapping[str, Any]

# What comes with texts: class names, numbers, positions, lists of these, a dict of columns; None
# where there is none, or where a dataset has both.
RawLabels = Iterable[Any] | Mapping[str, Any] | None

# The sizes of a tensor's axes, None for one that varies.
Shape = tuple[int | None, ...]

# A dtype policy or its name. Keras's class is looked up when the annotation is evaluated, as some
# that import this module do without Keras.
if TYPE_CHECKING:
    DType = str | keras.DTypePolicy | None
else:
    DType = Union[str, ForwardRef("DTypePolicy", module="keras"), None]  # noqa: UP007


class Tensor(Protocol):
    """A tensor of Keras's backend or of TensorFlow, an array, or a `keras.KerasTensor`.

    They have no class in common, but these members.
    """

    @property
    def shape(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...

    def __getitem__(self, key: Any, /) -> Any: ...

    def __add__(self, other: Any, /) -> Any: ...

    def __sub__(self, other: Any, /) -> Any: ...

    def __mul__(self, other: Any, /) -> Any: ...

    def __truediv__(self, other: Any, /) -> Any: ...

    def __neg__(self) -> Any: ...
