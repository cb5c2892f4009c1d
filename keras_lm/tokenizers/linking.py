"""Entities of a text: mentions from a dictionary, found among its tokens, in the graph.

A mention is a run of whole words, so its tokens are those that it has alone. Tokens are looked up
by a trie of integers, which LiteRT has, too. Shapes: B batch, S sequence, T tokens of all texts,
W words of all texts, M mentions.
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from keras_lm.converters.entity_files import (
    IDS,
    NAMES,
    read_entity_names,
    read_entity_numbers,
)
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.lite_operations import (
    Trie,
    count_before,
    flags,
    places_of,
    put,
    value_after,
)
from keras_lm.tokenizers.strings import as_tensor
from keras_lm.tokenizers.vocabulary import strings_of
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.utils.argument_types import PathLike, Tensor


@dataclasses.dataclass(frozen=True)
class Links:
    """The arguments of `EntityTokenizer` (a `tf.Module` would track bare lists and dicts).

    Args:
        mentions: dict from the mentions that the vocabulary can spell to ids of entities.
        entities: list of str, the ids of the rows of the model's table.
        finder: `MentionFinder`, or None if there are no mentions.
    """

    mentions: dict[str, str]
    entities: list[str]
    finder: "MentionFinder | None"


class EntityTokenizer(WordPieceTokenizer):
    """`WordPieceTokenizer` that also finds mentions of entities, for a model that reads these.

    Where mentions overlap, the first one counts, and of those that begin at the same word the
    longest. A mention consists of whole words, split and cleaned as any text is: `"São Paulo"` is
    found in `"SAO PAULO's"` if the vocabulary is uncased. An entity is at the first token of its
    mention, also if the rest is truncated, and special tokens are in no mention.

    Args:
        vocabulary, lowercase: see `WordPieceTokenizer`.
        mentions: dict of str, what texts call an entity → str, the entity's id, such as
            `{"Ada Lovelace": "Q7259"}`. Those that the vocabulary cannot spell, or that it spells
            like one before them, are left out, with a warning.
        entities: list of str, the ids of the rows of the model's table of entities, in their order;
            by default all ids in `mentions`, sorted. A mention of another one is found, so that no
            part of it is taken for something else, and has no entity.
        **settings: further arguments of `WordPieceTokenizer`.

    Raises:
        ValueError: see `Tokenizer`, or if a mention or an id is not a string of one line.

    Example:

        mentions = {"Ada Lovelace": "Q7259", "London": "Q84"}
        tokenizer = EntityTokenizer.from_preset("ernie_base", mentions=mentions)
        tokenizer.find_mentions(["In London, Ada"])  # row 1, from character 3 to 9
        entities = keras_lm.converters.read_entities("kg_embed", tokenizer.entities)
        backbone = ErnieBackbone.from_preset("ernie_base").with_entities(entities.vectors)
        task = TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)

    Source: Zhang et al. 2019, https://arxiv.org/abs/1905.07129, sections 3.1 and 4.1; there, TAGME
    finds the mentions.
    """

    # Files of other tokenizers are not taken for this one's.
    PUBLISHED_FILES = ()

    def __init__(
        self,
        vocabulary: Sequence[str] | PathLike,
        lowercase: bool,
        mentions: Mapping[str, str] | None = None,
        entities: Sequence[str] | None = None,
        **settings: Any,
    ):
        super().__init__(vocabulary, lowercase, **settings)
        mentions = dict(mentions or {})
        named = [*strings_of("mentions", mentions.values())]
        entities = sorted(set(named)) if entities is None else strings_of("entities", entities)
        for what, texts in (("mentions", [*mentions, *named]), ("entities", entities)):
            _check_lines(what, texts)
        if len(set(entities)) < len(entities):
            raise ValueError("`entities` names one twice: each row of the table has its own id.")
        rows = {entity: row for row, entity in enumerate(entities)}
        kept = self._spelled(mentions)
        numbers = {pieces: rows.get(mentions[text], -1) for pieces, text in kept.items()}
        self._linked = Links(
            mentions={text: mentions[text] for text in kept.values()},
            entities=entities,
            finder=MentionFinder(numbers, self.begins_word) if numbers else None,
        )

    def _spelled(self, mentions):
        """Return the mentions by their tokens, a dict of tuples; warn of those left out."""
        with tf.init_scope():
            pieces = self(tf.constant([*mentions], tf.string)).to_list() if mentions else []
        unknown, kept, left_out = self.special_id("unknown"), {}, []
        for text, ids in zip(mentions, map(tuple, pieces), strict=True):
            if not ids or unknown in ids or ids in kept:
                left_out.append(text)
            else:
                kept[ids] = text
        if left_out:
            warnings.warn(
                f"`mentions`: {len(left_out)} of {len(mentions)} are left out, such as "
                f"{left_out[0]!r}: the vocabulary cannot spell them, or spells them like others.",
                stacklevel=3,
            )
        return kept

    @property
    def mentions(self) -> dict[str, Any]:
        """What texts call entities, a dict of str → the entity's id."""
        return dict(self._linked.mentions)

    @property
    def entities(self) -> list[str]:
        """The ids of the rows of the model's table, a list of str."""
        return list(self._linked.entities)

    def link(self, ids: Tensor) -> tf.RaggedTensor:
        """Return the rows of the entities in ragged (B, S) ids, as a ragged int32 tensor like them.

        A row is at the first token of a mention; all others are -1.
        """
        return self._find(ids)[0]

    def find_mentions(self, text: Tensor, unit: str = "character") -> tuple[Any, ...]:
        """Find the mentions in a list of strings: `(entities, starts, ends)`, ragged (B, M).

        Entities are rows of the table, int32, -1 for one that is not there; a mention is
        `text[start:end]`, int64, in the unit of `tokenize_with_offsets`.
        """
        ids, starts, ends = self.tokenize_with_offsets(as_tensor(text, tf.string), unit)
        entities, lengths = self._find(ids)
        is_mention = lengths.values > 0
        last = tf.range(tf.size(lengths.values)) + tf.maximum(lengths.values, 1) - 1
        ends = ends.with_values(tf.gather(ends.values, last))
        return tuple(strings.keep(x, is_mention) for x in (entities, starts, ends))

    @property
    def signatures(self) -> dict[str, Callable[..., Any]]:
        return {"mentions": self.answer_mentions}

    def answer_mentions(self, text: Tensor) -> dict[str, tf.Tensor]:
        """Return the mentions in (B,) strings in the form that is served, padded: (B, M) each.

        `text` is what the text says, `entities` the entity's id, "" if the table does not have it,
        and `start` and `end` its place, in characters. Padding is "" and 0.
        """
        rows, starts, ends = self.find_mentions(text)
        starts, ends = (tf.cast(x.to_tensor(), tf.int32) for x in (starts, ends))
        with tf.init_scope():  # a constant, also if this is traced
            ids = tf.constant([*self._linked.entities, ""])
        none = len(self._linked.entities)
        rows = rows.to_tensor(none)
        return {
            "text": strings.substrings(strings.valid_utf8(text), starts, ends),
            "entities": tf.gather(ids, tf.where(rows < 0, none, rows)),
            "start": starts,
            "end": ends,
        }

    def _find(self, ids):
        if self._linked.finder is None:
            return tf.zeros_like(ids) - 1, tf.zeros_like(ids)
        return self._linked.finder(ids)

    @property
    def mentioned_rows(self) -> list[int]:
        """The rows of the table that mentions name, ascending."""
        named = set(self._linked.mentions.values())
        return [row for row, entity in enumerate(self._linked.entities) if entity in named]

    def with_rows(self, rows: Sequence[int]) -> Self:
        """Return the same tokenizer for a table of some rows of this one's."""
        entities = [self._linked.entities[row] for row in rows]
        return self._made(self._vocabulary.tokens, entities, self.get_config())

    def _grown(self, entries, config):
        return self._made([*self._vocabulary.tokens, *entries], self._linked.entities, config)

    def _made(self, vocabulary, entities, config):
        return type(self)(vocabulary, mentions=self._linked.mentions, entities=entities, **config)

    def save_assets(self, folder: PathLike) -> None:
        super().save_assets(folder)
        linked = self._linked
        ids = [f"{entity}\t{row}" for row, entity in enumerate(linked.entities)]
        names = [f"{text}\t{entity}" for text, entity in linked.mentions.items()]
        for file, lines in ((IDS, [str(len(ids)), *ids]), (NAMES, names)):
            # As bytes: text mode would write the platform's line ends.
            with open(f"{folder}/{file}", "wb") as out:
                out.writelines(f"{line}\n".encode() for line in lines)

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        numbers = read_entity_numbers(f"{folder}/{IDS}")
        entities = sorted(numbers, key=numbers.get)
        mentions = read_entity_names(f"{folder}/{NAMES}")
        return super().from_assets(folder, config | {"mentions": mentions, "entities": entities})


