"""Options that several commands share, the types of their values, and dataclasses that hold them.

Types refuse what can be refused before TensorFlow is imported, which takes seconds.
"""

import ast
import contextlib
import dataclasses
import glob
import math
import os
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import ClassVar

import click

from keras_lm.datasets import PUBLISHED
from keras_lm.datasets.row_files import PLAIN, Rows, open_rows
from keras_lm.utils import files, table_files
from keras_lm.utils.files import as_path, export_format, is_remote
from keras_lm.utils.json_values import json_line
from keras_lm.utils.optional_dependencies import check_installed
from keras_lm.utils.registry import advice

PRESET_CONFIG = "keras_lm.json"
MODELS = Path(__file__).parents[1] / "models"
# As options name them → the classes in `keras_lm.tasks`.
TASKS = {
    "text-classifier": "TextClassifier",
    "text-regressor": "TextRegressor",
    "multiple-choice": "MultipleChoice",
    "token-classifier": "TokenClassifier",
    "constituency-parser": "ConstituencyParser",
    "question-answerer": "QuestionAnswerer",
    "masked-lm": "MaskedLM",
    "causal-lm": "CausalLM",
    "seq2seq-lm": "Seq2SeqLM",
    "coreference-resolver": "CoreferenceResolver",
    "sentence-encoder": "SentenceEncoder",
    "sparse-encoder": "SparseEncoder",
    "multi-vector-encoder": "MultiVectorEncoder",
    "feature-extractor": "FeatureExtractor",
    "pretrainer": "Pretrainer",
}


def size_names():
    """Return the names of all sizes, in the order of files and tables."""
    assigned = [
        node.value
        for path in sorted(MODELS.glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "attr", None) == "SIZES"
    ]
    return [key.value for table in assigned for key in table.keys]


def check_size(name):
    """Raise an error, with advice, if there is no size of this name. None passes."""
    if name not in (None, *size_names()):
        raise click.UsageError(
            f"--size {name} is not a size.{advice(name, size_names())} All are listed by keras-lm "
            "models."
        )


class _Finite:
    def convert(self, value, param, ctx):
        """Return the number, or fail."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Float(_Finite, click.types.FloatParamType):
    """Any finite number."""


class FloatRange(_Finite, click.FloatRange):
    """A finite number of a range; see `click.FloatRange`."""


class Choice(click.Choice):
    """One of some names; an error names those that are close."""

    def convert(self, value, param, ctx):
        """Return the name, or fail with advice."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            error.message += advice(str(value), [*map(str, self.choices)])
            raise


class TaskChoice(Choice):
    """One of some tasks; `causal_lm` is `causal-lm`."""

    def convert(self, value, param, ctx):
        return super().convert(str(value).replace("_", "-"), param, ctx)


class Source(click.ParamType):
    """A folder with a preset or a checkpoint, hf://OWNER/NAME, or the name of a size.

    Anything else is refused before TensorFlow is imported, which takes seconds.
    """

    name = "source"

    def convert(self, value, param, ctx):
        """Return the source as it was given, or fail with advice."""
        path = Path(value).expanduser()
        if path.is_dir() or value in size_names():
            return value
        if is_remote(value) and not value.startswith("hf://"):
            return value  # it is looked for when it is read
        if value.startswith("hf://"):
            if value.count("/") < 3:
                self.fail(f"{value} is not of the form hf://OWNER/NAME.", param, ctx)
            return value
        if path.is_file():
            remedies = {
                ".tflite": "an export, for keras-lm predict: give the preset that it was made of.",
                ".keras": "a file of Keras's: in Python, keras.models.load_model loads it, and its "
                "save_to_preset writes a preset.",
            }
            remedy = remedies.get(path.suffix, "a file: give the folder that it lies in.")
            self.fail(f"{value} is {remedy}", param, ctx)
        folders = [str(other) for other in _entries(path.parent) if other.is_dir()]
        self.fail(
            f"There is no folder {value!r}.{advice(value, [*size_names(), *folders])} Give the "
            "folder of a preset or a checkpoint, or hf://OWNER/NAME; keras-lm models lists what is "
            "published.",
            param,
            ctx,
        )


