"""Run the notebooks and keep their outputs, as readers see them on a web page.

    python colab/run.py [NOTEBOOK…]

They run in this program's own environment, and install nothing there: where the first cell would,
it stops and says what is missing. A digest of the code goes into the metadata: a test compares it,
so that no output outlives the code that made it.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).parent
# Colab opens notebooks of repositories by their address on GitHub, which this one has not yet: the
# badge leads to where one uploads the file.
BADGE = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/#upload=true)"
)
# What follows this line in a notebook's first cell is the same in all of them.
MARK = "# What follows is the same in all notebooks.\n"


def share_first_cell(notebook):
    """Write `first_cell.py` into the cell that installs, after what this notebook needs."""
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    shared = (FOLDER / "first_cell.py").read_text(encoding="utf-8").rstrip()
    first.source = first.source.partition(MARK)[0].rstrip() + "\n\n" + MARK + shared


def install_nothing(notebook):
    """Let the cell that installs stop where it would, and say what is missing."""
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    stop = r"raise ImportError(f'colab/run.py installs nothing. First: pip install \1')"
    first.source = re.sub(r"%pip install --quiet (.*)", stop, first.source)


def digest(notebook):
    """Return a digest of the code of a notebook, but for the cell that installs."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"][1:]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def worth_reading(outputs):
    """Return outputs without warnings, which hold paths of this machine, and progress bars."""
    kept = []
    for output in outputs:
        if output.get("name") == "stdout":
            lines = output.text.splitlines(keepends=True)
            noise = ("\b", "━", "INFO:tensorflow:")
            output.text = "".join(line for line in lines if not any(mark in line for mark in noise))
        if output.get("name") != "stderr" and output.get("text") != "":
            kept.append(output)
    return kept


def run(path):
    """Run the notebook at `path` in an empty folder, and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    share_first_cell(notebook)
    install_nothing(notebook)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = nbclient.NotebookClient(
            notebook, timeout=1800, coalesce_streams=True, resources=resources
        )
        client.execute()
    share_first_cell(notebook)  # which installs, for readers
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
        if cell.cell_type == "code":
            cell.outputs = worth_reading(cell.outputs)
    notebook.metadata.keras_lm = {"outputs_of": digest(notebook)}
    notebook.metadata.language_info = {"name": "python"}
    path.write_text(as_text(notebook), encoding="utf-8")


def as_text(notebook):
    """Return the form that Jupyter writes, so that saving a notebook changes only what was edited."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    # The commands of this environment, as in a shell in which it is active.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    for name in sys.argv[1:] or sorted(FOLDER.glob("*.ipynb")):
        run(Path(name))
