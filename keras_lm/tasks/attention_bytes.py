"""What each token of a text reads, as bytes: the signature `attention` of an export.

Shapes: B texts, L layers, N heads, S tokens that read, T tokens that are read.
"""

from keras_lm.layers.tensorflow.tracing import required
from keras_lm.objectives import IGNORED
from keras_lm.tensorflow import tf

STEPS = 255  # a byte is round(√probability · STEPS), so that small shares keep their digits
MOST_PAIRS = 2**20  # of tokens: four texts of 512, which are 38 MB each in 12 layers with 12 heads
MEMORY = "(memory)"  # a column before the text's own, in models that carry one


def attention_of_text(task, columns, tokenize=None):
    """Return the outputs of `attention` for named strings (B,); see `export_saved_model`."""
    packed = task.preprocess(columns, tokenize)
    if task.packer.rows.several_for or packed["padding_mask"].shape.rank > 2:
        raise ValueError(
            f"attention=True: {type(task).__name__} makes several rows of a text. Export a "
            "FeatureExtractor of its backbone with it."
        )
    packed = _few(task.backbone.select_inputs(packed), "token_ids")
    tokens = _named(task.tokenizer, packed["token_ids"], packed["padding_mask"])
    return _outputs("self", task.backbone.attention_probabilities(packed), tokens, tokens)


def attention_of_pair(task, columns, tokenize=None):
    """Return those of an encoder-decoder, for texts and the `labels` written for them."""
    columns, backbone = dict(columns), task.backbone
    inputs, labels = task.packer.targets(columns.pop("labels"), task.tokenize_target)
    packed = task.preprocess(columns, tokenize) | inputs
    target = task.tokenizer.target
    source = _named(task.tokenizer, packed["encoder_token_ids"], packed["encoder_padding_mask"])
    taken = _named(target, packed["decoder_token_ids"], packed["decoder_padding_mask"])
    given = _named(target, tf.where(labels == IGNORED, 0, labels), packed["decoder_padding_mask"])
    packed = _few(packed, "encoder_token_ids")
    packed = _few(packed, "decoder_token_ids")
    found = {}
    if "attention_contexts" in backbone.symbolic:  # else a recurrent one, which has no others
        encoder = backbone.encoder_attention_probabilities(packed)
        found |= _outputs("encoder", encoder, source, source)
        found |= _outputs("decoder", backbone.attention_probabilities(packed), taken, taken)
    # What was read to write a token: the label, not the input, names the row.
    return found | _outputs("cross", backbone.cross_attention_probabilities(packed), given, source)


def _few(packed, name):
    """Return packed rows whose tokens are available once there are few enough of them."""
    rows, columns = tf.unstack(tf.cast(tf.shape(packed[name]), tf.float32))
    pairs = rows * columns**2
    message = f"rows times their tokens squared may be {MOST_PAIRS} at most for attention, but are"
    return packed | {name: required(packed[name], pairs <= MOST_PAIRS, message, pairs)}


def _named(tokenizer, ids, mask):
    # By the mask: a text can have the padding token, too.
    return tf.where(mask > 0, tokenizer.tokens(ids), "")


def _outputs(name, layers, tokens, attended):
    """Return what describes the probabilities of L layers, (B, N, S, T) each, under a name."""
    found = [tf.cast(tf.round(tf.sqrt(layer) * STEPS), tf.uint8) for layer in layers]
    found = tf.stack(found, axis=1)  # (B, L, N, S, T)
    sizes = tf.shape(found)
    more = tf.fill([sizes[0], sizes[4] - tf.shape(attended)[1]], MEMORY)
    return {
        f"{name}_tokens": tokens,
        f"{name}_attended": tf.concat([more, attended], axis=1),
        f"{name}_sizes": tf.tile(sizes[tf.newaxis, 1:], [sizes[0], 1]),
        f"{name}_bytes": tf.map_fn(_as_string, found, fn_output_signature=tf.string),
    }


def _as_string(array):
    # The bytes of an array are the last of its TensorProto.
    return tf.strings.substr(tf.io.serialize_tensor(array), -tf.size(array), tf.size(array))
