"""Addresses in the place of paths, by fsspec's filesystem in memory; a few by S3's protocol."""

import json
import os
import shutil
import uuid

import fsspec
import pytest

from keras_lm import tasks
from keras_lm.utils import files

pytestmark = pytest.mark.eager


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """An address; and the tests see that no folder is called like its scheme."""
    monkeypatch.chdir(tmp_path)
    address = f"memory://{uuid.uuid4().hex}"
    yield address
    assert not list(tmp_path.glob("*:*"))
    system = fsspec.filesystem("memory")
    if system.exists(address):
        system.rm(address, recursive=True)


def test_predict_reads_and_writes(run, fail, critic, task, expect, write, memory):
    texts = ["the film was good", "a bad song"]
    fsspec.filesystem("memory").pipe_file(f"{memory}/in.txt", "\n".join(texts).encode())
    output = f"{memory}/answers/out.jsonl"
    run("predict", critic, "--input", f"{memory}/in.txt", "--output", output)
    lines = fsspec.open(output).open().read().splitlines()
    assert [json.loads(line)["answer"] for line in lines] == expect(task, texts)
    again = ["predict", critic, "--input", f"{memory}/in.txt", "--output"]
    assert "exists: choose another name, or replace it" in fail(*again, output)
    message = fail(*again, f"{memory}/in.txt", "--overwrite")
    assert "in.txt is the file that is read" in message
    same = f"{memory}/in.txt".replace("://", ":///")
    assert "is the file that is read" in fail(*again, same, "--overwrite")
    local = write("in.txt", "a film\n")
    line = ["predict", critic, "--input", local, "--output", f"file://{local}", "--overwrite"]
    assert "is the file that is read" in fail(*line)
    assert "no.txt" in fail("predict", critic, "--input", f"{memory}/no.txt")
    assert f"is a file: pass it by --input {memory}/in.txt" in fail(
        "predict", critic, f"{memory}/in.txt"
    )
    message = fail("predict", critic, f"{memory}/*.parquet")
    assert "Several files and patterns are read with --runner DirectRunner" in message
    assert "is a file: name a folder" in fail("export", critic, f"{memory}/in.txt")
    run("predict", critic, f"{memory}/no.txt")  # a text like any other


def test_tables_and_reports(run, critic, memory):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": ["the film", "a song"] * 2, "label": ["bad", "good", "x", "x"]})
    with fsspec.open(f"{memory}/in.parquet", "wb") as file:
        parquet.write_table(table.slice(0, 2), file)
    reports = ["--errors", f"{memory}/wrong.jsonl", "--confusion", f"{memory}/confusion.csv"]
    run("evaluate", critic, f"{memory}/in.parquet", *reports)
    assert b"right / found" in fsspec.open(f"{memory}/confusion.csv").open().read()
    with fsspec.open(f"{memory}/in.parquet", "wb") as file:
        parquet.write_table(table.select(["text"]), file)
    run("predict", critic, f"{memory}/in.parquet", "--output", f"{memory}/out.parquet")
    with fsspec.open(f"{memory}/out.parquet") as file:
        assert parquet.read_table(file).schema.names[:2] == ["text", "label"]


def test_presets_and_exports(run, fail, critic, task, memory):
    expected = task.predict(["the film"], verbose=0)
    run("convert", critic, f"{memory}/critic")
    loaded = tasks.TextClassifier.from_preset(f"{memory}/critic")
    assert loaded.predict(["the film"], verbose=0) == pytest.approx(expected, abs=1e-6)
    assert "is a preset already" in fail("convert", critic, f"{memory}/critic")
    task.save_to_preset(f"{memory}/critic")
    assert run("predict", f"{memory}/critic", "the film").startswith('{"input"')
    assert "There is no f" in fail("predict", f"{memory}/none", "the film")


@pytest.mark.slow
def test_exports(run, fail, critic, task, memory):
    for number in (1, 2):
        assert str(task.export(f"{memory}/exported")) == f"{memory}/exported/{number}"
    run("export", critic, f"{memory}/critic.tflite")
    assert "serving_default" in run("inspect", f"{memory}/exported")
    assert "is an address: copy it to a disk" in fail("serve", f"{memory}/exported")
    asked = [
        json.loads(run("predict", f"{memory}/{name}", "the film"))["answer"]
        for name in ("exported", "critic.tflite")
    ]
    assert asked[0]["labels"] == asked[1]["labels"]
    assert asked[0]["scores"] == pytest.approx(asked[1]["scores"], abs=1e-5)


