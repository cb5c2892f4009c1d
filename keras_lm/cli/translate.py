"""`keras-lm translate`: texts → the texts that a `Seq2SeqLM` writes for them."""

import click

from keras_lm.cli.command import Command
from keras_lm.cli.finite import FloatRange
from keras_lm.cli.row_files import batches, choose_columns, open_input
from keras_lm.cli.shared_options import (
    OutputFile,
    Source,
    batch_size_option,
    format_option,
    input_option,
    overwrite_option,
    search_options,
    text_options,
)
from keras_lm.cli.terminal import json_line, json_lines, plain

BATCHES_SORTED = 50  # of a file, which are read and answered together


@click.command(
    "translate", cls=Command, short_help="Texts → the texts that a seq2seq LM writes for them."
)
@click.argument("preset", type=Source())
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@input_option
@format_option
@text_options
@search_options
@click.option(
    "--max-new-tokens",
    type=click.IntRange(1),
    help="The longest text.  [default: the target length of PRESET]",
)
@click.option("--temperature", type=FloatRange(0, min_open=True), help="Draw tokens at random.")
@click.option(
    "--top-k", type=click.IntRange(1), help="Of the likeliest so many; with --temperature."
)
@click.option(
    "--top-p",
    type=FloatRange(0, 1, min_open=True),
    help="Of the likeliest that have this probability together; with --temperature.",
)
@click.option("--seed", type=click.IntRange(0), help="For the same draw again.")
@click.option(
    "--repetition-penalty",
    type=FloatRange(0, min_open=True),
    default=1.0,
    help="Above 1, tokens that have occurred are less likely.",
)
@click.option(
    "--no-repeat-ngram-size",
    type=click.IntRange(0),
    default=0,
    help="Write no sequence of so many tokens twice, such as 3 for summaries.",
)
@click.option("--prefix", help="What every text begins with.")
@click.option(
    "--forbidden",
    multiple=True,
    metavar="TEXT",
    help="What no text has; several times for several.",
)
@click.option(
    "--num-return-sequences",
    type=click.IntRange(1),
    default=1,
    help="So many texts for each, the best first; with --json.",
)
@batch_size_option
@click.option(
    "--output",
    type=OutputFile(),
    help="File to write; it appears when all is written.  [default: standard output]",
)
@overwrite_option
@click.option(
    "--json", "as_json", is_flag=True, help="JSONL with the row that came in, as predict."
)
def translate_command(
    preset, texts, input_file, format, output, batch_size, overwrite, as_json, **options
):
    """Translate, summarise, answer: write a text for each text, one a line.

    \b
      keras-lm translate opus-mt-en-de "The house is small." --num-beams 4
      keras-lm translate opus-mt-en-de --input test.en --format lines --output test.de
      keras-lm translate summariser --input articles.jsonl --text article --json

    PRESET is a preset that holds a Seq2SeqLM, or a published checkpoint of one. Texts are
    arguments, or come from --input, or else from standard input, one a line. They are read and
    written batch by batch, so a file may be larger than the memory. A line's end in what is written
    becomes a space, so that lines stay beside each other.

    For exports and servers, there is keras-lm predict; an export searches as its preset says.
    """
    columns = {name: options.pop(name) for name in ("text", "text_pair")}
    number = options["num_return_sequences"]
    if number > 1 and not as_json:
        raise click.UsageError("--num-return-sequences writes several texts for one: add --json.")
    line = json_line if as_json else _text_line
    with open_input(texts, input_file, format) as rows, json_lines(output, line) as write:
        from keras_lm.cli.predictors import TaskModel  # imports TensorFlow
        from keras_lm.cli.sources import load_task, open_source, stated_task
        from keras_lm.tasks import Seq2SeqLM

        stated = stated_task(open_source(preset))
        if stated is not Seq2SeqLM:
            raise click.ClickException(
                f"{preset} holds {stated.__name__ if stated else 'no task'}, which does not write "
                "a text for a text: name a Seq2SeqLM, or ask it with keras-lm predict."
            )
        task = load_task(preset)
        model = TaskModel(task, text_pair=columns["text_pair"] is not None)
        found = choose_columns(rows, model.inputs, columns)
        beams = options["num_beams"] or (1 if options["temperature"] else task.num_beams)
        has_scores = as_json and beams > 1
        # Of a file nobody waits for the first line.
        together = 1 if input_file in (None, "-") else BATCHES_SORTED
        for window, batch in batches(rows, found, together * batch_size, "Translating"):
            written = task.generate(
                batch, batch_size=batch_size, return_scores=has_scores, verbose=0, **options
            )
            if as_json:
                answered = zip(*written) if has_scores else ((text,) for text in written)
                answers = (dict(zip(("text", "scores"), map(plain, row))) for row in answered)
                written = ({"input": row, "answer": answer} for row, answer in zip(window, answers))
            write(written)


def _text_line(text):
    return " ".join(text.splitlines()).encode("utf-8", "replace") + b"\n"
