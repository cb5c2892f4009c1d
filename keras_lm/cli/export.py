"""`keras-lm export`: a preset → one artefact that takes strings."""

import dataclasses
from pathlib import Path

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command, takes
from keras_lm.cli.options import (
    TASKS,
    Choice,
    ExportPath,
    FloatRange,
    Source,
    choose_task,
    flag_of,
    load_task,
    megabytes,
    names_of,
    notes,
    say_left_out,
    say_rows,
)
from keras_lm.datasets import PUBLISHED
from keras_lm.datasets.row_files import PLAIN, batches, choose_columns, find_format, open_rows
from keras_lm.serving.predictors import TaskPredictor
from keras_lm.utils.files import ONE_FILE, export_format
from keras_lm.utils.optional_dependencies import RUNTIMES, check_installed

CHECK_TEXTS = ["A short text.", "", "Ünïcode, 中文 and 123!", "a longer text " * 40]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(opt.TextOptions):
    """What `keras-lm export` runs with."""

    preset: str
    path: Path
    export_as: str | None
    tokenizer: str
    operations: str
    weights: str
    freeze: bool
    attention: bool
    task: str | None
    do_check: bool
    texts: str | None
    tolerance: float | None
    overwrite: bool
    runtime: str | None
    num_bytes: int | None


@click.command(
    "export",
    cls=Command,
    short_help="A trained preset → a SavedModel, a .tflite, an .onnx or a page.",
)
@click.argument("preset", type=Source())
@click.argument("path", type=ExportPath())
@opt.option(
    "--format",
    "export_as",
    type=Choice(["saved_model", "litert", "onnx", "web"]),
    is_eager=True,  # PATH is checked by it
    help="saved_model for TensorFlow and TF Serving; litert for a .tflite; onnx for an .onnx; "
    "web for a folder with a page whose model answers in the browser.  "
    "[default: by the suffix of PATH, otherwise saved_model]",
)
@opt.option(
    "--tokenizer",
    type=Choice(["graph", "bytes", "metadata", "none"]),
    default="graph",
    help="Where the tokenizer is: in the graph, which takes strings, or bytes of texts in a .tflite"
    " or an .onnx, which any build of LiteRT or ONNX Runtime runs; in the metadata of a .tflite, "
    "for MediaPipe's text classifier and embedder, on phones; or none, of an .onnx that takes ids.",
)
@opt.option(
    "--operations",
    type=Choice(["tensorflow_text", "tensorflow"]),
    default="tensorflow_text",
    help="Those of a SavedModel: tensorflow is enough for programs without TensorFlow Text.",
)
@opt.option(
    "--weights",
    type=Choice(["float32", "float16", "bfloat16", "int8"]),
    default="float32",
    help="How matrices are stored: float16 takes half the space, int8 about a quarter. bfloat16, "
    "only with --freeze, takes half and is fast on processors with AMX or AVX512-BF16.",
)
@opt.option(
    "--freeze",
    is_flag=True,
    help="Fold the weights into the graph: faster answers to few texts, slower loading. With "
    "--weights int8 or bfloat16, also multiply in that type.",
)
@opt.option(
    "--attention",
    is_flag=True,
    help="Add a signature with what each token attends to, which the page of keras-lm serve draws.",
)
@opt.option("--task", type=Choice([*TASKS]), help="[default: what PRESET has a head for]")
@opt.option(
    "--check",
    "do_check",
    is_flag=True,
    help="Ask the export in a fresh process, and compare its answers with the task's.",
)
@opt.option(
    "--texts",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Texts as predict reads them. Nothing is written unless the export answers them as the "
    "task does; prints the largest difference of numbers and the share of equal labels.",
)
@opt.option(
    "--texts-format",
    "format",
    type=Choice([*PLAIN, *PUBLISHED]),
    metavar="NAME",
    help="Format of the file of --texts, as --format of predict.  [default: by its suffix]",
)
@opt.text
@opt.skip_empty
@opt.option(
    "--tolerance",
    type=FloatRange(0),
    help="The largest difference that passes, for answers to --texts.  [default: by --weights]",
)
@opt.option(
    "--runtime",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="node_modules/@litertjs, whose files go to the page of --format web.  [default: the page "
    "loads them from a CDN]",
)
@opt.option(
    "--num-bytes",
    type=click.IntRange(1),
    help="The most bytes of a text that the page of --format web reads.  [default: by the model]",
)
@opt.overwrite
@takes(ExportOptions)
def export_command(options):
    """Write a trained task as one artefact that takes strings, its tokenizer inside.

    \b
      keras-lm export film-critic exported           # exported/1, the next time exported/2
      keras-lm export film-critic film-critic.tflite
      keras-lm export film-critic phone.tflite --tokenizer metadata --weights int8
      keras-lm export film-critic film-critic.onnx --tokenizer bytes
      keras-lm export film-critic warehouse --operations tensorflow
      keras-lm export film-critic page --format web --weights int8
      keras-lm export film-critic small --weights int8 --texts reviews.csv --text review
      keras-lm export bert-base encoder --task feature-extractor --check

    PRESET is a preset, or a published checkpoint that has the task's head. PATH is the folder of
    all versions, as TF Serving expects it, or a .tflite or .onnx file or the folder of a page,
    which are replaced with --overwrite only. Nothing is written if the model cannot be exported.
    """
    export_as = export_format(options.path, options.export_as)
    options = dataclasses.replace(options, export_as=export_as)
    _check_form(options)
    _check_texts(options)

    from keras_lm import export, presets  # imports TensorFlow

    several = not (options.texts or options.do_check)  # which are compared for one task
    opened = presets.Source.open(options.preset)
    task = load_task(opened, choose_task(opened, options.task), several=several)
    reports, check = [], {}
    if options.texts:
        check = {
            "texts": _read_texts(options, task),
            "tolerance": options.tolerance,
            "report": reports.append,
        }
    with notes():
        written = task.export(
            options.path,
            format=options.export_as,
            tokenizer=None if options.tokenizer == "none" else options.tokenizer,
            operations=options.operations,
            weights=options.weights,
            freeze=options.freeze,
            attention=options.attention,
            runtime=options.runtime,
            num_bytes=options.num_bytes,
            **check,
        )
    say_rows([("written", f"{written} ({megabytes(written)})")])
    if options.do_check:
        tolerance = export.WEIGHTS[options.weights]
        reports.append(export.check(written, task, _check_samples(task), tolerance))
    for report in reports:
        _say_report(report)


