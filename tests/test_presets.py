"""Presets: round trips, and clear errors for broken ones."""

import json
import pathlib
import re
import resource
import shutil
import warnings

import keras
import numpy as np
import pytest
import safetensors.numpy
import tiny

import keras_lm
from keras_lm.converters import CheckpointError, checked_files
from keras_lm.models import Backbone, BertBackbone
from keras_lm.presets import saving
from keras_lm.presets.saving import Origin, card_of_preset, read_origin
from keras_lm.tasks import (
    Ensemble,
    FeatureExtractor,
    MaskedLM,
    Pretrainer,
    Task,
    TextClassifier,
    TextRegressor,
)
from keras_lm.tokenizers import Tokenizer, WordPieceTokenizer
from keras_lm.utils import files

pytestmark = pytest.mark.eager

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "##s", "a", "."]
TEXTS = ["a good film", "bad films.", ""]


def make_backbone(rows=16, **arguments):
    keras.utils.set_random_seed(1)
    config = {
        "vocabulary_size": rows,
        "num_layers": 2,
        "num_heads": 2,
        "hidden_dim": 8,
        "intermediate_dim": 12,
        "max_sequence_length": 10,
    }
    return BertBackbone(**(config | arguments))


def make_tokenizer():
    return WordPieceTokenizer(WORDS, lowercase=True)


@pytest.fixture(scope="module")
def classifier():
    return TextClassifier(
        make_backbone(), tokenizer=make_tokenizer(), class_names=["no", "yes"], sequence_length=9
    )


