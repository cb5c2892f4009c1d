"""Corpora for language models: text files → documents → windows or rows of tokens → batches.

It also reads the files of published data sets, in the form that `fit` takes.
"""

from keras_lm.data.augmentation import augment_texts
from keras_lm.data.documents import read_documents, split_sentences
from keras_lm.data.hard_negatives import mine_negatives
from keras_lm.data.mixtures import TEXT_TO_TEXT, mix_tasks, mixing_rates, text_to_text
from keras_lm.data.packed_windows import epoch_batches, token_windows, window_batches
from keras_lm.data.pretraining_rows import pretraining_rows, stream_rows
from keras_lm.data.shards import (
    read_token_index,
    read_token_shards,
    write_row_shards,
    write_token_shards,
)
from keras_lm.datasets import PublishedRows, read_published
from keras_lm.datasets.examples import Examples, read_examples
from keras_lm.datasets.marked_entities import mark_entity, mark_relation, read_mentions
from keras_lm.datasets.passages import read_squad
from keras_lm.datasets.tag_schemes import convert_tags
from keras_lm.datasets.trees import Tree, labels_of_trees, read_tree
from keras_lm.utils.input_files import find_files

__all__ = [
    "TEXT_TO_TEXT",
    "Examples",
    "PublishedRows",
    "Tree",
    "augment_texts",
    "convert_tags",
    "epoch_batches",
    "find_files",
    "labels_of_trees",
    "mark_entity",
    "mark_relation",
    "mine_negatives",
    "mix_tasks",
    "mixing_rates",
    "pretraining_rows",
    "read_documents",
    "read_examples",
    "read_mentions",
    "read_published",
    "read_squad",
    "read_token_index",
    "read_token_shards",
    "read_tree",
    "split_sentences",
    "stream_rows",
    "text_to_text",
    "token_windows",
    "window_batches",
    "write_row_shards",
    "write_token_shards",
]
