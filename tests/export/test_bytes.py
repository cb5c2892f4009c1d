"""A `.tflite` that takes the bytes of texts has LiteRT's own operations, and answers as its task.

Texts come as UTF-8 and where each ends; `ai_edge_litert` runs it without any registrar.
"""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.export import check, tflite
from keras_lm.litert import InterpreterPool, in_bytes
from keras_lm.tokenizers import SentencePieceTokenizer, SubwordTokenizer
from keras_lm.tokenizers.sentence_piece_model import BPE, BYTE, CONTROL, UNKNOWN, Model

interpreters = pytest.importorskip("ai_edge_litert.interpreter", reason="needs the extra litert")

CASES = {
    "classifier": lambda backbone, **a: tasks.TextClassifier(
        backbone, class_names=["bad", "good"], **a
    ),
    "multi-label pairs": lambda backbone, **a: tasks.TextClassifier(
        backbone, class_names=["x", "y", "z"], multi_label=True, text_pair=True, **a
    ),
    "regressor, fixed length": lambda backbone, **a: tasks.TextRegressor(
        backbone, padding="fixed", sequence_length=9, **a
    ),
    "embedder with a prompt": lambda backbone, **a: tasks.FeatureExtractor(
        backbone, pooling="mean", normalize=True, prompt="Ünaffable films: ", **a
    ),
    "tagger": lambda backbone, **a: tasks.TokenClassifier(backbone, class_names=["O", "B-X"], **a),
    "questions": lambda backbone, **a: tasks.QuestionAnswerer(backbone, num_answers=3, **a),
    "choices": lambda backbone, **a: tasks.MultipleChoice(backbone, **a),
    "special tokens in text": lambda backbone, **a: tasks.TextRegressor(
        backbone, parse_special=True, **a
    ),
}


def columns_of(task, rows):
    """Columns of texts that differ, for a task of one or two texts, or of choices."""
    others = np.roll(rows, 1) if len(rows) > 1 else np.array([b"a loud song"], object)
    columns = [rows, others]
    if isinstance(task, tasks.MultipleChoice):
        columns[1] = np.stack([others, rows, np.full_like(rows, b"")], axis=1)
    return dict(zip(task.answer_names, columns))


def strings_in(answer, name):
    """The strings of an answer, which come as such or as bytes and ends."""
    if f"{name}_ends" not in answer:
        return answer[name]
    data, ends = answer[name].tobytes(), answer[f"{name}_ends"]
    starts = np.concatenate([[0], ends.ravel()[:-1]])
    texts = [data[start:end] for start, end in zip(starts, ends.ravel())]
    return np.array([*texts, None], object)[:-1].reshape(ends.shape)


def assert_answers(answer, task, columns):
    expected = task.answer({name: tf.constant(x.tolist()) for name, x in columns.items()})
    assert {name.removesuffix("_ends") for name in answer} == set(expected)
    for name, value in expected.items():
        if value.dtype == tf.string:
            np.testing.assert_array_equal(strings_in(answer, name), value.numpy())
        else:
            np.testing.assert_allclose(answer[name], value, atol=1e-5)


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("case", CASES)
def test_answers_as_the_task_without_a_registrar(case, make_backbone, tokenizer, texts, tmp_path):
    task = CASES[case](make_backbone(), tokenizer=tokenizer)
    path = task.export(tmp_path / "model.tflite", format="litert", tokenizer="bytes")
    assert [*tflite._custom_operations(path.read_bytes())] == []
    serve = interpreters.Interpreter(model_path=str(path)).get_signature_runner()
    rows = [text.encode() if isinstance(text, str) else text for text in texts]
    if case in ("tagger", "questions"):  # parts of a text stay as they are given
        rows = [row.decode("utf-8", "replace").encode() for row in rows]
    rows += [b"\0", b" good\0bad", "Straße ı, naïve".encode(), b"[MASK]a [SEP] [MASK][MASK]"]
    rows = np.array([*rows, None], object)[:-1]
    for size in (len(rows), 1, 3, 32):  # the batch may change its size
        columns = columns_of(task, np.resize(rows, size))
        assert_answers(serve(**in_bytes(columns)), task, columns)

    if getattr(task, "prompt", None) or task.parse_special:  # which need bytes
        return
    usual = task.export(tmp_path / "usual.tflite", format="litert")
    assert path.stat().st_size <= 1.02 * usual.stat().st_size + 20_000  # of code, in a tiny model