def check_artefact(path):
    """Raise an error if a command cannot ask what lies there; TensorFlow is not imported."""
    if Path(path).suffix != ".tflite":
        Source().convert(path, None, None)
    elif not is_remote(path) and not Path(path).expanduser().exists():
        raise click.UsageError(f"No such file: {path!r}.")
    else:
        check_installed("ai_edge_litert", "a .tflite")


def _entries(folder):
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


class PresetFolder(click.Path):
    """A folder to write a preset to; refuses, before anything is loaded, what cannot be.

    A preset is only replaced if the command has the option `--overwrite` (`overwrite_option`). For
    another `kind` of folder, `mark` is the name of a file in each.
    """

    def __init__(self, kind="preset", mark=PRESET_CONFIG):
        super().__init__(path_type=Path)
        self.kind, self.mark = kind, mark

    def convert(self, value, param, ctx):
        """Return the `Path` if there is nothing or an empty folder, or a preset to replace."""
        folder = as_path(value)
        with _failing(self, param, ctx):
            self._check(folder, param, ctx)
        return folder

    def _check(self, folder, param, ctx):
        if folder.is_file():
            self.fail(f"{folder} is a file: choose another name for the {self.kind}.", param, ctx)
        is_free = not folder.is_dir() or files.is_half_uploaded(folder)
        if not is_free and any(folder.iterdir()):
            if not (folder / self.mark).is_file():
                self.fail(
                    f"{folder} exists and is not a {self.kind}: choose another folder. Nothing "
                    "was written.",
                    param,
                    ctx,
                )
            _require_overwrite(self, folder, f"is a {self.kind} already", param, ctx)
        _require_writable(self, folder, param, ctx)


class TrainedPreset(PresetFolder):
    """A `PresetFolder` for what a run trains, whose state lies beside it until it has ended."""

    def convert(self, value, param, ctx):
        """Return the path as `PresetFolder` does, or fail at an address that cannot hold runs."""
        if is_remote(value):
            scheme, _, rest = str(as_path(value)).partition("://")
            if scheme == "hf":
                self.fail(
                    f"{value} would keep each saved state as a commit: train to a folder on a "
                    f"disk, then keras-lm convert FOLDER {value}.",
                    param,
                    ctx,
                )
            if "/" not in rest:
                self.fail(f"{value} is a whole bucket: name a folder in it.", param, ctx)
        return super().convert(value, param, ctx)


@contextlib.contextmanager
def _failing(kind, param, ctx):
    """A context in which errors of an address are those of the option."""
    try:
        yield
    except (OSError, ImportError, ValueError) as error:
        kind.fail(str(error), param, ctx)


class LogFolder(click.Path):
    """A folder that TensorFlow writes logs to, on a disk or at an address that it knows."""

    def __init__(self):
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value, param, ctx):
        """Return the path, or fail."""
        if not is_remote(value):
            return super().convert(value, param, ctx)
        path = as_path(value)
        if files.tensorflow_files(str(path)) is None:
            self.fail(
                f"TensorFlow writes the logs, and cannot at {path}: name a folder on a disk, or "
                "gs://bucket/name.",
                param,
                ctx,
            )
        return path


class OutputFile(click.Path):
    """A file to write; one that exists is only replaced with `--overwrite` (`overwrite_option`).

    `-` is standard output, if `allow_dash`.
    """

    def __init__(self, allow_dash=False):
        super().__init__(path_type=Path, allow_dash=allow_dash)

    def convert(self, value, param, ctx):
        """Return the `Path` if it can be written."""
        path = as_path(value)
        if str(value) == "-" and self.allow_dash:
            return path
        with _failing(self, param, ctx):
            if path.is_dir():
                self.fail(f"{path} is a folder: name a file.", param, ctx)
            if path.exists():
                _require_overwrite(self, path, "exists", param, ctx)
            _require_writable(self, path, param, ctx)
        return path


