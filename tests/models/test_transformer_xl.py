"""Transformer-XL against its authors' code and Hugging Face's port, and its memory."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.converters import CheckpointError
from keras_lm.layers import tensorflow as tensorflow_ops
from keras_lm.models import Backbone, TransformerXLBackbone
from keras_lm.models.sizes import transformer_size
from keras_lm.objectives import IGNORED, BitsPerToken, MaskedCrossentropy, PerplexityOfLosses
from keras_lm.tokenizers import TransformerXLTokenizer
from keras_lm.training import evaluate_streams, fit_streams

TINY = transformer_size(40, 2, 16, 2, 24, cutoffs=[10, 20], div_val=2, memory_length=5)


def make(**arguments):
    backbone = TransformerXLBackbone(**TINY | arguments)
    rng = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    return backbone


IDS = np.random.default_rng(1).integers(0, 40, (2, 9)).astype("int32")

# === The reference ===


@pytest.mark.parametrize("name", ["transfo-xl", "transfo-xl-clamp", "transfo-xl-pre_lnorm"])
def test_three_segments(goldens, name, assert_equal):
    with pytest.warns(UserWarning, match="there is no vocabulary"):
        task = tasks.CausalLM.from_preset(goldens(name))
    backbone, arrays = task.backbone, np.load(goldens(name) / "expected.npz")
    assert type(backbone) is TransformerXLBackbone
    memory = {}
    for number, ids in enumerate(arrays["in.segments"].astype("int32")):
        inputs = {"token_ids": ids} | memory
        computed = backbone.compute(inputs)
        expected = {
            "hidden_states": np.stack(computed["hidden_states"]),
            "attentions": np.stack(backbone.attention_probabilities(inputs)),
            "mems": np.transpose(computed["memory"], (1, 2, 0, 3)),  # layers and columns first
            "log_probs": np.asarray(task.head(computed)),
        }
        for output, actual in expected.items():
            assert_equal(actual, arrays[f"out.seg{number}.{output}"])
        # They are in the order of the clusters there.
        losses = -np.take_along_axis(expected["log_probs"][:, :-1], ids[:, 1:, None], axis=2)
        losses = np.sort(np.ravel(losses))
        assert_equal(losses, np.sort(np.ravel(arrays[f"out.seg{number}.token_losses"])))
        memory = {"memory": computed["memory"]}


@pytest.mark.parametrize(
    "name",
    [
        "tf1-transfo-xl-same-length",  # sees one token more than the others do
        "tf1-transfo-xl-tie_r-div1",
        "transfo-xl-authors",  # a model saved as a whole
        "transfo-xl-authors-state",  # untied biases' and lengths by a config.json
    ],
)
def test_segments_of_the_authors_code(goldens, name, assert_equal):
    arrays = np.load(goldens(name) / "expected.npz")
    task = tasks.CausalLM.from_preset(goldens(name), tokenizer=None)
    data = arrays["in.data"].astype("int32").T
    number = sum(key.endswith("token_losses") for key in arrays)
    length, memory = data.shape[1] // number, {}
    for segment in range(number):
        start = segment * length
        ids, labels = (data[:, start + i : start + i + length] for i in (0, 1))
        computed = task.backbone.compute({"token_ids": ids} | memory)
        losses = task.head(computed, {"labels": labels})
        assert_equal(np.transpose(losses), arrays[f"out.seg{segment}.token_losses"])
        expected = arrays[f"out.seg{segment}.mems"]
        actual = np.transpose(computed["memory"], (1, 2, 0, 3))
        assert_equal(actual[:, -expected.shape[1] :], expected)  # the authors' grows to its length
        memory = {"memory": computed["memory"]}


def test_a_classifier(goldens, assert_equal):
    arrays = np.load(goldens("transfo-xl-seqcls") / "expected.npz")
    task = tasks.TextClassifier.from_preset(goldens("transfo-xl-seqcls"), tokenizer=None)
    ids = arrays["in.input_ids"].astype("int32")
    actual = task({"token_ids": ids, "padding_mask": (ids != 0).astype("int32")})
    assert_equal(actual, arrays["out.logits"])


def test_sizes_that_the_tensors_contradict(goldens, tmp_path):
    shutil.copytree(goldens("tf1-transfo-xl-tie_r-div1"), tmp_path / "copy")
    config = json.loads((tmp_path / "copy/config.json").read_text())
    (tmp_path / "copy/config.json").write_text(json.dumps(config | {"n_layer": 4}))
    with pytest.raises(CheckpointError, match="n_layer=4, and its tensors 3"):
        Backbone.from_preset(tmp_path / "copy")


def test_preset(goldens, tmp_path):
    backbone = Backbone.from_preset(goldens("transfo-xl-clamp"))
    backbone.save_to_preset(tmp_path)
    again = Backbone.from_preset(tmp_path)
    assert again.get_config() == backbone.get_config()
    ids = IDS % 40
    for actual, expected in zip(
        keras.tree.flatten(again({"token_ids": ids})),
        keras.tree.flatten(backbone({"token_ids": ids})),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, expected)


# === Other arguments ===


@pytest.mark.parametrize(
    "arguments",
    [
        {"div_val": 1},
        {"div_val": 1, "embedding_dim": 8},
        {"cutoffs": []},
        {"tie_projections": [True, False, False]},
        {"tie_embeddings": False},
        {"tie_embeddings": False, "div_val": 1, "embedding_dim": 8},
        {"project_all": False, "div_val": 4},
        {"untie_biases": False, "head_dim": 6},
        {"memory_length": 0},
    ],
    ids=str,
)
def test_log_probabilities_of_all_words(arguments):
    backbone = make(**arguments)
    head = backbone.make_head("causal_lm")
    outputs = backbone({"token_ids": IDS})
    head(outputs)
    rng = np.random.default_rng(2)
    for weight in head.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    actual = np.exp(head(outputs))
    assert actual.shape == (2, 9, 40)
    np.testing.assert_allclose(actual.sum(-1), 1, atol=1e-5)
    assert np.std(actual[..., 30:]) > 1e-4


@pytest.mark.parametrize("arguments", [{}, {"div_val": 1}, {"cutoffs": [10, 20, 20]}], ids=str)
@pytest.mark.parametrize("labels", ["all", "frequent"])
def test_losses_without_other_words(arguments, labels):
    """They and their gradients are those of the log-probabilities of all words."""
    backbone = make(**arguments)
    head = backbone.make_head("causal_lm")
    states = backbone({"token_ids": IDS})["sequence_output"]
    head({"sequence_output": states})
    rng = np.random.default_rng(2)
    for weight in head.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    targets = rng.integers(0, 40 if labels == "all" else 10, IDS.shape).astype("int32")
    targets[0, :2] = IGNORED
    weights = [states, *(v.value for v in head.trainable_weights + backbone.trainable_weights)]

    def gathered(states):
        actual = head({"sequence_output": states})
        known = tf.cast(targets != IGNORED, "float32")
        return -known * tf.gather(actual, np.maximum(targets, 0), batch_dims=2)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None, 16]), tf.TensorSpec([None, None], tf.int32)]
    )
    def computed(states, targets):
        return head({"sequence_output": states}, {"labels": targets})

    results = []
    for losses in (gathered, lambda states: computed(states, targets)):
        with tf.GradientTape() as tape:
            tape.watch(states)
            actual = losses(states)
            total = tf.reduce_sum(actual * np.arange(18.0, dtype="float32").reshape(2, 9))
        gradients = tape.gradient(total, weights, unconnected_gradients="zero")
        results.append([actual, *gradients])
    for one, other in zip(*results, strict=True):
        one, other = (tf.convert_to_tensor(part).numpy() for part in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"cutoffs": [20, 10]}, "pass rising ids"),
        ({"cutoffs": [10, 50]}, "at most vocabulary_size=40"),
        ({"div_val": 8}, "pass a smaller div_val"),
    ],
)
def test_clusters_that_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        TransformerXLBackbone(**TINY | arguments)


def test_one_bool_for_each_cluster():
    with pytest.raises(ValueError, match="one bool for each of the 3 clusters"):
        make(tie_projections=[True]).make_head("causal_lm")


# === Memory ===


def test_a_text_in_segments_is_as_it_is_in_one():
    backbone = make(memory_length=9)  # all of it
    first = backbone({"token_ids": IDS[:, :4]})
    second = backbone({"token_ids": IDS[:, 4:], "memory": first["memory"]})
    whole = backbone({"token_ids": IDS})
    np.testing.assert_allclose(first["sequence_output"], whole["sequence_output"][:, :4], atol=1e-5)
    # The second segment remembers less of the zeros before the text than the whole does.
    assert np.ptp(second["sequence_output"] - whole["sequence_output"][:, 4:]) > 1e-3
    np.testing.assert_allclose(first["memory"][:, :, -4:], whole["memory"][:, :, :4], atol=1e-5)


def test_as_many_tokens_for_each():
    """With `same_length`, a segment's border makes no difference."""
    backbone = make(same_length=True, num_layers=1)
    first = backbone({"token_ids": IDS[:, :4]})
    second = backbone({"token_ids": IDS[:, 4:], "memory": first["memory"]})
    whole = backbone({"token_ids": IDS})
    joined = np.concatenate([first["sequence_output"], second["sequence_output"]], axis=1)
    np.testing.assert_allclose(joined, whole["sequence_output"], atol=1e-5)
    np.testing.assert_allclose(second["memory"], whole["memory"], atol=1e-5)


