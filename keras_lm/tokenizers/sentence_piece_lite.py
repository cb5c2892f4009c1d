"""SentencePiece in integer operations and sums of floats, as LiteRT has them.

All texts are one long list of characters. The table of characters is applied to it, then pieces are
found by a trie, and the best of them, or the merges, in all chunks at once: a chunk lies between
two places that no piece crosses, such as the spaces before words.

Shapes: B texts, N characters, L the longest piece, C chunks, T pieces.
"""

import functools

import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import sentence_piece_model as files
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.lite_operations import (
    NONE,
    STEPS,
    CodePointTable,
    PairTable,
    Trie,
    code_points,
    count_before,
    flags,
    follow,
    loop,
    places_of,
    put,
    read,
    stored,
    utf8_bytes,
    utf8_sizes,
    valid_bytes,
    value_after,
    value_before,
)
from keras_lm.tokenizers.sentence_piece_normalizer import Table
from keras_lm.tokenizers.tokenizer import lookup_table, traced

SPACE, MARK = ord(" "), ord(files.SPACE)
# Which texts get the model's space before them.
PREFIXES = ALWAYS, NEVER, UNLESS_SPACE, IF_SPACE = "always", "never", "unless_space", "if_space"
NOTHING = -1e30  # the score of a piece that is not there
UNKNOWN_PENALTY = 10.0
CODE_POINTS = 0x110000


class LiteSentencePiece:
    """A prepared SentencePiece model, unigram or BPE, as a function from texts to ids.

    Args:
        proto: the parsed model to run, see `prepared_model`.
        charsmap: bytes, the table of characters.
        prefix: which texts the model's space is added to, one of `PREFIXES`: all, none, or those
            that begin with no space, or with one.

    Raises:
        ValueError: if the model is of another kind, or a BPE with pieces that it does not use.
    """

    def __init__(self, proto, charsmap, prefix=ALWAYS):
        kind, pieces = proto.trainer_spec.model_type, proto.pieces
        if kind not in (files.UNIGRAM, files.BPE):
            raise _refusal("words or characters as pieces, not a unigram model's or a BPE's")
        if kind == files.BPE and any(piece.type == files.UNUSED for piece in pieces):
            raise _refusal("pieces of the type 'UNUSED', which a BPE parts again")
        own = {p.piece: i for i, p in enumerate(pieces) if p.type in (files.NORMAL, KEPT)}
        kept = [p.piece for p in pieces if p.type == KEPT]
        unknown = next(i for i, p in enumerate(pieces) if p.type == files.UNKNOWN)
        self._normalize = Normalizer(charsmap, kept, proto.normalizer_spec, prefix)
        letters = sorted(set("".join(own)))
        self._symbols = _code_point_table({ord(c): i for i, c in enumerate(letters, start=1)})
        symbols = {letter: i for i, letter in enumerate(letters, start=1)}
        spelled = {tuple(symbols[c] for c in piece): i for piece, i in own.items()}
        self._pieces = Pieces(spelled, len(letters) + 1, unknown)
        scores = [p.score for p in pieces]
        if kind == files.UNIGRAM:
            self._find = Unigram(scores, [*own.values()], unknown)
        else:
            kept = {tuple(symbols[c] for c in piece) for piece in kept}
            self._find = Merges(spelled, scores, kept, len(letters) + 1, unknown)
        self._unknown = unknown
        self._bytes = None
        if proto.trainer_spec.byte_fallback:
            byte = {p.piece: i for i, p in enumerate(pieces) if p.type == files.BYTE}
            self._bytes = tf.constant([byte.get(f"<0x{i:02X}>", unknown) for i in range(256)])

    def __call__(self, text):
        """Return the ids of (B,) texts, ragged (B, S) int32."""
        codes, row_splits = self._normalize(text)
        size = tf.size(codes)  # with one character after the last text
        row = tf.cumsum(put(tf.ones_like(row_splits), row_splits, size)) - 1
        ends = tf.gather(tf.concat([row_splits, [size]], 0), row + 1)
        symbols = self._symbols(codes)
        lengths, ids = self._find(self._pieces(symbols, ends), symbols, ends, row)
        at = places_of(lengths > 0)
        ids = tf.gather(ids, at)
        if self._bytes is None:
            is_unknown = ids == self._unknown
            row = tf.gather(row, at)
            is_same = is_unknown & value_before(is_unknown, 1, False)
            is_there = ~(is_same & (row == value_before(row, 1, -1)))
            kept = places_of(is_there)
            ids, at = tf.gather(ids, kept), tf.gather(at, kept)
            widths = tf.ones_like(ids)
        else:
            ids, widths = self._with_bytes(ids, tf.gather(codes, at))
        before = tf.cumsum(put(widths, at, size), exclusive=True)
        splits = tf.gather(before, row_splits)
        ids = ids[: splits[-1]]  # without that of the last character
        return tf.RaggedTensor.from_row_splits(ids, tf.cast(splits, tf.int64), validate=False)

    def _with_bytes(self, ids, codes):
        """Replace unknown characters by their bytes; return the ids, and how many each has."""
        is_unknown = ids == self._unknown
        sizes = utf8_sizes(codes)
        widths = tf.where(is_unknown, sizes, 1)
        token, place = strings.places_in_rows(widths)
        ids, codes, sizes, unknown = (tf.gather(x, token) for x in (ids, codes, sizes, is_unknown))
        byte = tf.where(unknown, utf8_bytes(codes, sizes, place), 0)
        return tf.where(unknown, tf.gather(self._bytes, byte), ids), widths


