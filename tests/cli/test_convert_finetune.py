"""`keras-lm convert` and `keras-lm finetune`: what is written, what is said, what is refused."""

import gzip
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks

pytestmark = pytest.mark.eager

ROWS = [("the film was good", "good"), ("the song was bad", "bad"), ("a good song", "good")] * 4
CSV = "text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS)


@pytest.fixture(scope="session")
def published(goldens):
    """Checkpoints of a classifier and of a backbone with pretraining heads; no vocabulary."""
    return {name: goldens(name) for name in ("bert", "bert-seqcls", "bert-seqcls-regression")}


def config_of(folder):
    return json.loads((folder / "keras_lm.json").read_text(encoding="utf-8"))


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# === convert ===


@pytest.mark.parametrize(
    "name, task", [("bert-seqcls", "TextClassifier"), ("bert-seqcls-regression", "TextRegressor")]
)
def test_head_of_the_checkpoint_comes_along(run, published, tmp_path, name, task):
    output = run("convert", published[name], tmp_path / "new")
    assert f"task        {task}" in output
    assert config_of(tmp_path / "new")["task"]["class"] == task


def test_without_a_head_backbone_and_tokenizer_are_written(run, tiny, tmp_path):
    output = run("convert", tiny, tmp_path / "new")
    assert "WordPieceTokenizer, 17 entries" in output
    assert "task" not in config_of(tmp_path / "new")
    assert (tmp_path / "new" / "assets" / "vocab.txt").is_file()
    loaded = tasks.FeatureExtractor.from_preset(str(tmp_path / "new"))
    before = tasks.FeatureExtractor.from_preset(str(tiny))
    texts = ["a good film"]
    np.testing.assert_array_equal(
        loaded.embed(texts)["embedding"], before.embed(texts)["embedding"]
    )


def test_vectors_of_sentence_transformers_come_along(run, published, tmp_path):
    source = shutil.copytree(published["bert"], tmp_path / "source")
    modules = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    types = "sentence_transformers.models"
    modules = [{"type": f"{types}.{kind}", "path": path} for kind, path in modules.items()]
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    assert "task        FeatureExtractor" in run("convert", source, tmp_path / "new")
    task = config_of(tmp_path / "new")["task"]["arguments"]
    assert (task["pooling"], task["normalize"], task["sequence_length"]) == ("last", True, 40)


def test_task_chooses_another_head(run, fail, published, tiny, tmp_path):
    run("convert", published["bert"], tmp_path / "new", "--task", "masked-lm")
    assert config_of(tmp_path / "new")["task"]["class"] == "MaskedLM"
    message = fail("convert", tiny, tmp_path / "other", "--task", "text-classifier")
    assert "has no head for text-classifier" in message
    assert "keras-lm finetune" in message
    assert not (tmp_path / "other").exists()


def test_convert_to_huggingface(run, fail, critic, tmp_path):
    output = run("convert", critic, tmp_path / "new", "--to", "huggingface")
    assert "folder      " in output and "TextClassifier" in output
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    again = run("convert", tmp_path / "new", tmp_path / "again")
    assert "TextClassifier" in again
    said = fail("convert", critic, tmp_path / "again", "--to", "huggingface", "--overwrite")
    assert "is not empty" in said


def test_convert_to_other_formats(run, fail, critic, tmp_path):
    assert "gelu_tanh" in fail("convert", critic, tmp_path / "hub", "--to", "kerashub")
    source = tmp_path / "source"
    task = tasks.TextClassifier.from_preset(str(critic), activation="gelu_tanh")
    task.save_to_preset(source)
    for form, file in (("google", "bert_config.json"), ("kerashub", "task.weights.h5")):
        assert "TextClassifier" in run("convert", source, tmp_path / form, "--to", form)
        assert (tmp_path / form / file).is_file()


