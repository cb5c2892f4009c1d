"""Files and folders: written whole or not at all, with checksums, and checked when they are read.

A reader finds the old file or the new one, never a part.

A checksum is the CRC-32 of the sums of blocks, each 4,096 bytes as 64-bit numbers modulo 2**64: any
changed byte changes a sum, and sums are taken ten times as fast as a CRC. They are in a
`checksums.json` beside the files of a folder, or within one file at its end.

Files may lie at addresses: `s3://…`, `gs://…`, `memory://…`, `hf://datasets/…`, `https://…`. fsspec
opens them, with the package that it has for a scheme, such as s3fs or gcsfs. Where that is not
installed, or fsspec does not know the scheme, TensorFlow's filesystem opens it if it can. A file is
uploaded whole; of a folder, the one by which readers know that it is complete comes last.
"""

import contextlib
import ctypes
import errno
import functools
import io
import json
import os
import posixpath
import re
import shutil
import tempfile
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

try:
    import fcntl
except ImportError:  # Windows has no fcntl; there, leftovers of killed processes stay
    fcntl = None

LARGEST_VERSION = 2**63 - 1  # TF Serving keeps version numbers in 64 bits

WRITING = ".writing"  # suffix of hidden folders, so that no other folders are removed
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DISK_IS_FULL = "The disk is full or a quota is reached, so nothing was changed"
# Some writers raise exceptions of their own, which quote the system's message or a worker's.
FULL_MESSAGES = (DISK_IS_FULL, *(os.strerror(number) for number in FULL))

# The suffix of an export in one file → its format, and this → what messages call it.
EXPORT_SUFFIXES = {".tflite": "litert", ".onnx": "onnx"}
ONE_FILE = {"litert": "a .tflite", "onnx": "an .onnx", "web": "a page"}

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # of two letters at least, unlike a drive
OF_A_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")  # what `Path` makes of an address
# By which readers know that a folder is complete, or what it is.
LAST = ("keras_lm.json", "tokens.json", "documents.json", "saved_model.pb", "config.json")
LAST = (*LAST, "metadata.json")
UPLOADING = ".uploading"  # in a folder at an address until all of its files are there
# Filesystems on which a file appears once it is complete; of others it is moved to its place.
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf", "memory", "http", "https"}
VERSION = ("size", "ETag", "etag", "mtime", "LastModified", "updated", "created", "generation")

# From linux/fs.h and fcntl.h.
RENAME_EXCHANGE = 2
AT_FDCWD = -100
CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def is_remote(path: Any) -> bool:
    """Return whether a path is an address, and not on a disk of this machine."""
    return isinstance(path, RemotePath) or bool(isinstance(path, str) and SCHEME.match(path))


def as_path(path):
    """Return a user's path as `Path`, or an address as `RemotePath`.

    Raises:
        ValueError: if it is neither, or has a null byte.
    """
    if is_remote(path):
        return path if isinstance(path, RemotePath) else RemotePath(path)
    if isinstance(path, os.PathLike) and OF_A_PATH.match(os.fspath(path)):
        raise ValueError(
            f"{os.fspath(path)!r} comes from an address: pass that as a str where addresses are "
            "taken, or name a path on this machine."
        )
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"{path!r} is a {type(path).__name__}: pass a path, a str or a Path.")
    if "\0" in str(path):
        raise ValueError(f"{str(path)!r} has a null byte, which paths cannot have: remove it.")
    return Path(path).expanduser()


def on_disk(path):
    """Return a user's path as `Path`; raise a ValueError for an address."""
    path = as_path(path)
    if is_remote(path):
        raise ValueError(f"{path} is an address: name a path on this machine.")
    return path


