"""Folders of the library sentence-transformers: a network, and what makes one vector of its output.

`modules.json` lists modules in the order in which they run: the network and its pooling, or a table
of static vectors, of which the mean is taken; and perhaps dense layers and a normalisation. Each
has a folder with its `config.json`, and weights if it has any. How texts are read is in the
network's folder and in `config_sentence_transformers.json`. These files are read, up to those of
version 6, and written.
"""

import functools
import json
import pathlib
import re
import shutil

from keras_lm.converters import static_vectors
from keras_lm.converters.checked_files import (
    CheckpointError,
    Entries,
    LazyTensors,
    read_first,
    read_json,
    write_safetensors,
)
from keras_lm.converters.formats import SAFETENSORS, TORCH
from keras_lm.utils.user_arguments import warn

# === What the entries of each file mean ===

# Poolings, their names → ours, and the older flags, in the order in which several are joined.
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
ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Mish": "mish",
    "torch.nn.modules.activation.ELU": "elu",
    "torch.nn.modules.activation.SELU": "selu",
    "torch.nn.modules.activation.ReLU6": "relu6",
    "torch.nn.modules.activation.Softplus": "softplus",
    "torch.nn.modules.activation.Softsign": "softsign",
    "torch.nn.modules.activation.Hardsigmoid": "hard_sigmoid",
    "torch.nn.modules.activation.Hardswish": "hard_silu",
    "torch.nn.modules.activation.Hardtanh": "hard_tanh",
    "torch.nn.modules.activation.CELU": "celu",
    "torch.nn.modules.activation.LogSigmoid": "log_sigmoid",
    "torch.nn.modules.activation.Hardshrink": "hard_shrink",
    "torch.nn.modules.activation.Softshrink": "soft_shrink",
    "torch.nn.modules.activation.Tanhshrink": "tanh_shrink",
}
# PyTorch has each of its classes in several modules.
_PLACE = re.compile(r"torch\.nn\.(modules\.)?((activation|linear)\.)?(?=\w+$)")
_OWN_ACTIVATIONS = {_PLACE.sub("", theirs): ours for theirs, ours in ACTIVATIONS.items()}


def own_activation(name):
    """Return our name of an activation, a class of PyTorch's by its whole name; None for none."""
    is_known = isinstance(name, str) and _PLACE.match(name)
    return _OWN_ACTIVATIONS.get(_PLACE.sub("", name)) if is_known else None


# modules.json, of each module.
MODULE = Entries(read={"type", "path"}, implied={"idx", "name"}, harmless={"kwargs"})
# config_sentence_transformers.json.
SETTINGS = Entries(
    read={"activation_fn", "default_prompt_name", "max_active_dims", "model_type", "prompts"}
    | {"similarity_fn_name", "truncate_dim"}
    # Of PyLate's late interaction.
    | {"query_prefix", "document_prefix", "query_length", "document_length", "skiplist_words"}
    | {"attend_to_expansion_tokens", "do_query_expansion"},
    harmless={"__version__", "keep_in_fp32_modules", "requirements"},
)
# `sentence_transformers` in the config.json of a CrossEncoder.
CROSS_ENCODER = Entries(read={"activation_fn"}, harmless={"version"})
# router_config.json, and its `parameters`.
ROUTER = Entries(read={"types", "structure", "parameters"})
ROUTES = Entries(read={"default_route", "allow_empty_key"}, refused={"route_mappings": ({},)})

