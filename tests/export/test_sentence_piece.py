"""A task with a SentencePieceTokenizer: fitted, saved, exported, beside others of its kind."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.export import check
from keras_lm.export.fresh_process import load_tflite
from keras_lm.tokenizers import SentencePieceTokenizer
from keras_lm.tokenizers.sentence_piece_model import BPE, CONTROL, UNKNOWN, Model

TEXTS = [
    "The first of ``these'' was in 1,990, or so",
    "",
    "É\u0301 the\xa0\u3000end [SEP] 中",
    b"bad \xff\xfe bytes \xf0\x9f",
    "it has been 19, then 20, " * 20,
    "THE END",
]

pytestmark = pytest.mark.eager  # what the tasks say; exports are graphs all the same


@pytest.fixture(scope="module")
def make_task(make_backbone):
    def make(tokenizer):
        backbone = make_backbone(vocabulary_size=tokenizer.vocabulary_size)
        return tasks.TextClassifier(backbone, class_names=["bad", "good"], tokenizer=tokenizer)

    return make


@pytest.fixture(scope="module")
def albert(goldens, make_task):
    """A fitted task with ALBERT's rules around its words."""
    folder = goldens("tokenizers") / "sentencepiece-albert"
    task = make_task(SentencePieceTokenizer.from_files(folder))
    task.fit(["the end", "was it so"] * 4, ["good", "bad"] * 4, batch_size=4, epochs=1, verbose=0)
    return task


@pytest.fixture(scope="module")
def version(albert, tmp_path_factory):
    """The export of this task, of which a preset was saved and loaded in between."""
    folder = tmp_path_factory.mktemp("albert")
    albert.save_to_preset(folder / "preset")
    task = tasks.TextClassifier.from_preset(folder / "preset")
    assert task.tokenizer.get_config() == albert.tokenizer.get_config()
    return task.export(folder / "export")


def bpe_tokenizer(*words):
    """A BPE model whose pieces are these words, cut off anywhere, and some letters."""
    model = Model()
    for piece in ("<pad>", "[CLS]", "[SEP]"):
        model.pieces.add(piece=piece, type=CONTROL)
    model.pieces.add(piece="<unk>", type=UNKNOWN)
    beginnings = [f"▁{word}"[: i + 1] for word in words for i in range(1, len(word) + 1)]
    for i, piece in enumerate([*dict.fromkeys(beginnings), *"▁abcdefghinorstuw"]):
        model.pieces.add(piece=piece, score=-i)
    model.trainer_spec.model_type = BPE
    model.normalizer_spec.SetInParent()
    return SentencePieceTokenizer(
        model.SerializeToString(), cls_token="[CLS]", sep_token="[SEP]", pad_token="<pad>"
    )


def answers(served, task, texts):
    """Assert that a task and what is served of it say the same."""
    expected = task.answer({"text": tf.constant(texts)})
    np.testing.assert_array_equal(served["labels"], expected["labels"].numpy())
    np.testing.assert_allclose(served["scores"], expected["scores"], atol=1e-5)


@pytest.mark.slow
def test_fit_save_export_and_ask_in_a_fresh_process(albert, version):
    report = check(version, albert, TEXTS)
    assert report.differences["labels"] == 0 and report.differences["scores"] <= 1e-5


@pytest.mark.slow
def test_tflite(albert, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    serve, _ = load_tflite(str(albert.export(tmp_path / "model.tflite", format="litert")))
    texts = [text for text in TEXTS if isinstance(text, str)]
    for batch in (texts, texts[:1], texts[1:3]):
        answers(serve(text=np.array([t.encode() for t in batch], object)), albert, batch)


@pytest.mark.slow
def test_exports_beside_each_other_in_one_process(albert, version, make_task, tmp_path):
    bpe = [make_task(bpe_tokenizer("the", "end")), make_task(bpe_tokenizer("then", "so"))]
    texts = tf.constant(["the end was so 1,990, or", "then it was so"])
    assert bpe[0].tokenizer(texts).to_list() != bpe[1].tokenizer(texts).to_list()
    versions = [version, *(task.export(tmp_path / f"bpe-{i}") for i, task in enumerate(bpe))]
    loaded = [tf.saved_model.load(str(version)).signatures for version in versions]
    for task, signatures in zip([albert, *bpe], loaded):
        answers(signatures["serving_default"](text=texts), task, texts)
    for task, signatures in zip([albert, *bpe], loaded):
        rows = signatures["tokenize"](texts)["tokens"].numpy()
        expected = task.tokenizer.tokens(task.tokenizer(texts)).to_list()
        results = [[token for token in row if token] for row in rows]
        assert results == [[b"[CLS]", *row, b"[SEP]"] for row in expected]
