"""Parquet and Arrow through the commands."""

import json

import pytest

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

pytestmark = pytest.mark.eager

TEXTS = ["the film was good", "a bad song", "loud , loud !", "the film"]


@pytest.fixture
def table():
    return pyarrow.table(
        {
            "id": [7, 8, 9, 10],
            "text": pyarrow.array(TEXTS).dictionary_encode(),
            "time": pyarrow.array([1, 2, 3, 4], pyarrow.timestamp("ns")),
        }
    )


@pytest.fixture
def source(table, tmp_path):
    path = tmp_path / "in.parquet"
    parquet.write_table(table, path, row_group_size=3)
    return path


@pytest.fixture(scope="module")
def expected(task, expect):
    return expect(task, TEXTS)


def check(actual, expected):
    assert actual.column("id").to_pylist() == [7, 8, 9, 10]
    assert actual.column("text").to_pylist() == TEXTS
    assert actual.column("label").to_pylist() == [row["labels"] for row in expected]
    for scores, row in zip(actual.column("scores").to_pylist(), expected):
        assert scores == row["scores"]
    assert actual.column("class_names").to_pylist() == [["bad", "good"]] * 4


def test_answers_are_columns_beside_the_others(run, critic, source, table, expected, tmp_path):
    path = tmp_path / "out.parquet"
    run("predict", critic, source, "--output", path, "--batch-size", 2)
    actual = parquet.read_table(path)
    assert actual.schema.names == ["id", "text", "time", "label", "class_names", "scores"]
    assert actual.column("time").equals(table.column("time"))
    check(actual, expected)
    assert {each.name for each in tmp_path.iterdir()} == {"in.parquet", "out.parquet"}


def test_from_any_file_into_any_other(run, answers, critic, source, write, expected, tmp_path):
    lines = "".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(TEXTS, start=7))
    other = write("in.jsonl", lines)
    for suffix in (".feather", ".arrow"):
        path = tmp_path / f"out{suffix}"
        run("predict", critic, "--input", other, "--output", path)
        check(feather.read_table(path), expected)
        other = path.rename(tmp_path / f"in{suffix}")
        table = feather.read_table(other).select(["id", "text"])
        feather.write_feather(table, other, compression="uncompressed")
    rows = answers(run("predict", critic, source))
    assert [row["input"]["id"] for row in rows] == [7, 8, 9, 10]
    assert rows[0]["input"]["time"] == "1970-01-01T00:00:00"
    assert [row["answer"] for row in rows] == expected


def test_what_does_not_fit_is_named_and_leaves_nothing(run, fail, critic, source, table, tmp_path):
    path = tmp_path / "out.parquet"

    def refused(columns, *options):
        parquet.write_table(table.append_column(*columns), source)
        return fail("predict", critic, source, *options)

    message = refused(("review", [["a", "b", None, "c"]]), "--text", "review", "--output", path)
    assert "in.parquet, row 3: there is no 'review'. --skip-empty leaves such rows out" in message
    assert "row 1: 'n' is 1, of the type int64, not a string" in refused(
        ("n", [[1] * 4]), "--text", "n", "--output", path
    )
    assert "'image' is of type binary, which JSON does not have" in refused(("image", [[b"x"] * 4]))
    assert "--lines writes lines" in fail("predict", critic, source, "--lines", "--output", path)
    message = fail("predict", critic, source, "--output", source, "--overwrite")
    assert "in.parquet is the file that is read: name another" in message
    assert {each.name for each in tmp_path.iterdir()} == {"in.parquet"}

    parquet.write_table(table.append_column("review", [["a", "", None, "c"]]), source)
    run("predict", critic, source, "--text", "review", "--skip-empty", "--output", path)
    assert parquet.read_table(path).column("id").to_pylist() == [7, 10]
    none = table.append_column("nothing", [[None] * 4]).set_column(1, "text", [[None] * 4])
    parquet.write_table(none, source)
    run("predict", critic, source, "--skip-empty", "--output", path, "--overwrite")
    assert parquet.read_table(path).num_rows == 0


def test_what_is_named_in_the_place_of_a_table(run, fail, critic, source, tmp_path):
    assert "There is no file 'gone.parquet'" in fail("predict", critic, "gone.parquet")
    assert "--runner DirectRunner" in fail("predict", critic, tmp_path / "*.parquet")
    assert f"{tmp_path} is a folder of tables" in fail("predict", critic, tmp_path)
    assert '"text": "write a .parquet"' in run("predict", critic, "write a .parquet")


def test_a_table_without_rows(run, critic, source, table, tmp_path):
    parquet.write_table(table.slice(0, 0), source)
    run("predict", critic, source, "--output", tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").num_rows == 0


def test_from_standard_input(run, answers, critic, source):
    piped = run("predict", critic, "--format", "parquet", input=source.read_bytes())
    assert [row["input"]["id"] for row in answers(piped)] == [7, 8, 9, 10]


def test_vectors_and_pairs(run, matcher, tiny, source, table, tmp_path):
    path = tmp_path / "out.parquet"
    run("predict", tiny, source, "--task", "feature-extractor", "--output", path)
    actual = parquet.read_table(path)
    assert actual.schema.field("embedding").type == pyarrow.list_(pyarrow.float32())
    assert {len(row) for row in actual.column("embedding").to_pylist()} == {16}
    parquet.write_table(table.append_column("text_pair", [TEXTS[::-1]]), source)
    run("predict", matcher, source, "--output", path, "--overwrite")
    assert parquet.read_table(path).num_rows == 4


@pytest.mark.slow
def test_training_and_measuring(run, tiny, table, source, tmp_path):
    table = table.append_column("label", [["good", "bad", "bad", "good"]])
    parquet.write_table(table, source)
    feather.write_feather(table, tmp_path / "in.feather")
    preset = tmp_path / "preset"
    run("finetune", tiny, source, "--validation", tmp_path / "in.feather", "--output", preset)
    measured = [
        json.loads(run("evaluate", preset, path, "--json"))
        for path in (source, tmp_path / "in.feather")
    ]
    assert measured[0] == measured[1]


@pytest.mark.slow
def test_a_corpus(run, tiny, tmp_path):
    pytest.importorskip("apache_beam")
    texts = [f"the film {n} was good .\na song was bad ." for n in range(40)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "corpus.parquet")
    corpus = tmp_path / "corpus.parquet"
    for how in (["--num-beams"], []):
        del how
    options = ["--sequence-length", 16, "--document", "block"]
    shards = tmp_path / "shards"
    shown = run(
        "prepare", corpus, "--from", tiny, *options, "--duplicates", "keep", "--output", shards
    )
    assert "40" in shown
    run("pretrain", corpus, "--from", tiny, *options, "--steps", 1, "--output", tmp_path / "new")