_OF_VECTORS = {
    "module_input_name": ("sentence_embedding",),
    "module_output_name": ("sentence_embedding",),
}
_TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
_NOTHING = ({},)
# Each module that is followed → its file's entries.
KNOWN = {
    "Transformer": Entries(
        read={"do_lower_case", "max_seq_length"},
        # Of the time that it takes, or of texts that are encoded as queries or documents.
        harmless={"document_length", "query_expansion", "query_length", "unpad_inputs"},
        refused={
            "transformer_task": ("feature-extraction",),
            "module_output_name": ("token_embeddings",),
            "modality_config": (_TEXT,),
            "processing_kwargs": _NOTHING,
            "model_args": _NOTHING,
            "model_kwargs": _NOTHING,
            "config_args": _NOTHING,
            "config_kwargs": _NOTHING,
            "tokenizer_args": _NOTHING,
            "processor_kwargs": _NOTHING,
            "tokenizer_name_or_path": (),
            "backend": ("torch",),
        },
    ),
    "StaticEmbedding": Entries(),
    "WeightedLayerPooling": Entries(  # which does nothing unless `output_hidden_states` is stated
        harmless={"embedding_dimension", "word_embedding_dimension"}
        | {"layer_start", "num_hidden_layers"}
    ),
    "Pooling": Entries(
        read={"include_prompt", "pooling_mode", *FLAGS},
        implied={"embedding_dimension", "word_embedding_dimension"},
    ),
    "Dense": Entries(
        read={"activation_function", "bias", "in_features", "out_features", "use_residual"},
        refused=_OF_VECTORS,
    ),
    "LayerNorm": Entries(implied={"dimension"}),
    "Dropout": Entries(harmless={"dropout"}),
    "Normalize": Entries(refused=_OF_VECTORS),
}
# The network of a CrossEncoder, whose head is transformers'.
_LOGITS = {"text": {"method": "forward", "method_output_name": "logits"}}
OF_PAIRS = KNOWN["Transformer"] | Entries(
    refused={
        "transformer_task": ("sequence-classification",),
        "module_output_name": ("scores",),
        "modality_config": (_LOGITS,),
    }
)
# The network of a SparseEncoder, a masked language model.
OF_TOKENS = KNOWN["Transformer"] | Entries(
    refused={"transformer_task": ("fill-mask",), "modality_config": (_LOGITS,)}
)
# Its pooling; `chunk_size` is of the memory that it takes.
SPARSE_POOLING = Entries(
    read={"pooling_strategy", "activation_function"},
    implied={"embedding_dimension", "word_embedding_dimension"},
    harmless={"chunk_size"},
)
# Weights of queries' tokens; `path` is of a table in another form.
WEIGHTS_OF_TOKENS = Entries(read={"frozen"}, refused={"path": ()})
# Entries of `model_args` and the like that change no output.
LOADING = {
    "add_pooling_layer",
    "attn_implementation",
    "device_map",
    "dtype",
    "low_cpu_mem_usage",
    "torch_dtype",
    "trust_remote_code",
    "use_fast",
    "use_safetensors",
}


# === Folders ===

MODULES = "modules.json"
MODEL = "config_sentence_transformers.json"
TOKENIZER = "tokenizer.json"
NETWORK = "Transformer"
STATIC = "StaticEmbedding"  # a table of vectors of tokens, and their mean
MASKED_LM = "MLMTransformer"  # the older name of a network with its head
SPARSE = "SpladePooling"
TOKEN_WEIGHTS = "SparseStaticEmbedding"  # of queries, of which no network is asked
# The `model_type` of late interaction; the second is PyLate's.
MULTI_VECTOR = ("MultiVectorEncoder", "ColBERT")
ROUTERS = ("Router", "Asym")  # the second is its older name
AFTER = ("Dense", "LayerNorm", "Normalize")  # of vectors, in any order
WITHOUT_EFFECT = ("Dropout", "WeightedLayerPooling")
ORDER = re.compile(f"({NETWORK} Pooling|{STATIC})( {'| '.join(AFTER)})*")
# The network's settings, once in a file that was named by the kind of network.
KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
LONGEST = 1_000_000  # tokens; what states more than these states no length
LEAVES = {
    "Dense": {
        "linear.weight": "kernel",
        "linear.bias": "bias",
        "residual.weight": "residual/kernel",
    },
    "LayerNorm": {"norm.weight": "gamma", "norm.bias": "beta"},
}


