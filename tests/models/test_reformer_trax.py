"""trax's checkpoints in all forms that it has written, made of the weights of a golden."""

import gzip
import io
import pickle

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.models import Backbone

# As trax writes them, by the macros of its own reformer_enwik8.gin; parts have a scope or a module.
GIN = """
import trax.layers

attn_kv = 12
n_hashes = 2
trax.layers.SelfAttention.chunk_len = 8
trax.layers.SelfAttention.n_chunks_before = 1
LSHSelfAttention.chunk_len = 8
LSHSelfAttention.n_buckets = 4
train/LSHSelfAttention.n_hashes = %n_hashes
LSHSelfAttention.n_parallel_heads = 1
ReformerLM.attention_type = \\
    [@SelfAttention,
     @LSHSelfAttention]
ReformerLM.d_attention_key = %attn_kv
ReformerLM.dropout = 0.05
ReformerLM.ff_activation = @trax.layers.Relu
"""


class History:
    """A class that a pickle names, and nothing looks up."""

    def __init__(self):
        self._values = {"train": {"loss": [(1, 2.5)]}}


def in_order(folder):
    """The nested weights of trax's `Serial`, with `()` for layers that have none."""
    tensors = open_checkpoint(folder).tensors

    def tensor(name):
        return tensors[name if name.startswith("lm_head") else f"reformer.{name}"]

    def norm(name):
        return tensor(f"{name}.weight"), tensor(f"{name}.bias")

    def dense(name):
        return tensor(f"{name}.weight").T, tensor(f"{name}.bias")

    blocks = []
    for i, kind in enumerate(open_checkpoint(folder).config["attn_layers"]):
        layer = f"encoder.layers.{i}"
        names = ["query_key", "value"] if kind == "lsh" else ["query", "key", "value"]
        heads = [tensor(f"{layer}.attention.self_attention.{n}.weight") for n in names]
        heads = [np.moveaxis(x.reshape(4, 12, 48), 2, 1) for x in heads]  # (N, D, H)
        heads.append(tensor(f"{layer}.attention.output.dense.weight").T.reshape(4, 12, 48))
        forward = f"{layer}.feed_forward"
        inner = (dense(f"{forward}.dense.dense"), (), (), dense(f"{forward}.output.dense"))
        inner = (norm(f"{forward}.layer_norm"), *inner, ())
        blocks += [((norm(f"{layer}.attention.layer_norm"),), tuple(heads)), ()]
        blocks += [[((), [(), (), inner])], ()]
    tables = tuple(tensor(f"embeddings.position_embeddings.weights.{i}")[None] for i in (0, 1))
    embedding = tensor("embeddings.word_embeddings.weight")
    end = (norm("encoder.layer_norm"), (), (tensor("lm_head.decoder.weight").T,
                                            tensor("lm_head.bias")), ())  # fmt: skip
    return ((), embedding, (), tables, (), tuple(blocks), (), *end)


def flat(weights):
    if isinstance(weights, np.ndarray):
        return [weights]
    return [array for part in weights for array in flat(part)]


FORMS = ["protocol 2", "protocol 4", "protocol 5", "flat", "apart"]


def write(folder, weights, form, gin=GIN):
    more = {"step": 7, "history": History(), "slots": None, "input_signature": (np.int32,)}
    if form.startswith("protocol"):
        data = pickle.dumps({"weights": weights, "loss_weights": (), **more}, int(form[-1]))
        (folder / "model.pkl").write_bytes(data)
    else:
        saved = {"flat_weights": flat(weights), "flat_state": [np.float32(1)], **more}
        if form == "apart":
            file = io.BytesIO()
            for array in saved["flat_weights"]:
                np.save(file, array)
            (folder / "model.weights.npy.gz").write_bytes(gzip.compress(file.getvalue()))
            saved["flat_weights"] = 2  # how well it is compressed
        (folder / "model.pkl.gz").write_bytes(gzip.compress(pickle.dumps(saved)))
    if gin:
        (folder / "config.gin").write_text(gin)
    return folder


@pytest.fixture(scope="module")
def weights(goldens):
    return in_order(goldens("reformer-mixed"))


@pytest.mark.parametrize("form", FORMS)
def test_the_same_arrays(weights, form, tmp_path):
    checkpoint = open_checkpoint(write(tmp_path, weights, form))
    assert checkpoint.format == "trax"
    for number, array in enumerate(flat(weights)):
        np.testing.assert_array_equal(checkpoint.tensors[str(number)], array)
    assert len(checkpoint.tensors) == number + 1


