"""Options of generation: the arguments of `generate`, checked, with a value for each of B rows."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from keras_lm.layers.tensorflow import required
from keras_lm.tensorflow import tf
from keras_lm.utils.registry import advice


@dataclasses.dataclass(frozen=True)
class Option:
    """An option; `allowed` tests arrays or tensors, and `words` describes the test in errors."""

    dtype: str
    default: float
    allowed: Callable
    words: str

    def message(self, name, value=""):
        """Return the error message for a value; in the graph, the value is unknown."""
        return f"{name}={value} is out of range: it must be {self.words}."


FRESH_SEED = -1
OPTIONS = {
    "max_new_tokens": Option("int32", 50, lambda x: x >= 0, "0 or more"),
    "temperature": Option(
        "float32", 0.0, lambda x: (x >= 0) & (x < np.inf), "0 (greedy), or a number above 0"
    ),
    "top_k": Option("int32", 0, lambda x: x >= 0, "0 (keeps all tokens), or more"),
    "top_p": Option("float32", 1.0, lambda x: (x > 0) & (x <= 1), "above 0 and at most 1"),
    "repetition_penalty": Option(
        "float32", 1.0, lambda x: (x > 0) & (x < np.inf), "1 (no penalty), or a number above 0"
    ),
    "no_repeat_ngram_size": Option("int32", 0, lambda x: x >= 0, "0 (off), or more"),
    "seed": Option(
        "int64", FRESH_SEED, lambda x: x >= FRESH_SEED, f"0 or more, or {FRESH_SEED} for a new one"
    ),
}


class Options(NamedTuple):
    """The options of a batch, tensors (B,) in the order of `OPTIONS`.

    `forbidden` (B, F, L) are sequences of tokens that must not occur, padded with -1 on the left,
    or None. `source_ids` (B, S) are the tokens of sources, -1 in padding, or None.
    """

    max_new_tokens: tf.Tensor
    temperature: tf.Tensor
    top_k: tf.Tensor
    top_p: tf.Tensor
    repetition_penalty: tf.Tensor
    no_repeat_ngram_size: tf.Tensor
    seed: tf.Tensor
    forbidden: tf.Tensor | None
    source_ids: tf.Tensor | None = None


# More would take all memory.
MOST = {"num_beams": 1024, "num_return_sequences": 65_536}

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

    The defaults are what the task states, as of its `generation`, and otherwise these.

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
            the tokenizer's eos token, or the end tokens that the task states. A string may be a
            special token.
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
        for name in ("num_beams", "num_return_sequences"):
            value = getattr(self, name)
            if not is_int(value) or not 1 <= value <= MOST[name]:
                raise ValueError(
                    f"{name}={value!r} is out of range: it must be an int from 1 to {MOST[name]}."
                )
        penalty, beams = self.length_penalty, f"num_beams={self.num_beams}"
        is_number = isinstance(penalty, (int, float)) and not isinstance(penalty, bool)
        if not is_number or abs(penalty) > np.finfo("float32").max or np.isnan(penalty):
            raise ValueError(f"length_penalty={penalty!r} is not a finite number.")
        if self.num_beams > 1 and self.temperature:
            raise ValueError(
                f"{beams} with temperature={self.temperature}: beam search does not sample. Leave "
                "one of the two out."
            )
        for name in ("top_k", "top_p"):
            if (value := getattr(self, name)) is not None and not self.temperature:
                raise ValueError(
                    f"{name}={value} has no effect without sampling: pass temperature=1.0, too."
                )
        if not self.temperature and self.num_return_sequences > self.num_beams:
            raise ValueError(
                f"num_return_sequences={self.num_return_sequences}, but greedy decoding and beam "
                f"search return at most {beams}: pass a temperature, or more beams."
            )

    @classmethod
    def of(
        cls,
        max_new_tokens: int | None,
        options: Mapping[str, Any],
        stated: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the arguments of a user's call; a TypeError names unknown ones.

        `stated` are the defaults of a task, which count where a call says nothing else.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                remedy = INSTEAD.get(name) or advice(name, known).strip()
                raise TypeError(
                    f"{name} is not an option of generation.{remedy and ' '}{remedy} There are "
                    f"{', '.join(known)}."
                )
        return cls(max_new_tokens, **completed(options, stated or {}))

    def constants(self) -> dict[str, Any]:
        """Return what is not as usual, as scalars for all rows; the arguments of a graph."""
        values = {name: getattr(self, name) for name in OPTIONS}
        options = {n: v for n, v in values.items() if v not in (None, OPTIONS[n].default)}
        search = {}
        if self.num_beams > 1:
            search = {"num_beams": self.num_beams, "length_penalty": self.length_penalty}
        return options | search

    def per_row(self, limits: Any, rows: Any) -> dict[str, Any]:
        """Return the `OPTIONS` of each row, arrays (rows,); `limits` are `decoding.Limits`."""
        return per_row(all_options(limits, **{n: getattr(self, n) for n in OPTIONS}), rows)

    def stops(self, vocabulary_size: int, special_tokens: Mapping[str, int]) -> dict[str, Any]:
        """Return the strings and the token ids to stop at, arrays by name; see `split_stop`."""
        strings, ids = split_stop(self.stop, vocabulary_size, special_tokens)
        return {"stop_strings": np.array(strings, object), "stop_ids": np.array(ids, "int32")}

    def search(self) -> dict[str, Any]:
        """Return the numbers of texts and of beams, for all rows, by name."""
        numbers = {"num_return_sequences": np.int32(self.num_return_sequences)}
        if self.num_beams > 1:
            numbers["num_beams"] = np.int32(self.num_beams)
            numbers["length_penalty"] = np.float32(self.length_penalty)
        return numbers


def is_int(value):
    """Return whether a value is an int, and no bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