# Endings of names that promise other files than lines of text.
NOT_LINES = (".csv", ".tsv", ".xlsx", ".npz", *table_files.SUFFIXES)
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def problem_of_lines(path, writes_tables=False):
    """Return what is wrong with the name of a file for JSON Lines or lines of text, or None."""
    suffix = path.suffix.lower()
    if suffix in COMPRESSED:
        return f"{path} would not be compressed: name it {path.with_suffix('')}."
    if suffix not in NOT_LINES:
        return None
    others = ", or .parquet for a table" if writes_tables else ""
    return f"{path} would hold lines of JSON or text: end its name in .jsonl or .txt{others}."


class LinesFile(OutputFile):
    """An `OutputFile` of JSON Lines."""

    def convert(self, value, param, ctx):
        """Return the `Path` if it can be written, and its ending promises no other file."""
        path = super().convert(value, param, ctx)
        problem = problem_of_lines(path)
        if problem is not None:
            self.fail(problem, param, ctx)
        return path


class ExportPath(click.Path):
    """A `.tflite` as `OutputFile`, the folder of a page, or that of all versions."""

    def __init__(self):
        super().__init__(path_type=Path)

    def convert(self, value, param, ctx):
        """Return the `Path` if it can be written."""
        path = as_path(value)
        given = ctx.params.get("export_as")  # not a string if it is not given
        export_as = export_format(path, given if isinstance(given, str) else None)
        with _failing(self, param, ctx):
            self._check(path, export_as, param, ctx)
        return path

    def _check(self, path, export_as, param, ctx):
        if export_as == "web" and path.is_dir() and any(path.iterdir()):
            if not (path / "model.tflite").is_file():
                self.fail(f"{path} exists and is not a page: name another folder.", param, ctx)
            _require_overwrite(self, path, "exists", param, ctx)
        elif export_as not in ("saved_model", "web"):
            OutputFile().convert(str(path), param, ctx)
            return
        if path.is_file():
            use = "for a page" if export_as == "web" else "for numbered versions"
            self.fail(f"{path} is a file: name a folder, {use}.", param, ctx)
        _require_writable(self, path, param, ctx)


def _require_overwrite(kind, path, what, param, ctx):
    if ctx is None or not ctx.params.get("overwrite"):
        kind.fail(
            f"{path} {what}: choose another name, or replace it with --overwrite.", param, ctx
        )


def _require_writable(kind, path, param, ctx):
    if is_remote(path):
        if not str(path).startswith("hf://"):  # where each file is a commit
            files.check_writable(path)
        return
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        kind.fail(f"{path} cannot be made: {parent} is not a writable folder.", param, ctx)


class InputPath(click.Path):
    """A file or a folder that is there, or an address."""

    def __init__(self, **options):
        super().__init__(exists=True, **options)

    def convert(self, value, param, ctx):
        """Return the path as it was given, or fail."""
        return value if is_remote(value) else super().convert(value, param, ctx)


class InputFile(InputPath):
    """A file, `-` for standard input, or a folder of files with `--format race` and the like."""

    def __init__(self):
        super().__init__(allow_dash=True)

    def convert(self, value, param, ctx):
        """Return the path as it was given, or fail."""
        published = ctx and PUBLISHED.get(ctx.params.get("format"))
        self.dir_okay = bool(published and published.in_folder)
        return super().convert(value, param, ctx)


INPUT_FILE = InputFile()
POSITIVE = click.IntRange(1)
# Peak rates of optimizers that do not depend on the model's width. Adafactor takes the lower of the
# rate and 1 / √step, times the size of what it changes: with 0.01, the schedule of T5,
# https://arxiv.org/abs/1910.10683, section 3.1.2.
LEARNING_RATES = {"adafactor": 0.01}


