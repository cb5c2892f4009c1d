"""What the tasks over words share: how texts become words and their pieces."""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras_lm.feeding.feed import Preprocessor
from keras_lm.layers.tensorflow import few_tokens, longest
from keras_lm.utils.argument_types import Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class WordPreprocessor(Preprocessor):
    """A `Preprocessor` whose rows are `keras_lm.packers.Words`."""

    def pack(self, columns, tokenize):
        special = self.tokens_in_text(self.tokenizer)
        return self.rows.pack(self.packer, columns, tokenize, special)

    def read_words(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> Any:
        """Return the words of texts, their places and their pieces; see `Words.read`."""
        self.require_tokenizer()
        special = self.tokens_in_text(self.tokenizer)
        words, places, pieces = self.rows.read(
            self.packer, columns["text"], tokenize or self.tokenize, special
        )
        ids = pieces.ids
        ids = few_tokens(ids, ids.nrows(), longest(ids))
        return words, places, pieces._replace(ids=ids)


class WordReader:
    """A task over words."""

    preprocessor_class = WordPreprocessor

    @classmethod
    def completed(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return stored arguments; if they lack `whole_texts`, they are older than it."""
        return {"whole_texts": False} | arguments