def _check_lines(argument, texts):
    for text in strings_of(argument, texts):
        if not text.strip() or any(end in text for end in "\t\r\n"):
            raise ValueError(
                f"`{argument}` names {text[:40]!r}: pass text in one line, without tabs."
            )


class MentionFinder:
    """Finds the longest mention at each word, from left to right, and none within another.

    Args:
        mentions: dict of the tokens of a mention, a tuple of int → its row, or -1.
        begins_word: (V,) bool, whether a token begins a word; all others continue one.

    Call: `finder(ids)` with ragged (B, S) ids returns two ragged tensors like them, int32: the row
    at the first token of each mention and -1 elsewhere, and the number of its tokens and 0.
    """

    def __init__(self, mentions, begins_word):
        # A symbol is a token, and whether it is the last one of its word.
        texts = {}
        for pieces, row in mentions.items():
            ends = [*(bool(begins_word[piece]) for piece in pieces[1:]), True]
            texts[tuple(2 * piece + end for piece, end in zip(pieces, ends, strict=True))] = row + 1
        self._end = 2 * len(begins_word)  # the symbol after all texts, which no mention has
        with tf.init_scope():  # constants, also if this is traced
            self._begins_word = tf.constant(np.append(begins_word, True))
            self._trie = Trie(texts, num_symbols=self._end + 2)

    def __call__(self, ids):
        # No list is empty, by a last token in no text, which begins a word and is one.
        tokens = tf.concat([tf.cast(ids.values, tf.int32), [self._end // 2]], 0)  # (T + 1,)
        size = tf.size(tokens)
        begins_text = flags(tf.cast(ids.row_splits, tf.int32), size)
        begins_word = tf.gather(self._begins_word, tokens)
        is_last = value_after(begins_word | begins_text, 1, True)
        starts = places_of(begins_word)  # (W,)
        bounds = places_of(begins_text, [size])
        ends = tf.gather(bounds, tf.gather(tf.cumsum(tf.cast(begins_text, tf.int32)), starts))
        symbols = 2 * tokens + tf.cast(is_last, tf.int32)
        nodes = self._trie(symbols, starts, ends, whole=False)  # (W,), 0 for none

        # The last node is no mention: it begins at the last token.
        at = places_of(nodes[:-1] > 0, [tf.size(nodes) - 1])  # (M,)
        nodes, starts = tf.gather(nodes, at), tf.gather(starts, at)
        lengths = tf.gather(self._trie.lengths, nodes)
        is_taken = _without_overlaps(starts, lengths, size)
        rows = tf.where(is_taken, tf.gather(self._trie.numbers, nodes), 0)
        rows = put(rows, starts, size)[:-1] - 1
        lengths = put(tf.where(is_taken, lengths, 0), starts, size)[:-1]
        return ids.with_values(rows), ids.with_values(lengths)


def _without_overlaps(starts, lengths, size):
    """Return which of (M,) mentions are left if each may begin only after the one before ended."""
    after = tf.gather(count_before(flags(starts, size)), tf.minimum(starts + lengths, size - 1))
    last = tf.size(starts) - 1
    after = tf.minimum(tf.maximum(after, tf.range(last + 1)), last)

    def step(is_taken, after):  # twice as far in each step
        reached = flags(tf.where(is_taken, after, 0), last + 1)
        return is_taken | reached, tf.gather(after, after)

    state = tf.range(last + 1) == 0, after
    shapes = (tf.TensorShape([None]),) * 2
    is_taken, _ = tf.while_loop(lambda _, after: after[0] < last, step, state, shapes)
    return is_taken & (lengths > 0)