@pytest.fixture(scope="module")
def saved(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "preset"
    classifier.save_to_preset(folder)
    return folder


@pytest.fixture
def preset(saved, tmp_path):
    return pathlib.Path(shutil.copytree(saved, tmp_path / "preset"))


TASKS = {
    "classifier": lambda b, t: TextClassifier(b, tokenizer=t, class_names=["no", "yes"]),
    "multi_label": lambda b, t: TextClassifier(b, tokenizer=t, num_classes=3, multi_label=True),
    "regressor": lambda b, t: TextRegressor(b, tokenizer=t, truncation="only_first"),
    "masked_lm": lambda b, t: MaskedLM(b, tokenizer=t, top_k=3),
    "pretrainer": lambda b, t: Pretrainer(b, tokenizer=t, text_pair=True),
    "extractor": lambda b, t: FeatureExtractor(b, tokenizer=t, layers="scalar_mix", pooling="max"),
    "stacked": lambda b, t: TextClassifier(
        FeatureExtractor(b, tokenizer=t, layers=2), tokenizer=t, num_classes=2
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_comes_back_bit_for_bit(tmp_path, name):
    task = TASKS[name](make_backbone(), make_tokenizer())
    for weight in task.weights:  # zeros and ones would hide a mistake
        if "seed" not in weight.path:
            weight.assign(np.random.default_rng(len(weight.path)).normal(size=weight.shape))
    task.save_to_preset(tmp_path / "preset")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Which class is asked makes no difference.
        again = (type(task) if name == "classifier" else Task).from_preset(tmp_path / "preset")
    assert type(again) is type(task)
    assert again.get_arguments() == task.get_arguments()
    if name != "stacked":  # there the tokenizer is the outer task's
        assert again.backbone.get_config() == task.backbone.get_config()
    assert again.tokenizer.vocabulary == WORDS
    assert again.tokenizer.get_config() == task.tokenizer.get_config()
    weights = {w.path: np.asarray(w) for w in again.weights if "seed" not in w.path}
    for weight in task.weights:
        if "seed" not in weight.path:
            np.testing.assert_array_equal(weights.pop(weight.path), weight)
    assert not weights
    answers = [each(each.preprocess({"text": TEXTS})) for each in (task, again)]
    for one, other in zip(*map(keras.tree.flatten, answers)):
        np.testing.assert_array_equal(one, other)


def test_parts_of_a_preset(preset, classifier):
    tokenizer = Tokenizer.from_preset(preset)
    assert isinstance(tokenizer, WordPieceTokenizer)
    assert tokenizer(["a film"]).to_list() == [[9, 7]]
    with pytest.warns(UserWarning, match="left over in the checkpoint are classifier/logits/bias"):
        backbone = Backbone.from_preset(preset)
    inputs = {"token_ids": [[2, 5, 3]]}
    np.testing.assert_array_equal(
        backbone(inputs)["pooled_output"], classifier.backbone(inputs)["pooled_output"]
    )
    backbone.save_to_preset(preset.parent / "backbone")
    assert isinstance(BertBackbone.from_preset(preset.parent / "backbone"), BertBackbone)
    with pytest.raises(ValueError, match="holds no task"):
        Task.from_preset(preset.parent / "backbone")
    with pytest.raises(ValueError, match="preset without a tokenizer"):
        Tokenizer.from_preset(preset.parent / "backbone")
    with pytest.warns(UserWarning, match="new and random are classifier/logits"):
        task = TextClassifier.from_preset(preset.parent / "backbone", num_classes=2)
    assert task.tokenizer is None


def test_what_is_given_wins_over_what_is_stored(preset):
    task = TextClassifier.from_preset(preset, sequence_length=5, dropout=0.0, padding="fixed")
    assert task.preprocess({"text": ["a"]})["token_ids"].shape == (1, 5)
    assert task.backbone.config["dropout"] == 0.0
    assert task.class_names == ["no", "yes"]
    with pytest.raises(ValueError, match=r"scores have the order \['no', 'yes'\]: leave class_na"):
        TextClassifier.from_preset(preset, class_names=["yes", "no"])


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("num_clases", "Did you mean num_classes"),
        ("num_labels", "num_labels is num_classes here"),
        ("max_length", "max_length is sequence_length here"),
        ("droput", "Did you mean dropout"),
        ("quite_another", r"\. TextClassifier takes \['class_names', "),
    ],
)
def test_unknown_arguments_are_named_with_what_they_may_be(preset, argument, words):
    with pytest.raises(ValueError, match=rf"unknown arguments \['{argument}'\].*{words}"):
        TextClassifier.from_preset(preset, **{argument: 3})
    size = {"load_weights": False, argument: 3}
    with pytest.raises(ValueError, match=rf"unknown arguments \['{argument}'\].*{words}"):
        TextClassifier.from_preset("bert_tiny_en_uncased", **size)


def test_unknown_arguments_of_a_backbone_are_named(preset):
    for source, more in ((preset, {}), ("bert_tiny_en_uncased", {"load_weights": False})):
        with pytest.raises(ValueError, match=r"\['hiden_dim'\]. Did you mean hidden_dim"):
            Backbone.from_preset(source, hiden_dim=3, **more)


@pytest.mark.parametrize("name", ["m.keras", "m.tflite"])
def test_a_file_that_is_no_source_says_what_it_is(tmp_path, name):
    (tmp_path / name).touch()
    words = {"m.keras": "keras.models.load_model loads it", "m.tflite": "is an export: give the"}
    with pytest.raises(FileNotFoundError, match=words[name]):
        Task.from_preset(tmp_path / name)


@pytest.mark.parametrize("arguments", [{"num_classes": 3}, {"class_names": ["a", "b", "c"]}])
def test_other_classes_are_a_fresh_head_and_one_warning(preset, arguments):
    with pytest.warns(UserWarning, match="new and random are classifier/logits") as caught:
        task = TextClassifier.from_preset(preset, **arguments)
    assert len([w for w in caught if w.category is UserWarning]) == 1
    assert task.num_classes == 3
    assert task.class_names == arguments.get("class_names")


def test_from_preset_takes_the_source_and_load_weights_by_place(preset):
    objectives = [keras_lm.objectives.MaskedLanguageModel()]
    for cls, given in ((Pretrainer, objectives), (TextClassifier, 3), (Backbone, "float32")):
        with pytest.raises(ValueError, match=r"^load_weights=.* must be True or False: .* by name"):
            cls.from_preset(preset, given)
    assert isinstance(Backbone.from_preset(preset, np.True_), BertBackbone)


def test_another_task_takes_the_backbone(preset, classifier):
    with pytest.warns(UserWarning, match="new and random are token_head"):
        task = MaskedLM.from_preset(preset)
    assert task.tokenizer.vocabulary == WORDS
    with pytest.warns(UserWarning, match="new and random are classifier/logits"):
        regressor = TextRegressor.from_preset(preset)
    assert regressor.predict(TEXTS, verbose=0).shape == (3, 1)
    np.testing.assert_array_equal(
        task.backbone.token_embedding.embeddings, classifier.backbone.token_embedding.embeddings
    )


def test_a_published_classifiers_own_classes(goldens, tmp_path):
    assert TextClassifier.from_preset(goldens("bert-seqcls")).num_classes == 3
    assert TextClassifier.from_preset(goldens("bert-seqcls-multilabel")).multi_label
    folder = tmp_path / "named"
    shutil.copytree(goldens("bert-seqcls"), folder)
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"2": "neutral", "0": "yes", "1": "no"}
    (folder / "config.json").write_text(json.dumps(config))
    assert TextClassifier.from_preset(folder).class_names == ["yes", "no", "neutral"]
    with pytest.raises(ValueError, match="num_classes and class_names are both missing"):
        TextClassifier.from_preset(goldens("bert-seqcls-regression"))
    # A tagger's head has the same name in the file and is another thing.
    config["architectures"] = ["BertForTokenClassification"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="new and random.*left over.*classifier.bias"):
        TextClassifier.from_preset(folder, num_classes=3)


