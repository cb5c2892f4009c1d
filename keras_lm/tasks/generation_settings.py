"""What a task states about the texts that it writes: where they start and end, and how."""

from collections.abc import Mapping
from typing import Any

from keras_lm.generation import generation_config
from keras_lm.generation.decoding import Limits
from keras_lm.generation.logits import Rules
from keras_lm.generation.options import Sampling
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.user_warning import warn


class GenerationSettings:
    """The methods of a task that writes texts which concern its argument `generation`."""

    _generation = None

    @classmethod
    def arguments_from_files(
        cls, folder: PathLike, given: Mapping[str, Any], limit: int | None
    ) -> dict[str, Any]:
        arguments = super().arguments_from_files(folder, given, limit)
        if "generation" in given:
            return arguments
        settings = generation_config.read_settings(folder, cls.__name__, cls.has_decoder)
        if given.get("tokenizer") is not None and generation_config.follows_config(folder):
            settings = _with_end_of(given["tokenizer"].target, settings)
        if not cls.has_decoder:
            settings[generation_config.ENDS_PROMPTS] = True
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
        settings = generation_config.checked(dict(settings or {}))
        self._generation = self._without_own(self._without_unknown_ends(settings)) or None
        if getattr(self, "packer", None) is not None:
            self._make_packer()

    def _without_unknown_ends(self, settings):
        """Return the settings without ends that the vocabulary does not have."""
        config, ends = self.backbone.config, settings.get("eos_token_id", ())
        rows = config.get("decoder_vocabulary_size") or config["vocabulary_size"]
        known = [end for end in ends if end < rows]
        if len(known) == len(ends):
            return settings
        others = {name: value for name, value in settings.items() if name != "eos_token_id"}
        warn(
            f"eos_token_id={list(ends)} is stated, and there are {rows} tokens: texts end with "
            + (f"{known}." if known else "the tokenizer's own token.")
        )
        return others | ({"eos_token_id": known} if known else {})

    def _without_own(self, settings):
        """Return the settings without tokens that the tokenizer has in the same place."""
        if self.tokenizer is None:
            return {n: v for n, v in settings.items() if n != generation_config.ENDS_PROMPTS}
        own = ["pad_token_id", "bos_token_id"]
        own += [] if self.template_ends_texts else [generation_config.ENDS_PROMPTS]
        own += ["eos_token_id"] if settings.get("eos_token_id") == self.own_end_ids() else []
        return {name: value for name, value in settings.items() if name not in own}

    @property
    def template_ends_texts(self) -> bool:
        """Whether the tokenizer's files put its eos token after each text."""
        stated = self.tokenizer.template
        ends = [f"{token}:0" for token in [self.tokenizer.special_tokens.get("eos")] if token]
        return stated is not None and stated[0].split()[-1:] == ends

    @property
    def ends_prompts(self) -> bool:
        """Whether prompts end with the eos token, as in transformers for such a folder."""
        return bool(self.setting(generation_config.ENDS_PROMPTS)) and self.template_ends_texts

    def own_end_ids(self) -> list[int]:
        """Return the tokens that end texts where no setting names others."""
        return self.end_ids("eos")

    def setting(self, name: str, default: Any = None) -> Any:
        """Return what the task states of this name."""
        return (self._generation or {}).get(name, default)

    def stated_options(self) -> dict[str, Any]:
        """Return the options of `generate` that the task states, with their values."""
        return generation_config.options_of(self._generation or {})

    def sampling(self, max_new_tokens: int | None = None, **options: Any) -> Sampling:
        """Return the options of a call, with those that the task states."""
        return Sampling.of(max_new_tokens, options, self.stated_options())

    # === For Hugging Face's library ===

    def own_token_ids(self) -> dict[str, int]:
        """Return the ids of the tokenizer's tokens at the ends of texts, by the library's names."""
        ids = {f"{role}_token_id": self.end_ids(role) for role in ("bos", "eos")}
        return {name: of_role[0] for name, of_role in ids.items() if of_role}

    def published_tokens(self) -> dict[str, Any]:
        """Return the entries of config.json on tokens: the task's own, or else those stated."""
        stated = {
            n: self.setting(n) for n in generation_config.TOKENS if self.setting(n) is not None
        }
        if (
            "eos_token_id" in stated
        ):  # the first, since not all networks' configurations take a list
            stated["eos_token_id"] = next(iter(stated["eos_token_id"]), None)
        return stated | ({} if self.tokenizer is None else self.own_token_ids())

    def published_generation(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of generation_config.json beside a config.json."""
        names = generation_config.TOKENS
        tokens = {name: config[name] for name in names if config.get(name) is not None}
        return generation_config.written(tokens | (self.generation or {}))

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


def _with_end_of(tokenizer, settings):
    """Return the settings in a config.json for another tokenizer, whose end counts more."""
    tokens, stated = tokenizer.special_tokens, settings.get("eos_token_id")
    token = tokens.get("eos", tokens.get("sep"))
    ends = [stated] if isinstance(stated, int) else stated or ()
    if not ends or token is None or tokenizer.token_to_id(token) in ends:
        return settings
    warn(
        f"config.json has eos_token_id={stated}, and the tokenizer that was passed ends texts "
        f"with {token!r}, id {tokenizer.token_to_id(token)}: that is what texts end with. Pass "
        f"generation={{'eos_token_id': {stated}}} for the other."
    )
    return {name: value for name, value in settings.items() if name != "eos_token_id"}


def with_targets(task, entries):
    """Return the entries of generation_config.json with the arguments of a `Seq2SeqLM`."""
    entries.pop("max_new_tokens", None)
    limits = task.limits
    most = entries.get("max_length", limits.max_new_tokens + 1)  # with what the decoder starts with
    entries["max_length"] = most if limits.window is None else min(most, limits.window)
    entries |= {"num_beams": task.num_beams, "length_penalty": task.length_penalty}
    if (length := task.get_arguments()["target_length"]) is not None:
        entries["target_length"] = length  # for us: transformers has no such entry
    start, words = entries.get("decoder_start_token_id"), entries.get("bad_words_ids", [])
    if not task.backbone.generates_start and [start] not in words:
        entries["bad_words_ids"] = [*words, [start]]
    return entries
