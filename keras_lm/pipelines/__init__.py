"""Large data on other people's engines: corpora → shards of tokens, texts → answers.

`answer_files`, `prepare_shards` and `TextModelHandler` run on Apache Beam and need the extra
`beam`, also on the workers: `pip install 'keras-lm[beam]'`. `keras_lm.pipelines.ray` and
`keras_lm.pipelines.spark` answer a Dataset of Ray and a DataFrame of Spark.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_lm.pipelines.answered_files import TextModelHandler, answer_files
    from keras_lm.pipelines.prepared_shards import prepare_shards

__all__ = ["TextModelHandler", "answer_files", "prepare_shards"]

# Imported when they are asked for: the workers of Ray and Spark have no Beam.
OF_BEAM = {
    "TextModelHandler": "answered_files",
    "answer_files": "answered_files",
    "prepare_shards": "prepared_shards",
}


def __getattr__(name):
    if name in OF_BEAM:
        return getattr(importlib.import_module(f"keras_lm.pipelines.{OF_BEAM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
