"""Reformer against Hugging Face's, and its gradients, whose inputs are computed again."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.models import Backbone, ReformerBackbone
from keras_lm.models.reformer_attention import HashedAttention, LocalAttention, ascending
from keras_lm.models.reformer_layers import through_reversible
from keras_lm.models.sizes import transformer_size, without_weights
from keras_lm.presets.argument_ranges import check_claims
from keras_lm.training import AdamW, fit_windows

TINY = transformer_size(
    40, 2, 16, 2, 24, local_chunk_length=4, lsh_chunk_length=4, max_sequence_length=64
)
IDS = np.random.default_rng(1).integers(1, 40, (2, 19)).astype("int32")


def make(**arguments):
    keras.utils.set_random_seed(4)
    backbone = ReformerBackbone(**TINY | arguments)
    rng = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign_add(rng.normal(size=weight.shape, scale=0.2))
    return backbone


# === The reference ===


@pytest.mark.parametrize("name", ["lsh-2d-buckets", "mixed", "mlm", "odd-length"])
def test_equal_to_the_reference(goldens, name, assert_equal):
    """In float64, since the reference's own float32 differs by 4e-3 where tokens are alone."""
    folder = goldens(f"reformer-{name}")
    cls = tasks.MaskedLM if name == "mlm" else tasks.CausalLM
    with pytest.warns(UserWarning, match="there is no vocabulary"):
        task = cls.from_preset(folder, dtype="float64")
    assert type(task.backbone) is ReformerBackbone
    arrays = np.load(folder / "expected.npz")
    mask = arrays["in.attention_mask"]
    rotations = [arrays[key] for key in sorted(arrays) if "rotations" in key]
    inputs = {"token_ids": arrays["in.input_ids"], "padding_mask": mask, "rotations": rotations}
    computed = task.backbone.compute(inputs)
    is_real = mask[..., None]  # of padding it is no use
    states = np.stack(computed["hidden_states"])
    assert_equal(states * is_real, arrays["out64.hidden_states"][:, :, : mask.shape[1]] * is_real)
    assert_equal(task.head(computed) * is_real, arrays["out64.logits"] * is_real)


@pytest.mark.parametrize("is_there", [True, False])
def test_biases_of_either_version(variant, recwarn, is_there):
    """Transformers 5 adds `lm_head.decoder.bias`, and leaves the other as it was drawn."""
    rng = np.random.default_rng(3)
    biases = {"lm_head.decoder.bias": rng.normal(size=180), "lm_head.bias": rng.normal(size=180)}
    rest = {name: bias for name, bias in biases.items() if is_there or "decoder" not in name}
    folder = variant("reformer-mlm", {}, lambda name: None if name in biases else name, rest)
    task = tasks.MaskedLM.from_preset(folder, tokenizer=None)
    expected = next(iter(rest.values()))
    np.testing.assert_allclose(task.head.logits.bias, expected, rtol=1e-6)
    assert not [w for w in recwarn if "left over" in str(w.message)]


def heads_of(variant, kind, **config):
    """A folder with a head of Hugging Face's of random numbers, and these."""
    rng = np.random.default_rng(3)
    shapes = {
        "sequence": {
            "classifier.dense.weight": (48, 96),
            "classifier.dense.bias": (48,),
            "classifier.out_proj.weight": (3, 48),
            "classifier.out_proj.bias": (3,),
        },
        "question": {"qa_outputs.weight": (2, 96), "qa_outputs.bias": (2,)},
    }[kind]
    more = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    folder = variant(
        "reformer-mlm", config, lambda name: name if "lm_head" not in name else None, more
    )
    return folder, more


