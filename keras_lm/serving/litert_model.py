"""A `.tflite` behind the server's protocols: its signatures as those of a SavedModel."""

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from keras_lm.litert import InterpreterPool
from keras_lm.serving.errors import ServingError, StatusCode, invalid, tensorflow_errors
from keras_lm.serving.inference import ServedModel

# As the batching_params.pbtxt of a SavedModel; there is no file beside a `.tflite`. A large request
# runs in parts, between which other clients have their turn; larger parts are not faster.
BATCHING = {"max_batch_size": 16, "batch_timeout_micros": 2000}


class LiteRTModel(ServedModel):
    """A `.tflite` in memory.

    Args:
        number: int, the version.
        path: `Path` of the file.
        max_rows: int, the maximum number of rows in a request; None for no limit.
        num_interpreters, num_threads: int; see `InterpreterPool`.
    """

    def __init__(self, number, path, max_rows=None, num_interpreters=1, num_threads=None):
        try:
            content = path.read_bytes()  # a copy: the file may be overwritten
            self._pool = InterpreterPool(content, num_interpreters, num_threads)
        except ImportError as error:
            raise ServingError(StatusCode.UNIMPLEMENTED, str(error)) from error
        except OSError as error:
            raise ServingError(StatusCode.NOT_FOUND, f"Cannot read {path}: {error}") from error
        except ValueError as error:
            raise ServingError(StatusCode.DATA_LOSS, f"{path}: {error}") from error
        signature_defs = {
            name: meta_graph_pb2.SignatureDef(
                inputs=_infos(signature.inputs),
                outputs=_infos(signature.outputs),
                method_name="tensorflow/serving/predict",
            )
            for name, signature in self._pool.signatures.items()
        }
        parameters = BATCHING | {"num_batch_threads": num_interpreters}
        super().__init__(number, signature_defs, parameters, max_rows)

    def stream(self, request):
        raise ServingError(
            StatusCode.UNIMPLEMENTED,
            "This model is a .tflite, which cannot stream text: export the CausalLM as a "
            "SavedModel.",
        )

    def _call(self, name, inputs):
        try:
            with tensorflow_errors():  # out of memory
                return self._pool.run(name, inputs)
        except ValueError as error:
            raise invalid(str(error)) from error


def _infos(columns):
    return {
        name: meta_graph_pb2.TensorInfo(
            name=name,
            dtype=tf.as_dtype(tf.string if c.dtype is object else c.dtype).as_datatype_enum,
            tensor_shape=tf.TensorShape([None if n < 0 else n for n in c.shape]).as_proto(),
        )
        for name, c in columns.items()
    }
