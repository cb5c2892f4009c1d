"""Addresses in the place of paths, by fsspec's filesystem in memory; a few by S3's protocol."""

import json
import uuid

import fsspec
import pytest

from keras_lm import tasks

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


def test_predict_reads_and_writes(run, fail, critic, task, expect, memory):
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
    assert "no.txt" in fail("predict", critic, "--input", f"{memory}/no.txt")


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
def test_a_bucket_of_s3(run, critic, task, monkeypatch):
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
    message = fail("prepare", f"{memory}/a.txt", *shape, "--output", f"{memory}/new")
    assert "Beam writes to disks" in message and "memory:// here: write to a disk" in message
    assert "no such file" in fail("prepare", f"{memory}/c*.txt", *shape, "--output", "new")

    answers = ["--runner", "DirectRunner", "--output", tmp_path / "answers"]
    run("predict", critic, f"{memory}/a.txt", *answers)
    (written,) = (tmp_path / "answers").glob("answers-*.jsonl")
    lines = written.read_text().splitlines()
    assert [json.loads(line)["answer"]["labels"] for line in lines] == [
        answer["labels"] for answer in expect(task, texts)
    ]


def test_what_must_be_on_a_disk_says_so(fail, tiny, write, memory):
    rows = write("a.csv", "text,label\na film,good\n")
    message = fail("finetune", tiny, rows, "--output", f"{memory}/trained")
    assert f"train to a folder on a disk, then keras-lm convert FOLDER {memory}/trained" in message
    logs = ["--tensorboard", f"{memory}/logs"]
    message = fail("finetune", tiny, rows, "--output", "trained", *logs)
    assert "comes from an address: name a path on this machine" in message
