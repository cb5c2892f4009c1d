"""The formats beside Hugging Face's: from a folder to a configuration and the tensors' entries.

Each `open_…` returns None for a folder without its files, otherwise the name of the format, the
configuration, the entries, and for Model Garden the names of variables. `MARKED` and `OTHERS`, at
the end, are their rows of the table in `checkpoint.py`.
"""

import functools
import itertools
import json
import math
import pathlib
import re

import h5py
import ml_dtypes
import numpy as np

from keras_lm.converters.checked_files import (
    GIN,
    CheckpointError,
    Entry,
    Readers,
    read_config,
    read_gin,
    read_json,
    read_safetensors,
    read_shards,
    require_file,
)
from keras_lm.converters.hdf5_files import (
    read_hdf5,
    read_hdf5_shards,
    read_tf_model,
    read_tf_shards,
    without_class,
)
from keras_lm.converters.plain_pickle import Array, load_arrays, load_npy
from keras_lm.converters.tf_checkpoint import (
    choose_checkpoint,
    find_checkpoints,
    read_tf_checkpoint,
)
from keras_lm.converters.torch_pickle import Options, entries_of, is_torch, open_torch, read_torch
from keras_lm.converters.word_vector_files import find_word_vectors, open_word_vectors
from keras_lm.utils import files

# Files named like a model's configuration, but of another tool.
NOT_OF_A_MODEL = {
    "adapter_config.json",
    "config.json",
    "generation_config.json",
    "peft_config.json",
    "preprocessor_config.json",
    "sentence_bert_config.json",
    "special_tokens_config.json",
    "tokenizer_config.json",
}
SAFETENSORS: Readers = {
    "model.safetensors": read_safetensors,
    "model.safetensors.index.json": lambda path: read_shards(path, read_safetensors, without_class),
}
TORCH: Readers = {
    "pytorch_model.bin": read_torch,
    "pytorch_model.bin.index.json": lambda path: read_shards(path, read_torch),
}
TF_H5: Readers = {
    "tf_model.h5": read_tf_model,
    "tf_model.h5.index.json": read_tf_shards,
}
KERAS_HUB: Readers = {
    "model.weights.h5": read_hdf5,
    "model.weights.json": read_hdf5_shards,
}


def name_of_config(folder: pathlib.Path) -> str:
    """Return `bert_config.json` or the like; otherwise another known name."""
    names = sorted(path.name for path in folder.glob("*_config.json"))
    names = [name for name in names if name not in NOT_OF_A_MODEL]
    if len(names) > 1:
        raise CheckpointError(
            f"{folder} has several configurations: {', '.join(names)}. Keep the one that its "
            "weights were trained with, and move the others away."
        )
    fallback = "hparams.json" if (folder / "hparams.json").is_file() else "config.json"
    return names[0] if names else fallback


# === OpenAI's GPT: one long vector in ten files, and the shapes to split it ===

OPENAI_SHAPES = "params_shapes.json"
OPENAI_SHARD = re.compile(r"params_(\d+)\.npy")
# The vector has no names: positions come first, then tokens, then the arrays of each block in the
# order in which the program made its variables.
OPENAI_BLOCK = ("attn/c_attn/w", "attn/c_attn/b", "attn/c_proj/w", "attn/c_proj/b")
OPENAI_BLOCK += ("ln_1/g", "ln_1/b", "mlp/c_fc/w", "mlp/c_fc/b", "mlp/c_proj/w", "mlp/c_proj/b")
OPENAI_BLOCK += ("ln_2/g", "ln_2/b")
OPENAI_HEAD_DIM = 64  # the published model's, which no file states


def open_openai(folder: pathlib.Path):
    """Open GPT as OpenAI published it, with `params_shapes.json`."""
    return "openai", *read_openai_shards(folder, read_config(folder, "hparams.json"))