def test_equal_to_the_reference(weights, goldens, tmp_path, assert_equal):
    """The norms of trax have another epsilon than the golden, whose config.json states its own."""
    golden = goldens("reformer-mixed")
    write(tmp_path, weights, "apart")
    with pytest.warns(UserWarning, match="left over in the checkpoint are token_head/logits"):
        by_gin = Backbone.from_preset(tmp_path).get_config()
    (tmp_path / "config.gin").unlink()
    (tmp_path / "config.json").write_text((golden / "config.json").read_text())
    task = tasks.CausalLM.from_preset(tmp_path, dtype="float64", tokenizer=None)
    arrays = np.load(golden / "expected.npz")
    mask = arrays["in.attention_mask"]
    rotations = [arrays[key] for key in sorted(arrays) if "rotations" in key]
    inputs = {"token_ids": arrays["in.input_ids"], "padding_mask": mask, "rotations": rotations}
    logits = task.head(task.backbone.compute(inputs))
    assert_equal(logits * mask[..., None], arrays["out64.logits"] * mask[..., None])
    by_json = task.backbone.get_config()
    assert by_gin.pop("layer_norm_epsilon") == 1e-6 and by_gin.pop("dropout") == 0.05
    differs = {key for key in by_gin if by_gin[key] != by_json[key]}
    assert differs <= {"dtype", "hash_seed", "name"}


def test_learned_positions_and_bits(weights, tmp_path):
    """Without a grid, positions are a table; bfloat16 is saved as the bits that it has."""
    table = np.arange(64 * 48, dtype="float32").reshape(64, 48) / 64
    bits = (table.view("uint32") >> 16).astype("uint16")
    write(tmp_path, (*weights[:3], bits, *weights[4:]), "flat")
    backbone = tasks.CausalLM.from_preset(tmp_path, tokenizer=None).backbone
    assert backbone.get_config()["axial_shape"] is None and backbone.max_sequence_length == 64
    actual = backbone.weights_by_path["position_embedding/embeddings"]
    np.testing.assert_array_equal(actual, (table.view("uint32") >> 16 << 16).view("float32"))


@pytest.mark.parametrize(
    ("gin", "message"),
    [
        ("", "has no configuration: its arrays do not tell the lengths of chunks"),
        (GIN + "SelfAttention.share_qk = True\n", "only attention by hashing may share"),
        (GIN.replace("Relu", "Selu"), "ff_activation is 'Selu'; supported: Relu"),
    ],
)
def test_what_the_configuration_lacks(weights, tmp_path, gin, message):
    with pytest.raises(CheckpointError, match=message):
        Backbone.from_preset(write(tmp_path, weights, "flat", gin))


def test_other_arrays(weights, tmp_path):
    write(tmp_path, (*weights[:9], (np.zeros(3, "float32"),), *weights[9:]), "flat")
    with pytest.raises(CheckpointError, match="are not those of trax's ReformerLM"):
        Backbone.from_preset(tmp_path)


def test_several_models(weights, tmp_path):
    for name in ("model_1000.pkl", "model_2000.pkl"):
        write(tmp_path, weights, "protocol 4").joinpath("model.pkl").rename(tmp_path / name)
    with pytest.raises(CheckpointError, match=r"several models: model_1000\.pkl, model_2000\.pkl"):
        open_checkpoint(tmp_path)
    (tmp_path / "model_2000.pkl").rename(tmp_path / "model.pkl")
    assert open_checkpoint(tmp_path).format == "trax"


HOSTILE = {
    "runs": b"cos\nsystem\n(S'true'\ntR.",
    "bytes": b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".",
    "shape": pickle.dumps(np.zeros(4))[:-1].replace(b"\x04\x85", b"\x05\x85") + b".",
    "encoded": b"\x80\x02c_codecs\nencode\nX\x40\x00\x00\x00" + b"a" * 64 + b"q\x00(h\x00" * 9
    + b"X\x06\x00\x00\x00latin1tR.",
    "twice": b"\x80\x02}(X\x07\x00\x00\x00weights)" + b"q\x000h\x00h\x00\x86" * 60 + b"u.",
    "nothing": b"not a pickle",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_hostile_files(name, compress, tmp_path):
    ending = ".pkl" if compress is bytes else ".pkl.gz"
    (tmp_path / f"model{ending}").write_bytes(compress(HOSTILE[name]))
    with pytest.raises(CheckpointError):
        open_checkpoint(tmp_path)


def test_hostile_arrays(weights, tmp_path):
    write(tmp_path, weights, "apart")
    path = tmp_path / "model.weights.npy.gz"
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }\n"
    for data in (b"\x93NUMPY\x01\x00", b"no arrays", header % 2**40):
        start = b"\x93NUMPY\x01\x00" + len(data).to_bytes(2, "little")
        path.write_bytes(gzip.compress(start + data if data[:1] == b"{" else data))
        with pytest.raises(CheckpointError, match="is not a file of arrays"):
            open_checkpoint(tmp_path)
    path.write_bytes(gzip.compress(bytes(10**6)))
    with pytest.raises(CheckpointError, match="more than 100 times as large"):
        open_checkpoint(tmp_path)
    path.write_bytes(b"not gzipped")
    with pytest.raises(CheckpointError, match="is not gzipped"):
        open_checkpoint(tmp_path)