def test_without_a_memory_at_the_start():
    backbone = make(starts_empty=True, memory_length=9)
    first = backbone({"token_ids": IDS[:, :4]})
    second = backbone({"token_ids": IDS[:, 4:], "memory": first["memory"]})
    whole = backbone({"token_ids": IDS})
    joined = np.concatenate([first["sequence_output"], second["sequence_output"]], axis=1)
    np.testing.assert_allclose(joined, whole["sequence_output"], atol=1e-5)
    np.testing.assert_allclose(second["memory"], whole["memory"], atol=1e-5)
    shorter = make(starts_empty=True, memory_length=0)
    alone = shorter({"token_ids": IDS})["sequence_output"]
    np.testing.assert_allclose(whole["sequence_output"], alone, atol=1e-5)


def test_lengths_between_calls():
    backbone, lengths = make(), {"memory_length": 7, "clamp_length": 3, "same_length": True}
    before = backbone({"token_ids": IDS})
    backbone.set_lengths(**lengths)
    for actual in (backbone, TransformerXLBackbone.from_config(backbone.get_config())):
        assert {name: actual.config[name] for name in lengths} == lengths
    other = make(**lengths)
    for name, expected in other({"token_ids": IDS}).items():
        np.testing.assert_allclose(backbone({"token_ids": IDS})[name], expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"needs \('rows', 2, 7, 16\)"):
        backbone({"token_ids": IDS, "memory": before["memory"]})
    with pytest.raises(ValueError, match="it takes memory_length, clamp_length"):
        backbone.set_lengths(num_layers=3)
    with pytest.raises(ValueError, match="memory_length=-1: pass"):
        backbone.set_lengths(memory_length=-1)


