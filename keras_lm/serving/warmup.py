"""Warm-up: requests stored with a version, which it answers before it becomes available."""

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from keras_lm.serving import messages
from keras_lm.serving.errors import ServingError, StatusCode, invalid, tensorflow_errors
from keras_lm.utils.batch_iteration import iterate_batches

FILE = "assets.extra/tf_serving_warmup_requests"
MOST_RECORDS = 1000

ANSWERS = {
    "predict_log": messages.predict,
    "classify_log": messages.classify,
    "regress_log": messages.regress,
    "multi_inference_log": messages.multi_inference,
}


def warm_up(saved_model, folder):
    """Answer the requests in a version's warm-up file, if it has one.

    As in TF Serving, an error in the file or in an answer, a `ServingError`, means that the version
    is not served.
    """
    path = folder / FILE
    if not path.exists():
        return
    count = 0
    try:
        with tensorflow_errors():
            for record in iterate_batches(tf.data.TFRecordDataset(str(path))):
                _answer(saved_model, record.numpy(), path)
                count += 1
                if count > MOST_RECORDS:
                    raise invalid(
                        f"Number of warmup records exceeds the maximum ({MOST_RECORDS}) at {path}"
                    )
    except ServingError as error:
        if error.code is StatusCode.DATA_LOSS:
            hint = ". Please verify your warmup data is in TFRecord format."
            raise ServingError(error.code, error.message + hint) from error
        raise


def _answer(saved_model, record, path):
    try:
        log = prediction_log_pb2.PredictionLog.FromString(record)
    except DecodeError as error:
        raise invalid(f"Failed to parse warmup record: {record[:100]} from {path}") from error
    kind = log.WhichOneof("log_type")
    if kind in ANSWERS:
        ANSWERS[kind](saved_model, getattr(log, kind).request)
    elif kind is not None:
        raise ServingError(
            StatusCode.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind} in {path}"
        )
