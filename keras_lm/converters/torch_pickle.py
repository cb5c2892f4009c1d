"""PyTorch's `.bin`, `.pt` and `.pth` files, read without PyTorch and without trusting them.

A pickle is a program. Here it runs in an unpickler that knows a fixed list of names (tensor
rebuilding, storages, plain containers) and refuses every other one, so a file can describe tensors
and nothing else. Both layouts are read:

- a zip archive (since PyTorch 1.6): `data.pkl` describes the tensors, `data/KEY` holds a storage;
- the older one: four pickles in a row (magic number, version, system, tensors), then the list of
  storage keys, then for each its length and its bytes.

Files of big-endian machines, TorchScript archives and sparse or quantized tensors are refused.
"""

import functools
import io
import itertools
import math
import pathlib
import re
import struct
import zipfile

import ml_dtypes
import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entry, require_file
from keras_lm.converters.plain_pickle import PlainUnpickler

# === The unpickler ===
#
# Whatever a pickle can reach is plain data or an object of this file. None of these has attributes
# that a pickle could set or replace, and none is shared between two files.

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
    # What modules saved before PyTorch 1.2 refer to.
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


# === Files ===

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_START = b"\x80\x02\x8a\x0a" + LEGACY_MAGIC.to_bytes(10, "little") + b"."
MOST_MODULES = 10_000  # many times what the largest model has
WRAPPERS = ("state_dict", "model_state_dict", "model")
# A storage's place in the file: its first byte and its length in bytes.
Places = dict[str, tuple[int, int]]


def read_torch(path: pathlib.Path, named_by: str = "") -> dict[str, Entry]:
    """Open a PyTorch file: the flat names of its state dict, to shapes and readers.

    `{"state_dict": …}` and `{"model": …}` are unwrapped, a module that was saved as a whole becomes
    its parameters, and a `module.` before every name (DataParallel's) is dropped. Entries that are
    not tensors are ignored.
    """
    root, places = open_torch(path, named_by)
    return entries_of(root, places, path)


def open_torch(
    path: pathlib.Path, named_by: str = "", unpickler: type = RestrictedUnpickler
) -> tuple[object, Places]:
    """Return what was pickled, tensors as `Tensor`, and where their storages lie in the file.

    `unpickler` is the class that reads its pickles, a `RestrictedUnpickler`.
    """
    require_file(path, named_by)
    with path.open("rb") as file:
        start = file.read(len(LEGACY_START))
    try:
        if start.startswith(b"PK"):
            return _open_zip(path, unpickler)
        if start == LEGACY_START:
            return _open_legacy(path, unpickler)
        raise CheckpointError(
            "not a PyTorch file: it is neither a zip archive nor does it start with PyTorch's "
            "magic number. It is damaged or of another format: copy or download it again."
        )
    except CheckpointError as error:
        # Those who raise it below know what is wrong, but not in which file.
        raise CheckpointError(f"{path}: {error}") from error
    except Exception as error:  # Garbage can raise nearly anything inside a pickle or a zip.
        raise CheckpointError(
            f"{path} cannot be read as a PyTorch file: {error}. It is damaged or incomplete: copy "
            "or download it again."
        ) from error


def entries_of(root, places: Places, path: pathlib.Path) -> dict[str, Entry]:
    """Return the tensors of the state dict in what `open_torch` returned; see `read_torch`."""
    return {
        name: (_check(tensor, places, name, path), functools.partial(_read, path, tensor, places))
        for name, tensor in _flat_names(root, path).items()
    }


def is_torch(path: pathlib.Path) -> bool:
    """Whether a file begins as PyTorch's do, whatever it is called."""
    with path.open("rb") as file:
        start = file.read(len(LEGACY_START))
    return start.startswith(b"PK") or start == LEGACY_START


def _open_zip(path: pathlib.Path, unpickler: type) -> tuple[object, Places]:
    places = {}
    size = path.stat().st_size
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise CheckpointError(
                f"a zip archive with {len(pickles)} data.pkl where torch.save writes one. Give a "
                "file that torch.save made."
            )
        top = pickles[0].removesuffix("data.pkl")
        if top + "constants.pkl" in archive.namelist():
            raise CheckpointError(
                "a TorchScript program, not a checkpoint. Save its weights instead: "
                "torch.save(torch.jit.load(FILE).state_dict(), NEW_FILE)."
            )
        for entry in archive.infolist():
            # PyTorch never compresses. Refusing it keeps a small file from growing in memory.
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise CheckpointError(
                    f"{entry.filename!r} in it is compressed, which torch.save never does. Save "
                    "the checkpoint again with torch.save."
                )
            if entry.filename.startswith(top + "data/"):
                start = _payload_start(file, entry)
                if start + entry.file_size > size:
                    raise CheckpointError(f"{entry.filename!r} in it reaches beyond its end.")
                places[entry.filename.removeprefix(top + "data/")] = (start, entry.file_size)
        if top + "byteorder" in archive.namelist():
            _require_little_endian(archive.read(top + "byteorder") == b"little")
        root = unpickler(io.BytesIO(archive.read(pickles[0]))).load()
    return root, places


def _payload_start(file, entry: zipfile.ZipInfo) -> int:
    """Where an entry's bytes start: its local header repeats the name and pads differently."""
    file.seek(entry.header_offset)
    header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise CheckpointError(f"{entry.filename!r} in it has no header. The file is damaged.")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    return entry.header_offset + 30 + name_length + extra_length


