"""Answers beside the rows of tables, in this process, in Ray's and in Spark's."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import keras
import numpy as np
import pyarrow as pa
import pytest

from keras_lm.models import BertBackbone
from keras_lm.pipelines.answered_tables import TableAnswerer
from keras_lm.pipelines.ray import answer_dataset
from keras_lm.pipelines.spark import answer_frame
from keras_lm.serving.predictors import open_predictor
from keras_lm.tasks import TextClassifier
from keras_lm.tokenizers import WordPieceTokenizer

TEXTS = ["a good film", "the song was bad , bad !", "a", "the loud song is good", "a bad film"]


@pytest.fixture(scope="module")
def critic(tmp_path_factory):
    """A preset of a classifier."""
    words = ["a", "the", "film", "song", "was", "is", "good", "bad", "loud", ".", ",", "!"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = WordPieceTokenizer([*special, *words], lowercase=True)
    keras.utils.set_random_seed(0)
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    backbone = BertBackbone(tokenizer.vocabulary_size, **size)
    for weight in backbone.weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    task = TextClassifier(backbone, tokenizer=tokenizer, class_names=["bad", "good"])
    folder = tmp_path_factory.mktemp("presets") / "critic"
    task.save_to_preset(folder)
    return folder


@pytest.fixture
def table():
    ids = pa.array([7, 8, 9, 10, 11], pa.int32())
    texts = pa.chunked_array([TEXTS[:2], TEXTS[2:]]).dictionary_encode()
    return pa.table({"id": ids, "text": texts})


def expected_of(model, texts=TEXTS):
    return open_predictor(model).answers({"text": texts}, 32)


def check(rows, expected):
    """Compare rows of answered tables, dicts, with the answers of this process."""
    assert [row["label"] for row in rows] == [answer["labels"] for answer in expected]
    scores = [answer["scores"] for answer in expected]
    np.testing.assert_allclose([row["scores"] for row in rows], scores, atol=1e-6)


def test_answers_stand_beside_the_other_columns(critic, table):
    answerer = TableAnswerer(critic, table.column_names, batch_size=2)
    answered = pickle.loads(pickle.dumps(answerer))(table)
    assert answered.schema.names[:2] == ["id", "text"]
    assert answered.column("id").to_pylist() == [7, 8, 9, 10, 11]
    check(answered.to_pylist(), expected_of(critic))
    assert answerer.schema(table.schema) == answered.schema
    pictures = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((5, 2, 2), "float32"))
    table = table.append_column("picture", pictures).append_column("nothing", pa.nulls(5))
    answered = TableAnswerer(critic, table.column_names)(table)
    none = answerer(table.slice(0, 0))
    assert none.num_rows == 0 and none.schema == answered.schema


def test_parts_of_a_table_may_differ(critic):
    answerer = TableAnswerer(critic, ["text", "more"])
    for more in (pa.nulls(1), pa.array([1]), pa.array(["one"])):
        part = pa.table({"text": ["a film"], "more": more})
        assert answerer(part).select(["text", "more"]) == part.to_batches()[0]
        other = part.select(["more", "text"])
        assert answerer(other).select(["more", "text"]) == other.to_batches()[0]
    # Spark, BigQuery and others do not tell upper from lower case.
    names = answerer(part.append_column("Label", more)).schema.names
    assert names[2:] == ["Label", "answer_label", "class_names", "scores"]


def test_what_is_no_table_of_texts(critic, table):
    with pytest.raises(ValueError, match="names the column 'id' twice: rename one"):
        TableAnswerer(critic, ["id", "text", "id"])
    with pytest.raises(ValueError, match="frame is of the class Table: pass a DataFrame of Spark"):
        answer_frame(table, critic)
    with pytest.raises(ValueError, match="dataset is of the class Table: pass a Dataset of Ray"):
        answer_dataset(table, critic)
    with pytest.raises(ValueError, match="'text'"):
        TableAnswerer(critic, ["id", "body"])
    named = TableAnswerer(critic, ["id", "body"], text="body")
    with pytest.raises(ValueError, match="row 1 of a part of the table has None in the column"):
        named(pa.table({"id": [1, 2], "body": ["a film", None]}))
    with pytest.raises(ValueError, match="batch_size=0"):
        TableAnswerer(critic, ["text"], batch_size=0)


def test_the_engines_need_no_beam(critic):
    code = (
        "import sys; sys.modules['apache_beam'] = None\n"
        "import keras_lm.pipelines.ray, keras_lm.pipelines.spark"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def kill_one(pattern, seconds):
    """Kill one of the processes of a pattern, as soon as there is one, within some seconds."""

    def run():
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            listed = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True)
            if others := [int(n) for n in listed.stdout.split() if int(n) != os.getpid()]:
                os.kill(others[-1], signal.SIGKILL)
                killed.append(others[-1])
                return
            time.sleep(0.2)

    killed = []
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return killed


@pytest.mark.slow
def test_ray_answers_with_a_worker_killed(critic, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs: pip install 'ray[data]'")

    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        texts = TEXTS * 400
        rows = [{"id": number, "text": text} for number, text in enumerate(texts)]
        dataset = ray.data.from_items(rows).repartition(8)
        killed = kill_one("ray::.*_Worker", 60)
        answered = answer_dataset(dataset, critic, num_workers=2).take_all()
        assert killed
        answered.sort(key=lambda row: row["id"])
        assert [row["text"] for row in answered] == texts
        check(answered, expected_of(critic, texts))
        with pytest.warns(UserWarning, match="num_workers=4.* take all 4 CPUs"):
            answer_dataset(dataset, critic, num_workers=4)
        with pytest.raises(ValueError, match="num_workers=0"):
            answer_dataset(dataset, critic, num_workers=0)
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_spark_answers_with_a_worker_killed(critic, monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="needs: pip install 'pyspark>=4', and Java")

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    try:
        texts = TEXTS * 400
        frame = spark.createDataFrame([*enumerate(texts)], ["id", "text"]).repartition(4)
        # A time has no type of Arrow without the session's zone.
        time = "timestamp_seconds(id) AS time"
        frame = frame.selectExpr("*", time, "NULL AS nothing", "1 AS `a.dot`", "2 AS Scores")
        killed = kill_one("pyspark.daemon", 60)
        answered = [row.asDict() for row in answer_frame(frame, critic).collect()]
        assert killed
        answered.sort(key=lambda row: row["id"])
        assert [row["text"] for row in answered] == texts
        assert [row["time"].timestamp() for row in answered] == [*range(len(texts))]
        assert {(row["a.dot"], row["Scores"]) for row in answered} == {(1, 2)}
        answered = [row | {"scores": row["answer_scores"]} for row in answered]
        check(answered, expected_of(critic, texts))
    finally:
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # Java ends with it
        gateway.proc.wait(30)
