"""Heads: what they do in numbers, how much a task needs them, and a model without some."""

import keras
import numpy as np
import pytest
import tiny

from keras_lm import analysis, tasks, training
from keras_lm.analysis.head_importance import is_punctuation, statistics_of_map
from keras_lm.models import BertBackbone, T5Backbone

LABELS = [0, 1, 0, 1]
FAMILIES = [
    "BertBackbone",
    "TransformerXLBackbone",
    "T5EncoderBackbone",
    *tiny.thorough("AlbertBackbone", "ErnieBackbone", "GPT2Backbone", "XLNetBackbone"),
]


@pytest.fixture
def new_backbone(tokenizer_of):
    """Return a function from a model's name to a new backbone, which a test may change."""
    return lambda name: tiny.make_backbone(name, tokenizer_of(tiny.MODELS[name][0]).vocabulary_size)


@pytest.fixture
def classifier(tokenizer_of):
    tokenizer = tokenizer_of("wordpiece")
    backbone = BertBackbone(tokenizer.vocabulary_size, 2, 2, 16, 24, dropout=0.0)
    for weight in backbone.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.2))
    return tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)


# === Statistics ===


def test_statistics_of_a_hand_made_map():
    tokens = ["[CLS]", "a", "##.", "[SEP]"]
    shifted = np.eye(4)[[1, 2, 3, 3]]  # each reads the next, the last itself
    even = np.full((4, 4), 0.25)
    actual = analysis.AttentionMap(tokens, tokens, np.stack([shifted, even])[np.newaxis])
    entropy, distance, previous, next_, same, first, after, punctuation = statistics_of_map(
        actual, {"[CLS]"}, {"[SEP]"}
    )[:, 0]
    np.testing.assert_allclose(entropy, [0, np.log(4)], atol=1e-9)
    np.testing.assert_allclose(distance, [0.75, 1.25])  # of all pairs: (3·2 + 2·4 + 6·1) / 16
    np.testing.assert_allclose(next_, [0.75, 3 / 16])
    np.testing.assert_allclose(previous, [0, 3 / 16])
    np.testing.assert_allclose(same, [0.25, 0.25])
    np.testing.assert_allclose(first, [0, 0.25])
    np.testing.assert_allclose(after, [0.5, 0.25])
    np.testing.assert_allclose(punctuation, [0.25, 0.25])


def test_a_memory_is_before_the_text():
    cells = np.eye(4)[[2, 3]][np.newaxis, np.newaxis]  # two columns of memory, then the text
    memory = analysis.AttentionMap(["a", "b"], ["(memory)"] * 2 + ["a", "b"], cells)
    values = statistics_of_map(memory, set(), set())[:, 0, 0]
    np.testing.assert_allclose(values, [0, 0, 0, 0, 1, 0, 0, 0], atol=1e-9)


def test_what_is_punctuation():
    assert [is_punctuation(t) for t in (",", "▁.", "##!", ".</w>", " -", "$")] == [True] * 6
    assert [is_punctuation(t) for t in ("a", "[SEP]", "▁", "", "7")] == [False] * 5


@pytest.mark.eager
@pytest.mark.parametrize("name", ["BertBackbone", "GPT2Backbone"])
def test_statistics_are_means_over_texts(name, backbone_of, tokenizer_of):
    backbone, tokenizer = backbone_of(name), tokenizer_of(tiny.MODELS[name][0])
    texts = ["the film was good", "great story ,"]
    actual = analysis.head_statistics(backbone, texts, tokenizer)
    maps = [analysis.attention(backbone, text, tokenizer=tokenizer).maps["self"] for text in texts]
    same = [np.trace(each.probabilities[..., -len(each.tokens) :], 0, 2, 3) for each in maps]
    expected = sum(same) / sum(len(each.tokens) for each in maps)
    np.testing.assert_allclose(actual.same, expected, atol=1e-5)
    assert actual.entropy.shape == (len(backbone.blocks), 2)
    if name == "GPT2Backbone":  # no token after it is read
        assert not actual.next.any()
    if name == "BertBackbone":
        assert (actual.separator > 0).all()


@pytest.mark.slow  # eight pictures
def test_statistics_are_drawn():
    pytest.importorskip("matplotlib")
    values = np.random.default_rng(0).random((8, 2, 3)).astype("float32")
    picture = analysis.HeadStatistics(*values).draw()
    assert picture._repr_png_().startswith(b"\x89PNG")


def test_statistics_of_what_is_not_there_are_refused(backbone_of, tokenizer_of):
    backbone, tokenizer = backbone_of("BertBackbone"), tokenizer_of("wordpiece")
    with pytest.raises(ValueError, match="texts must be a list"):
        analysis.head_statistics(backbone, "a text", tokenizer)
    with pytest.raises(ValueError, match="of='cross'"):
        analysis.head_statistics(backbone, ["a text"], tokenizer, of="cross")


# === Without some heads ===


@pytest.mark.eager
@pytest.mark.parametrize("name", FAMILIES)
def test_a_pruned_head_is_a_masked_one(name, new_backbone):
    backbone = new_backbone(name)
    layer = analysis.attention_layers(backbone)[0]
    inputs = {"token_ids": np.array([[4, 3, 5, 2]])}
    computed = backbone.compute(inputs)
    x, context = computed["hidden_states"][0], computed["attention_contexts"][0]
    x, context = backbone.blocks[0].attention_inputs(x, context)
    mask = np.array([0.0, 1.0], "float32")
    expected, _ = layer.forward(x, context._replace(head_mask=mask))
    before, _ = layer.forward(x, context)
    with analysis.masked_heads(backbone, [(0, 0)]):
        actual, _ = layer.forward(x, context)
    after, _ = layer.forward(x, context)
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    np.testing.assert_array_equal(before, after)
    assert np.abs(np.asarray(before) - np.asarray(actual)).max() > 1e-3


