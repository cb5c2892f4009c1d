"""A task as MediaPipe's Tasks run it: token ids of one text in, one array out. S: sequence."""

import string

import numpy as np

from keras_lm.layers.tensorflow.tracing import for_lite
from keras_lm.tasks.signatures import TextSignatures, plain_floats, trace
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.mediapipe_files import for_mediapipe

# MediaPipe lower-cases ASCII before it looks for pieces.
CAPITALS = " ".join([string.ascii_uppercase, *string.ascii_uppercase])


class IdSignatures(TextSignatures):
    """The signature of a `.tflite` whose program tokenizes: (1, S) int32 in, an array (1, …) out.

    The inputs are `ids`, `mask` and `segment_ids`, or `ids` alone for a tokenizer of words. For the
    methods see `TextSignatures`. Attributes: `tokenizer`, a `MediaPipeTokenizer`; `output`, the
    array's name; `labels`, a list of the names of its columns, or None.

    Raises:
        ValueError: if MediaPipe cannot run the task, or would tokenize in another way.
    """

    def __init__(self, task):
        super().__init__(task)
        name = type(task).__name__
        if task.single_output() is None:
            raise ValueError(
                f"MediaPipe has no runner for this {name}, only for a TextClassifier, and a "
                "FeatureExtractor with one vector for each text: export with format='litert'."
            )
        self.output, self.labels = task.single_output()
        self.texts()  # raises if there is no tokenizer
        if task.text_pair:
            raise ValueError(
                f"MediaPipe passes one text, and this {name} takes pairs: export with "
                "format='litert'."
            )
        if getattr(task, "prompt", None):
            raise ValueError(
                f"MediaPipe puts nothing before a text: make the {name} with prompt=None, and let "
                f"your program put {task.prompt!r} there."
            )
        if task.parse_special:
            raise ValueError(
                "MediaPipe finds no special tokens in text, as "
                f"parse_special={task.parse_special} asks for: set task.parse_special = False."
            )
        self.tokenizer = for_mediapipe(task.tokenizer, self._around())
        if self.tokenizer.kind != "regex":
            self._require_lower_case()

    def _around(self):
        """Return the ids before and after a text."""
        template, packer = self.task.template, self.task.packer
        pieces = template.ids("single", packer.tokenizer)
        ids, segments = zip(*pieces)
        if template.padding_side == "left" or any(segments):
            raise ValueError(
                "MediaPipe pads texts on the right, and has one segment: export with "
                "format='litert'."
            )
        place = ids.index("$A")
        return list(ids[:place]), list(ids[place + 1 :])

    def _require_lower_case(self):
        texts = tf.constant([CAPITALS, CAPITALS.lower()])
        upper, lower = self.task.preprocess({"text": texts})["token_ids"].numpy()
        if not np.array_equal(upper, lower):
            raise ValueError(
                "MediaPipe lower-cases texts, and this tokenizer keeps capitals: export with "
                "format='litert', or train an uncased model."
            )

    def lite_functions(self):
        task = self.task
        paddings = ["fixed"] if self.tokenizer.kind == "regex" else [task.packer.padding, "fixed"]
        for padding in dict.fromkeys(paddings):
            length = task.packer.sequence_length if padding == "fixed" else None
            specs = {name: tf.TensorSpec([1, length], tf.int32, name) for name in self._names()}
            with for_lite():
                yield {"serving_default": trace(self.answer_lite, specs)}

    def _names(self):
        return ["ids"] if self.tokenizer.kind == "regex" else ["ids", "mask", "segment_ids"]

    def answer_lite(self, ids, mask=None, segment_ids=None):
        task = self.task
        if self.tokenizer.kind == "regex":
            mask = tf.cast(ids != self.tokenizer.pad_id, tf.int32)
            ids = tf.where(mask > 0, ids, task.packer.pad_id)
            segment_ids = tf.zeros_like(ids)
        packed = {"token_ids": ids, "segment_ids": segment_ids, "padding_mask": mask}
        packed = {name: self._cut(x) for name, x in packed.items()}
        answer = task.decode(task(packed, training=False), packed)
        return plain_floats({self.output: answer[self.output]})

    def _cut(self, x):
        """Cut what MediaPipe passes uncut, if the length may vary; the last token ends a text."""
        longest = self.task.packer.sequence_length
        if x.shape[1] is not None:
            return x
        return tf.concat([x[:, : tf.minimum(tf.shape(x)[1], longest) - 1], x[:, -1:]], axis=1)

    def lite_columns(self, columns):
        with self.task.padded("fixed"):
            packed = self.task.preprocess({n: tf.constant(x) for n, x in columns.items()})
        names = {"ids": "token_ids", "mask": "padding_mask", "segment_ids": "segment_ids"}
        rows = {name: packed[names[name]].numpy() for name in self._names()}
        if self.tokenizer.kind == "regex":
            rows["ids"] = np.where(packed["padding_mask"], rows["ids"], self.tokenizer.pad_id)
        return rows

    def lite_requests(self):
        rows = self.lite_columns({"text": np.array(["a"])})
        return [("serving_default", {name: row[:1] for name, row in rows.items()})]
