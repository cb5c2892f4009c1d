"""What Hugging Face's TensorFlow models saved: the same weights as its PyTorch files."""

import json
import re
import shutil

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_lm import tasks
from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.models import Backbone

# As `TFBertForSequenceClassification` and its like name their weights, in the group of a layer of
# the model → PyTorch's name, and whether the matrix is stored transposed.
PUBLISHED = {
    "bert/tf_bert_for_sequence_classification/bert/embeddings/word_embeddings/weight:0": (
        "bert.embeddings.word_embeddings.weight",
        False,
    ),
    "bert/tf_bert_for_sequence_classification/bert/embeddings/position_embeddings/embeddings:0": (
        "bert.embeddings.position_embeddings.weight",
        False,
    ),
    "bert/tf_bert_for_sequence_classification/bert/encoder/layer_._11/attention/self/query/"
    "kernel:0": (
        "bert.encoder.layer.11.attention.self.query.weight",
        True,
    ),
    "bert/tf_bert_for_sequence_classification/bert/encoder/layer_._0/output/LayerNorm/gamma:0": (
        "bert.encoder.layer.0.output.LayerNorm.weight",
        False,
    ),
    "classifier/tf_bert_for_sequence_classification/classifier/kernel:0": (
        "classifier.weight",
        True,
    ),
    "mlm___cls/tf_bert_for_pre_training/mlm___cls/predictions/transform/dense/kernel:0": (
        "cls.predictions.transform.dense.weight",
        True,
    ),
    "nsp___cls/tf_bert_for_pre_training/nsp___cls/seq_relationship/kernel:0": (
        "cls.seq_relationship.weight",
        True,
    ),
    "mlm___cls/tf_bert_for_masked_lm_1/mlm___cls/predictions/bias:0": (
        "cls.predictions.bias",
        False,
    ),
    "lm_head/tf_roberta_for_masked_lm/lm_head/layer_norm/beta:0": (
        "lm_head.layer_norm.bias",
        False,
    ),
    "distilbert/tf_distil_bert_for_sequence_classification/distilbert/transformer/layer_._5/"
    "attention/q_lin/kernel:0": ("distilbert.transformer.layer.5.attention.q_lin.weight", True),
    "pre_classifier/tf_distil_bert_for_sequence_classification/pre_classifier/bias:0": (
        "pre_classifier.bias",
        False,
    ),
    "albert/tf_albert_model/albert/encoder/albert_layer_groups_._0/albert_layers_._0/"
    "full_layer_layer_norm/beta:0": (
        "albert.encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm.bias",
        False,
    ),
    "transformer/tfgp_t2lm_head_model/transformer/wte/weight:0": ("transformer.wte.weight", False),
    "transformer/tfgp_t2lm_head_model/transformer/wpe/embeddings:0": (
        "transformer.wpe.weight",
        False,
    ),
    "transformer/tfgp_t2lm_head_model/transformer/h_._3/attn/c_attn/weight:0": (
        "transformer.h.3.attn.c_attn.weight",
        False,
    ),
    "shared/shared/shared/weight:0": ("shared.weight", False),
    "encoder/tf_t5_for_conditional_generation/encoder/block_._0/layer_._0/SelfAttention/"
    "relative_attention_bias/embeddings:0": (
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        False,
    ),
    "decoder/tf_t5_for_conditional_generation/decoder/block_._1/layer_._2/DenseReluDense/wi_0/"
    "kernel:0": ("decoder.block.1.layer.2.DenseReluDense.wi_0.weight", True),
    "decoder/tf_t5_for_conditional_generation/decoder/final_layer_norm/weight:0": (
        "decoder.final_layer_norm.weight",
        False,
    ),
    "lm_head/tf_t5_for_conditional_generation/lm_head/kernel:0": ("lm_head.weight", True),
    "model/model.shared/model.shared/embeddings:0": ("model.shared.weight", False),
    "model/tf_marian_mt_model/model/encoder/layers.2/self_attn/k_proj/kernel:0": (
        "model.encoder.layers.2.self_attn.k_proj.weight",
        True,
    ),
    "final_logits_bias/final_logits_bias:0": ("final_logits_bias", False),
    "transformer/tfxl_net_lm_head_model/transformer/layer_._1/rel_attn/r_s_bias:0": (
        "transformer.layer.1.rel_attn.r_s_bias",
        False,
    ),
    "transformer/tf_transfo_xllm_head_model/transformer/word_emb/emb_projs_._1:0": (
        "transformer.word_emb.emb_projs.1",
        True,
    ),
    "crit/tf_transfo_xllm_head_model/crit/out_layers_._0_._bias:0": (
        "crit.out_layers.0.bias",
        False,
    ),
}


