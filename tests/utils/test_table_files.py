"""Parquet and Arrow, read and written a few rows at a time."""

import datetime
import decimal
import sys

import numpy as np
import pytest

from keras_lm import data
from keras_lm.datasets.row_files import batches, open_rows
from keras_lm.utils import table_files
from keras_lm.utils.table_files import TableWriter

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

TEXTS = ["a film", "", "naïve", "b" * 30, "a film"]


def write_table(path, table, **options):
    """Write a table as its file's name says; with `stream`, as a stream of Arrow."""
    if path.suffix == ".parquet":
        parquet.write_table(table, path, **options)
    elif options.get("stream"):
        with pyarrow.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    else:
        with pyarrow.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


def read(path, **options):
    with open_rows(str(path), **options) as rows:
        return [row for _, row in rows]


def chunks(kind):
    """Return texts as a column of a type, in two parts; of dictionaries, each has another."""
    parts = [TEXTS[:2], TEXTS[2:]]
    if kind == "dictionary":
        arrays = [pyarrow.array(part).dictionary_encode() for part in parts]
    elif kind == "dictionary of large strings":
        arrays = [pyarrow.array(p, pyarrow.large_string()).dictionary_encode() for p in parts]
    elif kind == "runs":
        arrays = [pyarrow.compute.run_end_encode(pyarrow.array(part)) for part in parts]
    else:
        arrays = [pyarrow.array(part, getattr(pyarrow, kind)()) for part in parts]
    return pyarrow.chunked_array(arrays)


KINDS = [
    ("string", "rows.parquet"),
    ("large_string", "rows.parquet"),
    ("dictionary", "rows.parquet"),
    ("dictionary of large strings", "rows.parquet"),
    *(("string_view", f"rows.{suffix}") for suffix in ("arrow", "feather")),
    *((kind, "stream.arrow") for kind in ("dictionary", "large_string", "runs")),
]


@pytest.mark.parametrize("kind, name", KINDS)
def test_strings_of_any_type_are_read_by_their_values(tmp_path, kind, name):
    table = pyarrow.table({"text": chunks(kind), "id": range(5)})
    path = write_table(tmp_path / name, table, **({"stream": True} if "stream" in name else {}))
    assert read(path) == [{"text": text, "id": n} for n, text in enumerate(TEXTS)]
    with open_rows(str(path)) as rows:
        texts = [texts["text"] for _, texts in batches(rows, {"text": "text"}, 2)]
    assert [text for batch in texts for text in batch] == TEXTS
    assert max(map(len, texts)) <= 2


def test_lists_of_dictionaries(tmp_path):
    inner = pyarrow.array(["a", "film", "a"]).dictionary_encode()
    words = pyarrow.ListArray.from_arrays([0, 2, 3], inner)
    path = write_table(tmp_path / "words.arrow", pyarrow.table({"words": words}))
    assert read(path) == [{"words": ["a", "film"]}, {"words": ["a"]}]


def test_rows_are_as_json_has_them(tmp_path):
    table = pyarrow.table(
        {
            "text": ["a"],
            "time": pyarrow.array([1_700_000_000_123_456_789], pyarrow.timestamp("ns", "UTC")),
            "day": [datetime.date(2026, 11, 30)],
            "price": [decimal.Decimal("1.50")],
            "parts": [{"at": datetime.date(2026, 1, 2), "n": [1, None]}],
        }
    )
    (row,) = read(write_table(tmp_path / "rows.parquet", table))
    assert row == {
        "text": "a",
        "time": "2023-11-14T22:13:20.123456+00:00",
        "day": "2026-11-30",
        "price": "1.50",
        "parts": {"at": "2026-01-02", "n": [1, None]},
    }


