"""Learn a vocabulary from a corpus; the result only depends on the corpus."""

import collections
import gzip
import io
import itertools
import json
from collections.abc import Iterable, Mapping

from keras_lm.datasets.text_lines import decoded
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import splitting
from keras_lm.tokenizers.byte_pair import BytePairTokenizer
from keras_lm.tokenizers.sentence_piece import SentencePieceTokenizer
from keras_lm.tokenizers.strings import valid_utf8
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.tokenizers.words import SENTINEL
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.batch_iteration import iterate_batches
from keras_lm.utils.files import open_file
from keras_lm.utils.input_files import find_files
from keras_lm.utils.optional_dependencies import require
from keras_lm.utils.table_files import format_of, read_texts
from keras_lm.utils.user_arguments import iterable

# The special tokens of each kind, by role: those of BERT, GPT-2, T5 and T5.
SPECIAL_TOKENS = {
    "wordpiece": {
        "pad": "[PAD]",
        "unknown": "[UNK]",
        "cls": "[CLS]",
        "sep": "[SEP]",
        "mask": "[MASK]",
    },
    "byte_pair": {"bos": "<|endoftext|>", "eos": "<|endoftext|>"},
    "unigram": {"pad": "<pad>", "eos": "</s>", "unknown": "<unk>"},
    "sentencepiece_bpe": {"pad": "<pad>", "eos": "</s>", "unknown": "<unk>"},
}
KINDS = tuple(SPECIAL_TOKENS)
TEXTS_AT_ONCE = 1024  # read from a dataset
MAX_CHARACTERS = 1000  # of a WordPiece vocabulary; rarer ones become unknown tokens
SPECIAL_WORDS = ["<S>", "</S>", "<UNK>"]


def train_vocabulary(
    kind: str,
    vocabulary_size: int,
    files: PathLike | Iterable[PathLike] | None = None,
    texts: Iterable[str] | None = None,
    lowercase: bool = False,
    special_tokens: Mapping[str, str | None] | None = None,
) -> Tokenizer:
    """Learn a vocabulary from a corpus and return its tokenizer.

    Args:
        kind: `"wordpiece"` (BERT), `"byte_pair"` (GPT-2, RoBERTa), `"unigram"` (SentencePiece as in
            ALBERT, T5, XLNet) or `"sentencepiece_bpe"`.
        vocabulary_size: int, the maximum number of entries, with special tokens. SentencePiece has
            exactly that many, the others fewer if the corpus is small.
        files: see `keras_lm.data.find_files`; each line is a text in UTF-8. `.gz` is decompressed;
            of Parquet and Arrow, the column `text` is read.
        texts: instead of files, an iterable of strings, or a `tf.data.Dataset` of strings or of
            batches of them.
        lowercase: bool. Lower-case text first; not for byte pairs.
        special_tokens: dict from role (`"pad"`, `"unknown"`, `"cls"`, `"sep"`, `"mask"`, `"bos"`,
            `"eos"`; these two not for WordPiece) to its entry. None means those of BERT for
            WordPiece, of GPT-2 for byte pairs, of T5 for SentencePiece.

    Raises:
        ImportError: if the package `tokenizers` or `sentencepiece`, which learns, is not installed.
        FileNotFoundError: if no file is found.
        ValueError: if an argument is out of range, or the corpus is empty or does not fit the size.

    Example:

        tokenizer = train_vocabulary("wordpiece", 30_000, files="corpus/*.txt", lowercase=True)
    """
    if kind not in KINDS:
        raise ValueError(f"`kind` is {kind!r}; it must be one of {KINDS}.")
    if not (isinstance(vocabulary_size, int) and vocabulary_size > 0):
        raise ValueError(
            f"`vocabulary_size` is {vocabulary_size!r}; it must be a positive integer."
        )
    if (files is None) == (texts is None):
        raise ValueError("Give either `files` or `texts`: one of them, and not both.")
    if kind == "byte_pair" and lowercase:
        raise ValueError("`lowercase` is True, but byte pairs keep the case; pass False.")
    roles = dict(SPECIAL_TOKENS[kind] if special_tokens is None else special_tokens)
    known = ["pad", "unknown", "cls", "sep", "mask", *(["bos", "eos"] * (kind != "wordpiece"))]
    if not set(roles) <= set(known):
        wrong = sorted(set(roles) - set(known))
        raise ValueError(f"`special_tokens` names the roles {wrong}; {kind} has {known}.")
    if kind != "byte_pair" and "unknown" not in roles:
        raise ValueError("`special_tokens` lacks the role 'unknown', which this kind needs.")
    corpus = _Lines(files) if texts is None else _Texts(texts)
    if not any(text.strip() for text in corpus):
        raise ValueError("The corpus is empty: its texts hold nothing but white space.")
    arguments = {f"{role}_token": token for role, token in roles.items()}
    if kind == "wordpiece":
        vocabulary = _train_wordpiece(corpus, vocabulary_size, lowercase, roles)
        arguments = {f"{role}_token": roles.get(role) for role in SPECIAL_TOKENS["wordpiece"]}
        return WordPieceTokenizer(vocabulary, lowercase, **arguments)
    if kind == "byte_pair":
        vocabulary, merges = _train_byte_pair(corpus, vocabulary_size, roles)
        return BytePairTokenizer(vocabulary, merges, **arguments)
    model = _train_sentencepiece(corpus, vocabulary_size, kind, lowercase, roles)
    del arguments["unknown_token"]  # the model says which it is
    return SentencePieceTokenizer(model, lowercase=lowercase, **arguments)


