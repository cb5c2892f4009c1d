"""What a task states about the texts that it writes: where they start and end, and how.

It comes from Hugging Face's `generation_config.json`, and is written there. Where the file is
missing, transformers reads the same entries of config.json, as it wrote them before version 4.26,
and so do we.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from keras_lm.converters.checked_files import CheckpointError, Entries, read_config, warn
from keras_lm.generation.decoding import Limits
from keras_lm.generation.logits import RULES, Rules
from keras_lm.generation.options import OF_SEARCH, OPTIONS, Sampling, check_options
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.registry import advice

FILE = "generation_config.json"
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
OF_OPTIONS = (*(name for name in OPTIONS if name != "seed"), *OF_SEARCH)
SETTINGS = (*TOKENS, *OF_OPTIONS, *RULES)
# Of folders of transformers, which tokenizes prompts as all texts; no entry of its own there.
ENDS_PROMPTS = "ends_prompts"

GENERATION = Entries(
    read={*SETTINGS, "do_sample", "target_length"},
    harmless={
        # How it is computed, and what is returned beside the text.
        *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "low_memory"),
        *("return_legacy_cache", "prefill_chunk_size", "compile_config", "disable_compile"),
        *("continuous_batching_config", "output_attentions", "output_hidden_states"),
        *("output_scores", "output_logits", "return_dict_in_generate", "remove_invalid_values"),
        # Proposals of an assistant, which the model itself accepts or not.
        *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "use_mtp"),
        *("assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind"),
        *("assistant_ensemble_weight", "target_lookbehind", "speculation_type"),
        *("prompt_lookup_num_tokens", "max_matching_ngram_size"),
        "transformers_version",
    },
    refused={
        "num_return_sequences": (1,),
        "num_beam_groups": (1,),
        "diversity_penalty": (0.0,),
        "penalty_alpha": (0.0,),
        "guidance_scale": (1.0,),
        "token_healing": (False,),
        **dict.fromkeys(("max_time", "stop_strings", "top_h", "dola_layers"), ()),
        **dict.fromkeys(("constraints", "force_words_ids", "watermarking_config"), ()),
    },
)
# What a value means that transformers takes if nothing is stated.
USUAL = {name: option.default for name, option in OPTIONS.items() if name != "max_new_tokens"}
USUAL |= {"num_beams": 1, "length_penalty": 1.0}
USUAL_TOP_K = 50  # where it samples
UNSTATED_LENGTH = 20  # what older versions wrote of `max_length` if nothing was said
REMEDY = "Pass generation={} to load it without these settings."


def read_settings(folder: pathlib.Path, reader: str, has_source: bool) -> dict[str, Any]:
    """Return what a folder states of generation, by our names; see `checked`.

    Args:
        folder: path.
        reader: str, the class of the task, for messages.
        has_source: bool. Whether the texts are those of a decoder beside an encoder.

    Raises:
        CheckpointError: if it states something that is not followed.
    """
    stated, config = read_config(folder, FILE), read_config(folder, "config.json")
    path = folder / FILE
    if not path.is_file():
        path = folder / "config.json"
        stated = {name: v for name, v in config.items() if GENERATION.word(name) is not None}
        if stated.get("max_length") == UNSTATED_LENGTH:
            del stated["max_length"]
    stated = {name: value for name, value in stated.items() if value is not None}
    try:
        GENERATION.check(stated, path, reader)
        settings = _settings(stated, config, has_source, path)
        return checked(settings)
    except (TypeError, ValueError) as error:
        message = f"{error} {REMEDY}"
        if not isinstance(error, CheckpointError):
            message = f"{path} has settings that {reader} does not know: {message}"
        raise CheckpointError(message) from error


def follows_config(folder: pathlib.Path) -> bool:
    """Whether what a folder states about generation is a copy of its config.json, or only there."""
    stated = read_config(folder, FILE)
    return not stated or stated.get("_from_model_config", False)


def _settings(stated, config, has_source, path):
    settings = {name: value for name, value in stated.items() if name in SETTINGS}
    settings |= {n: config[n] for n in TOKENS if n not in stated and config.get(n) is not None}
    starts = [options.get("decoder_start_token_id") for options in (stated, config)]
    if has_source and None not in starts and starts[0] != starts[1]:
        warn(
            f"{path} has decoder_start_token_id={starts[0]}, and config.json {starts[1]}: the "
            "first is what the decoder starts with, in training, too."
        )
    if has_source and "bos_token_id" in settings:
        settings.setdefault("decoder_start_token_id", settings["bos_token_id"])
    if stated.get("do_sample"):
        if settings.get("num_beams", 1) > 1:
            raise ValueError(
                f"do_sample=True with num_beams={settings['num_beams']}: beam search does not "
                "sample."
            )
        settings = {"temperature": 1.0, "top_k": USUAL_TOP_K} | settings
    else:
        settings.pop("temperature", None)
    if has_source and "max_length" in settings and "max_new_tokens" not in settings:
        # It counts the token that the decoder starts with, too.
        settings["max_new_tokens"] = settings.pop("max_length") - 1
    if has_source and "target_length" in stated:
        settings["target_length"] = stated["target_length"]
    return settings


def checked(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a task's generation, without what is as usual.

    Args:
        settings: dict. `eos_token_id`, one or several, is what ends a text, and
            `decoder_start_token_id` what a decoder starts with, in place of the tokenizer's own.
            Other names are options of `keras_lm.generation.Sampling`, whose defaults they are, and
            those of `keras_lm.generation.Rules`.

    Raises:
        ValueError: if a name is unknown, or a value out of range.
    """
    settings = {name: value for name, value in settings.items() if value is not None}
    if "max_new_tokens" in settings:
        settings.pop("max_length", None)
    for name in settings:
        if name not in (*SETTINGS, "target_length", ENDS_PROMPTS):
            raise ValueError(
                f"generation has {name}, which is not a setting.{advice(name, SETTINGS)} There are "
                f"{', '.join(SETTINGS)}."
            )
    ends = settings.get("eos_token_id")
    if ends is not None:
        ends = [ends] if isinstance(ends, int) else [*ends]
        settings["eos_token_id"] = [id for id in ends if id >= 0]
    check_options(**{name: settings[name] for name in OPTIONS if name in settings})
    Sampling.of(None, {}, options_of(settings))  # checks the others
    rules = Rules.of(settings).stated()
    others = {name: value for name, value in settings.items() if name not in RULES}
    return {n: v for n, v in others.items() if n not in USUAL or v != USUAL[n]} | rules