def test_nulls_and_other_types_are_named(tmp_path):
    rows = {"text": ["a", None, "b"], "n": [1, 2, 3], "b": [b"x"] * 3, "l": [["a"]] * 3}
    path = write_table(tmp_path / "rows.parquet", pyarrow.table(rows | {"label": ["x", "y", None]}))
    with pytest.raises(ValueError, match=r"rows\.parquet, row 2: there is no 'text'\."):
        data.read_examples(path)
    with pytest.raises(ValueError, match=r"row 3: there is no 'label'"):
        data.read_examples(path, text="label", labels="label")
    assert data.read_examples(path, skip_empty=True).texts == {"text": ["a"]}
    for column, kind in (("n", "int64"), ("b", "binary")):
        with pytest.raises(ValueError, match=rf"row 1: '{column}' is .*of the type {kind}, not a"):
            data.read_examples(path, text=column, labels="n")
    with pytest.raises(ValueError, match=r"row 1: 'l' is \[\"a\"\], not a string"):
        data.read_examples(path, text="l", labels="n")
    with pytest.raises(ValueError, match="has no column 'x', only text, n, b, l, label"):
        data.read_examples(path, text="x")


def test_classes_that_datasets_names_in_the_file(tmp_path):
    names = b'{"info": {"features": {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}}}'
    table = pyarrow.table({"text": ["a", "b"], "label": [1, 0]})
    table = table.replace_schema_metadata({"huggingface": names})
    examples = data.read_examples(write_table(tmp_path / "rows.parquet", table))
    assert examples.labels == ["good", "bad"]


def test_files_that_are_something_else(tmp_path):
    path = write_table(tmp_path / "rows.parquet", pyarrow.table({"text": TEXTS}))
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(ValueError, match=r"rows\.parquet cannot be read as Parquet: "):
        read(path)
    path.write_bytes(b"text\na\n")
    with pytest.raises(ValueError, match=r"rows\.parquet is not a file of Parquet"):
        read(path)
    other = tmp_path / "rows.txt"
    other.write_bytes(whole)
    assert read(other, format="parquet") == [{"text": text} for text in TEXTS]
    with pytest.raises(ValueError, match=r"rows\.txt is Parquet: save it as JSONL, or end its na"):
        read(other)
    with pytest.raises(ValueError, match=r"rows\.txt is not a file of Arrow"):
        read(other, format="arrow")
    twice = pyarrow.table([[1], [2]], ["a", "a"])
    with pytest.raises(ValueError, match="names the column 'a' twice"):
        read(write_table(tmp_path / "rows.arrow", twice))


def test_tables_without_a_column_of_texts(tmp_path):
    def message(table, reader):
        path = write_table(tmp_path / "rows.parquet", table)
        with pytest.raises(ValueError) as error:
            reader(str(path))
        return str(error.value).removeprefix(f"{path} ")

    def documents(path):
        with open(path, "rb") as file:
            return [*table_files.read_texts(path, file)]

    none, lists = pyarrow.table({"a": [1]}).select([]), pyarrow.table({"text": [["a"]]})
    assert message(none, data.read_examples) == "has no columns."
    assert message(none, documents).endswith("of the texts; there are no columns.")
    assert "of strings, but of type list<" in message(lists, documents)
    assert message(lists, documents).endswith("there are 'text'.")


