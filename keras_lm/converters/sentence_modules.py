"""Writing the files that make a folder of Hugging Face's one of sentence-transformers.

The names of poolings and activations are those of `sentence_entries.py`, by which they are read.
"""

import json

from keras_lm.converters.safetensors_files import write_safetensors
from keras_lm.converters.sentence_entries import ACTIVATIONS, FLAGS, POOLINGS
from keras_lm.converters.sentence_transformers import LEAVES, MODEL, MODULES

MODULE = "sentence_transformers.models."
LAYERS = {"dense": "Dense", "layer_norm": "LayerNorm", "normalize": "Normalize"}


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


def write_modules(folder, hidden_dim, arguments, projections, inputs):
    """Write `modules.json` and the folders that it names, beside a network.

    Args:
        folder: `pathlib.Path`, with the network's files.
        hidden_dim: int, the width of the network.
        arguments: dict of `pooling`, `normalize`, `truncate_dim` and `skipped_tokens`, those of
            `FeatureExtractor`.
        projections: list of (dict that describes a layer, dict of its arrays, kernels as (D, E)).
        inputs: dict of the arguments of `FeatureExtractor` for how texts are read:
            `sequence_length`, `prompt` and `lowercase`.
    """
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    stated = _pooling(_listed(arguments["pooling"]), hidden_dim)
    stated["include_prompt"] = not arguments["skipped_tokens"]
    _write(folder / "1_Pooling" / "config.json", stated)
    last = [({"layer": "normalize"}, {})] if arguments["normalize"] else []
    for projection, arrays in [*projections, *last]:
        kind = LAYERS[projection.get("layer", "dense")]
        name = f"{len(modules)}_{kind}"
        modules.append((kind, name))
        (folder / name).mkdir()
        if arrays:
            _write_layer(folder / name, kind, projection, arrays)
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
    cut = arguments["truncate_dim"]
    _write(folder / MODEL, stated | ({} if cut is None else {"truncate_dim": cut}))


def _pooling(poolings, hidden_dim):
    """Return the entries of several poolings, in the older flags if these join them in order."""
    names = [theirs for ours in poolings for theirs in POOLINGS if POOLINGS[theirs] == ours]
    if names == [name for name in FLAGS.values() if name in names]:
        flags = {flag: name in names for flag, name in FLAGS.items()}
        return {"word_embedding_dimension": hidden_dim, **flags}
    return {"embedding_dimension": hidden_dim, "pooling_mode": names}


def _write_layer(folder, kind, projection, arrays):
    if kind == "Dense":
        inputs, outputs = arrays["kernel"].shape
        activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
        activation = activations[projection.get("activation", "linear")]
        stated = {"in_features": inputs, "out_features": outputs, "bias": "bias" in arrays}
        stated |= {"activation_function": activation}
        stated |= {"use_residual": True} if projection.get("use_residual") else {}
    else:
        stated = {"dimension": arrays["gamma"].shape[0]}
    _write(folder / "config.json", stated)
    leaves = {ours: theirs for theirs, ours in LEAVES[kind].items()}
    tensors = {leaves[leaf]: array.T for leaf, array in arrays.items()}
    write_safetensors(folder, tensors, 2**62, {"format": "pt"})


def _listed(pooling):
    return pooling if isinstance(pooling, list) else [pooling]


def _write(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
