"""What published files of Transformer-XL call its weights, and what their configurations say."""

import dataclasses
import functools
import itertools
import re

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entries
from keras_lm.converters.converter import (
    GOOGLE_LEAVES,
    ConfigTable,
    Converter,
    Derived,
    Fixed,
    Key,
    NameTable,
    PyTorchNames,
    Refused,
    match_score,
    require_only,
    transpose_kernels,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.transformer_xl import TransformerXLBackbone
from keras_lm.models.transformer_xl_layers import frequencies

_MOST_CLUSTERS, _MOST_LAYERS = 16, 64  # of which copies are known


def _holds_frequencies(array):
    return array.ndim == 1 and np.allclose(array, frequencies(2 * array.size), rtol=1e-2)


NAMES = PyTorchNames(
    {
        "token_embedding/cluster_{i}/embeddings": "word_emb.emb_layers.{i}.weight",
        "token_embedding/cluster_{i}/projection": "word_emb.emb_projs.{i}",
        "token_head/cluster_{i}/projection": "crit.out_projs.{i}",
        "token_head/cluster_{i}/embeddings": "crit.out_layers.{i}.weight",
        "token_head/cluster_{i}/bias": "crit.out_layers.{i}.bias",
        "token_head/others/kernel": "crit.cluster_weight",
        "token_head/others/bias": "crit.cluster_bias",
        "biases/content": "r_w_bias",
        "biases/position": "r_r_bias",
        "block_{i}/attention/biases/content": "layers.{i}.dec_attn.r_w_bias",
        "block_{i}/attention/biases/position": "layers.{i}.dec_attn.r_r_bias",
        "block_{i}/attention/query_key_value": "layers.{i}.dec_attn.qkv_net",
        "block_{i}/attention/position": "layers.{i}.dec_attn.r_net",
        "block_{i}/attention/output": "layers.{i}.dec_attn.o_net",
        "block_{i}/attention_norm": "layers.{i}.dec_attn.layer_norm",
        "block_{i}/feedforward/intermediate": "layers.{i}.pos_ff.CoreNet.0",
        "block_{i}/feedforward/output": "layers.{i}.pos_ff.CoreNet.3",
        "block_{i}/feedforward_norm": "layers.{i}.pos_ff.layer_norm",
        "classifier/logits": "score",
    },
    prefix=r"transformer\.",
    buffers={"pos_emb.inv_freq": _holds_frequencies},
    copies={
        f"crit.out_layers.{i}.weight": f"word_emb.emb_layers.{i}.weight"
        for i in range(_MOST_CLUSTERS)
    }
    | {
        f"crit.out_projs.{i}": (f"word_emb.emb_projs.{i}", "word_emb.emb_projs.0")
        for i in range(_MOST_CLUSTERS)
    }
    | {
        f"layers.{i}.dec_attn.{name}": name
        for i in range(_MOST_LAYERS)
        for name in ("r_w_bias", "r_r_bias")
    },
    constants={"pos_emb.inv_freq": lambda arguments: frequencies(arguments["hidden_dim"])},
)


def _reversed_clusters(path, array):
    """The layout of the authors' PyTorch code, which counts clusters from the last column."""
    array = transpose_kernels(path, array)
    return array[..., ::-1] if path.startswith("token_head/others/") else array


AUTHORS_NAMES = dataclasses.replace(NAMES, layout=_reversed_clusters)


class _TensorFlowNames(NameTable):
    """The names of the authors' TensorFlow code, where each cluster has a bias of its own."""

    def load(self, variables, tensors):
        names, resolved = self.names, self.resolve(tensors)
        if "adaptive_embed/cutoff_1/lookup_table" not in resolved:  # they share one table
            biases = sorted(
                (name for name in resolved if re.fullmatch(r"adaptive_softmax/cutoff_\d+/b", name)),
                key=lambda name: int(re.search(r"\d+", name)[0]),
            )
            names = names | {"token_head/cluster_{i}/bias": tuple(biases)}
        return NameTable.load(dataclasses.replace(self, names=names), variables, tensors)


def _tensorflow_layout(path, array):
    if path.endswith(("/projection", "/others/kernel")):
        return array.T
    number = re.match(r"block_(\d+)/attention/biases/", path)
    return array[int(number[1])] if number and array.ndim == 3 else array


TENSORFLOW_NAMES = _TensorFlowNames(
    {
        "token_embedding/cluster_{i}/embeddings": "adaptive_embed/cutoff_{i}/lookup_table",
        "token_embedding/cluster_{i}/projection": "adaptive_embed/cutoff_{i}/proj_W",
        "token_head/cluster_{i}/projection": "adaptive_softmax/cutoff_{i}/proj",
        "token_head/cluster_{i}/bias": "adaptive_softmax/cutoff_{i}/b",
        "token_head/others/kernel": "adaptive_softmax/cutoff_0/cluster_W",
        "token_head/others/bias": "adaptive_softmax/cutoff_0/cluster_b",
        "biases/content": "r_w_bias",
        "biases/position": "r_r_bias",
        "block_{i}/attention/biases/content": "r_w_bias",
        "block_{i}/attention/biases/position": "r_r_bias",
        "block_{i}/attention/query_key_value": "layer_{i}/rel_attn/qkv",
        "block_{i}/attention/position": "layer_{i}/rel_attn/r",
        "block_{i}/attention/output": "layer_{i}/rel_attn/o",
        "block_{i}/attention_norm": "layer_{i}/rel_attn/LayerNorm",
        "block_{i}/feedforward/intermediate": "layer_{i}/ff/layer_1",
        "block_{i}/feedforward/output": "layer_{i}/ff/layer_2",
        "block_{i}/feedforward_norm": "layer_{i}/ff/LayerNorm",
    },
    leaves=GOOGLE_LEAVES,
    layout=_tensorflow_layout,
    prefix="transformer/",
    spellings={
        "adaptive_embed/lookup_table": "adaptive_embed/cutoff_0/lookup_table",
        "adaptive_embed/proj_W": "adaptive_embed/cutoff_0/proj_W",
        "adaptive_softmax/bias": "adaptive_softmax/cutoff_0/b",
    },
)


def _settings(config):
    """Return the arguments that no tensor shows; our defaults for what is not stated."""
    clamp_length = config.get("clamp_len", -1)
    return {
        **({"memory_length": config["mem_len"]} if "mem_len" in config else {}),
        "clamp_length": clamp_length if clamp_length > 0 else None,
        "same_length": config.get("same_length", False),
        "pre_norm": bool(config.get("pre_lnorm", False)),
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("dropatt", 0.0),
    }


# Sizes in the authors' configurations, which their tensors have to agree with.
_SIZES = {
    "n_token": "vocabulary_size",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "d_model": "hidden_dim",
    "d_inner": "intermediate_dim",
    "d_head": "head_dim",
    "d_embed": "embedding_dim",
    "cutoffs": "cutoffs",
}


def _as_stated(checkpoint, arguments):
    """Return arguments by tensors; raise a CheckpointError if the configuration has others."""
    for theirs, ours in _SIZES.items():
        stated = checkpoint.config.get(theirs)
        if stated is not None and stated != arguments[ours]:
            raise CheckpointError(
                f"{checkpoint.source}: its configuration has {theirs}={stated}, and its tensors "
                f"{arguments[ours]}: it is another checkpoint's. Copy or download it again."
            )
    return arguments


def _check_huggingface(checkpoint):
    words, states = (checkpoint.config.get(key) for key in ("d_embed", "d_model"))
    if "score.weight" in checkpoint.tensors and words != states:
        raise CheckpointError(
            f"{checkpoint.source}: its classifier reads the network's vectors, d_model={states}, "
            f"with a matrix for those of words, d_embed={words}, and the two are not equally wide."
        )


def _tied_projections(config, tensors=None):
    tied = config.get("tie_projs")
    if tied is None and not config.get("proj_share_all_but_first", True):
        tied = []
    # Those beyond a list are not tied, as there.
    number = len(config["cutoffs"]) + 1
    return None if tied is None else [*tied, *[False] * number][:number]


def _write_projections(arguments):
    tied = arguments["tie_projections"]
    return {} if tied is None else {"tie_projs": [bool(is_tied) for is_tied in tied]}


def _projects_anyway(arguments):
    """Whether no cluster's vectors are as wide as the network's, or all are in one table."""
    width, div_val = arguments["embedding_dim"] or arguments["hidden_dim"], arguments["div_val"]
    widths = [width // div_val**i for i in range(len(arguments["cutoffs"]) + 1)]
    return div_val == 1 or arguments["hidden_dim"] not in widths


def _write_memory(arguments):
    length = arguments["memory_length"]
    if length == 0 and arguments["same_length"]:  # there, no token would attend to itself
        raise Refused("memory_length", length, "1 or more with same_length=True")
    return {"mem_len": length}


def _clamp_length(config, tensors=None):
    length = config.get("clamp_len", 1000)
    return length if length > 0 else None


_CONFIG = ConfigTable(
    TransformerXLBackbone,
    "transfo-xl",
    {
        "vocabulary_size": Key("vocab_size"),
        "num_layers": Key("n_layer"),
        "num_heads": Key("n_head"),
        "hidden_dim": Key("d_model"),
        "intermediate_dim": Key("d_inner"),
        "head_dim": Derived(
            lambda config, _: config["d_head"],
            lambda given: {
                "d_head": given["head_dim"] or given["hidden_dim"] // given["num_heads"]
            },
        ),
        "embedding_dim": Derived(
            lambda config, _: config["d_embed"],
            lambda given: {"d_embed": given["embedding_dim"] or given["hidden_dim"]},
        ),
        "cutoffs": Derived(
            lambda config, _: config["cutoffs"], lambda given: {"cutoffs": [*given["cutoffs"]]}
        ),
        "div_val": Key("div_val", 4),
        "project_all": Fixed(True, unless=_projects_anyway),
        "tie_projections": Derived(_tied_projections, _write_projections),
        "tie_embeddings": Derived(
            lambda config, _: config.get("tie_word_embeddings", config.get("tie_weight", True)),
            lambda given: {"tie_word_embeddings": given["tie_embeddings"]},
        ),
        "memory_length": Derived(lambda config, _: config.get("mem_len", 1600), _write_memory),
        "clamp_length": Derived(
            _clamp_length, lambda given: {"clamp_len": given["clamp_length"] or -1}
        ),
        "same_length": Key("same_length", True),
        "counts_itself": Fixed(True, unless=lambda given: not given["same_length"]),
        "starts_empty": Fixed(False, unless=lambda given: given["memory_length"] == 0),
        "pre_norm": Derived(
            lambda config, _: bool(config.get("pre_lnorm", False)),
            lambda given: {"pre_lnorm": given["pre_norm"]},
        ),
        "untie_biases": Key("untie_r", True),
        "dropout": Key("dropout", 0.1),
        "attention_dropout": Key("dropatt", 0.0),
        "layer_norm_epsilon": Key("layer_norm_epsilon", 1e-5),
    },
    Entries(
        read={
            "clamp_len",
            "cutoffs",
            "d_embed",
            "d_head",
            "mem_len",
            "pre_lnorm",
            "proj_share_all_but_first",
            "tie_projs",
            "tie_weight",
            "tie_word_embeddings",
        },
        # How random weights are drawn, and how its authors' program trains and evaluates.
        harmless={
            "ext_len",
            "init",
            "init_range",
            "init_std",
            "proj_init_std",
            "sample_softmax",
            "tgt_len",
        },
        refused={"attn_type": (0,), "adaptive": (True,)},
    ),
    _check_huggingface,
    constants={"trainer_compatible": True},  # without it, the language model warns there
    aliases={
        "hidden_size": "d_model",
        "n_token": "vocab_size",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
)


def _authors_config(checkpoint):
    """Return the arguments of a model of the authors' PyTorch code: sizes by its tensors."""
    known = {"attn_type": 0, "ext_len": 0}
    require_only(checkpoint, TransformerXLBackbone, known)
    tensors, names = checkpoint.tensors, NAMES.resolve(checkpoint.tensors)
    if "r_emb" in names:
        raise CheckpointError(
            f"{checkpoint.source} has a table of positions, {names['r_emb']} (attn_type 1 or 3), "
            "and only relative positions without one (attn_type 0) are supported."
        )

    def equal(name, *others):
        """Whether a tensor is a copy of another; one that is not there is."""
        present = [names[other] for other in (name, *others) if other in names]
        return len(present) < 2 or np.array_equal(tensors[present[0]], tensors[present[1]])

    def shape(name):
        return tensors.shape(names[name])

    tables = _numbered(names, "word_emb.emb_layers.{}.weight", shape)
    number = 1 + (shape("crit.cluster_bias")[0] if "crit.cluster_bias" in names else 0)
    is_untied = "r_w_bias" not in names
    bias = "layers.0.dec_attn.r_w_bias" if is_untied else "r_w_bias"
    intermediate_dim, hidden_dim = shape("layers.0.pos_ff.CoreNet.0.weight")
    num_heads, head_dim = shape(bias)
    arguments = _with_clusters(checkpoint, tables, number) | {
        "num_layers": len(_numbered(names, "layers.{}.dec_attn.qkv_net.weight", shape)),
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "head_dim": head_dim,
        "tie_projections": [
            equal(f"crit.out_projs.{i}", f"word_emb.emb_projs.{min(i, len(tables) - 1)}")
            for i in range(number)
        ],
        "tie_embeddings": all(
            equal(f"crit.out_layers.{i}.weight", f"word_emb.emb_layers.{i}.weight")
            for i in range(len(tables))
        ),
        "starts_empty": True,
        "untie_biases": is_untied,
        "layer_norm_epsilon": 1e-5,
        **_settings(checkpoint.config),
    }
    return _as_stated(checkpoint, arguments)


def _tensorflow_config(checkpoint):
    """Return the arguments of a model of the authors' TensorFlow code: sizes by its tensors."""
    tensors, names = checkpoint.tensors, TENSORFLOW_NAMES.resolve(checkpoint.tensors)

    def shape(name):
        return tensors.shape(names[name])

    tables = _numbered(names, "adaptive_embed/cutoff_{}/lookup_table", shape)
    biases = _numbered(names, "adaptive_softmax/cutoff_{}/b", shape)
    hidden_dim, intermediate_dim = shape("layer_0/ff/layer_1/kernel")
    *layers, num_heads, head_dim = shape("r_w_bias")
    clusters = _with_clusters(checkpoint, tables, len(biases), [rows for (rows,) in biases])
    arguments = clusters | {
        "num_layers": len(_numbered(names, "layer_{}/rel_attn/qkv/kernel", shape)),
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "head_dim": head_dim,
        "project_all": "adaptive_embed/cutoff_0/proj_W" in names,
        "tie_projections": [
            f"adaptive_softmax/cutoff_{i}/proj" not in names for i in range(len(biases))
        ],
        "counts_itself": False,
        "untie_biases": bool(layers),
        "layer_norm_epsilon": 1e-12,
        **_settings(checkpoint.config),
    }
    return _as_stated(checkpoint, arguments)


def _numbered(names, pattern, shape):
    """Return the shapes of the tensors with the numbers 0, 1, … in a pattern."""
    candidates = (pattern.format(i) for i in itertools.count())
    return [shape(name) for name in itertools.takewhile(names.__contains__, candidates)]


def _with_clusters(checkpoint, tables, number, rows=None):
    """Return the arguments of words in `number` clusters, by the shapes of their tables."""
    rows = [size for size, _ in tables] if rows is None else rows
    if len(rows) < number:  # in one table
        rows = np.diff([0, *checkpoint.config["cutoffs"], rows[0]]).tolist()
    widths = [width for _, width in tables]
    divisors = range(1 if len(widths) == 1 else 2, widths[0] + 1)
    divisors = [n for n in divisors if [widths[0] // n**i for i in range(len(widths))] == widths]
    stated = checkpoint.config.get("div_val")
    if not divisors or (stated is not None and len(widths) > 1 and stated not in divisors):
        raise CheckpointError(
            f"{checkpoint.source}: its tables of words are {widths} wide, which does not follow "
            f"from div_val={stated}: it is damaged, or its configuration is another's."
        )
    return {
        "vocabulary_size": sum(rows),
        "embedding_dim": widths[0],
        "cutoffs": np.cumsum(rows)[:-1].tolist(),
        "div_val": stated if stated in divisors else divisors[0],
    }


TransformerXLBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(match_score, model_type="transfo-xl"),
        _CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "score.weight"),
        architectures={
            "": "TransfoXLModel",
            "causal_lm": "TransfoXLLMHeadModel",
            "classification": "TransfoXLForSequenceClassification",
        },
        tokenizer="TransfoXLTokenizer",
        versions="4.35 to 4.37",
    ),
    "transformer_xl": Converter(lambda checkpoint: True, _authors_config, AUTHORS_NAMES),
    "google": Converter(
        lambda checkpoint: any("adaptive_softmax/" in name for name in checkpoint.tensors),
        _tensorflow_config,
        TENSORFLOW_NAMES,
    ),
}
