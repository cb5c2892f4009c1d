"""The picture of an explanation shows what has the most attention."""

import pytest

from keras_lm.knowledge import draw_explanation


def path(attention, *concepts):
    relations = ["-IsA", "UsedFor", "Causes"][: len(concepts) - 1]
    return {"concepts": list(concepts), "relations": relations, "attention": attention}


PAIRS = [
    {
        "question": "film",
        "answer": "story",
        "attention": 0.75,
        "paths": [path(0.6, "film", "story"), path(0.4, "film", "love_song", "story")],
    },
    {"question": "cast", "answer": "story", "attention": 0.25, "paths": [path(1.0, "cast", "x")]},
]
EXPLAINED = {
    "text": "what was the film?",
    "label": 1,
    "choices": [
        {"choice": "great", "score": 0.2, "pairs": []},
        {"choice": "a story", "score": 0.8, "pairs": PAIRS},
    ],
}


@pytest.fixture
def words(tmp_path):
    """Draw, and return the words of the picture in their order."""
    figure = pytest.importorskip("matplotlib")

    def draw(**options):
        with figure.rc_context({"svg.fonttype": "none"}):  # letters stay text
            draw_explanation(EXPLAINED, tmp_path / "picture.svg", **options)
        text = (tmp_path / "picture.svg").read_text(encoding="utf-8")
        return [part.split("<")[0] for part in text.split(">") if part.split("<")[0].strip()]

    return draw


def test_the_best_choice_by_attention(words):
    actual = words()
    assert "what was the film? → a story  (0.80)" in actual
    assert [word for word in actual if word in ("0.45", "0.30", "0.25")] == ["0.45", "0.30", "0.25"]
    assert {"love song", "-IsA", "cast"} <= set(actual)
    assert "cast" not in words(most=2)


def test_other_choices(words):
    actual = words(choice=0)
    assert any("no path between" in word for word in actual)
    with pytest.raises(ValueError, match="choice=2: there are 2, pass 0 to 1"):
        words(choice=2)