# === The corpus, which is read more than once ===


class _Lines:
    def __init__(self, files):
        self.paths = find_files(files, tables=True)

    def __iter__(self):
        for path in self.paths:
            with open_file(path) as packed:
                file = gzip.GzipFile(fileobj=packed) if path.endswith(".gz") else packed
                if format_of(path):
                    for text in read_texts(path, file):
                        yield from text.decode().splitlines()
                    continue
                for _, line in decoded(path, file):
                    yield line.rstrip("\r\n")


class _Texts:
    def __init__(self, texts):
        if isinstance(texts, (str, bytes)):
            raise ValueError("`texts` is one string; give a list of them, or `files` for a path.")
        # Iterators can be read only once.
        texts = iterable(texts, "texts")
        self.texts = list(texts) if iter(texts) is texts else texts

    def __iter__(self):
        if isinstance(self.texts, tf.data.Dataset):
            batches, spec = self.texts, self.texts.element_spec
            if not isinstance(spec, tf.TensorSpec):
                raise ValueError(f"`texts` must hold strings; the dataset yields {spec}.")
            if spec.shape.rank == 0:
                batches = batches.batch(TEXTS_AT_ONCE)
            texts = itertools.chain.from_iterable(
                tf.reshape(batch, [-1]).numpy().tolist() for batch in iterate_batches(batches)
            )
        else:
            texts = self.texts
        for number, text in enumerate(texts):
            if not isinstance(text, (str, bytes)):
                raise ValueError(
                    f"`texts` must hold strings; number {number} is a {type(text).__name__}."
                )
            yield text if isinstance(text, str) else text.decode("utf-8", "replace")


# === The trainers ===


def _package(name):
    return require(name, "learning a vocabulary of this kind")


def _special(roles):
    return list(dict.fromkeys(roles.values()))


def _train_wordpiece(corpus, vocabulary_size, lowercase, roles):
    tokenizers = _package("tokenizers")
    learner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=roles["unknown"]))
    learner.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    learner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    counts = collections.Counter()
    for text in corpus:
        counts.update(learner.normalizer.normalize_str(text))
    characters = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    characters = sorted(characters[:MAX_CHARACTERS])
    # Given in advance, all characters have fixed ids. The trainer would number those within words
    # in the order of a hash table, and break ties between pieces by these numbers.
    first = [*_special(roles), *characters, *(f"##{c}" for c in characters)]
    if len(first) > vocabulary_size:
        raise ValueError(
            f"`vocabulary_size` is {vocabulary_size}, but special tokens and the characters of the "
            f"corpus, at the start of words and within, are {len(first)}: give more."
        )
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        special_tokens=first,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    learner.train_from_iterator(iter(corpus), trainer)
    return _by_id(learner.get_vocab())


def _train_byte_pair(corpus, vocabulary_size, roles):
    tokenizers = _package("tokenizers")
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = _special(roles)
    if vocabulary_size < len(special) + 256:
        raise ValueError(
            f"`vocabulary_size` is {vocabulary_size}, but special tokens and the 256 bytes are "
            f"{len(special) + 256}: give more."
        )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=special,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(iter(corpus), trainer)
    merges = json.loads(learner.to_str())["model"]["merges"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in merges]
    return _by_id(learner.get_vocab()), merges


