"""What is put before texts, always the same."""

import dataclasses
from typing import Any

from keras_lm.feeding.feed import Preprocessor
from keras_lm.tensorflow import IS_INSTALLED
from keras_lm.tokenizers import strings


def with_prompt(prompt: str | None, text: Any) -> Any:
    """Return texts (B,), string tensors or bytes where TensorFlow is missing, after a prompt."""
    if not IS_INSTALLED:
        return [(prompt or "") + row.decode("utf-8", "replace") for row in text]
    return text if not prompt else strings.after(prompt, text)


def checked_prompt(prompt: str | None) -> str | None:
    """Return a prompt; raise a ValueError if it is not a str."""
    if not isinstance(prompt, str | None):
        raise ValueError(f"prompt={prompt!r}: pass a str, or None for no prompt.")
    return prompt


@dataclasses.dataclass(frozen=True, eq=False)
class PromptedPreprocessor(Preprocessor):
    """A `Preprocessor` that puts `prompt`, if there is one, before the first text."""

    prompt: str | None = None

    def pack(self, columns, tokenize):
        if self.prompt:
            columns = columns | {"text": with_prompt(self.prompt, columns["text"])}
        return super().pack(columns, tokenize)


class Prompted:
    """A task's argument `prompt`, which is put before the first text of each example."""

    prompt = None
    preprocessor_class = PromptedPreprocessor

    def preprocessing(self) -> dict[str, Any]:
        return super().preprocessing() | {"prompt": self.prompt}

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {"prompt": self.prompt}

    def check_without_prompt(self) -> None:
        """Raise a ValueError if texts have a prompt, which no other library would put there."""
        if self.prompt:
            raise ValueError(
                f"{type(self).__name__} has prompt={self.prompt!r}, and transformers' classes have "
                "none: only prompt=None can be saved for it."
            )

    def _finish(self):
        super()._finish()
        if self.prompt and self.packer.takes_words:
            raise ValueError(
                f"prompt={self.prompt!r} with {type(self.tokenizer).__name__}: it reads lists of "
                "words, too, so leave it out."
            )
