"""Files of texts → files of answers, with Apache Beam's `RunInference`.

The rows of a file are divided into shards of 10,000. A shard's answers are one file, in the order
of its rows; the rows without an answer are in another, with the reason.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.ml.inference.base import KeyedModelHandler, ModelHandler, RunInference

from keras_lm.datasets.row_files import (
    TableRows,
    choose_columns,
    find_format,
    lacks_text,
    parse_rows,
)
from keras_lm.pipelines import beam_files
from keras_lm.pipelines.corpus_parts import open_unpacked
from keras_lm.pipelines.running import input_error, run
from keras_lm.serving.predictors import by_length, open_predictor
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import naming_a_full_disk, state_of
from keras_lm.utils.json_values import first_line, json_line, plain
from keras_lm.utils.table_files import refuse_binary
from keras_lm.utils.user_arguments import checks_flags

INDEX = "answers.json"
SHARD_ROWS = 10_000
BATCHES_SORTED = 50  # batches that are sorted by length together


class Failure(NamedTuple):
    """Stands in place of an answer, and says why there is none."""

    reason: str


class TextModelHandler(ModelHandler):
    """A preset, a SavedModel or a `.tflite` for `RunInference`: texts → answers.

    A text is a string, the first input of the model, or a dict of all inputs. An answer is a dict,
    as in the output of `keras-lm predict`. Texts of similar lengths are batched together. If the
    model refuses a text, its answer is a `Failure`; the other texts of the batch are answered.

    Args:
        model: path, the same on every worker, of a model for `keras-lm predict`.
        batch_size: int.
        signature, version: for a SavedModel, see `keras-lm predict`.
        text_pair: str or None. Whether to pass pairs to a preset that takes both texts and pairs.

    Example:

        rows | RunInference(keras_lm.pipelines.TextModelHandler("exported/film-critic"))
    """

    def __init__(
        self,
        model: PathLike,
        batch_size: int = 32,
        signature: str | None = None,
        version: int | None = None,
        text_pair: str | None = None,
    ):
        together = BATCHES_SORTED * batch_size
        super().__init__(min_batch_size=together, max_batch_size=together)
        self.model: str = str(model)
        self.batch_size = batch_size
        self.options: dict[str, str | int | bool | None] = {
            "signature": signature,
            "version": version,
            "text_pair": text_pair is not None,
        }

    def load_model(self) -> Any:
        """Return a predictor, an object with `inputs` and `answer`."""
        return open_predictor(self.model, **self.options)

    def run_inference(
        self,
        batch: Sequence[str | dict[str, Any]],
        model: Any,
        inference_args: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Return the answer to each string or dict of `batch`, or a `Failure`.

        Raises:
            ValueError: if an element lacks an input of the model.
        """
        rows = [{model.inputs[0]: row} if isinstance(row, str) else row for row in batch]
        for row in rows:
            if missing := [name for name in model.inputs if name not in row]:
                raise ValueError(
                    f"an element has {', '.join(row)}, and {', '.join(missing)} is missing: the "
                    f"model takes dicts of {', '.join(model.inputs)}."
                )
        columns = {name: [row[name] for row in rows] for name in model.inputs}
        answers = [None] * len(batch)
        for places, texts in by_length(columns, self.batch_size):
            for place, answer in zip(places, _answers(model, texts), strict=True):
                answers[place] = answer
        return answers


def _answers(model, texts):
    """Return the answers to columns of texts; if a batch fails, try its halves."""
    number = len(next(iter(texts.values())))
    try:
        answer = model.answer(texts)
    except Exception as error:  # any part of a model may raise any error for a text
        if number == 1:
            return [Failure(str(error) if isinstance(error, ValueError) else first_line(error))]
        half = number // 2
        return [
            answer
            for part in (slice(half), slice(half, number))
            for answer in _answers(model, {name: column[part] for name, column in texts.items()})
        ]
    return [plain({name: answer[name][row] for name in sorted(answer)}) for row in range(number)]


