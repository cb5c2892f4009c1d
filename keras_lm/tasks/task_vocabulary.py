"""A task's vocabulary: whether it fits, its special tokens, and words that become tokens."""

import os
from collections.abc import Sequence
from typing import Self

import keras
import numpy as np

from keras_lm.tokenizers.vocabulary import strings_of


class TaskVocabulary:
    """The methods of a task that concern its special tokens and new words."""

    @property
    def template(self):
        """The `Template` around texts: that of the head, if the tokenizer has its tokens."""
        template = None if self.missing_tokens() else self._fine_tuning_template()
        return template or self.backbone.template_for(self.tokenizer)

    def missing_tokens(self):
        """Return the tokens that fine-tuning adds and the tokenizer lacks, a list of str."""
        template = self._fine_tuning_template()
        if template is None or self.tokenizer is None:
            return []
        known = set(self.tokenizer.vocabulary)
        return [token for token in template.special_tokens if token not in known]

    def _fine_tuning_template(self):
        templates = (self.backbone.HEADS[kind].template for kind in self.head_kinds)
        return next(filter(None, templates), None)

    def with_fine_tuning_tokens(self) -> Self:
        """Return a task over the same weights, with the missing fine-tuning tokens and a new head.

        A task that lacks none is returned unchanged.
        """
        missing = self.missing_tokens()
        if not missing:
            return self
        tokenizer = self.tokenizer.with_special_tokens(missing)
        rows = max(self.backbone.vocabulary_size, tokenizer.vocabulary_size)
        return self.with_backbone(self.backbone.with_vocabulary_size(rows), tokenizer)

    def with_words(self, words: Sequence[str]) -> Self:
        """Return a copy of the task in which each of some words is a single token.

        A new row of an embedding, and what a head has for each token, is the mean of those of the
        pieces that the word was made of until now. Train on: the copy is compiled with defaults.

        Args:
            words: see `keras_lm.tokenizers.Tokenizer.with_words`.

        Raises:
            ValueError: if a word cannot be one token, or the vocabulary cannot grow.

        Example:

            task = keras_lm.tasks.MaskedLM.from_preset(SOURCE).with_words(["remdesivir"])
            task.fit(texts)
            task.save_to_preset("my-bert")

        Source: Gee et al., "Fast Vocabulary Transfer for Language Model Compression", EMNLP 2022,
        https://arxiv.org/abs/2402.09977.
        """
        self.require_tokenizer()
        tokenizer = self.tokenizer.with_words(words)
        first, number = self.tokenizer.vocabulary_size, tokenizer.vocabulary_size
        rows = self.backbone.vocabulary_size + number - first  # padding stays the last
        copy = self.with_backbone(self.backbone.with_vocabulary_size(rows), tokenizer)
        pieces = []
        if number > first:
            texts = tokenizer.detokenize([[i] for i in range(first, number)])
            pieces = self.tokenizer(texts).to_list()
        for variable, own in zip(copy.weights, self.weights, strict=True):
            value = keras.ops.convert_to_numpy(own)
            grown = [i for i, (a, b) in enumerate(zip(variable.shape, own.shape)) if a != b]
            for axis in grown:
                means = np.stack([value.take(ids, axis).mean(axis) for ids in pieces], axis)
                value = np.insert(value, [first] * len(pieces), means, axis)
            variable.assign(value)
        return copy


def check(backbone, tokenizer):
    """Raise a ValueError if a tokenizer, or None, belongs to another backbone."""
    if isinstance(tokenizer, (str, os.PathLike)):
        raise ValueError(
            f"tokenizer={str(tokenizer)!r} is a path: pass tokenizers.Tokenizer.from_preset(…)."
        )
    if tokenizer is None:
        return
    rows = backbone.vocabulary_size
    if tokenizer.vocabulary_size > rows:
        more = ", ".join(map(repr, tokenizer.vocabulary[rows : rows + 5]))
        raise ValueError(
            f"tokenizer has {tokenizer.vocabulary_size} entries, but the backbone's embedding "
            f"has {rows} rows, and none for {more}: if they belong together, take these tokens out "
            "of the vocabulary's files; otherwise take the tokenizer of the backbone's checkpoint."
        )
    backbone.check_tokenizer(tokenizer)


def checked(parse_special, task):
    """Return the argument of a task as a bool, None or a list of str.

    Raises:
        ValueError: if it is nothing of these, or asks for what the task cannot do.
    """
    if parse_special and not task.parses_special:
        raise ValueError(
            f"parse_special={parse_special}: {type(task).__name__} finds places in texts, in which "
            "special tokens have none: leave it out."
        )
    if isinstance(parse_special, (bool, type(None))):
        return parse_special
    return strings_of("parse_special", parse_special)


def check_known(parse_special, tokenizer):
    """Raise a ValueError if a list names a token that is not a special token of the tokenizer."""
    for token in parse_special if isinstance(parse_special, list) else ():
        if token not in tokenizer.all_special_tokens:
            raise ValueError(
                f"parse_special names {token!r}, which is not a special token of the "
                f"{type(tokenizer).__name__}: see tokenizer.with_special_tokens."
            )
