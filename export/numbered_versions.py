"""Numbered versions of a model in one folder, each written atomically."""

import contextlib
import errno
import os
from pathlib import Path

from keras_lm import files

# Errors of a rename whose target another process has created meanwhile.
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def local_path(path):
    """Return a `Path`; raise a ValueError for a URL, which would silently become a local folder."""
    if "://" in os.fspath(path):
        raise ValueError(f"path={os.fspath(path)!r} is a URL: export to a local path, then upload.")
    return Path(path)


def write_version(folder, write):
    """Create the next numbered version in a folder, atomically, and return its `Path`.

    `write` creates a folder at a hidden `Path`, which is renamed once complete, or removed if
    anything fails. Several processes may export at once: each gets its own number.
    """
    folder = local_path(folder)
    made = _make_folders(folder)
    try:
        with files.hidden(folder, "exporting") as beside:
            write(beside / "version")
            files.sync(beside / "version")
            version = _publish(beside / "version", folder)
            files.sync_one(folder)
            return version
    finally:
        for parent in made:
            with contextlib.suppress(OSError):  # not empty: it worked, or is used by others
                parent.rmdir()


def _make_folders(folder):
    """Create a folder and its parents; return the new ones, the deepest first."""
    missing = []
    for parent in (folder, *folder.parents):
        if parent.is_dir():
            break
        if parent.exists() and not parent.is_dir():  # another process may have created it
            raise NotADirectoryError(
                f"path={str(folder)!r}: {str(parent)!r} is a file. Pass a folder for the versions "
                "of the model."
            )
        missing.append(parent)
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _publish(version, folder):
    while True:
        numbers = [number for number in files.numbered(folder) if number < files.LARGEST_VERSION]
        target = folder / str(max(numbers, default=0) + 1)
        try:
            version.rename(target)
            return target
        except OSError as error:
            if error.errno not in TAKEN:
                raise
