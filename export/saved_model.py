"""Export as a SavedModel: for TensorFlow, TF Serving and whatever reads its format."""

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_lm.export import operations, signatures
from keras_lm.export.versions import write_version


def export_saved_model(task, path):
    """Write the next numbered version of a task as a SavedModel.

    It holds two signatures. `serving_default` takes `text`, a string tensor [None], and for a task
    with `text_pair=True` also `text_pair`; it gives what `task.answer` gives. `tokens` takes the
    packed inputs of the backbone, int32 [None, None] each, and gives the task's raw outputs: a dict
    as it is, a tensor as `logits` (`embedding` from a `FeatureExtractor`). Half precision is served
    as float32. A batch of no rows gives outputs of no rows, except that `MaskedLM` refuses it.

    The folder holds each weight once, and neither Python nor XLA nor anything of training.

    Args:
        task: `keras_lm.tasks.Task` with a tokenizer.
        path: the folder of all versions. Nothing that is in it is touched.

    Returns:
        `pathlib.Path` of the version's folder, `path/<number>`.

    Raises:
        ValueError: if the task has no tokenizer, or its graph holds an operation that TF Serving
            does not have; the message names it and its layer.
        NotADirectoryError: if `path` is a file.
    """
    text_specs = signatures.text_specs(task)

    def write(folder):
        answer = signatures.trace(signatures.answer_function(task), text_specs)
        raw = signatures.trace(signatures.raw_function(task), signatures.token_specs(task))
        tf.saved_model.save(
            signatures.module_of(answer, raw),
            str(folder),
            signatures={"serving_default": answer, "tokens": raw},
        )
        saved_model = saved_model_pb2.SavedModel.FromString(
            (folder / "saved_model.pb").read_bytes()
        )
        for meta_graph in saved_model.meta_graphs:
            operations.check(meta_graph, signatures.layer_names(task))

    return write_version(path, write)
