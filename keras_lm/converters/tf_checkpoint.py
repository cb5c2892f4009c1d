"""TensorFlow checkpoints: by variable name (TF1, google-research), by object (TF2, Model Garden).

Both are a `PREFIX.index` with `PREFIX.data-00000-of-00001`; the names inside show which one it is.
"""

import functools
import itertools
import pathlib
import re

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entry, require_file
from keras_lm.tensorflow import tf, trackable_object_graph_pb2

DATA_FILE = re.compile(r"(?P<prefix>.+)\.data-\d{5}-of-(?P<count>\d{5})")
# tensor2tensor saves a table of tokens in parts, each some of its rows.
TABLE_PART = re.compile(r"(.*symbol_modality_\d+_\d+/\w+/weights)_(\d{1,9})", re.ASCII)
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
OBJECT_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"

# What the training loop keeps beside the weights, by variable name and by object.
TF1_TRAINING_STATE = re.compile(
    r"(^|/)global_step$|(^|/)beta[12]_power(_\d+)?$|(^|/)loss_scale$"
    r"|/(adam_[mv]|lamb_[mv]|Adam(_\d+)?|LAMB(_\d+)?|Adagrad|Momentum|RMSProp(_\d+)?"
    r"|Adafactor(_\d+)?)$|^losses_avg/"
    r"|_slot_(m|v|vc|vr)$"  # mesh_tensorflow's
)
TF2_TRAINING_STATE = re.compile(r"^(save_counter|global_step|optimizer)(/|$)|/\.OPTIMIZER_SLOT/")


def find_checkpoints(folder: pathlib.Path) -> list[str]:
    """The prefixes for which `folder` has an index or a data file: `["bert_model.ckpt"]`."""
    prefixes = {path.name.removesuffix(".index") for path in folder.glob("*.index")}
    prefixes |= {m["prefix"] for path in folder.iterdir() if (m := DATA_FILE.fullmatch(path.name))}
    return sorted(prefixes)


def choose_checkpoint(folder: pathlib.Path) -> str:
    """The folder's only prefix, or the one that its `checkpoint` file names."""
    prefixes = find_checkpoints(folder)
    if len(prefixes) == 1:
        return prefixes[0]
    state = folder / "checkpoint"
    reason = "no `checkpoint` file says which one to take"
    if state.is_file():
        text = state.read_text(encoding="utf-8", errors="replace")
        match = re.search(r'^\s*model_checkpoint_path:\s*"(.*)"', text, re.MULTILINE)
        # Written as an absolute path of the machine that trained: only its last part counts.
        named = re.split(r"[/\\]", match[1])[-1] if match else None
        if named in prefixes:
            return named
        reason = f"its `checkpoint` file names {named!r}, which is not there"
    raise CheckpointError(
        f"{folder} holds several checkpoints ({', '.join(prefixes)}), and {reason}. Move the "
        'others away, or write the line `model_checkpoint_path: "NAME"` into the `checkpoint` file.'
    )


def read_tf_checkpoint(
    folder: pathlib.Path, prefix: str
) -> tuple[str, dict[str, Entry], dict[str, str]]:
    """Open a checkpoint without reading values; return `(format, entries, variable_names)`.

    The format is "google", with names as in the file, or "model_garden", with object paths;
    `variable_names` is then a dict from these to the names that the variables had, else empty.
    """
    require_file(folder / f"{prefix}.index", named_by="its data file")
    matches = [DATA_FILE.fullmatch(path.name) for path in folder.iterdir()]
    counts = {match["count"] for match in matches if match and match["prefix"] == prefix}
    # Without any data file, name the one that an unsharded checkpoint would have.
    count = max(counts, default="00001")
    for shard in range(int(count)):
        path = folder / f"{prefix}.data-{shard:05d}-of-{count}"
        require_file(path, named_by=f"{prefix}.index")

    try:
        reader = tf.train.load_checkpoint(str(folder / prefix))
        shapes = reader.get_variable_to_shape_map()
        graph = reader.get_tensor(OBJECT_GRAPH) if OBJECT_GRAPH in shapes else None
    except Exception as error:  # TensorFlow's reader raises a dozen unrelated classes.
        raise _damaged(folder / f"{prefix}.index", error) from error

    def entry(name):
        return tuple(shapes[name]), functools.partial(_read_tensor, reader, folder / prefix, name)

    if graph is None:
        names = sorted(name for name in shapes if not TF1_TRAINING_STATE.search(name))
        return "google", _with_whole_tables({name: entry(name) for name in names}), {}
    paths = {
        name.removesuffix(OBJECT_SUFFIX): name
        for name in sorted(shapes)
        if name.endswith(OBJECT_SUFFIX) and not TF2_TRAINING_STATE.search(name)
    }
    variable_names = _variable_names(graph)
    return (
        "model_garden",
        {path: entry(name) for path, name in paths.items()},
        {path: variable_names.get(name, "") for path, name in paths.items()},
    )


def write_tf_checkpoint(folder: pathlib.Path, prefix: str, tensors: dict[str, np.ndarray]) -> None:
    """Write `PREFIX.index` and `PREFIX.data-00000-of-00001`, by variable name."""
    tf.raw_ops.SaveV2(
        prefix=str(folder / prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(array) for array in tensors.values()],
    )


def _with_whole_tables(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Return one entry in place of `…/weights_0`, `…/weights_1` and so on: `…/weights`."""
    tables, others = {}, {}
    for name, entry in entries.items():
        match = TABLE_PART.fullmatch(name)
        if match:
            tables.setdefault(match[1], {})[int(match[2])] = entry
        else:
            others[name] = entry
    for name, parts in tables.items():
        lacking = next(number for number in itertools.count() if number not in parts)
        if lacking < len(parts):
            raise CheckpointError(
                f"The checkpoint lacks {name}_{lacking}: its file is incomplete. Copy or download "
                "it again."
            )
        shapes, readers = zip(*(parts[i] for i in sorted(parts)), strict=True)
        shape = (sum(rows for rows, *_ in shapes), *shapes[0][1:])
        others[name] = shape, functools.partial(_read_rows, readers)
    return others


def _read_rows(readers) -> np.ndarray:
    return np.concatenate([read() for read in readers])


def _variable_names(graph: bytes) -> dict[str, str]:
    """Checkpoint keys to the names that the variables had in the program that saved them."""
    proto = trackable_object_graph_pb2.TrackableObjectGraph.FromString(graph)
    return {
        attribute.checkpoint_key: attribute.full_name
        for node in proto.nodes
        for attribute in node.attributes
    }


def _read_tensor(reader, prefix: pathlib.Path, name: str) -> np.ndarray:
    try:
        return np.asarray(reader.get_tensor(name))
    except Exception as error:
        raise _damaged(prefix, error, f" at {name!r}") from error


def _damaged(path, error, where="") -> CheckpointError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return CheckpointError(
        f"{path} cannot be read as a TensorFlow checkpoint{where}: {reason}. Its files are "
        "damaged, incomplete or of different checkpoints: copy or download them together again."
    )