def options_of(settings):
    """Return the defaults of options among settings, but for the number of tokens."""
    names = [name for name in OF_OPTIONS if name != "max_new_tokens"]
    return {name: settings[name] for name in names if name in settings}


def written(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of `generation_config.json` that say what settings do."""
    stated = {name: value for name, value in settings.items() if name != ENDS_PROMPTS}
    # Both are said, since pipelines of transformers sample where nothing is.
    samples = {"do_sample": True, "top_k": 0} if stated.get("temperature") else {"do_sample": False}
    stated = samples | stated
    for name in ("eos_token_id", "forced_eos_token_id"):
        if isinstance(stated.get(name), list) and len(stated[name]) == 1:
            (stated[name],) = stated[name]
    return stated


# === What a task does with them ===


class GenerationSettings:
    """The methods of a task that writes texts which concern its argument `generation`."""

    _generation = None

    def require_packed_answers(self) -> None:
        raise ValueError(
            f"{type(self).__name__} writes text, in a loop that an .onnx of ids does not have: "
            "export as a SavedModel, or a CausalLM as a .tflite."
        )

    @classmethod
    def arguments_from_files(
        cls, folder: PathLike, given: Mapping[str, Any], limit: int | None
    ) -> dict[str, Any]:
        arguments = super().arguments_from_files(folder, given, limit)
        if "generation" in given:
            return arguments
        settings = read_settings(folder, cls.__name__, cls.has_decoder)
        if given.get("tokenizer") is not None and follows_config(folder):
            settings = _with_end_of(given["tokenizer"].target, settings)
        if not cls.has_decoder:
            settings[ENDS_PROMPTS] = True
        return arguments | cls.arguments_of_settings(settings, given)

    @classmethod
    def arguments_of_settings(cls, settings: dict[str, Any], given: Mapping[str, Any]) -> Any:
        """Return the arguments of a task for the settings of a published folder."""
        return {"generation": settings}

    @property
    def generation(self) -> dict[str, Any] | None:
        """The settings, a dict as `checked` returns it, or None."""
        return None if self._generation is None else dict(self._generation)

    @generation.setter
    def generation(self, settings: Mapping[str, Any] | None) -> None:
        if not isinstance(settings, Mapping | None):
            raise ValueError(
                f"generation={settings!r}: pass a dict of settings, as in generation_config.json."
            )
        settings = checked(dict(settings or {}))
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
            return {n: v for n, v in settings.items() if n != ENDS_PROMPTS}
        own = ["pad_token_id", "bos_token_id"]
        own += [] if self.template_ends_texts else [ENDS_PROMPTS]
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
        return bool(self.setting(ENDS_PROMPTS)) and self.template_ends_texts

    def own_end_ids(self) -> list[int]:
        """Return the tokens that end texts where no setting names others."""
        return self.end_ids("eos")

    def setting(self, name: str, default: Any = None) -> Any:
        """Return what the task states of this name."""
        return (self._generation or {}).get(name, default)

    def stated_options(self) -> dict[str, Any]:
        """Return the options of `generate` that the task states, with their values."""
        return options_of(self._generation or {})

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
        stated = {n: self.setting(n) for n in TOKENS if self.setting(n) is not None}
        if (
            "eos_token_id" in stated
        ):  # the first, since not all networks' configurations take a list
            stated["eos_token_id"] = next(iter(stated["eos_token_id"]), None)
        return stated | ({} if self.tokenizer is None else self.own_token_ids())

    def published_generation(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of json beside a config.json."""
        names = TOKENS
        tokens = {name: config[name] for name in names if config.get(name) is not None}
        return written(tokens | (self.generation or {}))

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
    """Return the entries of json with the arguments of a `Seq2SeqLM`."""
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
