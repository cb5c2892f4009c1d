"""A small tokenizer of each kind."""

import pytest

from keras_lm.tokenizers import (
    BytePairTokenizer,
    CharacterTokenizer,
    GPTTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    WordTokenizer,
)

PUBLISHED = {
    "wordpiece-uncased": WordPieceTokenizer,
    "wordpiece-cased": WordPieceTokenizer,
    "bytebpe-gpt2": BytePairTokenizer,
    "bytebpe-roberta": BytePairTokenizer,
    "bpe-gpt1": GPTTokenizer,
    "sentencepiece-albert": SentencePieceTokenizer,
    "sentencepiece-t5": SentencePieceTokenizer,
    "sentencepiece-xlnet": SentencePieceTokenizer,
}
MARKERS = ["xxrep", "xxwrep", "xxup", "xxmaj"]


def make_words():
    """Words with fastai's rules."""
    roles = {"unknown_token": "xxunk", "pad_token": "xxpad", "bos_token": "xxbos"}
    words = [*roles.values(), *MARKERS, "the", "film", "was", "good", "3", "é", ".", ",", "中"]
    return WordTokenizer(words, **roles, additional_special_tokens=MARKERS, rules="fastai")


@pytest.fixture(scope="session")
def tokenizer_of(goldens):
    """`tokenizer_of("bpe-gpt1")` is the tokenizer of that kind, made once."""
    made = {}

    def get(kind):
        if kind not in made:
            if kind in PUBLISHED:
                made[kind] = PUBLISHED[kind].from_files(goldens("tokenizers") / kind)
            else:
                made[kind] = make_words() if kind == "words" else CharacterTokenizer(20)
        return made[kind]

    return get
