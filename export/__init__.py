"""Export: a task → one artefact that takes strings and needs no code of this library.

This folder is imported as `keras_lm.export`; `setup.py` maps it there.
"""

if __name__ != "keras_lm.export":
    # With the root of the source tree on `sys.path`, every class would exist twice.
    raise ImportError(f"import it as keras_lm.export, not as {__name__!r}")

from keras_lm.export.check import ExportCheckError, check
from keras_lm.export.saved_model import export_saved_model
from keras_lm.export.tflite import export_tflite

__all__ = ["ExportCheckError", "check", "export"]

FORMATS = {"saved_model": export_saved_model, "litert": export_tflite}


def export(task, path, format="saved_model"):
    """Write a task as one artefact that takes strings, and return its path; `task.export` calls it.

    Args:
        task: `keras_lm.tasks.Task` with a tokenizer.
        path: for `"saved_model"` the folder of all versions, in which the next one is created and
            returned; for `"litert"` the `.tflite` file, which is replaced if it exists.
        format: `"saved_model"` (TensorFlow, TF Serving) or `"litert"` (phones).

    Raises:
        ValueError: if `format` is unknown, the task has no tokenizer, the graph holds an operation
            that the target lacks, or TF Serving cannot name a model after the folder of versions;
            nothing is then written.
        NotADirectoryError: if `path` of a SavedModel is a file.
        IsADirectoryError: if `path` of a `.tflite` is a folder.

    Example:
        folder = keras_lm.export.export(task, "exported")  # exported/1
        serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
        serve(text=tf.constant(["a text"]))
    """
    if format not in FORMATS:
        raise ValueError(f"format={format!r}: use one of {list(FORMATS)}.")
    return FORMATS[format](task, path)
