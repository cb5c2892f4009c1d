"""TensorFlow Model Garden, on the legacy Keras."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import inputs
from protocol import serve, timed


def forward(batch, length, dtype, calls, variant):
    """The encoder in a `tf.function`, with or without XLA."""
    import tensorflow as tf
    import tf_keras
    from official.nlp.modeling import networks

    tf_keras.mixed_precision.set_global_policy(
        "float32" if dtype == "float32" else f"mixed_{dtype}"
    )
    encoder = networks.BertEncoderV2(
        vocab_size=inputs.VOCABULARY_SIZE,
        num_layers=inputs.NUM_LAYERS,
        num_attention_heads=inputs.NUM_HEADS,
        hidden_size=inputs.HIDDEN_DIM,
        inner_dim=inputs.INTERMEDIATE_DIM,
    )
    names = ("input_word_ids", "input_type_ids", "input_mask")
    packed = dict(zip(names, map(tf.constant, inputs.packed_batch(batch, length))))
    run = tf.function(
        lambda x: encoder(x, training=False)["sequence_output"],
        autograph=False,
        jit_compile=variant == "xla",
    )
    return timed(lambda: run(packed).numpy(), calls)


def import_(calls, variant):
    """Importing what its BERT needs."""
    return inputs.importing("from official.nlp.modeling import networks")


FUNCTIONS = {
    "forward": forward,
    "import": import_,
}

if __name__ == "__main__":
    serve(FUNCTIONS, ["tensorflow", "tf-keras", "tf-models-official"])
