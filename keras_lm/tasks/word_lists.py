"""Texts that were split into words before.

Shapes: B batch, W words.
"""

import tensorflow as tf

from keras_lm.tasks.columns import refuse_empty_words


class TakesWords:
    """What a task puts before its base, to take texts as lists of words, too.

    It does so where the tokenizer has words and no pieces of them (ELMo's, word lists). An export
    then has the signature `words`, which takes them filled up with empty strings.
    """

    @property
    def list_names(self):
        """Names of the texts whose rows may be lists of words."""
        return self.text_names if hasattr(self.tokenizer, "tokenize_words") else ()

    def columns(self, x):
        columns = super().columns(x)
        refuse_empty_words(columns)
        return columns

    def text_shape(self, name):
        return [None]

    def other_signatures(self):
        return {"words": self.text_specs([None, None])} if self.list_names else {}

    def text_specs(self, shape):
        """Return the `tf.TensorSpec`s of the texts in an export, of a shape, by name."""
        return {name: tf.TensorSpec(shape, tf.string, name) for name in self.answer_names}

    def preprocess(self, columns, tokenize=None):
        """Tokenize and pack, in the graph.

        Args:
            columns: dict of strings (B,); or of words (B, W), ragged or filled up with empty
                strings, which are not words.
            tokenize: see `Task.preprocess`.
        """
        columns = {
            name: text
            if isinstance(text, tf.RaggedTensor)
            else tf.convert_to_tensor(text, tf.string)
            for name, text in columns.items()
        }
        if all(text.shape.rank == 1 for text in columns.values()):
            return super().preprocess(columns, tokenize)
        self.require_tokenizer()
        words = {
            name: text
            if isinstance(text, tf.RaggedTensor)
            else tf.RaggedTensor.from_tensor(text, padding="")
            for name, text in columns.items()
        }
        return super().preprocess(words, self.tokenizer.tokenize_words)