def test_saving_is_one_step(preset, classifier, monkeypatch):
    def fail(*arguments):
        raise OSError("disk full")

    before = {path.name: path.read_bytes() for path in preset.iterdir() if path.is_file()}
    monkeypatch.setattr(checked_files, "save_checked", fail)
    with pytest.raises(OSError, match="disk full"):
        classifier.save_to_preset(preset)
    with pytest.raises(OSError, match="disk full"):
        classifier.save_to_preset(preset.parent / "new")
    assert {p.name: p.read_bytes() for p in preset.iterdir() if p.is_file()} == before
    assert [path.name for path in preset.parent.iterdir()] == ["preset"]


def test_a_full_disk_is_named(preset, classifier):
    """By a limit to the size of files, which has the same effect on all writers."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=r"disk is full .* free some space.*preset"):
            classifier.save_to_preset(preset)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in preset.parent.iterdir()] == ["preset"]
    Task.from_preset(preset)


def test_an_interrupted_replacement_keeps_the_old_preset(preset, classifier, monkeypatch):
    rename = files.os.rename

    def interrupted(source, target):
        if source.name == "new":
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(files, "_swap", lambda one, other: False)
    monkeypatch.setattr(files.os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        classifier.save_to_preset(preset)
    Task.from_preset(preset)


def test_saving_replaces_a_preset_and_nothing_else(preset, classifier, tmp_path):
    classifier.save_to_preset(preset)
    Task.from_preset(preset)
    other = tmp_path / "work"
    other.mkdir()
    (other / "thesis.txt").write_text("years")
    with pytest.raises(FileExistsError, match="not a preset"):
        classifier.save_to_preset(other)
    assert (other / "thesis.txt").read_text() == "years"


def test_a_preset_with_other_files_is_replaced_only_if_told_so(preset, classifier, tmp_path):
    critics = Ensemble([classifier, classifier])
    folder = tmp_path / "of-a-command"
    for save in (
        classifier.save_to_preset,
        classifier.backbone.save_to_preset,
        critics.save_to_preset,
    ):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(preset, folder)
        save(folder)
        save(folder)  # it holds a preset alone
        (folder / "run.toml").write_text("epochs = 3\n")
        with pytest.raises(FileExistsError, match=r"files, run\.toml: .* overwrite=True"):
            save(folder)
        assert (folder / "run.toml").read_text() == "epochs = 3\n"
        save(folder, overwrite=True)
        assert not (folder / "run.toml").exists()


def test_saving_replaces_nothing_if_told_so(preset, classifier, tmp_path, monkeypatch):
    classifier.save_to_preset(tmp_path / "new", overwrite=False)
    monkeypatch.setattr(saving, "_describe", None)  # to begin would be a TypeError
    with pytest.raises(FileExistsError, match="overwrite=False"):
        classifier.save_to_preset(preset, overwrite=False)
    with pytest.raises(FileExistsError, match="overwrite=False"):
        classifier.backbone.save_to_preset(preset, overwrite=False)


def test_large_presets_are_sharded(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "MAX_SHARD_BYTES", 1000)
    classifier.save_to_preset(tmp_path / "sharded")
    assert len(list((tmp_path / "sharded").glob("model-*-of-*.safetensors"))) > 3
    again = Task.from_preset(tmp_path / "sharded")
    np.testing.assert_array_equal(
        again.predict(TEXTS, verbose=0), classifier.predict(TEXTS, verbose=0)
    )


# === Broken folders ===


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda p: (p / "model.safetensors").unlink(), "model.safetensors"),
        (lambda p: truncate(p / "model.safetensors"), "model.safetensors"),
        (lambda p: (p / "keras_lm.json").write_text("{"), "keras_lm.json is not valid JSON"),
        (lambda p: (p / "assets" / "vocab.txt").unlink(), "vocab.txt"),
        (lambda p: truncate_lines(p / "assets" / "vocab.txt", 3), "was saved with 11"),
        (lambda p: truncate_lines(p / "assets" / "vocab.txt", -1), "was saved with 11"),
        (lambda p: (p / "assets" / "vocab.txt").open("a").write("new\n"), "vocab.txt has changed"),
        (lambda p: (p / "keras_lm.json").open("a").write("\n"), "keras_lm.json has changed"),
        (lambda p: (p / "checksums.json").write_text("{}"), "checksums.json is damaged"),
        (lambda p: edit(p, "format_version", 2), "format_version=2"),
        (lambda p: edit(p, "backbone", {"class": "json.loads", "arguments": {}}), "json.loads"),
        (lambda p: edit(p, "backbone", {"class": "BertBackbone"}), "must have 'class' and"),
        (lambda p: edit(p, "task", {"arguments": {}}), "'task' must have 'class' and"),
        (lambda p: edit_backbone(p, "hidden_dim", 4), "has shape"),
        (lambda p: edit(p, "backbone", {"class": [], "arguments": {}}), "must have 'class' and"),
        (lambda p: edit(p, "backbone", {"class": "BertBackbone", "arguments": []}), "an object"),
        (lambda p: edit(p, "backbone", []), "'backbone' must have 'class' and"),
        (lambda p: edit(p, "backbone", None), "describes no backbone"),
        (lambda p: edit_backbone(p, "num_heds", 2), "TypeError: .*num_heds"),
        (lambda p: edit_backbone(p, "num_heads", 0), "its configuration: num_heads=0: pass"),
        (lambda p: edit_backbone(p, "num_heads", ...), "its configuration is wrong.*num_heads"),
        (lambda p: edit_part(p, "task", "bogus", 2), "TextClassifier is wrong.*bogus"),
        (lambda p: edit_part(p, "task", "num_classes", "x"), "TextClassifier: num_classes='x'"),
        (lambda p: edit_part(p, "tokenizer", "bogus", 2), "WordPieceTokenizer wrongly.*bogus"),
        (lambda p: edit(p, "tokenizer", {"class": [], "arguments": {}}), "'tokenizer' must have"),
        (lambda p: nest(p, "task", 1), "'task' has a 'backbone' of its own"),
        (lambda p: nest(p, "backbone", 300), "one too many"),
        (lambda p: nest(p, "backbone", 1), "its configuration"),
        (lambda p: edit_backbone(p, "num_layers", 3), "lacks the weights of block_2"),
    ],
)
def test_broken_presets(preset, harm, message):
    harm(preset)
    with pytest.raises(ValueError, match=message):
        Task.from_preset(preset)


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("backbone", "num_layers", 10**6, r"num_layers=1000000, but it has \d+ tensors"),
        ("backbone", "hidden_dim", 10**7, "hidden_dim=10000000, but no tensor is longer than 24"),
        ("backbone", "vocabulary_size", 10**10, "vocabulary_size=10000000000, but no tensor"),
        ("backbone", "max_sequence_length", 10**10, "max_sequence_length=10000000000, but no"),
        ("backbone", "intermediate_dim", 10**10, "intermediate_dim=10000000000, but no"),
        ("task", "num_classes", 10**10, "num_classes=10000000000, but no tensor"),
        ("task", "sequence_length", 10**12, "sequence_length=1000000000000, but no tensor"),
        ("task", "class_names", ["a"] * 20_000, "asks for 20000 class_names, but no tensor"),
        ("backbone", "num_decoder_layers", 10**6, r"num_decoder_layers=1000000, but it has"),
        ("backbone", "num_heads", 10**7, "num_heads=10000000, but no tensor"),
        ("backbone", "num_buckets", 2**31, "num_buckets=2147483648, but no tensor"),
        ("backbone", "max_distance", 10**18, "max_distance=1000000000000000000, but no tensor"),
        ("backbone", "filters", [[1, 4]] * 100, r"asks for 100 filters, but it has \d+ tensors"),
        ("backbone", "filters", [[50, 10**9]], "filters=1000000000, but no tensor"),
        ("backbone", "attention_windows", [8] * 10**6, "asks for 1000000 attention_windows"),
    ],
)
def test_sizes_that_are_not_the_tensors(preset, part, name, value, message):
    edit_part(preset, part, name, value)
    with pytest.raises(CheckpointError, match=message):
        Task.from_preset(preset)


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_weights_that_are_no_numbers(preset, number):
    tensors = safetensors.numpy.load_file(preset / "model.safetensors")
    name = next(name for name in tensors if "feed_forward" in name or "intermediate" in name)
    tensors[name].flat[-1] = number
    safetensors.numpy.save_file(tensors, preset / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"{preset}: its weights: {name} holds .* not finite"):
        Task.from_preset(preset)


STRANGERS = {
    "layer": {"module": "keras.layers", "class_name": "Dense", "config": {"units": 8}},
    "other": {"module": "json", "class_name": "JSONDecoder", "config": {}},
    "policy": {"module": "json", "class_name": "DTypePolicy", "config": {"name": "float16"}},
    "ours": {
        "module": "keras_lm.layers",
        "class_name": "MLMHead",
        "config": {},
        "registered_name": "keras_lm>MLMHead",
    },
    "disguised": {
        "module": "keras.layers",
        "class_name": "Dense",
        "config": {"units": 8},
        "registered_name": "keras_lm>BertBackbone",
    },
    "disguised policy": {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": {},
        "registered_name": "keras_lm>MLMHead",
    },
}


@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("argument", ["language_model", "activation", "dtype", "name"])
def test_a_preset_names_no_class_but_those_of_backbones(preset, argument, kind):
    """Nor in a list, nor within another backbone's configuration."""
    nested = {"class_name": "BertBackbone", "registered_name": "keras_lm>BertBackbone"}
    for value in (
        STRANGERS[kind],
        [STRANGERS[kind]],
        nested | {"config": {argument: [{"deep": STRANGERS[kind]}]}},
    ):
        edit_backbone(preset, argument, value)
        with pytest.raises(CheckpointError, match="only backbones and dtype policies may be named"):
            Backbone.from_preset(preset)


