"""The settings of a task's generation hold wherever it writes: in files, exports, servers, JAX.

A process has one backend, so that of JAX runs this file as a script.
"""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

PROMPTS = ["w6 w7 w8", "w9", "w20 w21 w20 w21 w22"]
SPECIAL = "<|special|>"
RULES = {
    "eos_token_id": [2, 30, 31],
    "num_beams": 3,
    "length_penalty": 0.5,
    "no_repeat_ngram_size": 2,
    "repetition_penalty": 1.1,
    "max_new_tokens": 9,
    "min_new_tokens": 4,
    "bad_words_ids": [[12], [13, 14], [15], [16]],
    # So that it occurs.
    "sequence_bias": [[[3], -20.0], *([[id, 3], 28.0] for id in range(20, 30))],
    "forced_bos_token_id": 25,
    "forced_eos_token_id": 31,
}


def answers(task):
    """Return what a task writes: as stated, by one beam, and until a special token."""
    one = {"num_beams": 1, "verbose": 0}
    results = {
        "stated": task.generate(PROMPTS, verbose=0),
        "one": task.generate(PROMPTS, **one),
        "stopped": task.generate(PROMPTS, stop=[SPECIAL], **one),
    }
    if hasattr(task, "stream"):
        for name, stop in (("one", None), ("stopped", SPECIAL)):
            streamed = ["".join(task.stream(each, num_beams=1, stop=stop)) for each in PROMPTS]
            assert streamed == results[name]
    return results


def main(*presets):
    from keras_lm import tasks

    print(json.dumps([answers(tasks.Task.from_preset(folder)) for folder in presets]))


if __name__ == "__main__":
    main(*sys.argv[1:])


def make(kind):
    from keras_lm import tasks
    from keras_lm.models import GPT2Backbone, T5Backbone
    from keras_lm.tokenizers import WordPieceTokenizer

    tokens = [
        "[UNK]",
        "[PAD]",
        "[SEP]",
        SPECIAL,
        *(f"w{i}" for i in range(4, 40)),
        "[CLS]",
        "[MASK]",
    ]
    tokenizer = WordPieceTokenizer(tokens, False, additional_special_tokens=[SPECIAL])
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 12, "intermediate_dim": 16}
    size |= {"vocabulary_size": len(tokens), "dropout": 0.0}
    if kind == "gpt2":
        backbone, cls, more = GPT2Backbone(**size, max_sequence_length=40), tasks.CausalLM, {}
    else:
        backbone, cls = T5Backbone(**size), tasks.Seq2SeqLM
        more = {"decoder_start_token_id": 0}  # where padding is 1
    random = np.random.default_rng(3)
    for weight in backbone.weights:
        weight.assign(0.9 * random.normal(size=weight.shape))
    settings = RULES | more
    own = {n: settings.pop(n) for n in ("num_beams", "length_penalty") if kind == "t5"}
    return cls(backbone, tokenizer=tokenizer, generation=settings, **own)


@pytest.fixture(scope="module", params=["gpt2", "t5"])
def task(request):
    return make(request.param)


@pytest.fixture(scope="module")
def expected(task):
    return answers(task)


@pytest.mark.slow
def test_an_export_and_its_server_follow_them(task, expected, tmp_path):
    from keras_lm.serving.inference import SavedModel

    model = SavedModel(task.export(tmp_path / "model"))
    name = "text" if task.has_decoder else "prompt"

    def written(signature, **inputs):
        answer = model.run(signature, {name: np.array(PROMPTS, object)} | inputs)
        return [text.decode() for text in answer["text"]]

    stop = np.array([SPECIAL], object)
    results = {
        "stated": written("serving_default"),
        "one": written("generate"),
        "stopped": written("generate", stop=stop),
    }
    assert results == expected
    assert len({str(texts) for texts in expected.values()}) == 3
    if task.has_decoder:
        assert written("beam_search") == expected["stated"]
        return
    for kind, request in (("one", {}), ("stopped", {"stop": SPECIAL})):
        events = [model.stream({"prompt": prompt} | request) for prompt in PROMPTS]
        texts = ["".join(e["text"] for e in each if "text" in e) for each in events]
        assert texts == expected[kind]


@pytest.mark.slow
def test_a_tflite_names_them(task, tmp_path):
    """There, the loop is the client's."""
    with pytest.warns(UserWarning, match="does not follow .* forced_bos_token_id=25") as warned:
        task.export(tmp_path / "model.tflite")
    (message,) = (str(each.message) for each in warned if "token by token" in str(each.message))
    stated = {*RULES, "decoder_start_token_id"} if task.has_decoder else {*RULES}
    assert [name for name in stated if f" {name}=" not in message] == []


@pytest.mark.slow
def test_jax_follows_them(task, expected, tmp_path):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs jax")
    task.save_to_preset(tmp_path / "preset")
    done = subprocess.run(
        [sys.executable, __file__, tmp_path / "preset"],
        env=os.environ | {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [expected]


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_files_hold_them(kind, tmp_path):
    import keras

    from keras_lm import tasks

    task = make(kind)
    task.save_to_preset(tmp_path / "preset")
    task.save(tmp_path / "task.keras")
    task.save_to_huggingface(tmp_path / "huggingface")
    arguments = {**task.get_arguments(), **task.generation}
    assert {*RULES} <= {*arguments}
    for again in (
        tasks.Task.from_preset(tmp_path / "preset"),
        keras.saving.load_model(tmp_path / "task.keras"),
        type(task).from_preset(tmp_path / "huggingface"),
    ):
        assert again.limits == task.limits
        assert again.sampling() == task.sampling()
        assert again.generation.get("decoder_start_token_id") == (0 if kind == "t5" else None)
