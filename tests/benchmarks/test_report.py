"""Tables and targets from numbers that are made up."""

import json

import pages
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
    record = report.make_record(ROW, result, "as you see")
    assert json.loads(json.dumps(record)) == record
    text = "\n".join(report.table_lines("Forward", record))
    assert "### Forward" in text
    assert "| keras_lm | 2,000 | 580.00 | 1,818–2,222 |  |  |" in text
    assert "| Other | 1,000 | 1,000.00 | 1,000–1,053 | 2.00 | 2.00 (1.75–2.25) |" in text
    assert "- Left out: Third: not installed\n- as you see; a 1, b 2\n" in text
    assert "the fastest peer: 2.00, met." in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_table_without_keras_lm_has_no_ratios():
    record = report.make_record(ROW, result_of(Other=[1.0, 1.0]), "")
    text = "\n".join(report.table_lines("Forward", record))
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
    name, remark = report.describe_machine()
    assert name.startswith("A processor with AVX-512, ")
    assert "without rows of bfloat16" in remark
    monkeypatch.setattr(report, "processor", lambda: ("A processor", {"amx_bf16"}))
    name, remark = report.describe_machine()
    assert name.startswith("A processor, ")
    assert "AMX" in remark
    assert "without rows" not in remark


def test_saving_replaces_the_rows_of_a_processor_and_keeps_others(tmp_path):
    folder = tmp_path / "results"
    report.save(folder, ("An EPYC, 2 cores", "with AVX2"), {"Import": {"how": "there"}})
    path = report.save(folder, ("A Xeon, 2 cores", "old"), {"Forward": 1, "Import": 2})
    assert path.name == "a-xeon-2-cores.json"
    assert report.save(folder, ("A Xeon, 2 cores", "new"), {"Forward": 3, "Latency": 4}) == path
    xeon, epyc = report.load(folder)
    assert xeon["processor"] == "A Xeon, 2 cores"
    assert xeon["remark"] == "new"
    assert xeon["rows"] == {"Forward": 3, "Import": 2, "Latency": 4}
    assert epyc["rows"] == {"Import": {"how": "there"}}


def test_pages_show_the_results_that_are_kept(repository):
    results = report.load(repository / "benchmarks" / "results")
    page = (repository / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert page == pages.fill(page, results), "run: python benchmarks/pages.py"
    tables = (repository / "benchmarks" / "results" / "README.md").read_text(encoding="utf-8")
    assert tables == pages.all_tables(results), "run: python benchmarks/pages.py"
    for result in results:
        assert f"### {result['processor']}" in page


def test_pictures_are_the_same_for_the_same_figures(repository, tmp_path):
    results = report.load(repository / "benchmarks" / "results")
    texts = []
    for _ in range(2):
        pages.draw_contenders(results[:2], pages.SHOWN, tmp_path / "labels.svg")
        texts.append((tmp_path / "labels.svg").read_text(encoding="utf-8"))
    assert "tokenizers + PyTorch" in texts[0]
    assert "64.8" in texts[0]
    assert texts[0] == texts[1]


def test_a_peer_is_compared_in_the_same_number_format():
    result = result_of(keras_lm=[0.5], Other=[1.0], Third=[0.8])
    record = report.make_record(ROW, result, "")
    assert pages.fastest_peer(record) == "Third"
    record["contenders"]["Third, bfloat16"] = record["contenders"].pop("Third")
    assert pages.fastest_peer(record) == "Other"


def test_the_fastest_exports_and_runtimes_of_a_number_format_meet():
    milliseconds = {
        "keras_lm": ["20", "100", "1"],
        "keras_lm, float32.tflite": ["10", "120", "1"],
        "keras_lm, int8.tflite": ["4", "50", "1"],
        "keras_lm, frozen-bfloat16": ["2", "2", "1"],
        "Runtime, float32": ["12", "90", "1"],
        "Runtime, int8": ["3", "60", "1"],
        "Runtime, bfloat16": ["1", "1", "1"],
    }
    contenders = {name: {"values": values} for name, values in milliseconds.items()}
    record = {"measures": ["1×24", "8×120", "least, 1×24"], "contenders": contenders}
    results = [
        (title.rpartition(": ")[2], ours, peer, ratio)
        for title, _, ours, peer, _, ratio in pages.by_number_format(record)
    ]
    assert results == [
        ("keras_lm, float32.tflite", "10.0", "Runtime, float32", "1.20"),
        ("keras_lm, frozen-bfloat16", "2.0", "Runtime, bfloat16", "0.50"),
        ("keras_lm, int8.tflite", "4.0", "Runtime, int8", "0.75"),
        ("keras_lm", "100.0", "Runtime, float32", "0.90"),
        ("keras_lm, frozen-bfloat16", "2.0", "Runtime, bfloat16", "0.50"),
        ("keras_lm, int8.tflite", "50.0", "Runtime, int8", "1.20"),
    ]
