"""Export: a task → one artefact that takes strings and does not need this library.

This folder is imported as `keras_lm.export`; `setup.py` maps it there.
"""

if __name__ != "keras_lm.export":
    # With the root of the source tree on `sys.path`, every class would exist twice.
    raise ImportError(f"import it as keras_lm.export, not as {__name__!r}")

import functools
import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from keras_lm import presets
from keras_lm.export.saved_model import export_saved_model
from keras_lm.models.backbone import are_random
from keras_lm.tensorflow import INSTALL_TEXT, require_text
from keras_lm.tokenizers.strings import has_text_operations
from keras_lm.utils.argument_types import PathLike, RawTexts
from keras_lm.utils.files import ONE_FILE, as_path, export_format, is_remote, numbered, upload
from keras_lm.utils.optional_dependencies import RUNTIMES, check_installed
from keras_lm.utils.user_arguments import checks_flags, warn

if TYPE_CHECKING:
    from keras_lm.export.comparison import ExportCheckError, check

__all__ = ["ExportCheckError", "check", "export"]

# How weights are stored → the default tolerance for answers; None is the default of `check`.
WEIGHTS = {"float32": None, "float16": 0.005, "bfloat16": 0.01, "int8": 0.02}
# A format → where its tokenizer may be.
TOKENIZERS = {
    "saved_model": ("graph",),
    "litert": ("graph", "bytes", "metadata"),
    "onnx": (None, "bytes"),
    "web": ("graph",),
}


def __getattr__(name):
    # What compares an export is loaded where it is asked for.
    if name not in ("CheckReport", "ExportCheckError", "ExportRunError", "check"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("keras_lm.export.comparison"), name)


def _to_addresses(function):
    """Decorate `export`: what goes to an address is made on a disk, and uploaded."""

    @functools.wraps(function)
    def export_there(task, path, *args, **kwargs):
        if not is_remote(path):
            return function(task, path, *args, **kwargs)
        target = as_path(path)
        target.exists()  # raises if it cannot be reached, before the work
        with tempfile.TemporaryDirectory(prefix="keras_lm-") as folder:
            written = function(task, Path(folder) / (target.name or "model"), *args, **kwargs)
            if written.parent != Path(folder):  # a version of a SavedModel
                versions = numbered(target) if target.is_dir() else {}
                target = target / str(max(versions, default=0) + 1)
            upload(written, target)
        return target

    return export_there


