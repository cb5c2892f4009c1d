"""Pipelines on Apache Beam, for large data: corpora → shards of tokens, files of texts → answers.

They need the extra `beam`, also on the workers: `pip install 'keras-lm[beam]'`.
"""

from keras_lm.pipelines.answered_files import TextModelHandler, answer_files
from keras_lm.pipelines.prepared_shards import prepare_shards

__all__ = ["TextModelHandler", "answer_files", "prepare_shards"]
