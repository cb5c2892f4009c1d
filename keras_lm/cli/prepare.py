"""`keras-lm prepare`: text files of any size → shards of tokens, for `keras-lm pretrain`."""

import dataclasses
import json
from pathlib import Path

import click
from click.core import ParameterSource

from keras_lm.cli import options as opt
from keras_lm.cli.command import BeamCommand, beam, beam_flags, takes
from keras_lm.cli.objective_options import (
    PAIRS,
    ObjectiveOptions,
    RowFormOptions,
    choose_objectives,
    document_options,
    objective_option,
)
from keras_lm.cli.options import Choice, Source, check_size, flag_of, names_of, say_rows
from keras_lm.utils.files import is_remote


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareOptions(ObjectiveOptions):
    """What `keras-lm prepare` runs with."""

    files: tuple[str, ...]
    folder: str
    source: str | None
    vocabulary: str | None
    size: str | None
    sequence_length: int
    duplicates: str
    num_shards: int | None
    seed: int
    runner: str
    processes: int
    overwrite: bool


@click.command("prepare", cls=BeamCommand, short_help="A corpus of any size → shards of tokens.")
@click.argument("files", nargs=-1, required=True)
@opt.option("--output", "folder", required=True, help="Folder for the shards.")
@opt.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=Source(),
    help="Preset or checkpoint to pretrain, with its tokenizer and its form of rows.",
)
@opt.option(
    "--vocabulary",
    metavar="SOURCE",
    type=Source(),
    help="Without --from: preset or checkpoint with the tokenizer.",
)
@opt.option("--size", help="Without --from: name of a size, for its form of rows.")
@opt.option("--sequence-length", type=click.IntRange(2), required=True, help="Tokens read at once.")
@objective_option
@document_options
@opt.option(
    "--duplicates",
    type=Choice(["keep", "exact", "near"]),
    default="near",
    help="Which duplicates to leave out: none, identical documents, or also nearly identical ones.",
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
    help="Beam's runner: also FlinkRunner, SparkRunner, DataflowRunner, … with options after --.",
)
@opt.processes
@opt.overwrite
@takes(PrepareOptions)
def prepare_command(options):
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
    flags = beam_flags(options.runner, options.processes)
    _check(options)
    # What a student learns from, its rows do not show.
    if "distillation" in options.objectives:
        options = dataclasses.replace(options, teacher="any")
    with beam("keras-lm prepare", options.runner):
        from keras_lm.pipelines import prepare_shards
        from keras_lm.tokenizers import Tokenizer

        backbone_class, source = _backbone_class(options)
        tokenizer = Tokenizer.from_preset(options.source or options.vocabulary)
        settings = {}
        options = choose_objectives(backbone_class, options, source)
        if "causal-lm" not in options.objectives:
            settings = {"short_share": options.short_share, "single_share": options.single_share}
            settings["form"] = options.form.replace("-", "_")
        index = prepare_shards(
            options.files,
            tokenizer,
            options.sequence_length,
            options.folder,
            template=backbone_class.TEMPLATE.for_tokenizer(tokenizer) if settings else None,
            document=options.document,
            sentences="rule" if options.split_sentences else "lines",
            flags=flags,
            duplicates=options.duplicates,
            num_shards=options.num_shards,
            seed=options.seed,
            overwrite=options.overwrite,
            **settings,
        )
    number = sum(shard["windows"] for shard in index["shards"])
    documents = index["prepared"]["documents"]
    say_rows(
        [
            *((name, f"{count:,}") for name, count in documents.items()),
            ("for", ", ".join(options.objectives)),
            ("rows" if settings else "windows", f"{number:,} of {options.sequence_length} tokens"),
            ("shards", f"{options.folder} ({len(index['shards'])} files)"),
        ]
    )


