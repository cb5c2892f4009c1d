"""`Sampling`: the arguments of `generate`, checked before anything runs."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from keras_lm.generation.decoding import no_room
from keras_lm.generation.options import OPTIONS, check_options
from keras_lm.registry import advice
from keras_lm.tokenizers.host import as_lists

# The names that other libraries have for options, and what to pass here.
INSTEAD = {
    **dict.fromkeys(
        ("max_length", "max_tokens"), "Pass max_new_tokens, which counts the new ones."
    ),
    "do_sample": "Pass temperature=1.0 to sample; without it, the likeliest token is taken.",
}


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The keyword arguments of `CausalLM.generate` and `Seq2SeqLM.generate`.

    Args:
        max_new_tokens: int. The default of a `CausalLM` is 50, or half of the window if that is
            less; the default of a `Seq2SeqLM` is its `target_length`.
        temperature: float, divides logits before sampling. 0 or None takes the likeliest token.
        top_k: int. Sample from the `top_k` likeliest tokens.
        top_p: float. Sample from the likeliest tokens with this cumulative probability.
        num_beams: int. More than 1 is beam search.
        length_penalty: float. Beam search divides a text's log-likelihood by its number of tokens
            to this power.
        repetition_penalty: float. Above 1 makes tokens of prompt and text less likely.
        no_repeat_ngram_size: int n. No n-gram occurs twice.
        stop: str, token id, or a list of these. A text ends before any of them, and always before
            the tokenizer's eos token.
        num_return_sequences: int N. How many texts for each prompt.
        seed: int, or a list with one per prompt. Equal prompts with equal seeds have equal texts.

    Raises:
        ValueError: if an argument is out of range, or has no effect, given the others.
    """

    max_new_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    num_beams: int = 1
    length_penalty: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    stop: object = None
    num_return_sequences: int = 1
    seed: object = None

    def __post_init__(self):
        check_search(
            self.temperature,
            self.top_k,
            self.top_p,
            self.num_beams,
            self.length_penalty,
            self.num_return_sequences,
        )

    @classmethod
    def of(cls, max_new_tokens: int | None, options: Mapping[str, Any]) -> Self:
        """Return the arguments of a user's call; a TypeError names what is none of them."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                remedy = INSTEAD.get(name) or advice(name, known).strip()
                raise TypeError(
                    f"{name} is not an option of generation.{remedy and ' '}{remedy} There are "
                    f"{', '.join(known)}."
                )
        return cls(max_new_tokens, **options)

    def per_row(self, limits: Any, rows: Any) -> dict[str, Any]:
        """Return the `OPTIONS` of each row, arrays (rows,); `limits` are `decoding.Limits`."""
        return per_row(all_options(limits, **{n: getattr(self, n) for n in OPTIONS}), rows)

    def stops(self, vocabulary_size: int) -> dict[str, Any]:
        """Return the strings and the token ids to stop at, arrays by name."""
        strings, ids = split_stop(self.stop, vocabulary_size)
        return {"stop_strings": np.array(strings, object), "stop_ids": np.array(ids, "int32")}

    def search(self) -> dict[str, Any]:
        """Return the numbers of texts and of beams, for all rows, by name."""
        numbers = {"num_return_sequences": np.int32(self.num_return_sequences)}
        if self.num_beams > 1:
            numbers["num_beams"] = np.int32(self.num_beams)
            numbers["length_penalty"] = np.float32(self.length_penalty)
        return numbers


def check_search(temperature, top_k, top_p, num_beams, length_penalty, num_return_sequences):
    """Check the range of the arguments, and that each has an effect, given the others."""
    for name, value in {
        "num_beams": num_beams,
        "num_return_sequences": num_return_sequences,
    }.items():
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name}={value!r} is out of range: it must be an int, 1 or more.")
    if not isinstance(length_penalty, (int, float)) or not np.isfinite(length_penalty):
        raise ValueError(f"length_penalty={length_penalty!r} is not a number.")
    if num_beams > 1 and temperature:
        raise ValueError(
            f"num_beams={num_beams} with temperature={temperature}: beam search does not sample. "
            "Leave one of the two out."
        )
    for name, value in {"top_k": top_k, "top_p": top_p}.items():
        if value is not None and not temperature:
            raise ValueError(
                f"{name}={value} has no effect without sampling: pass temperature=1.0, too."
            )
    if not temperature and num_return_sequences > num_beams:
        raise ValueError(
            f"num_return_sequences={num_return_sequences}, but greedy decoding and beam search "
            f"return at most num_beams={num_beams}: pass a temperature, or more beams."
        )


def check_lookup(prompt_lookup, num_beams=1):
    """Check `prompt_lookup`, given the number of beams."""
    if not isinstance(prompt_lookup, (int, np.integer)) or prompt_lookup < 0:
        raise ValueError(
            f"prompt_lookup={prompt_lookup!r} is out of range: it must be an int, the number of "
            "tokens to propose, or 0 for off."
        )
    if num_beams > 1 and prompt_lookup:
        raise ValueError(
            f"num_beams={num_beams} with prompt_lookup={prompt_lookup}: beam search has no prompt "
            "look-up. Leave one of the two out."
        )


def check_coverage(coverage_penalty, num_beams, backbone):
    """Check `coverage_penalty`, a number or None, given the number of beams and the model."""
    if coverage_penalty is None:
        return
    is_number = isinstance(coverage_penalty, (int, float, np.number))
    if not is_number or not 0 <= coverage_penalty < np.inf:
        raise ValueError(
            f"coverage_penalty={coverage_penalty!r} is out of range: it must be a number, 0 or "
            "more, or None."
        )
    if num_beams == 1:
        raise ValueError(
            f"coverage_penalty={coverage_penalty} with num_beams=1: only beam search ranks texts. "
            "Pass num_beams=2 or more."
        )
    if not backbone.has_cross_attention:
        raise ValueError(
            f"coverage_penalty={coverage_penalty}: this model has no attention over the source, "
            "so there is no coverage. Leave it out."
        )


def all_options(limits, **values):
    """Check the options in `OPTIONS`; return them, with defaults for those that are None.

    `limits` are the model's `decoding.Limits`.
    """
    given = {name: value for name, value in values.items() if value is not None}
    check_options(**given)
    defaults = {name: option.default for name, option in OPTIONS.items()}
    options = defaults | {"max_new_tokens": limits.max_new_tokens} | given
    if limits.window is not None and np.max(options["max_new_tokens"]) >= limits.window:
        raise ValueError(no_room(options["max_new_tokens"], limits.window))
    return options


def split_stop(stop, vocabulary_size):
    """Split `stop` (str, int, list of these, or None) into lists of bytes and of token ids."""
    if stop is None:
        return [], []
    strings, ids = [], []
    for value in [stop] if isinstance(stop, (str, bytes, int)) else stop:
        if isinstance(value, (str, bytes)):
            if not value:
                raise ValueError("stop has an empty string, which every text contains: remove it.")
            strings.append(value.encode("utf-8") if isinstance(value, str) else value)
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            if not 0 <= value < vocabulary_size:
                raise ValueError(
                    f"stop has the token id {value}: ids go from 0 to {vocabulary_size - 1}."
                )
            ids.append(int(value))
        else:
            raise ValueError(f"stop has {value!r}: pass strings and token ids only.")
    return strings, ids


def forbidden_ids(forbidden, tokenizer):
    """Return the token ids (F, L) of forbidden strings, padded with -1 on the left, or None.

    If a word has another token after a space, both are forbidden.
    """
    if isinstance(forbidden, (str, bytes)):
        raise ValueError(f"forbidden={forbidden!r} is a single string: pass a list of them.")
    texts = [text for each in forbidden for text in (each, f" {each}")]
    if not texts:
        return None
    rows = as_lists(tokenizer(texts))
    for text, row in zip(texts, rows, strict=True):
        if not row:
            raise ValueError(f"forbidden has {text.strip()!r}, which has no tokens: remove it.")
    rows = sorted(set(map(tuple, rows)))
    longest = max(map(len, rows))
    return np.array([(-1,) * (longest - len(row)) + row for row in rows], "int32")


def per_row(options, rows):
    """Return each option, a number or a list of `rows` numbers, as an array (rows,)."""
    arrays = {}
    for name, value in options.items():
        array = np.asarray(value, OPTIONS[name].dtype)
        if array.ndim and len(array) != rows:
            raise ValueError(
                f"{name} has {len(array)} values for {rows} prompts: pass one value per prompt, or "
                "one for all."
            )
        arrays[name] = np.broadcast_to(array, [rows])
    return arrays
