"""Files and folders: written whole or not at all, with checksums, and checked when they are read.

A reader finds the old file or the new one, never a part.

A checksum is the CRC-32 of the sums of blocks, each 4,096 bytes as 64-bit numbers modulo 2**64: any
changed byte changes a sum, and sums are taken ten times as fast as a CRC. They are in a
`checksums.json` beside the files of a folder, or within one file at its end.
"""

import contextlib
import ctypes
import errno
import io
import json
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_lm.utils.remote_files import OF_A_PATH, RemotePath, is_remote, uploading

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

# From linux/fs.h and fcntl.h.
RENAME_EXCHANGE = 2
AT_FDCWD = -100
CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


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

    To an address, it is uploaded, see `remote_files`.

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


def require_free(folder, reason, marker=None):
    """Raise a FileExistsError if `folder` is a file, or has files but not the file `marker`."""
    is_ours = marker is not None and (folder / marker).is_file()
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not is_ours):
        raise FileExistsError(f"{folder} exists and {reason}: choose another folder.")


# === Finding ===


def export_format(path, format=None):
    """Return the format to export in: the given one, otherwise by the suffix."""
    return format or EXPORT_SUFFIXES.get(as_path(path).suffix, "saved_model")


def size(path):
    """Return the size in bytes of a file, or of all files in a folder."""
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
