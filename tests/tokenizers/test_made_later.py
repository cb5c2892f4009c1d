"""A tokenizer makes the tables of its graph when they are first read, once."""

import threading

import pytest
import tensorflow as tf

from keras_lm.tokenizers import BytePairTokenizer
from keras_lm.tokenizers.sentence_piece_model import BYTES, SentencePieceModel
from keras_lm.tokenizers.strings import without_text_operations


def make():
    return BytePairTokenizer([*BYTES.values(), "ab", "abc"], ["a b", "ab c"])


def test_tables_are_made_by_the_first_of_several_threads():
    tokenizer, seen = make(), []
    assert not tokenizer.__dict__.keys() & tokenizer.MADE_LATER.keys()
    threads = [threading.Thread(target=lambda: seen.append(tokenizer._words)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8 and len({id(table) for table in seen}) == 1


def test_a_graph_that_is_traced_first_holds_no_table_of_its_own():
    tokenizer = make()
    ids = tf.function(lambda text: tokenizer(text).to_tensor())(tf.constant(["abc ab"]))
    assert tokenizer._entries.dtype == tf.string and ids.numpy().tolist() == [[257, 220, 256]]
    assert tf.executing_eagerly() and tokenizer._words.lookup(tf.constant(["abc"])).numpy() == [257]


def test_a_copy_with_a_space_shares_them():
    tokenizer = make()
    assert tokenizer.with_space._words is tokenizer._words


def test_where_it_was_constructed_says_which_operations_it_has():
    pytest.importorskip("tensorflow_text")
    tokenizer = make()
    with without_text_operations():
        assert isinstance(tokenizer._merge, SentencePieceModel)
        tokenizer = make()
    assert not isinstance(tokenizer._merge, SentencePieceModel)


def test_other_attributes_are_still_missing():
    with pytest.raises(AttributeError, match="'BytePairTokenizer' object has no attribute 'what'"):
        getattr(make(), "what")  # noqa: B009