KEPT = files.USER_DEFINED


def _refusal(what):
    return ValueError(
        f"SentencePieceTokenizer cannot tokenize in LiteRT: its model has {what}. Export as a "
        "SavedModel instead."
    )


def _code_point_table(values, default=0):
    table = np.full(CODE_POINTS, default, np.int32)
    table[[*values]] = [*values.values()]
    return CodePointTable(table, small=True)


# === Characters ===


class Normalizer:
    """Turns texts into the characters that pieces are made of, "▁" for spaces.

    Args:
        charsmap: bytes, the table of characters.
        kept: list of str, texts that it leaves as they are.
        spec: the model's `NormalizerSpec`.
        prefix: see `LiteSentencePiece`.
    """

    def __init__(self, charsmap, kept, spec, prefix=ALWAYS):
        self._adds = spec.add_dummy_prefix and prefix != NEVER
        self._joins = spec.remove_extra_whitespaces
        self._prefix = prefix
        rules, longer, classes = _rules_by_length(charsmap, tuple(kept))
        spelled, places = [0], {}
        for text in rules.values():
            if text not in places:
                places[text] = len(spelled)
                spelled += map(ord, text or "\0")
        self._spelled = tf.constant(spelled, tf.int32)
        single = {ord(key): text for key, text in rules.items() if len(key) == 1}
        # 0 stands for a character that stays.
        self._starts = _code_point_table({c: places[text] for c, text in single.items()})
        self._lengths = _code_point_table({c: len(t) for c, t in single.items()}, 1)
        self._runs = None
        if longer:
            letters = sorted(set("".join(longer)))
            symbols = {letter: i for i, letter in enumerate(letters, start=1)}
            known = {ord(c): symbols[of] for c, of in classes.items() if of in symbols}
            self._symbols = _code_point_table(known)
            begins, follows = np.zeros([2, len(letters) + 1], bool)
            for key in longer:
                begins[symbols[key[0]]] = follows[symbols[key[1]]] = True
            self._begins, self._follows = tf.constant(begins), tf.constant(follows)
            keys = {tuple(symbols[c] for c in key): text for key, text in longer.items()}
            numbers = {key: i for i, key in enumerate(keys)}
            self._runs = Trie(numbers, len(letters) + 1, small=True)
            self._run_starts = stored([places[text] for text in keys.values()], small=True)
            self._run_lengths = stored([len(text) for text in keys.values()], small=True)
            self._longest = max(map(len, longer))

    def __call__(self, text):
        """Return the characters of (B,) texts and one more after the last, and row splits."""
        return self._normalized(code_points(*valid_bytes(text)))[:2]

    def with_places(self, text):
        """Return what a call does, and where each character starts and ends, (N,) int32 each.

        Places are characters of all texts, which are returned last, with their row splits. As in
        the reference, a character starts where those that it was made of do, and ends where the
        next one starts.
        """
        old_codes, old_splits = code_points(*valid_bytes(text))
        codes, splits, at, of, middle_splits, is_blank = self._normalized((old_codes, old_splits))
        row, middle_row, old_row = (
            tf.cumsum(put(tf.ones_like(x), x, tf.size(y))) - 1
            for x, y in ((splits, codes), (middle_splits, of), (old_splits, old_codes))
        )
        number = tf.size(splits)  # of rows, with one for what follows the texts
        is_there = at >= 0
        at = tf.maximum(at, 0)
        source = put(tf.where(is_there, of, 0), at, tf.size(codes))
        is_made = put(tf.cast(is_there, tf.int32), at, tf.size(codes)) > 0
        # The space before a text starts where the spaces that are dropped end.
        first = old_splits
        if self._joins:
            place = tf.range(tf.size(old_codes))
            place = tf.where(is_blank, tf.size(old_codes) - 1, place)
            first = tf.math.unsorted_segment_min(place, old_row, number)
        source = tf.where(is_made, source, tf.gather(first, row))
        # The last character ends where dropped spaces, or the text, does.
        place = tf.where(is_there, tf.range(tf.size(of)), -1)
        # (ONNX has a form of the least alone.)
        after = 1 - tf.math.unsorted_segment_min(-place, middle_row, number)
        is_dropped = (after > 0) & (after < tf.concat([middle_splits[1:], [0]], 0))
        last = tf.concat([old_splits[1:], old_splits[-1:]], 0)
        last = tf.where(is_dropped, tf.gather(of, tf.where(is_dropped, after, 0)), last)
        is_last = value_after(row, 1, -1) != row
        end = tf.where(is_last, tf.gather(last, row), value_after(source, 1, 0))
        return codes, splits, source, end, (old_codes, old_splits)

    def _normalized(self, texts):
        """Return the characters and row splits of texts, and how they came about.

        These are, of each character before spaces are dropped: its place, -1 if it is, and the old
        character that it was made of; the row splits of these; and which old characters are spaces.
        """
        codes, row_splits = texts
        starts, lengths = self._starts(codes), self._lengths(codes)
        if self._runs is not None:
            symbols = self._symbols(codes)
            is_first = flags(row_splits, tf.size(codes))
            is_run = tf.gather(self._begins, symbols)
            is_run &= tf.gather(self._follows, value_after(symbols, 1, 0))
            is_run &= ~value_after(is_first, 1, True)
            starts, lengths = tf.cond(
                tf.reduce_any(is_run),
                lambda: self._with_runs(symbols, row_splits, is_run, starts, lengths),
                lambda: (starts, lengths),
            )
        ends = tf.cumsum(lengths)
        begins = ends - lengths
        of = tf.cumsum(put(tf.ones_like(begins), begins, ends[-1] + 1))[:-1] - 1
        place = tf.range(ends[-1]) - tf.gather(begins, of)
        start = tf.gather(starts, of)
        spelled = tf.gather(self._spelled, tf.where(start > 0, start + place, 0))
        codes = tf.where(start > 0, spelled, tf.gather(codes, of))
        is_blank = (lengths == 1) & (tf.gather(tf.concat([codes, [0]], 0), begins) == SPACE)
        splits = tf.gather(begins, row_splits)
        return *self._with_spaces(codes, splits, row_splits), of, splits, is_blank

    def _with_runs(self, symbols, row_splits, is_run, starts, lengths):
        """Replace several characters at once: the longest run at each place that is left."""
        size = tf.size(symbols)
        at = places_of(is_run)
        row = tf.cumsum(put(tf.ones_like(row_splits), row_splits, size)) - 1
        ends = tf.gather(tf.concat([row_splits, [size]], 0), row + 1)
        nodes = self._runs(symbols, at, tf.gather(ends, at), whole=False)
        sizes = tf.maximum(1, put(read(self._runs.lengths, nodes), at, size))
        number = put(tf.maximum(read(self._runs.numbers, nodes) + 1, 0), at, size)
        # Runs that may overlap are followed from the first of them.
        at = places_of(number > 0)
        is_far = at - value_before(at, 1, -self._longest) >= self._longest
        is_far |= tf.gather(row, at) != value_before(tf.gather(row, at), 1, -1)
        begins = tf.concat([tf.gather(at, places_of(is_far)), [size - 1]], 0)
        stops = tf.concat([begins[1:], [size]], 0)
        # (The last place is a space of no text, so that no list is empty.)
        taken = follow(sizes, begins, tf.minimum(stops, tf.gather(ends, begins)))
        is_run = taken & (number > 0)
        covered = put(tf.where(is_run, 1, 0), tf.range(size), size)
        covered -= put(
            tf.where(is_run, 1, 0), tf.range(size) + tf.where(is_run, sizes, 0), size + 1
        )[:-1]
        covered = tf.cumsum(covered) > 0
        run = tf.maximum(number - 1, 0)
        starts = tf.where(is_run, read(self._run_starts, run), starts)
        lengths = tf.where(is_run, read(self._run_lengths, run), tf.where(covered, 0, lengths))
        return starts, lengths

    def _with_spaces(self, codes, splits, old_splits):
        """Drop the spaces that a model does not read, and add that before a text.

        Return the characters, their row splits, and where each of the old ones is now, or -1.
        """
        size = tf.size(codes)
        is_first = flags(splits, size)
        is_space = codes == SPACE
        row = tf.cumsum(put(tf.ones_like(splits), splits, size)) - 1
        is_text = row < tf.size(splits) - 1
        has_prefix = old_splits[1:] > old_splits[:-1]
        if self._joins:
            is_there = is_text & ~(is_space & (is_first | value_before(is_space, 1, True)))
            before = count_before(~is_space & (codes != MARK))
            bounds = tf.gather(before, splits)
            is_there &= before < tf.gather(tf.concat([bounds[1:], [0]], 0), row)
            # (A space before the end of a text is counted among what comes after it.)
            has_prefix &= bounds[1:] > bounds[:-1]
        else:
            is_there = is_text
        if self._prefix in (UNLESS_SPACE, IF_SPACE):
            first = tf.gather(codes, splits[:-1])
            begins_with_space = (splits[1:] > splits[:-1]) & ((first == SPACE) | (first == MARK))
            has_prefix &= begins_with_space == (self._prefix == IF_SPACE)
        added = tf.cast(has_prefix, tf.int32) if self._adds else tf.zeros_like(splits[1:])
        prefixes = tf.cumsum(tf.concat([added, [0]], 0))
        kept = count_before(is_there)
        at = kept + tf.gather(prefixes, row)
        new_splits = tf.gather(kept, splits) + prefixes - tf.concat([added, [0]], 0)
        codes = tf.where(is_there & ~is_space, codes - MARK, 0)
        codes = put(codes, tf.where(is_there, at, 0), new_splits[-1] + 1) + MARK
        return codes, new_splits, tf.where(is_there, at, -1)