def test_convert_replaces_presets_if_told_to_and_nothing_else(run, fail, critic, tmp_path):
    run("convert", critic, tmp_path / "new")
    assert "with --overwrite" in fail("convert", critic, tmp_path / "new")
    (tmp_path / "new" / "model.safetensors").unlink()
    (tmp_path / "new" / "run.toml").write_text("epochs = 1")
    run("convert", critic, tmp_path / "new", "--overwrite")
    assert (tmp_path / "new" / "model.safetensors").is_file()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    before = snapshot(tmp_path)
    assert "is not a preset" in fail("convert", critic, tmp_path / "mine", "--overwrite")
    assert "is a file" in fail("convert", critic, tmp_path / "mine" / "thesis.txt")
    assert snapshot(tmp_path) == before


def test_damage_in_a_checkpoint_is_named(fail, critic, tmp_path):
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    assert "no checkpoint that is recognised" in fail("convert", damaged, tmp_path / "new")
    for path in critic.rglob("*.*"):
        target = damaged / path.relative_to(critic)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors" in fail("convert", damaged, tmp_path / "new")
    (damaged / "keras_lm.json").write_text("{")
    assert "keras_lm.json is not valid JSON" in fail("convert", damaged, tmp_path / "new")
    assert "names a size" in fail("convert", "bert_base_en_uncased", tmp_path / "new")
    assert not (tmp_path / "new").exists()


# === finetune ===


