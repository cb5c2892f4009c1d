"""`keras-lm predict`: all that can be asked, by all ways in and out."""

import http.server
import json
import re
import signal
import subprocess
import sys
import threading
import time

import keras
import pytest

from keras_lm import tasks
from keras_lm.models import GPT2Backbone
from keras_lm.serving.predictors import Predictor, open_litert

TEXTS = ["the film was good", "a bad song", "", "loud , loud !"]


@pytest.fixture(scope="module")
def expected(task, expect):
    return [
        {"input": {"text": text}, "answer": answer}
        for text, answer in zip(TEXTS, expect(task, TEXTS))
    ]


def test_task_answers_as_in_python(run, answers, critic, expected):
    assert answers(run("predict", critic, *TEXTS)) == expected
    assert answers(run("predict", critic, "--batch-size", 3, *TEXTS)) == expected


def test_published_classifier_answers(run, answers, goldens, tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    for file in goldens("bert-seqcls").iterdir():
        (folder / file.name).symlink_to(file)
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(rows - 5))]
    (folder / "vocab.txt").write_text("\n".join(words))
    (row,) = answers(run("predict", folder, "w1 w2"))
    assert set(row["answer"]) == {"labels", "scores", "class_names"}


@pytest.mark.parametrize("path", ["exported", "exported/1", "critic.tflite"])
def test_exports_answer_as_the_task(run, answers, folder, exported, tflite, expected, path):
    assert answers(run("predict", folder / path, *TEXTS)) == expected


class Echo(Predictor):
    """A model whose answer is the text, and how many were asked together."""

    def __init__(self):
        self.asked = []

    def answer(self, texts):
        self.asked.append(texts["text"])
        return {"text": texts["text"], "rows": [len(texts["text"])] * len(texts["text"])}


def test_texts_of_like_lengths_are_asked_together():
    model, texts = Echo(), ["bbb", "a" * 9, "", "c" * 8, "dd"]
    assert [answer["text"] for answer in model.answers({"text": texts}, 2)] == texts
    assert model.asked == [["a" * 9, "c" * 8], ["bbb", "dd"], [""]]


def test_rows_keep_their_other_columns(run, answers, critic, expected, write, tmp_path):
    lines = "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS))
    file = write("a.csv", "id,review\n" + lines)
    output = tmp_path / "new" / "answers.jsonl"
    printed = run("predict", critic, "--input", file, "--text", "review", "--output", output)
    assert printed == ""
    actual = answers(output.read_text(encoding="utf-8"))
    assert [row["input"] for row in actual] == [
        {"id": str(i), "review": text} for i, text in enumerate(TEXTS)
    ]
    assert [row["answer"] for row in actual] == [row["answer"] for row in expected]
    assert [path.name for path in output.parent.iterdir()] == ["answers.jsonl"]


def test_standard_input_is_lines_or_what_format_says(run, answers, critic, expected):
    lines = "\n".join(TEXTS)
    assert answers(run("predict", critic, input=lines)) == expected
    assert answers(run("predict", critic, "--input", "-", input=lines)) == expected
    rows = "\n".join(json.dumps({"text": text}) for text in TEXTS)
    assert answers(run("predict", critic, "--format", "jsonl", input=rows)) == expected
    assert run("predict", critic, input="") == ""


def test_strange_texts_come_back_as_json(run, answers, critic):
    odd = '{"text": "half \\ud83d a pair"}\n{"text": "\\u0000 中"}'
    first, second = answers(run("predict", critic, "--format", "jsonl", input=odd))
    assert first["input"]["text"] == "half \ud83d a pair"
    assert second["input"]["text"] == "\x00 中"


def test_empty_rows_are_left_out_if_asked_for(run, answers, critic, write):
    file = write("a.csv", "id,text\n1,a film\n2,\n3,  \n4,a song\n")
    assert len(answers(run("predict", critic, "--input", file))) == 4
    actual = answers(run("predict", critic, "--input", file, "--skip-empty"))
    assert [row["input"]["id"] for row in actual] == ["1", "4"]
    nulls = write("a.jsonl", '{"text": "a film"}\n{"text": null}\n{"id": 3}\n')
    assert len(answers(run("predict", critic, "--input", nulls, "--skip-empty"))) == 1


