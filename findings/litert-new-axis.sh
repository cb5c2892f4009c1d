#!/usr/bin/env bash
# TensorFlow 2.21.0. tf.lite cannot convert a new axis after a slice, x[:, :, None] or x[..., None],
# or between two, x[:, None, :], of a tensor of two axes of unknown sizes: it asks for a custom
# operation StridedSlice. x[:, None], tf.expand_dims, and axes of known sizes convert.
# Output seen: x[:, :, None] fails, x[:, None, :] fails, x[..., None] fails, x[:, None] converts,
# tf.expand_dims(x, 2) converts, x[:, :, None] of known sizes converts
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import tensorflow as tf


def converts(function, shape=(None, None)):
    module = tf.Module()
    signature = [tf.TensorSpec(shape, tf.int32)]
    module.f = tf.function(function, input_signature=signature, autograph=False)
    functions = [module.f.get_concrete_function()]
    try:
        tf.lite.TFLiteConverter.from_concrete_functions(functions, module).convert()
    except Exception as error:
        assert "StridedSlice" in str(error), error
        return "fails"
    return "converts"


seen = {
    "x[:, :, None]": converts(lambda x: x[:, :, None]),
    "x[:, None, :]": converts(lambda x: x[:, None, :]),
    "x[..., None]": converts(lambda x: x[..., None]),
    "x[:, None]": converts(lambda x: x[:, None]),
    "tf.expand_dims(x, 2)": converts(lambda x: tf.expand_dims(x, 2)),
    "x[:, :, None] of known sizes": converts(lambda x: x[:, :, None], (2, 3)),
}
print(", ".join(f"{what} {result}" for what, result in seen.items()))
assert [*seen.values()] == ["fails"] * 3 + ["converts"] * 3
END
