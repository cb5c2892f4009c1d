"""KerasHub."""

import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from pathlib import Path

import inputs
from protocol import serve, timed


def make_backbone(dtype="float32"):
    """BERT-base with random weights."""
    import keras_hub

    return keras_hub.models.BertBackbone(
        vocabulary_size=inputs.VOCABULARY_SIZE,
        num_layers=inputs.NUM_LAYERS,
        num_heads=inputs.NUM_HEADS,
        hidden_dim=inputs.HIDDEN_DIM,
        intermediate_dim=inputs.INTERMEDIATE_DIM,
        dropout=0.1,
        dtype=dtype,
    )


def make_classifier(dtype="float32"):
    """A classifier of two classes that takes packed inputs."""
    import keras_hub

    return keras_hub.models.BertTextClassifier(
        make_backbone(dtype), num_classes=2, preprocessor=None, dropout=0.1, dtype=dtype
    )


def packed_inputs(batch, length):
    """The packed batch by KerasHub's names."""
    names = ("token_ids", "segment_ids", "padding_mask")
    return dict(zip(names, inputs.packed_batch(batch, length)))


def forward(batch, length, dtype, calls, variant):
    """The encoder in a `tf.function`, with or without XLA."""
    import tensorflow as tf

    packed = {name: tf.constant(value) for name, value in packed_inputs(batch, length).items()}
    backbone = make_backbone(dtype)
    run = tf.function(
        lambda x: backbone(x, training=False)["sequence_output"],
        autograph=False,
        jit_compile=variant == "xla",
    )
    return timed(lambda: run(packed).numpy(), calls)


def training(batch, length, dtype, calls, variant):
    """A training step of a classifier."""
    classifier = compiled(make_classifier(dtype), variant, metrics=["accuracy"])
    packed, labels = packed_inputs(batch, length), inputs.labels(batch)
    return timed(lambda: classifier.train_on_batch(packed, labels), calls)


def compiled(task, variant, **options):
    """Return a task, compiled with Keras's AdamW, set as keras_lm sets its own."""
    import keras

    optimizer = keras.optimizers.AdamW(5e-5, weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    task.compile(optimizer=optimizer, loss=loss, jit_compile=variant == "xla", **options)
    return task


def pretraining(model, batch, length, dtype, calls, variant):
    """A step of BERT's masked LM, with new masks in each."""
    import keras_hub

    task = keras_hub.models.BertMaskedLM(make_backbone(dtype), preprocessor=None)
    task = compiled(task, variant, weighted_metrics=[])
    mask = keras_hub.layers.MaskedLMMaskGenerator(
        inputs.VOCABULARY_SIZE,
        inputs.MASKED,
        inputs.MASK_ID,
        mask_selection_length=math.ceil(inputs.MASKED * length),
        unselectable_token_ids=[0],
    )
    packed = packed_inputs(batch, length)

    def step():
        masked = mask(packed["token_ids"])
        x = packed | {name: masked[name] for name in ("token_ids", "mask_positions")}
        task.train_on_batch(x, masked["mask_ids"], sample_weight=masked["mask_weights"])

    return timed(step, calls)


def tokenizer(reviews, minilm, batch, calls, variant):
    """WordPiece batch by batch."""
    import keras_hub
    import tensorflow as tf

    wordpiece = keras_hub.tokenizers.WordPieceTokenizer(
        vocabulary=f"{minilm}/vocab.txt", lowercase=True, strip_accents=True
    )
    tokenize = tf.function(
        lambda text: wordpiece(text).values, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    batches = tf.constant(inputs.text_batches(reviews, batch))

    def run():
        for batch_of_texts in batches:
            tokenize(batch_of_texts)

    return timed(run, calls)


def import_(calls, variant):
    """Importing the library."""
    return inputs.importing("import keras_hub")


def export(short, minilm, scratch, calls, variant):
    """Keras's SavedModel, which takes ids: the vocabulary travels beside it."""
    from tensorflow_export import measure_export

    classifier = make_classifier()
    folder = Path(scratch) / "keras_hub"
    classifier.export(str(folder), verbose=False)
    vocabulary = Path(minilm, "vocab.txt").stat().st_size
    size = inputs.folder_size(folder) + vocabulary
    ideal = 4 * classifier.count_params() + vocabulary
    return measure_export(folder, packed_inputs(1, 30), size, ideal)


def generate(batch, length, new_tokens, beams, calls, variant):
    """Decoding with a cache; compiled with XLA in the variant of that name."""
    import keras_hub
    import numpy as np

    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=inputs.GPT2_VOCABULARY_SIZE,
        num_layers=inputs.NUM_LAYERS,
        num_heads=inputs.NUM_HEADS,
        hidden_dim=inputs.HIDDEN_DIM,
        intermediate_dim=inputs.INTERMEDIATE_DIM,
        max_sequence_length=1024,
    )
    model = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    sampler = keras_hub.samplers.BeamSampler(beams) if beams > 1 else "greedy"
    model.compile(sampler=sampler, jit_compile=variant == "xla")
    prompts = inputs.prompts(batch, length)

    def run(number):
        room = ((0, 0), (0, number))  # it writes into the prompts' own padding
        packed = {
            "token_ids": np.pad(prompts, room),
            "padding_mask": np.pad(np.ones_like(prompts), room),
        }
        texts = model.generate(packed, stop_token_ids=None)
        return texts["token_ids"].shape[1] - length

    return inputs.generating(run, new_tokens, calls)


FUNCTIONS = {
    "forward": forward,
    "training": training,
    "pretraining": pretraining,
    "tokenizer": tokenizer,
    "import": import_,
    "export": export,
    "generate": generate,
}

if __name__ == "__main__":
    serve(FUNCTIONS, ["tensorflow", "tensorflow-text", "keras", "keras-hub"])
