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
import struct
import zipfile

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entry, require_file
from keras_lm.converters.torch_unpickler import Options, RestrictedUnpickler, Storage, Tensor

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_START = b"\x80\x02\x8a\x0a" + LEGACY_MAGIC.to_bytes(10, "little") + b"."
MOST_MODULES = 10_000  # many times what the largest model has
WRAPPERS = ("state_dict", "model_state_dict", "model")
# A storage's place in the file: its first byte and its length in bytes.
Places = dict[str, tuple[int, int]]


def read_torch(path: pathlib.Path, named_by: str = "") -> dict[str, Entry]:
    """Open a PyTorch file: the flat names of its state dict, to shapes and readers.

    `{"state_dict": …}` and `{"model": …}` are unwrapped, a module that was saved as a whole gives
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
        found = list(root)[:5] if isinstance(root, dict) else type(root).__name__
        raise CheckpointError(
            f"{path} holds no state dict: found {found} where names of tensors should be. Save one "
            "with torch.save(model.state_dict(), FILE)."
        )
    if all(name.startswith("module.") for name in tensors):
        tensors = {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors


def tensors_of_module(module: Options) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module, by the names of its state dict."""
    found, left = {}, [("", module)]
    for number in itertools.count():
        if number > MOST_MODULES:
            raise CheckpointError(f"it has more than {MOST_MODULES} modules, or one in itself.")
        if not left:
            return found
        prefix, part = left.pop()
        for kind in ("_parameters", "_buffers"):
            found |= {prefix + name: value for name, value in _named(part, kind).items()}
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
        # Strides of 0 repeat a value, so a few bytes can claim any shape: a checkpoint has none.
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
