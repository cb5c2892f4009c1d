"""Atomic writing of files and folders, and looking at them."""

import errno
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_lm.converters import find_folder
from keras_lm.utils import files, input_files
from keras_lm.utils.folder_lock import take
from keras_lm.utils.model_versions import find_versions


@pytest.fixture(params=["file", "folder"])
def write(request):
    """A function that writes a file, or a folder with a file in it."""

    def write(path, text):
        if request.param == "folder":
            path.mkdir(exist_ok=True)
            path = path / "inner"
        path.write_text(text)

    return write


def content(path):
    return (path / "inner" if path.is_dir() else path).read_text()


def test_what_is_there_is_replaced_at_the_end(write, tmp_path):
    path = tmp_path / "parent" / "thing.txt"
    for old, new in ((None, "one"), ("one", "two")):
        with files.replacing(path) as place:
            write(place, new)
            assert place.suffix == ".txt"
            assert (content(path) if path.exists() else None) == old
        assert content(path) == new
        assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(error, write, tmp_path):
    write(tmp_path / "thing", "old")
    with pytest.raises(error), files.replacing(tmp_path / "thing") as place:
        write(place, "new")
        raise error
    assert content(tmp_path / "thing") == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "thing"]


def test_a_failure_in_the_exchange_leaves_what_was_there(write, tmp_path, monkeypatch):
    write(tmp_path / "thing", "old")
    rename = os.rename

    def fail(source, target):
        if source.name == "new":
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(files, "_swap", lambda one, other: False)
    monkeypatch.setattr(files.os, "rename", fail)
    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(KeyboardInterrupt), files.replacing(tmp_path / "thing") as place:
        write(place, "new")
    assert content(tmp_path / "thing") == "old"


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is Linux's")
def test_folders_change_places_at_once(tmp_path, monkeypatch):
    """Between two renames there would be a moment without any."""

    def fail(*arguments):
        raise AssertionError("a rename")

    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "inner").write_text("old")
    monkeypatch.setattr(files.os, "rename", fail)
    with files.replacing(tmp_path / "thing") as place:
        place.mkdir()
        (place / "inner").write_text("new")
    assert content(tmp_path / "thing") == "new"
    assert list(tmp_path.iterdir()) == [tmp_path / "thing"]


KILLED = """
import importlib.util, os, sys

# Without the package, which imports TensorFlow.
spec = importlib.util.spec_from_file_location("files", sys.argv[3])
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
exchange = sys.argv[2] == "exchanging"
if exchange:
    files._swap = lambda one, other: False
    rename = os.rename

    def killed(source, target):
        if source.name.startswith("new"):
            os.kill(os.getpid(), 9)
        rename(source, target)

    files.os.rename = killed
with files.replacing(sys.argv[1]) as new:
    new.mkdir()
    (new / "inner").write_text("new")
    if not exchange:
        os.kill(os.getpid(), 9)
"""


def kill_while(moment, path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), moment, files.__file__])
    assert done.returncode == -9


@pytest.fixture
def folder(tmp_path):
    """A folder whose replacement was killed while it was written, and one that still goes on."""
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "inner").write_text("old")
    (tmp_path / ".thing-abcdefgh").mkdir()  # somebody's
    (tmp_path / ".things-abcdefgh.writing").mkdir()  # of another name
    kill_while("writing", tmp_path / "thing")
    assert len(list(tmp_path.iterdir())) == 4
    assert content(tmp_path / "thing") == "old"
    return tmp_path / "thing"


def test_the_next_write_removes_what_killed_ones_left_and_not_what_goes_on(folder):
    with files.hidden(folder.parent, "thing") as alive, files.replacing(folder) as new:
        new.mkdir()
        (new / "inner").write_text("new")
        names = {path.name for path in folder.parent.iterdir()}
        assert names == {
            "thing",
            ".thing-abcdefgh",
            ".things-abcdefgh.writing",
            alive.name,
            new.parent.name,
        }
    assert content(folder) == "new"
    names = {path.name for path in folder.parent.iterdir()}
    assert names == {"thing", ".thing-abcdefgh", ".things-abcdefgh.writing"}


