"""An exported encoder-decoder writes texts as the task does, whole and token by token.

Most of the time of an export goes into tracing. By default, its functions are asked as they are
before they are traced; the slow tests ask the export itself.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import RNNEncoderDecoderBackbone, T5Backbone
from keras_lm.serving.inference import SavedModel
from keras_lm.tasks import Seq2SeqLM, generation_signatures, signatures
from keras_lm.tokenizers import SentencePieceTokenizer

SOURCES = ["Hello world", "", "a source of many more words than the others have", b"x\xff\xfe"]
SOURCES.append("far more tokens than there is room for " * 9)
LENGTH = 6

pytestmark = pytest.mark.eager  # what the tasks say; exports are graphs all the same


def t5(rows):
    return T5Backbone(rows, 1, 2, 16, 24, num_decoder_layers=2), {}


def rnn(rows):
    backbone = RNNEncoderDecoderBackbone(rows, 1, 16, num_decoder_layers=2, input_feeding=True)
    return backbone, {"coverage_penalty": 0.2}


@pytest.fixture(
    scope="module",
    params=[
        (t5, "functions"),
        pytest.param((t5, "export"), marks=pytest.mark.slow),
        pytest.param((rnn, "export"), marks=pytest.mark.thorough),
    ],
    ids=lambda case: f"{case[0].__name__}-{case[1]}",
)
def case(request):
    """An encoder-decoder, and what of it is asked."""
    return request.param


@pytest.fixture(scope="module")
def task(case, goldens):
    tokenizer = SentencePieceTokenizer.from_files(goldens("tokenizers") / "sentencepiece-t5")
    backbone, search = case[0](tokenizer.vocabulary_size)
    for weight in backbone.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    return Seq2SeqLM(
        backbone,
        tokenizer=tokenizer,
        sequence_length=16,
        target_length=LENGTH,
        num_beams=2,
        text_pair=False,
        **search,
    )


class NotTraced:
    """The signatures of a task, asked as those of a `SavedModel` are."""

    def __init__(self, task):
        with pytest.MonkeyPatch.context() as patch:
            for module in (signatures, generation_signatures):
                patch.setattr(module, "trace", self.checking)
            self.functions = task.signatures.functions()
        self.defaults = task.signatures.defaults()

    @staticmethod
    def checking(function, specs, most=None):
        def run(*values, **inputs):
            inputs |= zip(specs, values)
            assert set(inputs) == set(specs)
            assert all(specs[name].is_compatible_with(value) for name, value in inputs.items())
            return function(**inputs)

        run.structured_outputs = {"sequence_output": tf.TensorSpec([])}  # small
        return run

    def run(self, name, inputs):
        inputs = self.defaults.get(name, {}) | inputs
        outputs = self.functions[name](**{key: tf.constant(x) for key, x in inputs.items()})
        return {key: value.numpy() for key, value in outputs.items()}


@pytest.fixture(scope="module")
def model(case, task, tmp_path_factory):
    if case[1] == "functions":
        return NotTraced(task)
    return SavedModel(task.export(tmp_path_factory.mktemp("models") / "writer"))


def call(model, signature="serving_default", **inputs):
    return model.run(signature, {"text": np.array(SOURCES, object)} | inputs)


def texts(answer):
    return [text.decode("utf-8", "replace") for text in answer["text"]]


def test_text_to_text(task, model):
    expected = task.generate(SOURCES)
    assert texts(call(model)) == expected
    assert len(set(expected)) > 1
    actual = call(model, "beam_search", num_beams=np.array([3], "int32"),
                 length_penalty=np.array([2.0], "float32"))  # fmt: skip
    assert texts(actual) == task.generate(SOURCES, num_beams=3, length_penalty=2.0)


def test_sampling(task, model):
    options = {"temperature": 1.0, "top_k": 20}
    seeds = [5, 4, 3, 2, 1]
    inputs = {"temperature": np.array([1.0], "float32"), "top_k": np.array([20], "int32")}
    actual = call(model, "generate", seed=np.array(seeds), **inputs)
    assert texts(actual) == task.generate(SOURCES, seed=seeds, **options)
    most = np.array([1, 2, 3, 1, 2], "int32")
    assert (call(model, "generate", max_new_tokens=most)["num_tokens"] <= most).all()


def test_scores(task, model):
    targets = ["some text", "", "other words", "x", "far"]
    actual = call(model, "score", labels=np.array(targets, object))
    expected = task.score(SOURCES, targets)
    np.testing.assert_allclose(actual["scores"], expected["scores"], rtol=1e-4)
    np.testing.assert_array_equal(actual["num_tokens"], expected["num_tokens"])


def greedy(step, state, rows):
    """Return the tokens of targets that are written step by step."""
    ids = [np.zeros([rows, 1], "int32")]
    for _ in range(LENGTH):
        state = step(token_ids=ids[-1], padding_mask=np.ones([rows, 1], "int32"), **state)
        ids.append(state.pop("logits").argmax(axis=-1).astype("int32")[:, None])
    return np.concatenate(ids[1:], axis=1)


def cut(rows, end):
    return [row[: row.index(end)] if end in row else row for row in rows.tolist()]


def test_token_by_token(task, model):
    state = call(model, "encode")
    ids = greedy(lambda **inputs: model.run("next_token", inputs), state, len(SOURCES))
    rows = cut(ids, task.tokenizer.special_id("eos"))
    text = [task.tokenizer.detokenize([row]).numpy()[0].decode("utf-8", "replace") for row in rows]
    assert text == task.generate(SOURCES, num_beams=1)
    mask = [[1] * len(row) + [0] * (LENGTH - len(row)) for row in rows]
    packed = {"token_ids": ids, "padding_mask": np.array(mask, "int32")}
    assert texts(model.run("detokenize", packed)) == text


def test_requests_of_the_warm_up_run(task, model):
    """What the export holds for TF Serving to begin with."""
    asked = [name for name, inputs in task.signatures.requests([1]) if model.run(name, inputs)]
    assert {*asked} == {
        *("serving_default", "generate", "beam_search", "score"),
        *("tokenize", "encode", "next_token", "detokenize"),
    }


def test_litert(case, task, tmp_path):
    if case == (t5, "export"):
        pytest.skip("as of its functions")
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT")
    from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS

    path = task.export(tmp_path / "writer.tflite", format="litert")
    interpreter = litert.InterpreterWithCustomOps(
        model_path=str(path), custom_op_registerers=SELECT_TFTEXT_OPS
    )
    encode, step = (interpreter.get_signature_runner(n) for n in ("encode", "next_token"))
    sources = [text for text in SOURCES if isinstance(text, str)]  # valid UTF-8
    ids = greedy(step, encode(text=np.array([s.encode() for s in sources])), len(sources))
    rows = cut(ids, task.tokenizer.special_id("eos"))
    text = [task.tokenizer.detokenize([row]).numpy()[0].decode("utf-8", "replace") for row in rows]
    assert text == task.generate(sources, num_beams=1)


@pytest.mark.parametrize(
    ("signature", "name", "value", "message"),
    [
        ("generate", "max_new_tokens", np.int32(10**8), "may be 4096 at most"),
        ("beam_search", "max_new_tokens", np.int32(2**31 - 1), "may be 4096 at most"),
        ("beam_search", "num_beams", np.int32(10**7), "must be from 1 to 64"),
        ("beam_search", "num_beams", np.int32(0), "must be from 1 to 64"),
        ("beam_search", "num_beams", np.int32(-(2**31)), "must be from 1 to 64"),
        ("beam_search", "length_penalty", np.float32(np.nan), "must be a finite number"),
        ("beam_search", "length_penalty", np.float32(-np.inf), "must be a finite number"),
    ],
)
def test_what_a_server_could_not_bear_is_refused(model, signature, name, value, message):
    # A server's client gets an error that names the value, too.
    with pytest.raises(Exception, match=rf"{name}(=\S+ is out of range: it)? {message}"):
        call(model, signature, **{name: value[np.newaxis]})
