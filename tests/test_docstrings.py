"""The examples in docstrings: all are Python, and those of models, layers and packers run."""

import ast
import functools
import importlib
import io
import re
import textwrap
import tokenize
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SECTION = re.compile(r"^Example:\n((?:\n| .*\n)+)", re.M)
RUN = ("analysis", "models", "layers", "packers", "knowledge")

# What an example needs and nobody has lying about.
SKIPPED = {
    "models.cove.CoveBackbone": "reads presets with weights",
    "models.elmo.ElmoForwardBackbone": "reads a preset with weights",
    "models.ernie.ErnieBackbone.with_entities": "reads files of entities",
    "models.lstm.LSTMBackbone": "fits a language model to the reader's texts",
    "models.pairs.PairLSTMBackbone": "reads a preset with weights",
    "models.taglm.TagLMBackbone": "reads a preset with weights and a file of word vectors",
    "models.word_vectors.WordVectorBackbone": "reads a file of word vectors",
}

_TEACHER = """
teacher = BertBackbone(
    vocabulary_size=100, num_layers=12, num_heads=2, hidden_dim=4, intermediate_dim=4
)
"""

_READER = """
sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
task = keras_lm.tasks.FeatureExtractor(BertBackbone(9, **sizes), tokenizer=tokenizer)
"""

# What an example takes for granted, beside the names in scope.
GIVEN = {
    "analysis.attention_maps.attention": _READER,
    "analysis.attention_maps.neurons": _READER,
    "analysis.attributions.gradient_times_input": _READER,
    "analysis.attributions.integrated_gradients": _READER,
    "analysis.head_importance.head_importance": _READER,
    "analysis.head_importance.pruning_curve": _READER,
    "analysis.head_importance.masked_heads": _READER,
    "analysis.head_importance.prune_heads": _READER,
    "analysis.head_importance.head_statistics": _READER,
    "analysis.probing.probe_layers": _READER,
    "analysis.word_readings.vectors_of_word": _READER,
    "analysis.word_readings.word_vectors": _READER,
    "models.backbone.Backbone.with_layers": _TEACHER,
    "models.distilbert.DistilBertBackbone.from_teacher": _TEACHER,
    "models.backbone.CausalBackbone": """
backbone = GPT2Backbone(
    vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
)
""",
    "models.ulmfit.AWDLSTMBackbone.with_vocabulary": """
target_tokenizer = tokenizer
size = len(tokenizer.vocabulary)
backbone = AWDLSTMBackbone(size, num_layers=2, hidden_dim=24, embedding_dim=16)
""",
    "models.transformer_xl.TransformerXLBackbone.set_lengths": """
texts = ["a text"]
size = len(tokenizer.vocabulary)
backbone = TransformerXLBackbone(size, 2, 2, 16, 32, memory_length=8)
task = keras_lm.tasks.CausalLM(backbone, tokenizer=tokenizer)
""",
    "layers.attention.KeyValueCache": """
x, padding_mask = np.ones((2, 7, 4), "float32"), np.ones((2, 7), "int32")
biases, state = [None], None
blocks = [PreNormBlock(num_heads=2, intermediate_dim=8)]
""",
    "layers.crf.CRF": """
logits = np.zeros((2, 7, 3), "float32")
labels = mask = np.ones((2, 7), "int32")
""",
}


def find_examples():
    """Return a dict of where an example stands, after `keras_lm.` → its Python."""
    results = {}
    for folder, start in [("keras_lm", ()), ("export", ("export",))]:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            parts = (*start, *path.relative_to(REPOSITORY / folder).with_suffix("").parts)
            module = ".".join(part for part in parts if part != "__init__")
            results |= _of_members(ast.parse(path.read_text(encoding="utf-8")), module)
    return results


def _of_members(tree, name):
    results = {}
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            own = f"{name}.{node.name}"
            match = SECTION.search((ast.get_docstring(node) or "") + "\n")
            if match:
                results[own] = textwrap.dedent(match[1]).strip().replace("…", "...")
            results |= _of_members(node, own)
    return results


EXAMPLES = find_examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_python(name):
    ast.parse(EXAMPLES[name])


def test_the_lists_name_examples():
    assert EXAMPLES.keys() >= SKIPPED.keys() | GIVEN.keys()


def comments(code):
    """Return a dict of line → the comment at its end."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}


def run(code, names):
    """Run an example; where a comment says a value, the expression before it has to have it."""
    said = comments(code)
    for node in ast.parse(code).body:
        if not isinstance(node, ast.Expr):
            exec(compile(ast.Module([node], []), "example", "exec"), names)
            continue
        value = eval(compile(ast.Expression(node.value), "example", "eval"), names)
        try:
            expected = ast.literal_eval(said.get(node.end_lineno, ""))
        except (SyntaxError, ValueError):  # it says something else
            continue
        assert value == expected, ast.unparse(node)


@functools.cache
def names_in_scope():
    """What an example may use without an import: the library, arrays, and what users import."""
    import numpy as np
    import tensorflow as tf

    import keras_lm

    names = {"keras_lm": keras_lm, "np": np, "tf": tf}
    for package in (keras_lm.models, keras_lm.layers, keras_lm.packers, keras_lm.tokenizers):
        names |= {name: getattr(package, name) for name in package.__all__}
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<pad>", "</s>", "a", "text"]
    return names | {"tokenizer": keras_lm.tokenizers.WordPieceTokenizer(vocabulary, lowercase=True)}


def to_run():
    """Those of models take longest; what they show, tests/models does."""
    for name in EXAMPLES:
        folder = name.split(".")[0]
        if folder in RUN:
            yield pytest.param(name, marks=[pytest.mark.slow] * (folder == "models"))


@pytest.mark.eager
@pytest.mark.parametrize("name", to_run())
def test_example_runs(name, tmp_path, monkeypatch):
    if name in SKIPPED:
        pytest.skip(SKIPPED[name])
    monkeypatch.chdir(tmp_path)  # some write files
    parts = name.split(".")
    module = importlib.import_module(f"keras_lm.{parts[0]}.{parts[1]}")
    names = names_in_scope() | {parts[2]: getattr(module, parts[2])}
    exec(GIVEN.get(name, ""), names)
    run(EXAMPLES[name], names)
