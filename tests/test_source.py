"""A source that is opened once: what it holds, on demand, and what is loaded from it."""

import collections
import copy
import dataclasses
import functools

import numpy as np
import pytest

from keras_lm.converters import open_checkpoint
from keras_lm.models import Backbone, BertBackbone, GPT2Backbone
from keras_lm.presets import Source, source
from keras_lm.presets.source import Preset, PublishedCheckpoint, Size, open_source
from keras_lm.tasks import Task, TextClassifier
from keras_lm.tokenizers import Tokenizer
from keras_lm.utils.registry import BACKBONES

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
    for actual in (backbone, task.backbone):
        for one, other in zip(actual.weights, expected.weights, strict=True):
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


def test_a_source_is_of_one_of_three_kinds(goldens, tmp_path):
    size = {"num_layers": 1, "num_heads": 1, "hidden_dim": 4, "intermediate_dim": 4}
    BertBackbone(9, **size).save_to_preset(tmp_path / "new")
    sources = {"bert_tiny_en_uncased": Size, goldens("bert"): PublishedCheckpoint}
    for name, kind in (sources | {tmp_path / "new": Preset}).items():
        opened = open_source(name)
        assert (type(opened), str(opened)) == (kind, str(name))
        assert open_source(opened) is opened
        assert type(copy.copy(opened)) is kind
        assert opened.recognise()[0] is BertBackbone
        assert opened.recognise(Backbone)[0] is BertBackbone
        with pytest.raises(ValueError, match="GPT2Backbone"):
            opened.recognise(GPT2Backbone)
        backbone, _ = opened.make_backbone(BertBackbone, {"dropout": 0.3})
        assert backbone.config["num_layers"] == opened.arguments()["num_layers"]
        assert backbone.config["dropout"] == 0.3


@pytest.mark.parametrize("states", [True, False])
def test_tensors_decide_only_if_no_configuration_names_the_model(goldens, monkeypatch, states):
    checkpoint = open_checkpoint(goldens("bert"))
    if not states:
        config = {k: v for k, v in checkpoint.config.items() if k != "model_type"}
        checkpoint = dataclasses.replace(checkpoint, config=config)
    named = set()

    def noting(matches, *arguments, **how):
        named.add(how["model_type"])
        return matches(*arguments)

    for cls in BACKBONES.values():
        converter = cls.CONVERTERS.get("huggingface")
        how = getattr(getattr(converter, "matches", None), "keywords", {})
        if isinstance(how.get("model_type"), str) and "CONVERTERS" in vars(cls):
            matches = functools.partial(noting, converter.matches, **how)
            converter = dataclasses.replace(converter, matches=matches)
            monkeypatch.setitem(cls.CONVERTERS, "huggingface", converter)
    assert Source(checkpoint).recognise()[0] is BertBackbone
    assert named == {"bert"} if states else named > {"bert", "gpt2", "albert"}
