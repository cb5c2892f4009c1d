"""Compare the answers of an exported model, in a fresh process, with the task's."""

import dataclasses
import math
import pickle
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import keras
import numpy as np

from keras_lm.litert import open_interpreter
from keras_lm.presets import saving
from keras_lm.tensorflow import tf
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike, RawTexts
from keras_lm.utils.batch_iteration import with_progress
from keras_lm.utils.files import ONE_FILE
from keras_lm.utils.optional_dependencies import RUNTIMES, check_installed

PROGRAM = Path(__file__).with_name("fresh_process.py")
ANSWERED = b"answered\n"  # what the program says after each batch
WEB_MODEL = "model.tflite"  # in the folder of a page
TOLERANCES = {"saved_model": 1e-5, "litert": 1e-4, "onnx": 1e-5}


class ExportCheckError(ValueError):
    """The answers of an exported model differ from those of its task."""


class ExportRunError(ExportCheckError):
    """An exported model does not run in a fresh process."""


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """The results of `check`.

    Args:
        differences: dict of output name → the largest difference of its numbers, relative for
            numbers larger than 1; or the share of its strings that differ.
        load_seconds, first_call_seconds: float. The time to load the model, without imports, and
            the time of the first batch, which is slower than later ones.
        num_bytes: int. Size of the file, or of all files in the folder.
        num_texts: int. How many rows were compared.
        strings: tuple of the names of outputs that are strings.
    """

    differences: dict
    load_seconds: float
    first_call_seconds: float
    num_bytes: int
    num_texts: int
    strings: tuple

    def figures(self) -> dict[str, str]:
        """Return a dict of output name → how alike the answers are, in words."""
        return {
            name: f"{math.floor(1e4 * (1 - difference)) / 1e4:.2%} equal"
            if name in self.strings
            else f"differs by at most {difference:.1g}"
            for name, difference in self.differences.items()
        }

    def __str__(self):
        figures = (f"{name} {words}" for name, words in self.figures().items())
        return f"{self.num_texts:,} texts compared: {', '.join(figures)}"