class SentenceFiles:
    """The files that say what a folder of sentence-transformers does, each read and checked once.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.

    Attributes:
        settings: dict, its `config_sentence_transformers.json`, `{}` if there is none.
        modules: list of (class, folder) of the modules, in the order in which they run.
        is_cross_encoder, is_sparse: bool, whether these say that it is one, or a `SparseEncoder`.
        network_config: the path and the entries of the file that says how a network reads texts.
    """

    def __init__(self, checkpoint):
        self.root, self.vocabulary_folder = checkpoint.root, checkpoint.vocabulary_folder

    @functools.cached_property
    def settings(self):
        path = self.root / MODEL
        settings = read_json(path) if path.is_file() else {}
        SETTINGS.check(settings, str(path), "keras_lm")
        return settings

    @property
    def is_cross_encoder(self):
        return self.settings.get("model_type") == "CrossEncoder"

    @functools.cached_property
    def unread_routes(self):
        """Name → (class, folder) of the modules of a router's routes that `modules` are not of.

        They are those of queries and of documents; routes of other inputs do not count.
        """
        path, unread = self.root / MODULES, {}
        for entry in read_json(path, list):
            entry = entry if isinstance(entry, dict) else {}
            kind, folder = _module(path, self.root, entry.get("type"), entry.get("path"))
            if kind in ROUTERS:
                routes, taken = _routes(folder)[1], _routed(folder)
                names = [name for name in ("query", "document") if name in routes]
                unread |= {name: routes[name] for name in names if routes[name] != taken}
        return unread

    @property
    def is_sparse(self):
        return any(kind == SPARSE for kind, _ in self.modules)

    @property
    def kind(self):
        """The library's class that loads the folder, if it is no `CrossEncoder`."""
        if self.is_sparse:
            return "SparseEncoder"
        named = self.settings.get("model_type")
        return "MultiVectorEncoder" if named in MULTI_VECTOR else "SentenceTransformer"

    @functools.cached_property
    def modules(self):
        path = self.root / MODULES
        for entry in read_json(path, list):
            MODULE.check(entry if isinstance(entry, dict) else {}, str(path), "keras_lm")
        return _modules(self.root)

    @functools.cached_property
    def network_config(self):
        paths = [self.vocabulary_folder / f"sentence_{kind}_config.json" for kind in KINDS]
        path = next(filter(pathlib.Path.is_file, paths), None)
        config = {} if path is None else read_json(path)
        loading = {"model_args", "model_kwargs", "config_args", "config_kwargs"}
        for name in config.keys() & (loading | {"tokenizer_args", "processor_kwargs"}):
            if isinstance(config[name], dict):
                config[name] = {k: v for k, v in config[name].items() if k not in LOADING}
        if self.is_cross_encoder:
            check_entries(OF_PAIRS, path, config, "keras_lm")
        elif self.is_sparse:
            check_entries(OF_TOKENS, path, config, "SparseEncoder")
        else:
            check_entries(KNOWN[NETWORK], path, config)
        return path, config


def network_folder(root: pathlib.Path) -> pathlib.Path:
    """Return the folder of the network: `root`, or in older layouts one that `modules.json` names.

    Args:
        root: a folder with a `modules.json`.

    Raises:
        CheckpointError: if it has no network that is known.
    """
    has_weights = any((root / name).is_file() for name in SAFETENSORS | TORCH)
    if has_weights and (root / "config.json").is_file():
        return root
    kind, folder = next(iter(_modules(root)), (None, root))
    if kind not in (NETWORK, MASKED_LM, STATIC):
        raise CheckpointError(
            f"{root / MODULES} begins with the module {kind!r}, which is not supported: use "
            f"{NETWORK} or {MASKED_LM}, networks of transformers', or {STATIC}."
        )
    if not folder.is_dir():
        raise CheckpointError(
            f"{root / MODULES} names the folder {folder.name!r}, which is missing. Copy it there."
        )
    return folder


def cross_encoder_activation(checkpoint, num_classes):
    """Return a `CrossEncoder`'s activation of its logits, such as `"sigmoid"`, or None without one.

    An unknown name is returned unchanged.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        num_classes: int. With one, it is a sigmoid by default.
    """
    own = checkpoint.sentence_files.settings
    named = checkpoint.config.get("sentence_transformers")
    if isinstance(named, dict):
        CROSS_ENCODER.check(named, f"sentence_transformers of {checkpoint.source}", "keras_lm")
    older = "sbert_ce_default_activation_function"
    if "activation_fn" in own:
        name = own["activation_fn"]
    elif isinstance(named, dict):
        name = named.get("activation_fn")
    elif older in checkpoint.config:
        name = checkpoint.config[older]
    elif checkpoint.sentence_files.is_cross_encoder:
        name = None
    else:
        return None
    if name is None:
        return "sigmoid" if num_classes == 1 else "linear"
    return own_activation(name) or name


def check_cross_encoder(checkpoint):
    """Raise a CheckpointError if a `CrossEncoder` has modules after its network."""
    if not checkpoint.has_modules or not checkpoint.sentence_files.is_cross_encoder:
        return
    kinds = [kind for kind, _ in checkpoint.sentence_files.modules]
    if kinds != [NETWORK]:
        raise CheckpointError(
            f"{checkpoint.root / MODULES} is a CrossEncoder's and has the modules "
            f"{', '.join(kinds)}, of which only {NETWORK} alone is read."
        )


def cross_encoder_prompt(checkpoint):
    """Return what a `CrossEncoder` puts before the first text of each pair, a str, or None."""
    is_one = (checkpoint.root / MODULES).is_file()  # its library reads it only then
    return _default_prompt(checkpoint) if is_one else None


# === How texts are read ===


