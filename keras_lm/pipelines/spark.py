"""Answers to the rows of a Spark DataFrame.

It needs `pip install "pyspark>=4"` and Java, also on the workers.
"""

from typing import Any

from keras_lm.pipelines.answered_tables import TableAnswerer, require_table
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.optional_dependencies import require


def answer_frame(
    frame: Any,
    model: PathLike,
    text: str | None = None,
    text_pair: str | None = None,
    batch_size: int = 32,
    signature: str | None = None,
    version: int | None = None,
) -> Any:
    """Return a Spark DataFrame with a model's answers beside each row, as further columns.

    The answers are those of `keras-lm predict`; of a classifier the columns are `label`, `scores`
    and `class_names`. Each Python worker loads the model once; Spark asks a partition again whose
    worker has died. Spark passes 10,000 rows at a time (`spark.sql.execution.arrow.
    maxRecordsPerBatch`), of which texts of similar lengths are answered together.

    Args:
        frame: `pyspark.sql.DataFrame` with a column of texts.
        model: path, the same on every worker, of a preset, a SavedModel or a `.tflite`.
        text, text_pair: str, names of the columns; None looks for usual names, such as `text`.
        batch_size: int. How many texts a model answers at once.
        signature, version: of a SavedModel, see `keras_lm.serving.open_predictor`.

    Raises:
        ImportError: if pyspark is not installed.
        ValueError: if there is no such model, no column for its texts, two columns of one name, or
            `frame` is something else.

    Example:

        reviews = spark.read.parquet("s3a://bucket/reviews")
        answered = keras_lm.pipelines.spark.answer_frame(reviews, "exported/film-critic")
        answered.write.parquet("s3a://bucket/answers")

    Source: https://spark.apache.org/docs/latest/api/python/tutorial/sql/arrow_pandas.html.
    """
    require_table(frame, "frame", "mapInArrow", "DataFrame of Spark")
    types = require("pyspark.sql.pandas.types", "A DataFrame of Spark")
    arrow = require("pyarrow", "A DataFrame of Spark")
    answerer = TableAnswerer(model, frame.columns, text, text_pair, batch_size, signature, version)
    # The frame's own types stay Spark's: not all of them become Arrow's without its session.
    untyped = answerer.schema(arrow.schema([(name, arrow.null()) for name in frame.columns]))
    answers = arrow.schema([untyped.field(i) for i in range(len(frame.columns), len(untyped))])
    fields = [*frame.schema.fields, *types.from_arrow_schema(answers).fields]

    worker = _Worker(answerer, frame.columns, answers)
    # Spark would read a name with a dot as a field of a column.
    plain = frame.toDF(*[f"column{number}" for number in range(len(frame.columns))])
    return plain.mapInArrow(lambda parts: worker(parts), type(frame.schema)(fields))


class _Worker:
    """What a Python worker of Spark runs; the lambda above brings it there."""

    def __init__(self, answerer, columns, answers):
        self._answerer, self._columns, self._answers = answerer, columns, answers

    def __call__(self, parts):
        import pyarrow

        for part in parts:
            part = part.rename_columns(self._columns)
            yield self._answerer(part).cast(pyarrow.schema([*part.schema, *self._answers]))
