"""The README's Python runs as it is, top to bottom, and its links have targets."""

import os
import re
import subprocess
import sys

import pytest

# Without tracing, which would take most of the time; exports are traced all the same.
RUNNER = """
import sys, traceback
import tensorflow as tf
tf.config.run_functions_eagerly(True)
blocks = open(sys.argv[1], encoding="utf-8").read().split("\\f")
namespace = {"__name__": "__main__"}
for number, block in enumerate(blocks, 1):
    try:
        exec(compile(block, f"README block {number}", "exec"), namespace)
    except Exception:
        traceback.print_exc()
        sys.exit(f"README block {number} failed:\\n{block}")
"""


def python_blocks(text):
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


def test_python_blocks_run_in_order(repository, minilm, tmp_path):
    blocks = python_blocks((repository / "README.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 5
    (tmp_path / "blocks.txt").write_text("\f".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, "blocks.txt"],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("name", ["README.md", "BUILD.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_lead_somewhere(repository, name):
    text = (repository / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", text)
    assert not [target for target in targets if not (repository / target).exists()]