def read_inputs(checkpoint, limit):
    """Return how texts are read, as arguments of `FeatureExtractor`.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        limit: int, the tokens that the network has positions for; None for no limit.

    Raises:
        CheckpointError: if a file is damaged, or states what is not done.
    """
    if checkpoint.sentence_files.modules[0][0] == STATIC:
        return {
            "sequence_length": _static_length(checkpoint),
            "prompt": _default_prompt(checkpoint),
        }
    path, config = checkpoint.sentence_files.network_config
    length = config.get("max_seq_length")
    if length is None:
        path = checkpoint.vocabulary_folder / "tokenizer_config.json"
        length = read_json(path).get("model_max_length") if path.is_file() else None
    _check_length(path, length)
    length = min(value for value in (length, limit, LONGEST) if value is not None)
    if length == LONGEST:
        raise CheckpointError(
            f"{checkpoint.source} states no max_seq_length, and its network has no limit: pass "
            "sequence_length."
        )
    return {
        "sequence_length": int(length),
        "prompt": _default_prompt(checkpoint),
        "lowercase": bool(config.get("do_lower_case")),
    }


def _static_length(checkpoint):
    """Return the tokens of a text that static vectors are read of: all, unless files say less."""
    path = checkpoint.vocabulary_folder / TOKENIZER
    truncation = (read_json(path) if path.is_file() else {}).get("truncation") or {}
    length = truncation.get("max_length")
    _check_length(path, length)
    return LONGEST if length is None else int(min(length, LONGEST))


def cross_encoder_limits(checkpoint, limit):
    """Return how a `CrossEncoder` cuts texts, as arguments of a task; `{}` for other folders.

    Args:
        checkpoint, limit: see `read_inputs`.

    Raises:
        CheckpointError: if a file is damaged, or states what is not done.
    """
    if not checkpoint.has_modules or not checkpoint.sentence_files.is_cross_encoder:
        return {}
    path, config = checkpoint.sentence_files.network_config
    of_tokenizer = checkpoint.vocabulary_folder / "tokenizer_config.json"
    lowercases = of_tokenizer.is_file() and read_json(of_tokenizer).get("do_lower_case")
    if config.get("do_lower_case") and not lowercases:
        raise CheckpointError(
            f"{path} has do_lower_case=True, and its tokenizer keeps the case: a task of pairs "
            "reads texts as its tokenizer does."
        )
    length = config.get("max_seq_length")
    _check_length(path, length)
    lengths = [int(value) for value in (length, limit) if value is not None]
    return {} if length is None else {"sequence_length": min(lengths)}


def _check_length(path, length):
    if length is not None and (type(length) not in (int, float) or length < 1):
        raise CheckpointError(
            f"{path} states a length of {length!r} tokens: copy or download it again."
        )


def read_prompts(checkpoint):
    """Return the prompts that a folder names, without empty ones.

    Raises:
        CheckpointError: if one is not a string.
    """
    prompts = checkpoint.sentence_files.settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise CheckpointError(
            f"{checkpoint.root / MODEL} has prompts={prompts!r}, which is not a dict of strings. "
            "Correct it, or pass prompts."
        )
    return {name: prompt for name, prompt in prompts.items() if prompt}


def read_similarity(checkpoint):
    """Return how vectors of a folder are compared, `"cosine"` or `"dot"`.

    Raises:
        CheckpointError: if the folder names what sentence-transformers does not know.
    """
    name = checkpoint.sentence_files.settings.get("similarity_fn_name") or "cosine"
    if name in ("euclidean", "manhattan"):
        warn(f"{checkpoint.root / MODEL} compares by {name!r} distances: cosines are taken.")
        return "cosine"
    if name not in ("cosine", "dot"):
        raise CheckpointError(
            f"{checkpoint.root / MODEL} has similarity_fn_name={name!r}, which is not 'cosine' or "
            "'dot'. Correct it, or pass similarity."
        )
    return name


def _default_prompt(checkpoint):
    config = checkpoint.sentence_files.settings
    name, prompts = config.get("default_prompt_name"), config.get("prompts")
    if name is None:
        return None
    prompt = prompts.get(name) if isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise CheckpointError(
            f"{checkpoint.root / MODEL} has default_prompt_name={name!r}, which is not one of "
            f"its prompts, {prompts!r}. Correct it, or pass prompt."
        )
    return prompt or None


# === What is done with the network's output ===