class CharacterFinder:
    """Finds the pieces of a model whose pieces are characters, and where they are in texts.

    Args:
        proto: the parsed model.
        charsmap: bytes, the table of characters.
        prefix: see `LiteSentencePiece`.
    """

    def __init__(self, proto, charsmap, prefix=ALWAYS):
        kept = [p.piece for p in proto.pieces if p.type == KEPT]
        letters = [p.piece for p in proto.pieces if p.type == files.NORMAL]
        letters += [piece for piece in kept if len(piece) == 1]
        self._normalize = Normalizer(charsmap, kept, proto.normalizer_spec, prefix)
        self._known = _code_point_table({ord(letter): 1 for letter in letters})
        self._kept = None
        if longer := [piece for piece in kept if len(piece) > 1]:
            signs = sorted(set("".join(longer)))
            symbols = {letter: i for i, letter in enumerate(signs, start=1)}
            self._symbols = _code_point_table({ord(c): i for c, i in symbols.items()})
            keys = [tuple(symbols[c] for c in piece) for piece in longer]
            self._kept = Trie({(): -1} | dict.fromkeys(keys, 1), len(symbols) + 1)
        self._has_bytes = proto.trainer_spec.byte_fallback

    def __call__(self, text):
        """Return the characters of (B,) texts, normalised, and the pieces that they make.

        Of the characters there are the codes, those of one more after the last text, and the row
        splits. A piece has the place of its first character, whether it is unknown, and where it
        starts and ends among the characters of the texts as they are, which are returned last, with
        their row splits. The last piece is of no text.
        """
        codes, splits, starts, ends, old = self._normalize.with_places(text)
        size = tf.size(codes)  # with one after the last text
        row = tf.cumsum(put(tf.ones_like(splits), splits, size)) - 1
        is_unknown = self._known(codes) == 0
        begins = tf.ones_like(is_unknown)
        if self._kept is not None:
            limits = tf.concat([splits[1:], [size]], 0)
            nodes = self._kept(
                self._symbols(codes), tf.range(size), tf.gather(limits, row), whole=False
            )
            sizes = tf.maximum(tf.gather(self._kept.lengths, nodes), 1)
            is_full = places_of(limits > splits)
            begins = follow(sizes, tf.gather(splits, is_full), tf.gather(limits, is_full))
            is_unknown &= begins & (nodes == 0)
        if not self._has_bytes:
            is_same = is_unknown & value_before(is_unknown, 1, False)
            begins &= ~(is_same & (row == value_before(row, 1, -1)))
        begins |= tf.range(size) == size - 1
        at = places_of(begins)
        last = tf.concat([at[1:], [size]], 0) - 1
        places = tf.gather(starts, at), tf.gather(ends, last)
        return codes, splits, at, tf.gather(is_unknown, at), *places, old


