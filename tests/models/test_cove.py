"""CoVe: the reference, other sizes, strings in, exports."""

import struct

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.converters import CheckpointError
from keras_lm.models import Backbone, CoveBackbone, RNNEncoderDecoderBackbone, WordVectorBackbone
from keras_lm.tasks import FeatureExtractor, Seq2SeqLM, Task, TextClassifier
from keras_lm.tokenizers import WordTokenizer

WORDS = ["<unk>", "<pad>", "the", "bank", "of", "river", "\U0001f600"]


@pytest.fixture(scope="module")
def reference(goldens):
    folder = goldens("cove")
    arrays = np.load(folder / "expected.npz")
    lengths = arrays["in.lengths"]
    mask = np.arange(arrays["in.ids"].shape[1]) < lengths[:, None]
    vectors = np.load(folder / "glove.npz")["vectors"]
    return folder, arrays, vectors, arrays["in.ids"], mask.astype("int32")


@pytest.fixture(scope="module")
def cove():
    return CoveBackbone(embedding_dim=6, hidden_dim=8, vocabulary_size=len(WORDS))


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer(WORDS, unknown_token="<unk>", pad_token="<pad>")


def assert_all_equal(backbone, inputs, arrays, assert_equal):
    inputs = backbone.complete(inputs)
    states = keras.Model(backbone.inputs, backbone.hidden_states)(inputs)
    assert_equal(backbone(inputs)["sequence_output"], arrays["out.layer1"])
    assert_equal(np.concatenate(states[1:], axis=-1), arrays["out.both"])
    assert_equal(np.concatenate(states, axis=-1), arrays["out.both_residual"])


def test_reference_over_vectors_and_over_ids(reference, assert_equal):
    folder, arrays, vectors, ids, mask = reference
    backbone = Backbone.from_preset(folder)
    assert type(backbone) is CoveBackbone
    assert_all_equal(
        backbone, {"word_vectors": vectors[ids], "padding_mask": mask}, arrays, assert_equal
    )
    with_table = backbone.with_word_vectors(WordVectorBackbone.from_vectors(vectors))
    inputs = {"token_ids": ids, "padding_mask": mask}
    assert_all_equal(with_table, inputs, arrays, assert_equal)
    copy = CoveBackbone.from_config(with_table.get_config())
    copy.set_weights(with_table.get_weights())
    assert_all_equal(copy, inputs, arrays, assert_equal)


@pytest.mark.eager
def test_vectors_beside_the_checkpoint_bring_strings(reference, assert_equal, tmp_path):
    folder, arrays, vectors, ids, mask = reference
    words = [f"w{i}" for i in range(2, len(vectors))]
    words = ["<unk>", "<pad>", *words]
    rows = [w.encode() + b" " + struct.pack(f"<{len(v)}f", *v) for w, v in zip(words, vectors)]
    header = f"{len(rows)} {vectors.shape[1]}\n".encode()
    (tmp_path / "vectors.bin").write_bytes(header + b"".join(rows))
    checkpoint = folder / "wmtlstm-8f474287.pth"
    (tmp_path / checkpoint.name).write_bytes(checkpoint.read_bytes())
    task = FeatureExtractor.from_preset(tmp_path, pooling="none")
    texts = [" ".join(words[i] for i in row[m > 0]) for row, m in zip(ids, mask)]
    np.testing.assert_allclose(
        task.predict(texts, verbose=0), arrays["out.layer1"], rtol=1e-5, atol=5e-5
    )
    (tmp_path / "vectors.bin").write_bytes(b"1 2\na " + bytes(8))
    with pytest.raises(
        CheckpointError, match="the word vectors are 2 wide, but the model reads 24"
    ):
        CoveBackbone.from_preset(tmp_path)


@pytest.mark.slow
def test_strings_of_every_kind_and_the_export(cove, tokenizer, tmp_path):
    task = FeatureExtractor(cove, tokenizer=tokenizer, sequence_length=6000)
    texts = ["", "the bank", "the \U0001f600 of zzz", "bank of " * 2500, "the", "x" * 200]
    texts = [*map(str.encode, texts), b"the \xff\xfe bank"]
    own = task.embed(texts)["embedding"]
    assert np.isfinite(own).all() and not own[0].any()
    np.testing.assert_allclose(task.embed(texts[1:3])["embedding"], own[1:3], atol=1e-5)
    serve = tf.saved_model.load(str(task.export(tmp_path / "export"))).signatures
    served = serve["serving_default"](text=tf.constant(texts))["embedding"]
    np.testing.assert_allclose(served, own, atol=1e-5)
    task.save_to_preset(tmp_path / "preset")
    again = Task.from_preset(tmp_path / "preset")
    np.testing.assert_array_equal(
        again.embed(texts[:3])["embedding"], task.embed(texts[:3])["embedding"]
    )


