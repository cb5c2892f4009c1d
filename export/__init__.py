"""Export: a task → one artefact that takes strings and needs no code of this library.

This folder is imported as `keras_lm.export`; `setup.py` maps it there.
"""

if __name__ != "keras_lm.export":
    # With the root of the source tree on `sys.path`, every class would exist twice.
    raise ImportError(f"import it as keras_lm.export, not as {__name__!r}")

from keras_lm.export import task_parts
from keras_lm.export.check import ExportCheckError, check
from keras_lm.export.saved_model import export_saved_model
from keras_lm.export.tflite import export_tflite

__all__ = ["ExportCheckError", "check", "export"]

FORMATS = {"saved_model": export_saved_model, "litert": export_tflite}

# How weights are stored → by how much answers may differ. None: see `check`.
WEIGHTS = {"float32": None, "float16": 0.005, "int8": 0.02}


def export(
    task,
    path,
    format="saved_model",
    weights="float32",
    freeze=False,
    texts=None,
    tolerance=None,
):
    """Write a task as one artefact that takes strings, and return its path; `task.export` calls it.

    Args:
        task: `keras_lm.tasks.Task` with a tokenizer.
        path: for `"saved_model"` the folder of all versions, in which the next one is created and
            returned; for `"litert"` the `.tflite` file, which is replaced if it exists.
        format: `"saved_model"` (TensorFlow, TF Serving) or `"litert"` (phones).
        weights: how matrices are stored: `"float32"`, as they are; `"float16"`, half the size; or
            `"int8"`, about a quarter. Vectors and small matrices stay as they are.
        freeze: bool. For a SavedModel that answers texts: fold the weights into constants of the
            graph, up to 2 GB. A short text is answered sooner, most by small models; loading takes
            longer and more memory, and only the signatures that take texts are there. With int8
            weights it also multiplies in int8, which rounds activations as well, up to twice as
            fast: on x86 processors with VNNI or AMX, where oneDNN is on
            (`TF_ENABLE_ONEDNN_OPTS=1`).
        texts: raw strings in any form that `predict` takes, on which the artefact has to answer as
            the task does before it becomes visible (see `check`). None compares nothing: give texts
            like those that you serve.
        tolerance: float, the largest difference that passes, see `check`. By default 0.005 with
            float16 and 0.02 with int8 weights.

    Raises:
        ValueError: if `format` or `weights` is unknown, there is a `tolerance` without `texts`,
            `freeze` does not go with the task, its size, the format or `weights`, or oneDNN is off
            where it has to multiply in int8, the task has no
            tokenizer, the graph holds an operation that the target lacks, or TF Serving
            cannot name a model after the folder of versions; nothing is then written.
        ExportCheckError: if answers to `texts` differ by more than `tolerance`; it is a ValueError,
            and nothing is then written.
        NotADirectoryError: if `path` of a SavedModel is a file.
        IsADirectoryError: if `path` of a `.tflite` is a folder.

    Example:
        folder = keras_lm.export.export(task, "exported")  # exported/1
        serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
        serve(text=tf.constant(["a text"]))
        task.export("small", weights="int8", texts=reviews)
    """
    if format not in FORMATS:
        raise ValueError(f"format={format!r}: use one of {list(FORMATS)}.")
    if weights not in WEIGHTS:
        raise ValueError(f"weights={weights!r}: use one of {list(WEIGHTS)}.")
    if texts is None and tolerance is not None:
        raise ValueError(f"tolerance={tolerance} needs texts to compare answers on: pass texts=.")

    if freeze and weights == "float16":
        raise ValueError(
            f"freeze=True with weights={weights!r}: constants are float32, or int8. Leave one of "
            "them out."
        )

    def verify(artefact):
        """Raise an `ExportCheckError` if an artefact, not visible yet, answers otherwise."""
        if texts is None:
            return
        allowed = WEIGHTS[weights] if tolerance is None else tolerance
        try:
            for signature, part, asked in task_parts.answering(task, texts):
                check(artefact, part, asked, allowed, signature=signature)
        except ExportCheckError as error:
            raise ExportCheckError(
                f"{error} Nothing was written with weights={weights!r}: pass weights that are "
                "closer, or a larger tolerance."
            ) from error

    return FORMATS[format](task, path, weights, freeze, verify)
