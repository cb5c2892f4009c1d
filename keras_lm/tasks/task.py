"""Task: a tokenizer, a packer, a backbone and a head, trained and served on raw strings.

Shapes: B batch, S sequence, D hidden.
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_lm import presets
from keras_lm.registry import TASKS, TOKENIZERS, register
from keras_lm.tasks.columns import batches_of, join_answers
from keras_lm.tasks.text_model import TextModel
from keras_lm.training import AdamW


class Task(TextModel):
    """A model that does a job on text; the base class of all tasks.

    A subclass makes its head in `__init__` (with `add_head`), states its defaults for `compile` and
    what it serves (`decode`). `fit`, `evaluate`, `predict`, `train_on_batch`, `test_on_batch` and
    `predict_on_batch` take raw strings: a list or array is a batch, a tuple of two is a pair, a
    dict uses the keys `text` and `text_pair`, and a `tf.data.Dataset` yields batches of these,
    alone or with labels. They also take packed dicts (`token_ids`, …), as `task(inputs)` does.

    Args:
        backbone: `keras_lm.models.Backbone`.
        tokenizer: `keras_lm.tokenizers.Tokenizer`, or None for a task that takes packed dicts only.
        sequence_length: int, or None for the backbone's own limit, or 512 where it has none, as
            recurrent ones. Longer texts are truncated.
        padding: `"longest"` of the batch, or `"fixed"` to `sequence_length`.
        truncation: see `keras_lm.packers.Packer`.
        text_pair: bool. Whether the served signature takes `text_pair` beside `text`; None until
            `fit` has seen which it is.
        name: str.

    Raises:
        ValueError: if the tokenizer's vocabulary is larger than the backbone's embedding, or
            `sequence_length` exceeds what the backbone has positions for.
    """

    default_learning_rate = 5e-5
    # What the paths of weights begin with that a checkpoint may lack: they begin at random.
    FRESH = ("classifier/",)
    # False where the loss does not reach the backbone's pooler.
    uses_pooler = True

    def __init__(
        self,
        backbone,
        tokenizer=None,
        sequence_length=None,
        padding="longest",
        truncation="longest_first",
        text_pair=None,
        name=None,
    ):
        super().__init__(name=name, dtype=backbone.dtype_policy)
        limit = backbone.max_sequence_length
        if sequence_length is not None and limit is not None and sequence_length > limit:
            raise ValueError(
                f"sequence_length={sequence_length}, but the backbone has positions for {limit}: "
                f"pass {limit} or less."
            )
        self.backbone = backbone
        self.packing = {
            "sequence_length": (limit or 512) if sequence_length is None else sequence_length,
            "padding": padding,
            "truncation": truncation,
        }
        self.text_pair = text_pair
        self.is_pair_stated = text_pair is not None
        self._set_tokenizer(tokenizer)

    def _set_tokenizer(self, tokenizer):
        self.tokenizer = tokenizer
        self.packer = None
        if tokenizer is None:
            return
        rows = self.backbone.config["vocabulary_size"]
        if tokenizer.vocabulary_size > rows:
            raise ValueError(
                f"tokenizer has {tokenizer.vocabulary_size} entries, but the backbone's embedding "
                f"has {rows} rows: they belong to different checkpoints."
            )
        self.packer = self.backbone.packer_class(self.template, tokenizer, **self.packing)

    @property
    def template(self):
        """The special tokens around a text and around a pair: the backbone's own."""
        return self.backbone.TEMPLATE

    def add_head(self, kind, **options):
        """Return the backbone's head of a `kind`, built."""
        head = self.backbone.make_head(kind, **options)
        head(self.backbone.output, self.backbone.input)
        self.uses_pooler = self.uses_pooler and getattr(head, "uses_pooler", True)
        return head

    @property
    def trainable_weights(self):
        weights = super().trainable_weights
        if not self.uses_pooler:  # Keras would warn in each step of weights without a gradient
            weights = [w for w in weights if not w.path.startswith("pooler/")]
        return weights

    @property
    def trainable_variables(self):
        return self.trainable_weights

    def _finish(self):
        """Every variable is there by now: say so to Keras, and compile with the defaults."""
        self.built = True
        self.compile()

    # === From and to files ===

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        register(cls, TASKS)

    @classmethod
    def from_preset(cls, source, load_weights=True, **arguments):
        """Load a task from a preset, a published checkpoint or a size name.

        Args:
            source: see `keras_lm.models.Backbone.from_preset`.
            load_weights: bool. False gives random weights; a size name needs it.
            **arguments: of the task, such as `num_classes` or `sequence_length`; of its backbone,
                such as `dropout` or `dtype`. `tokenizer` replaces the checkpoint's own.

        Returns:
            A compiled task. A head that the checkpoint lacks is fresh, and one warning says so.

        Raises:
            FileNotFoundError: if `source` is neither a folder nor a known name.
            ValueError: if the checkpoint is damaged, unknown or ambiguous, or an argument is
                unknown.
        """
        return presets.load_task(source, cls, load_weights=load_weights, **arguments)

    @classmethod
    def arguments_from_checkpoint(cls, labels):
        """Return the arguments that a published classification head states.

        Args:
            labels: `keras_lm.converters.labels.Labels`.

        Returns:
            dict, or None where the head is not one of this task.
        """
        return None

    def save_to_preset(self, folder):
        """Write configuration, vocabulary and weights to `folder`, together and in one step.

        Args:
            folder: path. Made, or replaced where it holds a preset.

        Raises:
            FileExistsError: if `folder` holds something that is no preset; it is left as it is.
        """
        presets.save(folder, backbone=self.backbone, task=self)

    def export(self, path, format="saved_model"):
        """Write one artefact that takes strings.

        Args:
            path: for `"saved_model"` the folder of all versions, in which the next number is made;
                for `"litert"` the `.tflite` file.
            format: `"saved_model"` or `"litert"`.

        Returns:
            `pathlib.Path` of what was written.

        Raises:
            ValueError: if `format` is unknown, the task has no tokenizer, or the graph holds an
                operation that the place where it shall run does not have.
        """
        from keras_lm import export

        return export.export(self, path, format=format)

    def get_config(self):
        tokenizer = self.tokenizer
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "tokenizer": tokenizer
            and {"class_name": type(tokenizer).__name__, "config": tokenizer.get_config()},
            "name": self.name,
            **self.get_arguments(),
        }

    def get_arguments(self):
        """Return the arguments but for backbone, tokenizer and name, as JSON can hold them."""
        return {**self.packing, "text_pair": self.text_pair}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        tokenizer = config.pop("tokenizer")
        if not isinstance(config["backbone"], keras.Model):
            config["backbone"] = keras.saving.deserialize_keras_object(
                config["backbone"], custom_objects
            )
        task = cls(**config)
        task._tokenizer_config = tokenizer  # its vocabulary follows in load_assets
        return task

    def save_assets(self, folder):
        """Called by Keras for a `.keras` file: the vocabulary."""
        if self.tokenizer is not None:
            self.tokenizer.save_assets(folder)
            # For tokenizers without files: where there is none, Keras does not call load_assets.
            Path(folder, "tokenizer").touch()

    def load_assets(self, folder):
        """Called by Keras for a `.keras` file: the vocabulary."""
        if self._tokenizer_config is not None:
            cls = TOKENIZERS[self._tokenizer_config["class_name"]]
            self._set_tokenizer(cls.from_assets(folder, self._tokenizer_config["config"]))

    # === Calling ===

    def __call__(self, inputs, *args, **kwargs):
        if not isinstance(inputs, dict):
            raise ValueError(
                f"inputs is a {type(inputs).__name__}: calling {type(self).__name__} takes the "
                "dict that preprocess({'text': …}) returns. Raw strings go to predict."
            )
        inputs = {
            name: np.asarray(value) if isinstance(value, list) else value
            for name, value in inputs.items()
        }
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None):
        return self.head(self._encode(inputs, training), inputs, training=training)

    def _encode(self, inputs, training):
        return self.backbone(self._backbone_inputs(inputs), training=training)

    def _backbone_inputs(self, inputs):
        """Leave out what is meant for a head, such as `mask_positions`."""
        return {name: inputs[name] for name in self.backbone.input_names if name in inputs}

    @property
    def answer_names(self):
        """Names of the texts that `answer` takes, those of `text_pair` only where it is True."""
        return list(self.text_names if self.text_pair else self.required_names)

    def text_shape(self, name):
        """Return the shape in which an export takes the texts of a name."""
        return [None, None] if name in self.list_names else [None]

    def other_signatures(self):
        """Return further signatures that give what `answer` gives, for texts in another form.

        Returns:
            dict of a signature's name → dict of name → `tf.TensorSpec`.
        """
        return {}

    def packed_specs(self):
        """Return the `tf.TensorSpec`s of what calling takes, by name."""
        return {
            tensor.name: tf.TensorSpec(tensor.shape, tensor.dtype, tensor.name)
            for tensor in keras.tree.flatten(self.backbone.input)
        }

    def preprocess(self, columns, tokenize=None):
        """Tokenize and pack, in the graph.

        Args:
            columns: dict of string tensors (B,), keyed `text` and perhaps `text_pair`.
            tokenize: callable from strings to ragged ids; the task's tokenizer where left out.

        Returns:
            The packed dict of (B, S) int32 that calling the task takes.
        """
        if tokenize is None:
            self.require_tokenizer()
            tokenize = self.tokenize
        return self.packer(*(tokenize(columns[key]) for key in self.text_names if key in columns))

    def tokenize(self, text):
        """Return the ragged ids of strings (B,), without special tokens around them."""
        return self.tokenizer(text)

    def answer(self, columns, tokenize=None):
        """From strings to what a client wants, in the graph: the function that is exported.

        Args:
            columns: dict of string tensors (B,).
            tokenize: see `preprocess`.

        Returns:
            dict of tensors, each with B rows.
        """
        packed = self.preprocess(columns, tokenize)
        return self.decode(self(packed, training=False), packed)

    def answer_lite(self, columns):
        """Do what `answer` does, by operations that LiteRT has: what a `.tflite` holds."""
        return self.answer(columns, self.tokenizer.tokenize_lite)

    def decode(self, outputs, packed):
        """Return the served dict for raw outputs: these themselves, where not overridden."""
        return outputs if isinstance(outputs, dict) else {"logits": outputs}

    def example_signature(self):
        """Return what an export offers to TF Serving's methods for `tf.Example`s, if anything.

        Returns:
            None, or the method, `"classify"` or `"regress"`, and a function that makes its outputs
            of the dict that `answer` returns.
        """
        return None

    def answer_all(self, x, batch_size=32, answer=None):
        """Answer for raw strings, batch by batch.

        Args:
            x: raw strings in any form that `predict` takes.
            batch_size: int.
            answer: callable from a dict of string tensors to one of tensors; the task's own
                `answer` where left out.

        Returns:
            dict of numpy arrays, a row per example; strings are `str`.
        """
        self.require_tokenizer()
        if answer is None:
            if self._answer_function is None:
                self._answer_function = tf.function(
                    self.answer, reduce_retracing=True, autograph=False
                )
            answer = self._answer_function
        if isinstance(x, tf.data.Dataset):
            x = x.map(lambda *batch: self.named(batch[0]))
        else:
            x = batches_of(self.columns(x), batch_size)
        answers = [{key: value.numpy() for key, value in answer(batch).items()} for batch in x]
        if not answers:
            raise ValueError("x is empty: pass at least one text.")
        return {key: join_answers([a[key] for a in answers]) for key in answers[0]}

    _answer_function = None
    _tokenizer_config = None

    def require_tokenizer(self):
        if self.tokenizer is None:
            raise ValueError(
                f"{type(self).__name__} has no tokenizer, so it cannot take raw strings: pass "
                "tokenizer= when making it, or call it with packed dicts."
            )

    # === Training ===

    def default_loss(self):
        """Return the loss that `compile()` uses."""
        return None

    def default_metrics(self):
        """Return the metrics that `compile()` uses."""
        return None

    def compile(self, optimizer="auto", loss="auto", metrics="auto", jit_compile=False, **kwargs):
        """As `keras.Model.compile`, with the task's defaults for what is `"auto"`.

        Args:
            optimizer: `"auto"` is `keras_lm.training.AdamW`.
            loss: `"auto"` is the task's own.
            metrics: `"auto"` are the task's own.
            jit_compile: bool. XLA compiles anew for every sequence length: use it with
                `padding="fixed"`.
            **kwargs: see `keras.Model.compile`.
        """
        rate = self.backbone.LEARNING_RATE or self.default_learning_rate
        optimizer = AdamW(rate) if optimizer == "auto" else optimizer
        loss = self.default_loss() if isinstance(loss, str) and loss == "auto" else loss
        metrics = (
            self.default_metrics() if isinstance(metrics, str) and metrics == "auto" else metrics
        )
        super().compile(
            optimizer=optimizer, loss=loss, metrics=metrics, jit_compile=jit_compile, **kwargs
        )

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)
