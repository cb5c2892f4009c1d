"""Adapters: train small layers between those of a frozen backbone."""

import keras

from keras_lm.presets import innermost_backbone
from keras_lm.training import updates
from keras_lm.utils.argument_types import PathLike

FORMAT = "keras_lm.adapters.1"
NORMS = ("/gamma", "/beta")


def enable_adapters(task: keras.Model, adapter_dim: int = 64) -> None:
    """Freeze a task's backbone, and learn adapters in it, its norms, and the head instead.

    After attention, and after the feed-forward network of each block, comes a
    `keras_lm.layers.Adapter`, close to the identity at first, before the residual sum. Dropout, if
    there is any, comes after it, where the paper's code has it before. Blocks that share weights
    share their adapters. A preset and an export hold the adapters too; see `save_adapters` for
    what is learnt alone.

    Args:
        task: `keras_lm.tasks.Task` or `MultiTask`, not trained since it was compiled.
        adapter_dim: int, 1 or more. Units of each adapter; the paper tries 8 to 256.

    Raises:
        ValueError: if `adapter_dim` is less than 1, the backbone has no blocks with attention, or
            the task has adapters or an optimizer with state already.

    Example:

        task = keras_lm.tasks.TextClassifier.from_preset(SOURCE, num_classes=2)
        keras_lm.training.enable_adapters(task, adapter_dim=16)
        task.fit(["good", "bad"], [1, 0])
        keras_lm.training.save_adapters(task, "reviews.safetensors")

    Source: Houlsby et al. 2019, https://arxiv.org/abs/1902.00751, section 2.
    """
    network = innermost_backbone(task)
    network.check_adapters(adapter_dim)
    updates.freeze(task, "enable_adapters")
    network.add_adapters(adapter_dim)
    for variable in updates.of_backbone(task, _is_learnt).values():
        variable.trainable = True


def save_adapters(task: keras.Model, path: PathLike) -> None:
    """Write what `enable_adapters` lets a task learn, its head included, to a `.safetensors` file.

    The file names the backbone by a SHA-256 of its frozen weights, which are not in it.

    Args:
        task: a task after `enable_adapters`.
        path: path of the file, which is replaced if it exists.

    Raises:
        ValueError: if the task has no adapters.
    """
    adapter_dim = innermost_backbone(task).adapter_dim
    if adapter_dim is None:
        raise ValueError(
            "The task has no adapters: call keras_lm.training.enable_adapters before fit."
        )
    updates.save(task, path, FORMAT, {"adapter_dim": adapter_dim}, _is_learnt)


def load_adapters(task: keras.Model, path: PathLike) -> None:
    """Enable adapters on a task as they were saved, and load their weights and those of the head.

    Args:
        task: a task of the same class over the same backbone; its own head may be fresh.
        path: a file by `save_adapters`.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointError: if the file is damaged or of another format.
        ValueError: if the file belongs to another backbone, or to a task of other shapes, such as
            another number of classes; the task is then unchanged.

    Example:

        task = keras_lm.tasks.TextClassifier.from_preset(SOURCE, num_classes=2)
        keras_lm.training.load_adapters(task, "reviews.safetensors")
    """

    def shapes(settings):
        norms = updates.of_backbone(task, lambda path: path.endswith(NORMS))
        expected = {name: tuple(variable.shape) for name, variable in norms.items()}
        for layer in innermost_backbone(task).adapted_layers():
            path, bottleneck = layer._kernel.path.removesuffix("kernel"), settings["adapter_dim"]
            expected[f"{path}adapter/down/kernel"] = (layer.units, bottleneck)
            expected[f"{path}adapter/down/bias"] = (bottleneck,)
            expected[f"{path}adapter/up/kernel"] = (bottleneck, layer.units)
            expected[f"{path}adapter/up/bias"] = (layer.units,)
        return expected

    settings, arrays = updates.load(task, path, FORMAT, "save_adapters", _is_learnt, shapes)
    enable_adapters(task, settings["adapter_dim"])
    updates.assign(task, arrays, _is_learnt)


def _is_learnt(path):
    return "/adapter/" in path or path.endswith(NORMS)
