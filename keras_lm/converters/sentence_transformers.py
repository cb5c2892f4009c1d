"""Folders of the library sentence-transformers: a network, and what makes one vector of its output.

`modules.json` lists modules in the order in which they run: the network, its pooling, and perhaps
dense layers and a normalisation. Each has a folder with its `config.json`, and weights if it has
any. How texts are read stands in the network's folder and in `config_sentence_transformers.json`.
"""

import functools
import pathlib
import re

from keras_lm.converters.checked_files import CheckpointError, LazyTensors, read_first, read_json
from keras_lm.converters.formats import SAFETENSORS, TORCH

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
NETWORK = "Transformer"
KNOWN = (NETWORK, "Pooling", "Dense", "Dropout", "Normalize")
ORDER = re.compile(f"{NETWORK} Pooling( Dense)*( Normalize)*")
# The network's settings, once in a file that was named by the kind of network.
KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
READ = ("max_seq_length", "do_lower_case")
# Of training, of the time that it takes, or of texts that are read as queries or documents.
WITHOUT_EFFECT = ("unpad_inputs", "query_length", "document_length", "query_expansion")
ONLY_OF_NETWORK = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
}
ONLY_OF_VECTORS = {
    "module_input_name": "sentence_embedding",
    "module_output_name": "sentence_embedding",
}
LONGEST = 1_000_000  # tokens; what states more than these states no length
# Their names → ours, and the older flags, in the order in which several are joined.
POOLINGS = {
    "cls": "first",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
LEAVES = {"linear.weight": "kernel", "linear.bias": "bias"}
ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
}


def network_folder(root: pathlib.Path) -> pathlib.Path:
    """Return the folder of the network: `root`, or in older layouts one that `modules.json` names.

    Args:
        root: a folder with a `modules.json`.
    """
    if any((root / name).is_file() for name in SAFETENSORS | TORCH):
        return root
    folder = next((folder for kind, folder in _modules(root) if kind == NETWORK), root)
    if not folder.is_dir():
        raise CheckpointError(
            f"{root / MODULES} names the folder {folder.name!r}, which is missing. Copy it there."
        )
    return folder


def cross_encoder_activation(checkpoint, num_classes):
    """Return what a `CrossEncoder` does to its logits, such as `"sigmoid"`; None if it is none.

    A name that is not known stays as it is.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        num_classes: int. With one, it is a sigmoid by default.
    """
    path = checkpoint.root / SETTINGS
    own = read_json(path) if path.is_file() else {}
    named = checkpoint.config.get("sentence_transformers")
    older = "sbert_ce_default_activation_function"
    if "activation_fn" in own:
        name = own["activation_fn"]
    elif isinstance(named, dict):
        name = named.get("activation_fn")
    elif older in checkpoint.config:
        name = checkpoint.config[older]
    else:
        return None
    if name is None:
        return "sigmoid" if num_classes == 1 else "linear"
    return ACTIVATIONS.get(str(name), name)


# === How texts are read ===


def read_inputs(checkpoint, limit):
    """Return how texts are read, as arguments of `FeatureExtractor`.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        limit: int, the tokens that the network has positions for; None for no limit.

    Raises:
        CheckpointError: if a file is damaged, or states what is not done.
    """
    paths = [checkpoint.folder / f"sentence_{kind}_config.json" for kind in KINDS]
    path = next(filter(pathlib.Path.is_file, paths), None)
    config = {} if path is None else read_json(path)
    _refuse_others(path, config, READ + WITHOUT_EFFECT, ONLY_OF_NETWORK)
    length = config.get("max_seq_length")
    if length is None:
        path = checkpoint.folder / "tokenizer_config.json"
        length = read_json(path).get("model_max_length") if path.is_file() else None
    if length is not None and (type(length) not in (int, float) or length < 1):
        raise CheckpointError(
            f"{path} states a length of {length!r} tokens: copy or download it again."
        )
    length = min(value for value in (length, limit, LONGEST) if value is not None)
    if length == LONGEST:
        raise CheckpointError(
            f"{checkpoint.source} states no max_seq_length, and its network has no limit: pass "
            "sequence_length."
        )
    return {
        "sequence_length": int(length),
        "prompt": _default_prompt(checkpoint.root / SETTINGS),
        "lowercase": bool(config.get("do_lower_case")),
    }


def _default_prompt(path):
    config = read_json(path) if path.is_file() else {}
    name, prompts = config.get("default_prompt_name"), config.get("prompts")
    if name is None:
        return None
    prompt = prompts.get(name) if isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise CheckpointError(
            f"{path} has default_prompt_name={name!r}, which is none of its prompts, {prompts!r}. "
            "Correct it, or pass prompt."
        )
    return prompt or None


# === What is done with the network's output ===


def read_head(checkpoint, has_prompt=False):
    """Return what is done with the network's output, as arguments of `FeatureExtractor`.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        has_prompt: bool. Whether texts have a prompt, which pooling may not leave out.

    Raises:
        CheckpointError: if a file is missing or damaged, or states what is not done.
    """
    modules = _known_modules(checkpoint.root)
    pooling = next(folder for kind, folder in modules if kind == "Pooling")
    for kind, folder in modules:
        if kind == "Normalize" and (folder / "config.json").is_file():
            path = folder / "config.json"
            _refuse_others(path, read_json(path), (), ONLY_OF_VECTORS)
    return {
        "pooling": _pooling(pooling / "config.json", has_prompt),
        "projections": [_projection(folder) for folder in _dense(modules)] or None,
        "normalize": any(kind == "Normalize" for kind, _ in modules),
    }


