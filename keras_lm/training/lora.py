"""Low-rank adaptation: train small matrices beside the frozen kernels of a pretrained model."""

import hashlib
import json
import pathlib

import keras
import numpy as np
import safetensors
from safetensors.numpy import save_file

from keras_lm import files
from keras_lm.converters import CheckpointError

ATTENTION = ("query_key_value", "query", "key_value")  # whatever a model's attention has of these
FORMAT = "keras_lm.lora.1"


def enable_lora(task, rank=8, alpha=None, layers=ATTENTION):
    """Freeze a task's backbone, and learn an update of low rank of some of its kernels instead.

    A kernel W of (D, E) becomes W + alpha / rank · A B, where A is (D, rank) and B, zero at first,
    (rank, E): Keras's own `Dense.enable_lora`. The head trains as before. The attention here has
    one kernel for query, key and value, so that these share their A. Presets and `.keras` files
    hold the sums, and load as plain models; see `save_lora` for the update alone.

    Args:
        task: `keras_lm.tasks.Task`, not trained since it was compiled.
        rank: int, 1 or more.
        alpha: float, or None for `rank`. The update is multiplied by alpha / rank.
        layers: names of Dense layers of the backbone: by default the projections to queries, keys
            and values; `"intermediate"` and `"output"` are those of the feed-forward network and
            the end of attention.

    Raises:
        ValueError: if an argument is out of range, the backbone has none of the layers, or the task
            has LoRA or an optimizer with state already.

    Example:

        task = keras_lm.tasks.TextClassifier.from_preset(SOURCE, num_classes=2)
        keras_lm.training.enable_lora(task, rank=4)
        task.fit(["good", "bad"], [1, 0])
        keras_lm.training.save_lora(task, "reviews.safetensors")

    Source: Hu et al. 2021, https://arxiv.org/abs/2106.09685, section 4.
    """
    if rank < 1:
        raise ValueError(f"rank={rank}: pass 1 or more.")
    if alpha is not None and not alpha > 0:
        raise ValueError(f"alpha={alpha} is not positive.")
    dense = _dense_layers(task)
    chosen = [layer for layer in dense if layer.name in layers]
    if not chosen:
        raise ValueError(
            f"layers={tuple(layers)}: {type(task.backbone).__name__} has no such Dense layers, but "
            f"{', '.join(sorted({layer.name for layer in dense})) or 'none'}."
        )
    if any(layer.lora_enabled for layer in dense):
        raise ValueError("The task has LoRA already: load its preset again to choose other layers.")
    if task.optimizer is not None and task.optimizer.built:
        raise ValueError(
            "The task's optimizer has state for other weights: call enable_lora before fit, or "
            "task.compile() before it."
        )
    for variable in task.backbone.trainable_variables:
        variable.trainable = False
    for layer in chosen:
        layer.enable_lora(rank, alpha)


def save_lora(task, path):
    """Write what `enable_lora` lets a task learn, its head included, to a `.safetensors` file.

    The file names the backbone by a SHA-256 of its weights, which are not in it.

    Args:
        task: a task after `enable_lora`.
        path: path of the file, which is replaced if it exists.

    Raises:
        ValueError: if the task has no LoRA.
    """
    layers = _lora_layers(task)
    if not layers:
        raise ValueError("The task has no LoRA: call keras_lm.training.enable_lora before fit.")
    settings = {
        "rank": layers[0].lora_rank,
        "alpha": layers[0].lora_alpha,
        "layers": sorted({layer.name for layer in layers}),
        "task": type(task).__name__,
        "backbone": _digest(task),
    }
    arrays = {name: np.array(variable.numpy()) for name, variable in _learnt(task).items()}
    with files.replacing(path) as new:
        save_file(arrays, new, metadata={"format": FORMAT, "lora": json.dumps(settings)})


def load_lora(task, path):
    """Enable LoRA on a task as it was saved, and load its weights and those of the head.

    Args:
        task: a task of the same class over the same backbone; its own head may be fresh.
        path: a file by `save_lora`.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointError: if the file is damaged or of another format.
        ValueError: if the file belongs to another backbone, or to a task of other shapes, such as
            another number of classes; the task is then unchanged.

    Example:

        task = keras_lm.tasks.TextClassifier.from_preset(SOURCE, num_classes=2)
        keras_lm.training.load_lora(task, "reviews.safetensors")
    """
    path = pathlib.Path(path).expanduser()
    settings, arrays = _read(path)
    if settings["backbone"] != _digest(task):
        raise ValueError(
            f"{path} was trained over a backbone with other weights: load it into a task from the "
            "preset or checkpoint that the training began with."
        )
    layers = [layer for layer in _dense_layers(task) if layer.name in settings["layers"]]
    expected = {name: tuple(variable.shape) for name, variable in _head(task).items()}
    for layer in layers:
        (rows, columns), beside = layer._kernel.shape, layer._kernel.path.removesuffix("kernel")
        expected[f"{beside}lora_kernel_a"] = (rows, settings["rank"])
        expected[f"{beside}lora_kernel_b"] = (settings["rank"], columns)
    found = {name: array.shape for name, array in arrays.items()}
    if found != expected:
        wrong = next(n for n in [*expected, *found] if found.get(n) != expected.get(n))
        raise ValueError(
            f"{path} is of a {settings['task']} in which {wrong!r} is {found.get(wrong)}, and in "
            f"this {type(task).__name__} it is {expected.get(wrong)}: make the task as it was."
        )
    enable_lora(task, settings["rank"], settings["alpha"], settings["layers"])
    for name, variable in _learnt(task).items():
        variable.assign(arrays[name])


def _read(path):
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: pass a file by keras_lm.training.save_lora."
        )
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") == FORMAT:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return json.loads(metadata["lora"]), arrays
    except (safetensors.SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{path} is damaged or incomplete: {error}. Copy it again."
        ) from error
    raise CheckpointError(
        f"{path} was not written by keras_lm.training.save_lora: pass one that was."
    )


def _dense_layers(task):
    layers = {id(layer): layer for layer in task.backbone._flatten_layers()}
    return [layer for layer in layers.values() if isinstance(layer, keras.layers.Dense)]


def _lora_layers(task):
    return [layer for layer in _dense_layers(task) if layer.lora_enabled]


def _updates(task):
    layers = _lora_layers(task)
    return {v.path: v for layer in layers for v in (layer.lora_kernel_a, layer.lora_kernel_b)}


def _learnt(task):
    return _head(task) | _updates(task)


def _head(task):
    below = {id(variable) for variable in task.backbone.weights}
    return {v.path: v for v in task.trainable_variables if id(v) not in below}


def _digest(task):
    """Return the SHA-256 of the backbone's weights, without updates."""
    updates = _updates(task)
    digest = hashlib.sha256()
    for variable in sorted(task.backbone.weights, key=lambda v: v.path):
        if variable.path not in updates and "seed_generator" not in variable.path:
            digest.update(f"{variable.path} {variable.dtype} {tuple(variable.shape)}\n".encode())
            digest.update(np.ascontiguousarray(variable.numpy()).view(np.uint8).data)
    return digest.hexdigest()
