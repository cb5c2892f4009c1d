"""The check runs exports in a process of their own, and notices what is wrong with them."""

import numpy as np
import pytest

from keras_lm.export import ExportCheckError, check, comparison


@pytest.fixture(scope="module")
def task(exported_as):
    return exported_as("classifier of pairs").task


@pytest.fixture(scope="module")
def folder(exported_as):
    return exported_as("classifier of pairs").folder


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_saved_model_in_a_fresh_process(fresh, folder, task, texts, request):
    if not fresh:
        request.getfixturevalue("checked_here")
    report = check(folder, task, (texts, texts[::-1]), batch_size=4)
    assert report.differences["labels"] == 0
    assert report.differences["scores"] <= 1e-5
    assert report.load_seconds > 0
    assert report.first_call_seconds > 0
    assert report.num_bytes > 100_000
    assert report.num_texts == len(texts)
    assert "labels 100.00% equal" in str(report)


@pytest.mark.slow
def test_progress_is_drawn_batch_by_batch(folder, task, texts, capsys):
    check(folder, task, (texts, texts[::-1]), batch_size=2, verbose=1)
    number = 2 * -(-len(texts) // 2)  # asked, then compared
    assert f"{number}/{number}" in capsys.readouterr().out


@pytest.fixture
def answers(task, texts, folder, monkeypatch):
    """What the process answers, to be falsified."""
    right = task.answer_all((texts, texts[::-1]))
    for name in ("labels", "class_names"):
        right[name] = np.char.encode(right[name].astype(str)).astype(object)
    monkeypatch.setattr(comparison, "_ask", lambda *asked: ([right], 0.1, 0.2))
    return right


@pytest.mark.eager
@pytest.mark.parametrize(
    ("name", "falsify", "words"),
    [
        ("scores", lambda x: x + 1e-3, r"scores differs by 0\.001, but tolerance=1e-05"),
        ("scores", lambda x: x * np.nan, "scores differs by nan"),
        ("scores", lambda x: x[:, :1], "the shape"),
        ("labels", lambda x: np.where(x == x, b"ugly", x), r"labels\[0\] is b'ugly', but"),
        ("more", lambda x: np.zeros(3), "the export returns"),
    ],
)
def test_wrong_answers(name, falsify, words, answers, folder, task, texts):
    assert check(folder, task, (texts, texts[::-1])).first_call_seconds == 0.2
    answers[name] = falsify(answers.get(name))
    with pytest.raises(ExportCheckError, match=words):
        check(folder, task, (texts, texts[::-1]))


@pytest.mark.eager
def test_tolerance_is_the_users(answers, folder, task, texts):
    answers["scores"] = answers["scores"] + 1e-3
    report = check(folder, task, (texts, texts[::-1]), tolerance=1e-2)
    assert report.differences["scores"] == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.eager
def test_of_strings_the_tolerance_is_the_share_that_may_differ(answers, folder, task, texts):
    answers["labels"] = np.where(np.arange(len(texts)) == 2, b"ugly", answers["labels"])
    share = 1 / len(texts)
    report = check(folder, task, (texts, texts[::-1]), tolerance=share + 0.01)
    assert report.differences["labels"] == pytest.approx(share)
    assert "labels 83.33% equal" in str(report)  # of six
    with pytest.raises(ExportCheckError, match=r"labels\[2\] is b'ugly', .* differs by 0\.17"):
        check(folder, task, (texts, texts[::-1]), tolerance=share - 0.01)


def test_by_default_not_a_single_string_of_many_may_differ():
    entries = np.arange(200_000) == 7
    comparisons = [{"labels": (entries[:9], "labels[7] is b'ugly'; "), "scores": (np.ones(1), "")}]
    comparisons.append({"labels": (entries[9:], ""), "scores": (np.zeros(1), "")})
    with pytest.raises(ExportCheckError, match=r"labels\[7\].* differs by 5e-06, but"):
        comparison.within(1.0, 0.0, comparisons)
    assert comparison.within(1.0, 1e-5, comparisons) == {"labels": 5e-6, "scores": 1.0}


def test_process_that_fails_says_why(folder, task, texts, monkeypatch, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit('no such kernel')")
    monkeypatch.setattr(comparison, "PROGRAM", program)
    with pytest.raises(ExportCheckError, match="no such kernel"):
        check(folder, task, (texts, texts))


def test_mistakes_have_clear_words(folder, task, tmp_path):
    with pytest.raises(FileNotFoundError, match="not an exported model"):
        check(folder.parent, task, ["a"])
    with pytest.raises(FileNotFoundError, match="not an exported model"):
        check(tmp_path / "no.tflite", task, ["a"])
    with pytest.raises(ValueError, match="empty"):
        check(folder, task, [])
    with pytest.raises(ValueError, match="text_pair"):
        check(folder, task, ["a"])
