"""Checksums of files: in a `checksums.json` beside those of a folder, or within one at its end.

A checksum is the CRC-32 of the sums of blocks, each 4,096 bytes as 64-bit numbers modulo 2**64: any
changed byte changes a sum, and sums are taken ten times as fast as a CRC.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

FILE = "checksums.json"
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
    (folder / FILE).write_text(json.dumps(with_sum(sums), indent=2) + "\n", encoding="utf-8")


def check_sums(folder: Path, remedy: str = "copy the folder again, whole") -> None:
    """Raise a DamagedFileError if a file is not the one whose checksum the folder has.

    Folders without checksums pass, and so do files that are missing, which their readers name.
    """
    path = folder / FILE
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
    """Return the text of a `FILE` in the archive that follows a file's own content."""
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
            if FILE not in archive.namelist():
                return
            stated = json.loads(archive.read(FILE))
    except (zipfile.BadZipFile, NotImplementedError):
        return
    size = stated["bytes"]
    values = np.frombuffer(content, np.uint8) if is_read else np.memmap(content, np.uint8, "r")
    values = values[:size]
    if sum_of(values, size) != stated["sum"]:
        raise DamagedFileError(f"{path} has changed since it was written: copy it again.")