def test_a_preset_names_a_dtype_policy(preset):
    policy = {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": {"name": "mixed_bfloat16"},
        "registered_name": None,
    }
    edit_backbone(preset, "dtype", policy)
    assert Backbone.from_preset(preset).compute_dtype == "bfloat16"


def test_matrices_that_no_tensor_is_as_large_as(preset):
    """A vector of that length is there, but no matrix."""
    tensors = {"long": np.zeros(10**6, "float16")}
    checked_files.write_safetensors(preset, tensors, 10**9)
    edit_part(preset, "backbone", "num_layers", 1)
    edit_part(preset, "backbone", "hidden_dim", 10**6)
    with pytest.raises(CheckpointError, match=r"hidden_dim=1000000, .*its tensors hold 1000000"):
        Task.from_preset(preset, load_weights=False)


def changed(source, folder, key, value):
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: value}))
    return folder


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_hidden_layers", 10**6, "num_layers=1000000, but it has"),
        ("num_hidden_layers", -1, "num_layers=-1: pass a whole number of 1 or more"),
        ("num_attention_heads", 0, "num_heads=0: pass"),
        ("hidden_size", 10**7, "hidden_dim=10000000, but no tensor is longer"),
        ("hidden_size", "16", "hidden_dim='16': pass"),
        ("vocab_size", 10**10, "vocabulary_size=10000000000, but no tensor"),
        ("hidden_act", {"class_name": "Dense"}, "activation={'class_name': 'Dense'}: pass"),
        ("hidden_act", ["gelu"], "activation=['gelu']: pass"),
        ("layer_norm_eps", float("nan"), "layer_norm_epsilon=nan: pass"),
        ("hidden_dropout_prob", 7, "dropout=7: pass"),
    ],
)
def test_published_configurations_that_are_wrong(goldens, tmp_path, key, value, message):
    folder = changed(goldens("bert"), tmp_path / "wrong", key, value)
    with pytest.raises(CheckpointError, match=f"wrong: its configuration.*{re.escape(message)}"):
        Backbone.from_preset(folder, load_weights=False)