def check(
    path: PathLike,
    task: keras.Model,
    texts: RawTexts,
    tolerance: float | None = None,
    batch_size: int = 32,
    signature: str = "serving_default",
    verbose: int | str = "auto",
) -> CheckReport:
    """Run an exported model in a fresh process, and compare its answers with the task's.

    The process imports TensorFlow, and TensorFlow Text if the export needs it (for a `.tflite`:
    `ai_edge_litert` and TensorFlow Text's kernels; for an `.onnx`: `onnxruntime`), but not this
    library. A `.tflite` is compared with the task's `answer_lite`; one for MediaPipe is asked text
    by text, with the ids of the task's tokenizer, and an `.onnx` that takes ids with these in
    batches.
    Returns a `CheckReport`.

    Args:
        path: what `task.export` returned: a version's folder, a `.tflite` or `.onnx` file, or the
            folder of a page, whose texts are cut as there.
        task: the `keras_lm.tasks.Task` that was exported.
        texts: raw strings in any form that `predict` takes; at least one.
        tolerance: float, the largest difference of numbers that passes, and the largest share of
            different strings, such as labels. By default, strings may not differ, and numbers by
            1e-5, or 1e-4 for a `.tflite`, which has other kernels.
        batch_size: int.
        signature: str, the signature to call. For one task of a `MultiTask`, it is the task's name.
        verbose: 1 for a bar of progress; `"auto"` for one after some seconds, in a terminal or a
            notebook; 0 for none.

    Raises:
        ExportCheckError: if answers differ or are NaN, or the process fails; it is a ValueError.
        FileNotFoundError: if there is no exported model at `path`.
        ImportError: if `ai_edge_litert`, which runs a `.tflite`, is not installed, or
            `onnxruntime`, which runs an `.onnx`.
        ValueError: if `texts` is empty or lacks a column, or a `.tflite` returns tokens, not text.

    Example:
        keras_lm.export.check(task.export("exported"), task, ["a text", "another"])
    """
    path = Path(path)
    if (path / WEB_MODEL).is_file():  # of a page
        path = path / WEB_MODEL
    format = _format_of(path, task)
    takes_ids = format == "litert" and _is_for_mediapipe(path)
    offer = task.id_signatures if takes_ids else task.signatures
    sizes = _sizes_of_bytes(path) if format == "litert" else None
    is_fixed = sizes is not None and min(sizes) > 0  # for browsers
    if sizes:
        offer = task.fixed_signatures(*sizes) if is_fixed else task.byte_signatures
    if is_fixed:
        batch_size = offer.num_rows
    columns = _columns_of(texts, task)
    length = len(next(iter(columns.values())))
    if format == "litert":
        columns = offer.lite_columns(columns)
    batch_size = 1 if takes_ids else batch_size
    batches = [
        {name: column[start : start + batch_size] for name, column in columns.items()}
        for start in range(0, length, batch_size)
    ]
    if format == "litert":
        batches = [offer.lite_batch(batch) for batch in batches]
    if format == "onnx":
        offer = task.number_signatures if _takes_bytes(path) else task.packed_signatures
        batches = [offer.rows(batch) for batch in batches]
    steps = with_progress(range(2 * len(batches)), 2 * len(batches), verbose)

    def advance():
        next(steps, None)

    advance()  # which begins
    runner = "compiled" if is_fixed else format
    answers, load_seconds, first_call_seconds = _ask(path, runner, batches, signature, advance)

    shares = 0.0 if tolerance is None else tolerance
    tolerance = TOLERANCES[format] if tolerance is None else tolerance
    # In a graph TensorFlow fuses operations, so half precision rounds as in the export.
    answer = offer.answer_lite if format == "litert" else offer.answer()
    answer = tf.function(answer, reduce_retracing=True, autograph=False)
    comparisons = []
    for batch, served in zip(batches, answers):
        tensors = {name: tf.constant(column) for name, column in batch.items()}
        expected = {name: value.numpy() for name, value in answer(**tensors).items()}
        comparisons.append(compare(served, expected))
        advance()
    differences = within(tolerance, shares, comparisons)
    strings = tuple(name for name, (entries, _) in comparisons[0].items() if entries.dtype == bool)
    times = (load_seconds, first_call_seconds)
    return CheckReport(differences, *times, files.size(path), length, strings)


def _format_of(path, task):
    """Return the format of the artefact at a path; raise an error if there is none to compare."""
    format = "saved_model"
    if path.is_file():
        with path.open("rb") as file:
            is_onnx = path.suffix == ".onnx" and file.read(8)[4:] != b"TFL3"
        format = "onnx" if is_onnx else "litert"
    if format == "saved_model" and not (path / "saved_model.pb").is_file():
        raise FileNotFoundError(
            f"path={str(path)!r} is not an exported model: pass what task.export returned, a "
            "version's folder, or a .tflite or .onnx file."
        )
    if format in RUNTIMES:
        check_installed(RUNTIMES[format], f"Checking {ONE_FILE[format]}")
    if format == "litert" and not task.signatures.answers_in_lite:
        raise ValueError(
            f"path={str(path)!r} returns one token at a time and no text, so there is no answer to "
            "compare: check the SavedModel of this task."
        )
    return format


def _columns_of(texts, task):
    """Return the columns of texts that a task answers, a dict of arrays."""
    columns = {name: column.numpy() for name, column in task.columns(texts).items()}
    if not len(next(iter(columns.values()))):
        raise ValueError("texts is empty: pass at least one text.")
    if len(columns) == len(task.answer_names) == 1:  # a CausalLM's text is its prompt
        columns = dict(zip(task.answer_names, columns.values(), strict=True))
    if missing := set(task.answer_names) - set(columns):
        raise ValueError(
            f"texts lacks {sorted(missing)}, and the model takes {list(task.answer_names)}: pass "
            "all of them."
        )
    return columns


