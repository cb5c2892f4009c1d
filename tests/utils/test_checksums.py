"""Files that are not as they were written are refused by name; older ones load as before."""

import json
import zipfile

import numpy as np
import pytest

from keras_lm.utils import files
from keras_lm.utils.files import DamagedFileError, check_end, check_sums, end_of, write_sums

CONTENTS = {"a.json": b"{}", "assets/b.txt": b"one\ntwo\n" * 3000, "empty": b""}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "assets").mkdir()
    for name, content in CONTENTS.items():
        (tmp_path / name).write_bytes(content)
    write_sums(tmp_path, CONTENTS)
    return tmp_path


def test_a_folder_as_it_was_written(folder):
    check_sums(folder)
    (folder / "card.md").write_text("not named")
    (folder / "empty").unlink()  # which its reader says
    check_sums(folder)
    (folder / files.CHECKSUMS).unlink()
    (folder / "a.json").write_bytes(b"older")
    check_sums(folder)


@pytest.mark.parametrize("name", CONTENTS)
def test_a_changed_file(folder, name):
    content = CONTENTS[name]
    others = [content + b"\0", content + b"\n"] + [content[:-1], content[1:]] * bool(content)
    for place in {0, len(content) // 2, len(content) - 1} if content else ():
        others.append(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
    for other in others:
        (folder / name).write_bytes(other)
        with pytest.raises(DamagedFileError, match=rf"{name} has changed .*: copy it from C\. If"):
            check_sums(folder, "copy it from C")


def test_two_blocks_that_are_exchanged(folder):
    content = np.arange(3 * files.BLOCK // 8).tobytes()
    first, second = content[: files.BLOCK], content[files.BLOCK : 2 * files.BLOCK]
    (folder / "a.json").write_bytes(content)
    write_sums(folder, ["a.json"])
    (folder / "a.json").write_bytes(second + first + content[2 * files.BLOCK :])
    with pytest.raises(DamagedFileError):
        check_sums(folder)


def test_changed_checksums(folder):
    path = folder / files.CHECKSUMS
    content = path.read_bytes()
    message = json.loads(content)
    for other in (
        *(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :] for i in range(len(content))),
        b"[" * 100_000,
        json.dumps(message | {"a.json": message["a.json"] + 1}).encode(),
        b"{}",
    ):
        path.write_bytes(other)
        if _same(other, message):
            continue
        with pytest.raises(DamagedFileError, match=r"checksums\.json is damaged"):
            check_sums(folder)


def _same(content, results):
    try:
        return json.loads(content) == results  # only the white space differs
    except (ValueError, RecursionError):
        return False


def test_a_file_with_an_archive(tmp_path):
    own, path = bytes(range(256)) * 40, tmp_path / "model.tflite"
    check_end(own, path)
    path.write_bytes(own)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("README.md", "a card")
    check_end(path.read_bytes(), path)  # an older one
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(files.CHECKSUMS, end_of(own))
    content = path.read_bytes()
    check_end(content, path)
    check_end(path, path)
    for place in range(0, len(own), 97):
        other = content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]
        with pytest.raises(DamagedFileError, match=r"model\.tflite has changed"):
            check_end(other, path)
    path.write_bytes(other)
    with pytest.raises(DamagedFileError, match=r"model\.tflite has changed"):
        check_end(path, path)
