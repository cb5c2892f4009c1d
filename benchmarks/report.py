"""Tables in Markdown, what the machine is, and the part of README.md that they fill."""

import os
import platform
import re
from pathlib import Path

from rounds import quantile
from rows import OURS

START, END = "<!-- results: written by run.py --write -->", "<!-- end of results -->"
BLOCK = "### On "  # the heading of a processor's figures, which are never mixed with others
TABLE = "#### "
# Processors of one name differ in these, and so in speed; the widest counts.
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}
HALF_PRECISION = {"amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16"}


def row_lines(row, result, how):
    """Return the Markdown of one row: a table, its targets, who was left out, how it was measured.

    Args:
        row: `rows.Row`.
        result: `rounds.Result`.
        how: str, of `how_line`.
    """
    first = row.measures[0]
    of = "size" if first.key == "size" else "time"
    header = ["", *(measure.title for measure in row.measures), "middle half"]
    header += [f"{of} ÷ keras_lm's", "round by round"]
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines = [f"{TABLE}{row.title}", "", _line(header), _line(rule)]
    for contender in row.contenders:
        if contender.name in result.samples:
            lines.append(_line(_cells(row, result, contender.name)))
    lines += ["", *(f"- {target_line(result, target)}" for target in row.targets)]
    lines += [f"- Left out: {name}: {why}" for name, why in result.left_out.items()]
    if result.waiting_share is not None:
        share = f"{max(result.waiting_share, 0):.1%} of a core"
        lines.append(f"- While one computed, those that waited used {share} together.")
    packages = ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items()))
    return [*lines, f"- {how}; {packages}", ""]


def _cells(row, result, name):
    cells = [name]
    for measure in row.measures:
        cells.append(_value(measure, result.quantile(name, measure.key, measure.quantile)))
    first = row.measures[0]
    half = [_value(first, result.quantile(name, first.key, share)) for share in (0.25, 0.75)]
    cells.append("–".join(half[::-1] if first.work else half))
    if name == OURS or OURS not in result.samples:
        return [*cells, "", ""]
    by_round = result.round_ratios(name, OURS, first.key)
    low, middle, high = (quantile(by_round, share) for share in (0.25, 0.5, 0.75))
    cells.append(f"{result.ratio(name, OURS, first.key):.2f}")
    return [*cells, f"{middle:.2f} ({low:.2f}–{high:.2f})"]


def _value(measure, number):
    number = measure.work / number if measure.work else number * measure.scale
    return format(number, measure.format)


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


def machine_lines():
    """Return the heading of a processor's block, and what it has."""
    (model, flags), half = processor(), half_precision()
    vectors = next((f" with {name}" for flag, name in VECTORS.items() if flag in flags), "")
    remark = " and ".join(half) or "neither AMX nor AVX512-BF16, so without rows of bfloat16"
    return [
        f"{BLOCK}{model}{vectors}, {os.cpu_count()} cores",
        "",
        f"With {remark}. Python {platform.python_version()}.",
        "",
    ]


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


def write(path, head, tables):
    """Put tables into the block of a processor among the generated ones of a file.

    A table takes the place of its older one; others of the block stay, under the new head.

    Args:
        path: `Path` of a Markdown file, with the generated blocks between the two markers.
        head: list of str, of which the first is the block's heading.
        tables: dict from a row's title to its lines.

    Raises:
        ValueError: if the file lacks the markers.
    """
    before, start, rest = path.read_text(encoding="utf-8").partition(START)
    kept, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{path} lacks the line {START!r} or {END!r}.")
    blocks = _parts(kept, BLOCK)
    older = _parts(blocks.get(head[0], ""), TABLE)
    older = {title: text for title, text in older.items() if title.startswith(TABLE)}
    newer = {f"{TABLE}{title}": "\n".join(lines).strip() for title, lines in tables.items()}
    blocks[head[0]] = "\n\n".join(["\n".join(head).strip(), *(older | newer).values()])
    text = "\n\n".join(blocks.values())
    path.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _parts(text, heading):
    """Return the parts of a text that begin with such headings, by their first lines."""
    parts = re.split(f"^(?={heading})", text, flags=re.MULTILINE)
    return {part.partition("\n")[0]: part.strip() for part in parts if part.strip()}
