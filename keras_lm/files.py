"""Atomic writing of files and folders: a reader finds the old one or the new one, never a part."""

import contextlib
import glob
import os
import tempfile
from pathlib import Path

LARGEST_VERSION = 2**63 - 1  # TF Serving keeps version numbers in 64 bits


# === Writing ===


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path to write a file or a folder to, and move it to `path` at the end.

    Until then it is in a hidden folder beside `path`, which is always removed; if anything fails,
    `path` is unchanged. A file cannot replace a folder, nor a folder a file.
    """
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    with hidden(path.parent, path.name) as beside:
        new = beside / f"new{path.suffix}"  # some writers look at the suffix
        yield new
        _set_mode(new, beside)
        sync(new)
        _exchange(new, path, beside / "old")
        _sync_one(path.parent)


@contextlib.contextmanager
def hidden(folder, name):
    """Yield a new folder named `.NAME-…` in an existing one, and remove it with its content."""
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as temporary:
        yield Path(temporary)


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
    try:
        os.rename(path, old)
        os.rename(new, path)
    except BaseException:  # Ctrl-C too, or the old folder would go with the hidden one
        if old.exists() and not path.exists():
            os.rename(old, path)
        raise


def sync(path):
    """Sync a file or a folder to disk; else a power cut may leave an empty file in its place."""
    path = Path(path)
    for each in [*path.rglob("*"), path]:
        _sync_one(each)


def _sync_one(path):
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
