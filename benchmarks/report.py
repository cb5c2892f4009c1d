"""What a run found as data, `results/PROCESSOR.json`, and the tables that show it."""

import json
import os
import platform
import re
from decimal import Decimal
from pathlib import Path

from rounds import quantile
from rows import OURS

# Processors of one name differ in these, and so in speed; the widest counts.
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}
HALF_PRECISION = {"amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16"}


def make_record(row, result, how):
    """Return what a row came to, a dict that JSON can hold.

    Its numbers are strings with the digits that count: `measures`, the titles of the columns;
    `ratio_of`, time or size; `contenders`, a dict from names to `values`, one a measure, the
    quartiles of the first as `middle_half`, and beside ours `ratio`, of the medians, and
    `by_round`, the median and the quartiles of the rounds' ratios; `notes` and `how`.

    Args:
        row: `rows.Row`.
        result: `rounds.Result`.
        how: str, of `how_line`.
    """
    first = row.measures[0]
    notes = [target_line(result, target) for target in row.targets]
    notes += [f"Left out: {name}: {why}" for name, why in result.left_out.items()]
    if result.waiting_share is not None:
        share = f"{max(result.waiting_share, 0):.1%} of a core"
        notes.append(f"While one computed, those that waited used {share} together.")
    packages = ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items()))
    return {
        "measures": [measure.title for measure in row.measures],
        "ratio_of": "size" if first.key == "size" else "time",
        "contenders": {
            contender.name: _figures(row, result, contender.name)
            for contender in row.contenders
            if contender.name in result.samples
        },
        "notes": notes,
        "how": f"{how}; {packages}",
    }


def _figures(row, result, name):
    first = row.measures[0]
    half = [_value(first, result.quantile(name, first.key, share)) for share in (0.25, 0.75)]
    figures = {
        "values": [
            _value(measure, result.quantile(name, measure.key, measure.quantile))
            for measure in row.measures
        ],
        "middle_half": half[::-1] if first.work else half,
    }
    if name == OURS or OURS not in result.samples:
        return figures
    by_round = result.round_ratios(name, OURS, first.key)
    return figures | {
        "ratio": f"{result.ratio(name, OURS, first.key):.2f}",
        "by_round": [f"{quantile(by_round, share):.2f}" for share in (0.5, 0.25, 0.75)],
    }


def _value(measure, number):
    number = measure.work / number if measure.work else number * measure.scale
    return format(number, measure.format.replace(",", ""))


def table_lines(title, record):
    """Return the Markdown of a row: its heading, table, notes and how it was measured.

    Args:
        title: str, the row's.
        record: dict of `make_record`.
    """
    header = ["", *record["measures"], "middle half"]
    header += [f"{record['ratio_of']} ÷ keras_lm's", "round by round"]
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines = [f"### {title}", "", _line(header), _line(rule)]
    for name, figures in record["contenders"].items():
        cells = [name, *map(grouped, figures["values"])]
        cells.append("–".join(map(grouped, figures["middle_half"])))
        median, *half = figures.get("by_round", ("", "", ""))
        cells += [figures.get("ratio", ""), f"{median} ({half[0]}–{half[1]})" if median else ""]
        lines.append(_line(cells))
    return [*lines, "", *(f"- {note}" for note in [*record["notes"], record["how"]]), ""]


def grouped(number):
    """Return a number, a string of digits, with commas between thousands."""
    return f"{Decimal(number):,}"


def _line(cells):
    return "| " + " | ".join(cells) + " |"


def target_line(result, target):
    """Return a target, what was reached, and whether that meets it.

    Args:
        result: `rounds.Result`.
        target: `rows.Target`.
    """
    if target.speed is not None:
        wish = f"{target.contender} at least {target.speed:g} × as fast as"
    elif target.time < 1:
        wish = f"{target.contender} in at most {target.time:g} × the time of"
    else:
        wish = f"{target.contender} in less time than"
    present = [name for name in target.peers if name in result.samples]
    if target.contender not in result.samples or not present:
        return f"Target: {wish} {' or '.join(target.peers)}: not measured."
    fastest = min(present, key=lambda name: result.quantile(name, "seconds", 0.5))
    of = f"{fastest}, the fastest peer" if len(target.peers) > 1 else fastest
    if target.speed is not None:
        reached = result.ratio(fastest, target.contender)
        met = reached >= target.speed
    else:
        reached = result.ratio(target.contender, fastest)
        met = reached <= target.time if target.time < 1 else reached < target.time
    return f"Target: {wish} {of}: {reached:.2f}, {'met' if met else '**missed**'}."


def how_line(command, date, load, rounds):
    """Return what a reader has to know to judge the figures of a row.

    Args:
        command: str, what was run.
        date: str.
        load: float. Load average before.
        rounds: int.
    """
    return f"{date}, {rounds} rounds, load average before: {load:.2f}: `{command}`"


def describe_machine():
    """Return (the processor as results are filed, what it has)."""
    (model, flags), half = processor(), half_precision()
    vectors = next((f" with {name}" for flag, name in VECTORS.items() if flag in flags), "")
    remark = " and ".join(half) or "neither AMX nor AVX512-BF16, so without rows of bfloat16"
    name = f"{model}{vectors}, {os.cpu_count()} cores"
    return name, f"With {remark}. Python {platform.python_version()}."


def half_precision():
    """Return the names of what the processor has for bfloat16; empty where it has nothing."""
    flags = processor()[1]
    return [name for flag, name in HALF_PRECISION.items() if flag in flags]


def processor():
    """Return (model, set of its feature flags), if the system reports them."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine(), set()
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*: (.*)$", text, re.MULTILINE)
    return (
        model.group(1) if model else platform.machine(),
        set(flags.group(1).split()) if flags else set(),
    )


def save(folder, machine, records):
    """Put records into the file of a processor, whose figures are never mixed with others.

    A record takes the place of the older one of its row; those of other rows stay.

    Args:
        folder: `Path` of the JSON files.
        machine: tuple of `describe_machine`.
        records: dict from a row's title to its record.

    Returns:
        `Path` of the file.
    """
    name, remark = machine
    path = folder / f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.json"
    older = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else {}
    results = {"processor": name, "remark": remark, "rows": older | records}
    folder.mkdir(exist_ok=True)
    new = path.with_suffix(".writing")
    new.write_text(f"{json.dumps(results, indent=1, ensure_ascii=False)}\n", encoding="utf-8")
    new.replace(path)
    return path


def load(folder):
    """Return what the JSON files of a folder hold, a list in the order of their names."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
