"""Packing: ragged token ids → the dict of equal-length rows that a backbone takes.

The same graph code runs in `tf.data`, in the exported SavedModel and in a `.tflite`.

Shapes: B batch, S sequence, C characters of a word.
"""

import dataclasses

import tensorflow as tf

TRUNCATIONS = ("longest_first", "only_first", "only_second")
PADDINGS = ("longest", "fixed")


@dataclasses.dataclass(frozen=True)
class Template:
    """Where a model's special tokens stand around one text and around a pair.

    Each is a string of pieces parted by spaces, `piece:segment`. `$A` and `$B` are the texts,
    anything else is a special token.

    Args:
        single: str, for one text.
        pair: str, for two.
        padding_side: `"right"` or `"left"`.
        padding_segment: int. Segment id of padding.

    Raises:
        ValueError: if a piece is written otherwise, or a text is missing.

    Example:

        Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    """

    single: str
    pair: str
    padding_side: str = "right"
    padding_segment: int = 0

    def __post_init__(self):
        for name, texts in (("single", ["$A"]), ("pair", ["$A", "$B"])):
            found = [piece for piece, _ in self.pieces(name) if piece.startswith("$")]
            if sorted(found) != texts:
                raise ValueError(f"{name}={getattr(self, name)!r} must hold {texts}, each once.")
        if self.padding_side not in ("right", "left"):
            raise ValueError(f"padding_side={self.padding_side!r}: use 'right' or 'left'.")

    @property
    def special_tokens(self):
        """The special tokens in it, each once."""
        pieces = [piece for name in ("pair", "single") for piece, _ in self.pieces(name)]
        return list(dict.fromkeys(piece for piece in pieces if not piece.startswith("$")))

    def pieces(self, name):
        """Return the pieces of `"single"` or `"pair"` as a list of (text, segment id)."""
        pieces = []
        for piece in getattr(self, name).split():
            text, _, segment = piece.rpartition(":")
            if not text or not segment.isdigit():
                raise ValueError(f"{name}: the piece {piece!r} is not of the form 'token:segment'.")
            pieces.append((text, int(segment)))
        return pieces


