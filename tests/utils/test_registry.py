"""Classes that register, a user's too, and which of several models a checkpoint is taken for."""

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_lm import converters
from keras_lm.converters import STATED, CheckpointError, Converter, match_score, open_checkpoint
from keras_lm.converters.converter import NameTable
from keras_lm.models import Backbone, BertBackbone
from keras_lm.presets import Source
from keras_lm.tasks import Task, TextClassifier
from keras_lm.tokenizers import SubwordTokenizer, Tokenizer
from keras_lm.utils import registry

SIZES = {"num_layers": 1, "num_heads": 1, "hidden_dim": 4, "intermediate_dim": 4}
QUERY = "encoder.layer.0.attention.self.query.weight"


@pytest.fixture(autouse=True)
def as_before():
    """Classes that a test defines are gone after it."""
    tables = (registry.BACKBONES, registry.TASKS, registry.TOKENIZERS)
    before = [dict(table) for table in tables]
    yield
    for table, classes in zip(tables, before):
        table.clear()
        table.update(classes)


def make_folder(folder, config="{}", names=(QUERY,)):
    folder.mkdir(exist_ok=True)
    save_file({name: np.zeros((4, 4), np.float32) for name in names}, folder / "model.safetensors")
    (folder / "bert_config.json").write_text(config)
    return open_checkpoint(folder)


def model(name, matches):
    """A class of backbone that knows Hugging Face's checkpoints by `matches`."""
    converter = Converter(matches, dict, NameTable({}, {}))
    return type(Backbone)(name, (Backbone,), {"CONVERTERS": {"huggingface": converter}})


def test_a_users_classes_come_back_from_a_preset(tmp_path):
    @keras.saving.register_keras_serializable("test")
    class MyBackbone(BertBackbone):
        pass

    class MyTask(TextClassifier):
        pass

    task = MyTask(MyBackbone(vocabulary_size=9, **SIZES), num_classes=2)
    task.save_to_preset(tmp_path)
    again = Task.from_preset(tmp_path)
    assert type(again) is MyTask
    assert type(again.backbone) is MyBackbone


def test_the_librarys_names_are_its_own():
    with pytest.raises(ValueError, match="BertBackbone, but presets use this name"):
        model("BertBackbone", lambda checkpoint: 0)
    assert registry.BACKBONES["BertBackbone"] is BertBackbone
    registry.TOKENIZERS.pop("SubwordTokenizer", None)  # as if nothing had imported it
    with pytest.raises(ValueError, match="SubwordTokenizer, but presets use this name"):
        type(Tokenizer)("SubwordTokenizer", (Tokenizer,), {})
    assert registry.tokenizer_classes()["SubwordTokenizer"] is SubwordTokenizer
    one, other = model("Mine", int), model("Mine", int)
    assert registry.BACKBONES["Mine"] is other is not one


def test_sizes_belong_to_the_class_that_states_them():
    class Wider(BertBackbone):
        pass

    assert registry.sizes()["bert_tiny_en_uncased"] is BertBackbone
    Wider.SIZES = {"wider": {}}
    assert registry.sizes()["wider"] is Wider


def test_more_signs_win(tmp_path):
    plain = make_folder(tmp_path / "plain")
    special = make_folder(tmp_path / "special", names=(QUERY, "fit_dense.weight"))
    assert Source(plain).recognise()[0] is BertBackbone
    assert Source(special).recognise()[0] is BertBackbone
    tiny = model(
        "Tiny", lambda checkpoint: match_score(checkpoint, "tiny", [QUERY, "fit_dense.weight"])
    )
    assert Source(plain).recognise()[0] is BertBackbone
    assert Source(special).recognise()[0] is tiny
    assert Source(special).recognise(BertBackbone)[0] is BertBackbone


def test_own_tensors_count_where_nothing_is_stated(tmp_path):
    plain = make_folder(tmp_path / "plain")
    own = make_folder(tmp_path / "own", names=(f"tiny.{QUERY}", "fit_dense.weight"))
    stated = make_folder(tmp_path / "stated", '{"model_type": "tiny"}', ["fit_dense.weight"])
    how = {"model_type": "tiny", "tensors": [QUERY], "prefix": "tiny.", "own": "^fit_dense"}
    assert [match_score(checkpoint, **how) for checkpoint in (plain, own, stated)] == [1, 2, STATED]
    how["refine"] = lambda checkpoint, actual: actual + len(checkpoint.tensors)
    assert [match_score(checkpoint, **how) for checkpoint in (plain, own, stated)] == [
        2,
        4,
        STATED + 1,
    ]
    assert match_score(stated, **how | {"model_type": "other"}) == 0


