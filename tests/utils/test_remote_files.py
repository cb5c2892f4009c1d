"""Files at addresses, by fsspec's filesystem in memory and TensorFlow's."""

import gzip
import os
import sys
import uuid
from pathlib import Path

import fsspec
import pytest
import tensorflow as tf

from keras_lm import analysis, data
from keras_lm.datasets.row_files import open_rows
from keras_lm.utils import files
from keras_lm.utils.files import RemotePath, find_remote, is_remote, local_copy


@pytest.fixture
def memory():
    """An address of a folder that is not there yet."""
    address = f"memory://{uuid.uuid4().hex}"
    yield address
    system = fsspec.filesystem("memory")
    if system.exists(address):
        system.rm(address, recursive=True)


def put(address, content):
    system, path = fsspec.core.url_to_fs(address)
    system.pipe_file(path, content)
    return address


def content_of(address):
    with files.open_file(address) as file:
        return file.read()


def test_what_is_an_address():
    assert all(map(is_remote, ["s3://a/b", "gs://a", "memory://x", RemotePath("s3://a")]))
    assert not any(map(is_remote, ["a/b", "C:\\a", "c://a", Path("s3://a"), "s3:", None, 3]))
    path = files.as_path("s3://bucket/folder/name.tar.gz/")
    assert (str(path), path.name, path.suffix) == (
        *("s3://bucket/folder/name.tar.gz", "name.tar.gz", ".gz"),
    )
    assert str(path.with_name("b")) == "s3://bucket/folder/b"
    with pytest.raises(ValueError, match=r"'s3:/bucket/a' comes from an address"):
        files.as_path(Path("s3://bucket/a"))
    with pytest.raises(TypeError):
        os.fspath(path)


def test_a_scheme_that_nothing_knows_is_named():
    with pytest.raises(
        ValueError, match=r"nosuch://a: neither fsspec nor TensorFlow knows the sch"
    ):
        content_of("nosuch://a")
    with pytest.raises(ValueError, match="nosuch://a"):
        files.as_path("nosuch://a").exists()


