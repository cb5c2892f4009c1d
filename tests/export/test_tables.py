"""Tokenizers with lookup tables and models of TF Text: an export brings them along."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.tokenizers import BytePairTokenizer, GPTTokenizer
from keras_lm.tokenizers.sentence_piece_model import BYTES

SPECIAL = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}


def byte_pair():
    entries = [*SPECIAL.values(), *BYTES.values(), "Ġt", "he", "Ġthe"]
    return BytePairTokenizer(entries, ["Ġ t", "h e", "Ġt he"], **SPECIAL)


def gpt():
    entries = [*SPECIAL.values(), "[UNK]", *"abcdefghilmostw", "th", "e</w>", "the</w>"]
    return GPTTokenizer(entries, ["t h", "th e</w>"], unknown_token="[UNK]", **SPECIAL)


# Loads an export where keras_lm never was, as TF Serving does.
LOAD = """
import sys
import numpy as np
import tensorflow as tf
import tensorflow_text
answer = tf.saved_model.load(sys.argv[1]).signatures["tokenize"]
np.save(sys.argv[2], answer(text=tf.constant(np.load(sys.argv[3]).tolist()))["token_ids"])
"""


@pytest.mark.thorough  # test_without_python.py has GPT-2's tables in a process without Python
@pytest.mark.parametrize("make", [byte_pair, gpt])
def test_export_finds_its_tables_in_another_process(make, make_backbone, texts, tmp_path):
    tokenizer = make()
    backbone = make_backbone(vocabulary_size=tokenizer.vocabulary_size)
    task = tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)
    folder = task.export(tmp_path / "model")
    texts = [t if isinstance(t, str) else t.decode(errors="ignore") for t in texts]
    np.save(tmp_path / "texts.npy", [text.replace("\0", "") for text in texts])
    code = [sys.executable, "-c", LOAD, folder, tmp_path / "ids.npy", tmp_path / "texts.npy"]
    subprocess.run([str(part) for part in code], check=True, capture_output=True)
    expected = task.preprocess({"text": tf.constant([t.replace("\0", "") for t in texts])})
    assert np.load(tmp_path / "ids.npy").tolist() == expected["token_ids"].numpy().tolist()
    loaded = tf.saved_model.load(str(folder)).signatures["tokenize"]
    assert loaded(text=tf.constant([], tf.string))["token_ids"].shape[0] == 0