class CharacterModel(tf.Module):
    """`CharacterFinder` with the methods `rows_with_offsets` and `string_to_id` of TF Text."""

    def __init__(self, proto, charsmap):
        super().__init__()
        self._find = CharacterFinder(proto, charsmap)
        self._has_bytes = proto.trainer_spec.byte_fallback
        self._byte_names = tf.constant([f"<0x{byte:02X}>" for byte in range(256)])
        ids = {p.piece: i for i, p in enumerate(proto.pieces) if p.type != files.UNKNOWN}
        unknown = next(i for i, p in enumerate(proto.pieces) if p.type == files.UNKNOWN)
        self._ids = lookup_table({**ids, "\ufdef": unknown}, unknown)
        self.rows_with_offsets = traced(self._rows_with_offsets, autograph=False)

    def string_to_id(self, pieces):
        return self._ids.lookup(pieces)

    def _rows_with_offsets(self, text):
        codes, splits, at, is_unknown, starts, ends, old = self._find(text)
        size = tf.size(codes)
        pieces = tf.RaggedTensor.from_row_splits(codes, tf.concat([at, [size]], 0), validate=False)
        pieces = tf.strings.unicode_encode(pieces, "UTF-8")
        splits = tf.gather(count_before(flags(at, size)), splits)
        # In bytes of each text.
        old_codes, old_splits = old
        bytes_before = tf.cumsum(utf8_sizes(old_codes), exclusive=True)
        row = tf.cumsum(put(tf.ones_like(splits), splits, tf.size(at))) - 1
        begin = tf.gather(bytes_before, tf.gather(old_splits, row))
        starts, ends = (tf.gather(bytes_before, x) - begin for x in (starts, ends))
        if self._has_bytes:
            pieces, starts, ends, splits = self._with_bytes(
                pieces, starts, ends, splits, is_unknown
            )
        number = splits[-1]
        starts, ends = tf.cast(starts[:number], tf.int64), tf.cast(ends[:number], tf.int64)
        return splits, pieces[:number], starts, ends

    def _with_bytes(self, pieces, starts, ends, splits, is_unknown):
        """Replace unknown pieces by those of their bytes, of which the last covers the text."""
        data = strings.bytes_of(pieces)
        sizes = tf.where(is_unknown, tf.cast(data.row_lengths(), tf.int32), 1)
        token, place = strings.places_in_rows(sizes)
        byte = tf.gather(tf.cast(data.row_starts(), tf.int32), token) + place
        names = tf.gather(self._byte_names, tf.cast(tf.gather(data.values, byte), tf.int32))
        pieces = tf.where(tf.gather(is_unknown, token), names, tf.gather(pieces, token))
        starts = tf.gather(starts, token)
        is_last = place == tf.gather(sizes, token) - 1
        ends = tf.where(is_last, tf.gather(ends, token), starts)
        bounds = tf.concat([[0], tf.cumsum(sizes)], 0)
        return pieces, starts, ends, tf.gather(bounds, splits)


