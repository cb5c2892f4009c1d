"""Tasks that hide tokens themselves, anew in each step."""

from keras_lm.objectives import MaskedLanguageModel
from keras_lm.tasks.task import Task


class DenoisingTask(Task):
    """A task whose labels an objective makes of the inputs, inside the train and test steps.

    A subclass says in `corrupted` what becomes of a batch, and perhaps in `make_objective` which
    objective that is; masked language modelling where it does not. Arguments are those of `Task`.

    Source: BERT, https://arxiv.org/abs/1810.04805, section 3.1, task 1.
    """

    predicts_sequences = True

    def _set_tokenizer(self, tokenizer):
        super()._set_tokenizer(tokenizer)
        self.objective = self.make_objective()

    def make_objective(self):
        """Return the objective for the task's tokenizer; None if it needs one and there is none."""
        tokenizer = self.tokenizer
        if tokenizer is None:
            return None
        return MaskedLanguageModel(
            mask_id=tokenizer.special_id("mask"),
            vocabulary_size=tokenizer.vocabulary_size,
            special_ids=[tokenizer.special_id(role) for role in ("cls", "sep", "pad", "mask")],
        )

    def corrupted(self, data, training):
        """Return `(inputs, labels, sample_weight)` for a batch as Keras passes it to a step.

        Args:
            data: inputs, or a tuple of these with labels and perhaps weights.
            training: bool. False hides the same tokens each time.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it hides.")

    def train_step(self, data):
        return super().train_step(self.corrupted(data, training=True))

    def test_step(self, data):
        return super().test_step(self.corrupted(data, training=False))

    def _symbolic_build(self, iterator=None, data_batch=None):
        # Under a strategy Keras builds losses and metrics from the first batch, before any step.
        if data_batch is not None:
            data_batch = self.corrupted(data_batch, training=False)
        super()._symbolic_build(iterator, data_batch)
