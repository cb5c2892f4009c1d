"""`keras-lm predict`: texts → answers, by a task, an export or a server."""

import click

from keras_lm.cli.beam_options import PerhapsBeamCommand, beam, beam_flags, processes_option
from keras_lm.cli.predictors import ServedModel, answers_by_row, open_model
from keras_lm.cli.row_files import batches, choose_columns, open_input
from keras_lm.cli.shared_options import (
    OutputFile,
    batch_size_option,
    check_artefact,
    format_option,
    input_option,
    overwrite_option,
    text_options,
)
from keras_lm.cli.terminal import json_lines, say_rows

BATCHES_SORTED = 50  # of a file, which are read and answered together


class FileOrFolder(OutputFile):
    """An `OutputFile`, or with `--runner` the folder of many, which may be on any filesystem."""

    def convert(self, value, param, ctx):
        """Return the `Path` of a file if it can be written, or the folder as it was given."""
        runner = ctx.params.get("runner")  # click's own sign for nothing is no string
        return value if isinstance(runner, str) else super().convert(value, param, ctx)


@click.command(
    "predict",
    cls=PerhapsBeamCommand,
    short_help="Texts → answers, by a preset, an export or a server.",
)
@click.argument("model_and_texts", nargs=-1, metavar="MODEL [TEXT]...")
@input_option
@format_option
@text_options
@click.option(
    "--runner",
    is_eager=True,
    help="Answer whole files by Apache Beam: DirectRunner, FlinkRunner, … What follows MODEL are "
    "then files or patterns, and Beam's own options may follow after --.",
)
@processes_option
@click.option(
    "--output",
    type=FileOrFolder(),
    help="JSONL file to write; it appears when all is answered. With --runner, the folder.  "
    "[default: standard output]",
)
@overwrite_option
@batch_size_option
@click.option("--server", metavar="URL", help="Ask a server: http://HOST:PORT or grpc://HOST:PORT.")
@click.option("--model", metavar="NAME", help="What the server calls its model.")
@click.option("--signature", help="Of an export or a server.  [default: serving_default]")
@click.option(
    "--version", type=click.IntRange(0), help="Of an export or a server.  [default: the latest]"
)
def predict_command(
    model_and_texts, input_file, format, output, batch_size, overwrite, runner, processes, **options
):
    """Answer for texts, one JSON object a line: what came in and the answer.

    \b
      keras-lm predict film-critic "never a dull moment"
      keras-lm predict exported --input reviews.csv --output answers.jsonl
      cat texts.txt | keras-lm predict model.tflite | head
      keras-lm predict --server http://localhost:8501 --model film-critic "a text"

    \b
    MODEL is
      a preset, or any checkpoint with a classification head;
      an exported SavedModel, one version's folder or the folder of all;
      a .tflite file;
      and with --server there is none: --model names it.

    Texts are arguments, or come from --input, or else from standard input, one a line. They are
    read, answered and written batch by batch, so a file may be larger than the memory. A line of
    output is {"input": {…}, "answer": {…}}: "input" is the whole row, so an id stays with it.

    \b
    With --runner, Apache Beam answers any number of files on any number of workers:
      keras-lm predict exported "reviews/*.csv.gz" --runner DirectRunner --processes 8 \\
          --output answers
      keras-lm predict /models/exported "gs://bucket/reviews/*.csv" --output gs://bucket/answers \\
          --runner DataflowRunner -- --project=mine --region=europe-west4

    OUTPUT is then a folder of files in the order of the rows; rows that have no answer are in files
    failed-…, with the reason. Started again after an interruption, the command goes on.
    """
    if runner:
        _answer_files(
            model_and_texts,
            input_file,
            output,
            runner,
            beam_flags(runner, processes),
            {"format": format, "batch_size": batch_size, "overwrite": overwrite, **options},
        )
        return
    if processes > 1:
        raise click.UsageError("--processes is for --runner DirectRunner.")
    if options["server"] is None and options["model"]:
        raise click.UsageError("--model names a model of a server: --server URL is missing.")
    if options["server"] is None and not model_and_texts:
        raise click.UsageError("MODEL is missing, or --server URL with --model NAME.")
    if not options["server"]:
        check_artefact(model_and_texts[0])
    texts = model_and_texts if options["server"] else model_and_texts[1:]
    with open_input(texts, input_file, format) as rows, json_lines(output) as write:
        model = (
            ask_server(options) if options["server"] else open_model(model_and_texts[0], options)
        )
        columns = choose_columns(rows, model.inputs, options)
        # Of a file nobody waits for the first line.
        together = 1 if input_file in (None, "-") else BATCHES_SORTED
        for window, texts in batches(rows, columns, together * batch_size, "Answering"):
            answers = answers_by_row(model, texts, batch_size)
            write({"input": row, "answer": answers[n]} for n, row in enumerate(window))


def _answer_files(model_and_files, input_file, output, runner, flags, options):
    """Answer for files by Beam."""
    for given, flag in ((input_file, "--input"), (options["server"], "--server")):
        if given:
            raise click.UsageError(f"{flag} is not for --runner: give MODEL and FILES.")
    if len(model_and_files) < 2:
        raise click.UsageError("--runner answers whole files: give MODEL and FILES.")
    if output is None:
        raise click.UsageError("--runner writes a folder: name it by --output.")
    if options.pop("model") or options.pop("server"):
        raise click.UsageError("--model names a model of a server.")
    model, *files = model_and_files
    check_artefact(model)
    with beam("keras-lm predict --runner", runner):
        from keras_lm.pipelines import answer_files

        index = answer_files(model, files, output, flags=flags, **options)
    say_rows(
        [
            ("rows", f"{index['rows']:,}"),
            ("failed", f"{index['failed']:,}"),
            ("answers", f"{output} ({len(index['shards'])} files)"),
        ]
    )


def ask_server(options):
    """Return the `ServedModel` that the options name."""
    from keras_lm.serving.client import Client

    if not options["model"]:
        raise click.UsageError("--server needs --model NAME, what the server calls its model.")
    client = Client(options["server"], model=options["model"], version=options["version"])
    return ServedModel(client, options["signature"] or "serving_default")
