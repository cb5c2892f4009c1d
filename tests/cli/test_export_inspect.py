"""`keras-lm export` and `keras-lm inspect`."""

import json
import re
import shutil
import sys

import pytest

from keras_lm import tasks
from keras_lm.export import comparison
from keras_lm.export.fresh_process import load_saved_model

pytestmark = pytest.mark.eager


# === export ===


def test_every_export_is_a_new_version(run, fail, critic, exported, tmp_path):
    shutil.copytree(exported, tmp_path / "exported")
    assert "exported/2 (" in run("export", critic, tmp_path / "exported")
    (tmp_path / "file").write_text("precious")
    assert "is a file" in fail("export", critic, tmp_path / "file")
    assert "is a folder" in fail("export", critic, tmp_path / "exported", "--format", "litert")
    assert (tmp_path / "file").read_text() == "precious"


def test_an_export_is_no_source_of_weights(fail, exported, tflite, write, tmp_path):
    for folder in (exported, exported / "1"):
        with pytest.raises(ValueError, match=r"is an export, .* give the preset"):
            tasks.Task.from_preset(folder)
        said = fail("export", folder, tmp_path / "other")
        assert "is an export, a SavedModel" in said
    rows = write("a.csv", "text,label\na,good\nb,bad\n")
    said = fail("finetune", exported, rows, "--output", tmp_path / "new")
    assert "is an export, a SavedModel" in said
    assert "is an export" in fail("finetune", tflite, rows, "--output", tmp_path / "new")


def ask_here(path, format, batches, signature, advance):
    """What the check's fresh process answers, without the seconds that it takes to start."""
    serve, seconds = load_saved_model(str(path), signature)
    return [serve(**batch) for batch in batches], seconds, 0.1


@pytest.mark.parametrize(
    "name, options",
    [
        ("quick", ["--freeze"]),
        pytest.param("critic.tflite", [], marks=pytest.mark.thorough),
        pytest.param("exported", [], marks=pytest.mark.thorough),
        pytest.param("small", ["--weights", "int8"], marks=pytest.mark.thorough),
    ],
)
def test_check_compares_with_the_task(run, critic, tmp_path, monkeypatch, name, options):
    if name == "quick":  # tests/export/test_check.py has its program run in a fresh process
        monkeypatch.setattr(comparison, "_ask", ask_here)
    output = run("export", critic, tmp_path / name, "--check", *options)
    assert "4 texts, answered as the task answers" in output
    assert re.search(r"scores +differs by at most", output)


@pytest.mark.slow
def test_operations_of_tensorflow_alone(run, answers, critic, inspect, tmp_path):
    output = run("export", critic, tmp_path / "plain", "--operations", "tensorflow", "--check")
    assert "4 texts, answered as the task answers" in output
    signatures = sorted(inspect(tmp_path / "plain")["signatures"])
    assert signatures == ["classify", "serving_default", "tokens"]
    (row,) = answers(run("predict", tmp_path / "plain", "a fine film"))
    assert row["answer"]["labels"] in ("good", "bad")


def test_operations_are_of_a_saved_model_that_is_not_frozen(fail, critic, tmp_path):
    asked = ("--operations", "tensorflow")
    said = fail("export", critic, tmp_path / "m.tflite", *asked)
    assert "--operations tensorflow does not go with --format litert: drop one" in said
    for option in ("--freeze", "--attention"):
        said = fail("export", critic, tmp_path / "plain", *asked, option)
        assert f"--operations tensorflow does not go with {option}: drop one" in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_for_mediapipe_holds_its_vocabulary(run, fail, critic, inspect, tmp_path):
    path = tmp_path / "critic.tflite"
    assert "written" in run("export", critic, path, "--tokenizer", "metadata")
    report = inspect(path)
    assert sorted(report["files"]) == ["labels.txt", "vocab.txt"]
    (signature,) = report["signatures"].values()
    assert signature["inputs"]["ids"] == {"dtype": "int32", "shape": [1, None]}
    assert "takes ids (int32)" in fail("predict", path, "a film").replace("\n", " ")


@pytest.mark.slow
@pytest.mark.usefixtures("int8_products")
@pytest.mark.slow
def test_a_page_is_replaced_with_overwrite_alone(run, fail, critic, inspect, tmp_path):
    page = tmp_path / "page"
    assert "written" in run("export", critic, page, "--format", "web", "--num-bytes", "80")
    description = json.loads((page / "model.json").read_text())
    assert (description["kind"], description["bytes"]) == ("classify", 80)
    inputs = inspect(page / "model.tflite")["signatures"]["serving_default"]["inputs"]
    assert inputs["text"]["shape"] == [80]
    assert "replace it with --overwrite" in fail("export", critic, page, "--format", "web")
    arguments = ["export", critic, page, "--format", "web", "--overwrite", "--check"]
    assert "4 texts, answered as the task answers" in run(*arguments)