@checks_flags
def answer_files(
    model: PathLike,
    files: PathLike | Iterable[PathLike],
    folder: PathLike,
    batch_size: int = 32,
    format: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    signature: str | None = None,
    version: int | None = None,
    overwrite: bool = False,
    skip_empty: bool = False,
    flags: Sequence[str] = (),
) -> dict[str, Any]:
    """Answer all rows of files; return the index of `folder`, a dict.

    `answers-00002-00000.jsonl` has the answers to the first rows of the third file, in their order,
    one line `{"input": {…}, "answer": {…}}` each. Rows that cannot be read or answered are in
    `failed-00002-00000.jsonl`, with file, line and reason. `answers.json` has the counts. To
    continue an interrupted run, call it again: finished shards are kept.

    Args:
        model: see `TextModelHandler`.
        files: paths or patterns, on this machine or any of Beam's filesystems: CSV, TSV, JSONL, or
            lines, which may be `.gz`; Parquet or Arrow.
        folder: path of the folder to write.
        batch_size: int.
        format: `"csv"`, `"tsv"`, `"jsonl"` or `"lines"`; None infers it from the suffix.
        text, text_pair: names of columns; None looks for usual names.
        signature, version: see `TextModelHandler`.
        overwrite: bool. Whether to replace a folder of answers.
        skip_empty: bool. Whether to leave out rows that lack a text; the index counts them.
        flags: list of str, Beam's own options, such as `["--runner=FlinkRunner"]`.

    Raises:
        FileNotFoundError: if there is no such file.
        FileExistsError: if `folder` exists.
        ValueError: if a file cannot be read to its end, or lacks a column.

    Example:

        keras_lm.pipelines.answer_files("exported/film-critic", "reviews/*.csv.gz", "answers")
    """
    inputs = beam_files.find_inputs(files)
    formats = [format or find_format(path) for path, _ in inputs]
    handler = TextModelHandler(model, batch_size, signature, version, text_pair)
    names = handler.load_model().inputs  # raises if the model cannot be loaded
    given = {"text": text, "text_pair": text_pair}
    chosen = given | ({"skip_empty": True} if skip_empty else {})
    made_from = json.dumps([str(model), state_of(model), handler.options, names, chosen])
    growing = beam_files.GrowingFolder(folder, INDEX, overwrite)
    read = ReadRows(names, given, growing.path, made_from, skip_empty)

    def build(pipeline):
        rows = (
            pipeline
            | "Files" >> beam.Create([(i, *pair) for i, pair in enumerate(zip(inputs, formats))])
            | "Share files" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(read).with_outputs("shards", "failed", "finished", main="rows")
        )
        answers = (
            rows["rows"]
            | "Share rows" >> beam.Reshuffle()
            | "Answer" >> RunInference(KeyedModelHandler(handler))
            | "Of shard" >> beam.Map(_of_shard)
        )
        written = (
            {"answers": answers, "failed": rows["failed"], "shards": rows["shards"]}
            | "Gather" >> beam.CoGroupByKey()
            | "Write" >> beam.ParDo(WriteAnswers(growing.path))
        )
        _ = (
            (written, rows["finished"])
            | beam.Flatten()
            | beam.combiners.ToList()
            | "Index" >> beam.Map(_write_index, str(model), growing.path)
        )

    try:
        with naming_a_full_disk(growing.path):
            run(build, flags)
    except BaseException:
        growing.give_up()
        raise
    index = beam_files.read_json(beam_files.join(growing.path, INDEX))
    parts = [shard[kind] for shard in index["shards"] for kind in ("name", "failures")]
    growing.finish([INDEX, *filter(None, parts)])
    return index


class Key(NamedTuple):
    """A row with its place: the numbers of its file, shard and line, and the row as JSON."""

    file: int
    shard: int
    line: int
    row: str


def _of_shard(element):
    key, answer = element
    return (key.file, key.shard), (key, answer)


