"""What the tasks over words share: how texts become words and their pieces."""

from collections.abc import Callable
from typing import Any

from keras_lm.layers.tensorflow import few_tokens, longest
from keras_lm.utils.argument_types import Tensor


class WordReader:
    """A task with `rows` that are `keras_lm.packers.Words`."""

    @classmethod
    def completed(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return stored arguments; if they lack `whole_texts`, they are older than it."""
        return {"whole_texts": False} | arguments

    def pack(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        """See `Task.pack`."""
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
