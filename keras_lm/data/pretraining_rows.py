"""Documents → rows for pretraining encoders. Shapes: B documents or rows, S sequence."""

import itertools
import random

import numpy as np
import tensorflow as tf

from keras_lm.data.documents import document_batches
from keras_lm.data.segments import FORMS, Layout
from keras_lm.elements import elements
from keras_lm.packers import Packer

ROWS_AT_ONCE = 256  # packed together


def pretraining_rows(
    documents,
    tokenizer,
    template,
    sequence_length,
    form="full_sentences",
    short_share=0.0,
    single_share=0.0,
    seed=0,
):
    """Return a `tf.data.Dataset` of rows that encoders are pretrained on, the same each time.

    A row is a dict of int32: `token_ids`, `segment_ids` and `padding_mask`, (S,) each, and for next
    sentence `next_sentence_labels`, a scalar. Nothing is masked: objectives do that in each step.

    The forms:

    - `"single"`: a stretch of one document, cut anywhere; the last one of a document is shorter.
    - `"doc_sentences"`: as many whole sentences of one document as fit.
    - `"full_sentences"`: the same, but a row goes on with the next document, after one more
      separator: hardly any padding, however short documents are.
    - `"segment_pairs"`: as many sentences of one document as fit, in two segments, the border at a
      random sentence; for `SentenceOrder`, which swaps half of them. What is left of a document as
      a single sentence becomes a row of one segment.
    - `"next_sentence"`: the same, but half of the second segments come from another document
      (label 1, else 0), as do those of rows for which only one sentence of a document is left.

    No token stands in two rows, and none is dropped, but for next sentence what is left of the last
    document when all others are used up. Sentences are lines; those after a document's first are
    tokenized with a space before them, as in running text. A sentence longer than a row, in pairs
    than half a row, is cut. One document is in memory, for next sentence 256.

    Args:
        documents: `tf.data.Dataset` of strings, alone or in batches (B,), or a list of strings,
            with a sentence a line; see `read_documents` and `split_sentences`.
        tokenizer: `keras_lm.tokenizers.Tokenizer`.
        template: `keras_lm.packers.Template`, such as `BertBackbone.TEMPLATE`.
        sequence_length: int, S, special tokens included.
        form: str, see above.
        short_share: share of rows that aim at a random shorter length; BERT's is 0.1, ELECTRA's
            0.05.
        single_share: share of segment pairs that become one segment; ELECTRA's is 0.1.
        seed: int. Other seeds draw other borders and pairs.

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
            raise ValueError(f"{name}={share} is not in [0, 1].")
    if single_share and form != "segment_pairs":
        raise ValueError(f"single_share={single_share} is for form='segment_pairs', not {form!r}.")
    packer = Packer(template, tokenizer, sequence_length, padding="fixed")
    is_pair = form in ("segment_pairs", "next_sentence")
    room = sequence_length - packer.number_of_special_tokens("pair" if is_pair else "single")
    if room < 2:
        raise ValueError(
            f"sequence_length={sequence_length} leaves no room for form={form!r}: use "
            f"{sequence_length - room + 2} or more."
        )
    separator = _separator(template, tokenizer) if form == "full_sentences" else None

    # Plain graph code: without AutoGraph it is quicker to trace.
    @tf.autograph.experimental.do_not_convert
    def tokenize(texts):
        return _sentences(texts, tokenizer)

    tokens = document_batches(documents).map(tokenize, num_parallel_calls=tf.data.AUTOTUNE)

    def segments():
        layout = Layout(room, short_share, single_share, separator, random.Random(seed))
        found = FORMS[form](_documents(tokens), layout)
        while batch := list(itertools.islice(found, ROWS_AT_ONCE)):
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
        if form == "next_sentence":
            rows["next_sentence_labels"] = labels
        return rows

    # Rows together, as each step of a generator takes a thousandth of a second.
    batches = tf.data.Dataset.from_generator(
        segments, output_signature=tuple(tf.TensorSpec([None], tf.int32) for _ in range(5))
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
    # Byte-level vocabularies have other tokens after a space.
    ids = tokenizer(tf.where(is_first, "", " ") + lines.flat_values)
    return ids.flat_values, ids.row_splits, lines.row_splits


def _documents(tokens):
    """Yield documents as lists of sentences, from batches of `_sentences`."""
    for batch in elements(tokens):
        ids, sentences, documents = (part.numpy() for part in batch)
        for start, end in itertools.pairwise(documents):
            borders = sentences[start : end + 1]
            found = [ids[a:b] for a, b in itertools.pairwise(borders) if b > a]
            if found:
                yield found


def _separator(template, tokenizer):
    pieces = [piece for piece, _ in template.ids("single", tokenizer)]
    after = pieces[pieces.index("$A") + 1 :]
    if not after:
        raise ValueError(f"single={template.single!r} has no separator after $A: use another form.")
    return after[0]
