"""Documents → rows for pretraining encoders. Shapes: B documents or rows, S sequence."""

import itertools
import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_lm.data.documents import document_batches
from keras_lm.data.segments import FORMS, Layout, stream_pairs
from keras_lm.packers import EntityPacker
from keras_lm.packers.packer import Template
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.batch_iteration import iterate_batches

ROWS_AT_ONCE = 256  # packed together


def pretraining_rows(
    documents: Iterable[Any],
    tokenizer: Tokenizer,
    template: Template,
    sequence_length: int,
    form: str = "full_sentences",
    short_share: float = 0.0,
    single_share: float = 0.0,
    seed: int = 0,
) -> tf.data.Dataset[Any]:
    """Return a deterministic `tf.data.Dataset` of rows for pretraining encoders.

    A row is a dict of int32: `token_ids`, `segment_ids` and `padding_mask`, (S,) each, `entity_ids`
    if the tokenizer finds entities, and for `"next_sentence"` a scalar, `next_sentence_labels`.
    Nothing is masked: objectives do that in each step.

    The forms:

    - `"single"`: a stretch of one document, cut anywhere; the last one of a document is shorter.
    - `"doc_sentences"`: as many whole sentences of one document as fit.
    - `"full_sentences"`: the same, but a row continues with the next document, after an additional
      separator, so there is hardly any padding even if documents are short.
    - `"segment_pairs"`: as many sentences of one document as fit, divided into two segments at a
      random sentence; for `SentenceOrder`, which swaps half of them. If a single sentence is left
      of a document, it becomes a row of one segment.
    - `"next_sentence"`: the same, but half of the second segments come from another document
      (label 1, else 0), as does the second segment if a single sentence is left of a document.

    Every token is in exactly one row, except that `"next_sentence"` drops the rest of the last
    document once all others are used up. Sentences are lines; those after a document's first are
    tokenized with a space before them, as in running text. Sentences longer than a row, or than
    half a row in pairs, are cut. One document is kept in memory, 256 for `"next_sentence"`.

    Args:
        documents: `tf.data.Dataset` of strings, alone or in batches (B,), or a list of strings,
            with one sentence per line; see `read_documents` and `split_sentences`.
        tokenizer: `keras_lm.tokenizers.Tokenizer`.
        template: `keras_lm.packers.Template`, such as `BertBackbone.TEMPLATE`.
        sequence_length: int, S, including special tokens.
        form: str, see above.
        short_share: float, share of rows with a random shorter length as their target; 0.1 in BERT,
            0.05 in ELECTRA.
        single_share: float, share of segment pairs that become one segment; 0.1 in ELECTRA.
        seed: int. Seeds the random lengths, segment borders and pairs.

    Raises:
        ValueError: if an argument is not as above.

    Example:

        documents = keras_lm.data.read_documents("corpus/*.txt", document="block")
        rows = keras_lm.data.pretraining_rows(
            documents, tokenizer, BertBackbone.TEMPLATE, 128, form="next_sentence", short_share=0.1
        )

    Source: RoBERTa, https://arxiv.org/abs/1907.11692, section 4.2 (full and doc sentences); BERT,
    https://arxiv.org/abs/1810.04805, section A.2, and google-research/bert,
    `create_pretraining_data.py`, whose random segments are used again and long pairs truncated;
    ALBERT, https://arxiv.org/abs/1909.11942, section 3.1 (pairs); SpanBERT,
    https://arxiv.org/abs/1907.10529, sections 3.3 and 4.2 (doc sentences, of its code);
    google-research/electra, `build_pretraining_dataset.py`; DistilBERT's `lm_seqs_dataset.py`
    (single).
    """
    if form not in FORMS:
        raise ValueError(f"form={form!r}: use one of {tuple(FORMS)}.")
    for name, share in (("short_share", short_share), ("single_share", single_share)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name}={share}: pass a number from 0 to 1.")
    if single_share and form != "segment_pairs":
        raise ValueError(
            f"single_share={single_share} needs form='segment_pairs', but form={form!r}: leave it "
            "out."
        )
    packer = EntityPacker(template, tokenizer, sequence_length, padding="fixed")
    is_pair = form in ("segment_pairs", "next_sentence")
    room = sequence_length - packer.number_of_special_tokens("pair" if is_pair else "single")
    if room < 2:
        raise ValueError(
            f"sequence_length={sequence_length} leaves no room for form={form!r}: use "
            f"{sequence_length - room + 2} or more."
        )
    separator = _separator(template, tokenizer) if form == "full_sentences" else None

    def segments(documents):
        layout = Layout(room, short_share, single_share, separator, random.Random(seed))
        return FORMS[form](documents, layout)

    label = "next_sentence_labels" if form == "next_sentence" else None
    return _packed(documents, segments, packer, tokenizer, is_pair, label)