@pytest.mark.filterwarnings("ignore")
def test_published_classifier(variant):
    architectures = ["ReformerForSequenceClassification"]
    folder, head = heads_of(variant, "sequence", architectures=architectures)
    task = tasks.TextClassifier.from_preset(folder)
    x = task.backbone({"token_ids": IDS})["sequence_output"][:, 0].numpy()
    x = np.tanh(x @ head["classifier.dense.weight"].T + head["classifier.dense.bias"])
    logits = x @ head["classifier.out_proj.weight"].T + head["classifier.out_proj.bias"]
    np.testing.assert_allclose(task({"token_ids": IDS}), logits, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_published_classifier_of_a_causal_network(variant):
    architectures = ["ReformerForSequenceClassification"]
    folder, _ = heads_of(variant, "sequence", architectures=architectures, is_decoder=True)
    with pytest.raises(CheckpointError, match="its classifier reads the first token of a causal"):
        tasks.TextClassifier.from_preset(folder)


@pytest.mark.filterwarnings("ignore")
def test_published_question_answerer(variant):
    folder, head = heads_of(variant, "question", architectures=["ReformerForQuestionAnswering"])
    task = tasks.QuestionAnswerer.from_preset(folder)
    x = task.backbone({"token_ids": IDS})["sequence_output"].numpy()
    logits = x @ head["qa_outputs.weight"].T + head["qa_outputs.bias"]
    actual = task({"token_ids": IDS})
    np.testing.assert_allclose(actual["start_logits"], logits[..., 0], atol=1e-4)
    np.testing.assert_allclose(actual["end_logits"], logits[..., 1], atol=1e-4)


@pytest.mark.parametrize("name", ReformerBackbone.SIZES)
def test_published_sizes_may_be_asked_for(name):
    """A checkpoint of theirs, in which no tensor has as many rows as there are positions."""
    arguments = ReformerBackbone.SIZES[name]

    def shapes():
        backbone = ReformerBackbone(**arguments)
        assert backbone.max_sequence_length == arguments["max_sequence_length"]
        return {v.path: tuple(v.shape) for v in backbone.weights}

    checkpoint = type("", (), {"tensors": Shapes(without_weights(shapes)), "source": name})
    check_claims(checkpoint, {"class": "ReformerBackbone", "arguments": arguments})


class Shapes(dict):
    def shape(self, name):
        return self[name]


@pytest.mark.filterwarnings("ignore")
def test_configuration_without_lsh(variant):
    """As transformers writes one of local attention only, with null for the rest."""
    null = dict.fromkeys(
        [f"lsh_{n}" for n in ("attn_chunk_length", "num_chunks_before", "num_chunks_after")]
        + ["lsh_attention_probs_dropout_prob", "num_buckets", "hash_seed"]
    )
    kept = {"attn_layers": ["local"], "num_hidden_layers": 1} | null
    folder = variant("reformer-mlm", kept, lambda n: None if ".layers.1." in n else n)
    backbone = Backbone.from_preset(folder)
    assert len(backbone.blocks) == 1
    assert "lm_head.bias" in open_checkpoint(folder).tensors


def test_one_kind_of_attention_is_that_of_all_layers(variant):
    folder = variant("reformer-lsh-2d-buckets", {"attn_layers": ["lsh", "lsh", "lsh"]})
    assert len(Backbone.from_preset(folder).blocks) == 2


def test_each_layer_has_a_kind_of_attention(variant):
    stated = {"attn_layers": ["lsh", "local"], "num_hidden_layers": 4}
    folder = variant("reformer-mixed", stated)
    with pytest.raises(CheckpointError, match=r"num_hidden_layers=4, and .* attention of 2"):
        Backbone.from_preset(folder)


# === Texts of any length, with padding anywhere ===


@pytest.mark.eager
@pytest.mark.parametrize(
    ("length", "causal"),
    [(1, True), (19, True)]
    + [
        pytest.param(length, causal, marks=pytest.mark.slow)
        for length in (1, 3, 4, 5, 19, 64)
        for causal in (True, False)
    ],
)
def test_any_length(length, causal):
    backbone = make(causal=causal, num_lsh_chunks_after=1, num_hashes=2)
    ids = np.resize(IDS, (2, length))
    eager = backbone({"token_ids": ids})["sequence_output"]
    assert eager.shape == (2, length, 32)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def graph(ids):
        return backbone({"token_ids": ids})["sequence_output"]

    np.testing.assert_allclose(graph(ids), eager, atol=1e-5)
    np.testing.assert_allclose(graph(ids[1:]), eager[1:], atol=1e-5)  # a batch of another size


def test_padding_on_either_side_is_the_same():
    backbone = make()
    results = []
    for before, after in ((0, 5), (5, 0), (2, 3)):
        width = [(0, 0), (before, after)]
        ids, mask = np.pad(IDS, width, constant_values=9), np.pad(np.ones_like(IDS), width)
        x = backbone({"token_ids": ids, "padding_mask": mask})["sequence_output"]
        results.append(x[:, before : before + IDS.shape[1]])
    np.testing.assert_allclose(results[1], results[0], atol=1e-6)
    np.testing.assert_allclose(results[2], results[0], atol=1e-6)


def test_no_token_sees_a_later_one():
    backbone = make(num_hashes=3, lsh_attention_dropout=0.0)
    rotations = [block.attention.rotations for block in backbone.blocks[1:]]
    other = IDS.copy()
    other[:, 10:] = 3
    one, two = (
        backbone({"token_ids": ids, "rotations": rotations})["sequence_output"][:, :10]
        for ids in (IDS, other)
    )
    # Other later tokens may move a token to another chunk, and so what it sees of earlier ones.
    local = make(attention_layers=["local"])
    same, again = (local({"token_ids": ids})["sequence_output"][:, :10] for ids in (IDS, other))
    np.testing.assert_allclose(same, again, atol=1e-6)
    assert np.isfinite(one).all() and one.shape == two.shape


def test_buckets_are_chosen_by_length():
    backbone = make(max_sequence_length=4096, attention_layers=["lsh"], num_layers=1)
    attention = backbone.blocks[0].attention
    assert attention.bucket_sizes(8) == [4]
    assert attention.bucket_sizes(100) == [32]
    assert attention.bucket_sizes(256) == [8, 16]
    for length in (4, 8, 60, 64, 100, 128, 132, 248, 252, 256, 300, 4096):
        sizes = [int(size) for size in attention.bucket_sizes(tf.constant(length))]
        assert [size for size in sizes if size > 1] == attention.bucket_sizes(length)
        assert sum(size // 2 for size in sizes) < attention.most_columns()


def test_every_token_is_put_into_its_bucket():
    """Of pairs, the first number counts by ones; the largest side of a rotation is the bucket."""
    attention = HashedAttention(num_heads=1, head_dim=3, chunk_length=4, num_buckets=[4, 6])
    attention.build((None, None, 3))
    x = np.random.default_rng(0).normal(size=(1, 1, 8, 3)).astype("float32")
    mask = np.array([[1] * 7 + [0]], "int32")
    rotated = np.einsum("sh,hc->sc", x[0, 0], attention.rotations[0, :, 0])
    first, second = rotated[:, :2], rotated[:, 2:]
    of_first = np.argmax(np.concatenate([first, -first], axis=1), axis=1)
    of_second = np.argmax(np.concatenate([second, -second], axis=1), axis=1)
    actual = attention.buckets(x, mask, None, None)
    np.testing.assert_array_equal(actual[0, 0, 0], [*(of_first + 4 * of_second)[:7], 24])


def test_a_text_of_64k_tokens():
    backbone = make(
        num_layers=1,
        attention_layers=["lsh"],
        lsh_chunk_length=64,
        num_hashes=2,
        axial_shape=[256, 256],
        axial_dims=[8, 8],
        max_sequence_length=65536,
    )
    ids = np.resize(IDS, (1, 65536))
    out = backbone({"token_ids": ids})["sequence_output"]
    assert np.isfinite(out).all()
    # The order of tokens of one bucket is that of the text, however many there are.
    order = ascending(tf.constant(np.arange(65536) % 3, tf.int32))
    np.testing.assert_array_equal(order[:4], [0, 3, 6, 9])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"axial_shape": [8, 4], "axial_dims": [8, 8]}, "has 32 positions, fewer than"),
        ({"axial_shape": [8, 8], "axial_dims": [8, 9]}, "are 17 wide together"),
        ({"axial_shape": [8, 8]}, "pass lists of the same length"),
        ({"num_buckets": 7}, "num_buckets=7: pass even numbers"),
        ({"num_buckets": [4, 3]}, "pass even numbers"),
        ({"num_buckets": [4, "6"]}, "num_buckets=.*: pass a whole number of 2 or more"),
        ({"attention_layers": ["lsh", "full"]}, "'full' is unknown"),
        ({"num_lsh_chunks_before": -1}, "num_lsh_chunks_before=-1: pass"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@pytest.mark.parametrize("causal", [True, False])
def test_heads_need_their_direction(causal):
    with pytest.raises(ValueError, match=f"causal={causal}: this model has no head for"):
        make(causal=causal).make_head("token" if causal else "causal_lm")


# === The gradient ===


def gradients(backbone, reversible):
    """The outputs, and the gradients of all variables, by seeds that are the same in each call."""
    backbone.seed_generator.state.assign([7, 0])
    if backbone.dropout.rate:
        backbone.dropout.seed_generator.state.assign([7, 0])

    @tf.function(autograph=False)
    def compute():
        with tf.GradientTape() as tape:
            inputs = backbone.complete({"token_ids": IDS})
            x = backbone.forward(**inputs, training=True, is_reversible=reversible)
            x = tf.cast(x["sequence_output"], tf.float32)
            loss = tf.reduce_sum(x**3)
        return x, tape.gradient(loss, [v.value for v in backbone.trainable_variables])

    x, results = compute()
    return [x, *map(tf.convert_to_tensor, results)]


@pytest.mark.parametrize(
    ("dropout", "dtype"),
    [
        (0.3, "float32"),
        pytest.param(0.0, "float32", marks=pytest.mark.slow),
        pytest.param(0.0, "mixed_bfloat16", marks=pytest.mark.slow),
        pytest.param(0.3, "mixed_bfloat16", marks=pytest.mark.slow),
    ],
)
def test_gradients_equal_those_of_plain_backpropagation(dropout, dtype):
    rates = dict.fromkeys(["dropout", "local_attention_dropout", "lsh_attention_dropout"], dropout)
    backbone = make(num_layers=3, num_hashes=2, dtype=dtype, **rates)
    tolerance = 1e-4 if dtype == "float32" else 0.1
    for plain, again in zip(gradients(backbone, False), gradients(backbone, True), strict=True):
        scale = np.abs(plain).max()
        assert scale > 0
        np.testing.assert_allclose(again, plain, rtol=0, atol=tolerance * scale)


def test_nothing_that_is_drawn_is_kept():
    """Each draw has a seed that waits for its block: TensorFlow would merge equal ones."""
    backbone = make(dropout=0.3, num_layers=2)

    @tf.function(autograph=False)
    def compute():
        with tf.GradientTape() as tape:
            x = backbone({"token_ids": IDS}, training=True)["sequence_output"]
        return tape.gradient(x, [v.value for v in backbone.trainable_variables])

    draws = [
        op.inputs[0].name
        for op in compute.get_concrete_function().graph.get_operations()
        if op.type == "StatelessRandomGetKeyCounter"
    ]
    assert len(draws) >= 20 and len({*draws}) == len(draws)


@pytest.mark.slow
def test_frozen_weights_have_no_gradient():
    backbone = make()
    for block in backbone.blocks:
        block.attention.trainable = False
    plain, again = gradients(backbone, False), gradients(backbone, True)
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * np.abs(a).max())


