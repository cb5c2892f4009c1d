"""Which concepts of a graph a text mentions."""

import functools
from collections.abc import Sequence
from typing import Any

from keras_lm.knowledge.concept_store import ConceptStore
from keras_lm.knowledge.lemmas import lemmas_of
from keras_lm.knowledge.stop_words import STOP_WORDS
from keras_lm.utils.argument_types import PathLike

LONGEST = 4  # words of a concept
MOST = 3  # concepts with the same lemmas


class Concepts:
    """The concepts of questions and of their answers, found by the lemmas of one to four words.

    Of several concepts with the same lemmas, the one that is spelt as these is taken, else the
    three with the shortest names. Single stop words do not count.

    Args:
        store: `ConceptStore`, or its path.

    Raises:
        ImportError: if `simplemma` is missing; the message has the command that installs it.
        ValueError: if another version of it made the store.

    Example:

        edges = [("ice", 11, "slippery", 1.0), ("slippery", 4, "fall", 2.0)]
        store = keras_lm.knowledge.ConceptStore.build(edges, "winter")
        concepts = keras_lm.knowledge.Concepts(store).of("She fell on the ice.")
        [store.name(concept) for concept in concepts]  # ["fall", "ice"]

    Source: Lin et al. 2019, https://arxiv.org/abs/1909.02151, section 3.1; INK-USC/KagNet,
    `grounding`, which takes the lemmas of spaCy's tagger. simplemma's ignore parts of speech.
    """

    def __init__(self, store: ConceptStore | PathLike):
        self.store: ConceptStore = store if isinstance(store, ConceptStore) else ConceptStore(store)
        self.store.check_lemmatizer()
        self._of_key = functools.lru_cache(maxsize=2**16)(self._find)

    def of(self, text: str, besides: str = "") -> list[int]:
        """Return the numbers of the concepts of a text, in their order, each once.

        Args:
            text: str.
            besides: str. Spans that share a word with it are left out, such as the answer's in its
                question.
        """
        words, other = lemmas_of(text), set(lemmas_of(besides))
        concepts = []
        for start in range(len(words)):
            for end in range(start + 1, min(start + LONGEST, len(words)) + 1):
                if other.isdisjoint(words[start:end]):
                    concepts += self._of_key("_".join(words[start:end]))
        concepts = list(dict.fromkeys(concepts))
        names = {self.store.name(concept) for concept in concepts}
        return [concept for concept in concepts if not self._is_derived(concept, names)]

    def _find(self, key):
        return self.chosen(key, self.store.find_key(key))

    def chosen(self, key: str, concepts: Sequence[int]) -> tuple[int, ...]:
        """Of the concepts with some lemmas, return those that a text with these mentions."""
        if key in STOP_WORDS:
            return ()
        concepts = concepts[:MOST]
        plain = [concept for concept in concepts if self.store.name(concept) == key]
        return tuple(plain or concepts)

    def _is_derived(self, concept, names):
        """Whether it is a concept of the text with `er` or `e` at its end: its lemma was wrong."""
        name = self.store.name(concept)
        return (name.endswith("er") and name[:-2] in names) or (
            name.endswith("e") and name[:-1] in names
        )

    def of_choice(self, question: str, answer: str) -> tuple[Any, Any]:
        """Return the concepts of a question, without those of the answer's words, and of it."""
        answers = self.of(answer)
        return [one for one in self.of(question, answer) if one not in answers], answers
