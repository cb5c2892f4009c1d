"""What `import keras_lm` offers, and packages that only a part of it needs."""

import subprocess
import sys
import tomllib

import pytest

import keras_lm
from keras_lm import presets
from keras_lm.utils import optional_dependencies


def test_dir_lists_what_is_public():
    assert dir(keras_lm) == sorted(keras_lm.__all__)
    for name in keras_lm.__all__:
        assert getattr(keras_lm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        keras_lm.nothing  # noqa: B018


def modules_after(program):
    """Return the names of the modules that a program imports."""
    program += "\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return set(done.stdout.decode().split())


@pytest.mark.parametrize(
    "program, ours",
    [
        ("import keras_lm", {"keras_lm", "keras_lm.version"}),
        ("import keras_lm; keras_lm.litert.InterpreterPool", None),
        ("import keras_lm; keras_lm.serving.Client('http://localhost:1', 'm')", None),
        ("import keras_lm; keras_lm.serving.open_predictor", None),
    ],
    ids=["package", "litert", "client", "predictors"],
)
def test_who_needs_no_tensorflow_does_not_wait_for_it(program, ours):
    actual = modules_after(program)
    large = {"tensorflow", "tensorflow_text", "keras", "jax", "torch", "sklearn", "scipy"}
    assert not actual & large
    if ours is not None:
        assert {name for name in actual if name.startswith("keras_lm")} == ours


def test_tokenizers_lists_what_is_public():
    tokenizers = keras_lm.tokenizers
    assert dir(tokenizers) == sorted(tokenizers.__all__)
    for name in tokenizers.__all__:
        assert getattr(tokenizers, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tokenizers.nothing  # noqa: B018


@pytest.mark.slow
def test_a_tokenizer_is_imported_with_what_it_needs(tmp_path):
    """Without the readers of checkpoints; a preset's class when the preset is read."""
    actual = modules_after("from keras_lm.tokenizers import WordPieceTokenizer")
    ours = {name for name in actual if name.startswith("keras_lm")}
    assert len(ours) <= 25
    assert not ours & {"keras_lm.presets", "keras_lm.converters", "keras_lm.datasets"}
    tokenizer = keras_lm.tokenizers.SubwordTokenizer(["<pad>", "<EOS>", "a_"])
    presets.save(tmp_path / "preset", None, tokenizer=tokenizer)
    modules_after(
        "from keras_lm.tokenizers import Tokenizer\n"
        f"tokenizer = Tokenizer.from_preset({str(tmp_path / 'preset')!r})\n"
        "assert type(tokenizer).__name__ == 'SubwordTokenizer'\n"
    )


@pytest.mark.slow
def test_a_source_knows_all_models_and_tasks(goldens):
    """In a program that has imported neither."""
    modules_after(
        "from keras_lm import presets\n"
        f"source = presets.Source.open({str(goldens('bert'))!r})\n"
        "assert source.recognise()[0].__name__ == 'BertBackbone'\n"
        "assert source.usual_task is None or source.usual_task.__name__ == 'Pretrainer'\n"
    )
    modules_after(
        "from keras_lm.utils import registry\n"
        "assert registry.sizes()['bert_base_en_uncased'].__name__ == 'BertBackbone'\n"
    )


@pytest.mark.slow
def test_classes_load_without_the_packages_of_extras():
    names = [*optional_dependencies.EXTRAS]
    modules_after(f"import sys; sys.modules.update(dict.fromkeys({names})); import keras_lm.tasks")


@pytest.mark.slow
def test_keras_knows_the_classes():
    """Imported after Keras, or with any task."""
    assert "keras_lm.tasks.text_classifier" in modules_after("import keras, keras_lm")
    program = (
        "import keras_lm.tasks, keras\n"
        "known = set(keras.saving.get_custom_objects())\n"
        "for name in keras_lm.__all__:\n"
        "    getattr(keras_lm, name)\n"
        "assert known == set(keras.saving.get_custom_objects())\n"
        "assert {'keras_lm>TextClassifier', 'keras_lm>AdamW', 'keras_lm>EntityF1'} <= known"
    )
    modules_after(program)


@pytest.mark.parametrize(
    "machine, given, expected",
    [("x86_64", None, "1"), ("x86_64", "0", "0"), ("aarch64", None, "None")],
)
def test_onednn_is_on_unless_the_environment_says_otherwise(monkeypatch, machine, given, expected):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if given:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", given)
    program = (
        "import os, platform, sys\n"
        f"platform.machine = lambda: {machine!r}\n"
        "import keras_lm\n"
        "assert 'tensorflow' not in sys.modules\n"  # which reads it when it is imported
        "print(os.environ.get('TF_ENABLE_ONEDNN_OPTS'))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert run.stdout.decode().strip() == expected


@pytest.mark.parametrize(
    "package, extra, use",
    [
        ("uvicorn", "serving", lambda: keras_lm.serving.Server),
        ("ai_edge_litert.interpreter", "litert", lambda: _open_interpreter()),
        (
            "tokenizers",
            "vocab",
            lambda: keras_lm.tokenizers.train_vocabulary("wordpiece", 20, texts=["a"]),
        ),
        ("sklearn.base", "sklearn", lambda: optional_dependencies.require("sklearn.base", "it")),
    ],
)
def test_missing_packages_give_the_same_hint(monkeypatch, package, extra, use):
    monkeypatch.setitem(sys.modules, package, None)
    name = package.partition(".")[0]
    with pytest.raises(ImportError, match=rf"needs {name}: pip install 'keras-lm\[{extra}\]'"):
        use()


def test_every_extra_exists(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert set(optional_dependencies.EXTRAS.values()) <= set(project["optional-dependencies"])


def _open_interpreter():
    from keras_lm.litert import open_interpreter

    open_interpreter(b"")