@pytest.mark.thorough
def test_fit_in_both_ways(monkeypatch):
    """Losses of `fit` are those of plain backpropagation, dropout included."""

    def losses():
        task = tasks.CausalLM(make(dropout=0.2))
        task.compile(optimizer=keras.optimizers.SGD(0.1))
        packed = {"token_ids": IDS, "padding_mask": np.ones_like(IDS)}
        return task.fit(packed, epochs=3, batch_size=2, verbose=0).history["loss"]

    again = losses()

    def plain(blocks, x, y, mask, noise):
        for block, (seeds, rotations) in zip(blocks, noise, strict=True):
            x, y = block(x, y, mask, seeds=seeds, rotations=rotations)
        return x, y

    monkeypatch.setattr("keras_lm.models.reformer.through_reversible", plain)
    np.testing.assert_allclose(again, losses(), rtol=1e-5)
    assert through_reversible is not plain and again[-1] < again[0]


@pytest.mark.slow
@pytest.mark.eager
def test_a_killed_run_ends_in_the_same_weights(tmp_path, interrupt_before):
    """Dropout and the rotations, which are drawn in each step, go on where they were."""
    windows = tf.data.Dataset.from_tensor_slices(np.resize(IDS, (8, 18)))

    def fit(seed, **options):
        task = tasks.CausalLM(make(dropout=0.2, num_hashes=2))
        keras.utils.set_random_seed(seed)
        task.compile(optimizer=AdamW(0.01))
        fit_windows(task, windows, batch_size=2, epochs=2, minutes=0, verbose=0, **options)
        return task

    file = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(1, checkpoint=file, callbacks=[interrupt_before(5)])
    whole, parts = fit(1), fit(1, checkpoint=file)
    for one, other in zip(whole.weights, parts.weights, strict=True):
        np.testing.assert_array_equal(one, other)


