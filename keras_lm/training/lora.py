"""Low-rank adaptation: train small matrices beside the frozen kernels of a pretrained model."""

import numbers
from collections.abc import Sequence

import keras

from keras_lm.training import updates
from keras_lm.utils.argument_types import PathLike

ATTENTION = ("query_key_value", "query", "key_value")  # whatever a model's attention has of these
LARGEST_SCALE = 1e6  # of alpha to rank; it is about 1, and float32 ends at 1e38
FORMAT = "keras_lm.lora.1"


def enable_lora(
    task: keras.Model, rank: int = 8, alpha: float | None = None, layers: Sequence[str] = ATTENTION
) -> None:
    """Freeze a task's backbone, and learn an update of low rank of some of its kernels instead.

    A kernel W of (D, E) becomes W + alpha / rank · A B, where A is (D, rank) and B, zero at first,
    (rank, E): Keras's own `Dense.enable_lora`. The head trains as before. The attention here has
    one kernel for query, key and value, so that these share their A. Presets and `.keras` files
    hold the sums, and load as plain models; see `save_lora` for the update alone.

    Args:
        task: `keras_lm.tasks.Task` or `MultiTask`, not trained since it was compiled.
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
    _check(rank, alpha)
    dense = _dense_layers(task)
    chosen = [layer for layer in dense if layer.name in layers]
    if not chosen:
        raise ValueError(
            f"layers={tuple(layers)}: {type(task.backbone).__name__} has no such Dense layers, but "
            f"{', '.join(sorted({layer.name for layer in dense})) or 'none'}."
        )
    if any(layer.lora_enabled for layer in dense):
        raise ValueError("The task has LoRA already: load its preset again to choose other layers.")
    updates.freeze(task, "enable_lora")
    for layer in chosen:
        layer.enable_lora(rank, alpha)


def save_lora(task: keras.Model, path: PathLike) -> None:
    """Write what `enable_lora` lets a task learn, its head included, to a `.safetensors` file.

    The file names the backbone by a SHA-256 of its weights, which are not in it.

    Args:
        task: a task after `enable_lora`.
        path: path of the file, which is replaced if it exists.

    Raises:
        ValueError: if the task has no LoRA.
    """
    layers = [layer for layer in _dense_layers(task) if layer.lora_enabled]
    if not layers:
        raise ValueError("The task has no LoRA: call keras_lm.training.enable_lora before fit.")
    settings = {
        "rank": layers[0].lora_rank,
        "alpha": layers[0].lora_alpha,
        "layers": sorted({layer.name for layer in layers}),
    }
    updates.save(task, path, FORMAT, settings, _is_learnt)


def load_lora(task: keras.Model, path: PathLike) -> None:
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

    def shapes(settings):
        expected = {}
        _check(settings["rank"], settings["alpha"])
        for layer in [dense for dense in _dense_layers(task) if dense.name in settings["layers"]]:
            (rows, columns), beside = layer._kernel.shape, layer._kernel.path.removesuffix("kernel")
            expected[f"{beside}lora_kernel_a"] = (rows, settings["rank"])
            expected[f"{beside}lora_kernel_b"] = (settings["rank"], columns)
        return expected

    settings, arrays = updates.load(task, path, FORMAT, "save_lora", _is_learnt, shapes)
    enable_lora(task, settings["rank"], settings["alpha"], settings["layers"])
    updates.assign(task, arrays, _is_learnt)


def _check(rank, alpha):
    """Raise a ValueError if the matrices cannot be made, or would be multiplied beyond bounds."""
    if not isinstance(rank, numbers.Integral) or rank < 1:
        raise ValueError(f"rank={rank}: pass 1 or more.")
    is_number = isinstance(alpha, numbers.Real)
    if alpha is not None and not (is_number and 0 < alpha <= LARGEST_SCALE * rank):
        raise ValueError(
            f"alpha={alpha}: pass a positive number, at most {LARGEST_SCALE} times the rank."
        )


def _is_learnt(path):
    return path.endswith(("/lora_kernel_a", "/lora_kernel_b"))


def _dense_layers(task):
    layers = {id(layer): layer for layer in task.backbone._flatten_layers()}
    return [layer for layer in layers.values() if isinstance(layer, keras.layers.Dense)]
