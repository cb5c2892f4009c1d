"""What mkdocs reads beside this folder: pages, pictures, notebooks that stand elsewhere."""

import ast
import os
import re
import shutil
from pathlib import Path

from mkdocs.structure.files import File

REPOSITORY = Path(__file__).parents[1]
PAGES = {
    "BUILD.md": "build.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmark_notes.md",
    "benchmarks/results/README.md": "benchmark_tables.md",
}
# The tree as it is imported: `export/` is keras_lm.export. mkdocs.yml names it.
IMPORTED = REPOSITORY / "build" / "imported"
# Where a line of code may break, rather than within a name: after a bracket, before a dot.
JOINTS = re.compile(r'(?<=[(\[]</span>)|(?=<span class="o">\.</span>)')
BLOCKS = re.compile(r"<pre\b.*?</pre>", re.S)
# What stands in these stays as it is: links, headings, blocks of code.
LEFT_ALONE = re.compile(r"(<(a|h\d|pre|autoref)\b.*?</\2>)", re.S)
CODE = re.compile(r"<code>(?:keras_lm\.)?(?:(\w+)\.)?(\w+)(?:\.\w+|\(.*?\))*</code>")


def on_startup(command, dirty):
    """Lay links to the packages as they are imported, for the pages of the reference."""
    shutil.rmtree(IMPORTED, ignore_errors=True)
    package = IMPORTED / "keras_lm"
    package.mkdir(parents=True)
    for path in [*(REPOSITORY / "keras_lm").iterdir(), REPOSITORY / "export"]:
        (package / path.name).symlink_to(path)


def on_config(config):
    """List the pages of models, which nobody lists by hand."""
    pages = sorted(path.name for path in (REPOSITORY / "docs" / "models").glob("*.md"))
    (section,) = (section for section in config["nav"] if "Models" in section)
    section["Models"].append({"Each model": [f"models/{name}" for name in pages]})
    return config


def on_files(files, config):
    """Add the pages, with links as they are in the site."""
    for source, page in PAGES.items():
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_with_links(text, source)))
    names = {path: path.relative_to(REPOSITORY) for path in REPOSITORY.glob("colab/*.ipynb")}
    names[REPOSITORY / "LICENSE"] = "LICENSE"
    # benchmarks/README.md is a page at the top of the site, and so are its pictures.
    benchmarks = REPOSITORY / "benchmarks"
    names |= {path: path.relative_to(benchmarks) for path in benchmarks.glob("pictures/*.svg")}
    # What pages of the lectures link to, by its place in the repository.
    for folder in ("benchmarks", "lectures", "keras_lm/layers", "keras_lm/models", "examples"):
        names |= {
            path: path.relative_to(REPOSITORY) for path in (REPOSITORY / folder).rglob("*.py")
        }
    names |= {path: path.relative_to(REPOSITORY) for path in REPOSITORY.glob("keras_lm/recipes/*")}
    for path, name in names.items():
        files.append(File.generated(config, str(name), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Lead links from `docs/` to what stands elsewhere to where it is in the site."""
    if page.file.src_uri in PAGES.values():
        return markdown
    return _with_links(markdown, f"docs/{page.file.src_uri}")


def _with_links(text, source):
    """Return the text of a file of the repository with links as they are in the site."""
    folder = os.path.dirname(source)
    here = os.path.relpath(folder, "docs") if folder.startswith("docs") else "."

    def link(results):
        path = os.path.normpath(os.path.join(folder, results[1]))
        if not (REPOSITORY / path).exists():
            return results[0]
        if (REPOSITORY / path).is_dir():
            path += "/__main__.py"
        target = PAGES.get(path, path.removeprefix("docs/"))
        if target.startswith("benchmarks/pictures/"):
            target = target.removeprefix("benchmarks/")
        return f"]({os.path.relpath(target, here)}{results[2] or ''})"

    return re.sub(r"\]\((?!https?:|#|mailto:)([^)#]+)(#[^)]*)?\)", link, text)


def on_page_content(html, page, config, files):
    """Link names of the library in any page to the reference."""
    html = html.replace("<code>build/imported/", "<code>")
    documented = _documented(config)

    def link(results):
        module, name = results.groups()
        modules = documented.get(name, ())
        if module:
            modules = [other for other in modules if other == module]
        elif name.islower() and "_" not in name:  # `export` may mean much
            return results[0]
        if len(modules) != 1:
            return results[0]
        target = f"keras_lm.{modules[0]}.{name}"
        linked = f"<autoref optional identifier={target!r}>{results[0][6:-7]}</autoref>"
        return f"<code>{linked}</code>"

    parts = LEFT_ALONE.split(html)  # text, what is left alone, its tag, text, …
    parts[::3] = [CODE.sub(link, text) for text in parts[::3]]
    del parts[2::3]
    return BLOCKS.sub(lambda block: JOINTS.sub("<wbr>", block[0]), "".join(parts))


def _documented(config):
    """Return a dict from public names to the modules that have a page and export them."""
    results = {}
    pages = "".join(
        page.read_text(encoding="utf-8") for page in Path(config["docs_dir"]).glob("api/*.md")
    )
    for module in sorted(set(re.findall(r"^::: keras_lm\.(\w+)", pages, re.M))):
        folder = IMPORTED / "keras_lm" / module
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                for name in ast.literal_eval(statement.value):
                    results.setdefault(name, []).append(module)
    return results
