"""Files on Beam's filesystems, or else at fsspec's addresses: found, and written atomically.

On a local disk, an unfinished folder is `NAME.unfinished`, and is renamed at the end. Elsewhere
folders cannot be renamed in one step; the index is written last, and shows that the folder is
complete. A finished part of a folder has a note next to it, so that a later run keeps the part.
"""

import contextlib
import json
import os
import shutil
import tempfile
import uuid
from pathlib import Path

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from keras_lm.utils import files, input_files
from keras_lm.utils.files import as_path, find_remote, open_file
from keras_lm.utils.folder_lock import HOLDER, take

NOTE = ".note.json"
KEPT = ".kept"  # suffix of files that only a running pipeline needs


def is_local(path):
    """Return whether a path is on a disk of this machine."""
    return "://" not in str(path)


def _beam_reads(path):
    """Return whether Beam has a filesystem for a path, and its package is installed."""
    try:
        FileSystems.get_filesystem(str(path))
    except ValueError:
        return False
    return True


def open_bytes(path):
    """Open a file for reading bytes: by Beam, or where it has no filesystem by fsspec."""
    if not _beam_reads(path):
        return open_file(path)
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def find_inputs(patterns):
    """Return `(path, bytes)` of the files that match paths and patterns, without duplicates.

    Raises:
        FileNotFoundError: if a path or pattern matches no file.
    """
    patterns = [patterns] if isinstance(patterns, (str, os.PathLike)) else list(patterns)
    inputs = []
    for pattern in map(os.fspath, patterns):
        if is_local(pattern):
            inputs += [
                (os.path.abspath(path), os.stat(path).st_size)
                for path in input_files.find_files(pattern, tables=True)
            ]
            continue
        if _beam_reads(pattern):
            matched = FileSystems.match([pattern])[0].metadata_list
            matched = sorted((file.path, file.size_in_bytes) for file in matched)
        else:
            matched = [(path, files.size(path)) for path in find_remote(pattern)]
        if not matched:
            raise FileNotFoundError(f"files={pattern!r}: there is no such file.")
        inputs += matched
    return list(dict.fromkeys(inputs))


def join(folder, name):
    """Return the path of a file in a folder."""
    return os.path.join(folder, name) if is_local(folder) else f"{str(folder).rstrip('/')}/{name}"


def _exists(path):
    return FileSystems.exists(path) if _beam_reads(path) else as_path(path).exists()


def _remove(paths):
    """Remove files of one folder."""
    if paths and _beam_reads(paths[0]):
        FileSystems.delete(paths)
        return
    for path in paths:
        as_path(path).unlink()


def _files_in(folder):
    """Return the paths of a folder's files, by their names."""
    if not _beam_reads(folder):
        paths = as_path(folder).iterdir() if _exists(folder) else ()
        return {path.name: str(path) for path in paths if path.is_file()}
    matched = FileSystems.match([join(folder, "*")])[0].metadata_list
    return {FileSystems.split(file.path)[1]: file.path for file in matched}


def read_json(path):
    """Return the content of a JSON file, or None if there is no such file."""
    if not _exists(path):
        return None
    with open_bytes(path) as file:
        return json.loads(file.read())


def write_json(path, content):
    """Write a JSON file atomically."""
    with writing(path) as new:
        Path(new).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@contextlib.contextmanager
def writing(path):
    """Yield the path of a new local file, which is moved or copied to `path` at the end."""
    if is_local(path) or not _beam_reads(path):
        with files.replacing(path) as new:
            yield str(new)
        return
    with tempfile.TemporaryDirectory() as folder:
        new = os.path.join(folder, "new")
        yield new
        copy = f"{path}.{uuid.uuid4().hex}.writing"
        with (
            open(new, "rb") as source,
            FileSystems.create(copy, compression_type=CompressionTypes.UNCOMPRESSED) as target,
        ):
            shutil.copyfileobj(source, target)
        FileSystems.rename([copy], [path])


def note_of(folder, name, digest):
    """Return the note of a finished part of a folder, if its input had this digest, or None."""
    note = read_json(join(folder, name + NOTE))
    same = note is not None and note["digest"] == digest
    return note if same and _exists(join(folder, name)) else None


class GrowingFolder:
    """A folder that several runs may write, each continuing the one before.

    `path` is where its parts are written. `index` is the name of the file that is written last.
    """

    def __init__(self, folder, index, overwrite=False):
        folder = str(folder).removeprefix("file://")
        if not _beam_reads(folder):
            files.check_writable(as_path(folder))
        self.folder = str(Path(folder).expanduser().absolute()) if is_local(folder) else str(folder)
        self.index = index
        self.path = f"{self.folder}.unfinished" if is_local(folder) else self.folder
        if is_local(folder):
            files.require_free(Path(self.folder), f"has no {index}", marker=index)
        else:
            self._require_ours()
        if not overwrite and _exists(join(self.folder, index)):
            raise FileExistsError(f"{folder} exists: choose another folder, or overwrite it.")
        if not is_local(folder) and _exists(join(self.folder, index)):
            _remove([join(self.folder, index)])  # the parts are going to change
        self._lock = None
        if is_local(folder):  # elsewhere there are no locks
            self._lock = take(self.path)
            self._remove_kept()
            return
        with contextlib.suppress(OSError):  # it exists
            if _beam_reads(folder):  # of others, writing a file makes it
                FileSystems.mkdirs(self.path)

    def _require_ours(self):
        """Raise a FileExistsError if a folder that is not local has files, and none is ours."""
        names = _files_in(self.folder)
        ours = (self.index, NOTE, files.WRITING)
        if names and not any(name.endswith(ours) for name in names):
            raise FileExistsError(
                f"{self.folder} exists and has no {self.index}: choose another folder."
            )

    def _remove_kept(self):
        for path in Path(self.path).glob(f"*{KEPT}") if is_local(self.path) else ():
            path.unlink(missing_ok=True)

    def finish(self, names):
        """Rename the folder, with only the files in `names` in it; return its index."""
        # The others are notes, and leftovers of an earlier run with other settings.
        _remove([path for name, path in _files_in(self.path).items() if name not in names])
        if is_local(self.folder):
            files.sync(self.path)
            Path(self.path, HOLDER).unlink(missing_ok=True)
            with files.replacing(self.folder) as new:
                os.rename(self.path, new)
            os.close(self._lock)
        return read_json(join(self.folder, self.index))

    def give_up(self):
        """Remove the folder if no part is finished, and release its lock."""
        self._remove_kept()
        parts = Path(self.path).iterdir() if is_local(self.folder) else []
        if is_local(self.folder) and not any(
            part.stat().st_size for part in parts if not part.name.endswith((NOTE, HOLDER))
        ):
            shutil.rmtree(self.path)
        if self._lock is not None:
            os.close(self._lock)