def test_pairs_come_from_two_columns(run, fail, answers, matcher, write):
    file = write("a.tsv", "sentence1\tsentence2\na film\ta song\nbad\tgood\n")
    first, second = answers(run("predict", matcher, "--input", file))
    assert first["answer"]["scores"] != second["answer"]["scores"]
    assert "takes text and text_pair" in fail("predict", matcher, "a film")


def test_signature_and_version_choose(run, fail, answers, exported, critic):
    (row,) = answers(run("predict", exported, "--signature", "tokenize", "a film"))
    assert row["answer"]["tokens"] == ["[CLS]", "a", "film", "[SEP]"]
    message = fail("predict", exported, "--signature", "nonsense", "a film")
    assert "has no signature 'nonsense', only" in message
    assert "serving_default" in message
    assert "only has strings" in fail("predict", exported, "--signature", "tokens", "a film")
    assert "cannot answer" in fail("predict", exported, "--signature", "classify", "a film")
    assert answers(run("predict", exported, "--version", 1, "a film"))
    assert "has no version 7; it has 1." in fail("predict", exported, "--version", 7, "a film")
    assert "no versions" in fail("predict", critic, "--version", 1, "a film")
    assert "is not exported" in fail("predict", critic, "--signature", "tokens", "a film")


def test_mistakes_are_answered_in_a_sentence(fail, critic, tiny, exported, write, tmp_path):
    assert "MODEL is missing" in fail("predict")
    assert "There is no folder" in fail("predict", tmp_path / "none", "x")
    assert "keras-lm finetune" in fail("predict", tiny, "x")
    assert "choose one" in fail("predict", critic, "x", "--input", write("a.txt", "x"))
    assert "does not exist" in fail("predict", critic, "--input", tmp_path / "none.txt")
    assert "--server URL is missing" in fail("predict", "--model", "critic", "x")
    assert "--server needs --model" in fail("predict", "--server", "http://localhost:1", "x")
    assert "cannot be loaded" in fail("predict", write("a.tflite", "no such thing"), "x")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"no such thing")
    assert "cannot be loaded" in fail("predict", tmp_path, "x")


def test_files_that_are_not_text_are_refused_by_what_they_are(fail, critic, write):
    parquet = write("rows.txt", b"PAR1\x15\x04\x15\x18\x15\x1c\n\0\0PAR1")
    assert f"{parquet} is a file: pass it by --input {parquet}" in fail("predict", critic, parquet)
    for arguments in (["--input", parquet], ["--input", parquet, "--format", "csv"]):
        assert "is Parquet: save it as JSONL, or end its name" in fail(
            "predict", critic, *arguments
        )
    piped = fail("predict", critic, input=parquet.read_bytes())
    assert "standard input is Parquet: save it as JSONL" in piped
    assert "is text in UTF-16" in fail("predict", critic, input="a film".encode("utf-16"))


@pytest.mark.parametrize(
    "name, says",
    [
        ("answers.csv", "answers.csv would hold lines of JSON .* or .parquet for a table"),
        ("answers.TSV", "answers.TSV would hold lines"),
        ("answers.jsonl.gz", "would not be compressed: name it .*answers.jsonl[.]$"),
    ],
)
def test_a_name_that_promises_another_file(fail, critic, write, tmp_path, name, says):
    rows = write("rows.csv", "text\na good film\n")
    path = tmp_path / name
    ways = [
        ("predict", critic, "--input", rows, "--output"),
        ("predict", critic, "--input", rows, "--lines", "--output"),
    ]
    for way in ways:
        assert re.search(says, fail(*way, path))
    says = says.removesuffix(" .* or .parquet for a table")  # these write no tables
    assert re.search(says, fail("search", critic, rows, "question", "--output", path))
    assert re.search(says, fail("evaluate", critic, rows, "--errors", path))
    table = tmp_path / "table.parquet"
    assert "would hold lines" in fail("search", critic, rows, "question", "--output", table)
    assert not path.exists() and not table.exists()


def test_failure_half_way_leaves_no_file(run, fail, critic, write, tmp_path):
    file = write("a.jsonl", '{"text": "x"}\n{"text": 1}')
    earlier = write("answers.jsonl", "earlier")
    arguments = ["--batch-size", 1, "--input", file, "--output", earlier, "--overwrite"]
    assert "line 2" in fail("predict", critic, *arguments)
    assert earlier.read_text() == "earlier"
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl", "answers.jsonl"}
    write("a.jsonl", '{"text": "x"}')
    run("predict", critic, *arguments)
    assert json.loads(earlier.read_text())["input"] == {"text": "x"}