def option(*names, **settings):
    """Return a `click.option` whose help shows its default, if it has one."""
    has_default = settings.get("default") is not None
    return click.option(*names, **({"show_default": True} | settings if has_default else settings))


def together(*decorators):
    """Return one decorator of several, in the order in which `--help` shows them."""

    def decorate(command):
        """Give a command all of them."""
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


# === Options ===

# Read before paths are checked.
overwrite = option("--overwrite", is_flag=True, is_eager=True, help="Replace what exists.")

trained_preset = option(
    "--output",
    type=TrainedPreset(),
    required=True,
    help="Folder for the trained preset, also at an address such as gs://bucket/name.",
)
as_json = option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of a table."
)
# Read before paths are checked, of which one may be a folder.
format = option(
    "--format",
    type=Choice([*PLAIN, *PUBLISHED]),
    metavar="NAME",
    is_eager=True,
    help=f"What the file is: {', '.join(PLAIN)}; or a published data set, "
    f"{', '.join(PUBLISHED)}.  [default: by its suffix, .csv .tsv .jsonl .txt .conll .json "
    ".parquet .arrow .feather, but for tables perhaps with .gz; .json is squad, and for a tagger, "
    ".txt is conll]",
)
text = together(
    option("--text", metavar="COLUMN", help="Column of the texts.  [default: text or sentence]"),
    option(
        "--text-pair",
        metavar="COLUMN",
        help="Column of the second texts, for pairs.  [default: text_pair or sentence2]",
    ),
)
labels = together(
    option("--labels", metavar="COLUMN", help="Column of the labels.  [default: labels or label]"),
    option(
        "--label-separator",
        default=",",
        help="Separator between the labels of one text, if it may have several. In JSONL they may "
        "be lists instead.",
    ),
)
choices = option(
    "--choices",
    metavar="COLUMN",
    help="For multiple choice: column of the lists of choices, or the common beginning of numbered "
    "columns.  [default: choices, choice or ending]",
)
skip_empty = option(
    "--skip-empty",
    is_flag=True,
    help="Skip rows whose text or label is empty, and print their number.",
)
# Of a file of texts with labels, as `RowOptions` has them.
labelled_rows = together(format, text, labels, choices, skip_empty)
targets = option(
    "--targets",
    type=INPUT_FILE,
    help="For seq2seq-lm: a text file with the target of each line of the other file; with "
    "--format wmt, of each segment.",
)
input_file = option(
    "--input",
    "input_file",
    type=INPUT_FILE,
    help="Read texts from a file: .txt one a line, .csv, .tsv, .jsonl, .parquet, .arrow or "
    ".feather by column; - for standard input, lines unless --format says otherwise.",
)
tensorboard = option(
    "--tensorboard",
    type=LogFolder(),
    metavar="DIR",
    help="Folder for the metrics, for tensorboard --logdir DIR.",
)
# How a `Seq2SeqLM` writes; where nothing is said, as the model's preset says.
search = together(
    option(
        "--num-beams",
        type=click.IntRange(1),
        help="More than 1 is beam search.  [default: the model's]",
    ),
    option(
        "--length-penalty",
        type=Float(),
        help="Beam search divides log-likelihoods by the number of tokens to this power.  "
        "[default: the model's]",
    ),
    option(
        "--coverage-penalty",
        type=FloatRange(0),
        metavar="BETA",
        help="GNMT's: texts that leave parts of the source unread rank lower; --length-penalty is "
        "then GNMT's alpha. Its authors take 0.2 for both.  [default: the model's, else none]",
    ),
)
batch_size = option("--batch-size", type=click.IntRange(1), default=32)

processes = option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    help="Processes of the DirectRunner, on this machine.",
)


