"""What `import keras_lm` offers, and packages that only a part of it needs."""

import subprocess
import sys

import pytest

import keras_lm
from keras_lm import optional


def test_dir_lists_what_is_public():
    assert dir(keras_lm) == sorted(keras_lm.__all__)
    for name in keras_lm.__all__:
        assert getattr(keras_lm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        keras_lm.nothing  # noqa: B018


def test_the_server_is_there_without_an_import_and_not_before():
    program = (
        "import keras_lm_command, keras_lm, sys\n"  # the command imports nothing large
        "assert 'tensorflow' not in sys.modules and 'keras_lm.serving' not in sys.modules\n"
        "keras_lm.serving.Client\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


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
        "import keras_lm_command, keras_lm\n"
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
        ("sklearn.base", "sklearn", lambda: optional.require("sklearn.base", "it")),
    ],
)
def test_missing_packages_give_the_same_hint(monkeypatch, package, extra, use):
    monkeypatch.setitem(sys.modules, package, None)
    name = package.partition(".")[0]
    with pytest.raises(ImportError, match=rf"needs {name}: pip install 'keras-lm\[{extra}\]'"):
        use()


def test_every_extra_exists(repository):
    text = (repository / "setup.py").read_text()
    assert all(f'"{extra}":' in text for extra in optional.EXTRAS.values())


def _open_interpreter():
    from keras_lm.litert import open_interpreter

    open_interpreter(b"")
