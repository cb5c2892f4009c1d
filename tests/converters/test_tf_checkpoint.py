"""TensorFlow's two kinds of checkpoints: by variable name and by object."""

import json
import shutil
import time

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.converters import CheckpointError, open_checkpoint

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)
STATE = ["global_step", "beta1_power", "k/adam_m", "k/adam_v", "k/Adam", "k/Adam_1", "k/lamb_m"]


def save_named(folder, name="bert_model.ckpt", value=KERNEL, step=None):
    """Save a checkpoint as TF1 programs do, with what their optimizers leave behind."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("bert/pooler/dense/kernel", initializer=value)
        tf.compat.v1.get_variable("bert/adam_mixer/kernel", initializer=value)
        for state in STATE:
            tf.compat.v1.get_variable(state, initializer=np.float32(1))
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        saver.save(session, str(folder / name), global_step=step, write_meta_graph=False)
    return folder


def write_config(folder, name="bert_config.json"):
    (folder / name).write_text(json.dumps({"hidden_size": 2}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("config", ["bert_config.json", "albert_config.json", "config.json"])
def test_named_variables(tmp_path, config):
    save_named(tmp_path, "model.ckpt", step=12345)
    checkpoint = open_checkpoint(write_config(tmp_path, config))
    assert checkpoint.format == "google"
    assert checkpoint.config == {"hidden_size": 2}
    assert set(checkpoint.tensors) == {"bert/pooler/dense/kernel", "bert/adam_mixer/kernel"}
    assert checkpoint.tensors.shape("bert/pooler/dense/kernel") == (2, 3)
    np.testing.assert_array_equal(checkpoint.tensors["bert/pooler/dense/kernel"], KERNEL)


def test_objects(tmp_path):
    class Layer(tf.Module):
        def __init__(self):
            self.kernel = tf.Variable(KERNEL, name="pooler/kernel")
            self.bfloat16 = tf.Variable(tf.ones(2, tf.bfloat16))
            self.half = tf.Variable(tf.ones((), tf.float16))

    optimizer = tf.Module()
    optimizer.rate = tf.Variable(0.1)
    tf.train.Checkpoint(encoder=Layer(), optimizer=optimizer).save(
        str(tmp_path / "bert_model.ckpt")
    )
    checkpoint = open_checkpoint(write_config(tmp_path))
    assert checkpoint.format == "model_garden"
    assert set(checkpoint.tensors) == {"encoder/kernel", "encoder/bfloat16", "encoder/half"}
    assert checkpoint.variable_names["encoder/kernel"] == "pooler/kernel"
    np.testing.assert_array_equal(checkpoint.tensors["encoder/kernel"], KERNEL)
    assert checkpoint.tensors["encoder/bfloat16"].dtype == ml_dtypes.bfloat16
    assert checkpoint.tensors["encoder/half"].dtype == np.float16
    assert (
        checkpoint.tensors["encoder/half"].shape == checkpoint.tensors.shape("encoder/half") == ()
    )


def test_slots_of_objects_are_dropped(tmp_path):
    # As TensorFlow 2's first optimizers kept them: attached to the variable that they follow.
    names = {
        "model/kernel/.ATTRIBUTES/VARIABLE_VALUE": KERNEL,
        "model/kernel/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE": KERNEL,
        "model/layer/.ATTRIBUTES/OBJECT_CONFIG_JSON": "{}",
        "save_counter/.ATTRIBUTES/VARIABLE_VALUE": np.int64(1),
        "_CHECKPOINTABLE_OBJECT_GRAPH": b"",
    }
    values = [tf.constant(value) for value in names.values()]
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "ckpt-1"),
        tensor_names=list(names),
        shape_and_slices=[""] * len(names),
        tensors=values,
    )
    shutil.move(tmp_path / "ckpt-1.data-00000-of-00001", tmp_path / "x.data-00000-of-00001")
    shutil.move(tmp_path / "ckpt-1.index", tmp_path / "x.index")
    assert set(open_checkpoint(write_config(tmp_path)).tensors) == {"model/kernel"}


def test_several_checkpoints(tmp_path):
    save_named(tmp_path, "model.ckpt", KERNEL, step=1)
    save_named(tmp_path, "model.ckpt", KERNEL + 1, step=2)
    write_config(tmp_path)
    state = tmp_path / "checkpoint"
    state.write_text('model_checkpoint_path: "/of/another/machine/model.ckpt-1"\n')
    tensors = open_checkpoint(tmp_path).tensors
    np.testing.assert_array_equal(tensors["bert/pooler/dense/kernel"], KERNEL)

    state.write_text('model_checkpoint_path: "model.ckpt-3"\n')
    with pytest.raises(CheckpointError, match=r"names 'model.ckpt-3', which is not there"):
        open_checkpoint(tmp_path)
    state.unlink()
    with pytest.raises(CheckpointError, match=r"several .*\(model\.ckpt-1, model\.ckpt-2\)"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("lost", [".index", ".data-00000-of-00001"])
def test_missing_file(tmp_path, lost):
    write_config(save_named(tmp_path))
    (tmp_path / f"bert_model.ckpt{lost}").unlink()
    with pytest.raises(CheckpointError, match=f"{lost}, named by .*, is missing"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(("number", "message"), [(1, None), (20_000_000, "lacks .*weights_1:")])
def test_parts_of_a_table(tmp_path, number, message):
    name = "transformer/symbol_modality_4_3/shared/weights_"
    parts = {f"{name}0": KERNEL, f"{name}{number}": KERNEL}
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "model.ckpt"),
        tensor_names=list(parts),
        shape_and_slices=[""] * 2,
        tensors=list(parts.values()),
    )
    write_config(tmp_path, "hparams.json")
    start = time.monotonic()
    if message:
        with pytest.raises(CheckpointError, match=message):
            open_checkpoint(tmp_path)
    else:
        np.testing.assert_array_equal(
            open_checkpoint(tmp_path).tensors[name.removesuffix("_")], [*KERNEL, *KERNEL]
        )
    assert time.monotonic() - start < 2


def test_missing_shard(tmp_path):
    write_config(save_named(tmp_path))
    data = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    data.rename(tmp_path / "bert_model.ckpt.data-00000-of-00002")
    with pytest.raises(CheckpointError, match=r"data-00001-of-00002, named by .*, is missing"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("file", ["index", "data-00000-of-00001"])
@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"garbage" * 20]
)
def test_damaged_file(tmp_path, file, content):
    write_config(save_named(tmp_path))
    (tmp_path / f"bert_model.ckpt.{file}").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"bert_model\.ckpt"):
        checkpoint = open_checkpoint(tmp_path)
        for name in checkpoint.tensors:  # Damaged data shows when it is read.
            checkpoint.tensors[name]


def test_model_garden_encoder(goldens):
    checkpoint = open_checkpoint(goldens("model-garden") / "v1-pretrainer")
    assert checkpoint.format == "model_garden"
    assert len(checkpoint.tensors) == 48
    names = {name: path for path, name in checkpoint.variable_names.items()}
    query = names["transformer/layer_1/self_attention/query/kernel"]
    assert checkpoint.tensors.shape(query) == (16, 2, 8)
    assert checkpoint.tensors[names["word_embeddings/embeddings"]].shape == (50, 16)