class ReadRows(beam.DoFn):
    """A file → its rows, its unreadable rows, and its shards; or the notes of finished shards."""

    def __init__(self, names, given, folder, made_from, skip_empty=False):
        super().__init__()
        self.skip_empty = skip_empty
        self.names = names
        self.given = given
        self.folder = folder
        self.made_from = made_from

    def process(self, element):
        """Yield all of these for a file."""
        number, (path, _), format = element
        try:
            with open_unpacked(path) as stream:
                rows = parse_rows(path, stream, format, with_errors=True)
                if isinstance(rows, TableRows):
                    refuse_binary(path, rows.schema)
                columns = choose_columns(rows, self.names, self.given)
                lines = iter(rows)
                for shard in itertools.count():
                    chunk = list(itertools.islice(lines, SHARD_ROWS))
                    if not chunk and shard:  # only an empty file has an empty shard
                        return
                    yield from self._shard((number, shard), path, rows, chunk, columns)
        except ValueError as error:
            raise input_error(str(error)) from error
        except OSError as error:
            raise input_error(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from error

    def _shard(self, key, path, rows, chunk, columns):
        name = f"answers-{key[0]:05d}-{key[1]:05d}.jsonl"
        made_from = hashlib.sha256(f"{self.made_from} {path}".encode())
        for line, row in chunk:
            made_from.update(json_line([line, row if isinstance(row, dict) else str(row)]))
        digest = made_from.hexdigest()
        note = beam_files.note_of(self.folder, name, digest)
        if note is not None:
            yield beam.pvalue.TaggedOutput("finished", note)
            return
        if self.skip_empty:
            kept = [(line, row) for line, row in chunk if not lacks_text(row, columns.values())]
        else:
            kept = chunk
        numbers = (len(kept), len(chunk) - len(kept))
        yield beam.pvalue.TaggedOutput("shards", (key, (name, path, *numbers, digest)))
        for line, row in kept:
            try:
                if isinstance(row, Exception):
                    raise row
                texts = {
                    name: rows.text_or_list(line, row, column) for name, column in columns.items()
                }
                yield Key(*key, line, json.dumps(row)), texts
            except ValueError as error:
                place = Key(*key, line, json.dumps(row if isinstance(row, dict) else None))
                failed = (place, Failure(str(error)))
                yield beam.pvalue.TaggedOutput("failed", (key, failed))


class WriteAnswers(beam.DoFn):
    """The answers of a shard → its files, and its note."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def process(self, element):
        """Write a shard, and yield its note."""
        _, groups = element
        ((name, path, number, left_out, digest),) = groups["shards"]
        # A CSV row of several lines is numbered by its last line, so all numbers differ.
        rows = sorted([*groups["answers"], *groups["failed"]], key=lambda row: row[0].line)
        if len({key.line for key, _ in rows}) != number or len(rows) != number:
            raise RuntimeError(
                f"{path} has {number} rows in {name}, but {len(rows)} came back: run it again."
            )
        answered = [
            {"input": json.loads(key.row), "answer": answer}
            for key, answer in rows
            if not isinstance(answer, Failure)
        ]
        failed = [
            {"file": path, "line": key.line, "reason": answer.reason, "input": json.loads(key.row)}
            for key, answer in rows
            if isinstance(answer, Failure)
        ]
        failures = name.replace("answers", "failed") if failed else None
        if failed:
            self._write(failures, failed)
        self._write(name, answered)
        counts = {"rows": number, "failed": len(failed)}
        counts |= {"left_out": left_out} if left_out else {}
        shard = {"name": name, "file": path, **counts, "failures": failures}
        note = {"digest": digest, "shard": shard}
        beam_files.write_json(beam_files.join(self.folder, name + beam_files.NOTE), note)
        yield note

    def _write(self, name, rows):
        with (
            beam_files.writing(beam_files.join(self.folder, name)) as new,
            open(new, "wb") as file,
        ):
            file.writelines(map(json_line, rows))


def _write_index(notes, model, folder):
    shards = sorted((note["shard"] for note in notes), key=lambda shard: shard["name"])
    names = ("rows", "failed", "left_out")
    counts = {name: sum(shard.get(name, 0) for shard in shards) for name in names}
    index = {"format_version": 1, "model": model, **counts, "shards": shards}
    beam_files.write_json(beam_files.join(folder, INDEX), index)
