"""Recognising a checkpoint by the files in its folder, and opening it."""

import dataclasses
import math
import pathlib

from keras_lm import files
from keras_lm.converters import hub
from keras_lm.converters.checked_files import CheckpointError, require_few
from keras_lm.converters.formats import FORMATS
from keras_lm.converters.sentence_transformers import MODULES, network_folder
from keras_lm.converters.tensors import LazyTensors

# Many times what the largest model has.
MOST_AXES, MOST_VALUES = 16, 2**44


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint.

    Attributes:
        source, folder: what the user gave, for messages, and the local folder of the network.
        format: "keras_lm", "huggingface", "google" (variable names of TensorFlow 1, OpenAI's GPT-2
            too), "model_garden", "openai" (GPT's shards), "allennlp" (ELMo), "keras_hub", "fastai",
            "fairseq", "cove" or "word_vectors".
        config: the parsed configuration file; `{}` if there is none.
        tensors: names → arrays, each read on access; `tensors.shape(name)` reads nothing.
            KerasHub's task weights are `task/…`.
        variable_names: for "model_garden", object paths → names of the variables, which do not
            depend on how the objects were nested; otherwise empty.
        root: the local folder of the source; None for `folder`, which lies in it in older layouts
            of sentence-transformers.
    """

    source: str
    folder: pathlib.Path
    format: str
    config: dict
    tensors: LazyTensors
    variable_names: dict[str, str] = dataclasses.field(default_factory=dict)
    root: pathlib.Path | None = None

    def __post_init__(self):
        object.__setattr__(self, "root", self.root or self.folder)

    @property
    def has_modules(self) -> bool:
        """Whether it is a folder of sentence-transformers."""
        return self.format == "huggingface" and (self.root / MODULES).is_file()

    @property
    def weights(self) -> LazyTensors:
        """`tensors`, under the names of their variables if the format has these."""
        names = self.variable_names
        return self.tensors.renamed(names) if all(names.values()) else self.tensors


def open_checkpoint(source: str | pathlib.Path) -> Checkpoint:
    """Open a keras_lm preset or a published checkpoint; weights are read on access.

    Args:
        source: a folder, or `hf://owner/name[@revision]`.

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
    folder = network_folder(root)
    for _, recognise in FORMATS:
        found = recognise(folder)
        if found is not None:
            format, config, entries, *variable_names = found
            _check_shapes(folder, entries)
            tensors = LazyTensors(entries)
            return Checkpoint(source, folder, format, config, tensors, *variable_names, root=root)
    names = sorted(path.name for path in folder.iterdir())
    listed = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    raise CheckpointError(
        f"{folder} holds no checkpoint that is recognised. In it: {listed or 'nothing'}. "
        "Recognised are:" + "".join(f"\n- {contents}" for contents, _ in FORMATS)
    )


def _check_shapes(folder, entries) -> None:
    """Raise a CheckpointError if there are more tensors, or larger ones, than there can be."""
    require_few(entries, folder)
    for name, (shape, _) in entries.items():
        # (An axis of 0 does not keep the others from being too large for an array.)
        if len(shape) > MOST_AXES or math.prod(size for size in shape if size) > MOST_VALUES:
            raise CheckpointError(
                f"{folder}: {name[:80]!r} has {len(shape)} axes and begins with "
                f"{shape[:4]}, which is no tensor's shape. It is damaged: copy or download it "
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
    return network_folder(_find_root(source))


def _find_root(source):
    if source.startswith(hub.PREFIX):
        return hub.fetch(source)
    folder = pathlib.Path(source).expanduser()
    if not folder.exists():
        files.recover(folder)  # a preset whose replacement was killed in the middle
    if folder.is_file():
        raise FileNotFoundError(f"{source!r} is a file. Give the folder that it lies in.")
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no folder {source!r}. Give the folder of a checkpoint, or hf://owner/name "
            "for a repository of the Hugging Face hub."
        )
    return folder