def test_published_labels_that_are_wrong(goldens, tmp_path):
    folder = changed(goldens("bert-seqcls"), tmp_path / "wrong", "id2label", ["a", "b"])
    with pytest.raises(CheckpointError, match="its description of labels is wrong"):
        TextClassifier.from_preset(folder)


def without_sums(preset):
    """Remove the checksums of a preset, as whoever means harm would."""
    (preset / "checksums.json").unlink(missing_ok=True)


def truncate_lines(path, number):
    without_sums(path.parent.parent)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-number] if number > 0 else [*lines, *["new\n"] * -number]))


def edit(preset, key, value):
    without_sums(preset)
    config = json.loads((preset / "keras_lm.json").read_text())
    config[key] = value
    (preset / "keras_lm.json").write_text(json.dumps(config))


def edit_backbone(preset, key, value):
    edit_part(preset, "backbone", key, value)


def edit_part(preset, part, key, value):
    """Set an argument in `keras_lm.json`, or remove it with `...`."""
    part_of_it = json.loads((preset / "keras_lm.json").read_text())[part]
    arguments = part_of_it["arguments"] | {key: value}
    part_of_it["arguments"] = {k: v for k, v in arguments.items() if v is not ...}
    edit(preset, part, part_of_it)


def nest(preset, part, depth):
    """Put a part into tasks as their backbone."""
    nested = json.loads((preset / "keras_lm.json").read_text())[part]
    for _ in range(depth):
        nested = {"class": "TextClassifier", "arguments": {}, "backbone": nested}
    edit(preset, part, nested)


