#!/usr/bin/env bash
# TensorFlow 2.21.0. tf.saved_model.save evaluates each property of each tf.Module that it reaches,
# in its search for functions: a lazy table is built for an export that does not need it, and what a
# property raises is swallowed. Attach tables and variables, not the objects that own them.
# Output seen: saving evaluated ['broken', 'lazy_table']
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow==2.21.0 keras==3.15.1 protobuf==6.33.5 numpy==2.4.4
env/bin/python - <<'END'
import functools

import tensorflow as tf

evaluated = []


class Words(tf.Module):
    @functools.cached_property
    def lazy_table(self):
        evaluated.append("lazy_table")
        return list(range(100_000))

    @property
    def broken(self):
        evaluated.append("broken")
        raise RuntimeError("no such property for these words")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def count(self, texts):
        return tf.strings.length(texts)


module = tf.Module()
module.words = Words()
module.words.count.get_concrete_function()
assert not evaluated
tf.saved_model.save(module, "saved", signatures=module.words.count)
assert {*evaluated} == {"broken", "lazy_table"}, evaluated
print("saving evaluated", sorted({*evaluated}))
END