@_to_addresses
@checks_flags
def export(
    task: keras.Model,
    path: PathLike,
    format: str | None = None,
    weights: str = "float32",
    freeze: bool = False,
    texts: RawTexts | None = None,
    tolerance: float | None = None,
    tokenizer: str | None = "graph",
    attention: bool = False,
    operations: str | None = None,
    report: Callable[[Any], Any] | None = None,
    verbose: int | str = "auto",
    allow_nan: bool = False,
    runtime: PathLike | None = None,
    num_bytes: int | None = None,
    num_rows: int = 1,
) -> Path:
    """Write a task as one artefact that takes strings, and return its path; `task.export` calls it.

    Args:
        task: `keras_lm.tasks.Task` with a tokenizer.
        path: for `"saved_model"`, the folder of all versions, in which the next version is created;
            its path is returned. For `"web"`, the folder of the page; for others, the `.tflite` or
            `.onnx` file. They may be replaced. All may be at an address, such as `s3://bucket/name`.
        format: `"saved_model"` (TensorFlow, TF Serving), `"litert"` (a `.tflite` for LiteRT),
            `"onnx"` (for ONNX Runtime and others, opset 18) or `"web"` (a page whose model answers
            in the browser). None goes by the suffix of `path`: LiteRT for `.tflite`, ONNX for
            `.onnx`.
        weights: how matrices are stored: `"float32"`, unchanged; `"float16"` or `"bfloat16"`, half
            the size; or `"int8"`, about a quarter. Vectors and small matrices are stored unchanged.
            `"bfloat16"` is of frozen exports, which multiply in it.
        freeze: bool. Fold the weights into constants of the graph, up to 2 GB. Only for a
            SavedModel that answers texts. Short texts are answered faster, especially by small
            models, but loading takes more time and memory, and the export only has the signatures
            that take texts. With int8 weights, it also multiplies in int8 and rounds activations,
            which is up to twice as fast. This needs an x86 processor with VNNI or AMX, and oneDNN
            (`TF_ENABLE_ONEDNN_OPTS=1`). With bfloat16 weights, it multiplies in bfloat16, also
            within attention: faster than int8, and closer to the task's answers, on an x86
            processor with AMX or AVX512-BF16; on others many times slower than float32.
        texts: raw strings in any form that `predict` takes. Before the artefact becomes visible,
            its answers to them are compared with the task's (see `check`), so pass texts like those
            that you serve. None skips the comparison.
        tolerance: float, the largest difference that passes, see `check`. The default is 0.005 with
            float16, 0.01 with bfloat16 and 0.02 with int8 weights.
        tokenizer: where it is. In the `"graph"`, which takes strings; a `.tflite` then needs
            TensorFlow Text's operations. With `"bytes"` it is in the graph, too, of a `.tflite` or
            an `.onnx` that takes the UTF-8 bytes of texts and where each ends: LiteRT's or ONNX's
            own operations are enough, so any build of LiteRT or ONNX Runtime runs it. Or in the
            `"metadata"` of a `.tflite` that takes the ids of one text: MediaPipe's text classifier
            and embedder run it as they are, by tokenizers of their own, which differ for some
            texts, see docs/phones.md. None is of an `.onnx` that takes ids, which your program
            makes, see docs/onnx.md.
        attention: bool. Add the signature `attention` to a SavedModel: what each token of a text
            reads, in all heads, which the page of `keras-lm serve` draws.
        operations: those of a SavedModel. With `"tensorflow"` its tokenizer is made of TensorFlow's
            own ones, so that it also runs where TensorFlow Text is not; it has fewer signatures.
            With `"tensorflow_text"` it has those of TensorFlow Text, too. None is the latter; where
            TensorFlow Text is not installed, all signatures are of TensorFlow's own operations.
        report: function that is called with the `CheckReport` of the comparison on `texts`, such as
            `print`: how much numbers differ, and which share of strings is equal.
        verbose: whether a bar shows how far the comparison is, see `check`.
        allow_nan: bool. Whether to write weights that are NaN or infinite.
        runtime: of a page, a folder with LiteRT.js's files, `node_modules/@litertjs`, which are
            copied. None lets the page load them from a CDN.
        num_bytes: int. Of a page, the most UTF-8 bytes of a text that it reads, since a browser
            runs known sizes alone; it says where it cuts a text. None for 16 for each token of the
            longest text, or of a `QuestionAnswerer` 48.
        num_rows: int. Of a page, for how many texts its `.tflite` has room, for programs of your
            own; `num_bytes` is of all of them.

    Raises:
        ValueError: if `format`, `weights` or `tokenizer` is unknown; `tolerance` is passed without
            `texts`; `freeze` does not fit the task, its size, the format or `weights`; int8 needs
            oneDNN and it is off; the task has no tokenizer; the graph has an operation that the
            target lacks, or MediaPipe has no such task or tokenizer; `attention` does not fit the
            format, `freeze` or the model; weights are NaN or infinite; the folder's name cannot
            be a model's name in TF Serving; or a page has no place for the task's answers, or its
            arguments are given for another format. Nothing is written then.
        ExportCheckError: if answers to `texts` differ by more than `tolerance`; it is a ValueError,
            and nothing is written then.
        ImportError: if `texts` are passed for a `.tflite`, and `ai_edge_litert` is not installed;
            or `tf2onnx`, or for `texts` also `onnxruntime`, is not, for an `.onnx`; or TensorFlow
            Text is not, for `operations="tensorflow_text"` and a `.tflite` that takes strings.
        FileNotFoundError: if `runtime` lacks a file.
        FileExistsError: if `path` of a page is a file, or a folder of other things.
        NotADirectoryError: if `path` of a SavedModel is a file.
        IsADirectoryError: if `path` of a `.tflite` or an `.onnx` is a folder.

    Example:
        folder = keras_lm.export.export(task, "exported")  # exported/1
        serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
        serve(text=tf.constant(["a text"]))
        task.export("small", weights="int8", texts=reviews, report=print)
        task.export("phone.tflite", format="litert", tokenizer="metadata", texts=reviews)
        task.export("critic.onnx", format="onnx", tokenizer="bytes", texts=reviews)
        task.export("page", format="web", weights="int8")
    """
    format = export_format(path, format)
    _check_form(format, weights, freeze, tokenizer, attention)
    _check_operations(operations, format, freeze, attention)
    if format != "web" and (runtime is not None or num_bytes is not None or num_rows != 1):
        raise ValueError(
            "runtime, num_bytes and num_rows are of a page for browsers: pass format='web', too, "
            "or leave them out."
        )
    if texts is None and tolerance is not None:
        raise ValueError(f"tolerance={tolerance} needs texts to compare answers on: pass texts=.")
    if texts is not None and format in RUNTIMES:
        check_installed(RUNTIMES[format], f"texts= for {ONE_FILE[format]}")
    presets.check_finite(task, allow_nan)
    for part in getattr(task, "tasks", {"": task}).values():
        if _has_untrained_head(part):
            warn(
                f"{type(part).__name__} has a head that was never trained, so its answers are "
                "random: call fit before exporting it."
            )

    def compare(artefact):
        if texts is not None:
            from keras_lm.export.comparison import verify

            allowed = WEIGHTS[weights] if tolerance is None else tolerance
            verify(artefact, task, texts, weights, allowed, report, verbose)

    given = (task.trimmed(), path, weights, freeze, compare)
    if format == "saved_model":
        return export_saved_model(*given, attention, operations)
    # What another format needs is not loaded.
    if format == "onnx":
        from keras_lm.export.onnx_model import export_onnx

        return export_onnx(*given, in_bytes=tokenizer == "bytes")
    if format == "web":
        from keras_lm.export.web import export_web

        return export_web(*given, runtime, num_bytes, num_rows)
    if tokenizer == "metadata":
        from keras_lm.export.mediapipe import export_mediapipe

        return export_mediapipe(*given)
    from keras_lm.export.tflite import export_tflite

    return export_tflite(*given, in_bytes=tokenizer == "bytes")


