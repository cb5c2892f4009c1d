"""The function of an `.onnx` that takes texts as bytes: it answers in numbers."""

import numpy as np

from keras_lm.layers.tensorflow import numbers_of_classes
from keras_lm.tasks.signatures import ByteSignatures, trace
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings

# What tokenizers are most likely to read otherwise in another runtime.
HARD_TEXTS = (
    "naïve Straße, ΟΔΥΣΣΕΥΣ ΣΑΣ ẞ İ",
    "",
    "e\u0301 ﬁ ½ Ⅷ Ａ\u3000日本語のテキスト。 한국어",
    "👍🏽 👩\u200d👧 שלום नमस्ते ไทย\ufeff",
    "a\0b \x7f\x9f\ufffe\ufdd0 [CLS] </s>",
    b"\xff\xc3 \xe2\x82 \xed\xa0\x80\xf0\x9f\x91 \xf4\x90\x80\x80 good\xc3",
    "don't we're I'll 'S $1,000.50 ##ing ▁x\t\n  y ",
    "x" * 201 + " " + "!?" * 9,
)
NUM_TOKENS = 12  # of a text that is made of a tokenizer's entries
LONG = 700  # words, more than most models read


class NumberSignatures(ByteSignatures):
    """That of `ByteSignatures`, with the outputs of the task that are numbers: float32 or int32.

    `labels` of classes are places in the names of the classes, or -1, which is also what comes
    after the last word of a row. Strings are outputs only if they are no parts of the texts, those
    of a `MaskedLM`. For the methods see `PackedSignatures`.
    """

    def specs(self):
        """Return the `tf.TensorSpec`s of the inputs by name."""
        return self.lite_texts()

    def axes(self, name):
        """Return the names of an input's axes."""
        is_bytes = f"{name}_ends" in self.specs()
        return (f"{name}_bytes",) if is_bytes else ("batch", "choices")

    def answer(self, tokenize=None):
        return self.answer_lite

    def function(self):
        """Return the `ConcreteFunction` of `answer`, in operations that other formats have."""
        if not self.offer.answers_in_lite:
            raise ValueError(
                f"{type(self.task).__name__} writes text, in a loop that an .onnx does not have: "
                "export as a SavedModel or a .tflite."
            )
        self.require_lite()
        return trace(self.answer_lite, self.specs())

    context = staticmethod(numbers_of_classes)

    def outputs(self, answers):
        numbers = in_numbers(answers, getattr(self.task, "num_classes", None))
        if not self.task.joins_pieces:
            return numbers
        # (In an .onnx, no output has the name of an input.)
        texts = {n: x for n, x in answers.items() if strings.are_bytes(x)}
        given = self.offer.lite_texts()
        return numbers | super().outputs(
            {f"filled_{n}" if n in given else n: x for n, x in texts.items()}
        )

    def rows(self, columns):
        """Return named strings as they are passed, arrays by name."""
        return self.lite_batch(self.lite_columns(columns))

    def requests(self):
        """Yield hard texts, and texts of the tokenizer's own entries: arrays by name."""
        special = [*self.task.tokenizer.special_tokens.values()]
        texts = ["a", " a ".join(2 * special), *self._of_entries(), *HARD_TEXTS]
        for size in (1, 3, len(texts)):
            yield self._request(texts, size)
        yield self._request(["naïve " * LONG, "straße " * LONG, "日本 " * LONG], 1)

    def _request(self, texts, size):
        """Return as many rows; all columns and choices of a row have different texts."""
        texts, columns = np.array([*texts, None], object)[:-1], {}
        for number, (name, spec) in enumerate(self.offer.lite_texts().items()):
            columns[name] = np.roll(texts, -number)[:size]
            if spec.shape.rank == 2:
                columns[name] = np.stack([columns[name], np.roll(texts, -5)[:size]], axis=1)
        return self.rows(columns)

    def _of_entries(self):
        random = np.random.default_rng(0)
        for task in getattr(self.task, "members", [self.task]):
            ids = random.integers(0, task.tokenizer.vocabulary_size, [8, NUM_TOKENS])
            yield from task.tokenizer.detokenize(tf.constant(ids, tf.int32)).numpy()


def in_numbers(answer, num_classes):
    """Return those outputs of an answer that are numbers: no int64, and -1 for a missing class."""
    numbers = {}
    for name, value in answer.items():
        if name == "class_names" or strings.are_bytes(value) or value.dtype == tf.string:
            continue
        value = tf.cast(value, tf.int32) if value.dtype.is_integer else value
        if name == "labels" and num_classes is not None:
            value = tf.where(value < num_classes, value, -1)
        numbers[name] = value
    return numbers