def _by_id(ids):
    return sorted(ids, key=ids.get)


def _train_sentencepiece(corpus, vocabulary_size, kind, lowercase, roles):
    sentencepiece = _package("sentencepiece")
    model = io.BytesIO()
    arguments, entries = {}, {}
    for role, entry in roles.items():
        if role in ("pad", "unknown", "bos", "eos") and entries.setdefault(entry, role) != role:
            raise ValueError(
                f"`special_tokens` has {entry!r} for {entries[entry]!r} and {role!r}; in "
                "SentencePiece each has an entry of its own."
            )
    for number, role in enumerate(roles):
        name = {"unknown": "unk"}.get(role, role)
        if name in ("pad", "unk", "bos", "eos"):
            arguments[f"{name}_id"], arguments[f"{name}_piece"] = number, roles[role]
    absent = {f"{name}_id": -1 for name in ("pad", "bos", "eos")}
    control = [roles[role] for role in ("cls", "sep", "mask") if role in roles]
    errors = []  # of the corpus, which the trainer only quotes

    def sentences():
        try:
            for text in corpus:
                if text.strip():
                    # Character by character, like `SentencePieceTokenizer`: no sigma becomes a
                    # final one.
                    yield "".join(map(str.lower, text)) if lowercase else text
        except Exception as error:
            errors.append(error)
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences(),
            model_writer=model,
            vocab_size=vocabulary_size,
            model_type="unigram" if kind == "unigram" else "bpe",
            control_symbols=control,
            # Longer texts would be left out silently.
            max_sentence_length=2**30,
            num_threads=1,
            minloglevel=2,
            **(absent | arguments),
        )
    except RuntimeError as error:
        if errors:
            raise errors[0] from None
        raise ValueError(
            f"`vocabulary_size` {vocabulary_size} does not fit this corpus: {error}"
        ) from None
    return model.getvalue()


# === Words ===


def learn_words(
    texts: Iterable[str] | None,
    vocabulary_size: int,
    splitter: str = "punctuation",
    min_count: int = 1,
) -> list[str]:
    """Return the most frequent words of a corpus, as a bidirectional language model predicts them.

    `<S>`, `</S>` and `<UNK>` come first, then the words from the most frequent to the rarest,
    with ties in the order of their characters.

    Args:
        texts: iterable of strings, or a `tf.data.Dataset` of single strings.
        vocabulary_size: int. The maximum number of words, with the three special ones.
        splitter: see `keras_lm.tokenizers.CharacterTokenizer`; pass that of the model.
        min_count: int. Rarer words are left out.

    Raises:
        ValueError: if there are no words, or no room for any, or `splitter` is unknown.

    Example:

        texts = keras_lm.data.read_documents("corpus/*.txt")
        words = keras_lm.tokenizers.learn_words(texts, 50_000)
    """
    splitting.check_splitter(splitter)
    if vocabulary_size <= len(SPECIAL_WORDS):
        raise ValueError(
            f"vocabulary_size={vocabulary_size}: pass more than {len(SPECIAL_WORDS)}, the special "
            "words."
        )
    if isinstance(texts, (str, bytes)):
        raise ValueError("texts is one string: pass a list of them.")
    if not isinstance(texts, tf.data.Dataset):
        iterator = iter(iterable(texts, "texts"))
        texts = tf.data.Dataset.from_generator(
            lambda: iterator, output_signature=tf.TensorSpec([], tf.string)
        )

    def split(texts):
        texts = tf.strings.regex_replace(valid_utf8(texts), SENTINEL, "")
        return splitting.split_words(texts, splitter).values

    counts = collections.Counter()
    for words in iterate_batches(texts.batch(TEXTS_AT_ONCE).map(split)):
        counts.update(words.numpy().tolist())
    for word in SPECIAL_WORDS:
        del counts[word.encode()]
    frequent = [word for word, count in counts.items() if count >= min_count]
    if not frequent:
        raise ValueError(f"texts has no word that occurs min_count={min_count} times.")
    frequent.sort(key=lambda word: (-counts[word], word))
    frequent = frequent[: vocabulary_size - len(SPECIAL_WORDS)]
    return [*SPECIAL_WORDS, *(word.decode() for word in frequent)]
