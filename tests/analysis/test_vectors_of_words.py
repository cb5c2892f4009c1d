"""Vectors of words: where they are read, how they are compared and drawn."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm import analysis
from keras_lm.tasks import FeatureExtractor

TEXTS = ["the film was good", "A very good, nice film!"]
VERY = ["very", "good", ",", "nice", "film", "!"]
KINDS = [
    "GPT2Backbone",
    "XLNetBackbone",
    "ElmoBackbone",
    *tiny.thorough("BertBackbone", "T5EncoderBackbone", "GPTBackbone", "RobertaBackbone"),
]


@pytest.fixture
def extractor_of(backbone_of, tokenizer_of):
    def make(name, **arguments):
        return FeatureExtractor(
            backbone_of(name), tokenizer=tokenizer_of(tiny.MODELS[name][0]), **arguments
        )

    return make


@pytest.mark.eager
@pytest.mark.parametrize("name", KINDS)
def test_words_have_the_mean_of_their_pieces(name, extractor_of):
    task = extractor_of(name)
    actual = analysis.word_vectors(task, TEXTS)
    assert actual.words == ["the", "film", "was", "good", "A", *VERY]
    assert actual.texts.tolist() == [0] * 4 + [1] * 7
    assert actual.places.tolist() == [*range(4), *range(7)]
    # The shorter text is padded; alone it is not. Its pieces are cut by the tokenizer's own rule.
    packed = task.preprocess({"text": tf.constant(TEXTS[:1])})
    states = keras.Model(task.backbone.input, task.backbone.hidden_states)(
        task.backbone.complete(task.backbone.select_inputs(packed))
    )
    if name == "ElmoBackbone":
        word = np.arange(4)
    else:
        ids = task.tokenizer(TEXTS[:1])
        word = np.cumsum(task.tokenizer.word_starts(ids)[0].numpy()) - 1
    start = int(task.packer.spans(text=task.packer.ids(tf.constant(TEXTS[:1])))["text"][0][0])
    assert len(actual.layers) == len(states)
    for layer, state in zip(actual.layers, states, strict=True):
        text = np.asarray(state)[0, start : start + len(word)]
        expected = [text[word == number].mean(axis=0) for number in range(4)]
        np.testing.assert_allclose(layer[:4], expected, atol=2e-4)


@pytest.mark.eager
def test_lists_of_words_are_read_as_they_are(extractor_of):
    task = extractor_of("BertBackbone")
    actual = analysis.word_vectors(task, [["the film", "was"], ["good"]])
    assert actual.words == ["the film", "was", "good"]
    whole = analysis.word_vectors(task, ["the film was", "good"])
    np.testing.assert_allclose(actual.layers[1][1:], whole.layers[1][2:], atol=1e-5)


@pytest.mark.eager
def test_batches_make_no_difference(extractor_of):
    task = extractor_of("BertBackbone")
    one, all_ = (analysis.word_vectors(task, TEXTS, batch_size=size) for size in (1, 8))
    assert one.words == all_.words
    for a, b in zip(one.layers, all_.layers, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    chosen = all_.where([word == "good" for word in all_.words])
    assert chosen.words == ["good", "good"]
    vectors = analysis.vectors_of_word(task.backbone, TEXTS, "Good", 0, tokenizer=task.tokenizer)
    np.testing.assert_allclose(vectors, chosen.layers[0], atol=1e-6)


@pytest.mark.eager
def test_words_beyond_the_limit_are_left_out(extractor_of):
    actual = analysis.word_vectors(extractor_of("BertBackbone", sequence_length=32), ["good " * 40])
    assert 5 < len(actual.words) < 40  # 32 positions, of which the words have one or more each
    assert np.isfinite(actual.layers[-1]).all()


def test_what_cannot_be_read_is_refused(extractor_of, backbone_of):
    task = extractor_of("BertBackbone")
    with pytest.raises(ValueError, match="no tokenizer"):
        analysis.word_vectors(backbone_of("BertBackbone"), TEXTS)
    with pytest.raises(ValueError, match=r"texts\[1\].*no word 'the'"):
        analysis.vectors_of_word(task, TEXTS, "the")
    with pytest.raises(ValueError, match="layer=7"):
        analysis.vectors_of_word(task, TEXTS, "film", layer=7)
    with pytest.raises(ValueError, match="texts is empty"):
        analysis.word_vectors(task, [])


def test_neighbours_are_those_of_the_largest_cosine():
    table = np.array([[1.0, 0.0], [10.0, 1.0], [0.0, 1.0], [-1.0, 0.0]])
    (actual,) = analysis.nearest_neighbors(table[:1], table, 4)
    assert [place for place, _ in actual] == [0, 1, 2, 3]
    assert actual[3][1] == pytest.approx(-1)
    with pytest.raises(ValueError, match="number=5"):
        analysis.nearest_neighbors(table[:1], table, 5)


def test_ranks_correlate_as_in_scipy():
    stats = pytest.importorskip("scipy.stats")
    first, second = np.random.default_rng(0).integers(0, 9, (2, 50))  # with many ties
    expected = stats.spearmanr(first, second).statistic
    assert analysis.spearman(first, second) == pytest.approx(expected, abs=1e-9)
    with pytest.raises(ValueError, match="one value only"):
        analysis.spearman([1, 1], [1, 2])


def test_pairs_with_unknown_words_do_not_count():
    vectors = {"a": [1.0, 0.0], "b": [0.8, 0.6], "c": [0.0, 1.0]}
    pairs = [("a", "b"), ("a", "c"), ("a", "missing"), ("b", "c")]
    assert analysis.word_similarity(pairs, [3, 1, 9, 2], vectors) == (1.0, 3)
    assert analysis.word_similarity(pairs, [1, 3, 9, 2], vectors) == (-1.0, 3)


def test_a_rotation_is_recovered_under_noise():
    generator = np.random.default_rng(1)
    turn, _ = np.linalg.qr(generator.normal(size=(6, 6)))
    source = generator.normal(size=(200, 6))
    target = source @ turn + 0.01 * generator.normal(size=(200, 6))
    actual = analysis.rotation(source, target)
    np.testing.assert_allclose(actual, turn, atol=0.01)
    np.testing.assert_allclose(actual @ actual.T, np.eye(6), atol=1e-9)
    with pytest.raises(ValueError, match="shapes"):
        analysis.rotation(source, target[1:])


def test_principal_components_keep_variance():
    generator = np.random.default_rng(2)
    vectors = generator.normal(size=(100, 5)) * [9.0, 3.0, 1.0, 0.1, 0.1]
    points, shares = analysis.principal_components(vectors, 5)
    assert shares.sum() == pytest.approx(1) and (np.diff(shares) <= 0).all()
    assert points.var(axis=0).sum() == pytest.approx(vectors.var(axis=0).sum())
    assert abs(np.corrcoef(points[:, 0], vectors[:, 0])[0, 1]) > 0.99
    with pytest.raises(ValueError, match="number=6"):
        analysis.principal_components(vectors, 6)


@pytest.mark.slow  # scikit-learn alone takes seconds to import
def test_t_sne_keeps_groups_together():
    pytest.importorskip("sklearn")
    generator = np.random.default_rng(3)
    vectors = generator.normal(size=(20, 8)) + 20 * np.repeat([[0], [1]], 10, axis=0)
    points = analysis.tsne(vectors)
    within = np.linalg.norm(points[:10] - points[:10].mean(axis=0), axis=1).max()
    assert np.linalg.norm(points[:10].mean(axis=0) - points[10:].mean(axis=0)) > within


def test_points_are_drawn_with_any_words(tmp_path):
    pytest.importorskip("matplotlib")
    words = ["$x_1$", "{\\bad", "bank"]
    picture = analysis.draw_points([[0, 0], [1, 1], [2, 0]], ["a", "b", "a"], words, "$")
    text = picture.save(tmp_path / "points.svg").read_text()
    assert "<svg" in text
    assert picture._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="labels has 1"):
        analysis.draw_points([[0, 0], [1, 1]], ["a"])


def test_the_projector_reads_what_is_written(tmp_path):
    columns = {"word": ["a\tb", "c\n"], "sense": ["x", ""]}
    analysis.write_projector(tmp_path / "new", [[1.0, 2.5], [3.0, 4.0]], columns)
    read = {path.name: path.read_text() for path in (tmp_path / "new").iterdir()}
    assert read["vectors.tsv"] == "1\t2.5\n3\t4\n"
    assert read["metadata.tsv"] == "word\tsense\na b\tx\nc\t \n"
    assert 'tensor_path: "vectors.tsv"' in read["projector_config.pbtxt"]
    analysis.write_projector(tmp_path / "new", [[1.0]], {"word": ["a"]})
    assert (tmp_path / "new" / "metadata.tsv").read_text() == "a\n"  # a single column has no header
    with pytest.raises(ValueError, match="columns"):
        analysis.write_projector(tmp_path, [[1.0]], {"word": []})