def _check_form(options):
    """Refuse forms of an artefact that do not go together."""
    export_as, weights = options.export_as, options.weights
    if options.tokenizer == "metadata" and export_as != "litert":
        raise click.UsageError("--tokenizer metadata needs a .tflite: name one as PATH.")
    if options.tokenizer == "bytes" and export_as not in ("litert", "onnx"):
        raise click.UsageError("--tokenizer bytes needs a .tflite or an .onnx: name one as PATH.")
    if export_as != "web" and (options.runtime or options.num_bytes):
        raise click.UsageError("--runtime and --num-bytes are of a page: add --format web.")
    if options.tokenizer == "none" and export_as != "onnx":
        raise click.UsageError("--tokenizer none needs an .onnx: name one as PATH.")
    if options.tokenizer == "graph" and export_as == "onnx":
        raise click.UsageError(
            "an .onnx takes no strings: add --tokenizer bytes, or --tokenizer none for ids."
        )
    if options.operations == "tensorflow":
        other = "--freeze" if options.freeze else "--attention" if options.attention else None
        other = other if export_as == "saved_model" else f"--format {export_as}"
        if other:
            raise click.UsageError(
                f"--operations tensorflow does not go with {other}: drop one of them."
            )
    if options.freeze and export_as != "saved_model":
        raise click.UsageError("the weights of one file are constants anyway: drop --freeze.")
    if weights != "float32" and export_as == "onnx":
        raise click.UsageError(
            f"--weights {weights} is not of an .onnx: drop it, and quantise the file with ONNX "
            "Runtime, see docs/onnx.md."
        )
    if options.freeze and weights == "float16":
        raise click.UsageError(f"--freeze does not go with --weights {weights}: drop one of them.")
    if weights == "bfloat16" and not options.freeze:
        raise click.UsageError("--weights bfloat16 needs a frozen SavedModel: add --freeze.")
    if options.attention and (options.freeze or export_as != "saved_model"):
        other = "--freeze" if options.freeze else f"--format {export_as}"
        raise click.UsageError(f"--attention does not go with {other}: drop one of them.")


def _check_texts(options):
    """Refuse options of the texts that answers are compared for, before TensorFlow is imported."""
    texts, tolerance = options.texts, options.tolerance
    if tolerance is not None and not texts:
        raise click.UsageError(f"--tolerance {tolerance:g} needs --texts FILE to compare answers.")
    for option in names_of(opt.TextOptions):
        if getattr(options, option) not in (None, False) and not texts:
            flag = "--texts-format" if option == "format" else flag_of(option)
            raise click.UsageError(f"{flag} is about the file of --texts, which is missing.")
    if texts and not options.format:
        find_format(texts)  # its errors before TensorFlow is there
    export_as = options.export_as
    if export_as in RUNTIMES and (texts or options.do_check):
        option = "--texts" if texts else "--check"
        check_installed(RUNTIMES[export_as], f"{option} for {ONE_FILE[export_as]}")


def _read_texts(options, task):
    """Return a dict of columns of a file of texts: those that a task answers."""
    with open_rows(options.texts, options.format) as rows:
        columns = choose_columns(rows, TaskPredictor(task).inputs, options.columns)
        read = [texts for _, texts in batches(rows, columns, 1000, options.skip_empty)]
        say_left_out(rows)
    if not read:
        raise rows.empty()
    return {name: [text for texts in read for text in texts[name]] for name in columns}


def _check_samples(task):
    """Return the texts that --check asks, in the columns that a task takes."""
    if "choices" in task.required_names:
        return CHECK_TEXTS, [CHECK_TEXTS] * len(CHECK_TEXTS)
    if task.text_pair:
        return CHECK_TEXTS, CHECK_TEXTS[::-1]
    return CHECK_TEXTS


def _say_report(report):
    """Print how an export answers in comparison with its task."""
    say_rows(
        [
            ("checked", f"{report.num_texts:,} texts, answered as the task answers"),
            *report.figures().items(),
            ("loading", f"{report.load_seconds:.1f} s"),
            ("first call", f"{report.first_call_seconds:.2f} s"),
        ]
    )
