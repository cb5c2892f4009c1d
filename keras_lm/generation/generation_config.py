"""`generation_config.json`: how Hugging Face's `generate` writes with a model; read and written.

Where the file is missing, transformers reads the same entries of config.json, as it wrote them
before version 4.26, and so do we.
"""

import pathlib
from typing import Any

from keras_lm.converters.checked_files import CheckpointError, read_config
from keras_lm.converters.entries import Entries, warn
from keras_lm.generation.logits import RULES, Rules
from keras_lm.generation.options import OF_SEARCH, OPTIONS, Sampling, check_options
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
    starts = [each.get("decoder_start_token_id") for each in (stated, config)]
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
