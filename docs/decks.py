"""Write the pages of the lectures, `docs/lectures/*.md`, from the data in `lectures/`.

python docs/decks.py
"""

from pathlib import Path

from keras_lm import lectures

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "docs" / "lectures"
NOTE = "<!-- written by docs/decks.py from the folder `lectures` -->\n\n"


def pages():
    """Return a dict of a page's file name → its text."""
    results = {f"{name}.md": _deck(deck) for name, deck in lectures.decks().items()}
    return {"index.md": _index(), **results}


def _index():
    lines = [
        "# The lectures, runnable",
        "",
        "Five lectures are what this library is about. Each has a page that lists all of its",
        "tables and figures, with what runs each of them, or why nothing does:",
        "",
    ]
    for name, deck in lectures.decks().items():
        lines.append(f"- [{deck['title']}]({name}.md), by {deck['by']}")
    lines += [
        "",
        "An experiment is a file of the folder [`lectures`](../../lectures/__init__.py), for one",
        "table or figure at small scale. `keras-lm lecture --list` shows all, and",
        "`keras-lm lecture NAME` runs one. With `--quick` it takes seconds, needs no package, and",
        "shows only that it runs.",
    ]
    for name in lectures.experiments():
        lines += ["", *_experiment(name)]
    return "\n".join(lines) + "\n"


def _experiment(name):
    experiment, results = lectures.load(name), lectures.results(name)
    yield f"## {name}"
    yield ""
    yield f"**{lectures.title(experiment)}.** {experiment.CLAIM}"
    yield ""
    yield f"    keras-lm lecture {name}"
    yield ""
    needs = ", ".join(f"`{lectures.materials.PACKAGES[package]}`" for package in experiment.NEEDS)
    yield f"- Needs: {needs or 'nothing else'}"
    yield f"- Published: {experiment.PUBLISHED} ({experiment.SOURCE})"
    yield f"- Found: {experiment.FOUND}"
    yield f"- Shows: {experiment.SHOWS}"
    yield ""
    header, *rows = lectures.cells(results["rows"])
    for row in [header, ["---"] * len(header), *rows]:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"
    yield ""
    yield f"From one run of {results['seconds']:.0f} s, on two cores that other work used, too."


def _deck(deck):
    lines = [
        f"# {deck['title']}",
        "",
        f"By {deck['by']}. Its figures and tables in order; `keras-lm lecture NAME` runs an "
        "experiment.",
        "",
        "| figure or table | what runs it | |",
        "| --- | --- | --- |",
    ]
    for figure in deck["figures"]:
        links = [f"experiment [`{name}`](index.md#{name})" for name in figure.get("runs", [])]
        links += [f"[`{path}`](../../{path})" for path in figure.get("see", [])]
        lines.append(
            f"| {figure['figure']} | {', '.join(links) or '–'} | {figure.get('note', '')} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(NOTE + text, encoding="utf-8")