def read_openai_shards(folder: pathlib.Path, hparams: dict) -> tuple[dict, dict[str, Entry]]:
    """Return the sizes under OpenAI's names, and the arrays (`positions`, `h0/attn/c_attn/w`, …).

    Values are not read. Of `hparams` only `n_head` counts; it is `{}` for what OpenAI published.
    """
    shapes = _read_openai_shapes(folder / OPENAI_SHAPES)
    num_layers, rest = divmod(len(shapes) - 2, len(OPENAI_BLOCK))
    if num_layers < 1 or rest or [len(shape) for shape in shapes[:2]] != [2, 2]:
        raise CheckpointError(
            f"{folder / OPENAI_SHAPES} lists {len(shapes)} shapes. GPT's are 2 of embeddings and "
            f"{len(OPENAI_BLOCK)} a block: copy or download the file again."
        )
    names = ["positions", "tokens"]
    names += [f"h{i}/{name}" for i in range(num_layers) for name in OPENAI_BLOCK]

    shards = _open_openai_shards(folder)
    total, needed = sum(map(len, shards)), sum(map(math.prod, shapes))
    if total != needed:
        raise CheckpointError(
            f"{folder} has {len(shards)} shards with {total} numbers, but {OPENAI_SHAPES} asks for "
            f"{needed}: a params_N.npy is missing, or of another model. Copy the folder again."
        )
    ends = list(itertools.accumulate(map(math.prod, shapes)))
    entries = {
        name: (shape, functools.partial(_read_openai_array, folder, end - math.prod(shape), shape))
        for name, shape, end in zip(names, shapes, ends, strict=True)
    }
    (n_ctx, n_embd), (n_vocab, _) = shapes[:2]
    config = {
        "n_vocab": n_vocab,
        "n_ctx": n_ctx,
        "n_embd": n_embd,
        "n_head": hparams.get("n_head", max(n_embd // OPENAI_HEAD_DIM, 1)),
        "n_layer": num_layers,
    }
    return config, entries


def _read_openai_shapes(path: pathlib.Path) -> list[tuple[int, ...]]:
    require_file(path)
    try:
        shapes = [tuple(shape) for shape in json.loads(path.read_text())]
        wrong = [s for shape in shapes for s in shape if type(s) is not int or s < 1]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is not a size")
        return shapes
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not a list of shapes ({error}). Copy or download it again."
        ) from error


def _open_openai_shards(folder: pathlib.Path) -> list[np.ndarray]:
    """The shards in their order, as arrays that stay on the disk."""
    numbers = {
        int(m[1]): path for path in folder.iterdir() if (m := OPENAI_SHARD.fullmatch(path.name))
    }
    shards = []
    for number in range(max(numbers, default=0) + 1):
        path = require_file(folder / f"params_{number}.npy", named_by=str(folder / OPENAI_SHAPES))
        try:
            shard = np.lib.format.open_memmap(path, mode="r")
        except (OSError, ValueError, EOFError, OverflowError) as error:
            raise CheckpointError(
                f"{path} cannot be read as an array: {error}. Copy or download it again."
            ) from error
        if shard.ndim != 1:
            raise CheckpointError(f"{path} has shape {shard.shape}, but a shard is a vector.")
        shards.append(shard)
    return shards


def _read_openai_array(folder: pathlib.Path, start: int, shape: tuple[int, ...]) -> np.ndarray:
    stop, parts, position = start + math.prod(shape), [], 0
    for shard in _open_openai_shards(folder):
        parts.append(shard[max(start - position, 0) : max(stop - position, 0)])
        position += len(shard)
    return np.concatenate(parts).reshape(shape)


# === AllenNLP's ELMo ===


def open_allennlp(folder: pathlib.Path):
    """Open ELMo as AllenNLP reads it."""
    options = [path for path in folder.glob("*options.json") if "lstm" in read_json(path)]
    if len(options) > 1:
        raise CheckpointError(
            f"{folder} has several models: {', '.join(sorted(path.name for path in options))}. "
            "Move all but one, and their weights, into folders of their own."
        )
    if options:
        # Other arrays may lie there, so the name of the weights counts first.
        weights = sorted(folder.glob("*weights.hdf5")) or sorted(folder.glob("*.hdf5"))
        if len(weights) != 1:
            names = ", ".join(path.name for path in weights) or "none"
            raise CheckpointError(
                f"{options[0]} needs one file of weights beside it, NAME_weights.hdf5, and there "
                f"is: {names}."
            )
        return "allennlp", read_json(options[0]), read_hdf5(weights[0])


def write_allennlp(folder, options, tensors):
    """Write `options.json` and `weights.hdf5`, both or none, to a new or empty folder."""
    folder = pathlib.Path(folder).expanduser()
    files.require_free(folder, "is not empty")
    with files.replacing(folder) as new:
        new.mkdir()
        (new / "options.json").write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        with h5py.File(new / "weights.hdf5", "w") as file:
            for name, array in tensors.items():
                file.create_dataset(name, data=array)


# === fastai's ULMFiT ===


def open_fastai(folder: pathlib.Path):
    """Open a model of fastai's, of version 0.7 too."""
    paths = [*folder.glob("*.pth"), *filter(is_torch, folder.glob("*.h5"))]  # as version 0.7 ended
    models = {path.name: read_torch(path) for path in sorted(paths)}
    if any(".linear.weight_raw" in tensor for entries in models.values() for tensor in entries):
        raise CheckpointError(
            f"{folder} holds a QRNN of fastai's, and only LSTMs are supported: use a model of "
            "AWD_LSTM."
        )
    # Every version marks the recurrent weights that it drops of by this ending.
    models = {
        name: entries
        for name, entries in models.items()
        if any(tensor.endswith("weight_hh_l0_raw") for tensor in entries)
    }
    if len(models) > 1:
        raise CheckpointError(
            f"{folder} has several models: {', '.join(models)}. Move all but one into folders of "
            "their own."
        )
    for entries in models.values():
        return "fastai", read_config(folder, "config.json"), entries


# === Transformer-XL: a whole model of its authors' PyTorch code, or its state dict ===

# A tensor that every one of them has.
TRANSFORMER_XL_TENSOR = "word_emb.emb_layers.0.weight"
# Where the arguments of a model are among the attributes of its modules.
TRANSFORMER_XL_ARGUMENTS = {
    "n_token n_layer n_head d_model d_head d_embed attn_type ext_len mem_len": (),
    "same_length clamp_len": (),
    "div_val": ("word_emb",),
    "pre_lnorm": ("layers", "0", "pos_ff"),
    "p": ("drop",),
}


def open_transformer_xl(folder: pathlib.Path):
    """Open a model that Transformer-XL's authors trained in PyTorch."""
    contents = read_transformer_xl(folder)
    return None if contents is None else ("transformer_xl", *contents)


def read_transformer_xl(folder: pathlib.Path) -> tuple[dict, dict[str, Entry]] | None:
    """Return the configuration and the tensors of the first file that is such a checkpoint.

    That is `model.pt`, as `train.py` saves it, or another `.pt`. The configuration has the names
    of the arguments of `MemTransformerLM`: those that the file holds, and those of a `config.json`,
    which count more. Without any such file, it returns None.
    """
    for path in sorted(folder.glob("*.pt")):
        root, places = open_torch(path)
        is_model = isinstance(root, Options) and type(root).__name__ == "MemTransformerLM"
        if not is_model and not (isinstance(root, dict) and _has_word_embedding(root)):
            continue
        config = _transformer_xl_arguments(root) if is_model else {}
        return config | read_config(folder, "config.json"), entries_of(root, places, path)
    return None


def _has_word_embedding(root: dict) -> bool:
    parts = [root, *(part for part in root.values() if isinstance(part, dict))]
    return any(
        name in part
        for part in parts
        for name in (TRANSFORMER_XL_TENSOR, f"module.{TRANSFORMER_XL_TENSOR}")
    )


def _transformer_xl_arguments(model: Options) -> dict:
    """Return the arguments that a model has as attributes, plain values only."""
    arguments = {}
    for names, path in TRANSFORMER_XL_ARGUMENTS.items():
        part = _attributes(model, path)
        arguments |= {name: part.get(name) for name in names.split()}
    arguments["dropout"] = arguments.pop("p")
    arguments["dropatt"] = _attributes(model, ("layers", "0", "dec_attn", "dropatt")).get("p")
    cutoffs = _attributes(model, ("word_emb",)).get("cutoffs")
    if isinstance(cutoffs, list) and all(type(cutoff) is int for cutoff in cutoffs):
        arguments["cutoffs"] = cutoffs[:-1]  # the last is the number of words
    plain = (bool, int, float, list)
    return {name: value for name, value in arguments.items() if type(value) in plain}


def _attributes(model: Options, path) -> dict:
    """Return the attributes of a module in a module, by its path; {} if there is none."""
    for name in path:
        modules = model.values.get("_modules")
        model = modules.get(name) if isinstance(modules, dict) else None
        if not isinstance(model, Options):
            return {}
    return model.values


# === trax: weights in the order of the layers, without names ===

TRAX_GIN = "config.gin"
MOST_TRAX_PARTS = 100_000  # of nested weights, of which each may be named many times


def open_trax(folder: pathlib.Path):
    """Open a model that was trained by trax."""
    contents = read_trax(folder)
    return None if contents is None else ("trax", *contents)


def find_trax(folder: pathlib.Path) -> pathlib.Path | None:
    """Return the checkpoint `model.pkl.gz` or `model.pkl` of a folder, or its only `model*.pkl`.

    Raises:
        CheckpointError: if there are several, of which none has that name.
    """
    paths = sorted([*folder.glob("model*.pkl.gz"), *folder.glob("model*.pkl")])
    usual = [path for path in paths if path.name in ("model.pkl.gz", "model.pkl")]
    if len(paths) > 1 and not usual:
        raise CheckpointError(
            f"{folder} has several models: {', '.join(path.name for path in paths)}. Move all but "
            "one into folders of their own."
        )
    return next(iter(usual or paths), None)


def read_trax(folder: pathlib.Path) -> tuple[dict, dict[str, Entry]] | None:
    """Return the configuration of a checkpoint of trax, and its arrays by their numbers: `"0"`, ….

    The configuration is what `config.gin` binds, which trax writes beside it, or `config.json`.
    None for a folder without such a checkpoint.

    Source: google/trax, `supervised/training.py`, `supervised/trainer_lib.py` and
    `layers/base.py`, of which the oldest save nested weights, later ones a list, and the last the
    list in a file of its own.
    """
    path = find_trax(folder)
    saved = None if path is None else load_arrays(path)
    if not isinstance(saved, dict) or not saved.keys() & {"weights", "flat_weights"}:
        return None
    weights = saved.get("flat_weights", saved.get("weights"))
    if isinstance(weights, int):
        name = path.name.removesuffix(".gz").removesuffix(".pkl")
        arrays = load_npy(folder / f"{name}.weights.npy.gz")
    else:
        arrays = _trax_arrays(weights, path)
    gin = folder / TRAX_GIN
    config = read_gin(gin) if gin.is_file() else read_config(folder, "config.json")
    return config, {str(i): _trax_entry(array) for i, array in enumerate(arrays)}


def _trax_arrays(weights, path):
    """Return the arrays of nested weights, in their order."""
    arrays, left, parts = [], [weights], 0
    while left:
        part = left.pop()
        parts += 1
        if isinstance(part, (list, tuple)) and parts + len(part) <= MOST_TRAX_PARTS:
            left += reversed(part)
        elif isinstance(part, (list, tuple)):
            raise CheckpointError(f"{path} has more than {MOST_TRAX_PARTS} parts: it is damaged.")
        elif isinstance(part, Array) and part.value is not None:
            arrays.append(part.value)
    return arrays


def _trax_entry(array):
    def read():
        # bfloat16 is saved as its bits.
        is_bits = array.dtype == np.uint16
        return array.view(ml_dtypes.bfloat16).astype("float32") if is_bits else array

    return array.shape, read


# === TensorFlow ===


def open_tensorflow(folder: pathlib.Path):
    """Open a checkpoint of TensorFlow 1, or of Model Garden."""
    name = name_of_config(folder)
    if find_checkpoints(folder):
        gin = folder / GIN
        config = read_gin(gin) if gin.is_file() else read_config(folder, name)
        format, entries, variable_names = read_tf_checkpoint(folder, choose_checkpoint(folder))
        return format, config, entries, variable_names
    if name != "hparams.json" and (folder / name).is_file():
        raise CheckpointError(
            f"{folder} has a configuration, {name}, and no weights. Put NAME.index and "
            f"NAME.data-00000-of-00001 beside it, or one of {', '.join(SAFETENSORS | TORCH)}."
        )


# === fairseq: one pickle of weights and training arguments ===

# As `from_pretrained` and training name the file to take, in the order of preference.
FAIRSEQ_NAMES = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
FUSED = ".in_proj_"


def open_fairseq(folder: pathlib.Path):
    """Open a checkpoint of fairseq, which holds its configuration."""
    path = find_fairseq(folder)
    return None if path is None else ("fairseq", *read_fairseq(path))


def find_fairseq(folder: pathlib.Path) -> pathlib.Path | None:
    """Return the checkpoint in a folder, or None if no file has one of fairseq's names."""
    for name in FAIRSEQ_NAMES:
        if (folder / name).is_file():
            return folder / name
    paths = sorted(folder.glob("checkpoint*.pt"))
    if len(paths) > 1:
        raise CheckpointError(
            f"{folder} has several models: {', '.join(path.name for path in paths)}. Move all but "
            "one into folders of their own, each with a copy of dict.txt."
        )
    return paths[0] if paths else None


def read_fairseq(path: pathlib.Path) -> tuple[dict, dict[str, Entry]]:
    """Return the configuration of a checkpoint, and its tensors by name.

    The configuration is the plain values of `args`, as files have it up to fairseq 0.10, or of the
    `model` part of `cfg`, whose `_name` is then `arch`. Queries, keys and values are three tensors,
    as they are since 0.9, also if an older file has them in one.
    """
    root, places = open_torch(path)
    stated = root.get("args") or root.get("cfg") if isinstance(root, dict) else None
    values = _fairseq_values(stated)
    if isinstance(values.get("model"), (dict, Options)):
        values = _fairseq_values(values["model"])
        values = {"arch": values.get("_name"), **values}
    # Plain values only: a nested one may be made to unfold without end.
    config = {
        name: value
        for name, value in values.items()
        if type(name) is str and (value is None or type(value) in (bool, int, float, str))
    }
    if not config:
        raise CheckpointError(
            f"{path} holds no configuration, 'args' or 'cfg', as fairseq's checkpoints do. Give "
            "the file that training wrote."
        )
    entries = {}
    for name, (shape, read) in entries_of(root, places, path).items():
        if FUSED in name and shape and shape[0] % 3 == 0:
            entries |= _split_projections(name, shape, read)
        else:
            entries[name] = (shape, read)
    return config, entries


def _fairseq_values(stated) -> dict:
    stated = stated.values if isinstance(stated, Options) else stated
    return stated if isinstance(stated, dict) else {}


def _split_projections(name, shape, read) -> dict[str, Entry]:
    """`in_proj_weight` (3 D, D) → `q_proj.weight`, `k_proj.weight`, `v_proj.weight` (D, D)."""
    rows = shape[0] // 3

    def part(index):
        return (rows, *shape[1:]), lambda: read()[index * rows : (index + 1) * rows]

    return {name.replace(FUSED, f".{letter}_proj."): part(i) for i, letter in enumerate("qkv")}


# === CoVe, and files of word vectors ===


def open_cove(folder: pathlib.Path):
    """Open CoVe, with the word vectors beside it if there are any."""
    for path in sorted(folder.glob("*.pth")):
        entries = read_torch(path)
        if any(name.removeprefix("rnn.") == "weight_ih_l0" for name in entries):
            return "cove", {}, _vectors(folder) | entries


def open_vectors(folder: pathlib.Path):
    """Open a file of word vectors on its own."""
    entries = _vectors(folder)
    return ("word_vectors", {}, entries) if entries else None


def _vectors(folder: pathlib.Path) -> dict[str, Entry]:
    path = find_word_vectors(folder)
    if path is None:
        return {}
    file = open_word_vectors(path)
    words = file.words()
    return {"vectors.weight": ((len(words), file.embedding_dim), lambda: file.vectors(words))}


# === The table of formats ===

# Those that a file of its own name marks, tried before Hugging Face's.
MARKED = (
    (
        "OpenAI's GPT: params_shapes.json with params_N.npy",
        OPENAI_SHAPES,
        open_openai,
    ),
    (
        "AllenNLP's ELMo: options.json (or NAME_options.json) with weights in HDF5",
        "*options.json",
        open_allennlp,
    ),
)
OTHERS = (
    (
        "fastai's ULMFiT: one .pth (or fastai 0.7's .h5), alone or with config.json, and its "
        "itos*.pkl",
        "*",
        open_fastai,
    ),
    (
        "Transformer-XL: model.pt as its authors' PyTorch code saves it, or a state dict in "
        "another .pt, alone or with config.json",
        "*.pt",
        open_transformer_xl,
    ),
    (
        "trax: model.pkl or model.pkl.gz, the last with its model.weights.npy.gz, and config.gin",
        "model*.pkl*",
        open_trax,
    ),
    (
        "TensorFlow: bert_config.json or the like, GPT-2's hparams.json, or T5's "
        "operative_config.gin, with NAME.index and NAME.data-*",
        "*",
        open_tensorflow,
    ),
    (
        "fairseq: model.pt or checkpoint*.pt, with the configuration inside, and its dict.txt",
        "*.pt",
        open_fairseq,
    ),
    (
        "CoVe: wmtlstm-*.pth, alone or with the file of word vectors that it reads",
        "*.pth",
        open_cove,
    ),
    (
        "word vectors: a file of word2vec (text or binary), GloVe or fastText (.vec), gzipped or "
        "not",
        "*",
        open_vectors,
    ),
)
