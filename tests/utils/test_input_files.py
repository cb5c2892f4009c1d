"""Whatever reads texts from files refuses what is not text, by what it is."""

import gc
import gzip

import pytest

from keras_lm import data, knowledge, tokenizers
from keras_lm.utils import input_files

PARQUET, UTF_16 = b"PAR1\x15\x04\x15\n\0\0PAR1", "one\ntwo\n".encode("utf-16")
READERS = {
    "find_files": data.find_files,
    "read_documents": data.read_documents,
    "read_examples": data.read_examples,
    "read_published": lambda path: data.read_published(path, "cola"),
    "read_squad": data.read_squad,
    "train_vocabulary": lambda path: tokenizers.train_vocabulary("wordpiece", 100, path),
    "vocabulary": lambda path: tokenizers.WordPieceTokenizer(path, lowercase=True),
    "conceptnet": lambda path: [*knowledge.read_conceptnet(path)],
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("content, what", [(PARQUET, "Parquet"), (UTF_16, "text in UTF-16")])
def test_readers_of_text_refuse_what_is_not_text(tmp_path, name, content, what):
    path = tmp_path / "texts.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"texts\.txt'? is {what}"):
        READERS[name](str(path))


def test_triples_too(tmp_path):
    (tmp_path / "entity2id.txt").write_bytes(UTF_16)
    with pytest.raises(ValueError, match=r"entity2id\.txt is text in UTF-16: save it as UTF-8"):
        knowledge.read_triples(tmp_path)


def test_the_inside_of_a_packed_file_counts(tmp_path):
    path = tmp_path / "texts.txt.gz"
    path.write_bytes(gzip.compress(PARQUET))
    with pytest.raises(ValueError, match="is Parquet"):
        data.find_files(path)
    path.write_bytes(gzip.compress(b"fine"))
    assert data.find_files(path) == [str(path)]


def test_the_garbage_collector_rests_while_a_source_is_read():
    with pytest.raises(ValueError, match="damaged"), input_files.reading_once():
        with input_files.reading_once():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError("damaged")
    assert gc.isenabled()
