"""Ids by the package `tokenizers`, as where TensorFlow is missing, are those of the graph."""

import pytest

from keras_lm import tokenizers
from keras_lm.tokenizers import host

TEXTS = [
    "Two (films) good!",
    "  naïve café [SEP] <mask> </s>",
    "unaffable\tSeñor 東京 🙂",
    "",
    "a",
]
FOLDERS = {
    "wordpiece-uncased": tokenizers.WordPieceTokenizer,
    "wordpiece-cased": tokenizers.WordPieceTokenizer,
    "bytebpe-gpt2": tokenizers.BytePairTokenizer,
    "bytebpe-roberta": tokenizers.BytePairTokenizer,
    "bpe-gpt1": tokenizers.GPTTokenizer,
    "sentencepiece-albert": tokenizers.SentencePieceTokenizer,
    "sentencepiece-t5": tokenizers.SentencePieceTokenizer,
    "sentencepiece-xlnet": tokenizers.SentencePieceTokenizer,
}


@pytest.mark.parametrize("name", FOLDERS)
def test_ids_are_those_of_the_graph(goldens, name):
    tokenizer = FOLDERS[name].from_files(goldens("tokenizers") / name)
    some = tokenizer.all_special_tokens[:1]
    for special in (False, True, some):
        expected = tokenizer(TEXTS, parse_special=special).to_list()
        assert host.ids_of(tokenizer, TEXTS, special) == expected
        assert host.ids_of(tokenizer, TEXTS[1], special) == expected[1]
    assert host.ids_of(tokenizer, [TEXTS[:2], []], False)[0] == tokenizer(TEXTS[:2]).to_list()
    ids = tokenizer(TEXTS[:1])
    assert host.text_of(tokenizer, ids.to_list()) == [tokenizer.detokenize(ids)[0].numpy().decode()]


def test_what_has_no_counterpart_is_said():
    message = r"ByteTokenizer has no counterpart.*pip install tensorflow"
    with pytest.raises(ValueError, match=message):
        host.ids_of(tokenizers.ByteTokenizer(), ["a"], False)
