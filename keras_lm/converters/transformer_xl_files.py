"""What the authors of Transformer-XL save with PyTorch: a whole model, or its state dict."""

import pathlib

from keras_lm.converters.checked_files import Entry, read_config
from keras_lm.converters.torch_pickle import entries_of, open_torch
from keras_lm.converters.torch_unpickler import Options

# A tensor that every one of them has.
SIGN = "word_emb.emb_layers.0.weight"
# Where the arguments of a model are among the attributes of its modules.
ARGUMENTS = {
    "n_token n_layer n_head d_model d_head d_embed attn_type ext_len mem_len": (),
    "same_length clamp_len": (),
    "div_val": ("word_emb",),
    "pre_lnorm": ("layers", "0", "pos_ff"),
    "p": ("drop",),
}


def read_transformer_xl(folder: pathlib.Path) -> tuple[dict, dict[str, Entry]] | None:
    """Return the configuration and the tensors of the first file that is such a checkpoint.

    That is `model.pt`, as `train.py` saves it, or another `.pt`. The configuration has the names
    of the arguments of `MemTransformerLM`: those that the file holds, and those of a `config.json`,
    which count more. Without any such file, it returns None.
    """
    for path in sorted(folder.glob("*.pt")):
        root, places = open_torch(path)
        is_model = isinstance(root, Options) and type(root).__name__ == "MemTransformerLM"
        if not is_model and not (isinstance(root, dict) and _has_sign(root)):
            continue
        config = _arguments(root) if is_model else {}
        return config | read_config(folder, "config.json"), entries_of(root, places, path)
    return None


def _has_sign(root: dict) -> bool:
    parts = [root, *(part for part in root.values() if isinstance(part, dict))]
    return any(name in part for part in parts for name in (SIGN, f"module.{SIGN}"))


def _arguments(model: Options) -> dict:
    """Return the arguments that a model has as attributes, plain values only."""
    found = {}
    for names, path in ARGUMENTS.items():
        part = _part(model, path)
        found |= {name: part.get(name) for name in names.split()}
    found["dropout"] = found.pop("p")
    found["dropatt"] = _part(model, ("layers", "0", "dec_attn", "dropatt")).get("p")
    cutoffs = _part(model, ("word_emb",)).get("cutoffs")
    if isinstance(cutoffs, list) and all(type(cutoff) is int for cutoff in cutoffs):
        found["cutoffs"] = cutoffs[:-1]  # the last is the number of words
    plain = (bool, int, float, list)
    return {name: value for name, value in found.items() if type(value) in plain}


def _part(model: Options, path) -> dict:
    """Return the attributes of a module in a module, by its path; {} if there is none."""
    for name in path:
        modules = model.values.get("_modules")
        model = modules.get(name) if isinstance(modules, dict) else None
        if not isinstance(model, Options):
            return {}
    return model.values