def stream_rows(
    documents: Iterable[Any],
    tokenizer: Tokenizer,
    template: Template,
    sequence_length: int,
    reuse_length: int | None = None,
    seed: int = 0,
) -> tf.data.Dataset[Any]:
    """Return a `tf.data.Dataset` of rows of a corpus that is read as one stream, for `fit_streams`.

    A row is a dict of int32 as of `pretraining_rows`, always full. Its first `reuse_length` tokens
    go on with those of the row before, and a model's memory takes in these; after them are two
    segments of whole sentences, of which the second follows the first, or comes from anywhere, in
    half of the rows. First come all rows from the start of the corpus to its end, then all from its
    end to its start, whose tokens are in reverse order: `is_reversed` is 0, then 1. Between
    documents is `<eod>`, or the template's separator if the vocabulary lacks it.

    The tokens of the corpus are held in memory, four bytes each.

    Args:
        documents, tokenizer, template, sequence_length: see `pretraining_rows`. Texts of the
            template begin at its first token, as those of `XLNetBackbone.TEMPLATE`.
        reuse_length: int. By default half of `sequence_length`.
        seed: int. Seeds the borders of segments and the second ones.

    Raises:
        ValueError: if a length is out of range, or the template has a token before a text.

    Example:

        rows = keras_lm.data.stream_rows(documents, tokenizer, XLNetBackbone.TEMPLATE, 512)
        keras_lm.training.fit_streams(task, rows, batch_size=32)

    Source: XLNet, https://arxiv.org/abs/1906.08237, sections 2.4, 2.5 and 3.1; zihangdai/xlnet,
    `data_utils.py`.
    """
    packer = EntityPacker(template, tokenizer, sequence_length, padding="fixed")
    room = sequence_length - packer.number_of_special_tokens("pair")
    reuse_length = sequence_length // 2 if reuse_length is None else reuse_length
    if not 1 <= reuse_length <= room - 2:
        raise ValueError(
            f"reuse_length={reuse_length}: pass 1 to {room - 2}, as two segments come after it in "
            f"rows of sequence_length={sequence_length}."
        )
    if template.ids("pair", tokenizer)[0][0] != "$A":
        raise ValueError(
            f"template: pair={template.pair!r} begins with another token than the text, which goes "
            "on from row to row: pass one such as XLNetBackbone.TEMPLATE."
        )
    known = "<eod>" in tokenizer.vocabulary
    end = tokenizer.token_to_id("<eod>") if known else _separator(template, tokenizer)

    def segments(documents):
        return stream_pairs(documents, room, reuse_length, end, random.Random(seed))

    return _packed(documents, segments, packer, tokenizer, True, "is_reversed")


def _packed(documents, segments, packer, tokenizer, is_pair, label):
    """Return rows of what `segments` yields of documents of tokens: first, second, label."""

    # This is plain graph code, which traces faster without AutoGraph.
    @tf.autograph.experimental.do_not_convert
    def tokenize(texts):
        return _sentences(texts, tokenizer)

    tokens = document_batches(documents).map(tokenize, num_parallel_calls=tf.data.AUTOTUNE)

    def batches():
        triples = segments(_documents(tokens))
        while batch := list(itertools.islice(triples, ROWS_AT_ONCE)):
            first, second, labels = zip(*batch, strict=True)
            yield *_flat(first), *_flat(second), np.array(labels, "int32")

    @tf.autograph.experimental.do_not_convert
    def pack(first, lengths, second, second_lengths, labels):
        texts = {"text": tf.RaggedTensor.from_row_lengths(first, lengths)}
        rows = packer.pack(**texts)
        if is_pair:
            texts["text_pair"] = tf.RaggedTensor.from_row_lengths(second, second_lengths)
            pairs = packer.pack(**texts)
            has_pair = second_lengths[:, tf.newaxis] > 0
            rows = {name: tf.where(has_pair, pairs[name], rows[name]) for name in rows}
        return rows | ({label: labels} if label else {})

    # Many rows at once, because each step of a generator takes a millisecond.
    batches = tf.data.Dataset.from_generator(
        batches, output_signature=tuple(tf.TensorSpec([None], tf.int32) for _ in range(5))
    )
    return batches.map(pack, num_parallel_calls=tf.data.AUTOTUNE).unbatch()


def _flat(segments):
    """Return the tokens of segments, and the length of each."""
    return np.concatenate(segments), np.array([len(segment) for segment in segments], "int32")


def _sentences(texts, tokenizer):
    """Return the tokens of all sentences of texts (B,), and the row splits of both levels."""
    lines = tf.strings.split(texts, "\n")  # (B, None)
    lines = lines.with_flat_values(tf.strings.strip(lines.flat_values))
    lines = tf.ragged.boolean_mask(lines, tf.not_equal(lines, ""))
    is_first = tf.equal(tf.ragged.range(lines.row_lengths()).flat_values, 0)
    # Byte-level vocabularies have other tokens for words after a space.
    ids = tokenizer(tf.where(is_first, "", " ") + lines.flat_values)
    return ids.flat_values, ids.row_splits, lines.row_splits


def _documents(tokens):
    """Yield documents as lists of sentences, from batches of `_sentences`."""
    for batch in iterate_batches(tokens):
        ids, sentences, documents = (part.numpy() for part in batch)
        for start, end in itertools.pairwise(documents):
            borders = sentences[start : end + 1]
            document = [ids[a:b] for a, b in itertools.pairwise(borders) if b > a]
            if document:
                yield document


def _separator(template, tokenizer):
    pieces = [piece for piece, _ in template.ids("single", tokenizer)]
    after = pieces[pieces.index("$A") + 1 :]
    if not after:
        raise ValueError(
            f"template: single={template.single!r} has no separator after $A, which "
            "form='full_sentences' puts between documents: use another form."
        )
    return after[0]
