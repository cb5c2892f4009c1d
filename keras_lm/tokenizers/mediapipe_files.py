"""Tokenizers as MediaPipe's Tasks have them: a vocabulary's file and a kind, beside a network.

Sources, in https://github.com/google-ai-edge/mediapipe: `mediapipe/tasks/cc/text/tokenizers`, and
`bert_preprocessor_calculator.cc` and `regex_preprocessor_calculator.cc` in
`mediapipe/calculators/tensor`.
"""

import dataclasses
import string

from keras_lm.tokenizers.sentence_piece import SentencePieceTokenizer
from keras_lm.tokenizers.unicode_ranges import WHITE_SPACE, character_class
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.tokenizers.words import WordTokenizer

# What MediaPipe calls the tokens around a text, and an unknown one, for pieces and for words.
CLS, SEP, UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
START, PAD_WORD, UNKNOWN_WORD = "<START>", "<PAD>", "<UNKNOWN>"


@dataclasses.dataclass(frozen=True)
class MediaPipeTokenizer:
    """A tokenizer outside of the graph.

    Args:
        kind: `"bert"`, `"sentencepiece"` or `"regex"`.
        name, data: of its file.
        pattern: str, the regular expression (RE2) between words, for `"regex"`.
        pad_id: int, the id after the last word, for `"regex"`: no token's. The others have a mask.
    """

    kind: str
    name: str
    data: bytes
    pattern: str | None = None
    pad_id: int | None = None


def for_mediapipe(tokenizer, around):
    """Return a tokenizer as a `MediaPipeTokenizer`.

    Args:
        tokenizer: `Tokenizer`.
        around: (list of ids before a text, list of ids after it).

    Raises:
        ValueError: if MediaPipe has none like it, or puts other tokens around a text.
    """
    kinds = {
        WordPieceTokenizer: (_bert, (1, 1)),
        SentencePieceTokenizer: (_sentencepiece, (1, 1)),
        WordTokenizer: (_regex, (0, 0)),
    }
    if type(tokenizer) not in kinds:
        raise ValueError(
            f"MediaPipe has no tokenizer like {type(tokenizer).__name__}, only like "
            f"{', '.join(kind.__name__ for kind in kinds)}: export with format='litert', whose "
            "file holds the tokenizer."
        )
    make, least = kinds[type(tokenizer)]
    before, after = around
    numbers = len(before), len(after)
    if numbers != least and not (make is _regex and numbers == (1, 0)):
        raise ValueError(
            f"the model reads {numbers[0]} special tokens before a text and {numbers[1]} after it, "
            f"and with {type(tokenizer).__name__} MediaPipe puts {least[0]} and {least[1]} there: "
            "export with format='litert'."
        )
    return make(tokenizer, *before, *after)


def _bert(tokenizer, cls_id, sep_id):
    """A line for each id. MediaPipe splits texts at ASCII's punctuation, so none spells a `[1]`."""
    special = {*tokenizer.all_special_tokens, CLS, SEP, UNKNOWN}
    lines = [
        f"[{i}]" if not token or (token in special and is_findable(token)) else token
        for i, token in enumerate(tokenizer.vocabulary)
    ]
    for token in (CLS, SEP, UNKNOWN):
        if token in lines:
            lines[lines.index(token)] = f"[{lines.index(token)}]"
    lines[cls_id], lines[sep_id] = CLS, SEP
    lines[tokenizer.special_id("unknown")] = UNKNOWN
    return MediaPipeTokenizer("bert", "vocab.txt", "".join(f"{x}\n" for x in lines).encode())


def is_findable(token):
    """Whether text can spell a token: it has no punctuation, at which MediaPipe splits."""
    return not set(token) & set(string.punctuation)


def _sentencepiece(tokenizer, cls_id, sep_id):
    model = tokenizer.plain_model()
    for i, piece in enumerate(model.pieces):
        if piece.piece in (CLS, SEP):
            piece.piece = f"[{i}]"
    model.pieces[cls_id].piece, model.pieces[sep_id].piece = CLS, SEP
    return MediaPipeTokenizer("sentencepiece", "spiece.model", model.SerializeToString())


def _regex(tokenizer, start_id=None):
    """A line `word id` for each word; MediaPipe drops what it splits at, and keeps capitals."""
    problem = None
    if tokenizer.rules is not None:
        problem = f"applies the rules {tokenizer.rules!r}"
    elif tokenizer.splitter != "whitespace":
        problem = f"has splitter={tokenizer.splitter!r}, by which marks are words"
    elif tokenizer.lowercase:
        problem = "has lowercase=True"
    if problem:
        raise ValueError(
            f"the WordTokenizer {problem}, and MediaPipe only splits at white space: export with "
            "format='litert', or make the tokenizer with splitter='whitespace' and pass texts "
            "whose words are joined by spaces."
        )
    hidden = {*tokenizer.all_special_tokens, START, PAD_WORD, UNKNOWN_WORD}
    ids = {
        word: i
        for i, word in enumerate(tokenizer.vocabulary)
        if word not in hidden and word.split() == [word] and "\0" not in word
    }
    ids |= {PAD_WORD: tokenizer.vocabulary_size, UNKNOWN_WORD: tokenizer.special_id("unknown")}
    if start_id is not None:
        ids[START] = start_id
    lines = "".join(f"{word} {i}\n" for word, i in ids.items())
    return MediaPipeTokenizer(
        "regex",
        "vocab.txt",
        lines.encode(),
        pattern=f"[{character_class(WHITE_SPACE)}]+",
        pad_id=tokenizer.vocabulary_size,
    )