def test_a_vocabulary_that_does_not_fit_its_embedding(goldens, tmp_path):
    words = [*WORDS, *(f"word{i}" for i in range(300))]
    folder = tmp_path / "bert"
    shutil.copytree(goldens("bert"), folder)
    (folder / "vocab.txt").write_text("\n".join(words[:300]) + "\n")
    with pytest.raises(ValueError, match=r"300 entries.*211 rows"):
        MaskedLM.from_preset(folder)
    # Some are published with many more rows; or the file is cut off.
    (folder / "vocab.txt").write_text("\n".join(words[:50]) + "\n")
    with pytest.warns(UserWarning, match="50 entries, the embedding 211 rows"):
        assert MaskedLM.from_preset(folder).tokenizer.vocabulary_size == 50
    (folder / "vocab.txt").write_text("\n".join(words[:205]) + "\n")
    with pytest.warns(UserWarning):
        assert MaskedLM.from_preset(folder).tokenizer.vocabulary_size == 205


def test_sources_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="no_such_thing"):
        Backbone.from_preset("no_such_thing")
    for cls in (Backbone, TextClassifier, Tokenizer):
        with pytest.raises(FileNotFoundError, match=r"Did you mean bert_base_en_uncased"):
            cls.from_preset("bert_base_en_uncase")
    with pytest.raises(CheckpointError, match="holds no checkpoint that is recognised"):
        Backbone.from_preset(tmp_path)
    with pytest.raises(ValueError, match="load_weights=False"):
        TextClassifier.from_preset("bert_base_en_uncased", num_classes=2)
    with pytest.raises(ValueError, match="published at hf://google-bert/bert-base-uncased"):
        Tokenizer.from_preset("bert_base_en_uncased")
    task = TextClassifier.from_preset("bert_tiny_en_uncased", num_classes=2, load_weights=False)
    assert task({"token_ids": [[1, 2]]}).shape == (1, 2)


