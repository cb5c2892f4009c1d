"""Writing the files that make a folder of Hugging Face's one of sentence-transformers.

The names of poolings and activations are those of `sentence_transformers.py`, which reads them.
"""

import json

from keras_lm.converters.safetensors_files import write_safetensors
from keras_lm.converters.sentence_transformers import (
    ACTIVATIONS,
    FLAGS,
    LEAVES,
    MODULES,
    POOLINGS,
    SETTINGS,
)

MODULE = "sentence_transformers.models."


def check_modules(pooling, projections):
    """Raise a ValueError if sentence-transformers has no such pooling or activation."""
    if any(name not in POOLINGS.values() for name in _listed(pooling)):
        raise ValueError(
            f"pooling={pooling!r}: sentence-transformers knows one vector a text, by "
            f"{', '.join(POOLINGS.values())}."
        )
    for projection in projections or []:
        activation = projection.get("activation", "linear")
        if activation not in ACTIVATIONS.values():
            raise ValueError(
                f"projections with activation={activation!r}: sentence-transformers has here "
                f"{', '.join(ACTIVATIONS.values())}."
            )


def write_modules(folder, hidden_dim, pooling, projections, normalize, inputs):
    """Write `modules.json` and the folders that it names, beside a network.

    Args:
        folder: `pathlib.Path`, with the network's files.
        hidden_dim: int, the width of the network.
        pooling: str, or list of str, of `FeatureExtractor`.
        projections: list of (dict of `activation`, dict of `kernel` (D, E) and perhaps `bias`).
        normalize: bool.
        inputs: dict of the arguments of `FeatureExtractor` for how texts are read:
            `sequence_length`, `prompt` and `lowercase`.
    """
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    stated = {flag: POOLINGS[name] in _listed(pooling) for flag, name in FLAGS.items()}
    stated = {"word_embedding_dimension": hidden_dim, **stated, "include_prompt": True}
    _write(folder / "1_Pooling" / "config.json", stated)
    for projection, arrays in projections:
        name = f"{len(modules)}_Dense"
        modules.append(("Dense", name))
        _write_dense(folder / name, projection.get("activation", "linear"), arrays)
    if normalize:
        modules.append(("Normalize", f"{len(modules)}_Normalize"))
        (folder / modules[-1][1]).mkdir()
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"{MODULE}{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    _write(folder / MODULES, entries)
    stated = {"max_seq_length": inputs["sequence_length"], "do_lower_case": inputs["lowercase"]}
    _write(folder / "sentence_bert_config.json", stated)
    prompts = {"default": inputs["prompt"]} if inputs["prompt"] else {}
    name = "default" if prompts else None
    stated = {"prompts": prompts, "default_prompt_name": name, "similarity_fn_name": "cosine"}
    _write(folder / SETTINGS, stated)


def _write_dense(folder, activation, arrays):
    inputs, outputs = arrays["kernel"].shape
    activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    stated = {"in_features": inputs, "out_features": outputs, "bias": "bias" in arrays}
    _write(folder / "config.json", stated | {"activation_function": activations[activation]})
    leaves = {ours: theirs for theirs, ours in LEAVES.items()}
    tensors = {leaves[leaf]: array.T for leaf, array in arrays.items()}
    write_safetensors(folder, tensors, 2**62, {"format": "pt"})


def _listed(pooling):
    return pooling if isinstance(pooling, list) else [pooling]


def _write(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
