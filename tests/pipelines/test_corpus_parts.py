"""Parts of files: together they have the documents of the whole, wherever they are cut."""

import gzip

import pytest

from keras_lm import data

pytest.importorskip("apache_beam", reason="needs: pip install keras-lm[beam]")

from keras_lm.pipelines.corpus_parts import ReadDocuments, cut_into_parts

TEXT = "one\ntwo\r\n\nthree\n\n\n \nfour is long\nfive\n\nsix"


def read(path, document, part_bytes=2**20):
    parts = cut_into_parts([(str(path), path.stat().st_size)], document, part_bytes)
    return [list(ReadDocuments(document).process(part)) for part in parts]


@pytest.mark.parametrize("document", ["line", "block", "file"])
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_documents_are_those_of_read_documents(tmp_path, document, suffix):
    path = tmp_path / f"texts{suffix}"
    path.write_bytes(gzip.compress(TEXT.encode()) if suffix == ".txt.gz" else TEXT.encode())
    expected = list(data.read_documents(str(path), document).as_numpy_iterator())
    for part_bytes in range(1, len(TEXT) + 2):
        parts = read(path, document, part_bytes)
        assert [text for part in parts for text in part] == expected, part_bytes
    if suffix == ".txt" and document != "file":
        assert sum(map(bool, read(path, document, 9))) > 1


def test_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo")
    assert read(path, "line") == [[b"one", b"\xef\xbb\xbftwo"]]


@pytest.mark.parametrize("part_bytes", [4, 2**20])
def test_errors_name_file_and_place(tmp_path, part_bytes):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"one\ntwo\nthr\xffee\nfour\n")
    with pytest.raises(ValueError, match=r"texts\.txt, line 3: not UTF-8"):
        read(path, "line", part_bytes)
    packed = tmp_path / "texts.txt.gz"
    packed.write_bytes(gzip.compress(b"one\ntwo\n" * 99)[:-12])
    with pytest.raises(ValueError, match=r"texts\.txt\.gz cannot be read: "):
        read(packed, "line")
    other = tmp_path / "renamed.txt"
    other.write_bytes(b"PAR1\x15\x04\n\0\0\0PAR1")
    for document in ("line", "block", "file"):
        with pytest.raises(ValueError, match=r"^⟦[^⟦]*renamed\.txt is Parquet"):
            read(other, document)
    with pytest.raises(ValueError, match=r"gone\.txt cannot be read: "):
        list(ReadDocuments("line").process(cut_into_parts([("gone.txt", 1)], "line")[0]))
    with pytest.raises(ValueError, match="document='page'"):
        cut_into_parts([], "page")
