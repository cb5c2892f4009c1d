"""A `.tflite` that takes the bytes of texts has LiteRT's own operations, and answers as its task.

Texts come as UTF-8 and where each ends; `ai_edge_litert` runs it without any registrar.
"""

import numpy as np
import pytest
import tensorflow as tf
from texts_in_bytes import (
    HARD,
    MASKED,
    TASKS,
    assert_answers,
    columns_of,
    encoded,
    texts_with_masks,
)

from keras_lm import tasks
from keras_lm.export import check, tflite
from keras_lm.litert import InterpreterPool, in_bytes
from keras_lm.tokenizers import SentencePieceTokenizer, SubwordTokenizer
from keras_lm.tokenizers.sentence_piece_model import BPE, BYTE, CONTROL, UNKNOWN, Model

interpreters = pytest.importorskip("ai_edge_litert.interpreter", reason="needs the extra litert")


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("case", TASKS)
def test_answers_as_the_task_without_a_registrar(case, make_backbone, tokenizer, texts, tmp_path):
    task = TASKS[case](make_backbone(), tokenizer=tokenizer)
    path = task.export(tmp_path / "model.tflite", format="litert", tokenizer="bytes")
    assert_file_answers(path, task, [*HARD, *texts])
    if task.joins_pieces or getattr(task, "prompt", None) or task.parse_special:  # which need bytes
        return
    usual = task.export(tmp_path / "usual.tflite", format="litert")
    assert path.stat().st_size <= 1.02 * usual.stat().st_size + 20_000  # of code, in a tiny model


def assert_file_answers(path, task, rows):
    """Compare the answers of a file without custom operations, in batches of several sizes."""
    assert [*tflite._custom_operations(path.read_bytes())] == []
    interpreter = interpreters.Interpreter(model_path=str(path))
    serve = interpreter.get_signature_runner("serving_default")
    for size in (len(rows), 1, 3, 32):  # the batch may change its size
        columns = columns_of(task, np.resize(encoded(rows), size))
        assert_answers(serve(**in_bytes(columns)), task, columns)


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("name", MASKED)
def test_masks_are_filled(name, tokenizer_of, backbone_of, tmp_path):
    tokenizer = tokenizer_of(MASKED[name])
    task = tasks.MaskedLM(backbone_of(name), tokenizer=tokenizer)
    path = task.export(tmp_path / "model.tflite", tokenizer="bytes")
    assert_file_answers(path, task, texts_with_masks(tokenizer.special_tokens["mask"]))


@pytest.mark.eager
@pytest.mark.parametrize("name", ["BertBackbone", "RobertaBackbone", "AlbertBackbone"])
def test_masks_are_filled_by_integers(name, tokenizer_of, backbone_of):
    tokenizer = tokenizer_of(MASKED[name])
    task = tasks.MaskedLM(backbone_of(name), tokenizer=tokenizer)
    for rows in (texts_with_masks(tokenizer.special_tokens["mask"])[:7], ["no mask"]):
        columns = columns_of(task, rows)
        inputs = {key: tf.constant(x) for key, x in in_bytes(columns).items()}
        answer = task.byte_signatures.answer_lite(**inputs)
        answer = {key: value.numpy() for key, value in answer.items()}
        assert_answers(answer, task, columns)


def bpe_of_bytes():
    """A SentencePiece BPE with an entry for each byte."""
    model = Model()
    for piece in ("<pad>", "[CLS]", "[SEP]", "[MASK]"):
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
        model.SerializeToString(),
        **{"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "<pad>"},
        mask_token="[MASK]",
        clean_up=True,
    )


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("case", ["unigram, tagger", "BPE of bytes, questions", "BPE, masks"])
def test_sentence_piece(case, goldens, make_backbone, tmp_path):
    albert = goldens("tokenizers") / "sentencepiece-albert"
    is_bpe = case.startswith("BPE")
    made = bpe_of_bytes() if is_bpe else SentencePieceTokenizer.from_files(albert)
    backbone = make_backbone(vocabulary_size=made.vocabulary_size)
    task = TASKS[case.split(", ")[1]](backbone, tokenizer=made)
    path = task.export(tmp_path / "model.tflite", format="litert", tokenizer="bytes")
    rows = HARD if task.joins_pieces else [text for text in HARD if isinstance(text, str)]
    assert_file_answers(path, task, rows + texts_with_masks("[MASK]"))


@pytest.mark.slow
def test_all_that_opens_a_tflite_takes_strings(make_backbone, tokenizer, texts, tmp_path):
    task = TASKS["tagger"](make_backbone(), tokenizer=tokenizer)
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
    task = TASKS["questions"](make_backbone(), tokenizer=tokenizer)
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
    task = TASKS["classifier"](make_backbone(), tokenizer=tokenizer)
    path = task.export(tmp_path / "model.tflite", format="litert", tokenizer="bytes")
    serve = interpreters.Interpreter(model_path=str(path)).get_signature_runner()
    text = np.frombuffer(b"the film was good\0\0\xff song", np.uint8)
    answer = serve(text=text, text_ends=np.array([17, 17], np.int32))
    assert_answers(answer, task, {"text": np.array([b"the film was good", b""], object)})


def test_what_cannot_be_converted_is_refused_by_name(make_backbone, tokenizer, tmp_path):
    def export(task, **options):
        task.export(tmp_path / "model.tflite", format="litert", tokenizer="bytes", **options)

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
