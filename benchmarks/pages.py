"""What people read of `results/*.json`: all tables, the short ones of docs/benchmarks.md, pictures.

python benchmarks/pages.py
"""

import re
import textwrap
from pathlib import Path

import report
from matplotlib import rc_context
from matplotlib.figure import Figure
from rows import OURS, make_rows

HERE = Path(__file__).parent
PLACE = re.compile(r"(<!-- results: written by benchmarks/pages\.py -->\n).*?(<!-- end -->)", re.S)
# Parts and other forms of keras_lm, with which a peer is not compared.
OWN = {
    contender.name
    for row in make_rows(1.0)
    for contender in row.contenders
    if contender.peer == OURS
}
OTHER_FORMATS = (", bfloat16", ", int8")
# What the second picture shows.
SHOWN = "Strings to labels, BERT-base, batch of 1"


def write(folder):
    """Write the pages and pictures of the results in a folder `results`."""
    results = report.load(folder / "results")
    (folder / "results" / "README.md").write_text(all_tables(results), encoding="utf-8")
    page = folder.parent / "docs" / "benchmarks.md"
    page.write_text(fill(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    draw_ratios(results, folder / "pictures" / "ratios.svg")
    draw_contenders(results, SHOWN, folder / "pictures" / "labels.svg")


def all_tables(results):
    """Return a page with all that was measured."""
    lines = ["# All tables", "", "How to read them: [benchmarks](../../docs/benchmarks.md).", ""]
    for result in results:
        lines += [f"## {result['processor']}", "", result["remark"], ""]
        for title, record in result["rows"].items():
            lines += report.table_lines(title, record)
    return "\n".join(lines).rstrip() + "\n"


def fill(text, results):
    """Return the text of a page with a short table for each processor in its place."""
    lines = []
    for result in results:
        lines += [f"### {result['processor']}", "", result["remark"], ""]
        lines += ["| | unit | keras_lm | fastest peer | | its time ÷ keras_lm's |"]
        lines += ["| --- | --- | ---: | --- | ---: | ---: |"]
        for title, record in compared(result).items():
            lines.append(f"| {' | '.join(short_row(title, record))} |")
        lines.append("")
    return PLACE.sub(lambda found: found[1] + "\n".join(["", *lines]) + found[2], text)


def short_row(title, record):
    """Return the cells of a short table: what, unit, ours, the fastest peer, its figure, ratio."""
    peer = fastest_peer(record)
    ours, theirs = _first(record, OURS), _first(record, peer)
    return title, record["measures"][0], ours, peer, theirs, record["contenders"][peer]["ratio"]


def compared(result):
    """Return the records of a processor that say how we compare: a dict of the rows' titles.

    Rows of bfloat16 say nothing of a processor that has no instruction for it.
    """
    lacks = result["remark"].startswith("With neither")
    return {
        title: record
        for title, record in result["rows"].items()
        if fastest_peer(record) and not (lacks and "bfloat16" in title)
    }


def fastest_peer(record):
    """Return the peer with the smallest time, or size, in the same number format; None without."""
    peers = {
        name: float(figures["ratio"])
        for name, figures in record["contenders"].items()
        if name not in OWN and "ratio" in figures and not name.endswith(OTHER_FORMATS)
    }
    return min(peers, key=peers.get, default=None)


def _first(record, name):
    return report.grouped(record["contenders"][name]["values"][0])


def draw_ratios(results, path):
    """Draw the fastest peer's time ÷ ours: a line for a row, a mark for a processor."""
    rows = list(dict.fromkeys(title for result in results for title in compared(result)))[::-1]
    # Names on two lines leave the width to what is drawn.
    names = [textwrap.fill(title, 50) for title in rows]
    figure = Figure(figsize=(8, 0.36 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    for marker, result in zip("osD^vP", results, strict=False):
        pairs = [
            (float(record["contenders"][fastest_peer(record)]["ratio"]), rows.index(title))
            for title, record in compared(result).items()
        ]
        axes.scatter(*zip(*pairs, strict=True), marker=marker, label=result["processor"], s=30)
    axes.axvline(1, color="gray", linewidth=1)
    axes.margins(y=0.01)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 0.7, 1, 1.5, 2, 3], ["0.5", "0.7", "1", "1.5", "2", "3"], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlim(*axes.get_xlim())
    axes.axvspan(1, axes.get_xlim()[1], color="tab:green", alpha=0.06, linewidth=0)
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.grid(axis="y", linewidth=0.3)
    figure.supxlabel(
        "time of the fastest peer ÷ keras_lm's: right of 1, keras_lm is faster", size=8
    )
    figure.legend(loc="outside upper left", fontsize=8)
    _save(figure, path)


def draw_contenders(results, title, path):
    """Draw the first measure of a row: a group of bars for a processor, a bar for a contender."""
    results = [result for result in results if title in result["rows"]]
    figure = Figure(figsize=(9, 1 + 1.1 * len(results)), layout="constrained")
    for axes, result in zip(figure.subplots(len(results), sharex=True), results, strict=True):
        record = result["rows"][title]
        names = list(record["contenders"])[::-1]
        values = [float(record["contenders"][name]["values"][0]) for name in names]
        colors = ["tab:blue" if name in OWN else "tab:gray" for name in names]
        axes.bar_label(axes.barh(names, values, color=colors), fontsize=7)
        axes.tick_params(labelsize=7)
        axes.set_title(result["processor"], fontsize=8, loc="left")
        axes.margins(x=0.1)
    axes.set_xlabel(f"{title}: {record['measures'][0]}", fontsize=8)
    _save(figure, path)


def _save(figure, path):
    # The same figures give the same file.
    with rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    write(HERE)
