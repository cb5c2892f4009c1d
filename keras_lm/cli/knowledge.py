"""`keras-lm knowledge`: a dump of ConceptNet → a graph of concepts on disk."""

from pathlib import Path

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command
from keras_lm.cli.options import megabytes, say_rows
from keras_lm.knowledge import ConceptStore, TransE, read_conceptnet
from keras_lm.knowledge.concept_store import DESCRIPTION
from keras_lm.utils.files import on_disk, require_free


@click.command(
    "knowledge", cls=Command, short_help="A dump of ConceptNet → a graph of concepts on disk."
)
@click.argument("dump")
@opt.option("--output", required=True, help="The folder to write.")
@opt.option(
    "--epochs",
    type=click.IntRange(0),
    default=0,
    help="Epochs of TransE over the graph's edges, whose vectors prune paths; 0 for no vectors.",
)
@opt.option("--dim", type=opt.POSITIVE, default=100, help="Width of TransE's vectors.")
@opt.overwrite
def knowledge_command(dump, output, epochs, dim, overwrite):
    """Build the graph that tasks.GraphChoice looks concepts and paths up in.

    \b
      keras-lm knowledge conceptnet-assertions-5.7.0.csv.gz --output conceptnet
      keras-lm knowledge conceptnet-assertions-5.7.0.csv.gz --output conceptnet --epochs 10

    DUMP is ConceptNet's, plain or .gz; without it, the message has the command that gets it. Its
    English edges are kept, with 17 relations. With --epochs, the vectors of TransE are written to
    OUTPUT-trans-e. From Python: keras_lm.knowledge.SchemaGraphs("conceptnet", "conceptnet-trans-e")
    """
    vectors = Path(f"{output.rstrip('/')}-trans-e")
    for folder in [on_disk(output), *([vectors] if epochs else [])]:
        reason = "is not replaced: pass --overwrite" if folder.is_dir() else "is a file"
        if not overwrite:
            require_free(folder, reason)
        elif folder.is_dir() and any(folder.iterdir()) and folder != vectors:
            require_free(folder, "is not a graph of concepts", marker=DESCRIPTION)
    store = ConceptStore.build(read_conceptnet(dump), output)
    rows = [
        ("graph", f"{output} ({megabytes(output)})"),
        ("concepts", f"{store.num_concepts - 1:,}"),
        ("edges", f"{store.num_edges // 2:,}"),
    ]
    if epochs:
        trans_e = TransE(store.num_concepts, len(store.relations) + 1, dim)
        trans_e.fit(store.triples(), epochs, report=_say_epoch)
        trans_e.save(vectors)
        rows.append(("vectors", f"{vectors} ({megabytes(vectors)})"))
    say_rows(rows)


def _say_epoch(epoch, loss):
    click.echo(f"TransE, epoch {epoch}: loss {loss:.4f}", err=True)
