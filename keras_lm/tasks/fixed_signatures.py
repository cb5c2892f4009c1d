"""The signature of a `.tflite` whose inputs and outputs have known sizes: LiteRT.js runs no other.

Shapes: B rows, N bytes of a column, W words.
"""

import numpy as np

from keras_lm.layers.tensorflow import for_lite, numbers_of_classes
from keras_lm.litert import in_bytes
from keras_lm.tasks.number_signatures import in_numbers
from keras_lm.tasks.signatures import ByteSignatures, columns_from_bytes, plain_floats
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.strings import without_text_operations
from keras_lm.utils.user_arguments import check_whole

# A class of tasks → what a page does with its answers.
KINDS = {
    "TextClassifier": "classify",
    "TextRegressor": "score",
    "TokenClassifier": "tag",
    "QuestionAnswerer": "answer",
    "FeatureExtractor": "embed",
}
# A token is rarely longer, so that a text of this many is cut where the model would cut it.
BYTES_OF_TOKEN = 16
NUM_WINDOWS = 3  # of contexts of questions, which have no such limit


class FixedSignatures(ByteSignatures):
    """That of `ByteSignatures` for B rows and N bytes of each column; it answers in numbers alone.

    Inputs are `text`, uint8 (N,), and `text_ends`, int32 (B,), and so of other columns. Only they
    and the outputs have known sizes; rows of tokens are as long as their texts.

    `call`, int32 (), is returned once all outputs are there: LiteRT.js raises no error when an
    operation fails, and returns whatever is in its memory. So pass another number each time.

    Outputs are those of the task that are numbers, (B, …) float32 or int32. `labels` are places in
    the names of the classes, or -1; a `TokenClassifier` has as many words as bytes, N, and those
    that are not there end at 0. `unread` (B,) counts the tokens of a text, or the words, that the
    model has no room for.

    Args:
        task: `Task` with one answer for each text.
        num_bytes: int, N. None for 16 for each token that a row has room for, and three times as
            many of a `QuestionAnswerer`, which reads long contexts in several rows.
        num_rows: int, B.

    Raises:
        ValueError: if a task has no such answer, or a number is less than 1.
    """

    def __init__(self, task, num_bytes=None, num_rows=1):
        name = type(task).__name__
        if kind_of(task) is None:
            raise ValueError(
                f"format='web': a page has no place for the answers of a {name}, only for those of "
                f"{', '.join(KINDS)}. Export it in another format."
            )
        if kind_of(task) == "embed" and task.single_output() is None:
            raise ValueError(
                f"format='web': this {name} has more than one vector for a text, and a page "
                "compares one: make it with another pooling than 'none', and one of the layers."
            )
        super().__init__(task.signatures)
        self.texts()  # raises if there is no tokenizer
        check_whole("num_rows", num_rows, 1)
        if num_bytes is None:
            number = NUM_WINDOWS if kind_of(task) == "answer" else 1
            num_bytes = num_rows * number * BYTES_OF_TOKEN * task.packer.sequence_length
        check_whole("num_bytes", num_bytes, num_rows)
        self.num_bytes, self.num_rows, self.kind = num_bytes, num_rows, kind_of(task)

    def lite_texts(self):
        specs = {"call": tf.TensorSpec([], tf.int32, "call")}
        for name, spec in super().lite_texts().items():
            size = self.num_rows if name.endswith("_ends") else self.num_bytes
            specs[name] = tf.TensorSpec([size], spec.dtype, name)
        return specs

    def lite_batch(self, columns):
        """Return the rows of a call: texts that are too long are cut as on the page."""
        inputs = {"call": np.array(1, np.int32)}
        for name, column in columns.items():
            texts = [_encoded(text) for text in column] + [b""] * (self.num_rows - len(column))
            room = self.num_bytes // self.num_rows
            inputs |= in_bytes({name: [self.cut(text, room) for text in texts]})
            inputs[name] = np.pad(inputs[name], [0, self.num_bytes - len(inputs[name])])
        return inputs

    def cut(self, text, room):
        """Return at most `room` bytes of UTF-8, whole characters, as the task would cut it."""
        if len(text) <= room:
            return text
        if self.task.packer.truncation_side == "left":
            start = len(text) - room
            while start < len(text) and text[start] & 0xC0 == 0x80:
                start += 1
            return text[start:]
        while room and text[room] & 0xC0 == 0x80:
            room -= 1
        return text[:room]

    def answer_lite(self, call, **inputs):
        columns = columns_from_bytes(inputs, self.offer.lite_texts())
        with for_lite(), without_text_operations(), numbers_of_classes():
            answer, unread = self._read(columns)
        answer = in_numbers(answer, getattr(self.task, "num_classes", None))
        answer = {name: self._fixed(name, value) for name, value in answer.items()}
        unread = self._words_unread(answer) if unread is None else unread
        answer = plain_floats(answer | {"unread": tf.reshape(unread, [self.num_rows])})
        return answer | {"call": call + _zero_after(answer)}

    def _read(self, columns):
        """Return an answer, and how many tokens were cut off, (B,); None for words."""
        task, kind = self.task, kind_of(self.task)
        if kind == "tag":
            return task.answer_lite(columns), None
        if kind == "answer":
            question = task.tokenizer.tokenize_lite(columns["question"]).row_lengths()
            limit = task.rows.question_limit(task.packer)
            return task.answer_lite(columns), tf.maximum(tf.cast(question, tf.int32) - limit, 0)
        if hasattr(task, "members"):
            unread = [_pack(member, columns)[1] for member in task.members]
            return task.answer_lite(columns), tf.reduce_max(tf.stack(unread), axis=0)
        packed, unread = _pack(task, columns)
        return task.decode(task(packed, training=False), packed), unread

    def _fixed(self, name, value):
        """Return an output in a known shape."""
        sizes = [self.num_rows, *value.shape[1:]]
        if kind_of(self.task) == "tag":
            missing = self.num_bytes - tf.shape(value)[1]
            rest = -1 if name == "labels" else 0
            value = tf.pad(value, [[0, 0], [0, missing]], constant_values=rest)
            sizes[1] = self.num_bytes
        elif kind_of(self.task) == "answer":
            sizes[1] = self.task.num_answers
        return tf.reshape(value, sizes)

    def _words_unread(self, answer):
        is_unread = (answer["labels"] < 0) & (answer["end"] > answer["start"])
        return tf.reduce_sum(tf.cast(is_unread, tf.int32), axis=1)

    def lite_requests(self):
        texts = [b"two words", b"", "naïve".encode() * 9]
        columns = dict.fromkeys(self.offer.lite_texts(), texts[: self.num_rows])
        return [("serving_default", self.lite_batch(columns))]


def kind_of(task):
    """Return what a page does with the answers of a task, one of `KINDS`, or None."""
    names = [each.__name__ for each in type(task).__mro__]
    return next((KINDS[name] for name in names if name in KINDS), None)


def _pack(task, columns):
    """Return packed texts, and how many tokens of each row were cut off, (B,)."""
    lengths = []

    def tokenize(text):
        ids = task.preprocessor.tokenize_lite(text)
        lengths.append(tf.cast(ids.row_lengths(), tf.int32))
        return ids

    packed = task.preprocess(columns, tokenize)
    special = task.packer.number_of_special_tokens("pair" if len(lengths) > 1 else "single")
    room = task.packer.sequence_length - special
    return packed, tf.maximum(tf.add_n(lengths) - room, 0)


def _zero_after(answer):
    """Return 0 that depends on all outputs, in a way that no compiler sees through."""
    counts = [tf.reduce_sum(tf.cast(value > 0, tf.int32)) for value in answer.values()]
    return tf.cast(tf.reduce_min(tf.stack(counts)) < 0, tf.int32)


def _encoded(text):
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