def bpe_of_bytes():
    """A SentencePiece BPE with an entry for each byte."""
    model = Model()
    for piece in ("<pad>", "[CLS]", "[SEP]"):
        model.pieces.add(piece=piece, type=CONTROL)
    model.pieces.add(piece="<unk>", type=UNKNOWN)
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", type=BYTE)
    for i, piece in enumerate(["▁t", "he", "▁the", "oo", "▁g", "▁goo", *"▁abcdefghlnorstuw"]):
        model.pieces.add(piece=piece, score=-i)
    model.trainer_spec.model_type = BPE
    model.trainer_spec.byte_fallback = True
    model.normalizer_spec.SetInParent()
    return SentencePieceTokenizer(
        model.SerializeToString(), cls_token="[CLS]", sep_token="[SEP]", pad_token="<pad>"
    )


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("case", ["unigram, tagger", "BPE of bytes, questions"])
def test_sentence_piece(case, goldens, make_backbone, texts, tmp_path):
    albert = goldens("tokenizers") / "sentencepiece-albert"
    is_bpe = case.startswith("BPE")
    made = bpe_of_bytes() if is_bpe else SentencePieceTokenizer.from_files(albert)
    backbone = make_backbone(vocabulary_size=made.vocabulary_size)
    task = CASES[case.split(", ")[1]](backbone, tokenizer=made)
    path = task.export(tmp_path / "model.tflite", format="litert", tokenizer="bytes")
    assert [*tflite._custom_operations(path.read_bytes())] == []
    serve = interpreters.Interpreter(model_path=str(path)).get_signature_runner()
    rows = np.array([text.encode() for text in texts if isinstance(text, str)], object)
    for size in (len(rows), 1, 3):
        columns = columns_of(task, rows[:size])
        assert_answers(serve(**in_bytes(columns)), task, columns)


@pytest.mark.slow
def test_all_that_opens_a_tflite_takes_strings(make_backbone, tokenizer, texts, tmp_path):
    task = CASES["tagger"](make_backbone(), tokenizer=tokenizer)
    results = []
    path = task.export(
        tmp_path / "m.tflite", "litert", tokenizer="bytes", texts=texts, report=results.append
    )
    assert results[0].differences["tokens"] == 0 and results[0].differences["scores"] <= 1e-5
    assert check(path, task, texts, batch_size=4).num_texts == len(texts)
    pool = InterpreterPool(path)
    assert pool.signatures["serving_default"].inputs == {"text": (object, (-1,))}
    answer = pool.run("serving_default", {"text": ["the film", "a bad song"]})
    assert answer["tokens"].tolist() == [[b"the", b"film", b""], [b"a", b"bad", b"song"]]
    assert pool.run("serving_default", {"text": []})["tokens"].shape[0] == 0
    assert pool.run("serving_default", {"text": ["", ""]})["tokens"].tolist() == [[b""], [b""]]


@pytest.mark.slow
@pytest.mark.eager
def test_answers_to_questions_are_compared(make_backbone, tokenizer, texts, tmp_path):
    task = CASES["questions"](make_backbone(), tokenizer=tokenizer)
    columns = {"question": texts, "context": texts[::-1]}
    reports = []
    task.export(
        tmp_path / "m.tflite",
        tokenizer="bytes",
        texts=columns,
        report=reports.append,
        tolerance=1e-4,
    )
    assert reports[0].num_texts == len(texts)


@pytest.mark.slow
def test_bytes_after_the_last_end_do_not_count(make_backbone, tokenizer, tmp_path):
    """As for a runtime of fixed shapes: rows that are not there end where the last one does."""
    task = CASES["classifier"](make_backbone(), tokenizer=tokenizer)
    path = task.export(tmp_path / "model.tflite", format="litert", tokenizer="bytes")
    serve = interpreters.Interpreter(model_path=str(path)).get_signature_runner()
    text = np.frombuffer(b"the film was good\0\0\xff song", np.uint8)
    answer = serve(text=text, text_ends=np.array([17, 17], np.int32))
    assert_answers(answer, task, {"text": np.array([b"the film was good", b""], object)})


def test_what_cannot_be_converted_is_refused_by_name(make_backbone, tokenizer, tmp_path):
    def export(task, **options):
        task.export(tmp_path / "model.tflite", format="litert", tokenizer="bytes", **options)

    masked = tasks.MaskedLM(make_backbone(), tokenizer=tokenizer)
    with pytest.raises(ValueError, match=r"MaskedLM joins the pieces .* StaticRegexReplace"):
        export(masked)
    subwords = SubwordTokenizer([*"ab_", "[CLS]", "[SEP]"], None, None)
    with pytest.raises(ValueError, match=r"SubwordTokenizer .* regular expressions"):
        export(tasks.TextRegressor(make_backbone(), tokenizer=subwords))
    special = tasks.TextRegressor(make_backbone(), tokenizer=tokenizer, parse_special=True)
    with pytest.raises(ValueError, match=r"parse_special=True asks for: .* tokenizer='bytes'"):
        special.export(tmp_path / "model.tflite")
    regressor = tasks.TextRegressor(make_backbone(), tokenizer=tokenizer)
    with pytest.raises(
        ValueError, match=r"tokenizer='bytes' needs a .tflite or an .onnx: pass format="
    ):
        regressor.export(tmp_path / "folder", tokenizer="bytes")
    with pytest.raises(ValueError, match=r"use one of \['graph', 'bytes', 'metadata'\]"):
        regressor.export(tmp_path / "model.tflite", tokenizer="strings")
    assert list(tmp_path.iterdir()) == []
