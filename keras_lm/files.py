"""Atomic writing of files and folders: a reader finds the old one or the new one, never a part."""

import contextlib
import ctypes
import errno
import functools
import glob
import os
import platform
import re
import shutil
import tempfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows, where what killed processes left stays
    fcntl = None

LARGEST_VERSION = 2**63 - 1  # TF Serving keeps version numbers in 64 bits

LONGEST_LINE = 2**26  # bytes
LARGEST_CONTENT = 2**28  # of a file that is read at once

HOLDER = ".holder"  # in a folder that is taken
WRITING = ".writing"  # how hidden folders end: nobody else's are removed
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DISK_IS_FULL = "The disk is full or a limit of it reached, so that nothing was changed"
# For writers with exceptions of their own, which quote the system, or what stood in a worker.
FULL_MESSAGES = (DISK_IS_FULL, *(os.strerror(number) for number in FULL))

# Of linux/fs.h and fcntl.h.
RENAME_EXCHANGE = 2
AT_FDCWD = -100
CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def as_path(path):
    """Return a path of the user's; ValueError if no file can have it."""
    if "\0" in str(path):
        raise ValueError(f"{str(path)!r} holds NUL, which no path can: pass another one.")
    return Path(path).expanduser()


# === Writing ===


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path to write a file or a folder to, and move it to `path` at the end.

    Until then it is in a hidden folder beside `path`, see `hidden`; if anything fails, `path` is
    unchanged. A file cannot replace a folder, nor a folder a file.

    Where the system can, old and new change places at once; elsewhere a process that is killed
    between two renames leaves no `path`, which `recover` and the next write bring back.
    """
    path = as_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with hidden(path.parent, path.name) as beside:
        new = beside / f"new{path.suffix}"  # some writers look at the suffix
        yield new
        _set_mode(new, beside)
        sync(new)
        _exchange(new, path, beside / "old")
        sync_one(path.parent)


@contextlib.contextmanager
def hidden(folder, name):
    """Yield a new folder named `.NAME-….writing` in an existing one, and remove it at the end.

    What killed processes left by the same name is removed first; those alive hold a lock on theirs.

    Raises:
        OSError: with `errno.ENOSPC` if the disk is full, whatever the writer's own exception.
    """
    folder = Path(folder)
    recover(folder / name)
    with naming_a_full_disk(folder / name):
        temporary, lock = _new_locked(folder, name)
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            os.close(lock)


def _new_locked(folder, name):
    while True:
        temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", suffix=WRITING, dir=folder))
        try:
            lock = os.open(temporary, os.O_RDONLY)
        except FileNotFoundError:
            continue  # somebody else was faster, and took it for dead
        with contextlib.suppress(OSError):  # without locks nobody removes it either
            _lock(lock)
        if temporary.is_dir():
            return temporary, lock
        os.close(lock)  # taken for dead before it was locked


def _lock(descriptor, wait=True):
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "there are no locks")
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def take(folder):
    """Make a folder if there is none, and lock it until the returned descriptor is closed.

    A process that dies closes its own. Where the system has no locks, nobody is refused.

    Raises:
        FileExistsError: if somebody else has it; says who.
    """
    folder = Path(folder)
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # it has just got another name
        try:
            _lock(lock, wait=False)
        except BlockingIOError as error:
            os.close(lock)
            holder = folder / HOLDER
            who = holder.read_text(encoding="utf-8") if holder.is_file() else "another process"
            raise FileExistsError(
                f"{folder} is being written by {who}: wait until it has ended, or choose another "
                "folder."
            ) from error
        except OSError:
            pass
        if folder.is_dir() and os.path.samestat(os.stat(lock), folder.stat()):
            break
        os.close(lock)
    (folder / HOLDER).write_text(f"process {os.getpid()} of {platform.node()}", "utf-8")
    return lock


def recover(path):
    """Remove what killed processes left of writing `path`, and put it back if they had moved it."""
    pattern = re.compile(rf"\.{re.escape(path.name)}-\w{{8}}{re.escape(WRITING)}")
    with contextlib.suppress(OSError, ValueError):  # (the path may hold NUL)
        for left in [Path(e.path) for e in os.scandir(path.parent) if pattern.fullmatch(e.name)]:
            with contextlib.suppress(OSError):  # it is alive, somebody else's, or gone
                _recover_from(left, path)


def _recover_from(left, path):
    lock = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        _lock(lock, wait=False)
        if (left / "old").exists() and not path.exists():
            os.rename(left / "old", path)
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(lock)


@contextlib.contextmanager
def naming_a_full_disk(path):
    """Raise an OSError with `path` and the remedy for any exception that says the disk is full."""
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
    """Set permissions by the umask: safetensors makes files readable by their owner alone."""
    probe = beside / "probe"
    probe.touch()
    for path in [*new.rglob("*"), new]:
        if path.is_file():
            path.chmod(probe.stat().st_mode)


def _exchange(new, path, old):
    if not (new.is_dir() and path.is_dir()):
        os.replace(new, path)  # raises where one is a file and the other a folder
        return
    if _swap(new, path):
        return
    try:
        os.rename(path, old)
        os.rename(new, path)
    except BaseException:  # Ctrl-C too, or the old folder would go with the hidden one
        if old.exists() and not path.exists():
            os.rename(old, path)
        raise


def _swap(one, other):
    """Let two paths change places in one step; return False where the system cannot."""
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
    """Sync a file or a folder to disk; else a power cut may leave an empty file in its place."""
    path = Path(path)
    for each in [*path.rglob("*"), path]:
        sync_one(each)


def sync_one(path):
    """Sync one file or the entries of one folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_free(folder, reason, marker=None):
    """Raise a FileExistsError if `folder` is a file, or not empty and without the file `marker`."""
    is_ours = marker is not None and (folder / marker).is_file()
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not is_ours):
        raise FileExistsError(f"{folder} exists and {reason}: choose another folder.")