class LitePlaces:
    """Finds where tokens are in texts: they cover the normalised characters without a gap.

    Args:
        find: `CharacterFinder`.
        has_bytes: bool. Whether unknown characters have a token for each of their bytes.
    """

    def __init__(self, find, has_bytes):
        self._find, self._has_bytes = find, has_bytes

    def __call__(self, text, ids, lengths, unknown_id, split, space_size):
        """Return the tokens of (B,) texts, ragged (B, S) ids, starts and ends in characters.

        Args:
            text: the texts.
            ids: ragged (B, U), what the model makes of them.
            lengths: (U,) int32, the bytes of normalised text that each covers.
            unknown_id: int. Such an id covers a run of unknown characters, the next one.
            split: function from `ids` and their lengths to those of the tokens.
            space_size: function from (T,) tokens and lengths to the bytes of each that are not part
                of its place.
        """
        codes, splits, at, is_unknown, starts, ends, (_, old_splits) = self._find(text)
        bounds = tf.concat([[0], tf.cumsum(utf8_sizes(codes))], 0)
        begin_bytes = tf.gather(bounds, at)
        end_bytes = tf.concat([begin_bytes[1:], bounds[-1:]], 0)
        is_one = ids.values == unknown_id
        runs = tf.ones([1], tf.int32)
        if not self._has_bytes:
            runs = tf.concat([runs, tf.gather(end_bytes - begin_bytes, places_of(is_unknown))], 0)
        number = tf.minimum(tf.cumsum(tf.cast(is_one, tf.int32)), tf.size(runs) - 1)
        ids, lengths = split(ids, tf.where(is_one, tf.gather(runs, number), lengths))

        row = strings.row_ids(ids)
        total = tf.concat([[0], tf.cumsum(lengths)], 0)
        row_begins = tf.gather(total, tf.cast(ids.row_splits, tf.int32)[:-1])
        shift = tf.gather(tf.gather(bounds, splits[:-1]) - row_begins, row)
        limit = tf.gather(tf.gather(bounds, splits[1:]), row) - 1
        first = tf.minimum(total[:-1] + space_size(ids.values, lengths) + shift, limit)
        last = tf.minimum(total[1:] - 1 + shift, limit)
        begun = tf.cumsum(put(tf.ones_like(begin_bytes), begin_bytes, bounds[-1]))
        first, piece = (tf.gather(begun, tf.maximum(x, 0)) - 1 for x in (first, last))
        starts_of_last, ends = tf.gather(starts, piece), tf.gather(ends, piece)
        if self._has_bytes:  # the last byte of a character covers it
            is_inside = tf.gather(is_unknown, piece) & (last < tf.gather(end_bytes, piece) - 1)
            ends = tf.where(is_inside, starts_of_last, ends)
        begin = tf.gather(old_splits, row)
        return ids, *map(ids.with_values, (tf.gather(starts, first) - begin, ends - begin))


