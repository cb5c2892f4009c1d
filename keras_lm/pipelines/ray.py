"""Answers to the rows of a Ray `Dataset`. Training on Ray needs no code of ours: see docs/ray.md.

It needs `pip install "ray[data]"`, also on the workers.
"""

import warnings
from typing import Any

from keras_lm.pipelines.answered_tables import TableAnswerer, require_table
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.optional_dependencies import require
from keras_lm.utils.user_arguments import check_whole


def answer_dataset(
    dataset: Any,
    model: PathLike,
    text: str | None = None,
    text_pair: str | None = None,
    batch_size: int = 32,
    num_workers: int = 1,
    signature: str | None = None,
    version: int | None = None,
    **options: Any,
) -> Any:
    """Return a Ray `Dataset` with a model's answers beside each row, as further columns.

    The answers are those of `keras-lm predict`; of a classifier the columns are `label`, `scores`
    and `class_names`. Each worker process loads the model once. Ray starts workers again that have
    died, and asks for their rows once more; pass `max_restarts` and `max_task_retries` for how
    often.

    Args:
        dataset: `ray.data.Dataset` with a column of texts.
        model: path, the same on every worker, of a preset, a SavedModel or a `.tflite`.
        text, text_pair: str, names of the columns; None looks for usual names, such as `text`.
        batch_size: int. How many texts a model answers at once.
        num_workers: int. Worker processes, each with a CPU. Leave one to earlier steps of the
            dataset, such as reading: Ray waits for ever if workers have taken all. A warning says
            so if the cluster has no CPU besides, as far as it has grown.
        signature, version: of a SavedModel, see `keras_lm.serving.open_predictor`.
        **options: further arguments of `ray.data.Dataset.map_batches`, such as `num_cpus=4` or
            `num_gpus=1`, of each worker.

    Raises:
        ImportError: if Ray is not installed.
        ValueError: if there is no such model, no column for its texts, two columns of one name, or
            `dataset` is something else.

    Example:

        reviews = ray.data.read_parquet("s3://bucket/reviews")
        answered = keras_lm.pipelines.ray.answer_dataset(reviews, "exported/film-critic")
        answered.write_parquet("s3://bucket/answers")

    Source: https://docs.ray.io/en/latest/data/batch_inference.html.
    """
    require_table(dataset, "dataset", "map_batches", "Dataset of Ray")
    data = require("ray.data", "A Dataset of Ray")
    schema = dataset.schema()
    if schema is None:
        raise ValueError("dataset has neither rows nor columns: pass one with a column of texts.")
    columns = schema.names
    answerer = TableAnswerer(model, columns, text, text_pair, batch_size, signature, version)
    _warn_if_none_is_left(check_whole("num_workers", num_workers, 1), options.get("num_cpus", 1))
    return dataset.map_batches(
        _Worker,
        fn_constructor_args=(answerer,),
        batch_size=answerer.rows_at_once,
        batch_format="pyarrow",
        compute=data.ActorPoolStrategy(size=num_workers),
        **options,
    )


def _warn_if_none_is_left(num_workers, num_cpus):
    there_are = require("ray", "A Dataset of Ray").cluster_resources().get("CPU", 0)
    if num_cpus and num_workers * num_cpus >= there_are:
        warnings.warn(
            f"num_workers={num_workers}, with num_cpus={num_cpus} each, take all "
            f"{there_are:g} CPUs of the Ray cluster: if it cannot grow, steps before them, such as "
            "reading, wait for ever. Ask for fewer workers.",
            stacklevel=3,
        )


class _Worker:
    """What an actor of Ray holds."""

    def __init__(self, answerer):
        self._answerer = answerer

    def __call__(self, table):
        import pyarrow

        return pyarrow.Table.from_batches([self._answerer(table)])