# === Continuing texts ===


def test_a_text_in_parts_is_as_it_is_in_one():
    backbone = make(num_hashes=2)
    whole = backbone({"token_ids": IDS})
    first = backbone({"token_ids": IDS[:, :7]})
    second = backbone({"token_ids": IDS[:, 7:], "cache": first["cache"]})
    np.testing.assert_allclose(
        second["sequence_output"], whole["sequence_output"][:, 7:], atol=1e-5
    )
    for name, x in whole["cache"].items():
        np.testing.assert_array_equal(second["cache"][name], x)


@pytest.mark.thorough
def test_generation_is_that_of_the_text_so_far():
    task = tasks.CausalLM(make(num_hashes=2))
    (actual,) = task.generate({"token_ids": IDS[:1]}, max_new_tokens=6)
    ids = IDS[:1]
    for token in actual:
        logits = task({"token_ids": ids})
        assert np.argmax(logits[0, -1]) == token
        ids = np.append(ids, [[token]], axis=1).astype("int32")
    assert task.generate({"token_ids": IDS[:1]}, max_new_tokens=6, prompt_lookup=2) == [actual]


def test_preset(tmp_path):
    backbone = make(num_buckets=[2, 4], axial_shape=[8, 8], axial_dims=[4, 12])
    backbone.save_to_preset(tmp_path)
    again = Backbone.from_preset(tmp_path)
    assert json.dumps(again.get_config()) == json.dumps(backbone.get_config())
    inputs = {"token_ids": IDS}
    np.testing.assert_array_equal(
        again(inputs)["sequence_output"], backbone(inputs)["sequence_output"]
    )