@functools.lru_cache(maxsize=4)  # reading a table takes seconds
def _rules_by_length(charsmap, kept):
    """Return what `_rules` does, and what `_classes` makes of keys of several characters."""
    rules = _rules(charsmap, kept)
    return rules, *_classes({k: t for k, t in rules.items() if len(k) > 1}, rules)


def _rules(charsmap, kept):
    """Return what a table of characters changes, a dict, and texts that it leaves, first of all."""
    table = Table(charsmap)
    table._read()
    first = {text[0] for text in kept}
    ordered = sorted(kept, key=len)
    rules = {
        key: text
        for key, text in table.rules.items()
        if key[0] not in first or not any(key.startswith(text) for text in ordered)
    }
    return rules | {text: text for text in kept}


def _classes(longer, rules):
    """Return longer keys with one for many that differ by equal letters, and each letter's class.

    The letters of Hangul come in three forms: without this, nine of ten keys are of such.
    """
    letters = {letter for key in longer for letter in key}
    classes = {c: rules[c] if len(rules.get(c, "")) == 1 else c for c in letters}
    while True:
        members = {}
        for letter, of in classes.items():
            members.setdefault(of, []).append(letter)
        texts_of, counts = {}, {}
        for key, text in longer.items():
            short = "".join(classes[c] for c in key)
            texts_of.setdefault(short, set()).add(text)
            counts[short] = counts.get(short, 0) + 1
        bad = {
            letter
            for short, texts in texts_of.items()
            if len(texts) > 1 or counts[short] != np.prod([len(members[c]) for c in short])
            for of in short
            if len(members[of]) > 1
            for letter in members[of]
        }
        if not bad:
            return {short: texts.pop() for short, texts in texts_of.items()}, classes
        classes |= {letter: letter for letter in bad}


# === Pieces ===


class Pieces:
    """Finds all pieces in a list of symbols.

    Args:
        ids: dict of tuples of symbols → id.
        num_symbols, unknown: int.
    """

    def __init__(self, ids, num_symbols, unknown):
        self._trie = Trie({(): -1} | ids, num_symbols, small=True)
        self.longest = max(map(len, ids), default=1)
        self._unknown = unknown

    def __call__(self, symbols, ends):
        """Return the ids of the pieces that end after each of (N,) symbols, (N · L,), else -1.

        The longest are first. `ends` are where the text of each symbol ends.
        """
        size = tf.size(symbols)

        def step(pieces, ids, length, places, stops, nodes):
            for _ in range(STEPS):
                nodes = self._trie.after(nodes, tf.gather(symbols, tf.minimum(places, size - 1)))
                id = read(self._trie.numbers, nodes)
                here = places_of(id >= 0)
                length += 1
                place = tf.gather(places, here) * self.longest + self.longest - length
                pieces = tf.concat([pieces, place], 0)
                ids = tf.concat([ids, tf.gather(id, here)], 0)
                places += 1
                nodes = tf.where(places < stops, nodes, self._trie.nowhere)
            stays = places_of(nodes < self._trie.nowhere)
            places, stops, nodes = (tf.gather(x, stays) for x in (places, stops, nodes))
            return pieces, ids, length, places, stops, nodes

        everywhere = tf.range(size)
        state = (
            *(tf.zeros([1], tf.int32), tf.zeros([1], tf.int32), tf.zeros([1], tf.int32)),
            *(everywhere, ends, tf.zeros_like(everywhere)),
        )
        pieces, ids, *_ = loop(lambda _, __, ___, places, *____: tf.size(places) > 0, step, state)
        return put(ids[1:] + 1, pieces[1:], size * self.longest) - 1