def parse_class_names(ctx, param, value):
    """Callback of `--class-names`: `"bad,good"` → a list."""
    if value is None:
        return None
    names = [name.strip() for name in value.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise click.BadParameter(f"{value!r} has an empty name, or names one twice.")
    return names


# === What a command runs with ===


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How texts are read from a file."""

    format: str | None
    text: str | None
    text_pair: str | None
    skip_empty: bool = False

    @property
    def columns(self):
        """The user's columns by their roles; None for the usual ones."""
        return {"text": self.text, "text_pair": self.text_pair}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOptions(TextOptions):
    """How texts and their labels are read from a file."""

    labels: str | None
    label_separator: str
    choices: str | None

    @property
    def columns(self):
        """The user's columns by their roles; None for the usual ones."""
        return super().columns | {"labels": self.labels, "choices": self.choices}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a command trains, and the preset that it writes."""

    optimizer: ClassVar[str] = "adamw"  # if the command has no option for it
    output: Path
    overwrite: bool
    epochs: int | None
    batch_size: int
    learning_rate: float | None
    sequence_length: int | None
    seed: int
    dtype: str | None
    tensorboard: Path | None

    def with_learning_rate(self, backbone):
        """Return these options with the peak learning rate of a run.

        It is the user's, or else the optimizer's own, or else what suits the width of the backbone.
        """
        rate = self.learning_rate or LEARNING_RATES.get(self.optimizer) or backbone.learning_rate
        return dataclasses.replace(self, learning_rate=rate)


def given(options, names):
    """Return a dict of those of a command's options that are given, of some names."""
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, ())}


def names_of(options):
    """Return the names of the options in a dataclass."""
    return tuple(field.name for field in dataclasses.fields(options))


def flag_of(name):
    """Return an option's name as it stands on the line: `text_pair` → `--text-pair`."""
    return f"--{name.replace('_', '-')}"


LONGEST_PATH = 1024  # characters
# What pretraining leaves ready; heads of other tasks are useless before they are trained.
PRETRAINED = (
    *("masked-lm", "causal-lm", "seq2seq-lm"),
    *("feature-extractor", "sentence-encoder", "sparse-encoder", "multi-vector-encoder"),
    "pretrainer",
)


@contextlib.contextmanager
def notes():
    """Print what the library warns of as one line each, without the place in the code.

    A command that loads the same source several times prints it once.
    """
    context = click.get_current_context(silent=True)
    said = context.meta.setdefault(__name__, set()) if context else set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", category=UserWarning)
        yield
    for warning in caught:
        if warning.category is UserWarning:
            # What was called in Python means nothing here, but the source does.
            message = re.sub(r"^\w+\.from_preset\('(.*?)'\):", r"\1:", str(warning.message))
            if message not in said:
                click.echo(f"Note: {message}", err=True)
            said.add(message)


def load_task(source, cls=None, **options):
    """Return the task of a source; see `keras_lm.presets.load_ready_task`."""
    from keras_lm import presets, tasks  # imports TensorFlow

    with notes():
        return presets.load_ready_task(source, cls or tasks.Task, **options)


def choose_task(source, name):
    """Return the class of the task `name`; for None what an opened source holds, or None."""
    from keras_lm import tasks

    if name is None:
        return source.usual_task
    cls = getattr(tasks, TASKS[name])
    if name not in PRETRAINED and source.task_arguments(cls) is None:
        raise ValueError(
            f"{source} has no head for {name}. Train one: keras-lm finetune {source} TRAIN "
            f"--task {name} --output PRESET"
        )
    return cls


def say_rows(pairs):
    """Print `(name, value)` pairs as two columns; a value that is None has no line."""
    pairs = [(name, value) for name, value in pairs if value is not None]
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        first, *rest = value if isinstance(value, list) else [value]
        click.echo(f"{name:<{width}}  {first}")
        for line in rest:
            click.echo(f"{'':<{width}}  {line}")


def megabytes(path):
    """Return the size of a file, or of all files in a folder, as text."""
    return f"{files.size(path) / 1e6:.1f} MB"