@pytest.mark.parametrize("before, after", [(3, 0), (0, 2), (2, 2)])
def test_padding_beside_a_memory(before, after):
    backbone = make(same_length=True)
    memory = backbone({"token_ids": IDS[:, :4]})["memory"]
    alone = backbone({"token_ids": IDS[:, 4:], "memory": memory})
    width = [(0, 0), (before, after)]
    padded = backbone(
        {
            "token_ids": np.pad(IDS[:, 4:], width, constant_values=7),
            "padding_mask": np.pad(np.ones_like(IDS[:, 4:]), width),
            "memory": memory,
        }
    )
    actual = padded["sequence_output"][:, before : before + 5]
    np.testing.assert_allclose(actual, alone["sequence_output"], atol=1e-5)
    np.testing.assert_allclose(padded["memory"], alone["memory"], atol=1e-5)


def test_rows_of_different_length_beside_a_memory():
    backbone, mask = make(), np.ones_like(IDS)
    memory = backbone({"token_ids": IDS})["memory"]
    mask[0, 2:], mask[1, :6] = 0, 0
    outputs = backbone({"token_ids": IDS, "padding_mask": mask, "memory": memory})
    for row, real in ((0, slice(None, 2)), (1, slice(6, None))):
        alone = backbone({"token_ids": IDS[row : row + 1, real], "memory": memory[row : row + 1]})
        actual = outputs["sequence_output"][row : row + 1, real]
        np.testing.assert_allclose(actual, alone["sequence_output"], atol=1e-5)
        np.testing.assert_allclose(outputs["memory"][row : row + 1], alone["memory"], atol=1e-5)


def test_a_row_of_padding_leaves_the_memory_as_it_is():
    backbone = make()
    memory = backbone({"token_ids": IDS})["memory"]
    inputs = {"token_ids": IDS, "padding_mask": np.zeros_like(IDS), "memory": memory}
    np.testing.assert_array_equal(backbone(inputs)["memory"], memory)


def test_more_rows_than_before_begin_without_a_memory():
    backbone = make()
    memory = backbone({"token_ids": IDS[:1]})["memory"]
    outputs = backbone({"token_ids": IDS, "memory": memory})
    fresh = backbone({"token_ids": IDS[1:]})
    np.testing.assert_allclose(outputs["sequence_output"][1:], fresh["sequence_output"], atol=1e-5)
    with pytest.raises(
        ValueError, match=r"memory has a tensor of shape \(1, 2, 4, 16\), but needs"
    ):
        backbone({"token_ids": IDS, "memory": memory[:, :, 1:]})


