"""Weights that a library has quantized: bitsandbytes' become numbers again, others are refused.

bitsandbytes stores a matrix in 8 bits, with the largest number of each row as `SCB`, or in 4 bits,
two to a byte, as indices of `quant_map`, to be multiplied by the `absmax` of their block. The state
beside it says the matrix's shape. With `nested_…`, `absmax` is stored so, too, in 8 bits.
"""

import functools
import json
import math
import pathlib
import re

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entries, Entry

# Entries of a configuration; the second is the older one of compressed-tensors.
SETTINGS = ("quantization_config", "compression_config")
METHOD = "bitsandbytes"
ENTRIES = Entries(
    read={"quant_method", "load_in_8bit", "load_in_4bit"},
    implied={
        "bnb_4bit_quant_type",
        "bnb_4bit_use_double_quant",
        "bnb_4bit_quant_storage",
        "llm_int8_has_fp16_weight",
        "llm_int8_skip_modules",
    },
    # Of the types in which bitsandbytes computes; here it is in the model's own.
    harmless={
        "bnb_4bit_compute_dtype",
        "llm_int8_enable_fp32_cpu_offload",
        "llm_int8_threshold",
    },
)
# How names of tensors end that only quantized weights have → who writes them.
OTHERS = {
    "qweight": "GPTQ or AWQ",
    "qzeros": "GPTQ or AWQ",
    "g_idx": "GPTQ",
    "weight_packed": "compressed-tensors",
    "weight_scale": "compressed-tensors or FP8",
    "weight_scale_inv": "FP8",
    "weight_zero_point": "compressed-tensors",
    "weight_scales": "EETQ",
    "weight._data": "quanto",
    "weight._scale": "quanto",
    "weight:_data": "torchao",
    "weight_qdata": "torchao",
    "weight_blocks": "MXFP4",
    "W_q": "HQQ",
    "codebooks": "AQLM",
    "centroids": "VPTQ",
    "quant_map": METHOD,
    "absmax": METHOD,
}
STATES = "quant_state.bitsandbytes__"
# A tensor that only weights have which a library has quantized.
PART = re.compile(rf"\.({'|'.join(map(re.escape, ('SCB', *OTHERS)))})$|{re.escape(STATES)}")
# Modules that keep a matrix as (in, out), which bitsandbytes turns round.
TURNED = {
    "gpt2": (".c_attn", ".c_fc", ".c_proj", ".q_attn"),
    "openai-gpt": (".c_attn", ".c_fc", ".c_proj"),
}
ROWS_OF_NUMBERS = 0  # the `weight_format` that is read
REMEDY = (
    "Take the model that it was made of, with weights in float32, float16 or bfloat16, or save one "
    "such with the library that wrote this."
)


def plain_tensors(
    folder: pathlib.Path, config: dict, tensors: dict[str, Entry]
) -> dict[str, Entry]:
    """Return a folder's tensors with those numbers again that bitsandbytes has quantized.

    Args:
        folder, config: the folder, for messages, and its `config.json`.
        tensors: dict of names → entries.

    Raises:
        CheckpointError: if another method has quantized them, or a part is missing.
    """
    _check_method(folder / "config.json", config.get(SETTINGS[0]) or config.get(SETTINGS[1]))
    entries = dict(tensors)
    for name in tensors:
        base, _, ending = name.rpartition(".")
        if ending == "SCB":
            weight = f"{base}.weight"
            entries[weight] = _of_rows(folder, entries, base)
        elif STATES in name:
            weight = name.partition(f".{STATES}")[0]
            entries[weight] = _of_blocks(folder, entries, weight)
        else:
            continue
        if is_turned(config.get("model_type"), weight.removesuffix(".weight")):
            entries[weight] = _turned(*entries[weight])
    for name in entries:
        method = next((OTHERS[end] for end in OTHERS if name.endswith(f".{end}")), None)
        if method is not None:
            raise CheckpointError(
                f"{folder} has the tensor {name!r}, of weights that {method} quantized, and these "
                f"are not supported. {REMEDY}"
            )
    return entries


def is_turned(model_type: str | None, layer: str) -> bool:
    """Whether a layer of a Hugging Face model keeps its matrix as (in, out)."""
    return layer.endswith(TURNED.get(model_type, ()))