def _check_form(format, weights, freeze, tokenizer, attention):
    """Raise an error if there is no such form of an artefact."""
    if format not in TOKENIZERS:
        raise ValueError(f"format={format!r}: use one of {[*TOKENIZERS]}.")
    if tokenizer not in {place for places in TOKENIZERS.values() for place in places}:
        places = [*TOKENIZERS["litert"]]
        raise ValueError(f"tokenizer={tokenizer!r}: use one of {places}, or None.")
    if tokenizer not in TOKENIZERS[format]:
        places = " or ".join(f"tokenizer={place!r}" for place in TOKENIZERS[format])
        needed = [name for name, places in TOKENIZERS.items() if tokenizer in places]
        files = " or ".join(ONE_FILE.get(name, "a SavedModel") for name in needed)
        formats = " or ".join(f"format={name!r}" for name in needed)
        raise ValueError(
            f"tokenizer={tokenizer!r} needs {files}: pass {formats}, too; or {places} with "
            f"format={format!r}."
        )
    if not isinstance(weights, str) or weights not in WEIGHTS:
        raise ValueError(f"weights={weights!r}: use one of {list(WEIGHTS)}.")
    if freeze and weights == "float16":
        raise ValueError(
            f"freeze=True with weights={weights!r}: constants can only be float32, bfloat16 or "
            "int8. Leave one of the two out."
        )
    if weights == "bfloat16" and (not freeze or format != "saved_model"):
        raise ValueError(
            f"weights={weights!r} needs a frozen SavedModel, which multiplies in it: pass "
            "freeze=True with it, and no .tflite; or weights='float16' for a smaller file alone."
        )

    if format == "litert" and tokenizer == "graph" and not has_text_operations():
        raise ImportError(
            f"a .tflite that takes strings {INSTALL_TEXT}. Or pass tokenizer='bytes'."
        )
    if attention and (freeze or format != "saved_model"):
        raise ValueError(
            "attention=True needs a SavedModel that is not frozen: leave out attention, or "
            f"{'freeze' if freeze else 'format'}."
        )


def _check_operations(operations, format, freeze, attention):
    """Raise an error if a SavedModel cannot have these operations."""
    if operations == "tensorflow_text":
        require_text(f"operations={operations!r}")
    if operations not in (None, "tensorflow_text", "tensorflow"):
        raise ValueError(f"operations={operations!r}: use 'tensorflow_text' or 'tensorflow'.")
    if operations == "tensorflow" and (format != "saved_model" or freeze or attention):
        raise ValueError(
            "operations='tensorflow' needs a SavedModel that is not frozen and has no signature "
            "`attention`: leave out the others."
        )


def _has_untrained_head(task):
    """Whether the weights that no checkpoint of the backbone has are still as they were made."""
    new = set(task.new_weights())
    head = [weight for weight in task.weights if weight.path in new]
    return any(len(weight.shape) == 1 for weight in head) and are_random(head)