def test_a_folder_with_nothing_but_a_vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    assert keras_lm.tokenizers.Tokenizer.from_preset(tmp_path)(["films"]).to_list() == [[7, 8]]


def test_hf_names_are_fetched(classifier, preset, monkeypatch):
    import huggingface_hub

    asked = []

    def snapshot_download(name, **arguments):
        asked.append(name)
        return str(preset)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    task = TextClassifier.from_preset("hf://owner/name")
    assert set(asked) == {"owner/name"}
    np.testing.assert_array_equal(
        task.predict(TEXTS, verbose=0), classifier.predict(TEXTS, verbose=0)
    )


def test_a_missing_vocabulary_is_named_when_a_checkpoint_is_loaded(goldens, recwarn):
    with pytest.warns(UserWarning, match=r"there is no vocabulary.*pass tokenizer="):
        TextClassifier.from_preset(goldens("bert-seqcls"))
    recwarn.clear()
    TextClassifier.from_preset(goldens("bert-seqcls"), tokenizer=None)
    assert not [w for w in recwarn if "vocabulary" in str(w.message)]


def ensemble_of(folder, members):
    """Write an ensemble whose members are copies of presets, or links to relative paths."""
    folder.mkdir()
    config = {"format_version": 1, "keras_lm_version": "0", "members": len(members)}
    config["task"] = {"class": "ClassifierEnsemble", "arguments": {}}
    (folder / "keras_lm.json").write_text(json.dumps(config))
    for number, member in enumerate(members):
        if isinstance(member, str):
            (folder / f"member_{number}").symlink_to(member)
        else:
            shutil.copytree(member, folder / f"member_{number}", symlinks=True)
    return folder


def test_links_make_no_more_members_than_there_are(preset, tmp_path):
    circle = ensemble_of(tmp_path / "circle", [".", "."])
    twice = ensemble_of(tmp_path / "twice", [preset, "member_0"])
    inner = ensemble_of(tmp_path / "inner", [preset, preset])
    outer = ensemble_of(tmp_path / "outer", [inner, "member_0"])
    for folder, wrong in ((circle, 0), (twice, 1), (outer, 1)):
        with pytest.raises(CheckpointError, match=f"member_{wrong} is a link to"):
            Task.from_preset(folder)
    linked = ensemble_of(tmp_path / "linked", [str(preset), inner / "member_0"])
    assert len(Task.from_preset(linked).members) == 2


# === Cards ===


