"""`save_to_google` and `save_to_keras_hub`: what their code wrote comes back as it was.

Folders in goldens/ were written by google-research's code and by KerasHub. What ours writes has the
same names, shapes and bits. benchmarks/keras_hub_out.py asks KerasHub itself.
"""

import json

import h5py
import numpy as np
import pytest
import tiny

from keras_lm import models, tasks
from keras_lm.converters import open_checkpoint
from keras_lm.converters.tf_checkpoint import choose_checkpoint
from keras_lm.tokenizers import Tokenizer

MORE = pytest.mark.thorough
GOOGLE = [
    ("tf1-bert", tasks.Pretrainer),
    ("tf1-gpt2", tasks.CausalLM),
    pytest.param("tf1-albert", tasks.Pretrainer, marks=MORE),
    pytest.param("tf1-electra", tasks.Pretrainer, marks=MORE),
    pytest.param("tf1-electra", tasks.MaskedLM, marks=MORE),
]
# What only its training has, and entries without an effect here.
OTHERS = {"initializer_range", "down_scale_factor", "generator", "vocab_size"}


def assert_same_weights(one, other):
    for first, second in zip(one.weights, other.weights, strict=True):
        assert first.path == second.path
        np.testing.assert_array_equal(first, second)


@pytest.mark.eager
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "cls"), GOOGLE)
def test_what_google_research_wrote(name, cls, goldens, tmp_path):
    task = cls.from_preset(goldens(name), tokenizer=None)
    task.save_to_google(tmp_path / "new")
    assert choose_checkpoint(tmp_path / "new") == choose_checkpoint(goldens(name))
    before, after = (open_checkpoint(folder) for folder in (goldens(name), tmp_path / "new"))
    assert after.format == "google"
    # The generator has embeddings of its own in a folder of its own.
    theirs = {
        tensor.replace("generator/embeddings/", "electra/embeddings/"): tensor
        for tensor in after.tensors
    }
    assert before.tensors.keys() >= theirs.keys()
    assert name == "tf1-electra" or before.tensors.keys() == theirs.keys()
    for their, ours in theirs.items():
        np.testing.assert_array_equal(before.tensors[their], after.tensors[ours], ours)
    for key in after.config.keys() & before.config.keys() - OTHERS:
        assert after.config[key] == before.config[key], key
    assert_same_weights(cls.from_preset(tmp_path / "new", tokenizer=None), task)


HUB = [
    ("bert", "classifier", tasks.TextClassifier),
    ("gpt2", "", tasks.CausalLM),
    pytest.param("distilbert", "classifier", tasks.TextClassifier, marks=MORE),
    pytest.param("roberta", "classifier", tasks.TextClassifier, marks=MORE),
    pytest.param("roberta", "masked_lm", tasks.MaskedLM, marks=MORE),
    pytest.param("deberta", "classifier", tasks.TextClassifier, marks=MORE),
]


def arrays_of(path):
    results = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer"):
            results[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return results


@pytest.mark.eager
@pytest.mark.parametrize(("name", "folder", "cls"), HUB)
def test_what_keras_hub_wrote(name, folder, cls, goldens, tmp_path):
    golden, new = goldens(f"{name}-keras-hub") / folder, tmp_path / "new"
    has_tokenizer = (golden / "assets").is_dir()
    options = {} if has_tokenizer else {"tokenizer": None}
    task = cls.from_preset(golden, **options)
    task.save_to_keras_hub(new)
    for path in golden.glob("*.h5"):
        before, after = arrays_of(path), arrays_of(new / path.name)
        assert before.keys() == after.keys()
        for key, array in before.items():
            np.testing.assert_array_equal(after[key], array, key)
    kinds = ["config", *(["tokenizer", "preprocessor", "task"] if has_tokenizer else [])]
    for kind in kinds:
        before, after = (json.loads((at / f"{kind}.json").read_text()) for at in (golden, new))
        assert after["registered_name"] == before["registered_name"]
        # (Lengths, and the dropout of a head, are not what a preset of ours reads there.)
        left_out = {"sequence_length", "dropout"} if kind in ("preprocessor", "task") else set()
        for key, value in after["config"].items():
            if not isinstance(value, (dict, list)) and key not in left_out:
                assert before["config"][key] == value, key
    for path in (golden / "assets").rglob("*.*"):
        assert (new / path.relative_to(golden)).is_file()
    again = cls.from_preset(new, **options)
    assert_same_weights(again, task)
    assert not has_tokenizer or again.tokenizer.vocabulary == task.tokenizer.vocabulary


@pytest.mark.eager
def test_strings_and_labels(tokenizer_of, tmp_path):
    tokenizer = tokenizer_of("wordpiece")
    rows = {"vocabulary_size": tokenizer.vocabulary_size, "activation": "gelu_tanh"}
    backbone = models.BertBackbone(**tiny.TRANSFORMER | rows)
    task = tasks.TextClassifier(backbone, tokenizer=tokenizer, class_names=["bad", "good"])
    task.save_to_google(tmp_path / "google")
    task.save_to_keras_hub(tmp_path / "hub")
    backbone.save_to_google(tmp_path / "bare", tokenizer=tokenizer)
    assert Tokenizer.from_preset(tmp_path / "bare").vocabulary == tokenizer.vocabulary
    with pytest.raises(FileExistsError, match="is not empty"):
        task.save_to_google(tmp_path / "google")
    for folder in ("google", "hub"):
        again = tasks.TextClassifier.from_preset(tmp_path / folder)
        assert_same_weights(again, task)
        assert again.tokenizer.vocabulary == tokenizer.vocabulary
        # The format cannot store the names: they are in the card.
        assert again.class_names is None
        assert "`bad`, `good`" in (tmp_path / folder / "README.md").read_text()


def _bert(**arguments):
    return models.BertBackbone(20, **tiny.TRANSFORMER | {"activation": "gelu_tanh"} | arguments)


def _with_adapters():
    backbone = _bert()
    backbone.add_adapters(2)
    return backbone


REFUSED = {
    "is read from the files of google-research's code, which are not": lambda: models.XLNetBackbone(
        20, 1, **tiny.SIZE
    ),
    "has no counterpart in google-research's code": lambda: models.MPNetBackbone(
        20, **tiny.TRANSFORMER
    ),
    "activation='gelu'": lambda: _bert(activation="gelu"),
    "layer_norm_epsilon=0.1": lambda: _bert(layer_norm_epsilon=0.1),
    "adapters of 2 units": _with_adapters,
    "'multi_label_classification'": lambda: tasks.TextClassifier(
        _bert(), num_classes=2, multi_label=True
    ),
    "FeatureExtractor has no head": lambda: tasks.FeatureExtractor(_bert()),
    "the head 'token_classification'": lambda: tasks.TokenClassifier(_bert(), num_classes=2),
}
REFUSED_BY_HUB = {
    "has no counterpart in KerasHub": lambda: models.AlbertBackbone(20, **tiny.TRANSFORMER),
    "is read from the files of KerasHub": lambda: models.T5Backbone(20, 1, **tiny.SIZE),
    "use_pooler=False": lambda: _bert(use_pooler=False),
    "num_segments=1": lambda: models.RobertaBackbone(20, **tiny.TRANSFORMER),
}


@pytest.mark.eager
@pytest.mark.parametrize("words", [*REFUSED, *REFUSED_BY_HUB])
def test_refused_by_name(words, tmp_path):
    made = (REFUSED | REFUSED_BY_HUB)[words]()
    save = made.save_to_google if words in REFUSED else made.save_to_keras_hub
    with pytest.raises(ValueError) as caught:
        save(tmp_path / "new")
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())