def test_a_folder_taken_for_dead_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    make, made = files.tempfile.mkdtemp, []

    def make_then_lose(**options):
        made.append(make(**options))
        if len(made) == 1:
            files.recover(tmp_path / "exporting")  # of another process, in between
        return made[-1]

    monkeypatch.setattr(files.tempfile, "mkdtemp", make_then_lose)
    with files.hidden(tmp_path, "exporting") as folder:
        assert [str(folder)] == made[1:]
        assert [str(path) for path in tmp_path.iterdir()] == made[1:]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_whose_exchange_was_killed_is_put_back(folder):
    kill_while("exchanging", folder)
    assert not folder.exists()
    files.recover(folder)
    assert content(folder) == "old"
    kill_while("exchanging", folder)
    with files.replacing(folder) as new:
        assert content(folder) == "old"
        new.mkdir()
    assert not (folder / "inner").exists()
    with pytest.raises(FileNotFoundError, match="no folder"):
        find_folder(str(folder.parent / "nothing"))
    (folder / "inner").write_text("old")
    kill_while("exchanging", folder)
    assert content(find_folder(str(folder))) == "old"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_named(error, tmp_path):
    words = r"disk is full .* free some space, .*thing"
    with pytest.raises(OSError, match=words) as caught, files.replacing(tmp_path / "thing"):
        raise error
    assert caught.value.errno == errno.ENOSPC and caught.value.__cause__ is error
    assert not list(tmp_path.iterdir())


def test_a_file_replaces_no_folder_nor_the_reverse(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").touch()
    (tmp_path / "file").write_text("old")
    with pytest.raises(IsADirectoryError), files.replacing(tmp_path / "folder") as new:
        new.touch()
    with pytest.raises(NotADirectoryError), files.replacing(tmp_path / "file") as new:
        new.mkdir()
    assert (tmp_path / "folder" / "inner").exists()
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_can_be_read_by_whom_the_umask_says(umask, mode, tmp_path):
    before = os.umask(umask)
    try:
        with files.replacing(tmp_path / "a.safetensors") as new:
            save_file({"a": np.zeros(2)}, new)
        with files.replacing(tmp_path / "folder") as new:
            new.mkdir()
            save_file({"a": np.zeros(2)}, new / "model.safetensors")
    finally:
        os.umask(before)
    for path in (tmp_path / "a.safetensors", tmp_path / "folder" / "model.safetensors"):
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_what_is_something_else_is_not_replaced(tmp_path):
    files.require_free(tmp_path / "missing", "is not a preset")
    files.require_free(tmp_path, "is not a preset")
    (tmp_path / "mark").touch()
    files.require_free(tmp_path, "is not a preset", marker="mark")
    for place, marker in [(tmp_path, None), (tmp_path, "other"), (tmp_path / "mark", "mark")]:
        with pytest.raises(FileExistsError, match="exists and is not a preset: choose another"):
            files.require_free(place, "is not a preset", marker)


def test_size(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "inner" / "b").write_bytes(b"678")
    assert files.size(tmp_path) == 8
    assert files.size(tmp_path / "a") == 5


def test_versions(tmp_path):
    assert find_versions(tmp_path / "missing") == {}
    for name in ("2", "10", "007", "x1", "١", "-1", str(2**63), str(2**63 - 1), "9" * 200):
        (tmp_path / name).mkdir()
    (tmp_path / "5").touch()
    assert list(find_versions(tmp_path)) == [2, 7, 10, 2**63 - 1]
    assert find_versions(tmp_path)[7] == tmp_path / "007"
    assert list(files.numbered(tmp_path)) == [2, 5, 7, 10, 2**63 - 1]


def test_lines_and_contents_have_bounds(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n12345678\nlast")
    with path.open("rb") as file:
        assert list(input_files.lines(file, "a.txt", longest=9)) == [
            b"one\n",
            b"12345678\n",
            b"last",
        ]
    with (
        path.open("rb") as file,
        pytest.raises(ValueError, match=r"a\.txt, line 2: longer than 8 b"),
    ):
        list(input_files.lines(file, "a.txt", longest=8))
    with path.open("rb") as file:
        assert input_files.whole(file, "a.txt", most=17) == path.read_bytes()
    with (
        path.open("rb") as file,
        pytest.raises(ValueError, match=r"a\.txt has more than 16 bytes"),
    ):
        input_files.whole(file, "a.txt", most=16)


def test_a_folder_is_taken_by_one(tmp_path):
    lock = take(tmp_path / "new")
    with pytest.raises(FileExistsError, match=rf"new is being written by process {os.getpid()} of"):
        take(tmp_path / "new")
    os.close(lock)  # as the end of a process does
    os.close(take(tmp_path / "new"))


def test_paths_that_no_file_can_have(tmp_path):
    for path in (tmp_path / "a\0b", tmp_path / "a\0b" / "c"):
        with pytest.raises(ValueError, match=r"a\\x00b.* has a null byte"), files.replacing(path):
            pass