def _check(options):
    if bool(options.source) == bool(options.vocabulary or options.size):
        raise click.UsageError(
            "Say what to prepare for: --from SOURCE, or --vocabulary SOURCE and --size NAME."
        )
    if not options.source and not (options.vocabulary and options.size):
        raise click.UsageError("--vocabulary SOURCE and --size NAME go together.")
    check_size(options.size)


def _backbone_class(options):
    """Return the class of the network, and the source that states its arguments, or None."""
    from keras_lm import presets
    from keras_lm.utils import registry

    if options.size:
        return registry.sizes()[options.size], None
    source = presets.Source.open(options.source)
    return source.recognise()[0], source


# === A folder of shards in the place of text files ===

INDEX = "tokens.json"  # as `keras_lm.data.shards` calls it, without its TensorFlow


def find_shards(paths):
    """Return the folder if `paths` names one with shards, else None."""
    remote = [path for path in paths if is_remote(path) and not _is_of_files(path)]
    folders = [path for path in paths if Path(path).expanduser().is_dir()]
    if not remote and not folders:
        return None
    if len(paths) > 1:
        raise click.UsageError(
            f"{(remote + folders)[0]} is a folder: give one folder of shards, or text files."
        )
    if folders and not (Path(paths[0]).expanduser() / INDEX).is_file():
        raise click.UsageError(
            f"{paths[0]} is a folder without {INDEX}: name text files in it, or write it with "
            "keras-lm prepare, to the end."
        )
    return paths[0] if remote else Path(paths[0]).expanduser()


def _is_of_files(path):
    """Whether an address is that of files of text, or a pattern, and not a folder's."""
    return "*" in path or "." in path.rpartition("/")[2]


def files_of(corpus):
    """Return the files that identify a corpus: of shards, the index with their hashes."""
    return corpus if isinstance(corpus, list) else [f"{corpus}/{INDEX}"]


def take_over(folder, options):
    """Return the options with what says how rows are made as it was for a folder of shards."""
    index = read(folder)
    context = click.get_current_context()
    for name in names_of(RowFormOptions):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{flag_of(name)} is for text files, and {folder} holds tokens: leave it out, or "
                "run keras-lm prepare again with it."
            )
    if options.sequence_length not in (None, index["sequence_length"]):
        raise click.UsageError(
            f"--sequence-length {options.sequence_length} differs from that of {folder}, "
            f"{index['sequence_length']}: leave it out, or run keras-lm prepare again with it."
        )
    settings = index.get("settings", {})
    form = settings.get("form", "").replace("_", "-") or None
    prepared = index.get("prepared", {"document": "block" if form in PAIRS else "line"})
    return dataclasses.replace(
        options,
        sequence_length=index["sequence_length"],
        form=form,
        document=prepared["document"],
        split_sentences=prepared.get("sentences") == "rule",
        short_share=settings.get("short_share", 0.0),
        single_share=settings.get("single_share", 0.0),
    )


def check_shards(folder, task):
    """Raise an error if a task would read other rows than a folder has."""
    index = read(folder)
    length = task.packing["sequence_length"]
    template = None if task.backbone.is_causal else dataclasses.asdict(task.packer.template)
    if template != index.get("template"):
        raise click.UsageError(
            f"{folder} holds {'rows' if 'template' in index else 'windows'} for another model "
            f"than {type(task.backbone).__name__}: run keras-lm prepare for this one."
        )
    if length != index["sequence_length"]:
        raise click.UsageError(
            f"{folder} has rows of {index['sequence_length']} tokens, and the model reads "
            f"{length}: run keras-lm prepare with --sequence-length {length}."
        )


def read(folder):
    """Return the index of a folder."""
    if isinstance(folder, Path):  # in full it is checked when it is read
        try:
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            if type(index["sequence_length"]) is int:
                return index
        except (KeyError, RecursionError, TypeError, ValueError):
            pass
        raise click.UsageError(f"{folder / INDEX} is damaged: copy the folder again, whole.")
    from keras_lm import data

    return data.read_token_index(folder)
