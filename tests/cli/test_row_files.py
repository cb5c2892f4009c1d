"""Reading files: every format, what is forgiven, and what is refused with the line."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import time

import pytest

from keras_lm.data import read_examples
from keras_lm.datasets.row_files import batches, choose_columns, open_rows, parse_rows


def read(path, format=None):
    with open_rows(str(path), format) as rows:
        return [row for _, row in rows]


EXPECTED = [{"text": 'two\nlines, "quoted"', "label": "a"}, {"text": "naïve", "label": "b"}]
CSV = 'text,label\n"two\nlines, ""quoted""",a\nnaïve,b\n'


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.csv", CSV.encode()),
        ("a.CSV", b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode()),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("a.jsonl", "\n\n".join(map(json.dumps, EXPECTED)).encode()),
        (
            "reviews.v2.jsonl.gz",
            gzip.compress("\n".join(map(json.dumps, EXPECTED)).encode(), mtime=0),
        ),
    ],
)
def test_formats_are_told_by_their_suffix(write, name, content):
    rows = read(write(name, content))
    rows = [{k: v.replace("\r\n", "\n") for k, v in row.items()} for row in rows]
    assert rows == EXPECTED


def test_lines_keep_blank_ones_and_end_at_line_feeds_only(write):
    rows = read(write("a.txt", "\ufeffone\u2028still one\r\n\n\x85two\x00\rthree"))
    assert [row["text"] for row in rows] == ["one\u2028still one", "", "\x85two\x00\rthree"]


