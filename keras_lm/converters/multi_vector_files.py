"""Folders of late interaction: sentence-transformers' `MultiVectorEncoder`, PyLate and ColBERT.

The first lists a network, dense layers over tokens, the tokens that count, and a normalisation in
`modules.json`; PyLate, up to version 1.3, lists the network and a dense layer, and has the rest in
`config_sentence_transformers.json`. The authors' folders have no `modules.json`: a dense layer
beside the network's weights, and settings in `artifact.metadata`. All are read, and the first is
written.
"""

import string

from keras_lm.converters.checked_files import CheckpointError, Entries, LazyTensors, read_json
from keras_lm.converters.sentence_transformers import (
    KNOWN,
    MODULES,
    MULTI_VECTOR_MASK,
    NETWORK,
    check_entries,
    dense_step,
    read_inputs,
    read_prompts,
    read_steps,
    write_json,
    write_layers,
    write_limits,
    write_list,
    write_settings,
)

PYLATE_DENSE = "pylate.models.Dense.Dense"
OF_TOKENS = {
    "module_input_name": ("token_embeddings",),
    "module_output_name": ("token_embeddings",),
}
DENSE = KNOWN["Dense"] | Entries(refused=OF_TOKENS)
NORMALIZE = Entries(refused=OF_TOKENS)
MASKS = Entries(
    read={"skiplist_words"},
    refused={"skiplist_tasks": (["document"],), "keep_only_token_ids": ()},
)
EXPANSION = Entries(read={"attend", "length", "strategy", "token"})
ARCHITECTURE, METADATA = "HF_ColBERT", "artifact.metadata"
PROJECTION = "linear.weight"  # beside the network's weights
USUAL_LENGTH = 32


def is_authors(checkpoint) -> bool:
    """Whether a checkpoint is one of the authors of ColBERT."""
    architectures = checkpoint.config.get("architectures") or []
    return checkpoint.format == "huggingface" and ARCHITECTURE in architectures


def read_multi_vector(checkpoint, limit):
    """Return the arguments of a `MultiVectorEncoder` that a folder states, a dict.

    Among them are the `markers` before texts, which are single tokens if the vocabulary has them.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        limit: int, the tokens that the network has positions for; None for no limit.

    Raises:
        CheckpointError: if a file is missing or damaged, or states what is not done.
    """
    if is_authors(checkpoint):
        return _of_authors(checkpoint, limit)
    files = checkpoint.sentence_files
    steps, words, normalize = _modules(checkpoint)
    is_older = files.settings.get("model_type") == "ColBERT"
    path, config = files.network_config
    if is_older:
        path, config = checkpoint.root / MODULES, _of_pylate(files.settings)
        words = files.settings.get("skiplist_words")
        words, normalize = [*string.punctuation] if words is None else words, True
    inputs = read_inputs(checkpoint, limit)
    length = inputs["sequence_length"]
    stated = {
        "sequence_length": min(length, config.get("document_length") or length),
        "lowercase": inputs.get("lowercase", False),
        "prompts": _prompts(checkpoint),
        "projections": steps,
        "normalize": normalize,
        "skipped_words": words,
        "markers": [files.settings.get(f"{name}_prefix") or "" for name in ("query", "document")],
    }
    return stated | _of_queries(path, config)


def _modules(checkpoint):
    """Return the dense layers, the words that do not count, and whether vectors are normalised."""
    path, modules = checkpoint.root / MODULES, checkpoint.sentence_files.modules
    steps, words, normalize = [], [], False
    for number, (kind, folder) in enumerate(modules):
        kind = "Dense" if kind == PYLATE_DENSE else kind
        known = {NETWORK} if number == 0 else {"Dense", "Dropout", "Normalize", MULTI_VECTOR_MASK}
        if kind not in known or (kind == "Dense" and normalize):
            kinds = ", ".join(kind for kind, _ in modules)
            raise CheckpointError(
                f"{path} has the modules {kinds}; a MultiVectorEncoder reads {NETWORK}, any number "
                f"of Dense layers of tokens, {MULTI_VECTOR_MASK} and Normalize. For a new one over "
                "this network, pass the backbone: "
                "MultiVectorEncoder(models.Backbone.from_preset(SOURCE), tokenizer=…)."
            )
        file = folder / "config.json"
        config = read_json(file) if number and file.is_file() else {}
        if kind == "Dense":
            steps.append(dense_step(folder, DENSE, "MultiVectorEncoder"))
        elif kind == "Normalize":
            check_entries(NORMALIZE, file, config, "MultiVectorEncoder")
            normalize = True
        elif kind == MULTI_VECTOR_MASK:
            check_entries(MASKS, file, config, "MultiVectorEncoder")
            words = config.get("skiplist_words") or []
    return steps, words, normalize


