"""The table of a board, as Markdown, JSON and a picture; and the files of a submission."""

import json
import zipfile

import click
import numpy as np

from glue.published import PUBLISHED_ROWS
from glue.tasks import SUBMITTED, TASKS
from keras_lm.utils.files import replacing
from keras_lm.utils.optional_dependencies import require

MEASURED = (
    "CoLA by Matthews' correlation, MRPC and QQP by F1/accuracy, STS-B by Pearson's/Spearman's "
    "correlation, MNLI by accuracy on matched/mismatched texts, others by accuracy; all in percent."
)
DRAWN = ("BiLSTM + attention", "GPT", "BERT-base")  # of the published rows


def write_report(board, rows, names, skipped):
    """Write `scores.md`, `scores.json` and `scores.png` of a board.

    Args:
        board: `Board`.
        rows: list of `ScoredRow`, your own; the published ones are added.
        names: list of str, the tasks that averages are over.
        skipped: dict of the names of other tasks → why they are left out.
    """
    table = [*rows, *PUBLISHED_ROWS]
    with replacing(board.folder / "scores.md") as new:
        new.write_text(as_markdown(table, names, skipped), encoding="utf-8")
    content = {
        "tasks": names,
        "skipped": skipped,
        "rows": [vars(row) | {"average": row.average(names)} for row in table],
    }
    with replacing(board.folder / "scores.json") as new:
        new.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    try:
        with replacing(board.folder / "scores.png") as new:
            _draw(rows, names, new)
    except ImportError as error:
        click.echo(f"No picture: {error}", err=True)


def as_markdown(rows, names, skipped):
    """Return the table of `ScoredRow`s as Markdown, with notes below."""
    without = [name for name in names if name != "WNLI"]
    header = ["model", "on", *TASKS, "average", "without WNLI"]
    lines = [header, ["---", "---", *["---:"] * (len(TASKS) + 2)]]
    for number, row in enumerate(rows, start=1):
        averages = (row.average(names), row.average(without))
        cells = [_cell(row.scores.get(task)) for task in TASKS]
        cells += ["–" if value is None else f"{value:.1f}" for value in averages]
        lines.append([f"{row.name} ({number})", row.measured_on, *cells])
    text = "# GLUE\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)
    text += f"\n\n{MEASURED}\nThe average is over {', '.join(names)}, each task the mean of its "
    text += "measures, of those that were published.\nRows on dev say what the best run has on the "
    text += "set that chose it, rows on test what the leaderboard's server counted.\n\n"
    text += "".join(f"{number}. {row.note}\n" for number, row in enumerate(rows, start=1))
    if skipped:
        text += "\nLeft out:\n\n"
        text += "".join(f"- {name}: {reason}.\n" for name, reason in skipped.items())
    return text


def _cell(scores):
    return "/".join(f"{value:.1f}" for value in scores.values()) if scores else "–"


def _draw(rows, names, path):
    """Draw bars for each task's rows of your own, and lines for some published ones."""
    Figure = require("matplotlib.figure", "a picture of the scores").Figure

    figure = Figure(figsize=(max(9, 2 + 1.2 * len(names)), 5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(rows)
    places = np.arange(len(names))
    for i, row in enumerate(rows):
        means = [row.average([name]) or 0.0 for name in names]
        axes.bar(places - 0.4 + (i + 0.5) * width, means, width, label=f"{row.name} (dev)")
    published = [row for row in PUBLISHED_ROWS if row.name in DRAWN]
    for row, style in zip(published, (":", "--", "-")):
        means = [row.average([name]) for name in names]
        known = [(place, mean) for place, mean in zip(places, means) if mean is not None]
        for place, mean in known:
            label = f"{row.name} (test)" if place == known[0][0] else None
            ends = (place - 0.45, place + 0.45)
            axes.hlines(mean, *ends, colors="black", linestyles=style, linewidth=1, label=label)
    axes.set_xticks(places, names)
    axes.set(ylabel="score, mean of its measures", title="GLUE")
    axes.axhline(0, color="gray", linewidth=0.5)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)


def write_answers(path, task, outputs, ids):
    """Write the answers to a test set, as the leaderboard wants them.

    Args:
        path: `Path` of the `.tsv`.
        task: `GlueTask`.
        outputs: (B, classes) logits, or (B, 1) numbers.
        ids: list of str, the column `index`, or None; those that are not numbers are counted anew.
    """
    if ids is None or not all(each.isdecimal() for each in ids):
        ids = range(len(outputs))
    if not task.class_names:
        answers = [f"{value:.3f}" for value in np.clip(outputs[:, 0], 0.0, 5.0)]
    else:
        answers = np.argmax(outputs, axis=-1)
        answers = [task.class_names[n] for n in answers] if task.words else answers
    lines = [f"{id}\t{answer}\n" for id, answer in zip(ids, answers, strict=True)]
    with replacing(path) as new:
        new.write_text("index\tprediction\n" + "".join(lines), encoding="utf-8")


def pack_answers(folder):
    """Pack the files of a submission into `submission.zip` beside them; return those missing."""
    there = [name for name in SUBMITTED if (folder / name).is_file()]
    if there:
        with replacing(folder / "submission.zip") as new, zipfile.ZipFile(new, "w") as archive:
            for name in there:
                archive.write(folder / name, name, zipfile.ZIP_DEFLATED)
    return [name for name in SUBMITTED if name not in there]