def test_strings_that_are_not_utf8(tmp_path):
    buffers = pyarrow.array([b"\xff\xfe"]).buffers()
    text = pyarrow.StringArray.from_buffers(1, buffers[1], buffers[2])
    path = write_table(tmp_path / "rows.parquet", pyarrow.table({"text": text}))
    with pytest.raises(ValueError, match="the column 'text' has strings that are not UTF-8"):
        read(path)


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    path = write_table(tmp_path / "rows.parquet", pyarrow.table({"text": TEXTS}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow: pip install 'keras-lm\[tables\]'"):
        read(path)


def test_documents_are_rows(tmp_path):
    table = pyarrow.table({"id": [1, 2, 3], "body": chunks("dictionary")[:3]})
    path = write_table(tmp_path / "corpus.parquet", table)
    documents = [text.decode() for text in data.read_documents(path).as_numpy_iterator()]
    assert documents == ["a film", "naïve"]
    with path.open("rb") as file, pytest.raises(ValueError, match=r"row 2: 'text' is null"):
        write_table(path, pyarrow.table({"text": ["a", None]}))
        [*table_files.read_texts(str(path), file)]
    for columns in ({"text": [1]}, {"a": ["x"], "b": ["y"]}):
        write_table(path, pyarrow.table(columns))
        with path.open("rb") as file, pytest.raises(ValueError, match="no column 'text' of string"):
            [*table_files.read_texts(str(path), file)]


# === Writing ===


def answers_to(rows):
    scores = np.array([[0.25, 0.75]] * len(rows), "float32")
    return [
        {"labels": np.array(["a", b"b"], object)[n % 2], "scores": row, "start": np.int32(n)}
        for n, row in enumerate(scores)
    ]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_columns_are_kept_as_they_are(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(table_files, "ROWS_WRITTEN", 3)
    table = pyarrow.table(
        {
            "text": chunks("dictionary"),
            "time": pyarrow.array(range(5), pyarrow.timestamp("ns")),
            "price": [decimal.Decimal(n) for n in range(5)],
            "image": [b"\xff"] * 5,
        }
    )
    source = write_table(tmp_path / "in.parquet", table)
    path = tmp_path / f"out{suffix}"
    with open_rows(str(source)) as rows, TableWriter(path, rows.name, rows.schema) as writer:
        for window, _ in batches(rows, {"text": "text"}, 2):
            writer.write(window, answers_to(window))
    actual = parquet.read_table(path) if suffix == ".parquet" else feather.read_table(path)
    expected = table.set_column(0, "text", pyarrow.array(TEXTS))
    assert actual.select(table.schema.names).equals(expected)
    assert actual.schema.names[4:] == ["label", "scores", "start"]
    assert actual.column("label").to_pylist() == ["a", "b", "a", "b", "a"]
    assert actual.schema.field("scores").type == pyarrow.list_(pyarrow.float32())
    assert actual.column("scores").to_pylist() == [[0.25, 0.75]] * 5
    if suffix == ".parquet":
        assert parquet.ParquetFile(path).num_row_groups == 2


def written(tmp_path, *windows):
    path = tmp_path / "out.parquet"
    with TableWriter(path, "in.jsonl") as writer:
        for rows in windows:
            writer.write(rows, answers_to(rows))
    return parquet.read_table(path)


def test_rows_of_text_get_types_from_the_first_ones(tmp_path):
    table = written(tmp_path, [{"text": "a", "n": 1, "x": None}, {"m": [0.5]}], [{"x": "later"}])
    assert table.column("n").to_pylist() == [1, None, None]
    assert table.column("m").to_pylist() == [None, [0.5], None]
    assert table.column("x").to_pylist() == [None, None, "later"]
    assert written(tmp_path).num_rows == 0
    for rows, message in (
        ([{"n": "b"}], r"in\.jsonl: the values of 'n' have no type in common"),
        ([{"y": 1}], r"in\.jsonl has the column 'y' in a later row"),
    ):
        with pytest.raises(ValueError, match=message):
            written(tmp_path, [{"n": 1}], rows)
    table = written(tmp_path, [{"label": "x"}], [{"label": "y"}])
    assert table.schema.names[:2] == ["label", "answer_label"]
    assert [table.column(name).to_pylist() for name in table.schema.names[:2]] == [
        ["x", "y"],
        ["a", "a"],
    ]
    with pytest.raises(ValueError, match=r"has the columns 'label' and 'answer_label', as the ans"):
        written(tmp_path, [{"label": "x", "answer_label": "y"}])
    with pytest.raises(ValueError, match="the values of 'text' have no type in common"):
        written(tmp_path, [{"text": "\ud800"}])
