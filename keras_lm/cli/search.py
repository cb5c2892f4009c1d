"""`keras-lm search`: questions → the nearest texts of a file, by an encoder's vectors."""

import dataclasses
from pathlib import Path

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command, takes
from keras_lm.cli.options import (
    ExportPath,
    InputPath,
    LinesFile,
    PresetFolder,
    Source,
    flag_of,
    json_lines,
    load_task,
    megabytes,
    notes,
    open_input,
    say_left_out,
    say_rows,
)
from keras_lm.datasets.row_files import batches, choose_columns, open_rows
from keras_lm.search import DOCUMENTS, GRAPH, MOST_DOCUMENTS, ApproximateIndex, Index
from keras_lm.utils.files import as_path

READ_AT_ONCE = 1000  # rows
STATED = ("document", "text", "sentence")  # columns of documents, the first that there is


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions(opt.TextOptions):
    """What `keras-lm search` runs with."""

    encoder: str
    documents: str
    queries: tuple[str, ...]
    input_file: str | None
    output: Path | None
    k: int
    index: Path | None
    export_path: Path | None
    batch_size: int
    overwrite: bool


@click.command("search", cls=Command, short_help="Questions → the nearest texts of a file.")
@click.argument("encoder", type=Source())
@click.argument("documents", type=InputPath())
@click.argument("queries", nargs=-1)
@opt.input_file
@opt.format
@opt.text
@opt.skip_empty
@opt.option("--k", type=click.IntRange(1), default=3, help="How many documents a query gets.")
@opt.option(
    "--output",
    type=LinesFile(),
    help="JSONL file to write.  [default: a table on standard output]",
)
@opt.option(
    "--index",
    type=PresetFolder("saved index", DOCUMENTS),
    help="Folder to write the documents and their vectors to, which the next search names as "
    "DOCUMENTS.",
)
@opt.option(
    "--export",
    "export_path",
    type=ExportPath(),
    help="Write an artefact that searches these documents: a folder of versions, or a .tflite, "
    "which takes bytes.",
)
@opt.batch_size
@opt.overwrite
@takes(SearchOptions)
def search_command(options):
    """Find the texts of a file that are nearest in meaning to a question.

    \b
      keras-lm search hf://OWNER/NAME answers.txt "When are you open?"
      keras-lm search encoder articles.csv --text title --input questions.txt --output hits.jsonl
      keras-lm search encoder answers.txt --index answers --export answers-search
      keras-lm search encoder answers "When are you open?" --k 5

    ENCODER is a preset of a sentence-encoder or a sparse-encoder, or any checkpoint. DOCUMENTS is a
    file of texts, one a line or in a column, or a folder that --index has written. Questions are
    arguments, or come from --input, one a line or in a column text, or else from standard input.

    Each question is compared with all documents, of more than 200,000 with those that an
    approximate index proposes, for which usearch has to be installed. A line of --output is
    {"text": "…", "rows": […], "documents": […], "scores": […]}: the numbers of documents from 0,
    and their cosines, or dot products of sparse vectors, the best first. The encoder's prompts,
    query and document, stand before texts if it has them.
    """
    writes_only = (options.index or options.export_path) and not options.queries
    asks = options.input_file is not None or not writes_only
    _check(options)
    folder = as_path(options.documents)
    documents = None if folder.is_dir() else _read_documents(options)
    is_approximate = documents is None and (folder / GRAPH).is_file()
    if documents is not None:
        is_approximate = len(documents) > MOST_DOCUMENTS
        _check_export(options, len(documents))

    from keras_lm import presets  # imports TensorFlow

    source = presets.Source.open(options.encoder)
    kind = _kind_of_encoder(source, options)
    cls = ApproximateIndex if is_approximate else Index

    def make_index():
        encoder = load_task(source, kind)
        if documents is None:
            return cls.load(options.documents, encoder)
        return cls(encoder, documents, batch_size=options.batch_size, verbose=0)

    if asks:
        with open_input(options.queries, options.input_file, None) as rows:
            index = make_index()
            _answer(index, rows, options)
    else:
        index = make_index()
    written = [("documents", f"{len(index.documents):,}")]
    if options.index:
        index.save(options.index)
        written.append(("index", f"{options.index} ({megabytes(options.index)})"))
    if options.export_path:
        is_lite = options.export_path.suffix == ".tflite"
        more = {"tokenizer": "bytes"} if is_lite else {}
        with notes():
            path = index.encoder.export(options.export_path, corpus=index, k=options.k, **more)
        written.append(("written", f"{path} ({megabytes(path)})"))
    if len(written) > 1:
        say_rows(written)


