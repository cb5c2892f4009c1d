"""Apache Beam for what outgrows one process: corpora → shards of tokens, files of texts → answers.

It takes the extra `beam`, on the workers too: `pip install 'keras-lm[beam]'`.
"""

from keras_lm.pipelines.answered_files import TextModelHandler, answer_files
from keras_lm.pipelines.prepared_shards import prepare_shards

__all__ = ["TextModelHandler", "answer_files", "prepare_shards"]