# === Writing ===


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path to write a file or a folder to, and move it to `path` at the end.

    To an address, it is uploaded.

    Until then, it is in a hidden folder next to `path`, see `hidden`; if anything fails, `path` is
    unchanged. A file cannot replace a folder, nor a folder a file.

    If the system supports it, old and new are exchanged in one step. Otherwise, a process that is
    killed between two renames leaves no `path`; `recover` and the next write restore it.
    """
    path = as_path(path)
    if is_remote(path):
        with uploading(path) as new:
            yield new
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with hidden(path.parent, path.name) as beside:
        new = beside / f"new{path.suffix}"  # some writers depend on the suffix
        yield new
        _set_mode(new, beside)
        sync(new)
        _exchange(new, path, beside / "old")
        sync_one(path.parent)


@contextlib.contextmanager
def hidden(folder, name):
    """Yield a new folder named `.NAME-….writing` in an existing one, and remove it at the end.

    Folders that killed processes have left under the same name are removed first; running processes
    hold a lock on theirs.

    Raises:
        OSError: with `errno.ENOSPC` if the disk is full, whichever exception the writer raised.
    """
    folder = Path(folder)
    recover(folder / name)
    with naming_a_full_disk(folder / name):
        temporary, descriptor = _new_locked(folder, name)
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            os.close(descriptor)


def _new_locked(folder, name):
    while True:
        temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", suffix=WRITING, dir=folder))
        try:
            descriptor = os.open(temporary, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process has removed it as a leftover
        with contextlib.suppress(OSError):  # without locks, other processes do not remove it either
            lock(descriptor)
        if temporary.is_dir():
            return temporary, descriptor
        os.close(descriptor)  # removed as a leftover before it was locked


def lock(descriptor, wait=True):
    """Lock an open folder; raise an OSError if another process has it and we do not wait."""
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "there are no locks")
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def recover(path):
    """Remove the leftovers of killed processes that wrote `path`; restore it if they moved it."""
    pattern = re.compile(rf"\.{re.escape(path.name)}-\w{{8}}{re.escape(WRITING)}")
    with contextlib.suppress(OSError, ValueError):  # ValueError: the path has a null byte
        for left in [Path(e.path) for e in os.scandir(path.parent) if pattern.fullmatch(e.name)]:
            with contextlib.suppress(OSError):  # locked by a running process, not ours, or gone
                _recover_from(left, path)


def _recover_from(left, path):
    descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        lock(descriptor, wait=False)
        if (left / "old").exists() and not path.exists():
            os.rename(left / "old", path)
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def naming_a_full_disk(path):
    """Turn any exception about a full disk into an OSError that names `path` and the remedy."""
    try:
        yield
    except Exception as error:
        is_full = getattr(error, "errno", None) in FULL
        if not is_full and not any(message in str(error) for message in FULL_MESSAGES):
            raise
        raise OSError(
            errno.ENOSPC,
            f"{DISK_IS_FULL}: free some space, or choose another place",
            str(path),
        ) from error


def _set_mode(new, beside):
    """Set permissions by the umask, since safetensors makes files readable by their owner only."""
    probe = beside / "probe"
    probe.touch()
    for path in [*new.rglob("*"), new]:
        if path.is_file():
            path.chmod(probe.stat().st_mode)


def _exchange(new, path, old):
    if not (new.is_dir() and path.is_dir()):
        os.replace(new, path)  # raises if one is a file and the other a folder
        return
    if _swap(new, path):
        return
    try:
        os.rename(path, old)
        os.rename(new, path)
    except BaseException:  # including Ctrl-C: the old folder would be lost with the hidden one
        if old.exists() and not path.exists():
            os.rename(old, path)
        raise


def _swap(one, other):
    """Exchange two paths in one step; return False if the system does not support it."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or an older C library
        return False
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    if ctypes.get_errno() in CANNOT_EXCHANGE:
        return False
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))


def sync(path):
    """Sync a file or a folder to disk; without it, a power cut may leave an empty file."""
    path = Path(path)
    for entry in [*path.rglob("*"), path]:
        sync_one(entry)