def _check(options):
    """Refuse options that a search does not read, and a folder that is no index."""
    if options.text_pair:
        raise click.UsageError("--text-pair is for pairs, and a search reads single texts.")
    folder = as_path(options.documents)
    if not folder.is_dir():
        return
    if not (folder / DOCUMENTS).is_file():
        raise click.UsageError(f"{folder} is a folder, and not one that --index has written.")
    for name in ("text", "format", "skip_empty"):
        if getattr(options, name):
            raise click.UsageError(f"{flag_of(name)} is about a file, and {folder} is an index.")


def _kind_of_encoder(source, options):
    """Return the class of the encoder that a source holds; any network makes a SentenceEncoder."""
    from keras_lm import tasks

    usual = source.usual_task
    if usual is tasks.MultiVectorEncoder:
        raise click.ClickException(
            f"{options.encoder} holds a MultiVectorEncoder, and a search compares one vector of "
            "each text: in Python, encoder.score(questions, documents) compares those of tokens."
        )
    if usual is tasks.SparseEncoder and options.export_path:
        raise click.ClickException(
            f"{options.encoder} holds a SparseEncoder, and --export is for a sentence-encoder: put "
            "the terms of encoder.expand into a search engine."
        )
    return usual if usual is tasks.SparseEncoder else tasks.SentenceEncoder


def _check_export(options, number):
    """Refuse, before documents have their vectors, an export that cannot search them."""
    if options.export_path and number > MOST_DOCUMENTS:
        raise click.UsageError(
            f"--export searches {MOST_DOCUMENTS:,} documents at most, and {options.documents} has "
            f"{number:,}: leave it out, or divide them."
        )
    if options.export_path and options.k > number:
        raise click.UsageError(f"--k {options.k} of {number} documents: give a lower number.")


def _read_documents(options):
    """Return the texts of a file."""
    with open_rows(options.documents, options.format) as rows:
        column = options.text or next((name for name in STATED if name in rows.columns), None)
        columns = choose_columns(rows, ["text"], {"text": column})
        read = batches(rows, columns, READ_AT_ONCE, options.skip_empty)
        documents = [text for _, texts in read for text in texts["text"]]
        say_left_out(rows)
    if not documents:
        raise rows.empty()
    return documents


def _answer(index, rows, options):
    """Write the nearest documents to questions, the rows of a file or of the command line."""
    columns = choose_columns(rows, ["text"], {"text": None})
    answers = _hits(index, rows, columns, options)
    if options.output is None:
        for hits in answers:
            _say_hits(hits)
    else:
        with json_lines(options.output) as write:
            write(answers)
    say_left_out(rows)


def _hits(index, rows, columns, options):
    """Yield a dict for each question: it, and the rows, texts and scores of documents."""
    for _, texts in batches(rows, columns, READ_AT_ONCE, options.skip_empty):
        nearest = index.search(texts["text"], options.k, options.batch_size)
        for query, *hits in zip(texts["text"], *nearest.values(), strict=True):
            named = zip(nearest, hits, strict=True)
            yield {"text": query} | {name: values.tolist() for name, values in named}


def _say_hits(hits):
    click.echo(hits["text"])
    for row, document, score in zip(hits["rows"], hits["documents"], hits["scores"], strict=True):
        click.echo(f"  {score:.4f}  {row:>6}  {document}")