def test_a_stated_model_type_beats_names(tmp_path):
    stated = make_folder(tmp_path, '{"model_type": "bert"}', names=(QUERY, "fit_dense.weight"))
    model("Tiny", lambda checkpoint: match_score(checkpoint, "tiny", [QUERY, "fit_dense.weight"]))
    model("Eager", lambda checkpoint: 5)
    assert Source(stated).recognise()[0] is BertBackbone
    assert match_score(stated, ("roberta", "bert"), []) == STATED
    assert match_score(stated, ("roberta", "camembert"), [QUERY]) == 0


def test_of_two_networks_one_is_asked_for(tmp_path):
    checkpoint = make_folder(tmp_path, '{"model_type": "twins"}')
    one = model("One", lambda checkpoint: match_score(checkpoint, "twins", []))
    other = model("Other", lambda checkpoint: match_score(checkpoint, "twins", []))
    with pytest.raises(CheckpointError, match=r"several models.*\['One', 'Other'\]"):
        Source(checkpoint).recognise()
    with pytest.raises(ValueError, match=r"several models.*\['One', 'Other'\]"):
        Backbone.from_preset(tmp_path)
    assert Source(checkpoint).recognise(one)[0] is one
    assert Source(checkpoint).recognise(other)[0] is other
    with pytest.raises(CheckpointError, match="BertBackbone can load: it is one of One or Ot"):
        Source(checkpoint).recognise(BertBackbone)


def test_of_two_networks_a_task_takes_the_one_with_its_head(tmp_path):
    checkpoint = make_folder(tmp_path, '{"model_type": "twins"}')
    one = model("One", lambda checkpoint: match_score(checkpoint, "twins", []))
    other = model("Other", lambda checkpoint: match_score(checkpoint, "twins", []))
    one.PRETRAINING_HEADS = {"replaced_logits": "replaced"}
    other.PRETRAINING_HEADS = {"token_logits": "token"}
    assert Source(checkpoint).recognise(kind="replaced")[0] is one
    assert Source(checkpoint).recognise(kind="token")[0] is other
    for kind in (None, "next_sentence"):
        with pytest.raises(CheckpointError, match="several models"):
            Source(checkpoint).recognise(kind=kind)


def test_of_a_class_and_its_subclass_the_class_is_taken(tmp_path):
    checkpoint = make_folder(tmp_path, '{"model_type": "kin"}')
    base = model("Base", lambda checkpoint: match_score(checkpoint, "kin", []))

    class Kin(base):
        CONVERTERS = dict(base.CONVERTERS)

    assert Source(checkpoint).recognise()[0] is Source(checkpoint).recognise(base)[0] is base
    assert Source(checkpoint).recognise(Kin)[0] is Kin


@pytest.mark.parametrize(
    "config, tensor, what",
    [
        ('{"model_type": "mobilebert"}', QUERY, "MobileBERT, a BERT with bottlenecks"),
        ('{"model_type": "deberta"}', QUERY, "DeBERTa's first version"),
        ('{"model_type": "camembert"}', f"roberta.{QUERY}", "CamemBERT, a RoBERTa for French"),
        ("{}", "deberta.encoder.layer.0.attention.self.in_proj.weight", "DeBERTa's first version"),
        ("{}", f"mobilebert.{QUERY}", "MobileBERT"),
    ],
)
def test_a_relative_is_refused_by_saying_what_it_is(tmp_path, config, tensor, what):
    checkpoint = make_folder(tmp_path, config, names=(tensor,))
    for cls in (object, BertBackbone):
        with pytest.raises(CheckpointError, match=f"can load: it is {what}"):
            Source(checkpoint).recognise(cls)


def test_a_subclass_reads_its_bases_checkpoints_if_asked_for(goldens):
    class Mine(BertBackbone):
        pass

    assert type(Backbone.from_preset(goldens("bert"), load_weights=False)) is BertBackbone
    assert type(Mine.from_preset(goldens("bert"), load_weights=False)) is Mine


def test_former_names_warn():
    """For one release."""
    with pytest.warns(DeprecationWarning, match="signs is deprecated: use match_score"):
        assert converters.signs is match_score
    backbone = BertBackbone(10, **SIZES)
    task = TextClassifier(backbone, num_classes=2)
    with pytest.warns(DeprecationWarning, match="over is deprecated: use with_backbone"):
        assert task.over(backbone, None).num_classes == 2