def sync_one(path):
    """Sync one file or the entries of one folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_half_uploaded(folder):
    """Return whether a folder is at an address, to which an upload was interrupted."""
    return is_remote(folder) and (folder / UPLOADING).is_file()


def require_free(folder, reason, marker=None):
    """Raise a FileExistsError if `folder` is a file, or has files but not the file `marker`.

    One to which an upload was interrupted is free.
    """
    is_ours = marker is not None and (folder / marker).is_file()
    is_ours = is_ours or is_half_uploaded(folder)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not is_ours):
        raise FileExistsError(f"{folder} exists and {reason}: choose another folder.")


# === Finding ===


def export_format(path, format=None):
    """Return the format to export in: the given one, otherwise by the suffix."""
    return format or EXPORT_SUFFIXES.get(as_path(path).suffix, "saved_model")


def is_same(one, other):
    """Return whether two paths or addresses are those of the same file, which is there."""
    if not (is_remote(one) or is_remote(other)):
        return os.path.isfile(one) and other.exists() and os.path.samefile(one, other)
    places = [
        filesystem(str(as_path(path)) if is_remote(path) else f"file://{Path(path).absolute()}")
        for path in (one, other)
    ]
    return len({(str(remote.protocol), name) for remote, name in places}) == 1


def is_remote_file(text):
    """Return whether a text is the address of a file that is there."""
    if not is_remote(text):
        return False
    try:
        return RemotePath(text).is_file()
    except (OSError, ImportError, ValueError):
        return False


def size(path):
    """Return the size in bytes of a file, or of all files in a folder, at an address, too."""
    if is_remote(path):
        with naming(path):
            remote, name = filesystem(str(path))
            if remote.isfile(name):
                return remote.size(name)
            return sum(about["size"] for about in remote.find(name, detail=True).values())
    path = Path(path)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def numbered(folder):
    """Return the entries of a folder whose names are numbers, as a dict of number → `Path`."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return {}
    names = [n for n in names if n.isascii() and n.isdigit() and len(n) < 20]
    paths = {int(name): folder / name for name in names}
    return {number: paths[number] for number in sorted(paths) if number <= LARGEST_VERSION}


CHECKSUMS = "checksums.json"
BLOCK = 4096  # bytes
ITSELF = "checksum of this file"  # of its other entries


class DamagedFileError(ValueError):
    """A file is not the one that was written; the message names it and the remedy."""


def sum_of(values: np.ndarray, start: int = 0) -> int:
    """Return the checksum of bytes, (N,) uint8, that follow those with the checksum `start`."""
    whole = values.size - values.size % BLOCK
    sums = values[:whole].view(np.uint64).reshape(-1, BLOCK // 8).sum(axis=1)
    return zlib.crc32(values[whole:], zlib.crc32(sums, start))


def _sum_of_file(path):
    size = path.stat().st_size
    return sum_of(np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8), size)


def _sum_of_entries(entries):
    return zlib.crc32(json.dumps(entries, sort_keys=True).encode())


def with_sum(entries: dict) -> dict:
    """Return a dict for JSON with the checksum of its other entries."""
    return entries | {ITSELF: _sum_of_entries(entries)}


def has_changed(entries: dict) -> bool:
    """Return whether a dict has a checksum that is not that of its other entries."""
    others = {name: value for name, value in entries.items() if name != ITSELF}
    return ITSELF in entries and entries[ITSELF] != _sum_of_entries(others)


# === Folders ===