@pytest.mark.thorough
def test_a_long_segment_in_blocks(monkeypatch):
    backbone = make(same_length=True, attention_dropout=0.0, dropout=0.0)
    memory = backbone({"token_ids": IDS})["memory"]
    head_mask = np.array([0.5, 2.0], "float32")

    def step(ids, memory):
        with tf.GradientTape() as tape:
            outputs = backbone({"token_ids": ids, "memory": memory})
            loss = tf.reduce_sum(outputs["sequence_output"] ** 3)
            computed = backbone.compute({"token_ids": ids, "memory": memory})
            context = computed["attention_contexts"][1]._replace(head_mask=head_mask)
            masked, _ = backbone.blocks[1](computed["hidden_states"][1], context)
        return outputs["sequence_output"], masked, tape.gradient(loss, backbone.trainable_variables)

    results = []
    monkeypatch.setattr(tensorflow_ops, "BLOCK", 4)  # the last is shorter
    for most in (0, 10**9):
        monkeypatch.setattr(tensorflow_ops, "MANY_SCORES", most)
        spec = tf.TensorSpec(IDS.shape, tf.int32), tf.TensorSpec(memory.shape)
        concrete = tf.function(step, autograph=False).get_concrete_function(*spec)
        graph = concrete.graph.as_graph_def()
        nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
        assert any("While" in node.op for node in nodes) == (most == 0)
        results.append(tf.nest.flatten(concrete(IDS, memory)))
    for one, other in zip(*results, strict=True):
        one, other = (tf.convert_to_tensor(part).numpy() for part in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"same_length": True},
        {"same_length": True, "counts_itself": False, "clamp_length": 2},
        {"starts_empty": True, "pre_norm": True, "untie_biases": False},
        {"pre_norm": True, "memory_length": 0},
        {"same_length": True, "memory_length": 1},
    ],
    ids=str,
)
def test_token_by_token_with_projected_keys(arguments):
    """It is what calls with the memory itself compute, also when slots are taken again."""
    backbone = make(**arguments)
    before = backbone({"token_ids": IDS[:, :3]})["memory"]
    slots = backbone.decoding_state(backbone.unpack_state(before))
    for column in range(3, 17):
        ids = IDS[:, [column % 9]]
        expected = backbone({"token_ids": ids, "memory": before})
        actual = backbone.forward(ids, np.ones_like(ids), slots)
        np.testing.assert_allclose(
            actual["sequence_output"], expected["sequence_output"], atol=1e-5
        )
        before, slots = expected["memory"], actual["memory"]


# === Tasks ===


@pytest.mark.thorough
def test_a_language_model_learns_from_streams_and_generates(tokenizer_of):
    tokenizer = tokenizer_of("words")
    backbone = make(vocabulary_size=tokenizer.vocabulary_size, cutoffs=[4, 9])
    assert backbone.carries_state
    task = tasks.CausalLM(backbone, tokenizer=tokenizer)
    windows = np.resize(np.arange(4, 12, dtype="int32"), (16, 7))
    history = fit_streams(
        task, tf.data.Dataset.from_tensor_slices(windows), batch_size=2, epochs=8, verbose=0
    )
    assert history["loss"][-1] < history["loss"][0]
    prompts = ["the film was", "good"]
    both = task.generate(prompts, max_new_tokens=4, verbose=0)
    alone = [task.generate(prompt, max_new_tokens=4)[0] for prompt in prompts]
    assert both == alone
    beams = task.generate(prompts, max_new_tokens=4, num_beams=3, verbose=0)
    assert len(beams) == 2


@pytest.mark.slow
def test_streams_teach_what_only_the_memory_holds():
    """Every other segment repeats the one before: 15 of 16 tokens are chance without a memory."""
    keras.utils.set_random_seed(1)
    halves = np.random.default_rng(0).integers(0, 12, (640, 8)).astype("int32")
    ids = np.repeat(halves[:, np.newaxis], 2, axis=1).ravel()
    windows = np.lib.stride_tricks.sliding_window_view(ids, 9)[::8][:1248]
    backbone = TransformerXLBackbone(12, 2, 2, 32, 64, memory_length=8, dropout=0.0)
    task = tasks.CausalLM(backbone)
    task.compile(optimizer=keras.optimizers.AdamW(3e-3))
    windows = tf.data.Dataset.from_tensor_slices(windows)
    history = fit_streams(task, windows, batch_size=16, epochs=12, verbose=0)
    assert history["loss"][-1] < 15 / 16 * np.log(12) - 0.2