def read_head(checkpoint):
    """Return what is done with the network's output, as arguments of `FeatureExtractor`.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.

    Raises:
        CheckpointError: if a file is missing or damaged, or states what is not done.
    """
    modules = _known_modules(checkpoint)
    for name in checkpoint.sentence_files.unread_routes:
        warn(
            f"{checkpoint.root / MODULES} has a route of its own for each {name}, which is not "
            "read: all texts take the other one. To read it in place of that, write "
            f'"default_route": "{name}" into the router_config.json of a copy.'
        )
    steps = [_step(kind, folder) for kind, folder in modules if kind in AFTER]
    is_last = bool(steps) and steps[-1] == {"layer": "normalize"}
    pooling = next((folder for kind, folder in modules if kind == "Pooling"), None)
    config = {} if pooling is None else read_json(pooling / "config.json")
    settings = checkpoint.sentence_files.settings
    return {
        "pooling": "mean" if pooling is None else _pooling(pooling / "config.json", config),
        "pool_prompt": bool(config.get("include_prompt", True)),
        "projections": (steps[:-1] if is_last else steps) or None,
        "normalize": is_last,
        "truncate_dim": settings.get("truncate_dim"),
    }


def read_sparse_head(checkpoint):
    """Return what is done with the logits of a masked language model, as a dict of arguments.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.

    Raises:
        CheckpointError: if a file is missing or damaged, or states what is not done.
    """
    path, modules = checkpoint.root / MODULES, checkpoint.sentence_files.modules
    kinds = [kind for kind, _ in modules]
    if len(kinds) != 2 or kinds[0] not in (NETWORK, MASKED_LM) or kinds[1] != SPARSE:
        raise CheckpointError(
            f"{path} has the modules {', '.join(kinds)}; a SparseEncoder reads {NETWORK} or "
            f"{MASKED_LM}, and {SPARSE}. For a new one over this network, pass the backbone: "
            "SparseEncoder(models.Backbone.from_preset(SOURCE), tokenizer=…)."
        )
    queries = checkpoint.sentence_files.unread_routes.get("query")
    if queries is not None and [kind for kind, _ in queries] != [TOKEN_WEIGHTS]:
        raise CheckpointError(
            f"{path} has queries take the modules {', '.join(kind for kind, _ in queries)}; a "
            f"SparseEncoder reads those of documents, or {TOKEN_WEIGHTS} alone."
        )
    is_frozen = False
    if queries is not None:
        config = read_json(queries[0][1] / "config.json")
        check_entries(WEIGHTS_OF_TOKENS, queries[0][1] / "config.json", config, "SparseEncoder")
        is_frozen = bool(config.get("frozen"))
    path = modules[1][1] / "config.json"
    config = read_json(path)
    check_entries(SPARSE_POOLING, path, config, "SparseEncoder")
    return {
        "static_queries": queries is not None,
        "freeze_queries": is_frozen,
        "pooling": config.get("pooling_strategy", "max"),
        "activation": config.get("activation_function", "relu"),
        "top_k": checkpoint.sentence_files.settings.get("max_active_dims"),
    }


def read_projections(checkpoint):
    """Return the `LazyTensors` of the layers after pooling, by our names of them.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
    """
    if checkpoint.sentence_files.is_sparse:
        return _read_token_weights(checkpoint.sentence_files.unread_routes.get("query"))
    return read_steps([module for module in _known_modules(checkpoint) if module[0] in AFTER])


def _read_token_weights(queries):
    if queries is None:
        return {}
    tensors = _weights(queries[0][1])
    if "weight" not in tensors:
        raise CheckpointError(f"{queries[0][1]} lacks the tensor 'weight': copy it again.")
    return LazyTensors({"query_weights/token_weights": tensors["weight"]})


def read_steps(steps):
    """Return the `LazyTensors` of layers by our names of them, given (class, folder) of each."""
    entries = {}
    for number, (kind, folder) in enumerate(steps):
        for name, (shape, read) in (_weights(folder) if kind in LEAVES else {}).items():
            path = f"projection_{number}/{LEAVES[kind][name]}"
            entries[path] = (shape[::-1], functools.partial(_transposed, read))
    return LazyTensors(entries)


def _transposed(read):
    return read().T  # written as (out, in)


def _modules(root):
    """Return (class, folder) of the modules, in the order in which they run.

    Of a router's, they are those of its default route.
    """
    path, modules = root / MODULES, []
    for entry in read_json(path, list):
        entry = entry if isinstance(entry, dict) else {}
        kind, folder = _module(path, root, entry.get("type"), entry.get("path"))
        modules += _routed(folder) if kind in ROUTERS else [(kind, folder)]
    return modules