def write_sums(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of files of a folder, named by their paths in it, beside them."""
    sums = {name: _sum_of_file(folder / name) for name in sorted(names)}
    (folder / CHECKSUMS).write_text(json.dumps(with_sum(sums), indent=2) + "\n", encoding="utf-8")


def check_sums(folder: Path, remedy: str = "copy the folder again, whole") -> None:
    """Raise a DamagedFileError if a file is not the one whose checksum the folder has.

    Folders without checksums pass, and so do files that are missing, which their readers name.
    """
    path = folder / CHECKSUMS
    if not path.is_file():
        return
    for name, expected in _stated(path, remedy).items():
        file = folder / name
        if name != ITSELF and file.is_file() and _sum_of_file(file) != expected:
            raise DamagedFileError(
                f"{file} has changed since it was written: {remedy}. If the change was made on "
                f"purpose, remove {path}."
            )


def _stated(path, remedy):
    try:
        stated = json.loads(path.read_bytes())
        is_whole = isinstance(stated, dict) and ITSELF in stated and not has_changed(stated)
    except (ValueError, RecursionError):
        is_whole = False
    if not is_whole:
        raise DamagedFileError(
            f"{path} is damaged: {remedy}, or remove it, if all other files are right."
        )
    return stated


# === A file with an archive at its end ===


def end_of(content: bytes) -> str:
    """Return the text of a `CHECKSUMS` in the archive that follows a file's own content."""
    value = sum_of(np.frombuffer(content, np.uint8), len(content))
    return json.dumps({"bytes": len(content), "sum": value})


def check_end(content: bytes | Path, path: Path | str) -> None:
    """Raise a DamagedFileError if a file is not the one whose checksum its archive has.

    `content` is that of the file, or its path.

    Files without an archive, or without checksums in it, pass.
    """
    try:
        is_read = isinstance(content, bytes)
        with zipfile.ZipFile(io.BytesIO(content) if is_read else content) as archive:
            if CHECKSUMS not in archive.namelist():
                return
            stated = json.loads(archive.read(CHECKSUMS))
    except (zipfile.BadZipFile, NotImplementedError):
        return
    size = stated["bytes"]
    values = np.frombuffer(content, np.uint8) if is_read else np.memmap(content, np.uint8, "r")
    values = values[:size]
    if sum_of(values, size) != stated["sum"]:
        raise DamagedFileError(f"{path} has changed since it was written: copy it again.")


# === Addresses ===


class RemotePath:
    """An address, with the methods of `pathlib.Path` that the library calls.

    It is no `os.PathLike`, so that nothing takes it for a path of this machine.
    """

    def __init__(self, address: str):
        scheme, rest = str(address).split("://", 1)
        self.address = f"{scheme}://{rest.rstrip('/')}"
        self._rest = rest.rstrip("/")

    def __str__(self):
        return self.address

    def __repr__(self):
        return f"RemotePath({self.address!r})"

    def __reduce__(self):  # copies and other processes open it anew
        return RemotePath, (self.address,)

    def __truediv__(self, name):
        return RemotePath(f"{self.address}/{name}")

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return posixpath.basename(self._rest)

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot on."""
        return posixpath.splitext(self.name)[1]

    @functools.cached_property
    def _files(self):
        return filesystem(self.address)

    def exists(self) -> bool:
        """Return whether there is a file or a folder."""
        with naming(self.address):
            files, path = self._files
            return files.exists(path)

    def is_file(self) -> bool:
        """Return whether there is a file."""
        with naming(self.address):
            files, path = self._files
            return files.isfile(path)

    def is_dir(self) -> bool:
        """Return whether there is a folder."""
        with naming(self.address):
            files, path = self._files
            return files.isdir(path)

    def iterdir(self) -> Iterator["RemotePath"]:
        """Yield what lies in a folder."""
        with naming(self.address):
            files, path = self._files
            names = sorted(posixpath.basename(each.rstrip("/")) for each in files.ls(path, False))
        yield from (self / name for name in names if name)

    def with_name(self, name: str) -> "RemotePath":
        """Return the address of another file in the same folder."""
        return RemotePath(self.address[: len(self.address) - len(self.name)] + name)

    def open(self, mode: str = "rb") -> Any:
        """Return a file, open for reading bytes."""
        with naming(self.address):
            files, path = self._files
            return files.open(path, mode)

    def unlink(self) -> None:
        """Remove a file."""
        with naming(self.address, "removed"):
            files, path = self._files
            files.rm_file(path)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the text of a file."""
        with self.open() as file:
            return file.read().decode(encoding)


def filesystem(address: str) -> tuple[Any, str]:
    """Return the filesystem of an address, with fsspec's methods, and what it calls the address.

    Raises:
        ImportError: if its package is missing; the message says which.
        ValueError: if the scheme is unknown.
    """
    try:
        import fsspec  # huggingface_hub brings it

        return fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        if files := tensorflow_files(address):
            return files, address
        if isinstance(error, ImportError):
            raise ImportError(f"{address}: {error}") from error
        raise ValueError(
            f"{address}: neither fsspec nor TensorFlow knows the scheme "
            f"{SCHEME.match(address)[1]!r}: copy the files to a disk, or correct the address."
        ) from error


def tensorflow_files(address: str) -> "TensorFlowFiles | None":
    """Return TensorFlow's filesystem if it knows the scheme of an address, or None."""
    from keras_lm.tensorflow import IS_INSTALLED, tf

    known = IS_INSTALLED and tf.io.gfile.get_registered_schemes()
    scheme = SCHEME.match(address)[1]
    return TensorFlowFiles(tf.io.gfile, scheme) if known and scheme in known else None


class TensorFlowFiles:
    """`tf.io.gfile` with the methods of fsspec that are called here; paths are addresses."""

    def __init__(self, gfile: Any, protocol: str):
        self.gfile, self.protocol = gfile, protocol
        self.exists, self.isdir = gfile.exists, gfile.isdir
        self.glob, self.rm_file = gfile.glob, gfile.remove

    def invalidate_cache(self):
        pass  # there is none

    def makedirs(self, path, exist_ok=True):
        self.gfile.makedirs(path)

    def rm(self, path, recursive=True):
        self.gfile.rmtree(path)

    def mv(self, old, new):
        self.gfile.rename(old, new, overwrite=True)

    def isfile(self, path):
        return self.exists(path) and not self.isdir(path)

    def open(self, path, mode="rb"):
        return self.gfile.GFile(path, mode)

    def size(self, path):
        return self.gfile.stat(path).length

    def ls(self, path, detail=False):
        return [posixpath.join(path, name) for name in self.gfile.listdir(path)]

    def find(self, path, detail=False):
        paths = [
            posixpath.join(folder, name)
            for folder, _, names in self.gfile.walk(path)
            for name in names
        ]
        stats = ((path, self.gfile.stat(path)) for path in paths)
        return {p: {"size": s.length, "mtime": s.mtime_nsec} for p, s in stats} if detail else paths

    def unstrip_protocol(self, path):
        return path

    def put_file(self, local, path):
        self.makedirs(posixpath.dirname(path))
        with open(local, "rb") as source, self.gfile.GFile(path, "wb") as target:
            target.write(b"")  # what is never written to makes no file
            shutil.copyfileobj(source, target)

    def get_file(self, path, local):
        with self.gfile.GFile(path, "rb") as source, open(local, "wb") as target:
            shutil.copyfileobj(source, target)


@contextlib.contextmanager
def naming(address: Any, what: str = "read") -> Iterator[None]:
    """Turn any error of a filesystem that is not an OSError into one that names the address."""
    try:
        yield
    except (OSError, ImportError, ValueError) as error:
        if str(address) in str(error):
            raise
        raise type(error)(f"{address} cannot be {what}: {error}") from error
    except Exception as error:  # each package has classes of its own
        message = str(error).strip() or type(error).__name__
        raise OSError(f"{address} cannot be {what}: {message}") from error


# === Reading at addresses ===


def open_file(path: str | os.PathLike) -> Any:
    """Return a file on a disk or at an address, open for reading bytes."""
    return RemotePath(path).open() if is_remote(path) else open(path, "rb")


def find_remote(pattern: str) -> list[str]:
    """Return the addresses of the files that match an address or a pattern, sorted."""
    with naming(pattern):
        files, name = filesystem(pattern)
        names = [name] if files.isfile(name) else sorted(files.glob(name))
        return [files.unstrip_protocol(each) for each in names if files.isfile(each)]


_COPIES = {}  # addresses → what was there when it was copied, and the folder of the copy


def local_copy(address: str) -> Path:
    """Return the path of a copy of a file or a folder, on a disk of this machine.

    It is made once as long as nothing changes at the address, and removed as the process ends.

    Raises:
        FileNotFoundError: if there is nothing.
    """
    address = str(RemotePath(address))
    with naming(address):
        files, root = filesystem(address)
        root = root.rstrip("/")
        files.invalidate_cache()  # of what another process may have changed
        if files.isfile(root):
            listing = {root: {"size": files.size(root)}}
        else:
            listing = files.find(root, detail=True)
        if not listing:
            raise FileNotFoundError(f"There is no file and no folder {address!r}.")
        if f"{root}/{UPLOADING}" in listing:
            raise FileNotFoundError(
                f"{address} is not complete: an upload goes on, or was interrupted. Wait, or "
                "repeat what writes it."
            )
        state = _state(listing)
        if address in _COPIES and _COPIES[address][0] == state:
            return _COPIES[address][1]
        folder = tempfile.TemporaryDirectory(prefix="keras_lm-")
        copy = Path(folder.name, posixpath.basename(root) or "files")
        for name in listing:
            target = copy / name[len(root) :].lstrip("/") if name != root else copy
            if not target.resolve().is_relative_to(Path(folder.name).resolve()):
                raise ValueError(f"{address} has a file {name!r}, which lies outside of it.")
            target.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(name, str(target))
        _COPIES[address] = state, copy, folder
        return copy


def _state(listing):
    return {
        name: {key: str(about[key]) for key in VERSION if key in about}
        for name, about in listing.items()
    }


def state_of(path: str | os.PathLike) -> dict[str, dict[str, str]]:
    """Return names of the files of a folder, or a file, and what changes if one is replaced.

    Of `hf://owner/name`, nothing is known.
    """
    if is_remote(path) and not str(path).startswith("hf://"):
        with naming(path):
            files, root = filesystem(str(path))
            return _state(files.find(root, detail=True))
    path = Path(path).expanduser()
    paths = [path, *sorted(path.rglob("*"))] if path.exists() else []
    stats = {str(file): file.stat() for file in paths if file.is_file()}
    return _state({p: {"size": s.st_size, "mtime": s.st_mtime_ns} for p, s in stats.items()})


@contextlib.contextmanager
def reading(path: Path | RemotePath) -> Iterator[Path]:
    """Yield the path of a file of this machine: of an address, that of a temporary copy."""
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="keras_lm-") as folder:
        copy = Path(folder, path.name)
        with naming(path):
            files, name = filesystem(str(path))
            files.get_file(name, str(copy))
        yield copy