def test_a_file_is_written_whole_or_not_at_all(memory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    address = f"{memory}/answers/a.jsonl"
    with files.replacing(address) as new:
        new.write_text("first")
    with pytest.raises(RuntimeError), files.replacing(address) as new:
        new.write_text("second")
        raise RuntimeError
    assert content_of(address) == b"first"
    assert not list(tmp_path.iterdir())


def test_the_file_that_makes_a_folder_valid_comes_last(memory, monkeypatch):
    address = f"{memory}/preset"
    for name in ("keras_lm.json", "old.txt", "assets/b"):
        put(f"{address}/{name}", b"old")
    system = type(fsspec.filesystem("memory"))
    steps = []
    for method in ("put_file", "rm_file"):
        whole = getattr(system, method)

        def noted(self, *paths, method=method, whole=whole, **options):
            steps.append(f"{method[:2]} {paths[-1].rpartition('preset/')[2]}")
            return whole(self, *paths, **options)

        monkeypatch.setattr(system, method, noted)
    with files.replacing(address) as new:
        (new / "assets").mkdir(parents=True)
        for name in ("keras_lm.json", "model.safetensors", "assets/a"):
            (new / name).write_text("new")
    ends = ["pu .uploading", "rm keras_lm.json", "pu keras_lm.json", "rm .uploading"]
    assert steps[:2] + steps[-2:] == ends
    names = {str(each)[len(address) + 1 :] for each in map(str, find_remote(f"{address}/**"))}
    assert {name.rpartition("/")[2] for name in names} == {
        "keras_lm.json",
        "model.safetensors",
        "a",
    }


@pytest.mark.parametrize("is_installed", [True, False])
def test_where_files_grow_they_are_moved_to_their_place(tmp_path, monkeypatch, is_installed):
    """As on a disk by `file://`; a reader, or the next run, never has a part of one."""
    if not is_installed:
        monkeypatch.setitem(sys.modules, "fsspec", None)
    address, seen = f"file://{tmp_path}/a.txt", []
    system, _ = files.filesystem(address)
    usual = type(system).put_file

    def put_file(self, local, path, **options):
        usual(self, local, path, **options)
        seen.append((content_of(address), path))

    for content in ("old", "new"):
        with files.replacing(address) as new:
            new.write_text(content)
        monkeypatch.setattr(type(system), "put_file", put_file)
    assert seen == [(b"old", seen[0][1])] and seen[0][1].endswith("a.txt.writing")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert content_of(address) == b"new"
    with files.reading(files.as_path(address)) as copy:
        assert copy.read_bytes() == b"new" and copy.parent != tmp_path
    files.check_writable(files.as_path(address))
    files.remove_folder(files.as_path(f"file://{tmp_path}"))
    files.remove_folder(files.as_path(f"file://{tmp_path}"))
    assert not tmp_path.exists()


def test_a_copy_is_made_once(memory):
    put(f"{memory}/folder/a/b.txt", b"one")
    put(f"{memory}/folder/c.txt", b"two")
    copy = local_copy(f"{memory}/folder/")
    assert {str(p.relative_to(copy)) for p in copy.rglob("*.txt")} == {"a/b.txt", "c.txt"}
    assert local_copy(f"{memory}/folder") == copy
    state = files.state_of(f"{memory}/folder")
    assert state == files.state_of(f"{memory}/folder") and len(state) == 2
    put(f"{memory}/folder/c.txt", b"three")
    assert files.state_of(f"{memory}/folder") != state
    assert (local_copy(f"{memory}/folder") / "c.txt").read_bytes() == b"three"
    assert local_copy(f"{memory}/folder/c.txt").read_bytes() == b"three"
    with pytest.raises(FileNotFoundError, match=f"{memory}/nothing"):
        local_copy(f"{memory}/nothing")


def test_readers_take_addresses(memory):
    lines = put(f"{memory}/b.txt", b"one\ntwo\n")
    packed = put(f"{memory}/a.txt.gz", gzip.compress(b"three\n"))
    table = put(f"{memory}/c.csv", b"text,label\na film,good\n")
    put(f"{memory}/dataset_info.json", b'{"features": {"label": {"names": ["bad", "good"]}}}')
    assert [Path(path).name for path in data.find_files(f"{memory}/*.txt*")] == [
        "a.txt.gz",
        "b.txt",
    ]
    documents = data.read_documents([lines, packed])
    assert [*documents.as_numpy_iterator()] == [b"one", b"two", b"three"]
    assert data.read_examples(table).labels == ["good"]
    with open_rows(packed) as rows:
        assert [row["text"] for _, row in rows] == ["three"]
    for read in (data.find_files, data.read_examples):
        with pytest.raises(FileNotFoundError, match=r"no\.csv"):
            read(f"{memory}/no.csv")


@pytest.mark.parametrize("is_installed", [True, False])
def test_by_tensorflow_where_fsspec_lacks_the_scheme(monkeypatch, is_installed):
    """Or where it is not installed."""
    if not is_installed:
        monkeypatch.setitem(sys.modules, "fsspec", None)
    address = f"ram://{uuid.uuid4().hex}/folder"
    with files.replacing(address) as new:
        (new / "assets").mkdir(parents=True)
        (new / "assets" / "a.txt").write_text("one")
        (new / "keras_lm.json").write_text("{}")
    assert tf.io.gfile.exists(f"{address}/assets/a.txt")
    assert content_of(f"{address}/assets/a.txt") == b"one"
    assert (local_copy(address) / "assets" / "a.txt").read_text() == "one"
    path = files.as_path(address)
    assert path.is_dir() and path.exists() and not path.is_file()
    assert [each.name for each in path.iterdir()] == ["assets", "keras_lm.json"]
    assert data.find_files(f"{address}/assets/*.txt") == [f"{address}/assets/a.txt"]


def test_where_no_address_is_taken_it_makes_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("s3://bucket/a", RemotePath("s3://bucket/a")):
        with pytest.raises(ValueError, match="s3://bucket/a is an address: name a path on this ma"):
            files.on_disk(path)
    with pytest.raises(ValueError, match="comes from an address"), files.replacing(Path("s3://b")):
        pass
    with pytest.raises(ValueError, match="is an address"):
        analysis.write_projector("s3://bucket/a", [[1.0]], {"word": ["cat"]})
    assert files.on_disk("~/a") == Path("~/a").expanduser()
    assert not list(tmp_path.iterdir())
