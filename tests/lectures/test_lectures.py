"""The lectures: each figure has something that runs it or a reason, and each experiment runs."""

import importlib.util
import json

import pytest

from keras_lm import lectures

# Experiments that train, even when they are quick: some seconds each.
TRAINING = {
    "another_task_first",
    "data_and_batch",
    "feature_layers",
    "frozen_or_fine_tuned",
    "gpt_fine_tuning",
    "independent_blanks",
    "layer_weights",
    "orders_or_masks",
    "shots_over_sizes",
    "why_not_earlier",
    "zero_shot_over_steps",
}
EXPERIMENTS = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in TRAINING))
    for name in lectures.experiments()
]


def test_there_are_five_decks_and_no_figure_is_lost():
    decks = lectures.decks()
    # Counted on the slides; a figure that several slides build up is one.
    assert {name: len(deck["figures"]) for name, deck in decks.items()} == {
        "cmu_10707": 17,
        "cs533_language_models": 28,
        "elmo_bert_gpt2": 21,
        "kaist_day5": 34,
        "transfer_learning_2": 29,
    }
    assert all(deck["title"] and deck["by"] for deck in decks.values())


@pytest.mark.parametrize("name", lectures.decks())
def test_each_figure_has_what_runs_it_or_a_reason(name, repository):
    for figure in lectures.decks()[name]["figures"]:
        assert set(figure) <= {"figure", "runs", "see", "note"}
        assert set(figure.get("runs", [])) <= set(lectures.experiments()), figure
        missing = [path for path in figure.get("see", []) if not (repository / path).exists()]
        assert not missing, figure
        assert figure.get("runs") or figure.get("see") or figure.get("note"), figure


def test_each_experiment_is_in_a_deck():
    figures = [figure for deck in lectures.decks().values() for figure in deck["figures"]]
    assert {name for figure in figures for name in figure.get("runs", [])} == {
        *lectures.experiments()
    }


@pytest.mark.parametrize("name", lectures.experiments())
def test_experiments_have_their_parts(name):
    experiment = lectures.load(name)
    for part in ("CLAIM", "PUBLISHED", "SOURCE", "FOUND", "SHOWS"):
        assert isinstance(getattr(experiment, part), str) and len(getattr(experiment, part)) > 10, (
            part
        )
    assert set(experiment.NEEDS) <= set(lectures.materials.PACKAGES)
    actual = lectures.results(name)
    assert actual["lecture"] == name
    assert not actual["quick"]


@pytest.mark.eager
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_run(name):
    rows = lectures.load(name).run(quick=True)
    header, *cells = lectures.cells(json.loads(json.dumps(rows)))
    assert len(cells) >= 2
    assert all(len(row) == len(header) for row in cells)
    # The kept run is of the same experiment: a quick one may lack a column, and has no other.
    assert set(header) <= set(lectures.cells(lectures.results(name)["rows"])[0])


def test_numbers_are_written_for_readers():
    rows = [{"a": 1234567, "b": 0.123456}, {"a": "x", "c": 100083.0}]
    assert lectures.cells(rows) == [
        ["a", "b", "c"],
        ["1,234,567", "0.1235", ""],
        ["x", "", "100,083"],
    ]


def test_pages_are_those_of_the_data(repository):
    spec = importlib.util.spec_from_file_location("decks", repository / "docs" / "decks.py")
    decks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(decks)
    pages = {path.name: path.read_text(encoding="utf-8") for path in decks.FOLDER.glob("*.md")}
    wanted = {name: decks.NOTE + text for name, text in decks.pages().items()}
    assert pages == wanted, "run: python docs/decks.py"