def test_format_wins_over_suffix(write):
    assert read(write("a.txt", "text\nx\n"), "csv") == [{"text": "x"}]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.csv", "text,label\nx,a\ny\n", "line 3: 1 fields, but the header has 2"),
        ("a.csv", 'text,label\nx,a\n"y" z,b\n', "line 3: "),
        ("a.csv", 'text,label\nx,a\n"y,b\n', "write a quote twice"),
        ("a.csv", "text,text\nx,a\n", "names the column 'text' twice"),
        ("a.csv", b"text\ncaf\xe9\n", "line 2: not UTF-8"),
        ("a.txt", b"one\ncaf\xe9\n", "line 2: not UTF-8 .* or drop such bytes"),
        ("a.csv.gz", gzip.compress(b"text\n" + b"x\n" * 999, mtime=0)[:-9], "cannot be unpacked"),
        ("a.csv.gz", b"text\nx\n", "cannot be unpacked"),
        ("a.jsonl", '{"text": "x"}\n{"text": \n', "line 2: not JSON"),
        ("a.jsonl", '{"text": "x"}\n["y"]\n', "line 2: a line must be a JSON object"),
        ("a.odd", "x", "name its format with format="),
        ("a.tsv", "text\tlabel\nx\ta\ny\n", "line 3: 1 fields, but .* must not contain a tab"),
        ("a.tsv", 'text\tlabel\n"two\nlines"\ta\n', "line 2: 1 fields, but the header has 2"),
        ("a.tsv", 'text\tlabel\n"a\ttab"\ta\n', "line 2: 3 fields, but the header has 2"),
        ("a.tsv", "text\ttext\nx\ta\n", "names the column 'text' twice"),
    ],
)
def test_damage_is_named_with_its_line(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        read(write(name, content))


# What ten ways of writing a table by tabs become, as rows of text and label.
TABLES = {
    "quotes that open fields": (
        '"Fine, she said\t1\nbad\t0\n"Oh" no\t0\n',
        ['"Fine, she said', "bad", '"Oh" no'],
    ),
    "one quote alone": ('"\t1\nbad\t0\n', ['"', "bad"]),
    "commas": ("a, b\t1\nc\t0\n", ["a, b", "c"]),
    "blank lines": ("\na\t1\n  \n\nb\t0\n\n", ["a", "b"]),
    "Windows's ends": ("a\t1\r\nb\t0\r\n", ["a", "b"]),
    "no end": ("a\t1\nb\t0", ["a", "b"]),
    "empty fields": ("\t1\nb\t0\n", ["", "b"]),
    "two empty fields": ("\t\nb\t0\n", ["", "b"]),
    "spaces around": (" a \t1\nb\t0\n", [" a ", "b"]),
    "other ends of lines": ("a\u2028b\t1\nc\x0bd\t0\n", ["a\u2028b", "c\x0bd"]),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_tables_by_tabs(write, name, start):
    content, texts = TABLES[name]
    rows = read(write("a.tsv", f"{start}text\tlabel\n{content}"))
    assert [row["text"] for row in rows] == texts


def test_a_table_by_tabs_that_seems_quoted_is_named(write):
    path = write("a.tsv", 'text\tlabel\n"She said ""no"""\t1\n"again ""no"""\t0\n')
    with pytest.warns(
        UserWarning, match="line 2: a field is in quotes.* save the file as CSV"
    ) as said:
        assert read(path)[0]["text"] == '"She said ""no"""'
    assert len(said) == 1


def test_a_table_by_tabs_with_all_in_quotes_is_named(write):
    path = write("a.tsv", 'text\tlabel\n"a"\t1\n"b c"\t0\n')
    with pytest.warns(UserWarning, match="all fields of column 1 are in quotes.*as CSV") as said:
        assert [row["text"] for row in read(path)] == ['"a"', '"b c"']
    assert len(said) == 1
    assert read(write("b.tsv", 'text\tlabel\n"a"\t1\nb\t0\n'))[0]["text"] == '"a"'
    assert read(write("c.tsv", 'text\tlabel\n"a"\t1\n'))[0]["text"] == '"a"'


TEXT = "text\nfine\n"
NOT_TEXT = {
    "a spreadsheet .* save it as CSV": b"PK\x03\x04",
    "an older format .* save it as CSV": b"\xd0\xcf\x11\xe0\xa1",
    "Parquet: save it as JSONL": b"PAR1\x15\x04\x15",
    "Arrow": b"ARROW1\0\0\xff\xff\xff\xff",
    "a stream of Arrow": b"\xff\xff\xff\xff\x10\0\0\0",
    "Feather": b"FEA1\0",
    "Avro": b"Obj\x01\x04\x14avro.codec",
    "a pickle": pickle.dumps(["fine"]),
    "an array of numpy": b"\x93NUMPY\x01\0v\0",
    "HDF5": b"\x89HDF\r\n\x1a\n",
    "SQLite": b"SQLite format 3\0",
    "DuckDB": b"\x01\x02\x03\x04\x05\x06\x07\x08DUCK\x40",
    "PDF": b"%PDF-1.7\n",
    "Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    "RTF": rb"{\rtf1\ansi",
    "gzip": gzip.compress(TEXT.encode()),
    "bzip2": bz2.compress(TEXT.encode()),
    "xz": lzma.compress(TEXT.encode()),
    "zstd": b"\x28\xb5\x2f\xfd\x04",
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-32": TEXT.encode("utf-32"),
    "not text in UTF-8.*such as UTF-16": TEXT.encode("utf-16-le"),
    "not text in UTF-8": b"\x0a\x04text\x12\x08\0\0\0\0\0\0"[1:],
}


@pytest.mark.parametrize("what", NOT_TEXT)
def test_what_is_not_text_is_named(write, what):
    """Whatever its name says, and also where a stream has no name."""
    names = ["a.txt", "a.csv", "a.tsv", "a.jsonl", "a.conll", "a.json"]
    for name in names if what.startswith(("Parquet", "Arrow", "a stream")) else [*names, "a.arrow"]:
        with pytest.raises(ValueError, match=f"{name} is .*{what}"):
            read(write(name, NOT_TEXT[what]))
    with pytest.raises(ValueError, match=f"a.txt.gz is .*{what}"):
        read(write("a.txt.gz", gzip.compress(NOT_TEXT[what])))
    for format in ("lines", "tsv", "mnli", "conll", "squad", "penn", "fewrel", "sst5", "wmt"):
        with pytest.raises(ValueError, match=f"stream is .*{what}"):
            [*parse_rows("stream", io.BytesIO(NOT_TEXT[what]), format)]


def test_very_long_fields_are_read(write):
    assert len(read(write("a.csv", "text\n" + "x" * 300_000))[0]["text"]) == 300_000


def test_lines_and_fields_without_end(write, monkeypatch):
    monkeypatch.setattr("keras_lm.utils.input_files.LONGEST_LINE", 1000)
    packed = gzip.compress(b"text\n" + b"x" * 1001)
    for name in ("a.txt.gz", "a.csv.gz", "a.jsonl.gz"):
        with pytest.raises(ValueError, match=f"{name}, line 2: longer than 1000 bytes"):
            read(
                write(name, packed if name != "a.jsonl.gz" else gzip.compress(b"\n" + b"x" * 1001))
            )
    with pytest.raises(ValueError, match="line 3: field larger than field limit"):
        read(write("a.csv", 'text\n"' + ("x" * 900 + "\n") * 3))


def test_many_columns(write):
    header = ",".join(f"c{n}" for n in range(60_000))
    start = time.monotonic()
    assert len(read(write("a.csv", f"{header}\n{',' * 59_999}\n"))[0]) == 60_000
    with pytest.raises(ValueError, match="names the column 'c7' twice"):
        read(write("b.csv", f"{header},c7\n"))
    assert time.monotonic() - start < 10


def columns_of(path, inputs, **given):
    with open_rows(str(path)) as rows:
        return choose_columns(rows, inputs, {"text": None} | given)


def test_columns_are_guessed_or_named(write):
    path = write("a.csv", "sentence,sentence2,other\nx,y,z\n")
    pair = {"text": "sentence", "text_pair": "sentence2"}
    assert columns_of(path, ["text", "text_pair"]) == pair
    assert columns_of(path, ["text"], text="other") == {"text": "other"}
    with pytest.raises(ValueError, match="no column 'titel', only sentence, sentence2, oth"):
        columns_of(path, ["text"], text="titel")
    with pytest.raises(ValueError, match=r"'text' or 'sentence'.*text=NAME"):
        columns_of(write("b.csv", "a,b\n1,2\n"), ["text"])
    assert columns_of(path, ["question"]) == {"question": "sentence"}
    with pytest.raises(ValueError, match="the model takes text and text_pair"):
        columns_of(write("c.txt", "x\n"), ["text", "text_pair"])


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.csv", "text;label\nx, y;z\n", "separated by ';': save it with commas"),
        ("a.csv", "text\tlabel\nx\tz\n", r"separated by '\\t': pass format=tsv\.$"),
        ("a.tsv", "text,label\nx,z\n", r"separated by ',': pass format=csv\.$"),
        ("a.csv", "title;label,kind\nx,z\n", r"text=NAME\.$"),  # two columns are no such thing
        ("a.tsv", "Ada\tB-PER\nwrote\tO\n", r"each line: pass format=conll, with a tab"),
        ("a.csv", "id,Word,tag\n1,Ada,O\n", "each line: remove the header and pass format=conll"),
        ("a.csv", "", "a.csv is empty: it has no rows"),
        ("a.jsonl", "\n\n", "a.jsonl is empty: it has no rows"),
    ],
)
def test_another_form_is_named(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        columns_of(write(name, content), ["text"])


@pytest.mark.parametrize(
    "row, message",
    [
        ('{"text": null}', "line 2: there is no 'text'"),
        ('{"title": "x"}', "line 2: there is no 'text'"),
        ('{"text": 5}', "line 2: 'text' is 5, not a string"),
    ],
)
def test_batches_are_read_as_they_are_asked_for(write, row, message):
    with open_rows(str(write("a.jsonl", '{"text": "x"}\n' + row))) as rows:
        actual = batches(rows, {"text": "text"}, 1)
        assert next(actual) == ([{"text": "x"}], {"text": ["x"]})
        with pytest.raises(ValueError, match=message):
            next(actual)


@pytest.mark.parametrize(
    "row",
    ['''"['a','b']","[0,1]"''', '''"['a' 'b']","[0 1]"''', '''a b,"[0, 1]"''', """"[""a""]",O"""],
)
def test_lists_that_were_written_as_text(write, row):
    path = write("a.csv", f"tokens,ner_tags\n{row}\n")
    with pytest.raises(ValueError, match=r"line 2: .* is a list that was written as text"):
        read_examples(path, "token-classifier")
    path = write("b.csv", "tokens,ner_tags\n[ 1 ],O O O\n")
    assert read_examples(path, "token-classifier").labels == [["O"] * 3]


def test_a_label_that_is_no_number(write):
    path = write("a.jsonl", '{"text": "x", "label": Infinity}\n')
    with pytest.raises(ValueError, match="the label inf is neither"):
        read_examples(path)


@pytest.mark.parametrize(
    "row, message",
    [
        ('{"text": "a", "label": 1, "text": "b"}', r"'text' stands twice .* \(column 27\): leave"),
        ('{"text": "a", "meta": [{"b": 1, "\\u0062": 2}]}', "'b' stands twice in an object"),
        ('{"text": "{\\"a\\": 1,", "text": "b"}', r"'text' stands twice .* \(column 24\)"),
    ],
)
def test_a_key_that_stands_twice(write, row, message):
    """The last one would win in silence."""
    with pytest.raises(ValueError, match=f"a.jsonl, line 2: the key {message}"):
        read(write("a.jsonl", '{"text": "x", "y": {"text": ["text", "text"]}}\n' + row))


def test_keys_that_stand_twice_are_no_damage_of_other_rows(write):
    path = write("a.jsonl", '{"text": "x"}\n{"text": "x", "text": "y"}\n{"text": "z"}\n')
    with open(path, "rb") as file:
        rows = parse_rows("a.jsonl", file, "jsonl", with_errors=True)
        assert [isinstance(row, ValueError) for _, row in rows] == [False, True, False]


def test_lines_that_end_in_carriage_returns(write):
    """Three texts were one."""
    for name in ("a.txt", "a.csv", "a.jsonl"):
        with pytest.raises(ValueError, match=f"{name}, line 1: a carriage return within the line"):
            read(write(name, b'{"text"}\rb\rc\r'))
    assert [row["text"] for row in read(write("a.txt", b"a\rb\r\nc\n"))] == ["a\rb", "c"]