def test_what_makes_no_page_leaves_nothing(fail, critic, tmp_path):
    def said(*options):
        return fail("export", critic, tmp_path / "page", *options)

    assert "--runtime and --num-bytes are of a page: add --format web" in said("--num-bytes", "9")
    assert "--num-bytes" in said("--format", "web", "--num-bytes", "0")
    assert "does not exist" in said("--format", "web", "--runtime", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "npm install @litertjs" in said("--format", "web", "--runtime", tmp_path / "empty")
    assert "drop --freeze" in said("--format", "web", "--freeze")
    assert "--tokenizer none" in said("--format", "web", "--tokenizer", "none")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    (tmp_path / "page").write_text("precious")
    assert "is a file: name a folder, for a page" in said("--format", "web")
    (tmp_path / "empty" / "index.html").write_text("precious")
    assert "is not a page" in fail("export", critic, tmp_path / "empty", "--format", "web")


def test_a_task_without_a_page_is_refused_by_the_option_that_asked(fail, tiny, tmp_path):
    message = fail("export", tiny, tmp_path / "page", "--format", "web", "--task", "masked-lm")
    assert "--format 'web': a page has no place for the answers of a MaskedLM" in message


def test_an_onnx_takes_bytes_or_ids(fail, critic, tmp_path):
    path = tmp_path / "critic.onnx"
    assert "--tokenizer bytes, or --tokenizer none" in fail("export", critic, path)
    assert "needs a .tflite or an .onnx" in fail("export", critic, tmp_path, "--tokenizer", "bytes")
    assert "needs a .tflite: name" in fail("export", critic, path, "--tokenizer", "metadata")
    assert not path.exists()


@pytest.mark.slow
def test_an_onnx_of_bytes_answers_as_its_preset(run, critic, tmp_path):
    pytest.importorskip("tf2onnx", reason="needs the extra onnx")
    path = tmp_path / "critic.onnx"
    written = run("export", critic, path, "--tokenizer", "bytes", "--check")
    assert "4 texts, answered as the task answers" in written and path.is_file()


@pytest.mark.slow
def test_a_tflite_of_bytes_fills_masks_as_its_preset(run, tokenizer_of, backbone_of, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    preset, path = tmp_path / "preset", tmp_path / "masks.tflite"
    task = tasks.MaskedLM(backbone_of("BertBackbone"), tokenizer=tokenizer_of("wordpiece"))
    task.save_to_preset(preset)
    run("export", preset, path, "--tokenizer", "bytes")
    asked = "the [MASK] was [MASK]."
    answer, expected = (json.loads(run("predict", one, asked))["answer"] for one in (path, preset))
    assert answer["tokens"] == expected["tokens"] and answer["text"] == expected["text"]


@pytest.mark.slow
def test_products_in_int8_are_within_the_tolerance_of_int8(run, critic, tmp_path):
    options = ("--weights", "int8", "--freeze", "--check")
    assert "4 texts" in run("export", critic, tmp_path / "quick", *options)


def test_freeze_goes_neither_with_a_tflite_nor_with_smaller_weights(fail, critic, tmp_path):
    assert "drop --freeze" in fail("export", critic, tmp_path / "a.tflite", "--freeze")
    both = fail("export", critic, tmp_path / "models", "--freeze", "--weights", "float16")
    assert "does not go with --weights float16" in both
    assert "add --freeze" in fail("export", critic, tmp_path / "models", "--weights", "bfloat16")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_texts_of_ones_own_decide(run, fail, critic, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_lm.export.stored_weights.SMALLEST", 1)  # the critic has but small
    monkeypatch.setattr(comparison, "_ask", ask_here)
    (tmp_path / "films.csv").write_text("id,sentence\n1,a fine film\n2,a dull film\n")
    asked = ("--weights", "int8", "--texts", tmp_path / "films.csv")
    assert "differ" in fail("export", critic, tmp_path / "strict", *asked, "--tolerance", "0")
    assert not (tmp_path / "strict").exists()
    said = run("export", critic, tmp_path / "small", *asked)
    assert re.search(r"checked +2 texts, answered as the task answers\n", said)
    assert re.search(r"labels +100.00% equal\n", said)
    assert re.search(r"scores +differs by at most [0-9.e-]+\n", said)


@pytest.mark.slow
def test_columns_of_texts_are_named(run, fail, critic, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "_ask", ask_here)
    films = tmp_path / "films.txt"
    films.write_text("id,review\n1,a fine film\n2,a dull film\n")
    asked = ("export", critic, tmp_path / "models", "--texts", films, "--texts-format", "csv")
    assert "Name the column: --text NAME" in fail(*asked)
    assert not (tmp_path / "models").exists()
    assert "written" in run(*asked, "--text", "review")


def test_options_about_texts_need_texts(fail, critic, tmp_path):
    for option in (("--text", "review"), ("--texts-format", "csv"), ("--skip-empty",)):
        message = fail("export", critic, tmp_path / "models", *option)
        assert f"{option[0]} is about the file of --texts, which is missing" in message


@pytest.mark.parametrize("asked", ["--texts", "--check"])
def test_without_litert_a_tflite_is_not_begun(fail, critic, tmp_path, monkeypatch, asked):
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    (tmp_path / "films.csv").write_text("text\na fine film\n")
    asked = [asked, *([tmp_path / "films.csv"] if asked == "--texts" else [])]
    message = fail("export", critic, tmp_path / "critic.tflite", *asked)
    assert (
        f"{asked[0]} for a .tflite needs ai_edge_litert: pip install 'keras-lm[litert]'" in message
    )
    (tmp_path / "my.tflite").touch()
    assert "keras-lm[litert]" in fail("predict", tmp_path / "my.tflite", "a film")
    assert not (tmp_path / "critic.tflite").exists()


def test_wrong_texts_leave_nothing(fail, critic, tmp_path):
    alone = fail("export", critic, tmp_path / "models", "--tolerance", "0.1")
    assert "--tolerance 0.1 needs --texts FILE" in alone
    (tmp_path / "films.csv").write_text("title\nMetropolis\n")
    without = fail("export", critic, tmp_path / "models", "--texts", tmp_path / "films.csv")
    assert "no column 'text'" in without
    assert [path.name for path in tmp_path.iterdir()] == ["films.csv"]


def test_task_is_what_the_source_holds_or_what_is_asked_for(run, fail, answers, tiny, tmp_path):
    assert "holds no task" in fail("export", tiny, tmp_path / "none")
    for name in ("text-regressor", "question-answerer"):
        asked = fail("export", tiny, tmp_path / "none", "--task", name)
        assert f"has no head for {name}" in asked
    said = run("export", tiny, tmp_path / "vectors", "--task", "feature-extractor")
    assert "vectors/1 (" in said
    (row,) = answers(run("predict", tmp_path / "vectors", "a film"))
    assert len(row["answer"]["embedding"]) == 16
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_exported_leaves_nothing(fail, critic, tmp_path):
    half = tmp_path / "half"
    tasks.TextClassifier.from_preset(str(critic), dtype="mixed_bfloat16").save_to_preset(half)
    assert "LiteRT has no kernels" in fail("export", half, tmp_path / "half.tflite")
    assert [path.name for path in tmp_path.iterdir()] == ["half"]


# === inspect ===


@pytest.fixture
def inspect(run):
    """`inspect(path)` is the object that `--json` prints; the table has to work as well."""

    def inspect(path, *options):
        assert run("inspect", path, *options).startswith("path")
        return json.loads(run("inspect", path, "--json", *options))

    return inspect


def test_preset(inspect, critic, task):
    report = inspect(critic)
    assert report["what"] == "preset"
    assert report["model"] == "BertBackbone"
    assert report["arguments"]["hidden_dim"] == 16
    assert report["parameters"] == task.count_params()
    assert report["dtype"] == "float32"
    assert report["bytes"] > 4 * task.count_params()
    assert report["task"] == "TextClassifier"
    assert report["labels"] == ["bad", "good"]
    assert report["heads"] == ["classification"]
    assert report["tokenizer"]["class"] == "WordPieceTokenizer"
    assert report["tokenizer"]["vocabulary_size"] == 17


def test_preset_of_a_backbone(inspect, tiny, make_backbone):
    report = inspect(tiny)
    assert report["task"] is None
    assert report["heads"] == []
    assert report["parameters"] == make_backbone().count_params()


@pytest.mark.parametrize(
    "name, what, heads",
    [
        ("xlnet", "huggingface checkpoint", ["permutation language model"]),
        ("bert-qa", "huggingface checkpoint", ["question answering"]),
        ("bert", "huggingface checkpoint", ["masked language model", "next sentence"]),
        ("bert-seqcls", "huggingface checkpoint", ["classification"]),
        ("tf1-bert", "google checkpoint", ["masked language model", "next sentence"]),
        ("bert-keras-hub/classifier", "keras_hub checkpoint", ["classification"]),
    ],
)
def test_published_checkpoints_of_every_format(inspect, goldens, name, what, heads):
    report = inspect(goldens(name))
    assert report["what"] == what
    assert report["model"] == ("XLNetBackbone" if name == "xlnet" else "BertBackbone")
    assert report["heads"] == heads
    assert report["dtype"] == "float32"
    assert (report["tokenizer"] is None) == (report["what"] != "keras_hub checkpoint")
    assert (report["task"] == "TextClassifier") == ("classification" in heads)


def test_checkpoint_of_another_model_is_still_described(inspect, goldens, tmp_path):
    weights = goldens("bert") / "model.safetensors"
    (tmp_path / "model.safetensors").symlink_to(weights)
    (tmp_path / "config.json").write_text('{"model_type": "gpt9"}')
    report = inspect(tmp_path)
    assert report["model"] is None
    assert "model_type='gpt9'" in report["why"]
    assert report["tensors"] > 10


def test_checkpoint_with_an_unknown_head_is_still_described(inspect, goldens, tmp_path):
    folder = shutil.copytree(goldens("bert"), tmp_path / "folder")
    modules = [{"type": "sentence_transformers.models.LSTM", "path": "1_LSTM"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    report = inspect(folder)
    assert (report["model"], report["task"]) == ("BertBackbone", None)
    assert "has the module 'LSTM'" in report["why"]


def test_a_damaged_configuration_has_clear_words(fail, goldens, tmp_path):
    shutil.copytree(goldens("bert"), tmp_path / "bert")
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    del config["hidden_size"]
    (tmp_path / "bert" / "config.json").write_text(json.dumps(config))
    assert f"{tmp_path / 'bert'}: its configuration lacks 'hidden_size'" in fail(
        "inspect", tmp_path / "bert"
    )


def test_saved_model(inspect, run, exported, task):
    report = inspect(exported)
    of_version = json.loads(run("inspect", exported / "1", "--json"))
    assert report == of_version | {"versions": [1]}
    assert report["what"] == "SavedModel"
    signature = report["signatures"]["serving_default"]
    assert signature["inputs"] == {"text": {"dtype": "string", "shape": [None]}}
    assert signature["outputs"]["scores"] == {"dtype": "float32", "shape": [None, 2]}
    assert set(report["signatures"]["tokens"]["inputs"]) == {
        "token_ids",
        "segment_ids",
        "padding_mask",
    }
    assert report["parameters"] == task.count_params()
    assert report["dtype"] == "float32"
    assert report["warmup_requests"] == bool(list(exported.rglob("tf_serving_warmup_requests")))
    assert report["batching_settings"] == bool(list(exported.rglob("batching_params.pbtxt")))


@pytest.mark.slow
def test_tflite(inspect, tflite, task):
    report = inspect(tflite)
    assert report["what"] == "LiteRT model"
    signature = report["signatures"]["serving_default"]
    assert signature["inputs"] == {"text": {"dtype": "string", "shape": [None]}}
    assert set(signature["outputs"]) == {"labels", "scores", "class_names"}
    # The interpreter's converter folds some into others, and adds constants of its own.
    assert report["parameters"] == pytest.approx(task.count_params(), rel=0.1)
    assert report["bytes"] == tflite.stat().st_size


@pytest.mark.parametrize("name", ["elmo_medium_en", "awd_lstm_base_en"])
def test_size_of_a_recurrent_model(run, name):
    message = json.loads(run("inspect", name, "--json"))
    assert message["parameters"] > 20_000_000
    assert message["flops_per_token"]["training"] == 3 * message["flops_per_token"]["forward"] > 0
    assert "GFLOP" in run("inspect", name)


def test_inspect_refuses(fail, write, exported, tmp_path, critic):
    assert "There is no folder" in fail("inspect", tmp_path / "none")
    assert "No such file" in fail("inspect", tmp_path / "none.tflite")
    assert "is not a .tflite" in fail("inspect", write("a.tflite", "text"))
    assert "is damaged" in fail(
        "inspect", write("b.tflite", b"\x1c\x00\x00\x00TFL3" + b"\xff" * 99)
    )
    (tmp_path / "saved_model.pb").write_bytes(b"\xff" * 99)
    assert "is incomplete or damaged" in fail("inspect", tmp_path)
    assert "has no version 3; it has 1." in fail("inspect", exported, "--version", 3)
    assert "has no versions" in fail("inspect", critic, "--version", 3)
