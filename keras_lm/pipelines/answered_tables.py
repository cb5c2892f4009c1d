"""Tables of texts → the same tables with a model's answers: what Ray's and Spark's workers run."""

import functools
from collections.abc import Sequence
from typing import Any

from keras_lm.datasets.row_files import Rows, choose_columns
from keras_lm.serving.predictors import open_predictor
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.optional_dependencies import require
from keras_lm.utils.table_files import AnswerColumns
from keras_lm.utils.user_arguments import check_whole

BATCHES_SORTED = 50  # batches whose texts are sorted by length together


class TableAnswerer:
    """Answers texts of tables, as `keras-lm predict` answers files.

    Each process that it is sent to loads the model once.

    Args:
        model: path, the same on every worker, of a preset, a SavedModel or a `.tflite`.
        columns: list of str, the names of the columns of a table.
        text, text_pair: str, names of columns of texts; None looks for usual names.
        batch_size: int. How many texts the model answers at once.
        signature, version: of a SavedModel, see `keras_lm.serving.open_predictor`.

    Raises:
        ValueError: if there is no such model, or no column for its texts.
    """

    def __init__(
        self,
        model: PathLike,
        columns: Sequence[str],
        text: str | None = None,
        text_pair: str | None = None,
        batch_size: int = 32,
        signature: str | None = None,
        version: int | None = None,
    ):
        self.batch_size: int = check_whole("batch_size", batch_size, 1)
        self.rows_at_once = batch_size * BATCHES_SORTED
        for name in [name for name in columns if list(columns).count(name) > 1]:
            raise ValueError(f"the table names the column {name!r} twice: rename one.")
        self._model = (str(model), signature, version, text_pair is not None)
        rows = Rows("the table", iter(()), list(columns))
        given = {"text": text, "text_pair": text_pair}
        inputs = open_once(*self._model).inputs  # raises if the model cannot be loaded
        self.columns: dict[str, str] = choose_columns(rows, inputs, given)
        self._answers: AnswerColumns | None = None

    def __call__(self, table: Any) -> Any:
        """Return a `pyarrow.RecordBatch` with the columns of another, or of a Table, and answers.

        Raises:
            ValueError: if a text is missing; it names the row of this part of the table.
        """
        arrow = require("pyarrow", "A table")
        if not table.num_rows:
            return _empty(arrow, self.schema(table.schema))
        if isinstance(table, arrow.Table):
            table = arrow.RecordBatch.from_arrays(
                [_one_array(arrow, column) for column in table.columns], schema=table.schema
            )
        texts = {
            name: _texts(table.column(column), column) for name, column in self.columns.items()
        }
        if self._answers is None:
            self._answers = AnswerColumns("the table")
        answers = open_once(*self._model).answers(texts, self.batch_size)
        return self._answers.beside(table, answers)

    def schema(self, schema: Any) -> Any:
        """Return the `pyarrow.Schema` of what a call returns, for that of its tables."""
        arrow = require("pyarrow", "A table")
        texts = {name: ["a"] for name in self.columns}
        answers = open_once(*self._model).answers(texts, 1)
        nothing = [arrow.nulls(1, field.type) for field in schema]
        batch = arrow.RecordBatch.from_arrays(nothing, schema=schema)
        return AnswerColumns("the table").beside(batch, answers).schema


@functools.lru_cache(maxsize=1)
def open_once(model, signature, version, text_pair):
    """Return the `Predictor` of a model, one in a process."""
    return open_predictor(model, signature, version, text_pair)


def _one_array(arrow, column):
    joined = column.combine_chunks()
    return joined if isinstance(joined, arrow.Array) else arrow.concat_arrays(joined.chunks)


def _empty(arrow, schema):
    # `array([], type)` does not know all types, such as that of tensors
    return arrow.RecordBatch.from_arrays([arrow.nulls(0, f.type) for f in schema], schema=schema)


def require_table(value: Any, name: str, method: str, kind: str) -> None:
    """Raise a ValueError if an argument lacks a method of the tables of an engine."""
    if not hasattr(value, method):
        raise ValueError(f"{name} is of the class {type(value).__name__}: pass a {kind}.")


def _texts(column, name):
    texts = column.to_pylist()
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"row {row} of a part of the table has {text!r:.60} in the column {name!r}: "
                "leave out such rows, or write a text."
            )
    return texts