# === In a process of its own: bytes, pipes, signals ===


@pytest.mark.slow
def test_bytes_pipes_and_signals(installed, answers, critic, tmp_path):
    # Both at once, because most of the time goes into starting.
    output = tmp_path / "answers.jsonl"
    piped = installed("predict", critic, "--batch-size", 1, LC_ALL="C", PYTHONUTF8="0")
    stopped = installed("predict", critic, "--batch-size", 1, "--output", output)
    lines = b"a good film\n" * 50

    # Whatever the locale, standard input is UTF-8; who has enough closes the pipe.
    piped.stdin.write(b"the film\r\nb\x00ad \xf0\x9f\x98\x80\n" + lines * 90)
    actual = piped.stdout.readline() + piped.stdout.readline()
    texts = [row["input"]["text"] for row in answers(actual.decode("utf-8"))]
    assert texts == ["the film", "b\x00ad \U0001f600"]
    piped.stdout.close()
    piped.stdin.close()
    assert piped.wait(60) == 1
    assert piped.stderr.read() == b""

    # Ctrl-C leaves nothing, and says one word.
    stopped.stdin.write(lines)
    stopped.stdin.flush()
    temporary = wait_for(lambda: [p for p in tmp_path.rglob("*.jsonl") if p.stat().st_size])
    assert output not in temporary
    stopped.send_signal(signal.SIGINT)
    _, errors = stopped.communicate(timeout=60)
    assert stopped.returncode == 1, errors
    assert errors.strip() == b"Aborted!"
    assert not list(tmp_path.iterdir())


def wait_for(condition):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if results := condition():
            return results
        time.sleep(0.1)
    raise AssertionError("it did not come to pass within a minute")


# === By a server ===


@pytest.fixture
def server():
    """TF Serving's REST answers to one model, made by hand: every text is good."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path != "/v1/models/critic/metadata":
                self.reply({"error": f"Could not find any versions of {self.path}"}, 404)
                return
            string = {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "-1"}]}}
            numbers = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}]}}
            signature = {
                "inputs": {"text": string},
                "outputs": {"labels": string, "scores": numbers},
            }
            map = {"serving_default": signature}
            self.reply({"metadata": {"signature_def": {"signature_def": map}}})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = len(body["inputs"]["text"])
            self.reply({"outputs": {"labels": ["good"] * number, "scores": [0.1] * number}})

        def reply(self, answer, status=200):
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_server_answers_without_tensorflow_here(server):
    check = """