def read_projections(checkpoint):
    """Return the `LazyTensors` of the dense layers by our names of them.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
    """
    entries = {}
    for number, folder in enumerate(_dense(_known_modules(checkpoint.root))):
        for name, (shape, read) in _weights(folder).items():
            path = f"projection_{number}/{LEAVES[name]}"
            entries[path] = (shape[::-1], functools.partial(_transposed, read))
    return LazyTensors(entries)


def _transposed(read):
    return read().T  # written as (out, in)


def _modules(root):
    """Return (class, folder) of the modules, in the order in which they run."""
    path, modules = root / MODULES, []
    for entry in read_json(path, list):
        entry = entry if isinstance(entry, dict) else {}
        kind, folder = entry.get("type"), entry.get("path")
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise CheckpointError(
                f"{path}: a module needs 'type' and 'path', two strings, and there is {entry}. "
                "Copy or download it again."
            )
        parts = pathlib.PureWindowsPath(folder)  # which knows both kinds of slashes
        # A downloaded list must not make us open files elsewhere on the disk.
        if parts.anchor or ".." in parts.parts:
            raise CheckpointError(
                f"{path} names the folder {folder!r}, which is not in {root}: correct the path."
            )
        if kind.startswith("sentence_transformers."):  # else code of the folder's own
            kind = kind.rpartition(".")[2]
        modules.append((kind, root.joinpath(*parts.parts)))
    return modules


def _known_modules(root):
    """Return the modules if they are a network, its pooling, dense layers and a normalisation."""
    path, modules = root / MODULES, _modules(root)
    kinds = [kind for kind, _ in modules]
    remedy = "Name layers or pooling for vectors of the network alone."
    for kind in kinds:
        if kind not in KNOWN:
            raise CheckpointError(
                f"{path} has the module {kind!r}, and known are {', '.join(KNOWN)}. {remedy}"
            )
    if not ORDER.fullmatch(" ".join(kind for kind in kinds if kind != "Dropout")):
        raise CheckpointError(
            f"{path} has the modules {', '.join(kinds)}, and known is this order: {NETWORK}, "
            f"Pooling, any number of Dense, Normalize. {remedy}"
        )
    return modules


def _dense(modules):
    return [folder for kind, folder in modules if kind == "Dense"]


def _pooling(path, has_prompt):
    config = read_json(path)
    known = ("word_embedding_dimension", "embedding_dimension", "include_prompt", "pooling_mode")
    _refuse_others(path, config, (*known, *FLAGS), {})
    names = config.get("pooling_mode")
    if names is None:
        names = [name for flag, name in FLAGS.items() if config.get(flag, name == "mean")]
    names = [names] if isinstance(names, str) else names or ["mean"]
    for name in names:
        if name not in POOLINGS:
            raise CheckpointError(f"{path} has the pooling {name!r}: known are {[*POOLINGS]}.")
    if has_prompt and not config.get("include_prompt", True):
        raise CheckpointError(
            f"{path} has include_prompt=False, and a prompt that pooling leaves out is not known: "
            "pass prompt=None to do without, or pooling."
        )
    poolings = [POOLINGS[name] for name in names]
    return poolings if len(poolings) > 1 else poolings[0]


def _projection(folder):
    """Return a dense layer as one of the `projections` of `FeatureExtractor`."""
    path = folder / "config.json"
    config = {"bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
    config |= read_json(path)
    known = ("in_features", "out_features", "bias", "activation_function")
    _refuse_others(path, config, known, ONLY_OF_VECTORS)
    if config["activation_function"] not in ACTIVATIONS:
        raise CheckpointError(
            f"{path} has activation_function={config['activation_function']!r}: known are "
            f"{', '.join(ACTIVATIONS)}."
        )
    inputs, outputs = config.get("in_features"), config.get("out_features")
    stated = {"linear.weight": (outputs, inputs)}
    if config["bias"]:
        stated["linear.bias"] = (outputs,)
    found = {name: shape for name, (shape, _) in _weights(folder).items()}
    if found != stated:
        raise CheckpointError(
            f"{folder} has tensors of the shapes {found}, and its config.json asks for {stated}: "
            "copy or download it again."
        )
    return {
        "output_dim": outputs,
        "activation": ACTIVATIONS[config["activation_function"]],
        "use_bias": bool(config["bias"]),
    }


def _weights(folder):
    return read_first(folder, SAFETENSORS | TORCH)


def _refuse_others(path, config, known, only):
    """Raise a CheckpointError if there are other keys than `known`, or other values than `only`.

    A value that is None, False or empty says nothing.
    """
    for key, value in config.items():
        if key not in known and value and value != only.get(key):
            raise CheckpointError(
                f"{path} has {key}={value!r}, "
                + (f"and known is only {only[key]!r}." if key in only else "which is not known.")
            )