def _is_for_mediapipe(path):
    """Whether a `.tflite` has a vocabulary at its end, and so takes ids, a row at a time."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return not {*archive.namelist()} <= {saving.CARD, files.CHECKSUMS}


def _sizes_of_bytes(path):
    """Return how many bytes and rows a `.tflite` takes, -1 for any; None if it takes no bytes."""
    interpreter = open_interpreter(path)
    inputs = interpreter.get_signature_runner("serving_default").get_input_details()
    for name in inputs:
        if f"{name}_ends" in inputs:
            return tuple(inputs[n]["shape_signature"][0] for n in (name, f"{name}_ends"))
    return None


def _takes_bytes(path):
    """Whether an `.onnx` takes texts."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return any(value.type == "tensor(uint8)" for value in session.get_inputs())


def _ask(path, format, batches, signature, advance):
    """Run the program; return (dicts of arrays, seconds to load, seconds of the first call).

    `advance` is called after each batch.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "batches"
        file.write_bytes(pickle.dumps(batches))
        model = str(path.absolute())
        program = [sys.executable, str(PROGRAM), format, model, str(file), signature]
        if problem := _run(program, folder, advance):
            raise ExportRunError(f"{path} failed in a fresh process:\n{problem[-2000:]}")
        return pickle.loads(file.read_bytes())


def answer_in_fresh_process(path, format, inputs, signature):
    """Return what an exported model answers to one batch, as `fresh_process.py` runs the format."""
    (answer,), *_ = _ask(path, format, [inputs], signature, lambda: None)
    return answer


def _run(program, folder, advance):
    """Run a program in a folder, from which Python imports, too; return what it says if it fails.

    `advance` is called for each line `ANSWERED`.
    """
    words = Path(folder) / "words"
    with (
        open(words, "wb") as errors,
        subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        for line in process.stdout:
            if line == ANSWERED:
                advance()
    said = words.read_text(encoding="utf-8", errors="replace")
    return said or f"exit code {process.returncode}" if process.returncode else None


def compare(served, expected):
    """Return for each output (differences (entries,), a sentence about the first wrong string).

    The sentence is "" for numbers, and if all strings are equal.
    """
    if set(served) != set(expected):
        raise ExportCheckError(
            f"the export returns {sorted(served)}, but the task {sorted(expected)}."
        )
    compared = {}
    for name, value in expected.items():
        answered, words = served[name], ""
        if answered.shape != value.shape:
            raise ExportCheckError(
                f"{name} has the shape {answered.shape}, but the task's has {value.shape}."
            )
        if value.dtype != object:
            compared[name] = _numeric_differences(answered, value).ravel(), words
            continue
        differs = answered != value
        for index in np.argwhere(differs)[:1]:
            first, wanted = answered[tuple(index)], value[tuple(index)]
            words = f"{name}{index.tolist()} is {first!r}, but the task's is {wanted!r}; "
        padding = (value == b"") & ~differs
        compared[name] = differs[~padding], words
    return compared


def within(tolerance, shares, comparisons):
    """Return the difference of each output over all batches; raise an error if one is too large.

    `tolerance` is for numbers, `shares` for the share of different strings.
    """
    differences, problems = {}, []
    for name in comparisons[0]:
        entries, words = zip(*(compared[name] for compared in comparisons))
        entries = np.concatenate(entries)
        is_strings = entries.dtype == bool
        value = float((np.mean if is_strings else np.max)(entries)) if len(entries) else 0.0
        differences[name] = value
        if not value <= (shares if is_strings else tolerance):  # NaN does not pass either
            problems.append(f"{next(filter(None, words), '')}{name} differs by {value:.2g}")
    if problems:
        raise ExportCheckError(f"{', '.join(problems)}, but tolerance={tolerance:.2g}.")
    return differences


def _numeric_differences(a, b):
    a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0.0, np.abs(a - b) / np.maximum(np.abs(b), 1.0))


def verify(artefact, task, texts, weights, allowed, report, verbose):
    """Raise an `ExportCheckError` if answers to texts differ by more than is allowed."""
    try:
        for signature, part, asked in task.signatures.answering(texts):
            result = check(artefact, part, asked, allowed, signature=signature, verbose=verbose)
            if report is not None:
                report(result)
    except ExportRunError:
        raise
    except ExportCheckError as error:
        raise ExportCheckError(
            f"{error} Nothing was written with weights={weights!r}: pass more precise weights, or "
            "a larger tolerance."
        ) from error
