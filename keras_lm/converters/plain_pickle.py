"""Pickles of plain data and of NumPy arrays, in time and memory bounded by the file's size.

All other objects in them are stand-ins that do nothing.
"""

import gzip
import io
import math
import pathlib
import pickle
import struct

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, require_file

LARGEST_KEY = 2**60
# Tuples can be chosen so that all have the same hash, and each is compared with those before it.
MOST_TUPLES = 1000  # as keys


# In Python, as instructions of the one in C cannot be replaced; that one also reserves as much
# memory as a file asks for.
class PlainUnpickler(pickle._Unpickler):
    """Reads numbers, strings and containers; `find_class` decides what else a pickle may name.

    A tuple's hash is computed anew from its parts each time, so that tuples of tuples, each with
    the one before twice, need time exponential in the size of the file: as keys they are refused.
    """

    dispatch = dict(pickle._Unpickler.dispatch)
    num_tuples = 0  # among all keys so far

    def find_class(self, module, name):
        raise ValueError(f"it asks for {module}.{name}, and plain data needs nothing")

    def check_keys(self, keys):
        """Return keys of a dict or a set; raise a ValueError if hashing them may take long."""
        for key in keys:
            self.num_tuples += isinstance(key, tuple)
            for part in key if isinstance(key, tuple) else (key,):
                is_nested = isinstance(part, (tuple, frozenset))
                # Larger numbers can be chosen so that all have the same hash.
                if is_nested or (isinstance(part, int) and abs(part) > LARGEST_KEY):
                    raise ValueError(
                        "it has a key that is neither a string, nor a number, nor a tuple of these"
                    )
            if self.num_tuples > MOST_TUPLES:
                raise ValueError(f"it has more than {MOST_TUPLES} tuples as keys")
        return keys

    # The items since the last mark are `self.stack`, until the instruction takes them.

    def load_dict(self):
        self.check_keys(self.stack[::2])
        super().load_dict()

    def load_setitems(self):
        self.check_keys(self.stack[::2])
        super().load_setitems()

    def load_setitem(self):
        self.check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_frozenset(self):
        self.check_keys(self.stack)
        super().load_frozenset()

    def load_additems(self):
        self.check_keys(self.stack)
        super().load_additems()

    def load_bytearray8(self):
        raise ValueError("it holds a bytearray, which could be of any size")

    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.FROZENSET[0]] = load_frozenset
    dispatch[pickle.ADDITEMS[0]] = load_additems
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8


# === Arrays ===

# How much larger than its file a gzipped one may be: random weights hardly shrink at all.
MOST_EXPANDED = 100
CORES = ("numpy.core", "numpy._core")  # before NumPy 2, and since


class StandIn:
    """An object of a class that is not looked up. It takes what a pickle gives it, and drops it."""

    __slots__ = ()

    def __new__(cls, *_, **__):
        return super().__new__(cls)

    def _drop(self, *_):
        pass

    __setstate__ = __setitem__ = append = extend = add = _drop


class Array:
    """An array of a pickle: `value`, a view of the pickle's own bytes, once these were given."""

    __slots__ = ("value",)

    def __init__(self, *_):
        self.value = None

    def __setstate__(self, state):
        _, shape, dtype, is_fortran, data = state
        self.value = _view(data, dtype, shape, "F" if is_fortran else "C")


class _DType:
    __slots__ = ("value",)

    def __init__(self, name, *_):
        self.value = np.dtype(name) if isinstance(name, str) else None

    def __setstate__(self, state):
        if state[1] in ("<", ">"):
            self.value = self.value.newbyteorder(state[1])


def _view(data, dtype, shape, order):
    value = dtype.value if isinstance(dtype, _DType) else None
    if value is None or value.kind not in "fiub":
        return None  # of objects, not of numbers
    if min(shape, default=0) < 0:
        raise ValueError("it holds an array of a negative size")
    return np.frombuffer(data, value).reshape(shape, order=order)


class _FromBuffer(Array):
    __slots__ = ()

    def __init__(self, data, dtype, shape, order, axis_order=None):
        is_other = order == "K"  # neither by rows nor by columns
        self.value = _view(data, dtype, shape, "C" if is_other else order)
        if is_other and self.value is not None:
            self.value = self.value.transpose(axis_order)


class _Encode:
    """Makes bytes of a string, as which older pickles hold them; `left` is how many it may."""

    __slots__ = ("left",)

    def __init__(self, left):
        self.left = left

    def __setstate__(self, state):
        raise ValueError("it sets the state of a function")

    def __call__(self, text, encoding):
        self.left -= len(text)  # a string is named by two bytes, as often as a pickle likes
        if encoding != "latin1" or self.left < 0:
            raise ValueError("it encodes strings in another way than arrays need")
        return text.encode("latin1")


class ArrayUnpickler(PlainUnpickler):
    """Reads arrays, of which each is an `Array`, numbers, strings and containers.

    Args:
        data: bytes of one pickle.
    """

    dispatch = dict(PlainUnpickler.dispatch)

    def __init__(self, data: bytes):
        super().__init__(io.BytesIO(data))
        self.known = dict.fromkeys(
            (f"{core}.multiarray._reconstruct" for core in CORES), Array
        ) | dict.fromkeys((f"{core}.numeric._frombuffer" for core in CORES), _FromBuffer)
        self.known |= {"numpy.dtype": _DType, "_codecs.encode": _Encode(len(data))}

    def find_class(self, module, name):
        return self.known.get(f"{module}.{name}", StandIn)

    def load_bytearray8(self):
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(self.read(size))  # no more than there is

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8


def load_arrays(path: pathlib.Path):
    """Return what a pickle holds, gzipped or not, with an `Array` for each array.

    Raises:
        CheckpointError: if it is damaged, or holds what plain data does not.
    """
    try:
        return ArrayUnpickler(read_bytes(path)).load()
    except CheckpointError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise CheckpointError(
            f"{path} is not a pickle of arrays ({error}). Copy or download it again."
        ) from error


def load_npy(path: pathlib.Path) -> list[np.ndarray]:
    """Return the arrays of a file of several `.npy`, one after another, gzipped or not.

    Raises:
        CheckpointError: if it is damaged.
    """
    data, arrays = read_bytes(path), []
    file = io.BytesIO(data)
    try:
        while file.tell() < len(data):
            read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
                np.lib.format.read_magic(file), np.lib.format.read_array_header_2_0
            )
            shape, is_fortran, dtype = read(file)
            count = math.prod(shape)
            array = np.frombuffer(data, dtype, count, file.tell()) if count else np.zeros(0, dtype)
            arrays.append(array.reshape(shape, order="F" if is_fortran else "C"))
            file.seek(array.nbytes, io.SEEK_CUR)
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"{path} is not a file of arrays ({error}). Copy or download it again."
        ) from error
    return arrays


def read_bytes(path: pathlib.Path) -> bytes:
    """Return the bytes of a file, gzipped or not."""
    if path.suffix != ".gz":
        return require_file(path).read_bytes()
    limit = MOST_EXPANDED * require_file(path).stat().st_size
    try:
        with gzip.open(path) as file:
            data = file.read(limit + 1)
    except (OSError, EOFError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not gzipped ({error}). Copy or download it again."
        ) from error
    if len(data) > limit:
        raise CheckpointError(
            f"{path} becomes more than {MOST_EXPANDED} times as large when it is unpacked, which "
            "no weights do: it is damaged, or another file."
        )
    return data
