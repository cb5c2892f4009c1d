"""The restricted unpickler of `torch_pickle`: tensors, storages and plain containers only.

Whatever a pickle can reach is plain data or an object of this file. None of these has attributes
that a pickle could set or replace, and none is shared between two files.
"""

import re

import ml_dtypes
import numpy as np

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.plain_pickle import PlainUnpickler

DTYPES = {
    "float64": np.float64, "double": np.float64,
    "float32": np.float32, "float": np.float32,
    "float16": np.float16, "half": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
    "int64": np.int64, "long": np.int64,
    "int32": np.int32, "int": np.int32,
    "int16": np.int16, "short": np.int16,
    "int8": np.int8, "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
    "complex64": np.complex64, "complex128": np.complex128,
}  # fmt: skip

STORAGES = {
    "DoubleStorage": np.float64, "FloatStorage": np.float32, "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16, "LongStorage": np.int64, "IntStorage": np.int32,
    "ShortStorage": np.int16, "CharStorage": np.int8, "ByteStorage": np.uint8,
    "BoolStorage": np.bool_, "ComplexFloatStorage": np.complex64,
    "ComplexDoubleStorage": np.complex128, "UntypedStorage": np.uint8,
}  # fmt: skip


class _Sealed:
    """Base of all that a pickle can hold: its BUILD instruction may not change an object."""

    __slots__ = ()

    def __setstate__(self, state):
        raise CheckpointError(f"it tries to set the state of a {type(self).__name__}.")


class Storage(_Sealed):
    """A run of bytes of the file: `key` names it, `offset` counts in values of `dtype`."""

    __slots__ = ("dtype", "key", "offset")

    def __init__(self, key: str, dtype: np.dtype, offset: int = 0):
        self.key, self.dtype, self.offset = key, dtype, offset


class Tensor(_Sealed):
    """A view of a storage; `offset` and `strides` count in values of `dtype`."""

    __slots__ = ("dtype", "offset", "shape", "storage", "strides")

    def __init__(self, storage, offset, shape, strides, dtype=None):
        if not isinstance(storage, Storage):
            raise CheckpointError("it builds a tensor from something that is not a storage.")
        self.storage, self.offset = storage, offset
        self.shape, self.strides = tuple(shape), tuple(strides)
        self.dtype = storage.dtype if dtype is None else dtype


class _StateDict(dict):
    """Stands in for OrderedDict, whose state (PyTorch's `_metadata`) is of no use here."""

    __slots__ = ()

    def __setstate__(self, state):
        pass


class Options(_Sealed):
    """An instance of a class of the program that saved it: `values`, a dict of its state.

    That is what it saves beside the weights, or a module that it saves as a whole.
    """

    __slots__ = ("values",)

    def __new__(cls, *_):
        self = super().__new__(cls)
        self.values = {}
        return self

    def __setstate__(self, state):
        if type(state) is dict:
            self.values = state


class _Type(_Sealed):
    """A storage class or a dtype, as the name that it is: calling it is refused."""

    __slots__ = ("dtype",)

    def __init__(self, dtype):
        self.dtype = np.dtype(dtype)


class _Function(_Sealed):
    """One of our functions, wrapped so that a pickle cannot reach its attributes."""

    __slots__ = ("_function", "_unpickler")

    def __init__(self, function, unpickler):
        self._function, self._unpickler = function, unpickler

    def __call__(self, *args):
        self._unpickler.count_copied(args)
        return self._function(self._unpickler, *args)


def _tensor(_, storage, offset, shape, strides, *rest):
    return Tensor(storage, offset, shape, strides)


def _tensor_with_dtype(_, storage, offset, shape, strides, requires_grad, hooks, dtype, *rest):
    # Its storage is untyped, with all places counted in values of the dtype.
    if not isinstance(dtype, _Type):
        raise CheckpointError("it builds a tensor of something that is not a dtype.")
    return Tensor(storage, offset, shape, strides, dtype.dtype)


def _parameter(_, data, *rest):
    return data


def _ordered_dict(unpickler, items=()):
    pairs = [*items.items()] if isinstance(items, dict) else [(key, value) for key, value in items]
    unpickler.check_keys([key for key, _ in pairs])
    return _StateDict(pairs)


def _dropped(*_):
    return Options()


