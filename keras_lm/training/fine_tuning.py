"""Fine-tuning policies for any task: learning rates by depth, and gradual unfreezing."""

import re
import weakref
from collections.abc import Mapping
from typing import Any, Self

import keras

from keras_lm.presets import innermost_backbone
from keras_lm.training.optimizers import AdamW
from keras_lm.utils.argument_types import Tensor

NUMBER = re.compile(r"^[^/]*_(\d+)/")  # of a layer of the backbone, not of parts inside one

_FROZEN_FOR_NOW = weakref.WeakKeyDictionary()  # task → variables that `GradualUnfreezing` froze


def layer_groups(task: keras.Model) -> list[list[Any]]:
    """Return lists of the trainable variables of a task by depth, the lowest first; none is empty.

    The groups are the embeddings, each numbered layer of the backbone, and the head. Weights after
    the last layer, such as a final norm, belong to its group; weights that the head shares with the
    backbone, such as a language model's embedding, belong to the head's. Layers of an encoder and a
    decoder that have the same number are one group, and so are all heads of a `MultiTask`.

    Args:
        task: `keras_lm.tasks.Task` or `MultiTask`, over any model.
    """
    backbone = innermost_backbone(task)
    below = {variable.path for variable in backbone.trainable_variables}
    head = getattr(task, "head", None)
    tied = set() if head is None else {variable.path for variable in head.trainable_variables}
    groups, depth = {}, 0
    for variable in backbone.trainable_variables:
        number = NUMBER.search(variable.path)
        depth = int(number[1]) + 1 if number else depth
        if variable.path not in tied:
            groups.setdefault(depth, []).append(variable)
    top = [v for v in task.trainable_variables if v.path not in below or v.path in tied]
    lower = [groups[depth] for depth in sorted(groups)]
    return lower + [top] if top else lower


@keras.saving.register_keras_serializable("keras_lm")
class DiscriminativeAdamW(AdamW):
    """`AdamW` with a learning rate per variable: lower for lower layers.

    Args:
        multipliers: dict of a variable's path → the factor of its learning rate; 1 by default.
        Other arguments: as `AdamW`.

    Example:

        # ULMFiT: each layer learns 2.6 times as fast as the one below
        optimizer = DiscriminativeAdamW.for_task(task, learning_rate=SlantedTriangular(4e-3))
        # ELECTRA: 0.8 of the layer above for small, 0.9 for base and large
        optimizer = DiscriminativeAdamW.for_task(
            task, factor=1 / 0.8, head_steps=2, learning_rate=3e-4
        )
        task.compile(optimizer=optimizer)

    Source: ULMFiT, https://arxiv.org/abs/1801.06146, section 3.2; ELECTRA,
    https://arxiv.org/abs/2003.10555, appendix B, and google-research/electra, `optimization.py`.
    """

    def __init__(
        self, multipliers: Mapping[str, float], learning_rate: float = 5e-5, **kwargs: Any
    ):
        super().__init__(learning_rate, **kwargs)
        self.multipliers: dict[str, float] = dict(multipliers)

    @classmethod
    def for_task(
        cls, task: keras.Model, factor: float = 2.6, head_steps: int = 1, **kwargs: Any
    ) -> Self:
        """Return an optimizer whose rate decreases from each group of layers to the one below.

        The groups are those of `layer_groups`: of a Transformer the embeddings, each block, and the
        head, whose rate is `learning_rate`.

        Args:
            factor: float. The ratio of a group's rate to that of the group below.
            head_steps: int. From the last layer to the head it is `factor ** head_steps`: 2 in
                ELECTRA's code.
            **kwargs: arguments of the optimizer.

        Raises:
            ValueError: if `factor` is not positive.
        """
        if not factor > 0:
            raise ValueError(f"factor={factor} is not positive.")
        groups = layer_groups(task)
        top = len(groups) - 1
        multipliers = {
            variable.path: factor ** -(0 if depth == top else top - depth + head_steps - 1)
            for depth, group in enumerate(groups)
            for variable in group
        }
        return cls(multipliers, **kwargs)

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        path = self._trainable_variables[self._get_variable_index(variable)].path
        multiplier = self.multipliers.get(path, 1.0)
        super().update_step(gradient, variable, learning_rate * multiplier)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"multipliers": self.multipliers}


class GradualUnfreezing(keras.callbacks.Callback):
    """Train the head first, and unfreeze one more group of layers with each epoch.

    After the last epoch, `trainable` is what it was before the run; after an interrupted run, it is
    restored by the next run with this callback. Use one object per call of `fit`.

    Args:
        epochs_per_group: int, 1 or more. Epochs until the next group is unfrozen.

    Raises:
        ValueError: if `epochs_per_group` is less than 1.

    Example:
        task.fit(texts, labels, epochs=4, callbacks=[GradualUnfreezing()])

    Source: ULMFiT, https://arxiv.org/abs/1801.06146, section 3.3; groups: `layer_groups`.
    """

    def __init__(self, epochs_per_group: int = 1):
        super().__init__()
        if epochs_per_group < 1:
            raise ValueError(f"epochs_per_group={epochs_per_group}: pass 1 or more.")
        self.epochs_per_group = epochs_per_group
        self._groups = None

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        # Undo what an interrupted run left frozen, before `fit` builds the optimizer.
        for variable in _FROZEN_FOR_NOW.get(model, ()):
            variable.trainable = True

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._groups = layer_groups(self.model)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        number = min(epoch // self.epochs_per_group + 1, len(self._groups))
        self._set_trainable(len(self._groups) - number)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._set_trainable(0)

    def _set_trainable(self, first):
        """Make only the groups from `first` on trainable."""
        changed = False
        for depth, group in enumerate(self._groups):
            for variable in group:
                changed |= variable.trainable != (depth >= first)
                variable.trainable = depth >= first
        _FROZEN_FOR_NOW[self.model] = [v for group in self._groups[:first] for v in group]
        if changed:  # a traced step keeps what was trainable then
            self.model.make_train_function(force=True)