# === Reading ===


class TooLong(ValueError):
    """A file holds more than is read: a small packed one can hold what no memory can."""


def lines(stream, name, longest=None):
    """Yield the lines of an open file, bytes with their endings; `name` is what errors call it.

    Raises:
        TooLong: if a line has more bytes than `longest`, or `LONGEST_LINE`; names it and the file.
    """
    longest = LONGEST_LINE if longest is None else longest
    read = functools.partial(stream.readline, longest + 1)
    for number, line in enumerate(iter(read, b""), start=1):
        if len(line) > longest:
            raise TooLong(
                f"{name}, line {number}: longer than {longest} bytes. Put line breaks into it, or "
                "leave it out."
            )
        yield line


def whole(stream, name, most=None):
    """Return all bytes of an open file.

    Raises:
        TooLong: if there are more than `most`, or `LARGEST_CONTENT`; names the file.
    """
    most = LARGEST_CONTENT if most is None else most
    content = stream.read(most + 1)
    if len(content) > most:
        raise TooLong(f"{name} holds more than {most} bytes, and is read at once: divide it.")
    return content


# === Looking ===


def size(path):
    """Return how many bytes a file has, or all files in a folder."""
    path = Path(path)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def numbered(folder):
    """Return the entries of a folder that numbers name, as a dict of number → `Path`."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return {}
    names = [n for n in names if n.isascii() and n.isdigit() and len(n) < 20]
    found = {int(name): folder / name for name in names}
    return {number: found[number] for number in sorted(found) if number <= LARGEST_VERSION}


def find_versions(folder):
    """Return the folders of versions in a folder by number, as TF Serving sees them."""
    return {number: path for number, path in numbered(folder).items() if path.is_dir()}


def find_saved_models(folder):
    """Return the versions in a folder that hold a SavedModel, a dict of number → `Path`."""
    versions = find_versions(folder)
    return {n: path for n, path in versions.items() if (path / "saved_model.pb").is_file()}


def find_saved_model(path, version=None):
    """Return the folder of a SavedModel, by default the latest version; None if there is none.

    Raises:
        ValueError: if `path` is one version already, or has no such version.
    """
    if (path / "saved_model.pb").is_file():
        if version is not None:
            raise ValueError(f"{path} is one version already: leave version={version} out.")
        return path
    versions = find_saved_models(path)
    if not versions:
        return None
    if version is not None and version not in versions:
        listed = ", ".join(map(str, versions))
        raise ValueError(f"{path} has no version {version}; it has {listed}.")
    return versions[max(versions) if version is None else version]


def find_files(files):
    """Return the paths that match paths and glob patterns, without duplicates, sorted per pattern.

    Args:
        files: path or glob pattern (`**` reaches into folders), or a list of these.

    Raises:
        FileNotFoundError: if one of them names no file.
    """
    patterns = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    paths = []
    for pattern in map(os.fspath, patterns):
        found = [pattern] if os.path.isfile(pattern) else sorted(glob.glob(pattern, recursive=True))
        found = [path for path in found if os.path.isfile(path)]
        if not found:
            raise FileNotFoundError(f"`files` names {pattern!r}, and there is no such file.")
        paths += found
    return list(dict.fromkeys(paths))