class Packer:
    """Cut texts to length, put special tokens around them, pad, and say what is what.

    Args:
        template: `Template`.
        tokenizer: `keras_lm.tokenizers.Tokenizer`, which knows the ids of the special tokens.
        sequence_length: int. Columns S at most, special tokens included.
        padding: `"longest"` pads to the longest row of the batch; `"fixed"` always gives
            `sequence_length` columns, which XLA, TPUs and TFLite want.
        truncation: which text of a pair gives way. `"longest_first"` takes tokens off the end of
            the longer one, and of the second at a tie, until both fit (BERT's own); `"only_first"`
            and `"only_second"` shorten that one alone, down to nothing, and then the other.

    Call: `packer(ids, pair_ids=None)` with `tf.RaggedTensor`s (B, None) returns a dict of (B, S)
    int32: `token_ids`, `segment_ids`, `padding_mask`.

    Raises:
        ValueError: if an argument has no such value, or `sequence_length` leaves no room for text.

    Example:

        packer = Packer(BertBackbone.TEMPLATE, tokenizer, sequence_length=128)
        packer(tokenizer(["a text"]))["token_ids"]
    """

    # What holds the tables that it looks strings up in, if any, for an export to take along.
    lookups = ()

    def __init__(
        self,
        template,
        tokenizer,
        sequence_length,
        padding="longest",
        truncation="longest_first",
    ):
        if padding not in PADDINGS:
            raise ValueError(f"padding={padding!r}: use one of {PADDINGS}.")
        if truncation not in TRUNCATIONS:
            raise ValueError(f"truncation={truncation!r}: use one of {TRUNCATIONS}.")
        self.template = template
        self.sequence_length = sequence_length
        self.padding = padding
        self.truncation = truncation
        # Where a vocabulary has no padding, as GPT-2's, any id will do: the mask says what is real.
        roles = [role for role in ("pad", "eos") if role in tokenizer.special_tokens]
        self.pad_id = tokenizer.special_id(roles[0]) if roles else 0
        # (id, or the name of a text; segment id)
        self._pieces = {
            name: [
                (text if text.startswith("$") else tokenizer.token_to_id(text), segment)
                for text, segment in template.pieces(name)
            ]
            for name in ("single", "pair")
        }
        least = max(self._number_of_special_tokens(name) for name in self._pieces) + 1
        if sequence_length < least:
            raise ValueError(
                f"sequence_length={sequence_length} leaves no room for text beside the special "
                f"tokens: use {least} or more."
            )

    def _number_of_special_tokens(self, name):
        return sum(not isinstance(piece, str) for piece, _ in self._pieces[name])

    def __call__(self, ids, pair_ids=None):
        texts = {"$A": ids} if pair_ids is None else {"$A": ids, "$B": pair_ids}
        runs, first, total, columns = self._lay_out(texts)
        position = tf.range(columns)[tf.newaxis, :]  # (1, S)
        token_ids = tf.fill([tf.size(total), columns], self.pad_id)
        segment_ids = tf.fill([tf.size(total), columns], self.template.padding_segment)
        for piece, segment, start, length in runs:
            is_text = isinstance(piece, str)
            offset = position - start[:, tf.newaxis]  # (B, S)
            inside = (offset >= 0) & (offset < length[:, tf.newaxis])
            value = self._gather(texts[piece], offset, inside) if is_text else piece
            token_ids = tf.where(inside, value, token_ids)
            segment_ids = tf.where(inside, segment, segment_ids)
        offset = position - first[:, tf.newaxis]
        real = (offset >= 0) & (offset < total[:, tf.newaxis])
        return {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": tf.cast(real, tf.int32),
        }

    def pieces(self, packed, tokenizer):
        """Return what a model sees of packed rows: `tokens` and `token_ids`, (B, S) each."""
        tokens = tokenizer.tokens(packed["token_ids"])
        # By the mask: a text can also hold the padding's own token.
        tokens = tf.where(packed["padding_mask"] > 0, tokens, "")
        return {"tokens": tokens, "token_ids": packed["token_ids"]}

    def spans(self, ids, pair_ids=None):
        """Return where calling with the same arguments puts each text.

        Args:
            ids, pair_ids: as for calling.

        Returns:
            A list of `(start, length)` for one text or two, (B,) int32 each: the column of a text's
            first token, and how many of its tokens there was room for.
        """
        texts = {"$A": ids} if pair_ids is None else {"$A": ids, "$B": pair_ids}
        runs, *_ = self._lay_out(texts)
        found = {piece: (start, length) for piece, _, start, length in runs}
        return [found[name] for name in texts]

    def _lay_out(self, texts):
        """Say which columns each piece of the template takes.

        Returns:
            `(runs, first, total, columns)`: for each piece (id or text, segment, (B,) its first
            column, (B,) number of columns); of each row the first real column (B,) and how many are
            real (B,); how many there are in all, S.
        """
        name = "pair" if "$B" in texts else "single"
        lengths = {key: tf.cast(text.row_lengths(), tf.int32) for key, text in texts.items()}
        lengths = self._truncate(
            lengths, self.sequence_length - self._number_of_special_tokens(name)
        )
        total = tf.add_n(list(lengths.values())) + self._number_of_special_tokens(name)  # (B,)
        columns = self.sequence_length if self.padding == "fixed" else self._longest(total)
        is_left = self.template.padding_side == "left"
        first = columns - total if is_left else tf.zeros_like(total)
        runs, start = [], first
        for piece, segment in self._pieces[name]:
            length = lengths[piece] if isinstance(piece, str) else tf.ones_like(total)
            runs.append((piece, segment, start, length))
            start += length
        return runs, first, total, columns

    def _longest(self, total):
        # An empty batch still gets one column, so that every model runs on it.
        return tf.maximum(tf.reduce_max(total), 1)

    def _truncate(self, lengths, room):
        """Return how many tokens each text keeps, all in closed form."""
        if len(lengths) == 1:
            return {"$A": tf.minimum(lengths["$A"], room)}
        first, second = lengths["$A"], lengths["$B"]
        if self.truncation == "only_first":
            second = tf.minimum(second, room)
            first = tf.minimum(first, room - second)
        elif self.truncation == "only_second":
            first = tf.minimum(first, room)
            second = tf.minimum(second, room - first)
        else:  # taking from the longer one ends at equal halves, or before it where one is short
            first, second = (
                tf.minimum(first, tf.maximum(room - room // 2, room - second)),
                tf.minimum(second, tf.maximum(room // 2, room - first)),
            )
        return {"$A": first, "$B": second}

    @staticmethod
    def _gather(text, offset, inside):
        """Pick `text[row, offset]` where `inside`, by plain integer ops that TFLite has too."""
        values = tf.concat([text.flat_values, [0]], axis=0)  # never empty
        row_starts = tf.cast(text.row_starts(), tf.int32)[:, tf.newaxis]
        return tf.gather(values, tf.where(inside, row_starts + offset, 0))


class CharacterPacker(Packer):
    """The same for words that are spelled: ragged character ids → rows of equally many words.

    Args:
        template, sequence_length, padding, truncation: see `Packer`; a length counts words.
        tokenizer: `keras_lm.tokenizers.CharacterTokenizer`.

    Call: `packer(ids, pair_ids=None)` with `tf.RaggedTensor`s (B, None, C) returns a dict of int32:
    `character_ids` (B, S, C), zero in padding, and `padding_mask` (B, S).

    Example:

        packer = CharacterPacker(ElmoBackbone.TEMPLATE, CharacterTokenizer(), sequence_length=128)
        packer(tokenizer(["a text"]))["character_ids"]
    """

    def __init__(self, template, tokenizer, *arguments, **options):
        super().__init__(template, tokenizer, *arguments, **options)
        # A word for every id that the rows below may hold beside those of texts: all are padding
        # but the special tokens.
        with tf.init_scope():
            words = tokenizer.tokenize_words(tokenizer.vocabulary, parse_special=True).numpy()
        special = {tokenizer.token_to_id(token) for token in template.special_tokens}
        words[[i for i in range(len(words)) if i not in special]] = 0
        self._words = words

    def __call__(self, ids, pair_ids=None):
        texts = [ids] if pair_ids is None else [ids, pair_ids]
        table, numbers = [tf.constant(self._words)], []
        first = len(self._words)
        for text in texts:  # words are numbered through, packed as numbers, and then looked up
            values = tf.cast(text.values, tf.int32)  # (W, C)
            table.append(values)
            numbers.append(text.with_values(tf.range(tf.shape(values)[0]) + first))
            first += tf.shape(values)[0]
        packed = super().__call__(*numbers)
        return {
            "character_ids": tf.gather(tf.concat(table, axis=0), packed["token_ids"]),
            "padding_mask": packed["padding_mask"],
        }

    def pieces(self, packed, tokenizer):
        """Return what a model sees: `tokens` (B, S), words, and `character_ids` (B, S, C)."""
        words = tokenizer.words(packed["character_ids"])
        return {"tokens": words, "character_ids": packed["character_ids"]}
