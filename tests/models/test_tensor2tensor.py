"""tensor2tensor's Transformer against its published formulas in NumPy, from checkpoints it writes.

No published file is in the repository: names and shapes follow the published code.
"""

import json
import warnings

import numpy as np
import pytest

from keras_lm.models import Backbone, Tensor2TensorBackbone, Tensor2TensorEncoderBackbone
from keras_lm.tasks import Seq2SeqLM
from keras_lm.tokenizers import SubwordTokenizer

ROWS, D, HEADS, INNER = 23, 12, 3, 20
SOURCE = np.array([[4, 7, 9, 11, 1], [20, 3, 1, 0, 0]])
TARGET = np.array([[0, 3, 9, 12], [0, 14, 8, 8]])


def make_tensors(pre_norm=True, shared=True, target_rows=ROWS, space=True, num_shards=16):
    """A random checkpoint of two blocks in the encoder, and three in the decoder."""
    random, tensors = np.random.default_rng(7), {}

    def add(name, *shape):
        tensors[f"transformer/{name}"] = random.normal(0, 0.3, shape).astype("float32")

    def add_table(name, rows):
        for i in range(num_shards):
            size = rows // num_shards + (i < rows % num_shards)
            add(f"symbol_modality_{rows}_{D}/{name}/weights_{i}", size, D)

    def add_norm(name):
        add(f"{name}/layer_norm/layer_norm_scale", D)
        add(f"{name}/layer_norm/layer_norm_bias", D)

    norm = "layer_prepostprocess" if pre_norm else "layer_postprocess"
    for half, number in (("encoder", 2), ("decoder", 3)):
        for i in range(number):
            layer = f"body/{half}/layer_{i}"
            parts = ["self_attention", "encdec_attention"][: 1 + (half == "decoder")]
            for part in parts:
                for matrix in ("q", "k", "v", "output_transform"):
                    add(f"{layer}/{part}/multihead_attention/{matrix}/kernel", D, D)
                add_norm(f"{layer}/{part}/{norm}")
            for matrix, shape in (("conv1", (D, INNER)), ("conv2", (INNER, D))):
                add(f"{layer}/ffn/{matrix}/kernel", *shape)
                add(f"{layer}/ffn/{matrix}/bias", shape[1])
            add_norm(f"{layer}/ffn/{norm}")
        if pre_norm:
            add_norm(f"body/{half}/{norm}")
    if space:
        add("body/target_space_embedding/kernel", 32, D)
    if shared:
        add_table("shared", ROWS)
    else:
        add_table("input_emb", ROWS)
        add_table("target_emb", target_rows)
        add_table("softmax", target_rows)
    return tensors


