"""`keras-lm features`: texts → vectors."""

import click

from keras_lm.cli.command import Command
from keras_lm.cli.predictors import encoded
from keras_lm.cli.row_files import batches, choose_columns, open_input
from keras_lm.cli.shared_options import (
    OutputFile,
    Source,
    batch_size_option,
    format_option,
    input_option,
    overwrite_option,
    text_options,
)
from keras_lm.cli.terminal import json_lines, plain
from keras_lm.files import replacing


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


@click.command("features", cls=Command, short_help="Texts → vectors.")
@click.argument("source", type=Source())
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@input_option
@format_option
@text_options
@click.option(
    "--output",
    type=OutputFile(allow_dash=True),
    required=True,
    help="A .npz or .jsonl file; - for JSONL on standard output.",
)
@click.option(
    "--layers",
    type=Layers(),
    help="embedding, first, second_to_last, last, sum_all, sum_last_four, concat_last_four, "
    "concat_embedding_last, scalar_mix, all, the number of a hidden state (0 is the embedding, -1 "
    "the last), or several numbers, such as 0,-1. all and several numbers give a vector for each.  "
    "[default: last]",
)
@click.option(
    "--pooling",
    type=click.Choice(["first", "last", "mean", "mean_sqrt_len", "weighted_mean", "max", "none"]),
    help="Over the tokens of a text; none gives a vector a token.  [default: what SOURCE states, "
    "else mean]",
)
@click.option(
    "--normalize/--no-normalize",
    default=None,
    help="Scale each vector to length 1.  [default: what SOURCE states, else not]",
)
@click.option(
    "--prompt",
    help="What is put before each text, such as 'query: '.  [default: what SOURCE states]",
)
@batch_size_option
@overwrite_option
def features_command(source, texts, input_file, format, output, batch_size, overwrite, **options):
    """Turn texts into vectors, for search, clustering or another program's classifier.

    \b
      keras-lm features bert-base --input texts.txt --output vectors.npz --normalize
      keras-lm features bert-base "a text" --output - --pooling none
      keras-lm features elmo --input texts.txt --output layers.npz --layers all

    SOURCE is a preset, a published checkpoint, or hf://OWNER/NAME; of a folder of
    sentence-transformers, the vectors are its own, unless --layers or --pooling asks for others.
    Texts are read as `predict` reads them.

    \b
    numpy.load("vectors.npz") has "embedding", float32, rows in the order of the texts:
      (texts, D), or with --layers all and the like (texts, layers, D); and with --pooling none
      (tokens, D) or (tokens, layers, D), all texts' tokens below one another, special tokens
      too, beside "offsets": text i has the rows from offsets[i] up to offsets[i + 1].
    A line of JSONL is {"input": {…}, "answer": {"embedding": […]}}, lists in the same order.
    """
    if output.suffix not in (".npz", ".jsonl") and str(output) != "-":
        raise click.UsageError(f"--output {output} is neither .npz nor .jsonl, nor - for JSONL.")
    with open_input(texts, input_file, format) as rows:
        task = load_extractor(source, options)
        is_pair = task.text_pair or (task.text_pair is None and options["text_pair"])
        names = task.text_names if is_pair else task.text_names[:1]
        columns = choose_columns(rows, names, options)
        embed = embedding(task, names)
        embedded = (
            (batch, embed(texts))
            for batch, texts in batches(rows, columns, batch_size, "Embedding")
        )
        if output.suffix == ".npz":
            write_npz(output, (vectors for _, vectors in embedded), task.pooling == "none")
            return
        with json_lines(None if str(output) == "-" else output) as write:
            for batch, vectors in embedded:
                write(
                    {"input": row, "answer": {"embedding": plain(vector)}}
                    for row, vector in zip(batch, vectors, strict=True)
                )


def load_extractor(source, options):
    """Return the `FeatureExtractor`, as the options change what SOURCE states."""
    from keras_lm.cli.sources import load_task
    from keras_lm.tasks import FeatureExtractor

    arguments = {key: options[key] for key in ("layers", "pooling", "normalize", "prompt")}
    arguments = {key: value for key, value in arguments.items() if value is not None}
    return load_task(source, FeatureExtractor, **arguments)


def embedding(task, names):
    """Return a function from a dict of lists of strings to an array for each text.

    That is (D,), or with pooling `"none"` (tokens, D), without padding; several layers stand on an
    axis before the last.
    """
    import tensorflow as tf

    @tf.function(
        input_signature=[{name: tf.TensorSpec([None], tf.string, name) for name in names}],
        autograph=False,
    )
    def run(columns):
        packed = task.preprocess(columns)
        return task(packed, training=False), packed["padding_mask"]

    def embed(columns):
        tensors = {name: tf.constant(encoded(column)) for name, column in columns.items()}
        vectors, mask = (value.numpy() for value in run(tensors))
        if task.pooling == "none":
            return [row[is_token] for row, is_token in zip(vectors, mask.astype(bool))]
        return vectors

    return embed


def write_npz(path, batches, is_ragged):
    """Write batches of vectors as they come, so that a large file need not fit into memory.

    A batch has an array for each text, of any shape, or (tokens, …) if `is_ragged`.
    """
    import numpy as np

    lengths, row_shape = [0], (0,)
    with replacing(path) as temporary, open(temporary.with_suffix(".raw"), "w+b") as raw:
        for batch in batches:
            for vectors in batch:
                rows = np.asarray(vectors if is_ragged else vectors[np.newaxis], "float32")
                lengths.append(len(rows))
                row_shape = rows.shape[1:]
                raw.write(rows.tobytes())
        raw.flush()
        shape = (sum(lengths), *row_shape)
        is_empty = 0 in shape  # of which there is no memmap
        embedding = (
            np.zeros(shape, "float32") if is_empty else np.memmap(raw, "float32", "r", shape=shape)
        )
        offsets = {"offsets": np.cumsum(lengths)} if is_ragged else {}
        with open(temporary, "wb") as file:
            np.savez(file, embedding=embedding, **offsets)