@pytest.mark.slow
def test_a_bucket_of_s3(run, fail, critic, task, tiny, write, monkeypatch, interrupt):
    moto = pytest.importorskip("moto.server", reason="needs: pip install 'moto[server]' s3fs")
    pytest.importorskip("s3fs", reason="needs: pip install 'moto[server]' s3fs")
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    try:
        fsspec.filesystem("s3").mkdir("bucket")
        texts = ["the film was good", "a bad song"]
        with fsspec.open("s3://bucket/in.parquet", "wb") as file:
            parquet.write_table(pyarrow.table({"text": texts}), file)
        task.save_to_preset("s3://bucket/critic")
        run(
            "predict",
            "s3://bucket/critic",
            "s3://bucket/in.parquet",
            "--output",
            "s3://bucket/out.parquet",
        )
        with fsspec.open("s3://bucket/out.parquet") as file:
            answers = parquet.read_table(file)
        assert answers.column("text").to_pylist() == texts
        assert answers.column("label").to_pylist() == [*task.classify(texts)["labels"]]
        line = ["finetune", tiny, write("a.csv", ROWS), "--batch-size", 2, "--epochs", 2]
        line += ["--output", "s3://bucket/a/trained"]
        interrupt(4)
        assert "what s3://bucket/a/trained.unfinished holds" in fail(*line)
        assert "Going on with the run in s3://bucket/a/trained.unfinished" in run(*line)
        assert fsspec.filesystem("s3").ls("bucket/a") == ["bucket/a/trained"]
        assert run("predict", "s3://bucket/a/trained", "the film").startswith('{"input"')
    finally:
        server.stop()


@pytest.mark.slow
def test_beam_and_tensorflow_read_addresses_that_they_do_not_know(
    run, fail, critic, tiny, task, expect, memory, tmp_path
):
    pytest.importorskip("apache_beam", reason="needs: pip install keras-lm[beam]")
    system, texts = fsspec.filesystem("memory"), ["the film was good", "a bad song"]
    for name in "ab":
        system.pipe_file(f"{memory}/{name}.txt", "\n".join(texts).encode())
    shape = ["--from", tiny, "--sequence-length", 8, "--shards", 1, "--duplicates", "keep"]
    run("prepare", f"{memory}/*.txt", *shape, "--output", f"file://{tmp_path}/shards")
    system.put(str(tmp_path / "shards"), f"{memory}/shards", recursive=True)
    trained = ["--from", tiny, "--output", tmp_path / "trained", "--batch-size", 2]
    run("pretrain", f"{memory}/shards", *trained)
    assert (tmp_path / "trained" / "keras_lm.json").is_file()
    line = ["prepare", f"{memory}/*.txt", *shape, "--output", f"{memory}/new"]
    system.pipe_file(f"{memory}/new/mine", b"a file of another")
    assert "exists and has no tokens.json: choose another folder" in fail(*line)
    system.rm_file(f"{memory}/new/mine")
    run(*line)
    names = [path.name for path in files.as_path(f"{memory}/new").iterdir()]
    assert sorted(names) == sorted(path.name for path in (tmp_path / "shards").iterdir())
    for name in names:
        expected = (tmp_path / "shards" / name).read_bytes()
        assert name == "tokens.json" or system.cat(f"{memory}/new/{name}") == expected
    assert "exists: choose another folder" in fail(*line)
    run(*line, "--overwrite")
    assert "no such file" in fail("prepare", f"{memory}/c*.txt", *shape, "--output", "new")

    answers = ["--runner", "DirectRunner", "--output", f"{memory}/answers"]
    run("predict", critic, f"{memory}/a.txt", *answers)
    (written,) = files.find_remote(f"{memory}/answers/answers-*.jsonl")
    lines = files.local_copy(written).read_text().splitlines()
    assert [json.loads(line)["answer"]["labels"] for line in lines] == [
        answer["labels"] for answer in expect(task, texts)
    ]