def _module(path, root, kind, folder):
    """Return the class of a module that a file names, and its folder."""
    if not isinstance(kind, str) or not isinstance(folder, str):
        raise CheckpointError(
            f"{path}: a module needs 'type' and 'path', two strings, and there are {kind!r} and "
            f"{folder!r}. Copy or download it again."
        )
    parts = pathlib.PureWindowsPath(folder)  # which knows both kinds of slashes
    # A downloaded list must not make us open files elsewhere on the disk.
    if parts.anchor or ".." in parts.parts:
        raise CheckpointError(
            f"{path} names the folder {folder!r}, which is not in {root}: correct the path."
        )
    if kind.startswith("sentence_transformers."):  # else code of the folder's own
        kind = kind.rpartition(".")[2]
    return kind, root.joinpath(*parts.parts)


def _routed(folder):
    """Return the modules of a router's route, see `_modules`."""
    path, routes, parameters = _routes(folder)
    route = parameters.get("default_route")
    if route is None and parameters.get("allow_empty_key", True):
        route = next(iter(routes))
    route = "text" if "text" in routes else route
    if route not in routes:
        raise CheckpointError(
            f"{path} has default_route={route!r}, and its routes are {', '.join(routes)}: write "
            "one of them there, for texts to take it."
        )
    is_static = [kind for kind, _ in routes[route]] == [TOKEN_WEIGHTS]
    return routes["document" if is_static and "document" in routes else route]


def _routes(folder):
    """Return the path of a router's file, (class, folder) of the modules of each route, and more.

    The third are its `parameters`.
    """
    names = ("router_config.json", "config.json")  # the second is Asym's
    path = next((folder / name for name in names if (folder / name).is_file()), folder / names[0])
    config = read_json(path)
    routes, types = config.get("structure"), config.get("types")
    parameters = config.get("parameters") or {}
    ROUTER.check(config, str(path), "keras_lm")
    if not isinstance(types, dict) or not isinstance(routes, dict) or not routes:
        raise CheckpointError(f"{path} lacks 'types' or 'structure': copy or download it again.")
    ROUTES.check(parameters, str(path), "keras_lm")
    modules = {
        route: [_module(path, folder, types.get(name), name) for name in names]
        for route, names in routes.items()
    }
    return path, modules, parameters


def _known_modules(checkpoint):
    """Return the modules if they are a network, its pooling, and layers of vectors."""
    path, modules = checkpoint.root / MODULES, checkpoint.sentence_files.modules
    kinds = [kind for kind, _ in modules]
    remedy = "Name layers or pooling for vectors of the network alone."
    for kind in kinds:
        if kind not in KNOWN:
            raise CheckpointError(
                f"{path} has the module {kind!r}; supported: {', '.join(KNOWN)}. {remedy}"
            )
    # It mixes hidden states, which the network does not return otherwise.
    if "WeightedLayerPooling" in kinds and checkpoint.config.get("output_hidden_states"):
        raise CheckpointError(
            f"{path} has the module 'WeightedLayerPooling', and its network has "
            f"output_hidden_states=True: a mix of these is not supported. {remedy}"
        )
    if not ORDER.fullmatch(" ".join(kind for kind in kinds if kind not in WITHOUT_EFFECT)):
        raise CheckpointError(
            f"{path} has the modules {', '.join(kinds)}; supported is this order: {NETWORK} and "
            f"Pooling, or {STATIC}, and any number of {', '.join(AFTER)}. {remedy}"
        )
    if (kinds[0] == STATIC) != static_vectors.are_all(checkpoint.tensors):
        raise CheckpointError(
            f"{path} begins with the module {kinds[0]!r}, and the weights beside it are of another "
            "kind: copy or download it again."
        )
    return modules


def _pooling(path, config):
    check_entries(KNOWN["Pooling"], path, config)
    names = config.get("pooling_mode")
    if names is None:
        names = [name for flag, name in FLAGS.items() if config.get(flag)]
    names = [names] if isinstance(names, str) else names or ["mean"]
    for name in names:
        if name not in POOLINGS:
            raise CheckpointError(f"{path} has the pooling {name!r}; supported: {[*POOLINGS]}.")
    poolings = [POOLINGS[name] for name in names]
    return poolings if len(poolings) > 1 else poolings[0]


def _step(kind, folder):
    """Return a layer of vectors as one of the `projections` of `FeatureExtractor`."""
    if kind == "Dense":
        return dense_step(folder, KNOWN[kind])
    path = folder / "config.json"
    config = read_json(path) if kind != "Normalize" or path.is_file() else {}
    check_entries(KNOWN[kind], path, config)
    if kind == "Normalize":
        return {"layer": "normalize"}
    _check_shapes(folder, dict.fromkeys(LEAVES[kind], (config.get("dimension"),)))
    return {"layer": "layer_norm"}