import sys
from keras_lm_command import main
try: main()
finally: assert "tensorflow" not in sys.modules, "imported too early"
"""
    arguments = ["predict", "--server", server, "--model", "critic", "a film", "a song"]
    done = subprocess.run([sys.executable, "-c", check, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"input": {"text": text}, "answer": {"labels": "good", "scores": 0.1}}
        for text in ("a film", "a song")
    ]


pytestmark = pytest.mark.eager


def test_server_that_refuses_or_is_not_there(fail, server):
    message = fail("predict", "--server", server, "--model", "nobody", "x")
    assert "NOT_FOUND" in message
    message = fail("predict", "--server", "http://127.0.0.1:1", "--model", "critic", "x")
    assert "UNAVAILABLE" in message
    assert "url='ftp://x'" in fail("predict", "--server", "ftp://x", "--model", "critic", "x")


# === On Beam ===


def test_files_by_a_runner(run, fail, critic, exported, write, answers, expect, task, tmp_path):
    pytest.importorskip("apache_beam", reason="needs: pip install keras-lm[beam]")
    rows = [{"id": i, "text": "a good film " * (i % 5)} for i in range(9)]
    file = write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows) + "{\n")
    for model in (critic, exported):
        folder = tmp_path / f"by-{model.name}"
        shown = run("predict", model, file, "--runner", "DirectRunner", "--output", folder)
        assert "rows     10" in shown and "failed   1" in shown
        actual = answers((folder / "answers-00000-00000.jsonl").read_text())
        assert [row["input"] for row in actual] == rows
        assert [row["answer"] for row in actual] == expect(task, [row["text"] for row in rows])
        [failed] = answers((folder / "failed-00000-00000.jsonl").read_text())
        assert failed["line"] == 10 and "not JSON" in failed["reason"]

    def refused(*more):
        return fail("predict", critic, *more)

    assert "give MODEL and FILES" in refused("--runner", "DirectRunner")
    assert "name it by --output" in refused(file, "--runner", "DirectRunner")
    folder = ["--output", tmp_path / "new"]
    assert "--server is not for --runner" in refused(
        file, "--runner", "DirectRunner", "--server", "http://localhost:1", *folder
    )
    assert "--processes is for --runner" in refused("a text", "--processes", 2)
    assert "no option --flink_mistress" in refused(
        file, "--runner", "DirectRunner", *folder, "--", "--flink_mistress=localhost"
    )
    assert not (tmp_path / "new").exists()
    # Without a runner, -- means what it always means.
    assert answers(run("predict", critic, "--", "--text"))[0]["input"] == {"text": "--text"}


@pytest.mark.thorough
def test_one_process_and_several_answer_the_same(installed, exported, write, tmp_path):
    pytest.importorskip("apache_beam", reason="needs: pip install keras-lm[beam]")
    files = [
        write(f"{i}.txt", "".join(f"a good film {'!' * (n % 7)}\n" for n in range(50)))
        for i in range(3)
    ]
    results = []
    for processes in (1, 2):
        folder = tmp_path / f"by-{processes}"
        arguments = ["--runner", "DirectRunner", "--processes", processes, "--output", folder]
        process = installed("predict", exported, *files, *arguments)
        shown, errors = process.communicate()
        assert process.returncode == 0, errors
        assert b"rows     150" in shown
        rows = [
            json.loads(line)
            for path in sorted(folder.glob("answers-*"))
            for line in path.read_text().splitlines()
        ]
        results.append([(row["input"], row["answer"]["labels"]) for row in rows])
    assert results[0] == results[1]
    assert len(results[0]) == 150


def test_a_tflite_answers_no_texts_with_no_rows(tflite):
    actual = open_litert(tflite).answer({"text": []})
    assert {len(column) for column in actual.values()} == {0}


# === Texts that a CausalLM writes ===


@pytest.fixture(scope="module")
def writer(tmp_path_factory, tokenizer):
    """A preset of a small decoder with random weights."""
    keras.utils.set_random_seed(2)
    backbone = GPT2Backbone(tokenizer.vocabulary_size, 1, 2, 16, 24, max_sequence_length=20)
    for weight in backbone.weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.5))
    folder = tmp_path_factory.mktemp("writers") / "gpt2"
    tasks.CausalLM(backbone, tokenizer=tokenizer).save_to_preset(folder)
    return folder


WAYS = [
    {"max_new_tokens": 4},
    {"max_new_tokens": 4, "num_beams": 3, "length_penalty": 0.5, "num_return_sequences": 2},
    {"temperature": 1.5, "top_k": 5, "top_p": 0.9, "seed": 3, "max_new_tokens": 6},
    {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "prompt_lookup": 2, "max_new_tokens": 5},
    {"stop": ["film", "song"], "max_new_tokens": 8},
]


@pytest.mark.eager
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way))
def test_options_of_writing_are_those_of_generate(run, answers, writer, write, way):
    task = tasks.CausalLM.from_preset(writer)
    flags = []
    for name, value in way.items():
        for each in value if isinstance(value, list) else [value]:
            flags += [f"--{name.replace('_', '-')}", each]
    expected = task.generate(TEXTS[:2], **way)
    file = write(
        "prompts.csv", "id,start\n" + "".join(f"{n},{t}\n" for n, t in enumerate(TEXTS[:2]))
    )
    actual = answers(run("predict", writer, "--input", file, "--text", "start", *flags))
    assert [row["answer"] for row in actual] == [{"text": text} for text in expected]
    assert [row["input"]["id"] for row in actual] == ["0", "1"]


@pytest.mark.eager
def test_options_of_writing_that_do_not_fit_are_named(run, fail, writer, critic):
    for flags in (["--prefix", "a"], ["--forbidden", "a"], ["--coverage-penalty", 0.2]):
        message = fail("predict", writer, "a film", *flags)
        assert f"{flags[0]} is for a Seq2SeqLM, and {writer} holds a CausalLM" in message
    assert "--top-k 5 has no effect" in fail("predict", writer, "a film", "--top-k", 5)
    assert "which does not write" in fail("predict", critic, "a film", "--stop", "a")
    (line,) = run("predict", writer, "a film", "--max-new-tokens", 3, "--lines").splitlines()
    assert line == tasks.CausalLM.from_preset(writer).generate("a film", max_new_tokens=3)[0]