ROWS = "text,label\n" + "a film,good\na bad song,bad\n" * 3


@pytest.mark.slow
def test_what_training_writes_appears_at_the_end(run, fail, tiny, write, memory, monkeypatch):
    system, output = fsspec.filesystem("memory"), f"{memory}/trained"
    line = ["finetune", tiny, write("a.csv", ROWS), "--epochs", 1, "--output", output]
    usual, broken = system.put_file, "config"

    def put_file(self, local, path, **options):
        if broken and path.endswith(broken):
            raise ConnectionError("the network is down")
        return usual(local, path, **options)

    monkeypatch.setattr(type(system), "put_file", put_file)
    # The weights are there, and what shows that they are all is not.
    broken = "keras_lm.json"
    message = fail(*line)
    assert f"{output} cannot be written: the network is down The trained preset is in" in message
    kept = message.split("The trained preset is in ")[1].split(":")[0]
    assert message.endswith(f"keras-lm convert {kept} {output} uploads it.")
    assert {"run.toml", "keras_lm.json"} <= set(os.listdir(kept))
    shutil.rmtree(os.path.dirname(kept))
    assert system.exists(f"{output}/model.safetensors")
    assert "is not complete" in fail("predict", output, "the film")
    # The state of the run, after its epoch, is not removed until the preset is.
    broken = None
    assert f"Going on with the run in {output}.unfinished" in run(*line)
    assert run("predict", output, "the film").startswith('{"input"')
    assert sorted(each["name"] for each in system.ls(f"{memory}", detail=True)) == [
        f"/{output.partition('://')[2]}"
    ]
    # A save of the state that fails does not end the run.
    broken = "state.safetensors"
    with pytest.warns(UserWarning, match=r"step 1 is not saved, and training goes on until the"):
        run(*line, "--overwrite")


def test_where_training_cannot_write(fail, tiny, write, memory, monkeypatch):
    line = ["finetune", tiny, write("a.csv", ROWS), "--output"]
    message = fail(*line, "hf://datasets/me/trained")
    assert "train to a folder on a disk, then keras-lm convert FOLDER hf://datasets/me" in message
    assert "memory://bucket is a whole bucket: name a folder in it" in fail(
        *line, "memory://bucket"
    )
    system = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(system, "put_file", property(lambda self: 1 / 0))
    expected = f"Invalid value for '--output': {memory}/a cannot be written: division by zero"
    assert expected in fail(*line, f"{memory}/a")
    assert f"{memory}/a cannot be written" in fail("predict", tiny, "a", "--output", f"{memory}/a")
    assert "neither fsspec nor TensorFlow knows the scheme 'nosuch'" in fail(*line, "nosuch://a/b")


class Killed(BaseException):
    """What no code of the command catches."""


def test_an_interrupted_upload_begins_again(run, tiny, memory, monkeypatch):
    system, usual = fsspec.filesystem("memory"), fsspec.filesystem("memory").put_file

    def killed(self, local, path, **options):
        if path.endswith("keras_lm.json"):
            raise Killed
        return usual(local, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(system), "put_file", killed)
        with pytest.raises(Killed):
            run("convert", tiny, f"{memory}/preset")
    assert system.exists(f"{memory}/preset/model.safetensors")
    with pytest.raises(FileNotFoundError, match="preset is not complete"):
        tasks.TextClassifier.from_preset(f"{memory}/preset")
    run("convert", tiny, f"{memory}/preset")
    assert not system.exists(f"{memory}/preset/.uploading")


def test_an_index(run, critic, write, memory):
    documents = write("a.txt", "a film\na bad song\n")
    run("search", critic, documents, "--index", f"{memory}/index")
    assert "a bad song" in run("search", critic, f"{memory}/index", "song", "--k", 1)


def test_what_must_be_on_a_disk_says_so(fail, tiny, write, memory):
    rows = write("a.csv", ROWS)
    logs = ["--tensorboard", f"{memory}/logs"]
    message = fail("finetune", tiny, rows, "--output", "trained", *logs)
    assert f"TensorFlow writes the logs, and cannot at {memory}/logs: name a folder" in message
    message = fail("finetune", tiny, rows, "--output", "trained", "--graph", f"{memory}/graph")
    assert f"{memory}/graph is an address: name a path on this machine" in message
