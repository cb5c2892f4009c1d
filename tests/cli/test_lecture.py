"""`keras-lm lecture`: the list, a table, a JSON object, and a name that is not there."""

import json

import pytest

from keras_lm import lectures

pytestmark = pytest.mark.eager


def test_list_shows_all_and_what_was_found(run):
    text = run("lecture", "--list")
    assert all(f"{name}: " in text for name in lectures.experiments())
    assert text.count("Found: ") == len(lectures.experiments())
    assert run("lecture") == text


def test_a_table_and_what_it_is_beside(run):
    text = run("lecture", "dropout_scale", "--quick")
    lines = [line.split() for line in text.splitlines()]
    assert ["p", "share", "of", "zeros"] in [line[:4] for line in lines]
    assert "0.5" in [line[0] for line in lines if line]
    for part in ("Claim: ", "Quick: ", "Published: ", "Found: ", "Shows: "):
        assert part in text


def test_json(run):
    message = json.loads(run("lecture", "dropout_scale", "--quick", "--json"))
    assert message["quick"] and message["lecture"] == "dropout_scale"
    assert [row["p"] for row in message["rows"]] == [0.1, 0.3, 0.5, 0.8]


def test_a_name_that_is_not_there(fail):
    assert "keras-lm lecture --list" in fail("lecture", "unicorns")
