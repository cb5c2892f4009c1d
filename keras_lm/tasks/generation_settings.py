"""What a task states about the texts that it writes: where they start and end, and how."""

from collections.abc import Mapping
from typing import Any

from keras_lm.argument_types import PathLike
from keras_lm.generation import generation_config
from keras_lm.generation.decoding import Limits
from keras_lm.generation.options import Sampling
from keras_lm.generation.rules import Rules


class GenerationSettings:
    """The methods of a task that writes texts which concern its argument `generation`."""

    _generation = None

    @classmethod
    def arguments_from_files(cls, folder: PathLike, given: Mapping[str, Any]) -> dict[str, Any]:
        arguments = super().arguments_from_files(folder, given)
        if "generation" in given:
            return arguments
        settings = generation_config.read_settings(folder, cls.__name__, cls.has_decoder)
        return arguments | cls.arguments_of_settings(settings, given)

    @classmethod
    def arguments_of_settings(cls, settings: dict[str, Any], given: Mapping[str, Any]) -> Any:
        """Return the arguments of a task for the settings of a published folder."""
        return {"generation": settings}

    @property
    def generation(self) -> dict[str, Any] | None:
        """The settings, a dict as `generation_config.checked` returns it, or None."""
        return None if self._generation is None else dict(self._generation)

    @generation.setter
    def generation(self, settings):
        self._generation = None if not settings else generation_config.checked(dict(settings))
        if getattr(self, "packer", None) is not None:
            self._make_packer()

    def setting(self, name: str, default: Any = None) -> Any:
        """Return what the task states of this name."""
        return (self._generation or {}).get(name, default)

    def stated_options(self) -> dict[str, Any]:
        """Return the options of `generate` that the task states, with their values."""
        return generation_config.options_of(self._generation or {})

    def sampling(self, max_new_tokens: int | None = None, **options: Any) -> Sampling:
        """Return the options of a call, with those that the task states."""
        return Sampling.of(max_new_tokens, options, self.stated_options())

    def limits_of(self, end_ids: list[int], window: int | None, max_new_tokens: int) -> Limits:
        """Return the `Limits` of the task's texts, by its own numbers and the settings."""
        tokenizer = self.tokenizer and self.tokenizer.target
        tokens = tokenizer.all_special_tokens if tokenizer else ()
        return Limits(
            self.setting("eos_token_id", end_ids),
            window,
            max_new_tokens,
            Rules.of(self._generation or {}),
            self.stated_options(),
            {token: tokenizer.token_to_id(token) for token in tokens},
        )