def as_local(path: str | os.PathLike) -> Path:
    """Return a path of this machine: that of a copy, of an address but for `hf://owner/name`."""
    is_address = is_remote(path) and not str(path).startswith("hf://")
    return local_copy(str(path)) if is_address else Path(str(path)).expanduser()


# === Writing to addresses ===


@contextlib.contextmanager
def uploading(path: RemotePath) -> Iterator[Path]:
    """Yield a temporary path to write a file or a folder to, and upload it at the end."""
    with hidden(tempfile.gettempdir(), f"keras_lm-{path.name}") as folder:
        new = folder / f"new{path.suffix}"
        yield new
        upload(new, path)


def upload(new: Path, path: RemotePath) -> None:
    """Copy a local file or folder to an address, in the place of what is there.

    A folder loses the file that shows that it is complete before the others change. Until all are
    there it has the file `UPLOADING`, by which the next upload knows that it may go there.
    """
    with naming(path, "written"):
        files, root = filesystem(str(path))
        if new.is_file():
            _put(files, new, root)
            return
        local = {each.relative_to(new).as_posix(): each for each in new.rglob("*")}
        local = {name: each for name, each in local.items() if each.is_file()}
        base = root.rstrip("/") + "/"
        old = {name[len(base) :] for name in files.find(base)} if files.exists(root) else set()
        order = sorted(local, key=lambda name: (posixpath.basename(name) in LAST, name))
        _put_empty(files, base + UPLOADING)
        for name in sorted(old, key=lambda name: posixpath.basename(name) not in LAST):
            if name != UPLOADING and (name not in local or posixpath.basename(name) in LAST):
                files.rm_file(base + name)
        for name in order:
            _put(files, local[name], base + name)
        files.rm_file(base + UPLOADING)