class Unigram:
    """The pieces whose scores have the largest sum; of equal ones, the longest last piece.

    Sums are of float32 from the beginning of a text, as in the reference.
    """

    def __init__(self, scores, own, unknown):
        lowest = min(scores[i] for i in own)
        scores = np.float32([*scores, NOTHING])
        scores[unknown] = np.float32(lowest) - np.float32(UNKNOWN_PENALTY)
        self._scores = tf.constant(scores)
        self._unknown = unknown

    def __call__(self, pieces, symbols, ends, row):
        """Return the lengths of pieces where they begin, 0 elsewhere, and ids there: (N,) each."""
        size = tf.size(symbols)
        longest = tf.size(pieces) // size
        pieces = tf.reshape(pieces, tf.stack([size, longest]))
        last = tf.where(pieces[:, -1:] < 0, self._unknown, pieces[:, -1:])
        pieces = tf.concat([pieces[:, :-1], last], 1)  # (N, L)
        nothing = self._scores.shape[0] - 1
        scores = tf.gather(self._scores, tf.where(pieces < 0, nothing, pieces))
        begins = chunks(pieces, longest)
        stops = tf.concat([begins[1:], [size]], 0)
        zeros = tf.zeros_like(begins, tf.float32)
        back, near = self._best(scores, begins, stops, zeros, longest)
        lengths, sums = self._followed(back, begins, stops, scores, row, longest)

        def again(_, lengths, sums):
            back, _ = self._best(scores, begins, stops, tf.gather(sums, begins), longest)
            new, sums = self._followed(back, begins, stops, scores, row, longest)
            return tf.reduce_any(new != lengths), new, sums

        # Where pieces are almost equal, how sums are rounded decides: that depends on the sum of
        # all before, which may change with it.
        is_near = near < 1e-5 * (1 - tf.reduce_min(sums))
        state = tf.reshape(is_near, []), lengths, sums
        lengths = tf.while_loop(lambda changed, *_: changed, again, state)[1]
        index = tf.range(size) * longest + lengths * longest - lengths
        index = tf.where(lengths > 0, index, 0)
        return lengths, tf.gather(tf.reshape(pieces, [-1]), index)

    def _best(self, scores, begins, stops, sums, longest):
        """Return the length of the best last piece up to each place, and the smallest lead."""
        size = tf.shape(scores)[0]
        length = longest - tf.range(longest)  # of each column

        def step(done, after, back, near, begins, stops, sums):
            done += 1
            at = begins + done - 1  # the last character
            before = tf.gather(after, tf.maximum(at[:, tf.newaxis] - length, 0))
            before = tf.where(length == done, sums[:, tf.newaxis], before)
            total = before + tf.gather(scores, at)  # (C, L)
            best = tf.reduce_max(total, 1)
            column = tf.argmax(total, 1, tf.int32)
            is_other = tf.range(longest) != column[:, tf.newaxis]
            other = tf.where(is_other, total, NOTHING)
            near = tf.minimum(near, tf.reduce_min(best - tf.reduce_max(other, 1)))
            after += put(best, at, size)
            back += put(longest - column, at, size)
            stays = places_of(begins + done < stops)
            return done, after, back, near, *(tf.gather(x, stays) for x in (begins, stops, sums))

        state = (
            *(tf.zeros([1], tf.int32), tf.zeros([size]), tf.zeros([size], tf.int32)),
            *(tf.fill([1], 1e30), begins, stops, sums),
        )
        _, _, back, near, *_ = loop(lambda d, a, b, n, begins, *_: tf.size(begins) > 0, step, state)
        return back, near

    def _followed(self, back, begins, stops, scores, row, longest):
        """Return the lengths of the best pieces where they begin, and the scores before them."""
        size = tf.size(back)

        def step(lengths, ends, begins):
            length = tf.gather(back, ends - 1)
            ends -= length
            lengths += put(length, ends, size)
            stays = places_of(ends > begins)
            return lengths, tf.gather(ends, stays), tf.gather(begins, stays)

        state = tf.zeros_like(back), stops, begins
        lengths = loop(lambda _, ends, __: tf.size(ends) > 0, step, state)[0]
        at = places_of(lengths > 0)
        length = tf.gather(lengths, at)
        index = (at + length) * longest - length
        score = tf.gather(tf.reshape(scores, [-1]), index)
        # Rows are texts, so that each has a sum of its own.
        of = tf.gather(row, at)
        counts = put(tf.ones_like(of), of, tf.reduce_max(row) + 1)
        first = tf.cumsum(counts, exclusive=True)
        place = tf.range(tf.size(at)) - tf.gather(first, of)
        width = tf.reduce_max(counts)
        index = of * width + place
        table = put(score, index, tf.size(counts) * width)
        table = tf.reshape(table, tf.stack([tf.size(counts), width]))
        table = tf.reshape(tf.cumsum(table, axis=1, exclusive=True), [-1])
        return lengths, put(tf.gather(table, index), at, size)


