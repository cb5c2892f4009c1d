"""Export as a SavedModel: for TensorFlow, TF Serving and whatever reads its format."""

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model import fingerprinting_utils

from keras_lm.export import operations, serving, signatures
from keras_lm.export.versions import local_path, write_version

METHODS = {
    "classify": tf.saved_model.CLASSIFY_METHOD_NAME,
    "regress": tf.saved_model.REGRESS_METHOD_NAME,
}


def export_saved_model(task, path):
    """Write the next numbered version of a task as a SavedModel, ready for TF Serving.

    Its signatures, where B is the number of texts and S that of columns:

    - `serving_default` takes `text`, a string tensor [None], and for a task with `text_pair=True`
      also `text_pair`; it gives what `task.answer` gives.
    - `tokenize` takes the same and gives what the model sees of it, special tokens included:
      `tokens` (B, S), strings that are empty in padding, and `token_ids` (B, S), int32.
    - `tokens` takes the packed inputs of the backbone, int32 [None, None] each, and gives the
      task's raw outputs: a dict as it is, a tensor as `logits` (`embedding` from a
      `FeatureExtractor`).
    - `classify`, of a `TextClassifier`, and `regress`, of a `TextRegressor`, are what TF Serving's
      methods of these names ask. Both take `inputs`, a string tensor [None] of serialized
      `tf.Example`s with the features `text` and perhaps `text_pair`, one string each. `classify`
      gives `classes` and `scores`, (B, classes) each, `regress` gives `outputs` (B,).

    Half precision is served as float32. A batch of no rows gives outputs of no rows, except that
    `MaskedLM` refuses it.

    The folder holds each weight once, and neither Python nor XLA nor anything of training. With it
    come `assets.extra/tf_serving_warmup_requests` and `batching_params.pbtxt`, which TF Serving
    reads; and beside the versions, where there is none yet, a `models.config` to start TF Serving
    with.

    Args:
        task: `keras_lm.tasks.Task` with a tokenizer.
        path: the folder of all versions, whose name is the model's in TF Serving. Nothing that is
            in it is touched.

    Returns:
        `pathlib.Path` of the version's folder, `path/<number>`.

    Raises:
        ValueError: if the task has no tokenizer, its graph holds an operation that TF Serving does
            not have (the message names it and its layer), or `path` ends in a name that TF Serving
            cannot give to a model.
        NotADirectoryError: if `path` is a file.
    """
    columns = list(signatures.text_specs(task))
    name = serving.model_name(local_path(path))

    def write(folder):
        functions = signatures.trace_all(task)
        module = signatures.module_of(*functions.values(), tokenizer=task.tokenizer)
        tf.saved_model.save(module, str(folder), signatures=functions)
        method = next((name for name in functions if name in METHODS), None)
        if method:
            _set_method(folder, method)
        saved_model = saved_model_pb2.SavedModel.FromString(
            (folder / "saved_model.pb").read_bytes()
        )
        for meta_graph in saved_model.meta_graphs:
            operations.check(meta_graph, signatures.layer_names(task))
        serving.write_warmup(folder, task, name, columns, method)
        serving.write_batching(folder)

    version = write_version(path, write)
    serving.write_models_config(version.parent, name)
    return version


def _set_method(folder, signature):
    """Say which of TF Serving's methods a signature is for; TensorFlow writes "predict" for all."""
    updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(str(folder))
    updater.replace_method_name(signature, METHODS[signature])
    updater.save()
    fingerprinting_utils.write_fingerprint(str(folder))  # of the file as it is now
