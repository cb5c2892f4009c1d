"""A source that is opened once: what it holds, on demand, and what is loaded from it."""

import collections
import dataclasses

import numpy as np
import pytest

from keras_lm.models import Backbone, BertBackbone
from keras_lm.presets import Source, source
from keras_lm.tasks import Task, TextClassifier
from keras_lm.tokenizers import Tokenizer

pytestmark = pytest.mark.eager


@pytest.fixture
def calls(monkeypatch):
    """How often a checkpoint is opened, and asked for its model, its arguments and its labels."""
    counted = collections.Counter()

    def counting(name, function):
        def count(*arguments):
            counted[name] += 1
            return function(*arguments)

        return count

    monkeypatch.setattr(source, "open_checkpoint", counting("open", source.open_checkpoint))
    converter = BertBackbone.CONVERTERS["huggingface"]
    parts = ("matches", "config", "labels")
    counters = {part: counting(part, getattr(converter, part)) for part in parts}
    converter = dataclasses.replace(converter, **counters)
    monkeypatch.setitem(BertBackbone.CONVERTERS, "huggingface", converter)
    return counted


ONCE = {"open": 1, "matches": 1, "config": 1, "labels": 1}


@pytest.mark.filterwarnings("ignore::keras_lm.tasks.task.NoVocabularyWarning")
def test_a_task_is_loaded_by_one_look_at_its_source(goldens, calls):
    assert type(Task.from_preset(goldens("bert-seqcls"))) is TextClassifier
    assert calls == ONCE


@pytest.mark.filterwarnings("ignore::keras_lm.tasks.task.NoVocabularyWarning")
def test_what_is_loaded_from_an_open_source_is_what_its_folder_gives(goldens, calls):
    folder = goldens("bert-seqcls")
    opened = Source.open(folder)
    assert Source.open(opened) is opened
    assert str(opened) == str(folder)
    assert opened.recognise()[0] is BertBackbone
    assert opened.task is TextClassifier
    assert opened.task_arguments(TextClassifier)["num_classes"] > 1
    arguments = opened.arguments()
    with pytest.warns(match="left over in the checkpoint"):
        backbone = Backbone.from_preset(opened)
    assert arguments.items() <= backbone.get_config().items()
    task = TextClassifier.from_preset(opened)
    assert calls == ONCE
    expected = TextClassifier.from_preset(folder).backbone
    for found in (backbone, task.backbone):
        for one, other in zip(found.weights, expected.weights, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_preset_is_a_source_too(goldens, tmp_path):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good"]
    tokenizer = Tokenizer.from_preset(goldens("tokenizers/wordpiece-uncased"))
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 4, "intermediate_dim": 4}
    backbone = BertBackbone(tokenizer.vocabulary_size, **sizes)
    TextClassifier(backbone, tokenizer=tokenizer, num_classes=3).save_to_preset(tmp_path / "new")
    opened = Source.open(tmp_path / "new")
    assert (opened.recognise()[0], opened.task) == (BertBackbone, TextClassifier)
    assert opened.arguments()["num_layers"] == 1
    assert opened.task_arguments(TextClassifier)["num_classes"] == 3
    assert opened.task_arguments(Task) is None
    again = Tokenizer.from_preset(opened)
    assert again(vocabulary).to_list() == tokenizer(vocabulary).to_list()


def test_a_size_is_no_source():
    with pytest.raises(ValueError, match=r"names a size.*published at hf://google-bert/bert-base"):
        Source.open("bert_base_en_uncased")
    with pytest.raises(ValueError, match=r"names a size.*never published: train your own"):
        Source.open("gpt3_small")
