"""`keras-lm prepare`: text files of any size → shards of tokens, for `keras-lm pretrain`."""

import click

from keras_lm.cli import shared_options as opt
from keras_lm.cli.beam_options import BeamCommand, beam, beam_flags, processes_option
from keras_lm.cli.objective_options import GENERATOR, OBJECTIVES
from keras_lm.cli.pretrain_options import document_options, objective_option
from keras_lm.cli.terminal import say_rows
from keras_lm.cli.types import Choice, Source, check_size


@click.command("prepare", cls=BeamCommand, short_help="A corpus of any size → shards of tokens.")
@click.argument("files", nargs=-1, required=True)
@opt.option("--output", "folder", required=True, help="Folder for the shards.")
@opt.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=Source(),
    help="Preset or checkpoint to pretrain: its tokenizer and its form of rows.",
)
@opt.option(
    "--vocabulary",
    metavar="SOURCE",
    type=Source(),
    help="Without --from: preset or checkpoint whose tokenizer to take.",
)
@opt.option("--size", help="Without --from: name of a size, whose form of rows to take.")
@opt.option("--sequence-length", type=click.IntRange(2), required=True, help="Tokens read at once.")
@objective_option
@document_options
@opt.option(
    "--duplicates",
    type=Choice(["keep", "exact", "near"]),
    default="near",
    help="What to leave out: documents equal to another, also those that are nearly the same.",
)
@opt.option(
    "--shards",
    "num_shards",
    type=click.IntRange(1),
    help="How many files to write.  [default: one for 64 MB of text files, 8 at least]",
)
@opt.option("--seed", type=click.IntRange(0), default=0)
@opt.option(
    "--runner",
    default="DirectRunner",
    help="Of Beam's: FlinkRunner, SparkRunner, DataflowRunner, … with their options after --.",
)
@processes_option
@opt.overwrite
def prepare_command(files, folder, runner, processes, **options):
    """Write a corpus as tokens, without duplicates and in random order, by Apache Beam.

    \b
      keras-lm prepare "corpus/**/*.txt.gz" --from bert-base --sequence-length 128 \\
          --document block --processes 8 --output shards
      keras-lm pretrain shards --from bert-base --output my-bert
      keras-lm prepare "gs://bucket/corpus/*" --vocabulary vocabulary --size gpt2_base_en \\
          --sequence-length 1024 --output gs://bucket/shards \\
          --runner DataflowRunner -- --project=mine --region=europe-west4

    FILES are paths or patterns of text in UTF-8, perhaps with .gz, on a disk or any filesystem of
    Beam's. The same files, options and number of shards give the same shards, byte for byte, on one
    process or many.

    The run can be interrupted at any time: the same command goes on, and keeps the shards that are
    finished. The DirectRunner has all documents in memory; other runners work on their disks.
    """
    flags = beam_flags(runner, processes)
    _check(options)
    with beam("keras-lm prepare", runner):
        from keras_lm.cli.pretrain_task import choose_objectives
        from keras_lm.pipelines import prepare_shards
        from keras_lm.tokenizers import Tokenizer

        backbone_class, source = _backbone_class(options)
        tokenizer = Tokenizer.from_preset(options["source"] or options["vocabulary"])
        settings = {}
        names = choose_objectives(backbone_class, options, source)
        if "causal-lm" not in names:
            settings = {name: options[name] for name in ("short_share", "single_share")}
            settings["form"] = options["form"].replace("-", "_")
        index = prepare_shards(
            files,
            tokenizer,
            options["sequence_length"],
            folder,
            template=backbone_class.TEMPLATE.for_tokenizer(tokenizer) if settings else None,
            document=options["document"],
            sentences="rule" if options["split_sentences"] else "lines",
            flags=flags,
            **{n: options[n] for n in ("duplicates", "num_shards", "seed", "overwrite")},
            **settings,
        )
    number = sum(shard["windows"] for shard in index["shards"])
    length = options["sequence_length"]
    documents = index["prepared"]["documents"]
    say_rows(
        [
            *((name, f"{count:,}") for name, count in documents.items()),
            ("for", ", ".join(names)),
            ("rows" if settings else "windows", f"{number:,} of {length} tokens"),
            ("shards", f"{folder} ({len(index['shards'])} files)"),
        ]
    )


def _check(options):
    if bool(options["source"]) == bool(options["vocabulary"] or options["size"]):
        raise click.UsageError(
            "Say what to prepare for: --from SOURCE, or --vocabulary SOURCE and --size NAME."
        )
    if not options["source"] and not (options["vocabulary"] and options["size"]):
        raise click.UsageError("--vocabulary SOURCE and --size NAME go together.")
    check_size(options["size"])
    # Options of objectives that only matter in training.
    arguments = (option for _, arguments in OBJECTIVES.values() for option in arguments.values())
    options |= dict.fromkeys([*arguments, *GENERATOR])
    # What a student learns from, it reads as any other.
    options["teacher"] = "distillation" in options["objectives"] or None


def _backbone_class(options):
    """Return the class of the network, and the source that states its arguments, or None."""
    from keras_lm import presets
    from keras_lm.utils import registry

    if options["size"]:
        return registry.sizes()[options["size"]], None
    source = presets.Source.open(options["source"])
    return source.recognise()[0], source
