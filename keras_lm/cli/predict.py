"""`keras-lm predict`: texts → answers, vectors or texts, by a task, an export or a server."""

import contextlib
import dataclasses
from pathlib import Path

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command, PerhapsBeamCommand, beam, beam_flags, takes
from keras_lm.cli.options import (
    TASKS,
    Choice,
    FloatRange,
    OutputFile,
    Source,
    check_artefact,
    choose_task,
    flag_of,
    json_lines,
    load_task,
    names_of,
    notes,
    open_input,
    problem_of_lines,
    refuse_same_file,
    say_left_out,
    say_rows,
    table_or_texts,
    with_progress,
)
from keras_lm.datasets.row_files import TableRows, batches, choose_columns
from keras_lm.serving.predictors import (
    ServerPredictor,
    Writer,
    open_litert,
    open_predictor,
    predictor_of,
)
from keras_lm.utils import table_files
from keras_lm.utils.files import as_local, replacing
from keras_lm.utils.json_values import plain
from keras_lm.utils.optional_dependencies import check_installed

BATCHES_SORTED = 50  # of a file, which are read and answered together

# As arguments of `generate`: those of a Seq2SeqLM alone, and of a CausalLM.
OF_TARGETS = ("coverage_penalty", "prefix", "forbidden")
OF_PROMPTS = ("prompt_lookup",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOptions(opt.TextOptions):
    """What texts a command answers, and where the answers go."""

    input_file: str | None
    output: Path | str | None
    overwrite: bool
    batch_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorOptions:
    """What vectors a command writes, in the words of a FeatureExtractor."""

    layers: str | int | list[int] | None
    pooling: str | None
    normalize: bool | None
    prompt: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """How a command writes texts, in the words of `generate`."""

    num_beams: int | None
    length_penalty: float | None
    max_new_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    stop: tuple[str, ...]
    num_return_sequences: int | None
    coverage_penalty: float | None
    prefix: str | None
    forbidden: tuple[str, ...]
    prompt_lookup: int | None


VECTORS, WRITING = names_of(VectorOptions), names_of(WritingOptions)


class Layers(click.ParamType):
    """A name, the index of a hidden state, or several of these, separated by commas."""

    name = "name or numbers"

    def convert(self, value, param, ctx):
        """Return an int or a list of int, else the string; `FeatureExtractor` knows the names."""
        try:
            numbers = [int(part) for part in value.split(",")]
        except ValueError:
            return value
        return numbers if "," in value else numbers[0]


vector_options = opt.together(
    opt.option(
        "--layers",
        type=Layers(),
        help="embedding, first, second_to_last, last, sum_all, sum_last_four, concat_last_four, "
        "concat_embedding_last, scalar_mix, all, the number of a hidden state (0 is the embedding, "
        "-1 the last), or several numbers, such as 0,-1. all and several numbers give a vector for "
        "each.  [default: last]",
    ),
    opt.option(
        "--pooling",
        type=Choice(["first", "last", "mean", "mean_sqrt_len", "weighted_mean", "max", "none"]),
        help="Pooling over the tokens of a text; none gives a vector for each token.  [default: "
        "what SOURCE states, else mean]",
    ),
    opt.option(
        "--normalize/--no-normalize",
        default=None,
        help="Scale each vector to length 1.  [default: what SOURCE states, else not]",
    ),
    opt.option(
        "--prompt",
        help="Text to put before each text, such as 'query: '.  [default: what SOURCE states]",
    ),
)
writing_options = opt.together(
    opt.search,
    opt.option(
        "--max-new-tokens",
        type=click.IntRange(1),
        help="Most tokens to write.  [default: what MODEL states; else 50, or the target length of "
        "a Seq2SeqLM]",
    ),
    opt.option("--temperature", type=FloatRange(0, min_open=True), help="Draw tokens at random."),
    opt.option(
        "--top-k",
        type=click.IntRange(1),
        help="Draw from this many likeliest tokens; with --temperature.",
    ),
    opt.option(
        "--top-p",
        type=FloatRange(0, 1, min_open=True),
        help="Draw from the likeliest tokens with this total probability; with --temperature.",
    ),
    opt.option("--seed", type=click.IntRange(0), help="Seed of the draws, to repeat them."),
    opt.option(
        "--repetition-penalty",
        type=FloatRange(0, min_open=True),
        help="Above 1, tokens that have occurred are less likely.",
    ),
    opt.option(
        "--no-repeat-ngram-size",
        type=click.IntRange(0),
        help="Write no sequence of this many tokens twice, such as 3 for summaries.",
    ),
    opt.option(
        "--stop",
        multiple=True,
        metavar="TEXT",
        help="Text, or a special token, before which to stop; may be repeated.",
    ),
    opt.option(
        "--num-return-sequences",
        type=click.IntRange(1),
        help="Texts to return for each, the best first, with beams or a temperature.",
    ),
    opt.option("--prefix", help="Beginning of every text of a Seq2SeqLM."),
    opt.option(
        "--forbidden",
        multiple=True,
        metavar="TEXT",
        help="Text that a Seq2SeqLM must not write; may be repeated.",
    ),
    opt.option(
        "--prompt-lookup",
        type=click.IntRange(0),
        metavar="TOKENS",
        help="For a CausalLM: propose this many tokens a step, copied from the prompt. The text is "
        "the same.",
    ),
)


class FileOrFolder(OutputFile):
    """An `OutputFile`, or with `--runner` the folder of many, which may be on any filesystem."""

    def convert(self, value, param, ctx):
        """Return the `Path` of a file if it can be written, or the folder as it was given."""
        runner = ctx.params.get("runner")
        return value if isinstance(runner, str) else super().convert(value, param, ctx)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions(AnswerOptions, VectorOptions, WritingOptions):
    """What `keras-lm predict` runs with."""

    model_and_texts: tuple[str, ...]
    runner: str | None
    processes: int
    server: str | None
    model: str | None
    signature: str | None
    version: int | None
    task: str | None
    lines: bool


@click.command(
    "predict",
    cls=PerhapsBeamCommand,
    short_help="Texts → answers, by a preset, an export or a server.",
)
@click.argument("model_and_texts", nargs=-1, metavar="MODEL [TEXT]...")
@opt.input_file
@opt.format
@opt.text
@opt.skip_empty
@opt.option(
    "--runner",
    is_eager=True,
    help="Answer whole files by Apache Beam: DirectRunner, FlinkRunner, … What follows MODEL are "
    "then files or patterns, and Beam's own options may follow after --.",
)
@opt.processes
@opt.option(
    "--output",
    type=FileOrFolder(),
    help="JSONL file to write; .parquet, .arrow or .feather for a table with the columns of the "
    "input, or .npz for vectors. It appears when all texts are answered. With --runner, the "
    "folder.  [default: standard output]",
)
@opt.overwrite
@opt.batch_size
@opt.option("--server", metavar="URL", help="Ask a server: http://HOST:PORT or grpc://HOST:PORT.")
@opt.option("--model", metavar="NAME", help="The model's name on the server.")
@opt.option("--signature", help="Signature of an export or a server.  [default: serving_default]")
@opt.option(
    "--version",
    type=click.IntRange(0),
    help="Version of an export or a server.  [default: the latest]",
)
@opt.option(
    "--task",
    type=Choice([*TASKS]),
    help="Task of a preset or a checkpoint: feature-extractor for vectors.  [default: the one that "
    "MODEL has a head for]",
)
@vector_options
@writing_options
@opt.option("--lines", is_flag=True, help="Print only the text of each answer, one a line.")
@takes(PredictOptions)
def predict_command(options):
    """Answer texts, one JSON object a line: the input and the answer.

    \b
      keras-lm predict film-critic "never a dull moment"
      keras-lm predict exported --input reviews.csv --output answers.jsonl
      keras-lm predict film-critic reviews.parquet --output answers.parquet
      cat texts.txt | keras-lm predict model.tflite | head
      keras-lm predict --server http://localhost:8501 --model film-critic "a text"
      keras-lm predict bert-base --task feature-extractor --input texts.txt --output vectors.npz
      keras-lm predict opus-mt-en-de "The house is small." --num-beams 4 --lines
      keras-lm predict gpt2 "Once upon a time" --max-new-tokens 30 --temperature 0.8 --seed 1

    \b
    MODEL is
      a preset, or any checkpoint with a head for a task;
      an exported SavedModel, one version's folder or the folder of all;
      a .tflite file;
      and with --server there is none: --model names it.

    Texts are arguments, or come from --input, or else from standard input, one a line. They are
    read, answered and written batch by batch, so a file may be larger than the memory. A line of
    output is {"input": {…}, "answer": {…}}: "input" is the whole row, so an id stays with it. A
    table has the columns of the input as they are, and one for each part of the answers, of which
    "labels" is called label; if the input has a label, the answer is answer_label, and so on.

    --layers to --prompt are for the vectors of --task feature-extractor, for search, clustering or
    another program's classifier; of a folder of sentence-transformers, the vectors are its own,
    unless --layers or --pooling asks for others.

    \b
    numpy.load("vectors.npz") has "embedding", float32, rows in the order of the texts:
      (texts, D), or with --layers all and the like (texts, layers, D); and with --pooling none
      (tokens, D) or (tokens, layers, D), all texts' tokens below one another, special tokens
      too, beside "offsets": text i has the rows from offsets[i] up to offsets[i + 1].

    --num-beams to --prompt-lookup are for a CausalLM, which continues each text, and a Seq2SeqLM,
    which writes one for each; the names are those of generate in Python. An export searches as its
    preset says; a .tflite that writes takes --max-new-tokens, and with --temperature also --top-k,
    --top-p and --seed.

    \b
    With --runner, Apache Beam answers any number of files on any number of workers:
      keras-lm predict exported "reviews/*.csv.gz" --runner DirectRunner --processes 8 \\
          --output answers
      keras-lm predict /models/exported "gs://bucket/reviews/*.csv" --output gs://bucket/answers \\
          --runner DataflowRunner -- --project=mine --region=europe-west4

    OUTPUT is then a folder of files in the order of the rows; rows that have no answer are in files
    failed-…, with the reason. Started again after an interruption, the command goes on.
    """
    of_task = opt.given(options, ("task", *VECTORS, *WRITING))
    if of_task and (options.runner or options.server):
        (option, *_) = of_task
        raise click.UsageError(
            f"{flag_of(option)} is for a preset in this process: leave out "
            f"{'--runner' if options.runner else '--server'}."
        )
    if options.runner:
        _answer_files(options)
        return
    if options.processes > 1:
        raise click.UsageError("--processes is for --runner DirectRunner.")
    if options.server is None and options.model:
        raise click.UsageError("--model names a model of a server: --server URL is missing.")
    if options.server is None and not options.model_and_texts:
        raise click.UsageError("MODEL is missing, or --server URL with --model NAME.")
    if not options.server:
        check_artefact(options.model_and_texts[0])

    def load():
        if options.server:
            return ask_server(options)
        (model, *_), is_pair = options.model_and_texts, options.text_pair is not None
        if of_task:
            return load_predictor(
                model,
                is_pair,
                options.task,
                vectors=opt.given(options, VECTORS),
                writing=opt.given(options, WRITING),
            )
        with notes():
            return open_predictor(model, options.signature, options.version, is_pair)

    texts = options.model_and_texts if options.server else options.model_and_texts[1:]
    answer(load, texts, options, options.lines)


def answer(load, texts, options, lines=False):
    """Write the answers of the `Predictor` that `load` returns to texts or the rows of a file.

    `options` are `AnswerOptions`; with `lines`, answers are written as texts, one a line.
    """
    texts, input_file = table_or_texts(texts, options.input_file)
    refuse_same_file(input_file, options.output)
    with open_input(texts, input_file, options.format) as rows:
        writer = _writer(options.output, lines, rows)
        model = load()
        if options.output is not None and options.output.suffix == ".npz":
            model = model.of_vectors
        columns = choose_columns(rows, model.inputs, options.columns)
        # Of a file nobody waits for the first line, but vectors of many tokens are large.
        waits = input_file in (None, "-") or model.is_ragged
        number = options.batch_size * (1 if waits else BATCHES_SORTED)
        with writer(model.is_ragged) as write:
            windows = batches(rows, columns, number, options.skip_empty)
            for window, texts in with_progress(windows, rows, "Answering"):
                write(window, model.answers(texts, options.batch_size))
        say_left_out(rows)


def load_predictor(source, text_pair, task=None, vectors=None, writing=None):
    """Return a `Predictor` of a source's task, with options of a FeatureExtractor or a writer."""
    from keras_lm import presets, tasks

    vectors, writing = vectors or {}, writing or {}
    if Path(source).suffix == ".tflite" and not vectors and task is None:
        return open_litert(as_local(source), **writing)
    if vectors and task is None:
        task = "feature-extractor"
    source = presets.Source.open(source)
    cls = choose_task(source, task)
    if vectors and cls is not tasks.FeatureExtractor:
        raise click.UsageError("--layers, --pooling, --normalize and --prompt are for vectors.")
    if writing:
        _check_writing(source, cls, writing)
    loaded = load_task(source, cls, **vectors)
    if writing:
        return Writer(loaded, text_pair, **writing)
    return predictor_of(loaded, text_pair)


def _check_writing(source, cls, options):
    """Refuse options of writing for a source whose task, of a class or None, does not take them."""
    from keras_lm import tasks

    if cls is None or not issubclass(cls, (tasks.CausalLM, tasks.Seq2SeqLM)):
        raise click.ClickException(
            f"{source} holds {cls.__name__ if cls else 'no task'}, which does not write a text for "
            "a text: name a CausalLM or a Seq2SeqLM, or ask it without options of writing."
        )
    is_causal = issubclass(cls, tasks.CausalLM)
    for name in OF_TARGETS if is_causal else OF_PROMPTS:
        if name in options:
            raise click.UsageError(
                f"{flag_of(name)} is for a {'Seq2SeqLM' if is_causal else 'CausalLM'}, "
                f"and {source} holds a {cls.__name__}: leave it out."
            )


def ask_server(options):
    """Return the `ServerPredictor` that the options name."""
    from keras_lm.serving.client import Client
    from keras_lm.serving.keys import key_of_environment

    if not options.model:
        raise click.UsageError("--server needs --model NAME, what the server calls its model.")
    key = key_of_environment()
    client = Client(options.server, options.model, options.version, api_key=key)
    return ServerPredictor(client, options.signature)


def _answer_files(options):
    """Answer whole files by Apache Beam."""
    flags = beam_flags(options.runner, options.processes)
    for given, flag in ((options.input_file, "--input"), (options.server, "--server")):
        if given:
            raise click.UsageError(f"{flag} is not for --runner: give MODEL and FILES.")
    if len(options.model_and_texts) < 2:
        raise click.UsageError("--runner answers whole files: give MODEL and FILES.")
    if options.output is None:
        raise click.UsageError("--runner writes a folder: name it by --output.")
    if options.model:
        raise click.UsageError("--model names a model of a server.")
    model, *files = options.model_and_texts
    check_artefact(model)
    names = ("batch_size", "overwrite", "signature", "version", *names_of(opt.TextOptions))
    with beam("keras-lm predict --runner", options.runner):
        from keras_lm.pipelines import answer_files

        how = {name: getattr(options, name) for name in names}
        index = answer_files(model, files, options.output, flags=flags, **how)
    say_rows(
        [
            ("rows", f"{index['rows']:,}"),
            ("failed", f"{index['failed']:,}"),
            ("left out", f"{index['left_out']:,} empty rows" if index["left_out"] else None),
            ("answers", f"{options.output} ({len(index['shards'])} files)"),
        ]
    )


# === What is written ===


def _writer(output, lines, rows):
    """Return a function from whether vectors are ragged to a context of `write(rows, answers)`.

    `output` is a file, or None for standard output; what it cannot hold of `rows` is refused.
    """
    if output is not None and table_files.format_of(output):
        if lines:
            raise click.UsageError(f"--lines writes lines, and {output} is a table: leave one out.")
        check_installed("pyarrow", f"--output {output}")
        return lambda is_ragged: _table_file(output, rows)
    if output is not None and output.suffix == ".npz":
        return lambda is_ragged: _vector_file(output, is_ragged)
    problem = output and problem_of_lines(output, writes_tables=True)
    if problem:
        raise click.UsageError(f"--output {problem}")
    if lines:
        return lambda is_ragged: _text_lines(output)
    if isinstance(rows, TableRows):
        table_files.refuse_binary(rows.name, rows.schema)
    return lambda is_ragged: _json_lines(output)


@contextlib.contextmanager
def _text_lines(output):
    with json_lines(output, _text_line) as write:
        yield lambda rows, answers: write(answers)


@contextlib.contextmanager
def _json_lines(output):
    with json_lines(output) as write:

        def write_rows(rows, answers):
            rows = rows if isinstance(rows, list) else table_files.row_dicts(rows)
            write({"input": row, "answer": plain(answer)} for row, answer in zip(rows, answers))

        yield write_rows


@contextlib.contextmanager
def _table_file(output, rows):
    """Yield `write(rows, answers)`, which writes a table by groups of rows."""
    schema = rows.schema if isinstance(rows, TableRows) else None
    with (
        replacing(output) as temporary,
        table_files.TableWriter(temporary, rows.name, schema) as writer,
    ):
        yield writer.write


def _text_line(answer):
    text = answer.get("text")
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if not isinstance(text, str):
        raise click.UsageError("--lines is for answers that are one text each.")
    return " ".join(text.splitlines()).encode("utf-8", "replace") + b"\n"


@contextlib.contextmanager
def _vector_file(path, is_ragged):
    """Yield `write(rows, answers)`, which writes vectors as they come: they need no memory."""
    import numpy as np

    lengths, row_shape = [0], (0,)
    with replacing(path) as temporary, open(temporary.with_suffix(".raw"), "w+b") as raw:

        def write(rows, answers):
            nonlocal row_shape
            for answer in answers:
                if "embedding" not in answer:
                    raise click.UsageError(
                        "--output .npz is for --task feature-extractor and encoders."
                    )
                vectors = answer["embedding"]
                vectors = np.asarray(vectors if is_ragged else vectors[np.newaxis], "float32")
                lengths.append(len(vectors))
                row_shape = vectors.shape[1:]
                raw.write(vectors.tobytes())

        yield write
        raw.flush()
        shape = (sum(lengths), *row_shape)
        is_empty = 0 in shape  # of which there is no memmap
        embedding = (
            np.zeros(shape, "float32") if is_empty else np.memmap(raw, "float32", "r", shape=shape)
        )
        offsets = {"offsets": np.cumsum(lengths)} if is_ragged else {}
        with open(temporary, "wb") as file:
            np.savez(file, embedding=embedding, **offsets)


# === Commands of earlier versions ===


def _note_removal(name, form):
    click.echo(f"Note: keras-lm {name} will be removed: use keras-lm predict {form}.", err=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeaturesOptions(AnswerOptions, VectorOptions):
    """What `keras-lm features` runs with."""

    source: str
    texts: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions(AnswerOptions, WritingOptions):
    """What `keras-lm translate` runs with."""

    preset: str
    texts: tuple[str, ...]
    as_json: bool


@click.command("features", cls=Command, short_help="Now predict --task feature-extractor.")
@click.argument("source", type=Source())
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@opt.input_file
@opt.format
@opt.text
@opt.option(
    "--output",
    type=OutputFile(allow_dash=True),
    required=True,
    help="A .npz or .jsonl file; - for JSONL on standard output.",
)
@vector_options
@opt.batch_size
@opt.overwrite
@takes(FeaturesOptions)
def features_command(options):
    """Turn texts into vectors. It will be removed: keras-lm predict --task feature-extractor.

    \b
      keras-lm features bert-base --input texts.txt --output vectors.npz --normalize
    """
    _note_removal("features", "--task feature-extractor")
    output = options.output
    if output.suffix not in (".npz", ".jsonl") and str(output) != "-":
        raise click.UsageError(f"--output {output} is neither .npz nor .jsonl, nor - for JSONL.")

    def load():
        vectors, is_pair = opt.given(options, VECTORS), options.text_pair is not None
        return load_predictor(options.source, is_pair, "feature-extractor", vectors=vectors)

    to_standard_output = dataclasses.replace(options, output=None)
    answer(load, options.texts, to_standard_output if str(output) == "-" else options)


@click.command("translate", cls=Command, short_help="Now predict --lines.")
@click.argument("preset", type=Source())
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@opt.input_file
@opt.format
@opt.text
@writing_options
@opt.batch_size
@opt.option(
    "--output",
    type=OutputFile(),
    help="File to write; it appears when all is written.  [default: standard output]",
)
@opt.overwrite
@opt.option("--json", "as_json", is_flag=True, help="JSONL with the row that came in, as predict.")
@takes(TranslateOptions)
def translate_command(options):
    """Write a text for each text, one a line. It will be removed: keras-lm predict --lines.

    \b
      keras-lm translate opus-mt-en-de "The house is small." --num-beams 4
    """
    _note_removal("translate", "--lines")
    writing = opt.given(options, WRITING)
    if writing.get("num_return_sequences", 1) > 1 and not options.as_json:
        raise click.UsageError("--num-return-sequences writes several texts for one: add --json.")
    writing.setdefault("num_return_sequences", 1)  # it writes in any case

    def load():
        return load_predictor(options.preset, options.text_pair is not None, writing=writing)

    answer(load, options.texts, options, lines=not options.as_json)