# === JAX ===

JAX = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import sys
import jax
import numpy as np
import keras
from keras_lm.models import ReformerBackbone

keras.utils.set_random_seed(0)
backbone = ReformerBackbone(40, 2, 2, 16, 24, local_chunk_length=4, lsh_chunk_length=4,
                            num_hashes=2, dropout=0.3, max_sequence_length=64)
rng = np.random.default_rng(0)
for weight in backbone.trainable_weights:
    weight.assign_add(rng.normal(size=weight.shape, scale=0.2))
ids = rng.integers(1, 40, (2, 19)).astype("int32")
inputs = backbone.complete({"token_ids": ids})


def loss(values, is_reversible):
    mapping = list(zip(backbone.trainable_variables, values))
    with keras.StatelessScope(state_mapping=mapping):
        outputs = backbone.forward(**inputs, training=True, is_reversible=is_reversible)
    return (outputs["sequence_output"] ** 3).sum()


values = [v.value for v in backbone.trainable_variables]
gradient = jax.jit(jax.grad(loss), static_argnums=1)
for a, b in zip(gradient(values, False), gradient(values, True)):
    assert np.abs(a).max() > 0
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(a).max())


def memory(num_layers):  # what a step needs beside inputs and outputs, in numbers of a stream
    backbone = ReformerBackbone(40, num_layers, 1, 8, 8, attention_layers=["lsh"], dropout=0.3,
                                lsh_attention_dropout=0.3, max_sequence_length=2048)
    inputs = backbone.complete({"token_ids": np.ones((1, 2048), "int32")})

    def loss(values):
        mapping = list(zip(backbone.trainable_variables, values))
        with keras.StatelessScope(state_mapping=mapping):
            return backbone(inputs, training=True)["sequence_output"].sum()

    values = [v.value for v in backbone.trainable_variables]
    compiled = jax.jit(jax.grad(loss)).lower(values).compile()
    return compiled.memory_analysis().temp_size_in_bytes / (4 * 2048 * 8)


few, many = memory(2), memory(3)
assert many < few + 1, (few, many)
keras.config.disable_interactive_logging()
task = __import__("keras_lm").tasks.CausalLM(backbone)
packed = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
task.compile(optimizer=keras.optimizers.SGD(0.05))
losses = task.fit(packed, epochs=9, batch_size=2).history["loss"]
assert sum(losses[-3:]) < sum(losses[:3]), losses
np.save(sys.argv[1], backbone({"token_ids": ids})["sequence_output"])
"""


@pytest.mark.slow
def test_gradients_on_jax(tmp_path):
    pytest.importorskip("jax")
    command = [sys.executable, "-c", JAX, str(tmp_path / "out.npy")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert np.isfinite(np.load(tmp_path / "out.npy")).all()


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_more_chunks_beside_one_than_there_are(number):
    """As transformers slices them: a shift by more chunks than there are leaves all in place."""
    layer = LocalAttention(2, 4, chunk_length=2, chunks_before=4, chunks_after=3)
    chunks = np.arange(number * 2, dtype="float32").reshape(1, 1, number, 2, 1)
    shifted = [np.concatenate([chunks[:, :, i:], chunks[:, :, :i]], 2) for i in range(-4, 4)]
    np.testing.assert_array_equal(layer.near(chunks), np.concatenate(shifted, 3))