OF_SAMPLING = ("temperature", "top_k", "top_p")
OF_SEARCH = ("num_beams", "length_penalty")


def completed(given, stated):
    """Return the options of a call, with those that a task states if they go together with them."""
    given = {name: v for name, v in given.items() if v is not None or name == "temperature"}
    left_out = ()
    if given.get("temperature"):
        left_out = OF_SEARCH
    elif "temperature" in given or given.get("num_beams", 1) > 1:
        left_out = OF_SAMPLING
    options = {name: value for name, value in stated.items() if name not in left_out} | given
    if not options.get("temperature"):  # the others of sampling have no effect
        options = {n: v for n, v in options.items() if n in given or n not in OF_SAMPLING}
    return options


def check_lookup(prompt_lookup, num_beams=1):
    """Check `prompt_lookup`, given the number of beams."""
    if not is_int(prompt_lookup) or prompt_lookup < 0:
        raise ValueError(
            f"prompt_lookup={prompt_lookup!r} is out of range: it must be an int, the number of "
            "tokens to propose, or 0 for off."
        )
    if num_beams > 1 and prompt_lookup:
        raise ValueError(
            f"num_beams={num_beams} with prompt_lookup={prompt_lookup}: beam search has no prompt "
            "look-up. Leave one of the two out."
        )


def all_options(limits, **values):
    """Check the options in `OPTIONS`; return them, with defaults for those that are None.

    `limits` are the model's `decoding.Limits`.
    """
    given = {name: value for name, value in values.items() if value is not None}
    check_options(**given)
    defaults = {name: option.default for name, option in OPTIONS.items()}
    options = defaults | {"max_new_tokens": limits.usual_number} | given
    if limits.window is not None and np.max(options["max_new_tokens"]) >= limits.window:
        raise ValueError(no_room(options["max_new_tokens"], limits.window))
    return options


def check_options(**values):
    """Check options outside of the graph; names are those in `OPTIONS`, values numbers or lists."""
    for name, value in values.items():
        option, array = OPTIONS[name], np.asarray(value)
        kinds = "iu" if "int" in option.dtype else "iuf"
        if array.dtype.kind not in kinds or array.ndim > 1:
            what = "a whole number" if kinds == "iu" else "a number"
            raise ValueError(f"{name}={value!r} is not {what}: it must be {option.words}.")
        is_held = kinds == "iuf" or np.all(array <= np.iinfo(option.dtype).max)
        with np.errstate(over="ignore"):  # 1e300 is infinite as float32
            held = array.astype(option.dtype) if kinds == "iuf" else array
        if not (is_held and np.all(option.allowed(held))):
            raise ValueError(option.message(name, value))


def split_stop(stop, vocabulary_size, special_tokens=MappingProxyType({})):
    """Split `stop` (str, int, list of these, or None) into lists of bytes and of token ids.

    A string that is one of the `special_tokens`, a dict of their ids, is both.
    """
    if stop is None:
        return [], []
    strings, ids = [], []
    for value in [stop] if isinstance(stop, (str, bytes, int)) else stop:
        if isinstance(value, (str, bytes)):
            if not value:
                raise ValueError("stop has an empty string, which every text contains: remove it.")
            strings.append(value.encode("utf-8") if isinstance(value, str) else value)
            ids += [id for token, id in special_tokens.items() if token.encode() == strings[-1]]
        elif is_int(value):
            if not 0 <= value < vocabulary_size:
                raise ValueError(
                    f"stop has the token id {value}: ids go from 0 to {vocabulary_size - 1}."
                )
            ids.append(int(value))
        else:
            raise ValueError(f"stop has {value!r}: pass strings and token ids only.")
    return strings, ids


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


def batch_options(rows, forbidden=None, source_ids=None, **values):
    """Return `Options` in the graph, with defaults for those that are missing.

    `forbidden` (F, L) holds for all rows, `source_ids` is as in `Options`. `values` are scalars,
    (1,) or (B,). A value out of range is an error when the graph runs.
    """
    batch = {}
    for name, option in OPTIONS.items():
        value = tf.cast(values.pop(name, option.default), option.dtype)
        value = required(value, option.allowed(value), option.message(name, "…"))
        batch[name] = tf.broadcast_to(value, [rows])
    if values:
        raise ValueError(f"{sorted(values)} are not options: use {sorted(OPTIONS)}.")
    if forbidden is not None:
        forbidden = tf.tile(forbidden[tf.newaxis], [rows, 1, 1])
    return Options(**batch, forbidden=forbidden, source_ids=source_ids)


def no_room(max_new_tokens, window):
    """Return the error message for more new tokens than fit into a window with a prompt."""
    return (
        f"max_new_tokens={max_new_tokens} leaves no room for a prompt in the window of {window} "
        "tokens: pass a smaller number."
    )
