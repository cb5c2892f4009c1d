"""What gets installed: the wheel's contents, and that tests test the tree."""

import email
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import keras_lm

BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def project(repository):
    return tomllib.loads((repository / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    """A wheel, built from a copy of the tree without fetching anything."""
    source = tmp_path_factory.mktemp("source")
    for name in ["setup.py", "keras_lm_command.py", "pyproject.toml", "README.md", "LICENSE"]:
        shutil.copy(repository / name, source)
    for name in ["keras_lm", "export", "lectures", "tests"]:
        ignored = shutil.ignore_patterns("__pycache__", "goldens")
        shutil.copytree(repository / name, source / name, ignore=ignored)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(source)], cwd=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = source.glob("keras_lm-*.whl")
    return path


def test_wheel_holds_every_module_and_no_other(wheel, repository):
    files = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in files if name.endswith(".py")}
    wanted = {"keras_lm_command.py"}
    for folder in ["keras_lm", "export", "lectures"]:
        prefix = Path("keras_lm") / ("" if folder == "keras_lm" else folder)
        for path in (repository / folder).rglob("*.py"):
            wanted.add((prefix / path.relative_to(repository / folder)).as_posix())
    assert packed == wanted
    assert "keras_lm/py.typed" in files  # type checkers read the annotations


def test_wheel_says_what_it_is(wheel, project):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        (entries,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert any(name.endswith("LICENSE") for name in archive.namelist())
        text = archive.read(metadata).decode()
        assert "keras-lm = keras_lm_command:main" in archive.read(entries).decode()
    assert "Name: keras-lm" in text
    assert f"\nVersion: {keras_lm.__version__}\n" in text
    assert "License-Expression: Apache-2.0" in text or "License: Apache-2.0" in text
    stated = email.message_from_string(text)
    assert set(stated.get_all("Provides-Extra")) == set(project["optional-dependencies"])
    needed = [Requirement(each) for each in stated.get_all("Requires-Dist")]

    def described(requirement):
        marker = re.sub(r'( and )?extra == "[^"]*"', "", str(requirement.marker or ""))
        return canonicalize_name(requirement.name), str(requirement.specifier), marker

    for extra, wanted in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        end = f'extra == "{extra}"' if extra else ""
        stated_here = {
            described(each)
            for each in needed
            if str(each.marker or "").endswith(end) and (extra or "extra" not in str(each.marker))
        }
        assert stated_here == {described(each) for each in map(Requirement, wanted)}
    assert SpecifierSet(stated["Requires-Python"]) == SpecifierSet(project["requires-python"])
    assert stated.get_all("Classifier") == project["classifiers"]
    core = [each.name for each in needed if "extra" not in str(each.marker)]
    heavy = ("torch", "tf-models", "starlette")
    assert not [name for name in core if name.startswith(heavy)]
    assert "Project-URL" not in text


def test_release_has_links(wheel, repository, tmp_path):
    """By the variable that the workflow sets to the address of its repository."""
    workflow = (repository / ".github" / "workflows" / "release.yml").read_text()
    set_to = r"(\w+): \${{ github\.server_url }}/\${{ github\.repository }}"
    (variable,) = re.findall(set_to, workflow)
    address = "https://example.org/owner/name"
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(tmp_path)],
        cwd=wheel.parent,  # the copy of the tree
        env=os.environ | {variable: address},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    text = (tmp_path / "keras_lm.egg-info" / "PKG-INFO").read_text()
    tag = f"v{keras_lm.__version__}"
    assert dict(re.findall(r"^Project-URL: (\w+), (.*)$", text, re.M)) == {
        "Source": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
        "Documentation": f"{address}/tree/{tag}/docs",
    }


def test_wheel_has_the_lectures(wheel, repository):
    files = zipfile.ZipFile(wheel).namelist()
    for data in ["decks/*.toml", "results/*.json"]:
        names = {path.name for path in (repository / "lectures").glob(data)}
        folder = f"keras_lm/lectures/{data.partition('/')[0]}/"
        assert names == {Path(name).name for name in files if name.startswith(folder)} != set()


