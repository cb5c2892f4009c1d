"""The pages: their Python runs as it is, with the extras that they name; links and tables hold."""

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import run_page
import yaml

import keras_lm
from keras_lm.utils.optional_dependencies import EXTRAS

REPOSITORY = Path(__file__).parents[1]
GUIDES = [path.name for path in sorted((REPOSITORY / "docs").glob("*.md"))]
for folder in ("models", "coming_from"):
    pages = sorted((REPOSITORY / "docs" / folder).glob("*.md"))
    GUIDES += [f"{folder}/{path.name}" for path in pages]
PAGES = ["README.md", "BUILD.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{g}" for g in GUIDES)]
# Their sections each have Python for a package of others, which the section says to install.
PAGES_OF_OTHERS = ["docs/trackers.md"]

# Without tracing, which would take most of the time; exports are traced all the same. Pages share a
# process, which takes long to start, and nothing else.
RUNNER = """
import contextlib, io, json, os, sys, traceback
sys.modules.update(dict.fromkeys(sys.argv[2:]))  # as if these were not installed
import tensorflow as tf
import keras
tf.config.run_functions_eagerly(True)
top = os.getcwd()
for page, blocks in json.load(open(sys.argv[1], encoding="utf-8")).items():
    os.makedirs(os.path.join(top, page))
    os.chdir(os.path.join(top, page))
    keras.utils.set_random_seed(1)
    namespace = {"__name__": "__main__"}
    for number, (block, expected) in enumerate(blocks, 1):
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(block, f"block {number}", "exec"), namespace)
        except Exception:
            traceback.print_exc()
            sys.exit(f"{page}: block {number} failed:\\n{block}")
        if expected and printed.getvalue() != expected:
            sys.exit(f"{page}: block {number} printed\\n{printed.getvalue()}and not\\n{expected}")
"""


def python_blocks(text):
    """Pairs of a block of Python, and what the page says that it prints, or an empty string."""
    return run_page.PYTHON.findall(text)


def without(text):
    """Return the optional packages that a page does not say to install."""
    install, extra = r"pip install '(?:\.|keras-lm)\[([a-z,]+)\]'", r"the\s+extra\s+`([a-z]+)`"
    stated = re.findall(f"{install}|{extra}", text)
    named = {extra for pair in stated for extra in ",".join(pair).split(",")}
    # scikit-learn brings scipy, and asks pyarrow of what it is given if that is loaded.
    named |= {"coreference", "tables"} if "sklearn" in named else set()
    return [package for package, extra in EXTRAS.items() if extra not in named]


def pages_by_extras():
    """Return tuples of pages with Python that need the same extras."""
    groups = {}
    for name in sorted({*PAGES} - {*PAGES_OF_OTHERS}, key=PAGES.index):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        if python_blocks(text):
            groups.setdefault(tuple(without(text)), []).append(name)
    return list(groups.values())


@pytest.mark.slow
@pytest.mark.parametrize("names", pages_by_extras(), ids=" ".join)
def test_python_blocks_run_in_order(names, minilm, tmp_path):
    texts = {name: (REPOSITORY / name).read_text(encoding="utf-8") for name in names}
    blocks = {name: python_blocks(text) for name, text in texts.items()}
    run_blocks(blocks, tmp_path, without(texts[names[0]]))


def sections_of_others():
    """Return a package and blocks, with those at the top of its page, for each section."""
    parameters = []
    for name in PAGES_OF_OTHERS:
        first, *sections = (REPOSITORY / name).read_text(encoding="utf-8").split("\n## ")
        for section in filter(python_blocks, sections):
            package = re.search(r"`pip install ([\w-]+)", section)[1]
            blocks = python_blocks(first + "\n## ") + python_blocks(section)
            parameters.append(pytest.param(package, blocks, id=f"{name}-{package}"))
    return parameters


@pytest.mark.slow
@pytest.mark.parametrize("package, blocks", sections_of_others())
def test_sections_for_packages_of_others_run(package, blocks, minilm, tmp_path):
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"needs: pip install {package}")
    run_blocks({"page": blocks}, tmp_path)


