"""Tables of pyarrow, polars, DuckDB and pandas as they are, whatever the types of their columns."""

import keras
import pandas
import pytest
import tiny

from keras_lm.tasks import TextClassifier

pytestmark = pytest.mark.eager

TEXTS, NAMES = ["a film", "good", "naïve film", "good", "bad"], ["b", "a", "a", "b", "a"]
ROWS = {"id": [1, 2, 3, 4, 5], "text": TEXTS, "label": NAMES}


@pytest.fixture(scope="module")
def classifier(tokenizer_of):
    tokenizer = tokenizer_of("wordpiece")
    backbone = tiny.make_backbone("BertBackbone", tokenizer.vocabulary_size)
    task = TextClassifier(backbone, tokenizer=tokenizer, class_names=["a", "b"])
    task.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    return task


@pytest.fixture(scope="module")
def expected(classifier):
    return classifier.evaluate(TEXTS, NAMES, verbose=0), classifier.predict(TEXTS, verbose=0)


def in_parts(kind):
    """Return a table of two parts, in each of which a dictionary has another order."""
    pyarrow = pytest.importorskip("pyarrow")

    def column(values):
        parts = [pyarrow.array(part) for part in (values[:2], values[2:])]
        if kind == "dictionary":
            parts = [part.dictionary_encode() for part in parts]
        elif kind != "string":
            parts = [part.cast(getattr(pyarrow, kind)()) for part in parts]
        return pyarrow.chunked_array(parts)

    return pyarrow.table({"id": ROWS["id"], "text": column(TEXTS), "label": column(NAMES)})


def batch_of_pyarrow(pyarrow):
    return pyarrow.RecordBatch.from_pydict(ROWS)


def dataset_of_pyarrow(pyarrow):
    return pytest.importorskip("pyarrow.dataset").dataset(in_parts("dictionary"))


def reader_of_pyarrow(pyarrow):
    return in_parts("string").to_reader()


def polars_enum(polars):
    kinds = {"text": polars.Categorical, "label": polars.Enum(["b", "a"])}
    return polars.DataFrame(ROWS, schema_overrides=kinds)


def query_of_duckdb(duckdb):
    """With an ENUM, whose numbers are in another order than the classes."""
    connection = duckdb.connect()
    connection.execute("CREATE TYPE name AS ENUM ('b', 'a')")
    connection.execute("CREATE TABLE rows (id INTEGER, text VARCHAR, label name)")
    connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", [*zip(*ROWS.values())])
    return connection.table("rows").order("id")


def results_of_duckdb(duckdb):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE rows (text VARCHAR, label VARCHAR)")
    connection.executemany("INSERT INTO rows VALUES (?, ?)", [*zip(TEXTS, NAMES)])
    return connection.execute("SELECT * FROM rows")


TABLES = {
    "pyarrow string": lambda library: in_parts("string"),
    "pyarrow dictionary": lambda library: in_parts("dictionary"),
    "pyarrow large_string": lambda library: in_parts("large_string"),
    "pyarrow string_view": lambda library: in_parts("string_view"),
    "pyarrow RecordBatch": batch_of_pyarrow,
    "pyarrow Dataset": dataset_of_pyarrow,
    "pyarrow reader": reader_of_pyarrow,
    "polars": lambda polars: polars.DataFrame(ROWS),
    "polars Categorical and Enum": polars_enum,
    "duckdb relation": query_of_duckdb,
    "duckdb results": results_of_duckdb,
    "pandas": lambda pandas: pandas.DataFrame(ROWS),
    "pandas categories": lambda pandas: pandas.DataFrame(ROWS, dtype="category"),
}


FITTED = ("pyarrow dictionary", "pyarrow reader", "duckdb relation", "pandas categories")


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_read_by_its_values(classifier, expected, kind):
    library = pytest.importorskip(kind.partition(" ")[0])

    def make():
        return TABLES[kind](library)

    assert classifier.evaluate(make(), verbose=0) == pytest.approx(expected[0])
    assert classifier.predict(make(), verbose=0) == pytest.approx(expected[1], abs=1e-6)
    if kind not in FITTED:
        return
    loss = classifier.fit(make(), verbose=0, batch_size=5, shuffle=False).history["loss"]
    assert loss == pytest.approx([expected[0][0]])


NULLS = {
    "pyarrow": lambda table: pytest.importorskip("pyarrow").Table.from_pandas(table),
    "polars": lambda table: pytest.importorskip("polars").from_pandas(table),
    "duckdb": lambda table: pytest.importorskip("duckdb").from_df(table),
    "pandas": lambda table: table,
}


@pytest.mark.parametrize("library", NULLS)
def test_nulls_are_named(classifier, library):
    for column, message in (("text", r"text\[2\] is .*replace or drop"), ("label", r"labels\[2\]")):
        rows = {**ROWS, column: [*ROWS[column][:2], None, *ROWS[column][3:]]}
        table = pandas.DataFrame(rows).astype({column: "object"})
        with pytest.raises(ValueError, match=message):
            classifier.evaluate(NULLS[library](table), verbose=0)


def test_masks_of_duckdb(classifier):
    duckdb = pytest.importorskip("duckdb")
    columns = duckdb.sql("SELECT * FROM (VALUES ('a film'), (NULL)) AS t(text)").fetchnumpy()
    with pytest.raises(ValueError, match=r"text\[1\] is masked, a missing value"):
        classifier.predict(columns, verbose=0)