@pytest.fixture(scope="module")
def trained(run, tiny, tmp_path_factory):
    """(output, preset, export) of one run with everything."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + CSV.encode()))
    preset, exported = folder / "critic", folder / "exported"
    arguments = ["finetune", tiny, folder / "train.csv.gz", "--output", preset]
    options = ["--validation-split", 0.25, "--epochs", 8, "--batch-size", 5]
    more = ["--learning-rate", 0.05, "--sequence-length", 16, "--export", exported]
    return run(*arguments, *options, *more), preset, exported


def test_finetune_says_what_it_did(trained):
    output, _, _ = trained
    assert "9 to train on, 3 held out" in output
    assert "labels  bad, good" in output
    assert "validation accuracy  1.0000" in output
    assert "Epoch 8/8" in output
    assert "\b" not in output and "\x1b" not in output  # no bar where there is no terminal


def test_finetuned_preset_knows_what_it_was_taught(trained, run, answers):
    _, preset, exported = trained
    config = config_of(preset)["task"]
    assert config["class"] == "TextClassifier"
    assert config["arguments"]["class_names"] == ["bad", "good"]
    assert config["arguments"]["sequence_length"] == 16
    assert config["arguments"]["text_pair"] is False
    for model in (preset, exported):
        rows = answers(run("predict", model, "the film was good", "the song was bad"))
        assert [row["answer"]["labels"] for row in rows] == ["good", "bad"]


def finetune(run, source, file, output, *options):
    return run("finetune", source, file, "--output", output, "--epochs", 1, *options)


@pytest.mark.parametrize("content", ["0\n1\n0\n", "good\nbad\ngood\n"])
def test_classes_of_the_source_stay_where_labels_fit(
    run, write, tmp_path, make_backbone, tokenizer, content
):
    names = ["good", "bad"]  # in another order than sorting would give
    task = tasks.TextClassifier(make_backbone(), tokenizer=tokenizer, class_names=names)
    task.save_to_preset(tmp_path / "first")
    lines = [f"a film,{label}" for label in content.split()]
    file = write("train.csv", "text,labels\n" + "\n".join(lines))
    output = finetune(run, tmp_path / "first", file, tmp_path / "second")
    assert "labels  good, bad" in output
    assert config_of(tmp_path / "second")["task"]["arguments"]["class_names"] == ["good", "bad"]


def test_integers_are_classes_in_their_order(run, write, tmp_path, tiny):
    lines = "".join(json.dumps({"text": "a film", "label": stars}) + "\n" for stars in (10, 2, 1))
    output = finetune(run, tiny, write("train.jsonl", lines), tmp_path / "stars")
    assert "labels  1, 2, 10" in output


@pytest.mark.parametrize(
    "name, content",
    [
        ("train.csv", 'sentence,label\na film,"good, loud"\na song,\nbad,loud\n'),
        (
            "train.jsonl",
            '{"text": "a film", "labels": ["good", "loud"]}\n{"text": "a song", "labels": []}\n',
        ),
    ],
)
def test_several_labels_a_text(run, write, tmp_path, tiny, name, content):
    finetune(run, tiny, write(name, content), tmp_path / "topics", "--multi-label")
    arguments = config_of(tmp_path / "topics")["task"]["arguments"]
    assert arguments["class_names"] == ["good", "loud"]
    assert arguments["multi_label"] is True


def test_labels_with_another_separator_are_told(run, write, tmp_path, tiny):
    for separator, is_told in ((",", False), ("|", True)):
        file = write("train.csv", f'text,label\na film,"good{separator}loud"\na song,bad\n')
        said = finetune(run, tiny, file, tmp_path / "topics", "--multi-label", "--overwrite")
        assert ("Note: no text has several labels, separated by ','." in said) == is_told


def test_numbers_and_pairs(run, write, tmp_path, tiny):
    rows = "a\tb\tscore\na film\ta song\t4.5\nbad\tgood\t0\n"
    columns = ["--text", "a", "--text-pair", "b", "--labels", "score"]
    task = ["--task", "text-regressor", "--seed", 3]
    validation = ["--validation", write("validation.tsv", rows)]
    file = write("train.tsv", rows)
    output = finetune(run, tiny, file, tmp_path / "new", *columns, *task, *validation)
    assert "validation mean absolute error" in output.replace("_", " ")
    config = config_of(tmp_path / "new")["task"]
    assert (config["class"], config["arguments"]["text_pair"]) == ("TextRegressor", True)


def test_plain_lines_go_on_pretraining(run, fail, write, tmp_path, tiny):
    file = write("texts.txt", "the film was good\nthe song was bad\n" * 3)
    options = ["--task", "masked-lm", "--dtype", "mixed_bfloat16"]
    finetune(run, tiny, file, tmp_path / "new", *options)
    config = config_of(tmp_path / "new")
    assert config["task"]["class"] == "MaskedLM"
    assert config["backbone"]["arguments"]["dtype"] == "mixed_bfloat16"
    # Labels would be left unread in silence.
    labelled = write("train.csv", "text,kind,label\na,x,good\nb,y,bad\n")
    command = "finetune", tmp_path / "new", labelled, "--output", tmp_path / "critic"
    assert "is a MaskedLM, which learns from texts alone, and" in fail(*command)
    assert "has the labels 'kind': pass --task text-classifier" in fail(
        *command, "--labels", "kind"
    )


def test_mistakes_come_before_the_weights_are_read(fail, write, tmp_path, tiny, monkeypatch):
    # To call it would be a TypeError.
    monkeypatch.setattr("keras_lm.presets.Source.load_weights", None)
    good = write("good.csv", CSV)

    def message(content, *options, name="train.csv"):
        file = write(name, content)
        return fail("finetune", tiny, file, "--output", tmp_path / "new", *options)

    assert "has texts without labels: pass a CSV" in message("text\nx\n")
    assert "no column 'labels' or 'label', only text, y" in message("text,y\nx,1\n")
    assert "no column 'titel'" in message(CSV, "--text", "titel")
    assert "no column 'y'" in message(CSV, "--labels", "y")
    assert "has no rows" in message("text,label\n")
    assert "line 3: the label is empty" in message("text,label\nx,good\ny,\n")
    missing = "line 3: the label is 'nan', as pandas writes a missing one"
    assert missing in message("text,label\nx,good\ny,nan\n")
    two = write("two.txt", "a\nb\n")
    masked = message("a\nb\n", "--task", "masked-lm", "--targets", two, name="train.txt")
    assert "--targets is not for --task masked-lm, only for --task seq2seq-lm" in masked
    assert f"--targets is not for text-classifier, which follows from {tiny}" in message(
        "a\nb\n", "--targets", two, name="train.txt"
    )
    missing = message('{"text": "x", "label": NaN}\n', name="train.jsonl")
    assert "line 1: the label is empty" in missing
    assert "only the label 'good'" in message("text,label\nx,good\n")
    unknown = message("text,label\nx,good\ny,bda\n", "--class-names", "good,bad")
    assert "line 3: the label 'bda' is not one of good, bad" in unknown
    assert "names one twice" in message(CSV, "--class-names", "good,good")
    other = write("other.csv", "text,label\nx,ugly\n")
    assert "other.csv, line 2: the label 'ugly'" in message(CSV, "--validation", other)
    both = message(CSV, "--validation", good, "--validation-split", 0.1)
    assert "choose one" in both
    assert "leaves one part empty" in message(CSV, "--validation-split", 0.01)
    assert "is not a number" in message(CSV, "--task", "text-regressor")
    assert "is not for --task masked-lm" in message(CSV, "--task", "masked-lm", "--multi-label")
    options = ["--task", "text-regressor", "--class-weight", "balanced"]
    assert "--class-weight is not for --task text-regressor" in message(CSV, *options)
    unknown = message(CSV, "--class-weight", "goods=2")
    assert "names 'goods', and the classes are bad, good. Did you mean good?" in unknown
    assert "neither balanced nor NAME=WEIGHT" in message(CSV, "--class-weight", "bad=much")
    assert "--sequence-length 99, but" in message(CSV, "--sequence-length", 99)
    assert "line 1: 'text' is 1" in message('{"text": 1, "label": "x"}', name="train.jsonl")
    assert not (tmp_path / "new").exists()


def test_errors_say_what_to_do_on_the_command_line(fail, write, published, tiny, tmp_path):
    pytest.importorskip("tokenizers")
    new, corpus = tmp_path / "new", write("corpus.txt", "a film\n")
    small = fail("vocab", corpus, "--output", new, "--size", 3)
    assert "`--size` is 3" in small
    vocab = ["vocab", corpus, "--output", new, "--lowercase"]
    assert "--lowercase is not for --kind byte-pair" in fail(*vocab, "--kind", "byte-pair")
    size = fail("finetune", "bert_base_en", write("a.csv", CSV), "--output", new)
    assert "published at hf://google-bert/bert-base-cased" in size
    without = fail("predict", published["bert-seqcls"], "x")
    assert "has no vocabulary" in without
    headless = fail("export", tiny, new, "--task", "token-classifier")
    assert "keras-lm finetune" in headless
    for message in (small, size, without, headless):
        assert not re.search(r"from_preset|\w=|pass |vocabulary_size", message), message


def test_output_that_exists_is_refused_at_once(fail, write, tmp_path, tiny):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    file = write("train.csv", CSV)
    assert "is not a preset" in fail("finetune", tiny, file, "--output", tmp_path / "mine")
    assert "is not a writable folder" in fail("finetune", tiny, file, "--output", file / "new")
    new = ["--output", tmp_path / "new", "--export", file]
    assert "train.csv is a file: name a folder" in fail("finetune", tiny, file, *new)
    assert "is a preset already" in fail("finetune", tiny, file, "--output", tiny)
    vocabulary = ["--vocabulary", tiny, "--output", tiny]
    assert "is a preset already" in fail("pretrain", file, *vocabulary)
    assert "is a preset already" in fail("vocab", file, "--output", tiny)
    assert "is a file" in fail("vocab", file, "--output", file, "--overwrite")
    for command in ("predict", "features"):
        message = fail(command, tiny, "x", "--output", file)
        assert "train.csv exists" in message and "with --overwrite" in message


def test_loss_that_is_no_number_writes_nothing(fail, write, tmp_path, tiny):
    arguments = ["finetune", tiny, write("train.csv", CSV), "--output", tmp_path / "new"]
    message = fail(*arguments, "--learning-rate", 1e38, "--epochs", 2, "--batch-size", 2)
    assert "try a lower --learning-rate than 1e+38" in message
    assert not (tmp_path / "new").exists()


def test_full_memory_is_answered_with_advice(fail, write, tmp_path, tiny, monkeypatch):
    def fit(*arguments, **options):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating a tensor")

    monkeypatch.setattr(tasks.Task, "fit_packed", fit)
    arguments = ["finetune", tiny, write("train.csv", CSV), "--output", tmp_path / "new"]
    assert "lower --batch-size" in fail(*arguments)
    assert not (tmp_path / "new").exists()