@pytest.mark.eager
def test_an_encoder_that_learned_to_translate(tmp_path):
    words, special = ["the", "bank", "river"], ["<unk>", "<pad>", "</s>"]
    german = [*special, "die", "der", "bank", "fluss"]
    tokenizer = WordTokenizer(
        [*special, *words], *special[:2], eos_token="</s>", target_vocabulary=german
    )
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    keras.utils.set_random_seed(0)
    translator = RNNEncoderDecoderBackbone(
        6, 2, 8, embedding_dim=4, decoder_vocabulary_size=len(german), input_feeding=True
    ).with_word_vectors(WordVectorBackbone.from_vectors(vectors))
    task = Seq2SeqLM(translator, tokenizer=tokenizer, sequence_length=6)
    task.compile(optimizer=keras.optimizers.SGD(0.1), run_eagerly=True)
    before = translator.encoder_layers[0].get_weights()
    task.fit(["the bank", "the river"] * 2, ["die bank", "der fluss"] * 2, verbose=0)
    assert not np.array_equal(translator.encoder_layers[0].get_weights()[0], before[0])

    task.save_to_preset(tmp_path / "translator")
    loaded = Task.from_preset(tmp_path / "translator")
    assert loaded.tokenizer.target.vocabulary == german
    cove = CoveBackbone.from_translator(loaded.backbone)
    np.testing.assert_array_equal(cove.word_embedding.embeddings, vectors)  # not trained
    texts = ["the bank", "river the bank"]
    features = FeatureExtractor(cove, "concat_embedding_last", "none", tokenizer=tokenizer)
    actual = features.embed(texts)["embedding"]
    ids = np.array([[3, 4, 1], [5, 3, 4]])
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    expected = translator.encode(ids, mask)["encoder_sequence_output"]
    np.testing.assert_allclose(actual[..., :4], vectors[ids] * mask[..., None], atol=1e-6)
    np.testing.assert_allclose(actual[..., 4:], expected, atol=1e-6)
    assert np.abs(expected).max() > 1e-3


def test_each_direction_reads_its_own_side(cove):
    ids = np.array([[2, 3, 4, 5, 1, 1]])
    mask = np.array([[1, 1, 1, 1, 0, 0]])
    other = ids.copy()
    other[0, 2] = 6
    first, second = (
        np.asarray(cove({"token_ids": x, "padding_mask": mask})["sequence_output"])[0]
        for x in (ids, other)
    )
    np.testing.assert_allclose(first[4:], 0.0)
    padded = np.array([[2, 3, 4, 5]])
    np.testing.assert_allclose(
        cove({"token_ids": padded})["sequence_output"][0], first[:4], atol=1e-6
    )
    changed = np.abs(first - second).max(axis=-1) > 1e-6
    assert changed[:4].all()  # by one of the directions


@pytest.mark.thorough
def test_a_classifier_learns_order(tokenizer):
    """Bags of words are equal: only context tells the classes apart."""
    cove = CoveBackbone(1, embedding_dim=6, hidden_dim=8, vocabulary_size=len(WORDS))
    texts = ["the bank of river", "river of bank the"] * 8
    keras.utils.set_random_seed(0)
    task = TextClassifier(cove, tokenizer=tokenizer, num_classes=2)
    task.compile(optimizer=keras.optimizers.Adam(0.02), run_eagerly=True)
    task.fit(texts, [0, 1] * 8, epochs=15, verbose=0)
    assert task.evaluate(texts, [0, 1] * 8, verbose=0, return_dict=True)["accuracy"] == 1.0


def test_errors(cove):
    with pytest.raises(ValueError, match="hidden_dim=5 is odd"):
        CoveBackbone(hidden_dim=5)
    with pytest.raises(ValueError, match="are 3 wide, but the model reads embedding_dim=6"):
        cove.with_word_vectors(WordVectorBackbone(4, 3))
    with pytest.raises(ValueError, match=r"hidden states that are \[6, 8, 8\] wide"):
        FeatureExtractor(cove, layers="all")
    shared = RNNEncoderDecoderBackbone(9, 1, 8, embedding_dim=6, cell="gru")
    with pytest.raises(ValueError, match="share the source's embedding"):
        shared.with_word_vectors(WordVectorBackbone(4, 6))
    with pytest.raises(ValueError, match="are 3 wide, but the model reads embedding_dim=6"):
        shared.with_word_vectors(WordVectorBackbone(4, 3))
    with pytest.raises(ValueError, match="cell='lstm' and bidirectional=True"):
        CoveBackbone.from_translator(shared)
    with pytest.raises(ValueError, match="no attention"):
        cove.attention_probabilities({"token_ids": [[1]]})