def _put(files, source, target):
    schemes = getattr(files, "protocol", ())
    schemes = {schemes} if isinstance(schemes, str) else {*schemes}
    new = target if schemes & OBJECT_STORES else f"{target}{WRITING}"
    try:
        files.put_file(str(source), new)
    except FileNotFoundError:  # some have folders, which are made first
        files.makedirs(posixpath.dirname(new), exist_ok=True)
        files.put_file(str(source), new)
    if new != target:
        files.mv(new, target)


def _put_empty(files, target):
    with tempfile.NamedTemporaryFile() as empty:
        _put(files, empty.name, target)


def check_writable(path: RemotePath) -> None:
    """Raise an OSError if no file can be written beside an address."""
    probe = path.with_name(f".{path.name}-{uuid.uuid4().hex}{WRITING}")
    with naming(path, "written"):
        files, name = filesystem(str(probe))
        _put_empty(files, name)
        with contextlib.suppress(Exception):  # who may only write leaves an empty file
            files.rm_file(name)


def remove_folder(path: Path | RemotePath) -> None:
    """Remove a folder, on a disk or at an address, if it is there."""
    if not is_remote(path):
        if path.exists():
            shutil.rmtree(path)
        return
    with naming(path, "removed"):
        files, name = filesystem(str(path))
        if files.exists(name):
            files.rm(name, recursive=True)
