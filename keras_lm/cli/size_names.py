"""The names of all sizes without importing the models, which would import TensorFlow."""

import ast
from pathlib import Path

MODELS = Path(__file__).parents[1] / "models"


def size_names():
    """Return the names of all sizes, in the order of files and tables."""
    assigned = [
        node.value
        for path in sorted(MODELS.glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "attr", None) == "SIZES"
    ]
    return [key.value for table in assigned for key in table.keys]