def _turned(shape, read):
    return shape[::-1], lambda: read().T


def _check_method(path, settings):
    if settings is None:
        return
    if not isinstance(settings, dict):
        raise CheckpointError(
            f"{path} has {SETTINGS[0]}={str(settings)[:200]}, which is not an object."
        )
    is_older = settings.get("load_in_8bit") or settings.get("load_in_4bit")
    method = settings.get("quant_method") or (METHOD if is_older else None)
    if method != METHOD:
        raise CheckpointError(
            f"{path} has {SETTINGS[0]} with quant_method={method!r}, and weights that this method "
            f"quantized are not supported: only those of {METHOD} are. {REMEDY}"
        )
    ENTRIES.check(settings, f"{SETTINGS[0]} of {path}", "keras_lm")


def _of_rows(folder, entries, layer):
    """Return the entry of a matrix in 8 bits; what belongs to it leaves `entries`."""
    form = entries.pop(f"{layer}.weight_format", None)
    shape, read = _part(folder, entries, f"{layer}.weight")
    _, read_largest = entries.pop(f"{layer}.SCB")
    if form is not None and form[1]().item() != ROWS_OF_NUMBERS:
        raise CheckpointError(
            f"{folder}: '{layer}.weight_format' is {form[1]().item()}, one of the layouts of a "
            f"graphics card, and only {ROWS_OF_NUMBERS}, rows, is read. {REMEDY}"
        )

    def numbers():
        return read().astype("float32") * (read_largest().astype("float32")[:, None] / 127)

    return shape, numbers


def _of_blocks(folder, entries, name):
    """Return the entry of a matrix in 4 bits; what belongs to it leaves `entries`."""
    parts = {
        key.removeprefix(f"{name}."): entries.pop(key)[1]
        for key in [key for key in entries if key.startswith(f"{name}.")]
    }
    _, read = _part(folder, entries, name)
    state = next(value for key, value in parts.items() if key.startswith(STATES))
    try:
        state = json.loads(state().astype("uint8").tobytes())
        shape = tuple(state["shape"])
        math.prod(shape) // state["blocksize"]
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(
            f"{folder}: the state that {METHOD} wrote beside {name!r} is damaged ({error}). Copy "
            "or download it again."
        ) from error
    return shape, functools.partial(_unpacked, folder, name, read, parts, state)


def _unpacked(folder, name, read, parts, state):
    try:
        packed = np.ascontiguousarray(read()).view("uint8").ravel()
        indices = np.stack([packed >> 4, packed & 15], axis=-1).ravel()
        scales = parts["absmax"]()
        if "nested_absmax" in parts:
            nested = parts["nested_quant_map"]()[scales]
            nested = _scaled(nested, parts["nested_absmax"](), state["nested_blocksize"])
            scales = nested + np.float32(state["nested_offset"])
        numbers = parts["quant_map"]()[indices[: math.prod(state["shape"])]]
        return _scaled(numbers, scales, state["blocksize"]).reshape(state["shape"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder}: {name!r} is not what {METHOD} writes ({type(error).__name__}: {error}). "
            "Copy or download it again."
        ) from error


def _scaled(numbers, scales, size):
    """Return numbers multiplied by the scale of their block, of `size` numbers."""
    scales = np.repeat(scales.ravel().astype("float32"), size)[: numbers.size]
    return numbers.astype("float32") * scales


def _part(folder, entries, name):
    if name not in entries:
        raise CheckpointError(
            f"{folder} lacks {name!r}, which {METHOD} quantized: copy or download it again."
        )
    return entries[name]


def check_policies(path: pathlib.Path, config: dict) -> None:
    """Raise a CheckpointError if a layer in a configuration of Keras's is quantized."""
    left = [config]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if str(value.get("class_name")).startswith("Quantized"):
                raise CheckpointError(
                    f"{path} has the dtype policy {value['class_name']} {value.get('config')}, of "
                    "weights that Keras quantized, and these are not supported. Save the model "
                    "before quantize(…)."
                )
            left += value.values()
        elif isinstance(value, list):
            left += value