@contextlib.contextmanager
def writing_preset(output):
    """Yield the folder to write a trained preset to; for an address it is uploaded at the end.

    If that fails, what was trained stays on the disk.
    """
    if not is_remote(output):
        yield output
        return
    folder = Path(tempfile.mkdtemp(prefix="keras_lm-"))
    preset = folder / output.name
    try:
        yield preset
        files.upload(preset, output)
    except OSError as error:
        raise click.ClickException(
            f"{error} The trained preset is in {preset}: keras-lm convert {preset} {output} "
            "uploads it."
        ) from error
    shutil.rmtree(folder)


@contextlib.contextmanager
def progress(size, label):
    """Yield `advance(n)`; it moves a bar if standard error is a terminal and the size is known."""
    if size is None or not sys.stderr.isatty():
        yield lambda n: None
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:
        yield bar.update


def table_or_texts(texts, path):
    """Return texts of the line and the path of `--input`; a table alone on the line is the file."""
    (table, *_) = texts or [""]
    is_table = len(texts) == 1 and table_files.format_of(table)
    if is_remote(table) and glob.has_magic(table):
        is_there = files.is_remote_file(table)
    else:
        is_there = is_remote(table) or os.path.isfile(table)
    is_there = is_there and is_table and path is None
    return ((), table) if is_there else (texts, path)


def refuse_same_file(path, output):
    """Raise an error if a command would replace the file that it reads."""
    if path and output and files.is_same(path, output):
        raise click.UsageError(f"--output {output} is the file that is read: name another.")


def open_input(texts, path, format):
    """Return a context with the `Rows` of texts from the command line, a file or standard input."""
    if texts and path:
        raise click.UsageError("texts are given and --input, too: choose one.")
    _refuse_paths(texts)
    if texts:
        numbered = enumerate(({"text": text} for text in texts), start=1)
        return contextlib.nullcontext(Rows("the command line", numbered, ["text"]))
    if path is None and sys.stdin.isatty():
        raise click.UsageError("no texts: give them as arguments, by --input FILE, or by a pipe.")
    return open_rows(path or "-", format)


def _refuse_paths(texts):
    """Raise an error for arguments in the place of texts that name files or folders of tables."""
    for text in texts:
        if len(text) >= LONGEST_PATH:
            continue
        # A web page's address may be a text.
        is_file = not text.startswith("http") and files.is_remote_file(text)
        if is_file or (Path(text).suffix and os.path.isfile(text)):
            raise click.UsageError(f"{text} is a file: pass it by --input {text}.")
        if table_files.format_of(text) and " " not in text:
            raise click.UsageError(
                f"There is no file {text!r}. Several files and patterns are read with --runner "
                "DirectRunner; a text of that name can be piped."
            )
        if os.path.isdir(text) and any(map(table_files.format_of, os.listdir(text))):
            pattern = os.path.join(text, "*")
            raise click.UsageError(
                f"{text} is a folder of tables: answer its files by --runner DirectRunner "
                f"'{pattern}'."
            )


def with_progress(batches, rows, label):
    """Yield the batches of `Rows`, and move a bar over the bytes that are read."""
    read = 0
    with progress(rows.size, label) as advance:
        for batch in batches:
            yield batch
            advance(rows.position() - read)
            read = rows.position()


def say_left_out(rows):
    """Print how many of `Rows` have been left out."""
    if rows.left_out:
        click.echo(
            f"{rows.name}: {rows.left_out:,} rows left out, without a label or damaged", err=True
        )
    if rows.num_empty:
        click.echo(f"{rows.name}: {rows.num_empty:,} rows left out, which are empty", err=True)


@contextlib.contextmanager
def json_lines(path, line=None):
    """Yield `write(rows)` to standard output, or to a JSONL file that appears at the end.

    `line` makes the bytes of a row; None for `json_line`.
    """
    with contextlib.ExitStack() as stack:
        if path is None:
            stream = sys.stdout.buffer
        else:
            stream = stack.enter_context(open(stack.enter_context(files.replacing(path)), "wb"))

        def write(rows):
            for row in rows:
                stream.write((line or json_line)(row))
            stream.flush()

        yield write
