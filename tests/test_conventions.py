"""Names, docstrings and layout: what holds for every module, so that nobody has to remember it."""

import ast
import bisect
import importlib.util
import inspect
import itertools
import re
import subprocess
import sys
import textwrap
import typing
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
LONGEST_FILE = 900  # lines of code
LONGEST_FUNCTION = 60

# What other libraries call it → what it is called here
RENAMED = {
    "vocab_size": "vocabulary_size",
    "n_vocab": "vocabulary_size",
    "num_hidden_layers": "num_layers",
    "n_layer": "num_layers",
    "n_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "n_head": "num_heads",
    "n_heads": "num_heads",
    "hidden_size": "hidden_dim",
    "d_model": "hidden_dim",
    "embedding_size": "embedding_dim",
    "intermediate_size": "intermediate_dim",
    "d_ff": "intermediate_dim",
    "ffn_dim": "intermediate_dim",
    "dropout_rate": "dropout",
    "hidden_dropout_prob": "dropout",
    "max_position_embeddings": "max_sequence_length",
    "max_length": "max_sequence_length",
    "max_len": "max_sequence_length",
    "max_seq_length": "max_sequence_length",
    "seq_length": "max_sequence_length",
    "type_vocab_size": "num_segments",
    "layer_norm_eps": "layer_norm_epsilon",
    "input_ids": "token_ids",
    "input_word_ids": "token_ids",
    "token_type_ids": "segment_ids",
    "input_type_ids": "segment_ids",
    "attention_mask": "padding_mask",
    "input_mask": "padding_mask",
    "masked_lm_positions": "mask_positions",
    "masked_positions": "mask_positions",
    "char_ids": "character_ids",
    "num_labels": "num_classes",
    "id2label": "class_names",
}
# The prompt and what follows it together: a word of `generate`, not of a model.
OTHER_MEANINGS = {("keras_lm.generation.logits", "max_length")}


# Phrases that no other library uses → what to say instead. (Regular expressions that begin with
# plain letters, which is quick.)
AVOIDED = {
    r"is none of\b": "is not one of",
    r"are none of [a-z`]+[,;.)]": "are not among",
    r"that is none\b": "that is missing, or out of range",
    r"which is none\b": "which is not one, or does not count",
    r"None is none\b": "None is allowed",
    r"of like [a-z]+s\b": "of similar …",
    r"is told\b": "gets, is passed, is recognised",
    r"are told\b(?! apart)": "get, are passed, are recognised",
    r"be told from\b": "be distinguished from",
    r"so many (?!that\b|of\b|words\")\w+s\b": "this many",
    r"form in which\b": "as",
    r"has not (?:a|an|any|as|the|all|such)\b": "does not have",
    r"have not (?:a|an|any|as|the|all|such)\b": "do not have",
    r"no data may lack\b": "must have",
    r"of before\b": "earlier, old",
    r"one's own\b(?<!backbone's own)": "your own",
    r"strangers\b": "untrusted users, anyone",
    r"knows no\b(?! more)": "does not know, ignores",
    r"know no\b(?! more)": "do not know, ignore",
    r"nothing of (?:it|its|the|them|their|what)\b": "nothing about",
    r"turned round\b": "reversed",
    r"no word for\b": "cannot store",
    r"got by\b": "get … by",
    r"tells of\b": "describes",
}


def source_files():
    """Every Python file of the library, `export/` under the name that it is imported by."""
    files = {}
    for folder, name in [("keras_lm", "keras_lm"), ("export", "keras_lm.export")]:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            parts = path.relative_to(REPOSITORY / folder).with_suffix("").parts
            files[".".join([name, *(part for part in parts if part != "__init__")])] = path
    return files


FILES = source_files()
MODULES = [pytest.param(name, id=name) for name in FILES]
PACKAGES = [name for name, path in FILES.items() if path.name == "__init__.py"]


def public_members(module):
    """(name, object) of public classes and functions which `module` itself defines."""
    for name, member in vars(module).items():
        is_code = inspect.isclass(member) or inspect.isfunction(member)
        if is_code and not name.startswith("_") and member.__module__ == module.__name__:
            yield name, member


def public_functions(module):
    """(name, function) of all that a user may call: functions, constructors, public methods."""
    for name, member in public_members(module):
        if inspect.isfunction(member):
            yield name, member
            continue
        for attribute, value in vars(member).items():
            value = getattr(value, "__func__", value)  # of a class or static method
            is_public = not attribute.startswith("_") or attribute in ("__init__", "__call__")
            if is_public and inspect.isfunction(value):
                yield f"{name}.{attribute}", value


def exported(package):
    """(name, object) of the classes and functions which a package offers to its users."""
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", []):
        member = getattr(module, name)
        if inspect.isclass(member) or inspect.isfunction(member):
            yield name, member