@pytest.mark.eager
def test_a_preset_is_without_a_pruned_head(classifier, tmp_path):
    packed = classifier.preprocess(tiny.GOOD)
    before = np.asarray(classifier(packed))
    analysis.prune_heads(classifier, [(0, 0), (1, 1)])
    expected = np.asarray(classifier(packed))
    assert np.abs(before - expected).max() > 1e-3
    classifier.save_to_preset(tmp_path / "preset")
    classifier.save_to_huggingface(tmp_path / "folder")
    classifier.save(tmp_path / "file.keras")
    for again in (
        tasks.TextClassifier.from_preset(tmp_path / "preset"),
        tasks.TextClassifier.from_preset(tmp_path / "folder"),
        keras.saving.load_model(tmp_path / "file.keras"),
    ):
        np.testing.assert_allclose(again(packed), expected, atol=1e-5)


@pytest.mark.eager
def test_both_halves_have_heads():
    backbone = T5Backbone(50, 1, 2, 16, 24, num_decoder_layers=2)
    assert len(analysis.attention_layers(backbone)) == 1
    for of in ("decoder", "cross"):
        layers = analysis.attention_layers(backbone, of)
        assert len(layers) == 2
    inputs = {"encoder_token_ids": np.array([[3, 4, 1]]), "decoder_token_ids": np.array([[0, 5]])}
    before = np.asarray(backbone(inputs)["sequence_output"])
    with analysis.masked_heads(backbone, [(1, 0)], of="cross"):
        assert np.abs(before - np.asarray(backbone(inputs)["sequence_output"])).max() > 1e-3
    with pytest.raises(ValueError, match="of='self'"):
        analysis.attention_layers(backbone, "self")


@pytest.mark.parametrize("name", ["ReformerBackbone", "AWDLSTMBackbone", "ElmoBackbone"])
def test_models_without_heads_say_so(name, backbone_of):
    with pytest.raises(ValueError, match="no attention with heads"):
        analysis.attention_layers(backbone_of(name))


def test_heads_that_are_not_there_are_refused(classifier):
    with pytest.raises(ValueError, match=r"\(2, 0\)"):
        analysis.prune_heads(classifier, [(2, 0)])
    training.enable_lora(classifier, 2, layers=["output"])
    with pytest.raises(ValueError, match="low-rank"):
        analysis.prune_heads(classifier, [(0, 0)])


# === Importance ===


@pytest.mark.eager
def test_importance_is_the_slope_of_the_loss(classifier):
    importance = analysis.head_importance(classifier, tiny.GOOD[:1], LABELS[:1])
    kernel = classifier.backbone.blocks[1].attention.output_dense.kernel
    packed, labels = classifier.preprocess(tiny.GOOD[:1]), np.array(LABELS[:1])
    values, losses = kernel.numpy(), []
    for factor in (0.99, 1.01):
        changed = values.copy()
        changed[:8] *= factor  # the rows that read head 0
        kernel.assign(changed)
        loss = classifier.compute_loss(packed, labels, classifier(packed), training=False)
        losses.append(float(loss))
    kernel.assign(values)
    slope = abs(losses[1] - losses[0]) / 0.02
    assert importance[1, 0] == pytest.approx(slope, rel=0.02)
    both = analysis.head_importance(classifier, tiny.GOOD[:2], LABELS[:2])
    other = analysis.head_importance(classifier, tiny.GOOD[1:2], LABELS[1:2])
    np.testing.assert_allclose(both, (importance + other) / 2, rtol=1e-4)


@pytest.mark.eager
def test_importance_for_other_tasks(tokenizer_of, new_backbone):
    tokenizer = tokenizer_of("bytebpe-gpt2")
    writer = tasks.CausalLM(new_backbone("GPT2Backbone"), tokenizer=tokenizer)
    assert (analysis.head_importance(writer, ["the film was good"]) > 0).all()
    tagger = tasks.TokenClassifier(
        new_backbone("BertBackbone"),
        tokenizer=tokenizer_of("wordpiece"),
        class_names=["O", "X"],
    )
    actual = analysis.head_importance(tagger, [["the", "film"]], [["O", "X"]])
    assert (actual > 0).all()


@pytest.mark.eager
def test_a_pruning_curve_begins_with_the_whole_model(classifier):
    films, labels = tiny.GOOD[:2], LABELS[:2]
    importance = np.array([[3.0, 1.0], [0.1, 0.2]])  # by its layer, head 0 of layer 1 is not last
    rows = analysis.pruning_curve(classifier, films, labels, importance, [0, 0.25])
    assert [row["heads"] for row in rows] == [0, 1]
    packed = classifier.preprocess(films)

    def loss():
        outputs = classifier(packed, training=False)
        return float(classifier.compute_loss(packed, np.array(labels), outputs, training=False))

    assert rows[0]["loss"] == pytest.approx(loss(), abs=1e-5)
    with analysis.masked_heads(classifier, [(0, 1)]):
        assert rows[1]["loss"] == pytest.approx(loss(), abs=1e-5)
    assert abs(rows[0]["loss"] - rows[1]["loss"]) > 1e-4
    with pytest.raises(ValueError, match="importance has the shape"):
        analysis.pruning_curve(classifier, films, labels, importance[:1])
    with pytest.raises(ValueError, match="shares"):
        analysis.pruning_curve(classifier, films, labels, importance, [2])