def test_a_card_says_what_a_model_is_and_how_to_ask_it(classifier, saved, tmp_path):
    card = (saved / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: keras_lm\npipeline_tag: text-classification\n")
    for words in ("`TextClassifier`", "`BertBackbone`", "9 tokens", "`no`, `yes`", "## Limits"):
        assert words in card
    parameters = sum(np.prod(weight.shape) for weight in classifier.backbone.weights) + 8 * 2 + 2
    assert f"| Parameters | {parameters:,} |" in card
    assert f"| Size of the weights | {4 * parameters / 1e6:,.1f} MB |" in card
    code = re.search(r"```python\n(.*?)```", card, re.S)[1].replace("FOLDER", str(saved))
    exec(code, {})
    classifier.backbone.save_to_preset(tmp_path / "backbone")
    assert "models.BertBackbone.from_preset(" in (tmp_path / "backbone" / "README.md").read_text()


@pytest.mark.eager
@pytest.mark.parametrize(
    ("name", "length"),
    [
        *(("TextClassifier", 7), ("TokenClassifier", 7), ("MultipleChoice", 7)),
        *(("FeatureExtractor", 7), ("QuestionAnswerer", None), ("CoreferenceResolver", None)),
    ],
)
def test_a_card_says_where_the_task_cuts_texts(backbone_of, tokenizer_of, name, length):
    arguments, _ = tiny.TASKS[name]
    tokenizer = tokenizer_of("wordpiece")
    task = getattr(keras_lm.tasks, name)(
        backbone_of("BertBackbone"), tokenizer=tokenizer, sequence_length=7, **arguments
    )
    stated = re.search(r"\| Longest text \| (\d+) tokens \|", card_of_preset(task))
    assert (int(stated[1]) if stated else None) == length


@pytest.mark.eager
def test_a_card_of_a_writer_says_how_long_texts_may_get(backbone_of, tokenizer_of):
    tokenizer, backbone = tokenizer_of(tiny.MODELS["GPT2Backbone"][0]), backbone_of("GPT2Backbone")
    task = keras_lm.tasks.CausalLM(backbone, tokenizer=tokenizer, sequence_length=7)
    assert f"| Longest text | {backbone.max_sequence_length} tokens |" in card_of_preset(task)


@pytest.mark.parametrize("license", ["apache-2.0", "\n- 'apache-2.0'\n- mit"])
def test_a_card_keeps_from_where_a_model_is(preset, tmp_path, monkeypatch, license):
    others = f"---\nlicense: {license}\n---\n# Theirs\n\n## Limits\n\nNot ours.\n"
    (preset / "README.md").write_text(others)
    monkeypatch.setattr("keras_lm.converters.hub.fetch", lambda source: preset)
    task = TextClassifier.from_preset("hf://them/theirs@main")
    task.history = keras.callbacks.History()
    task.history.history = {"accuracy": [0.5, 0.75]}
    task.save_to_preset(tmp_path / "first")
    first = (tmp_path / "first" / "README.md").read_text()
    assert "base_model: them/theirs\nbase_model_license: apache-2.0\n" in first
    assert "| Base model | them/theirs, licence: apache-2.0 |" in first
    assert "| accuracy | 0.75 |" in first
    assert "Not ours" not in first
    own = first.split("## Limits")[0] + "## Limits\n\nOnly films.\n"
    (tmp_path / "first" / "README.md").write_text(own)
    Task.from_preset(tmp_path / "first").save_to_preset(tmp_path / "second")
    assert (tmp_path / "second" / "README.md").read_text() == own


@pytest.mark.parametrize("card", [b"\xff\x00", b"---\nlicense: [\n", b"x" * (2**20 + 1)])
def test_a_card_that_cannot_be_read_is_passed_over(preset, card):
    (preset / "README.md").write_bytes(card)
    assert read_origin(*TextClassifier.from_preset(preset).backbone.origin) == Origin()


@pytest.mark.parametrize("part", ["backbone", "task"])
def test_layers_that_keras_quantized_are_not_saved(goldens, tmp_path, part):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers that Keras does not quantize
        task = TextClassifier.from_preset(goldens("bert-seqcls"), tokenizer=None)
        (task if part == "task" else task.backbone).quantize("int8")
    model = task if part == "task" else task.backbone
    for save in (
        lambda: model.save_to_preset(tmp_path / "preset"),
        lambda: model.save_to_huggingface(tmp_path / "huggingface"),
        lambda: model.save_to_google(tmp_path / "google"),
        lambda: model.save(tmp_path / "it.keras"),
    ):
        with pytest.raises(ValueError, match=r"quantize\('int8'\).*_embedding"):
            save()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