def chunks(pieces, longest):
    """Return where no piece of several characters crosses, the first place among them: (C,)."""
    size = tf.shape(pieces)[0]
    is_there = tf.cast(pieces[:, :-1] >= 0, tf.int32)  # (N, L - 1), the longest first
    at = tf.range(size)[:, tf.newaxis] - (longest - tf.range(longest - 1)) + 1
    begins = put(tf.reshape(is_there, [-1]), tf.reshape(tf.maximum(at, 0), [-1]), size)
    ends = tf.reduce_sum(is_there, 1)
    # Pieces that have begun before a place and not ended before it.
    crossing = tf.cumsum(begins - ends, exclusive=True)
    return places_of(crossing == 0)


class Merges:
    """SentencePiece's BPE: the pair with the best score is merged first, of equal ones the first.

    Args:
        ids: dict of tuples of symbols → id.
        scores: list of float, of all pieces.
        kept: set of those tuples that are never merged, nor parted.
        num_symbols, unknown: int.
    """

    def __init__(self, ids, scores, kept, num_symbols, unknown):
        parts = {(i,): i for i in range(num_symbols)}
        parts |= {key: num_symbols + i for i, key in enumerate(k for k in ids if len(k) > 1)}
        ranks = {score: i for i, score in enumerate(sorted(set(scores), reverse=True))}
        pairs, made, rank = [], [0], [0]  # a pair's number is 1 or more
        for key, id in ids.items():
            if key in kept:
                continue
            for end in range(1, len(key)):
                pair = parts.get(key[:end]), parts.get(key[end:])
                if None not in pair and kept.isdisjoint((key[:end], key[end:])):
                    pairs.append(pair)
                    made.append(parts[key])
                    rank.append(ranks[scores[id]])
        numbers = [ids.get(key, unknown) for key in parts]
        self._pairs = PairTable(pairs, 1, len(parts), len(parts))
        self._made, self._ranks, self._ids, self._sizes = (
            tf.constant(x, tf.int32) for x in (made, rank, numbers, [*map(len, parts)])
        )
        self._kept = None
        if kept:
            self._kept = Trie({(): -1} | {key: parts[key] for key in kept}, num_symbols)

    def __call__(self, pieces, symbols, ends, row):
        """Return the lengths of pieces where they begin, 0 elsewhere, and ids there: (N,) each."""
        size = tf.size(symbols)
        longest = tf.size(pieces) // size
        begins = chunks(tf.reshape(pieces, tf.stack([size, longest])), longest)
        places = tf.range(size)
        is_kept = tf.zeros_like(places, tf.bool)
        if self._kept is not None:
            nodes = self._kept(symbols, places, ends, whole=False)
            sizes = tf.maximum(tf.gather(self._kept.lengths, nodes), 1)
            stops = tf.concat([begins[1:], [size]], 0)
            taken = follow(sizes, begins, stops)
            is_kept = nodes > 0
            symbols = tf.where(is_kept, tf.gather(self._kept.numbers, nodes), symbols)
            places = places_of(taken)
        chunk = tf.cumsum(put(tf.ones_like(begins), begins, size)) - 1
        symbols, chunk, is_kept = (tf.gather(x, places) for x in (symbols, chunk, is_kept))
        symbols = self._merged(places, symbols, chunk, is_kept, size)
        known = tf.maximum(symbols, 0)
        lengths = tf.where(symbols >= 0, tf.gather(self._sizes, known), 0)
        return lengths, tf.gather(self._ids, known)

    def _merged(self, places, symbols, chunks, is_kept, size):
        """Return each symbol at the place of its first part, -1 elsewhere, (N,)."""
        number = chunks[-1] + 1

        def merge(done, places, symbols, chunks, kept):
            pair = self._pairs(symbols[:-1], symbols[1:])
            can = (pair < NONE) & (chunks[1:] == chunks[:-1]) & (kept[1:] + kept[:-1] == 0)
            pair = tf.where(can, pair, 0)
            rank = tf.concat([tf.where(can, tf.gather(self._ranks, pair), NONE), [NONE]], 0)
            best = tf.gather(tf.math.unsorted_segment_min(rank, chunks, number), chunks)
            is_busy = best < NONE
            index = tf.where(is_busy & (rank == best), tf.range(tf.size(rank)), NONE)
            first = tf.gather(tf.math.unsorted_segment_min(index, chunks, number), chunks)
            is_left = is_busy & (first == tf.range(tf.size(rank)))
            made = tf.gather(self._made, tf.concat([pair, [0]], 0))
            done += put(tf.where(is_busy, 0, symbols + 1), places, size)
            symbols = tf.where(is_left, made, symbols)
            stays = places_of(is_busy & ~value_before(is_left, 1, False))
            return done, *(tf.gather(x, stays) for x in (places, symbols, chunks, kept))

        state = tf.zeros([size], tf.int32), places, symbols, chunks, tf.cast(is_kept, tf.int32)
        done = loop(lambda done, places, *_: tf.size(places) > 0, merge, state)[0]
        return done - 1
