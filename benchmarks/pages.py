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
# The row in which several of our exports meet several runtimes; it is compared by number format.
RUNTIMES = next(row.title for row in make_rows(1.0) if row.kind == "runtimes")
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
        lines += [f"| {' | '.join(cells)} |" for cells in comparisons(result)]
        lines.append("")
    return PLACE.sub(lambda outcome: outcome[1] + "\n".join(["", *lines]) + outcome[2], text)


def comparisons(result):
    """Yield how we compare on a processor: what, unit, our figure, the fastest peer, its, ratio.

    Rows of bfloat16 say nothing about a processor without instructions for it.
    """
    lacks = result["remark"].startswith("With neither")
    for title, record in result["rows"].items():
        if title == RUNTIMES:
            yield from by_number_format(record)
        elif (peer := fastest_peer(record)) and not (lacks and "bfloat16" in title):
            ours, theirs = _first(record, OURS), _first(record, peer)
            ratio = record["contenders"][peer]["ratio"]
            yield title, record["measures"][0], ours, peer, theirs, ratio


def by_number_format(record):
    """Yield the same for each shape of texts and number format: our fastest export, the runtime."""
    shapes = [title for title in record["measures"] if not title.startswith("least")]
    for column, shape in enumerate(shapes):  # (The least of each come after all medians.)
        for wanted in ("float32", "bfloat16", "int8"):
            times = {
                name: float(figures["values"][column])
                for name, figures in record["contenders"].items()
                if number_format(name) == wanted
            }
            ours, peer = (
                min(names, key=times.get, default=None)  # of equal times the first by name
                for names in (sorted(times.keys() & OWN), sorted(times.keys() - OWN))
            )
            if ours and peer:
                title = f"Strings to labels, MiniLM, {shape} words, {wanted}: {ours}"
                ratio = f"{times[peer] / times[ours]:.2f}"
                yield title, "ms", f"{times[ours]}", peer, f"{times[peer]}", ratio


def number_format(name):
    """Return the number format that the name of a contender states; float32 without one."""
    return next((each for each in ("bfloat16", "int8") if each in name), "float32")


def fastest_peer(record):
    """Return the peer with the smallest time, or size, in the same number format; None without."""
    peers = {
        name: float(figures["ratio"])
        for name, figures in record["contenders"].items()
        if name not in OWN and "ratio" in figures and number_format(name) == "float32"
    }
    return min(peers, key=peers.get, default=None)


def _first(record, name):
    return report.grouped(record["contenders"][name]["values"][0])


def draw_ratios(results, path):
    """Draw the fastest peer's time ÷ ours: a line for a row, a mark for a processor."""
    compared = {result["processor"]: [*comparisons(result)] for result in results}
    rows = list(dict.fromkeys(cells[0] for rows in compared.values() for cells in rows))[::-1]
    # Names on two lines leave the width to what is drawn.
    names = [textwrap.fill(title, 50) for title in rows]
    figure = Figure(figsize=(8, 0.36 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    for marker, (processor, each) in zip("osD^vP", compared.items(), strict=False):
        pairs = [(float(ratio), rows.index(title)) for title, *_, ratio in each]
        axes.scatter(*zip(*pairs, strict=True), marker=marker, label=processor, s=30)
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
