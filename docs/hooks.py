"""What mkdocs reads beside this folder: pages, pictures, notebooks that stand elsewhere."""

import re
import shutil
from pathlib import Path

from mkdocs.structure.files import File

REPOSITORY = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "BUILD.md": "build.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
# The tree as it is imported: `export/` is keras_lm.export. mkdocs.yml names it.
IMPORTED = REPOSITORY / "build" / "imported"


def on_startup(command, dirty):
    """Lay links to the packages as they are imported, for the pages of the reference."""
    shutil.rmtree(IMPORTED, ignore_errors=True)
    package = IMPORTED / "keras_lm"
    package.mkdir(parents=True)
    for path in [*(REPOSITORY / "keras_lm").iterdir(), REPOSITORY / "export"]:
        (package / path.name).symlink_to(path)


def on_files(files, config):
    """Add the pages, with links as they are in the site."""
    for source, page in PAGES.items():
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        for other, target in PAGES.items():
            text = text.replace(f"]({other}", f"]({target}")
        text = re.sub(r"\]\(docs/", "](", text)
        files.append(File.generated(config, page, content=text))
    names = {path: path.relative_to(REPOSITORY) for path in REPOSITORY.glob("colab/*.ipynb")}
    names[REPOSITORY / "LICENSE"] = "LICENSE"
    # benchmarks/README.md is a page at the top of the site, and so are its pictures.
    benchmarks = REPOSITORY / "benchmarks"
    names |= {path: path.relative_to(benchmarks) for path in benchmarks.glob("pictures/*.svg")}
    for path, name in names.items():
        files.append(File.generated(config, str(name), abs_src_path=str(path)))
    return files