def test_wheel_has_the_recipes(wheel, repository):
    files = zipfile.ZipFile(wheel).namelist()
    recipes = {path.name for path in (repository / "keras_lm" / "recipes").glob("*.toml")}
    assert recipes
    assert recipes == {Path(name).name for name in files if name.startswith("keras_lm/recipes/")}


# `keras_lm` is imported as the command does: without TensorFlow, which takes long.
FIND = """
import keras_lm_command
from importlib.util import find_spec
spec = find_spec("keras_lm.export")
print(spec.name, spec.origin)
"""
IMPORT = "import keras_lm.export as e; print(e.__name__, e.__file__)"


@pytest.mark.parametrize("code", [FIND, pytest.param(IMPORT, marks=pytest.mark.thorough)])
def test_unpacked_wheel_has_export_in_its_place(wheel, tmp_path, code):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = tmp_path / "site" / "keras_lm" / "export" / "__init__.py"
    assert done.stdout.split() == ["keras_lm.export", str(expected)]


IN_A_CLONE = f"""{FIND}
print(find_spec("keras_lm.lectures").origin)
for name in ("setup", "tests"):
    assert find_spec("keras_lm." + name) is None, name
"""


def test_a_clone_works_without_an_install(wheel):
    """Even if another clone is installed: its packages are those beside `keras_lm`."""
    clone = wheel.parent  # the copy of the tree
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CLONE], cwd=clone, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    name, *actual = done.stdout.split()
    assert name == "keras_lm.export"
    assert actual == [str(clone / each / "__init__.py") for each in ("export", "lectures")]


def test_these_tests_test_the_tree(repository):
    assert Path(find_spec("keras_lm").origin) == repository / "keras_lm" / "__init__.py"
    assert Path(find_spec("keras_lm.export").origin) == repository / "export" / "__init__.py"


def test_both_package_managers_have_what_make_asks_for(repository, project):
    """Every extra that the Makefile installs is one that pyproject.toml declares."""
    makefile = (repository / "Makefile").read_text()
    asked = [line.split(":=")[1] for line in makefile.splitlines() if "EXTRAS :=" in line]
    assert asked
    asked = {name.strip() for name in ",".join(asked).split(",")}
    assert asked <= set(project["optional-dependencies"])


def test_extras_that_contain_others_repeat_their_requirements(project):
    extras = {name: set(needed) for name, needed in project["optional-dependencies"].items()}
    assert extras["litert"] | extras["plot"] | extras["serving"] <= extras["demo"]
    assert extras["plot"] | extras["vocab"] <= extras["bench"]
    for name in [
        "beam",
        "coreference",
        "demo",
        "docs",
        "knowledge",
        "tables",
        "tensorboard",
        "translation",
        "vocab",
    ]:
        assert extras[name] <= extras["test"], name
    everything = set().union(project["dependencies"], *extras.values())
    names = [Requirement(each).name for each in everything]
    assert sorted(names) == sorted(set(names))  # one range of versions for each


def test_workflows_call_what_is_there(repository, project):
    """Targets of the Makefile, folders of tests, and versions that pyproject.toml admits."""
    files = (repository / ".github" / "workflows").glob("*.yml")
    workflows = "".join(path.read_text() for path in files)
    targets = re.findall(r"^([a-z]+):", (repository / "Makefile").read_text(), flags=re.M)
    called = re.findall(r"make ([a-z]+)", workflows)
    assert {"lint", "test", "slow", "package"} <= {*called} <= {*targets}
    folders = set(re.findall(r"(?<!--ignore=)(tests/\w+)", workflows))
    assert folders == set(re.findall(r"--ignore=(tests/\w+)", workflows)) != set()  # once each
    assert all((repository / folder).is_dir() for folder in folders)

    (tensorflow,) = [n for n in map(Requirement, project["dependencies"]) if n.name == "tensorflow"]
    ranges = {"3": SpecifierSet(project["requires-python"]), "2": tensorflow.specifier}
    for major, admitted in ranges.items():
        versions = {f"{major}.{minor}" for minor in range(50) if f"{major}.{minor}" in admitted}
        assert set(re.findall(rf'"({major}\.\d+)"', workflows)) == versions
    pinned = {path.name for path in (repository / ".github" / "constraints").iterdir()}
    assert pinned == {f"tensorflow-{version}.txt" for version in versions}
