"""`keras-lm predict`: texts → answers, by a task, an export or a server."""

from pathlib import Path

import click

from keras_lm.cli.predictors import LiteRTModel, SavedModel, ServedModel, TaskModel
from keras_lm.cli.row_files import batches, choose_columns, open_input
from keras_lm.cli.saved_models import find_version
from keras_lm.cli.shared_options import (
    OutputFile,
    batch_size_option,
    check_artefact,
    format_option,
    input_option,
    overwrite_option,
    text_options,
)
from keras_lm.cli.terminal import json_lines, plain

BATCHES_SORTED = 50  # of a file, which are read and answered together


@click.command("predict", short_help="Texts → answers, by a preset, an export or a server.")
@click.argument("model_and_texts", nargs=-1, metavar="MODEL [TEXT]...")
@input_option
@format_option
@text_options
@click.option(
    "--output",
    type=OutputFile(),
    help="JSONL file to write; it appears when all is answered.  [default: standard output]",
)
@overwrite_option
@batch_size_option
@click.option("--server", metavar="URL", help="Ask a server: http://HOST:PORT or grpc://HOST:PORT.")
@click.option("--model", metavar="NAME", help="What the server calls its model.")
@click.option("--signature", help="Of an export or a server.  [default: serving_default]")
@click.option(
    "--version", type=click.IntRange(0), help="Of an export or a server.  [default: the latest]"
)
def predict_command(model_and_texts, input_file, format, output, batch_size, overwrite, **options):
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
    """
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


def answers_by_row(model, texts, batch_size):
    """Return the answer to each row of texts by its place; rows of like lengths run together."""
    found = {}
    for places, batch in by_length(texts, batch_size):
        answer = model.answer(batch)
        for row, place in enumerate(places):
            found[place] = {name: plain(answer[name][row]) for name in sorted(answer)}
    return found


def by_length(texts, batch_size):
    """Yield `(places, texts)` of batches, the longest texts first."""
    # By characters: an export or a server may have the only tokenizer.
    sizes = [sum(map(len, row)) for row in zip(*texts.values(), strict=True)]
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        yield places, {name: [column[n] for n in places] for name, column in texts.items()}


def ask_server(options):
    """Return the `ServedModel` that the options name."""
    from keras_lm.serving.client import Client

    if not options["model"]:
        raise click.UsageError("--server needs --model NAME, what the server calls its model.")
    client = Client(options["server"], model=options["model"], version=options["version"])
    return ServedModel(client, options["signature"] or "serving_default")


def open_model(model, options):
    """Return what answers for MODEL, told by what lies there."""
    signature = options["signature"] or "serving_default"
    path = Path(model).expanduser()
    folder = find_version(path, options["version"])
    if folder is not None:
        return SavedModel(folder, signature)
    if options["version"] is not None:
        raise click.UsageError(f"{model} has no versions: leave --version out.")
    if path.suffix == ".tflite":
        return LiteRTModel(path, signature)
    if options["signature"]:
        raise click.UsageError(f"{model} is not exported, so --signature means nothing to it.")

    from keras_lm.cli.sources import load_task

    return TaskModel(load_task(model), text_pair=options["text_pair"] is not None)