def arguments(member):
    """Names of the arguments to document: all but self, cls and the starred ones."""
    try:
        parameters = inspect.signature(member).parameters.values()
    except (TypeError, ValueError):
        return []
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind not in starred and parameter.name not in ("self", "cls")
    ]


@pytest.mark.parametrize("name", MODULES)
def test_module_imports_and_opens_with_a_docstring(name):
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    assert Path(module.__file__).resolve() == FILES[name].resolve()


@pytest.mark.parametrize("name", MODULES)
def test_arguments_have_their_one_name(name):
    wrong = [
        f"{function}({argument}): call it {RENAMED[argument]}"
        for function, value in public_functions(importlib.import_module(name))
        for argument in inspect.signature(value).parameters
        if argument in RENAMED and (name, argument) not in OTHER_MEANINGS
    ]
    assert not wrong


@pytest.mark.parametrize("name", MODULES)
def test_public_classes_and_functions_have_docstrings(name):
    members = public_members(importlib.import_module(name))
    assert not [
        member for member, value in members if "__doc__" not in dir(value) or not value.__doc__
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_exported_names_exist_once(package):
    module = importlib.import_module(package)
    names = list(getattr(module, "__all__", []))
    assert len(names) == len(set(names))
    assert not [name for name in names if not hasattr(module, name)]


@pytest.mark.parametrize("package", PACKAGES)
def test_what_users_see_documents_its_arguments(package):
    wrong = []
    for name, member in exported(package):
        text = member.__doc__ or ""
        for other in re.findall(r"arguments: as `(\w+)`", text):
            text += getattr(importlib.import_module(package), other).__doc__
        wanted = [argument for argument in arguments(member) if argument != "name"]
        if inspect.isclass(member) and "__init__" not in vars(member):
            wanted = []  # inherited, and documented there
        if wanted and "Args:" not in text and "Attributes:" not in text:
            wrong.append(f"{name}: no Args section")
        unsaid = [argument for argument in wanted if not re.search(rf"\b{argument}\b", text)]
        wrong += [f"{name}: does not document {argument}" for argument in unsaid]
        if inspect.isfunction(member) and "raise " in inspect.getsource(member):
            wrong += [] if "Raises:" in text else [f"{name}: no Raises section"]
    assert not wrong


def called_in_the_guides():
    """Return the names of methods that the README, the guides and the examples call."""
    files = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    files += (REPOSITORY / "examples").rglob("*.py")
    return {name for path in files for name in re.findall(r"\.(\w+)\(", path.read_text())}


@pytest.mark.parametrize("package", PACKAGES)
def test_what_users_call_is_annotated(package):
    """Functions, constructors, and of documented methods those that the guides call."""
    called, wrong = {"__init__", *called_in_the_guides()}, []
    for name, member in exported(package):
        calls = vars(member).items() if inspect.isclass(member) else [(name, member)]
        for call, value in calls:
            value = getattr(value, "__func__", value)  # of a class or static method
            if not inspect.isfunction(value):
                continue
            if inspect.isclass(member) and (call not in called or is_undocumented(call, value)):
                continue
            signature = inspect.signature(value)
            missing = [
                argument.name
                for argument in signature.parameters.values()
                if argument.annotation is argument.empty and argument.name not in ("self", "cls")
            ]
            if signature.return_annotation is signature.empty and call != "__init__":
                missing.append("what it returns")
            wrong += [f"{member.__module__}: {value.__qualname__}: {each}" for each in missing]
    assert not wrong


@pytest.mark.parametrize(
    ("message", "is_unknown"),
    [
        ('Type annotation for parameter "x" is missing', True),
        ("Return type annotation is missing", True),
        ('Type of parameter "dtype" is unknown', True),
        ('Type argument 1 for class "list" has unknown type', True),
        ('Type unknown for variable "keras_lm.layers.crf.CRF.end"', True),
        ('Return type is partially unknown\n  Return type is "tuple[Unknown, ...]"', True),
        # It is a class of ours, one of whose members is unknown, and counted.
        ('Type of parameter "x" is partially unknown\n  Parameter type is "Packer | None"', False),
        # As assigned in the constructor.
        ('Type is missing type annotation and could …\n  Inferred type is "Dense"', False),
        ('Type is missing type annotation and could …\n  Inferred type is "list[Unknown]"', True),
        ("Type of base class unknown", False),  # Keras's
        ('No docstring found for function "keras_lm.layers.crf.CRF.build"', False),
    ],
)
def test_which_types_make_lint_counts_as_unknown(message, is_unknown):
    path = REPOSITORY / ".ci" / "public_types.py"
    spec = importlib.util.spec_from_file_location("public_types", path)
    public_types = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(public_types)
    symbol = {"diagnostics": [{"message": message}]}
    assert public_types.problems(symbol) == [message] * is_unknown


@pytest.mark.parametrize("name", MODULES)
def test_annotations_can_be_evaluated(name):
    """By `typing.get_type_hints`, which serialisers and documentation call."""
    for _, value in public_functions(importlib.import_module(name)):
        # With names of its own, as otherwise what an earlier call has found counts for all.
        typing.get_type_hints(value, localns={})


def is_undocumented(call, value):
    """Whether a method only overrides another one, which says what it takes."""
    return call != "__init__" and not value.__doc__


@pytest.mark.parametrize("package", ["models", "tasks", "tokenizers", "training"])
def test_classes_that_users_make_show_an_example(package):
    members = [
        (name, member)
        for name, member in exported(f"keras_lm.{package}")
        if inspect.isclass(member) and not issubclass(member, BaseException)
    ]
    bases = {base for _, member in members for base in member.__mro__[1:]}  # made by subclasses
    assert not [
        name for name, member in members if member not in bases and "Example" not in member.__doc__
    ]


def lines_of_code(text):
    """How many lines hold code: docstrings, comments and blank lines do not count."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    of_docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            of_docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = enumerate(text.splitlines(), start=1)
    is_code = [bool(line.partition("#")[0].strip()) and i not in of_docstrings for i, line in lines]
    return sum(is_code)


def test_files_are_short_enough_to_read():
    texts = {name: path.read_text() for name, path in FILES.items()}
    texts = {  # the others need no counting
        name: text for name, text in texts.items() if len(text.splitlines()) > LONGEST_FILE
    }
    lengths = {name: lines_of_code(text) for name, text in texts.items()}
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FILE}


def test_functions_are_short_enough_to_read():
    lengths = {}
    for name, path in FILES.items():
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef):
                continue
            if node.end_lineno - node.lineno >= LONGEST_FUNCTION:  # else it needs no counting
                source = ast.get_source_segment(text, node, padded=True)
                lengths[f"{name}.{node.name}"] = lines_of_code(textwrap.dedent(source))
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION}


def test_code_and_docs_avoid_phrases_that_only_this_project_used():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    kinds = {".py", ".md", ".toml", ".ipynb", ".js", ".html", ".yml"}
    elsewhere = (
        "tests/goldens/",
        "tests/test_conventions.py",
        "CONTRIBUTING.md",
        "lectures/results/",
    )
    names = [name for name in listed.stdout.decode().split("\0") if Path(name).suffix in kinds]
    names = [name for name in names if not name.startswith(elsewhere)]
    texts = [(REPOSITORY / name).read_text(encoding="utf-8") for name in names]
    starts = list(itertools.accumulate((len(text) + 1 for text in texts), initial=0))
    everything = "\n".join(texts)
    wrong = []
    for phrase, instead in AVOIDED.items():
        for match in re.finditer(phrase, everything):
            number = bisect.bisect_right(starts, match.start()) - 1
            line = everything.count("\n", starts[number], match.start()) + 1
            wrong.append(f"{names[number]}, line {line}: {match[0]!r}; say: {instead}")
    assert not wrong


def test_variables_say_what_they_hold():
    """No variable is called `found`; a field of a class may be, `found: list`."""
    wrong = []
    for folder in ("keras_lm", "export", "lectures", "examples", "benchmarks", "tests"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            text = path.read_text()
            nodes = list(ast.walk(ast.parse(text))) if re.search(r"\bfound\b", text) else []
            declared = [n.target for n in nodes if isinstance(n, ast.AnnAssign) and not n.value]
            wrong += [
                f"{path.relative_to(REPOSITORY)}, line {node.lineno}"
                for node in nodes
                if isinstance(node, ast.Name) and node.id == "found"
                if isinstance(node.ctx, ast.Store) and node not in declared
            ]
    assert not wrong


def test_tests_are_no_packages():
    assert not list((REPOSITORY / "tests").rglob("__init__.py"))


def test_export_cannot_be_imported_under_its_folder_name():
    done = subprocess.run(
        [sys.executable, "-c", "import export"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "ImportError" in done.stderr
    assert "keras_lm.export" in done.stderr


def test_nothing_points_outside_of_the_repository():
    outside = [r"(?<![\w.])/" + "work/", re.escape("../" + "shared")]
    pattern = re.compile("|".join(outside).encode())

    def points_outside(data):  # the plain words first, as the pattern takes longer
        return (b"work/" in data or b"shared" in data) and pattern.search(data)

    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [REPOSITORY / name for name in listed.stdout.decode().split("\0") if name]
    results = [
        str(path.relative_to(REPOSITORY))
        for path in files
        if path.is_file() and path.stat().st_size < 2**20 and points_outside(path.read_bytes())
    ]
    assert not results
