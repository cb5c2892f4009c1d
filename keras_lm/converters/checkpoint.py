"""From a folder to a checkpoint, and to weights: its format, configuration, and tensors by name."""

import contextlib
import contextvars
import ctypes
import dataclasses
import functools
import inspect
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_lm.converters import (
    entity_files,
    formats,
    hdf5_files,
    hub,
    peft_files,
    quantized_tensors,
    static_vectors,
)
from keras_lm.converters.checked_files import (
    CheckpointError,
    LazyTensors,
    in_parts,
    read_config,
    read_first,
    read_json,
    require_few,
)
from keras_lm.converters.formats import find_trax
from keras_lm.converters.hdf5_files import read_hdf5
from keras_lm.converters.sentence_transformers import MODULES, SentenceFiles, network_folder
from keras_lm.converters.tf_checkpoint import find_checkpoints
from keras_lm.tensorflow import tf
from keras_lm.utils import files
from keras_lm.utils.files import DamagedFileError, check_sums, is_remote, local_copy
from keras_lm.utils.model_versions import find_models, find_saved_model
from keras_lm.utils.processes import is_plain
from keras_lm.utils.user_arguments import is_finite, warn

# A preset's configuration, and the folder of its vocabulary.
PRESET_CONFIG, ASSETS = "keras_lm.json", "assets"
CARD, LONGEST_CARD = "README.md", 2**20  # bytes
# Files of ours that hold no weights, by their suffix.
FILES_OF_OURS = {
    ".tflite": "an export: give the preset that it was made of.",
    ".keras": "a file of Keras's: keras.models.load_model loads it, and its save_to_preset writes "
    "a preset.",
}
# One of these lies in each folder that transformers' tokenizers write.
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model")
VOCABULARIES += ("sentencepiece.bpe.model", "tokenizer.model", "source.spm")
MOST_PARTS = 8
MOST_MEMBERS = 1000
# Many times what the largest model has.
MOST_AXES, MOST_VALUES = 16, 2**44


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint.

    Attributes:
        source, folder: what the user gave, for messages, and the local folder of the network.
        format: "keras_lm", "huggingface", "google" (variable names of TensorFlow 1, OpenAI's GPT-2
            too), "model_garden", "openai" (GPT's shards), "allennlp" (ELMo), "keras_hub", "fastai",
            "fairseq", "transformer_xl" (its authors' PyTorch code), "trax", "cove" or
            "word_vectors".
        config: the parsed configuration file; `{}` if there is none.
        tensors: names → arrays, each read on access; `tensors.shape(name)` reads nothing.
            KerasHub's task weights are `task/…`.
        variable_names: for "model_garden", object paths → names of the variables, which do not
            depend on how the objects were nested; otherwise empty.
        root: the local folder of the source; None for `folder`, which lies in it in older layouts
            of sentence-transformers.
        vocabulary_folder: the local folder of the vocabulary; None for `folder`. An adapter may
            come without one, and is then read with its model's.
    """

    source: str
    folder: pathlib.Path
    format: str
    config: dict[str, Any]
    tensors: LazyTensors
    variable_names: dict[str, str] = dataclasses.field(default_factory=dict)
    root: pathlib.Path | None = None
    vocabulary_folder: pathlib.Path | None = None

    def __post_init__(self):
        object.__setattr__(self, "root", self.root or self.folder)
        object.__setattr__(self, "vocabulary_folder", self.vocabulary_folder or self.folder)

    @property
    def has_modules(self) -> bool:
        """Whether it is a folder of sentence-transformers."""
        return self.format == "huggingface" and (self.root / MODULES).is_file()

    @functools.cached_property
    def sentence_files(self) -> SentenceFiles:
        """What the files of sentence-transformers in the source say, if it has them."""
        return SentenceFiles(self)

    @property
    def card(self) -> str:
        """The text of the source's README.md, "" if there is none or it is too long for a card."""
        path = self.root / CARD
        is_card = path.is_file() and path.stat().st_size <= LONGEST_CARD
        return path.read_text("utf-8", errors="replace") if is_card else ""

    @property
    def weights(self) -> LazyTensors:
        """`tensors`, under the names of their variables if the format has these."""
        names = self.variable_names
        return self.tensors.renamed(names) if all(names.values()) else self.tensors


def open_checkpoint(source: str | pathlib.Path) -> Checkpoint:
    """Open a keras_lm preset or a published checkpoint; weights are read on access.

    Args:
        source: a folder, also at an address such as `s3://bucket/name`, of which a temporary copy
            is made; or `hf://owner/name[@revision]`.

    Raises:
        FileNotFoundError: there is no such folder.
        CheckpointError: nothing is recognised, or a file is missing, damaged or of another kind.

    Example:
        checkpoint = open_checkpoint("downloads/uncased_L-12_H-768_A-12")
        checkpoint.config["hidden_size"]               # 768
        checkpoint.tensors["bert/pooler/dense/bias"]   # a NumPy array
    """
    source = str(source)
    root = _find_root(source)
    folder = _find_network(root)
    is_adapter = (folder / peft_files.CONFIG).is_file()
    return (_open_adapted if is_adapter else _open)(source, root, folder)


def _open(source, root, folder):
    for _, pattern, open_format in FORMATS:
        opened = open_format(folder) if any(folder.glob(pattern)) else None
        if opened is not None:
            format, config, entries, *variable_names = opened
            _check_shapes(folder, entries)
            tensors = LazyTensors(entries)
            return Checkpoint(source, folder, format, config, tensors, *variable_names, root=root)
    if find_saved_model(folder) is not None:
        raise CheckpointError(
            f"{folder} is an export, a SavedModel that answers and cannot be trained: give the "
            "preset that it was made of. keras-lm predict and keras_lm.serving.open_predictor ask "
            "an export."
        )
    models = find_models(folder)
    if models != [folder]:
        raise CheckpointError(
            f"{folder} holds the exports of several models: give one of "
            f"{', '.join(map(str, models))} to a command that asks an export, or a preset."
        )
    names = sorted(path.name for path in folder.iterdir())
    listed = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    raise CheckpointError(
        f"{folder} holds no checkpoint that is recognised. In it: {listed or 'nothing'}. "
        "Recognised are:" + "".join(f"\n- {contents}" for contents, *_ in FORMATS)
    )


def _check_shapes(folder, entries) -> None:
    """Raise a CheckpointError if there are more tensors, or larger ones, than there can be."""
    require_few(entries, folder)
    for name, (shape, _) in entries.items():
        # (An axis of 0 does not keep the others from being too large for an array.)
        if len(shape) > MOST_AXES or math.prod(size for size in shape if size) > MOST_VALUES:
            raise CheckpointError(
                f"{folder}: {name[:80]!r} has {len(shape)} axes and begins with "
                f"{shape[:4]}, which no tensor can have. It is damaged: copy or download it "
                "again."
            )


def find_folder(source: str) -> pathlib.Path:
    """Return the local folder of a source, downloading it first if it is `hf://owner/name`.

    In older layouts of sentence-transformers, that is the folder of the network in the source's.

    Args:
        source: a folder, or `hf://owner/name[@revision]`.

    Raises:
        FileNotFoundError, CheckpointError: there is no such folder, or it cannot be fetched.
    """
    folder = _find_network(_find_root(source))
    if not (folder / peft_files.CONFIG).is_file() or _has_vocabulary(folder):
        return folder
    return _find_network(_find_root(_adapted_model(folder, peft_files.read_adapter(folder))))


def _open_adapted(source, root, folder):
    """Open an adapter, with the model that lies beside it or that it names."""
    adapter = peft_files.read_adapter(folder)
    model = str(folder) if _has_weights(folder) else _adapted_model(folder, adapter)
    named = adapter.get("base_model_name_or_path")
    if model == str(folder) and isinstance(named, str) and _other_folder(folder, named):
        warn(
            f"{folder} is an adapter of the model {named!r}, and another model lies beside it, "
            "which is read. Remove its weights to read the one that is named."
        )
    place = root if model == str(folder) else _find_root(model)
    opened = _open(model, place, _find_network(place))
    if opened.format != "huggingface":
        raise CheckpointError(
            f"{folder} is an adapter of transformers' models, and {model} holds one of the format "
            f"{opened.format}."
        )
    config = peft_files.adapted_config(opened.config, adapter)
    tensors = peft_files.adapted_tensors(folder, adapter, config, opened.tensors)
    config = peft_files.untied(folder, config, tensors, opened.tensors)
    return dataclasses.replace(
        opened,
        source=source,
        config=config,
        tensors=tensors,
        root=root,
        vocabulary_folder=folder if _has_vocabulary(folder) else opened.folder,
    )


def _adapted_model(folder, adapter):
    """Return the source of the model that an adapter is of."""
    name = adapter.get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise CheckpointError(
            f"{folder} is an adapter that names no base_model_name_or_path: copy the model's files "
            "into this folder."
        )
    place = _other_folder(folder, name)
    if place is not None:
        return str(place)
    if not hub.NAME.fullmatch(name):
        raise CheckpointError(
            f"{folder} is an adapter of the model {name[:200]!r}, and there is no such folder: "
            "copy the model's files into this one, or correct base_model_name_or_path."
        )
    revision = adapter.get("revision")
    return f"{hub.PREFIX}{name}{f'@{revision}' if revision else ''}"


def _other_folder(folder, name):
    """Return the folder that an adapter names as its model's, None if there is no other one."""
    places = (pathlib.Path(name).expanduser(), folder / name)
    return next((p for p in places if p.is_dir() and p.resolve() != folder.resolve()), None)


def _has_weights(folder):
    names = formats.SAFETENSORS | formats.TORCH | formats.TF_H5
    return any((folder / name).is_file() for name in names)


def _has_vocabulary(folder):
    return any((folder / name).is_file() for name in VOCABULARIES)


def _find_root(source):
    if source.startswith(hub.PREFIX):
        return hub.fetch(source)
    folder = pathlib.Path(source).expanduser()
    if folder.is_dir():
        return folder
    if is_remote(source):
        folder = local_copy(source)
    elif not folder.exists():
        files.recover(folder)  # a preset whose replacement was killed in the middle
    if folder.is_file():
        remedy = FILES_OF_OURS.get(folder.suffix, "a file. Give the folder that it lies in.")
        raise FileNotFoundError(f"{source!r} is {remedy}")
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no folder {source!r}. Give the folder of a checkpoint, or hf://owner/name "
            "for a repository of the Hugging Face hub."
        )
    return folder


def _find_network(root):
    """Return the folder of the network, which lies in `root` in older layouts."""
    return network_folder(root) if (root / MODULES).is_file() else root


# === The formats that most folders have ===


def _open_preset(folder):
    config = read_json(folder / PRESET_CONFIG)
    check_preset(folder / PRESET_CONFIG, config)
    has_weights = "members" not in config  # else each of them is a preset of its own
    return "keras_lm", config, read_first(folder, formats.SAFETENSORS) if has_weights else {}


def check_preset(path: pathlib.Path, config: dict):
    """Raise a CheckpointError if a `keras_lm.json` is not formed as ours are, or has changed.

    The vocabulary beside it is compared, too.
    """
    _check_form(path, config)
    try:
        check_sums(path.parent)
    except DamagedFileError as error:
        raise CheckpointError(str(error)) from error


def _check_form(path, config):
    members = config.get("members", 2)
    if (
        type(members) is not int
        or not 2 <= members <= MOST_MEMBERS
        or ("members" in config and config.get("task") is None)
    ):
        raise CheckpointError(
            f"{path}: 'members' is {str(members)[:200]}, and it is the number of those of an "
            f"ensemble, 2 to {MOST_MEMBERS}. Save the preset again, or copy it again."
        )
    names = [name for name in ("backbone", "task", "tokenizer") if config.get(name) is not None]
    parts = [(name, config[name]) for name in names]
    for part, entry in parts:
        settings = entry if isinstance(entry, dict) else {}
        if not (
            isinstance(settings.get("class"), str) and isinstance(settings.get("arguments"), dict)
        ):
            raise CheckpointError(
                f"{path}: {part!r} must have 'class' and 'arguments', a string and an object, and "
                f"is {str(entry)[:200]}. Save the preset again, or copy it again."
            )
        # A feature extractor has a backbone of its own; nothing else is nested.
        if "backbone" in entry and part == "backbone" and len(parts) < MOST_PARTS:
            parts.append((part, entry["backbone"]))
        elif "backbone" in entry:
            raise CheckpointError(
                f"{path}: {part!r} has a 'backbone' of its own, which stands beside it, or one too "
                "many. Save the preset again, or copy it again."
            )


def _open_keras_hub(folder):
    config = read_config(folder, "config.json")
    if "registered_name" not in config and "class_name" not in config:
        return None
    quantized_tensors.check_policies(folder / "config.json", config)
    entries = read_first(folder, formats.KERAS_HUB)
    if (folder / "task.weights.h5").is_file():
        entries |= read_hdf5(folder / "task.weights.h5", prefix="task/")
    return "keras_hub", config, entries


def _open_hugging_face(folder):
    weights = formats.SAFETENSORS | formats.TORCH | formats.TF_H5
    config = read_config(folder, "config.json")
    if not _has_weights(folder):
        # Without any weights, Hugging Face's own keys show that the folder was meant to be one.
        has_others = find_checkpoints(folder) or find_trax(folder)
        if has_others or not config.keys() & {"model_type", "architectures"}:
            return None
    elif not config:
        config = read_config(folder, formats.name_of_config(folder))
    tensors = read_first(folder, weights)
    if static_vectors.VECTORS in tensors:
        tensors = static_vectors.as_table(folder, tensors)
    is_quantized = config.keys() & quantized_tensors.SETTINGS
    if is_quantized or any(map(quantized_tensors.PART.search, tensors)):
        tensors = quantized_tensors.plain_tensors(folder, config, tensors)
    if any(name.endswith(hdf5_files.TENSORFLOW) for name in tensors):
        tensors = hdf5_files.with_pytorch_names(tensors)
    for place in (folder, folder / entity_files.FOLDER):
        if (place / entity_files.VECTORS).is_file():
            return "huggingface", config, tensors | entity_files.vectors_as_tensor(place)
    return "huggingface", config, tensors


# (What a folder of the format holds, a pattern that one of its files matches, and the function
# that opens it or returns None), in the order in which they are tried.
FORMATS = (
    (
        "a keras_lm preset: keras_lm.json with model.safetensors (or its shards and index)",
        PRESET_CONFIG,
        _open_preset,
    ),
    (
        "KerasHub: its config.json with model.weights.h5 (or shards and model.weights.json)",
        "config.json",
        _open_keras_hub,
    ),
    *formats.MARKED,
    (
        "Hugging Face: config.json with model.safetensors, pytorch_model.bin or tf_model.h5 (or "
        "shards and index)",
        "*",
        _open_hugging_face,
    ),
    *formats.OTHERS,
)


# === Weights that those of a checkpoint replace ===

# TensorFlow fills new variables, and copies twice what is assigned. Here they get zeros that take
# no memory until they are written to, and values are copied from the file into a new tensor.
_ARE_REPLACED = contextvars.ContextVar("are_replaced", default=False)


@contextlib.contextmanager
def replaced_weights(are_replaced: bool = True) -> Iterator[None]:
    """A context for networks all of whose weights are assigned at once.

    Drawing random numbers for them would take longer than reading the weights.
    """
    token = _ARE_REPLACED.set(are_replaced)
    try:
        yield
    finally:
        _ARE_REPLACED.reset(token)


def are_replaced() -> bool:
    """Whether the weights that are made now will be replaced."""
    return _ARE_REPLACED.get()


def is_read_by_keras() -> bool:
    """Whether Keras makes a model for a `.keras` file, and assigns all of its weights next.

    It says so to nothing that it calls, so this looks for its function among the callers.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "_load_model_from_fileobj":
            return True
        frame = frame.f_back
    return False


def assign(variable: keras.Variable, array: np.ndarray) -> bool:
    """Assign an array to a variable of its shape, cast to its type, with one copy if possible.

    Returns whether all numbers were finite; otherwise the variable may stay as it is.
    """
    if not is_plain(variable.dtype) or not array.ndim or not array.size:
        if is_whole := all(is_finite(part) for _, part in in_parts(array)):
            variable.assign(array.astype(variable.dtype, copy=False))
        return is_whole
    # NumPy takes five times as long as TensorFlow to transpose a matrix.
    is_transposed = array.ndim == 2 and array.flags.f_contiguous and not array.flags.c_contiguous
    stored = array.T if is_transposed else array
    with tf.device("CPU"):
        tensor = tf.raw_ops.Empty(shape=stored.shape, dtype=variable.dtype, init=False)
    copy = _memory_of(tensor)
    for start, part in in_parts(stored):
        if not is_finite(part):
            return False
        np.copyto(copy[start : start + len(part)], part, casting="unsafe")
    variable.assign(tf.transpose(tensor) if is_transposed else tensor)
    return True


def _memory_of(tensor):
    """Return the memory of a new tensor, that nothing else reads yet, as an array to write to."""
    seen = np.asarray(memoryview(tensor))
    memory = (ctypes.c_byte * seen.nbytes).from_address(seen.ctypes.data)
    return np.frombuffer(memory, seen.dtype).reshape(seen.shape)
