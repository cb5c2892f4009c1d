"""TF Serving's files next to a SavedModel: warm-up requests, batching, a list of models."""

import os
import re
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from keras_lm.tensorflow import tf
from keras_lm.utils.files import replacing

# TF Serving's source fixes these names, the first in saved_model_warmup_util.h, the second in
# bundle_factory_util.cc, which parses a BatchingParameters text proto if the server has the flag
# --enable_per_model_batching_parameters.
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
BATCHING_FILE = "batching_params.pbtxt"

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
WARMUP_SIZES = BATCH_SIZES[:6]  # larger ones would delay the start of a server

ALLOWED = "\n".join(f"allowed_batch_sizes: {size}" for size in BATCH_SIZES)
BATCHING = f"""\
# How TF Serving joins requests to this version into batches. It reads this file with
#   --enable_batching --enable_per_model_batching_parameters
# Requests of more than max_batch_size rows are refused. The largest warm-up request has
# {WARMUP_SIZES[-1]} rows, so with a smaller max_batch_size the version does not load: then remove
# {WARMUP_FILE}.
max_batch_size {{ value: {BATCH_SIZES[-1]} }}
# How long a batch may wait for more rows.
batch_timeout_micros {{ value: 2000 }}
# Requests beyond these fail at once, so that the client can try again.
max_enqueued_batches {{ value: 100 }}
# All models of a server share its threads, so TF Serving ignores this line here and reads it from
# the file that --batching_parameters_file names, which can be this one.
num_batch_threads {{ value: 4 }}
# Batches are padded to the next of these sizes; the last is max_batch_size.
{ALLOWED}
"""

MODELS = """\
# The models for TF Serving to serve:
#   tensorflow_model_server --rest_api_port=8501 --model_config_file=PATH_OF_THIS_FILE
# In a container with the folder of versions mounted at /models/{name}, write
#   base_path: "/models/{name}"
# An export writes this file if it does not exist, and never changes it.
"""


def model_name(folder):
    """Return the name of a model in TF Serving, which is that of its folder of versions."""
    name = Path(os.path.abspath(folder)).name
    # It is part of URLs, /v1/models/NAME:predict, and of protocol buffers, which are UTF-8.
    if not re.fullmatch(r"[^:\x00-\x1f\x7f\ud800-\udfff]+", name):
        raise ValueError(
            f"path={os.fspath(folder)!r}: TF Serving names a model after its folder, and {name!r} "
            "cannot be such a name. Pass a folder whose name is UTF-8 without colons and control "
            "characters, such as film-critic."
        )
    if name.isdigit():
        raise ValueError(
            f"path={os.fspath(folder)!r} has the name of a version, and path is the folder of all "
            f"versions: pass {os.path.dirname(os.fspath(folder)) or 'another folder'!r}, in which "
            "the next one is made."
        )
    return name


def write_warmup(folder, logs):
    """Write the `PredictionLog`s that TF Serving replays before it serves a version."""
    path = folder / WARMUP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())


def log(name, signature, inputs, method=None):
    """Return the `PredictionLog` of a request; `inputs` is a dict of arrays.

    `method` is `"classify"` or `"regress"`, which take one tf.Example per row, or None for Predict.
    """
    record = prediction_log_pb2.PredictionLog()
    method = method or "predict"
    request = getattr(record, f"{method}_log").request
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    if method == "predict":
        for column, array in inputs.items():
            request.inputs[column].CopyFrom(tf.make_tensor_proto(array))
        return record
    for row in zip(*inputs.values(), strict=True):
        example = request.input.example_list.examples.add()
        for column, text in zip(inputs, row, strict=True):
            example.features.feature[column].bytes_list.value.append(text.encode())
    return record


def write_batching(folder):
    """Write the batching parameters of a version for TF Serving."""
    (folder / BATCHING_FILE).write_text(BATCHING)


def write_models_config(folder, name):
    """Write the list of models that TF Serving can be started with, if there is none.

    TF Serving ignores the file when it looks for versions, which are numbers.
    """
    path = folder / "models.config"
    if path.exists():  # it may have been edited
        return
    config = model_server_config_pb2.ModelServerConfig()
    config.model_config_list.config.add(
        name=name, base_path=os.path.abspath(folder), model_platform="tensorflow"
    )
    text = MODELS.format(name=name) + text_format.MessageToString(config, as_utf8=True)
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")
