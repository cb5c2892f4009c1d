"""Text files → documents without duplicates → shards of tokens, with Apache Beam.

A document's hash decides its shard, and its place in the shard. So equal documents are in the same
shard, the order is random, and neither depends on how the work is divided. Each shard is then
packed on its own, as in `keras_lm.data`.

The DirectRunner has all that passes from one step to the next in memory. So it is only given the
names of files in the unfinished folder, with documents and where they are, from which a shard is
packed.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam

from keras_lm import presets
from keras_lm.data import pretraining_rows, shards, split_sentences, token_windows
from keras_lm.packers.packer import Template
from keras_lm.pipelines import beam_files
from keras_lm.pipelines.corpus_parts import ReadDocuments, cut_into_parts
from keras_lm.pipelines.kept_files import (
    BUCKET,
    PLACE,
    RANGES,
    FindRepeats,
    GatherShard,
    RecordWriter,
    by_range,
    by_shard,
    new_path,
    read_documents,
    shard_of,
)
from keras_lm.pipelines.near_duplicates import buckets
from keras_lm.pipelines.running import input_error, is_direct, run
from keras_lm.tensorflow import forgotten_datasets
from keras_lm.tokenizers import Tokenizer
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import ITSELF, naming_a_full_disk, with_sum
from keras_lm.utils.user_arguments import checks_flags

DUPLICATES = ("keep", "exact", "near")
FEWEST_SHARDS = 8
SHARD_BYTES = 2**26  # of files


@checks_flags
def prepare_shards(
    files: PathLike | Iterable[PathLike],
    tokenizer: Tokenizer,
    sequence_length: int,
    folder: PathLike,
    template: Template | None = None,
    document: str = "line",
    sentences: str = "lines",
    duplicates: str = "near",
    num_shards: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    flags: Sequence[str] = (),
    **settings: Any,
) -> dict[str, Any]:
    """Prepare a corpus of any size for pretraining; return the index of `folder`, a dict.

    The same files, settings, seed and number of shards give the same shards, byte for byte, with
    one process or many. To continue an interrupted run, call it again: finished shards are kept. On
    a local disk they are in `FOLDER.unfinished` until the end.

    A worker has the documents of one shard in memory. With the DirectRunner, all else is meanwhile
    on the disk of `folder`, which has to have room for the texts and some hundred bytes of each; if
    it is not local, all texts are in memory.

    Args:
        files: paths or patterns, on this machine or any of Beam's filesystems, in UTF-8; `.gz`
            files are decompressed.
        tokenizer: `keras_lm.tokenizers.Tokenizer`.
        sequence_length: int, the number of tokens in a row, or to predict in a window.
        folder: path of the folder to write.
        template: `keras_lm.packers.Template` for rows of `keras_lm.data.pretraining_rows`; None for
            windows of `keras_lm.data.token_windows`.
        document: `"line"`, `"block"` or `"file"`, see `keras_lm.data.read_documents`.
        sentences: `"lines"`, or `"rule"` to split lines by `keras_lm.data.split_sentences`.
        duplicates: `"keep"` keeps all documents, `"exact"` one of several equal ones, `"near"` also
            one of several similar ones, see `keras_lm.pipelines.near_duplicates`.
        num_shards: int; by default one per 64 MB of files, and at least 8.
        seed: int, for the order of the documents and the random choices of rows.
        overwrite: bool. Whether to replace a folder of shards.
        flags: list of str, Beam's own options, such as `["--runner=FlinkRunner"]`.
        **settings: for rows, as in `pretraining_rows`: `form` and the shares.

    Raises:
        FileNotFoundError: if there is no such file.
        FileExistsError: if `folder` exists.
        ValueError: if an argument is out of range, a file cannot be read or is not UTF-8, or there
            is not a text.

    Example:

        keras_lm.pipelines.prepare_shards(
            "corpus/*.txt.gz", tokenizer, 128, "tokens", BertBackbone.TEMPLATE, document="block",
            form="segment_pairs", flags=["--direct_running_mode=multi_processing"],
        )
        rows = keras_lm.data.read_token_shards("tokens", tokenizer)
    """
    if duplicates not in DUPLICATES:
        raise ValueError(f"duplicates={duplicates!r}: use one of {DUPLICATES}.")
    if sentences not in ("lines", "rule"):
        raise ValueError(f"sentences={sentences!r}: use 'lines' or 'rule'.")
    if num_shards is not None and num_shards < 1:
        raise ValueError(f"num_shards={num_shards}: pass 1 or more.")
    inputs = beam_files.find_inputs(files)
    parts = cut_into_parts(inputs, document)
    size = sum(size for _, size in inputs)
    number = num_shards or max(FEWEST_SHARDS, -(-size // SHARD_BYTES))
    packing = Packing(tokenizer, template, sequence_length, sentences, seed, settings)
    with forgotten_datasets():
        rows = packing.rows([""], 0)  # raises if a setting is wrong
        index = (
            shards.window_index(sequence_length)
            if template is None
            else shards.row_index(rows, template, sequence_length, {**settings, "seed": seed})
        )
    index |= shards.about_vocabulary(tokenizer)
    index["prepared"] = {
        "document": document,
        "sentences": sentences,
        "duplicates": duplicates,
        "seed": seed,
        "files": len(inputs),
        "bytes": size,
    }
    growing = beam_files.GrowingFolder(folder, shards.INDEX, overwrite)
    names = [shards.shard_name(i, number) for i in range(number)]
    keeps = beam_files.is_local(growing.path) and is_direct(flags)
    kept = growing.path if keeps else None
    read = ReadHashed(document, seed, duplicates == "near", number, kept)
    pipeline = _Pipeline(parts, read, duplicates, packing, index, names, growing.path)
    try:
        with naming_a_full_disk(growing.path):
            run(pipeline.build, flags)
    except BaseException:
        growing.give_up()
        raise
    index = growing.finish([*names, shards.INDEX])
    return {name: value for name, value in index.items() if name != ITSELF}


class _Pipeline:
    """The steps from parts of files to the index of a folder."""

    def __init__(self, parts, read, duplicates, packing, index, names, folder):
        self.parts = parts
        self.read = read
        self.duplicates = duplicates
        self.packing = packing
        self.index = index
        self.names = names
        self.folder = folder

    def build(self, pipeline):
        """Apply all steps."""
        read = (
            pipeline
            | "Parts" >> beam.Create(self.parts)
            | "Share parts" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(self.read).with_outputs("buckets", main="texts")
        )
        gather = self._gather if self.read.folder is None else self._gather_kept
        write = WriteShard(
            self.packing, self.names, self.folder, self.index, self.duplicates != "keep"
        )
        _ = (
            gather(pipeline, read["texts"], read["buckets"])
            | "Write" >> beam.ParDo(write)
            | beam.combiners.ToList()
            | "Index" >> beam.Map(_write_index, self.index, self.folder)
        )

    def _gather(self, pipeline, texts, buckets):
        """Return the shards with what belongs to each."""
        number = len(self.names)
        inputs = {
            "texts": texts | "To shards" >> beam.Map(_to_shard, number),
            "all": pipeline | beam.Create([(i, None) for i in range(number)]),
        }
        if self.duplicates == "near":
            inputs["repeats"] = (
                buckets
                | "Meet" >> beam.GroupByKey()
                | "Repeats" >> beam.FlatMap(_repeats)
                | "Repeats to shards" >> beam.Map(_to_shard, number)
            )
        return inputs | "Gather" >> beam.CoGroupByKey()

    def _gather_kept(self, pipeline, texts, buckets):
        """Return the same, where `texts` and `buckets` are names of files."""
        number, repeats = len(self.names), ()
        if self.duplicates == "near":
            repeats = beam.pvalue.AsList(
                pipeline
                | "Ranges" >> beam.Create(range(RANGES))
                | "Share ranges" >> beam.Reshuffle()
                | "Repeats"
                >> beam.ParDo(FindRepeats(self.folder, number), beam.pvalue.AsList(buckets))
            )
        gather = GatherShard(self.folder, number)
        return (
            pipeline
            | "Shards" >> beam.Create(range(number))
            | "Share shards" >> beam.Reshuffle()
            | "Gather" >> beam.ParDo(gather, beam.pvalue.AsList(texts), repeats)
        )


class ReadHashed(ReadDocuments):
    """`Part` → `(hash, document)`, and as `buckets` those of near duplicates, `(bucket, hash)`.

    With a folder, both go to files in it: yielded are the names of a file of documents and of one
    of `PLACE` records, and as `buckets` the names of files of `BUCKET` records.
    """

    def __init__(self, document, seed, in_buckets, number, folder=None):
        super().__init__(document)
        self.number = number
        self.salt = seed.to_bytes(16, "little")
        self.in_buckets = in_buckets
        self.folder = folder

    def process(self, part):
        """Yield all of these for a part."""
        if self.folder is None:
            for digest, text in self._hashed(part):
                for bucket in buckets(text.decode()) if self.in_buckets else ():
                    yield beam.pvalue.TaggedOutput("buckets", (bucket, digest))
                yield digest, text
            return
        path = new_path(self.folder)
        places = RecordWriter(self.folder, PLACE, by_shard(self.number))
        in_buckets = RecordWriter(self.folder, BUCKET, by_range())
        with open(path, "wb") as file:
            for digest, text in self._hashed(part):
                if self.in_buckets:
                    in_buckets.add(b"".join(one + digest for one in buckets(text.decode())))
                start, size = (n.to_bytes(8, "little") for n in (file.tell(), len(text)))
                places.add(digest + start + size)
                file.write(text)
        places.flush()
        in_buckets.flush()
        for name in places.names:
            yield os.path.basename(path), name
        for name in in_buckets.names:
            yield beam.pvalue.TaggedOutput("buckets", name)

    def _hashed(self, part):
        for text in super().process(part):
            yield hashlib.blake2b(text, digest_size=16, salt=self.salt).digest(), text


def _to_shard(element, number):
    digest = element[0] if isinstance(element, tuple) else element
    return shard_of(digest, number), element


def _repeats(element):
    """Yield the documents of a bucket except the one with the smallest hash.

    A document with the smallest hash in all of its buckets is always kept.
    """
    _, digests = element
    smallest = min(digests)
    for digest in digests:
        if digest != smallest:
            yield digest


class Packing:
    """Packs the documents of a shard into windows or rows, in any process.

    The arguments are those of `prepare_shards`; the tokenizer is pickled as the files of a preset.
    """

    def __init__(self, tokenizer, template, sequence_length, sentences, seed, settings):
        self.template = template
        self.sequence_length = sequence_length
        self.sentences = sentences
        self.seed = seed
        self.settings = settings
        self._tokenizer = tokenizer
        with tempfile.TemporaryDirectory() as folder:
            presets.save(os.path.join(folder, "preset"), None, tokenizer=tokenizer)
            paths = [path for path in Path(folder).rglob("*") if path.is_file()]
            self.files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}

    def __getstate__(self):
        return {**vars(self), "_tokenizer": None}

    @property
    def tokenizer(self):
        if self._tokenizer is None:
            with tempfile.TemporaryDirectory() as folder:
                for name, content in self.files.items():
                    path = Path(folder, name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                self._tokenizer = Tokenizer.from_preset(os.path.join(folder, "preset"))
        return self._tokenizer

    def rows(self, documents, number):
        """Return the windows or rows of the documents of shard `number`."""
        if self.sentences == "rule":
            documents = split_sentences(documents)
        if self.template is None:
            return token_windows(documents, self.tokenizer, self.sequence_length)
        draw = hashlib.blake2b(f"{self.seed} {number}".encode(), digest_size=4).digest()
        return pretraining_rows(
            documents,
            self.tokenizer,
            self.template,
            self.sequence_length,
            seed=int.from_bytes(draw, "little"),
            **self.settings,
        )


class WriteShard(beam.DoFn):
    """The documents of a shard → its file, and its entries in the index."""

    def __init__(self, packing, names, folder, index, is_set):
        super().__init__()
        self.packing = packing
        self.names = names
        self.folder = folder
        self.index = index
        self.is_set = is_set

    def process(self, element):
        """Write a shard unless it is finished already, and yield its note."""
        number, groups = element
        texts = sorted(groups["texts"])
        repeats = set(groups.get("repeats", ()))
        kept, exact, near = [], 0, 0
        for i, (digest, text) in enumerate(texts):
            if self.is_set and i and digest == texts[i - 1][0]:
                exact += 1
            elif digest in repeats:
                near += 1
            else:
                kept.append(text)
        if kept and not isinstance(kept[0], bytes):
            kept = read_documents(self.folder, kept)
        made_from = hashlib.sha256(json.dumps(self.index, sort_keys=True).encode())
        for text in kept:
            made_from.update(len(text).to_bytes(8, "little") + text)
        name, digest = self.names[number], made_from.hexdigest()
        note = beam_files.note_of(self.folder, name, digest)
        if note is None:
            note = {
                "digest": digest,
                "documents": {
                    "read": len(texts),
                    "exact duplicates": exact,
                    "near duplicates": near,
                },
                "shard": self._write(kept, number, beam_files.join(self.folder, name)),
            }
            beam_files.write_json(beam_files.join(self.folder, name + beam_files.NOTE), note)
        yield note

    def _write(self, texts, number, path):
        with beam_files.writing(path) as new, forgotten_datasets():
            rows = self.packing.rows(texts, number)
            (count,) = shards.write_records(rows, [new])
            return shards.about_shard(new, count, self.names[number])


def _write_index(notes, index, folder):
    """Write the index of all shards, which completes the folder."""
    written = sorted((note["shard"] for note in notes), key=lambda shard: shard["name"])
    documents = {
        name: sum(note["documents"][name] for note in notes) for name in notes[0]["documents"]
    }
    if not documents["read"]:
        raise input_error("The files have no documents: all lines are blank.")
    if not sum(shard["windows"] for shard in written):
        raise input_error(
            f"The documents fill no window of {index['sequence_length']} tokens in any of "
            f"{len(written)} shards: pass more text, or lower sequence_length or num_shards."
        )
    index = {**index, "prepared": {**index["prepared"], "documents": documents}, "shards": written}
    beam_files.write_json(beam_files.join(folder, shards.INDEX), with_sum(index))