def _open_legacy(path: pathlib.Path, unpickler: type) -> tuple[object, Places]:
    places = {}
    size = path.stat().st_size
    with path.open("rb") as file:
        RestrictedUnpickler(file).load()  # The magic number, which the caller compared.
        RestrictedUnpickler(file).load()  # The protocol version: 1001 ever since.
        system = RestrictedUnpickler(file).load()
        _require_little_endian(not isinstance(system, dict) or system.get("little_endian", True))
        reader = unpickler(file)
        root = reader.load()
        keys = RestrictedUnpickler(file).load()
        itemsizes = {storage.key: storage.dtype.itemsize for storage in reader.storages}
        for key in keys:
            if type(key) is not str:
                raise CheckpointError("the key of one of its storages is not a string.")
            if key not in itemsizes:
                raise CheckpointError(f"it holds a storage {key!r} that no tensor uses.")
            (count,) = struct.unpack("<q", file.read(8))
            length = count * itemsizes[key]
            if count < 0 or file.tell() + length > size:
                raise CheckpointError(
                    f"it ends within the storage {key!r}. Copy or download it again."
                )
            places[key] = (file.tell(), length)
            file.seek(length, io.SEEK_CUR)
    return root, places


def _require_little_endian(little: bool) -> None:
    if not little:
        raise CheckpointError(
            "it was written on a big-endian machine. Load it there, or with PyTorch, and save it "
            "again as safetensors."
        )


def _flat_names(root, path: pathlib.Path) -> dict[str, Tensor]:
    for _ in range(3):
        inner = [root[key] for key in WRAPPERS if isinstance(root, dict) and key in root]
        if not inner or not isinstance(inner[0], dict):
            break
        root = inner[0]
    root = tensors_of_module(root) if isinstance(root, Options) else root
    items = root.items() if isinstance(root, dict) else ()
    tensors = {
        name: value for name, value in items if type(name) is str and isinstance(value, Tensor)
    }
    if not tensors:
        contents = list(root)[:5] if isinstance(root, dict) else type(root).__name__
        raise CheckpointError(
            f"{path} holds no state dict: found {contents} where names of tensors should be. Save "
            "one with torch.save(model.state_dict(), FILE)."
        )
    if all(name.startswith("module.") for name in tensors):
        tensors = {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors


def tensors_of_module(module: Options) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module, by the names of its state dict."""
    tensors, left = {}, [("", module)]
    for number in itertools.count():
        if number > MOST_MODULES:
            raise CheckpointError(
                f"it has more than {MOST_MODULES} modules, or one that contains itself."
            )
        if not left:
            return tensors
        prefix, part = left.pop()
        for kind in ("_parameters", "_buffers"):
            tensors |= {prefix + name: value for name, value in _named(part, kind).items()}
        parts = _named(part, "_modules").items()
        left += [(f"{prefix}{name}.", value) for name, value in parts if isinstance(value, Options)]


def _named(module: Options, kind: str) -> dict:
    values = module.values.get(kind)
    named = values.items() if isinstance(values, dict) else ()
    return {name: value for name, value in named if type(name) is str and value is not None}


def _check(tensor: Tensor, places: Places, name: str, path: pathlib.Path) -> tuple[int, ...]:
    """Return the tensor's shape; raise a CheckpointError if it reaches beyond its storage."""
    storage, numbers = tensor.storage, (tensor.offset, *tensor.shape, *tensor.strides)
    if not isinstance(storage, Storage) or len(tensor.shape) != len(tensor.strides):
        raise CheckpointError(f"{path}: {name!r} is not a well-formed tensor. The file is damaged.")
    if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
        raise CheckpointError(
            f"{path}: {name!r} has an offset, a shape or strides that no tensor can have. The "
            "file is damaged."
        )
    if storage.key not in places:
        raise CheckpointError(
            f"{path}: the storage {storage.key!r} of {name!r} is missing from the file. Copy or "
            "download it again."
        )
    available = places[storage.key][1] // tensor.dtype.itemsize - storage.offset
    if math.prod(tensor.shape):
        steps = zip(tensor.shape, tensor.strides, strict=True)
        last = tensor.offset + sum((length - 1) * stride for length, stride in steps)
        if storage.offset < 0 or last >= available:
            raise CheckpointError(
                f"{path}: {name!r} reaches beyond its storage ({last + 1} values where there are "
                f"{max(available, 0)}). The file is damaged."
            )
        # Strides of 0, which no checkpoint has, repeat a value, so a few bytes can claim any shape.
        if math.prod(tensor.shape) > max(2 * available, 2**20):
            raise CheckpointError(
                f"{path}: {name!r} claims the shape {tensor.shape} of {available} values. The file "
                "is damaged."
            )
    return tensor.shape


def _read(path: pathlib.Path, tensor: Tensor, places: Places) -> np.ndarray:
    # The file may have changed since it was opened, and a map of less than was promised would be
    # read beyond its end.
    start, length = places[tensor.storage.key]
    if not path.is_file() or path.stat().st_size < start + length:
        raise CheckpointError(f"{path} has become shorter since it was opened. Open it again.")
    if not math.prod(tensor.shape):
        return np.zeros(tensor.shape, tensor.dtype)
    file = np.memmap(path, np.uint8, "r", offset=start, shape=(length,))
    length -= length % tensor.dtype.itemsize
    values = file[:length].view(np.ndarray).view(tensor.dtype)[tensor.storage.offset :]
    strides = [stride * tensor.dtype.itemsize for stride in tensor.strides]
    view = np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, strides)
    return np.array(view, order="C")