def test_streams_are_read_as_one_text():
    """With as many tokens for each, windows with a carried memory are one long read.

    The tokens are bytes, as those of enwik8, and their bits are those of NumPy, of what one long
    read says of each byte. The last window of one stream is shorter.
    """
    text = "The memory crosses. É"
    tokenizer = TransformerXLTokenizer([str(i) for i in range(256)], None, rules="bytes")
    backbone = make(vocabulary_size=256, cutoffs=(), div_val=1, dropout=0.0, same_length=True)
    task = tasks.CausalLM(backbone, tokenizer=tokenizer)
    task.compile(metrics=[BitsPerToken(), PerplexityOfLosses()])
    ids = tokenizer(text).numpy().astype("int32")
    assert bytes(ids.tolist()) == text.encode() and len(ids) == 22
    for length, streams, last in ((4, 1, 21), (5, 2, 20)):
        cut = [ids[start : start + length + 1] for start in range(0, last, length)]
        spec = tf.TensorSpec([None], "int32")
        windows = tf.data.Dataset.from_generator(lambda cut=cut: cut, output_signature=spec)
        actual = evaluate_streams(task, windows, batch_size=streams, verbose=0)
        bits = []
        for read, after in zip(np.split(ids[:last], streams), np.split(ids[1 : last + 1], streams)):
            (logs,) = np.float64(task.head(backbone({"token_ids": read[None]})))  # (S, 256)
            bits.extend(-logs[np.arange(len(after)), after] / np.log(2))
        assert actual["bits_per_token"] == pytest.approx(np.mean(bits), rel=1e-4)
        assert actual["perplexity"] == pytest.approx(2 ** np.mean(bits), rel=1e-4)
    backbone.set_lengths(memory_length=2)
    assert evaluate_streams(task, windows, verbose=0)["loss"] != pytest.approx(actual["loss"])
    with pytest.raises(ValueError, match="do not fill batch_size=9 streams"):
        evaluate_streams(task, windows, batch_size=9)


def test_lengths_of_evaluation_at_load(goldens):
    lengths = {"memory_length": 9, "clamp_length": None, "same_length": False}
    task = tasks.CausalLM.from_preset(goldens("transfo-xl-clamp"), tokenizer=None, **lengths)
    assert {name: task.backbone.config[name] for name in lengths} == lengths
    assert task.backbone.compute({"token_ids": IDS})["memory"].shape[2] == 9


@pytest.mark.eager
def test_losses_by_the_head_or_by_logits(tokenizer_of):
    """`fit` and `score` ask the head for losses; other losses and metrics get logits."""
    tokenizer = tokenizer_of("words")
    backbone = make(vocabulary_size=tokenizer.vocabulary_size, cutoffs=[4, 9], dropout=0.0)
    task = tasks.CausalLM(backbone, tokenizer=tokenizer)
    texts = ["the film was good", "great story", "it"]
    metrics = task.evaluate(texts, batch_size=2, verbose=0, return_dict=True)
    scores = task.score(texts)
    total, number = scores["scores"].sum(), scores["num_tokens"].sum()
    assert metrics["perplexity"] == pytest.approx(np.exp(-total / number), rel=1e-4)
    task.compile(loss=MaskedCrossentropy(), metrics=task.default_metrics()[:0])
    by_logits = task.evaluate(texts, batch_size=2, verbose=0, return_dict=True)
    assert by_logits["loss"] == pytest.approx(metrics["loss"], rel=1e-5)
    choices = task.score_continuations(["the film"], [[" was good", " bad"]])
    whole = task.score(["the film was good", "the film"])["scores"]
    assert choices["scores"][0, 0] == pytest.approx(whole[0] - whole[1], rel=1e-3)


@pytest.mark.thorough
def test_a_server_takes_the_memory_and_returns_it(tokenizer_of, tmp_path):
    tokenizer = tokenizer_of("words")
    backbone = make(vocabulary_size=tokenizer.vocabulary_size, cutoffs=[4, 9])
    task = tasks.CausalLM(backbone, tokenizer=tokenizer)
    step = tf.saved_model.load(str(task.export(tmp_path))).signatures["next_token"]
    memory = keras.ops.zeros((2, 2, 5, 16))
    for column in range(3):
        ids = IDS[:, column : column + 1] % tokenizer.vocabulary_size
        outputs = backbone({"token_ids": ids, "memory": memory})
        served = step(
            token_ids=tf.constant(ids), padding_mask=tf.ones_like(ids), memory=tf.constant(memory)
        )
        np.testing.assert_allclose(served["logits"], task.head(outputs)[:, -1], atol=1e-5)
        np.testing.assert_allclose(served["memory"], outputs["memory"], atol=1e-5)
        memory = outputs["memory"]
