"""Packing: named columns of raw text → the dict of equal-length rows that a backbone takes.

The same graph code runs in `tf.data`, in the exported SavedModel and in a `.tflite`.
"""

from keras_lm.packers.characters import CharacterPacker
from keras_lm.packers.entity_rows import EntityPacker
from keras_lm.packers.graph_rows import ChoicesWithGraphs
from keras_lm.packers.overlapping_windows import Windows
from keras_lm.packers.packer import PackedInput, Packer, Template, Texts
from keras_lm.packers.rows import AnchoredTexts, BothOrders, Choices
from keras_lm.packers.seq2seq import Seq2SeqPacker
from keras_lm.packers.words import WordEnds, Words, WordWindows

__all__ = [
    "AnchoredTexts",
    "BothOrders",
    "CharacterPacker",
    "Choices",
    "ChoicesWithGraphs",
    "EntityPacker",
    "PackedInput",
    "Packer",
    "Seq2SeqPacker",
    "Template",
    "Texts",
    "Windows",
    "WordEnds",
    "WordWindows",
    "Words",
]