def run_blocks(blocks, tmp_path, absent=()):
    """Run the blocks of pages as if some packages were not installed."""
    (tmp_path / "blocks.json").write_text(json.dumps(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, "blocks.json", *absent],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("name", PAGES)
def test_links_to_files_lead_somewhere(name):
    page = REPOSITORY / name
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert not [target for target in targets if not (page.parent / target).exists()]


def test_the_front_pages_are_short():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 150
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    _, unreleased, *releases = changelog.split("\n## ")
    assert unreleased.startswith("[Unreleased]")
    assert releases[0].startswith(f"[{keras_lm.__version__}]")
    assert all(len(release.splitlines()) <= 150 for release in releases)


def pages_in(nav):
    """Yield the pages of a part of the site's navigation."""
    for entry in nav:
        entry = entry if isinstance(entry, str) else next(iter(entry.values()))
        yield from [entry] if isinstance(entry, str) else pages_in(entry)


def test_the_site_leads_to_every_guide_and_once_to_the_lectures():
    site = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [*pages_in(site["nav"])]
    assert len(pages) == len(set(pages))
    assert {path.name for path in (REPOSITORY / "docs").glob("*.md")} <= set(pages)
    assert [name for name in pages if name.startswith("lectures/")] == ["lectures/index.md"]


def test_tables_are_those_of_the_code():
    spec = importlib.util.spec_from_file_location("tables", REPOSITORY / "docs" / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = tables.PAGE.read_text(encoding="utf-8")
    assert {name for _, name, _ in tables.PLACE.findall(text)} == {*tables.TABLES}
    assert text == tables.fill(text), "run: python docs/tables.py"
    models = tables.model_pages.models(tables._backbones())
    for name, classes in models.items():
        page = REPOSITORY / "docs" / "models" / f"{name}.md"
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        filled = tables.model_pages.fill(text, name, classes, tables.format_of)
        assert text == filled, "run: python docs/tables.py"
    assert {page.stem for page in (REPOSITORY / "docs" / "models").glob("*.md")} == {*models}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    reference = tmp_path / "site" / "api"
    assert "keras_lm.export" in (reference / "export" / "index.html").read_text(encoding="utf-8")
    page = (reference / "metrics" / "index.html").read_text(encoding="utf-8")
    signature = re.search(r'id="keras_lm.metrics.MatthewsCorrelation".*?</pre>', page, re.S)[0]
    assert "num_classes" in re.sub("<[^>]+>", "", signature)
    page = (reference / "tasks_texts" / "index.html").read_text(encoding="utf-8")
    assert re.search(r'href="\.\./models_recurrent/#keras_lm\.models\.ElmoBackbone"', page)
    assert "<autoref" not in page
    assert "build/imported" not in page
    pages = [reference / "index.html", *reference.glob("*/index.html")]
    assert len(pages) > 20
    for page in pages:
        assert page.stat().st_size <= 300_000, page
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<(link|script|img)[^>]+(href|src)=.?(https?:)?//", text), page
    assert 'id="keras_lm.serving.server.Server"' in (
        reference / "serving" / "index.html"
    ).read_text(encoding="utf-8")


def test_the_reference_has_every_public_name():
    for module in ("models", "objectives", "tasks", "tokenizers"):
        names = []
        for page in (REPOSITORY / "docs" / "api").glob(f"{module}*.md"):
            (listed,) = re.findall(r"members: \[(.*)\]", page.read_text(encoding="utf-8"))
            names += listed.split(", ")
        assert sorted(names) == sorted(importlib.import_module(f"keras_lm.{module}").__all__)
    index = (REPOSITORY / "docs" / "api" / "index.md").read_text(encoding="utf-8")
    pages = {page.stem for page in (REPOSITORY / "docs" / "api").glob("*.md")} - {"index"}
    assert pages == {*re.findall(r"\]\((\w+)\.md\)", index)}
