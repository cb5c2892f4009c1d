"""Files at addresses: `s3://…`, `gs://…`, `memory://…`, `hf://datasets/…`, `https://…`.

fsspec opens them, with the package that it has for a scheme, such as s3fs or gcsfs. Where that is
not installed, or fsspec does not know the scheme, TensorFlow's filesystem opens it if it can.

Nothing is renamed there: files are uploaded whole, and of a folder the one by which readers know
that it is complete comes last.
"""

import contextlib
import functools
import os
import posixpath
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # of two letters at least, unlike a drive
OF_A_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")  # what `Path` makes of an address
# By which readers know that a folder is complete, or what it is.
LAST = ("keras_lm.json", "tokens.json", "saved_model.pb", "config.json", "metadata.json")
VERSION = ("size", "ETag", "etag", "mtime", "LastModified", "updated", "created", "generation")


def is_remote(path: Any) -> bool:
    """Return whether a path is an address, and not on a disk of this machine."""
    return isinstance(path, RemotePath) or bool(isinstance(path, str) and SCHEME.match(path))


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
        if files := _tensorflow_files(address):
            return files, address
        if isinstance(error, ImportError):
            raise ImportError(f"{address}: {error}") from error
        raise ValueError(
            f"{address}: neither fsspec nor TensorFlow knows the scheme "
            f"{SCHEME.match(address)[1]!r}: copy the files to a disk, or mend the address."
        ) from error


def _tensorflow_files(address):
    from keras_lm.tensorflow import IS_INSTALLED, tf

    known = IS_INSTALLED and tf.io.gfile.get_registered_schemes()
    return TensorFlowFiles(tf.io.gfile) if known and SCHEME.match(address)[1] in known else None


class TensorFlowFiles:
    """`tf.io.gfile` with the methods of fsspec that are called here; paths are addresses."""

    def __init__(self, gfile: Any):
        self.gfile = gfile
        self.exists, self.isdir = gfile.exists, gfile.isdir
        self.glob, self.rm_file, self.makedirs = gfile.glob, gfile.remove, gfile.makedirs

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


# === Reading ===


def open_file(path: str | os.PathLike) -> Any:
    """Return a file on a disk or at an address, open for reading bytes."""
    return RemotePath(path).open() if is_remote(path) else open(path, "rb")


def size_of(path: str) -> int:
    """Return the size of a file in bytes."""
    if not is_remote(path):
        return os.path.getsize(path)
    with naming(path):
        files, name = filesystem(path)
        return files.size(name)


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
        if files.isfile(root):
            listing = {root: {"size": files.size(root)}}
        else:
            listing = files.find(root, detail=True)
        if not listing:
            raise FileNotFoundError(f"There is no file and no folder {address!r}.")
        state = {name: {key: about.get(key) for key in VERSION} for name, about in listing.items()}
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


def as_local(path: str | os.PathLike) -> Path:
    """Return a path of this machine: that of a copy, of an address but for `hf://owner/name`."""
    is_address = is_remote(path) and not str(path).startswith("hf://")
    return local_copy(str(path)) if is_address else Path(str(path)).expanduser()


# === Writing ===


@contextlib.contextmanager
def uploading(path: RemotePath) -> Iterator[Path]:
    """Yield a temporary path to write a file or a folder to, and upload it at the end."""
    with tempfile.TemporaryDirectory(prefix="keras_lm-") as folder:
        new = Path(folder) / f"new{path.suffix}"
        yield new
        upload(new, path)


def upload(new: Path, path: RemotePath) -> None:
    """Copy a local file or folder to an address, in the place of what is there.

    A folder loses the file that shows that it is complete before the others change.
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
        for name in sorted(old, key=lambda name: posixpath.basename(name) not in LAST):
            if name not in local or posixpath.basename(name) in LAST:
                files.rm_file(base + name)
        for name in order:
            _put(files, local[name], base + name)


def _put(files, source, target):
    try:
        files.put_file(str(source), target)
    except FileNotFoundError:  # some have folders, which are made first
        files.makedirs(posixpath.dirname(target), exist_ok=True)
        files.put_file(str(source), target)
