"""The formats beside Hugging Face's: from a folder to a configuration and the tensors' entries.

Each function returns None for a folder without its files, otherwise the name of the format, the
configuration, the entries, and for Model Garden the names of variables. `MARKED` and `OTHERS`, at
the end, are their rows of the table in `checkpoint.py`.
"""

import pathlib

from keras_lm.converters.checked_files import (
    CheckpointError,
    Entry,
    Readers,
    read_config,
    read_json,
)
from keras_lm.converters.fairseq_files import find_fairseq, read_fairseq
from keras_lm.converters.gin_files import GIN, read_gin
from keras_lm.converters.hdf5_files import read_hdf5, read_hdf5_shards
from keras_lm.converters.openai_shards import SHAPES, read_openai_shards
from keras_lm.converters.safetensors_files import read_safetensors
from keras_lm.converters.shard_index import read_shards
from keras_lm.converters.tf_checkpoint import (
    choose_checkpoint,
    find_checkpoints,
    read_tf_checkpoint,
)
from keras_lm.converters.tf_h5_files import read_tf_model, read_tf_shards, without_class
from keras_lm.converters.torch_pickle import is_torch, read_torch
from keras_lm.converters.transformer_xl_files import read_transformer_xl
from keras_lm.converters.trax_files import read_trax
from keras_lm.converters.word_vector_files import find_word_vectors, open_word_vectors

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


def open_openai(folder: pathlib.Path):
    """Open GPT as OpenAI published it, with `params_shapes.json`."""
    return "openai", *read_openai_shards(folder, read_config(folder, "hparams.json"))


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
            found = ", ".join(path.name for path in weights) or "none"
            raise CheckpointError(
                f"{options[0]} needs one file of weights beside it, NAME_weights.hdf5, and there "
                f"is: {found}."
            )
        return "allennlp", read_json(options[0]), read_hdf5(weights[0])


def open_fastai(folder: pathlib.Path):
    """Open a model of fastai's, of version 0.7 too."""
    paths = [*folder.glob("*.pth"), *filter(is_torch, folder.glob("*.h5"))]  # as version 0.7 ended
    found = {path.name: read_torch(path) for path in sorted(paths)}
    if any(".linear.weight_raw" in tensor for entries in found.values() for tensor in entries):
        raise CheckpointError(
            f"{folder} holds a QRNN of fastai's, and only its LSTMs are known: take a model of "
            "AWD_LSTM."
        )
    # Every version marks the recurrent weights that it drops of by this ending.
    found = {
        name: entries
        for name, entries in found.items()
        if any(tensor.endswith("weight_hh_l0_raw") for tensor in entries)
    }
    if len(found) > 1:
        raise CheckpointError(
            f"{folder} has several models: {', '.join(found)}. Move all but one into folders of "
            "their own."
        )
    for entries in found.values():
        return "fastai", read_config(folder, "config.json"), entries


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


def open_fairseq(folder: pathlib.Path):
    """Open a checkpoint of fairseq, which holds its configuration."""
    path = find_fairseq(folder)
    return None if path is None else ("fairseq", *read_fairseq(path))


def open_transformer_xl(folder: pathlib.Path):
    """Open a model that Transformer-XL's authors trained in PyTorch."""
    found = read_transformer_xl(folder)
    return None if found is None else ("transformer_xl", *found)


def open_trax(folder: pathlib.Path):
    """Open a model that was trained by trax."""
    found = read_trax(folder)
    return None if found is None else ("trax", *found)


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


# Those that a file of its own name marks, tried before Hugging Face's.
MARKED = (
    (
        "OpenAI's GPT: params_shapes.json with params_N.npy",
        SHAPES,
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