def test_published_names(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    stored = {
        name: np.random.default_rng(i).normal(size=(2, 3)) for i, name in enumerate(PUBLISHED)
    }
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        for name, array in stored.items():
            file.create_dataset(name, data=array)
    tensors = open_checkpoint(tmp_path).tensors
    assert set(tensors) == {name for name, _ in PUBLISHED.values()}
    for name, (expected, is_transposed) in PUBLISHED.items():
        array = stored[name].T if is_transposed else stored[name]
        assert tensors.shape(expected) == array.shape
        np.testing.assert_array_equal(tensors[expected], array, err_msg=name)


def tf_name(name):
    """Return a tensor's name in TensorFlow's model, and whether it is stored transposed."""
    *path, leaf = name.split(".")
    place = "/".join(path)
    if name == "final_logits_bias":
        return f"{name}:0", False
    if name == "model.shared.weight":
        return "model.shared/model.shared/embeddings:0", False
    if leaf.isdigit():  # in a list
        return f"tf_model_class_1/{place}_._{leaf}:0", path[-1].endswith("_projs")
    is_norm = bool(path) and ("norm" in path[-1].lower() or path[-1].startswith("ln_"))
    tables = ("embeddings", "wte", "wpe", "shared", "tokens_embed", "positions_embed")
    tables += ("word_embedding", "emb_layers", "out_layers", "relative_attention_bias")
    is_table = any(part.endswith(tables) or part in tables for part in path)
    if leaf in ("weight", "bias") and is_norm:
        leaf = {"weight": "gamma", "bias": "beta"}[leaf]
    elif leaf == "weight" and not is_table and not path[-1].startswith("c_"):
        leaf = "kernel"  # a GPT's c_attn and its like are no dense layers
    place = re.sub(r"/(\d+)(/|$)", r"_._\1\2", place)
    place = re.sub(r"^cls/", "mlm___cls/", place)
    return f"tf_model_class_1/{place}/{leaf}:0", leaf == "kernel"


def without_class(name):
    return name if "model." in name or "/" not in name else name.partition("/")[2]


def write(folder, tensors, form):
    """Write tensors of PyTorch's as TensorFlow's models did; `form` is an ending and a number."""
    ending, number = form
    weight_map, paths = {}, []
    for i in range(number):
        shard = f"-{i + 1:05}-of-{number:05}" if number > 1 else ""
        stem = "tf_model" if ending == "h5" else "model"
        paths.append(folder / f"{stem}{shard}.{ending}")
        stored = {}
        for key in [*tensors][i::number]:
            name, is_transposed = tf_name(key)
            array = np.asarray(tensors[key])
            array = array.T if is_transposed else array
            array = array[np.newaxis] if ".c_" in key and key.endswith("bias") else array
            weight_map[name] = paths[-1].name
            group = key.split(".")[0] + "/" if form == ("h5", 1) else ""
            stored[group + name if group else without_class(name)] = np.array(array, order="C")
        if ending == "h5":
            with h5py.File(paths[-1], "w") as file:
                for name, array in stored.items():
                    file.create_dataset(name, data=array)
        else:
            save_file(stored, paths[-1], metadata={"format": "tf"})
    if number > 1:
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / f"{stem}.{ending}.index.json").write_text(json.dumps(index))
    return paths


@pytest.fixture
def tf_folder(goldens, tmp_path):
    def make(name, form=("h5", 1)):
        tensors = open_checkpoint(goldens(name)).tensors
        shutil.copy(goldens(name) / "config.json", tmp_path)
        return tmp_path, write(tmp_path, {key: tensors[key] for key in tensors}, form)

    return make


WHOLE, SHARDS, SAFE, SAFE_SHARDS = ("h5", 1), ("h5", 3), ("safetensors", 1), ("safetensors", 2)


@pytest.mark.filterwarnings("ignore:.*(left over in the checkpoint|new and random)")
@pytest.mark.parametrize(
    "name, form",
    [
        ("bert-seqcls", WHOLE),
        ("bert-seqcls", SHARDS),
        ("bert", SAFE),
        ("roberta-seqcls", SHARDS),
        ("distilbert", WHOLE),
        ("albert-seqcls", SAFE_SHARDS),
        ("electra-discriminator", WHOLE),
        ("gpt2", WHOLE),
        ("gpt2", SAFE),
        ("openai-gpt", SHARDS),
        ("t5", SHARDS),
        ("t5-v1_1", WHOLE),
        ("t5-v1_1", SAFE_SHARDS),
        ("marian", WHOLE),
        ("marian", SHARDS),
        ("marian", SAFE_SHARDS),
        ("xlnet", WHOLE),
        ("transfo-xl", WHOLE),
        ("transfo-xl", SAFE),
    ],
)
def test_equal_to_the_pytorch_file(goldens, tf_folder, name, form):
    folder, _ = tf_folder(name, form)
    tensors, expected = open_checkpoint(folder).tensors, open_checkpoint(goldens(name)).tensors
    assert set(tensors) == set(expected)
    for key in expected:
        assert tensors.shape(key) == expected[key].shape
        np.testing.assert_array_equal(tensors[key], expected[key], err_msg=key)
    seq2seq = ("t5", "t5-v1_1", "marian")
    cls = {"gpt2": tasks.CausalLM, "transfo-xl": tasks.CausalLM} | dict.fromkeys(
        seq2seq, tasks.Seq2SeqLM
    )
    cls = cls.get(name, tasks.TextClassifier if name.endswith("seqcls") else Backbone)
    arguments = {} if cls is Backbone else {"tokenizer": None}
    one, other = cls.from_preset(folder, **arguments), cls.from_preset(goldens(name), **arguments)
    for a, b in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore:.*left over in the checkpoint")
def test_pytorch_files_come_first(goldens, tf_folder):
    folder, (path,) = tf_folder("bert")
    shutil.copy(goldens("bert") / "model.safetensors", folder)
    path.write_bytes(b"damaged")
    Backbone.from_preset(folder)


def test_damaged_files_are_named(tf_folder):
    folder, (_, second, _) = tf_folder("roberta-seqcls", SHARDS)
    second.unlink()
    with pytest.raises(CheckpointError, match=second.name):
        Backbone.from_preset(folder)
    with h5py.File(second, "w"):
        pass
    with pytest.raises(CheckpointError, match=f"in {second.name}, which has no such tensor"):
        Backbone.from_preset(folder)
