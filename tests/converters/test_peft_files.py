"""Adapters of peft: its own outputs for three of LoRA, and each part of the sum by itself."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_lm import models, tasks
from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.converters.peft_files import ENTRIES
from keras_lm.tokenizers import Tokenizer

pytestmark = pytest.mark.eager

# What peft 0.21 writes for LoRA.
WRITTEN = [
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "init_lora_weights",
    "kasa_config",
    "layer_replication",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_bias",
    "lora_dropout",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "modules_to_save",
    "monteclora_config",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "target_modules",
    "target_parameters",
    "task_type",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "use_rslora",
    "velora_config",
]
OTHERS = [
    "PROMPT_TUNING",
    "MULTITASK_PROMPT_TUNING",
    "P_TUNING",
    "PREFIX_TUNING",
    "ADALORA",
    "BOFT",
    "ADAPTION_PROMPT",
    "IA3",
    "LOHA",
    "LOKR",
    "OFT",
    "POLY",
    "LN_TUNING",
    "VERA",
    "FOURIERFT",
    "XLORA",
    "HRA",
    "VBLORA",
    "CPT",
    "MISS",
    "RANDLORA",
    "ROAD",
    "SHIRA",
    "C3A",
]
QUERY = "bert.encoder.layer.1.attention.self.query"
LAYER = {"r": 2, "lora_alpha": 6, "peft_type": "LORA", "task_type": "SEQ_CLS"}


@pytest.fixture
def model(goldens, tmp_path):
    """A folder with a classifier."""
    return shutil.copytree(goldens("bert-seqcls"), tmp_path / "model")


@pytest.fixture
def adapter(model, tmp_path):
    """Writes an adapter of it, by default of one layer."""

    def adapter(tensors=None, folder=tmp_path / "adapter", **config):
        folder.mkdir(exist_ok=True)
        config = LAYER | {"base_model_name_or_path": str(model)} | config
        (folder / "adapter_config.json").write_text(json.dumps(config))
        tensors = pair(QUERY) if tensors is None else tensors
        tensors = {f"base_model.model.{name}": value for name, value in tensors.items()}
        save_file(tensors, folder / "adapter_model.safetensors")
        return folder

    return adapter


def pair(layer, inputs=48, outputs=48, rank=2):
    random = np.random.default_rng(inputs)
    a, b = random.normal(size=(rank, inputs)), random.normal(size=(outputs, rank))
    return {
        f"{layer}.lora_A.weight": a.astype("float32"),
        f"{layer}.lora_B.weight": b.astype("float32"),
    }


def change_of(folder, model, name=f"{QUERY}.weight"):
    """Return what an adapter adds to a tensor."""
    return open_checkpoint(folder).tensors[name] - load_file(model / "model.safetensors")[name]


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_outputs_of_peft(goldens, name):
    folder = goldens(f"peft-{name}")
    expected = np.load(folder / "expected.npz")
    ids = expected["token_ids"]
    if name == "bert":
        task, inputs = tasks.TextClassifier.from_preset(folder, tokenizer=None), {"token_ids": ids}
    elif name == "gpt2":
        task, inputs = tasks.CausalLM.from_preset(folder, tokenizer=None), {"token_ids": ids}
    else:
        task = tasks.Seq2SeqLM.from_preset(folder, tokenizer=None)
        inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
        inputs |= {f"{half}_padding_mask": np.ones_like(ids) for half in ("encoder", "decoder")}
    outputs = task(inputs)
    outputs = outputs["logits"] if isinstance(outputs, dict) else outputs
    np.testing.assert_allclose(outputs, expected["logits"], rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize(
    "config, scale",
    [
        ({}, 3),
        ({"use_rslora": True}, 6 / 2**0.5),
        ({"alpha_pattern": {"self.query": 1, "query": 4}}, 0.5),
        ({"alpha_pattern": {"uery": 1}}, 3),  # whole names alone
        ({"rank_pattern": {QUERY: 3}}, 2),
        ({"alpha_pattern": {f"^{QUERY}": 4}, "rank_pattern": {"key": 1}}, 2),
    ],
)
def test_scales(adapter, model, config, scale):
    a, b = pair(QUERY).values()
    np.testing.assert_allclose(
        change_of(adapter(**config), model), scale * b @ a, rtol=1e-4, atol=1e-5
    )


def test_beside_its_model_and_as_a_bin_of_another_name(adapter, model, goldens):
    beside = adapter(folder=model, base_model_name_or_path="nobody/knows")
    assert abs(change_of(beside, goldens("bert-seqcls"))).max() > 1
    classifier = tasks.TextClassifier.from_preset(beside, tokenizer=None)
    plain = tasks.TextClassifier.from_preset(goldens("bert-seqcls"), tokenizer=None)
    ids = {"token_ids": np.array([[5, 6, 7]])}
    assert abs(np.asarray(classifier(ids)) - np.asarray(plain(ids))).max() > 1e-3


def test_beside_another_model_than_its_own(adapter, model, tmp_path):
    other = shutil.copytree(model, tmp_path / "other")
    beside = adapter(folder=model, base_model_name_or_path=str(other))
    with pytest.warns(UserWarning, match="of the model '.*other', and another model lies beside"):
        open_checkpoint(beside)


def test_layers_that_were_trained_as_a_whole(adapter, model):
    tensors = pair(QUERY) | {
        "classifier.modules_to_save.weight": np.ones((5, 48), "float32"),
        "classifier.original_module.weight": np.zeros((3, 48), "float32"),
        "classifier.bias": np.arange(5, dtype="float32"),
        f"{QUERY}.base_layer.bias": np.ones(48, "float32"),
        f"{QUERY}.lora_B.bias": np.ones(48, "float32"),
    }
    folder = adapter(tensors)
    actual = open_checkpoint(folder).tensors
    assert (actual["classifier.weight"] == 1).all() and (actual[f"{QUERY}.bias"] == 4).all()
    task = tasks.TextClassifier.from_preset(folder, tokenizer=None)
    assert task.num_classes == 5


def test_a_model_without_the_prefix_of_its_names(adapter, model):
    tensors = load_file(model / "model.safetensors")
    names = [name for name in tensors if name.startswith("bert.")]
    short = {name.removeprefix("bert."): tensors[name] for name in names}
    save_file(short, model / "model.safetensors")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    head = {"classifier.weight": np.ones((2, 48), "float32"), "classifier.bias": np.ones(2, "f4")}
    folder = adapter(pair(QUERY) | head)
    change = open_checkpoint(folder).tensors[f"{QUERY[5:]}.weight"] - short[f"{QUERY[5:]}.weight"]
    a, b = pair(QUERY).values()
    np.testing.assert_allclose(change, 3 * b @ a, rtol=1e-4, atol=1e-5)
    assert isinstance(tasks.Task.from_preset(folder, tokenizer=None), tasks.TextClassifier)


def test_the_vocabulary_is_the_adapters_or_its_models(adapter, model):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    (model / "vocab.txt").write_text("\n".join([*vocabulary, "b"]))
    folder = adapter()
    assert Tokenizer.from_preset(folder).vocabulary_size == 7
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    assert Tokenizer.from_preset(folder).vocabulary_size == 6
    with pytest.warns(UserWarning, match="the vocabulary has 6 entries"):
        task = tasks.TextClassifier.from_preset(folder)
    assert task.tokenizer.vocabulary_size == 6


def test_every_entry_has_a_word():
    assert not ENTRIES.unknown(dict.fromkeys(WRITTEN, 1))


@pytest.mark.parametrize("kind", OTHERS)
def test_other_adapters_are_refused_by_name(adapter, kind):
    with pytest.raises(CheckpointError, match=f"peft_type='{kind}'"):
        models.Backbone.from_preset(adapter(peft_type=kind))


def embedding(name):
    a, b = pair(name, 211).values()
    return {f"{name}.lora_embedding_A": a, f"{name}.lora_embedding_B": b}


REFUSED = {
    "pissa": ({"init_lora_weights": "pissa_niter_4"}, None, "init_lora_weights='pissa_niter_4'"),
    "loftq": ({"init_lora_weights": "loftq"}, None, "init_lora_weights='loftq'"),
    "tokens": ({"trainable_token_indices": [3]}, None, "trainable_token_indices="),
    "parameters": ({"target_parameters": ["a"]}, None, "target_parameters="),
    "replication": ({"layer_replication": [[0, 2]]}, None, "layer_replication="),
    "rank": ({"r": 0}, None, "r=0"),
    "pattern": ({"rank_pattern": {"(a+)+b": 2}}, None, "rank_pattern="),
    "no model": ({"base_model_name_or_path": None}, None, "names no base_model_name_or_path"),
    "no folder": ({"base_model_name_or_path": "/no/such folder"}, None, "there is no such folder"),
    "another model's": ({}, pair("bert.encoder.layer.9.attention.self.query"), "such a layer"),
    "other sizes": ({}, pair(QUERY, 47), "whose weight is"),
    "half": ({}, {f"{QUERY}.lora_A.weight": np.ones((2, 48), "f4")}, "without matrices A and B"),
    "unknown part": ({}, {f"{QUERY}.lora_C.weight": np.ones((2, 48), "f4")}, "lora_C.weight"),
    "tied": (
        {"auto_mapping": {"base_model_class": "BertForMaskedLM"}},
        embedding("bert.embeddings.word_embeddings"),
        "whose output matrix is the same",
    ),
}


@pytest.mark.parametrize("config, tensors, message", REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_is_named(adapter, config, tensors, message):
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(adapter(tensors, **config))


def test_an_unknown_entry_is_named(adapter):
    with pytest.warns(UserWarning, match="use_novelty"):
        open_checkpoint(adapter(use_novelty=True))


def test_a_model_that_names_itself_is_not_opened_for_ever(adapter, tmp_path):
    folder = adapter(base_model_name_or_path=str(tmp_path / "adapter"))
    with pytest.raises(CheckpointError, match="there is no such folder"):
        open_checkpoint(folder)