def dense_step(folder, known, reader="FeatureExtractor"):
    """Return a dense layer as one of the `projections` of `FeatureExtractor`.

    Args:
        folder: `pathlib.Path` of the module.
        known: `Entries` of its file.
        reader: str, our class, for errors.
    """
    path = folder / "config.json"
    config = read_json(path)
    check_entries(known, path, config, reader)
    config = {"bias": True, "activation_function": "torch.nn.Tanh"} | config
    activation = own_activation(config["activation_function"])
    if activation is None:
        raise CheckpointError(
            f"{path} has activation_function={config['activation_function']!r}; supported: "
            f"{', '.join(ACTIVATIONS)}."
        )
    inputs, outputs = config.get("in_features"), config.get("out_features")
    stated = {"linear.weight": (outputs, inputs)}
    stated |= {"linear.bias": (outputs,)} if config["bias"] else {}
    is_residual = bool(config.get("use_residual"))
    if is_residual and inputs != outputs:
        stated["residual.weight"] = (outputs, inputs)
    _check_shapes(folder, stated)
    arguments = {
        "output_dim": outputs,
        "activation": activation,
        "use_bias": bool(config["bias"]),
    }
    return arguments | ({"use_residual": True} if is_residual else {})


def _check_shapes(folder, stated):
    shapes = {name: shape for name, (shape, _) in _weights(folder).items()}
    if shapes != stated:
        raise CheckpointError(
            f"{folder} has tensors of the shapes {shapes}, and its config.json asks for {stated}: "
            "copy or download it again."
        )


def _weights(folder):
    return read_first(folder, SAFETENSORS | TORCH)


def check_entries(table, path, config, reader="FeatureExtractor"):
    """Raise a CheckpointError for what a module's file states and is not followed.

    A value that is None, False or empty says nothing.
    """
    stated = {name: value for name, value in config.items() if value}
    for name in table.unknown(stated):
        raise CheckpointError(f"{path} has {name}={stated[name]!r}, which is not supported.")
    table.check(stated, str(path), reader)


# === Writing ===

CLASSES = "sentence_transformers.models."
MULTI_VECTOR_MASK = "MultiVectorMask"
PLACES = {
    TOKEN_WEIGHTS: "sentence_transformers.sparse_encoder.models.",
    SPARSE: "sentence_transformers.sparse_encoder.models.",
    MULTI_VECTOR_MASK: "sentence_transformers.multi_vector_encoder.modules.",
}
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
        hidden_dim: int, the width of the network; None for static vectors.
        arguments: dict of `pooling`, `normalize`, `truncate_dim` and `skipped_tokens`, those of
            `FeatureExtractor`.
        projections: list of (dict that describes a layer, dict of its arrays, kernels as (D, E)).
        inputs: dict of the arguments of `FeatureExtractor` for how texts are read:
            `sequence_length`, `prompt`, `lowercase` and, of a `SentenceEncoder`, `prompts` and
            `similarity`.
    """
    if hidden_dim is None:
        modules = [(STATIC, "")]
        _limit_tokens(folder / TOKENIZER, inputs["sequence_length"])
    else:
        modules = [(NETWORK, ""), ("Pooling", "1_Pooling")]
        stated = _pooling_entries(_listed(arguments["pooling"]), hidden_dim)
        stated["include_prompt"] = not arguments["skipped_tokens"]
        write_json(folder / "1_Pooling" / "config.json", stated)
        write_limits(folder, inputs)
    last = [({"layer": "normalize"}, {})] if arguments["normalize"] else []
    modules = write_layers(folder, modules, [*projections, *last])
    write_list(folder, modules)
    cut = arguments["truncate_dim"]
    more = {} if cut is None else {"truncate_dim": cut}
    write_settings(folder, inputs, inputs.get("similarity", "cosine"), more)


def write_layers(folder, modules, layers, more=()):
    """Write the folders of layers; return the modules, (class, folder), with theirs.

    Args:
        folder: `pathlib.Path`.
        modules: list of (class, folder) of those before.
        layers: list of (dict that describes a layer, dict of its arrays, kernels as (D, E)).
        more: dict of entries that their files have besides.
    """
    modules = [*modules]
    for projection, arrays in layers:
        kind = LAYERS[projection.get("layer", "dense")]
        name = f"{len(modules)}_{kind}"
        modules.append((kind, name))
        (folder / name).mkdir()
        if arrays:
            _write_layer(folder / name, kind, projection, arrays, dict(more))
    return modules


def write_sparse_modules(folder, arguments, width, inputs, weights=None):
    """Write `modules.json` and the folder of the pooling beside a masked language model.

    Args:
        folder, inputs: see `write_modules`.
        arguments: dict of those of `SparseEncoder`.
        width: int, the number of tokens.
        weights: float (V,), of the tokens of queries; None if the network reads these, too.
    """
    modules = [(NETWORK, ""), (SPARSE, f"1_{SPARSE}")]
    write_list(folder, modules)
    stated = {"pooling_strategy": arguments["pooling"], "embedding_dimension": width}
    stated["activation_function"] = arguments["activation"]
    write_json(folder / f"1_{SPARSE}" / "config.json", stated)
    of_task = {
        "transformer_task": "fill-mask",
        "modality_config": _LOGITS,
        "module_output_name": "token_embeddings",
    }
    write_limits(folder, inputs, of_task)
    most = arguments["top_k"]
    more = {"model_type": "SparseEncoder"} | ({} if most is None else {"max_active_dims": most})
    write_settings(folder, inputs, "dot", more)
    if weights is not None:
        _write_router(folder, modules, weights, arguments["freeze_queries"])


def _write_router(folder, documents, weights, is_frozen):
    """Write the weights of queries' tokens, and the router by which only documents are encoded."""
    name = f"query_0_{TOKEN_WEIGHTS}"
    write_json(folder / name / "config.json", {"frozen": is_frozen})
    write_safetensors(folder / name, {"weight": weights}, 2**62, {"format": "pt"})
    for path in folder.glob("*token*.json"):  # it has a tokenizer of its own
        shutil.copy(path, folder / name)
    modules = [(TOKEN_WEIGHTS, name), *documents]
    types = {path: f"{PLACES.get(kind, CLASSES)}{kind}" for kind, path in modules}
    structure = {"query": [name], "document": [path for _, path in documents]}
    parameters = {"default_route": "document", "allow_empty_key": True}
    config = {"types": types, "structure": structure, "parameters": parameters}
    write_json(folder / "router_config.json", config)
    write_list(folder, [("Router", "")])