# What a pickle may call, each with the unpickler and what the pickle gives.
FUNCTIONS = {
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_with_dtype,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch", "Size"): lambda _, items=(): tuple(items),
    ("torch", "device"): lambda _, *names: names,
    ("collections", "OrderedDict"): _ordered_dict,
    ("builtins", "set"): lambda unpickler, items=(): set(unpickler.check_keys(items)),
    ("builtins", "frozenset"): lambda unpickler, items=(): frozenset(unpickler.check_keys(items)),
    # NumPy's numbers, such as the learning rates that fastai saves beside the weights.
    ("numpy.core.multiarray", "scalar"): _dropped,
    ("numpy._core.multiarray", "scalar"): _dropped,
    ("numpy", "dtype"): _dropped,
    ("_codecs", "encode"): _dropped,
    # What modules of before PyTorch 1.2 refer to.
    ("torch.nn.backends.thnn", "_get_thnn_function_backend"): _dropped,
}
# Classes of the programs that save a checkpoint: plain containers.
OPTIONS = {("argparse", "Namespace"), ("fastcore.foundation", "L")}
# The files whose classes are modules, in models that were saved as a whole: PyTorch's own, and
# those of Transformer-XL's authors.
MODULES = re.compile(r"torch\.nn\.modules\.\w+|mem_transformer|(utils\.)?proj_adaptive_softmax")

CONTAINERS = (str, bytes, list, tuple, dict, set, frozenset)
MOST_COPIED = 2**18


def options_class(name):
    """Return a class with a name whose instances are `Options`.

    It is a class, for the instruction that makes instances: the type itself has no state.
    """
    return type(name[:100], (Options,), {"__slots__": ()})


class RestrictedUnpickler(PlainUnpickler):
    """Loads one pickle of a PyTorch file; `storages` lists what it refers to."""

    def __init__(self, file):
        # Strings of Python 2 are bytes: UTF-8 is what PyTorch itself takes them for.
        super().__init__(file, encoding="utf-8")
        self.storages: list[Storage] = []
        self._num_copied = 0

    def count_copied(self, args):
        """Raise a CheckpointError if calls, with these arguments, copy more than they should.

        A container is named by two bytes, as often as a pickle likes.
        """
        self._num_copied += len(args) + sum(len(arg) for arg in args if isinstance(arg, CONTAINERS))
        if self._num_copied > MOST_COPIED:
            raise CheckpointError(
                f"it copies more than {MOST_COPIED} values from one container to another, which no "
                "checkpoint needs."
            )

    def find_class(self, module: str, name: str):
        # Python 2 called it by another name; the pickle module's own translation is not in use.
        module = {"__builtin__": "builtins"}.get(module, module)
        if (module, name) in FUNCTIONS:
            return _Function(FUNCTIONS[module, name], self)
        if (module, name) in OPTIONS or MODULES.fullmatch(module):
            return options_class(name)
        if module == "torch" and name in DTYPES:
            return _Type(DTYPES[name])
        parts = module.split(".")
        if parts in (["torch"], ["torch", "cuda"], ["torch", "storage"]) and name in STORAGES:
            return _Type(STORAGES[name])
        raise CheckpointError(
            f"it asks for `{module}.{name}`, which is neither a tensor nor a plain container, and "
            "running it could do anything. If you trust the file, load it with PyTorch and save "
            "only the weights: torch.save(model.state_dict(), FILE)."
        )

    def persistent_load(self, saved_id):
        if isinstance(saved_id, tuple) and len(saved_id) == 4 and saved_id[0] == "module":
            return saved_id[1]  # a class, beside which older files have its source code
        if not isinstance(saved_id, tuple) or len(saved_id) < 5 or saved_id[0] != "storage":
            raise CheckpointError("it refers to something that is not a storage.")
        _, kind, key, _, _, *view = saved_id
        if not isinstance(kind, _Type) or not isinstance(key, str):
            raise CheckpointError("it refers to a storage without a type or a key.")
        offset = 0
        if view and view[0] is not None:
            # Old files: a storage that is a part of another one, (key, offset, length).
            offset = view[0][1]
            if type(offset) is not int or offset < 0:
                raise CheckpointError("it refers to a part of a storage that cannot be.")
        storage = Storage(key, kind.dtype, offset)
        self.storages.append(storage)
        return storage