class Reference:
    """The program's forward pass, of whole targets."""

    def __init__(self, tensors, space=0):
        self.tensors = {name.removeprefix("transformer/"): t for name, t in tensors.items()}
        self.space = space or 0
        self.pre_norm = (
            "body/encoder/layer_prepostprocess/layer_norm/layer_norm_bias" in self.tensors
        )

    def table(self, *names):
        for name in names:
            results = [n for n in self.tensors if f"/{name}/weights_" in n]
            if results:
                return np.concatenate(
                    [self.tensors[n] for n in sorted(results, key=lambda n: int(n.split("_")[-1]))]
                )

    def embed(self, ids, *names):
        vectors = self.table(*names)[ids] * D**0.5 * (ids != 0)[..., None]
        number = D // 2
        scales = np.exp(np.arange(number) * -np.log(1e4) / (number - 1))
        time = np.arange(ids.shape[1])[:, None] * scales
        return vectors, np.concatenate([np.sin(time), np.cos(time)], axis=1)

    def norm(self, x, scope):
        tail = "layer_prepostprocess" if self.pre_norm else "layer_postprocess"
        scale, bias = (
            self.tensors[f"{scope}/{tail}/layer_norm/layer_norm_{part}"]
            for part in ("scale", "bias")
        )
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale + bias

    def part(self, x, scope, function):
        if self.pre_norm:
            return x + function(self.norm(x, scope))
        return self.norm(x + function(x), scope)

    def attention(self, x, memory, mask, scope):
        def heads(y, name):
            y = y @ self.tensors[f"{scope}/multihead_attention/{name}/kernel"]
            return y.reshape(*y.shape[:2], HEADS, D // HEADS).transpose(0, 2, 1, 3)

        query = heads(x, "q") * (D // HEADS) ** -0.5
        scores = query @ heads(memory, "k").swapaxes(2, 3) + np.where(mask, 0, -1e9)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ heads(memory, "v")
        mixed = mixed.transpose(0, 2, 1, 3).reshape(x.shape)
        return mixed @ self.tensors[f"{scope}/multihead_attention/output_transform/kernel"]

    def feed_forward(self, x, scope):
        kernels = [self.tensors[f"{scope}/conv{i}/kernel"] for i in (1, 2)]
        biases = [self.tensors[f"{scope}/conv{i}/bias"] for i in (1, 2)]
        return np.maximum(x @ kernels[0] + biases[0], 0) @ kernels[1] + biases[1]

    def __call__(self, source, target):
        real = (source != 0)[:, None, None, :]
        x, signal = self.embed(source, "shared", "input_emb")
        spaces = self.tensors.get("body/target_space_embedding/kernel", np.zeros((32, D)))
        x = x + spaces[self.space] + signal
        for i in range(2):
            scope = f"body/encoder/layer_{i}"
            part = f"{scope}/self_attention"
            x = self.part(x, part, lambda y, part=part: self.attention(y, y, real, part))
            part = f"{scope}/ffn"
            x = self.part(x, part, lambda y, part=part: self.feed_forward(y, part))
        encoded = self.norm(x, "body/encoder") if self.pre_norm else x
        x, signal = self.embed(target, "shared", "target_emb")
        x = x + signal
        before = np.tri(target.shape[1], dtype=bool)
        for i in range(3):
            scope = f"body/decoder/layer_{i}"
            part = f"{scope}/self_attention"
            x = self.part(x, part, lambda y, part=part: self.attention(y, y, before, part))
            part = f"{scope}/encdec_attention"
            x = self.part(x, part, lambda y, part=part: self.attention(y, encoded, real, part))
            part = f"{scope}/ffn"
            x = self.part(x, part, lambda y, part=part: self.feed_forward(y, part))
        x = self.norm(x, "body/decoder") if self.pre_norm else x
        return encoded, x @ self.table("shared", "softmax").T


KINDS = {
    "transformer_base": {},
    "transformer_base_v1": {"pre_norm": False, "num_shards": 1},
    "two tables": {"shared": False, "target_rows": 19, "num_shards": 3},
    "without a space": {"space": False, "shared": False},
}


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoint(kind, write_tf1, assert_equal, tmp_path):
    tensors = make_tensors(**KINDS[kind])
    slots = {f"training/{name}/Adam": tensor for name, tensor in tensors.items()}
    write_tf1(tmp_path, tensors | slots, "model.ckpt-250000")
    (tmp_path / "hparams.json").write_text(json.dumps({"num_heads": HEADS, "pos": "timing"}))
    space = 8 if KINDS[kind].get("space", True) else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of what is left over
        task = Seq2SeqLM.from_preset(tmp_path, tokenizer=None, target_space=space)
        encoder = Tensor2TensorEncoderBackbone.from_preset(tmp_path, target_space=space)
    assert type(task.backbone) is Tensor2TensorBackbone
    assert task.backbone.config["dropout"] == 0.1
    encoded, logits = Reference(tensors, space)(SOURCE, TARGET)
    mask = (SOURCE != 0).astype("int32")
    inputs = {"encoder_token_ids": SOURCE, "encoder_padding_mask": mask}
    assert_equal(task(inputs | {"decoder_token_ids": TARGET}), logits.astype("float32"))
    actual = encoder({"token_ids": SOURCE, "padding_mask": mask})["sequence_output"]
    assert_equal(np.asarray(actual)[mask > 0], encoded[mask > 0].astype("float32"))


def test_older_names(write_tf1, tmp_path):
    tensors = make_tensors()
    older = {
        name.replace("transformer/body", "transformer/parallel_0_5/transformer/body"): (
            tensor[None] if "conv1/kernel" in name else tensor
        )
        for name, tensor in tensors.items()
    }
    (tmp_path / "old").mkdir(), (tmp_path / "new").mkdir()
    write_tf1(tmp_path / "old", older | {"losses_avg/problem_0/total_loss": np.float32(1)})
    write_tf1(tmp_path / "new", tensors)
    one, other = (Backbone.from_preset(tmp_path / name, num_heads=HEADS) for name in ("old", "new"))
    for a, b in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    # Heads are 64 wide where nothing says so, and there is at least one.
    assert Backbone.from_preset(tmp_path / "new").config["num_heads"] == 1


@pytest.mark.eager
def test_strings_and_a_vocabulary(write_tf1, tmp_path):
    entries = ["<pad>", "<EOS>", *"abcdef\\_u;0123456789"]
    assert len(entries) == ROWS - 1
    tokenizer = SubwordTokenizer([*entries, "ab_"])
    write_tf1(tmp_path, make_tensors())
    tokenizer.save_assets(tmp_path)
    task = Seq2SeqLM.from_preset(tmp_path, num_heads=HEADS, sequence_length=8)
    assert type(task.tokenizer) is SubwordTokenizer
    packed = task.packer({"text": ["ab c"]})["encoder_token_ids"].numpy().tolist()
    assert packed == [[22, 4, 9, 1]]
    inputs, _ = task.packer.targets(["ab"])
    assert inputs["decoder_token_ids"].numpy().tolist() == [[0, 22]]


@pytest.mark.parametrize(
    ("hparams", "says"),
    [
        ({"self_attention_type": "dot_product_relative"}, "self_attention_type='dot_product_rel"),
        ({"pos": "emb"}, "pos='emb'"),
        ({"num_heads": 5}, "num_heads=5 does not divide"),
    ],
)
def test_other_settings_are_refused(hparams, says, write_tf1, tmp_path):
    write_tf1(tmp_path, make_tensors())
    (tmp_path / "hparams.json").write_text(json.dumps(hparams))
    with pytest.raises(ValueError, match=says):
        Backbone.from_preset(tmp_path)


def test_damaged_tables(write_tf1, tmp_path):
    tensors = make_tensors(num_shards=3)
    table = f"transformer/symbol_modality_{ROWS}_{D}/shared/weights_"
    write_tf1(tmp_path, {name: t for name, t in tensors.items() if name != table + "1"})
    with pytest.raises(ValueError, match=r"lacks .*weights_1"):
        Backbone.from_preset(tmp_path)
    other = table.replace(str(ROWS), "19")
    write_tf1(tmp_path, tensors | {f"{other}0": np.ones((19, D), "float32")})
    with pytest.raises(ValueError, match="does not say which is the source's"):
        Backbone.from_preset(tmp_path)


def test_target_space():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    with pytest.raises(ValueError, match="target_space=32 must be from 0 to 31"):
        Tensor2TensorBackbone(9, **sizes, target_space=32)