def write_list(folder, modules):
    """Write `modules.json`, of (class, folder) of each module."""
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"{PLACES.get(kind, CLASSES)}{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    write_json(folder / MODULES, entries)


def write_limits(folder, inputs, more=()):
    """Write how the network reads texts, with `more` entries."""
    stated = {"max_seq_length": inputs["sequence_length"], "do_lower_case": inputs["lowercase"]}
    write_json(folder / "sentence_bert_config.json", stated | dict(more))


def write_settings(folder, inputs, similarity, more):
    """Write the settings of a whole folder, among them its prompts."""
    prompts = dict(inputs.get("prompts", {}))
    name = next((name for name, text in prompts.items() if text == inputs["prompt"]), "default")
    prompts |= {name: inputs["prompt"]} if inputs["prompt"] else {}
    name = name if inputs["prompt"] else None
    stated = {"prompts": prompts, "default_prompt_name": name, "similarity_fn_name": similarity}
    write_json(folder / MODEL, stated | more)


def _limit_tokens(path, length):
    """Let the tokenizer.json of static vectors cut texts off, as no other file does."""
    if not path.is_file() or length >= LONGEST:
        return
    limit = {"direction": "Right", "max_length": length, "strategy": "LongestFirst", "stride": 0}
    write_json(path, read_json(path) | {"truncation": limit})


def _pooling_entries(poolings, hidden_dim):
    """Return the entries of several poolings, in the older flags if these join them in order."""
    names = [theirs for ours in poolings for theirs in POOLINGS if POOLINGS[theirs] == ours]
    if names == [name for name in FLAGS.values() if name in names]:
        flags = {flag: name in names for flag, name in FLAGS.items()}
        return {"word_embedding_dimension": hidden_dim, **flags}
    return {"embedding_dimension": hidden_dim, "pooling_mode": names}


def _write_layer(folder, kind, projection, arrays, more):
    if kind == "Dense":
        inputs, outputs = arrays["kernel"].shape
        activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
        activation = activations[projection.get("activation", "linear")]
        stated = {"in_features": inputs, "out_features": outputs, "bias": "bias" in arrays}
        stated |= {"activation_function": activation}
        stated |= {"use_residual": True} if projection.get("use_residual") else {}
    else:
        stated = {"dimension": arrays["gamma"].shape[0]}
    write_json(folder / "config.json", stated | more)
    leaves = {ours: theirs for theirs, ours in LEAVES[kind].items()}
    tensors = {leaves[leaf]: array.T for leaf, array in arrays.items()}
    write_safetensors(folder, tensors, 2**62, {"format": "pt"})


def _listed(pooling):
    return pooling if isinstance(pooling, list) else [pooling]


def write_json(path, value):
    """Write an indented JSON file, and the folder that it is in."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