def _of_pylate(settings):
    """Return PyLate's settings as the network's file has them in version 6."""
    config = {"document_length": settings.get("document_length")}
    length = settings.get("query_length")
    if settings.get("do_query_expansion") is False:
        return config | {"query_length": length}
    attend = bool(settings.get("attend_to_expansion_tokens"))
    expansion = {"strategy": "fixed", "attend": attend, "length": length or USUAL_LENGTH}
    return config | {"query_expansion": expansion}


def _prompts(checkpoint):
    """Return the prompts by their names, with PyLate's markers before them."""
    prompts, settings = read_prompts(checkpoint), checkpoint.sentence_files.settings
    for name in ("query", "document"):
        marker = settings.get(f"{name}_prefix") or ""
        text = marker + prompts.get(name, "").removeprefix(marker)
        prompts |= {name: text} if text else {}
    return prompts


def _of_queries(path, config):
    """Return the arguments for how queries are read."""
    expansion = config.get("query_expansion")
    if expansion is None:
        return {"query_length": config.get("query_length"), "expand_queries": False}
    check_entries(EXPANSION, path, expansion, "MultiVectorEncoder")
    length, strategy = expansion.get("length"), expansion.get("strategy")
    if strategy != "fixed" or expansion.get("token") is not None or type(length) is not int:
        raise CheckpointError(
            f"{path} has query_expansion={expansion!r}; supported is the strategy 'fixed' with a "
            "length and the tokenizer's mask token."
        )
    return {
        "query_length": length,
        "expand_queries": True,
        "attend_to_expansion": bool(expansion.get("attend")),
    }


def _of_authors(checkpoint, limit):
    path = checkpoint.root / METADATA
    settings = read_json(path) if path.is_file() else {}
    length = settings.get("doc_maxlen") or limit
    query = f"{settings.get('query_token_id') or '[unused0]'} "
    document = f"{settings.get('doc_token_id') or '[unused1]'} "
    width = checkpoint.tensors.shape(PROJECTION)[0]
    layer = {"output_dim": width, "activation": "linear", "use_bias": False}
    return {
        "sequence_length": min(length, limit or length),
        "prompts": {"query": query, "document": document},
        "markers": [query, document],
        "projections": [layer],
        "normalize": True,
        "skipped_words": [*string.punctuation] if settings.get("mask_punctuation", True) else [],
        "query_length": settings.get("query_maxlen") or USUAL_LENGTH,
        "expand_queries": True,
        "attend_to_expansion": bool(settings.get("attend_to_mask_tokens")),
    }


def read_layers(checkpoint):
    """Return the `LazyTensors` of the dense layers, by our names of them."""
    if is_authors(checkpoint):
        tensors = checkpoint.tensors
        shape = tensors.shape(PROJECTION)[::-1]
        return LazyTensors({"projection_0/kernel": (shape, lambda: tensors[PROJECTION].T)})
    modules = checkpoint.sentence_files.modules
    return read_steps([("Dense", f) for kind, f in modules if kind in ("Dense", PYLATE_DENSE)])


def write_multi_vector(folder, arguments, projections, inputs):
    """Write `modules.json` and the folders that it names beside a network.

    Args:
        folder: `pathlib.Path`, with the network's files.
        arguments: dict of the arguments of `MultiVectorEncoder`.
        projections: list of (dict that describes a layer, dict of its arrays, kernels as (D, E)).
        inputs: see `sentence_transformers.write_modules`.
    """
    names = {name: only for name, (only,) in OF_TOKENS.items()}
    modules = write_layers(folder, [(NETWORK, "")], projections, names)
    modules.append((MULTI_VECTOR_MASK, f"{len(modules)}_{MULTI_VECTOR_MASK}"))
    stated = {"skiplist_words": arguments["skipped_words"]}
    write_json(folder / modules[-1][1] / "config.json", stated)
    if arguments["normalize"]:
        modules.append(("Normalize", f"{len(modules)}_Normalize"))
        write_json(folder / modules[-1][1] / "config.json", names)
    write_list(folder, modules)
    stated = {"document_length": inputs["sequence_length"]}
    if arguments["expand_queries"]:
        stated["query_expansion"] = {
            "strategy": "fixed",
            "attend": arguments["attend_to_expansion"],
            "token": None,
            "length": arguments["query_length"],
        }
    elif arguments["query_length"] is not None:
        stated["query_length"] = arguments["query_length"]
    write_limits(folder, inputs, stated)
    write_settings(folder, inputs, "maxsim", {"model_type": "MultiVectorEncoder"})
