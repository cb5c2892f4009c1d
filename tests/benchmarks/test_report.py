"""Tables and targets from numbers that are made up."""

import pytest
import report
from rounds import Result
from rows import Contender, Measure, Row, Target

ROW = Row(
    "forward",
    "Forward",
    (Contender("keras_lm", "keras_lm"), Contender("Other", "other"), Contender("Third", "third")),
    (Measure("tokens/s", work=1000, format=",.0f"), Measure("ms", scale=1000, quantile=0.9)),
    targets=(Target(("Other", "Third"), speed=1.1),),
)


def result_of(**seconds):
    samples = {name: {"seconds": [[x] for x in numbers]} for name, numbers in seconds.items()}
    return Result(samples=samples)


def test_table_shows_medians_spread_and_both_ratios():
    result = result_of(keras_lm=[0.5, 0.4, 0.6], Other=[1.0, 1.0, 0.9])
    result.left_out["Third"] = "not installed"
    result.versions.update(b="2", a="1")
    text = "\n".join(report.row_lines(ROW, result, "as you see"))
    assert "#### Forward" in text
    assert "| keras_lm | 2,000 | 580.00 | 1,818–2,222 |  |  |" in text
    assert "| Other | 1,000 | 1,000.00 | 1,000–1,053 | 2.00 | 2.00 (1.75–2.25) |" in text
    assert "- Left out: Third: not installed\n- as you see; a 1, b 2\n" in text
    assert "the fastest peer: 2.00, met." in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_table_without_keras_lm_has_no_ratios():
    text = "\n".join(report.row_lines(ROW, result_of(Other=[1.0, 1.0]), ""))
    assert "| Other | 1,000 | 1,000.00 | 1,000–1,000 |  |  |" in text
    assert "not measured" in text


@pytest.mark.parametrize(
    "target, ours, verdict",
    [
        (
            Target(("Other", "Third"), speed=1.1),
            0.9,
            "fast as Third, the fastest peer: 1.11, met",
        ),
        (Target(("Other", "Third"), speed=1.1), 0.95, "1.05, **missed**"),
        (Target(("Other",), time=0.9), 1.7, "0.9 × the time of Other: 0.85, met"),
        (Target(("Other",), time=0.9), 1.9, "0.95, **missed**"),
        (Target(("Third",), time=1.0), 0.99, "in less time than Third: 0.99, met"),
        (Target(("Third",), time=1.0), 1.0, "1.00, **missed**"),
        (Target(("Nobody",), time=1.0), 1.0, "not measured"),
        (Target(("Other",), speed=1.0, contender="Nobody"), 1.0, "not measured"),
    ],
)
def test_target_says_what_was_reached(target, ours, verdict):
    line = report.target_line(result_of(keras_lm=[ours], Other=[2.0], Third=[1.0]), target)
    assert verdict in line


def test_machine_says_whether_bfloat16_means_anything(monkeypatch):
    monkeypatch.setattr(report, "processor", lambda: ("A processor", {"avx512f"}))
    text = "\n".join(report.machine_lines())
    assert f"{report.BLOCK}A processor with AVX-512, " in text
    assert "without rows of bfloat16" in text
    monkeypatch.setattr(report, "processor", lambda: ("A processor", {"amx_bf16"}))
    text = "\n".join(report.machine_lines())
    assert f"{report.BLOCK}A processor, " in text
    assert "AMX" in text
    assert "without rows" not in text


def test_write_replaces_the_rows_of_a_processor_and_keeps_others(tmp_path):
    path = tmp_path / "README.md"
    one, other = f"{report.BLOCK}a Xeon, 2 cores", f"{report.BLOCK}an EPYC, 2 cores"
    old = f"{one}\n\nold\n\n#### Forward\n\nslow\n\n#### Import\n\nstays"
    path.write_text(f"before\n{report.START}\n\n{old}\n\n{report.END}\nafter\n")
    report.write(path, [other, "", "with AVX2", ""], {"Import": ["#### Import", "", "here", ""]})
    tables = {"Forward": ["#### Forward", "", "fast", ""], "Latency": ["#### Latency", "", "low"]}
    report.write(path, [one, "", "new", ""], tables)
    text = path.read_text()
    new = f"{one}\n\nnew\n\n#### Forward\n\nfast\n\n#### Import\n\nstays\n\n#### Latency\n\nlow"
    blocks = f"{new}\n\n{other}\n\nwith AVX2\n\n#### Import\n\nhere"
    assert text == f"before\n{report.START}\n\n{blocks}\n\n{report.END}\nafter\n"
    report.write(path, [one, "", "new", ""], {})
    assert path.read_text() == text
    path.write_text("no markers")
    with pytest.raises(ValueError, match="lacks the line"):
        report.write(path, [one], {})
    assert path.read_text() == "no markers"


def test_readme_has_the_markers(repository):
    text = (repository / "benchmarks" / "README.md").read_text()
    assert text.index(report.START) < text.index(report.END)
